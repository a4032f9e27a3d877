//! Frames from N6: packets to terminals.

use super::fabric::{Looked, Way};
use super::{At, CHUNK, Keys, Sink, View, Work, check_link, overhead, ttl};
use crate::limits::MS;
use crate::reason::{Denied, DropReason};
use crate::session::Prefix64;
use crate::sessions::keys::of_ipv4;
use crate::slab::Direction;
use arrayvec::ArrayVec;
use overbank::prefetch::prefetch;
use overbank_cluster::Tag;
use overbank_wire::extract::{Network, Offsets, extract};
use overbank_wire::gtpu::Refused;
use overbank_wire::icmp_error::Problem;
use overbank_wire::ip::{Ends, Packet};
use overbank_wire::ip4::Packet4;
use overbank_wire::key::FlowKey;

/// Last byte of the headers that are read.
const HEADERS: usize = 37;

/// A frame from N6 that was read.
pub(super) enum Read<'a> {
    /// A packet for the short path, and its key.
    Short {
        packet: Packet4<'a>,
        key: At,
    },
    General(FromN6<'a>),
}

impl Read<'_> {
    #[inline]
    pub(super) fn key(&self) -> At {
        let (Read::Short { key, .. } | Read::General(FromN6 { key, .. })) = self;
        *key
    }
}

/// A packet to a terminal, and its key among those of its table.
pub(super) struct FromN6<'a> {
    packet: Packet<'a>,
    offsets: Offsets,
    key: At,
}

impl View {
    /// Reads a frame from N6; its key is added to `keys`.
    #[inline]
    fn read_n6<'a>(&self, frame: &'a [u8], keys: &mut Keys) -> Result<Read<'a>, DropReason> {
        check_link(frame, self.hops.n6.mac())?;
        self.read_down(frame, keys)
    }

    /// Reads a frame whose Ethernet header is right.
    #[inline]
    pub(super) fn read_down<'a>(
        &self,
        frame: &'a [u8],
        keys: &mut Keys,
    ) -> Result<Read<'a>, DropReason> {
        if let Some(packet) = Packet4::of_frame(frame)
            && self.addresses.pools.contain4(packet.dst())
        {
            let key = keys.wide(of_ipv4(packet.dst()));
            return Ok(Read::Short { packet, key });
        }
        self.read_any_n6(frame, keys).map(Read::General)
    }

    /// Reads it by the general path.
    #[inline(never)]
    fn read_any_n6<'a>(&self, frame: &'a [u8], keys: &mut Keys) -> Result<FromN6<'a>, DropReason> {
        let offsets = extract(frame, 0, &mut FlowKey::default()).map_err(|_| Denied::Truncated)?;
        match offsets.network {
            Network::Ip4 | Network::Ip6 => {}
            Network::BrokenIp => return Err(Refused::BrokenIp.into()),
            Network::None | Network::Arp => return Err(Refused::NotIp.into()),
        }
        let bytes = frame.get(usize::from(offsets.l3)..).unwrap_or_default();
        let packet = Packet::parse(bytes)?;
        if !self.addresses.pools.contain(packet.ends.dst()) {
            return Err(Denied::NotTerminal.into());
        }
        let key = match packet.ends {
            Ends::V4 { dst, .. } => keys.wide(of_ipv4(dst)),
            Ends::V6 { dst, .. } => keys.six(Prefix64::of(dst).0),
        };
        Ok(FromN6 { packet, offsets, key })
    }
}

impl Work {
    /// Takes a chunk of frames from N6; the first is frame `first` of the burst.
    #[inline]
    pub(super) fn downlink(
        &mut self,
        view: &View,
        first: usize,
        frames: &[&[u8]],
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        for frame in frames {
            [0, HEADERS].into_iter().filter_map(|at| frame.get(at)).for_each(prefetch);
        }
        let mut keys = Keys::default();
        let read: ArrayVec<_, CHUNK> =
            frames.iter().map(|frame| view.read_n6(frame, &mut keys)).collect();
        let looked = self.look_up(view, &keys, now_ms);
        for (index, (frame, read)) in (first..).zip(frames.iter().zip(&read)) {
            let done = match read {
                Ok(read) => {
                    self.take_down(view, index, frame, read, &looked, Tag::default(), now_ms, out)
                }
                Err(reason) => Err(*reason),
            };
            if let Err(reason) = done {
                out.drop(index, reason);
            }
        }
    }

    /// Takes a frame from N6 that came with this tag.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "one frame's whereabouts")]
    pub(super) fn take_down(
        &mut self,
        view: &View,
        index: usize,
        frame: &[u8],
        read: &Read<'_>,
        looked: &Looked<'_>,
        tag: Tag,
        now_ms: u64,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let value = match self.way(view, looked, frame, read.key(), (tag, now_ms))? {
            Way::Here(value) => value,
            Way::There(node, tag) => return self.send_across(view, index, frame, node, tag, out),
            Way::Unknown => return Err(Denied::UnknownTerminal.into()),
        };
        match read {
            Read::Short { packet, .. } => {
                let now_ns = now_ms.saturating_mul(MS);
                if self.short_down(view, index, packet, value, now_ns, out).is_some() {
                    return Ok(());
                }
                let read = view.read_any_n6(frame, &mut Keys::default())?;
                self.packet_down(view, index, frame, &read, value, now_ms, out)
            }
            Read::General(read) => self.packet_down(view, index, frame, read, value, now_ms, out),
        }
    }

    /// Sends a packet to a terminal.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one packet's whereabouts")]
    fn packet_down(
        &mut self,
        view: &View,
        index: usize,
        frame: &[u8],
        read: &FromN6<'_>,
        value: u32,
        now_ms: u64,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let packet = &read.packet;
        match self.try_down(view, frame, read, value, now_ms) {
            Ok(()) => {
                let len = packet.bytes().len();
                self.reader.tally().passed(value, Direction::Down, len);
                self.totals.downlink += 1;
                self.totals.downlink_bytes += len as u64;
                out.output(index, self.roles.n3, self.scratch.frame.as_slice());
                Ok(())
            }
            Err(reason) => {
                self.reader.tally().dropped(value, Direction::Down);
                let entry = self.reader.entry(value);
                let problem = match (reason, entry) {
                    (DropReason::Denied(Denied::TtlExpired), _) => Some(Problem::TtlExpired),
                    (DropReason::Denied(Denied::TooBig), Some(entry)) => {
                        let mtu = view.mtu.n3.saturating_sub(overhead(&entry));
                        Some(Problem::TooBig { mtu: mtu as u32 })
                    }
                    _ => None,
                };
                if let Some(problem) = problem {
                    self.icmp_to_n6(view, problem, packet, now_ms, out);
                }
                Err(reason)
            }
        }
    }

    /// Leaves the frame for N3 in the scratch memory.
    #[inline]
    fn try_down(
        &mut self,
        view: &View,
        frame: &[u8],
        FromN6 { packet, offsets, .. }: &FromN6<'_>,
        value: u32,
        now_ms: u64,
    ) -> Result<(), DropReason> {
        let entry = self.reader.entry(value).ok_or(Denied::UnknownTerminal)?;
        if !entry.is_open(Direction::Down) {
            return Err(Denied::Gate.into());
        }
        if ttl(packet) <= 1 {
            return Err(Denied::TtlExpired.into());
        }
        let len = packet.bytes().len();
        if len + overhead(&entry) > view.mtu.n3 {
            return Err(Denied::TooBig.into());
        }
        let buf = &mut self.scratch.frame;
        buf.load(frame, *offsets).map_err(|_| Denied::TooBig)?;
        buf.dec_ttl().map_err(|_| Denied::TtlExpired)?;
        Work::encapsulate(buf, view, &entry, packet.flow_hash(), packet.dscp())?;
        // Last: what is dropped for another reason uses nothing of the rate.
        if !entry.admit(Direction::Down, len, now_ms.saturating_mul(MS)) {
            return Err(Denied::RateLimited.into());
        }
        Ok(())
    }
}
