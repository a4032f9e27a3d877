//! The live switch under everything at once, as the real binary: `cargo xtask soak`.
//!
//! ```text
//!   hosts, each in a namespace            the switch              controllers
//!   A 10.77.0.1 ═══ port 1 ┐                                 ┌ stamps and takes back rules
//!   B 10.77.0.2 ═══ port 2 │  overbank switch, two workers   ├ thousands of rules come and go
//!   C 10.77.0.3 ═══ port 3 ├  port 3 loses, corrupts, …      ├ ovs-ofctl: files, bundles, dumps
//!   D 10.77.0.4 ═══ port 4 │  ports 4 and 6 go down, and go  ├ some die in the middle of a word
//!   E 10.77.0.5 ═══ port 5 │                                 └ one that the switch connects to
//!   F 10.77.0.6 ═══ port 6 ┘
//!   A ⇄ B, B ⇄ C  TCP both ways, every byte compared; numbered UDP A → B, A → C, echo A ⇄ D, F
//!   E → F         stamped by rules that change all the time (generations.rs)
//! ```
//!
//! What must hold, and where it is judged:
//! - no packet is treated by rules that were gone when it was sent: `generations.rs`;
//! - rules that end by themselves do so in their time and are gone then: `timed.rs`;
//! - what arrives is what was sent, TCP also through faults: `tcp.rs`, `numbered.rs`;
//! - a port that goes away comes back, the others go on meanwhile: `flaps.rs`;
//! - controllers that die or mean harm change nothing: `peers.rs`;
//! - memory stays below a bound, the accounts close in every reading and, to the packet, at the
//!   end, also by the count of an outsider: `accounts.rs`;
//! - killed and started again, it forwards again soon and leaves no XDP program: `restart.rs`.
//!
//! Short by default, and then part of `cargo test`. The environment makes it long:
//! `OVERBANK_SOAK_SECONDS`, `OVERBANK_SOAK_KIND` (afpacket, afxdp, tap), `OVERBANK_SOAK_SEED`, and
//! `OVERBANK_SOAK_REPORT`, a file for the result as JSON. The seed decides what is done, not when:
//! threads, processes and the kernel take turns as they like.

mod accounts;
mod churn;
mod context;
mod flaps;
mod generations;
mod numbered;
mod ofctl;
mod peers;
mod process;
mod report;
mod restart;
mod scene;
mod tcp;
mod timed;

/// A controller that follows a script; shared with the tests of the control plane.
#[path = "../../../ofctl/tests/openflow/client.rs"]
#[allow(dead_code)]
mod client;
/// Namespaces and veth pairs; shared with the tests of ports.
#[path = "../../../ports/tests/netns/mod.rs"]
mod netns;

/// What [`client`] asks of its surroundings.
mod bench {
    /// Nothing here takes as long, however busy the machine is.
    pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
}

use context::{Kind, Plan, Soak};
use process::Process;
use report::Report;
use scene::Scene;
use std::sync::Arc;
use std::time::Duration;

/// Plans of the short form: all kinds, most of the time for those that carry traffic by rings.
const SHORT: [(Kind, u64); 3] = [(Kind::AfPacket, 6), (Kind::AfXdp, 6), (Kind::Tap, 3)];
/// A second of the short form tells at least that nothing is broken altogether.
const SECONDS_MIN: u64 = 2;

fn plans() -> Vec<Plan> {
    let given = |name: &str| std::env::var(format!("OVERBANK_SOAK_{name}")).ok();
    let number = |name: &str| {
        given(name).map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let seed = number("SEED").unwrap_or(1);
    let seconds = number("SECONDS").map(|seconds| seconds.max(SECONDS_MIN));
    let kind = given("KIND").map(|text| {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).unwrap_or_else(|| panic!("{text}"))
    });
    let all = SHORT.into_iter().filter(|(one, _)| kind.is_none_or(|kind| kind == *one));
    let plan = |(kind, short)| Plan { kind, seed, seconds: seconds.unwrap_or(short) };
    all.map(plan).collect()
}

/// One soak from the first namespace to the last.
fn soak(plan: Plan) -> Option<Report> {
    let scene = Scene::new(plan)?;
    let soak = Arc::new(Soak::new(plan, scene));
    let mut switch = Process::start(&soak);
    soak.scene.attach_all();
    soak.scene.wait_for_forwarding();

    let mut threads = context::Threads::default();
    let ending = generations::start(&soak, &mut threads);
    tcp::start(&soak, &mut threads);
    numbered::start(&soak, &mut threads);
    churn::start(&soak, &mut threads);
    ofctl::start(&soak, &mut threads);
    peers::start(&soak, &mut threads);
    flaps::start(&soak, &mut threads);
    accounts::watch(&soak, &switch, &mut threads);

    soak.run_for(Duration::from_secs(plan.seconds), &mut switch);
    soak.stop();
    threads.join(&soak);
    accounts::compare_with_outsider(&soak, &ending);
    accounts::finish(&soak, switch);
    restart::run(&soak);
    Some(soak.report())
}

#[test]
fn nothing_breaks_when_everything_happens_at_once() {
    let mut reports = Vec::new();
    for plan in plans() {
        println!("soak: {}, {} s, seed {}", plan.kind.name(), plan.seconds, plan.seed);
        let Some(report) = soak(plan) else { return };
        println!("{}", report.table());
        reports.push(report);
    }
    if let Some(path) = std::env::var_os("OVERBANK_SOAK_REPORT") {
        std::fs::write(path, report::document(&reports)).expect("the report can be written");
    }
    let failures: Vec<&String> = reports.iter().flat_map(|report| &report.failures).collect();
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}
