//! Bursts for C: the caller reads what a probe wrote, where it wrote it, and says what was right.
//!
//! ```text
//!   overbank_burst_probe ─▶ values, masks, matched ─ the caller verifies ─▶ hits
//!                                                  overbank_burst_commit ◀───┘
//! ```
//!
//! The first match of a key is the lowest bit of its mask. One that is wrong is taken out of the
//! mask ([`overbank_burst_next`]); so the commit needs of a key that was found one bit, which a
//! loop in C keeps in a register.

use overbank::cache::{Mask, Probes, Slot};
use overbank::hash::Hash64;

use crate::border::overbank_status::OVERBANK_ABSENT;
use crate::border::*;
use crate::cache::{Cache, OVERBANK_BURST, overbank_cache};

/// A burst in work: what a probe found and what the caller verified. Made by overbank_burst_create;
/// the pointers stay the same until overbank_burst_destroy.
///
/// One thread at a time uses it, with any caches.
#[repr(C)]
pub struct overbank_burst {
    /// For each key the value of its first match; without a match it means nothing.
    pub values: *const u32,
    /// For each key its matches: bit `s` for candidate slot `s`. The lowest is the first; after
    /// overbank_burst_next it is the only one.
    pub masks: *const u32,
    /// Keys with a match: bit `i` for key `i`.
    pub matched: u32,
    /// Keys whose first match is right. The probe sets it to 0, the caller sets bits.
    pub hits: u32,
}

/// What the pointers of a burst lead to. C sees the first field.
#[repr(C)]
struct Burst {
    face: overbank_burst,
    probes: Probes,
    /// Matches that were wrong.
    refused: u64,
}

/// Makes a burst and sets `*out`. Any thread. The caller owns it: overbank_burst_destroy.
///
/// # Safety
/// `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_burst_create(out: *mut *mut overbank_burst) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        let (values, masks) = (std::ptr::null(), std::ptr::null());
        let face = overbank_burst { values, masks, matched: 0, hits: 0 };
        let burst = Box::into_raw(Box::new(Burst { face, probes: Probes::new(), refused: 0 }));
        // SAFETY: just made; the fields lie beside each other and are not moved.
        unsafe {
            (*burst).face.values = Probes::values_at(&raw const (*burst).probes);
            (*burst).face.masks = Probes::masks_at(&raw const (*burst).probes);
        }
        *out = burst.cast();
        Ok(())
    })
}

/// Frees a burst. NULL is none.
///
/// # Safety
/// The burst is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_burst_destroy(burst: *mut overbank_burst) {
    let burst = burst.cast::<Burst>();
    if !burst.is_null() && burst.is_aligned() {
        // SAFETY: from `overbank_burst_create` by the caller's promise, and used no more.
        drop(unsafe { Box::from_raw(burst) });
    }
}

/// Looks for up to OVERBANK_BURST hashes and writes into the burst what it found.
///
/// Asks for all cache lines before it reads the first. Changes and counts nothing. Hashes need 64
/// good bits (overbank_hash, overbank_mix).
///
/// With `next` not NULL, asks meanwhile for the lines of those hashes, which the next call is
/// expected to have as `hashes`, and not for those of this call: a burst then waits for no memory.
/// Begin with `count` 0.
///
/// Threads may probe at the same time, each with its burst, while none changes the cache.
///
/// # Safety
/// Cache and burst are NULL or live; `hashes` has `count` elements, `next` is NULL or has
/// `next_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_burst_probe(
    burst: *mut overbank_burst,
    cache: *const overbank_cache,
    hashes: *const u64,
    count: usize,
    next: *const u64,
    next_count: usize,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let burst = place(burst.cast::<Burst>(), "burst")?;
            let hashes = Hash64::slice(within("count", elements(hashes, count, "hashes")?)?);
            let ahead = within("next_count", elements(next, next_count, "next")?)?;
            Cache::read(cache, |cache| {
                if next.is_null() {
                    cache.probe_batch(hashes, &mut burst.probes);
                } else {
                    cache.probe_batch_ahead(hashes, Hash64::slice(ahead), &mut burst.probes);
                }
                burst.face.matched = burst.probes.matched().bits();
                burst.face.hits = 0;
                burst.refused = 0;
                Ok(())
            })
        }
    })
}

/// Says that the first match of key `i` was wrong, and makes the next one the first: its value is
/// then in `values[i]`. OVERBANK_ABSENT if the key has no other match; its bit in `matched` is then
/// 0, as it is in `hits`.
///
/// `hash` is the key's of the probe. Rarely needed: of the lookups, about candidates / 65536 meet a
/// wrong match, one in 2048 with 32 candidates.
///
/// Threads: as overbank_burst_probe.
///
/// # Safety
/// Cache and burst are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_burst_next(
    burst: *mut overbank_burst,
    cache: *const overbank_cache,
    hash: u64,
    i: usize,
) -> overbank_status {
    // No failure is made of an answer: this is in the packet path.
    let mut absent = false;
    let status = border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let burst = place(burst.cast::<Burst>(), "burst")?;
            if i >= burst.probes.len() {
                let len = burst.probes.len();
                return Err(Failure::invalid(format_args!("i: the burst has {len} keys, not {i}")));
            }
            Cache::read(cache, |cache| {
                let Some(wrong) = burst.probes.slots(i).next() else {
                    absent = true;
                    return Ok(());
                };
                let hash = Hash64::new(hash);
                let other = cache.matches(hash).find(|&slot: &Slot| slot > wrong);
                burst.refused += 1;
                burst.probes.replace(i, other.map(|slot| (slot, cache.candidate(hash, slot))));
                burst.face.matched = burst.probes.matched().bits();
                burst.face.hits &= burst.face.matched;
                absent = other.is_none();
                Ok(())
            })
        }
    });
    if absent { OVERBANK_ABSENT } else { status }
}

/// Reports a burst whose matches were verified, once: counts lookups, hits and wrong matches, and
/// lets the policy promote the hits.
///
/// The hashes are those of the probe. A hit of a key without a match counts as none. Between probe
/// and commit the cache may change; a promotion looks first.
///
/// # Safety
/// As overbank_burst_probe; no other call uses the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_burst_commit(
    burst: *const overbank_burst,
    cache: *mut overbank_cache,
    hashes: *const u64,
    count: usize,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let burst = &*place(burst.cast_mut().cast::<Burst>(), "burst")?;
            let hashes = Hash64::slice(within("count", elements(hashes, count, "hashes")?)?);
            Cache::change(cache, |cache| {
                let mut hits = burst.probes.first_matches(Mask::new(burst.face.hits));
                hits.refuse(burst.refused);
                cache.commit(hashes, &hits);
                Ok(())
            })
        }
    })
}

/// Refuses more than a burst.
#[inline(always)]
fn within<'a, T>(name: &str, elements: &'a [T]) -> Result<&'a [T], Failure> {
    if elements.len() > OVERBANK_BURST {
        return Err(too_many(name, elements.len()));
    }
    Ok(elements)
}

#[cold]
fn too_many(name: &str, len: usize) -> Failure {
    Failure::invalid(format_args!("{name}: at most {OVERBANK_BURST}, not {len}"))
}
