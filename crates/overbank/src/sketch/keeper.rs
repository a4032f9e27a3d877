//! The side off the packet path.

use super::Settings;
use super::generation::{Counts, Shared, Turn};
use crate::sync::{Arc, Ordering, own};

/// Starts epochs and reads counts. Belongs to one thread; see the [module](super).
pub struct Keeper {
    shared: Arc<Shared>,
    /// The epoch wanted, and the one before it; `None` in the first epoch.
    turn: Turn,
    before: Option<Turn>,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let turn = Turn::unpack(own(&shared.wanted));
        Self { shared, turn, before: None }
    }

    /// Returns whether the counter has taken the current epoch.
    fn attended(&self) -> bool {
        // Pairs with `Counter::attend`.
        Turn::unpack(self.shared.taken.load(Ordering::Acquire)).epoch == self.turn.epoch
    }

    /// Clears the counts of the epoch before and starts an epoch with these settings, which the
    /// counter takes at its next burst. Returns false, with nothing changed, if the counter has not
    /// taken the current epoch yet: it may still write the generation that would be cleared.
    pub fn turn(&mut self, settings: Settings) -> bool {
        if !self.attended() {
            return false;
        }
        let word = Turn { epoch: self.turn.epoch.wrapping_add(1), settings }.pack();
        let next = Turn::unpack(word);
        self.shared.generation(next.epoch).clear();
        // Pairs with `Counter::attend`.
        self.shared.wanted.store(word, Ordering::Release);
        self.before = Some(self.turn);
        self.turn = next;
        true
    }

    /// Returns the number of the epoch whose counts grow: that of [`Keeper::live`]. It wraps.
    pub fn epoch(&self) -> u16 {
        self.growing().epoch
    }

    /// Returns the final counts of the epoch before, or none in the first epoch and while the
    /// counter has not taken the current one.
    pub fn finished(&self) -> Option<Counts<'_>> {
        let before = self.before.filter(|_| self.attended())?;
        Some(self.counts(before))
    }

    /// Returns the counts that grow: those of the current epoch, or of the one before it until the
    /// counter has taken the current one. Two reads are no snapshot.
    pub fn live(&self) -> Counts<'_> {
        self.counts(self.growing())
    }

    fn growing(&self) -> Turn {
        let before = self.before.filter(|_| !self.attended());
        before.unwrap_or(self.turn)
    }

    fn counts(&self, turn: Turn) -> Counts<'_> {
        Counts::new(self.shared.generation(turn.epoch), turn.settings)
    }
}
