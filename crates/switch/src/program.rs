//! Programs: the output of translation, which [`crate::exec`] runs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use overbank_wire::{Field, FlowKey};

use crate::drop::DropReason;
use crate::sink::PacketInReason;
use crate::stats::RuleStats;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Send the frame as it is at this step.
    Output(u32),
    /// Send where a learning switch would.
    Normal,
    /// Send it to the controllers.
    Controller {
        /// Bytes of the frame to send.
        max_len: u16,
        reason: PacketInReason,
        /// Table of the rule that sends.
        table: u8,
        cookie: u64,
    },
    /// Write the bits `mask` of a field.
    Set { field: Field, value: u128, mask: u128 },
    /// Push a tag with this TPID.
    PushVlan(u16),
    /// Remove the outer tag.
    PopVlan,
    /// Decrement TTL or hop limit, which is at least 2.
    DecTtl,
}

impl Op {
    /// Returns whether this step may send the frame.
    pub fn sends(&self) -> bool {
        matches!(self, Op::Output(_) | Op::Normal | Op::Controller { .. })
    }
}

/// One lookup of a translation.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub table: u8,
    /// Counters of the rule found.
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

/// What the rules do to a packet and to every packet that agrees on `mask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Every bit of the key that the result depends on.
    pub mask: FlowKey,
    pub program: Box<[Op]>,
    /// Why nothing is sent, if the program sends nothing.
    pub drop: Option<DropReason>,
    /// The lookups made, in order.
    pub lookups: Box<[Lookup]>,
}
