//! Which of its two groups each bucket of a block takes.
//!
//! Greedy as in SetSep (`001`, section 4.4.2): buckets by size, the largest first, to the emptier
//! candidate. Then repair: a group with more keys than it has unknowns hands a bucket to its other
//! candidate, and that one another in turn, by the shortest chain of such moves that ends in a
//! group with room (breadth first).
//!
//! Cost: a pass over the buckets of a block; a repair looks at each group of the block once at
//! most.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::shape::{BUCKETS, CHOICE_WORDS, Shape};

/// The buckets of a block: their sizes and choices, and the keys of each group.
#[derive(Clone)]
pub(super) struct Balance {
    /// Keys of each bucket.
    pub(super) sizes: Vec<u32>,
    /// Bit `b % 64` of word `b / 64`: which candidate bucket b takes.
    pub(super) choices: [u64; CHOICE_WORDS],
    /// Keys of each group.
    pub(super) loads: Vec<u32>,
}

/// A chain of moves: buckets that take their other candidate.
pub(super) type Chain = Vec<u16>;

impl Balance {
    /// Shares out buckets of these sizes (one for each bucket); no group gets more than `cap` keys
    /// if it can be helped.
    pub(super) fn new(shape: &Shape, sizes: Vec<u32>, cap: usize) -> Self {
        debug_assert_eq!(sizes.len(), BUCKETS);
        let mut balance = Self { sizes, choices: [0; CHOICE_WORDS], loads: vec![0; shape.groups] };
        for bucket in by_size(&balance.sizes) {
            let size = balance.sizes[usize::from(bucket)];
            let [a, b] = shape.candidates()[usize::from(bucket)].map(usize::from);
            let second = balance.loads[b] < balance.loads[a];
            balance.choices[usize::from(bucket >> 6)] |= u64::from(second) << (bucket & 63);
            balance.loads[if second { b } else { a }] += size;
        }
        for group in 0..shape.groups {
            while balance.loads[group] as usize > cap {
                let Some(chain) = balance.relief(shape, group, cap, shape.groups) else { break };
                chain.iter().for_each(|&bucket| balance.turn(shape, bucket));
            }
        }
        balance
    }

    /// A bucket has one key more or less.
    pub(super) fn grow(&mut self, shape: &Shape, bucket: u16, by: i32) {
        let group = self.group(shape, bucket);
        for count in [&mut self.sizes[usize::from(bucket)], &mut self.loads[group]] {
            *count = count.wrapping_add_signed(by);
        }
    }

    /// Which candidate `bucket` takes.
    #[inline]
    pub(super) fn choice(&self, bucket: u16) -> usize {
        (self.choices[usize::from(bucket >> 6)] >> (bucket & 63) & 1) as usize
    }

    /// The group that `bucket` is in.
    #[inline]
    pub(super) fn group(&self, shape: &Shape, bucket: u16) -> usize {
        usize::from(shape.candidates()[usize::from(bucket)][self.choice(bucket)])
    }

    /// Buckets that are in `group`.
    pub(super) fn buckets<'a>(
        &'a self,
        shape: &'a Shape,
        group: usize,
    ) -> impl Iterator<Item = u16> + 'a {
        let members = shape.members(group).iter().copied();
        members.filter(move |&bucket| self.group(shape, bucket) == group)
    }

    /// Has `bucket` take its other candidate.
    pub(super) fn turn(&mut self, shape: &Shape, bucket: u16) {
        let size = self.sizes[usize::from(bucket)];
        let from = self.group(shape, bucket);
        self.choices[usize::from(bucket >> 6)] ^= 1 << (bucket & 63);
        let to = self.group(shape, bucket);
        self.loads[from] -= size;
        self.loads[to] += size;
    }

    /// The shortest chain of moves that takes keys out of `start` and leaves no other group with
    /// more than `cap`; looks at `groups_max` groups at most.
    pub(super) fn relief(
        &self,
        shape: &Shape,
        start: usize,
        cap: usize,
        groups_max: usize,
    ) -> Option<Chain> {
        /// A group reached: by which bucket, from which place of the queue, and how many keys must
        /// leave it with one bucket.
        struct Reached {
            group: usize,
            bucket: u16,
            from: usize,
            excess: usize,
        }
        let mut seen = vec![false; shape.groups];
        seen[start] = true;
        let mut reached =
            vec![Reached { group: start, bucket: u16::MAX, from: usize::MAX, excess: 1 }];
        let mut queue = VecDeque::from([0]);
        while let Some(at) = queue.pop_front() {
            let Reached { group, bucket: came, excess, .. } = reached[at];
            for bucket in self.buckets(shape, group) {
                let size = self.sizes[usize::from(bucket)] as usize;
                if size < excess || bucket == came {
                    continue;
                }
                let to = shape.candidates()[usize::from(bucket)][1 - self.choice(bucket)];
                let to = usize::from(to);
                if seen[to] {
                    continue;
                }
                let load = self.loads[to] as usize + size;
                if load <= cap {
                    let mut chain = vec![bucket];
                    let mut at = at;
                    while reached[at].from != usize::MAX {
                        chain.push(reached[at].bucket);
                        at = reached[at].from;
                    }
                    return Some(chain);
                }
                if reached.len() < groups_max {
                    seen[to] = true;
                    queue.push_back(reached.len());
                    reached.push(Reached { group: to, bucket, from: at, excess: load - cap });
                }
            }
        }
        None
    }
}

/// Buckets by size, the largest first; counted, not compared.
fn by_size(sizes: &[u32]) -> Vec<u16> {
    /// Larger ones are equal here: which of them comes first matters to no block that balances.
    const LARGEST: usize = 63;
    let class = |size: u32| LARGEST - (size as usize).min(LARGEST);
    let mut starts = [0u16; LARGEST + 2];
    sizes.iter().for_each(|&size| starts[class(size) + 1] += 1);
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut order = vec![0; sizes.len()];
    for (bucket, &size) in sizes.iter().enumerate() {
        let start = &mut starts[class(size)];
        order[usize::from(*start)] = bucket as u16;
        *start += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::shape::RowBits;
    use super::*;
    use crate::random::Pcg32;

    fn poisson(keys: usize, seed: u64) -> Vec<u32> {
        let mut pcg = Pcg32::new(seed, 3);
        let mut sizes = vec![0; BUCKETS];
        (0..keys).for_each(|_| sizes[pcg.below(BUCKETS as u32) as usize] += 1);
        sizes
    }

    fn check(shape: &Shape, balance: &Balance) {
        let mut loads = vec![0; shape.groups];
        for bucket in 0..BUCKETS as u16 {
            loads[balance.group(shape, bucket)] += balance.sizes[usize::from(bucket)];
        }
        assert_eq!(loads, balance.loads);
    }

    #[test]
    fn crowded_blocks_fit() {
        for seed in 0..20 {
            let shape = Shape::new(RowBits::R128, 2, 137);
            let sizes = poisson(16_800, seed);
            let balance = Balance::new(&shape, sizes, 126);
            check(&shape, &balance);
            let max = balance.loads.iter().max().unwrap();
            assert!(*max <= 126, "{max} keys in a group, seed {seed}");
        }
    }

    #[test]
    fn what_cannot_fit_is_left_as_it_is() {
        let shape = Shape::new(RowBits::R64, 1, 3);
        let mut sizes = vec![0; BUCKETS];
        sizes[17] = 1000;
        let balance = Balance::new(&shape, sizes, 60);
        check(&shape, &balance);
        assert_eq!(balance.loads.iter().max(), Some(&1000));
    }

    #[test]
    fn largest_buckets_come_first() {
        let mut sizes = poisson(9000, 5);
        sizes[4] = 900;
        let order = by_size(&sizes);
        assert_eq!(order[0], 4);
        let sorted = order.iter().map(|&b| sizes[usize::from(b)]).collect::<Vec<_>>();
        assert!(sorted.windows(2).all(|two| two[0] >= two[1]));
    }
}
