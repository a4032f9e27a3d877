//! A speaker over a cluster, and the one after it.

use super::*;
use crate::Clustered;
use overbank_cluster::message::{Answer, Answered, Refusal, Request};
use overbank_cluster::table::Dense;
use overbank_cluster::{Heard, Memory, NodeId, SessionId};
use overbank_gateway::cluster::{to_travelled, unpack};
use overbank_gateway::fabric::Seed;
use overbank_gateway::slab::{Counts, Traffic};
use std::collections::BTreeMap;

const BEAT_US: u64 = 50_000;
const PAGE: u64 = u64::MAX;
/// What every session of the tests has counted.
const COUNTS: Counts = Counts {
    uplink: Traffic { packets: 7, bytes: 700, dropped: 0 },
    downlink: Traffic { packets: 5, bytes: 500, dropped: 0 },
};

/// One speaker, over two nodes in one process.
struct Site {
    memory: Memory<Dense>,
    now_us: u64,
    speaker: Speaker,
    store: Clustered,
    /// What is left to later speakers.
    shared: Option<std::sync::Arc<[u8]>>,
    sequence: u32,
}

fn speaker(shared: Option<&[u8]>) -> (Speaker, Clustered) {
    let pools = ["10.45.0.0/24", "2001:db8:45::/56"].map(|text| Prefix::parse(text).unwrap());
    let n3 = ["192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
    let teids = TeidCheck::new(None, &n3);
    let addresses = Addresses { n3: n3.into(), pools: pools.into_iter().collect(), teids };
    let node = [10, 0, 0, 5].into();
    let settings = Settings { node, started_s: 77, peers: Prefixes::default(), seed: 3 };
    (Speaker::new(settings, shared), Clustered::new(Seed(9), addresses))
}

impl Site {
    fn new() -> Site {
        let settings = overbank_cluster::Settings {
            partitions: 8,
            node_bits: 1,
            partition_keys: 64,
            ..Default::default()
        };
        let (speaker, store) = speaker(None);
        let memory = Memory::new(settings, 2);
        let mut site = Site { memory, now_us: 0, speaker, store, shared: None, sequence: 0 };
        site.advance(20);
        let stamp = Ie::new(T::RecoveryTimeStamp, 1u32.to_be_bytes().to_vec());
        site.ask(M::AssociationSetupRequest, None, &[node(), stamp]);
        site
    }

    /// Lets beats pass; returns what the speaker sends.
    fn advance(&mut self, beats: u64) -> Vec<Out> {
        let mut out = Vec::new();
        for _ in 0..beats {
            self.now_us += BEAT_US;
            let (now_ms, mut heard) = (self.now_us / 1000, Vec::new());
            self.store.at(now_ms);
            self.speaker.tick(now_ms, &mut self.store, &mut out);
            while let Some((number, request)) = self.store.send() {
                self.memory.request(NodeId(0), number, request);
            }
            if let Some(shared) = self.store.to_share() {
                self.shared = Some(shared);
            }
            for ticket in self.store.shared(self.shared.as_ref()) {
                self.speaker.done(
                    ticket,
                    Ok(Default::default()),
                    now_ms,
                    &mut self.store,
                    &mut out,
                );
            }
            self.memory.advance(self.now_us, &mut heard);
            for heard in heard {
                let Heard::Answer(number, answer) = heard else { continue };
                let answer = counted(answer);
                if let Some((ticket, done)) = self.store.answered(number, answer) {
                    self.speaker.done(ticket, done, now_ms, &mut self.store, &mut out);
                }
            }
        }
        out
    }

    /// Hands over a datagram, and lets beats pass.
    fn raw(&mut self, bytes: &[u8], beats: u64) -> Vec<Out> {
        let (mut out, now_ms) = (Vec::new(), self.now_us / 1000);
        self.speaker.receive(bytes, smf(), now_ms, &mut self.store, &mut out);
        out.extend(self.advance(beats));
        out
    }

    /// Takes the next request of the store to the cluster, if it `arrives`, and its answer, or this
    /// refusal, to the speaker. Returns the request, and what the speaker sends.
    fn step(&mut self, arrives: bool, refusal: Option<Refusal>) -> (Request, Vec<Out>) {
        let (number, request) = self.store.send().expect("a request");
        let mut answer = refusal.map(Err);
        if arrives {
            self.memory.request(NodeId(0), number, request.clone());
            let (mut heard, until_us) = (Vec::new(), self.now_us + 20 * BEAT_US);
            while self.now_us < until_us {
                self.now_us += BEAT_US;
                self.memory.advance(self.now_us, &mut heard);
            }
            let of_it = heard.into_iter().find_map(|heard| match heard {
                Heard::Answer(of, answer) if of == number => Some(counted(answer)),
                _ => None,
            });
            answer = answer.or(of_it);
        }
        let (now_ms, mut out) = (self.now_us / 1000, Vec::new());
        self.store.at(now_ms);
        if let Some((ticket, done)) = self.store.answered(number, answer.expect("an answer")) {
            self.speaker.done(ticket, done, now_ms, &mut self.store, &mut out);
        }
        (request, out)
    }

    /// Returns the next request.
    fn request(&mut self, kind: M, seid: Option<u64>, ies: &[Ie]) -> Vec<u8> {
        self.sequence += 1;
        emit(kind, seid, self.sequence, ies)
    }

    /// Asks; returns cause and elements of the one answer.
    fn ask(&mut self, kind: M, seid: Option<u64>, ies: &[Ie]) -> (CauseValue, Vec<Ie>) {
        let bytes = self.request(kind, seid, ies);
        answer(&self.raw(&bytes, 20))
    }

    fn establish(&mut self, ies: &[Ie]) -> u64 {
        let (cause, answer) = self.ask(M::SessionEstablishmentRequest, Some(0), ies);
        assert_eq!(cause, CauseValue::RequestAccepted);
        seid_of(&answer)
    }

    /// Reads all sessions of the cluster.
    fn pages(&mut self) -> BTreeMap<u64, (Session, Vec<u8>)> {
        let (mut found, mut from) = (BTreeMap::new(), Some(SessionId(0)));
        while let Some(next) = from {
            self.memory.request(NodeId(0), PAGE, Request::Page { from: next });
            let page = loop {
                self.now_us += BEAT_US;
                let mut heard = Vec::new();
                self.memory.advance(self.now_us, &mut heard);
                let mut pages = heard.into_iter().filter_map(|heard| match heard {
                    Heard::Answer(PAGE, answer) => Some(answer),
                    _ => None,
                });
                if let Some(page) = pages.next() {
                    break page;
                }
            };
            let Answer::Ok(Answered::Page(sessions, then)) = page else { panic!("{page:?}") };
            for (_, context) in &sessions {
                let (session, kept) = unpack(context).expect("a session");
                found.insert(session.id, (session, kept.to_vec()));
            }
            from = then;
        }
        found
    }

    /// Another speaker takes over.
    fn take_over(&mut self) {
        (self.speaker, self.store) = speaker(self.shared.as_deref());
        let now_ms = self.now_us / 1000;
        self.store.at(now_ms);
        for (session, kept) in self.pages().into_values() {
            self.store.learn(session);
            assert!(self.speaker.restore(session, &kept, now_ms));
        }
    }
}

/// Nodes in memory count no packets.
fn counted(mut answer: Answer) -> Answer {
    if let Ok(Answered::Found(found)) = &mut answer {
        found.counts = to_travelled(COUNTS);
    }
    answer
}

fn answer(out: &[Out]) -> (CauseValue, Vec<Ie>) {
    let [Out::Send { bytes, .. }] = out else { panic!("one answer: {out:?}") };
    let ies = parse(bytes).expect("a message").ies.expect("elements");
    let cause = find(&ies, T::Cause).map_or(0, |ie| ie.payload[0]);
    (CauseValue::from(cause), ies)
}

fn seid_of(answer: &[Ie]) -> u64 {
    let ours = Fseid::unmarshal(&find(answer, T::Fseid).expect("F-SEID").payload);
    ours.expect("an F-SEID").seid.0
}

/// A later speaker goes on: association, sessions, and the answer to a request that comes again.
#[test]
fn a_later_speaker_goes_on() {
    let mut site = Site::new();
    let first = site.establish(&usual(choose(), ue_choose()));
    let second = site.establish(&usual(given(0x99), ue(7)));
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    let request = site.request(M::SessionModificationRequest, Some(first), &[update]);
    let given_before = site.raw(&request, 20);
    assert_eq!(answer(&given_before).0, CauseValue::RequestAccepted);
    assert_eq!(site.raw(&request, 1), given_before, "an answer from memory");

    site.take_over();
    assert_eq!(site.speaker.totals().associations, 1);
    assert_eq!(site.raw(&request, 1), given_before, "the answer that was kept");
    let sessions = site.pages();
    assert_eq!((sessions[&first].0.peer_teid, sessions[&first].0.gate), (0x77, Gate::Open));
    // A handover at the new speaker has its End Marker.
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x78), byte(T::PfcpsmReqFlags, 2)]);
    let request = site.request(M::SessionModificationRequest, Some(first), &[update]);
    let out = site.raw(&request, 20);
    assert!(matches!(out[..], [Out::EndMarker { teid: 0x77, .. }, Out::Send { .. }]), "{out:?}");
    // Keys of the other session are known to be its.
    let ies = usual(given(0x99), ue(8));
    let (cause, _) = site.ask(M::SessionEstablishmentRequest, Some(0), &ies);
    assert_eq!(cause, CauseValue::RuleCreationModificationFailure);
    let deletion = site.request(M::SessionDeletionRequest, Some(second), &[]);
    let given_before = site.raw(&deletion, 20);
    assert_eq!(answer(&given_before).0, CauseValue::RequestAccepted);
    assert_eq!(site.pages().into_keys().collect::<Vec<_>>(), [first]);
    assert_eq!(site.raw(&deletion, 1), given_before, "an answer from memory");
    // Nothing is left that would keep it.
    site.take_over();
    assert_eq!(answer(&site.raw(&deletion, 1)).0, CauseValue::SessionContextNotFound);
}

/// A request that comes again while it is carried out has one answer, and makes one session: also
/// if the speaker ends before it has answered.
#[test]
fn a_repeated_establishment_makes_one_session() {
    let mut site = Site::new();
    site.establish(&usual(choose(), ue_choose()));
    let ies = usual(choose(), ue_choose());
    let request = site.request(M::SessionEstablishmentRequest, Some(0), &ies);
    assert_eq!(site.raw(&request, 0), []);
    assert_eq!(site.raw(&request, 0), [], "it is carried out");
    let out = site.advance(20);
    let seid = seid_of(&answer(&out).1);
    assert_eq!(site.pages().len(), 2);

    // Another speaker has not seen the session, which came just after it had looked.
    let shared = site.shared.clone();
    (site.speaker, site.store) = speaker(shared.as_deref());
    let again = site.raw(&request, 20);
    assert_eq!(seid_of(&answer(&again).1), seid);
    assert_eq!(site.pages().len(), 2);
}

/// Requests for one session take turns.
#[test]
fn a_request_waits_for_the_one_before_it() {
    let mut site = Site::new();
    let seid = site.establish(&usual(choose(), ue(3)));
    let updates = [0x77, 0x78].map(|teid| far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(teid)]));
    let mut out = Vec::new();
    for update in updates {
        let request = site.request(M::SessionModificationRequest, Some(seid), &[update]);
        out.extend(site.raw(&request, 0));
    }
    assert_eq!(out, []);
    out = site.advance(40);
    assert_eq!(out.len(), 2);
    assert_eq!(site.pages()[&seid].0.peer_teid, 0x78);
}

/// A control plane that restarts has no session left when its association is accepted, and may use
/// all of them anew but for keys that rest.
#[test]
fn a_restart_removes_all_sessions_first() {
    let mut site = Site::new();
    for last in 1..=20 {
        site.establish(&usual(choose(), ue(last)));
    }
    let stamp = Ie::new(T::RecoveryTimeStamp, 2u32.to_be_bytes().to_vec());
    let request = site.request(M::AssociationSetupRequest, None, &[node(), stamp]);
    let out = site.raw(&request, 40);
    assert_eq!(answer(&out).0, CauseValue::RequestAccepted);
    assert!(site.pages().is_empty());
    assert_eq!(site.speaker.totals().sessions, 0);
}

/// Without a log nothing is answered as done.
#[test]
fn without_a_cluster_requests_are_refused_in_the_end() {
    let mut site = Site::new();
    site.memory.kill(NodeId(1));
    let ies = usual(choose(), ue(3));
    let request = site.request(M::SessionEstablishmentRequest, Some(0), &ies);
    let out = site.raw(&request, 400);
    let (cause, _) = answer(&out);
    // It waits for the lease of the dead node, or for an owner of its partition, and then is done;
    // or the time is over.
    let there = site.pages().len();
    assert_eq!(there, usize::from(cause == CauseValue::RequestAccepted));
}

/// An establishment whose PDRs both name URR 1.
fn with_usage() -> Vec<Ie> {
    let named = [QerId::new(1).to_ie(), UrrId::new(1).to_ie()];
    let mut ies = usual(choose(), ue(3));
    ies[2] = pdr(T::CreatePdr, 1, 1, 1, &[ue(3)], &named);
    ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &named);
    ies[4] = far(T::CreateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    ies.push(urr(1, 1 << 40));
    ies
}

/// The answer to a deletion has the usage of the session.
fn deleted(out: &[Out]) {
    let (cause, answer) = answer(out);
    assert_eq!(cause, CauseValue::RequestAccepted);
    let kind = T::UsageReportWithinSessionDeletionResponse;
    assert_eq!(measured(&answer, kind), (0, vec![1200, 700, 500, 12, 7, 5]));
}

/// A deletion closes the gates, reads the counts, removes the session. Whichever of these has no
/// answer, done or not, the deletion goes on until the session is gone; the one that the control
/// plane asks for next has the usage.
#[test]
fn a_deletion_that_is_refused_goes_on() {
    let delete = M::SessionDeletionRequest;
    for (fails, arrives, waits) in (0..12).map(|n| (n / 4, n & 1 != 0, n & 2 != 0)) {
        let mut site = Site::new();
        let seid = site.establish(&with_usage());
        assert_eq!(site.pages()[&seid].0.gate, Gate::Open);
        let request = site.request(delete, Some(seid), &[]);
        assert_eq!(site.raw(&request, 0), []);
        for at in 0..fails {
            assert_eq!(site.step(true, None).1, [], "step {at}");
        }
        let (_, out) = site.step(arrives, Some(Refusal::Timeout));
        assert_eq!(answer(&out).0, CauseValue::SystemFailure);
        // It is going: it does not change any more.
        let update = qer(T::UpdateQer, 1, 0, [1, 1]);
        let change = site.request(M::SessionModificationRequest, Some(seid), &[update]);
        assert_eq!(answer(&site.raw(&change, 0)).0, CauseValue::SessionContextNotFound);
        if waits {
            assert_eq!(site.advance(60), [], "{fails} {arrives}");
            assert!(site.pages().is_empty(), "{fails} {arrives}");
            assert_eq!(site.speaker.totals().sessions, 0);
        }
        let again = site.request(delete, Some(seid), &[]);
        deleted(&site.raw(&again, 40));
        let last = site.request(delete, Some(seid), &[]);
        assert_eq!(answer(&site.raw(&last, 40)).0, CauseValue::SessionContextNotFound);
        assert!(site.pages().is_empty());
    }
}

/// A deletion that could not begin changes nothing.
#[test]
fn a_deletion_that_has_not_begun_is_none() {
    let mut site = Site::new();
    let seid = site.establish(&with_usage());
    let request = site.request(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!(site.raw(&request, 0), []);
    site.now_us += 10_000_000;
    let (_, out) = site.step(false, Some(Refusal::NoOwner));
    assert_eq!(answer(&out).0, CauseValue::SystemFailure);
    assert_eq!(site.advance(100), []);
    assert_eq!(site.pages()[&seid].0.gate, Gate::Open);
    let again = site.request(M::SessionDeletionRequest, Some(seid), &[]);
    deleted(&site.raw(&again, 40));
}

/// A speaker that ends in the midst of a deletion leaves it to the next one.
#[test]
fn a_later_speaker_goes_on_with_a_deletion() {
    for asks_again in [true, false] {
        let mut site = Site::new();
        let seid = site.establish(&with_usage());
        let request = site.request(M::SessionDeletionRequest, Some(seid), &[]);
        assert_eq!(site.raw(&request, 0), []);
        assert_eq!(site.step(true, None).1, []);
        assert_eq!(site.pages()[&seid].0.gate, Gate::Closed);
        site.take_over();
        if asks_again {
            deleted(&site.raw(&request, 40));
        }
        assert_eq!(site.advance(60), []);
        assert!(site.pages().is_empty());
        assert_eq!(site.speaker.totals().sessions, 0);
    }
}

/// A restart that a heartbeat has shown ends the association of before, not one set up meanwhile.
#[test]
fn a_late_end_leaves_the_next_association() {
    let mut site = Site::new();
    site.establish(&usual(choose(), ue(3)));
    let stamp = || Ie::new(T::RecoveryTimeStamp, 2u32.to_be_bytes().to_vec());
    let heartbeat = site.request(M::HeartbeatRequest, None, &[stamp()]);
    assert_eq!(site.raw(&heartbeat, 0).len(), 1);
    let set_up = site.request(M::AssociationSetupRequest, None, &[node(), stamp()]);
    assert_eq!(site.raw(&set_up, 0), []);
    let removals = [site.store.send(), site.store.send()].map(|asked| asked.expect("a removal").0);
    // The removal for the setup is answered first.
    for (number, answer) in
        [(removals[1], Ok(Answered::Done)), (removals[0], Err(Refusal::Unknown))]
    {
        let (ticket, done) = site.store.answered(number, answer).expect("its end");
        let now_ms = site.now_us / 1000;
        site.speaker.done(ticket, done, now_ms, &mut site.store, &mut Vec::new());
    }
    assert_eq!(answer(&site.advance(20)).0, CauseValue::RequestAccepted);
    assert_eq!(site.speaker.totals().associations, 1);
}
