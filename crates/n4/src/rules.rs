//! The rules of a session (PDR, FAR, QER, URR), and what they mean for one tunnel.

use crate::message::{Refusal, find, flags, group, is_foreign, need, read};
use crate::usage::Urr;
use overbank_gateway::session::{Gate, Prefix64, RATE_MIN, Session};
use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::failed_rule_id::FailedRuleId;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::gate_status::{GateStatus, GateStatusValue};
use rs_pfcp::ie::mbr::Mbr;
use rs_pfcp::ie::outer_header_creation::OuterHeaderCreation;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::qfi::Qfi;
use rs_pfcp::ie::sdf_filter::SdfFilter;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::{Ie, IeType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most rules of a kind in a session.
const RULES_MAX: usize = 16;
/// SDF filters that match every packet.
const MATCH_ALL: [&str; 2] =
    ["permit out ip from any to assigned", "permit out ip from any to any"];
/// Flags of an SDF filter by which it matches some packets only: type of service, SPI, flow label.
const FILTER_NARROWS: u8 = 0x0e;
/// Outer Header Removal of GTP-U over UDP, over IPv4, IPv6 or either.
const REMOVE_GTPU: [u8; 3] = [0, 1, 6];
/// Send an End Marker, in the PFCPSMReq-Flags of Update Forwarding Parameters.
const SNDEM: u8 = 2;
/// The first two octets of Outer Header Creation: GTP-U over UDP and IPv4, or IPv6, and nothing
/// else.
const CREATE_GTPU: [[u8; 2]; 2] = [[1, 0], [2, 0]];

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Access,
    Core,
    /// The control plane itself, which sends router advertisements this way. Taken without
    /// effect: prefixes of terminals come from the session management.
    Control,
}

/// The local end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tunnel {
    /// The gateway is to choose; of these families (IPv4, IPv6).
    Choose([bool; 2]),
    Is(IpAddr, u32),
}

/// An address of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ue<T> {
    Choose,
    Is(T),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pdr {
    pub(crate) side: Option<Side>,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) v4: Option<Ue<Ipv4Addr>>,
    pub(crate) v6: Option<Ue<Prefix64>>,
    removes: bool,
    /// Matches some packets only.
    filtered: bool,
    far: Option<u32>,
    qers: Vec<u32>,
    pub(crate) urrs: Vec<u32>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Far {
    forwards: bool,
    buffers: bool,
    to: Option<Side>,
    outer: Option<(IpAddr, u32)>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Qer {
    /// Closed gates: uplink, downlink.
    closed: [bool; 2],
    /// Kilobits a second: uplink, downlink.
    mbr: Option<[u64; 2]>,
    qfi: Option<u8>,
}

/// The rules of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub(crate) pdrs: BTreeMap<u16, Pdr>,
    fars: BTreeMap<u32, Far>,
    qers: BTreeMap<u32, Qer>,
    pub(crate) urrs: BTreeMap<u32, Urr>,
}

/// What a message asks beside its rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// An End Marker to the old peer.
    pub(crate) end_marker: bool,
    /// Reports of these URRs.
    pub(crate) queries: Vec<u32>,
    /// URRs that were removed.
    pub(crate) removed: Vec<(u32, Urr)>,
}

fn invalid(ie: &Ie, why: impl Into<String>) -> Refusal {
    Refusal::new(CauseValue::MandatoryIeIncorrect, why).at(ie.raw_type())
}

fn unsupported(kind: IeType, why: &str) -> Refusal {
    Refusal::new(CauseValue::ServiceNotSupported, why).at(kind as u16)
}

fn failed(why: impl Into<String>) -> Refusal {
    Refusal::new(CauseValue::RuleCreationModificationFailure, why)
}

/// A rule by its number, made anew, changed or removed.
fn place<K: Ord + Copy, T: Default>(
    rules: &mut BTreeMap<K, T>,
    id: K,
    is_new: bool,
) -> Result<&mut T, Refusal> {
    match (is_new, rules.contains_key(&id)) {
        (true, true) => Err(failed("a rule of this number exists already")),
        (false, false) => Err(failed("there is no rule of this number")),
        _ if is_new && rules.len() >= RULES_MAX => {
            let why = format!("more than {RULES_MAX} rules of a kind in a session");
            Err(Refusal::new(CauseValue::NoResourcesAvailable, why))
        }
        _ => Ok(rules.entry(id).or_default()),
    }
}

impl Rules {
    /// Does what the elements of a session request say of rules: removals, then new rules, then
    /// changes. Passes over other elements.
    pub(crate) fn apply(&mut self, ies: &[Ie]) -> Result<Asked, Refusal> {
        let mut asked = Asked::default();
        let remove = [IeType::RemovePdr, IeType::RemoveFar, IeType::RemoveQer, IeType::RemoveUrr];
        let create = [IeType::CreateFar, IeType::CreateQer, IeType::CreateUrr, IeType::CreatePdr];
        let update = [
            IeType::UpdateFar,
            IeType::UpdateQer,
            IeType::UpdateUrr,
            IeType::UpdatePdr,
            IeType::QueryUrr,
        ];
        for kind in remove.into_iter().chain(create).chain(update) {
            for ie in ies.iter().filter(|ie| ie.ie_type == kind) {
                self.one(ie, &mut asked).map_err(|refusal| refusal.at(ie.raw_type()))?;
            }
        }
        Ok(asked)
    }

    fn one(&mut self, ie: &Ie, asked: &mut Asked) -> Result<(), Refusal> {
        use IeType as T;
        let parts = group(ie)?;
        let kind = ie.ie_type;
        let is_new = matches!(kind, T::CreatePdr | T::CreateFar | T::CreateQer | T::CreateUrr);
        match kind {
            T::CreatePdr | T::UpdatePdr | T::RemovePdr => {
                let id = read(need(&parts, T::PdrId)?, PdrId::unmarshal)?.value;
                let done = match kind {
                    T::RemovePdr => remove(&mut self.pdrs, id),
                    _ => place(&mut self.pdrs, id, is_new).and_then(|pdr| pdr.set(&parts, is_new)),
                };
                done.map_err(|refusal| refusal.of(FailedRuleId::pdr(id)))
            }
            T::CreateFar | T::UpdateFar | T::RemoveFar => {
                let id = read(need(&parts, T::FarId)?, FarId::unmarshal)?.value;
                let done = match kind {
                    T::RemoveFar => remove(&mut self.fars, id),
                    _ => place(&mut self.fars, id, is_new)
                        .and_then(|far| far.set(&parts, is_new, asked)),
                };
                done.map_err(|refusal| refusal.of(FailedRuleId::far(id)))
            }
            T::CreateQer | T::UpdateQer | T::RemoveQer => {
                let id = read(need(&parts, T::QerId)?, QerId::unmarshal)?.value;
                let done = match kind {
                    T::RemoveQer => remove(&mut self.qers, id),
                    _ => place(&mut self.qers, id, is_new).and_then(|qer| qer.set(&parts, is_new)),
                };
                done.map_err(|refusal| refusal.of(FailedRuleId::qer(id)))
            }
            _ => {
                let id = read(need(&parts, T::UrrId)?, UrrId::unmarshal)?.id;
                let done = match kind {
                    T::RemoveUrr => {
                        asked.removed.extend(self.urrs.get(&id).map(|urr| (id, urr.clone())));
                        remove(&mut self.urrs, id)
                    }
                    T::QueryUrr if self.urrs.contains_key(&id) => {
                        asked.queries.push(id);
                        Ok(())
                    }
                    T::QueryUrr => Err(failed("there is no rule of this number")),
                    _ => place(&mut self.urrs, id, is_new).and_then(|urr| urr.set(&parts, is_new)),
                };
                done.map_err(|refusal| refusal.of(FailedRuleId::urr(id)))
            }
        }
    }

    /// Returns whether a PDR is about packets from or to the control plane.
    pub(crate) fn is_control(&self, pdr: &Pdr) -> bool {
        let far = pdr.far.and_then(|far| self.fars.get(&far));
        let to_control = far.is_some_and(|far| far.to == Some(Side::Control));
        pdr.side == Some(Side::Control) || pdr.side == Some(Side::Access) && to_control
    }

    /// Returns the PDR of a side: none, or the only one.
    fn pdr(&self, side: Side) -> Result<Option<(u16, &Pdr)>, Refusal> {
        let is_of_side = |pdr: &Pdr| pdr.side == Some(side) && !self.is_control(pdr);
        let mut of_side = self.pdrs.iter().filter(|(_, pdr)| is_of_side(pdr));
        let first = of_side.next().map(|(id, pdr)| (*id, pdr));
        match of_side.next() {
            None => Ok(first),
            Some((id, _)) => {
                Err(failed(format!("a session has one PDR from {side:?}"))
                    .of(FailedRuleId::pdr(*id)))
            }
        }
    }

    /// Returns the directions whose PDR names a URR: uplink, downlink.
    pub(crate) fn counted_by(&self, urr: u32) -> [bool; 2] {
        let names = |side| {
            let of_side = |pdr: &&Pdr| pdr.side == Some(side) && !self.is_control(pdr);
            self.pdrs.values().filter(of_side).any(|pdr| pdr.urrs.contains(&urr))
        };
        [names(Side::Access), names(Side::Core)]
    }

    /// Returns whether numbers are left to the gateway to choose.
    pub(crate) fn leaves_to_choose(&self) -> bool {
        self.pdrs.values().any(|pdr| {
            matches!(pdr.tunnel, Some(Tunnel::Choose(_)))
                || pdr.v4 == Some(Ue::Choose)
                || pdr.v6 == Some(Ue::Choose)
        })
    }

    /// Returns the number of the uplink PDR.
    pub(crate) fn uplink(&self) -> Result<u16, Refusal> {
        self.pdr(Side::Access)?.map(|(id, _)| id).ok_or_else(|| {
            Refusal::new(CauseValue::ConditionalIeMissing, "a PDR from the access side is needed")
                .at(IeType::CreatePdr as u16)
        })
    }

    /// Returns the session that the rules make, with this number. Nothing is left to be chosen.
    pub(crate) fn session(&self, id: u64) -> Result<Session, Refusal> {
        let up_id = self.uplink()?;
        let up = &self.pdrs[&up_id];
        let down = self.pdr(Side::Core)?;
        let of_up = |refusal: Refusal| refusal.of(FailedRuleId::pdr(up_id));
        let Some(Tunnel::Is(n3, teid)) = up.tunnel else {
            return Err(of_up(failed("an uplink PDR needs an F-TEID").at(IeType::Fteid as u16)));
        };
        if !up.removes {
            let why = "an uplink PDR needs Outer Header Removal of GTP-U";
            return Err(of_up(failed(why).at(IeType::OuterHeaderRemoval as u16)));
        }
        let far_of = |id: u16, pdr: &Pdr| {
            let far = pdr.far.and_then(|far| self.fars.get(&far));
            far.ok_or_else(|| failed("the PDR's FAR does not exist").of(FailedRuleId::pdr(id)))
        };
        let qers_of = |id: u16, pdr: &Pdr| {
            let qers: Option<Vec<Qer>> =
                pdr.qers.iter().map(|qer| self.qers.get(qer).copied()).collect();
            qers.ok_or_else(|| failed("the PDR's QER does not exist").of(FailedRuleId::pdr(id)))
        };
        for (id, pdr) in &self.pdrs {
            if pdr.filtered && !self.is_control(pdr) {
                let why = "filters of packets are not supported";
                let refusal = unsupported(IeType::SdfFilter, why);
                return Err(refusal.of(FailedRuleId::pdr(*id)));
            }
            if pdr.urrs.iter().any(|urr| !self.urrs.contains_key(urr)) {
                return Err(failed("the PDR's URR does not exist").of(FailedRuleId::pdr(*id)));
            }
            let apart = |urr: &u32| self.counted_by(*urr) == [false; 2];
            if self.is_control(pdr) && pdr.urrs.iter().any(apart) {
                let why = "packets of the control plane are not counted apart";
                return Err(unsupported(IeType::UrrId, why).of(FailedRuleId::pdr(*id)));
            }
        }
        let (up_far, up_qers) = (far_of(up_id, up)?, qers_of(up_id, up)?);
        if up_far.forwards && up_far.to != Some(Side::Core) {
            return Err(of_up(failed("uplink packets go to the core side")));
        }
        if up_far.forwards && up_far.outer.is_some() {
            let why = "uplink packets leave without a tunnel";
            return Err(of_up(unsupported(IeType::OuterHeaderCreation, why)));
        }
        let mut peer = None;
        let mut down_qers = Vec::new();
        if let Some((id, pdr)) = down {
            let far = far_of(id, pdr)?;
            down_qers = qers_of(id, pdr)?;
            let of_down = |refusal: Refusal| refusal.of(FailedRuleId::pdr(id));
            if pdr.removes {
                let why = "downlink packets come without a tunnel";
                return Err(of_down(unsupported(IeType::OuterHeaderRemoval, why)));
            }
            let mut qfis = down_qers.iter().filter_map(|qer| qer.qfi);
            let first = qfis.next();
            if qfis.any(|qfi| Some(qfi) != first) {
                return Err(of_down(unsupported(IeType::Qfi, "a session has one QFI")));
            }
            if far.forwards {
                if far.to != Some(Side::Access) {
                    return Err(of_down(failed("downlink packets go to the access side")));
                }
                let why = "downlink packets need Outer Header Creation of GTP-U";
                let ie = IeType::OuterHeaderCreation as u16;
                peer = Some(far.outer.ok_or_else(|| of_down(failed(why).at(ie)))?);
            }
        }
        let down = down.map(|(_, pdr)| pdr);
        let ipv4 = one_of(up.v4, down.and_then(|pdr| pdr.v4)).map_err(of_up)?;
        let ipv6 = one_of(up.v6, down.and_then(|pdr| pdr.v6)).map_err(of_up)?;
        let open = |qers: &[Qer], way: usize| {
            qers.iter().all(|qer| !qer.closed[way] && qer.mbr.is_none_or(|mbr| mbr[way] > 0))
        };
        let rate = |qers: &[Qer], way: usize| {
            let rates = qers.iter().filter_map(|qer| qer.mbr.map(|mbr| mbr[way]));
            let rate = rates.filter(|&kilobits| kilobits > 0).min();
            rate.map(|kilobits| kilobits.saturating_mul(RATE_MIN))
        };
        Ok(Session {
            id,
            n3,
            teid,
            // Without a peer the downlink gate is closed, and no packet uses these.
            peer: peer.map_or(n3, |peer| peer.0),
            peer_teid: peer.map_or(teid, |peer| peer.1),
            qfi: down_qers.iter().find_map(|qer| qer.qfi),
            ipv4,
            ipv6,
            gate: Gate::of(
                up_far.forwards && open(&up_qers, 0),
                peer.is_some() && open(&down_qers, 1),
            ),
            rate_up: rate(&up_qers, 0),
            rate_down: rate(&down_qers, 1),
        })
    }

    /// Returns whether downlink packets should be kept, which the gateway does not do.
    pub(crate) fn buffers(&self) -> bool {
        self.fars.values().any(|far| far.buffers)
    }
}

/// Returns the address that the PDRs of both directions have, or the one that has any.
fn one_of<T: Copy + PartialEq>(
    up: Option<Ue<T>>,
    down: Option<Ue<T>>,
) -> Result<Option<T>, Refusal> {
    let is = |ue| if let Some(Ue::Is(address)) = ue { Some(address) } else { None };
    match (is(up), is(down)) {
        (Some(up), Some(down)) if up != down => {
            let why = "both directions of a session have the same address";
            Err(failed(why).at(IeType::UeIpAddress as u16))
        }
        (up, down) => Ok(up.or(down)),
    }
}

fn remove<K: Ord, T>(rules: &mut BTreeMap<K, T>, id: K) -> Result<(), Refusal> {
    rules.remove(&id).map(drop).ok_or_else(|| failed("there is no rule of this number"))
}

impl Pdr {
    fn set(&mut self, parts: &[Ie], is_new: bool) -> Result<(), Refusal> {
        use IeType as T;
        if is_new {
            need(parts, T::Precedence)?;
            need(parts, T::Pdi)?;
        }
        let lists = |kind| parts.iter().filter(move |ie| ie.ie_type == kind);
        if find(parts, T::QerId).is_some() {
            let ids: Result<_, Refusal> =
                lists(T::QerId).map(|ie| Ok(read(ie, QerId::unmarshal)?.value)).collect();
            self.qers = ids?;
        }
        if find(parts, T::UrrId).is_some() {
            let ids: Result<_, Refusal> =
                lists(T::UrrId).map(|ie| Ok(read(ie, UrrId::unmarshal)?.id)).collect();
            self.urrs = ids?;
        }
        for ie in parts {
            match ie.ie_type {
                T::PdrId | T::Precedence | T::QerId | T::UrrId => {}
                T::FarId => self.far = Some(read(ie, FarId::unmarshal)?.value),
                T::Pdi => self.set_pdi(&group(ie)?)?,
                T::OuterHeaderRemoval => {
                    let kind = ie.payload.first().copied().unwrap_or(u8::MAX);
                    if !REMOVE_GTPU.contains(&kind) {
                        return Err(invalid(ie, format!("outer header {kind} cannot be removed")));
                    }
                    self.removes = true;
                }
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }

    fn set_pdi(&mut self, parts: &[Ie]) -> Result<(), Refusal> {
        use IeType as T;
        let source = need(parts, T::SourceInterface)?;
        let side = match read(source, SourceInterface::unmarshal)?.value {
            SourceInterfaceValue::Access => Side::Access,
            SourceInterfaceValue::Core | SourceInterfaceValue::SgiLan => Side::Core,
            SourceInterfaceValue::CpFunction => Side::Control,
            _ => return Err(Refusal::unsupported(source)),
        };
        self.side = Some(side);
        (self.v4, self.v6, self.filtered) = (None, None, false);
        for ie in parts {
            match ie.ie_type {
                T::SourceInterface | T::NetworkInstance | T::TgppInterfaceType => {}
                // Of an uplink PDR: there is one QoS flow.
                T::Qfi if side != Side::Core => {}
                T::SdfFilter => {
                    let filter = read(ie, SdfFilter::unmarshal)?.flow_description;
                    self.filtered |= !MATCH_ALL.contains(&filter.trim_end_matches('\0'));
                    self.filtered |= ie.payload[0] & FILTER_NARROWS != 0;
                }
                T::Fteid if side != Side::Core => self.set_tunnel(ie)?,
                T::UeIpAddress => self.set_ue(ie)?,
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }

    fn set_tunnel(&mut self, ie: &Ie) -> Result<(), Refusal> {
        let tunnel = read(ie, Fteid::unmarshal)?;
        if tunnel.ch {
            if !matches!(self.tunnel, Some(Tunnel::Is(..))) {
                self.tunnel = Some(Tunnel::Choose([tunnel.v4, tunnel.v6]));
            }
            return Ok(());
        }
        let address = match (tunnel.ipv4_address, tunnel.ipv6_address) {
            (Some(v4), None) => v4.into(),
            (None, Some(v6)) => v6.into(),
            _ => return Err(invalid(ie, "an F-TEID has one address")),
        };
        self.tunnel = Some(Tunnel::Is(address, *tunnel.teid));
        Ok(())
    }

    fn set_ue(&mut self, ie: &Ie) -> Result<(), Refusal> {
        let ue = read(ie, UeIpAddress::unmarshal)?;
        let is_64 = ue.ipv6_prefix_length.is_none_or(|len| len == 64)
            && ue.ipv6_prefix_delegation_bits.is_none_or(|bits| bits == 0);
        if !is_64 {
            return Err(invalid(ie, "a terminal has an IPv6 prefix of 64 bits"));
        }
        let v4 = ue.ipv4_address.map(Ue::Is);
        let v6 = ue.ipv6_address.map(|address| Ue::Is(Prefix64::of(address)));
        self.v4 = v4.or(ue.choose_ipv4.then_some(Ue::Choose)).or(self.v4);
        self.v6 = v6.or(ue.choose_ipv6.then_some(Ue::Choose)).or(self.v6);
        Ok(())
    }
}

impl Far {
    fn set(&mut self, parts: &[Ie], is_new: bool, asked: &mut Asked) -> Result<(), Refusal> {
        use IeType as T;
        if is_new {
            need(parts, T::ApplyAction)?;
        }
        for ie in parts {
            match ie.ie_type {
                T::FarId | T::BarId => {}
                T::ApplyAction => {
                    let action = read(ie, ApplyAction::unmarshal)?;
                    let mut others = action.clone();
                    for known in
                        [ApplyAction::DROP, ApplyAction::FORW, ApplyAction::BUFF, ApplyAction::NOCP]
                    {
                        others.remove(known);
                    }
                    let does = |flag| action.contains(flag);
                    let ways = [ApplyAction::DROP, ApplyAction::FORW, ApplyAction::BUFF];
                    if !others.is_empty() {
                        return Err(Refusal::unsupported(ie));
                    }
                    if ways.into_iter().filter(|way| does(*way)).count() != 1 {
                        return Err(invalid(ie, "one of DROP, FORW, BUFF must be set"));
                    }
                    self.forwards = does(ApplyAction::FORW);
                    self.buffers = does(ApplyAction::BUFF);
                }
                T::ForwardingParameters | T::UpdateForwardingParameters => {
                    self.set_forwarding(&group(ie)?, asked)?;
                }
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }

    fn set_forwarding(&mut self, parts: &[Ie], asked: &mut Asked) -> Result<(), Refusal> {
        use IeType as T;
        for ie in parts {
            match ie.ie_type {
                T::NetworkInstance | T::TgppInterfaceType => {}
                T::DestinationInterface => {
                    let to = read(ie, DestinationInterface::unmarshal)?.interface;
                    // 2 is SGi-LAN or N6-LAN.
                    self.to = match (to, ie.payload.first()) {
                        (Interface::Access, _) => Some(Side::Access),
                        (Interface::Core, _) | (_, Some(2)) => Some(Side::Core),
                        (Interface::CpFunction, _) => Some(Side::Control),
                        _ => return Err(Refusal::unsupported(ie)),
                    };
                }
                T::OuterHeaderCreation => {
                    let outer = read(ie, OuterHeaderCreation::unmarshal)?;
                    let kind = &outer.description;
                    if !CREATE_GTPU.iter().any(|kind| ie.payload.starts_with(kind)) {
                        return Err(Refusal::unsupported(ie));
                    }
                    let peer = match (outer.ipv4_address, outer.ipv6_address) {
                        (Some(v4), None) if kind.gtpu_udp_ipv4 => IpAddr::V4(v4),
                        (None, Some(v6)) if kind.gtpu_udp_ipv6 => IpAddr::V6(v6),
                        _ => return Err(Refusal::unsupported(ie)),
                    };
                    let teid = outer.teid.map_or(0, |teid| *teid);
                    if teid == 0 {
                        return Err(invalid(ie, "the TEID of a peer must not be 0"));
                    }
                    self.outer = Some((peer, teid));
                }
                T::PfcpsmReqFlags => {
                    asked.end_marker |= flags(ie, SNDEM)? & SNDEM != 0;
                }
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }
}

impl Qer {
    fn set(&mut self, parts: &[Ie], is_new: bool) -> Result<(), Refusal> {
        use IeType as T;
        if is_new {
            need(parts, T::GateStatus)?;
        }
        for ie in parts {
            match ie.ie_type {
                T::QerId => {}
                T::GateStatus => {
                    let gates = read(ie, GateStatus::unmarshal)?;
                    let closed = |gate| gate != GateStatusValue::Open;
                    self.closed = [closed(gates.uplink_gate), closed(gates.downlink_gate)];
                }
                T::Mbr => {
                    let mbr = read(ie, Mbr::unmarshal)?;
                    self.mbr = Some([mbr.uplink, mbr.downlink]);
                }
                T::Qfi => self.qfi = Some(read(ie, Qfi::unmarshal)?.value()),
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }
}

/// Returns an address of one family, and none of the other.
pub(crate) fn families(address: IpAddr) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    match address {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    }
}
