//! What workers read of sessions, and what they count.
//!
//! ```text
//!   value of the tables: slot × 2 + copy        one line of 64 bytes each
//!
//!   slot 7 │ copy 0 │ peer TEID, N3, flags, QFI │ peer (2) │ relay, IPv4 │ IPv6 │ cost │ id  │
//!          │ copy 1 │ the same, of an earlier or a coming state of the session              │
//!   limits │ up, down │                          shared by all workers
//!   tally  │ packets, bytes, dropped: up, down │ one for each worker
//! ```
//!
//! **Why no worker reads another session's data.** The control side writes a copy only while no key
//! leads to it and no worker can still have its number. It gives a slot or a copy out again only
//! after the grace period ([`overbank_handover::grace`]) of its last key. The words are written
//! before the keys, which the tables publish with release stores. So a worker that found a number
//! reads the words of the session that its key had. Workers keep no number past their burst.
//!
//! A worker's tally has one writer. The numbers of a slot go on when it gets another session: the
//! control side subtracts what it read when it gave the slot out.
//!
//! The memory is bounded by the slots. Lines and tallies lie on huge pages if the kernel grants
//! them, and are touched at the start: no page fault is left for the packet path. Panics: none.

use crate::fabric::Relay;
use crate::limits::Limit;
use crate::session::{Prefix64, Session};
use overbank::memory::{Pages, Words};
use overbank::prefetch::prefetch;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::{FromZeros, KnownLayout};

/// Fraction bits of the cost of a byte in nanoseconds.
const COST_SHIFT: u32 = 20;

/// A direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Up,
    Down,
}

/// Bits of the flags in word 0.
mod flag {
    pub(super) const UP: u64 = 1 << 8;
    pub(super) const DOWN: u64 = 1 << 9;
    pub(super) const QFI: u64 = 1 << 10;
    pub(super) const IPV4: u64 = 1 << 11;
    pub(super) const IPV6: u64 = 1 << 12;
    pub(super) const PEER6: u64 = 1 << 13;
}

/// Words of a cache line.
const LINE: usize = 8;
type Line = [AtomicU64; LINE];

/// Cache lines that threads share.
struct Lines(Words);

/// The two limits of a slot.
#[derive(Debug, FromZeros, KnownLayout)]
#[repr(C)]
struct Limits([Limit; 2]);

/// There is not enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory for {slots} sessions")]
pub struct NoMemory {
    pub slots: usize,
}

/// The sessions as workers see them.
#[derive(Debug)]
pub struct Slab {
    lines: Lines,
    limits: Box<[Limits]>,
}

impl Slab {
    pub(crate) fn new(slots: usize) -> Result<Slab, NoMemory> {
        Ok(Slab {
            lines: Lines::new(2 * slots).ok_or(NoMemory { slots })?,
            limits: <[Limits]>::new_box_zeroed_with_elems(slots).map_err(|_| NoMemory { slots })?,
        })
    }

    /// Writes a copy that no key leads to; `n3` is the number of its N3 address, `relay` as in
    /// [`Slab::relay`].
    pub(crate) fn write(&self, value: u32, session: &Session, n3: u16, relay: Option<Relay>) {
        let (peer, family) = match session.peer {
            IpAddr::V4(peer) => (u128::from(peer.to_bits()), 0),
            IpAddr::V6(peer) => (peer.to_bits(), flag::PEER6),
        };
        let given = |is: bool, bit| if is { bit } else { 0 };
        let flags = family
            | given(session.gate.uplink(), flag::UP)
            | given(session.gate.downlink(), flag::DOWN)
            | given(session.qfi.is_some(), flag::QFI)
            | given(session.ipv4.is_some(), flag::IPV4)
            | given(session.ipv6.is_some(), flag::IPV6);
        let qfi = u64::from(session.qfi.unwrap_or(0));
        let cost = |rate: Option<u64>| rate.map_or(0, |rate| (8_000_000_000 << COST_SHIFT) / rate);
        let words = [
            u64::from(session.peer_teid) << 32 | u64::from(n3) << 16 | flags | qfi,
            peer as u64,
            (peer >> 64) as u64,
            word3(relay, session.ipv4),
            session.ipv6.map_or(0, |prefix| prefix.0),
            cost(session.rate_up),
            cost(session.rate_down),
            session.id,
        ];
        if let Some(line) = self.lines.get(value as usize) {
            for (word, new) in line.iter().zip(words) {
                word.store(new, Relaxed);
            }
        }
    }

    /// Has the packets of a copy's session relayed, or handled here, from now on: one store.
    pub(crate) fn relay(&self, value: u32, session: &Session, relay: Option<Relay>) {
        if let Some(line) = self.lines.get(value as usize) {
            line[3].store(word3(relay, session.ipv4), Relaxed);
        }
    }

    /// Forgets what a slot's limits admitted to an earlier session.
    pub(crate) fn reset(&self, slot: u32) {
        if let Some(limits) = self.limits.get(slot as usize) {
            limits.0.iter().for_each(Limit::reset);
        }
    }

    /// Prefetches what a key led to.
    #[inline]
    pub(crate) fn prefetch(&self, value: u32) {
        if let Some(line) = self.lines.get(value as usize) {
            prefetch(line);
        }
    }

    /// Returns what a key led to.
    #[inline]
    pub fn entry(&self, value: u32) -> Option<Entry<'_>> {
        let line = self.lines.get(value as usize)?;
        Some(Entry {
            line,
            limits: self.limits.get(value as usize >> 1)?,
            first: line[0].load(Relaxed),
        })
    }
}

fn word3(relay: Option<Relay>, ipv4: Option<Ipv4Addr>) -> u64 {
    u64::from(Relay::to_bits(relay)) << 32 | ipv4.map_or(0, |address| u64::from(address.to_bits()))
}

impl Lines {
    fn new(count: usize) -> Option<Lines> {
        Words::zeroed(count.checked_mul(LINE)?.max(1), Pages::Huge).ok().map(Lines)
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&Line> {
        self.0.get().as_chunks().0.get(index)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

/// Adds to a word that this thread alone writes.
#[inline]
fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

/// A session during a burst.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    line: &'a Line,
    limits: &'a Limits,
    first: u64,
}

impl Entry<'_> {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.line[index].load(Relaxed)
    }

    pub fn id(&self) -> u64 {
        self.word(7)
    }

    #[inline]
    pub fn peer_teid(&self) -> u32 {
        (self.first >> 32) as u32
    }

    /// Returns the number of its N3 address.
    #[inline]
    pub fn n3(&self) -> u16 {
        (self.first >> 16) as u16
    }

    #[inline]
    pub fn qfi(&self) -> Option<u8> {
        (self.first & flag::QFI != 0).then_some(self.first as u8)
    }

    #[inline]
    pub fn peer(&self) -> IpAddr {
        if let Some(peer) = self.peer4() {
            return peer.into();
        }
        let low = self.word(1);
        Ipv6Addr::from_bits(u128::from(self.word(2)) << 64 | u128::from(low)).into()
    }

    /// Returns where packets go instead of being handled here.
    #[inline]
    pub fn relay(&self) -> Option<Relay> {
        Relay::from_bits((self.word(3) >> 32) as u32)
    }

    /// Returns whether the terminal may use an address as its source.
    #[inline]
    pub fn owns(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.owns4(address),
            IpAddr::V6(address) => {
                self.first & flag::IPV6 != 0 && self.word(4) == Prefix64::of(address).0
            }
        }
    }

    /// Returns [`Entry::owns`].
    #[inline]
    pub(crate) fn owns4(&self, address: Ipv4Addr) -> bool {
        self.first & flag::IPV4 != 0 && self.word(3) as u32 == address.to_bits()
    }

    /// Returns the peer, if it has an IPv4 address.
    #[inline]
    pub(crate) fn peer4(&self) -> Option<Ipv4Addr> {
        let low = self.word(1) as u32;
        (self.first & flag::PEER6 == 0).then_some(Ipv4Addr::from_bits(low))
    }

    #[inline]
    pub fn is_open(&self, direction: Direction) -> bool {
        let bit = match direction {
            Direction::Up => flag::UP,
            Direction::Down => flag::DOWN,
        };
        self.first & bit != 0
    }

    /// Admits a packet of this length under the session's rate.
    #[inline]
    pub fn admit(&self, direction: Direction, len: usize, now_ns: u64) -> bool {
        match self.word(5 + direction as usize) {
            0 => true,
            // At most 43 and 17 bits.
            cost => {
                let cost_ns = (cost * len as u64) >> COST_SHIFT;
                self.limits.0[direction as usize].admit(now_ns, cost_ns, RATE_BURST_NS)
            }
        }
    }
}

/// Time of a session's rate that a burst of packets may use ahead.
pub const RATE_BURST_NS: u64 = 100_000_000;

/// What one worker counts of sessions, by slot.
#[derive(Debug)]
pub struct Tally(Lines);

/// Counts of a session in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Inner packets that went on, and their bytes.
    pub packets: u64,
    pub bytes: u64,
    /// Inner packets that were dropped, for whatever reason.
    pub dropped: u64,
}

/// Counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub uplink: Traffic,
    pub downlink: Traffic,
}

impl Traffic {
    fn combine(self, other: Traffic, f: fn(u64, u64) -> u64) -> Traffic {
        Traffic {
            packets: f(self.packets, other.packets),
            bytes: f(self.bytes, other.bytes),
            dropped: f(self.dropped, other.dropped),
        }
    }
}

impl Counts {
    fn combine(self, other: Counts, f: fn(u64, u64) -> u64) -> Counts {
        Counts {
            uplink: self.uplink.combine(other.uplink, f),
            downlink: self.downlink.combine(other.downlink, f),
        }
    }

    /// Returns the sum of both.
    pub(crate) fn plus(self, other: Counts) -> Counts {
        self.combine(other, u64::wrapping_add)
    }

    /// Returns what was counted since `start`.
    pub(crate) fn since(self, start: Counts) -> Counts {
        self.combine(start, u64::wrapping_sub)
    }
}

impl Tally {
    pub(crate) fn new(slots: usize) -> Result<Tally, NoMemory> {
        Lines::new(slots).map(Tally).ok_or(NoMemory { slots })
    }

    /// Prefetches the counts of what a key led to.
    #[inline]
    pub(crate) fn prefetch(&self, value: u32) {
        if let Some(line) = self.0.get(value as usize >> 1) {
            prefetch(line);
        }
    }

    /// Counts a packet of this many bytes that went on. One thread calls this.
    #[inline]
    pub fn passed(&self, value: u32, direction: Direction, bytes: usize) {
        if let Some(line) = self.0.get(value as usize >> 1) {
            let at = 3 * direction as usize;
            add(&line[at], 1);
            add(&line[at + 1], bytes as u64);
        }
    }

    /// Counts a dropped packet. The same thread calls this.
    #[inline]
    pub fn dropped(&self, value: u32, direction: Direction) {
        if let Some(line) = self.0.get(value as usize >> 1) {
            add(&line[3 * direction as usize + 2], 1);
        }
    }

    /// Returns the counts of a slot; each number is exact by itself.
    pub(crate) fn read(&self, slot: u32) -> Counts {
        let Some(line) = self.0.get(slot as usize) else { return Counts::default() };
        let traffic = |direction: Direction| {
            let word = |i: usize| line[3 * direction as usize + i].load(Relaxed);
            Traffic { packets: word(0), bytes: word(1), dropped: word(2) }
        };
        Counts { uplink: traffic(Direction::Up), downlink: traffic(Direction::Down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Gate;
    use crate::session::tests::session;
    use overbank_cluster::NodeId;

    #[test]
    fn what_is_written_is_read() {
        let slab = Slab::new(4).expect("memory");
        let sessions = [
            session(1),
            Session { qfi: None, ipv6: None, gate: Gate::Uplink, ..session(2) },
            Session {
                peer: "2001:db8::9".parse().unwrap(),
                ipv4: None,
                gate: Gate::Downlink,
                rate_up: Some(8_000_000),
                ..session(3)
            },
        ];
        for (value, session) in (1..).zip(&sessions) {
            slab.write(value, session, 0xfedc, None);
            let entry = slab.entry(value).expect("a slot");
            assert_eq!((entry.id(), entry.n3()), (session.id, 0xfedc));
            assert_eq!((entry.peer(), entry.peer_teid()), (session.peer, session.peer_teid));
            assert_eq!(entry.qfi(), session.qfi);
            let (up, down) = (entry.is_open(Direction::Up), entry.is_open(Direction::Down));
            assert_eq!(Gate::of(up, down), session.gate);
            for n in 1..=3 {
                let (v4, v6) = (session.ipv4, session.ipv6);
                let other = super::super::session::tests::session(n);
                let is = |a: bool| a && u64::from(n) == session.id;
                assert_eq!(entry.owns(other.ipv4.unwrap().into()), is(v4.is_some()));
                let host = other.ipv6.unwrap().address().to_bits() | 77;
                assert_eq!(entry.owns(Ipv6Addr::from_bits(host).into()), is(v6.is_some()));
            }
            // A zero address belongs to no session.
            assert!(!entry.owns([0; 4].into()) && !entry.owns(Ipv6Addr::UNSPECIFIED.into()));
        }
        assert!(slab.entry(8).is_none());
    }

    #[test]
    fn a_session_is_relayed_by_one_store() {
        let slab = Slab::new(1).expect("memory");
        let session = session(1);
        let all = [
            None,
            Some(Relay { to: NodeId(0), mark: 1, standby: false }),
            Some(Relay { to: NodeId(255), mark: 255, standby: true }),
        ];
        for relay in all {
            slab.write(0, &session, 3, relay);
            assert_eq!(slab.entry(0).expect("a slot").relay(), relay);
            for relay in all {
                slab.relay(0, &session, relay);
                let entry = slab.entry(0).expect("a slot");
                assert_eq!((entry.relay(), entry.n3()), (relay, 3));
                assert!(entry.owns(session.ipv4.expect("an address").into()));
            }
        }
    }

    #[test]
    fn a_rate_admits_its_bytes() {
        let slab = Slab::new(1).expect("memory");
        slab.write(1, &Session { rate_up: Some(8_000_000), ..session(1) }, 0, None);
        let entry = slab.entry(1).expect("a slot");
        // A megabyte a second: a thousand bytes cost a millisecond.
        let admitted = |now_ms: u64| {
            (0..2000).filter(|_| entry.admit(Direction::Up, 1000, now_ms * 1_000_000)).count()
        };
        assert_eq!([0, 10, 1010].map(admitted), [101, 10, 101]);
        assert!((0..1000).all(|_| entry.admit(Direction::Down, 65_535, 0)), "no rate");
        slab.reset(0);
        assert!(entry.admit(Direction::Up, 1000, 0));
        // The extremes of rates neither overflow nor admit everything.
        let slowest = Session { rate_up: Some(crate::session::RATE_MIN), ..session(1) };
        slab.write(1, &slowest, 0, None);
        slab.reset(0);
        let entry = slab.entry(1).expect("a slot");
        assert!(entry.admit(Direction::Up, 65_535, 0) && !entry.admit(Direction::Up, 1, 0));
        assert!(!entry.admit(Direction::Up, 1, 524_000_000_000));
        assert!(entry.admit(Direction::Up, 1, 524_300_000_000));
    }

    #[test]
    fn counts_are_by_slot_and_direction() {
        let tally = Tally::new(2).expect("memory");
        tally.passed(2, Direction::Up, 100);
        tally.passed(3, Direction::Up, 50);
        tally.passed(3, Direction::Down, 7);
        tally.dropped(2, Direction::Down);
        let uplink = Traffic { packets: 2, bytes: 150, dropped: 0 };
        let downlink = Traffic { packets: 1, bytes: 7, dropped: 1 };
        assert_eq!(tally.read(1), Counts { uplink, downlink });
        assert_eq!((tally.read(0), tally.read(9)), (Counts::default(), Counts::default()));
        let sum = tally.read(1).plus(tally.read(1));
        assert_eq!(sum.since(tally.read(1)), tally.read(1));
    }
}
