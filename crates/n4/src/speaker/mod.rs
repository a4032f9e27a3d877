//! The N4 face of a gateway: associations, sessions, reports.
//!
//! A request that changes something is a [`Step`] or several: each asks the [`Store`], and goes on
//! with its answer. Steps for different sessions are under way at the same time; a request for a
//! session that one is under way for waits.

mod choose;
mod ending;
mod heartbeat;
mod report;
mod sessions;
mod step;

use crate::message::{
    Received, Refusal, Unreadable, emit, find, is_foreign, need, parse, read, result,
};
use crate::rules::Rules;
use crate::store::Store;
use ending::Ended;
use hashbrown::{HashMap, HashSet};
use heartbeat::Beat;
use overbank_gateway::prefix::Prefixes;
use overbank_gateway::session::Session;
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::ie::up_function_features::UPFunctionFeatures;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use step::{Removal, Step, Then};
use xxhash_rust::xxh3::xxh3_64;

/// UDP port of PFCP, that of requests.
const PORT: u16 = 8805;
/// Most associations.
const ASSOCIATIONS_MAX: usize = 64;
/// Answers that are kept for repeated requests.
const ANSWERS_MAX: usize = 4096;
/// Time for which they are kept: longer than a request is repeated.
const ANSWERS_MS: u64 = 30_000;
/// Requests that wait for a step of their session.
const WAITING_MAX: usize = 1024;
/// Longest Node ID: its type, and a name.
const NODE_LEN_MAX: usize = 1 + 255;
/// Octets of a Recovery Time Stamp.
const STAMP_LEN: usize = 4;
/// Sequence numbers have 24 bits.
const SEQUENCE_MAX: u32 = (1 << 24) - 1;

/// Elements that an Association Setup may have. Features of the control plane and names of its set
/// and instance inform, and ask for nothing.
const ASSOCIATION: [IeType; 7] = [
    IeType::NodeId,
    IeType::RecoveryTimeStamp,
    IeType::CpFunctionFeatures,
    IeType::PfcpSessionRetentionInformation,
    IeType::SmfSetId,
    IeType::NfInstanceId,
    IeType::AlternativeSmfIpAddress,
];

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
        silent: gauge peers "Control planes that answer no heartbeat" as "silent_peers";
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

/// An association with a control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Association {
    recovery: Vec<u8>,
    /// Where its setup came from.
    from: SocketAddr,
}

impl Association {
    /// Returns whether a Recovery Time Stamp is of a later run of the node. An earlier one is of a
    /// datagram that is late.
    fn is_before(&self, stamp: [u8; STAMP_LEN]) -> bool {
        let of = |stamp: &[u8]| stamp.try_into().map(u32::from_be_bytes);
        let Ok(known) = of(&self.recovery) else { return false };
        // Seconds since 1900 pass 2^32 in 2036.
        u32::from_be_bytes(stamp).wrapping_sub(known).cast_signed() > 0
    }
}

/// What speakers leave to each other.
#[derive(Serialize, Deserialize)]
struct Shared {
    started_s: u32,
    associations: Vec<(Vec<u8>, Association)>,
}

/// What is kept with a session, for later speakers too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Node ID of its control plane.
    node: Vec<u8>,
    /// Where its reports go.
    to: SocketAddr,
    cp_seid: u64,
    rules: Rules,
    /// Its deletion has begun.
    ending: bool,
    /// The answer to its last request, if the store outlives this speaker.
    last: Option<Last>,
}

impl Kept {
    /// Returns its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        // Plain data has no error.
        postcard::to_allocvec(self).unwrap_or_default()
    }
}

/// The answer to a request, which may be sent again.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Last {
    key: AnswerKey,
    /// Hash of the request.
    request: u64,
    bytes: Vec<u8>,
}

struct Record {
    kept: Kept,
    session: Session,
    /// No report of an Error Indication before this.
    quiet_until_ms: u64,
    /// Whether it is among those that are looked at for thresholds.
    watched: bool,
    /// Whether it is among those whose deletion is tried again.
    awaits_end: bool,
    /// Its counts after its gates were closed.
    last_counts: Option<Counts>,
}

type AnswerKey = (SocketAddr, u8, u32);

/// An answer that was given.
struct Given {
    /// Hash of the request: another one may have its sequence number, after a restart.
    request: u64,
    until_ms: u64,
    number: u64,
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

/// A request that is being carried out.
struct Asked {
    key: AnswerKey,
    /// Hash of the request.
    request: u64,
    /// Type of the answer.
    kind: MsgType,
    /// SEID of the answer.
    seid: Option<u64>,
}

impl Asked {
    /// Returns where it came from, as bytes.
    fn origin(&self) -> Vec<u8> {
        let (from, _, sequence) = self.key;
        let address = match from.ip() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        [&address[..], &from.port().to_be_bytes(), &sequence.to_be_bytes()].concat()
    }
}

/// A request for a session that a step is under way for.
struct Waiting {
    session: u64,
    from: SocketAddr,
    bytes: Vec<u8>,
}

/// See the crate.
pub struct Speaker {
    settings: Settings,
    associations: HashMap<Vec<u8>, Association, foldhash::fast::RandomState>,
    sessions: HashMap<u64, Record, foldhash::fast::RandomState>,
    /// Sessions by the tunnel of their peer, for Error Indications.
    by_peer: HashMap<(IpAddr, u32), u64, foldhash::fast::RandomState>,
    answers: HashMap<AnswerKey, Given, foldhash::fast::RandomState>,
    /// The same in their order, each with its number.
    answered: VecDeque<(AnswerKey, u64)>,
    /// Answers that were given so far.
    given: u64,
    /// Requests whose answers an earlier speaker has kept, and until when they may come again.
    inherited: HashMap<AnswerKey, u64, foldhash::fast::RandomState>,
    inherited_until_ms: u64,
    /// Requests that are being carried out.
    in_hand: HashSet<AnswerKey, foldhash::fast::RandomState>,
    /// Steps that wait for the store, by ticket.
    steps: HashMap<u64, (Option<Asked>, Step), foldhash::fast::RandomState>,
    ticket: u64,
    /// Sessions that a step is under way for.
    busy: HashSet<u64, foldhash::fast::RandomState>,
    waiting: VecDeque<Waiting>,
    /// Removals of the sessions of associations, by number.
    removals: HashMap<u64, Removal, foldhash::fast::RandomState>,
    /// Sessions whose deletion is tried again, and when.
    ending: VecDeque<(u64, u64)>,
    ended: VecDeque<Ended>,
    reports: VecDeque<Report>,
    /// Heartbeats by the address of associations.
    beats: HashMap<IpAddr, Beat, foldhash::fast::RandomState>,
    /// SEIDs with usage rules, looked at in turns.
    watched: VecDeque<u64>,
    sequence: u32,
    drawn: u64,
    /// Hash of the request that numbers are drawn for, if later speakers take over: the same
    /// request has the same numbers at another speaker, and is no second session there.
    drawn_for: u64,
    totals: N4Totals,
}

/// What an accepted request answers beside its cause.
type Answer = Result<Vec<Ie>, Refusal>;

/// How a request goes on.
enum Next {
    /// It is done: the elements of the answer.
    Answer(Vec<Ie>),
    /// After this step.
    Step(Step),
    /// After the removal of the sessions of a node.
    Forget(Vec<u8>, Then),
    /// It is done, and the sessions of a node go, if it has restarted.
    Restarted(Option<Vec<u8>>),
}

fn refused(cause: CauseValue, why: &str) -> Refusal {
    Refusal::new(cause, why)
}

impl Speaker {
    /// Returns a speaker without sessions. It goes on with what earlier ones have left by
    /// [`Ask::Share`](crate::store::Ask::Share), if there is something.
    pub fn new(mut settings: Settings, shared: Option<&[u8]>) -> Speaker {
        let shared = shared.and_then(|bytes| postcard::from_bytes::<Shared>(bytes).ok());
        let mut associations = HashMap::default();
        if let Some(shared) = shared {
            settings.started_s = shared.started_s;
            associations.extend(shared.associations.into_iter().take(ASSOCIATIONS_MAX));
        }
        let mut speaker = Speaker {
            settings,
            associations,
            sessions: HashMap::default(),
            by_peer: HashMap::default(),
            answers: HashMap::default(),
            answered: VecDeque::new(),
            given: 0,
            inherited: HashMap::default(),
            inherited_until_ms: 0,
            in_hand: HashSet::default(),
            steps: HashMap::default(),
            ticket: 0,
            busy: HashSet::default(),
            waiting: VecDeque::new(),
            removals: HashMap::default(),
            ending: VecDeque::new(),
            ended: VecDeque::new(),
            reports: VecDeque::new(),
            beats: HashMap::default(),
            watched: VecDeque::new(),
            sequence: 0,
            drawn: 0,
            drawn_for: 0,
            totals: N4Totals::default(),
        };
        // An earlier speaker's requests had lower numbers.
        speaker.sequence = speaker.draw() as u32 & SEQUENCE_MAX;
        speaker
    }

    /// Returns what later speakers need beside the sessions.
    pub fn shared(&self) -> Vec<u8> {
        let associations = self.associations.iter().map(|(node, of)| (node.clone(), of.clone()));
        let mut associations: Vec<_> = associations.collect();
        associations.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let shared = Shared { started_s: self.settings.started_s, associations };
        // Plain data has no error.
        postcard::to_allocvec(&shared).unwrap_or_default()
    }

    /// Takes over a session of an earlier speaker; returns false if the bytes are not what
    /// [`Kept::bytes`] gave.
    pub fn restore(&mut self, session: Session, kept: &[u8], now_ms: u64) -> bool {
        let Ok(kept) = postcard::from_bytes::<Kept>(kept) else { return false };
        if let Some(last) = &kept.last {
            self.inherited.insert(last.key, session.id);
            self.inherited_until_ms = now_ms + ANSWERS_MS;
        }
        let is_ending = kept.ending;
        self.take_in(session, kept);
        if is_ending {
            self.end_later(session.id, now_ms);
        }
        true
    }

    /// Returns counts.
    pub fn totals(&self) -> N4Totals {
        N4Totals {
            associations: self.associations.len() as u64,
            sessions: self.sessions.len() as u64,
            silent: self.beats.values().filter(|beat| beat.silent).count() as u64,
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
        store: &mut dyn Store,
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
        match received.kind {
            MsgType::SessionReportResponse => {
                return self.reported(&received, from, now_ms, store, out);
            }
            MsgType::HeartbeatResponse => {
                return self.answered_beat(&received, from, now_ms, store, out);
            }
            _ => {}
        }
        let Some(kind) = answer_to(received.kind) else {
            self.totals.garbage += 1;
            return;
        };
        let key = (from, received.kind as u8, received.sequence);
        let request = xxh3_64(bytes);
        if let Some(given) = self.given(key, request, now_ms) {
            self.totals.repeated += 1;
            out.push(Out::Send { to: from, bytes: given });
            return;
        }
        if self.in_hand.contains(&key) {
            self.totals.repeated += 1;
            return;
        }
        if let Some(session) = received.seid.filter(|seid| self.busy.contains(seid)) {
            return self.wait(Waiting { session, from, bytes: bytes.to_vec() });
        }
        self.totals.requests += 1;
        let seid = answer_has_seid(kind).then_some(0);
        let mut asked = Asked { key, request, kind, seid };
        let next = match &received.ies {
            Err(refusal) => Err(refusal.clone()),
            Ok(ies) => self.carry_out(&received, ies, from, &mut asked, store),
        };
        match next {
            Ok(Next::Answer(ies)) => self.reply(asked, Ok(ies), now_ms, out),
            Ok(Next::Step(step)) => self.go(Some(asked), step, now_ms, store, out),
            Ok(Next::Forget(node, then)) => {
                self.forget(Some(asked), &node, then, now_ms, store, out);
            }
            Ok(Next::Restarted(node)) => {
                self.reply(asked, Ok(vec![self.recovery()]), now_ms, out);
                if let Some(node) = node {
                    self.forget(None, &node, Then::Release, now_ms, store, out);
                }
            }
            Err(refusal) => self.reply(asked, Err(refusal), now_ms, out),
        }
    }

    /// Returns the answer to a request that was given before.
    fn given(&mut self, key: AnswerKey, request: u64, now_ms: u64) -> Option<Vec<u8>> {
        let given = self.answers.get(&key).filter(|g| g.request == request && now_ms < g.until_ms);
        if let Some(given) = given {
            return Some(given.bytes.clone());
        }
        if now_ms >= self.inherited_until_ms {
            self.inherited = HashMap::default();
        }
        let last = self.sessions.get(self.inherited.get(&key)?)?.kept.last.as_ref();
        let last = last.filter(|last| last.key == key && last.request == request);
        last.map(|last| last.bytes.clone())
    }

    /// Keeps a request until the step for its session is done. A full queue drops it: it comes
    /// again.
    fn wait(&mut self, new: Waiting) {
        let is_it = |known: &Waiting| (known.from, &known.bytes) == (new.from, &new.bytes);
        if self.waiting.len() < WAITING_MAX && !self.waiting.iter().any(is_it) {
            self.waiting.push_back(new);
        } else {
            self.totals.repeated += 1;
        }
    }

    /// Returns an answer.
    fn message(&self, asked: &Asked, done: Result<&[Ie], &Refusal>) -> Vec<u8> {
        let kind = asked.kind;
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
            ies.extend(result(done.err()));
        }
        match done {
            Ok(more) => ies.extend_from_slice(more),
            // A heartbeat is answered whatever else it has.
            Err(_) if kind == MsgType::HeartbeatResponse => ies.push(self.recovery()),
            Err(_) => {}
        }
        emit(kind, asked.seid, asked.key.2, &ies)
    }

    /// Answers a request, and keeps the answer for a while.
    fn reply(&mut self, asked: Asked, done: Answer, now_ms: u64, out: &mut Vec<Out>) {
        self.totals.refused += u64::from(done.is_err());
        let bytes = self.message(&asked, done.as_deref());
        let Asked { key, request, kind, .. } = asked;
        self.in_hand.remove(&key);
        out.push(Out::Send { to: key.0, bytes: bytes.clone() });
        if kind != MsgType::HeartbeatResponse {
            if self.answered.len() >= ANSWERS_MAX
                && let Some((oldest, number)) = self.answered.pop_front()
                // A later request may have had the same key.
                && self.answers.get(&oldest).is_some_and(|given| given.number == number)
            {
                self.answers.remove(&oldest);
            }
            let (number, until_ms) = (self.given + 1, now_ms + ANSWERS_MS);
            self.given = number;
            self.answered.push_back((key, number));
            self.answers.insert(key, Given { request, until_ms, number, bytes });
        }
    }

    fn carry_out(
        &mut self,
        request: &Received,
        ies: &[Ie],
        from: SocketAddr,
        asked: &mut Asked,
        store: &dyn Store,
    ) -> Result<Next, Refusal> {
        match request.kind {
            MsgType::HeartbeatRequest => Ok(Next::Restarted(self.restarted(from, ies))),
            MsgType::AssociationSetupRequest => self.set_up(ies, from),
            MsgType::AssociationUpdateRequest => {
                self.association(ies)?;
                let known = [IeType::NodeId, IeType::CpFunctionFeatures];
                only(ies, &known).map(|()| Next::Answer(Vec::new()))
            }
            MsgType::AssociationReleaseRequest => {
                let node = self.association(ies)?;
                only(ies, &[IeType::NodeId]).map(|()| Next::Forget(node, Then::Release))
            }
            MsgType::SessionEstablishmentRequest => {
                // A refusal too goes to the control plane's SEID, if it is there.
                if let Some(ie) = find(ies, IeType::Fseid) {
                    asked.seid = Some(read(ie, Fseid::unmarshal)?.seid.0);
                }
                self.establish(ies, from, asked, store).map(Next::Step)
            }
            MsgType::SessionModificationRequest => {
                let id = self.known(request.seid, from)?;
                asked.seid = self.sessions.get(&id).map(|record| record.kept.cp_seid);
                self.modify(id, ies, asked, store).map(Next::Step)
            }
            MsgType::SessionDeletionRequest => {
                let id = match self.known(request.seid, from) {
                    Ok(id) => id,
                    Err(refusal) => {
                        let reports = self.reports_of(request.seid, from, asked);
                        return reports.map(Next::Answer).ok_or(refusal);
                    }
                };
                asked.seid = self.sessions.get(&id).map(|record| record.kept.cp_seid);
                self.delete(id, ies).map(Next::Step)
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

    fn set_up(&mut self, ies: &[Ie], from: SocketAddr) -> Result<Next, Refusal> {
        let node = need(ies, IeType::NodeId)?;
        read(node, NodeId::unmarshal)?;
        if node.payload.len() > NODE_LEN_MAX {
            let why = format!("a Node ID has at most {NODE_LEN_MAX} octets");
            return Err(Refusal::new(CauseValue::MandatoryIeIncorrect, why).at(node.raw_type()));
        }
        let stamp = need(ies, IeType::RecoveryTimeStamp)?;
        read(stamp, RecoveryTimeStamp::unmarshal)?;
        only(ies, &ASSOCIATION)?;
        let recovery = stamp.payload.iter().copied().take(STAMP_LEN).collect();
        let node = node.payload.clone();
        if !self.associations.contains_key(&node) && self.associations.len() >= ASSOCIATIONS_MAX {
            let why = "as many associations as the gateway takes";
            return Err(refused(CauseValue::NoResourcesAvailable, why));
        }
        let retained = find(ies, IeType::PfcpSessionRetentionInformation).is_some();
        let same = self.associations.get(&node).is_some_and(|old| old.recovery == recovery);
        let association = Association { recovery, from };
        Ok(Next::Forget(node, Then::SetUp { association, forgets: !(retained && same) }))
    }

    /// Returns the elements of the answer to an association.
    fn capabilities(&self) -> Vec<Ie> {
        let mut features = UPFunctionFeatures::new();
        features.insert(UPFunctionFeatures::FTUP);
        features.insert(UPFunctionFeatures::EMPU);
        features.insert(UPFunctionFeatures::UEIP);
        vec![self.recovery(), features.to_ie()]
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

    /// Returns the node that has restarted, by the elements of a heartbeat: it has forgotten its
    /// sessions. See `heartbeat.rs`.
    fn restarted(&self, from: SocketAddr, ies: &[Ie]) -> Option<Vec<u8>> {
        let stamp = find(ies, IeType::RecoveryTimeStamp)?.payload.first_chunk()?;
        let mut there = self.associations.iter().filter(|(_, of)| of.from == from);
        let (node, association) = there.next()?;
        let is_it = there.next().is_none() && association.is_before(*stamp);
        is_it.then(|| node.clone())
    }

    /// Returns a number for a request of ours.
    fn next_sequence(&mut self) -> u32 {
        self.sequence = if self.sequence >= SEQUENCE_MAX { 1 } else { self.sequence + 1 };
        self.sequence
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
