//! The N4 face of a gateway: associations, sessions, reports.

use crate::message::{
    Received, Refusal, Unreadable, emit, find, is_foreign, need, parse, read, result,
};
use crate::rules::{Asked, Rules, Tunnel, Ue, families};
use crate::usage::Trigger;
use hashbrown::HashMap;
use overbank::hash::mix;
use overbank_gateway::prefix::Prefixes;
use overbank_gateway::session::{Gate, Key, Prefix64, Session};
use overbank_gateway::sessions::{Origin, SessionError, Sessions};
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::failed_rule_id::FailedRuleId;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::report_type::ReportType;
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::up_function_features::UPFunctionFeatures;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most associations.
const ASSOCIATIONS_MAX: usize = 64;
/// Answers that are kept for repeated requests.
const ANSWERS_MAX: usize = 4096;
/// Time for which they are kept: longer than a request is repeated.
const ANSWERS_MS: u64 = 30_000;
/// Reports without an answer.
const REPORTS_MAX: usize = 1024;
/// Sessions that one tick looks at for thresholds.
const LOOKS_MAX: usize = 16 * 1024;
/// Numbers that are tried for a TEID or an address.
const CHOICES_MAX: usize = 256;
/// Time until a request is sent again, and how often (T1 and N1 of the standard).
const T1_MS: u64 = 3_000;
const N1: u32 = 3;
/// Time between two reports of Error Indications for a session.
const QUIET_MS: u64 = 10_000;
/// Sequence numbers have 24 bits.
const SEQUENCE_MAX: u32 = (1 << 24) - 1;

/// Settings of a speaker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our address: Node ID, and that of F-SEIDs.
    pub node: IpAddr,
    /// Recovery Time Stamp: seconds since 1900.
    pub started_s: u32,
    /// Addresses that may speak to us; empty: all.
    pub peers: Prefixes,
    /// Varies TEIDs, addresses and SEIDs.
    pub seed: u64,
}

overbank_declare::counters! {
    /// Counts of a speaker.
    pub struct N4Totals: "overbank_gateway_n4_" {
        associations: gauge associations "Associations with control planes" as "associations";
        sessions: gauge sessions "Sessions of PFCP" as "sessions";
        buffering: gauge sessions
            "Sessions whose downlink packets should be kept, and are dropped" as "buffering";
        requests: counter messages "Requests received" as "requests";
        repeated: counter messages "Requests received again and answered from memory"
            as "repeated_requests";
        refused: counter messages "Requests refused" as "refused_requests";
        garbage: counter messages "Datagrams that are no message, or from a foreign address"
            as "garbage";
        reports: counter messages "Session reports sent" as "reports";
        reports_lost: counter messages "Session reports without an answer, or not sent: too many"
            as "reports_lost";
    }
}

/// What comes out of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A datagram.
    Send { to: SocketAddr, bytes: Vec<u8> },
    /// An End Marker by N3.
    EndMarker { n3: IpAddr, peer: IpAddr, teid: u32 },
}

struct Association {
    recovery: Vec<u8>,
    from: IpAddr,
}

struct Record {
    /// Node ID of its control plane.
    node: Vec<u8>,
    /// Where its reports go.
    to: SocketAddr,
    cp_seid: u64,
    rules: Rules,
    session: Session,
    /// No report of an Error Indication before this.
    quiet_until_ms: u64,
}

type AnswerKey = (SocketAddr, u8, u32);

/// An answer that was given.
struct Given {
    /// Hash of the request: another one may have its sequence number, after a restart.
    request: u64,
    until_ms: u64,
    bytes: Vec<u8>,
}

struct Report {
    sequence: u32,
    to: SocketAddr,
    bytes: Vec<u8>,
    due_ms: u64,
    left: u32,
    session: u64,
}

/// See the crate.
pub struct Speaker {
    settings: Settings,
    associations: HashMap<Vec<u8>, Association, foldhash::fast::RandomState>,
    sessions: HashMap<u64, Record, foldhash::fast::RandomState>,
    /// Sessions by the tunnel of their peer, for Error Indications.
    by_peer: HashMap<(IpAddr, u32), u64, foldhash::fast::RandomState>,
    answers: HashMap<AnswerKey, Given, foldhash::fast::RandomState>,
    answered: VecDeque<AnswerKey>,
    reports: VecDeque<Report>,
    /// SEIDs with usage rules, looked at in turns.
    watched: VecDeque<u64>,
    sequence: u32,
    drawn: u64,
    totals: N4Totals,
}

/// What an accepted request answers beside its cause.
type Answer = Result<Vec<Ie>, Refusal>;

fn refused(cause: CauseValue, why: &str) -> Refusal {
    Refusal::new(cause, why)
}

impl Speaker {
    /// Returns a speaker without associations.
    pub fn new(settings: Settings) -> Speaker {
        Speaker {
            settings,
            associations: HashMap::default(),
            sessions: HashMap::default(),
            by_peer: HashMap::default(),
            answers: HashMap::default(),
            answered: VecDeque::new(),
            reports: VecDeque::new(),
            watched: VecDeque::new(),
            sequence: 0,
            drawn: 0,
            totals: N4Totals::default(),
        }
    }

    /// Returns counts.
    pub fn totals(&self) -> N4Totals {
        let buffering = self.sessions.values().filter(|record| record.rules.buffers()).count();
        N4Totals {
            associations: self.associations.len() as u64,
            sessions: self.sessions.len() as u64,
            buffering: buffering as u64,
            ..self.totals
        }
    }

    /// Takes a datagram.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        now_ms: u64,
        store: &mut Sessions,
        out: &mut Vec<Out>,
    ) {
        let peers = &self.settings.peers;
        if !peers.is_empty() && !peers.contain(from.ip()) {
            self.totals.garbage += 1;
            return;
        }
        let received = match parse(bytes) {
            Ok(received) => received,
            Err(Unreadable::Garbage) => {
                self.totals.garbage += 1;
                return;
            }
            Err(Unreadable::Version(sequence)) => {
                self.totals.refused += 1;
                let bytes = emit(MsgType::VersionNotSupportedResponse, None, sequence, &[]);
                out.push(Out::Send { to: from, bytes });
                return;
            }
        };
        if received.kind == MsgType::SessionReportResponse {
            self.reported(&received, from, now_ms, store);
            return;
        }
        let Some(kind) = answer_to(received.kind) else {
            self.totals.garbage += 1;
            return;
        };
        let key = (from, received.kind as u8, received.sequence);
        let request = self.answers.hasher().hash_one(bytes);
        let given = self.answers.get(&key);
        if let Some(given) = given.filter(|g| g.request == request && now_ms < g.until_ms) {
            self.totals.repeated += 1;
            out.push(Out::Send { to: from, bytes: given.bytes.clone() });
            return;
        }
        self.totals.requests += 1;
        let bytes = self.answer(kind, &received, from, now_ms, store, out);
        out.push(Out::Send { to: from, bytes: bytes.clone() });
        if received.kind != MsgType::HeartbeatRequest {
            if self.answered.len() >= ANSWERS_MAX
                && let Some(oldest) = self.answered.pop_front()
            {
                self.answers.remove(&oldest);
            }
            self.answered.push_back(key);
            self.answers.insert(key, Given { request, until_ms: now_ms + ANSWERS_MS, bytes });
        }
    }

    /// Sends reports that are due, and repeats those without an answer.
    pub fn tick(&mut self, now_ms: u64, store: &mut Sessions, out: &mut Vec<Out>) {
        for _ in 0..self.watched.len().min(LOOKS_MAX) {
            let Some(seid) = self.watched.pop_front() else { break };
            let (Some(record), Some(listed)) = (self.sessions.get_mut(&seid), store.get(seid))
            else {
                continue;
            };
            self.watched.push_back(seid);
            let kind = IeType::UsageReportWithinSessionReportRequest;
            let urrs = record.rules.urrs.iter_mut();
            let due = urrs.filter(|(_, urr)| urr.is_due(listed.counts));
            let mut ies: Vec<Ie> = due
                .map(|(id, urr)| urr.report(*id, kind, Trigger::Volume, listed.counts))
                .collect();
            if !ies.is_empty() {
                ies.insert(0, ReportType::usage_report().to_ie());
                self.send_report(seid, &ies, now_ms, out);
            }
        }
        for _ in 0..self.reports.len() {
            let Some(mut report) = self.reports.pop_front() else { break };
            if report.due_ms > now_ms {
                self.reports.push_back(report);
            } else if report.left == 0 {
                self.totals.reports_lost += 1;
            } else {
                report.left -= 1;
                report.due_ms = now_ms + T1_MS;
                out.push(Out::Send { to: report.to, bytes: report.bytes.clone() });
                self.reports.push_back(report);
            }
        }
    }

    /// Reports that a peer has no tunnel for a session, at most once in ten seconds.
    pub fn error_indication(&mut self, peer: IpAddr, teid: u32, now_ms: u64, out: &mut Vec<Out>) {
        let Some(&seid) = self.by_peer.get(&(peer, teid)) else { return };
        let Some(record) = self.sessions.get_mut(&seid) else { return };
        if now_ms < record.quiet_until_ms {
            return;
        }
        record.quiet_until_ms = now_ms + QUIET_MS;
        let fteid = match peer {
            IpAddr::V4(v4) => Fteid::ipv4(teid, v4),
            IpAddr::V6(v6) => Fteid::ipv6(teid, v6),
        };
        let ies = [
            ReportType::error_indication_report().to_ie(),
            Ie::new_grouped(IeType::ErrorIndicationReport, vec![fteid.to_ie()]),
        ];
        self.send_report(seid, &ies, now_ms, out);
    }

    fn send_report(&mut self, seid: u64, ies: &[Ie], now_ms: u64, out: &mut Vec<Out>) {
        let Some(record) = self.sessions.get(&seid) else { return };
        if self.reports.len() >= REPORTS_MAX {
            self.totals.reports_lost += 1;
            return;
        }
        self.sequence = if self.sequence >= SEQUENCE_MAX { 1 } else { self.sequence + 1 };
        let to = record.to;
        let bytes = emit(MsgType::SessionReportRequest, Some(record.cp_seid), self.sequence, ies);
        out.push(Out::Send { to, bytes: bytes.clone() });
        self.totals.reports += 1;
        let (sequence, due_ms) = (self.sequence, now_ms + T1_MS);
        self.reports.push_back(Report { sequence, to, bytes, due_ms, left: N1, session: seid });
    }

    /// Takes the answer to a report.
    fn reported(&mut self, answer: &Received, from: SocketAddr, now_ms: u64, store: &mut Sessions) {
        let is_it =
            |report: &Report| report.sequence == answer.sequence && report.to.ip() == from.ip();
        let Some(at) = self.reports.iter().position(is_it) else {
            self.totals.garbage += 1;
            return;
        };
        let Some(report) = self.reports.remove(at) else { return };
        let cause = answer.ies.as_ref().ok().and_then(|ies| find(ies, IeType::Cause));
        let unknown = cause.is_some_and(|ie| {
            Cause::unmarshal(&ie.payload)
                .is_ok_and(|cause| cause.value == CauseValue::SessionContextNotFound)
        });
        // The control plane has no such session: neither should we.
        if unknown {
            self.remove(report.session, now_ms, store);
        }
    }

    fn answer(
        &mut self,
        kind: MsgType,
        request: &Received,
        from: SocketAddr,
        now_ms: u64,
        store: &mut Sessions,
        out: &mut Vec<Out>,
    ) -> Vec<u8> {
        let mut seid = answer_has_seid(kind).then_some(0);
        let done = match &request.ies {
            Err(refusal) => Err(refusal.clone()),
            Ok(ies) => self.carry_out(request, ies, from, now_ms, store, out, &mut seid),
        };
        self.totals.refused += u64::from(done.is_err());
        let mut ies = Vec::new();
        if kind != MsgType::HeartbeatResponse {
            if matches!(
                kind,
                MsgType::AssociationSetupResponse
                    | MsgType::AssociationUpdateResponse
                    | MsgType::AssociationReleaseResponse
                    | MsgType::SessionEstablishmentResponse
            ) {
                ies.push(self.node_id());
            }
            ies.extend(result(done.as_ref().err()));
        }
        match done {
            Ok(more) => ies.extend(more),
            // A heartbeat is answered whatever else it has.
            Err(_) if kind == MsgType::HeartbeatResponse => ies.push(self.recovery()),
            Err(_) => {}
        }
        emit(kind, seid, request.sequence, &ies)
    }

    #[allow(clippy::too_many_arguments)] // One place per kind of request, called once.
    fn carry_out(
        &mut self,
        request: &Received,
        ies: &[Ie],
        from: SocketAddr,
        now_ms: u64,
        store: &mut Sessions,
        out: &mut Vec<Out>,
        seid: &mut Option<u64>,
    ) -> Answer {
        match request.kind {
            MsgType::HeartbeatRequest => {
                if let Some(stamp) = find(ies, IeType::RecoveryTimeStamp) {
                    self.restarted(from.ip(), &stamp.payload, now_ms, store);
                }
                Ok(vec![self.recovery()])
            }
            MsgType::AssociationSetupRequest => self.set_up(ies, from, now_ms, store),
            MsgType::AssociationUpdateRequest => {
                self.association(ies)?;
                let known = [IeType::NodeId, IeType::CpFunctionFeatures];
                only(ies, &known).map(|()| Vec::new())
            }
            MsgType::AssociationReleaseRequest => {
                let node = self.association(ies)?;
                self.associations.remove(&node);
                self.forget(&node, now_ms, store);
                Ok(Vec::new())
            }
            MsgType::SessionEstablishmentRequest => {
                // A refusal too goes to the control plane's SEID, if it is there.
                if let Some(ie) = find(ies, IeType::Fseid) {
                    *seid = Some(read(ie, Fseid::unmarshal)?.seid.0);
                }
                self.establish(ies, from, now_ms, store)
            }
            MsgType::SessionModificationRequest => {
                let id = self.known(request.seid, from)?;
                *seid = self.sessions.get(&id).map(|record| record.cp_seid);
                self.modify(id, ies, now_ms, store, out)
            }
            MsgType::SessionDeletionRequest => {
                let id = self.known(request.seid, from)?;
                *seid = self.sessions.get(&id).map(|record| record.cp_seid);
                Ok(self.delete(id, now_ms, store))
            }
            _ => Err(refused(CauseValue::ServiceNotSupported, "this request is not supported")),
        }
    }

    fn node_id(&self) -> Ie {
        match self.settings.node {
            IpAddr::V4(v4) => NodeId::new_ipv4(v4),
            IpAddr::V6(v6) => NodeId::new_ipv6(v6),
        }
        .to_ie()
    }

    fn recovery(&self) -> Ie {
        Ie::new(IeType::RecoveryTimeStamp, self.settings.started_s.to_be_bytes().to_vec())
    }

    fn set_up(
        &mut self,
        ies: &[Ie],
        from: SocketAddr,
        now_ms: u64,
        store: &mut Sessions,
    ) -> Answer {
        let node = need(ies, IeType::NodeId)?;
        read(node, NodeId::unmarshal)?;
        let recovery = need(ies, IeType::RecoveryTimeStamp)?.payload.clone();
        let node = node.payload.clone();
        if !self.associations.contains_key(&node) && self.associations.len() >= ASSOCIATIONS_MAX {
            let why = "as many associations as the gateway takes";
            return Err(refused(CauseValue::NoResourcesAvailable, why));
        }
        let retained = find(ies, IeType::PfcpSessionRetentionInformation).is_some();
        let same = self.associations.get(&node).is_some_and(|old| old.recovery == recovery);
        if !(retained && same) {
            self.forget(&node, now_ms, store);
        }
        self.associations.insert(node, Association { recovery, from: from.ip() });
        let mut features = UPFunctionFeatures::new();
        features.insert(UPFunctionFeatures::FTUP);
        features.insert(UPFunctionFeatures::EMPU);
        features.insert(UPFunctionFeatures::UEIP);
        Ok(vec![self.recovery(), features.to_ie()])
    }

    /// Returns the Node ID of an association that exists.
    fn association(&self, ies: &[Ie]) -> Result<Vec<u8>, Refusal> {
        let node = need(ies, IeType::NodeId)?;
        read(node, NodeId::unmarshal)?;
        if !self.associations.contains_key(&node.payload) {
            let why = "there is no association with this node";
            return Err(refused(CauseValue::NoEstablishedPfcpAssociation, why));
        }
        Ok(node.payload.clone())
    }

    /// A control plane that restarted has forgotten its sessions.
    fn restarted(&mut self, from: IpAddr, stamp: &[u8], now_ms: u64, store: &mut Sessions) {
        let mut of_peer = self.associations.iter();
        let restarted = of_peer.find(|(_, old)| old.from == from && old.recovery != stamp);
        if let Some(node) = restarted.map(|(node, _)| node.clone()) {
            self.associations.remove(&node);
            self.forget(&node, now_ms, store);
        }
    }

    /// Removes all sessions of a node.
    fn forget(&mut self, node: &[u8], now_ms: u64, store: &mut Sessions) {
        let of_node = self.sessions.iter().filter(|(_, record)| record.node == node);
        let ids: Vec<u64> = of_node.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| drop(self.remove(id, now_ms, store)));
    }

    /// Returns the session that a request of a peer names.
    fn known(&self, seid: Option<u64>, from: SocketAddr) -> Result<u64, Refusal> {
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

    fn establish(
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
            store.add(session, Origin::Request, now_ms)
        })?;
        rules.urrs.values_mut().for_each(|urr| urr.start(Counts::default()));
        if !rules.urrs.is_empty() {
            self.watched.push_back(id);
        }
        let address = cp.ipv4_address.map(IpAddr::V4).or(cp.ipv6_address.map(IpAddr::V6));
        let to = SocketAddr::new(address.unwrap_or(from.ip()), PORT);
        self.note_peer(None, &session);
        let record = Record { node, to, cp_seid: cp.seid.0, rules, session, quiet_until_ms: 0 };
        self.sessions.insert(id, record);
        let (ipv4, ipv6) = families(self.settings.node);
        let fseid = Fseid::new(id, ipv4, ipv6).marshal();
        let mut answer = vec![Ie::new(IeType::Fseid, fseid)];
        answer.extend(created);
        Ok(answer)
    }

    fn modify(
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
        let had: Vec<u32> = rules.urrs.keys().copied().collect();
        let Asked { end_marker, queries } = rules.apply(ies)?;
        let (session, mut answer) = self.place(id, &mut rules, store, |store, session| {
            if session == before {
                return Ok(());
            }
            store.change(session, Origin::Request, now_ms)
        })?;
        let counts = store.get(id).map(|listed| listed.counts).unwrap_or_default();
        for (number, urr) in &mut rules.urrs {
            if !had.contains(number) {
                urr.start(counts);
            }
        }
        if had.is_empty() && !rules.urrs.is_empty() {
            self.watched.push_back(id);
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
        if let Some(record) = self.sessions.get_mut(&id) {
            (record.rules, record.session) = (rules, session);
            record.cp_seid = cp.map_or(record.cp_seid, |cp| cp.seid.0);
        }
        Ok(answer)
    }

    fn delete(&mut self, id: u64, now_ms: u64, store: &mut Sessions) -> Vec<Ie> {
        let Some((mut record, counts)) = self.remove(id, now_ms, store) else { return Vec::new() };
        let kind = IeType::UsageReportWithinSessionDeletionResponse;
        let urrs = record.rules.urrs.iter_mut();
        urrs.map(|(number, urr)| urr.report(*number, kind, Trigger::End, counts)).collect()
    }

    fn remove(&mut self, id: u64, now_ms: u64, store: &mut Sessions) -> Option<(Record, Counts)> {
        let record = self.sessions.remove(&id)?;
        self.forget_peer(&record.session);
        // It may be gone by hand.
        let counts = store.remove(id, now_ms).map(|listed| listed.counts).unwrap_or_default();
        Some((record, counts))
    }

    fn forget_peer(&mut self, session: &Session) {
        let tunnel = (session.peer, session.peer_teid);
        // Another session may have named the same tunnel since.
        if self.by_peer.get(&tunnel) == Some(&session.id) {
            self.by_peer.remove(&tunnel);
        }
    }

    fn note_peer(&mut self, before: Option<&Session>, now: &Session) {
        if let Some(before) = before {
            self.forget_peer(before);
        }
        if now.gate != Gate::Closed && now.peer != now.n3 {
            self.by_peer.insert((now.peer, now.peer_teid), now.id);
        }
    }

    /// Chooses what the rules leave to us, and takes the session by `take`. Returns it, and the
    /// elements about what was chosen.
    fn place(
        &mut self,
        id: u64,
        rules: &mut Rules,
        store: &mut Sessions,
        mut take: impl FnMut(&mut Sessions, Session) -> Result<(), SessionError>,
    ) -> Result<(Session, Vec<Ie>), Refusal> {
        let up = rules.uplink()?;
        let asked = rules.clone();
        let chosen = |rules: &Rules| {
            rules.pdrs.values().any(|pdr| {
                matches!(pdr.tunnel, Some(Tunnel::Choose(_)))
                    || pdr.v4 == Some(Ue::Choose)
                    || pdr.v6 == Some(Ue::Choose)
            })
        };
        let ours = chosen(&asked);
        let mut attempts = 0;
        loop {
            self.choose(rules, store)?;
            let session = rules.session(id)?;
            match take(store, session) {
                Ok(()) => return Ok((session, created(&asked, rules))),
                // A number that was just given back: another one will do, if it was our choice.
                Err(SessionError::Resting { .. }) if ours && attempts < CHOICES_MAX => {
                    attempts += 1;
                    *rules = asked.clone();
                }
                Err(error) => return Err(because(&error, up)),
            }
        }
    }

    /// Fills in what is left to be chosen.
    fn choose(&mut self, rules: &mut Rules, store: &Sessions) -> Result<(), Refusal> {
        let addresses = store.addresses().clone();
        // Both directions of a session that leave the address to us have the same one.
        let (mut ipv4, mut ipv6) = (None, None);
        for pdr in rules.pdrs.values_mut() {
            if let Some(Tunnel::Choose([v4, v6])) = pdr.tunnel {
                let fits =
                    |n3: &&IpAddr| (n3.is_ipv4() && v4) || (n3.is_ipv6() && v6) || !(v4 || v6);
                let n3 = addresses.n3.iter().find(fits).copied().ok_or_else(|| {
                    let why = "the gateway has no N3 address of this family";
                    refused(CauseValue::InvalidFteidAllocationOption, why)
                })?;
                let mut draws = (0..CHOICES_MAX).map(|_| self.draw() as u32);
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
        Ok(())
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.settings.seed ^ mix(self.drawn))
    }

    fn draw_id(&mut self, store: &Sessions) -> u64 {
        loop {
            let id = self.draw();
            if id != 0 && store.get(id).is_none() {
                return id;
            }
        }
    }

    /// Draws a number below `count`, then those after it, until one fits.
    fn draw_one<T>(&mut self, count: u64, fits: impl Fn(u64) -> Option<T>) -> Option<T> {
        let start = self.draw() % count;
        (0..count.min(CHOICES_MAX as u64)).find_map(|more| fits((start + more) % count))
    }

    fn draw_ipv4(&mut self, store: &Sessions) -> Result<Ipv4Addr, Refusal> {
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

    fn draw_ipv6(&mut self, store: &Sessions) -> Result<Prefix64, Refusal> {
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

/// Refuses elements that are not in the list.
fn only(ies: &[Ie], known: &[IeType]) -> Result<(), Refusal> {
    match ies.iter().find(|ie| !is_foreign(ie) && !known.contains(&ie.ie_type)) {
        Some(ie) => Err(Refusal::unsupported(ie)),
        None => Ok(()),
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

/// The refusal for an error of the sessions.
fn because(error: &SessionError, uplink: u16) -> Refusal {
    let cause = match error {
        SessionError::Full(_) | SessionError::NoRoom(_) => CauseValue::NoResourcesAvailable,
        SessionError::Busy => CauseValue::PfcpEntityInCongestion,
        SessionError::Unknown(_) => CauseValue::SessionContextNotFound,
        _ => CauseValue::RuleCreationModificationFailure,
    };
    let refusal = Refusal::new(cause, error.to_string());
    if cause == CauseValue::RuleCreationModificationFailure {
        return refusal.of(FailedRuleId::pdr(uplink));
    }
    refusal
}

/// The answer to a request.
fn answer_to(request: MsgType) -> Option<MsgType> {
    Some(match request {
        MsgType::HeartbeatRequest => MsgType::HeartbeatResponse,
        MsgType::PfdManagementRequest => MsgType::PfdManagementResponse,
        MsgType::AssociationSetupRequest => MsgType::AssociationSetupResponse,
        MsgType::AssociationUpdateRequest => MsgType::AssociationUpdateResponse,
        MsgType::AssociationReleaseRequest => MsgType::AssociationReleaseResponse,
        MsgType::SessionSetDeletionRequest => MsgType::SessionSetDeletionResponse,
        MsgType::SessionEstablishmentRequest => MsgType::SessionEstablishmentResponse,
        MsgType::SessionModificationRequest => MsgType::SessionModificationResponse,
        MsgType::SessionDeletionRequest => MsgType::SessionDeletionResponse,
        _ => return None,
    })
}

fn answer_has_seid(answer: MsgType) -> bool {
    matches!(
        answer,
        MsgType::SessionEstablishmentResponse
            | MsgType::SessionModificationResponse
            | MsgType::SessionDeletionResponse
    )
}
