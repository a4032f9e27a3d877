//! Buckets to groups: greedy, as the paper describes it (`001`, section 4.4.2).
//!
//! Buckets by size, the largest first, each to the candidate group with the fewest keys, ties at
//! random; several runs, of which the one with the smallest largest group is kept.

use alloc::vec::Vec;

use crate::random::Pcg32;

/// Buckets of a block.
pub(super) const BUCKETS: usize = 256;
/// Groups of a block.
pub(super) const GROUPS: usize = 64;
/// Groups that a bucket may be in.
pub(super) const CANDIDATES: usize = 4;
/// Runs of the greedy assignment.
const RUNS: usize = 4;

/// The groups that each bucket may be in: every group as often as any other.
pub(super) fn candidates() -> Vec<[u8; CANDIDATES]> {
    let mut pcg = Pcg32::new(4, 0x5e75);
    let mut slots: Vec<u8> = (0..BUCKETS * CANDIDATES).map(|i| (i % GROUPS) as u8).collect();
    for last in (1..slots.len()).rev() {
        slots.swap(last, pcg.below(last as u32 + 1) as usize);
    }
    // A group twice among the candidates of a bucket is one choice less: exchange it.
    for at in 0..slots.len() {
        let own = at / CANDIDATES * CANDIDATES;
        while slots[own..at].contains(&slots[at]) {
            let other = pcg.below(slots.len() as u32) as usize;
            let theirs = other / CANDIDATES * CANDIDATES;
            let fits = !slots[own..own + CANDIDATES].contains(&slots[other])
                && !slots[theirs..theirs + CANDIDATES].contains(&slots[at]);
            if fits {
                slots.swap(at, other);
            }
        }
    }
    slots.chunks_exact(CANDIDATES).map(|c| [c[0], c[1], c[2], c[3]]).collect()
}

/// The choice of each bucket, and the keys of the largest group.
pub(super) fn assign(
    candidates: &[[u8; CANDIDATES]],
    sizes: &[u32; BUCKETS],
    pcg: &mut Pcg32,
) -> ([u8; BUCKETS], u32) {
    let mut order: [u16; BUCKETS] = core::array::from_fn(|bucket| bucket as u16);
    order.sort_by_key(|&bucket| core::cmp::Reverse(sizes[usize::from(bucket)]));
    let mut best = ([0; BUCKETS], u32::MAX);
    for _ in 0..RUNS {
        let mut choices = [0; BUCKETS];
        let mut loads = [0u32; GROUPS];
        for &bucket in &order {
            let bucket = usize::from(bucket);
            let load = |choice: usize| loads[usize::from(candidates[bucket][choice])];
            let least = (0..CANDIDATES).map(load).min().unwrap_or(0);
            let ties = (0..CANDIDATES).filter(|&choice| load(choice) == least);
            let nth = pcg.below(ties.clone().count() as u32) as usize;
            let choice = ties.clone().nth(nth).unwrap_or(0);
            choices[bucket] = choice as u8;
            loads[usize::from(candidates[bucket][choice])] += sizes[bucket];
        }
        let largest = loads.into_iter().max().unwrap_or(0);
        if largest < best.1 {
            best = (choices, largest);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_different_and_shared_out_evenly() {
        let all = candidates();
        let mut counts = [0; GROUPS];
        for four in &all {
            for (i, &group) in four.iter().enumerate() {
                assert!(!four[..i].contains(&group));
                counts[usize::from(group)] += 1;
            }
        }
        assert_eq!(counts, [BUCKETS * CANDIDATES / GROUPS; GROUPS]);
    }

    /// Section 4.4.2: 16 M keys in a million groups leave 21 in the largest; here 64 blocks.
    #[test]
    fn groups_are_far_more_even_than_by_hashing() {
        let (all, mut pcg) = (candidates(), Pcg32::new(1, 1));
        let mut largest = 0;
        for _ in 0..64 {
            let mut sizes = [0; BUCKETS];
            (0..1024).for_each(|_| sizes[pcg.below(BUCKETS as u32) as usize] += 1);
            let (choices, most) = assign(&all, &sizes, &mut pcg);
            let mut loads = [0; GROUPS];
            for bucket in 0..BUCKETS {
                loads[usize::from(all[bucket][usize::from(choices[bucket])])] += sizes[bucket];
            }
            assert_eq!(loads.into_iter().max(), Some(most));
            largest = largest.max(most);
        }
        assert!((17..=21).contains(&largest), "{largest}");
    }
}
