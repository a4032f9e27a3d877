//! What the last-level cache holds at the end: a count, and some of its sets way by way.

use std::cmp::Reverse;

use overbank_sdc::{Machine, WayView};
use serde::Serialize;

use crate::arguments::View;

/// Sets that are shown where none is named.
const FULLEST: usize = 4;

/// What is printed of the cache.
#[derive(Serialize)]
pub struct Held {
    lines: Lines,
    slots: Slots,
    sets: Vec<Set>,
}

/// Lines of the whole cache.
#[derive(Default, Serialize)]
struct Lines {
    empty: u64,
    ordinary: u64,
    sdc: u64,
}

/// Slots of all SDC lines, 8 a line.
#[derive(Default, Serialize)]
struct Slots {
    valid: u64,
    referenced: u64,
}

#[derive(Serialize)]
struct Set {
    set: usize,
    ways: Vec<WayView>,
}

impl Held {
    pub fn of(machine: &Machine, view: &View) -> Self {
        let (mut lines, mut slots) = (Lines::default(), Slots::default());
        // Valid slots, most first; empty ways; the set.
        let mut fullness = Vec::new();
        for set in 0..machine.shape().llc.sets() {
            let (before, empty_before) = (slots.valid, lines.empty);
            for way in machine.set_view(set).unwrap_or_default() {
                match way {
                    WayView::Empty => lines.empty += 1,
                    WayView::Ordinary { .. } => lines.ordinary += 1,
                    WayView::Sdc { slots: of, .. } => {
                        lines.sdc += 1;
                        let valid = of.iter().filter(|slot| slot.valid);
                        slots.referenced +=
                            valid.clone().filter(|slot| slot.reference).count() as u64;
                        slots.valid += valid.count() as u64;
                    }
                }
            }
            fullness.push((Reverse(slots.valid - before), lines.empty - empty_before, set));
        }
        let sets = match view {
            View::Sets(sets) => sets.clone(),
            View::Fullest => {
                fullness.sort_unstable();
                fullness.into_iter().take(FULLEST).map(|(_, _, set)| set).collect()
            }
        };
        let ways = |set| machine.set_view(set).unwrap_or_default();
        let sets = sets.into_iter().map(|set| Set { set, ways: ways(set) }).collect();
        Self { lines, slots, sets }
    }
}
