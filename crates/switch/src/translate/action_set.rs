//! The action set of one packet: actions that rules write, to run after the last table.
//!
//! Order and replacement follow OpenFlow 1.3, section 5.10, as implemented in Open vSwitch
//! (ovs-actions(7), "Action Sets"). Of each kind the last action written counts; of field writes,
//! all do. The steps of a packet bound the set. Panics: none.

use crate::rule::Action;

/// An action and the rule that wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub action: Action,
    pub table: u8,
    pub cookie: u64,
}

#[derive(Debug, Default)]
pub(super) struct ActionSet {
    pop_vlan: Option<Written>,
    push_vlan: Option<Written>,
    dec_ttl: Option<Written>,
    writes: Vec<Written>,
    output: Option<Written>,
}

impl ActionSet {
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

    pub fn clear(&mut self) {
        *self = ActionSet::default();
    }

    /// Returns the actions in the order in which they run.
    pub fn in_order(&self) -> impl Iterator<Item = &Written> {
        let first = [&self.pop_vlan, &self.push_vlan, &self.dec_ttl];
        first.into_iter().flatten().chain(&self.writes).chain(&self.output)
    }
}
