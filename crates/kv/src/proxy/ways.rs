//! What a worker has to the other threads: slots, notes to the core, and marks that end late.

use super::Shared;
use super::commands::Commands;
use super::core::Note;
use super::session::{Marks, Rules};
use super::slots::{self, Closing, Mark};
use super::totals::ProxyTotals;
use super::users::Users;
use mio::Waker;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Hashes of recent notes: a hot key is not reported with each of its requests.
const RECENT: usize = 256;
/// Time in which a hash is reported once.
const RECENT_NS: u64 = 1_000_000;

/// Written keys of a command that the core hears of; readers report the others.
const TOLD_MAX: usize = 64;

/// What ends at a time.
enum Late {
    Mark(Mark),
    Closing(Closing),
}

/// See the module.
pub struct Ways {
    pub slots: slots::Worker,
    pub commands: Arc<Commands>,
    pub rules: Arc<Rules>,
    users: Arc<Users>,
    version: u64,
    to_core: SyncSender<Note>,
    wake: Arc<Waker>,
    staleness: Duration,
    late: VecDeque<(Instant, Late)>,
    recent: Box<[(u64, u64)]>,
    /// Lent to sessions for a reply, a normalised request, and hashes of written keys.
    pub reply: Vec<u8>,
    pub form: Vec<u8>,
    pub writes: Vec<u128>,
}

impl Ways {
    pub fn new(
        slots: slots::Worker,
        to_core: SyncSender<Note>,
        wake: Arc<Waker>,
        staleness: Duration,
    ) -> Ways {
        Ways {
            slots,
            commands: Commands::builtin(),
            rules: Arc::default(),
            users: Arc::new(Users::new(false)),
            version: u64::MAX,
            to_core,
            wake,
            staleness,
            late: VecDeque::new(),
            recent: vec![(0, 0); RECENT].into_boxed_slice(),
            reply: Vec::new(),
            form: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Takes what the core has learnt, and the rules; returns whether something is new.
    pub fn refresh(&mut self, shared: &Shared) -> bool {
        // Pairs with the core's: what is loaded below is of this version or later.
        let version = shared.version.load(Ordering::Acquire);
        let is_new = version != self.version;
        if is_new {
            self.version = version;
            self.commands = shared.commands.load_full();
            self.users = shared.users.load_full();
            self.rules = shared.rules.load_full();
        }
        is_new
    }

    /// Returns whether a user may be served hits; asks the core about an unknown one.
    pub fn may_read(&mut self, user: Option<&[u8]>) -> bool {
        let may = self.users.may(user);
        if let (None, Some(user)) = (may, user) {
            // Asked again with the next read, if there was no room.
            let _ = self.to_core.try_send(Note::User(user.into()));
        }
        may.unwrap_or(false)
    }

    /// Returns whether a client that has said nothing is a user.
    pub fn is_open(&self) -> bool {
        self.users.is_open()
    }

    /// Returns when the server last said so, in monotonic nanoseconds.
    pub fn open_at(&self) -> u64 {
        self.users.open_at()
    }

    /// Returns whether a hash is to be reported: not if it was just before.
    pub fn is_due(&mut self, hash: u128, now: u64) -> bool {
        let hash = (hash >> 64) as u64;
        let Some(recent) = self.recent.get_mut(hash as usize % RECENT) else { return true };
        let is_due = recent.0 != hash || now.saturating_sub(recent.1) >= RECENT_NS;
        if is_due {
            *recent = (hash, now);
        }
        is_due
    }

    /// Tells the core; returns whether there was room.
    pub fn tell(&self, note: Note, at_once: bool) -> bool {
        let sent = self.to_core.try_send(note).is_ok();
        if at_once {
            // It looks by itself a hundred times a second.
            let _ = self.wake.wake();
        }
        sent
    }

    /// The replies of writes have come: the core asks for what clients read of them.
    pub fn end(&mut self, marks: Marks) {
        let is_told = match marks {
            Marks::One(mark) => self.end_one(mark, true),
            Marks::Many(marks) => marks
                .into_iter()
                .enumerate()
                .fold(false, |told, (at, mark)| self.end_one(mark, at < TOLD_MAX) | told),
        };
        if is_told {
            let _ = self.wake.wake();
        }
    }

    /// Returns whether the core was told. Without room for that, the next read tells it.
    fn end_one(&mut self, mark: Mark, tells: bool) -> bool {
        let slot = self.slots.end_write(mark).filter(|_| tells);
        slot.is_some_and(|slot| self.to_core.try_send(Note::Written(slot)).is_ok())
    }

    /// The reply of what closed the cache has come: the core opens it again, in a while if it does
    /// not listen now.
    pub fn reopen(&mut self, closing: Closing) {
        use std::sync::mpsc::TrySendError;
        match self.to_core.try_send(Note::Replied(closing)) {
            Ok(()) => {
                let _ = self.wake.wake();
            }
            Err(TrySendError::Full(Note::Replied(closing))) => {
                self.late.push_front((Instant::now(), Late::Closing(closing)));
            }
            Err(_) => {}
        }
    }

    /// No reply comes any more: the keys stay out for the longest staleness.
    pub fn end_late(&mut self, marks: Option<Marks>, totals: &mut ProxyTotals) {
        let at = Instant::now() + self.staleness;
        let mut add = |mark| {
            totals.late += 1;
            self.late.push_back((at, Late::Mark(mark)));
        };
        match marks {
            Some(Marks::One(mark)) => add(mark),
            Some(Marks::Many(marks)) => marks.into_iter().for_each(add),
            None => {}
        }
    }

    /// Likewise for what closed the cache.
    pub fn reopen_late(&mut self, closing: Closing) {
        self.late.push_back((Instant::now() + self.staleness, Late::Closing(closing)));
    }

    /// Returns how long those stay out, in nanoseconds.
    pub fn staleness(&self) -> u64 {
        u64::try_from(self.staleness.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns when the next one ends.
    pub fn late_until(&self) -> Option<Instant> {
        self.late.front().map(|(at, _)| *at)
    }

    /// Ends those whose time has come.
    pub fn release_late(&mut self, now: Instant) {
        while let Some((_, late)) = self.late.pop_front_if(|(at, _)| *at <= now) {
            match late {
                Late::Mark(mark) => self.end(Marks::One(mark)),
                Late::Closing(closing) => {
                    let before = self.late.len();
                    self.reopen(closing);
                    if self.late.len() > before {
                        return;
                    }
                }
            }
        }
    }
}
