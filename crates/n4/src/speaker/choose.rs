//! What requests leave to the gateway: TEIDs, addresses of terminals, SEIDs.
//!
//! Numbers are drawn by a secret seed. A number that rests or is taken is passed over, at most
//! [`CHOICES_MAX`] times.

use super::sessions::{Draft, Plan};
use super::{Asked, Kept, Last, Speaker, refused};
use crate::message::Refusal;
use crate::rules::{Rules, Tunnel, Ue};
use crate::store::Store;
use overbank::hash::mix;
use overbank_gateway::session::{Key, Prefix64};
use rs_pfcp::ie::Ie;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use std::net::{IpAddr, Ipv4Addr};
use xxhash_rust::xxh3::xxh3_64;

/// Numbers that are tried for a TEID or an address.
const CHOICES_MAX: usize = 256;

impl Speaker {
    /// Chooses what the rules leave to us, and with it makes the session and the answer.
    pub(super) fn draft(
        &mut self,
        mut plan: Plan,
        asked: Option<&Asked>,
        store: &dyn Store,
    ) -> Result<Draft, Refusal> {
        plan.wanted.uplink()?;
        let mut rules = plan.wanted.clone();
        self.choose(&mut rules, store)?;
        let session = rules.session(plan.id)?;
        let mut answer = plan.head.clone();
        answer.extend(created(&plan.wanted, &rules));
        answer.extend_from_slice(&plan.tail);
        plan.tries += 1;
        let last = asked.filter(|_| store.outlives()).map(|asked| {
            let bytes = self.message(asked, Ok(&answer));
            Last { key: asked.key, request: asked.request, bytes }
        });
        let kept = Kept { rules, last, ..plan.kept.clone() };
        Ok(Draft { plan, session, kept, answer })
    }

    /// Fills in what is left to be chosen.
    pub(super) fn choose(&mut self, rules: &mut Rules, store: &dyn Store) -> Result<(), Refusal> {
        let addresses = store.addresses().clone();
        // Both directions of a session that leave the address to us have the same one.
        let (mut ipv4, mut ipv6) = (None, None);
        let control: Vec<u16> =
            rules.pdrs.iter().filter(|(_, pdr)| rules.is_control(pdr)).map(|(id, _)| *id).collect();
        for (id, pdr) in &mut rules.pdrs {
            if control.contains(id) {
                continue;
            }
            if let Some(Tunnel::Choose([v4, v6])) = pdr.tunnel {
                let fits =
                    |n3: &&IpAddr| (n3.is_ipv4() && v4) || (n3.is_ipv6() && v6) || !(v4 || v6);
                let n3 = addresses.n3.iter().find(fits).copied().ok_or_else(|| {
                    let why = "the gateway has no N3 address of this family";
                    refused(CauseValue::InvalidFteidAllocationOption, why)
                })?;
                let number = addresses.n3_number(n3).unwrap_or_default();
                let mut draws =
                    (0..CHOICES_MAX).map(|_| addresses.teids.teid(number, self.draw() as u32));
                let free = draws
                    .find(|&teid| teid != 0 && store.owner_of(Key::Tunnel(n3, teid)).is_none());
                let teid = free.ok_or_else(|| {
                    refused(CauseValue::NoResourcesAvailable, "no free TEID was found")
                })?;
                pdr.tunnel = Some(Tunnel::Is(n3, teid));
            }
            if pdr.v4 == Some(Ue::Choose) {
                let address = match ipv4 {
                    Some(address) => address,
                    None => self.draw_ipv4(store)?,
                };
                ipv4 = Some(address);
                pdr.v4 = Some(Ue::Is(address));
            }
            if pdr.v6 == Some(Ue::Choose) {
                let prefix = match ipv6 {
                    Some(prefix) => prefix,
                    None => self.draw_ipv6(store)?,
                };
                ipv6 = Some(prefix);
                pdr.v6 = Some(Ue::Is(prefix));
            }
        }
        // Packets of the control plane have no effect: they share the tunnel.
        let uplink = rules.uplink().ok().and_then(|id| rules.pdrs[&id].tunnel);
        for id in control {
            if let Some(pdr) = rules.pdrs.get_mut(&id)
                && matches!(pdr.tunnel, Some(Tunnel::Choose(_)))
            {
                pdr.tunnel = uplink;
            }
        }
        Ok(())
    }

    /// Begins to draw numbers for a request.
    pub(super) fn draw_for(&mut self, asked: &Asked, store: &dyn Store) {
        if store.outlives() {
            (self.drawn, self.drawn_for) = (0, mix(asked.request) ^ xxh3_64(&asked.origin()));
        }
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.settings.seed ^ mix(self.drawn ^ self.drawn_for))
    }

    pub(super) fn draw_id(&mut self, store: &dyn Store) -> u64 {
        loop {
            let id = self.draw();
            if id != 0 && !store.has(id) {
                return id;
            }
        }
    }

    /// Draws a number below `count`, then those after it, until one fits.
    pub(super) fn draw_one<T>(&mut self, count: u64, fits: impl Fn(u64) -> Option<T>) -> Option<T> {
        let start = self.draw() % count;
        (0..count.min(CHOICES_MAX as u64)).find_map(|more| fits(start.wrapping_add(more) % count))
    }

    pub(super) fn draw_ipv4(&mut self, store: &dyn Store) -> Result<Ipv4Addr, Refusal> {
        for pool in store.addresses().pools.iter() {
            let IpAddr::V4(first) = pool.address() else { continue };
            let count = 1u64 << (32 - u32::from(pool.len()));
            let free = |n: u64| {
                // Neither the first nor the last of a pool with more than two.
                let inner = count <= 2 || (n != 0 && n != count - 1);
                let address = Ipv4Addr::from_bits(first.to_bits() + n as u32);
                let free = inner && store.owner_of(Key::Ipv4(address)).is_none();
                free.then_some(address)
            };
            for _ in 0..4 {
                if let Some(address) = self.draw_one(count, free) {
                    return Ok(address);
                }
            }
        }
        Err(refused(CauseValue::AllDynamicAddressesOccupied, "no free IPv4 address was found"))
    }

    pub(super) fn draw_ipv6(&mut self, store: &dyn Store) -> Result<Prefix64, Refusal> {
        for pool in store.addresses().pools.iter() {
            let IpAddr::V6(first) = pool.address() else { continue };
            if pool.len() > 64 {
                continue;
            }
            let bits = 64 - u32::from(pool.len());
            let count = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
            let free = |n: u64| {
                let prefix = Prefix64(Prefix64::of(first).0 | n);
                store.owner_of(Key::Ipv6(prefix)).is_none().then_some(prefix)
            };
            for _ in 0..4 {
                if let Some(prefix) = self.draw_one(count, free) {
                    return Ok(prefix);
                }
            }
        }
        Err(refused(CauseValue::AllDynamicAddressesOccupied, "no free IPv6 prefix was found"))
    }
}

/// Elements about what was chosen.
fn created(asked: &Rules, got: &Rules) -> Vec<Ie> {
    let mut ies = Vec::new();
    for (id, before) in &asked.pdrs {
        let Some(now) = got.pdrs.get(id) else { continue };
        let mut created = CreatedPdr::new(PdrId::new(*id));
        let mut any = false;
        if let (Some(Tunnel::Choose(_)), Some(Tunnel::Is(n3, teid))) = (before.tunnel, now.tunnel) {
            any = true;
            created = created.f_teid(match n3 {
                IpAddr::V4(v4) => Fteid::ipv4(teid, v4),
                IpAddr::V6(v6) => Fteid::ipv6(teid, v6),
            });
        }
        let v4 = match (before.v4, now.v4) {
            (Some(Ue::Choose), Some(Ue::Is(address))) => Some(address),
            _ => None,
        };
        let v6 = match (before.v6, now.v6) {
            (Some(Ue::Choose), Some(Ue::Is(prefix))) => Some(prefix.address()),
            _ => None,
        };
        if v4.is_some() || v6.is_some() {
            any = true;
            created = created.ue_ip_address(UeIpAddress::new(v4, v6));
        }
        if any {
            ies.push(created.to_ie());
        }
    }
    ies
}
