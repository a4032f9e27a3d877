//! The table of stations for people and scripts: a bounded listing over the status socket.
//!
//! A client sends a line `fdb`, with any of `port=`, `vlan=`, `mac=` and `most=` after it. The
//! answer is a [`Listing`] on one line. The table is read a slice at a time, and its lock is free
//! in between: an entry that moves in the table meanwhile may be listed twice, or not at all. A
//! query with `mac=` looks the address up instead, in every VLAN.
//!
//! Panics: none.

use super::{Entry, Stations, mac_of};
use overbank::fib::{MacAddr, MacVlan};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-fdb/1";
/// Default limit of stations in a listing.
pub const MOST: usize = 1000;
/// Most stations in a listing.
pub const MOST_MAX: usize = 65_536;

/// Pause between two slices, without the lock. The lock is not fair: without a pause, the listing
/// of a large table would take it again before the writer's thread is awake.
const PAUSE: Duration = Duration::from_micros(50);

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Stations behind this port only.
    pub port: Option<u32>,
    /// Stations of this VLAN only; 0 is without a tag.
    pub vlan: Option<u16>,
    /// This address only.
    pub mac: Option<[u8; 6]>,
    /// Limit of addresses in the answer.
    pub most: usize,
}

impl Default for Query {
    /// Asks for any [`MOST`] stations.
    fn default() -> Query {
        Query { port: None, vlan: None, mac: None, most: MOST }
    }
}

impl FromStr for Query {
    type Err = String;

    /// Reads `fdb [port=N] [vlan=N] [mac=ADDRESS] [most=N]`.
    fn from_str(text: &str) -> Result<Query, String> {
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some("fdb") {
            return Err(format!("{text:?}: must begin with fdb"));
        }
        let mut query = Query::default();
        for word in words {
            let wrong = |expected: &str| format!("{}: must be {expected}", word.escape_debug());
            match word.split_once('=') {
                Some(("port", n)) => {
                    query.port =
                        Some(n.parse().map_err(|_| wrong("port= and a number, such as port=3"))?);
                }
                Some(("vlan", n)) => {
                    let vlan = n.parse().ok().filter(|vlan| *vlan < 4096);
                    query.vlan =
                        Some(vlan.ok_or_else(|| wrong("vlan= and a number from 0 to 4095"))?);
                }
                Some(("mac", mac)) => {
                    let mac = mac_of(mac)
                        .ok_or_else(|| wrong("mac= and an address, such as mac=02:00:00:00:00:01"));
                    query.mac = Some(mac?);
                }
                Some(("most", n)) => {
                    let most = n.parse().ok().filter(|most| *most <= MOST_MAX);
                    query.most = most.ok_or_else(|| {
                        wrong(&format!("most= and a number from 0 to {MOST_MAX}"))
                    })?;
                }
                _ => return Err(wrong("port=, vlan=, mac= or most=")),
            }
        }
        Ok(query)
    }
}

/// A station.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationStatus {
    /// Its address.
    pub mac: String,
    /// Its VLAN, 0 without a tag.
    pub vlan: u16,
    /// Number of its port.
    pub port: u32,
    /// Whether it was configured.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Seconds since its last frame, in whole epochs.
    pub silent_s: u32,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// [`SCHEMA`].
    pub schema: String,
    /// Number of known stations, whatever the filters.
    pub known: usize,
    /// An eighth of the ageing time, in milliseconds: how exact `silent_s` is.
    pub epoch_ms: u64,
    /// Those that match, in the order of the table.
    pub stations: Vec<StationStatus>,
    /// Whether more match than the limit.
    pub more: bool,
    /// What is wrong with the query; otherwise empty.
    pub error: String,
}

/// Shows the table to a function, with the lock held meanwhile.
pub type Locked<'a> = &'a dyn Fn(&mut dyn FnMut(&Stations));

impl Listing {
    /// Returns the current addresses, behind ports with these numbers. Takes as long as the table
    /// is large: not for a thread that others wait for.
    pub fn new(query: &Query, ports: &[u32], locked: Locked<'_>) -> Listing {
        let mut listing = Listing { schema: SCHEMA.to_owned(), ..Listing::default() };
        locked(&mut |stations| {
            listing.known = stations.len();
            listing.epoch_ms = stations.epoch_ms();
        });
        let number = |index: u16| ports.get(usize::from(index)).copied().unwrap_or(0);
        let wanted = |entry: &Entry| {
            query.port.is_none_or(|port| number(entry.port) == port)
                && query.vlan.is_none_or(|vlan| entry.key.vlan() == vlan)
                && query.mac.is_none_or(|mac| entry.key.mac() == mac)
        };
        let take = |listing: &mut Listing, entry: Entry| {
            if !wanted(&entry) {
                return;
            }
            if listing.stations.len() >= query.most {
                listing.more = true;
                return;
            }
            listing.stations.push(StationStatus {
                mac: MacAddr::from(entry.key.mac()).to_string(),
                vlan: entry.key.vlan(),
                port: number(entry.port),
                is_static: entry.is_static,
                silent_s: entry.silent_s,
            });
        };
        if let Some(mac) = query.mac {
            // Its keys, one for each VLAN, are asked for: no table is too large for that.
            let vlans = query.vlan.map_or(0..=4095, |vlan| vlan..=vlan);
            let keys = vlans.map(|vlan| MacVlan::new(mac, vlan));
            locked(&mut |stations| {
                let found = keys.clone().filter_map(|key| stations.find(key));
                found.for_each(|entry| take(&mut listing, entry));
            });
            return listing;
        }
        let mut from = Some(0);
        while let Some(bucket) = from.filter(|_| !listing.more) {
            // The lock is held for one slice.
            locked(&mut |stations| {
                from = stations.page(bucket, |entry| take(&mut listing, entry));
            });
            if from.is_some() {
                std::thread::sleep(PAUSE);
            }
        }
        listing
    }

    /// Returns the answer to a line of the status socket.
    pub fn answer(line: &str, ports: &[u32], locked: Locked<'_>) -> Listing {
        match line.parse() {
            Ok(query) => Listing::new(&query, ports, locked),
            Err(error) => Listing { schema: SCHEMA.to_owned(), error, ..Listing::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_errors_name_the_expected_form() {
        assert_eq!("fdb".parse(), Ok(Query::default()));
        let query: Query =
            "fdb port=3 vlan=0\tmac=02:00:00:00:00:0A most=9\n".parse().expect("right");
        let mac = Some([2, 0, 0, 0, 0, 10]);
        assert_eq!(query, Query { port: Some(3), vlan: Some(0), mac, most: 9 });
        for (text, wanted) in [
            ("status", "must begin with fdb"),
            ("fdb port=x", "such as port=3"),
            ("fdb vlan=4096", "0 to 4095"),
            ("fdb mac=1:2", "mac=02:"),
            ("fdb most=65537", "0 to 65536"),
            ("fdb all", "port=, vlan=, mac= or most="),
            ("fdb mac=\u{10}0::", "mac=\\u{10}0::: must be"),
        ] {
            let error = text.parse::<Query>().expect_err(text);
            assert!(error.contains(wanted), "{error}");
        }
    }
}
