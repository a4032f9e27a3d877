//! What the cluster does while a fault happens.

use crate::SESSIONS;
use crate::scene::{NODES, Scene, add, ask, peer_teid};
use crate::smf::Smf;
use crate::traffic::Traffic;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Idle,
    /// Sessions are moved all the time, by any node.
    Moving,
    /// A node gives everything away and leaves.
    Draining,
    /// Sessions are added all the time, by any node.
    Establishing,
    /// The tunnels of sessions change all the time, by any node.
    Changing,
    /// Sessions are established, changed and deleted all the time, by an SMF.
    Pfcp,
}

/// All of them.
pub const WORK: [Work; 6] =
    [Work::Idle, Work::Moving, Work::Draining, Work::Establishing, Work::Changing, Work::Pfcp];

/// Traffic and work before a fault.
const BEFORE: Duration = Duration::from_secs(1);
/// Requests at a time: an answer waits for all nodes.
const AT_A_TIME: u32 = 8;
const PAUSE: Duration = Duration::from_millis(5);
/// Further time between two sessions that a thread adds.
const APART: Duration = Duration::from_millis(200);
/// Time in which a packet has left that was sent before its session is deleted.
const PASSED: Duration = Duration::from_millis(300);
/// A drain begins so long before the fault: it has not come to its end.
const DRAINED: Duration = Duration::from_millis(20);

/// Work that goes on.
pub struct Doing {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    done: Arc<Done>,
}

/// What it came to.
#[derive(Default)]
pub struct Done {
    /// The first number that is free.
    pub next: AtomicU32,
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    /// Sessions whose deletion was answered.
    pub deleted: Mutex<Vec<u32>>,
}

impl Done {
    fn count(&self, answered: bool) {
        let count = if answered { &self.answered } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Idle => "idle",
            Work::Moving => "moving",
            Work::Draining => "draining",
            Work::Establishing => "establishing",
            Work::Changing => "changing",
            Work::Pfcp => "pfcp",
        }
    }

    /// Whether sessions stay where they are unless their node is gone.
    pub fn keeps_places(self) -> bool {
        matches!(self, Work::Idle | Work::Establishing | Work::Changing | Work::Pfcp)
    }

    /// Starts, and goes on for a while; sessions that are added have numbers from `next` on.
    pub fn start(
        self,
        (scene, smf): (&Scene, &Smf),
        traffic: &Traffic,
        drained: usize,
        next: u32,
    ) -> Doing {
        let mut doing = Doing { stop: Arc::default(), threads: Vec::new(), done: Arc::default() };
        doing.done.next.store(next, Relaxed);
        let controls: Arc<[PathBuf]> = (0..NODES).map(|node| scene.control(node)).collect();
        let step: fn((&Path, &Smf), u32, &Done, &Traffic) = match self {
            Work::Idle | Work::Draining => {
                std::thread::sleep(BEFORE);
                if self == Work::Draining {
                    let asked = ask(&controls[drained], "POST", "/drain", "");
                    doing.done.count(matches!(asked, Ok((200..300, _))));
                    // It is no longer ready: its neighbours see that.
                    traffic.avoid(drained);
                    std::thread::sleep(DRAINED);
                }
                return doing;
            }
            Work::Moving => |(control, _), nth, done, _| {
                let session = nth.wrapping_mul(7) % SESSIONS + 1;
                let moved = ask(control, "POST", &format!("/sessions/{session}/move"), "");
                done.count(matches!(moved, Ok((200..300, _))));
            },
            Work::Establishing => |(control, _), _, done, traffic| {
                // A number whose request was not answered may be taken or not.
                let number = done.next.fetch_add(1, Relaxed);
                std::thread::sleep(APART);
                let added = add(control, number).is_ok();
                done.count(added);
                if added {
                    traffic.add(number);
                }
            },
            // A session is changed by one thread: its changes follow each other.
            Work::Changing => |(control, _), nth, done, traffic| {
                let session = nth % (SESSIONS / AT_A_TIME * AT_A_TIME) + 1;
                let round = traffic.change(session);
                let tunnel = json!({ "peer_teid": peer_teid(session, round) }).to_string();
                let changed = ask(control, "PATCH", &format!("/sessions/{session}"), &tunnel);
                let answered = matches!(changed, Ok((200..300, _)));
                done.count(answered);
                if answered {
                    traffic.changed(session, round);
                }
            },
            // A session has one request at a time; every other one is deleted.
            Work::Pfcp => |(_, smf), _, done, traffic| {
                let number = done.next.fetch_add(1, Relaxed);
                std::thread::sleep(APART);
                let established = smf.establish(number).is_ok();
                done.count(established);
                if !established {
                    return;
                }
                traffic.add(number);
                let round = traffic.change(number);
                let changed = smf.change(number, round).is_ok();
                done.count(changed);
                if changed {
                    traffic.changed(number, round);
                }
                if number.is_multiple_of(2) {
                    traffic.remove(number);
                    std::thread::sleep(PASSED);
                    let deleted = smf.delete(number).is_ok();
                    done.count(deleted);
                    if deleted {
                        done.deleted.lock().expect("whole").push(number);
                    }
                }
            },
        };
        for worker in 0..AT_A_TIME {
            let (stop, traffic) = (doing.stop.clone(), traffic.clone());
            let (done, controls, smf) = (doing.done.clone(), controls.clone(), smf.clone());
            doing.threads.push(std::thread::spawn(move || {
                for nth in (worker..).step_by(AT_A_TIME as usize) {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let node = nth as usize % NODES;
                    if !traffic.avoids(node) {
                        step((&controls[node], &smf), nth, &done, &traffic);
                    }
                    std::thread::sleep(PAUSE);
                }
            }));
        }
        std::thread::sleep(BEFORE);
        doing
    }
}

impl Doing {
    /// Stops it, after the requests that are under way.
    pub fn end(self) -> Arc<Done> {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the work ends well"));
        self.done
    }
}
