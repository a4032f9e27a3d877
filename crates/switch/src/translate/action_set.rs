//! The action set of one packet: what rules write to be done when all else is done.
//!
//! Order and replacement are those of OpenFlow 1.3, section 5.10, as Open vSwitch has them
//! (ovs-actions(7), "Action Sets"): one action of each kind, the last one written, but all writes
//! of fields, one after another. Bounded by the steps that a packet may take. Panics: none.

use crate::rule::Action;

/// An action and the rule that wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub action: Action,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ActionSet {
    pop_vlan: Option<Written>,
    push_vlan: Option<Written>,
    dec_ttl: Option<Written>,
    writes: Vec<Written>,
    output: Option<Written>,
}

impl ActionSet {
    /// Writes an action into the set.
    pub fn write(&mut self, action: Action, table: u8, cookie: u64) {
        let written = Written { action, table, cookie };
        match action {
            Action::PopVlan => self.pop_vlan = Some(written),
            Action::PushVlan(_) => self.push_vlan = Some(written),
            Action::DecTtl => self.dec_ttl = Some(written),
            Action::SetField { .. } | Action::SetVlan { .. } => self.writes.push(written),
            Action::Output(_)
            | Action::OutputAsked { .. }
            | Action::InPort
            | Action::Flood
            | Action::All
            | Action::Normal
            | Action::Controller { .. } => self.output = Some(written),
            // Refused when rules are added.
            Action::GotoTable(_) | Action::Resubmit { .. } => {}
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        *self = ActionSet::default();
    }

    /// What there is to do, in order.
    pub fn in_order(&self) -> impl Iterator<Item = &Written> {
        let first = [&self.pop_vlan, &self.push_vlan, &self.dec_ttl];
        first.into_iter().flatten().chain(&self.writes).chain(&self.output)
    }
}
