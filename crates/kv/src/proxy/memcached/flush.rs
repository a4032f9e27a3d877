//! `flush_all` with a delay: when it happens, and what that means for values.
//!
//! ```text
//!   sent            answered              sent + delay        answered + delay
//!    │  cache closed │  values end here ──▶ │ ◀──── none is taken ────▶ │
//! ```
//!
//! The server counts in whole seconds, and its clock may be late: [`SLACK`] on both sides.

use crate::proxy::locked;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;
const SLACK: u64 = 4 * SECOND;
/// Larger delays are a time of day: 30 days.
const DELAY_MAX: u64 = 60 * 60 * 24 * 30;
/// Flushes that are known apart; more are one long one.
const FLUSHES_MAX: usize = 64;

/// A flush with a delay, sent then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    sent: u64,
    delay: u64,
}

impl Flush {
    /// Returns the flush of an argument; `None` if that happens at once, or never.
    pub fn new(sent: u64, seconds: i64) -> Option<Flush> {
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = match seconds {
            0..=DELAY_MAX => seconds,
            time => time.checked_sub(day.as_secs())?,
        };
        Some(Flush { sent, delay: seconds.saturating_mul(SECOND) })
    }

    /// Returns the flush that a text request asks for.
    pub fn of_text(sent: u64, line: &[u8]) -> Option<Flush> {
        let word =
            line.split(|byte| b" \r\n".contains(byte)).filter(|word| !word.is_empty()).nth(1)?;
        Flush::new(sent, std::str::from_utf8(word).ok()?.trim_start().parse().ok()?)
    }

    /// Returns the flush that a binary request asks for.
    pub fn of_binary(sent: u64, request: &[u8]) -> Option<Flush> {
        let extras = usize::from(*request.get(4)?);
        let delay = request.get(24..28).filter(|_| extras == 4)?;
        Flush::new(sent, u32::from_be_bytes(delay.try_into().ok()?).into())
    }
}

/// Flushes that are to come, of all workers.
#[derive(Debug, Default)]
pub struct Flushes(Mutex<Vec<(u64, u64)>>);

impl Flushes {
    /// The server has answered a flush, or will not.
    pub fn add(&self, flush: Flush, answered: u64) {
        let at = |sent: u64| sent.saturating_add(flush.delay);
        let window = (at(flush.sent).saturating_sub(SLACK), at(answered).saturating_add(SLACK));
        let mut all = locked(&self.0);
        all.retain(|(_, until)| *until > answered);
        let is_full = all.len() >= FLUSHES_MAX;
        match all.last_mut().filter(|_| is_full) {
            Some(last) => *last = (last.0.min(window.0), last.1.max(window.1)),
            None => all.push(window),
        }
    }

    /// Returns when a value ends at the latest that was asked for then; `None` if it may not be
    /// taken.
    pub fn limit(&self, sent: u64) -> Option<u64> {
        let all = locked(&self.0);
        let ahead = all.iter().filter(|(_, until)| *until > sent).map(|(from, _)| *from);
        let first = ahead.min().unwrap_or(u64::MAX);
        (first > sent).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_memcached_reads_them() {
        let text =
            |line: &str| Flush::of_text(7, line.as_bytes()).map(|flush| flush.delay / SECOND);
        assert_eq!(text("flush_all 10\r\n"), Some(10));
        assert_eq!(text("flush_all  10 noreply\n"), Some(10));
        for at_once in
            ["flush_all", "flush_all noreply", "flush_all 0", "flush_all -1", "flush_all x"]
        {
            assert_eq!(text(&format!("{at_once}\r\n")), None, "{at_once}");
        }
        let day = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(text(&format!("flush_all {}\r\n", day + 100)).is_some_and(|delay| delay <= 100));
        assert_eq!(text("flush_all 2592001\r\n"), None, "long ago");
        let mut binary = vec![0; 28];
        (binary[4], binary[27]) = (4, 9);
        assert_eq!(Flush::of_binary(7, &binary), Flush::new(7, 9));
        assert_eq!(Flush::of_binary(7, &binary[..24]), None);
    }

    #[test]
    fn values_end_before_a_flush_and_none_is_taken_around_it() {
        let flushes = Flushes::default();
        assert_eq!(flushes.limit(1), Some(u64::MAX));
        flushes.add(Flush::new(10 * SECOND, 100).expect("a delay"), 12 * SECOND);
        for (sent, limit) in [
            (12, Some(106 * SECOND)),
            (105, Some(106 * SECOND)),
            (106, None),
            (115, None),
            (116, Some(u64::MAX)),
        ] {
            assert_eq!(flushes.limit(sent * SECOND), limit, "{sent}");
        }
        for second in 0..1000 {
            flushes.add(Flush::new(0, 200 + second).expect("a delay"), 12 * SECOND);
        }
        assert!(locked(&flushes.0).len() <= FLUSHES_MAX);
        assert_eq!(flushes.limit(1150 * SECOND), None);
        assert_eq!(flushes.limit(1300 * SECOND), Some(u64::MAX));
    }
}
