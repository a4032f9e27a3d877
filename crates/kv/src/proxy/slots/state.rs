//! The state word of a key: what may be served.
//!
//! ```text
//!   63                          24 23              0
//!   │ epoch, 40 bits, which wraps │ writes in flight │
//! ```

use super::sync::{AtomicU64, Ordering};

const EPOCH: u64 = 1 << 24;
const COUNT_MAX: u64 = EPOCH - 1;

/// Epoch and writes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    /// Returns the number of writes in flight.
    pub(super) const fn in_flight(self) -> u64 {
        self.0 & COUNT_MAX
    }

    pub(super) const fn same_epoch(self, other: State) -> bool {
        self.0 / EPOCH == other.0 / EPOCH
    }

    /// Returns how many events there have been since.
    pub(super) const fn events_since(self, before: State) -> u64 {
        (self.0 / EPOCH).wrapping_sub(before.0 / EPOCH) & (u64::MAX / EPOCH)
    }

    pub(super) const fn next(self) -> State {
        State(self.0.wrapping_add(EPOCH))
    }

    /// One more in flight. The largest count is final: how many there are is lost.
    const fn more(self) -> State {
        State(self.0 + (self.in_flight() < COUNT_MAX) as u64)
    }

    const fn less(self) -> State {
        State(self.0 - (self.in_flight() != 0 && self.in_flight() != COUNT_MAX) as u64)
    }
}

/// The word of a key, or of all keys: the gate.
pub(super) struct Word(AtomicU64);

impl Word {
    pub(super) fn new() -> Word {
        Word(AtomicU64::new(0))
    }

    #[inline(always)]
    pub(super) fn load(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn change(&self, to: impl Fn(State) -> State) -> State {
        // Acquire: a push after a reply sees what the reply's worker did. It never fails.
        let word = |word| Some(to(State(word)).0);
        let (Ok(before) | Err(before)) =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, word);
        to(State(before))
    }

    /// A write begins.
    pub(super) fn begin(&self) {
        self.change(|state| state.next().more());
    }

    /// Its reply came. Returns what the word is now.
    pub(super) fn end(&self) -> State {
        self.change(|state| state.next().less())
    }

    /// The key has changed, or may have.
    pub(super) fn push(&self) {
        self.change(State::next);
    }

    /// A closing of the gate begins: entries stay.
    pub(super) fn close(&self) {
        self.change(State::more);
    }

    /// It ends.
    pub(super) fn reopen(&self) {
        self.change(State::less);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn events_change_what_the_table_says() {
        let word = Word::new();
        let check = |epoch: u64, count| assert_eq!(word.load(), State(epoch * EPOCH + count));
        word.begin();
        check(1, 1);
        word.begin();
        check(2, 2);
        word.end();
        check(3, 1);
        word.push();
        check(4, 1);
        word.end();
        check(5, 0);
        word.close();
        check(5, 1);
        word.reopen();
        check(5, 0);
        word.end();
        check(6, 0);
        assert_eq!(State(2 * EPOCH + 1).events_since(State(EPOCH)), 1);
        assert_eq!(State(EPOCH).events_since(State(u64::MAX)), 2);
        assert!(State(EPOCH + 1).same_epoch(State(EPOCH)) && !State(EPOCH).same_epoch(State(1)));
    }

    #[test]
    fn epochs_wrap_and_the_largest_count_is_final() {
        assert_eq!(State(u64::MAX - COUNT_MAX + 3).next(), State(3));
        let full = State(EPOCH + COUNT_MAX);
        assert_eq!(State(EPOCH + COUNT_MAX - 1).more(), full);
        assert_eq!((full.more(), full.less()), (full, full));
        assert_eq!(State(EPOCH).less(), State(EPOCH));
    }
}
