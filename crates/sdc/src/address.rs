//! From keys to places: the two hash functions, and how a hash is cut (paper, §2.2.1, figure 4a).
//!
//! ```text
//! offset in a shard, in slots:   line in set │ set │ slot        from the hash's low bits upwards
//! shadow address:   1 │ 0 … 0 │ process │ offset │ byte in slot  49 bits: one above memory's 48
//! ```
//!
//! Line in set is the rest of the hash modulo the ways, which need not be a power of two. Its low
//! bits are the family segment, the others the number of the family.

use crate::{Level, Refused, SdcShape};

/// Bits of a memory address; the extension bit lies above them.
pub const MEMORY_BITS: u32 = 48;

/// Hashes a key to a place: Marsaglia's xorshift for 64 bits (13, 7, 17).
pub fn xorshift(key: u64) -> u64 {
    let x = key ^ key << 13;
    let x = x ^ x >> 7;
    x ^ x << 17
}

/// Hashes a key to the bits of its sub-tag: Wang's hash64shift ("Hash2").
pub fn hash64shift(key: u64) -> u64 {
    let x = (!key).wrapping_add(key << 21);
    let x = x ^ x >> 24;
    let x = x.wrapping_add(x << 3).wrapping_add(x << 8);
    let x = x ^ x >> 14;
    let x = x.wrapping_add(x << 2).wrapping_add(x << 4);
    let x = x ^ x >> 28;
    x.wrapping_add(x << 31)
}

/// Folds a key of any length to 64 bits as the paper's example does: its last 8 bytes, the last one
/// lowest; shorter keys have zero bits above.
///
/// Different keys may fold to the same: the program compares the whole key after a hit.
pub fn fold(key: &[u8]) -> u64 {
    key[key.len().saturating_sub(8)..].iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Widths of the parts of a shadow address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    pub(crate) slot_bits: u32,
    pub(crate) set_bits: u32,
    /// Ways of the cache: lines in a set of the shard.
    pub(crate) ways: u32,
    /// m: a family has at most 2^m lines.
    pub(crate) segment_bits: u32,
    pub(crate) process_bits: u32,
}

/// Where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Slot of the line; 0 where a line has one slot.
    pub slot: u32,
    /// Set of the LLC.
    pub set: u32,
    /// Line of the shard within the set: below the ways.
    pub line: u32,
    /// Number of the family within the set.
    pub family: u32,
    /// Which line of the family: the first bits of the sub-tag.
    pub segment: u32,
}

impl Widths {
    /// Returns the widths for an LLC. Fails if it cannot be built.
    pub fn new(llc: &Level, sdc: &SdcShape) -> Result<Widths, Refused> {
        llc.check("llc")?;
        sdc.check(llc.ways)?;
        Ok(Widths {
            slot_bits: sdc.slots.ilog2(),
            set_bits: llc.sets().ilog2(),
            ways: llc.ways,
            segment_bits: sdc.family.ilog2(),
            process_bits: sdc.process_bits,
        })
    }

    /// Returns the place of a key.
    #[inline]
    pub fn place(&self, key: u64) -> Place {
        let hash = xorshift(key);
        let set = hash >> self.slot_bits;
        let line = ((set >> self.set_bits) % u64::from(self.ways)) as u32;
        Place {
            slot: (hash & ((1 << self.slot_bits) - 1)) as u32,
            set: (set & ((1 << self.set_bits) - 1)) as u32,
            line,
            family: line >> self.segment_bits,
            segment: line & ((1 << self.segment_bits) - 1),
        }
    }

    /// Returns the bits of an offset in a shard, counted in slots.
    pub fn offset_bits(&self) -> u32 {
        self.slot_bits + self.set_bits + bits_for(self.ways)
    }

    /// Returns the shadow address of a process's place, in bytes.
    pub fn shadow(&self, process: u8, place: &Place) -> u64 {
        let line = u64::from(place.line) << self.set_bits | u64::from(place.set);
        let slot = line << self.slot_bits | u64::from(place.slot);
        // A slot is 8 bytes where a line has 8 of them, the line where it has one.
        let slot_shift = 6 - self.slot_bits;
        1 << MEMORY_BITS
            | (u64::from(process) << self.offset_bits()) << slot_shift
            | slot << slot_shift
    }
}

/// Returns the bits that tell n things apart.
pub(crate) fn bits_for(n: u32) -> u32 {
    u32::BITS - n.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_4_has_these_widths() {
        let llc = Level { bytes: 32 << 20, ways: 16, cycles: 0 };
        let widths = Widths::new(&llc, &SdcShape::paper()).unwrap();
        assert_eq!((widths.slot_bits, widths.set_bits, widths.process_bits), (3, 15, 3));
        assert_eq!(widths.offset_bits(), 22);
        let key = 0xe1ed_3ef0;
        let place = widths.place(key);
        let hash = xorshift(key);
        assert_eq!(u64::from(place.slot), hash & 7);
        assert_eq!(u64::from(place.set), hash >> 3 & 0x7fff);
        assert_eq!(u64::from(place.line), hash >> 18 & 15);
        assert_eq!(place.family << 2 | place.segment, place.line);
        let shadow = widths.shadow(1, &place);
        assert_eq!(u64::BITS - shadow.leading_zeros(), 49);
        assert_eq!(shadow >> 3 & 0x3f_ffff, hash & 0x3f_ffff);
        assert_eq!(shadow >> 25, 1 << 23 | 1, "extension bit, zeros, process 001");
    }

    #[test]
    fn every_line_of_twelve_ways_is_used_alike() {
        let widths = Widths::new(&crate::Shape::paper().llc, &SdcShape::paper()).unwrap();
        let mut lines = [0u32; 12];
        let keys = 1_200_000;
        for key in 0..keys {
            lines[widths.place(key).line as usize] += 1;
        }
        for count in lines {
            assert!(count.abs_diff(100_000) < 3_000, "{lines:?}");
        }
    }

    #[test]
    fn hashes_are_the_published_ones() {
        // By hand: 0x1, 0x2001, 0x2041, 0x40822041.
        assert_eq!(xorshift(0), 0);
        assert_eq!(xorshift(1), 0x4082_2041);
        // From Wang's C code, compiled.
        assert_eq!(hash64shift(0), 0x77cf_a1ee_f01b_ca90);
        assert_eq!(hash64shift(1), 0x5bca_7c69_b794_f8ce);
    }

    #[test]
    fn folding_takes_the_last_eight_bytes() {
        assert_eq!(fold(b""), 0);
        assert_eq!(fold(b"ab"), 0x6162);
        assert_eq!(fold(b"user12345678"), fold(b"12345678"));
    }
}
