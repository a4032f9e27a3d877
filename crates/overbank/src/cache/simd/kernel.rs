//! The loops over a table, written once for every instruction set, geometry and layout.
//!
//! A probe of a burst makes two passes. The first computes each key's bucket address and prefetches
//! all its cache lines; the second compares. By then most lines have arrived or are on their way,
//! all waits overlap, and neither pass branches on what it finds. If the caller names the *next*
//! burst, its lines are prefetched between the comparisons of this one, which hides the wait for
//! the first of them.
//!
//! [`probe_home_first`] is for cuckoo-lite with room, when nearly every key lies in its first
//! bucket. It prefetches only the first lines; two more passes, over the keys not found there,
//! handle the second ones. The length of those passes is the only branch that depends on data. Half
//! full, it saves nearly all second lines; nearly full it would cost more than it saves.

use super::{Scan, Simd};
use crate::cache::geometry::{Geometry, fingerprint};
use crate::cache::layout::Layout;
use crate::cache::probes::{BURST, Mask, Probes};
use crate::hash::Hash64;
use crate::prefetch::prefetch_at;

/// A table's slots, as a kernel sees them.
///
/// Invariant, established by `Table`: `base` points to `buckets + G::BUFFER_BUCKETS` readable
/// buckets of `G::SLOTS * L::SLOT_BYTES` bytes, and `buckets >= G::BUCKETS_MIN`.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) base: *const u8,
    pub(crate) buckets: usize,
}

impl View {
    /// Returns a bucket of a hash. It is below `buckets + BUFFER_BUCKETS` for every hash, so the
    /// address is in the table.
    #[inline(always)]
    fn bucket<G: Geometry, L: Layout>(&self, hash: Hash64, choice: usize) -> *const u8 {
        self.base.wrapping_add(G::bucket(hash, self.buckets, choice) * Extent::<G, L>::STRIDE)
    }
}

/// Returns the hashes to prefetch for: at most a burst.
#[inline(always)]
fn upcoming(next: Option<&[Hash64]>) -> &[Hash64] {
    let next = next.unwrap_or_default();
    &next[..next.len().min(BURST)]
}

const LINE: usize = 64;

/// The extent of a key's buckets, by geometry and layout.
struct Extent<G, L>(core::marker::PhantomData<(G, L)>);

impl<G: Geometry, L: Layout> Extent<G, L> {
    /// Bytes from one bucket to the next.
    const STRIDE: usize = G::SLOTS * L::SLOT_BYTES;
    /// Contiguous bytes: one bucket, or all of BLP's.
    const SPAN: usize = if G::ADJACENT { G::CHOICES * Self::STRIDE } else { Self::STRIDE };
    /// Whether a span always covers the fewest lines possible (tables are line aligned).
    const ALIGNED: bool = Self::STRIDE.is_multiple_of(LINE)
        || (LINE.is_multiple_of(Self::STRIDE) && Self::SPAN == Self::STRIDE);
    /// Other sizes need an arm in `compare` first.
    const COMPARABLE: () = assert!(matches!(
        (G::CHOICES, G::SLOTS),
        (1, 4) | (1, 8) | (1, 16) | (2, 4) | (2, 8) | (2, 16) | (4, 4)
    ));
    /// Whether one wide load can compare whole 4-slot buckets.
    const WIDE: bool = G::ADJACENT && G::SLOTS == 4 && L::SLOT_BYTES == 4;
}

/// Prefetches all cache lines of the buckets that start at `p`.
#[inline(always)]
fn prefetch_span<G: Geometry, L: Layout, const FAR: bool>(p: *const u8) {
    let mut offset = 0;
    while offset < Extent::<G, L>::SPAN {
        prefetch_at::<FAR>(p.wrapping_add(offset));
        offset += LINE;
    }
    if !Extent::<G, L>::ALIGNED {
        prefetch_at::<FAR>(p.wrapping_add(Extent::<G, L>::SPAN - 1));
    }
}

/// Returns the mask of the candidate slots that hold `fp`.
///
/// # Safety
/// `first` (and `second`, where buckets are not adjacent) are starts of buckets of a `View`.
#[inline(always)]
unsafe fn compare<S: Simd, G: Geometry, L: Layout>(
    first: *const u8,
    second: *const u8,
    fp: u16,
) -> u32 {
    let () = Extent::<G, L>::COMPARABLE;
    let stride = Extent::<G, L>::STRIDE;
    // SAFETY: with adjacent buckets, those after `first` are in the table too (buffer buckets), and
    // each bucket starts with its SLOTS fingerprints of 2 bytes. The instruction set is present by
    // the promise of the entry point.
    unsafe {
        let at = |choice: usize| {
            if G::ADJACENT {
                first.add(choice * stride)
            } else if choice == 0 {
                first
            } else {
                second
            }
        };
        match (G::CHOICES, G::SLOTS) {
            (1, 4) => S::eq4(first, fp),
            (1, 8) => S::eq8(first, fp),
            (1, 16) => S::eq16(first, fp),
            (2, 4) if Extent::<G, L>::WIDE => S::eq_pair(first, fp),
            (2, 4) => S::eq4x2(first, at(1), fp),
            (2, 8) => S::eq8x2(first, at(1), fp),
            (2, 16) => S::eq16x2(first, at(1), fp),
            (4, 4) if Extent::<G, L>::WIDE => S::eq_quad(first, fp),
            (4, 4) => S::eq4x2(first, at(1), fp) | S::eq4x2(at(2), at(3), fp) << 8,
            _ => 0, // Not compiled: see Extent::COMPARABLE.
        }
    }
}

/// Returns the mask of the slots of one bucket that hold `fp`.
///
/// # Safety
/// As for `compare`.
#[inline(always)]
unsafe fn compare_bucket<S: Simd, G: Geometry>(bucket: *const u8, fp: u16) -> u32 {
    const { assert!(matches!(G::SLOTS, 4 | 8 | 16)) };
    // SAFETY: a bucket starts with its SLOTS fingerprints of 2 bytes.
    unsafe {
        match G::SLOTS {
            4 => S::eq4(bucket, fp),
            8 => S::eq8(bucket, fp),
            _ => S::eq16(bucket, fp),
        }
    }
}

/// Returns the value in candidate slot `slot`.
///
/// # Safety
/// As for `compare`, and `slot < G::CANDIDATES`.
#[inline(always)]
unsafe fn value_at<G: Geometry, L: Layout>(
    first: *const u8,
    second: *const u8,
    slot: usize,
) -> u32 {
    let (choice, slot) = (slot / G::SLOTS, slot % G::SLOTS);
    let bucket = if G::ADJACENT {
        first.wrapping_add(choice * Extent::<G, L>::STRIDE)
    } else if choice == 0 {
        first
    } else {
        second
    };
    let at = bucket.wrapping_add(2 * G::SLOTS + slot * L::VALUE_BYTES);
    // SAFETY: after its fingerprints a bucket has SLOTS values of VALUE_BYTES bytes, and the slot
    // is in range.
    unsafe {
        if L::VALUE_BYTES == 2 {
            u32::from(u16::from_le(at.cast::<u16>().read_unaligned()))
        } else {
            u32::from_le(at.cast::<u32>().read_unaligned())
        }
    }
}

/// Probes the first [`BURST`] of `hashes`. With a `next` burst, prefetches its lines instead of
/// those of this one, which was next before.
///
/// # Safety
/// `view` keeps its invariant for `G` and `L`, and the CPU has `S`.
#[inline(always)]
pub(super) unsafe fn probe<S: Simd, G: Geometry, L: Layout, const FAR: bool>(
    view: View,
    hashes: &[Hash64],
    next: Option<&[Hash64]>,
    out: &mut Probes,
) {
    let count = hashes.len().min(BURST);
    let hashes = &hashes[..count];
    let (asked, next) = (next.is_some(), upcoming(next));
    let mut first = [core::ptr::null::<u8>(); BURST];
    let mut second = [core::ptr::null::<u8>(); BURST];
    let buckets = |hash: Hash64| {
        let first = view.bucket::<G, L>(hash, 0);
        (first, if G::ADJACENT { first } else { view.bucket::<G, L>(hash, 1) })
    };
    let ask = |(first, second): (*const u8, *const u8)| {
        prefetch_span::<G, L, FAR>(first);
        if !G::ADJACENT {
            prefetch_span::<G, L, FAR>(second);
        }
    };
    for (i, &hash) in hashes.iter().enumerate() {
        (first[i], second[i]) = buckets(hash);
        if !asked {
            ask((first[i], second[i]));
        }
    }
    let mut matched = 0;
    for (i, &hash) in hashes.iter().enumerate() {
        if let Some(&hash) = next.get(i) {
            ask(buckets(hash));
        }
        // SAFETY: both point at buckets of the view.
        let mask = unsafe { compare::<S, G, L>(first[i], second[i], fingerprint(hash)) };
        // No match gives 32, which the mask turns into slot 0: some value, without a branch.
        let slot = mask.trailing_zeros() as usize & (G::CANDIDATES - 1);
        out.mask[i] = mask;
        // SAFETY: as above, and the slot is masked into range.
        out.value[i] = unsafe { value_at::<G, L>(first[i], second[i], slot) };
        matched |= u32::from(mask != 0) << i;
    }
    for &hash in next.iter().skip(count) {
        ask(buckets(hash));
    }
    out.matched = matched;
    out.len = count;
}

/// Probes geometries with two separate buckets; reads the second bucket of a key only if the first
/// has no match.
///
/// # Safety
/// As for [`probe`].
#[inline(always)]
pub(super) unsafe fn probe_home_first<S: Simd, G: Geometry, L: Layout, const FAR: bool>(
    view: View,
    hashes: &[Hash64],
    next: Option<&[Hash64]>,
    out: &mut Probes,
) {
    let count = hashes.len().min(BURST);
    let hashes = &hashes[..count];
    let (asked, next) = (next.is_some(), upcoming(next));
    let mut bucket = [core::ptr::null::<u8>(); BURST];
    let ask = prefetch_span::<G, L, FAR>;
    for (i, &hash) in hashes.iter().enumerate() {
        bucket[i] = view.bucket::<G, L>(hash, 0);
        if !asked {
            ask(bucket[i]);
        }
    }
    let mut matched = 0;
    let mut look = |i: usize, bucket: *const u8, choice: usize| {
        // SAFETY: it points at a bucket of the view.
        let mask = unsafe { compare_bucket::<S, G>(bucket, fingerprint(hashes[i])) };
        let slot = mask.trailing_zeros() as usize & (G::SLOTS - 1);
        out.mask[i] = mask << (choice * G::SLOTS);
        // SAFETY: as above, and the slot is one of a first bucket.
        out.value[i] = unsafe { value_at::<G, L>(bucket, bucket, slot) };
        u32::from(mask != 0) << i
    };
    for (i, &bucket) in bucket[..count].iter().enumerate() {
        if let Some(&hash) = next.get(i) {
            ask(view.bucket::<G, L>(hash, 0));
        }
        matched |= look(i, bucket, 0);
    }
    for &hash in next.iter().skip(count) {
        ask(view.bucket::<G, L>(hash, 0));
    }
    let absent = !matched & ((1u64 << count) - 1) as u32;
    for i in Mask(absent) {
        bucket[i] = view.bucket::<G, L>(hashes[i], 1);
        ask(bucket[i]);
    }
    for i in Mask(absent) {
        matched |= look(i, bucket[i], 1);
    }
    out.matched = matched;
    out.len = count;
}

/// Scans all candidate slots of one hash for its fingerprint and for empty slots.
///
/// # Safety
/// As for [`probe`].
#[inline(always)]
pub(super) unsafe fn scan<S: Simd, G: Geometry, L: Layout>(view: View, hash: Hash64) -> Scan {
    let first = view.bucket::<G, L>(hash, 0);
    let second = if G::ADJACENT { first } else { view.bucket::<G, L>(hash, 1) };
    // SAFETY: both point at buckets of the view.
    unsafe {
        Scan {
            matching: compare::<S, G, L>(first, second, fingerprint(hash)),
            empty: compare::<S, G, L>(first, second, 0),
        }
    }
}
