//! The switch written without regard for speed: the naive twin of all three tiers.
//!
//! It scans every rule for every lookup and runs actions as it meets them, on the frame and on its
//! key. It shares no code with classifier, translator and executor; only the edits of frames and
//! keys are those of the crate `overbank-wire`. [`crate::translate`] says what the rules mean.
//! Cost: every rule, for every lookup. Panics: none.

use std::collections::HashMap;

use overbank_wire::edit::FRAME_MAX;
use overbank_wire::extract::extract_within;
use overbank_wire::{Field, FlowKey, FrameBuf, Offsets, edit_key, key};

use crate::drop::DropReason;
use crate::ports::{PORT_TABLE, SwitchPort};
use crate::rule::{Action, Match, Rule};
use crate::sink::{ControllerPacket, Normal, NormalPacket, PacketInReason};
use crate::translate::{DEFAULT_TPID, DEPTH_MAX, LOOKUPS_MAX, STEPS_MAX};
use crate::view::{Fragments, View};

/// What happened to one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Ports and frames sent, in order.
    pub outputs: Vec<(u32, Vec<u8>)>,
    /// Packets sent to the controllers, in order.
    pub controller: Vec<PacketIn>,
    /// Why nothing was sent, if so.
    pub drop: Option<DropReason>,
}

/// A [`ControllerPacket`] that owns its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    pub reason: PacketInReason,
    /// Bytes asked for.
    pub max_len: u16,
    /// Table of the rule.
    pub table: u8,
    pub cookie: u64,
    pub in_port: u32,
    pub frame: Vec<u8>,
}

impl From<&ControllerPacket<'_>> for PacketIn {
    fn from(packet: &ControllerPacket<'_>) -> PacketIn {
        let ControllerPacket { reason, max_len, table, cookie, in_port, frame } = *packet;
        PacketIn { reason, max_len, table, cookie, in_port, frame: frame.to_vec() }
    }
}

/// The surroundings that the rules do not determine.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    pub ports: &'a [SwitchPort],
    /// Decides whether the controllers take a packet.
    pub takes: &'a dyn Fn(&ControllerPacket<'_>) -> bool,
    /// Decides where a learning switch would send a packet.
    pub normal: &'a dyn Fn(&NormalPacket) -> Normal,
}

/// The lookups of one packet, in order: the table, and the index in [`Oracle::rules`] of the rule
/// found.
pub type Lookups = Vec<(u8, Option<usize>)>;

/// The rules, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    rules: Vec<Rule>,
    view: View,
}

impl Oracle {
    /// Returns an oracle for these rules. Of those with the same identity, the last one takes the
    /// place of the first.
    pub fn new(rules: Vec<Rule>) -> Oracle {
        let mut oracle = Oracle::default();
        let mut places = HashMap::new();
        for rule in rules {
            match places.entry((rule.table, rule.priority, rule.matching.canonical())) {
                std::collections::hash_map::Entry::Occupied(at) => oracle.rules[*at.get()] = rule,
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(oracle.rules.len());
                    oracle.rules.push(rule);
                }
            }
        }
        oracle
    }

    /// Returns the same rules with this view of packets.
    #[must_use]
    pub fn with_view(self, view: View) -> Oracle {
        Oracle { view, ..self }
    }

    /// Adds a rule, or replaces the one with the same identity.
    pub fn insert(&mut self, rule: Rule) {
        match self.rules.iter_mut().find(|r| is(r, rule.table, rule.priority, &rule.matching)) {
            Some(old) => *old = rule,
            None => self.rules.push(rule),
        }
    }

    /// Removes the rule with this table, priority and match; returns false if it is unknown.
    pub fn remove(&mut self, table: u8, priority: u16, matching: &Match) -> bool {
        let before = self.rules.len();
        self.rules.retain(|r| !is(r, table, priority, matching));
        self.rules.len() < before
    }

    /// Returns the rules, in insertion order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rule for a packet with this key: of the highest priority, the oldest.
    pub fn lookup(&self, table: u8, key: &FlowKey) -> Option<&Rule> {
        self.find(table, key).map(|at| &self.rules[at])
    }

    fn find(&self, table: u8, key: &FlowKey) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.table == table
                && rule.matching.matches(key)
                && best.is_none_or(|b| rule.priority > self.rules[b].priority)
            {
                best = Some(at);
            }
        }
        best
    }

    /// Processes a frame with these ports, without learnt addresses and without controllers.
    pub fn process(&self, frame: &[u8], in_port: u32, ports: &[u32]) -> Verdict {
        let ports: Vec<SwitchPort> = ports.iter().map(|&port| port.into()).collect();
        let around = Around { ports: &ports, takes: &|_| false, normal: &|_| Normal::Drop };
        self.process_in(frame, in_port, &around).0
    }

    /// Processes a frame and returns its lookups too.
    pub fn process_in(
        &self,
        frame: &[u8],
        in_port: u32,
        around: &Around<'_>,
    ) -> (Verdict, Lookups) {
        self.carry_out(frame, in_port, around, |packet| packet.pipeline())
    }

    /// Processes a packet of a controller with its list of actions.
    pub fn packet_out(
        &self,
        frame: &[u8],
        in_port: u32,
        actions: &[Action],
        around: &Around<'_>,
    ) -> (Verdict, Lookups) {
        let rule = Rule { cookie: u64::MAX, actions: actions.to_vec(), ..Rule::default() };
        self.carry_out(frame, in_port, around, |packet| {
            packet.rule(&rule, 0, Some(PacketInReason::PacketOut)).map(|_| ())
        })
    }

    fn carry_out(
        &self,
        frame: &[u8],
        in_port: u32,
        around: &Around<'_>,
        run: impl FnOnce(&mut Packet<'_>) -> Result<(), DropReason>,
    ) -> (Verdict, Lookups) {
        let refused = |reason| (Verdict { drop: Some(reason), ..Verdict::default() }, Vec::new());
        if frame.len() > FRAME_MAX {
            return refused(DropReason::FrameTooLong);
        }
        let mut key = FlowKey::default();
        let offsets = match extract_within(frame, in_port, self.view.vlan_limit, &mut key) {
            Ok(offsets) => offsets,
            Err(reason) => return refused(reason.into()),
        };
        let mut packet = Packet {
            rules: self,
            around,
            key,
            frame: Frame::Untouched(frame, offsets),
            done: Vec::new(),
            set: Vec::new(),
            found: Vec::new(),
            lookups: 0,
            steps: 0,
            missed: false,
            suppressed: false,
            expired: false,
            fragment: false,
        };
        let end = run(&mut packet);
        let Packet { done, found, missed, suppressed, expired, fragment, .. } = packet;
        if end == Err(DropReason::TooManyResubmits) {
            return (refused(DropReason::TooManyResubmits).0, found);
        }
        let mut verdict = Verdict::default();
        // Reasons why nothing was sent: the strongest counts.
        let mut reasons = vec![DropReason::RuleDrop];
        reasons.extend(end.err());
        reasons.extend(expired.then_some(DropReason::TtlExpired));
        reasons.extend(fragment.then_some(DropReason::Fragment));
        reasons.extend(suppressed.then_some(DropReason::NoOutput));
        reasons.extend(missed.then_some(DropReason::NoRule));
        for done in done {
            match done {
                Done::Output(port, bytes) => verdict.outputs.push((port, bytes)),
                Done::Controller(packet) => {
                    let PacketIn { reason, max_len, table, cookie, in_port, ref frame } = packet;
                    let offer = ControllerPacket { reason, max_len, table, cookie, in_port, frame };
                    if (around.takes)(&offer) {
                        verdict.controller.push(packet);
                    } else {
                        reasons.push(DropReason::ControllerQueueFull);
                    }
                }
                Done::Normal(packet, bytes) => {
                    let exists = |port| around.ports.iter().any(|p| p.number == port);
                    let to: Vec<u32> = match (around.normal)(&packet) {
                        Normal::Port(port) if exists(port) => vec![port],
                        Normal::Port(_) => vec![],
                        Normal::Flood => flooding(around.ports),
                        Normal::Drop => {
                            reasons.push(DropReason::NormalDrop);
                            continue;
                        }
                    };
                    reasons.push(DropReason::NoOutput);
                    let others = to.into_iter().filter(|&port| port != in_port);
                    verdict.outputs.extend(others.map(|port| (port, bytes.clone())));
                }
            }
        }
        if verdict.outputs.is_empty() && verdict.controller.is_empty() {
            verdict.drop = reasons.into_iter().min();
        }
        (verdict, found)
    }
}

fn flooding(ports: &[SwitchPort]) -> Vec<u32> {
    let mut numbers: Vec<u32> = ports.iter().filter(|p| p.flood).map(|p| p.number).collect();
    numbers.sort_unstable();
    numbers
}

fn is(rule: &Rule, table: u8, priority: u16, matching: &Match) -> bool {
    rule.table == table
        && rule.priority == priority
        && rule.matching.canonical() == matching.canonical()
}

enum Frame<'a> {
    Untouched(&'a [u8], Offsets),
    Edited(Box<FrameBuf>),
}

enum Done {
    Output(u32, Vec<u8>),
    Controller(PacketIn),
    Normal(NormalPacket, Vec<u8>),
}

struct Packet<'a> {
    rules: &'a Oracle,
    around: &'a Around<'a>,
    key: FlowKey,
    frame: Frame<'a>,
    done: Vec<Done>,
    /// Actions written, with table and cookie of their rules.
    set: Vec<(Action, u8, u64)>,
    found: Lookups,
    lookups: u32,
    steps: u32,
    suppressed: bool,
    missed: bool,
    expired: bool,
    fragment: bool,
}

/// Returns the position of an action's kind in the order in which an action set runs.
fn kind(action: &Action) -> u8 {
    match action {
        Action::PopVlan => 0,
        Action::PushVlan(_) => 1,
        Action::DecTtl => 2,
        Action::SetField { .. } | Action::SetVlan { .. } => 3,
        _ => 4,
    }
}

impl<'a> Packet<'a> {
    /// Runs table 0, all that follows, and the action set. An error ends all processing.
    fn pipeline(&mut self) -> Result<(), DropReason> {
        if self.table(0, None, 0)? == Some(true) {
            let mut set = std::mem::take(&mut self.set);
            set.sort_by_key(|(action, ..)| kind(action));
            for (action, table, cookie) in set {
                let rule = Rule { table, cookie, ..Rule::default() };
                if !self.action(&rule, &action, 0, PacketInReason::ActionSet)? {
                    break;
                }
            }
        } else {
            self.missed = true;
            self.set.clear();
        }
        Ok(())
    }

    /// Processes the packet in a table. Returns `None` on a miss, else as [`Packet::rule`].
    fn table(
        &mut self,
        table: u8,
        in_port: Option<u32>,
        depth: u32,
    ) -> Result<Option<bool>, DropReason> {
        let mut seen = FlowKey { in_port: in_port.unwrap_or(self.key.in_port), ..self.key };
        let found = match (self.rules.view.fragments, self.key.nw_frag & key::FRAG_ANY != 0) {
            (Fragments::Drop, true) => {
                self.fragment = true;
                None
            }
            (Fragments::Normal, true) => {
                (seen.tp_src, seen.tp_dst) = (0, 0);
                self.rules.find(table, &seen)
            }
            (Fragments::NxMatch, _) | (_, false) => self.rules.find(table, &seen),
        };
        self.found.push((table, found));
        let rules = self.rules;
        found.map(|at| self.rule(&rules.rules[at], depth, None)).transpose()
    }

    /// Runs a rule and those of the tables that it continues in. Returns false if one of these
    /// misses.
    fn rule(
        &mut self,
        rule: &Rule,
        depth: u32,
        reason: Option<PacketInReason>,
    ) -> Result<bool, DropReason> {
        let miss = rule.priority == 0 && rule.matching.mask == FlowKey::default();
        let of_rule = if miss { PacketInReason::NoMatch } else { PacketInReason::Action };
        for action in &rule.actions {
            if !self.action(rule, action, depth, reason.unwrap_or(of_rule))? {
                // The rest of the rule is skipped; a list that resubmitted to it continues.
                return Ok(true);
            }
        }
        if rule.clear_actions {
            self.set.clear();
        }
        for action in &rule.write_actions {
            self.count_steps(1)?;
            if kind(action) != 3 {
                self.set.retain(|(other, ..)| kind(other) != kind(action));
            }
            self.set.push((action.plain(), rule.table, rule.cookie));
        }
        let next = rule.actions.iter().rev().find_map(|action| match action {
            Action::GotoTable(next) => Some(*next),
            _ => None,
        });
        let Some(next) = next else { return Ok(true) };
        self.count_lookup(depth)?;
        let went = self.table(next, None, depth)?;
        self.missed |= went.is_none();
        Ok(went == Some(true))
    }

    /// Runs an action. Returns false if it ends its list.
    fn action(
        &mut self,
        rule: &Rule,
        action: &Action,
        depth: u32,
        reason: PacketInReason,
    ) -> Result<bool, DropReason> {
        self.count_steps(1)?;
        let in_port = self.key.in_port;
        match action.plain() {
            Action::Output(PORT_TABLE) if reason == PacketInReason::PacketOut => {
                self.count_lookup(depth)?;
                self.pipeline()?;
            }
            Action::Output(port) | Action::OutputAsked { port, .. } => self.output(port),
            Action::InPort => self.send(in_port),
            Action::Flood => self.outputs(flooding(self.around.ports))?,
            Action::All => {
                let all = self.around.ports.iter().map(|p| p.number.into());
                self.outputs(flooding(&all.collect::<Vec<SwitchPort>>()))?;
            }
            Action::Normal => {
                let bytes = self.bytes();
                let (mut src, mut dst) = ([0; 6], [0; 6]);
                dst.copy_from_slice(&bytes[..6]);
                src.copy_from_slice(&bytes[6..12]);
                let tagged = self.key.vlan_tci & key::VLAN_PRESENT != 0;
                let vlan = tagged.then_some(self.key.vlan_tci & 0x0fff);
                self.done.push(Done::Normal(NormalPacket { in_port, src, dst, vlan }, bytes));
            }
            Action::Controller { max_len } => {
                let (table, cookie, frame) = (rule.table, rule.cookie, self.bytes());
                let packet = PacketIn { reason, max_len, table, cookie, in_port, frame };
                self.done.push(Done::Controller(packet));
            }
            Action::SetField { field: Field::VlanTci, value, mask } => {
                let present = u128::from(key::VLAN_PRESENT);
                let tagged = self.key.vlan_tci & key::VLAN_PRESENT != 0;
                match (mask & present != 0, value & present != 0) {
                    (true, true) if !tagged => self.push_vlan(DEFAULT_TPID)?,
                    (true, false) => {
                        self.pop_vlan()?;
                        return Ok(true);
                    }
                    (true, true) | (false, _) => {}
                }
                self.set_field(Field::VlanTci, value, mask)?;
            }
            Action::SetField { field, value, mask } => self.set_field(field, value, mask)?,
            Action::SetVlan { field, value } => {
                if self.key.vlan_tci & key::VLAN_PRESENT == 0 {
                    self.push_vlan(DEFAULT_TPID)?;
                }
                self.set_field(field, value.into(), u128::MAX)?;
            }
            Action::PushVlan(tpid) => self.push_vlan(tpid)?,
            Action::PopVlan => self.pop_vlan()?,
            Action::DecTtl => {
                if edit_key::has(Field::NwTtl, &self.key) {
                    if edit_key::dec_ttl(&mut self.key).is_err() {
                        self.expired = true;
                        return Ok(false);
                    }
                    // A broken header has no TTL to write: the key alone decides.
                    let _ = self.edit()?.dec_ttl();
                }
            }
            Action::GotoTable(_) => {}
            Action::Resubmit { in_port, table } => {
                self.count_lookup(depth)?;
                let table = table.unwrap_or(rule.table);
                let deeper = if table > rule.table { 0 } else { 1 };
                self.table(table, in_port, depth + deeper)?;
            }
        }
        Ok(true)
    }

    fn count_lookup(&mut self, depth: u32) -> Result<(), DropReason> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX || depth == DEPTH_MAX {
            return Err(DropReason::TooManyResubmits);
        }
        Ok(())
    }

    fn count_steps(&mut self, steps: usize) -> Result<(), DropReason> {
        // Beyond 32 bits it exceeds the limit as well.
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

    fn outputs(&mut self, ports: Vec<u32>) -> Result<(), DropReason> {
        self.count_steps(ports.len())?;
        ports.into_iter().for_each(|port| self.output(port));
        self.suppressed = true;
        Ok(())
    }

    fn send(&mut self, port: u32) {
        if !self.around.ports.iter().any(|p| p.number == port) {
            self.suppressed = true;
            return;
        }
        let bytes = self.bytes();
        self.done.push(Done::Output(port, bytes));
    }

    fn bytes(&self) -> Vec<u8> {
        match &self.frame {
            Frame::Untouched(bytes, _) => bytes.to_vec(),
            Frame::Edited(buffer) => buffer.as_slice().to_vec(),
        }
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128) -> Result<(), DropReason> {
        if mask & edit_key::write_mask(field) != 0
            && edit_key::set_field(&mut self.key, field, value, mask)
        {
            self.edit()?.set_field(field, value, mask);
        }
        Ok(())
    }

    fn push_vlan(&mut self, tpid: u16) -> Result<(), DropReason> {
        if edit_key::push_vlan(&mut self.key, tpid) {
            self.edit()?.push_vlan(tpid);
        }
        Ok(())
    }

    fn pop_vlan(&mut self) -> Result<(), DropReason> {
        if edit_key::pop_vlan(&mut self.key) {
            self.edit()?.pop_vlan();
        }
        Ok(())
    }

    /// Returns the frame for editing.
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
