//! The memory of a table: elements in one piece, which stay where they are.

#![allow(unsafe_code)] // One cast, from the bytes of `Memory` to elements.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::memory::{HugePages, Memory, MemoryError, Pages};

/// Elements in memory of a fixed size, at least 64-byte aligned: a vector that never grows.
pub(crate) struct Array<T> {
    memory: Memory,
    len: usize,
    types: PhantomData<T>,
}

impl<T: Copy> Array<T> {
    const FITS: () = assert!(size_of::<T>() > 0 && align_of::<T>() <= 64);

    /// Allocates and touches the memory of `capacity` elements, at least one; it has none yet.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self, MemoryError> {
        const { Self::FITS };
        let bytes = capacity.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or(MemoryError::OutOfMemory { bytes: usize::MAX })?;
        let memory = Memory::zeroed_on(bytes, Pages::Huge)?;
        Ok(Self { memory, len: 0, types: PhantomData })
    }

    /// Adds an element and returns its number, unless the array is full.
    pub(crate) fn push(&mut self, element: T) -> Option<usize> {
        let at = self.len;
        if at == self.memory.len() / size_of::<T>() {
            return None;
        }
        // SAFETY: element `at` ends inside the memory, which is 64-byte aligned, so `T` is aligned.
        // `&mut self` makes the access exclusive.
        unsafe { self.memory.as_ptr().cast::<T>().cast_mut().add(at).write(element) };
        self.len += 1;
        Some(at)
    }

    /// Removes the last element.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = *self.last()?;
        self.len -= 1;
        Some(last)
    }

    /// Forgets all elements.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the bytes of the memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Returns the pages that it lies on. Reads a file of the kernel: not for the packet path.
    pub(crate) fn huge_pages(&self) -> HugePages {
        self.memory.huge_pages()
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `push` wrote the first `len` elements, inside the memory and aligned. Nothing
        // makes a reference to them as bytes: `Memory` is private here and used as above only.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe {
            core::slice::from_raw_parts_mut(self.memory.as_ptr().cast::<T>().cast_mut(), self.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_as_many_as_fit_and_no_more() {
        let mut array = Array::<(u32, u64)>::with_capacity(3).unwrap();
        assert!(array.is_empty());
        for i in 0..3 {
            assert_eq!(array.push((i, 1 << i)), Some(i as usize));
        }
        assert_eq!((array.push((9, 9)), array.len(), array.memory_bytes()), (None, 3, 48));
        array[1].1 = 7;
        assert_eq!(array[..], [(0, 1), (1, 7), (2, 4)]);
        assert_eq!((array.pop(), array.len()), (Some((2, 4)), 2));
        array.clear();
        assert_eq!((array.pop(), array.push((5, 5)), array[0]), (None, Some(0), (5, 5)));
    }

    #[test]
    fn absurd_sizes_are_errors() {
        for capacity in [0, usize::MAX, usize::MAX / 8] {
            assert!(Array::<u64>::with_capacity(capacity).is_err());
        }
    }
}
