//! Sessions: established, modified, deleted; each as a whole or not at all.

use super::step::Step;
use super::{Answer, Asked, Kept, PORT, Record, STAMP_LEN, Speaker, only};
use crate::message::{Refusal, find, flags, need, read};
use crate::rules::{self, Rules, families};
use crate::speaker::Out;
use crate::store::Store;
use crate::usage::{Trigger, Urr};
use overbank_gateway::session::{Gate, Session};
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::pdn_type::{PdnType, PdnTypeValue};
use rs_pfcp::ie::{Ie, IeType};
use std::net::{IpAddr, SocketAddr};

/// Restoration Indication of PFCPSEReq-Flags: the numbers given are those of an earlier session.
/// As ever, they are taken if they are free.
const RESTI: u8 = 1;
/// PFCPSMReq-Flags: Drop Buffered Packets, of which there are none, and Query All URRs.
const DROBU: u8 = 1;
const QAURR: u8 = 4;

/// Elements that an establishment may have. User ID, DNN, S-NSSAI, RAT type, FQ-CSID and CP
/// Function Features inform, and ask for nothing.
const ESTABLISHMENT: [IeType; 16] = [
    IeType::NodeId,
    IeType::Fseid,
    IeType::CreatePdr,
    IeType::CreateFar,
    IeType::CreateUrr,
    IeType::CreateQer,
    IeType::CreateBar,
    IeType::PdnType,
    IeType::UserId,
    IeType::ApnDnn,
    IeType::Snssai,
    IeType::RatType,
    IeType::FqCsid,
    IeType::RecoveryTimeStamp,
    IeType::CpFunctionFeatures,
    IeType::PfcpseReqFlags,
];

/// Elements that a modification may have.
const MODIFICATION: [IeType; 24] = [
    IeType::Fseid,
    IeType::NodeId,
    IeType::CreatePdr,
    IeType::CreateFar,
    IeType::CreateUrr,
    IeType::CreateQer,
    IeType::CreateBar,
    IeType::UpdatePdr,
    IeType::UpdateFar,
    IeType::UpdateUrr,
    IeType::UpdateQer,
    IeType::UpdateBar,
    IeType::RemovePdr,
    IeType::RemoveFar,
    IeType::RemoveUrr,
    IeType::RemoveQer,
    IeType::RemoveBar,
    IeType::QueryUrr,
    IeType::PfcpsmReqFlags,
    IeType::ApnDnn,
    IeType::Snssai,
    IeType::RatType,
    IeType::UserId,
    IeType::FqCsid,
];

/// What a request makes of a session.
pub(super) struct Plan {
    pub(super) id: u64,
    /// Its rules, with what is left to us to choose.
    pub(super) wanted: Rules,
    pub(super) kept: Kept,
    /// Elements of the answer before and after those about what was chosen.
    pub(super) head: Vec<Ie>,
    pub(super) tail: Vec<Ie>,
    /// An End Marker goes to the old peer.
    end_marker: bool,
    /// Recovery Time Stamp of the association of a new session.
    recovery: Option<Vec<u8>>,
    /// How often numbers were chosen.
    pub(super) tries: u32,
}

impl Plan {
    fn new(id: u64, wanted: Rules, kept: Kept) -> Plan {
        let (head, tail) = (Vec::new(), Vec::new());
        Plan { id, wanted, kept, head, tail, end_marker: false, recovery: None, tries: 0 }
    }
}

/// The same with numbers chosen: the session, what is kept with it, and the answer.
pub(super) struct Draft {
    pub(super) plan: Plan,
    pub(super) session: Session,
    pub(super) kept: Kept,
    pub(super) answer: Vec<Ie>,
}

/// A change that needs the counts of its session.
pub(super) struct Counting {
    pub(super) id: u64,
    wanted: Rules,
    kept: Kept,
    asked: rules::Asked,
}

impl Counting {
    /// Whether the change needs counts: usage is asked for, or URRs count other packets than
    /// before.
    fn needs_counts(&self) -> bool {
        let rules::Asked { queries, removed, .. } = &self.asked;
        let changes = |(number, urr): (&u32, &Urr)| urr.counts() != self.wanted.counted_by(*number);
        !queries.is_empty() || !removed.is_empty() || self.wanted.urrs.iter().any(changes)
    }

    /// Returns a change that needs no counts.
    fn bare(self) -> Plan {
        let mut plan = Plan::new(self.id, self.wanted, self.kept);
        plan.end_marker = self.asked.end_marker;
        plan
    }

    /// Returns the change, as of these counts.
    fn plan(mut self, counts: Counts) -> Plan {
        let kind = IeType::UsageReportWithinSessionModificationResponse;
        let rules::Asked { end_marker, queries, removed } = self.asked;
        let mut tail = Vec::new();
        // A rule that has counted, and counts no more, ends with a report.
        for (number, mut urr) in removed {
            if urr.counts() != [false; 2] {
                tail.push(urr.report(number, kind, Trigger::End, counts));
            }
        }
        let counted = recount(&mut self.wanted, counts);
        for (number, urr) in &mut self.wanted.urrs {
            if queries.contains(number) {
                tail.push(urr.report(*number, kind, Trigger::Immediate, counts));
            } else if counted.contains(number) && urr.counts() == [false; 2] {
                tail.push(urr.report(*number, kind, Trigger::End, counts));
            }
        }
        let mut plan = Plan::new(self.id, self.wanted, self.kept);
        (plan.tail, plan.end_marker) = (tail, end_marker);
        plan
    }
}

/// Has URRs count the packets of the PDRs that name them, from these counts on. Returns those that
/// have counted before.
fn recount(rules: &mut Rules, counts: Counts) -> Vec<u32> {
    let ways: Vec<[bool; 2]> = rules.urrs.keys().map(|number| rules.counted_by(*number)).collect();
    let mut before = Vec::new();
    for ((number, urr), counted_by) in rules.urrs.iter_mut().zip(ways) {
        before.extend((urr.counts() != [false; 2]).then_some(*number));
        urr.settle(counts);
        urr.count(counted_by);
    }
    before
}

/// Returns the address of an F-SEID.
fn address_of(fseid: &Fseid) -> Option<IpAddr> {
    fseid.ipv4_address.map(IpAddr::V4).or(fseid.ipv6_address.map(IpAddr::V6))
}

impl Speaker {
    /// Returns the session that a request of a peer names.
    pub(super) fn known(&self, seid: Option<u64>, from: SocketAddr) -> Result<u64, Refusal> {
        let seid = seid.unwrap_or(0);
        if self.sessions.get(&seid).is_some_and(|record| self.owns(&record.kept, from)) {
            return Ok(seid);
        }
        let why = format!("there is no session {seid:#x} of {}", from.ip());
        Err(Refusal::new(CauseValue::SessionContextNotFound, why))
    }

    /// Whether a session is of the control plane at this address.
    pub(super) fn owns(&self, kept: &Kept, from: SocketAddr) -> bool {
        let association = self.associations.get(&kept.node);
        kept.to.ip() == from.ip() || association.is_some_and(|of| of.from.ip() == from.ip())
    }

    pub(super) fn establish(
        &mut self,
        ies: &[Ie],
        from: SocketAddr,
        asked: &Asked,
        store: &dyn Store,
    ) -> Result<Step, Refusal> {
        let node = self.association(ies)?;
        let cp = read(need(ies, IeType::Fseid)?, Fseid::unmarshal)?;
        only(ies, &ESTABLISHMENT)?;
        self.fits(&node, ies)?;
        need(ies, IeType::CreatePdr)?;
        need(ies, IeType::CreateFar)?;
        let mut wanted = Rules::default();
        wanted.apply(ies)?;
        recount(&mut wanted, Counts::default());
        self.draw_for(asked, store);
        let id = self.draw_id(store);
        let to = SocketAddr::new(address_of(&cp).unwrap_or(from.ip()), PORT);
        let recovery = self.associations.get(&node).map(|of| of.recovery.clone());
        let (ipv4, ipv6) = families(self.settings.node);
        let fseid = Fseid::new(id, ipv4, ipv6).marshal();
        let rules = Rules::default();
        let kept = Kept { node, to, cp_seid: cp.seid.0, rules, ending: false, last: None };
        let mut plan = Plan::new(id, wanted, kept);
        (plan.head, plan.recovery) = (vec![Ie::new(IeType::Fseid, fseid)], recovery);
        Ok(Step::Add(Box::new(self.draft(plan, Some(asked), store)?)))
    }

    /// Refuses an establishment for elements that ask for more than there is.
    fn fits(&self, node: &[u8], ies: &[Ie]) -> Result<(), Refusal> {
        if let Some(ie) = find(ies, IeType::PdnType) {
            use PdnTypeValue::{Ipv4, Ipv4v6, Ipv6};
            let kind = read(ie, PdnType::unmarshal)?.pdn_type;
            if !matches!(kind, Ipv4 | Ipv6 | Ipv4v6) {
                return Err(Refusal::unsupported(ie));
            }
        }
        if let Some(ie) = find(ies, IeType::PfcpseReqFlags) {
            flags(ie, RESTI)?;
        }
        let recovery = self.associations.get(node).map(|of| &of.recovery[..]);
        let stamp = find(ies, IeType::RecoveryTimeStamp).map(|ie| ie.payload.get(..STAMP_LEN));
        if stamp.is_some_and(|stamp| stamp != recovery) {
            let why = "the association is with an earlier or later run of the node";
            return Err(Refusal::new(CauseValue::NoEstablishedPfcpAssociation, why));
        }
        Ok(())
    }

    /// Refuses a request for a session that comes from another node than its association:
    /// sessions do not move between the nodes of an SMF set.
    fn of_its_node(&self, id: u64, ies: &[Ie]) -> Result<(), Refusal> {
        let node = self.sessions.get(&id).map(|record| &record.kept.node);
        match find(ies, IeType::NodeId) {
            Some(ie) if node != Some(&ie.payload) => Err(Refusal::unsupported(ie)),
            _ => Ok(()),
        }
    }

    /// A session was added. If its control plane has restarted meanwhile, it does not know it.
    pub(super) fn added(
        &mut self,
        draft: Draft,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) -> Answer {
        let Draft { plan, kept, session, answer } = draft;
        let association = self.associations.get(&kept.node).map(|of| &of.recovery);
        let is_known = association == plan.recovery.as_ref();
        self.take_in(session, kept);
        if is_known {
            return Ok(answer);
        }
        let step = Step::Forget { id: session.id, removal: None };
        self.go(None, step, now_ms, store, out);
        let why = "the association has ended";
        Err(Refusal::new(CauseValue::NoEstablishedPfcpAssociation, why))
    }

    pub(super) fn modify(
        &mut self,
        id: u64,
        ies: &[Ie],
        asked: &Asked,
        store: &dyn Store,
    ) -> Result<Step, Refusal> {
        only(ies, &MODIFICATION)?;
        self.of_its_node(id, ies)?;
        let asks = find(ies, IeType::PfcpsmReqFlags).map(|ie| flags(ie, DROBU | QAURR));
        let asks = asks.transpose()?.unwrap_or(0);
        self.draw_for(asked, store);
        // Read before anything changes.
        let cp = find(ies, IeType::Fseid).map(|ie| read(ie, Fseid::unmarshal)).transpose()?;
        let unknown = || Refusal::new(CauseValue::SessionContextNotFound, "the session is gone");
        let kept = &self.sessions.get(&id).ok_or_else(unknown)?.kept;
        if kept.ending {
            let why = "the session is being deleted";
            return Err(Refusal::new(CauseValue::SessionContextNotFound, why));
        }
        let (mut wanted, mut kept) = (kept.rules.clone(), kept.clone());
        if let Some(cp) = cp {
            kept.cp_seid = cp.seid.0;
            kept.to = address_of(&cp).map_or(kept.to, |address| SocketAddr::new(address, PORT));
        }
        let mut of_rules = wanted.apply(ies)?;
        if asks & QAURR != 0 {
            of_rules.queries = wanted.urrs.keys().copied().collect();
        }
        let counting = Counting { id, wanted, kept, asked: of_rules };
        if !counting.needs_counts() {
            let draft = self.draft(counting.bare(), Some(asked), store)?;
            return Ok(Step::Change(Box::new(draft)));
        }
        Ok(Step::Count(Box::new(counting)))
    }

    /// The counts that a change needs are there.
    pub(super) fn counted(
        &mut self,
        counting: Counting,
        counts: Counts,
        asked: Option<Asked>,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        self.again(counting.plan(counts), asked, Step::Change, now_ms, store, out);
    }

    /// A session was changed.
    pub(super) fn changed(&mut self, draft: Draft, out: &mut Vec<Out>) -> Vec<Ie> {
        let Draft { plan, kept, session, answer } = draft;
        let id = session.id;
        let Some(record) = self.sessions.get_mut(&id) else { return answer };
        let before = std::mem::replace(&mut record.session, session);
        let buffered = record.kept.rules.buffers();
        let buffers = kept.rules.buffers();
        record.kept = kept;
        if !record.watched && !record.kept.rules.urrs.is_empty() {
            record.watched = true;
            self.watched.push_back(id);
        }
        if plan.end_marker
            && before.gate.downlink()
            && (before.peer, before.peer_teid) != (session.peer, session.peer_teid)
        {
            let (n3, peer, teid) = (before.n3, before.peer, before.peer_teid);
            out.push(Out::EndMarker { n3, peer, teid });
        }
        self.note_peer(Some(&before), &session);
        self.count_buffering(buffered, buffers);
        answer
    }

    pub(super) fn delete(&self, id: u64, ies: &[Ie]) -> Result<Step, Refusal> {
        only(ies, &[IeType::NodeId])?;
        self.of_its_node(id, ies)?;
        Ok(self.deletion(id))
    }

    pub(super) fn deletion(&self, id: u64) -> Step {
        let record = self.sessions.get(&id);
        Step::Delete { id, counts: record.is_some_and(|of| !of.kept.rules.urrs.is_empty()) }
    }

    /// A session was deleted, with these counts; returns what was kept with it, and its last
    /// reports.
    pub(super) fn deleted(&mut self, id: u64, counts: Counts) -> Option<(Kept, Vec<Ie>)> {
        let mut kept = self.forgotten(id)?.kept;
        let kind = IeType::UsageReportWithinSessionDeletionResponse;
        let urrs = kept.rules.urrs.iter_mut();
        let reports = urrs.map(|(number, urr)| urr.report(*number, kind, Trigger::End, counts));
        let reports = reports.collect();
        Some((kept, reports))
    }

    /// Takes up a session.
    pub(super) fn take_in(&mut self, session: Session, kept: Kept) {
        let watched = !kept.rules.urrs.is_empty();
        if watched {
            self.watched.push_back(session.id);
        }
        self.note_peer(None, &session);
        self.count_buffering(false, kept.rules.buffers());
        let (awaits_end, last_counts) = (false, None);
        let record = Record { kept, session, quiet_until_ms: 0, watched, awaits_end, last_counts };
        self.sessions.insert(session.id, record);
    }

    /// A session is gone.
    pub(super) fn forgotten(&mut self, id: u64) -> Option<Record> {
        let record = self.sessions.remove(&id)?;
        self.count_buffering(record.kept.rules.buffers(), false);
        self.forget_peer(&record.session);
        Some(record)
    }

    pub(super) fn forget_peer(&mut self, session: &Session) {
        let tunnel = (session.peer, session.peer_teid);
        // Another session may have named the same tunnel since.
        if self.by_peer.get(&tunnel) == Some(&session.id) {
            self.by_peer.remove(&tunnel);
        }
    }

    pub(super) fn note_peer(&mut self, before: Option<&Session>, now: &Session) {
        if let Some(before) = before {
            self.forget_peer(before);
        }
        if now.gate != Gate::Closed && now.peer != now.n3 {
            self.by_peer.insert((now.peer, now.peer_teid), now.id);
        }
    }
}
