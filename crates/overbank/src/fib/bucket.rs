//! The layout of a bucket in its cache line, and its header word.
//!
//! ```text
//!  MacAddr → u16, u32 → u16 or u32      header │ 7 × key·value (8 bytes an entry)
//!  u64 → u16                            header │ 5 × key         │ 5 values of 16 bits in 2 words
//!  u64 → u32                            header │ 4 × key         │ 4 values of 32 bits in 2 words
//!  u64 → u64                            header │ 3 × key         │ 3 × value │ –
//!  u128 → u16                           header │ 3 × low │ 3 × high │ 3 values in 1 word
//!  u128 → u32      two lines:           header │ 6 × low │ 6 × high │ 6 values in 3 words
//!  u128 → u64      two lines:           header │ 5 × low │ 5 × high │ 5 × value
//!
//!  header   63         32 31                      8 7        0
//!          │  version    │ 8 markers of 3 bits     │ occupied │   bit i: word i is a key's
//! ```
//!
//! Keys of other sizes have the layouts of the words that they take; `MacAddr` with wider values
//! has that of `u64`. A value never straddles two words, so one
//! store replaces it. Two slots in a line would fill to 90 % at most, so those kinds use two
//! adjacent lines.
//!
//! *Version*: changes whenever something that a reader relies on may change; see the module's page.
//! *Occupied*: one bit per slot. *Markers*: small counters of the keys whose home is this bucket
//! and that live in their second one, by that bucket's number modulo 8. A counter that reaches 7
//! sticks there, since its count is lost, until `Writer::recount`. With one or two such keys for
//! each bucket this is rare.

use core::marker::PhantomData;

use super::key::{Key, Value, Words as _};

/// 64-bit words of a cache line.
pub(super) const LINE: usize = 8;
/// Most slots of a bucket: the header has that many bits for them.
pub(super) const SLOTS_MAX: usize = 7;

/// Sizes and places that follow from the types of key and value.
pub(super) struct Bucket<K, V>(PhantomData<(K, V)>);

impl<K: Key, V: Value> Bucket<K, V> {
    /// Key and value share a word.
    pub(super) const PACKED: bool = K::BITS + V::BITS <= 64;
    /// Cache lines of a bucket.
    pub(super) const LINES: usize = if Self::fitting(1) >= 3 { 1 } else { 2 };
    /// Entries of a bucket. One under the model checker, which runs every order of every access.
    pub(super) const SLOTS: usize =
        if cfg!(feature = "loom") { 1 } else { Self::fitting(Self::LINES) };
    /// Words from one bucket to the next.
    pub(super) const STRIDE: usize = LINE * Self::LINES;
    /// First word of the keys, of their low words, or of packed entries.
    pub(super) const KEYS: usize = 1;
    /// First of the high words of keys.
    pub(super) const HIGHS: usize = 1 + Self::SLOTS;
    /// First word of the values.
    pub(super) const VALUES: usize =
        if Self::PACKED { Self::KEYS } else { 1 + Self::SLOTS * K::WORDS };
    /// Shift of a key in its word.
    pub(super) const KEY_SHIFT: usize = if Self::PACKED { V::BITS } else { 0 };
    /// The key's bits in its word.
    pub(super) const KEY_MASK: u64 = u64::MAX << Self::KEY_SHIFT;
    /// The value's bits in its word, shifted to the right end.
    pub(super) const VALUE_MASK: u64 = u64::MAX >> (64 - V::BITS);
    /// All slots occupied, as in [`Header::words`].
    pub(super) const FULL: u32 = ((1 << Self::SLOTS) - 1) << Self::KEYS;

    const fn fitting(lines: usize) -> usize {
        let words = LINE * lines - 1;
        let mut slots = 0;
        while slots < SLOTS_MAX {
            let next = slots + 1;
            let values = if Self::PACKED { 0 } else { (next * V::BITS).div_ceil(64) };
            if next * K::WORDS + values > words {
                break;
            }
            slots = next;
        }
        slots
    }

    /// Returns word and shift of a slot's value.
    #[inline(always)]
    pub(super) const fn value_at(slot: usize) -> (usize, usize) {
        if Self::PACKED {
            (Self::VALUES + slot, 0)
        } else {
            (Self::VALUES + slot * V::BITS / 64, slot * V::BITS % 64)
        }
    }
}

/// The first word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(pub(super) u64);

/// Classes of second buckets that the markers of a bucket distinguish.
pub(super) const CLASSES: u32 = 8;
const MARKER_BITS: u32 = 3;
const MARKER_MAX: u64 = (1 << MARKER_BITS) - 1;
const MARKERS_AT: u32 = 8;
const VERSION_AT: u32 = 32;

const fn marker_at(second: u32) -> u32 {
    MARKERS_AT + MARKER_BITS * (second % CLASSES)
}

/// All bits of each marker: a load is shorter than the shifts.
const MARKERS: [u64; CLASSES as usize] = {
    let mut masks = [0; CLASSES as usize];
    let mut class = 0;
    while class < CLASSES {
        masks[class as usize] = MARKER_MAX << marker_at(class);
        class += 1;
    }
    masks
};

impl Header {
    /// Returns the occupied slots, by the word of their key: slot `i` is bit `i + 1`.
    #[inline(always)]
    pub(super) fn words(self) -> u32 {
        self.0 as u8 as u32
    }

    /// Returns whether the slot is occupied.
    #[inline(always)]
    pub(super) fn has(self, slot: usize) -> bool {
        self.0 >> (1 + slot) & 1 == 1
    }

    /// Returns a value that is not zero in the high half if the versions differ.
    #[inline(always)]
    pub(super) fn difference(self, other: Header) -> u64 {
        self.0 ^ other.0
    }

    #[inline(always)]
    pub(super) fn same_version(self, other: Header) -> bool {
        self.difference(other) >> VERSION_AT == 0
    }

    /// Returns whether a key of this home may live in this second bucket.
    #[inline(always)]
    pub(super) fn marked(self, second: u32) -> bool {
        self.0 & MARKERS[(second % CLASSES) as usize] != 0
    }

    /// Returns the number of keys of this home in second buckets of that class; see
    /// [`Header::marked`].
    #[inline(always)]
    pub(super) fn marker(self, second: u32) -> u64 {
        self.0 >> marker_at(second) & MARKER_MAX
    }

    /// Returns the header with the next version, which wraps.
    pub(super) fn bumped(self) -> Header {
        Header(self.0.wrapping_add(1 << VERSION_AT))
    }

    pub(super) fn with_slot(self, slot: usize) -> Header {
        Header(self.0 | 2 << slot)
    }

    pub(super) fn without_slot(self, slot: usize) -> Header {
        Header(self.0 & !(2 << slot))
    }

    /// Returns whether this second bucket's marker has lost count.
    pub(super) fn stuck(self, second: u32) -> bool {
        self.marker(second) == MARKER_MAX
    }

    /// Returns the header with this marker's count, capped at its largest value.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn with_marker(self, second: u32, count: u64) -> Header {
        let others = self.0 & !MARKERS[(second % CLASSES) as usize];
        Header(others | count.min(MARKER_MAX) << marker_at(second))
    }

    /// Returns the header with one more key in this second bucket.
    pub(super) fn marked_more(self, second: u32) -> Header {
        let more = self.marker(second) < MARKER_MAX;
        Header(self.0 + (u64::from(more) << marker_at(second)))
    }

    /// Returns the header with one key fewer; a stuck marker stays.
    pub(super) fn marked_less(self, second: u32) -> Header {
        let less = (1..MARKER_MAX).contains(&self.marker(second));
        Header(self.0 - (u64::from(less) << marker_at(second)))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::fib::{MacAddr, MacVlan};

    fn check<K: Key, V: Value>(slots: usize, lines: usize) {
        assert_eq!((Bucket::<K, V>::SLOTS, Bucket::<K, V>::LINES), (slots, lines));
        let (word, shift) = Bucket::<K, V>::value_at(slots - 1);
        assert!(word < Bucket::<K, V>::STRIDE && shift + V::BITS <= 64);
        assert!(Bucket::<K, V>::PACKED || Bucket::<K, V>::VALUES > slots * K::WORDS);
    }

    #[test]
    fn shapes_are_those_of_the_picture() {
        check::<u32, u16>(7, 1);
        check::<u32, u32>(7, 1);
        check::<u32, u64>(3, 1);
        check::<[u8; 3], u32>(7, 1);
        check::<[u8; 9], u16>(3, 1);
        check::<MacAddr, u16>(7, 1);
        check::<MacAddr, u32>(4, 1);
        check::<MacAddr, u64>(3, 1);
        check::<u64, u16>(5, 1);
        check::<MacVlan, u16>(5, 1);
        check::<u64, u32>(4, 1);
        check::<u64, u64>(3, 1);
        check::<u128, u16>(3, 1);
        check::<u128, u32>(6, 2);
        check::<u128, u64>(5, 2);
    }

    #[test]
    fn the_parts_of_a_header_do_not_touch_each_other() {
        for class in 0..CLASSES {
            let mut header = Header(u64::MAX << 32).with_slot(6);
            for count in 1..=9 {
                header = header.marked_more(class);
                assert_eq!(header.marker(class), count.min(7));
            }
            assert_eq!(header.marked_less(class), header, "the end is final");
            assert_eq!((0..CLASSES).filter(|&c| header.marked(c)).count(), 1);
            assert_eq!((header.0 >> 32, header.words()), (0xffff_ffff, 1 << 7));
            assert!(header.has(6) && !header.has(5));
            assert_eq!(header.bumped().0 >> 32, 0);
            assert_eq!(header.bumped().0 as u32, header.0 as u32);
            assert!(!header.same_version(header.bumped()));
            let one = Header(0).marked_more(class).marked_more(class).marked_less(class);
            assert_eq!(one, Header(0).marked_more(class));
            assert_eq!(one.marked_less(class), Header(0));
            assert_eq!(Header(0).marked_less(class), Header(0));
            assert_eq!(header.with_marker(class, 1).marker(class), 1);
            assert_eq!(Header(u64::MAX).with_marker(class, 99), Header(u64::MAX));
            assert!(header.stuck(class) && !one.stuck(class));
            assert_eq!(header.without_slot(6).words(), 0);
        }
    }
}
