//! Frames from N6: packets to terminals.

use super::{CHUNK, Sink, View, Work, check_link, overhead, ttl};
use crate::limits::MS;
use crate::reason::{Denied, DropReason};
use crate::session::Prefix64;
use crate::sessions::keys::of_ipv4;
use crate::slab::Direction;
use arrayvec::ArrayVec;
use overbank::prefetch::prefetch;
use overbank_wire::extract::{Network, Offsets, extract};
use overbank_wire::gtpu::Refused;
use overbank_wire::icmp_error::Problem;
use overbank_wire::ip::{Ends, Packet};
use overbank_wire::ip4::Packet4;
use overbank_wire::key::FlowKey;

/// Last byte of the headers that are read.
const HEADERS: usize = 37;

/// The keys of a burst, by table.
#[derive(Default)]
struct Keys {
    wide: ArrayVec<u64, CHUNK>,
    six: ArrayVec<u64, CHUNK>,
}

/// A frame from N6 that was read.
enum Read<'a> {
    /// A packet for the short path, and its key.
    Short {
        packet: Packet4<'a>,
        key: usize,
    },
    General(FromN6<'a>),
}

/// A packet to a terminal, and its key among those of its table.
struct FromN6<'a> {
    packet: Packet<'a>,
    offsets: Offsets,
    key: usize,
}

impl View {
    /// Reads a frame from N6; its key is added to `keys`.
    #[inline]
    fn read_n6<'a>(&self, frame: &'a [u8], keys: &mut Keys) -> Result<Read<'a>, DropReason> {
        check_link(frame, &self.hops.n6)?;
        if let Some(packet) = Packet4::of_frame(frame)
            && self.addresses.pools.contain4(packet.dst())
        {
            let key = keys.wide.len();
            keys.wide.push(of_ipv4(packet.dst()));
            return Ok(Read::Short { packet, key });
        }
        self.read_any_n6(frame, keys).map(Read::General)
    }

    /// Reads any frame whose Ethernet header is right.
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
            Ends::V4 { dst, .. } => {
                keys.wide.push(of_ipv4(dst));
                keys.wide.len() - 1
            }
            Ends::V6 { dst, .. } => {
                keys.six.push(Prefix64::of(dst).0);
                keys.six.len() - 1
            }
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
        let now_ns = now_ms.saturating_mul(MS);
        let mut keys = Keys::default();
        let read: ArrayVec<_, CHUNK> =
            frames.iter().map(|frame| view.read_n6(frame, &mut keys)).collect();
        let (wide, six) = self.reader.look_up::<CHUNK>(&keys.wide, &keys.six);
        for (index, (frame, read)) in (first..).zip(frames.iter().zip(&read)) {
            let done = match read {
                Ok(Read::Short { packet, key }) => match wide.get(*key) {
                    Some(value)
                        if self.short_down(view, index, packet, value, now_ns, out).is_some() =>
                    {
                        continue;
                    }
                    Some(value) => {
                        let read = view.read_any_n6(frame, &mut Keys::default());
                        read.and_then(|read| {
                            self.packet_down(view, index, frame, &read, value, now_ms, out)
                        })
                    }
                    None => Err(Denied::UnknownTerminal.into()),
                },
                Ok(Read::General(read)) => {
                    let found = match read.packet.ends {
                        Ends::V4 { .. } => wide.get(read.key),
                        Ends::V6 { .. } => six.get(read.key),
                    };
                    found.ok_or(Denied::UnknownTerminal.into()).and_then(|value| {
                        self.packet_down(view, index, frame, read, value, now_ms, out)
                    })
                }
                Err(reason) => Err(*reason),
            };
            if let Err(reason) = done {
                out.drop(index, reason);
            }
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
