//! Rules: what a packet must look like, and what then happens to it.
//!
//! These are the checked types that [`crate::parse`] makes from text and that the classifier and
//! the oracle read. A [`Match`] is a masked key: a packet matches if it agrees with `key` on every
//! bit of `mask`.

use overbank_wire::{Field, FlowKey};

/// Highest table number; 255 is reserved in OpenFlow.
pub const TABLE_MAX: u8 = 254;

/// A masked flow key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// The wanted bits; zero outside `mask`.
    pub key: FlowKey,
    /// The bits that count.
    pub mask: FlowKey,
}

impl Match {
    /// Adds the wish that `field` agrees with `value` on the bits of `mask`.
    pub fn with(mut self, field: Field, value: u128, mask: u128) -> Match {
        let (old_mask, old_value) = (field.get(&self.mask), field.get(&self.key));
        field.set(&mut self.mask, old_mask | mask);
        field.set(&mut self.key, (old_value & !mask) | (value & mask));
        self
    }

    /// Whether a packet with this key matches.
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.matches(&self.key, &self.mask)
    }
}

/// One step of a rule's actions. An empty list drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send out of a port. A packet never leaves by the port that it came in on this way.
    Output(u32),
    /// Send back out of the ingress port.
    InPort,
    /// Send out of every port but the ingress port (`flood` and `all`).
    Flood,
    /// Write the bits `mask` of a field; a packet that does not have the field is left as it is.
    SetField {
        /// Which field.
        field: Field,
        /// The bits to write; zero outside `mask`.
        value: u128,
        /// The bits that are written.
        mask: u128,
    },
    /// `mod_vlan_vid` and `mod_vlan_pcp`: as `SetField`, but an untagged packet is tagged first.
    SetVlan {
        /// [`Field::VlanVid`] or [`Field::VlanPcp`].
        field: Field,
        /// The new value.
        value: u16,
    },
    /// Push a VLAN tag with this TPID; VID and PCP are copied from the tag below, or 0.
    PushVlan(u16),
    /// Remove the outer VLAN tag, if there is one.
    PopVlan,
    /// Decrement TTL or hop limit. At 1 or 0 the packet's processing ends there and then.
    DecTtl,
    /// Go on in a later table, after everything else in this list.
    GotoTable(u8),
    /// Look up again, in `table` (or this one), as if the packet came in on `in_port` (or as now),
    /// then go on with this list.
    Resubmit {
        /// Port to match on during that lookup; the real one is restored afterwards.
        in_port: Option<u32>,
        /// Table to look in.
        table: Option<u8>,
    },
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// OpenFlow table.
    pub table: u8,
    /// Higher wins; equal priorities that overlap are decided by the order of insertion, first wins.
    pub priority: u16,
    /// What it matches.
    pub matching: Match,
    /// What it does.
    pub actions: Vec<Action>,
    /// Opaque number of the controller.
    pub cookie: u64,
}

impl Rule {
    /// Whether both say the same table, priority and match: OpenFlow's identity of a rule.
    pub fn same_identity(&self, other: &Rule) -> bool {
        self.table == other.table
            && self.priority == other.priority
            && self.matching == other.matching
    }
}
