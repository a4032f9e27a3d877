//! Which key has which rank of popularity, while ranks change.

use std::collections::HashMap;

/// The order of keys by popularity: at first, key `n` has rank `n`.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    keys: u64,
    /// Ranks by which all keys have moved down, round the end.
    turned: u64,
    /// Ranks whose keys have been exchanged.
    exchanged: HashMap<u64, u64>,
}

impl Popularity {
    pub(super) fn new(keys: u64) -> Popularity {
        Popularity { keys, turned: 0, exchanged: HashMap::new() }
    }

    /// Returns the key of a rank, both from 1 on.
    pub(super) fn key(&self, rank: u64) -> u64 {
        let place = (rank - 1 + self.turned) % self.keys + 1;
        self.exchanged.get(&place).copied().unwrap_or(place)
    }

    /// The `count` coldest keys become the hottest ones; all others are less popular than before.
    pub(super) fn hot_in(&mut self, count: u64) {
        self.turned = (self.turned + self.keys - count % self.keys) % self.keys;
    }

    /// The `count` hottest keys become the coldest ones.
    pub(super) fn hot_out(&mut self, count: u64) {
        self.turned = (self.turned + count) % self.keys;
    }

    /// The keys of two ranks change places.
    pub(super) fn exchange(&mut self, a: u64, b: u64) {
        let (of_a, of_b) = (self.key(a), self.key(b));
        let place = |rank: u64| (rank - 1 + self.turned) % self.keys + 1;
        let (a, b) = (place(a), place(b));
        self.exchanged.insert(a, of_b);
        self.exchanged.insert(b, of_a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a list of all keys.
    #[test]
    fn ranks_are_those_of_a_list() {
        let (mut popularity, mut list) = (Popularity::new(50), (1..=50).collect::<Vec<u64>>());
        for step in 0..300u64 {
            let (a, b) = (step * 7 % 50, step * 13 % 50);
            match step % 3 {
                0 => {
                    popularity.hot_in(a % 5);
                    list.rotate_right(a as usize % 5);
                }
                1 => {
                    popularity.hot_out(b % 5);
                    list.rotate_left(b as usize % 5);
                }
                _ => {
                    popularity.exchange(a + 1, b + 1);
                    list.swap(a as usize, b as usize);
                }
            }
            let found: Vec<u64> = (1..=50).map(|rank| popularity.key(rank)).collect();
            assert_eq!(found, list, "{step}");
        }
    }
}
