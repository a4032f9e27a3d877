//! A billion keys, built in pieces so that memory stays bounded, and every value looked up.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Instant;

use super::entries;
use crate::prelude::*;
use overbank::partition::{BuildStats, BuiltPiece, Config, Plan, Reader};
use overbank_kit::machine::{keep_on, usable_cores};

pub const SEP_BILLION: Experiment = Experiment {
    name: "sep-billion",
    title: "The partition table: a billion keys of 4 bits",
    source: "Target of this project",
    run,
};

const VALUE_BITS: u32 = 4;
/// Pieces of the build: those that are built at the same time take 32 bytes a key.
const PIECES: usize = 16;
/// Parts of the lookups.
const STRETCHES: usize = 256;
const BURST: usize = 32;

/// Does the parts of some work with a thread on each core; `done` gets what each part gave.
fn on_cores<T: Send>(
    cores: &[usize],
    parts: usize,
    work: impl Fn(usize) -> Result<T, LabError> + Sync,
    mut done: impl FnMut(usize, T) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let (next, work) = (&AtomicUsize::new(0), &work);
    let (send, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        for &core in cores {
            let send = send.clone();
            scope.spawn(move || {
                let mut ready = keep_on(&[core]).map_err(LabError::failed);
                loop {
                    let part = next.fetch_add(1, Relaxed);
                    let given = match ready {
                        Ok(()) if part >= parts => return,
                        Ok(()) => work(part).map(|given| (part, given)),
                        Err(error) => Err(error),
                    };
                    // The other end is gone after an error or Ctrl-C.
                    if send.send(given).is_err() {
                        return;
                    }
                    ready = Ok(());
                }
            });
        }
        drop(send);
        finished.into_iter().try_for_each(|given| given.and_then(|(part, of)| done(part, of)))
    })
}

/// Keys with another value than the one they were built with, among those from `first` to `end`.
fn wrong_values(reader: &Reader, first: u64, end: u64) -> u64 {
    let (mut hashes, mut due, mut values) = ([0; BURST], [0; BURST], [0; BURST]);
    let mut wrong = 0;
    for at in (first..end).step_by(BURST) {
        let now = (end - at).min(BURST as u64) as usize;
        for (nth, (hash, value)) in entries(at, now as u64, VALUE_BITS).enumerate() {
            (hashes[nth], due[nth]) = (hash, value);
        }
        reader.lookup_batch(&hashes[..now], &mut values[..now]);
        wrong += values.iter().zip(&due).take(now).filter(|(value, due)| value != due).count();
    }
    wrong as u64
}

/// Returns the most memory that this process has had, by the kernel's account.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

struct Billion {
    keys: u64,
    bytes: u64,
    stats: BuildStats,
    build_s: f64,
    lookup_s: f64,
    wrong: u64,
    peak_bytes: u64,
}

impl Billion {
    fn bits(&self) -> f64 {
        8.0 * self.bytes as f64 / self.keys as f64
    }
}

const CLAIMS: &[Claim<Billion>] = &[
    Claim::new("every key has its value", "all", |of: &Billion| {
        let right = of.stats.keys as u64 == of.keys && of.wrong == 0;
        Finding::new(right, format!("{} of {} keys", of.keys - of.wrong, of.keys))
    }),
    Claim::new("0.6 GB for a billion keys", "at most 4.8 bits a key", |of: &Billion| {
        let text = format!("{:.3} bits, {:.3} GB", of.bits(), of.bytes as f64 / 1e9);
        // The smoke size has few blocks.
        Finding::new(of.bits() <= 4.8, text)
    }),
    Claim::new("keys in the fallback table", "at most 10 ppm", |of: &Billion| {
        let ppm = 1e6 * of.stats.fallback as f64 / of.keys as f64;
        Finding::new(ppm <= 10.0, format!("{} keys, {ppm:.2} ppm", of.stats.fallback))
    }),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let keys: u64 = if context.smoke() { 400_000 } else { 1_000_000_000 };
    let cores = usable_cores();
    let config = Config::new(keys as usize, VALUE_BITS as usize).packed();
    let plan = Plan::new(&config).map_err(LabError::failed)?;
    let pieces = plan.pieces(PIECES);
    let mut built: Vec<Option<BuiltPiece>> = pieces.iter().map(|_| None).collect();
    let (start, mut count) = (Instant::now(), 0.0);
    context.step("building", 0.0)?;
    on_cores(
        &cores,
        pieces.len(),
        |nth| {
            let all = entries(0, keys, VALUE_BITS);
            pieces[nth].build_watched(all, false, |_| {}).map_err(LabError::failed)
        },
        |nth, piece| {
            built[nth] = Some(piece);
            count += 1.0;
            context.step("building", 0.8 * count / pieces.len() as f64)
        },
    )?;
    let (replica, stats) = plan.replica(built.into_iter().flatten()).map_err(LabError::failed)?;
    let build_s = start.elapsed().as_secs_f64();
    let reader = replica.reader();
    let (start, mut count, mut wrong) = (Instant::now(), 0.0, 0);
    let from = |nth: usize| keys * nth as u64 / STRETCHES as u64;
    on_cores(
        &cores,
        STRETCHES,
        |nth| Ok(wrong_values(&reader, from(nth), from(nth + 1))),
        |_, found| {
            wrong += found;
            count += 1.0;
            context.step("looking up every key", 0.8 + 0.2 * count / STRETCHES as f64)
        },
    )?;
    let of = Billion {
        keys,
        bytes: reader.bytes() as u64,
        stats,
        build_s,
        lookup_s: start.elapsed().as_secs_f64(),
        wrong,
        peak_bytes: peak_bytes().unwrap_or(0),
    };
    let mut record = SEP_BILLION.record(context);
    record.setting("keys", keys);
    record.setting("value bits", VALUE_BITS);
    record.setting("pieces", pieces.len());
    record.setting("threads", cores.len());
    record.settings([isa()]);
    record.tables.push(Table::of(
        "A table in pieces",
        [&of],
        &[
            ("keys", &|of| of.keys.to_string()),
            ("bytes", &|of| of.bytes.to_string()),
            ("bits a key", &|of| format!("{:.3}", of.bits())),
            ("fallback keys", &|of| of.stats.fallback.to_string()),
            ("built, s", &|of| format!("{:.1}", of.build_s)),
            ("built, Mkeys/s", &|of| format!("{:.1}", of.keys as f64 / of.build_s / 1e6)),
            ("all looked up, s", &|of| format!("{:.1}", of.lookup_s)),
            ("peak memory, GB", &|of| format!("{:.2}", of.peak_bytes as f64 / 1e9)),
        ],
    ));
    record.judge("", CLAIMS, &of);
    record.note(
        "Each piece passes over all keys and keeps its own. Keys come from a generator and are \
         not held. Peak memory is that of the process.",
    );
    Ok(record)
}
