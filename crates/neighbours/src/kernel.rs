//! Asks the kernel by rtnetlink.
//!
//! Two sockets: one hears of changes, one asks for the state. What a message means is read by
//! `netlink-packet-route`, total on any bytes; a message that it cannot read is counted.

use crate::hops::{Facts, Hops, Link, Mac, Neighbour, NextHop, Route, Way};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Most routes, and most neighbours.
pub const MAX: usize = 1 << 16;
/// Multicast groups of rtnetlink: links, neighbours, routes of IPv4 and IPv6.
const GROUPS: [u32; 4] = [1, 3, 7, 11];
/// Tables of routes.
const TABLES: [u32; 2] = [254, 255];
/// Least time between two dumps; also ten times what the last one took.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Dumps in a row that changes interrupt; then the next refresh goes on.
const TRIES: usize = 3;
/// The kernel's mark that a dump is not of one instant.
const INTERRUPTED: u16 = 0x10;
/// Requests to resolve an address in [`WINDOW`].
const REQUESTS_MAX: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// The kernel's tables cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// A socket failed.
    #[error("rtnetlink, {doing}: {error}")]
    Socket {
        /// What failed.
        doing: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The kernel refuses to list a table; the hops stay as they were.
    #[error("rtnetlink: the kernel refuses to list its {what}")]
    Refused {
        /// Links, neighbours or routes.
        what: &'static str,
    },
    /// There are more than [`MAX`]; the hops stay as they were.
    #[error("the kernel has more than {MAX} {what}: fewer are needed to follow them")]
    TooMany {
        /// Routes or neighbours.
        what: &'static str,
    },
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> WatchError {
    move |error| WatchError::Socket { doing, error }
}

/// Follows the kernel's routes and neighbours for some interfaces.
pub struct Watcher {
    events: Socket,
    questions: Socket,
    sequence: u32,
    names: Vec<String>,
    hops: Vec<Hops>,
    unread: usize,
    /// Something changed since the last dump.
    stale: bool,
    /// No dump before this.
    not_before: Instant,
    /// Requests since `window`.
    requests: u32,
    window: Instant,
}

impl Watcher {
    /// Follows the interfaces of these names, which may come later. Call this in the thread whose
    /// network namespace is meant.
    ///
    /// # Errors
    /// The kernel refuses, or has more than [`MAX`] routes or neighbours.
    pub fn new(names: impl IntoIterator<Item = String>) -> Result<Watcher, WatchError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            Ok(socket)
        };
        let [events, questions] =
            [open().map_err(failed("opening"))?, open().map_err(failed("opening"))?];
        // First the events, then the dump: no change falls between them.
        for group in GROUPS {
            events.add_membership(group).map_err(failed("joining"))?;
        }
        events.set_non_blocking(true).map_err(failed("opening"))?;
        let now = Instant::now();
        let names: Vec<String> = names.into_iter().collect();
        let mut watcher = Watcher {
            hops: names.iter().map(|_| Hops::default()).collect(),
            names,
            events,
            questions,
            sequence: 0,
            unread: 0,
            stale: true,
            not_before: now,
            requests: 0,
            window: now,
        };
        watcher.refresh(now)?;
        Ok(watcher)
    }

    /// Returns the routes of the interface that was named at this place.
    pub fn hops(&self, nth: usize) -> &Hops {
        &self.hops[nth]
    }

    /// Returns the number of messages of the last dump that could not be read.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Reads the kernel's tables if they changed and the last time is long enough ago. Asks for
    /// routers that are not resolved. Returns whether any hops differ from before.
    ///
    /// # Errors
    /// As [`Watcher::new`]; the hops stay as they were, and the next call tries again.
    pub fn refresh(&mut self, now: Instant) -> Result<bool, WatchError> {
        self.stale |= self.heard()?;
        if !self.stale || now < self.not_before {
            return Ok(false);
        }
        let (facts, whole) = self.facts()?;
        self.stale = !whole;
        self.not_before = now + PAUSE_MIN.max(10 * now.elapsed());
        self.unread = facts.unread;
        let new: Vec<Hops> = self.names.iter().map(|name| Hops::of(&facts, name)).collect();
        let changed = new != self.hops;
        self.hops = new;
        for nth in 0..self.hops.len() {
            for router in self.hops[nth].unresolved.clone() {
                self.request(nth, router, now)?;
            }
        }
        Ok(changed)
    }

    /// Has the kernel resolve an address on the link of an interface, at most 100 a second. Returns
    /// whether the kernel was asked: not for addresses that no route of the interface has on its
    /// link.
    ///
    /// # Errors
    /// The socket fails. What the kernel says of the address is not an error.
    pub fn resolve(
        &mut self,
        nth: usize,
        address: IpAddr,
        now: Instant,
    ) -> Result<bool, WatchError> {
        Ok(self.hops[nth].is_on_link(address) && self.request(nth, address, now)?)
    }

    /// Asks for any address.
    fn request(&mut self, nth: usize, address: IpAddr, now: Instant) -> Result<bool, WatchError> {
        if now >= self.window + WINDOW {
            (self.window, self.requests) = (now, 0);
        }
        let index = self.hops[nth].index;
        if index == 0 || self.requests >= REQUESTS_MAX {
            return Ok(false);
        }
        self.requests += 1;
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::None;
        // The kernel resolves it as if it had a packet to send.
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
        let mut said = None;
        self.ask(RouteNetlinkMessage::NewNeighbour(message), flags, |answer| said = Some(answer))?;
        Ok(said.is_none())
    }

    /// Takes the events that wait. Returns whether something may have changed.
    fn heard(&mut self) -> Result<bool, WatchError> {
        // More wait for the next call: the answer is the same.
        const READS_MAX: usize = 256;
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut heard = false;
        for _ in 0..READS_MAX {
            buffer.clear();
            match self.events.recv(&mut buffer, 0) {
                Ok(_) => heard = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // ENOBUFS: events were lost. Which ones does not matter.
                Err(error) if error.raw_os_error() == Some(105) => heard = true,
                Err(error) => return Err(failed("listening")(error)),
            }
        }
        Ok(heard)
    }

    /// Reads all tables, and whether they are of one instant each.
    fn facts(&mut self) -> Result<(Facts, bool), WatchError> {
        for _ in 1..TRIES {
            let (facts, whole) = self.dump()?;
            if whole {
                return Ok((facts, true));
            }
        }
        self.dump()
    }

    fn dump(&mut self) -> Result<(Facts, bool), WatchError> {
        let mut facts = Facts::default();
        let routes = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        let questions = [
            ("interfaces", RouteNetlinkMessage::GetLink(LinkMessage::default())),
            ("neighbours", RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default())),
            ("routes of IPv4", routes(AddressFamily::Inet)),
            ("routes of IPv6", routes(AddressFamily::Inet6)),
        ];
        let mut whole = true;
        for (what, question) in questions {
            let mut refused = false;
            whole &= self.ask(question, NLM_F_REQUEST | NLM_F_DUMP, |answer| match answer {
                Answer::Message(RouteNetlinkMessage::NewLink(message)) => {
                    facts.links.push(link(&message));
                }
                Answer::Message(RouteNetlinkMessage::NewNeighbour(message)) => {
                    facts.neighbours.extend(neighbour(&message));
                    facts.neighbours.truncate(MAX + 1);
                }
                Answer::Message(RouteNetlinkMessage::NewRoute(message)) => {
                    facts.routes.extend(crate::kernel::route(&message));
                    facts.routes.truncate(MAX + 1);
                }
                Answer::Refused => refused = true,
                _ => facts.unread += 1,
            })?;
            if refused {
                return Err(WatchError::Refused { what });
            }
        }
        for (what, len) in [("routes", facts.routes.len()), ("neighbours", facts.neighbours.len())]
        {
            if len > MAX {
                return Err(WatchError::TooMany { what });
            }
        }
        Ok((facts, whole))
    }

    /// Asks, and passes on the answers up to the last. Returns whether they are of one instant.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(Answer),
    ) -> Result<bool, WatchError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (flags, self.sequence);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddr::new(0, 0);
        self.questions.send_to(&bytes, &kernel, 0).map_err(failed("asking"))?;
        let mut whole = true;
        loop {
            let (answers, _) = self.questions.recv_from_full().map_err(failed("reading"))?;
            let mut rest = &answers[..];
            while let Some(head) = rest.first_chunk::<16>() {
                let number = |at: usize| {
                    u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
                };
                let len = (number(0) as usize).clamp(16, rest.len());
                let one = &rest[..len];
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
                if number(8) != self.sequence {
                    continue; // Of an earlier question that failed.
                }
                whole &= u16::from_ne_bytes([head[6], head[7]]) & INTERRUPTED == 0;
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one) {
                    Err(_) => each(Answer::Unreadable),
                    Ok(message) => match message.payload {
                        NetlinkPayload::Done(_) => return Ok(whole),
                        NetlinkPayload::Error(error) => {
                            if error.code.is_some() {
                                each(Answer::Refused);
                            }
                            return Ok(whole);
                        }
                        NetlinkPayload::InnerMessage(message) => each(Answer::Message(message)),
                        _ => {}
                    },
                }
            }
        }
    }
}

/// What the kernel says.
#[allow(clippy::large_enum_variant)] // Passed on by value, never kept.
enum Answer {
    Message(RouteNetlinkMessage),
    Refused,
    Unreadable,
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok()
}

fn link(message: &LinkMessage) -> Link {
    let header = &message.header;
    let mut link = Link {
        index: header.index,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: header.flags.contains(LinkFlags::Up),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = mac(bytes).unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::OperState(state) => {
                link.up &= !matches!(
                    state,
                    State::Down | State::LowerLayerDown | State::NotPresent | State::Dormant
                );
            }
            _ => {}
        }
    }
    link
}

/// The neighbour, if its MAC address can be used.
fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let (mut address, mut at) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(*v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => at = mac(bytes),
            _ => {}
        }
    }
    let usable = usable && !message.header.flags.contains(NeighbourFlags::Proxy);
    let (address, mac) = (address?, at.filter(|mac| usable && *mac != [0; 6])?);
    Some(Neighbour { interface: message.header.ifindex, address, mac })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

/// Attributes of a route or of one of its next hops that say where it leads.
#[derive(Default)]
struct Leads {
    interface: Option<u32>,
    via: Option<IpAddr>,
    /// Into a tunnel, or by what is not understood.
    otherwise: bool,
}

fn leads(attributes: &[RouteAttribute]) -> Leads {
    let mut leads = Leads::default();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => leads.interface = Some(*index),
            RouteAttribute::Gateway(address) => leads.via = ip(address),
            RouteAttribute::Via(RouteVia::Inet(v4)) => leads.via = Some(IpAddr::V4(*v4)),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => leads.via = Some(IpAddr::V6(*v6)),
            RouteAttribute::Via(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::NewDestination(_) => leads.otherwise = true,
            _ => {}
        }
    }
    leads
}

/// The route, if packets that are forwarded take it.
fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut to, mut metric, mut table) = (any, 0, u32::from(header.table));
    let mut several = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::MultiPath(hops) => several = Some(hops),
            _ => {}
        }
    }
    // A route for some sources, or one kind of traffic, is no route for all.
    let for_all = header.source_prefix_length == 0 && header.tos == 0;
    if !TABLES.contains(&table) || !for_all || header.kind == RouteType::Throw {
        return None;
    }
    let dead = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
    let hop = |leads: Leads, flags: RouteNextHopFlags| {
        let alive = !flags.intersects(dead);
        let interface = leads.interface.filter(|_| !leads.otherwise)?;
        Some(NextHop { interface, via: leads.via, alive })
    };
    let hops: Option<Vec<NextHop>> = match (header.kind, several) {
        (RouteType::Unicast, Some(several)) => {
            let each = several.iter().map(|next| {
                let mut leads = leads(&next.attributes);
                leads.interface = Some(next.interface_index);
                hop(leads, next.flags)
            });
            each.collect()
        }
        (RouteType::Unicast, None) => {
            let flags = RouteNextHopFlags::from_bits_retain(header.flags.bits() as u8);
            hop(leads(&message.attributes), flags).map(|hop| vec![hop])
        }
        _ => None,
    };
    let way = hops.map_or(Way::Nowhere, Way::Hops);
    Some(Route { to, len: header.destination_prefix_length, metric, way })
}
