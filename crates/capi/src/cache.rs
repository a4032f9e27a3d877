//! Flow caches for C. They are looked up in bursts: `burst.rs`.

use std::ffi::c_char;

use overbank::cache::{
    BURST, CacheError, Config, Counters, Design, DynCache, Inserted, LayoutKind, ValueTooWide,
};
use overbank::hash::Hash64;

use crate::border::overbank_status::*;
use crate::border::*;

/// Most hashes of one probe.
pub const OVERBANK_BURST: usize = 32;
const _: () = assert!(OVERBANK_BURST == BURST);

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

/// What a cache has counted since it was made or last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_cache_counters {
    /// Keys reported by overbank_burst_commit.
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

impl From<&Counters> for overbank_cache_counters {
    fn from(counters: &Counters) -> Self {
        let &Counters {
            lookups,
            hits,
            false_positives,
            inserts,
            replacements,
            evictions,
            removals,
            ..
        } = counters;
        Self { lookups, hits, false_positives, inserts, replacements, evictions, removals }
    }
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
    unsafe { Cache::tell(cache, out, |cache| Ok(cache.counters().into())) }
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
