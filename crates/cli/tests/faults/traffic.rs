//! Packets of all sessions, in both directions, at each node that takes packets; and what became of
//! each.
//!
//! A packet carries its number and its session. It is lost if it has not left within
//! [`LATE`]. It has to leave once, as its session's, in a tunnel that the session may have had when
//! it was sent, or later. While sessions keep their places, a node that another has followed may
//! handle no packet of that session any more.
//!
//! Packets of a session that is not there come in as well, and may leave nowhere.

use crate::scene::{NODES, address, mac, peer_teid};
use overbank_ports::afpacket::{self, AfPacketOptions, AfPacketPort};
use overbank_ports::queue::{Port, Queue};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two packets.
const EVERY: Duration = Duration::from_micros(500);
/// Time after which a packet is lost.
const LATE: Duration = Duration::from_secs(1);
/// Packets of a session that leave by two nodes in this time may have overtaken each other.
const ORDER: Duration = Duration::from_millis(100);
/// Time in which every packet that is under way has left.
const REST: Duration = Duration::from_millis(300);
/// Findings that are kept.
const WRONG_MAX: usize = 20;
/// A session that is not there, and how many packets of others there are to one of it.
const STRAY: u32 = 0xfffe;
const STRAY_EVERY: usize = 16;
const MAGIC: [u8; 8] = *b"overbank";

/// Packets with their session and number.
#[derive(Clone)]
pub struct Traffic {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What was sent, and what became of it, since the case began.
#[derive(Default)]
pub struct Seen {
    pub sent: u64,
    /// When packets were sent that are lost.
    pub lost: Vec<Instant>,
    /// What must not be.
    pub wrong: Vec<String>,
    sessions: Vec<u32>,
    avoided: HashSet<usize>,
    paused: bool,
    keeps_places: bool,
    /// The nodes that have handled a session, each since when.
    places: HashMap<u32, Vec<(usize, Instant)>>,
    /// When the last packet was sent that has left, by session, node and direction.
    passed: HashMap<Path, Instant>,
    changes: HashMap<u32, Changes>,
}

/// The changes of a session's tunnel, by number.
#[derive(Clone, Default)]
struct Changes {
    /// The last one that was answered, and that was asked for.
    answered: u32,
    asked: u32,
    /// Those that were not answered: each may happen at any time, or never.
    open: HashSet<u32>,
}

impl Changes {
    /// Whether a packet may leave in the tunnel after this change that was sent when the change
    /// `since` was answered.
    fn may_be(&self, change: u32, since: u32) -> bool {
        change >= since && change <= self.asked || self.open.contains(&change)
    }
}

/// Session, node that it comes in by, and whether it comes by N3.
type Path = (u32, usize, bool);

/// See [`Traffic::pause`].
pub struct Pause<'a>(&'a Traffic);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.seen().paused = false;
    }
}

/// A packet on its way.
struct Sent {
    path: Path,
    at: Instant,
    /// The last change of its session's tunnel that was answered.
    change: u32,
    left: bool,
}

impl Traffic {
    /// Starts, in the namespace of the calling thread.
    pub fn start() -> Traffic {
        let port = |name: String| {
            let options = AfPacketOptions { ring_mib: 1, ..AfPacketOptions::default() };
            afpacket::open(&name, &options, 1).unwrap_or_else(|error| panic!("{error}"))
        };
        let ports = ["n3", "n6"].map(|role| {
            (0..NODES).map(|node| port(format!("b{node}{role}"))).collect::<Vec<AfPacketPort>>()
        });
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), Arc::default());
        let traffic = Traffic { seen, stop, thread: Arc::default() };
        let own = traffic.clone();
        let thread = std::thread::spawn(move || own.run(ports));
        *traffic.thread.lock().expect("whole") = Some(thread);
        traffic
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("whole")
    }

    /// Sends packets of a session from now on.
    pub fn add(&self, session: u32) {
        self.seen().sessions.push(session);
    }

    /// Sends no packets of a session any more; returns whether it did.
    pub fn remove(&self, session: u32) -> bool {
        let mut seen = self.seen();
        let at = seen.sessions.iter().rposition(|known| *known == session);
        at.map(|at| seen.sessions.swap_remove(at)).is_some()
    }

    /// A session's tunnel is to be changed; returns the number of the change.
    pub fn change(&self, session: u32) -> u32 {
        let mut seen = self.seen();
        let changes = seen.changes.entry(session).or_default();
        changes.asked += 1;
        let asked = changes.asked;
        changes.open.insert(asked);
        asked
    }

    /// That was answered.
    pub fn changed(&self, session: u32, change: u32) {
        let mut seen = self.seen();
        let changes = seen.changes.entry(session).or_default();
        changes.open.remove(&change);
        changes.answered = change;
    }

    /// Sends nothing by a node.
    pub fn avoid(&self, node: usize) {
        self.seen().avoided.insert(node);
    }

    /// Sends by all nodes again.
    pub fn avoid_none(&self) {
        self.seen().avoided.clear();
    }

    /// Lets all that is under way come to its end; nothing is sent until the guard is dropped.
    pub fn pause(&self) -> Pause<'_> {
        self.seen().paused = true;
        std::thread::sleep(REST);
        Pause(self)
    }

    /// Whether nothing is sent by a node.
    pub fn avoids(&self, node: usize) -> bool {
        self.seen().avoided.contains(&node)
    }

    /// A case begins.
    pub fn begin(&self, keeps_places: bool) {
        let mut seen = self.seen();
        (seen.sent, seen.keeps_places) = (0, keeps_places);
        seen.places.clear();
        seen.lost.clear();
    }

    /// A case ends, all that was sent in it being settled.
    pub fn end(&self) -> Seen {
        std::thread::sleep(LATE);
        let mut seen = self.seen();
        Seen {
            sent: seen.sent,
            lost: std::mem::take(&mut seen.lost),
            wrong: std::mem::take(&mut seen.wrong),
            ..Seen::default()
        }
    }

    /// Time in which each path has a packet, and it has left or is lost.
    pub fn round(&self) -> Duration {
        EVERY * (2 * NODES * (self.seen().sessions.len() + 1)) as u32 * 2 + LATE
    }

    /// Returns the paths by which no packet has passed that was sent since then.
    pub fn missing_since(&self, then: Instant) -> Vec<Path> {
        let seen = self.seen();
        let paths = seen.sessions.iter().flat_map(|&session| {
            (0..NODES).flat_map(move |node| [true, false].map(|up| (session, node, up)))
        });
        paths.filter(|path| seen.passed.get(path).is_none_or(|sent| *sent < then)).collect()
    }

    /// Ends; panics if it has panicked.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().expect("whole").take();
        thread.expect("started").join().expect("the traffic ends well");
    }

    fn run(&self, mut ports: [Vec<AfPacketPort>; 2]) {
        let mut queues = ports.each_mut().map(|ports| {
            let of = |port: &mut AfPacketPort| port.take_queues().remove(0);
            ports.iter_mut().map(of).collect::<Vec<Queue>>()
        });
        let mut under_way = VecDeque::<Sent>::new();
        // Number of the first packet under way, and of the next path.
        let (mut first, mut nth) = (0u64, 0usize);
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < next {
                std::thread::sleep(next - now);
            }
            next = (next + EVERY).max(now.checked_sub(LATE / 10).unwrap_or(now));
            let mut seen = self.seen();
            if let Some(path) = seen.path(&mut nth) {
                let (session, node, up) = path;
                let number = first + under_way.len() as u64;
                let role = usize::from(!up);
                let of = |session, number| frame(mac(node, role), session, number, up);
                let queue = &mut queues[role][node];
                if queue.transmit.send(&of(session, number)).is_ok() {
                    seen.sent += 1;
                    let change = seen.changes.get(&session).map_or(0, |known| known.answered);
                    under_way.push_back(Sent { path, at: Instant::now(), change, left: false });
                }
                if nth.is_multiple_of(STRAY_EVERY) {
                    // It is lost wherever it comes in, or it is found below.
                    let _ = queue.transmit.send(&of(STRAY, 0));
                }
                let _ = queue.transmit.flush();
            }
            for (role, queues) in queues.iter_mut().enumerate() {
                for (node, queue) in queues.iter_mut().enumerate() {
                    let Ok(frames) = queue.receive.receive() else { continue };
                    for frame in &frames {
                        let Some((number, session)) = number(frame) else { continue };
                        if session == STRAY {
                            seen.wrong(|| format!("a packet of no session left by node {node}"));
                            continue;
                        }
                        // It comes in by N3 and leaves by N6, or the other way round.
                        let up = role == 1;
                        let at = number.checked_sub(first).map(|at| at as usize);
                        match at.and_then(|at| under_way.get_mut(at)) {
                            Some(sent) if sent.left => seen.wrong(|| {
                                format!("packet {number} of session {session} left twice")
                            }),
                            Some(sent) if (sent.path.0, sent.path.2) != (session, up) => {
                                seen.wrong(|| format!("packet {number} left as another"));
                            }
                            Some(sent) => {
                                sent.left = true;
                                seen.passed.insert(sent.path, sent.at);
                                if !seen.is_of(frame, session, (!up).then_some(sent.change)) {
                                    seen.wrong(|| {
                                        format!("packet {number} left as of another session")
                                    });
                                }
                                seen.placed(session, node);
                            }
                            // Late: it was counted as lost. It may be in no wrong place either.
                            None => seen.placed(session, node),
                        }
                    }
                }
            }
            while under_way.front().is_some_and(|sent| sent.at.elapsed() > LATE) {
                let Some(sent) = under_way.pop_front() else { break };
                first += 1;
                if !sent.left {
                    seen.lost.push(sent.at);
                }
            }
        }
    }
}

impl Seen {
    /// Returns the path of the next packet: all sessions by a node, then by the next one.
    fn path(&mut self, nth: &mut usize) -> Option<Path> {
        if self.paused {
            return None;
        }
        for _ in 0..2 * NODES {
            let session = *self.sessions.get(*nth % self.sessions.len().max(1))?;
            let turn = *nth / self.sessions.len() + *nth % self.sessions.len();
            *nth += 1;
            let (node, up) = (turn / 2 % NODES, turn.is_multiple_of(2));
            if !self.avoided.contains(&node) {
                return Some((session, node, up));
            }
        }
        None
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push(what());
        }
    }

    /// Whether a frame that leaves is one of this session: from its address, or in its tunnel
    /// since a change.
    fn is_of(&self, frame: &[u8], session: u32, tunnel_since: Option<u32>) -> bool {
        let field = |at: usize| frame.get(at..at + 4).and_then(|field| field.try_into().ok());
        let Some(since) = tunnel_since else {
            return field(26) == Some(address(session).octets());
        };
        let Some(teid) = field(46).map(u32::from_be_bytes) else { return false };
        let change = teid >> 16;
        let may_be =
            self.changes.get(&session).map_or(change == 0, |changes| changes.may_be(change, since));
        field(30) == Some([198, 51, 100, 7]) && teid == peer_teid(session, change) && may_be
    }

    /// Notes that a node has handled a packet of a session.
    fn placed(&mut self, session: u32, node: usize) {
        let now = Instant::now();
        let places = self.places.entry(session).or_default();
        let Some(at) = places.iter().position(|(known, _)| *known == node) else {
            return places.push((node, now));
        };
        let follower = places.get(at + 1).copied();
        if let Some((follower, since)) = follower
            && self.keeps_places
            && now > since + ORDER
        {
            let late = (now - since).as_millis();
            self.wrong(|| {
                format!("node {node} handled session {session} {late} ms after node {follower}")
            });
        }
    }
}

/// The checksum of a header.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16 + (sum >> 16) as u16)
}

fn ip(from: [u8; 4], to: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend([from, to].concat());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend((len - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A frame that comes in by N3, in its tunnel, or by N6.
fn frame(mac: [u8; 6], session: u32, number: u64, up: bool) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend(number.to_be_bytes());
    payload.extend(session.to_be_bytes());
    let terminal = address(session).octets();
    // A source of packets of no session may be throttled, with all that it sends.
    let (peer, server) = match session {
        STRAY => ([198, 18, 0, 9], [198, 18, 0, 80]),
        _ => ([198, 51, 100, 7], [203, 0, 113, 80]),
    };
    let packet = if up {
        let inner = ip(terminal, server, [5000, 53], &payload);
        let mut gtpu = vec![0x30, 255];
        gtpu.extend((inner.len() as u16).to_be_bytes());
        gtpu.extend(session.to_be_bytes());
        gtpu.extend(inner);
        ip(peer, [192, 0, 2, 1], [2152, 2152], &gtpu)
    } else {
        ip(server, terminal, [53, 5000], &payload)
    };
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 0x13, 8, 0]);
    frame.extend(packet);
    frame
}

/// A frame that comes in by N3 in a tunnel of no session.
pub fn stray(mac: [u8; 6], teid: u32) -> Vec<u8> {
    let mut frame = frame(mac, STRAY, 0, true);
    frame[46..50].copy_from_slice(&teid.to_be_bytes());
    frame
}

/// Number and session of a frame of ours.
fn number(frame: &[u8]) -> Option<(u64, u32)> {
    let at = frame.windows(MAGIC.len()).position(|bytes| bytes == MAGIC)? + MAGIC.len();
    let number = frame.get(at..at + 8)?.try_into().ok()?;
    let session = frame.get(at + 8..at + 12)?.try_into().ok()?;
    Some((u64::from_be_bytes(number), u32::from_be_bytes(session)))
}
