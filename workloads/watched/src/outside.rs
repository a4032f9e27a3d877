//! What is not watched: the client, which sends requests and checks answers, and the SDC
//! instructions. The program (`workloads/src`) defines them.
#![allow(unsafe_code)]

use crate::item::Item;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ask {
    /// There are no more requests.
    End = 0,
    /// The value of a key.
    Read = 1,
    /// A new value for a key.
    Update = 2,
    /// A new key.
    Insert = 3,
}

/// A request, in two registers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// An [`Ask`] in the lowest 2 bits, above it the version to write.
    pub what: u64,
    /// The key.
    pub key: u64,
}

impl Request {
    /// Returns what is asked.
    #[inline]
    pub fn ask(self) -> Ask {
        match self.what & 3 {
            0 => Ask::End,
            1 => Ask::Read,
            2 => Ask::Update,
            _ => Ask::Insert,
        }
    }

    /// Returns the version to write.
    #[inline]
    pub fn version(self) -> u64 {
        self.what >> 2
    }
}

/// The client.
pub mod client {
    use super::Request;

    unsafe extern "C" {
        /// Returns the next request.
        #[link_name = "overbank_client_next"]
        pub safe fn next() -> Request;
        /// Answers it by the sum of the words read.
        #[link_name = "overbank_client_answer"]
        pub safe fn answer(sum: u64);
        /// Answers that nothing was found.
        #[link_name = "overbank_client_nothing"]
        pub safe fn nothing();
        /// Notes that the system in front had the item.
        #[link_name = "overbank_client_hit"]
        pub safe fn hit();
    }
}

/// The SDC instructions on values of 8 to 64 bytes (paper § 2.1, table 1).
pub mod sdc {
    use super::Item;

    unsafe extern "C" {
        /// `sdc_lookup` of a value of 1, 2, 4 or 8 words, to memory.
        #[link_name = "overbank_sdc_lookup_words"]
        pub safe fn lookup_words(key: u64, to: &mut [u64; 8], words: usize) -> bool;
        #[link_name = "overbank_sdc_insert_words"]
        fn insert_words(key: u64, from: *const u64, words: usize);
        /// `sdc_lookup`. The value may be another key's.
        #[link_name = "overbank_sdc_lookup"]
        pub safe fn lookup(key: u64, value: &mut u64) -> bool;
        /// `sdc_insert`.
        #[link_name = "overbank_sdc_insert"]
        pub safe fn insert(key: u64, value: u64);
        /// `sdc_invalidate`.
        #[link_name = "overbank_sdc_invalidate"]
        pub safe fn invalidate(key: u64);
        /// Notes that a hit had another key.
        #[link_name = "overbank_sdc_false_hit"]
        pub safe fn false_hit();
    }

    /// `sdc_insert` of the first words of an item, from its key on.
    pub fn insert_item(item: Item, key: u64, words: usize) {
        // SAFETY: the caller's item has these words.
        unsafe { insert_words(key, item.key_address(), words) }
    }
}
