//! Terminals by number, and their packets.
//!
//! Terminal N has TEID N at the N3 address and the address 10.0.0.0 + N. Its packets are UDP
//! datagrams to and from one host, with N in the payload. A number beyond the population gives
//! packets of no session.

use super::{BEAT_US, Burst, Local, Plan};
use crate::engine::View;
use crate::next_hops::{Mac, NextHops, PortHops};
use crate::prefix::{Prefix, Prefixes};
use crate::session::{Gate, Session};
use crate::sessions::{Addresses, SessionError};
use crate::settings::{Role, UNKNOWN_SHARE};
use overbank::hash::mix;
use overbank_cluster::message::Refusal;
use overbank_wire::gtpu::{Encap, Link, Outer};
use overbank_wire::ip::Ends;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Most terminals: as many numbers more have packets of no session.
pub const POPULATION_MAX: u32 = 1 << 22;
/// Requests of a beat.
const REQUESTS: usize = 16_384;
/// Beats after which a session that has not been placed is an error.
const BEATS_MAX: u64 = 2_000;

const N3: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const PORT_MAC: Mac = [2, 0, 0, 0, 0, 1];
const ROUTER_MAC: Mac = [2, 0, 0, 0, 0, 9];
/// Bytes of an inner packet.
const PACKET: usize = 128;
const LINK: usize = 14;
const HEADER: usize = 20;
/// Where the payload of an inner packet begins.
const PAYLOAD: usize = HEADER + 8;

/// The terminals of a cluster.
#[derive(Clone, Debug)]
pub struct Population {
    count: u32,
    buffer: Box<[u8; Encap::LEN_MAX + PACKET]>,
}

/// The sessions of a population were not placed.
#[derive(Debug, thiserror::Error)]
pub enum NotPlaced {
    #[error(transparent)]
    Invalid(#[from] SessionError),
    #[error("session {0}: {1}")]
    Refused(u64, Refusal),
    #[error("{0} of {1} sessions have no answer")]
    Unanswered(u64, u32),
}

impl Population {
    /// Returns this many terminals, at most [`POPULATION_MAX`].
    pub fn new(count: u32) -> Population {
        let buffer = Box::new([0; Encap::LEN_MAX + PACKET]);
        Population { count: count.clamp(1, POPULATION_MAX), buffer }
    }

    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns a cluster that fits the terminals: each node may have all of them.
    pub fn plan(&self, nodes: u8, seed: u64) -> Plan {
        let all = || Prefix::of(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let hops = || PortHops::new(PORT_MAC, [(all(), Some(ROUTER_MAC))]);
        let pools = std::iter::once(Prefix::of(NETWORK.into(), 8)).collect::<Prefixes>();
        let addresses = Addresses { n3: [N3.into()].into(), pools, ..Addresses::default() };
        let hops = NextHops { n3: hops(), n6: hops() };
        let view = View { addresses, hops, ..View::default() };
        let (running, sessions_max) = (nodes, self.count as usize);
        Plan { nodes, running, sessions_max, seed, view, unknown_percent: UNKNOWN_SHARE }
    }

    /// Places a session for each terminal, by the nodes that ran at first.
    ///
    /// # Errors
    /// A session is refused for good, or there are no answers.
    pub fn place(&self, local: &mut Local) -> Result<(), NotPlaced> {
        let mut left: VecDeque<u32> = (1..=self.count).collect();
        let mut answered = 0;
        let addresses = self.plan(1, 0).view.addresses;
        for _ in 0..BEATS_MAX {
            let now = left.len().min(REQUESTS);
            for number in left.drain(..now) {
                let node = (number % u32::from(local.plan.running)) as u8;
                let request = local.seed().establish(&addresses, &session(number), &[], None);
                local.ask(node, number, request?);
            }
            local.advance(local.now_us() + BEAT_US);
            let (more, refused) = local.answered();
            answered += more - refused.len() as u64;
            for (number, why) in refused {
                match why {
                    Refusal::Overload | Refusal::NoOwner | Refusal::Timeout => {
                        left.push_back(number as u32);
                    }
                    why => return Err(NotPlaced::Refused(number, why)),
                }
            }
            if answered == u64::from(self.count) {
                return Ok(());
            }
        }
        Err(NotPlaced::Unanswered(u64::from(self.count) - answered, self.count))
    }

    /// Appends a packet of a terminal, as it comes in at N3 or N6.
    pub fn packet(&mut self, number: u32, role: Role, to: &mut Burst) {
        let terminal = address(number);
        let (from, dst) = if role == Role::N3 { (terminal, HOST) } else { (HOST, terminal) };
        let buffer = &mut self.buffer[..];
        let at = buffer.len() - PACKET;
        buffer[at..at + HEADER].copy_from_slice(&header(from, dst));
        // UDP without a checksum.
        let ports = if role == Role::N3 { [5000u16, 53] } else { [53, 5000] };
        let words = [ports[0], ports[1], (PACKET - HEADER) as u16, 0];
        let udp = buffer[at + HEADER..].chunks_exact_mut(2);
        udp.zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
        buffer[at + PAYLOAD..][..4].copy_from_slice(&number.to_be_bytes());
        let link = Link { dst: PORT_MAC, src: ROUTER_MAC, vlan: None };
        let start = if role == Role::N3 {
            let outer = Outer { link, ends: Ends::V4 { src: PEER, dst: N3 }, ttl: 64 };
            let encap = Encap { outer, teid: number, session: None };
            // The buffer has room for the headers.
            encap.write(buffer, at..at + PACKET, mix(number.into()), 0).unwrap_or(at)
        } else {
            let addresses = link.dst.into_iter().chain(link.src).chain([8, 0]);
            buffer[at - LINK..at].iter_mut().zip(addresses).for_each(|(to, byte)| *to = byte);
            at - LINK
        };
        to.push(&buffer[start..], &[]);
    }
}

/// Returns the terminal of a packet that leaves by N3 or N6, if payload, addresses and tunnel all
/// name the same.
pub(super) fn terminal(role: Role, head: &[u8], rest: &[u8]) -> Option<u32> {
    let mut frame = [0; Encap::LEN_MAX + PACKET];
    let len = head.len() + rest.len();
    frame.get_mut(..head.len())?.copy_from_slice(head);
    frame.get_mut(head.len()..len)?.copy_from_slice(rest);
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let inner = len.checked_sub(PACKET)?;
    let number = word(inner + PAYLOAD)?;
    let (own, tunnel) = match role {
        // Ethernet, IPv4 and UDP, then GTP-U, whose second word is the TEID.
        Role::N3 => (word(inner + 16)?, word(LINK + HEADER + 8 + 4)? == number),
        _ => (word(inner + 12)?, inner == LINK),
    };
    (tunnel && own == address(number).to_bits()).then_some(number)
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK.to_bits() + number)
}

fn session(number: u32) -> Session {
    Session {
        id: number.into(),
        n3: N3.into(),
        teid: number,
        peer: PEER.into(),
        peer_teid: number,
        qfi: Some(9),
        ipv4: Some(address(number)),
        ipv6: None,
        gate: Gate::Open,
        rate_up: None,
        rate_down: None,
    }
}

/// Returns the IPv4 header of a packet of UDP.
fn header(from: Ipv4Addr, to: Ipv4Addr) -> [u8; HEADER] {
    let mut header =
        [0x45, 0, 0, PACKET as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    header
}
