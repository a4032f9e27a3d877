//! Packets to and from the other nodes of a cluster.
//!
//! ```text
//!   N3, N6 ─▶ key ─▶ table of its partition ─┬─ this node ─▶ session ─┬─ handled
//!                                            └─ another ──▶ fabric    └─ moved ─▶ fabric
//!   fabric ─▶ key ─▶ session ─┬─ handled
//!                             └─ moved ─▶ fabric, once more
//! ```
//!
//! A frame on the fabric is the one that came in, but for its Ethernet addresses
//! ([`crate::fabric`]). A datagram to an N3 address goes up, any other packet goes down.

use super::n3::{self, FromN3};
use super::n6;
use super::{At, CHUNK, Keys, MAC_LEN, Sink, View, Work, check_link};
use crate::fabric::{self, Fabric, HOPS_MAX, kind};
use crate::next_hops::Mac;
use crate::note::{self, Unknown};
use crate::reason::{Denied, DropReason};
use crate::sessions::Found;
use crate::share::Source;
use arrayvec::ArrayVec;
use overbank_cluster::{NodeId, Tag};
use overbank_wire::gtpu;

/// The answers to the keys of a chunk.
pub(super) struct Looked<'a> {
    keys: &'a Keys,
    wide: Found<CHUNK>,
    six: Found<CHUNK>,
    /// Nodes of the keys that lead to others.
    there: Option<[Found<CHUNK>; 2]>,
    /// Why no packet of the chunk may pass.
    barred: Option<Denied>,
}

impl Looked<'_> {
    /// Fails if no packet of the chunk may pass.
    pub(super) fn pass(&self) -> Result<(), Denied> {
        self.barred.map_or(Ok(()), Err)
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The session here handles it.
    Here(u32),
    There(NodeId, Tag),
    /// No session here has its key.
    Unknown,
}

/// A frame from the fabric that was read.
enum FromFabric<'a> {
    Up(n3::Read<'a>, Tag),
    Down(n6::Read<'a>, Tag),
}

impl FromFabric<'_> {
    fn key(&self) -> Option<At> {
        match self {
            FromFabric::Up(read, _) => read.key(),
            FromFabric::Down(read, _) => Some(read.key()),
        }
    }
}

/// Frames on the fabric that are no packets from outside to this node.
const NO_PACKET: [DropReason; 3] = [
    DropReason::Denied(Denied::OtherMac),
    DropReason::Denied(Denied::ForeignFabric),
    DropReason::Denied(Denied::Note),
];
/// Packets of no session.
const NO_SESSION: [DropReason; 2] =
    [DropReason::Denied(Denied::UnknownTeid), DropReason::Denied(Denied::UnknownTerminal)];

impl Work {
    /// Looks up the keys of packets from outside.
    #[inline]
    pub(super) fn look_up<'a>(&self, view: &View, keys: &'a Keys, now_ms: u64) -> Looked<'a> {
        match &view.fabric {
            None => self.look_up_here(keys, None),
            Some(fabric) => self.look_up_nodes(fabric, keys, now_ms),
        }
    }

    #[inline]
    fn look_up_here<'a>(&self, keys: &'a Keys, barred: Option<Denied>) -> Looked<'a> {
        let (wide, six) = self.reader.look_up::<CHUNK>(&keys.wide, &keys.six);
        Looked { keys, wide, six, there: None, barred }
    }

    /// Finds the nodes of all keys, and the sessions of those of this node.
    fn look_up_nodes<'a>(&self, fabric: &Fabric, keys: &'a Keys, now_ms: u64) -> Looked<'a> {
        let barred = match (fabric.is_valid(now_ms), fabric.ingress) {
            (false, _) => Some(Denied::Fenced),
            (true, false) => Some(Denied::NotIngress),
            (true, true) => None,
        };
        let mut here = Keys::default();
        let mut there = [Found::NONE; 2];
        // Index of a key among those of this node, by kind.
        let mut at = [[0u8; CHUNK]; 2];
        let of_kind =
            [(kind::WIDE, &keys.wide, &mut here.wide), (kind::SIX, &keys.six, &mut here.six)];
        for (((kind, keys, here), there), at) in of_kind.into_iter().zip(&mut there).zip(&mut at) {
            let mut nodes = [fabric.me; CHUNK];
            fabric.nodes(kind, keys, &mut nodes);
            for (index, ((key, node), at)) in keys.iter().zip(nodes).zip(at).enumerate() {
                if node == fabric.me {
                    *at = here.len() as u8;
                    here.push(*key);
                } else {
                    there.set(index, u32::from(node.0));
                }
            }
        }
        let found = self.reader.look_up::<CHUNK>(&here.wide, &here.six);
        let spread = |found: &Found<CHUNK>, of: usize, len: usize| {
            let mut all = Found::NONE;
            for (index, at) in at[of].iter().enumerate().take(len) {
                if there[of].get(index).is_none()
                    && let Some(value) = found.get(usize::from(*at))
                {
                    all.set(index, value);
                }
            }
            all
        };
        let wide = spread(&found.0, 0, keys.wide.len());
        let six = spread(&found.1, 1, keys.six.len());
        if barred.is_none() {
            let away = keys.len() - here.len();
            fabric.share.offer(away as u32, fabric.unknown_percent, now_ms);
        }
        Looked { keys, wide, six, there: Some(there), barred }
    }

    /// Returns where the packet of a key goes that came with this tag.
    #[inline(always)]
    pub(super) fn way(
        &self,
        view: &View,
        looked: &Looked<'_>,
        frame: &[u8],
        key: At,
        (tag, now_ms): (Tag, u64),
    ) -> Result<Way, Denied> {
        let found = match key {
            At::Wide(at) => looked.wide.get(at),
            At::Six(at) => looked.six.get(at),
        };
        let Some(fabric) = &view.fabric else {
            return Ok(found.map_or(Way::Unknown, Way::Here));
        };
        looked.pass()?;
        let node = looked.there.as_ref().and_then(|[wide, six]| match key {
            At::Wide(at) => wide.get(at),
            At::Six(at) => six.get(at),
        });
        if let Some(node) = node {
            if fabric.share.is_exceeded(now_ms) && !fabric.admits(frame, looked.keys, key, now_ms) {
                return Err(Denied::UnknownShare);
            }
            return Ok(Way::There(NodeId(node as u8), Tag { hops: 1, moved: 0 }));
        }
        let Some(value) = found else { return Ok(Way::Unknown) };
        let relay = self.reader.entry(value).and_then(|entry| entry.relay());
        match relay.and_then(|relay| relay.way(tag)) {
            None => Ok(Way::Here(value)),
            Some(_) if tag.hops >= HOPS_MAX => Err(Denied::Loop),
            Some((to, moved)) => Ok(Way::There(to, Tag { hops: tag.hops + 1, moved })),
        }
    }

    /// Sends a frame to another node.
    pub(super) fn send_across(
        &mut self,
        view: &View,
        index: usize,
        frame: &[u8],
        node: NodeId,
        tag: Tag,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let fabric = view.fabric.as_ref().ok_or(Denied::NodeDown)?;
        let down = || if fabric.knows(node) { Denied::NodeDown } else { Denied::NoSuchNode };
        let mac = fabric.mac_of(node).ok_or_else(down)?;
        if frame.len() > fabric.mtu + 2 * MAC_LEN + 2 {
            return Err(Denied::TooBig.into());
        }
        let ingress = match tag.hops {
            1 => fabric.me,
            _ => source_of(frame).and_then(fabric::tag).map_or(fabric.me, |(_, ingress)| ingress),
        };
        let (link, rest) = frame.split_at_checked(2 * MAC_LEN + 2).ok_or(Denied::Truncated)?;
        let mut head = [0; 2 * MAC_LEN + 2];
        head.copy_from_slice(link);
        head[..MAC_LEN].copy_from_slice(&mac);
        head[MAC_LEN..2 * MAC_LEN].copy_from_slice(&fabric::source(tag, ingress));
        self.totals.fabric_sent += 1;
        out.output_parts(index, fabric.port, &head, rest);
        Ok(())
    }

    /// Takes a chunk of frames from other nodes; the first is frame `first` of the burst.
    pub(super) fn take_across(
        &mut self,
        view: &View,
        fabric: &Fabric,
        first: usize,
        frames: &[&[u8]],
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        let barred = (!fabric.is_valid(now_ms)).then_some(Denied::Fenced);
        let mut keys = Keys::default();
        let read: ArrayVec<_, CHUNK> =
            frames.iter().map(|frame| view.read_fabric(frame, fabric, &mut keys)).collect();
        let looked = self.look_up_here(&keys, barred);
        let mut unknown = ArrayVec::new();
        for (index, (frame, read)) in (first..).zip(frames.iter().zip(&read)) {
            let to_us = !read.as_ref().is_err_and(|reason| NO_PACKET.contains(reason));
            self.totals.fabric_received += u64::from(to_us);
            let done = match read {
                Err(reason) => {
                    if *reason == Denied::Note.into() {
                        self.take_note(fabric, frame, now_ms);
                    }
                    Err(*reason)
                }
                Ok(FromFabric::Up(read, tag)) => {
                    self.take_up(view, index, frame, read, &looked, *tag, now_ms, out)
                }
                Ok(FromFabric::Down(read, tag)) => {
                    self.take_down(view, index, frame, read, &looked, *tag, now_ms, out)
                }
            };
            if let Err(reason) = done {
                if let (Ok(read), true) = (read, NO_SESSION.contains(&reason)) {
                    unknown.extend(fabric.unknown(frame, &keys, read.key()));
                }
                out.drop(index, reason);
            }
        }
        // While sessions may be on their way to a node, a valid packet may be among them.
        if now_ms >= fabric.unsure_until_ms {
            self.send_notes(fabric, unknown, out);
        }
    }

    #[cold]
    fn take_note(&mut self, fabric: &Fabric, frame: &[u8], now_ms: u64) {
        self.totals.notes_received += 1;
        let packets = note::read(frame).into_iter().flat_map(|(_, packets)| packets);
        packets.for_each(|(source, key)| fabric.share.note(source, key, now_ms));
    }

    /// Sends notes about packets of no session to the nodes where they came in: one to a node.
    fn send_notes(
        &mut self,
        fabric: &Fabric,
        mut unknown: ArrayVec<(NodeId, Unknown), CHUNK>,
        out: &mut impl Sink,
    ) {
        while let Some(&(ingress, _)) = unknown.first() {
            let of_one = unknown.iter().filter(|(to, _)| *to == ingress).map(|(_, packet)| *packet);
            if let Some(mac) = fabric.mac_of(ingress) {
                out.originate(fabric.port, &note::write(mac, fabric.me, of_one));
                self.totals.notes_sent += 1;
            }
            unknown.retain(|(to, _)| *to != ingress);
        }
    }
}

impl Fabric {
    /// Returns a packet of no session that came by the fabric, and where it came in.
    #[cold]
    fn unknown(&self, frame: &[u8], keys: &Keys, key: Option<At>) -> Option<(NodeId, Unknown)> {
        let (_, ingress) = source_of(frame).and_then(fabric::tag)?;
        Some((ingress, (Source::of(frame)?, keys.hash(self.seed, key?)?)))
    }

    /// Whether a packet from outside may go to another node while too many are of no session.
    #[inline(never)]
    fn admits(&self, frame: &[u8], keys: &Keys, key: At, now_ms: u64) -> bool {
        let (Some(source), Some(key)) = (Source::of(frame), keys.hash(self.seed, key)) else {
            return true;
        };
        self.share.admit(source, key, self.unknown_percent, now_ms)
    }
}

/// Returns the source address of a frame.
fn source_of(frame: &[u8]) -> Option<Mac> {
    frame.get(MAC_LEN..2 * MAC_LEN)?.try_into().ok()
}

impl View {
    /// Reads a frame from another node; its key is added to `keys`.
    fn read_fabric<'a>(
        &self,
        frame: &'a [u8],
        fabric: &Fabric,
        keys: &mut Keys,
    ) -> Result<FromFabric<'a>, DropReason> {
        check_link(frame, fabric.mac)?;
        if let Some((from, _)) = note::read(frame) {
            fabric.mac_of(from).ok_or(Denied::ForeignFabric)?;
            return Err(Denied::Note.into());
        }
        let (tag, ingress) = source_of(frame).and_then(fabric::tag).ok_or(Denied::ForeignFabric)?;
        fabric.mac_of(ingress).ok_or(Denied::ForeignFabric)?;
        if let Some(read) = self.read_short_n3(frame, keys) {
            return Ok(FromFabric::Up(read, tag));
        }
        let datagram = gtpu::datagram(frame);
        if datagram.is_ok_and(|datagram| self.addresses.n3_number(datagram.ends.dst()).is_some()) {
            return match self.read_any_n3(frame, keys)? {
                // Answered where it came in.
                FromN3::Echo { .. } | FromN3::UnknownExtension(_) | FromN3::Response(_) => {
                    Err(Denied::ForeignFabric.into())
                }
                read => Ok(FromFabric::Up(n3::Read::General(read), tag)),
            };
        }
        Ok(FromFabric::Down(self.read_down(frame, keys)?, tag))
    }
}
