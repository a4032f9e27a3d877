//! Which MAC address leads to a destination.
//!
//! A snapshot: settings, or a watcher of the kernel's neighbours, make a new one, and workers take
//! it over between two bursts. Each port has its MAC address and routes, the longest
//! prefix first:
//!
//! ```text
//!   port ─▶ family ─┬─ /32  ─▶ map of prefixes ─▶ MAC      the hosts of the link
//!                   ├─ /24  ─▶ …                           routes by a gateway
//!                   └─ /0   ─▶ MAC                        the default gateway
//! ```
//!
//! A prefix may lead nowhere: then no shorter one counts.
//!
//! Cost of a lookup: one probe of a hash map for each length in use, until one hits; none for /0.

use crate::prefix::{Prefix, mask4, mask6};
use crossbeam_queue::ArrayQueue;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use overbank_wire::gtpu::Link;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::BitAnd;
use std::sync::Arc;

/// Destinations that wait to be resolved.
const WANTED_MAX: usize = 64;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The routes of one length.
#[derive(Clone, Debug)]
struct OfLength<B> {
    len: u8,
    mask: B,
    routes: HashMap<B, Option<Mac>, RandomState>,
}

/// The routes of one family, by the bits of a prefix.
#[derive(Clone, Debug)]
struct Routes<B> {
    /// In falling order of the length, without 0.
    of_length: Vec<OfLength<B>>,
    default: Option<Option<Mac>>,
}

impl<B> Default for Routes<B> {
    fn default() -> Routes<B> {
        Routes { of_length: Vec::new(), default: None }
    }
}

impl<B: Copy + Eq + Hash + BitAnd<Output = B>> Routes<B> {
    fn insert(&mut self, prefix: B, mask: B, len: u8, to: Option<Mac>) {
        if len == 0 {
            self.default = Some(to);
            return;
        }
        let at = self.of_length.partition_point(|other| other.len > len);
        if self.of_length.get(at).is_none_or(|other| other.len != len) {
            self.of_length.insert(at, OfLength { len, mask, routes: HashMap::default() });
        }
        self.of_length[at].routes.insert(prefix, to);
    }

    #[inline]
    fn find(&self, to: B) -> Option<Mac> {
        let mut lengths = self.of_length.iter();
        let route = lengths.find_map(|of| of.routes.get(&(to & of.mask)));
        route.copied().or(self.default)?
    }

    fn len(&self) -> usize {
        let listed: usize = self.of_length.iter().map(|of| of.routes.len()).sum();
        listed + usize::from(self.default.is_some())
    }
}

/// The routes of one port.
#[derive(Clone, Debug, Default)]
pub struct PortHops {
    /// Address of the port; zero if it has none.
    mac: Mac,
    v4: Routes<u32>,
    v6: Routes<u128>,
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

impl PortHops {
    /// Returns the routes of a port with this address; `None` leads nowhere, also where a shorter
    /// prefix leads somewhere. Of equal prefixes, the last one counts.
    pub fn new(mac: Mac, routes: impl IntoIterator<Item = (Prefix, Option<Mac>)>) -> PortHops {
        let mut hops = PortHops { mac, ..PortHops::default() };
        for (prefix, to) in routes {
            let len = prefix.len();
            match prefix.address() {
                IpAddr::V4(address) => hops.v4.insert(address.to_bits(), mask4(len), len, to),
                IpAddr::V6(address) => hops.v6.insert(address.to_bits(), mask6(len), len, to),
            }
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
        let dst = match to {
            IpAddr::V4(to) => self.v4.find(to.to_bits()),
            IpAddr::V6(to) => self.v6.find(to.to_bits()),
        };
        match dst {
            Some(dst) => Some(Link { dst, src: self.mac, vlan: None }),
            None => self.no_link(to),
        }
    }

    /// Returns the same, and reports no destination without a route.
    #[inline]
    pub(crate) fn link4(&self, to: Ipv4Addr) -> Option<Link> {
        let dst = self.v4.find(to.to_bits())?;
        Some(Link { dst, src: self.mac, vlan: None })
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
        self.v4.len() + self.v6.len()
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
            routes in prop::collection::vec((0u32..8, prop_oneof![Just(0u8), 24u8..=32], 0u8..9), 0..20),
            v6 in prop::collection::vec((0u128..8, prop_oneof![Just(0u8), 120u8..=128], 0u8..9), 0..20),
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
                if let IpAddr::V4(address) = address {
                    prop_assert_eq!(hops.link4(address), expected);
                }
            }
        }
    }
}
