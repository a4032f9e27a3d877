//! Recorded operations on hot keys, while datagrams are lost and processes are killed: each key
//! must look like one register.
//!
//! ```text
//!   namespace a   clients, threads of this test ══ port 1 ┐
//!   namespace b   overbank kv agent, redis      ══ port 2 ├ overbank switch --mode netcache
//!   namespace c   overbank kv agent, redis      ══ port 3 ┘   each port loses 5 %, duplicates 5 %,
//!                                                             reorders 10 %, in both directions
//! ```
//!
//! In each round, the device with its controller and both agents are killed by SIGKILL and started
//! again, at random times; the device has packet sockets and AF_XDP in turn. Now and then a client
//! is gone with its requests in flight. Redis lives on. Each operation is recorded with the times
//! of its call and its reply, and each key is judged (`overbank_kit::histories`). A quarter of the
//! keys is deleted, too, and judged less strictly.
//!
//! What must hold, and where it is judged:
//! - no key has a violation with the protocol of stamps, and one has with the paper's (below);
//! - the device has answered reads, and its accounts close in each reading (`scene.rs`);
//! - each agent answers again after it was killed: clients wait for it (`clients.rs`).
//!
//! Short by default, and then part of `cargo test`. The environment makes it long:
//! `OVERBANK_COHERENCE_OPERATIONS`, `OVERBANK_COHERENCE_SEED`. The seed decides what is done, not
//! when: threads, processes and the kernel take turns as they like.
#![cfg(feature = "kv-stores")]

mod clients;
/// Namespaces and veth pairs; shared with the tests of ports.
#[path = "../../../ports/tests/netns/mod.rs"]
mod netns;
mod scene;

use clients::{Counts, Name, Recorded};
use overbank_kit::histories::{Operation, Violation, judge};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use scene::{Protocol, Scene, Victim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Operations of a round.
const ROUND: usize = 20_000;
/// Time between two kills.
const BETWEEN_MS: std::ops::Range<u64> = 300..2500;

/// What was recorded of each key.
type Histories = BTreeMap<Name, Vec<Operation>>;

struct Run {
    scene: Scene,
    random: Pcg64,
    start: Instant,
    rounds: u64,
    histories: Histories,
    counts: Counts,
    kills: u64,
}

impl Run {
    fn start(protocol: Protocol, seed: u64) -> Option<Run> {
        Some(Run {
            scene: Scene::start(protocol, seed)?,
            random: Pcg64::seed_from_u64(seed),
            start: Instant::now(),
            rounds: 0,
            histories: Histories::new(),
            counts: Counts::default(),
            kills: 0,
        })
    }

    fn operations(&self) -> usize {
        self.histories.values().map(Vec::len).sum()
    }

    /// Has clients do some operations, and more until the victims have been killed and started
    /// again, and serve.
    fn round(&mut self, operations: usize, victims: &mut [Victim]) {
        self.rounds += 1;
        let enough = Arc::new(AtomicBool::new(false));
        let (seed, round) = (self.random.random(), self.rounds);
        let clients =
            clients::start(&self.scene, (self.start, round, seed), operations, enough.clone());
        victims.shuffle(&mut self.random);
        for victim in &*victims {
            std::thread::sleep(Duration::from_millis(self.random.random_range(BETWEEN_MS)));
            self.scene.kill(*victim);
            self.kills += 1;
        }
        enough.store(true, Ordering::Relaxed);
        for client in clients {
            let (recorded, counts) = client.join().expect("no panic");
            for Recorded { name, operation } in recorded {
                self.histories.entry(name).or_default().push(operation);
            }
            self.counts.add(&counts);
        }
        self.scene.read_accounts();
    }

    fn violations(&self) -> Vec<(Name, Violation)> {
        let judged = self.histories.iter().map(|(name, all)| (*name, judge(all)));
        judged.filter_map(|(name, judged)| Some((name, judged.err()?))).collect()
    }

    fn report(&self, seed: u64) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let operations = self.operations();
        format!(
            "{operations} operations in {seconds:.0} s, seed {seed}: {:?}; {} kills",
            self.counts, self.kills
        )
    }
}

fn given(name: &str) -> Option<u64> {
    let text = std::env::var(format!("OVERBANK_COHERENCE_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: must be a number")))
}

#[test]
fn each_key_is_one_register_whatever_is_killed() {
    let seed = given("SEED").unwrap_or(1);
    let operations = given("OPERATIONS").map_or(ROUND, |operations| operations as usize);
    let Some(mut run) = Run::start(Protocol::Stamps, seed) else { return };
    while run.operations() < operations {
        run.round(ROUND, &mut [Victim::Device, Victim::Agent(0), Victim::Agent(1)]);
        println!("{}", run.report(seed));
        let violations = run.violations();
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}\n{}", run.scene.logs());
        let Counts { hits, .. } = run.counts;
        assert!(hits > 0, "the device has answered nothing\n{}", run.scene.logs());
    }
    run.scene.end();
}

/// The paper's protocol brings back what was overwritten, without any process killed.
#[test]
fn the_papers_protocol_is_caught() {
    const OPERATIONS_MAX: usize = 100_000;
    let seed = given("SEED").unwrap_or(1);
    let Some(mut run) = Run::start(Protocol::Paper, seed) else { return };
    while run.operations() < OPERATIONS_MAX {
        run.round(ROUND / 4, &mut []);
        println!("{}", run.report(seed));
        let violations = run.violations();
        if !violations.is_empty() {
            println!("{violations:#?}");
            return run.scene.end();
        }
    }
    panic!("no violation within {OPERATIONS_MAX} operations, seed {seed}");
}
