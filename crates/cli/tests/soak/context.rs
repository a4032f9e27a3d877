//! What all threads of a soak share: the plan, the scene, when to stop, and what was found.

use crate::process::Process;
use crate::report::Report;
use crate::scene::Scene;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Failures that are kept; more are counted.
const FAILURES_MAX: usize = 40;

/// Kind of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AfPacket,
    AfXdp,
    Tap,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::AfPacket, Kind::AfXdp, Kind::Tap];

    /// As ports are written.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AfPacket => "afpacket",
            Kind::AfXdp => "afxdp",
            Kind::Tap => "tap",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub seconds: u64,
    pub seed: u64,
}

/// Shared by all threads.
pub struct Soak {
    pub plan: Plan,
    pub scene: Scene,
    /// Datagrams of A that B has; others look whether traffic goes on.
    pub steady: std::sync::atomic::AtomicU64,
    stopped: AtomicBool,
    report: Mutex<Report>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Soak {
    pub fn new(plan: Plan, scene: Scene) -> Soak {
        let report = Mutex::new(Report::new(plan));
        Soak {
            plan,
            scene,
            steady: Default::default(),
            stopped: AtomicBool::new(false),
            report,
            counts: Mutex::default(),
        }
    }

    /// Returns random numbers for `user`, the same for the same seed.
    pub fn random(&self, user: &str) -> Pcg64 {
        let tag = user.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Pcg64::seed_from_u64(self.plan.seed.rotate_left(17) ^ tag)
    }

    /// Something that must not be: what, where, with which seed.
    pub fn fail(&self, whom: &str, what: impl AsRef<str>) {
        let Plan { kind, seed, .. } = self.plan;
        let line = format!("{}, seed {seed}: {whom}: {}", kind.name(), what.as_ref());
        let mut report = locked(&self.report);
        report.failures_all += 1;
        if report.failures.len() < FAILURES_MAX {
            println!("FAILED {line}");
            report.failures.push(line);
        }
    }

    /// Fails unless `holds`.
    pub fn check(&self, holds: bool, whom: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(whom, what());
        }
    }

    /// Adds to a number of the report.
    pub fn count(&self, what: &'static str, more: u64) {
        *locked(&self.counts).entry(what).or_default() += more;
    }

    /// A number of the report that is not a sum.
    pub fn set(&self, what: &'static str, to: u64) {
        locked(&self.counts).insert(what, to);
    }

    /// A number of the report so far.
    pub fn counted(&self, what: &str) -> u64 {
        locked(&self.counts).get(what).copied().unwrap_or(0)
    }

    /// Whether it is time to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Sleeps in small pieces; false: it is time to end.
    pub fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_stopped() {
            thread::sleep((end - Instant::now()).min(Duration::from_millis(20)));
        }
        !self.is_stopped()
    }

    /// Waits for the end, or for the switch to break.
    pub fn run_for(&self, time: Duration, switch: &mut Process) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(50));
            if let Some(status) = switch.ended() {
                self.fail("the switch", format!("ended by itself: {status}"));
                return;
            }
        }
    }

    /// What came of it.
    pub fn report(&self) -> Report {
        let mut report = locked(&self.report).clone();
        report.counts = locked(&self.counts).clone();
        report
    }
}

/// Threads that are waited for; one that panics is a failure.
#[derive(Default)]
pub struct Threads(Vec<(String, JoinHandle<Result<(), String>>)>);

/// What a panic said.
fn told(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

fn caught(work: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| told(&*payload))
}

impl Threads {
    /// Works in the namespace of the switch.
    pub fn here(
        &mut self,
        soak: &Arc<Soak>,
        name: &str,
        work: impl FnOnce(&Soak) + Send + 'static,
    ) {
        let soak = Arc::clone(soak);
        self.0.push((name.to_owned(), thread::spawn(move || caught(|| work(&soak)))));
    }

    /// Works in the namespace of a host.
    pub fn inside(
        &mut self,
        soak: &Arc<Soak>,
        host: usize,
        name: &str,
        work: impl FnOnce(&Soak) + Send + 'static,
    ) {
        let inner = Arc::clone(soak);
        let thread = soak.scene.net.inside(host, move || caught(|| work(&inner)));
        self.0.push((name.to_owned(), thread));
    }

    /// Waits for all of them.
    pub fn join(self, soak: &Soak) {
        for (name, thread) in self.0 {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(told)) => soak.fail(&name, told),
                Err(payload) => soak.fail(&name, told(&*payload)),
            }
        }
    }
}

/// Fills `bytes` with what `key` says, from `offset` (a multiple of eight) of an endless row on.
pub fn fill(key: u64, offset: u64, bytes: &mut [u8]) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let mut word =
            key.wrapping_add((offset / 8 + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_le_bytes()[..chunk.len()]);
    }
}

/// Where `bytes` are not what `key` says, if anywhere.
pub fn differs(key: u64, offset: u64, bytes: &[u8]) -> Option<usize> {
    let mut wanted = vec![0; bytes.len()];
    fill(key, offset, &mut wanted);
    wanted.iter().zip(bytes).position(|(a, b)| a != b)
}

#[test]
fn the_row_of_bytes_is_the_same_from_any_offset() {
    let mut whole = [0; 64];
    fill(7, 0, &mut whole);
    assert_eq!(differs(7, 16, &whole[16..]), None);
    assert_eq!(differs(8, 0, &whole), Some(0));
    whole[33] ^= 4;
    assert_eq!(differs(7, 24, &whole[24..61]), Some(9));
}
