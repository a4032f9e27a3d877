//! What SDC costs in bits (paper, §2.3): arithmetic for any geometry.

use serde::{Deserialize, Serialize};

use crate::{
    address::{MEMORY_BITS, bits_for},
    shape::{LINE, Level, SdcShape},
};

/// Status bits of a slot: valid, reference, sequence. The last can go where slots are 16 bytes.
pub const STATUS_BITS: u32 = 3;

/// Bits that SDC adds to a line of the LLC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Tag of an ordinary line.
    pub regular_tag: u32,
    /// Tag of an SDC line: extension bit, process, family.
    pub sdc_tag: u32,
    /// Sub-tags and status bits of a line's slots.
    pub slots: u32,
    /// `slots` less what the shorter tag saves; less than 0 if it saves more.
    pub extra: i32,
    /// `extra` by the line's 512 bits of data.
    pub share: f64,
}

/// Returns the cost for slots of `slot_bytes` with `status_bits` each (valid, reference, sequence).
///
/// The paper's second figure, 0.78 %, is for slots of 16 bytes with 2 status bits. Its text says
/// that the reference bit is saved; only the sequence bit can go, as CLOCK needs the other. The
/// count is the same. (The text also prints (6 × 4 × 20) / 512 where (6 × 4 − 20) / 512 is meant.)
///
/// Returns `None` for a level without ways, more than 64 bits of one kind, or slots that do not
/// divide a line.
pub fn cost(llc: &Level, sdc: &SdcShape, slot_bytes: u32, status_bits: u32) -> Option<Cost> {
    let line = LINE as u32;
    let large = sdc.sub_tag_bits.max(sdc.process_bits).max(status_bits) > 64;
    if llc.ways == 0
        || sdc.family == 0
        || large
        || !matches!(slot_bytes, 1 | 2 | 4 | 8 | 16 | 32 | 64)
    {
        return None;
    }
    let sets = (llc.bytes / LINE / u64::from(llc.ways)).max(1);
    let regular_tag = MEMORY_BITS.saturating_sub(6 + sets.ilog2());
    let sdc_tag = 1 + sdc.process_bits + bits_for(llc.ways.div_ceil(sdc.family));
    let slots = (sdc.sub_tag_bits + status_bits) * (line / slot_bytes);
    let extra = slots as i32 - (regular_tag as i32 - sdc_tag as i32);
    Some(Cost { regular_tag, sdc_tag, slots, extra, share: f64::from(extra) / (8.0 * LINE as f64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_come_out() {
        let llc = Level { bytes: 40 << 20, ways: 20, cycles: 0 };
        let sdc = SdcShape { sub_tag_bits: 4, ..SdcShape::paper() };
        let whole = cost(&llc, &sdc, 8, STATUS_BITS).unwrap();
        assert_eq!((whole.regular_tag, whole.sdc_tag, whole.slots, whole.extra), (27, 7, 56, 36));
        assert_eq!(format!("{:.0} %", 100.0 * whole.share), "7 %");
        let halves = cost(&llc, &sdc, 16, STATUS_BITS - 1).unwrap();
        assert_eq!((halves.slots, halves.extra), (24, 4));
        assert_eq!(format!("{:.2} %", 100.0 * halves.share), "0.78 %");
        assert_eq!(cost(&llc, &sdc, 24, 3), None);
        assert_eq!(cost(&Level { ways: 0, ..llc }, &sdc, 8, 3), None);
    }
}
