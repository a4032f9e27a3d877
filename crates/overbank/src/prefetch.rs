//! Hints to the CPU that a place in memory will be read soon.

#![allow(unsafe_code)] // The intrinsic; it has no effect that a program can observe.

/// Starts to bring the line that `place` begins on into the caches. Costs one instruction; does
/// nothing on machines without a prefetch instruction that Rust knows.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_at::<false>(core::ptr::from_ref(place).cast());
}

/// [`prefetch`] into the second-level cache and no further, for memory that this cache does not hold.
///
/// A core has few buffers for lines on their way into its first level (24 on Zen 4), and more for those
/// that stop at the second. Who asks for many lines at a time waits less this way: on Zen 4 random lines of
/// 150 MiB take 0.55 of the time, bursts in flow caches of 16 MiB and more 0.4 to 0.8, in forwarding tables
/// of 18 MiB and more 0.7. In tables that the second level holds the same lookups take up to a tenth longer,
/// as the first level then has nothing.
#[inline(always)]
pub fn prefetch_far<T>(place: &T) {
    prefetch_at::<true>(core::ptr::from_ref(place).cast());
}

/// Whether [`prefetch_far`] is the better one for random lines of this many bytes. On Zen 4 (1 MiB of
/// second level, 32 MiB of third) both cost the same in flow caches of 4 MiB and in a forwarding table of
/// 9 MiB; in flow caches of 8 MiB the far one takes 0.7 to 0.9 of the time.
#[inline(always)]
pub const fn is_far(bytes: usize) -> bool {
    bytes >= 6 << 20
}

/// [`prefetch_far`] or [`prefetch`], of any address.
#[inline(always)]
pub(crate) fn prefetch_at<const FAR: bool>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is allowed.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        if FAR {
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        } else {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
