//! What the sketch of hot keys finds, beside exact counts.
//!
//! The paper counts one request in some, says a key is hot from a threshold on, and hashes by XOR
//! of random bits of the key. It measures none of that. Here requests of one epoch are counted both
//! ways.

use std::collections::HashMap;

use super::*;
use overbank::hash::mix;
use overbank::sketch::{BURST_MAX, Config, Settings};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub const KVSKETCH: Experiment = Experiment {
    name: "kvsketch",
    title: "Keys that the sketch reports, beside exact counts",
    source: "NetCache, section 4.4.3",
    run,
};

const THETA: f64 = 0.99;
const SAMPLES: [u32; 4] = [0, 3, 6, 9];
const THRESHOLDS: [u16; 3] = [8, 32, 128];
const WIDTHS: [u32; 4] = [10, 12, 14, 16];

/// How a key's bits become the rows' indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Xxh3,
    /// Each bit is the parity of random bits of the key, as in the paper's switch.
    Xor,
}

impl Hash {
    const fn name(self) -> &'static str {
        match self {
            Hash::Xxh3 => "xxh3",
            Hash::Xor => "XOR of key bits",
        }
    }
}

struct Hasher {
    hash: Hash,
    masks: Vec<u128>,
    seed: u64,
}

impl Hasher {
    fn new(hash: Hash, seed: u64) -> Hasher {
        let mask = |nth: u64| law::key(mix(seed ^ nth)) ^ law::key(mix(!seed ^ nth)) << 64;
        Hasher { hash, masks: (0..128).map(mask).collect(), seed }
    }

    fn of(&self, key: u128) -> u128 {
        match self.hash {
            Hash::Xxh3 => xxh3_128_with_seed(&key.to_le_bytes(), self.seed),
            Hash::Xor => {
                let parity = |mask: &u128| u128::from((key & mask).count_ones() & 1);
                self.masks.iter().fold(0, |hash, mask| hash << 1 | parity(mask))
            }
        }
    }
}

/// A way to count, and what it gave.
struct Of {
    hash: Hash,
    width_log2: u32,
    sample_log2: u32,
    threshold: u16,
    samples: u64,
    reported: usize,
    /// Of the reported keys, those that are among the hottest; of the hottest, those reported.
    precision: f64,
    recall: f64,
    /// Keys whose estimate is below their exact count of all requests, if all are counted.
    under: u64,
    /// Share of keys whose estimate is above it by more than e n / w.
    over: f64,
}

struct All {
    by: Vec<Of>,
    top: usize,
}

impl All {
    fn of(&self, width_log2: u32, sample_log2: u32, threshold: u16) -> Option<&Of> {
        let wanted = (Hash::Xxh3, width_log2, sample_log2, threshold);
        self.by.iter().find(|of| (of.hash, of.width_log2, of.sample_log2, of.threshold) == wanted)
    }
}

const CLAIMS: &[Claim<All>] = &[
    Claim::new("no estimate is below the exact count", "never under", |of: &All| {
        let under: u64 = of.by.iter().map(|of| of.under).sum();
        Finding::new(under == 0, format!("{under} keys"))
    }),
    Claim::new("above it by e n / w for at most e⁻⁴ of the keys", "1.8 %", |of: &All| {
        let xxh3 = of.by.iter().filter(|of| of.hash == Hash::Xxh3);
        let worst = xxh3.map(|of| of.over).fold(0.0, f64::max);
        Finding::new(worst <= (-4.0f64).exp(), percent(worst, 3))
    }),
];

const FULL: &[Claim<All>] = &[
    Claim::new(
        "one in 8, 8 samples: 0.9 of what is reported is among the hottest",
        "heavy hitters",
        |of: &All| {
            let of = of.of(16, 3, 8)?;
            Finding::new(of.precision >= 0.9, format!("{:.3} of {}", of.precision, of.reported))
        },
    ),
    Claim::new("narrow rows report keys that are not hot", "64 Ki counters", |of: &All| {
        let (narrow, wide) = (of.of(10, 3, 8)?.precision, of.of(16, 3, 8)?.precision);
        Finding::new(narrow < wide, format!("{narrow:.3} with 1 Ki, {wide:.3} with 64 Ki"))
    }),
];

fn measure(
    requests: &[u128],
    counts: &HashMap<u128, u64>,
    hottest: &HashMap<u128, u64>,
    (hasher, width_log2, sample_log2, threshold): (&Hasher, u32, u32, u16),
) -> Result<Of, LabError> {
    let config = Config { counters_log2: width_log2, ..Config::default() };
    let settings = Settings { threshold, sample_log2 };
    let (mut counter, keeper) = config.build(hasher.seed, settings).map_err(LabError::failed)?;
    let mut reported = HashMap::new();
    for burst in requests.chunks(BURST_MAX) {
        let hashes: Vec<u128> = burst.iter().map(|&key| hasher.of(key)).collect();
        let hot = counter.count_batch(&hashes);
        for (nth, key) in burst.iter().enumerate() {
            if hot >> nth & 1 == 1 {
                reported.insert(*key, ());
            }
        }
    }
    let live = keeper.live();
    let samples = live.samples();
    let (mut under, mut over) = (0, 0u64);
    if sample_log2 == 0 {
        let bound = std::f64::consts::E * samples as f64 / f64::from(1u32 << width_log2);
        for (&key, &count) in counts {
            let estimate = u64::from(live.estimate(hasher.of(key)));
            let exact = count.min(u64::from(u16::MAX));
            under += u64::from(estimate < exact);
            over += u64::from(estimate as f64 > exact as f64 + bound);
        }
    }
    let right = reported.keys().filter(|key| hottest.contains_key(*key)).count();
    Ok(Of {
        hash: hasher.hash,
        width_log2,
        sample_log2,
        threshold,
        samples,
        reported: reported.len(),
        precision: right as f64 / reported.len().max(1) as f64,
        recall: right as f64 / hottest.len().max(1) as f64,
        under,
        over: over as f64 / counts.len().max(1) as f64,
    })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (keys, count, top): (u64, usize, usize) = match context.smoke() {
        true => (100_000, 50_000, 200),
        false => (100_000_000, 4_000_000, 10_000),
    };
    context.step("requests", 0.0)?;
    let law = Law::new(keys, THETA)?;
    let mut random = Pcg64Mcg::seed_from_u64(context.seed);
    let requests: Vec<u128> = (0..count).map(|_| law::key(law.draw(&mut random))).collect();
    let mut counts: HashMap<u128, u64> = HashMap::new();
    requests.iter().for_each(|&key| *counts.entry(key).or_default() += 1);
    let hottest: HashMap<u128, u64> = (1..=top as u64).map(|rank| (law::key(rank), rank)).collect();
    let mut ways = Vec::new();
    for (sample, threshold) in pairs(&SAMPLES, &THRESHOLDS) {
        ways.push((Hash::Xxh3, 16, sample, threshold));
    }
    ways.extend(WIDTHS.map(|width| (Hash::Xxh3, width, 3, 8)));
    ways.extend(WIDTHS.map(|width| (Hash::Xxh3, width, 0, 32)));
    ways.extend([(Hash::Xor, 16, 0, 32), (Hash::Xor, 16, 3, 8)]);
    ways.dedup();
    let seed = context.seed;
    let by = context.each(
        ways,
        |(hash, width, sample, threshold)| {
            format!("{}, 2^{width} counters, one in 2^{sample}, from {threshold} on", hash.name())
        },
        |_, (hash, width, sample, threshold)| {
            let hasher = Hasher::new(hash, seed);
            measure(&requests, &counts, &hottest, (&hasher, width, sample, threshold))
        },
    )?;
    let all = All { by, top };
    let mut record = KVSKETCH.record(context);
    record.setting("requests of the epoch", count);
    record.setting("keys", keys);
    record.setting("θ", THETA);
    record.setting("hottest keys", all.top);
    record.judge("", CLAIMS, &all);
    if !context.smoke() {
        record.judge("", FULL, &all);
    }
    record.tables.push(Table::of(
        "Reported keys",
        &all.by,
        &[
            ("hash", &|of| of.hash.name().to_owned()),
            ("counters of a row", &|of| (1u32 << of.width_log2).to_string()),
            ("one in", &|of| (1u32 << of.sample_log2).to_string()),
            ("hot from", &|of| of.threshold.to_string()),
            ("samples", &|of| of.samples.to_string()),
            ("reported", &|of| of.reported.to_string()),
            ("of them hottest", &|of| percent(of.precision, 1)),
            ("of the hottest", &|of| percent(of.recall, 1)),
            ("above by e n / w", &|of| match of.sample_log2 {
                0 => percent(of.over, 3),
                _ => String::new(),
            }),
        ],
    ));
    Ok(record)
}
