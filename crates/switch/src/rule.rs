//! Rules: what a packet must look like, and what then happens to it.
//!
//! These are the checked types that [`crate::parse`] makes from text and that the classifier and
//! the oracle read. A [`Match`] is a masked key: a packet matches if it agrees with `key` on every
//! bit of `mask`.

use overbank_wire::{Field, FlowKey};

use crate::ports::{PORT_ALL, PORT_CONTROLLER, PORT_FLOOD, PORT_IN_PORT, PORT_NORMAL};

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

    /// Whether `other` is at least as specific: whatever matches it matches this one too.
    pub fn covers(&self, other: &Match) -> bool {
        self.mask.and_not(&other.mask).is_zero() && other.key.matches(&self.key, &self.mask)
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.key.matches(&other.key, &self.mask.masked(&other.mask))
    }

    /// The same with its key zero outside of the mask.
    pub fn canonical(&self) -> Match {
        Match { key: self.key.masked(&self.mask), mask: self.mask }
    }
}

/// One step of a rule's actions. An empty list drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send out of a port. A packet never leaves by the port that it came in on this way.
    Output(u32),
    /// Sends as the plain action for this port does, and keeps the `max_len` that a controller
    /// gave: flow statistics show it. See [`Action::plain`].
    OutputAsked {
        /// A port, or OpenFlow's number of IN_PORT, FLOOD, ALL or NORMAL.
        port: u32,
        /// Not 0. Only an output to the controllers has a use for it.
        max_len: u16,
    },
    /// Send back out of the ingress port.
    InPort,
    /// Send out of every port that floods, but not the ingress port.
    Flood,
    /// Send out of every port but the ingress port.
    All,
    /// Send where a learning switch would; who forwards knows the addresses
    /// ([`crate::sink::Sink::normal`]).
    Normal,
    /// Send to the controllers.
    Controller {
        /// How many bytes of the frame they get; `u16::MAX` is all of it.
        max_len: u16,
    },
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
    /// Decrement TTL or hop limit. At 1 or 0 the list of actions that it stands in ends.
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

impl Action {
    /// Returns the action that says what a packet does, without what is only kept for statistics.
    #[must_use]
    pub const fn plain(self) -> Action {
        match self {
            Action::OutputAsked { port: PORT_IN_PORT, .. } => Action::InPort,
            Action::OutputAsked { port: PORT_FLOOD, .. } => Action::Flood,
            Action::OutputAsked { port: PORT_ALL, .. } => Action::All,
            Action::OutputAsked { port: PORT_NORMAL, .. } => Action::Normal,
            Action::OutputAsked { port, .. } => Action::Output(port),
            other => other,
        }
    }

    /// The port that it names, by OpenFlow's numbers, if it sends a packet.
    pub const fn out_port(&self) -> Option<u32> {
        match *self {
            Action::Output(port) | Action::OutputAsked { port, .. } => Some(port),
            Action::InPort => Some(PORT_IN_PORT),
            Action::Flood => Some(PORT_FLOOD),
            Action::All => Some(PORT_ALL),
            Action::Normal => Some(PORT_NORMAL),
            Action::Controller { .. } => Some(PORT_CONTROLLER),
            Action::SetField { .. }
            | Action::SetVlan { .. }
            | Action::PushVlan(_)
            | Action::PopVlan
            | Action::DecTtl
            | Action::GotoTable(_)
            | Action::Resubmit { .. } => None,
        }
    }
}

/// What OpenFlow calls the flags of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleFlags {
    /// The controllers are told when the rule goes.
    pub send_flow_rem: bool,
    /// It is not added if it overlaps one of the same priority.
    pub check_overlap: bool,
    /// It does not take over the counters of the rule that it replaces.
    pub reset_counts: bool,
    /// Packets need not be counted. They are.
    pub no_packet_counts: bool,
    /// Bytes need not be counted. They are.
    pub no_byte_counts: bool,
}

impl RuleFlags {
    /// From the bits of `OFPFF_*`; others are ignored.
    pub const fn from_bits(bits: u16) -> RuleFlags {
        RuleFlags {
            send_flow_rem: bits & 1 != 0,
            check_overlap: bits & 2 != 0,
            reset_counts: bits & 4 != 0,
            no_packet_counts: bits & 8 != 0,
            no_byte_counts: bits & 16 != 0,
        }
    }

    /// As the bits of `OFPFF_*`.
    pub const fn bits(self) -> u16 {
        self.send_flow_rem as u16
            | (self.check_overlap as u16) << 1
            | (self.reset_counts as u16) << 2
            | (self.no_packet_counts as u16) << 3
            | (self.no_byte_counts as u16) << 4
    }
}

/// One rule. Its default is that of table 0 which matches everything, with priority 0, and drops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// OpenFlow table.
    pub table: u8,
    /// Higher wins; equal priorities that overlap are decided by the order of insertion, first
    /// wins.
    pub priority: u16,
    /// What it matches.
    pub matching: Match,
    /// What it does at once; `goto_table` among them comes after the two below.
    pub actions: Vec<Action>,
    /// Whether it then empties the packet's action set.
    pub clear_actions: bool,
    /// What it then writes into the packet's action set, which runs at the end of the tables.
    pub write_actions: Vec<Action>,
    /// Opaque number of the controller.
    pub cookie: u64,
    /// Seconds without a packet after which it goes; 0 is never.
    pub idle_timeout_s: u16,
    /// Seconds after which it goes; 0 is never.
    pub hard_timeout_s: u16,
    /// Which rules to give up first when there are too many; kept and shown only.
    pub importance: u16,
    /// Its flags.
    pub flags: RuleFlags,
}

impl Rule {
    /// Whether both say the same table, priority and match: OpenFlow's identity of a rule.
    pub fn same_identity(&self, other: &Rule) -> bool {
        self.table == other.table
            && self.priority == other.priority
            && self.matching == other.matching
    }

    /// Whether it is its table's table-miss rule: priority 0, matching everything.
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.mask.is_zero()
    }

    /// Every port that it names to send to, reserved ones by OpenFlow's numbers.
    pub fn out_ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.actions.iter().chain(&self.write_actions).filter_map(Action::out_port)
    }

    /// Whether it needs what only a running switch has: a clock, controllers or a table of
    /// addresses.
    pub fn needs_a_live_switch(&self) -> bool {
        self.idle_timeout_s != 0
            || self.hard_timeout_s != 0
            || self.flags != RuleFlags::default()
            || self.out_ports().any(|port| matches!(port, PORT_CONTROLLER | PORT_NORMAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_bits_of_openflow() {
        for bits in 0..32 {
            assert_eq!(RuleFlags::from_bits(bits).bits(), bits);
        }
        assert_eq!(RuleFlags::from_bits(!31), RuleFlags::default());
        let flags = RuleFlags { reset_counts: true, send_flow_rem: true, ..Default::default() };
        assert_eq!(flags.bits(), 5);
    }

    #[test]
    fn a_match_covers_narrower_ones_and_overlaps_what_it_meets() {
        let of = |value, mask| Match::default().with(Field::NwDst, value, mask);
        let (wide, narrow) = (of(0x0a00_0000, 0xff00_0000), of(0x0a01_0000, 0xffff_0000));
        let port = Match::default().with(Field::TpDst, 53, 0xffff);
        assert!(wide.covers(&narrow) && wide.covers(&wide) && !narrow.covers(&wide));
        assert!(Match::default().covers(&port) && !port.covers(&wide));
        assert!(wide.overlaps(&narrow) && narrow.overlaps(&wide) && port.overlaps(&wide));
        assert!(!of(0x0b00_0000, 0xff00_0000).overlaps(&narrow));
    }
}
