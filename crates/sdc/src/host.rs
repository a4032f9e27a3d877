//! Of the machine that simulates: memory that is asked for before it is used.

/// Asks the host's memory for the line of an address, which comes while other work is done. Nothing
/// that is counted depends on it; any address may be named.
#[inline(always)]
#[allow(unsafe_code)] // An instruction without effect on any value.
pub fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads nothing, and an address without memory is ignored.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
