//! The model of `advise` against the real tables on stationary traffic: within one point.
//!
//! The tables are warmed with 100 packets per flow: near α = 1 the last free slots of BLP and
//! cuckoo-lite fill slowly, and what is predicted is where they end up.

use overbank::cache::Design;
use overbank_kit::models;
use overbank_kit::workload::FlowStream;
use overbank_models::law::Law;
use overbank_models::predict::Model;
use overbank_products::advise::simulate::{Sequence, Simulated, simulate};
use std::sync::atomic::AtomicBool;

const ENTRIES: usize = 1 << 13;
const WARM: usize = 100;
const MEASURED: usize = 40;

const ALPHAS: [f64; 3] = [0.5, 0.95, 2.0];

/// Simulates a table over [`MEASURED`] packets per flow after [`WARM`] of them.
fn simulated(design: Design, entries: usize, flows: u32, theta: f64, seed: u64) -> Simulated {
    let packets = (WARM + MEASURED) * flows as usize;
    let stream = FlowStream::zipf(flows, theta, seed).expect("a law");
    let ids: Vec<u32> = stream.take(packets).collect();
    let sequence = Sequence { ids: &ids, hashes: None };
    let (warm, stop) = (WARM * flows as usize, AtomicBool::new(false));
    simulate(design, entries, sequence, warm, packets, seed, &stop).expect("a fair size")
}

fn agrees(names: &[&str], alphas: &[f64]) {
    for name in names {
        let design: Design = name.parse().expect("a design");
        for &alpha in alphas {
            for theta in [0.0, 0.8, 0.99] {
                let flows = (ENTRIES as f64 * alpha) as u32;
                let law = Law::zipf(flows, theta);
                let model = Model::new(design.geometry(), ENTRIES, &law);
                let predicted = model.hit_rate(WARM as f64, (WARM + MEASURED) as f64);
                let off =
                    100.0 * (predicted - simulated(design, ENTRIES, flows, theta, 1).hit_rate);
                println!("{name:10} α {alpha:4} θ {theta:4}: {off:+.2} points");
                assert!(off.abs() < 1.0, "{name} α {alpha} θ {theta}: off by {off:+.2} points");
            }
        }
    }
}

#[test]
fn set_associative() {
    agrees(&["set-4", "set-8", "set-16"], &ALPHAS);
}

#[test]
fn cuckoo_lite() {
    agrees(&["cuckoo-2-4", "cuckoo-2-8", "cuckoo-2-16"], &ALPHAS);
}

/// Where the last free slots are found slowly, and belief propagation settles slowly.
#[test]
fn cuckoo_lite_just_above_one() {
    agrees(&["cuckoo-2-8", "cuckoo-2-16"], &[1.05, 1.1]);
}

#[test]
fn blp() {
    agrees(&["blp-2-4", "blp-2-8", "blp-2-16", "blp-4-4"], &ALPHAS);
}

/// In small tables the buffer buckets are worth something: the mean over sets of keys shows it.
#[test]
fn buffer_buckets_count() {
    const SMALL: usize = 1 << 10;
    let flows = 2 * SMALL as u32;
    let law = Law::zipf(flows, 0.0);
    for name in ["blp-2-16", "blp-4-4"] {
        let design: Design = name.parse().expect("a design");
        let held = |seed| simulated(design, SMALL, flows, 0.0, seed).held as f64;
        let found = (0..16).map(held).sum::<f64>() / 16.0 / f64::from(flows);
        let predicted = Model::new(design.geometry(), SMALL, &law).hit_rate(1e9, 2e9);
        let off = 100.0 * (predicted - found);
        assert!(off.abs() < 0.25, "{name}: off by {off:+.2} points");
    }
}

/// Without skew the model is that of the paper's appendices A and B, computed another way.
#[test]
fn uniform_is_the_papers_model() {
    for alpha in [0.5, 0.95, 2.0, 8.0] {
        let flows = (1e6 * alpha) as u32;
        let law = Law::zipf(flows, 0.0);
        for (name, h, m) in [
            ("set-4", 1, 4),
            ("set-16", 1, 16),
            ("blp-2-4", 2, 4),
            ("blp-2-16", 2, 16),
            ("blp-4-4", 4, 4),
        ] {
            let design: Design = name.parse().expect("a design");
            let model = Model::new(design.geometry(), 1_000_000, &law);
            let ours = model.hit_rate(1e9, 2e9);
            let off = 100.0 * (ours - models::blp(h, m, alpha));
            assert!(off.abs() < 0.4, "{name} α {alpha}: {ours} is off by {off:+.2} points");
        }
    }
}

/// In one pass over given packets the first of each flow misses; where all fit, only those.
#[test]
fn one_pass_pays_for_every_flow_once() {
    let counts: Vec<u32> = (0..1000).map(|i| 1 + i % 7).collect();
    let packets: u32 = counts.iter().sum();
    let law = Law::counted(&counts);
    let design: Design = "blp-2-16".parse().expect("a design");
    let model = Model::new(design.geometry(), 1 << 14, &law);
    let predicted = model.hit_rate_once(f64::from(packets) / 1000.0);
    assert!((predicted - (1.0 - 1000.0 / f64::from(packets))).abs() < 0.001, "{predicted}");
}
