//! Items: what an index leads to.
//!
//! ```text
//! next 8 │ key 8 │ value …        never freed; `next` is the hash table's (c/item.h)
//! ```
//!
//! Items begin at a line, smaller ones at a multiple of their size: all of a run alike, so that no
//! allocation before them decides how many lines a lookup reads.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc};
use std::ptr::NonNull;

use crate::Failed;

/// Bytes of a word of a value.
pub const WORD: usize = 8;
/// Words before the value.
const HEAD: usize = 2;
const KEY: usize = 1;
/// Where items begin, at most.
const LINE: usize = 64;

/// The address of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item(NonNull<u64>);

/// Which words of a value are read: `words` of them, each `stride`-th.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Words to read.
    pub words: usize,
    /// Words from one to the next.
    pub stride: usize,
}

impl Item {
    /// Allocates an item whose value has `words` words.
    ///
    /// # Errors
    /// The system is out of memory.
    pub fn new(key: u64, words: usize) -> Result<Self, Failed> {
        let bytes = (HEAD + words) * WORD;
        let layout = Layout::from_size_align(bytes, bytes.next_power_of_two().min(LINE));
        let layout = layout.map_err(|error| Failed::new("items", error))?;
        // SAFETY: an item has bytes.
        let Some(memory) = NonNull::new(unsafe { alloc(layout) }.cast::<u64>()) else {
            return Err(Failed::new("items", "the system is out of memory"));
        };
        let item = Self(memory);
        // SAFETY: `memory` has `HEAD` words and more, aligned.
        unsafe {
            memory.write(0);
            memory.add(KEY).write(key);
        }
        item.write(words, 0);
        Ok(item)
    }

    /// Returns the words of an item whose value has `words`.
    pub fn words(words: usize) -> usize {
        HEAD + words
    }

    /// Copies the item, word by word, to memory of [`Item::words`] words, and returns the copy,
    /// which lasts as long as that.
    pub fn copy(self, to: &mut [u64]) -> Self {
        for (i, word) in to.iter_mut().enumerate() {
            // SAFETY: an item has the words that the caller states; a run has one size.
            *word = unsafe { self.0.add(i).read_volatile() };
        }
        Self::lent(to)
    }

    /// Returns the item whose words have been written to `memory`, as long as that lasts.
    pub fn lent(memory: &mut [u64]) -> Self {
        Self(NonNull::from(memory).cast())
    }

    /// Returns the address of the key, after which the value lies.
    pub fn key_address(self) -> *const u64 {
        self.0.as_ptr().wrapping_add(KEY)
    }

    /// Returns the item at an address that [`Item::address`] returned; `None` for 0.
    #[inline]
    pub fn at(address: u64) -> Option<Self> {
        NonNull::new(address as *mut u64).map(Self)
    }

    /// Returns the address.
    #[inline]
    pub fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Reads the key.
    #[inline]
    pub fn key(self) -> u64 {
        // SAFETY: items have a key and live until the process ends.
        unsafe { self.0.add(KEY).read_volatile() }
    }

    /// Writes all words of a value of `words` words, as of this version.
    pub fn write(self, words: usize, version: u64) {
        let first = first(self.key(), version);
        for i in 0..words {
            // SAFETY: the item was allocated with `words` words of value; a run has one size.
            unsafe { self.0.add(HEAD + i).write_volatile(first.wrapping_add(i as u64)) }
        }
    }

    /// Reads words of the value, each by itself, and returns their sum.
    #[inline]
    pub fn sum(self, reading: Reading) -> u64 {
        (0..reading.words).fold(0u64, |sum, i| {
            // SAFETY: the caller's `Reading` stays inside the value; a run has one size.
            sum.wrapping_add(unsafe { self.0.add(HEAD + i * reading.stride).read_volatile() })
        })
    }
}

/// The first word of a value. The next ones count up.
fn first(key: u64, version: u64) -> u64 {
    (key ^ version.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns what [`Item::sum`] must return.
pub fn expected(key: u64, version: u64, reading: Reading) -> u64 {
    (0..reading.words as u64).fold(0, |sum, i| {
        sum.wrapping_add(first(key, version)).wrapping_add(i * reading.stride as u64)
    })
}
