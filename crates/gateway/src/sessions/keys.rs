//! The tables of keys.
//!
//! ```text
//!   wide    0 │ N3 number, 16 │ TEID, 32      64 bits each
//!           1 │ 0             │ IPv4, 32
//!   six     IPv6 /64                           a separate table: it needs all 64 bits
//! ```

use super::Addresses;
use crate::session::{Key, Prefix64};
use overbank::fib::{Config, FibError, Reader, Writer};
use std::fmt::Display;
use std::net::Ipv4Addr;

/// Tag of IPv4 addresses.
const IPV4: u64 = 1 << 63;

/// Returns the 64-bit key of a tunnel at an N3 address.
#[inline]
pub(crate) const fn of_tunnel(n3: u16, teid: u32) -> u64 {
    (n3 as u64) << 32 | teid as u64
}

/// Returns the 64-bit key of a terminal's address.
#[inline]
pub(crate) const fn of_ipv4(address: Ipv4Addr) -> u64 {
    IPV4 | address.to_bits() as u64
}

/// Both tables.
pub(super) struct Keys {
    wide: Writer<u64, u32>,
    six: Writer<u64, u32>,
}

/// What workers read.
pub(super) struct Readers {
    pub(super) wide: Reader<u64, u32>,
    pub(super) six: Reader<u64, u32>,
}

/// A key's place.
enum Place {
    Wide(u64),
    Six(u64),
}

fn place(addresses: &Addresses, key: Key) -> Option<Place> {
    Some(match key {
        Key::Tunnel(n3, teid) => Place::Wide(of_tunnel(addresses.n3_number(n3)?, teid)),
        Key::Ipv4(address) => Place::Wide(of_ipv4(address)),
        Key::Ipv6(Prefix64(prefix)) => Place::Six(prefix),
    })
}

impl Keys {
    /// Returns tables for the keys of this many sessions, filled to three quarters by them: an
    /// insertion into a table of random buckets is then practically never refused.
    pub(super) fn new(sessions: usize, seed: u64) -> Result<Keys, FibError> {
        let config = |keys: usize| Config::entries(keys + keys / 4 + 64).seed(seed);
        Ok(Keys { wide: Writer::new(&config(2 * sessions))?, six: Writer::new(&config(sessions))? })
    }

    pub(super) fn readers(&self) -> Readers {
        Readers { wide: self.wide.reader(), six: self.six.reader() }
    }

    pub(super) fn get(&self, addresses: &Addresses, key: Key) -> Option<u32> {
        match place(addresses, key)? {
            Place::Wide(key) => self.wide.get(key),
            Place::Six(key) => self.six.get(key),
        }
    }

    /// Returns false, without a change, if the table has no room.
    pub(super) fn insert(&mut self, addresses: &Addresses, key: Key, value: u32) -> bool {
        match place(addresses, key) {
            Some(Place::Wide(key)) => self.wide.insert(key, value).is_ok(),
            Some(Place::Six(key)) => self.six.insert(key, value).is_ok(),
            None => false,
        }
    }

    pub(super) fn update(&mut self, addresses: &Addresses, key: Key, value: u32) {
        match place(addresses, key) {
            Some(Place::Wide(key)) => drop(self.wide.update(key, value)),
            Some(Place::Six(key)) => drop(self.six.update(key, value)),
            None => {}
        }
    }

    pub(super) fn remove(&mut self, addresses: &Addresses, key: Key) {
        match place(addresses, key) {
            Some(Place::Wide(key)) => drop(self.wide.remove(key)),
            Some(Place::Six(key)) => drop(self.six.remove(key)),
            None => {}
        }
    }
}

/// Lists a few things for an error.
pub(crate) fn list<T: Display>(all: impl Iterator<Item = T>) -> String {
    let all: Vec<String> = all.map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
