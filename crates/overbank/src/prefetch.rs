//! A hint to the CPU that a place in memory will be read soon.

#![allow(unsafe_code)] // The intrinsic; it has no effect that a program can observe.

/// Starts to bring the line that `place` begins on into the caches. Costs one instruction; does
/// nothing on machines without a prefetch instruction that Rust knows.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is allowed.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
