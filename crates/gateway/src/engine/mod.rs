//! A worker's engine: bursts from N3 to N6 and back.
//!
//! ```text
//!   N3 ─▶ UDP 2152, GTP-U ─▶ (N3 address, TEID) ─┐               ┌▶ check, decapsulate ─▶ N6
//!                            IPv4                ├─ one batch ───┤
//!   N6 ─▶ in a UE pool ────▶ IPv6 /64            ┘  for a table  └▶ check, encapsulate ─▶ N3
//! ```
//!
//! In a cluster, the key's node comes before its session, and other nodes' packets leave by the
//! fabric (`fabric.rs`).
//!
//! - Frames leave in order of arrival. Each is sent, answered, or dropped for a [`DropReason`].
//! - An inner packet is never read as GTP-U: its ports do not matter.
//! - Nearly every packet takes a short path (`short.rs`), which copies none of its payload.
//! - Checks of a packet: its session, the source (uplink) and destination, gate, TTL, MTU, next
//!   hop, rate. A dropped packet uses nothing of the rate.
//! - The inner DSCP is copied to the outer header.
//! - UDP checksums of N3 are not verified: frames of a local sender have none yet.
//! - The gateway's answers are bounded (`answer.rs`).
//!
//! Cost: the headers' lines of a frame, the lines of its key, its session and its counts. No lock,
//! no wait; no warm packet allocates. Panics: none, on any frames.

mod answer;
mod echo;
mod fabric;
mod n3;
mod n6;
mod short;
#[cfg(test)]
mod tests;

pub use answer::{AnswerLimits, Answers};
pub use echo::{EchoResponse, Echoes};

use crate::fabric::{Fabric, Seed, announcement, kind};
use crate::next_hops::{Mac, NextHops};
use crate::peers::Path;
use crate::prefix::Prefixes;
use crate::reason::{Denied, DropReason};
use crate::sessions::{Addresses, SessionReader};
use crate::slab::Entry;
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use overbank_runtime::{Engine, Ingress, Out};
use overbank_wire::FrameBuf;
use overbank_wire::gtpu::{Container, Encap, Outer, Refused};
use overbank_wire::ip::{Ends, Packet};
use std::net::IpAddr;
use std::sync::Arc;

/// Frames of one batch of lookups.
const CHUNK: usize = 32;
/// Tunnels of Error Indications that wait to be taken.
const LOST_MAX: usize = 256;
/// TTL and hop limit of tunnels.
const TTL: u8 = 64;
/// Ethernet address and type.
const MAC_LEN: usize = 6;

/// What engines run on, beside the sessions.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub addresses: Addresses,
    pub hops: NextHops,
    /// Peers that may send to N3; empty: all.
    pub peers: Prefixes,
    /// Addresses that no terminal may send to, beside those of N3.
    pub protected: Prefixes,
    /// Longest IP packets that leave by N3 and N6.
    pub mtu: Mtu,
    /// Sources of ICMP errors.
    pub from: From,
    /// Answers sent a second.
    pub limits: AnswerLimits,
    /// Takes tunnels that their peers do not know.
    pub lost: Arc<LostTunnels>,
    /// Takes responses to Echo Requests of the gateway.
    pub echoes: Arc<Echoes>,
    /// The other nodes, if the gateway is one of a cluster.
    pub fabric: Option<Fabric>,
}

/// Tunnels, by peer and its TEID, that Error Indications named. Bounded: further ones are left out
/// until these are taken.
#[derive(Debug)]
pub struct LostTunnels(ArrayQueue<(IpAddr, u32)>);

impl Default for LostTunnels {
    fn default() -> LostTunnels {
        LostTunnels(ArrayQueue::new(LOST_MAX))
    }
}

impl LostTunnels {
    /// Returns one, once.
    pub fn take(&self) -> Option<(IpAddr, u32)> {
        self.0.pop()
    }
}

/// Longest IP packets of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    pub n3: usize,
    pub n6: usize,
}

impl Default for Mtu {
    fn default() -> Mtu {
        Mtu { n3: 1500, n6: 1500 }
    }
}

/// The gateway's address of each family in ICMP errors; `None`: no errors are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct From {
    pub v4: Option<IpAddr>,
    pub v6: Option<IpAddr>,
}

/// Indices of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub n3: u16,
    pub n6: u16,
}

/// What the control side asks of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send an End Marker.
    EndMarker { n3: IpAddr, peer: IpAddr, teid: u32 },
    /// Send an Echo Request.
    Echo { path: Path, sequence: u16 },
    /// Show switches where the port of the fabric is.
    Announce,
}

overbank_declare::counters! {
    /// Counts of a worker.
    pub struct GatewayTotals: "overbank_gateway_" {
        uplink: counter packets "Inner packets sent"
            as "forwarded_packets" { direction = "uplink" } rate top "up/s";
        downlink: counter packets "Inner packets sent"
            as "forwarded_packets" { direction = "downlink" } rate top "down/s";
        uplink_bytes: counter bytes "Bytes of inner packets sent"
            as "forwarded_bytes" { direction = "uplink" } rate;
        downlink_bytes: counter bytes "Bytes of inner packets sent"
            as "forwarded_bytes" { direction = "downlink" } rate;
        echo_answered: counter packets "Echo Requests answered" as "echo_answered" rate;
        error_indications: counter packets "Error Indications sent"
            as "error_indications_sent" rate;
        error_indications_limited: counter packets
            "Error Indications not sent: over the limit, or 1/s to the peer" as "error_indications_limited";
        error_indications_held: counter packets
            "Error Indications not sent: nodes had just come or gone" as "error_indications_held";
        extensions_notified: counter packets "Supported Extension Headers Notifications sent"
            as "extension_notifications_sent" rate;
        extensions_limited: counter packets
            "Supported Extension Headers Notifications not sent: over the limit, or 1/s to the peer"
            as "extension_notifications_limited";
        icmp_errors: counter packets "ICMP errors sent" as "icmp_errors_sent" rate;
        icmp_limited: counter packets
            "ICMP errors not sent: over the limit, or 100/s to the host" as "icmp_errors_limited";
        end_markers: counter packets "End Markers sent" as "end_markers_sent";
        echo_requests: counter packets "Echo Requests sent" as "echo_requests_sent" rate;
        unsent: counter packets
            "End Markers and Echo Requests not sent: no next hop is known" as "messages_unsent";
        fabric_sent: counter packets "Packets forwarded to other nodes of the cluster"
            as "fabric_sent" rate;
        fabric_received: counter packets "Packets from other nodes of the cluster to this one"
            as "fabric_received" rate;
        notes_sent: counter packets
            "Notes to the nodes where packets of no session came in" as "fabric_notes_sent";
        notes_received: counter packets
            "Notes of other nodes about packets of no session" as "fabric_notes_received";
    }
}

/// Where frames go. Each frame of a call of [`Gateway::forward`] is output once or dropped once.
pub trait Sink {
    /// Sends what became of frame `index` by a port.
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]);

    /// Sends it in two parts, the first of which has the Ethernet header.
    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]);

    /// Drops frame `index`.
    fn drop(&mut self, index: usize, reason: DropReason);

    /// Sends a frame that the gateway made itself.
    fn originate(&mut self, port: u16, bytes: &[u8]);
}

impl Sink for Out<DropReason> {
    #[inline]
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        Out::output(self, index, port, bytes);
    }

    #[inline]
    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        Out::output_parts(self, index, port, head, rest);
    }

    #[inline]
    fn drop(&mut self, index: usize, reason: DropReason) {
        Out::drop(self, index, reason);
    }

    fn originate(&mut self, port: u16, bytes: &[u8]) {
        Out::originate(self, port, bytes);
    }
}

/// The engine.
pub struct Gateway {
    view: Arc<View>,
    work: Work,
}

/// All of an engine but its view: a burst changes it and only reads the view.
struct Work {
    reader: SessionReader,
    roles: Roles,
    answers: Arc<Answers>,
    scratch: Scratch,
    totals: GatewayTotals,
}

/// Memory for frames that leave.
struct Scratch {
    frame: FrameBuf,
    /// An answer before its outer headers.
    answer: Box<[u8; answer::LEN_MAX]>,
}

impl Gateway {
    /// Returns an engine; all of a gateway share `answers`.
    pub fn new(
        reader: SessionReader,
        view: Arc<View>,
        roles: Roles,
        answers: Arc<Answers>,
    ) -> Gateway {
        let scratch = Scratch { frame: FrameBuf::new(), answer: Box::new([0; answer::LEN_MAX]) };
        let totals = GatewayTotals::default();
        Gateway { view, work: Work { reader, roles, answers, scratch, totals } }
    }

    /// Takes the frames of a burst from one port, in their order.
    #[inline]
    pub fn forward(&mut self, burst: &[&[u8]], ingress: u16, now_ms: u64, out: &mut impl Sink) {
        let Gateway { view, work } = self;
        work.reader.enter();
        for (at, frames) in burst.chunks(CHUNK).enumerate() {
            if ingress == work.roles.n3 {
                work.uplink(view, at * CHUNK, frames, now_ms, out);
            } else if let Some(fabric) = view.fabric.as_ref().filter(|f| f.port == ingress) {
                work.take_across(view, fabric, at * CHUNK, frames, now_ms, out);
            } else {
                work.downlink(view, at * CHUNK, frames, now_ms, out);
            }
        }
        work.reader.leave();
    }

    #[cfg(test)]
    pub(crate) fn asker(&self) -> crate::peers::Asker {
        self.view.asker()
    }

    /// Does what the control side asks for.
    pub(crate) fn perform(&mut self, order: Order, out: &mut impl Sink) {
        let Gateway { view, work } = self;
        match order {
            Order::EndMarker { n3, peer, teid } => {
                work.end_marker(view, Path { n3, peer }, teid, out);
            }
            Order::Echo { path, sequence } => work.echo_request(view, path, sequence, out),
            Order::Announce => {
                if let Some(fabric) = &view.fabric {
                    out.originate(fabric.port, &announcement(fabric.mac));
                }
            }
        }
    }
}

impl Engine for Gateway {
    type Snapshot = Arc<View>;
    type Order = Order;
    type Totals = GatewayTotals;
    type Drop = DropReason;

    #[inline]
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<DropReason>,
    ) {
        self.forward(burst, ingress.index, now_ms, out);
    }

    fn carry_out(&mut self, order: Order, _now_ms: u64, out: &mut Out<DropReason>) {
        self.perform(order, out);
    }

    fn take_over(&mut self, _old: &Arc<View>, new: &Arc<View>, _now_ms: u64) {
        self.view = new.clone();
    }

    fn totals(&self) -> GatewayTotals {
        self.work.totals
    }
}

/// Checks the Ethernet header of a frame for a port.
#[inline]
fn check_link(frame: &[u8], mac: Mac) -> Result<(), Denied> {
    let [header @ .., a, b] = frame.get(..2 * MAC_LEN + 2).ok_or(Denied::Truncated)? else {
        return Err(Denied::Truncated);
    };
    // A port without an address takes every frame that is not to a group.
    let to = &header[..MAC_LEN];
    if to[0] & 1 == 1 || (mac != [0; MAC_LEN] && to != mac) {
        return Err(Denied::OtherMac);
    }
    match [*a, *b] {
        [0x81, 0x00] | [0x88, 0xa8] => Err(Denied::Vlan),
        _ => Ok(()),
    }
}

/// The keys of a chunk, by table.
#[derive(Default)]
struct Keys {
    wide: ArrayVec<u64, CHUNK>,
    six: ArrayVec<u64, CHUNK>,
}

/// Place of a key among those of its chunk.
#[derive(Clone, Copy, Debug)]
enum At {
    Wide(usize),
    Six(usize),
}

impl Keys {
    fn len(&self) -> usize {
        self.wide.len() + self.six.len()
    }

    /// Returns the hash of a key in the cluster.
    fn hash(&self, seed: Seed, at: At) -> Option<u64> {
        match at {
            At::Wide(at) => self.wide.get(at).map(|key| seed.hash(kind::WIDE, *key)),
            At::Six(at) => self.six.get(at).map(|key| seed.hash(kind::SIX, *key)),
        }
    }

    #[inline]
    fn wide(&mut self, key: u64) -> At {
        self.wide.push(key);
        At::Wide(self.wide.len() - 1)
    }

    #[inline]
    fn six(&mut self, key: u64) -> At {
        self.six.push(key);
        At::Six(self.six.len() - 1)
    }
}

/// Returns the TTL or hop limit of a packet.
#[inline]
fn ttl(packet: &Packet<'_>) -> u8 {
    let at = match packet.ends {
        Ends::V4 { .. } => 8,
        Ends::V6 { .. } => 7,
    };
    packet.bytes().get(at).copied().unwrap_or(0)
}

/// Returns the addresses of a tunnel to a session's peer.
#[inline]
fn tunnel_ends(addresses: &Addresses, entry: &Entry<'_>) -> Option<Ends> {
    let n3 = *addresses.n3.get(usize::from(entry.n3()))?;
    ends(n3, entry.peer())
}

/// Returns both addresses if they are of one family.
fn ends(src: IpAddr, dst: IpAddr) -> Option<Ends> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Ends::V4 { src, dst }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Ends::V6 { src, dst }),
        _ => None,
    }
}

/// Returns the bytes that a tunnel puts in front of a packet, without Ethernet.
#[inline]
fn overhead(entry: &Entry<'_>) -> usize {
    const UDP: usize = 8;
    let ip = if entry.peer().is_ipv4() { 20 } else { 40 };
    let gtpu = if entry.qfi().is_some() { 16 } else { 8 };
    ip + UDP + gtpu
}

impl Work {
    /// Encapsulates the packet of the scratch frame for a session.
    #[inline]
    fn encapsulate(
        frame: &mut FrameBuf,
        view: &View,
        entry: &Entry<'_>,
        flow: u64,
        dscp: u8,
    ) -> Result<(), DropReason> {
        let ends = tunnel_ends(&view.addresses, entry).ok_or(Denied::NoNextHop)?;
        let link = view.hops.n3.link(ends.dst()).ok_or(Denied::NoNextHop)?;
        let encap = Encap {
            outer: Outer { link, ends, ttl: TTL },
            teid: entry.peer_teid(),
            session: entry.qfi().map(Container::downlink),
        };
        frame.encapsulate(&encap, flow, dscp).map_err(|refused| match refused {
            Refused::TooLong => Denied::TooBig.into(),
            other => DropReason::from(other),
        })
    }
}
