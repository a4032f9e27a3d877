//! Slide 15: 25 keys on 32 slots, and why a window of two overlapping buckets holds one key more
//! than a bucket of twice the size.
//!
//! ```text
//!  bucket            0  1  2  3  4  5  6  7
//!  keys that hash    3  7  6  2  3  1  2  1        25 keys
//!
//!  set-8  buckets   [ 0  1][ 2  3][ 4  5][ 6  7]   10→8  8  4  3          23 of 32 = 0.71875
//!  blp-2-4           0 ▸1 ▸2 ▸3 ▸4 ▸5 ▸6 ▸7        3 4 4 4 4 2 2 1        24 of 32 = 0.75
//!  set-4             3  4  4  2  3  1  2  1                               20 of 32 = 0.625
//! ```
//!
//! The figures come out of the models' recursion, and out of the real tables fed with hashes that
//! fall on these buckets.

use crate::prelude::*;
use overbank::cache::{Blp, Config, FlowCache, Fp16V16, Geometry, Random, SetAssoc};
use overbank::hash::Hash64;
use overbank::random::Pcg32;
use overbank_kit::models::blp_held;

pub const SLIDE15: Experiment = Experiment {
    name: "slide15",
    title: "Why BLP holds more than a set-associative cache: the worked example",
    source: "ATC 2020, slide 15",
    run,
};

const ARRIVALS: [u32; 8] = [3, 7, 6, 2, 3, 1, 2, 1];
const SLOTS: u32 = 32;

/// Returns the bucket, by which the slide names a key, and the hash of all keys.
fn keys() -> Vec<(u32, u64)> {
    let buckets = (0u32..).zip(ARRIVALS);
    let named = buckets.flat_map(|(bucket, keys)| std::iter::repeat_n(bucket, keys as usize));
    // The high half of the hash, times 8, is the bucket; the low 16 bits are the fingerprint.
    named
        .zip(1u64..)
        .map(|(bucket, number)| (bucket, (u64::from(bucket) << 61) | (1 << 60) | number))
        .collect()
}

/// What a table of 32 slots holds after many random lookups of the keys, by bucket.
struct Settled {
    held: usize,
    lookups: u64,
    contents: Vec<Vec<u32>>,
}

fn settle<G: Geometry>(seed: u64) -> Result<Settled, LabError> {
    let config = Config::buckets(SLOTS as usize / G::SLOTS).seed(seed);
    let mut cache: FlowCache<G, Random, Fp16V16> =
        FlowCache::new(&config).map_err(LabError::failed)?;
    let keys = keys();
    let mut rng = Pcg32::new(seed, 15);
    let mut lookups = 0;
    for lookup in 1..=20_000 {
        let number = rng.below(keys.len() as u32) as usize;
        let hash = Hash64::new(keys[number].1);
        if cache.lookup(hash, |value| usize::from(value as u16) == number).is_none() {
            let before = cache.len();
            cache.insert(hash, number as u16);
            if cache.len() > before {
                lookups = lookup;
            }
        }
    }
    let contents = (0..cache.buckets() + G::BUFFER_BUCKETS)
        .map(|bucket| {
            let slots = (0..G::SLOTS).filter_map(|slot| cache.peek(bucket, slot));
            let mut names: Vec<u32> = slots.map(|(_, number)| keys[number as usize].0).collect();
            names.sort_unstable();
            names
        })
        .collect();
    Ok(Settled { held: cache.len(), lookups, contents })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("25 keys", 0.0)?;
    let mut record = SLIDE15.record(context);
    record.setting("slots", SLOTS);
    record.setting("keys by bucket", ARRIVALS.map(|a| a.to_string()).join(" "));

    let pairs: Vec<u32> = ARRIVALS.chunks(2).map(|pair| pair.iter().sum()).collect();
    type Settle = fn(u64) -> Result<Settled, LabError>;
    let designs: [(&str, Option<f64>, u64, Settle); 4] = [
        ("set-4", None, blp_held(1, 4, ARRIVALS), settle::<SetAssoc<4>>),
        ("set-8", Some(0.71875), blp_held(1, 8, pairs), settle::<SetAssoc<8>>),
        ("blp-2-4", Some(0.75), blp_held(2, 4, ARRIVALS), settle::<Blp<2, 4>>),
        ("blp-4-4", None, blp_held(4, 4, ARRIVALS), settle::<Blp<4, 4>>),
    ];
    let headings = ["design", "slide", "held", "occupancy", "lookups to get there (median)"];
    let mut occupied = Table::new("Occupied slots in the end", headings);
    let title = "One final state of the real tables (a key has the number of its bucket)";
    let mut state = Table::new(title, ["design", "bucket", "keys"]);
    for (name, stated, most, settle) in designs {
        // The same end by every path.
        let runs: Vec<Settled> =
            (0..100).map(|i| settle(context.seed.wrapping_add(i))).collect::<Result<_, _>>()?;
        let occupancy = |held: u64| held as f64 / f64::from(SLOTS);
        occupied.row([
            name.to_owned(),
            stated.map_or("–".to_owned(), |s| s.to_string()),
            format!("{most} of {SLOTS}"),
            occupancy(most).to_string(),
            format!("{:.0}", median(runs.iter().map(|r| r.lookups as f64))),
        ]);
        let Spread { low, high, .. } = Spread::of(runs.iter().map(|r| occupancy(r.held as u64)));
        let measured = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let (claim, value) = match stated {
            Some(value) => ("occupancy, recursion and 100 runs of the real table", value),
            None => ("ends where the recursion says, in 100 runs", occupancy(most)),
        };
        let holds = [low, high, occupancy(most)] == [value; 3];
        record.claim(format!("{name}: {claim}"), value.to_string(), measured, holds);
        for (bucket, keys) in runs[0].contents.iter().enumerate().filter(|_| stated.is_some()) {
            let keys = keys.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let keys = if keys.is_empty() { "–".to_owned() } else { keys };
            state.row([name.to_owned(), bucket.to_string(), keys]);
        }
    }
    record.tables.extend([occupied, state]);
    record.note(
        "The slide names no design beside its figures. 0.71875 is 23 of 32 slots with five of the \
         seven keys of bucket 1 held: the 8-way cache, whose first bucket (the slide's 0 and 1) is \
         hashed to by 10 keys. BLP reads 8 slots as well, but its windows overlap: bucket 1 spills \
         into 2, 2 into 3, 3 into 4, 4 into 5, and one more key fits.",
    );
    Ok(record)
}
