//! Flow caches for C: a burst is probed, its hints verified by the caller, and reported.

use std::ffi::c_char;

use overbank::cache::{
    BURST, CacheError, Config, Design, DynCache, Hits, Inserted, LayoutKind, Probes, Slot,
    ValueTooWide,
};
use overbank::hash::Hash64;

use crate::border::overbank_status::*;
use crate::border::*;

/// Most hashes of one probe.
pub const OVERBANK_BURST: usize = 32;
const _: () = assert!(OVERBANK_BURST == BURST);
/// The slot of a hint that is none: the key is not in the cache.
pub const OVERBANK_MISS: u16 = 0xffff;

/// A flow cache: a bounded table from 64-bit hashes to values of 16 or 32 bits, which evicts what
/// it cannot hold. It keeps 16 bits of each hash and no key, so a match is a hint.
///
/// One thread at a time uses it; nothing in it locks.
pub struct overbank_cache {
    _opaque: [u8; 0],
}

pub(crate) type Cache = Handle<Box<dyn DynCache>>;

/// How a cache is made. All zeroes are the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct overbank_cache_options {
    /// Seed of random evictions and promotions.
    pub seed: u64,
    /// Bits of a value: 16 (0 is 16 too) or 32.
    pub value_bits: u32,
    /// Zero.
    pub unused: u32,
    /// "portable", "avx2", "avx512" or "neon"; NULL: the best that the CPU has.
    pub isa: *const c_char,
    /// Zero.
    pub reserved: [u64; 4],
}

impl Default for overbank_cache_options {
    fn default() -> Self {
        Self { seed: 0, value_bits: 0, unused: 0, isa: std::ptr::null(), reserved: [0; 4] }
    }
}

/// A match of a hash: perhaps the key's, perhaps another's. Verify the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_hint {
    /// The value in the slot; without a match it means nothing.
    pub value: u32,
    /// The candidate slot, or OVERBANK_MISS.
    pub slot: u16,
    /// Matches of this hash that were wrong, counted by overbank_cache_next.
    pub refused: u16,
}

/// What a cache has counted since it was made or last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_cache_counters {
    /// Keys reported by overbank_cache_commit.
    pub lookups: u64,
    /// Those that had a slot.
    pub hits: u64,
    /// Matches that were wrong.
    pub false_positives: u64,
    /// Insertions.
    pub inserts: u64,
    /// Those that went over an entry of the same fingerprint.
    pub replacements: u64,
    /// Those that evicted another entry.
    pub evictions: u64,
    /// Entries removed, by overbank_cache_erase and overbank_cache_clear.
    pub removals: u64,
}

/// What a cache is and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_cache_info {
    /// Entries.
    pub len: usize,
    /// Slots.
    pub capacity: usize,
    /// Buckets, without buffer buckets.
    pub buckets: usize,
    /// Candidate slots of a key.
    pub candidates: usize,
    /// Bytes of the table.
    pub bytes: usize,
}

impl Blame for CacheError {
    fn status(&self) -> overbank_status {
        if matches!(self, CacheError::Memory(_)) { OVERBANK_MEMORY } else { OVERBANK_INVALID }
    }
}

impl Blame for ValueTooWide {
    fn status(&self) -> overbank_status {
        OVERBANK_INVALID
    }
}

/// Makes a cache of at least `entries` slots and sets `*out`.
///
/// `design` is a name as "blp-2-16+pblru", "blp-2-4" or "cuckoo-2-16+half-bubble": geometry and
/// policy, or the geometry alone for random eviction; "blp-2-4+pblru/8" promotes one hit in
/// 8. `options` may be NULL. Fails with
/// OVERBANK_INVALID for a name, a size or an option that cannot be, and with OVERBANK_MEMORY.
///
/// Any thread. The caller owns the cache: overbank_cache_destroy.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_create(
    design: *const c_char,
    entries: usize,
    options: *const overbank_cache_options,
    out: *mut *mut overbank_cache,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let options = or_default(options, "options")?;
            unused(&options.reserved)?;
            unused(&[options.unused.into()])?;
            let layout = match options.value_bits {
                0 | 16 => LayoutKind::Fp16V16,
                32 => LayoutKind::Fp16V32,
                bits => {
                    return Err(Failure::invalid(format_args!("value_bits: 16 or 32, not {bits}")));
                }
            };
            let name = text(design, "design")?;
            let design = name.parse::<Design>();
            let design = design
                .map_err(|error| Failure::invalid(format_args!("design {name:?}: {error}")))?;
            let config = Config::entries(entries).seed(options.seed).layout(layout);
            Handle::give(out, design.build(&config.isa(isa(options.isa)?))?)
        }
    })
}

/// Frees a cache. NULL is none.
///
/// # Safety
/// The cache is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_destroy(cache: *mut overbank_cache) {
    // SAFETY: the caller's promise.
    unsafe { Cache::destroy(cache) };
}

/// Looks for up to OVERBANK_BURST hashes, and writes a hint for each: its first match.
///
/// Asks for all cache lines before it reads the first. Changes and counts nothing. Hashes need 64
/// good bits (overbank_hash, overbank_mix).
///
/// Threads may probe at the same time while none changes the cache.
///
/// # Safety
/// The cache is NULL or live; `hashes` and `hints` have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_probe(
    cache: *const overbank_cache,
    hashes: *const u64,
    count: usize,
    hints: *mut overbank_hint,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::read(cache, |cache| {
                let (hashes, hints) = burst(hashes, hints, count)?;
                probe(&**cache, hashes, None, hints);
                Ok(())
            })
        }
    })
}

/// As overbank_cache_probe, and meanwhile asks for the lines of the `next` hashes, which the next
/// call is expected to have as `hashes`: a burst then waits for no memory. Begin with `count` 0.
///
/// # Safety
/// As overbank_cache_probe; `next` has `next_count` elements, OVERBANK_BURST at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_probe_ahead(
    cache: *const overbank_cache,
    hashes: *const u64,
    count: usize,
    next: *const u64,
    next_count: usize,
    hints: *mut overbank_hint,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::read(cache, |cache| {
                let (hashes, hints) = burst(hashes, hints, count)?;
                let next =
                    Hash64::slice(within("next_count", elements(next, next_count, "next")?)?);
                probe(&**cache, hashes, Some(next), hints);
                Ok(())
            })
        }
    })
}

/// Refuses more than a burst.
#[inline(always)]
pub(crate) fn within<'a, T>(name: &str, elements: &'a [T]) -> Result<&'a [T], Failure> {
    if elements.len() > OVERBANK_BURST {
        return Err(too_many(name, elements.len()));
    }
    Ok(elements)
}

#[cold]
fn too_many(name: &str, len: usize) -> Failure {
    Failure::invalid(format_args!("{name}: at most {OVERBANK_BURST}, not {len}"))
}

/// # Safety
/// As [`elements`] and [`places`].
#[inline(always)]
unsafe fn burst<'a>(
    hashes: *const u64,
    hints: *mut overbank_hint,
    count: usize,
) -> Result<(&'a [Hash64], &'a mut [overbank_hint]), Failure> {
    // SAFETY: the caller's promise.
    let (hashes, hints) =
        unsafe { (elements(hashes, count, "hashes")?, places(hints, count, "hints")?) };
    Ok((Hash64::slice(within("count", hashes)?), hints))
}

/// Probes a burst, and `next` meanwhile. A function by itself: inside of the border's closure the
/// compiler keeps every variable in memory.
#[inline(never)]
fn probe(
    cache: &dyn DynCache,
    hashes: &[Hash64],
    next: Option<&[Hash64]>,
    hints: &mut [overbank_hint],
) {
    let mut probes = Probes::new();
    match next {
        None => cache.probe_batch(hashes, &mut probes),
        Some(next) => cache.probe_batch_ahead(hashes, next, &mut probes),
    }
    for (hint, (&value, &mask)) in hints.iter_mut().zip(probes.values().iter().zip(probes.masks()))
    {
        // The lowest bit's number is the exponent of its power of two, and a hint is stored in one
        // piece: so the loop is vectors.
        let lowest = (mask & mask.wrapping_neg()) as i32 as f32;
        let slot = (lowest.to_bits() >> 23 & 0xff).wrapping_sub(127);
        let none = u32::from(mask == 0).wrapping_neg();
        *hint = overbank_hint::of(value, (slot | none) as u16);
    }
}

impl overbank_hint {
    #[inline(always)]
    fn of(value: u32, slot: u16) -> Self {
        let slot_first =
            if cfg!(target_endian = "little") { slot.into() } else { u32::from(slot) << 16 };
        // SAFETY: both are 8 bytes, and any are a hint.
        unsafe { std::mem::transmute::<[u32; 2], overbank_hint>([value, slot_first]) }
    }
}

/// Counts and promotes; a function by itself as [`probe`] is.
#[inline(never)]
fn commit(cache: &mut dyn DynCache, hashes: &[Hash64], hints: &[overbank_hint]) {
    let slot = |hint: &overbank_hint| u8::try_from(hint.slot).ok().and_then(Slot::new);
    let mut hits = Hits::of(hints.iter().map(slot));
    hits.refuse(hints.iter().map(|hint| u32::from(hint.refused)).sum::<u32>().into());
    cache.commit(hashes, &hits);
}

/// Says that a hint was wrong: replaces it by the next match of its hash, or by OVERBANK_MISS, and
/// counts it in `refused`. A hint that is a miss stays one.
///
/// Threads: as overbank_cache_probe.
///
/// # Safety
/// The cache is NULL or live; `hint` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_next(
    cache: *const overbank_cache,
    hash: u64,
    hint: *mut overbank_hint,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::read(cache, |cache| {
                let hint = place(hint, "hint")?;
                if hint.slot == OVERBANK_MISS {
                    return Ok(());
                }
                let hash = Hash64::new(hash);
                let after = |slot: &Slot| u16::from(slot.get()) > hint.slot;
                hint.refused = hint.refused.saturating_add(1);
                match cache.matches(hash).find(after) {
                    None => hint.slot = OVERBANK_MISS,
                    Some(slot) => {
                        (hint.slot, hint.value) = (slot.get().into(), cache.candidate(hash, slot));
                    }
                }
                Ok(())
            })
        }
    })
}

/// Reports a burst whose hints were verified: counts lookups, hits and wrong matches, and lets the
/// policy promote the hits.
///
/// The hints are those of the same hashes: right ones with their slot, all others with
/// OVERBANK_MISS. Between probe and commit the cache may change; a promotion looks first.
///
/// # Safety
/// As overbank_cache_probe; no other call uses the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_commit(
    cache: *mut overbank_cache,
    hashes: *const u64,
    count: usize,
    hints: *const overbank_hint,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::change(cache, |cache| {
                let hashes = Hash64::slice(within("count", elements(hashes, count, "hashes")?)?);
                commit(&mut **cache, hashes, elements(hints, count, "hints")?);
                Ok(())
            })
        }
    })
}

/// Inserts an entry: over one of the same fingerprint, else into an empty slot, else over the one
/// that the policy evicts. Fails with OVERBANK_INVALID if the value has more bits than the cache.
///
/// # Safety
/// The cache is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_insert(
    cache: *mut overbank_cache,
    hash: u64,
    value: u32,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::change(cache, |cache| {
                let _: Inserted = cache.insert(Hash64::new(hash), value)?;
                Ok(())
            })
        }
    })
}

/// Removes the entry of this hash that has this value. OVERBANK_ABSENT if there is none.
///
/// # Safety
/// The cache is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_erase(
    cache: *mut overbank_cache,
    hash: u64,
    value: u32,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Cache::change(cache, |cache| {
                let removed = cache.remove(Hash64::new(hash), &mut |found| found == value);
                removed
                    .map(drop)
                    .ok_or_else(|| Failure::new(OVERBANK_ABSENT, "no entry has this value"))
            })
        }
    })
}

/// Removes all entries. Takes time for the whole table.
///
/// # Safety
/// The cache is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_clear(cache: *mut overbank_cache) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe {
        Cache::change(cache, |cache| {
            cache.clear();
            Ok(())
        })
    })
}

/// Writes what the cache has counted.
///
/// # Safety
/// The cache is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_counters(
    cache: *const overbank_cache,
    out: *mut overbank_cache_counters,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe {
        Cache::tell(cache, out, |cache| {
            let counters = cache.counters();

            Ok(overbank_cache_counters {
                lookups: counters.lookups,
                hits: counters.hits,
                false_positives: counters.false_positives,
                inserts: counters.inserts,
                replacements: counters.replacements,
                evictions: counters.evictions,
                removals: counters.removals,
            })
        })
    }
}

/// Sets what the cache has counted to zero; entries stay.
///
/// # Safety
/// The cache is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_counters_reset(
    cache: *mut overbank_cache,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe {
        Cache::change(cache, |cache| {
            cache.reset_counters();
            Ok(())
        })
    })
}

/// Writes what the cache is and holds.
///
/// # Safety
/// The cache is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_cache_info(
    cache: *const overbank_cache,
    out: *mut overbank_cache_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe {
        Cache::tell(cache, out, |cache| {
            Ok(overbank_cache_info {
                len: cache.len(),
                capacity: cache.capacity(),
                buckets: cache.buckets(),
                candidates: cache.candidates(),
                bytes: cache.memory_bytes(),
            })
        })
    }
}
