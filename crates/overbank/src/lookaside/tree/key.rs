//! What orders a tree: plain words.

use core::fmt::Debug;
use core::hash::Hash;

mod sealed {
    pub trait Sealed {}
}

/// A key of a tree: an integer, an array of keys (bytes in their order, such as an address), or a
/// pair of keys.
pub trait Key: sealed::Sealed + Copy + Ord + Hash + Debug + Send + Sync + 'static {
    /// The greatest key. Unused places of a node have it, so that a search reads whole nodes.
    const MAX: Self;
}

macro_rules! integers {
    ($($word:ty)*) => {
        $(impl sealed::Sealed for $word {}
        impl Key for $word {
            const MAX: Self = <$word>::MAX;
        })*
    };
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl<T: Key, const N: usize> sealed::Sealed for [T; N] {}
impl<T: Key, const N: usize> Key for [T; N] {
    const MAX: Self = [T::MAX; N];
}

impl<A: Key, B: Key> sealed::Sealed for (A, B) {}
impl<A: Key, B: Key> Key for (A, B) {
    const MAX: Self = (A::MAX, B::MAX);
}
