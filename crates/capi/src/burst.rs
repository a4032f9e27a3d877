//! Bursts for C without copies: the caller reads what the probe wrote, where it wrote it.
//!
//! ```text
//!   overbank_burst_probe ─▶ values, masks, matched ─ the caller verifies ─▶ slots, refused
//!                                                  overbank_burst_commit ◀─────┘
//! ```
//!
//! What [`overbank_cache_probe`](crate::overbank_cache_probe) writes as hints is copied for the
//! caller and read again at the commit, which costs as much as a quarter of the lookup. Here a
//! caller's loop does what [`Probes::resolve`] does in Rust.

use overbank::cache::{Hits, Probes, Slot};
use overbank::hash::Hash64;

use crate::border::*;
use crate::cache::{Cache, OVERBANK_BURST, overbank_cache, within};

/// A slot of a burst that is none.
pub const OVERBANK_NO_SLOT: u8 = 0xff;

/// A burst in work: what a probe found and what the caller verified. Made by overbank_burst_create;
/// the pointers stay the same until overbank_burst_destroy.
///
/// One thread at a time uses it, with any caches.
#[repr(C)]
pub struct overbank_burst {
    /// For each key the value in its first matching slot; without a match it means nothing.
    pub values: *const u32,
    /// For each key its matching candidate slots: bit `s` for slot `s`. The lowest is the first.
    pub masks: *const u32,
    /// For each key the slot whose value was right. The probe sets all to OVERBANK_NO_SLOT, the
    /// caller sets those that it verified.
    pub slots: *mut u8,
    /// Keys with a match: bit `i` for key `i`.
    pub matched: u32,
    /// Matches that were wrong, counted by the caller; the probe sets it to 0.
    pub refused: u32,
}

/// What the pointers of a burst lead to. C sees the first field.
#[repr(C)]
struct Burst {
    face: overbank_burst,
    probes: Probes,
    slots: [u8; OVERBANK_BURST],
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
        let (values, masks, slots) = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
        let face = overbank_burst { values, masks, slots, matched: 0, refused: 0 };
        let slots = [OVERBANK_NO_SLOT; OVERBANK_BURST];
        let burst = Box::into_raw(Box::new(Burst { face, probes: Probes::new(), slots }));
        // SAFETY: just made; the fields lie beside each other and are not moved.
        unsafe {
            (*burst).face.values = Probes::values_at(&raw const (*burst).probes);
            (*burst).face.masks = Probes::masks_at(&raw const (*burst).probes);
            (*burst).face.slots = (&raw mut (*burst).slots).cast();
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

/// Looks for up to OVERBANK_BURST hashes, as overbank_cache_probe does, and writes what it found
/// into the burst.
///
/// With `next` not NULL, asks meanwhile for the lines of those hashes, as
/// overbank_cache_probe_ahead does. A key whose first match is wrong may have others:
/// overbank_cache_next, from a hint of the burst's value and slot.
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
                burst.face.refused = 0;
                burst.slots = [OVERBANK_NO_SLOT; OVERBANK_BURST];
                Ok(())
            })
        }
    })
}

/// Reports a burst whose matches were verified, as overbank_cache_commit does.
///
/// The hashes are those of the probe. A slot that no key has counts as none.
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
                let mut hits = Hits::of(burst.slots[..count].iter().map(|&slot| Slot::new(slot)));
                hits.refuse(burst.face.refused.into());
                cache.commit(hashes, &hits);
                Ok(())
            })
        }
    })
}
