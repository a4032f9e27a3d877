//! The N4 face of a gateway: associations, sessions, reports.

mod choose;
mod report;
mod sessions;

use crate::message::{
    Received, Refusal, Unreadable, emit, find, is_foreign, need, parse, read, result,
};
use crate::rules::Rules;
use hashbrown::HashMap;
use overbank_gateway::prefix::Prefixes;
use overbank_gateway::session::Session;
use overbank_gateway::sessions::Sessions;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::up_function_features::UPFunctionFeatures;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};

/// Most associations.
const ASSOCIATIONS_MAX: usize = 64;
/// Answers that are kept for repeated requests.
const ANSWERS_MAX: usize = 4096;
/// Time for which they are kept: longer than a request is repeated.
const ANSWERS_MS: u64 = 30_000;

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
    /// Whether it is among those that are looked at for thresholds.
    watched: bool,
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
        N4Totals {
            associations: self.associations.len() as u64,
            sessions: self.sessions.len() as u64,
            ..self.totals
        }
    }

    /// Counts a session whose packets should be kept, as it comes, changes or goes.
    fn count_buffering(&mut self, before: bool, now: bool) {
        self.totals.buffering = self.totals.buffering + u64::from(now) - u64::from(before);
    }

    /// Returns how many entries wait to be looked at for thresholds.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
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
}

/// Refuses elements that are not in the list.
fn only(ies: &[Ie], known: &[IeType]) -> Result<(), Refusal> {
    match ies.iter().find(|ie| !is_foreign(ie) && !known.contains(&ie.ie_type)) {
        Some(ie) => Err(Refusal::unsupported(ie)),
        None => Ok(()),
    }
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
