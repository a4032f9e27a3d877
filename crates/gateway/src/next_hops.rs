//! Which MAC address leads to a destination.
//!
//! A snapshot: settings, or a watcher of the kernel's neighbours, make a new one, and workers take
//! it over between two bursts. Each port has its MAC address and routes, the longest
//! prefix first:
//!
//! ```text
//!   port ─▶ family ─┬─ /32  ─▶ map of addresses ─▶ MAC     the hosts of the link
//!                   ├─ /24  ─▶ …                           routes by a gateway
//!                   └─ /0   ─▶ …                           the default gateway
//! ```
//!
//! A prefix may lead nowhere: then no shorter one counts.
//!
//! Cost of a lookup: one probe of a hash map for each length in use, until one hits.

use crate::prefix::{Prefix, masked};
use crossbeam_queue::ArrayQueue;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use overbank_wire::gtpu::Link;
use std::net::IpAddr;
use std::sync::Arc;

/// Destinations that wait to be resolved.
const WANTED_MAX: usize = 64;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The routes of one length.
type OfLength = HashMap<IpAddr, Option<Mac>, RandomState>;

/// The routes of one port.
#[derive(Clone, Debug, Default)]
pub struct PortHops {
    /// Address of the port; zero if it has none.
    mac: Mac,
    /// By family (IPv4, IPv6): lengths in falling order, each with its prefixes.
    routes: [Vec<(u8, OfLength)>; 2],
    /// Takes destinations without a next hop.
    wanted: Option<Arc<Wanted>>,
}

/// Destinations that packets had and no next hop is known for. Bounded: further ones are left out
/// until these are taken, since their packets come again.
#[derive(Debug)]
pub struct Wanted(ArrayQueue<IpAddr>);

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted(ArrayQueue::new(WANTED_MAX))
    }
}

impl Wanted {
    /// Returns one, once.
    pub fn take(&self) -> Option<IpAddr> {
        self.0.pop()
    }
}

const fn family(address: IpAddr) -> usize {
    if address.is_ipv4() { 0 } else { 1 }
}

impl PortHops {
    /// Returns the routes of a port with this address; `None` leads nowhere, also where a shorter
    /// prefix leads somewhere. Of equal prefixes, the last one counts.
    pub fn new(mac: Mac, routes: impl IntoIterator<Item = (Prefix, Option<Mac>)>) -> PortHops {
        let mut hops = PortHops { mac, ..PortHops::default() };
        for (prefix, to) in routes {
            let routes = &mut hops.routes[family(prefix.address())];
            let at = routes.partition_point(|(len, _)| *len > prefix.len());
            if routes.get(at).is_none_or(|(len, _)| *len != prefix.len()) {
                routes.insert(at, (prefix.len(), HashMap::default()));
            }
            routes[at].1.insert(prefix.address(), to);
        }
        hops
    }

    /// Reports destinations without a next hop to `wanted`.
    #[must_use]
    pub fn reporting(self, wanted: Arc<Wanted>) -> PortHops {
        PortHops { wanted: Some(wanted), ..self }
    }

    /// Returns the port's address; zero if it has none.
    #[inline]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns the Ethernet header of frames to a destination; `None` without a route.
    #[inline]
    pub fn link(&self, to: IpAddr) -> Option<Link> {
        let mut routes = self.routes[family(to)].iter();
        match routes.find_map(|(len, of_len)| of_len.get(&masked(to, *len))) {
            Some(Some(dst)) => Some(Link { dst: *dst, src: self.mac, vlan: None }),
            Some(None) | None => self.no_link(to),
        }
    }

    #[cold]
    fn no_link(&self, to: IpAddr) -> Option<Link> {
        if let Some(wanted) = &self.wanted {
            let _ = wanted.0.push(to);
        }
        None
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes.iter().flatten().map(|(_, of_len)| of_len.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The routes of both ports.
#[derive(Clone, Debug, Default)]
pub struct NextHops {
    pub n3: PortHops,
    pub n6: PortHops,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn destinations_without_a_next_hop_are_reported() {
        let wanted = Arc::new(Wanted::default());
        let on_link = [(Prefix::of([10, 0, 0, 0].into(), 24), None)];
        let hops = PortHops::new([2; 6], on_link).reporting(wanted.clone());
        for last in 0..200 {
            assert_eq!(hops.link([10, 0, 0, last].into()), None);
        }
        let taken: Vec<IpAddr> = std::iter::from_fn(|| wanted.take()).collect();
        assert_eq!((taken.len(), taken[0]), (WANTED_MAX, [10, 0, 0, 0].into()));
        let known = [(Prefix::of([10, 0, 0, 0].into(), 24), Some([4; 6]))];
        let hops = PortHops::new([2; 6], known).reporting(wanted.clone());
        assert!(hops.link([10, 0, 0, 9].into()).is_some() && wanted.take().is_none());
    }

    proptest! {
        #[test]
        fn the_longest_prefix_leads(
            routes in prop::collection::vec((0u32..8, 24u8..=32, 0u8..9), 0..20),
            v6 in prop::collection::vec((0u128..8, 120u8..=128, 0u8..9), 0..20),
        ) {
            let v4 = routes.iter().map(|(a, len, mac)| {
                let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 | a << 4).into();
                (Prefix::of(address, *len), (*mac > 0).then_some([*mac; 6]))
            });
            let v6 = v6.iter().map(|(a, len, mac)| {
                let address = std::net::Ipv6Addr::from_bits(1 << 100 | a << 4).into();
                (Prefix::of(address, *len), (*mac > 0).then_some([*mac; 6]))
            });
            let all: Vec<(Prefix, Option<Mac>)> = v4.chain(v6).collect();
            let hops = PortHops::new([2; 6], all.clone());
            let addresses = (0..128u32).map(|n| IpAddr::from(0x0a00_0000u32.wrapping_add(n).to_be_bytes()))
                .chain((0..128u128).map(|n| IpAddr::from((1u128 << 100 | n).to_be_bytes())));
            for address in addresses {
                let fits = all.iter().filter(|(prefix, _)| prefix.contains(address));
                // The last of equal ones.
                let best = fits.enumerate().max_by_key(|(at, (prefix, _))| (prefix.len(), *at));
                let link = |dst| Link { dst, src: [2; 6], vlan: None };
                let expected = best.and_then(|(_, (_, mac))| mac.map(link));
                prop_assert_eq!(hops.link(address), expected, "{}", address);
            }
        }
    }
}
