//! Any bytes, and requests whose elements are changed here and there, as what control planes send
//! to a gateway. A request has one answer, a repeated one the same bytes, and a refused one changes
//! nothing. The speaker knows the sessions of the store, and no others.
//!
//! Input: steps. What (1 byte), sender and session (1), what the request is made of. If the
//! first bit is set, changes: their number (1), and for each which element, how, and a byte.
#![no_main]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use overbank_gateway::prefix::{Prefix, Prefixes};
use overbank_gateway::session::{Prefix64, Session};
use overbank_gateway::sessions::{Addresses, SessionReader, Sessions};
use overbank_gateway::slab::Direction;
use overbank_gateway::teid::TeidCheck;
use overbank_n4::{Alone, Out, Settings, Speaker};

/// Addresses of control planes, and their Node IDs.
const PEERS: [[u8; 4]; 2] = [[10, 0, 0, 8], [10, 0, 0, 9]];
const N3: [u8; 4] = [192, 0, 2, 1];
const GNB: [u8; 4] = [198, 51, 100, 7];
/// Few, so that the limit is met.
const SESSIONS_MAX: usize = 6;
const STEPS_MAX: usize = 32;
/// Time for which answers are kept.
const ANSWERS_MS: u64 = 30_000;

/// Types of messages; an answer's is the next one.
const HEARTBEAT: u8 = 1;
const SETUP: u8 = 5;
const RELEASE: u8 = 9;
const VERSION: u8 = 11;
const ESTABLISHMENT: u8 = 50;
const MODIFICATION: u8 = 52;
const DELETION: u8 = 54;
const REPORT: u8 = 56;
const REQUESTS: [u8; 9] =
    [HEARTBEAT, 3, SETUP, 7, RELEASE, 14, ESTABLISHMENT, MODIFICATION, DELETION];

const ACCEPTED: u8 = 1;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data.iter());
    let mut scene = Scene::new();
    for _ in 0..STEPS_MAX {
        let Some(&what) = input.0.next() else { break };
        scene.step(what, &mut input);
    }
    scene.end();
});

struct Input<'a>(std::slice::Iter<'a, u8>);

impl Input<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }
}

/// An element: bytes, or parts.
#[derive(Clone)]
struct Ie {
    kind: u16,
    bytes: Vec<u8>,
    parts: Vec<Ie>,
}

fn ie(kind: u16, bytes: &[&[u8]]) -> Ie {
    Ie { kind, bytes: bytes.concat(), parts: Vec::new() }
}

fn group(kind: u16, parts: Vec<Ie>) -> Ie {
    Ie { kind, bytes: Vec::new(), parts }
}

fn written(ies: &[Ie]) -> Vec<u8> {
    let mut all = Vec::new();
    for ie in ies {
        let payload = [&ie.bytes[..], &written(&ie.parts)].concat();
        all.extend(ie.kind.to_be_bytes());
        all.extend((payload.len() as u16).to_be_bytes());
        all.extend(payload);
    }
    all
}

/// Splits whole elements.
fn read(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut ies = Vec::new();
    while let [a, b, c, d, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        let (payload, rest) = rest.split_at_checked(len).expect("a whole element");
        ies.push((u16::from_be_bytes([*a, *b]), payload));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a part of an element");
    ies
}

/// Changes the element of a place, counted through all groups.
fn change(ies: &mut Vec<Ie>, left: &mut usize, how: u8, byte: u8) {
    let mut at = 0;
    while at < ies.len() {
        if *left > 0 {
            *left -= 1;
            change(&mut ies[at].parts, left, how, byte);
            at += 1;
            continue;
        }
        *left = usize::MAX;
        let ie = &mut ies[at];
        match how % 6 {
            0 => drop(ies.remove(at)),
            1 => *ie = Ie { kind: ie.kind, bytes: Vec::new(), parts: Vec::new() },
            2 => {
                let twice = ie.clone();
                ies.insert(at, twice);
            }
            3 => ie.kind = u16::from(byte) | u16::from(how & 0x80) << 8,
            4 => ie.bytes.iter_mut().take(1).for_each(|first| *first ^= byte),
            _ => ie.bytes.push(byte),
        }
        return;
    }
}

fn node(n: u8) -> Ie {
    ie(60, &[&[0], &PEERS[usize::from(n % 2)]])
}

fn stamp(n: u8) -> Ie {
    ie(96, &[&[0, 0, 0, n % 2]])
}

fn fseid(peer: usize, n: u8) -> Ie {
    ie(57, &[&[2, 0, 0, 0, 0, 0, 0, 0, n], &PEERS[peer]])
}

/// The tunnel of an uplink PDR: chosen, given, or of another machine.
fn tunnel(n: u8) -> Ie {
    match n % 8 {
        0..3 => ie(21, &[&[5]]),
        3 => ie(21, &[&[6]]),
        4 => ie(21, &[&[4]]),
        7 => ie(21, &[&[1, 0, 0, 0, 1, 192, 0, 2, 9]]),
        _ => ie(21, &[&[1, 0, 0, 0, n >> 3 & 3], &N3]),
    }
}

/// The address of a terminal: chosen, given, or outside the pools.
fn ue(n: u8) -> Ie {
    match n % 8 {
        0 => ie(93, &[&[0x10]]),
        1 => ie(93, &[&[0x20]]),
        2 => ie(93, &[&[0x30]]),
        7 => ie(93, &[&[2, 10, 99, 0, 1]]),
        _ => ie(93, &[&[2, 10, 45, 0, 1 + (n >> 3 & 3)]]),
    }
}

/// Number of a URR: one of two.
fn urr_id(n: u8) -> Ie {
    let id: u32 = if n.is_multiple_of(2) { 4 } else { 65_535 };
    ie(81, &[&id.to_be_bytes()])
}

fn urr(n: u8) -> Ie {
    let threshold = ie(31, &[&[1, 0, 0, 0, 0, 0, 0, 4, 0]]);
    group(6, vec![urr_id(n), ie(62, &[&[2]]), ie(37, &[&[2, 0, 0]]), threshold])
}

fn pdr(kind: u16, id: u8, side: u8, pdi: Vec<Ie>, more: Vec<Ie>) -> Ie {
    let pdi = [vec![ie(20, &[&[side]])], pdi].concat();
    let parts = vec![
        ie(56, &[&[0, id]]),
        ie(29, &[&[0, 0, 0, 100]]),
        group(2, pdi),
        ie(108, &[&[0, 0, 0, id]]),
        ie(109, &[&[0, 0, 0, 1]]),
    ];
    group(kind, [parts, more].concat())
}

/// A FAR that sends to the gNB.
fn to_gnb(kind: u16, n: u8) -> Ie {
    let outer = ie(84, &[&[1, 0, 0, 0, 0, n & 3], &GNB]);
    let parameters = if kind == 3 { 4 } else { 11 };
    let marker = ie(49, &[&[n >> 2 & 2]]);
    let parts = vec![ie(42, &[&[0]]), outer, marker];
    group(kind, vec![ie(108, &[&[0, 0, 0, 1]]), ie(44, &[&[2]]), group(parameters, parts)])
}

fn qer(kind: u16, n: u8) -> Ie {
    let mbr = ie(26, &[&[0, 0, 0, 0, n, 0, 0, 0, 0, 100]]);
    group(kind, vec![ie(109, &[&[0, 0, 0, 1]]), ie(25, &[&[n & 5]]), mbr, ie(124, &[&[9]])])
}

fn establishment(peer: usize, input: &mut Input<'_>) -> Vec<Ie> {
    let [fteid, address, n] = [input.next(), input.next(), input.next()];
    let forward = group(4, vec![ie(42, &[&[1]])]);
    let buffer = vec![ie(108, &[&[0, 0, 0, 1]]), ie(44, &[&[4]])];
    let mut up = vec![tunnel(fteid)];
    up.extend((n & 0x40 != 0).then(|| ue(address >> 3)));
    let mut ies = vec![
        node(if n & 1 == 0 { peer as u8 } else { n >> 1 }),
        fseid(peer, n),
        pdr(1, 1, 1, vec![ue(address)], Vec::new()),
        pdr(1, 2, 0, up, vec![ie(95, &[&[0]])]),
        if n & 4 == 0 { group(3, buffer) } else { to_gnb(3, n >> 3) },
        group(3, vec![ie(108, &[&[0, 0, 0, 2]]), ie(44, &[&[2]]), forward]),
        qer(7, 8),
    ];
    ies.extend((n & 8 != 0).then(|| urr(n >> 4)));
    ies
}

fn modification(peer: usize, input: &mut Input<'_>) -> Vec<Ie> {
    let [which, n] = [input.next(), input.next()];
    let makes: [&dyn Fn() -> Ie; 8] = [
        &|| to_gnb(10, n),
        &|| pdr(9, 2, 0, vec![tunnel(n)], Vec::new()),
        &|| pdr(9, 1, 1, vec![ue(n)], Vec::new()),
        &|| qer(14, n),
        &|| urr(n),
        &|| group(if n & 2 == 0 { 77 } else { 17 }, vec![urr_id(n)]),
        &|| fseid(peer, n),
        &|| group(15, vec![ie(56, &[&[0, 1 + (n & 1)]])]),
    ];
    let chosen = (0..8).filter(|bit| which >> bit & 1 != 0);
    chosen.map(|bit| makes[bit]()).collect()
}

fn message(kind: u8, seid: Option<u64>, sequence: u32, ies: &[Ie]) -> Vec<u8> {
    let mut rest = seid.map_or(Vec::new(), |seid| seid.to_be_bytes().to_vec());
    rest.extend((sequence << 8).to_be_bytes());
    rest.extend(written(ies));
    let [a, b] = (rest.len() as u16).to_be_bytes();
    [&[0x20 | u8::from(seid.is_some()), kind, a, b], &rest[..]].concat()
}

/// What a header says.
struct Head {
    version: u8,
    kind: u8,
    sequence: u32,
    /// Where elements begin, if they are all there.
    start: Option<usize>,
}

fn head(bytes: &[u8]) -> Option<Head> {
    let start = if bytes.first()? & 1 == 1 { 16 } else { 8 };
    let sequence = bytes.get(start - 4..start - 1)?;
    let sequence = u32::from_be_bytes([0, sequence[0], sequence[1], sequence[2]]);
    bytes.get(start - 1)?;
    let end = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let start = Some(start).filter(|start| (*start..=bytes.len()).contains(&end));
    Some(Head { version: bytes[0] >> 5, kind: bytes[1], sequence, start })
}

/// A request that was answered.
struct Given {
    request: Vec<u8>,
    answer: Vec<u8>,
    until_ms: u64,
}

struct Scene {
    speaker: Speaker,
    sessions: Sessions,
    reader: SessionReader,
    now_ms: u64,
    sequence: u32,
    /// SEIDs that were given, of sessions that may be gone.
    seids: Vec<u64>,
    /// The naive twin of what the speaker remembers, by peer, type and sequence number.
    given: HashMap<(SocketAddr, u8, u32), Given>,
    /// Where the last report went, and its sequence number.
    reported: Option<(SocketAddr, u32)>,
}

fn peer(n: usize) -> SocketAddr {
    (PEERS[n], 8805).into()
}

impl Scene {
    fn new() -> Scene {
        let pools =
            ["10.45.0.0/29", "2001:db8:45::/62"].map(|text| Prefix::parse(text).expect("a prefix"));
        let n3 = [N3.into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()];
        let teids = TeidCheck::new(None, &n3);
        let addresses = Addresses { n3: n3.into(), pools: pools.into_iter().collect(), teids };
        let (sessions, mut readers) = Sessions::new(SESSIONS_MAX, addresses, 1, 7).expect("small");
        let settings = Settings {
            node: [10, 0, 0, 5].into(),
            started_s: 77,
            peers: Prefixes::default(),
            seed: 3,
        };
        Scene {
            speaker: Speaker::new(settings, None),
            sessions,
            reader: readers.remove(0),
            now_ms: 1_000,
            sequence: 0,
            seids: Vec::new(),
            given: HashMap::new(),
            reported: None,
        }
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let chosen = input.next();
        let from = usize::from(chosen & 1);
        let seid = self.seids.get(usize::from(chosen >> 4) % self.seids.len().max(1));
        let known = seid.copied().unwrap_or(1);
        let (kind, seid, mut ies) = match what % 16 {
            0 | 1 => {
                let retained = (chosen & 8 != 0).then(|| ie(183, &[&[1]]));
                let ies = [node(chosen >> 1 & 1 ^ chosen), stamp(chosen >> 2)]
                    .into_iter()
                    .chain(retained);
                (SETUP, None, ies.collect())
            }
            2 => (HEARTBEAT, None, vec![stamp(chosen >> 2)]),
            3 => (if chosen & 8 == 0 { 7 } else { RELEASE }, None, vec![node(chosen >> 1)]),
            4..8 => (ESTABLISHMENT, Some(0), establishment(from, input)),
            8..11 => (MODIFICATION, Some(known), modification(from, input)),
            11 => (DELETION, Some(known), Vec::new()),
            12 => return self.pass(chosen, input.next()),
            13 => return self.answer_report(chosen),
            14 => return self.repeat(usize::from(input.next())),
            _ => {
                let len = usize::from(input.next());
                let mut bytes: Vec<u8> = (0..len).map(|_| input.next()).collect();
                if let (true, Some(of)) = (chosen & 2 != 0, bytes.get_mut(4..12)) {
                    of.copy_from_slice(&known.to_be_bytes());
                }
                self.receive(&bytes, peer(from));
                return;
            }
        };
        if what & 0x80 != 0 {
            for _ in 0..1 + input.next() % 3 {
                let [at, how, byte] = [input.next(), input.next(), input.next()];
                change(&mut ies, &mut usize::from(at), how, byte);
            }
        }
        self.request(kind, seid, peer(from), &ies);
    }

    /// Sends a request; returns its cause.
    fn request(&mut self, kind: u8, seid: Option<u64>, from: SocketAddr, ies: &[Ie]) -> Option<u8> {
        self.sequence += 1;
        let bytes = message(kind, seid, self.sequence, ies);
        let answer = self.receive(&bytes, from).expect("an answer");
        // The same again.
        assert_eq!(self.receive(&bytes, from), Some(answer.clone()));
        cause(&answer)
    }

    /// Takes a datagram; returns the answer.
    fn receive(&mut self, bytes: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        let before = self.listed();
        let mut out = Vec::new();
        let mut store = Alone { sessions: &mut self.sessions, now_ms: self.now_ms };
        self.speaker.receive(bytes, from, self.now_ms, &mut store, &mut out);
        let after = self.listed();
        let markers = out.iter().filter(|out| matches!(out, Out::EndMarker { .. })).count();
        let mut sent = out.into_iter().filter_map(|out| match out {
            Out::Send { to, bytes } => Some((to, bytes)),
            Out::EndMarker { .. } => None,
        });
        let (answer, none) = (sent.next(), sent.next());
        assert_eq!(none, None, "a second answer");
        let answer = answer.map(|(to, answer)| {
            assert_eq!(to, from);
            answer
        });
        let head = head(bytes);
        let expected = match &head {
            Some(head) if head.version != 1 => Some(VERSION),
            Some(Head { kind, start: Some(_), .. }) if REQUESTS.contains(kind) => Some(kind + 1),
            _ => None,
        };
        assert_eq!(answer.as_ref().map(|answer| answer[1]), expected, "{bytes:x?}");
        let (Some(head), Some(answer)) = (head, &answer) else {
            // The answer to a report may end its session.
            assert!(before == after || bytes.get(1) == Some(&(REPORT + 1)));
            return answer;
        };
        self.check(answer, head.sequence);
        let key = (from, head.kind, head.sequence);
        let known =
            self.given.get(&key).filter(|of| of.request == bytes && self.now_ms < of.until_ms);
        match (expected, known) {
            (Some(VERSION), _) => assert!(before == after),
            (_, Some(known)) => {
                assert_eq!((answer, markers), (&known.answer, 0));
                assert!(before == after, "a repeated request changes something");
            }
            (_, None) => {
                self.compare(head.kind, answer, &before, &after, markers);
                let until_ms = self.now_ms + ANSWERS_MS;
                let given = Given { request: bytes.to_vec(), answer: answer.clone(), until_ms };
                if head.kind != HEARTBEAT {
                    self.given.insert(key, given);
                }
            }
        }
        Some(answer.clone())
    }

    /// An answer is a whole message.
    fn check(&self, answer: &[u8], sequence: u32) {
        let head = head(answer).expect("a header");
        assert_eq!((head.version, head.sequence), (1, sequence));
        let len = usize::from(u16::from_be_bytes([answer[2], answer[3]]));
        assert_eq!(len + 4, answer.len());
        let ies = read(&answer[head.start.expect("whole")..]);
        let cause = ies.iter().find(|(kind, _)| *kind == 19);
        assert_eq!(cause.is_some(), ![HEARTBEAT + 1, VERSION].contains(&head.kind));
    }

    /// What a request has done to the sessions, by its answer.
    fn compare(
        &mut self,
        kind: u8,
        answer: &[u8],
        before: &[Session],
        after: &[Session],
        markers: usize,
    ) {
        let accepted = cause(answer) == Some(ACCEPTED);
        assert!(markers == 0 || (markers, kind, accepted) == (1, MODIFICATION, true));
        let gone = before.iter().filter(|session| !after.contains(session)).count();
        let new: Vec<&Session> = after.iter().filter(|session| !before.contains(session)).collect();
        match kind {
            ESTABLISHMENT if accepted => {
                let [session] = new[..] else { panic!("{new:?}") };
                assert_eq!((gone, before.len() + 1), (0, after.len()));
                let ies = read(&answer[16..]);
                let seid = ies.iter().find(|(kind, _)| *kind == 57).expect("an F-SEID").1;
                assert_eq!(seid[1..9], session.id.to_be_bytes());
                self.seids.push(session.id);
                created(&ies, session);
            }
            MODIFICATION if accepted => {
                assert_eq!((gone, before.len()), (new.len(), after.len()));
                assert!(gone <= 1);
                if let [session] = new[..] {
                    created(&read(&answer[16..]), session);
                }
            }
            DELETION if accepted => assert_eq!((gone, new.len()), (1, 0)),
            HEARTBEAT => assert_eq!(new.len(), 0),
            SETUP | RELEASE if accepted => assert_eq!(new.len(), 0),
            _ => assert!(before == after, "a refused request changes something"),
        }
    }

    /// Repeats an earlier request.
    fn repeat(&mut self, which: usize) {
        let mut all: Vec<_> =
            self.given.iter().map(|(key, of)| (*key, of.request.clone())).collect();
        all.sort_unstable();
        if let Some(((from, ..), bytes)) = all.get(which % all.len().max(1)) {
            self.receive(bytes, *from);
        }
    }

    /// Time passes, with packets.
    fn pass(&mut self, chosen: u8, n: u8) {
        self.now_ms += [1, 3_000, 29_999, 60_000][usize::from(n & 3)];
        self.reader.tally().passed(u32::from(n >> 2 & 7), Direction::Up, usize::from(n) << 4);
        self.sessions.tick(self.now_ms);
        let mut out = Vec::new();
        let mut store = Alone { sessions: &mut self.sessions, now_ms: self.now_ms };
        self.speaker.tick(self.now_ms, &mut store, &mut out);
        self.speaker.error_indication(
            GNB.into(),
            u32::from(chosen >> 4 & 3),
            self.now_ms,
            &mut out,
        );
        for out in out {
            let Out::Send { to, bytes } = out else { panic!("{out:?}") };
            let head = head(&bytes).expect("a header");
            // It asks its peers whether they are there, too; none answers here.
            if head.kind == HEARTBEAT {
                continue;
            }
            assert_eq!(head.kind, REPORT);
            read(&bytes[head.start.expect("whole")..]);
            self.reported = Some((to, head.sequence));
        }
        self.listed();
    }

    /// Answers the last report: it is taken, or its session is unknown.
    fn answer_report(&mut self, chosen: u8) {
        let Some((from, sequence)) = self.reported else { return };
        let cause = ie(19, &[&[if chosen & 1 == 0 { ACCEPTED } else { 65 }]]);
        self.receive(&message(REPORT + 1, Some(0), sequence, &[cause]), from);
    }

    /// Returns the sessions of the store, which the speaker knows, too.
    fn listed(&self) -> Vec<Session> {
        let mut all: Vec<Session> = self.sessions.iter().map(|listed| listed.session).collect();
        all.sort_unstable_by_key(|session| session.id);
        let totals = self.speaker.totals();
        assert_eq!(totals.sessions, all.len() as u64);
        assert!(all.len() <= SESSIONS_MAX);
        assert!(totals.buffering <= totals.sessions && (all.is_empty() || totals.associations > 0));
        for session in &all {
            assert_eq!(session.check(), Ok(()));
            assert!(session.keys().all(|key| self.sessions.owner_of(key) == Some(session.id)));
        }
        all
    }

    /// Each session of the store can be deleted by a control plane, and nothing stays.
    fn end(&mut self) {
        for session in self.listed() {
            let mut deleted =
                (0..PEERS.len()).map(|n| self.request(DELETION, Some(session.id), peer(n), &[]));
            assert!(deleted.any(|cause| cause == Some(ACCEPTED)), "{session:?}");
        }
        let totals = self.speaker.totals();
        assert_eq!((self.sessions.len(), totals.sessions, totals.buffering), (0, 0, 0));
    }
}

fn cause(answer: &[u8]) -> Option<u8> {
    let start = head(answer)?.start?;
    read(&answer[start..]).iter().find(|(kind, _)| *kind == 19).map(|(_, cause)| cause[0])
}

/// What an answer says was chosen is the session's.
fn created(ies: &[(u16, &[u8])], session: &Session) {
    for (_, created) in ies.iter().filter(|(kind, _)| *kind == 8) {
        for (kind, payload) in read(created) {
            let address = |at: usize| -> Ipv4Addr {
                <[u8; 4]>::try_from(&payload[at..at + 4]).expect("four bytes").into()
            };
            match kind {
                21 => assert_eq!(payload[1..5], session.teid.to_be_bytes()),
                93 if payload[0] & 2 != 0 => assert_eq!(Some(address(1)), session.ipv4),
                93 => {
                    let prefix = <[u8; 8]>::try_from(&payload[1..9]).expect("eight bytes");
                    assert_eq!(Some(Prefix64(u64::from_be_bytes(prefix))), session.ipv6);
                }
                _ => {}
            }
        }
    }
}
