//! The cluster of gateways under faults, as real processes: `cargo xtask faults`.
//!
//! ```text
//!   namespace svc      etcd 0 1 2 and nats-server 0 1 2 ─────────────┐
//!   namespace n0 … n3  overbank gateway: a0c … a3c ══ bridge control ┤
//!                                        a0f … a3f ══ bridge fabric  ├ namespace hub: the test
//!                                        a0n3, a0n6 … ══ b0n3, b0n6 …┘ and its traffic
//! ```
//!
//! The hub is an SMF, too: one node speaks PFCP with it (`smf.rs`).
//!
//! Each of [`faults::FAULTS`] happens while a cluster of four does each of [`work::WORK`], under
//! packets of all sessions, in both directions and by every node that takes packets. What must
//! hold, and where it is judged:
//! - no packet leaves twice, or as another session's: `traffic.rs`;
//! - while sessions are not moved, none goes back to a node that another one has followed: of two
//!   nodes, one handles it (`traffic.rs`);
//! - what was answered is there afterwards: each session that was added passes packets by each node
//!   within a minute of the end of the fault (`settle`);
//! - the accounts of each node close, and what nodes have sent to each other they have received,
//!   unless the fault loses it (`accounts`).
//!
//! Recovery is the time from the fault to the last packet that was lost to it. The short form, part
//! of `cargo test`, has the cases of [`SHORT`]. `OVERBANK_FAULTS` names others as FAULT:WORK, with
//! `all` for all; `OVERBANK_FAULTS_REPORT` is a file for the results, a line of JSON each. With
//! `OVERBANK_FAULTS_SECONDS` random ones follow each other for so long, by `OVERBANK_FAULTS_SEED`:
//! any node, any length up to the fault's. No node may grow over them (`plan.rs`).
#![cfg(all(feature = "cluster", feature = "pfcp"))]

mod cores;
mod faults;
mod flood;
/// Namespaces; shared with the tests of ports.
#[path = "../../../ports/tests/netns/mod.rs"]
mod netns;
mod plan;
mod scene;
mod smf;
mod traffic;
mod work;

use cores::Cores;
use plan::{Case, Memory, Plan};
use scene::{NODES, Scene};
use serde_json::{Value, json};
use smf::Smf;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use traffic::Traffic;
use work::Work;

/// Sessions from the start.
const SESSIONS: u32 = 400;
/// Longest time from the end of a fault until all is well.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Longest time that a packet is under way through a cluster without faults.
const UNDER_WAY: Duration = Duration::from_millis(20);
/// Share of the cores' time that a fault has to leave if it may take all.
const IDLE_MIN: f64 = 0.1;
/// Lines of a log that are shown of a case with problems.
const LOG_LINES: usize = 200;
/// Cases of the short form.
const SHORT: &str = "node-killed:establishing,stream-leader-killed:moving";

#[test]
fn what_was_answered_outlives_every_fault() {
    let Some(mut scene) = Scene::start() else { return };
    let (traffic, smf) = (Traffic::start(), Smf::start());
    by_all_nodes(&scene, 1..=SESSIONS, |control, number| {
        scene::add(control, number).unwrap_or_else(|why| panic!("session {number}: {why}"));
        traffic.add(number);
    });
    settle(&scene, &traffic);
    let report = std::env::var_os("OVERBANK_FAULTS_REPORT");
    let (mut problems, mut memory) = (Vec::new(), Memory::default());
    let mut next = SESSIONS + 1;
    for planned in Plan::new(SHORT) {
        let (ends, before) = (scene.log_ends(), problems.len());
        let mut result = case((&mut scene, &smf), &traffic, planned, &mut next, &mut problems);
        if problems.len() > before {
            scene.show_logs(&ends, LOG_LINES);
        }
        result["memory_mib"] = json!(memory.note(scene.memory()) >> 10);
        println!("{result}");
        if let Some(path) = &report {
            let file = std::fs::File::options().create(true).append(true).open(path);
            writeln!(file.expect("a file"), "{result}").expect("written");
        }
    }
    traffic.stop();
    problems.extend(memory.grown());
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Does something for each number by the control sockets, many at a time: an answer waits for all
/// nodes.
fn by_all_nodes(scene: &Scene, numbers: RangeInclusive<u32>, work: impl Fn(&Path, u32) + Sync) {
    const AT_A_TIME: usize = 16;
    std::thread::scope(|threads| {
        for first in 0..AT_A_TIME {
            let (control, work) = (scene.control(first % NODES), &work);
            let own = numbers.clone().skip(first).step_by(AT_A_TIME);
            threads.spawn(move || own.for_each(|number| work(&control, number)));
        }
    });
}

fn case(
    (scene, smf): (&mut Scene, &Smf),
    traffic: &Traffic,
    planned: Case,
    next: &mut u32,
    problems: &mut Vec<String>,
) -> Value {
    let Case { fault, work, victim, lasts } = planned;
    let name = planned.name();
    eprintln!("{name}");
    let victim = victim.unwrap_or_else(|| scene.speaker());
    traffic.begin(work.keeps_places());
    let doing = work.start((scene, smf), traffic, victim, *next);
    let (began, cores) = (Instant::now(), Cores::now());
    let undone = (fault.cause)(scene, victim);
    if fault.takes_node {
        traffic.avoid(victim);
    }
    std::thread::sleep(lasts);
    undone(scene);
    let idle = cores.idle_since();
    let done = doing.end();
    let added = *next..=done.next.load(Relaxed) - 1;
    *next = added.end() + 1;
    if work == Work::Draining {
        if fault.renews_node {
            // It was told before it began anew.
            scene::wait("the node is ready", || scene.is_ready(victim));
            let asked = scene.ask(victim, "POST", "/drain", "");
            assert!(matches!(asked, Ok((200..300, _))), "{asked:?}");
        }
        scene::wait("the node has left", || scene.has_ended(victim));
    }
    let anew = scene.start_again();
    // Its neighbours send to it again once it says that it is ready.
    scene::wait("all nodes are ready", || (0..NODES).all(|node| scene.is_ready(node)));
    traffic.avoid_none();
    let settled = settle(scene, traffic);
    let seen = traffic.end();
    let mut problem = |what: String| {
        eprintln!("{name}: {what}");
        problems.push(format!("{name}: {what}"));
    };
    seen.wrong.into_iter().for_each(&mut problem);
    // A fault that loses packets loses those that are under way when it begins.
    let first = if fault.may_lose { began - UNDER_WAY } else { began };
    let (count, last) = {
        let lost = seen.lost.iter().filter(|sent| **sent >= first);
        (lost.clone().count(), lost.max())
    };
    let before = seen.lost.iter().filter(|sent| **sent < first);
    if let Some(last) = before.clone().max() {
        let (count, ago) = (before.count(), began - *last);
        problem(format!("{count} packets were lost before the fault, the last one {ago:?} before"));
    }
    let is_void = fault.takes_cores && idle < IDLE_MIN;
    if is_void {
        eprintln!(
            "{name}: the cores had {:.0} % of their time left: losses do not count",
            100.0 * idle
        );
    }
    if !fault.may_lose && !is_void && count > 0 {
        problem(format!("{count} packets were lost"));
    }
    let pause = traffic.pause();
    let lost = accounts(scene, &mut problem);
    drop(pause);
    // A node that began anew counts from 0.
    let before = std::mem::replace(&mut scene.unreceived, lost);
    let may_miss = anew || fault.takes_node || fault.cuts_fabric || is_void;
    if !may_miss && lost != before {
        problem(format!("nodes received {} packets fewer than were sent to them", lost - before));
    }
    // What was answered is there to be removed, and not there if it was to be deleted.
    let gone = Mutex::new(Vec::new());
    by_all_nodes(scene, added, |control, number| {
        let known = traffic.remove(number);
        let removed = match work {
            Work::Pfcp => smf.remove(control, number),
            _ => scene::ask(control, "DELETE", &format!("/sessions/{number}"), "")
                .map(|(status, _)| (200..300).contains(&status)),
        };
        let deleted = done.deleted.lock().expect("whole").contains(&number);
        if known && removed != Ok(true) || deleted && removed != Ok(false) {
            let what = format!("session {number}, known {known}, deleted {deleted}: {removed:?}");
            gone.lock().expect("whole").push(what);
        }
    });
    gone.into_inner().expect("whole").into_iter().for_each(&mut problem);
    json!({
        "fault": fault.name,
        "work": work.name(),
        "idle": (100.0 * idle).round() / 100.0,
        "packets": seen.sent,
        "lost": count,
        "recovery_ms": last.map(|last| last.saturating_duration_since(began).as_millis() as u64),
        "settled_ms": (settled - began).as_millis() as u64,
        "answered": done.answered.load(Relaxed),
        "refused": done.refused.load(Relaxed),
    })
}

/// Waits until each session passes packets by each node; returns since when.
fn settle(scene: &Scene, traffic: &Traffic) -> Instant {
    let end = Instant::now() + SETTLE_MAX;
    loop {
        let now = Instant::now();
        std::thread::sleep(traffic.round());
        let missing = traffic.missing_since(now);
        if missing.is_empty() {
            return now;
        }
        if now >= end {
            let some = &missing[..missing.len().min(5)];
            let session = some.first().map_or(0, |path| path.0);
            let known = |node| scene.ask(node, "GET", &format!("/sessions/{session}"), "");
            let here = |node| scene.ask(node, "GET", &format!("/sessions?teid={session}"), "");
            let asked: Vec<_> = (0..NODES).map(|node| (known(node), here(node))).collect();
            panic!("not settled: {} paths lose, {some:?}; nodes say {asked:#?}", missing.len());
        }
    }
}

/// Looks whether the accounts close; returns how many packets more nodes have sent to each other
/// than received.
fn accounts(scene: &Scene, problem: &mut impl FnMut(String)) -> i64 {
    let mut unreceived = 0;
    for node in 0..NODES {
        let status = scene.status(node);
        if status["closes"] != true {
            problem(format!("the accounts of node {node} do not close: {status:#}"));
        }
        let count = |what: &str| status["total"][what].as_i64().unwrap_or_default();
        unreceived += count("fabric_sent") - count("fabric_received");
    }
    unreceived
}
