//! Sessions: established, modified, deleted; each as a whole or not at all.

use super::{Answer, Record, Speaker, only};
use crate::message::{Refusal, find, need, read};
use crate::rules::{Asked, Rules, families};
use crate::speaker::Out;
use crate::usage::Trigger;
use overbank_gateway::session::{Gate, Session};
use overbank_gateway::sessions::{Origin, Sessions};
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::{Ie, IeType};
use std::net::{IpAddr, SocketAddr};

/// Port of PFCP.
const PORT: u16 = 8805;

/// Elements that an establishment may have.
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

impl Speaker {
    /// Returns the session that a request of a peer names.
    pub(super) fn known(&self, seid: Option<u64>, from: SocketAddr) -> Result<u64, Refusal> {
        let seid = seid.unwrap_or(0);
        let owned = |record: &Record| {
            let association = self.associations.get(&record.node);
            record.to.ip() == from.ip() || association.is_some_and(|a| a.from == from.ip())
        };
        if self.sessions.get(&seid).is_some_and(owned) {
            return Ok(seid);
        }
        let why = format!("there is no session {seid:#x} of {}", from.ip());
        Err(Refusal::new(CauseValue::SessionContextNotFound, why))
    }

    pub(super) fn establish(
        &mut self,
        ies: &[Ie],
        from: SocketAddr,
        now_ms: u64,
        store: &mut Sessions,
    ) -> Answer {
        let node = self.association(ies)?;
        let cp = read(need(ies, IeType::Fseid)?, Fseid::unmarshal)?;
        only(ies, &ESTABLISHMENT)?;
        need(ies, IeType::CreatePdr)?;
        need(ies, IeType::CreateFar)?;
        let mut rules = Rules::default();
        rules.apply(ies)?;
        let id = self.draw_id(store);
        let (session, created) = self.place(id, &mut rules, store, |store, session| {
            store.add(session, Origin::Pfcp, now_ms)
        })?;
        rules.urrs.values_mut().for_each(|urr| urr.start(Counts::default()));
        let watched = !rules.urrs.is_empty();
        if watched {
            self.watched.push_back(id);
        }
        let address = cp.ipv4_address.map(IpAddr::V4).or(cp.ipv6_address.map(IpAddr::V6));
        let to = SocketAddr::new(address.unwrap_or(from.ip()), PORT);
        self.note_peer(None, &session);
        self.count_buffering(false, rules.buffers());
        let (cp_seid, quiet_until_ms) = (cp.seid.0, 0);
        let record = Record { node, to, cp_seid, rules, session, quiet_until_ms, watched };
        self.sessions.insert(id, record);
        let (ipv4, ipv6) = families(self.settings.node);
        let fseid = Fseid::new(id, ipv4, ipv6).marshal();
        let mut answer = vec![Ie::new(IeType::Fseid, fseid)];
        answer.extend(created);
        Ok(answer)
    }

    pub(super) fn modify(
        &mut self,
        id: u64,
        ies: &[Ie],
        now_ms: u64,
        store: &mut Sessions,
        out: &mut Vec<Out>,
    ) -> Answer {
        only(ies, &MODIFICATION)?;
        // Read before anything changes.
        let cp = find(ies, IeType::Fseid).map(|ie| read(ie, Fseid::unmarshal)).transpose()?;
        let Some(record) = self.sessions.get(&id) else { return Ok(Vec::new()) };
        let (mut rules, before) = (record.rules.clone(), record.session);
        let buffered = rules.buffers();
        let had: Vec<u32> = rules.urrs.keys().copied().collect();
        let Asked { end_marker, queries } = rules.apply(ies)?;
        let (session, mut answer) = self.place(id, &mut rules, store, |store, session| {
            if session == before {
                return Ok(());
            }
            store.change(session, Origin::Pfcp, now_ms)
        })?;
        let counts = store.get(id).map(|listed| listed.counts).unwrap_or_default();
        for (number, urr) in &mut rules.urrs {
            if !had.contains(number) {
                urr.start(counts);
            }
        }
        let kind = IeType::UsageReportWithinSessionModificationResponse;
        for number in queries {
            if let Some(urr) = rules.urrs.get_mut(&number) {
                answer.push(urr.report(number, kind, Trigger::Immediate, counts));
            }
        }
        let had_peer = before.gate.downlink();
        if end_marker
            && had_peer
            && (before.peer, before.peer_teid) != (session.peer, session.peer_teid)
        {
            let (n3, peer, teid) = (before.n3, before.peer, before.peer_teid);
            out.push(Out::EndMarker { n3, peer, teid });
        }
        self.note_peer(Some(&before), &session);
        self.count_buffering(buffered, rules.buffers());
        if let Some(record) = self.sessions.get_mut(&id) {
            (record.rules, record.session) = (rules, session);
            record.cp_seid = cp.map_or(record.cp_seid, |cp| cp.seid.0);
            if !record.watched && !record.rules.urrs.is_empty() {
                record.watched = true;
                self.watched.push_back(id);
            }
        }
        Ok(answer)
    }

    pub(super) fn delete(&mut self, id: u64, now_ms: u64, store: &mut Sessions) -> Vec<Ie> {
        let Some((mut record, counts)) = self.remove(id, now_ms, store) else { return Vec::new() };
        let kind = IeType::UsageReportWithinSessionDeletionResponse;
        let urrs = record.rules.urrs.iter_mut();
        urrs.map(|(number, urr)| urr.report(*number, kind, Trigger::End, counts)).collect()
    }

    pub(super) fn remove(
        &mut self,
        id: u64,
        now_ms: u64,
        store: &mut Sessions,
    ) -> Option<(Record, Counts)> {
        let record = self.sessions.remove(&id)?;
        self.count_buffering(record.rules.buffers(), false);
        self.forget_peer(&record.session);
        // It may be gone by hand.
        let counts = store.remove(id, now_ms).map(|listed| listed.counts).unwrap_or_default();
        Some((record, counts))
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
