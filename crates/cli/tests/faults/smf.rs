//! An SMF: sessions by PFCP (N4, 3GPP TS 29.244), at the one address that a node answers at.
//!
//! A request is repeated with its sequence number until it is answered, whichever node does that.
//! What the gateway asks is answered: heartbeats and reports.

use crate::scene::{N4, SMF, address, ask, peer_teid, wait};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PORT: u16 = 8805;
const GNB: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const N3: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Time after which a request is repeated, and given up.
const AGAIN: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Types of requests; that of an answer is one more.
const HEARTBEAT: u8 = 1;
const ASSOCIATION: u8 = 5;
const ESTABLISHMENT: u8 = 50;
const MODIFICATION: u8 = 52;
const DELETION: u8 = 54;
const REPORT: u8 = 56;

const CAUSE: u16 = 19;
const FSEID: u16 = 57;
const ACCEPTED: u8 = 1;
/// The cause of an unknown session, as text.
const NOT_FOUND: &str = "cause Some([65])";

type Waiting = Mutex<HashMap<u32, Sender<Vec<u8>>>>;

/// See the module. Threads may ask at the same time.
#[derive(Clone)]
pub struct Smf {
    socket: Arc<UdpSocket>,
    waiting: Arc<Waiting>,
    sequence: Arc<AtomicU32>,
    /// The gateway's number of each session that is there.
    seids: Arc<Mutex<HashMap<u32, u64>>>,
}

impl Smf {
    /// Sets up an association, in the namespace of the calling thread.
    pub fn start() -> Smf {
        let socket = Arc::new(UdpSocket::bind((SMF, PORT)).expect("a free port"));
        let smf = Smf {
            socket: socket.clone(),
            waiting: Arc::default(),
            sequence: Arc::default(),
            seids: Arc::default(),
        };
        let waiting = smf.waiting.clone();
        // It ends with the process.
        std::thread::spawn(move || listen(&socket, &waiting));
        wait("an association", || smf.ask(ASSOCIATION, None, &[node(), stamp()]).is_ok());
        smf
    }

    /// Establishes a session with the same tunnel and address as one of the control socket.
    pub fn establish(&self, number: u32) -> Result<(), String> {
        let fteid = [&[1][..], &number.to_be_bytes(), &N3.octets()].concat();
        let terminal = [&[2][..], &address(number).octets()].concat();
        let answer = self.ask(
            ESTABLISHMENT,
            Some(0),
            &[
                node(),
                element(
                    FSEID,
                    &[&[2][..], &u64::from(number).to_be_bytes(), &SMF.octets()].concat(),
                ),
                pdr(1, 1, element(93, &terminal), &[]),
                pdr(2, 0, element(21, &fteid), &element(95, &[0])),
                far(3, 1, 4, 0, &tunnel(number, 0)),
                far(3, 2, 4, 1, &[]),
                element(113, &[1]),
            ],
        )?;
        let seid = find(&answer, FSEID).and_then(|fseid| fseid.get(1..9)?.try_into().ok());
        let seid = u64::from_be_bytes(seid.ok_or("an answer without an F-SEID")?);
        self.seids.lock().expect("whole").insert(number, seid);
        Ok(())
    }

    /// Changes the tunnel of a session for the `round`th time.
    pub fn change(&self, number: u32, round: u32) -> Result<(), String> {
        let update = far(10, 1, 11, 0, &tunnel(number, round));
        self.ask(MODIFICATION, Some(self.seid(number)?), &[update]).map(drop)
    }

    /// Deletes a session.
    pub fn delete(&self, number: u32) -> Result<(), String> {
        self.ask(DELETION, Some(self.seid(number)?), &[]).map(drop)
    }

    /// Deletes a session that the node with this control socket may know; returns whether it did.
    ///
    /// # Errors
    /// The node and N4 disagree, or there is no answer.
    pub fn remove(&self, control: &Path, number: u32) -> Result<bool, String> {
        let path = format!("/sessions/{}", self.seid(number)?);
        let known = ask(control, "GET", &path, "")?.0 == 200;
        match self.delete(number) {
            Ok(()) if known => Ok(true),
            Err(refused) if !known && refused.contains(NOT_FOUND) => Ok(false),
            other => Err(format!("known: {known}, deleted: {other:?}")),
        }
    }

    /// Returns the gateway's number of a session.
    fn seid(&self, number: u32) -> Result<u64, String> {
        let seids = self.seids.lock().expect("whole");
        seids.get(&number).copied().ok_or_else(|| format!("session {number} is not established"))
    }

    /// Asks until there is an answer; returns its elements if it accepts.
    fn ask(&self, kind: u8, seid: Option<u64>, elements: &[Vec<u8>]) -> Result<Vec<u8>, String> {
        let sequence = self.sequence.fetch_add(1, Relaxed) + 1;
        let request = message(kind, seid, sequence, &elements.concat());
        let (send, receive) = channel();
        self.waiting.lock().expect("whole").insert(sequence, send);
        let begun = Instant::now();
        let answer = loop {
            // The address may be unreachable for a moment.
            let _ = self.socket.send_to(&request, (N4, PORT));
            match receive.recv_timeout(AGAIN) {
                Ok(answer) => break Some(answer),
                Err(_) if begun.elapsed() > ANSWER_MAX => break None,
                Err(_) => {}
            }
        };
        self.waiting.lock().expect("whole").remove(&sequence);
        let (of, answer) = parsed(&answer.ok_or("no answer")?).ok_or("an answer cut short")?;
        match find(&answer, CAUSE) {
            Some(&[ACCEPTED]) if of.kind == kind + 1 => Ok(answer),
            cause => Err(format!("answer {} to {kind}, cause {cause:?}", of.kind)),
        }
    }
}

struct Head {
    kind: u8,
    sequence: u32,
}

/// Returns a message's head and its elements.
fn parsed(bytes: &[u8]) -> Option<(Head, Vec<u8>)> {
    let at = if bytes.first()? & 1 == 1 { 12 } else { 4 };
    let sequence = bytes.get(at..at + 3)?;
    let sequence = sequence.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    Some((Head { kind: bytes[1], sequence }, bytes.get(at + 4..)?.to_vec()))
}

fn listen(socket: &UdpSocket, waiting: &Waiting) {
    let mut room = [0; 4096];
    loop {
        // An error says that an earlier datagram did not arrive.
        let Ok((len, from)) = socket.recv_from(&mut room) else { continue };
        let Some((head, _)) = parsed(&room[..len]) else { continue };
        match head.kind {
            HEARTBEAT => answer(socket, from, message(2, None, head.sequence, &stamp())),
            REPORT => {
                let accepted = element(CAUSE, &[ACCEPTED]);
                answer(socket, from, message(REPORT + 1, Some(0), head.sequence, &accepted));
            }
            _ => {
                if let Some(asked) = waiting.lock().expect("whole").get(&head.sequence) {
                    let _ = asked.send(room[..len].to_vec());
                }
            }
        }
    }
}

fn answer(socket: &UdpSocket, to: SocketAddr, bytes: Vec<u8>) {
    let _ = socket.send_to(&bytes, to);
}

fn message(kind: u8, seid: Option<u64>, sequence: u32, elements: &[u8]) -> Vec<u8> {
    let seid = seid.map(u64::to_be_bytes);
    let rest =
        [seid.as_ref().map_or(&[][..], |seid| &seid[..]), &(sequence << 8).to_be_bytes(), elements]
            .concat();
    let mut bytes = vec![0x20 | u8::from(seid.is_some()), kind];
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend(rest);
    bytes
}

fn element(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

/// Returns the first element of a kind.
fn find(mut elements: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (head, rest) = elements.split_at_checked(4)?;
        let (payload, after) =
            rest.split_at_checked(u16::from_be_bytes([head[2], head[3]]).into())?;
        if head[..2] == kind.to_be_bytes() {
            return Some(payload);
        }
        elements = after;
    }
}

fn node() -> Vec<u8> {
    element(60, &[&[0][..], &SMF.octets()].concat())
}

fn stamp() -> Vec<u8> {
    element(96, &[0xe1, 2, 3, 4])
}

/// A PDR for packets from a side (0: access, 1: core), with the FAR of its number.
fn pdr(id: u16, side: u8, more: Vec<u8>, last: &[u8]) -> Vec<u8> {
    let pdi = [element(20, &[side]), more].concat();
    let parts = [
        element(56, &id.to_be_bytes()),
        element(29, &100u32.to_be_bytes()),
        element(2, &pdi),
        element(108, &u32::from(id).to_be_bytes()),
        last.to_vec(),
    ];
    element(1, &parts.concat())
}

/// A FAR that forwards to a side: of the kind that creates or updates one, with its parameters.
fn far(kind: u16, id: u32, parameters: u16, side: u8, more: &[u8]) -> Vec<u8> {
    let to = [&element(42, &[side])[..], more].concat();
    let parts = [element(108, &id.to_be_bytes()), element(44, &[2]), element(parameters, &to)];
    element(kind, &parts.concat())
}

/// A tunnel to the base station.
fn tunnel(number: u32, round: u32) -> Vec<u8> {
    let teid = peer_teid(number, round).to_be_bytes();
    element(84, &[&[1, 0][..], &teid, &GNB.octets()].concat())
}
