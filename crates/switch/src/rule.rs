//! Rules: what a packet must look like, and what then happens to it.
//!
//! The checked types that [`crate::parse`] makes from text and that the classifier and the oracle
//! read. A [`Match`] is a masked key: a packet matches if it agrees with `key` on every bit of
//! `mask`.

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
    /// Adds the condition that `field` agrees with `value` on the bits of `mask`.
    pub fn with(mut self, field: Field, value: u128, mask: u128) -> Match {
        let (old_mask, old_value) = (field.get(&self.mask), field.get(&self.key));
        field.set(&mut self.mask, old_mask | mask);
        field.set(&mut self.key, (old_value & !mask) | (value & mask));
        self
    }

    /// Returns whether a packet with this key matches.
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.matches(&self.key, &self.mask)
    }

    /// Returns whether `other` is at least as specific: this match covers every packet of `other`.
    pub fn covers(&self, other: &Match) -> bool {
        self.mask.and_not(&other.mask).is_zero() && other.key.matches(&self.key, &self.mask)
    }

    /// Returns whether some packet could match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.key.matches(&other.key, &self.mask.masked(&other.mask))
    }

    /// Returns the match with its key cleared outside the mask.
    pub fn canonical(&self) -> Match {
        Match { key: self.key.masked(&self.mask), mask: self.mask }
    }
}

/// One step of a rule's actions. An empty list drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send out of a port, unless it is the ingress port.
    Output(u32),
    /// Output with the `max_len` that a controller gave, which flow statistics report. Acts as the
    /// plain action for the port; see [`Action::plain`].
    OutputAsked {
        /// A port, or OpenFlow's number of IN_PORT, FLOOD, ALL or NORMAL.
        port: u32,
        /// Not 0. Only an output to the controllers uses it.
        max_len: u16,
    },
    /// Send back out of the ingress port.
    InPort,
    /// Send out of every port that floods, but not the ingress port.
    Flood,
    /// Send out of every port but the ingress port.
    All,
    /// Send where a learning switch would; [`crate::sink::Sink::normal`] knows the addresses.
    Normal,
    /// Send to the controllers.
    Controller {
        /// Bytes of the frame to send; `u16::MAX` is all of it.
        max_len: u16,
    },
    /// Write the bits `mask` of a field; a packet without the field passes unchanged.
    SetField {
        field: Field,
        /// Bits to write; zero outside `mask`.
        value: u128,
        mask: u128,
    },
    /// `mod_vlan_vid` and `mod_vlan_pcp`: as `SetField`, but tags an untagged packet first.
    SetVlan {
        /// [`Field::VlanVid`] or [`Field::VlanPcp`].
        field: Field,
        value: u16,
    },
    /// Push a VLAN tag with this TPID; VID and PCP are copied from the tag below, or 0.
    PushVlan(u16),
    /// Remove the outer VLAN tag, if there is one.
    PopVlan,
    /// Decrement TTL or hop limit. A TTL of 1 or 0 ends the list of actions.
    DecTtl,
    /// Continue in a later table, after the rest of this list.
    GotoTable(u8),
    /// Look up again in `table` (default: this one), with `in_port` (default: the real one) as
    /// ingress port, then continue this list.
    Resubmit {
        /// Port to match on during that lookup; the real one is restored afterwards.
        in_port: Option<u32>,
        table: Option<u8>,
    },
}

impl Action {
    /// Returns the action without the parts that are only kept for statistics.
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

    /// Returns the port that this action sends to, as an OpenFlow number.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleFlags {
    /// Controllers get a message when the rule is removed.
    pub send_flow_rem: bool,
    /// The rule is not added if it overlaps one of the same priority.
    pub check_overlap: bool,
    /// The rule starts with zero counters when it replaces another.
    pub reset_counts: bool,
    /// Packets need not be counted. They are.
    pub no_packet_counts: bool,
    /// Bytes need not be counted. They are.
    pub no_byte_counts: bool,
}

impl RuleFlags {
    /// Reads the bits of `OFPFF_*`; ignores others.
    pub const fn from_bits(bits: u16) -> RuleFlags {
        RuleFlags {
            send_flow_rem: bits & 1 != 0,
            check_overlap: bits & 2 != 0,
            reset_counts: bits & 4 != 0,
            no_packet_counts: bits & 8 != 0,
            no_byte_counts: bits & 16 != 0,
        }
    }

    /// Returns the bits of `OFPFF_*`.
    pub const fn bits(self) -> u16 {
        self.send_flow_rem as u16
            | (self.check_overlap as u16) << 1
            | (self.reset_counts as u16) << 2
            | (self.no_packet_counts as u16) << 3
            | (self.no_byte_counts as u16) << 4
    }
}

/// One rule. The default drops every packet of table 0, with priority 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub table: u8,
    /// Higher wins. Of overlapping rules with equal priority, the one inserted first wins.
    pub priority: u16,
    pub matching: Match,
    /// Immediate actions; a `goto_table` among them runs after the two fields below.
    pub actions: Vec<Action>,
    /// Empties the packet's action set after `actions`.
    pub clear_actions: bool,
    /// Actions then added to the packet's action set, which runs after the last table.
    pub write_actions: Vec<Action>,
    /// Opaque number chosen by the controller.
    pub cookie: u64,
    /// Seconds without a packet until the rule is removed; 0 is never.
    pub idle_timeout_s: u16,
    /// Seconds until the rule is removed; 0 is never.
    pub hard_timeout_s: u16,
    /// Importance for eviction; kept and reported only.
    pub importance: u16,
    pub flags: RuleFlags,
}

impl Rule {
    /// Returns whether table, priority and match are equal: OpenFlow's identity of a rule.
    pub fn same_identity(&self, other: &Rule) -> bool {
        self.table == other.table
            && self.priority == other.priority
            && self.matching == other.matching
    }

    /// Returns whether this is a table-miss rule: priority 0, matching everything.
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.mask.is_zero()
    }

    /// Iterates over the ports that the rule sends to, as OpenFlow numbers.
    pub fn out_ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.actions.iter().chain(&self.write_actions).filter_map(Action::out_port)
    }

    /// Returns whether the rule needs a running switch: a clock, controllers or an address table.
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
