//! ConnectionLimit for connections that others make to us: so many at one time.
//!
//! Whoever comes when all are taken gets the seat of the connection that has kept silent (said no
//! hello) for longest. So connections that say nothing lock nobody out, however many are made; only
//! when all seats are taken by those that said hello is a new one turned away.
//!
//! Cost: a look through the seats when all are taken. Panics: none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// By number of the connection, so that the oldest is first; with a sender while it keeps silent.
type Taken = BTreeMap<u64, Option<oneshot::Sender<()>>>;

/// All seats.
pub(super) struct ConnectionLimit {
    most: usize,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    next: u64,
    taken: Taken,
}

/// A taken seat, given back when dropped.
pub(super) struct Permit {
    number: u64,
    seats: Arc<ConnectionLimit>,
    lost: oneshot::Receiver<()>,
}

/// Whether somebody had to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// A seat was free.
    Free,
    /// The oldest silent connection lost its seat.
    Made,
}

impl ConnectionLimit {
    pub fn new(most: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit { most, book: Mutex::default() })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat; `None`: all are taken by connections that have said hello.
    pub fn take(self: &Arc<ConnectionLimit>) -> Option<(Permit, Room)> {
        let mut book = self.book();
        let room = if book.taken.len() < self.most {
            Room::Free
        } else {
            let silent = book.taken.iter().find(|(_, silent)| silent.is_some());
            let oldest = *silent?.0;
            // The sender goes, and by that its connection knows.
            book.taken.remove(&oldest);
            Room::Made
        };
        let (sender, lost) = oneshot::channel();
        let number = book.next;
        book.next += 1;
        book.taken.insert(number, Some(sender));
        Some((Permit { number, seats: Arc::clone(self), lost }, room))
    }
}

impl Permit {
    /// It said hello, so it keeps its seat; false: it had lost it by then.
    pub fn keep(&mut self) -> bool {
        match self.seats.book().taken.get_mut(&self.number) {
            None => false,
            Some(silent) => {
                // The receiver hears that the sender went; nobody asks it any more.
                *silent = None;
                true
            }
        }
    }

    /// Returns when the seat is lost. Not to be waited for after [`Permit::keep`].
    pub async fn lost(&mut self) {
        let _ = (&mut self.lost).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.seats.book().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(taker: &mut Permit) -> bool {
        !matches!(taker.lost.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    fn take(seats: &Arc<ConnectionLimit>) -> (Permit, Room) {
        seats.take().expect("a seat")
    }

    #[test]
    fn the_oldest_that_keeps_silent_gives_way() {
        let seats = ConnectionLimit::new(3);
        let (mut first, _) = take(&seats);
        let (mut second, _) = take(&seats);
        let (mut third, room) = take(&seats);
        assert_eq!(room, Room::Free);
        assert!(first.keep());
        let (mut fourth, room) = take(&seats);
        assert_eq!(room, Room::Made);
        assert!(lost(&mut second) && !lost(&mut third) && !lost(&mut fourth));
        assert!(!second.keep(), "its hello comes too late");
        // It gives nothing back: its seat is another's.
        drop(second);
        assert_eq!(seats.book().taken.len(), 3);
        assert!(third.keep() && fourth.keep());
        assert!(seats.take().is_none(), "nobody is silent");
        drop(first);
        assert_eq!(take(&seats).1, Room::Free);
    }

    #[test]
    fn without_seats_nobody_sits() {
        assert!(ConnectionLimit::new(0).take().is_none());
    }
}
