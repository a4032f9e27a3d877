//! Types of counter fields: a number, or an array with one for each reason.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub trait Value: Sized {
    const LEN: usize;
    /// Its form for threads that count together.
    type Shared;

    /// Passes its numbers to `put`, in order.
    fn put(&self, put: &mut impl FnMut(u64));
    /// Builds it from numbers that `take` returns, in order.
    fn take(take: &mut impl FnMut() -> u64) -> Self;
    /// Returns the shared form, all 0.
    fn shared() -> Self::Shared;
    fn load(shared: &Self::Shared) -> Self;
}

impl Value for u64 {
    const LEN: usize = 1;
    type Shared = AtomicU64;

    fn put(&self, put: &mut impl FnMut(u64)) {
        put(*self);
    }

    fn take(take: &mut impl FnMut() -> u64) -> u64 {
        take()
    }

    fn shared() -> AtomicU64 {
        AtomicU64::new(0)
    }

    fn load(shared: &AtomicU64) -> u64 {
        shared.load(Relaxed)
    }
}

impl<const N: usize> Value for [u64; N] {
    const LEN: usize = N;
    type Shared = [AtomicU64; N];

    fn put(&self, put: &mut impl FnMut(u64)) {
        self.iter().for_each(|word| put(*word));
    }

    fn take(take: &mut impl FnMut() -> u64) -> [u64; N] {
        array::from_fn(|_| take())
    }

    fn shared() -> [AtomicU64; N] {
        array::from_fn(|_| AtomicU64::new(0))
    }

    fn load(shared: &[AtomicU64; N]) -> [u64; N] {
        array::from_fn(|index| shared[index].load(Relaxed))
    }
}
