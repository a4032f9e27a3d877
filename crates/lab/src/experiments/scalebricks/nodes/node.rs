//! A node of the cluster: frames in, frames out, by role and architecture.
//!
//! ```text
//!                   ingress            in between          handling
//!   RouteBricks     whole FIB      ─▶  indirect: passes ─▶ session
//!   duplication     whole FIB      ─────────────────────▶  session
//!   hash partition  hash           ─▶  lookup: its part ─▶ session
//!   ScaleBricks     GPT            ─────────────────────▶  its FIB, session
//! ```
//!
//! A slot number that was found travels with the frame, so that no architecture looks up twice.
//! The handling node checks the session's key, counts, and writes the tunnel's headers.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::gpt::Gpt;
use super::frame::{END, FlowKey, Frame, Label, PACKET, Role};
use super::tables::{SLOT, Tables, lookup_node, node_of};
use overbank::fib::Reader;
use overbank::memory::Words;
use overbank::prefetch::prefetch;
use overbank::random::Pcg32;
use overbank_wire::gtpu::{Encap, Link, Outer};
use overbank_wire::ip::Ends;

pub(crate) const BURST: usize = 32;
/// Frames of a transmit ring.
const RING: usize = 1024;
/// 64-bit words of a session's line: key (2), peer and TEID, packets, bytes.
pub(crate) const LINE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    RouteBricks,
    Duplication,
    HashPartition,
    ScaleBricks,
    /// With SetSep as its GPT.
    WithSetSep,
}

pub(crate) const ARCHITECTURES: [Architecture; 5] = [
    Architecture::RouteBricks,
    Architecture::Duplication,
    Architecture::HashPartition,
    Architecture::ScaleBricks,
    Architecture::WithSetSep,
];

impl Architecture {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Architecture::RouteBricks => "(a) RouteBricks",
            Architecture::Duplication => "(b) full duplication",
            Architecture::HashPartition => "(c) hash partition",
            Architecture::ScaleBricks => "(d) ScaleBricks",
            Architecture::WithSetSep => "(d) with SetSep",
        }
    }

    pub(crate) const fn has_gpt(self) -> bool {
        matches!(self, Architecture::ScaleBricks | Architecture::WithSetSep)
    }

    /// Returns the role between ingress and handling node.
    pub(crate) const fn between(self) -> Option<Role> {
        match self {
            Architecture::RouteBricks => Some(Role::Indirect),
            Architecture::HashPartition => Some(Role::Lookup),
            _ => None,
        }
    }

    /// Returns the most links that a packet may cross.
    pub(crate) const fn hops(self) -> u8 {
        if self.between().is_some() { 2 } else { 1 }
    }
}

/// What a node sends: a ring of frames.
pub(crate) struct Outbox {
    frames: Vec<Frame>,
    next: usize,
    taken: usize,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox { frames: vec![Frame { bytes: [0; 128] }; RING], next: 0, taken: 0 }
    }

    /// Copies a frame into the ring.
    #[inline(always)]
    fn send(&mut self, frame: &Frame) -> &mut Frame {
        let place = &mut self.frames[self.next % RING];
        self.next += 1;
        *place = *frame;
        place
    }

    /// Takes what was sent since the last call, at most a ring.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = &Frame> {
        let range = self.taken..self.next;
        self.taken = self.next;
        range.map(|at| &self.frames[at % RING])
    }
}

/// Packets that a node dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drops {
    /// No session has the key.
    pub(crate) unknown: u64,
    /// Not IPv4, or a session that is not the packet's.
    pub(crate) wrong: u64,
}

pub(crate) struct Node<K> {
    architecture: Architecture,
    number: u8,
    nodes: u64,
    gpt: Gpt,
    /// The whole, by hash, or by handling node.
    fib: Reader<K, u32>,
    sessions: Arc<Words>,
    draws: Pcg32,
    pub(crate) drops: Drops,
}

/// The keys of a burst, and the frames that they are of.
struct Keys<K> {
    keys: [K; BURST],
    at: [u8; BURST],
    count: usize,
}

impl<K: FlowKey> Keys<K> {
    #[inline(always)]
    fn of(frames: &[Frame], zero: K, wrong: &mut u64) -> Keys<K> {
        let mut all = Keys { keys: [zero; BURST], at: [0; BURST], count: 0 };
        for (at, frame) in frames.iter().enumerate().take(BURST) {
            match K::read(frame) {
                Some(key) => {
                    (all.keys[all.count], all.at[all.count]) = (key, at as u8);
                    all.count += 1;
                }
                None => *wrong += 1,
            }
        }
        all
    }

    fn keys(&self) -> &[K] {
        &self.keys[..self.count]
    }
}

impl<K: FlowKey> Node<K> {
    pub(crate) fn new(tables: &Tables<K>, architecture: Architecture, number: u8) -> Node<K> {
        let own = usize::from(number);
        let fib = match architecture {
            Architecture::RouteBricks | Architecture::Duplication => &tables.whole,
            Architecture::HashPartition => &tables.by_hash[own],
            Architecture::ScaleBricks | Architecture::WithSetSep => &tables.own[own],
        };
        let gpt = match architecture {
            Architecture::ScaleBricks => tables.gpt.clone(),
            Architecture::WithSetSep => tables.setsep.clone(),
            _ => Gpt::None,
        };
        Node {
            architecture,
            number,
            nodes: tables.nodes,
            gpt,
            fib: fib.clone(),
            sessions: Arc::clone(&tables.sessions[own]),
            draws: Pcg32::new(number.into(), 3),
            drops: Drops::default(),
        }
    }

    /// Returns the bytes of its tables, without the sessions, which all architectures have.
    pub(crate) fn bytes(&self) -> u64 {
        (self.fib.bytes() + self.gpt.bytes()) as u64
    }

    pub(crate) fn work(&mut self, role: Role, frames: &[Frame], out: &mut Outbox) {
        match role {
            Role::Ingress => self.ingress(frames, out),
            Role::Indirect => self.indirect(frames, out),
            Role::Lookup => self.lookup(frames, out),
            Role::Handling => self.handle(frames, out),
        }
    }

    /// Sends a frame on; a node that sends to itself crosses no link.
    #[inline(always)]
    fn send(&self, frame: &Frame, out: &mut Outbox, label: Label) {
        let hops = label.hops + u8::from(label.to != self.number);
        out.send(frame).set(Label { hops, ..label });
    }

    fn ingress(&mut self, frames: &[Frame], out: &mut Outbox) {
        match self.architecture {
            Architecture::RouteBricks | Architecture::Duplication => self.by_fib(frames, out, 0),
            Architecture::HashPartition => {
                self.by(frames, out, Role::Lookup, |node, hashes, to| {
                    let of = |&hash| lookup_node(hash, node.nodes);
                    to.iter_mut().zip(hashes).for_each(|(to, hash)| *to = of(hash));
                })
            }
            Architecture::ScaleBricks | Architecture::WithSetSep => {
                self.by(frames, out, Role::Handling, |node, hashes, to| node.gpt.nodes(hashes, to));
            }
        }
    }

    /// Sends each frame to the node that its hash leads to.
    #[inline(always)]
    fn by(
        &mut self,
        frames: &[Frame],
        out: &mut Outbox,
        role: Role,
        nodes: impl Fn(&Self, &[u64], &mut [u8]),
    ) {
        let all = Keys::of(frames, K::of(0), &mut self.drops.wrong);
        let (mut hashes, mut to) = ([0; BURST], [0; BURST]);
        hashes.iter_mut().zip(all.keys()).for_each(|(hash, &key)| *hash = key.hash());
        nodes(self, &hashes[..all.count], &mut to[..all.count]);
        for (&at, &to) in all.at.iter().zip(&to).take(all.count) {
            // A GPT answers something for unknown keys; its bits may name more nodes than exist.
            let to = to % self.nodes as u8;
            let label = Label { role, to, last: to, hops: 0, value: 0 };
            self.send(&frames[usize::from(at)], out, label);
        }
    }

    /// Looks up the slot and the handling node, and sends on.
    #[inline(always)]
    fn by_fib(&mut self, frames: &[Frame], out: &mut Outbox, hops: u8) {
        let all = Keys::of(frames, K::of(0), &mut self.drops.wrong);
        let mut values = [0; BURST];
        let found = self.fib.lookup_batch(all.keys(), &mut values);
        for (nth, (&at, &value)) in all.at.iter().zip(&values).enumerate().take(all.count) {
            if found >> nth & 1 == 0 {
                self.drops.unknown += 1;
                continue;
            }
            let frame = &frames[usize::from(at)];
            let (last, hops) = (node_of(value), if hops > 0 { frame.label().hops } else { 0 });
            let (role, to) = match self.architecture {
                Architecture::RouteBricks => {
                    (Role::Indirect, self.draws.below(self.nodes as u32) as u8)
                }
                _ => (Role::Handling, last),
            };
            self.send(frame, out, Label { role, to, last, hops, value });
        }
    }

    fn lookup(&mut self, frames: &[Frame], out: &mut Outbox) {
        self.by_fib(frames, out, 1);
    }

    fn indirect(&mut self, frames: &[Frame], out: &mut Outbox) {
        for frame in frames {
            let label = frame.label();
            self.send(frame, out, Label { role: Role::Handling, to: label.last, ..label });
        }
    }

    fn handle(&mut self, frames: &[Frame], out: &mut Outbox) {
        let all = Keys::of(frames, K::of(0), &mut self.drops.wrong);
        let (mut values, mut found) = ([0; BURST], u64::MAX);
        if self.architecture.has_gpt() {
            found = self.fib.lookup_batch(all.keys(), &mut values);
        } else {
            for (value, &at) in values.iter_mut().zip(&all.at).take(all.count) {
                *value = frames[usize::from(at)].label().value;
            }
        }
        let lines = self.sessions.get();
        let line = |value: u32| lines.get((value & SLOT) as usize * LINE..)?.first_chunk::<LINE>();
        values[..all.count].iter().filter_map(|&value| line(value)).for_each(|l| prefetch(&l[0]));
        for (nth, (&key, &value)) in all.keys().iter().zip(&values).enumerate() {
            if found >> nth & 1 == 0 {
                self.drops.unknown += 1;
                continue;
            }
            let session = line(value)
                .filter(|line| key.words() == [line[0].load(Relaxed), line[1].load(Relaxed)]);
            let Some(session) = session.filter(|_| node_of(value) == self.number) else {
                self.drops.wrong += 1;
                continue;
            };
            // One writer: the node.
            session[3].store(session[3].load(Relaxed) + 1, Relaxed);
            session[4].store(session[4].load(Relaxed) + (END - PACKET) as u64, Relaxed);
            let tunnel = session[2].load(Relaxed);
            let encap = Encap {
                outer: Outer {
                    link: Link { dst: [2, 0, 0, 0, 0, 9], src: [2, 0, 0, 0, 0, 1], vlan: None },
                    ends: Ends::V4 {
                        src: Ipv4Addr::new(192, 0, 2, 1),
                        dst: Ipv4Addr::from_bits((tunnel >> 32) as u32),
                    },
                    ttl: 64,
                },
                teid: tunnel as u32,
                session: None,
            };
            let frame = out.send(&frames[usize::from(all.at[nth])]);
            let written = encap.write(&mut frame.bytes, PACKET..END, value.into(), 0);
            self.drops.wrong += u64::from(written.is_err());
        }
    }
}
