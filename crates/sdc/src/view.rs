//! What lies in a set of the LLC: for a page that draws it.
//!
//! As JSON, a way has a `kind`: `empty`, `ordinary` or `sdc`.

use serde::{Deserialize, Serialize};

/// A way of an LLC set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WayView {
    /// No line yet.
    Empty,
    /// A line of memory.
    Ordinary {
        /// Address / 64.
        line: u64,
        /// To be written back.
        modified: bool,
    },
    /// A line of SDC.
    Sdc {
        /// Whose values it holds.
        process: u8,
        /// Number of the family within the set.
        family: u32,
        /// Its slots, in order.
        slots: [SlotView; 8],
    },
}

/// An 8-byte slot of an SDC line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotView {
    /// Holds a value or a part of one.
    pub valid: bool,
    /// The value continues in the next slot.
    pub sequence: bool,
    /// Hit since CLOCK came by.
    pub reference: bool,
    /// This slot's bits of the value's sub-tag.
    pub sub_tag: u8,
}
