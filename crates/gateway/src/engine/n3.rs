//! Frames from N3: tunnels of terminals, and messages about paths.

use super::fabric::{Looked, Way};
use super::{At, CHUNK, Keys, Sink, View, Work, check_link, ttl};
use crate::limits::MS;
use crate::reason::{Denied, DropReason};
use crate::session::is_host;
use crate::sessions::keys::of_tunnel;
use crate::slab::{Direction, Entry};
use arrayvec::ArrayVec;
use overbank::prefetch::prefetch;
use overbank_cluster::{NodeId, Tag};
use overbank_wire::extract::Network;
use overbank_wire::gtpu::{self, Body, Message, Plain, Refused};
use overbank_wire::icmp_error::Problem;
use overbank_wire::ip::Packet;
use overbank_wire::udp::Datagram;
use std::net::IpAddr;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A frame from N3 that was read.
pub(super) enum Read<'a> {
    /// A packet of a terminal for the short path, and its key.
    Short {
        plain: Plain<'a>,
        key: At,
    },
    General(FromN3<'a>),
}

impl Read<'_> {
    pub(super) fn key(&self) -> Option<At> {
        match self {
            Read::Short { key, .. } | Read::General(FromN3::Packet { key, .. }) => Some(*key),
            Read::General(
                FromN3::Echo { .. } | FromN3::UnknownExtension(_) | FromN3::Response(_),
            ) => None,
        }
    }
}

/// What a frame from N3 is.
pub(super) enum FromN3<'a> {
    /// A packet of a terminal, and its key among those of the burst.
    Packet {
        packet: Packet<'a>,
        datagram: Datagram<'a>,
        teid: u32,
        key: At,
    },
    Echo {
        datagram: Datagram<'a>,
        sequence: Option<u16>,
    },
    /// A G-PDU with an extension header that the gateway does not know and would have to.
    UnknownExtension(Datagram<'a>),
    /// An Echo Response to another node of the cluster.
    Response(NodeId),
}

impl View {
    /// Reads a frame from N3; a packet's key is added to `keys`.
    #[inline]
    fn read_n3<'a>(&self, frame: &'a [u8], keys: &mut Keys) -> Result<Read<'a>, DropReason> {
        check_link(frame, self.hops.n3.mac())?;
        if let Some(read) = self.read_short_n3(frame, keys) {
            return Ok(read);
        }
        self.read_any_n3(frame, keys).map(Read::General)
    }

    /// Reads a frame that the short path may take.
    #[inline]
    pub(super) fn read_short_n3<'a>(&self, frame: &'a [u8], keys: &mut Keys) -> Option<Read<'a>> {
        let plain = Plain::of(frame)?;
        let key = keys.wide(of_tunnel(self.admits(&plain)?, plain.teid));
        Some(Read::Short { plain, key })
    }

    /// Reads any frame whose Ethernet header is right.
    #[inline(never)]
    pub(super) fn read_any_n3<'a>(
        &self,
        frame: &'a [u8],
        keys: &mut Keys,
    ) -> Result<FromN3<'a>, DropReason> {
        let datagram = gtpu::datagram(frame)?;
        let n3 = self.addresses.n3_number(datagram.ends.dst()).ok_or(Denied::OtherAddress)?;
        if !self.peers.is_empty() && !self.peers.contain(datagram.ends.src()) {
            return Err(Denied::ForeignPeer.into());
        }
        let message = match Message::parse(datagram.payload()) {
            Err(Refused::UnknownExtension) if self.is_to_us(n3, datagram.payload()) => {
                return Ok(FromN3::UnknownExtension(datagram));
            }
            parsed => parsed?,
        };
        let teid = message.teid;
        match message.body {
            Body::GPdu(_) if teid == 0 => Err(Denied::TeidZero.into()),
            Body::GPdu(_) if !self.addresses.teids.admits(n3, teid) => {
                Err(Denied::ForgedTeid.into())
            }
            Body::GPdu(bytes) => {
                let packet = Packet::parse(bytes)?;
                let key = keys.wide(of_tunnel(n3, teid));
                Ok(FromN3::Packet { packet, datagram, teid, key })
            }
            Body::EchoRequest => Ok(FromN3::Echo { datagram, sequence: message.sequence }),
            Body::EchoResponse { recovery } => {
                self.read_response(&datagram, message.sequence, recovery)
            }
            Body::EndMarker => Err(Denied::EndMarker.into()),
            Body::ErrorIndication { teid, peer } => {
                // A peer speaks of tunnels to itself alone.
                if peer == datagram.ends.src() {
                    let _ = self.lost.0.push((peer, teid));
                }
                Err(Denied::ErrorIndication.into())
            }
            Body::SupportedExtensions(_) => Err(Denied::SupportedExtensions.into()),
        }
    }

    /// Returns whether the header is that of a G-PDU to a TEID that may be ours.
    #[cold]
    fn is_to_us(&self, n3: u16, payload: &[u8]) -> bool {
        let Some(&[_, kind, _, _, a, b, c, d]) = payload.first_chunk() else { return false };
        let teid = u32::from_be_bytes([a, b, c, d]);
        kind == gtpu::G_PDU && teid != 0 && self.addresses.teids.admits(n3, teid)
    }

    /// Checks addresses of a terminal's packet.
    #[inline]
    fn check_ends(&self, packet: &Packet<'_>, entry: &Entry<'_>) -> Result<(), Denied> {
        let (src, dst) = (packet.ends.src(), packet.ends.dst());
        let link_local = |address| match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if link_local(src) || link_local(dst) {
            return Err(Denied::LinkLocal);
        }
        if !entry.owns(src) {
            return Err(Denied::Spoofed);
        }
        if self.addresses.n3_number(dst).is_some() || self.protected.contain(dst) {
            return Err(Denied::ToControl);
        }
        if !is_host(dst) {
            return Err(Denied::BadDestination);
        }
        Ok(())
    }
}

impl Work {
    /// Takes a chunk of frames from N3; the first is frame `first` of the burst.
    #[inline]
    pub(super) fn uplink(
        &mut self,
        view: &View,
        first: usize,
        frames: &[&[u8]],
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        // All headers are asked for before the first is read: the inner ones have a second line.
        for frame in frames {
            [0, LINE].into_iter().filter_map(|at| frame.get(at)).for_each(prefetch);
        }
        let mut keys = Keys::default();
        let read: ArrayVec<_, CHUNK> =
            frames.iter().map(|frame| view.read_n3(frame, &mut keys)).collect();
        let looked = self.look_up(view, &keys, now_ms);
        for (index, (frame, read)) in (first..).zip(frames.iter().zip(&read)) {
            let done = match read {
                Ok(read) => {
                    self.take_up(view, index, frame, read, &looked, Tag::default(), now_ms, out)
                }
                Err(reason) => Err(*reason),
            };
            if let Err(reason) = done {
                out.drop(index, reason);
            }
        }
    }

    /// Takes a frame from N3 that came with this tag.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "one frame's whereabouts")]
    pub(super) fn take_up(
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
        match read {
            Read::Short { plain, key } => {
                match self.way(view, looked, frame, *key, (tag, now_ms)) {
                    Ok(Way::Here(value))
                        if self
                            .short_up(view, index, plain, value, now_ms.saturating_mul(MS), out)
                            .is_some() =>
                    {
                        Ok(())
                    }
                    Ok(Way::There(node, tag)) => {
                        self.send_across(view, index, frame, node, tag, out)
                    }
                    Err(Denied::UnknownShare) => Err(Denied::UnknownShare.into()),
                    way => {
                        let read = view.read_any_n3(frame, &mut Keys::default())?;
                        self.take_n3(view, index, frame, &read, way, now_ms, out)
                    }
                }
            }
            Read::General(read) => {
                let way = match read {
                    FromN3::Packet { key, .. } => {
                        self.way(view, looked, frame, *key, (tag, now_ms))
                    }
                    FromN3::Echo { .. } | FromN3::UnknownExtension(_) => Ok(Way::Unknown),
                    FromN3::Response(node) => self.way_of_response(view, looked, *node, now_ms),
                };
                self.take_n3(view, index, frame, read, way, now_ms, out)
            }
        }
    }

    /// Takes a frame that was read by the general path.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "one frame's whereabouts")]
    fn take_n3(
        &mut self,
        view: &View,
        index: usize,
        frame: &[u8],
        read: &FromN3<'_>,
        way: Result<Way, Denied>,
        now_ms: u64,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        match (read, way?) {
            (FromN3::Echo { datagram, sequence }, _) => {
                self.echo(view, index, frame, datagram, *sequence, now_ms, out)
            }
            (FromN3::UnknownExtension(datagram), _) => {
                self.supported_extensions(view, frame, datagram, now_ms, out);
                Err(Refused::UnknownExtension.into())
            }
            (FromN3::Packet { packet, datagram, .. }, Way::Here(value)) => {
                self.packet_up(view, index, (packet, datagram.tos), value, now_ms, out)
            }
            (FromN3::Response(_), Way::Here(_) | Way::Unknown) => Err(Denied::EchoStray.into()),
            (FromN3::Packet { .. } | FromN3::Response(_), Way::There(node, tag)) => {
                self.send_across(view, index, frame, node, tag, out)
            }
            (FromN3::Packet { datagram, teid, .. }, Way::Unknown) => {
                self.error_indication(view, frame, datagram, *teid, now_ms, out);
                Err(Denied::UnknownTeid.into())
            }
        }
    }

    /// Sends a terminal's packet to N6.
    #[inline]
    fn packet_up(
        &mut self,
        view: &View,
        index: usize,
        (packet, outer_tos): (&Packet<'_>, u8),
        value: u32,
        now_ms: u64,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        match self.try_up(view, packet, outer_tos, value, now_ms) {
            Ok(()) => {
                let len = packet.bytes().len();
                self.reader.tally().passed(value, Direction::Up, len);
                self.totals.uplink += 1;
                self.totals.uplink_bytes += len as u64;
                out.output(index, self.roles.n6, self.scratch.frame.as_slice());
                Ok(())
            }
            Err(denied) => {
                self.reader.tally().dropped(value, Direction::Up);
                let problem = match denied {
                    Denied::TtlExpired => Some(Problem::TtlExpired),
                    Denied::TooBig => Some(Problem::TooBig { mtu: view.mtu.n6 as u32 }),
                    _ => None,
                };
                if let Some(problem) = problem {
                    self.icmp_to_terminal(view, problem, packet, value, now_ms, out);
                }
                Err(denied.into())
            }
        }
    }

    /// Leaves the frame for N6 in the scratch memory.
    #[inline]
    fn try_up(
        &mut self,
        view: &View,
        packet: &Packet<'_>,
        outer_tos: u8,
        value: u32,
        now_ms: u64,
    ) -> Result<(), Denied> {
        let entry = self.reader.entry(value).ok_or(Denied::UnknownTeid)?;
        view.check_ends(packet, &entry)?;
        if !entry.is_open(Direction::Up) {
            return Err(Denied::Gate);
        }
        if ttl(packet) <= 1 {
            return Err(Denied::TtlExpired);
        }
        let len = packet.bytes().len();
        if len > view.mtu.n6 {
            return Err(Denied::TooBig);
        }
        let link = view.hops.n6.link(packet.ends.dst()).ok_or(Denied::NoNextHop)?;
        let frame = &mut self.scratch.frame;
        frame.load_packet(packet, &link).map_err(|_| Denied::TooBig)?;
        if frame.offsets().network == Network::BrokenIp {
            return Err(Denied::BrokenInner);
        }
        frame.dec_ttl().map_err(|_| Denied::TtlExpired)?;
        frame.merge_ecn(outer_tos).map_err(|_| Denied::Congested)?;
        // Last: what is dropped for another reason uses nothing of the rate.
        if !entry.admit(Direction::Up, len, now_ms.saturating_mul(MS)) {
            return Err(Denied::RateLimited);
        }
        Ok(())
    }
}
