//! How long is a cycle? The papers count in cycles of the time-stamp counter, and so does the
//! emulated miss penalty.
//!
//! The counter runs at a constant rate, which is close to, but not the same as, the clock of the
//! core. Elsewhere than on x86-64 there is none, and a cycle is taken for a nanosecond.

#![allow(unsafe_code)] // One instruction that reads the counter.

use std::time::{Duration, Instant};

/// Measures the cycles of the time-stamp counter per nanosecond, in 20 ms.
pub fn cycles_per_ns() -> f64 {
    let (from, start) = (now(), Instant::now());
    while start.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    match (from, now()) {
        (Some(from), Some(to)) => to.wrapping_sub(from) as f64 / start.elapsed().as_nanos() as f64,
        _ => 1.0,
    }
}

#[cfg(target_arch = "x86_64")]
fn now() -> Option<u64> {
    // SAFETY: every x86-64 has the instruction, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_rate_of_some_clock() {
        let rate = super::cycles_per_ns();
        assert!((0.2..20.0).contains(&rate), "{rate} cycles per nanosecond");
    }
}
