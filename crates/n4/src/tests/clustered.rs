//! A speaker over a cluster, and the one after it.

use super::*;
use crate::Clustered;
use overbank_cluster::message::{Answer, Answered, Request};
use overbank_cluster::table::Dense;
use overbank_cluster::{Heard, Memory, NodeId, SessionId};
use overbank_gateway::cluster::unpack;
use overbank_gateway::fabric::Seed;
use std::collections::BTreeMap;

const BEAT_US: u64 = 50_000;
const PAGE: u64 = u64::MAX;

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
    let (cause, _) = site.ask(M::SessionDeletionRequest, Some(second), &[]);
    assert_eq!(cause, CauseValue::RequestAccepted);
    assert_eq!(site.pages().into_keys().collect::<Vec<_>>(), [first]);
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
