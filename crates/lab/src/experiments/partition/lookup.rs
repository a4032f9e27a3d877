//! Lookups by batch and number of keys, of SetSep in the paper's setting and of the partition
//! table.

use std::hint::black_box;
use std::time::Instant;

use super::entries;
use crate::prelude::*;
use overbank::hash::mix;
use overbank::partition::setsep::{Config, SetSep};
use overbank::partition::{Config as Dense, Reader, Replica};

pub const SEP_FIG13: Experiment = Experiment {
    name: "sep-fig13",
    title: "SetSep and the partition table: lookups by batch and number of keys",
    source: "SetSep, figure 13",
    run,
};

/// As in the figure.
const VALUE_BITS: u32 = 2;
const BATCHES: [usize; 9] = [1, 2, 4, 8, 16, 17, 24, 32, 64];

enum Contestant {
    SetSep(SetSep),
    Dense(Reader),
}

impl Contestant {
    /// Nanoseconds of a lookup.
    fn ns(&self, hashes: &[u64], batch: usize) -> f64 {
        let mut values = [0; 64];
        let start = Instant::now();
        for hashes in hashes.chunks(batch) {
            let values = &mut values[..hashes.len()];
            match self {
                Contestant::SetSep(table) => table.lookup_batch(hashes, values),
                Contestant::Dense(reader) => reader.lookup_batch(hashes, values),
            }
            black_box(&values);
        }
        start.elapsed().as_nanos() as f64 / hashes.len() as f64
    }
}

/// What was measured of a number of keys: by contestant, then by batch.
struct Sized {
    keys: u64,
    rounds: [Rounds; 2],
}

impl Sized {
    fn ns(&self, contestant: usize, batch: usize) -> f64 {
        let at = BATCHES.iter().position(|&b| b == batch).unwrap_or(0);
        self.rounds[contestant].spread(at).median
    }

    fn past_l2(&self) -> bool {
        self.keys * 7 / 2 / 8 > overbank::prefetch::l2_bytes() as u64
    }
}

fn measure(context: &mut Context<'_>, keys: u64, lookups: usize) -> Result<Sized, LabError> {
    let all = || entries(0, keys, VALUE_BITS);
    context.step(&format!("{keys} keys: SetSep"), 0.0)?;
    let (setsep, _) =
        SetSep::build(&Config::new(keys as usize, VALUE_BITS), all()).map_err(LabError::failed)?;
    context.step(&format!("{keys} keys: partition table"), 0.4)?;
    let config = Dense::new(keys as usize, VALUE_BITS as usize).packed();
    let (dense, _) = Replica::build(&config, all()).map_err(LabError::failed)?;
    let tables = [Contestant::SetSep(setsep), Contestant::Dense(dense.reader())];
    let number = |i: u64| ((u128::from(mix(i ^ 0x13)) * u128::from(keys)) >> 64) as u64;
    let hashes: Vec<u64> = (0..lookups as u64).map(|i| mix(number(i))).collect();
    check(&tables, &hashes, all())?;
    let rounds = if context.smoke() { 2 } else { 7 };
    let mut pairs = pairs(&[0, 1], &BATCHES);
    let figures = Rounds::run(
        &mut pairs,
        rounds,
        |done| context.step(&format!("{keys} keys: lookups"), 0.5 + 0.5 * done),
        |&mut (table, batch), _| Ok(tables[table].ns(&hashes, batch)),
    )?;
    let mut of_each = figures.figures.chunks(BATCHES.len()).map(<[_]>::to_vec);
    let mut next = || Rounds { figures: of_each.next().unwrap_or_default() };
    Ok(Sized { keys, rounds: [next(), next()] })
}

/// Every value, before it is timed.
fn check(
    tables: &[Contestant],
    hashes: &[u64],
    all: impl Iterator<Item = (u64, u8)>,
) -> Result<(), LabError> {
    let wrong = |name: &str| Err(LabError::Failed(format!("{name} gives a wrong value")));
    for (hash, value) in all.take(1 << 20).chain(hashes.iter().map(|&hash| (hash, u8::MAX))) {
        for table in tables {
            let mut found = [0];
            let name = match table {
                Contestant::SetSep(table) => {
                    table.lookup_batch(&[hash], &mut found);
                    "SetSep"
                }
                Contestant::Dense(reader) => {
                    reader.lookup_batch(&[hash], &mut found);
                    "the partition table"
                }
            };
            if value != u8::MAX && found != [value] {
                return wrong(name);
            }
        }
    }
    Ok(())
}

const CLAIMS: &[Claim<[Sized]>] = &[
    Claim::timed("past L2, a batch of 1 is the slowest", "batching helps", |all: &[Sized]| {
        let far: Vec<&Sized> = all.iter().filter(|of| of.past_l2()).collect();
        let worst = |of: &&&Sized| BATCHES[1..].iter().all(|&b| of.ns(0, 1) > of.ns(0, b));
        let slow = far.iter().filter(worst).count();
        (!far.is_empty())
            .then(|| Finding::new(slow == far.len(), format!("{slow} of {} sizes", far.len())))?
    }),
    Claim::timed(
        "batches past 17 gain less than 5 %, at the largest size",
        "no gain",
        |all: &[Sized]| {
            let of = all.last()?;
            let gain = of.ns(0, 17) / of.ns(0, 32).min(of.ns(0, 64));
            Finding::new(gain < 1.05, format!("{gain:.2} ×"))
        },
    )
    .because("memory of this machine answers more requests at a time"),
    Claim::timed("500 K keys are faster without batching", "higher without", |all: &[Sized]| {
        let of = all.first()?;
        let ratio = of.ns(0, 32) / of.ns(0, 1);
        Finding::new(ratio > 1.0, format!("a batch of 32 takes {ratio:.2} of the time"))
    })
    .because("a batch overlaps the latency of the L2 cache, too"),
    Claim::timed(
        "the partition table takes less time than SetSep at 16 M keys",
        "goal",
        |all: &[Sized]| {
            let of = all.iter().find(|of| of.keys == 16_000_000)?;
            let ratio = of.ns(1, 32) / of.ns(0, 32);
            Finding::new(ratio < 1.0, format!("{ratio:.2} of SetSep's, batches of 32"))
        },
    ),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let millions: &[f64] =
        if smoke { &[0.02] } else { &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] };
    let lookups = if smoke { 1 << 12 } else { 1 << 20 };
    let sizes: Vec<u64> = millions.iter().map(|millions| (millions * 1e6) as u64).collect();
    let all = context.each(
        sizes,
        |keys| format!("{keys} keys"),
        |context, keys| measure(context, keys, lookups),
    )?;
    let mut record = SEP_FIG13.record(context);
    record.setting("lookups of a round", lookups);
    record.settings([isa()]);
    for (at, name) in ["SetSep", "partition table"].into_iter().enumerate() {
        let curve = |nth: usize| {
            let point = |of: &Sized| {
                let rate = of.rounds[at].figures[nth].iter().map(|ns| 1e3 / ns);
                (of.keys as f64 / 1e6, Spread::of(rate))
            };
            Series::rounds(format!("batch {}", BATCHES[nth]), all.iter().map(point))
        };
        let plot = Plot::new(format!("{name}, one core"), "keys, millions", "M lookups/s").log_x();
        record.plots.push(plot.with((0..BATCHES.len()).map(curve)));
    }
    record.judge("", CLAIMS, &all[..]);
    record.note(
        "The text has 16 threads on two sockets: 520 M lookups/s at a batch of 17 and 64 M keys, 32.5 M a \
         thread, and a cliff from 32 M to 64 M keys, where 28 MiB do not fit its L3 (of 2 × 20 MiB, the \
         text says). Here it is one core. Keys are looked up by their hashes.",
    );
    Ok(record)
}
