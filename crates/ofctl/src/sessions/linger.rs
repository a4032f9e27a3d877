//! Whether a session looks for the next message for a moment before it sleeps.
//!
//! A tool that waits for a barrier after each rule (`ovs-ofctl add-flows`) asks again some
//! microseconds after each answer. To sleep and to be woken in between can take longer than all
//! the work on a rule, above all on a virtual machine whose idle processors stop. So a session
//! whose messages come quickly keeps looking, for [`LOOK`] at most. Where that does not pay (peer
//! and session share a processor), it looks more and more rarely.

use std::time::Duration;

use tokio::time::Instant;

/// How long a session looks for a message.
const LOOK: Duration = Duration::from_micros(100);
/// Most messages for which a session sleeps at once after it looked in vain.
const SKIP_MAX: u32 = 1023;

/// The state of one session.
#[derive(Debug)]
pub(super) struct Linger {
    heard: Instant,
    looking: bool,
    /// Messages before it looks again; how many it skipped last.
    skip: u32,
    skipped: u32,
}

impl Linger {
    pub(super) fn new(now: Instant) -> Linger {
        Linger { heard: now, looking: false, skip: 0, skipped: 0 }
    }

    /// Notes that the peer sent something.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.looking {
            (self.skip, self.skipped) = (0, 0);
        }
        self.skip = self.skip.saturating_sub(1);
        self.looking = self.skip == 0 && now.saturating_duration_since(self.heard) < 2 * LOOK;
        self.heard = now;
    }

    /// Returns whether to look again rather than to sleep.
    pub(super) fn looks(&mut self, now: Instant) -> bool {
        if self.looking && now.saturating_duration_since(self.heard) > LOOK {
            self.looking = false;
            self.skipped = (2 * self.skipped + 1).min(SKIP_MAX);
            self.skip = self.skipped;
        }
        self.looking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_looks_while_messages_come_quickly_and_more_rarely_when_in_vain() {
        let mut now = Instant::now();
        let mut linger = Linger::new(now);
        let mut message_after = |gap| {
            let during = now + gap;
            let looks = linger.looks(during);
            now = during;
            linger.heard(now);
            (looks, linger.looking)
        };
        assert_eq!(message_after(Duration::from_secs(1)), (false, false), "it comes slowly");
        assert_eq!(message_after(LOOK / 2), (false, true), "the next one came quickly");
        assert!((0..100).all(|_| message_after(LOOK / 2) == (true, true)));
        let vain = (0..4096).filter(|_| message_after(LOOK + LOOK / 2).1).count();
        assert!(vain < 16, "looked {vain} times in vain");
        assert!((0..2048).any(|_| message_after(LOOK / 2) == (true, true)), "and again");
    }
}
