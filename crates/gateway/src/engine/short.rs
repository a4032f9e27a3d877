//! The short path of nearly every packet: IPv4 in IPv4, forwarded. It writes the headers that
//! change, and what follows them leaves as it lies in the received frame.
//!
//! ```text
//!   uplink     Ethernet │ IPv4: TTL − 1                                 │ rest, not copied here
//!   downlink   Ethernet │ IPv4 │ UDP │ GTP-U, container │ IPv4: TTL − 1 │ rest
//! ```
//!
//! Whatever is dropped, answered or otherwise unusual takes the general paths of `n3.rs` and
//! `n6.rs`, from the start: nothing has changed then. The tests hold both equal to the naive twin.

use super::{Sink, TTL, View, Work, overhead};
use crate::session::is_host4;
use crate::slab::Direction;
use overbank_wire::gtpu::{Container, Encap, Outer, Plain};
use overbank_wire::ip::Ends;
use overbank_wire::ip4::{HEADER_LEN, Packet4};
use std::net::IpAddr;

/// Congestion marks of outer headers that leave a packet as it is: not capable, and capable (0).
const ECN_SILENT: [u8; 2] = [0, 2];
/// Room for all headers of a packet into a tunnel.
const HEAD_LEN: usize = Encap::LEN_MAX + HEADER_LEN;

impl View {
    /// Returns the number of the N3 address of a G-PDU that the short path may take.
    #[inline(always)]
    pub(super) fn admits(&self, plain: &Plain<'_>) -> Option<u16> {
        let n3 = self.addresses.n3_number(plain.dst.into())?;
        let allowed = self.peers.is_empty() || self.peers.contain4(plain.src);
        (plain.teid != 0 && allowed && self.addresses.teids.admits(n3, plain.teid)).then_some(n3)
    }
}

impl Work {
    /// Sends a packet of a terminal to N6; returns `None`, without a change, if the general path is
    /// to decide.
    #[inline(always)]
    pub(super) fn short_up(
        &mut self,
        view: &View,
        index: usize,
        plain: &Plain<'_>,
        value: u32,
        now_ns: u64,
        out: &mut impl Sink,
    ) -> Option<()> {
        let packet = &plain.packet;
        let entry = self.reader.entry(value)?;
        let (dst, len) = (packet.dst(), packet.bytes().len());
        let usual = entry.owns4(packet.src())
            && entry.is_open(Direction::Up)
            && is_host4(dst)
            && view.addresses.n3_number(dst.into()).is_none()
            && !view.protected.contain4(dst)
            && packet.ttl() > 1
            && len <= view.mtu.n6
            && ECN_SILENT.contains(&(plain.tos & 3));
        if !usual {
            return None;
        }
        let link = view.hops.n6.link4(dst)?;
        // Last: what is dropped for another reason uses nothing of the rate.
        if !entry.admit(Direction::Up, len, now_ns) {
            return None;
        }
        self.reader.tally().passed(value, Direction::Up, len);
        self.totals.uplink += 1;
        self.totals.uplink_bytes += len as u64;
        out.output_parts(index, self.roles.n6, &packet.forwarded(&link), packet.payload());
        Some(())
    }

    /// Sends a packet to a terminal by N3; returns `None`, without a change, if the general path is
    /// to decide.
    #[inline(always)]
    pub(super) fn short_down(
        &mut self,
        view: &View,
        index: usize,
        packet: &Packet4<'_>,
        value: u32,
        now_ns: u64,
        out: &mut impl Sink,
    ) -> Option<()> {
        let entry = self.reader.entry(value)?;
        let len = packet.bytes().len();
        let usual = entry.is_open(Direction::Down)
            && packet.ttl() > 1
            && len + overhead(&entry) <= view.mtu.n3;
        if !usual {
            return None;
        }
        let dst = entry.peer4()?;
        let IpAddr::V4(src) = *view.addresses.n3.get(usize::from(entry.n3()))? else { return None };
        let encap = Encap {
            outer: Outer { link: view.hops.n3.link4(dst)?, ends: Ends::V4 { src, dst }, ttl: TTL },
            teid: entry.peer_teid(),
            session: entry.qfi().map(Container::downlink),
        };
        let mut head = [0; HEAD_LEN];
        let (room, inner) = head.split_last_chunk_mut::<HEADER_LEN>()?;
        let start = encap.write_plain(room, len, packet.flow_hash(), packet.tos() >> 2)?;
        *inner = packet.next_hop();
        if !entry.admit(Direction::Down, len, now_ns) {
            return None;
        }
        self.reader.tally().passed(value, Direction::Down, len);
        self.totals.downlink += 1;
        self.totals.downlink_bytes += len as u64;
        out.output_parts(index, self.roles.n3, head.get(start..)?, packet.payload());
        Some(())
    }
}
