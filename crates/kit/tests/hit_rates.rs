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

use overbank::cache::{Blp, Config, Cuckoo, FlowCache, Fp16V32, Geometry, Random, SetAssoc};
use overbank::hash::mix;
use overbank_kit::models::{blp, blp_held, set_assoc};
use overbank_kit::workload::FlowStream;

const ALPHAS: [f64; 5] = [0.5, 0.75, 0.95, 1.25, 2.0];

/// A table, its working set, and lookups that have not been made yet.
struct Bench<G> {
    cache: FlowCache<G, Random, Fp16V32>,
    stream: FlowStream,
    keys: u32,
    seed: u64,
}

impl<G: Geometry> Bench<G> {
    fn new(entries: usize, alpha: f64, seed: u64) -> Self {
        let keys = (entries as f64 * alpha) as u32;
        let cache = FlowCache::new(&Config::entries(entries).seed(seed)).expect("a fair size");
        assert_eq!(cache.capacity(), entries);
        let stream = FlowStream::uniform(keys, seed).expect("a working set");
        Bench { cache, stream, keys, seed }
    }

    fn hash(&self, key: u32) -> u64 {
        mix(u64::from(key) | self.seed << 32)
    }

    /// Lookups, and an insertion after each miss.
    fn run(&mut self, lookups_per_key: u64) {
        for _ in 0..u64::from(self.keys) * lookups_per_key {
            let key = self.stream.next_flow();
            let hash = self.hash(key);
            if self.cache.lookup(hash, |value| value == key).is_none() {
                self.cache.insert(hash, key);
            }
        }
    }

    /// Share of the working set that is held now, in points.
    fn held(&mut self) -> f64 {
        let held = (0..self.keys)
            .filter(|&key| {
                let hash = self.hash(key);
                self.cache.lookup(hash, |value| value == key).is_some()
            })
            .count();
        assert_eq!(held, self.cache.len());
        100.0 * held as f64 / f64::from(self.keys)
    }

    /// The largest share that can be held, in points.
    fn most(&self) -> f64 {
        100.0 * most::<G>(self.cache.buckets(), self.keys, |key| self.hash(key))
    }
}

fn most<G: Geometry>(buckets: usize, keys: u32, hash: impl Fn(u32) -> u64) -> f64 {
    let (h, m) = (G::CHOICES as u32, G::SLOTS as u32);
    if !G::ADJACENT {
        return (buckets as f64 * f64::from(m) / f64::from(keys)).min(1.0);
    }
    let mut arrivals = vec![0u32; buckets];
    (0..keys).for_each(|key| arrivals[G::bucket(hash(key), buckets, 0)] += 1);
    blp_held(h, m, arrivals) as f64 / f64::from(keys)
}

fn model<G: Geometry>(alpha: f64) -> f64 {
    let (h, m) = (G::CHOICES as u32, G::SLOTS as u32);
    100.0 * if h == 1 { set_assoc(m, alpha) } else { blp(h, m, alpha) }
}

fn models_hold<G: Geometry>() {
    let entries = 1 << 20;
    for alpha in ALPHAS {
        let keys = (f64::from(entries) * alpha) as u32;
        let buckets = entries as usize / G::SLOTS;
        let most = 100.0 * most::<G>(buckets, keys, |key| mix(u64::from(key)));
        let off = most - model::<G>(alpha);
        assert!(off.abs() < 0.1, "{} α {alpha}: {off:+.3} points", G::KIND.name());
    }
}

/// After 20 lookups per key; `short` is how far below the model it may be at α = 0.95.
fn warm<G: Geometry>(short: f64) {
    for alpha in ALPHAS {
        let mut bench = Bench::<G>::new(1 << 16, alpha, 1);
        bench.run(20);
        let (held, most, model) = (bench.held(), bench.most(), model::<G>(alpha));
        println!(
            "{:8} α {alpha:4}: held {held:.2} most {most:.2} model {model:.2}",
            G::KIND.name()
        );
        assert!(held <= most, "{} α {alpha}: {held} of at most {most}", G::KIND.name());
        let short = if alpha == 0.95 { short } else { 1.0 };
        let off = held - model;
        assert!((-short..1.0).contains(&off), "{} α {alpha}: {off:+.3} points", G::KIND.name());
    }
}

/// After 1000 lookups per key on a small table; `short` as above, from the most that can be held.
fn settled<G: Geometry>(short: f64) {
    let mut bench = Bench::<G>::new(1 << 14, 0.95, 2);
    bench.run(1000);
    let (held, most) = (bench.held(), bench.most());
    println!("{:8} held {held:.3} most {most:.3} after 1000", G::KIND.name());
    assert!(held <= most, "{}: {held} of at most {most}", G::KIND.name());
    assert!(most - held < short, "{}: {held} of at most {most}", G::KIND.name());
}

#[test]
fn models_hold_for_large_working_sets() {
    models_hold::<SetAssoc<4>>();
    models_hold::<SetAssoc<8>>();
    models_hold::<SetAssoc<16>>();
    models_hold::<Blp<2, 4>>();
    models_hold::<Blp<2, 8>>();
    models_hold::<Blp<2, 16>>();
    models_hold::<Blp<4, 4>>();
}

#[test]
fn warm_set_associative() {
    warm::<SetAssoc<4>>(1.0);
    warm::<SetAssoc<8>>(1.0);
    warm::<SetAssoc<16>>(1.0);
}

#[test]
fn warm_blp_4() {
    warm::<Blp<2, 4>>(1.6);
    warm::<Blp<4, 4>>(2.0);
}

#[test]
fn warm_blp_8_and_16() {
    warm::<Blp<2, 8>>(1.8);
    warm::<Blp<2, 16>>(1.6);
}

#[test]
fn settled_blp_2_4() {
    settled::<Blp<2, 4>>(0.3);
}

#[test]
fn settled_blp_2_8() {
    settled::<Blp<2, 8>>(0.3);
}

#[test]
fn settled_blp_2_16() {
    settled::<Blp<2, 16>>(0.3);
}

/// Table 1: about 99 %. Its bound by load factor (section 4.3), 0.99 · 0.93 / α, is 97 % at 0.95.
#[test]
fn cuckoo_lite_at_the_papers_load() {
    for (alpha, least) in [(0.5, 99.9), (0.75, 99.9), (0.95, 98.0), (1.25, 79.0), (2.0, 49.9)] {
        let mut bench = Bench::<Cuckoo<2, 4>>::new(1 << 16, alpha, 1);
        bench.run(20);
        let (held, most) = (bench.held(), bench.most());
        assert!((least..=most).contains(&held), "α {alpha}: {held}, expected {least} to {most}");
        let mut wide = Bench::<Cuckoo<2, 8>>::new(1 << 16, alpha, 1);
        wide.run(20);
        let wide = wide.held();
        assert!(wide >= held - 0.02 && wide <= most, "α {alpha}: {wide} after {held}");
    }
    settled::<Cuckoo<2, 4>>(0.05);
}
