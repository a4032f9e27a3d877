//! Sketches for C: which keys are hot. The counter's thread counts, the keeper's reads.

use overbank::sketch::{BURST_MAX, Config, Counter, Counts, Keeper, Settings, SketchError};

use crate::border::overbank_status::*;
use crate::border::*;
use crate::hash::overbank_hash128;

/// Most keys of one count.
pub const OVERBANK_SKETCH_BURST: usize = 64;
const _: () = assert!(OVERBANK_SKETCH_BURST == BURST_MAX);

/// The side of a sketch that counts. Belongs to one thread.
pub struct overbank_counter {
    _opaque: [u8; 0],
}

/// The side of a sketch that starts epochs and reads counts. Belongs to one thread.
pub struct overbank_keeper {
    _opaque: [u8; 0],
}

/// The size of a sketch, and how its first epoch counts. All zeroes are the sizes of NetCache,
/// every key counted, and hot with its first count.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct overbank_sketch_options {
    /// Logarithm of the counters in a row: 2 to 16; 0 is 16.
    pub counters_log2: u32,
    /// Logarithm of the bits in a row of the Bloom filter: 6 to 18; 0 is 18.
    pub bloom_log2: u32,
    /// Samples from which a key is hot, 65535 at most; 0 is 1.
    pub threshold: u32,
    /// Logarithm of the keys for each sample, 32 at most.
    pub sample_log2: u32,
    /// Decides which keys are sampled.
    pub seed: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// What a sketch has counted in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_counts {
    /// Samples.
    pub samples: u64,
    /// The largest counter.
    pub largest: u32,
    /// Number of the epoch whose counts grow.
    pub epoch: u32,
}

impl Blame for SketchError {
    fn status(&self) -> overbank_status {
        if matches!(self, SketchError::Memory(_)) { OVERBANK_MEMORY } else { OVERBANK_INVALID }
    }
}

fn settings(threshold: u32, sample_log2: u32) -> Result<Settings, Failure> {
    let threshold = u16::try_from(threshold)
        .map_err(|_| Failure::invalid(format_args!("threshold: 65535 at most, not {threshold}")))?;
    if sample_log2 > 32 {
        return Err(Failure::invalid(format_args!("sample_log2: 32 at most, not {sample_log2}")));
    }
    Ok(Settings { threshold: threshold.max(1), sample_log2 })
}

/// Makes a sketch and sets `*counter` and `*keeper`. `options` may be NULL.
///
/// Any thread. The caller owns both sides: overbank_counter_destroy, overbank_keeper_destroy, in
/// any order.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_sketch_create(
    options: *const overbank_sketch_options,
    counter: *mut *mut overbank_counter,
    keeper: *mut *mut overbank_keeper,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(counter, "counter")?;
            place(keeper, "keeper")?;
            let options = or_default(options, "options")?;
            unused(&options.reserved)?;
            let paper = Config::default();
            let or = |asked, default| if asked == 0 { default } else { asked };
            let config = Config {
                counters_log2: or(options.counters_log2, paper.counters_log2),
                bloom_log2: or(options.bloom_log2, paper.bloom_log2),
            };
            let settings = settings(options.threshold, options.sample_log2)?;
            let (counting, keeping) = config.build(options.seed, settings)?;
            Handle::give(counter, counting)?;
            Handle::give(keeper, keeping)
        }
    })
}

/// Frees the side that counts. NULL is none.
///
/// # Safety
/// The counter is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_counter_destroy(counter: *mut overbank_counter) {
    // SAFETY: the caller's promise.
    unsafe { Handle::<Counter>::destroy(counter) };
}

/// Frees the side that reads. NULL is none.
///
/// # Safety
/// The keeper is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_keeper_destroy(keeper: *mut overbank_keeper) {
    // SAFETY: the caller's promise.
    unsafe { Handle::<Keeper>::destroy(keeper) };
}

/// Counts up to OVERBANK_SKETCH_BURST keys. Bit `i` of `*hot` says that key `i` became hot in this
/// epoch: each is reported once an epoch. A thread without keys calls it with `count` 0 now and
/// then, or the keeper cannot go on.
///
/// # Safety
/// The counter is NULL or live, and in no other call; `hashes` has `count` elements; `hot` is NULL
/// or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_counter_count(
    counter: *mut overbank_counter,
    hashes: *const overbank_hash128,
    count: usize,
    hot: *mut u64,
) -> overbank_status {
    border(|| {
        if count > OVERBANK_SKETCH_BURST {
            let most = OVERBANK_SKETCH_BURST;
            return Err(Failure::invalid(format_args!("count: at most {most}, not {count}")));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let hot = place(hot, "hot")?;
            Handle::<Counter>::change(counter, |counter| {
                let mut keys = [0; OVERBANK_SKETCH_BURST];
                let hashes = elements(hashes, count, "hashes")?;
                keys.iter_mut().zip(hashes).for_each(|(key, hash)| *key = hash.get());
                *hot = counter.count_batch(&keys[..count]);
                Ok(())
            })
        }
    })
}

/// Starts an epoch that counts so, and clears the counts of the one before the last.
/// OVERBANK_ABSENT, with nothing changed, while the counter has not begun the current one.
///
/// # Safety
/// The keeper is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_keeper_turn(
    keeper: *mut overbank_keeper,
    threshold: u32,
    sample_log2: u32,
) -> overbank_status {
    border(|| {
        let settings = settings(threshold, sample_log2)?;
        // SAFETY: the caller's promise.
        unsafe {
            Handle::<Keeper>::change(keeper, |keeper| {
                let turned = keeper.turn(settings);
                let waits = "the counter has not begun the current epoch";
                turned.then_some(()).ok_or_else(|| Failure::new(OVERBANK_ABSENT, waits))
            })
        }
    })
}

/// Reads the counts of an epoch: those that grow (`finished` 0), or the final ones of the epoch
/// before (1): OVERBANK_ABSENT if there are none yet.
///
/// # Safety
/// The keeper is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_keeper_counts(
    keeper: *const overbank_keeper,
    finished: i32,
    out: *mut overbank_counts,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe {
        Handle::<Keeper>::tell(keeper, out, |keeper| {
            let counts = counts(keeper, finished)?;
            Ok(overbank_counts {
                samples: counts.samples(),
                largest: counts.largest().into(),
                epoch: keeper.epoch().into(),
            })
        })
    }
}

/// Estimates the samples of a key in an epoch (see overbank_keeper_counts): never too few, up to
/// 65535.
///
/// # Safety
/// As overbank_keeper_counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_keeper_estimate(
    keeper: *const overbank_keeper,
    finished: i32,
    hash: overbank_hash128,
    out: *mut u32,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe {
        Handle::<Keeper>::tell(keeper, out, |keeper| {
            Ok(counts(keeper, finished)?.estimate(hash.get()).into())
        })
    }
}

fn counts(keeper: &Keeper, finished: i32) -> Result<Counts<'_>, Failure> {
    match finished {
        0 => Ok(keeper.live()),
        1 => keeper
            .finished()
            .ok_or_else(|| Failure::new(OVERBANK_ABSENT, "no epoch is finished yet")),
        other => Err(Failure::invalid(format_args!("finished: 0 or 1, not {other}"))),
    }
}
