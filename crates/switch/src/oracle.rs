//! The switch as one would write it without caring for speed: the naive twin of all three tiers.
//!
//! It scans every rule for every lookup and carries out actions as it meets them, on the frame and
//! on its key. It shares no code with the classifier, the translator and the executor; only the
//! edits of a frame and of a key are those of the crate `overbank-wire`. What the rules mean is
//! written down in [`crate::translate`]. Cost: every rule, for every lookup. Panics: none.

use std::collections::HashMap;

use overbank_wire::edit::FRAME_MAX;
use overbank_wire::{Field, FlowKey, FrameBuf, Offsets, evolve, extract, key};

use crate::drop::DropReason;
use crate::rule::{Action, Match, Rule};
use crate::translate::{DEFAULT_TPID, DEPTH_MAX, LOOKUPS_MAX, STEPS_MAX};

/// What happened to one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Ports and the frames that left by them, in order.
    pub outputs: Vec<(u32, Vec<u8>)>,
    /// Why there is no output, if there is none.
    pub drop: Option<DropReason>,
}

/// The rules, in the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    rules: Vec<Rule>,
}

impl Oracle {
    /// Holds these rules; of those with the same identity the last stays, in the place of the
    /// first.
    pub fn new(rules: Vec<Rule>) -> Oracle {
        let mut oracle = Oracle::default();
        let mut places = HashMap::new();
        for rule in rules {
            match places.entry((rule.table, rule.priority, canonical(&rule.matching))) {
                std::collections::hash_map::Entry::Occupied(at) => oracle.rules[*at.get()] = rule,
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(oracle.rules.len());
                    oracle.rules.push(rule);
                }
            }
        }
        oracle
    }

    /// Adds a rule, or replaces the one with the same identity.
    pub fn insert(&mut self, rule: Rule) {
        match self.rules.iter_mut().find(|r| is(r, rule.table, rule.priority, &rule.matching)) {
            Some(old) => *old = rule,
            None => self.rules.push(rule),
        }
    }

    /// Removes the rule with this table, priority and match; false if there is none.
    pub fn remove(&mut self, table: u8, priority: u16, matching: &Match) -> bool {
        let before = self.rules.len();
        self.rules.retain(|r| !is(r, table, priority, matching));
        self.rules.len() < before
    }

    /// The rules, in the order of insertion.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule for a packet with this key: the highest priority, of those the oldest.
    pub fn lookup(&self, table: u8, key: &FlowKey) -> Option<&Rule> {
        let mut best: Option<&Rule> = None;
        for rule in self.rules.iter().filter(|r| r.table == table && r.matching.matches(key)) {
            if best.is_none_or(|b| rule.priority > b.priority) {
                best = Some(rule);
            }
        }
        best
    }

    /// What happens to a frame. `ports` are the ports that exist, ascending.
    pub fn process(&self, frame: &[u8], in_port: u32, ports: &[u32]) -> Verdict {
        let refused = |reason| Verdict { outputs: Vec::new(), drop: Some(reason) };
        if frame.len() > FRAME_MAX {
            return refused(DropReason::FrameTooLong);
        }
        let mut key = FlowKey::default();
        let offsets = match extract(frame, in_port, &mut key) {
            Ok(offsets) => offsets,
            Err(reason) => return refused(reason.into()),
        };
        let mut packet = Packet {
            rules: self,
            ports,
            key,
            frame: Frame::Untouched(frame, offsets),
            outputs: Vec::new(),
            lookups: 0,
            steps: 0,
            suppressed: false,
            missed: false,
        };
        let drop = match packet.table(0, 0) {
            Ok(()) if packet.suppressed => DropReason::NoOutput,
            Ok(()) if packet.missed => DropReason::NoRule,
            Ok(()) => DropReason::RuleDrop,
            Err(DropReason::TooManyResubmits) => {
                packet.outputs.clear();
                DropReason::TooManyResubmits
            }
            Err(reason) => reason,
        };
        let drop = packet.outputs.is_empty().then_some(drop);
        Verdict { outputs: packet.outputs, drop }
    }
}

/// A match with its key zero outside the mask.
fn canonical(matching: &Match) -> Match {
    Match { key: matching.key.masked(&matching.mask), mask: matching.mask }
}

fn is(rule: &Rule, table: u8, priority: u16, matching: &Match) -> bool {
    rule.table == table
        && rule.priority == priority
        && canonical(&rule.matching) == canonical(matching)
}

/// The bytes of the packet.
enum Frame<'a> {
    Untouched(&'a [u8], Offsets),
    Edited(Box<FrameBuf>),
}

struct Packet<'a> {
    rules: &'a Oracle,
    ports: &'a [u32],
    key: FlowKey,
    frame: Frame<'a>,
    outputs: Vec<(u32, Vec<u8>)>,
    lookups: u32,
    steps: u32,
    suppressed: bool,
    missed: bool,
}

impl<'a> Packet<'a> {
    /// Processes the packet in a table that must know it. An error ends all processing.
    fn table(&mut self, table: u8, depth: u32) -> Result<(), DropReason> {
        match self.rules.lookup(table, &self.key) {
            Some(rule) => self.rule(rule, depth),
            None => {
                self.missed = true;
                Ok(())
            }
        }
    }

    fn rule(&mut self, rule: &'a Rule, depth: u32) -> Result<(), DropReason> {
        for action in &rule.actions {
            self.action(rule, action, depth)?;
        }
        let next = rule.actions.iter().rev().find_map(|action| match action {
            Action::GotoTable(next) => Some(*next),
            _ => None,
        });
        let Some(next) = next else { return Ok(()) };
        self.count_lookup()?;
        self.table(next, depth)
    }

    fn action(&mut self, rule: &Rule, action: &Action, depth: u32) -> Result<(), DropReason> {
        self.count_steps(1)?;
        match *action {
            Action::Output(port) => self.output(port),
            Action::InPort => self.send(self.key.in_port),
            Action::Flood => {
                self.count_steps(self.ports.len())?;
                for &port in self.ports {
                    self.output(port);
                }
            }
            Action::SetField { field, value, mask } => self.set_field(field, value, mask)?,
            Action::SetVlan { field, value } => {
                if self.key.vlan_tci & key::VLAN_PRESENT == 0 {
                    self.push_vlan(DEFAULT_TPID)?;
                }
                self.set_field(field, value.into(), u128::MAX)?;
            }
            Action::PushVlan(tpid) => self.push_vlan(tpid)?,
            Action::PopVlan => {
                if evolve::pop_vlan(&mut self.key) {
                    self.edit()?.pop_vlan();
                }
            }
            Action::DecTtl => {
                if evolve::has(Field::NwTtl, &self.key) {
                    evolve::dec_ttl(&mut self.key).map_err(|_| DropReason::TtlExpired)?;
                    // A broken header has no TTL to write; what its key says is what counts.
                    let _ = self.edit()?.dec_ttl();
                }
            }
            Action::GotoTable(_) => {}
            Action::Resubmit { in_port, table } => {
                if depth == DEPTH_MAX {
                    return Err(DropReason::TooManyResubmits);
                }
                self.count_lookup()?;
                let seen = FlowKey { in_port: in_port.unwrap_or(self.key.in_port), ..self.key };
                if let Some(found) = self.rules.lookup(table.unwrap_or(rule.table), &seen) {
                    self.rule(found, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn count_lookup(&mut self) -> Result<(), DropReason> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(DropReason::TooManyResubmits) } else { Ok(()) }
    }

    fn count_steps(&mut self, steps: usize) -> Result<(), DropReason> {
        // Beyond 32 bits it is too many all the same.
        self.steps = self.steps.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if self.steps > STEPS_MAX { Err(DropReason::TooManyResubmits) } else { Ok(()) }
    }

    fn output(&mut self, port: u32) {
        if port == self.key.in_port {
            self.suppressed = true;
        } else {
            self.send(port);
        }
    }

    fn send(&mut self, port: u32) {
        if !self.ports.contains(&port) {
            self.suppressed = true;
            return;
        }
        let bytes = match &self.frame {
            Frame::Untouched(bytes, _) => bytes.to_vec(),
            Frame::Edited(buffer) => buffer.as_slice().to_vec(),
        };
        self.outputs.push((port, bytes));
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128) -> Result<(), DropReason> {
        if mask & evolve::write_mask(field) != 0
            && evolve::set_field(&mut self.key, field, value, mask)
        {
            self.edit()?.set_field(field, value, mask);
        }
        Ok(())
    }

    fn push_vlan(&mut self, tpid: u16) -> Result<(), DropReason> {
        if evolve::push_vlan(&mut self.key, tpid) {
            self.edit()?.push_vlan(tpid);
        }
        Ok(())
    }

    /// The frame, to be edited.
    fn edit(&mut self) -> Result<&mut FrameBuf, DropReason> {
        if let Frame::Untouched(bytes, offsets) = self.frame {
            let mut buffer = Box::new(FrameBuf::new());
            buffer.load(bytes, offsets)?;
            self.frame = Frame::Edited(buffer);
        }
        match &mut self.frame {
            Frame::Edited(buffer) => Ok(buffer),
            Frame::Untouched(..) => Err(DropReason::FrameTooLong),
        }
    }
}
