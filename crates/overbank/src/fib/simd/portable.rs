//! Any machine: one word at a time, read atomically.

use super::kernel::{self, View};
use super::{Simd, entry_points};
use crate::fib::key::{Key, Value};
use crate::fib::table::BURST_MAX;
use crate::sync::{AtomicU64, Ordering};

pub(super) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64, end: usize) -> u32 {
        let mut bits = 0;
        for i in 1..end {
            // SAFETY: the caller's promise: 8 words, and i < end <= 8.
            let word = unsafe { (*line.add(i)).load(Ordering::Relaxed) };
            bits |= u32::from((word ^ pattern) & mask == 0) << i;
        }
        bits
    }

    #[inline(always)]
    unsafe fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
        let mut bits = 0;
        for (i, &byte) in bytes.iter().enumerate() {
            bits |= u64::from(byte != 0) << i;
        }
        bits
    }
}

entry_points!(Portable);
