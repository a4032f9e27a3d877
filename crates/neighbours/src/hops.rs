//! What follows from the kernel's routes and neighbours for one interface.
//!
//! ```text
//!   route 10.0.0.0/8 via 192.0.2.9        neighbour 192.0.2.9 ─▶ 10.0.0.0/8   MAC of 192.0.2.9
//!   route 192.0.2.0/24, on the link       neighbour 192.0.2.7 ─▶ 192.0.2.7/32 its MAC
//!                                                                192.0.2.0/24 none: not resolved
//!   route 10.9.0.0/16 by another interface                    ─▶ 10.9.0.0/16  none
//! ```
//!
//! The longest prefix decides, also if it leads nowhere. Of equal prefixes the lowest metric counts
//! whose next hops are not all dead, as in the kernel.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of the interface.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// Zero if it has none.
    pub mac: Mac,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is up and has a carrier.
    pub up: bool,
}

/// One way of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Number of the interface.
    pub interface: u32,
    /// The router; `None`: destinations are on the link.
    pub via: Option<IpAddr>,
    /// Whether the kernel uses it: neither dead nor without a carrier.
    pub alive: bool,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To one of these.
    Hops(Vec<NextHop>),
    /// Nowhere that a port could send to: to this machine, a blackhole, into a tunnel.
    Nowhere,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// First address of the prefix.
    pub to: IpAddr,
    /// Bits of the prefix.
    pub len: u8,
    /// The lowest counts.
    pub metric: u32,
    /// Where it leads.
    pub way: Way,
}

/// A neighbour whose MAC address is known and usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Number of the interface.
    pub interface: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: Mac,
}

/// What the kernel said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// All interfaces.
    pub links: Vec<Link>,
    /// Routes of the tables `main` and `local`.
    pub routes: Vec<Route>,
    /// Usable neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Messages that could not be read.
    pub unread: usize,
}

/// The routes of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hops {
    /// Number of the interface; 0: there is none of this name.
    pub index: u32,
    /// MAC address of the interface.
    pub mac: Mac,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    /// Prefix, its bits, and where it leads; `None`: nowhere by this interface. Each prefix once.
    /// The longest prefix decides.
    pub routes: Vec<(IpAddr, u8, Option<Mac>)>,
    /// Routers of this interface without a MAC address, each once.
    pub unresolved: Vec<IpAddr>,
    /// Prefixes whose addresses are on the link of this interface.
    pub on_link: Vec<(IpAddr, u8)>,
}

/// Returns the first address of the prefix of `len` bits.
pub(crate) fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Hops {
    /// Returns the routes of the interface of this name. Down or missing, it has none.
    pub fn of(facts: &Facts, name: &str) -> Hops {
        let Some(link) = facts.links.iter().find(|link| link.name == name) else {
            return Hops::default();
        };
        let mut hops = Hops { index: link.index, mac: link.mac, mtu: link.mtu, ..Hops::default() };
        if !link.up {
            return hops;
        }
        let here = facts.neighbours.iter().filter(|neighbour| neighbour.interface == link.index);
        let macs: HashMap<IpAddr, Mac> =
            here.map(|neighbour| (neighbour.address, neighbour.mac)).collect();
        let best = best(&facts.routes);
        let mut routes = BTreeMap::new();
        for (&(to, len), ways) in &best {
            let by_this = ways.iter().filter(|hop| hop.interface == link.index);
            let mut mac = None;
            for hop in by_this {
                match hop.via.map(|via| (via, macs.get(&via))) {
                    None => hops.on_link.push((to, len)),
                    Some((_, Some(found))) => mac = mac.or(Some(*found)),
                    Some((via, None)) => hops.unresolved.push(via),
                }
            }
            routes.insert((to, len), mac);
        }
        hops.unresolved.sort_unstable();
        hops.unresolved.dedup();
        for (&address, mac) in &macs {
            let on_link = |ways: &Vec<NextHop>| {
                ways.iter().any(|hop| hop.interface == link.index && hop.via.is_none())
            };
            let longest =
                (0..=bits(address)).rev().find_map(|len| best.get(&(masked(address, len), len)));
            if longest.is_some_and(on_link) {
                routes.insert((address, bits(address)), Some(*mac));
            }
        }
        hops.routes = routes.into_iter().map(|((to, len), mac)| (to, len, mac)).collect();
        hops
    }
}

impl Hops {
    /// Returns whether the longest prefix of an address has it on the link of this interface.
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        let fits =
            |to: IpAddr, len: u8| to.is_ipv4() == address.is_ipv4() && masked(address, len) == to;
        // A known neighbour's own route is as long as its address: it is on the link as well.
        let routes =
            self.routes.iter().filter(|(to, len, _)| *len < bits(address) && fits(*to, *len));
        let longest = routes.map(|(_, len, _)| *len).max();
        self.on_link.iter().any(|&(to, len)| fits(to, len) && longest.is_none_or(|l| len >= l))
    }
}

/// The ways of each prefix, by the lowest metric that has any; no ways: it leads nowhere.
fn best(routes: &[Route]) -> BTreeMap<(IpAddr, u8), Vec<NextHop>> {
    let mut best: BTreeMap<(IpAddr, u8), (u32, Vec<NextHop>)> = BTreeMap::new();
    for route in routes {
        let alive: Vec<NextHop> = match &route.way {
            Way::Nowhere => Vec::new(),
            Way::Hops(hops) => {
                let alive: Vec<NextHop> = hops.iter().copied().filter(|hop| hop.alive).collect();
                if alive.is_empty() {
                    continue;
                }
                alive
            }
        };
        let entry = best.entry((masked(route.to, route.len), route.len));
        let (metric, ways) = entry.or_insert((route.metric, Vec::new()));
        if route.metric < *metric {
            (*metric, *ways) = (route.metric, alive);
        } else if route.metric == *metric {
            ways.extend(alive);
        }
    }
    best.into_iter().map(|(prefix, (_, ways))| (prefix, ways)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn link(index: u32, up: bool) -> Link {
        Link { index, name: format!("eth{index}"), mac: MAC, mtu: 1500, up }
    }

    fn route(to: &str, metric: u32, hops: &[(u32, Option<&str>, bool)]) -> Route {
        let (to, len) = to.split_once('/').expect("a prefix");
        let hop = |&(interface, via, alive): &(u32, Option<&str>, bool)| NextHop {
            interface,
            via: via.map(address),
            alive,
        };
        let way = match hops {
            [] => Way::Nowhere,
            hops => Way::Hops(hops.iter().map(hop).collect()),
        };
        Route { to: address(to), len: len.parse().expect("a length"), metric, way }
    }

    fn neighbour(interface: u32, at: &str, last: u8) -> Neighbour {
        Neighbour { interface, address: address(at), mac: [2, 0, 0, 0, 1, last] }
    }

    /// The longest prefix of `hops`.
    fn lookup(hops: &Hops, to: IpAddr) -> Option<Mac> {
        let fits = hops
            .routes
            .iter()
            .filter(|(at, len, _)| at.is_ipv4() == to.is_ipv4() && masked(to, *len) == *at);
        fits.max_by_key(|(_, len, _)| *len).and_then(|(_, _, mac)| *mac)
    }

    #[test]
    fn routes_lead_to_the_mac_address_of_their_router() {
        let facts = Facts {
            links: vec![link(1, true), link(2, true), link(3, false)],
            routes: vec![
                route("0.0.0.0/0", 100, &[(1, Some("192.0.2.1"), true)]),
                route("192.0.2.0/24", 0, &[(1, None, true)]),
                route("10.0.0.0/8", 0, &[(1, Some("192.0.2.9"), true)]),
                route("10.9.0.0/16", 0, &[(2, Some("198.51.100.1"), true)]),
                route("10.8.0.0/16", 0, &[]),
                // The lower metric is dead.
                route("10.7.0.0/16", 1, &[(2, Some("198.51.100.1"), false)]),
                route("10.7.0.0/16", 5, &[(1, Some("192.0.2.8"), true)]),
                // The first router is not resolved.
                route(
                    "10.6.0.0/16",
                    0,
                    &[(1, Some("192.0.2.77"), true), (1, Some("192.0.2.8"), true)],
                ),
                route("192.0.2.255/32", 0, &[]),
                route("::/0", 1024, &[(1, Some("fe80::1"), true)]),
                route("203.0.113.0/24", 0, &[(3, None, true)]),
            ],
            neighbours: vec![
                neighbour(1, "192.0.2.1", 1),
                neighbour(1, "192.0.2.8", 8),
                neighbour(1, "192.0.2.255", 5),
                neighbour(1, "fe80::1", 6),
                neighbour(2, "192.0.2.9", 9),
                // No route says that it is on the link.
                neighbour(1, "172.16.0.1", 7),
            ],
            unread: 0,
        };
        let hops = Hops::of(&facts, "eth1");
        let cases = [
            ("8.8.8.8", Some(1)),
            ("192.0.2.8", Some(8)),
            ("192.0.2.2", None),
            ("192.0.2.255", None),
            ("10.1.2.3", None),
            ("10.9.2.3", None),
            ("10.8.2.3", None),
            ("10.7.2.3", Some(8)),
            ("10.6.2.3", Some(8)),
            ("172.16.0.1", Some(1)),
            ("2001:db8::1", Some(6)),
        ];
        for (to, last) in cases {
            let expected = last.map(|last| [2, 0, 0, 0, 1, last]);
            assert_eq!(lookup(&hops, address(to)), expected, "{to}");
        }
        assert_eq!(hops.unresolved, [address("192.0.2.9"), address("192.0.2.77")]);
        for (to, on_link) in [("192.0.2.3", true), ("10.1.2.3", false), ("8.8.8.8", false)] {
            assert_eq!(hops.is_on_link(address(to)), on_link, "{to}");
        }
        assert_eq!((hops.index, hops.mac, hops.mtu), (1, MAC, 1500));
        assert!(Hops::of(&facts, "eth3").routes.is_empty(), "down");
        assert_eq!(Hops::of(&facts, "eth9"), Hops::default());
    }

    /// What the kernel does for one destination, one route after another.
    fn naive(facts: &Facts, interface: u32, to: IpAddr) -> Option<Mac> {
        let alive = |route: &&Route| match &route.way {
            Way::Hops(hops) => hops.iter().any(|hop| hop.alive),
            Way::Nowhere => true,
        };
        let fits = facts.routes.iter().filter(|route| masked(to, route.len) == route.to);
        let fits: Vec<&Route> = fits.filter(alive).collect();
        let len = fits.iter().map(|route| route.len).max()?;
        let metric =
            fits.iter().filter(|route| route.len == len).map(|route| route.metric).min()?;
        for route in fits.iter().filter(|route| route.len == len && route.metric == metric) {
            let Way::Hops(hops) = &route.way else { continue };
            for hop in hops.iter().filter(|hop| hop.alive && hop.interface == interface) {
                let via = hop.via.unwrap_or(to);
                let mut known = facts.neighbours.iter();
                let found = known.find(|n| n.interface == interface && n.address == via);
                if let Some(neighbour) = found {
                    return Some(neighbour.mac);
                }
            }
        }
        None
    }

    proptest! {
        #[test]
        fn hops_lead_where_the_routes_do(
            routes in prop::collection::vec(
                (0u8..16, 24u8..=32, 0u32..3, 0u8..4,
                 prop::collection::vec((1u32..3, 0u8..16, any::<bool>()), 0..3)),
                0..12),
            neighbours in prop::collection::btree_set((1u32..3, 0u8..16), 0..12),
        ) {
            let host = |last: u8| IpAddr::from([10, 0, 0, last]);
            // Of one prefix, all routes are on the link or all have routers: the kernel's tables
            // of one metric are no mixture.
            let facts = Facts {
                links: vec![link(1, true), link(2, true)],
                routes: routes.iter().map(|(to, len, metric, kind, hops)| {
                    let on_link = (to >> 1) & 1 == 0;
                    let hops: Vec<NextHop> = hops.iter().map(|(interface, via, alive)| NextHop {
                        interface: *interface,
                        via: (!on_link).then_some(host(*via)),
                        alive: *alive,
                    }).collect();
                    let to = masked(host(*to), *len);
                    let way = if *kind == 0 { Way::Nowhere } else { Way::Hops(hops) };
                    Route { to, len: *len, metric: *metric, way }
                }).collect(),
                neighbours: neighbours.iter().map(|(interface, last)| Neighbour {
                    interface: *interface,
                    address: host(*last),
                    mac: [2, 0, 0, 0, *interface as u8, *last],
                }).collect(),
                unread: 0,
            };
            for interface in 1..3 {
                let hops = Hops::of(&facts, &format!("eth{interface}"));
                for last in 0..20 {
                    let mixed = facts.routes.iter().any(|a| facts.routes.iter().any(|b| {
                        let vias = |r: &Route| match &r.way {
                            Way::Hops(h) => h.first().map(|hop| hop.via.is_some()),
                            Way::Nowhere => None,
                        };
                        a.to == b.to && a.len == b.len && vias(a).is_some() && vias(b).is_some()
                            && vias(a) != vias(b)
                    }));
                    prop_assume!(!mixed);
                    let to = host(last);
                    prop_assert_eq!(lookup(&hops, to), naive(&facts, interface, to), "{}", to);
                }
            }
        }
    }
}
