//! Which keys a full bucket keeps: a clock that counts, and a ghost.
//!
//! ```text
//!  3 entries:  referenced 3 · counts 3 × 2 · hand and tick 3 · ghost 4     16 bits
//!  4 entries:  referenced 4 · counts 4 × 1 · hand and tick 3 · ghost 5
//! ```
//!
//! A hit sets the entry's referenced bit. A miss of a full bucket compares its key's tag with the
//! *ghost*, that of the bucket's last miss. If they are equal the key was asked for twice in a row,
//! and takes the place of the least used entry. Otherwise it becomes the ghost, and at every second
//! miss the hand looks at the next entry: a referenced one counts up, another counts down, and one
//! at zero gives its place. So entries stay while they are hit between two visits of the hand, and
//! a key of the long tail rarely comes in.
//!
//! The paper's CLOCK (section 2.2.2) brings in every key that misses. With entries for 10 % of 10⁶
//! keys, Zipf 0.99, it hits 0.757 of lookups; the best possible choice of keys hits 0.830. A ghost
//! alone hits 0.794, counts alone 0.799, both 0.80; a second bucket to choose from hits 0.770, for
//! a second line at each miss. (Variants that were tried in November 2026. `tests/rate.rs` bounds
//! the rate of the one that stayed; `overbank lab run lookaside` measures it.)

/// The policy bits of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Policy(pub(super) u16);

/// What becomes of a key that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It comes in, into this slot if none is free; then the policy is this.
    In(usize, Policy),
    /// It stays out, and the policy is this.
    Out(Policy),
}

/// Where the parts of a policy lie, for a number of entries.
struct Parts {
    ways: u16,
    count_bits: u16,
    hand_at: u16,
    ghost_at: u16,
}

impl Parts {
    const fn of(ways: u16) -> Self {
        let count_bits = if ways < 4 { 2 } else { 1 };
        let hand_at = ways + ways * count_bits;
        Self { ways, count_bits, hand_at, ghost_at: hand_at + 3 }
    }

    const fn count_max(&self) -> u16 {
        (1 << self.count_bits) - 1
    }
}

impl Policy {
    fn referenced(self, slot: u16) -> bool {
        self.0 >> slot & 1 == 1
    }

    fn count(self, parts: &Parts, slot: u16) -> u16 {
        self.0 >> (parts.ways + slot * parts.count_bits) & parts.count_max()
    }

    fn with_count(self, parts: &Parts, slot: u16, count: u16) -> Self {
        let at = parts.ways + slot * parts.count_bits;
        Policy(self.0 & !(parts.count_max() << at) | count << at)
    }

    /// Returns the policy with a new entry in the slot, of this count.
    fn replaced(self, parts: &Parts, slot: u16, count: u16) -> Self {
        Policy(self.0 & !(1 << slot)).with_count(parts, slot, count)
    }

    /// Decides on a key of this tag that missed the full bucket.
    pub(super) fn turn(self, ways: u16, tag: u16) -> Turn {
        let parts = Parts::of(ways);
        let tag = tag << parts.ghost_at;
        let ghost = self.0 >> parts.ghost_at << parts.ghost_at;
        // Hand and tick: twice the slot, and one more at every second miss.
        let hand = self.0 >> parts.hand_at & 7;
        if ghost == tag {
            let worth =
                |slot: &u16| 2 * (self.count(&parts, *slot) + u16::from(self.referenced(*slot)));
            let slots = (0..ways).map(|slot| (hand / 2 + slot) % ways);
            let slot = slots.min_by_key(worth).unwrap_or(0);
            return Turn::In(slot.into(), self.replaced(&parts, slot, 1));
        }
        let next = (hand + 1) % (2 * ways);
        let kept = self.0 & ((1 << parts.hand_at) - 1);
        let moved = Policy(kept | next << parts.hand_at | tag);
        if hand & 1 == 0 {
            return Turn::Out(moved);
        }
        let slot = (hand / 2) % ways;
        let count = self.count(&parts, slot);
        if self.referenced(slot) {
            Turn::Out(moved.replaced(&parts, slot, (count + 1).min(parts.count_max())))
        } else if count > 0 {
            Turn::Out(moved.with_count(&parts, slot, count - 1))
        } else {
            Turn::In(slot.into(), moved.replaced(&parts, slot, 0))
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn out(turn: Turn) -> Policy {
        match turn {
            Turn::Out(policy) => policy,
            Turn::In(..) => panic!("{turn:?}"),
        }
    }

    #[test]
    fn parts_fill_the_word_and_do_not_overlap() {
        for ways in 1..=4 {
            let parts = Parts::of(ways);
            assert!(parts.ghost_at < 13 && 2 * ways <= 8, "{ways}");
            let all = (0..ways).fold(Policy(0), |policy, slot| {
                assert_eq!(policy.count(&parts, slot), 0);
                policy.with_count(&parts, slot, parts.count_max())
            });
            assert_eq!(all.0, ((1 << parts.hand_at) - 1) & !((1 << ways) - 1));
        }
    }

    #[test]
    fn the_second_miss_in_a_row_takes_the_place_of_the_least_used() {
        for ways in [3, 4] {
            // All are referenced but the last.
            let policy = Policy((1 << (ways - 1)) - 1);
            let once = out(policy.turn(ways, 5));
            let Turn::In(slot, after) = once.turn(ways, 5) else { panic!() };
            assert_eq!((slot, after.count(&Parts::of(ways), ways - 1)), (usize::from(ways) - 1, 1));
            assert_eq!(after.0 & ((1 << ways) - 1), policy.0, "others keep their bits");
            // Another key in between: not in a row.
            assert!(matches!(out(once.turn(ways, 6)).turn(ways, 5), Turn::Out(_)));
        }
    }

    /// The hand comes by at every second miss.
    #[test]
    fn an_entry_without_hits_goes_after_its_counts_and_one_with_hits_stays() {
        for ways in [3, 4] {
            let parts = Parts::of(ways);
            let mut policy = Policy(0).with_count(&parts, 0, 1);
            let mut gone = std::vec::Vec::new();
            for miss in 0..4 * ways {
                policy.0 |= 0b10; // Slot 1 is hit all the time.
                policy = match policy.turn(ways, 1 + miss % 7) {
                    Turn::In(slot, policy) => {
                        gone.push(slot);
                        policy
                    }
                    Turn::Out(policy) => policy,
                };
            }
            let rest = 2..usize::from(ways);
            let expected: std::vec::Vec<usize> = rest.clone().chain([0]).chain(rest).collect();
            assert_eq!(gone, expected, "{ways}");
            assert_eq!(policy.count(&parts, 1), if ways == 3 { 2 } else { 1 });
        }
    }
}
