//! The limit of connections that others make to us: at most N at a time.
//!
//! A connection that comes when all permits are taken gets that of the connection that has kept
//! silent (said no hello) for longest. So silent connections lock no controller out, however many
//! are made; only when all permits belong to those that said hello is a new one turned away.
//!
//! Cost: a look through the permits when all are taken. Panics: none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// By number of the connection, so that the oldest is first; with a sender while it keeps silent.
type Taken = BTreeMap<u64, Option<oneshot::Sender<()>>>;

/// All permits.
pub(super) struct Admission {
    most: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    next: u64,
    taken: Taken,
}

/// Leave to be connected, given back when dropped.
pub(super) struct Permit {
    number: u64,
    limit: Arc<Admission>,
    lost: oneshot::Receiver<()>,
}

/// Whether another connection had to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// A permit was free.
    Free,
    /// The oldest silent connection lost its permit.
    Made,
}

impl Admission {
    pub fn new(most: usize) -> Arc<Admission> {
        Arc::new(Admission { most, ledger: Mutex::default() })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit; `None`: all are taken by connections that have said hello.
    pub fn take(self: &Arc<Admission>) -> Option<(Permit, Room)> {
        let mut ledger = self.ledger();
        let room = if ledger.taken.len() < self.most {
            Room::Free
        } else {
            let silent = ledger.taken.iter().find(|(_, silent)| silent.is_some());
            let oldest = *silent?.0;
            // The sender goes, and by that its connection knows.
            ledger.taken.remove(&oldest);
            Room::Made
        };
        let (sender, lost) = oneshot::channel();
        let number = ledger.next;
        ledger.next += 1;
        ledger.taken.insert(number, Some(sender));
        Some((Permit { number, limit: Arc::clone(self), lost }, room))
    }
}

impl Permit {
    /// Keeps the permit of a connection that said hello; false: it was lost by then.
    pub fn keep(&mut self) -> bool {
        match self.limit.ledger().taken.get_mut(&self.number) {
            None => false,
            Some(silent) => {
                // The receiver sees that the sender is gone; it is not used any more.
                *silent = None;
                true
            }
        }
    }

    /// Returns when the permit is lost. Not to be waited for after [`Permit::keep`].
    pub async fn lost(&mut self) {
        // An error: the sender is gone, and with it the permit.
        let _ = (&mut self.lost).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.ledger().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(permit: &mut Permit) -> bool {
        !matches!(permit.lost.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    fn take(limit: &Arc<Admission>) -> (Permit, Room) {
        limit.take().expect("a permit")
    }

    #[test]
    fn the_oldest_that_keeps_silent_gives_way() {
        let limit = Admission::new(3);
        let (mut first, _) = take(&limit);
        let (mut second, _) = take(&limit);
        let (mut third, room) = take(&limit);
        assert_eq!(room, Room::Free);
        assert!(first.keep());
        let (mut fourth, room) = take(&limit);
        assert_eq!(room, Room::Made);
        assert!(lost(&mut second) && !lost(&mut third) && !lost(&mut fourth));
        assert!(!second.keep(), "its hello comes too late");
        // It gives nothing back: its permit is another's.
        drop(second);
        assert_eq!(limit.ledger().taken.len(), 3);
        assert!(third.keep() && fourth.keep());
        assert!(limit.take().is_none(), "no connection is silent");
        drop(first);
        assert_eq!(take(&limit).1, Room::Free);
    }

    #[test]
    fn a_limit_of_none_admits_none() {
        assert!(Admission::new(0).take().is_none());
    }
}
