//! Accesses a second of the whole machine: `cargo run --release -p overbank-sdc --example speed`.
//!
//! Lookups in a tree of five levels, the path by a skewed key: ten reads a node of 512 bytes, eight
//! of the item, about as LMDB does it. Then reads all over memory, and writes one after the other.

use overbank_sdc::{Machine, Shape};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};

const LOOKUPS: usize = 500_000;
const KEYS: usize = 1_500_000;

fn lookup(machine: &mut Machine, random: &mut Pcg64, value: &mut [u64; 1]) {
    // Log-uniform: each doubling of the rank is drawn alike, near Zipf's law with θ = 1.
    let rank = (KEYS as f64).powf(random.random_range(0.0..1.0)) as u64;
    let key = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS as u64;
    let item = (1 << 40) + key * 576;
    if !machine.sdc_lookup(0, key, value) {
        for level in 0..5 {
            let node = (level << 34) + key / 10u64.pow(5 - level as u32) * 512;
            for read in 0..10 {
                machine.load(node + (key * 7 + read * 37) % 64 * 8, 8);
            }
        }
        machine.sdc_insert(0, key, &[item]);
    }
    (0..8).for_each(|word| machine.load(item + 8 * word, 8));
}

/// Returns the processor time of this thread: others share the machine.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

fn report(name: &str, shape: &Shape, mut run: impl FnMut(&mut Machine)) {
    let mut machine = Machine::new(shape).expect("a shape of this crate");
    run(&mut machine);
    machine.restart();
    let start = seconds();
    run(&mut machine);
    let seconds = seconds() - start;
    let counters = machine.counters();
    let accesses = counters.accesses as f64;
    let share = |n: u64| 100.0 * n as f64 / accesses;
    println!(
        "{name:12} {:6.1} M accesses/s   misses of L1 {:5.1} %, LLC {:4.1} %, TLB {:5.1} %   \
         SDC {:4.1} % hits, {:5} lines   {:5.1} cycles an access",
        accesses / seconds / 1e6,
        share(counters.l1.misses),
        share(counters.llc.misses),
        share(counters.tlb_misses),
        100.0 * counters.sdc.hits as f64 / counters.sdc.lookups.max(1) as f64,
        machine.sdc_lines(),
        machine.times().blocking / accesses,
    );
}

fn main() {
    let shapes = [
        ("paper", Shape::paper()),
        ("paper, SDC", Shape::paper_sdc()),
        ("modern", Shape::modern()),
        ("modern, SDC", Shape::modern_sdc()),
    ];
    for (name, shape) in &shapes {
        report(name, shape, |machine| {
            let (mut random, mut value) = (Pcg64::seed_from_u64(1), [0]);
            (0..LOOKUPS).for_each(|_| lookup(machine, &mut random, &mut value));
        });
    }
    report("random", &shapes[0].1, |machine| {
        let mut random = Pcg64::seed_from_u64(1);
        (0..5_000_000).for_each(|_| machine.load(random.random_range(0..1u64 << 27) * 8, 8));
    });
    report("sequential", &shapes[0].1, |machine| {
        (0..50_000_000u64).for_each(|i| machine.store(8 * i, 8));
    });
}
