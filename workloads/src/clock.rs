//! A cache of addresses by CLOCK alone: what SDC's hits are compared with.

const EMPTY: u32 = u32::MAX;

/// As many slots as it is given, each for any item; no sets, families or sub-tags.
pub struct Clock {
    /// Item and reference bit.
    slots: Vec<(u32, bool)>,
    /// Slot of each item.
    places: Vec<u32>,
    hand: usize,
}

impl Clock {
    /// Returns an empty cache for items below `items`.
    pub fn new(slots: usize, items: usize) -> Self {
        Self { slots: vec![(EMPTY, false); slots.max(1)], places: vec![EMPTY; items], hand: 0 }
    }

    /// Looks an item up, and puts it in if it is not there. Returns whether it was.
    pub fn touch(&mut self, item: u32) -> bool {
        let place = self.places[item as usize];
        if place != EMPTY {
            self.slots[place as usize].1 = true;
            return true;
        }
        while std::mem::take(&mut self.slots[self.hand].1) {
            self.step();
        }
        let (old, _) = std::mem::replace(&mut self.slots[self.hand], (item, false));
        if old != EMPTY {
            self.places[old as usize] = EMPTY;
        }
        self.places[item as usize] = self.hand as u32;
        self.step();
        false
    }

    fn step(&mut self) {
        self.hand = (self.hand + 1) % self.slots.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referenced_item_has_a_second_chance() {
        let mut clock = Clock::new(2, 10);
        let hits = [1, 2, 1, 3, 1, 2, 3].map(|item| clock.touch(item));
        // 3 takes the place of 2, whose bit is not set; then 2 that of 3.
        assert_eq!(hits, [false, false, true, false, true, false, false]);
    }
}
