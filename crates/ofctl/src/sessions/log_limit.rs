//! Lines of the log that strangers can cause: one of a kind in a second, which says how many were
//! held back. So a peer that connects or sends nonsense as fast as it can fills no disk; the
//! counters have every case.
//!
//! Panics: none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time from one line to the next.
const EVERY_MS: u64 = 1000;

/// One kind of line.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    /// When the next one may be written.
    next_ms: AtomicU64,
    held_back: AtomicU64,
}

impl LogLimit {
    /// Whether to write one now, and how many were not written since the last.
    pub fn now(&self, now_ms: u64) -> Option<u64> {
        let next = self.next_ms.load(Relaxed);
        let later = now_ms.saturating_add(EVERY_MS);
        // The second message of the same moment is held back.
        if now_ms < next || self.next_ms.compare_exchange(next, later, Relaxed, Relaxed).is_err() {
            self.held_back.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.held_back.swap(0, Relaxed))
    }
}

/// The kinds of lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A connection was closed at once, or could not be accepted.
    pub refused: LogLimit,
    /// A session ended because of its peer.
    pub ended: LogLimit,
    /// A peer sent an error.
    pub errors: LogLimit,
    /// Something could not be written in the words of a version.
    pub unwritten: LogLimit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_reports_the_number_held_back() {
        let log_limit = LogLimit::default();
        assert_eq!(log_limit.now(5), Some(0));
        assert!((6..1005).all(|ms| log_limit.now(ms).is_none()));
        assert_eq!(log_limit.now(1005), Some(999));
        assert_eq!(log_limit.now(1006), None);
        assert_eq!(log_limit.now(9000), Some(1));
        assert_eq!(log_limit.now(u64::MAX), Some(0));
    }
}
