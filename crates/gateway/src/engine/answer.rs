//! What the gateway sends by itself: Echo Requests and Responses, Error Indications, Supported
//! Extension Headers Notifications, End Markers, ICMP errors.
//!
//! All answers are bounded, so that no flood of requests makes a flood of answers:
//!
//! | answer | a second, of all workers together, unless [`AnswerLimits`] are others |
//! |---|---|
//! | Echo Response | 100 to a peer |
//! | Error Indication | 100, and 1 to a peer |
//! | Supported Extension Headers Notification | 100, and 1 to a peer |
//! | ICMP error | 1000, and 100 to a host |
//!
//! [`PeerLimits`] keeps the limits of peers in bounded memory. An Error Indication answers only a
//! TEID that no session has, never 0, and only a sender that is a single host. A notification
//! answers a G-PDU alone, so that two gateways never answer each other.

use super::{Sink, TTL, View, Work, ends};
use crate::fabric;
use crate::limits::{Limit, PeerLimits, PerSecond};
use crate::peers::Path;
use crate::reason::{Denied, DropReason};
use crate::session::is_host;
use overbank_wire::gtpu::{self, Extension, Extensions, Link, Message, Outer, kind};
use overbank_wire::icmp_error::{self, Problem};
use overbank_wire::ip::{Ends, Packet};
use overbank_wire::udp::Datagram;
use std::net::IpAddr;
use std::slice;

/// Room for an answer and the headers in front of it.
pub(super) const LEN_MAX: usize = HEADROOM + icmp_error::LEN_MAX_V6;
const HEADROOM: usize = 128;
const _: () = assert!(Outer::LEN_MAX <= HEADROOM);

const INDICATION_PEER: PerSecond = PerSecond::at_most(1);
const ICMP_HOST: PerSecond = PerSecond::at_most(100);

/// How many answers are sent a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// To a peer.
    echo: PerSecond,
    /// Of Error Indications, and of Supported Extension Headers Notifications.
    indications: PerSecond,
    icmp: PerSecond,
}

impl AnswerLimits {
    /// Returns these limits, each at least 1.
    pub const fn new(echo: usize, indications: usize, icmp: usize) -> AnswerLimits {
        AnswerLimits {
            echo: PerSecond::at_most(echo as u64),
            indications: PerSecond::at_most(indications as u64),
            icmp: PerSecond::at_most(icmp as u64),
        }
    }
}

impl Default for AnswerLimits {
    fn default() -> AnswerLimits {
        AnswerLimits::new(100, 100, 1000)
    }
}

/// The limits of answers, shared by all workers.
#[derive(Debug)]
pub struct Answers {
    echo: PeerLimits,
    indications: Limit,
    indication_peers: PeerLimits,
    notices: Limit,
    notice_peers: PeerLimits,
    icmp: Limit,
    icmp_hosts: PeerLimits,
}

impl Answers {
    /// Returns unused limits; `seed` varies the hash function.
    pub fn new(seed: u64) -> Answers {
        Answers {
            echo: PeerLimits::new(seed),
            indications: Limit::default(),
            indication_peers: PeerLimits::new(seed),
            notices: Limit::default(),
            notice_peers: PeerLimits::new(seed),
            icmp: Limit::default(),
            icmp_hosts: PeerLimits::new(seed),
        }
    }

    /// Admits an Error Indication; the peer's limit comes first, so that one peer does not use up
    /// what all have.
    fn indication(&self, limits: AnswerLimits, peer: IpAddr, now_ms: u64) -> bool {
        self.indication_peers.admit(INDICATION_PEER, peer, now_ms)
            && limits.indications.admit(&self.indications, now_ms)
    }

    /// Admits a Supported Extension Headers Notification, likewise.
    fn notice(&self, limits: AnswerLimits, peer: IpAddr, now_ms: u64) -> bool {
        self.notice_peers.admit(INDICATION_PEER, peer, now_ms)
            && limits.indications.admit(&self.notices, now_ms)
    }

    fn icmp_error(&self, limits: AnswerLimits, host: IpAddr, now_ms: u64) -> bool {
        self.icmp_hosts.admit(ICMP_HOST, host, now_ms) && limits.icmp.admit(&self.icmp, now_ms)
    }
}

/// Returns the Ethernet header of an answer to a peer: by the route to it, else back to the sender
/// of `frame`, unless that was another node: at N3 there is no such address.
pub(super) fn link_back(view: &View, to: IpAddr, frame: &[u8]) -> Option<Link> {
    view.hops.n3.link(to).or_else(|| {
        let (dst, src) = frame.first_chunk::<12>()?.split_first_chunk::<6>()?;
        let src = src.try_into().ok()?;
        fabric::tag(src).is_none().then_some(Link { dst: src, src: *dst, vlan: None })
    })
}

impl Work {
    /// Writes a message with its outer headers; returns the frame.
    fn message(
        &mut self,
        message: &Message<'_>,
        link: Link,
        ends: Ends,
        ports: [u16; 2],
    ) -> Option<&[u8]> {
        let room = &mut self.scratch.answer[..];
        let len = message.emit(room.get_mut(HEADROOM..)?)?;
        let whole = room.get_mut(..HEADROOM + len)?;
        let outer = Outer { link, ends, ttl: TTL };
        let start = outer.write(whole, HEADROOM..HEADROOM + len, ports, 0, 0).ok()?;
        whole.get(start..)
    }

    /// Answers an Echo Request.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "one frame's whereabouts")]
    pub(super) fn echo(
        &mut self,
        view: &View,
        index: usize,
        frame: &[u8],
        datagram: &Datagram<'_>,
        sequence: Option<u16>,
        now_ms: u64,
        out: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let (peer, n3) = (datagram.ends.src(), datagram.ends.dst());
        if !is_host(peer) || !self.answers.echo.admit(view.limits.echo, peer, now_ms) {
            return Err(Denied::EchoLimited.into());
        }
        let response = Message::echo_response(sequence.unwrap_or(0));
        let port = self.roles.n3;
        let (link, ends) = (link_back(view, peer, frame), ends(n3, peer));
        let (link, ends) = (link.ok_or(Denied::Truncated)?, ends.ok_or(Denied::OtherAddress)?);
        let answer = self.message(&response, link, ends, [gtpu::PORT, datagram.src_port]);
        out.output(index, port, answer.ok_or(Denied::TooBig)?);
        self.totals.echo_answered += 1;
        Ok(())
    }

    /// Tells a peer that its TEID has no session; the G-PDU is dropped.
    #[cold]
    pub(super) fn error_indication(
        &mut self,
        view: &View,
        frame: &[u8],
        datagram: &Datagram<'_>,
        teid: u32,
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        if view.fabric.as_ref().is_some_and(|fabric| now_ms < fabric.unsure_until_ms) {
            self.totals.error_indications_held += 1;
            return;
        }
        let (peer, n3) = (datagram.ends.src(), datagram.ends.dst());
        if !is_host(peer) || !self.answers.indication(view.limits, peer, now_ms) {
            self.totals.error_indications_limited += 1;
            return;
        }
        let (content, mut room) = (datagram.src_port.to_be_bytes(), [0; 4]);
        let port = Extension { kind: kind::UDP_PORT, content: &content };
        // Optional, and without news if all that the peer sends is from one port: libgtp
        // (osmo-ggsn, sgsnemu) refuses each message with an extension header.
        let ports: &[Extension<'_>] =
            if datagram.src_port == gtpu::PORT { &[] } else { slice::from_ref(&port) };
        let extensions = Extensions::write(ports, &mut room).unwrap_or(Extensions::NONE);
        let message = Message { extensions, ..Message::error_indication(teid, n3) };
        let sent = self.tell(view, frame, datagram, &message, out);
        self.totals.error_indications += u64::from(sent);
    }

    /// Tells a peer which extension headers the gateway understands (TS 29.281, 7.2.3); its G-PDU,
    /// with another one whose comprehension is required, is dropped.
    #[cold]
    pub(super) fn supported_extensions(
        &mut self,
        view: &View,
        frame: &[u8],
        datagram: &Datagram<'_>,
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        let peer = datagram.ends.src();
        if !is_host(peer) || !self.answers.notice(view.limits, peer, now_ms) {
            self.totals.extensions_limited += 1;
            return;
        }
        let sent = self.tell(view, frame, datagram, &Message::supported_extensions(0), out);
        self.totals.extensions_notified += u64::from(sent);
    }

    /// Sends a message about a datagram to its sender; returns whether it could.
    fn tell(
        &mut self,
        view: &View,
        frame: &[u8],
        datagram: &Datagram<'_>,
        message: &Message<'_>,
        out: &mut impl Sink,
    ) -> bool {
        let (peer, n3, to) = (datagram.ends.src(), datagram.ends.dst(), self.roles.n3);
        let (Some(link), Some(ends)) = (link_back(view, peer, frame), ends(n3, peer)) else {
            return false;
        };
        let answer = self.message(message, link, ends, [gtpu::PORT, gtpu::PORT]);
        answer.map(|answer| out.originate(to, answer)).is_some()
    }

    /// Sends an End Marker.
    #[cold]
    pub(super) fn end_marker(&mut self, view: &View, path: Path, teid: u32, out: &mut impl Sink) {
        let sent = self.send(view, path, &Message::end_marker(teid), out);
        self.totals.end_markers += u64::from(sent);
    }

    /// Sends an Echo Request.
    #[cold]
    pub(super) fn echo_request(
        &mut self,
        view: &View,
        path: Path,
        sequence: u16,
        out: &mut impl Sink,
    ) {
        let sent = self.send(view, path, &Message::echo_request(sequence), out);
        self.totals.echo_requests += u64::from(sent);
    }

    /// Sends a message that nothing has asked for; returns whether it could.
    fn send(
        &mut self,
        view: &View,
        Path { n3, peer }: Path,
        message: &Message<'_>,
        out: &mut impl Sink,
    ) -> bool {
        let to = self.roles.n3;
        let frame = match (view.hops.n3.link(peer), ends(n3, peer)) {
            (Some(link), Some(ends)) => self.message(message, link, ends, [gtpu::PORT; 2]),
            _ => None,
        };
        let sent = frame.map(|frame| out.originate(to, frame)).is_some();
        self.totals.unsent += u64::from(!sent);
        sent
    }

    /// Writes an ICMP error about a packet into the scratch memory; returns whether it may be sent.
    fn icmp_error(
        &mut self,
        view: &View,
        problem: Problem,
        packet: &Packet<'_>,
        now_ms: u64,
    ) -> Option<usize> {
        let from = match packet.ends {
            Ends::V4 { .. } => view.from.v4?,
            Ends::V6 { .. } => view.from.v6?,
        };
        let room = self.scratch.answer.get_mut(HEADROOM..)?;
        let len = icmp_error::write(problem, packet, from, room).ok()?;
        if !self.answers.icmp_error(view.limits, packet.ends.src(), now_ms) {
            self.totals.icmp_limited += 1;
            return None;
        }
        Some(len)
    }

    /// Tells a terminal about its packet, through its tunnel.
    #[cold]
    pub(super) fn icmp_to_terminal(
        &mut self,
        view: &View,
        problem: Problem,
        packet: &Packet<'_>,
        value: u32,
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        let Some(len) = self.icmp_error(view, problem, packet, now_ms) else { return };
        let Work { reader, scratch, roles, totals, .. } = self;
        let error = scratch.answer.get(HEADROOM..HEADROOM + len).unwrap_or_default();
        let (Ok(error), Some(entry)) = (Packet::parse(error), reader.entry(value)) else { return };
        let frame = &mut scratch.frame;
        let sent = frame.load_packet(&error, &Link::default()).is_ok()
            && Work::encapsulate(frame, view, &entry, 0, error.dscp()).is_ok();
        if sent {
            out.originate(roles.n3, frame.as_slice());
            totals.icmp_errors += 1;
        }
    }

    /// Tells a host behind N6 about its packet.
    #[cold]
    pub(super) fn icmp_to_n6(
        &mut self,
        view: &View,
        problem: Problem,
        packet: &Packet<'_>,
        now_ms: u64,
        out: &mut impl Sink,
    ) {
        let Some(link) = view.hops.n6.link(packet.ends.src()) else { return };
        let Some(len) = self.icmp_error(view, problem, packet, now_ms) else { return };
        let Work { scratch, roles, totals, .. } = self;
        let error = scratch.answer.get(HEADROOM..HEADROOM + len).unwrap_or_default();
        let Ok(error) = Packet::parse(error) else { return };
        if scratch.frame.load_packet(&error, &link).is_ok() {
            out.originate(roles.n6, scratch.frame.as_slice());
            totals.icmp_errors += 1;
        }
    }
}
