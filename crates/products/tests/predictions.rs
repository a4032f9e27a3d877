//! The model of `advise` against the real tables on stationary traffic: within one point.
//!
//! The tables are warmed with 100 packets per flow: near α = 1 the last free slots of BLP and
//! cuckoo-lite fill slowly, and what is predicted is where they end up.

use overbank::cache::{Design, LayoutKind};
use overbank::hash::mix;
use overbank_kit::models;
use overbank_kit::workload::FlowStream;
use overbank_products::advise::law::Law;
use overbank_products::advise::predict::Model;

const ENTRIES: usize = 1 << 13;
const WARM: u64 = 100;
const MEASURED: u64 = 40;

const ALPHAS: [f64; 3] = [0.5, 0.95, 2.0];

fn measured(design: Design, flows: u32, theta: f64) -> f64 {
    let mut cache = design.build(ENTRIES, LayoutKind::Fp16V32, 1, None).expect("a fair size");
    let mut stream = FlowStream::zipf(flows, theta, 1).expect("a law");
    let mut run = |packets: u64| {
        cache.reset_counters();
        for _ in 0..packets {
            let id = stream.next_flow();
            let hash = mix(u64::from(id) | 7 << 32);
            if cache.lookup(hash, &mut |value| value == id).is_none() {
                cache.insert(hash, id).expect("ids fit");
            }
        }
        cache.counters().hit_rate()
    };
    run(u64::from(flows) * WARM);
    run(u64::from(flows) * MEASURED)
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
                let off = 100.0 * (predicted - measured(design, flows, theta));
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

/// In small tables the buffer buckets are worth something: the mean over sets of keys tells.
#[test]
fn buffer_buckets_count() {
    const SMALL: usize = 1 << 10;
    let flows = 2 * SMALL as u32;
    let law = Law::zipf(flows, 0.0);
    for name in ["blp-2-16", "blp-4-4"] {
        let design: Design = name.parse().expect("a design");
        let mut found = 0.0;
        for seed in 0..16 {
            let mut cache = design.build(SMALL, LayoutKind::Fp16V32, 1, None).expect("a fair size");
            let hash = |id: u32| mix(mix(seed) ^ u64::from(id));
            for id in FlowStream::uniform(flows, seed).expect("flows").take(50 * flows as usize) {
                if cache.lookup(hash(id), &mut |value| value == id).is_none() {
                    cache.insert(hash(id), id).expect("ids fit");
                }
            }
            found += cache.len() as f64 / f64::from(flows) / 16.0;
        }
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
