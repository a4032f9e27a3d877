//! The time stamp counter, which Open vSwitch also counts its cycles with.

// Reading the counter is an intrinsic.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// Reads the counter.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 has it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    compile_error!("the peers are measured on x86-64")
}

/// Returns ticks per second, measured against the system's clock for a tenth of a second.
pub fn hertz() -> f64 {
    let (start, first) = (Instant::now(), cycles());
    std::thread::sleep(Duration::from_millis(100));
    let (ticks, time) = (cycles() - first, start.elapsed());
    ticks as f64 / time.as_secs_f64()
}
