//! The real tables against the models: uniform keys, random eviction.
//!
//! Measured is the share of the working set that the table holds, which is the hit rate of the next
//! uniform lookup without the noise of drawing it. Three steps, each with its own tolerance:
//!
//! 1. The model against the most that a table can hold of a given random working set: 0.1 points.
//! 2. After 20 lookups per key, the table against the model: 1 point, except for the designs with
//!    two or more buckets per key at α = 0.95, which are still 1.3 to 1.7 points away. (The paper's
//!    appendix D says less than 1 % for 2-4 BLP there; measured are 1.3 points.)
//! 3. After 1000 lookups per key at α = 0.95, a small table against the most that it can hold of
//!    its working set: 0.3 points. A small random working set is itself up to half a point
//!    luckier or less lucky than the model's average, so that step 1 has to stand in between.
//!
//! And in every case, exactly: never more than can be held.

use overbank::cache::GeometryKind::{self, *};
use overbank_kit::geometry::AnyGeometry;
use overbank_kit::keyed::KeyedTable;
use overbank_kit::workload::FlowStream;

const ALPHAS: [f64; 5] = [0.5, 0.75, 0.95, 1.25, 2.0];

/// The largest share of a working set that a table can hold, in points, and what it holds after
/// `lookups` lookups per key.
fn most_and_held(
    kind: GeometryKind,
    entries: usize,
    alpha: f64,
    seed: u64,
    lookups: u64,
) -> (f64, f64) {
    let keys = (entries as f64 * alpha) as u32;
    let mut table = KeyedTable::new(kind, entries, seed).expect("a fair size");
    let mut stream = FlowStream::uniform(keys, seed).expect("a working set");
    table.warm(&mut stream, u64::from(keys) * lookups);
    let points = |held: u64| 100.0 * held as f64 / f64::from(keys);
    let (most, held) = (points(table.most(keys)), points(table.held() as u64));
    println!("{:10} α {alpha:4}: held {held:.3} most {most:.3} after {lookups}", kind.name());
    assert!(held <= most, "{} α {alpha}: {held} of at most {most}", kind.name());
    (most, held)
}

fn model(kind: GeometryKind, alpha: f64) -> f64 {
    100.0 * AnyGeometry::from(kind).hit_rate(alpha).expect("within the limits of the models")
}

#[test]
fn models_hold_for_large_working_sets() {
    for kind in [Set4, Set8, Set16, Blp2x4, Blp2x8, Blp2x16, Blp4x4] {
        for alpha in ALPHAS {
            let off = most_and_held(kind, 1 << 20, alpha, 0, 0).0 - model(kind, alpha);
            assert!(off.abs() < 0.1, "{} α {alpha}: {off:+.3} points", kind.name());
        }
    }
}

/// After 20 lookups per key; `short` is how far below the model it may be at α = 0.95.
fn warm(kind: GeometryKind, short: f64) {
    for alpha in ALPHAS {
        let off = most_and_held(kind, 1 << 16, alpha, 1, 20).1 - model(kind, alpha);
        let short = if alpha == 0.95 { short } else { 1.0 };
        assert!((-short..1.0).contains(&off), "{} α {alpha}: {off:+.3} points", kind.name());
    }
}

#[test]
fn warm_set_associative() {
    [Set4, Set8, Set16].into_iter().for_each(|kind| warm(kind, 1.0));
}

#[test]
fn warm_blp_4() {
    warm(Blp2x4, 1.6);
    warm(Blp4x4, 2.0);
}

#[test]
fn warm_blp_8_and_16() {
    warm(Blp2x8, 1.8);
    warm(Blp2x16, 1.6);
}

/// After 1000 lookups per key on a small table; `short` as above, from the most that can be held.
#[test]
fn settled() {
    for (kind, short) in [(Blp2x4, 0.3), (Blp2x8, 0.3), (Blp2x16, 0.3), (Cuckoo2x4, 0.05)] {
        let (most, held) = most_and_held(kind, 1 << 14, 0.95, 2, 1000);
        assert!(most - held < short, "{}: {held} of at most {most}", kind.name());
    }
}

/// Table 1: about 99 %. Its bound by load factor (section 4.3), 0.99 · 0.93 / α, is 97 % at 0.95.
#[test]
fn cuckoo_lite_at_the_papers_load() {
    for (alpha, least) in [(0.5, 99.9), (0.75, 99.9), (0.95, 98.0), (1.25, 79.0), (2.0, 49.9)] {
        let (most, held) = most_and_held(Cuckoo2x4, 1 << 16, alpha, 1, 20);
        assert!(held >= least, "α {alpha}: {held}, expected {least} to {most}");
        let wide = most_and_held(Cuckoo2x8, 1 << 16, alpha, 1, 20).1;
        assert!(wide >= held - 0.02, "α {alpha}: {wide} after {held}");
    }
}
