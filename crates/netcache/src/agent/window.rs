//! Requests that have been seen, by client: each is applied once.

use crate::Micros;
use overbank_wire::netcache::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Requests of a client that are remembered; earlier ones are refused.
pub const WINDOW: u64 = 1024;

/// Client and request.
pub type Name = (u64, u64);

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    New,
    /// It waits for the store or the device.
    Waits,
    Done(Status),
    /// Later ones are remembered in its place.
    TooOld,
    /// As many clients are remembered as may be.
    Full,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    last: Micros,
    /// What became of its last requests; `None`: they wait.
    requests: BTreeMap<u64, Option<Status>>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    clients: BTreeMap<u64, Client>,
    /// Clients by their last new request.
    idle: BTreeSet<(Micros, u64)>,
    clients_max: usize,
    idle_us: Micros,
}

impl Windows {
    pub fn new(clients_max: usize, idle_us: Micros) -> Windows {
        Windows { clients: BTreeMap::new(), idle: BTreeSet::new(), clients_max, idle_us }
    }

    pub fn known(&self, (client, request): Name) -> Known {
        let Some(known) = self.clients.get(&client) else {
            return if self.clients.len() < self.clients_max { Known::New } else { Known::Full };
        };
        match known.requests.get(&request) {
            Some(None) => Known::Waits,
            Some(Some(status)) => Known::Done(*status),
            None => {
                let last = known.requests.last_key_value().map_or(0, |last| *last.0);
                if last.saturating_sub(request) >= WINDOW { Known::TooOld } else { Known::New }
            }
        }
    }

    /// Remembers a new request.
    pub fn begin(&mut self, now: Micros, (client, request): Name) -> Known {
        let known = self.clients.entry(client).or_default();
        self.idle.remove(&(known.last, client));
        known.last = now;
        self.idle.insert((now, client));
        known.requests.insert(request, None);
        let last = known.requests.last_key_value().map_or(0, |last| *last.0);
        while let Some(first) = known.requests.first_entry()
            && last - *first.key() >= WINDOW
        {
            first.remove();
        }
        Known::New
    }

    /// Remembers what became of it.
    pub fn done(&mut self, (client, request): Name, status: Status) {
        let known = self.clients.get_mut(&client);
        let slot = known.and_then(|known| known.requests.get_mut(&request));
        if let Some(slot) = slot {
            *slot = Some(status);
        }
    }

    /// Forgets what waits.
    #[cfg(all(test, not(feature = "loom")))]
    pub fn forget_waiting(&mut self) {
        let clients = self.clients.values_mut();
        clients.for_each(|client| client.requests.retain(|_, status| status.is_some()));
    }

    /// Forgets clients that have been silent: what they have sent is no longer under way.
    pub fn forget(&mut self, now: Micros) {
        while let Some(&(last, client)) = self.idle.first()
            && last + self.idle_us <= now
        {
            self.idle.pop_first();
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_moves_on_and_clients_are_forgotten() {
        let mut windows = Windows::new(2, 100);
        for request in 1..=WINDOW {
            assert_eq!(windows.known((7, request)), Known::New);
            windows.begin(0, (7, request));
            windows.done((7, request), Status::Ok);
        }
        assert_eq!(windows.known((7, 1)), Known::Done(Status::Ok));
        windows.begin(1, (7, WINDOW + 1));
        assert_eq!(windows.known((7, WINDOW + 1)), Known::Waits);
        assert_eq!(windows.known((7, 1)), Known::TooOld);
        assert_eq!(windows.known((7, 2)), Known::Done(Status::Ok));
        windows.begin(2, (8, 5));
        assert_eq!((windows.known((9, 1)), windows.known((8, 4))), (Known::Full, Known::New));
        windows.forget(101);
        assert_eq!((windows.known((7, 1)), windows.known((8, 5))), (Known::New, Known::Waits));
        // Requests may have any numbers.
        windows.begin(3, (8, u64::MAX));
        assert_eq!(windows.known((8, 5)), Known::TooOld);
        windows.forget(200);
        assert!(windows.clients.is_empty() && windows.idle.is_empty());
    }
}
