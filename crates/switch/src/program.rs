//! Programs: what translation makes of rules, and what [`crate::exec`] runs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use overbank_wire::{Field, FlowKey};

use crate::drop::DropReason;
use crate::sink::PacketInReason;
use crate::stats::RuleStats;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Send the frame as it is now.
    Output(u32),
    /// Send it where a learning switch would.
    Normal,
    /// Send it to the controllers.
    Controller {
        /// How many bytes of it they want.
        max_len: u16,
        /// Why.
        reason: PacketInReason,
        /// Table of the rule that says so.
        table: u8,
        /// Cookie of that rule.
        cookie: u64,
    },
    /// Write the bits `mask` of a field.
    Set {
        /// Which field.
        field: Field,
        /// The bits to write.
        value: u128,
        /// The bits that are written.
        mask: u128,
    },
    /// Push a tag with this TPID.
    PushVlan(u16),
    /// Remove the outer tag.
    PopVlan,
    /// Decrement TTL or hop limit, which is 2 at least.
    DecTtl,
}

impl Op {
    /// Whether it may send the frame somewhere.
    pub fn sends(&self) -> bool {
        matches!(self, Op::Output(_) | Op::Normal | Op::Controller { .. })
    }
}

/// One lookup that a translation made.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// In which table.
    pub table: u8,
    /// The counters of the rule that it found.
    pub rule: Option<Arc<RuleStats>>,
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Lookup) -> bool {
        let address = |rule: &Option<Arc<RuleStats>>| rule.as_ref().map(Arc::as_ptr);
        self.table == other.table && address(&self.rule) == address(&other.rule)
    }
}

impl Eq for Lookup {}

impl Hash for Lookup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table, self.rule.as_ref().map(Arc::as_ptr)).hash(state);
    }
}

/// What the rules do to a packet and to all that look like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Every bit of the key that the rest depends on.
    pub mask: FlowKey,
    /// The steps.
    pub program: Box<[Op]>,
    /// Why nothing is sent, if the program has no [`Op::Output`] and its other steps send nothing.
    pub drop: Option<DropReason>,
    /// The lookups behind it, in order.
    pub lookups: Box<[Lookup]>,
}
