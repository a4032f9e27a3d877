//! Tier 3: turns the rules for a packet into a flat program, and collects every bit that it depends
//! on.
//!
//! ```text
//!   key ──► table 0 ──► rule ──► actions ──► outputs, edits of frame and key ──► program
//!              ▲                   │
//!              └── goto, resubmit ─┘        every bit looked at on the way ──► mask
//! ```
//!
//! **Guarantee:** for any frame whose key agrees with `key` on `mask`, running the program
//! ([`crate::exec`]) does exactly what the rules say ([`crate::oracle`]), byte for byte.
//!
//! # What the rules mean
//! - A packet starts in table 0. An output to the ingress port or to an unknown port sends nothing.
//!   `flood` sends to the ports that flood, `all` to all, neither to the ingress port. `normal`
//!   sends where the sink says ([`crate::sink`]), `controller` to the controllers; the reason is
//!   "no match" if a table-miss rule sends. `goto_table` continues after the rest of its list, in
//!   the other table, with the packet as it is then. `resubmit` looks up at once, in the table it
//!   names or that of its rule; its `in_port` applies to that lookup only. A resubmit without a
//!   match does nothing.
//! - A rule carries out its actions, then `clear_actions`, then `write_actions`, then `goto_table`.
//!   The packet has one action set, shared with resubmits, as in Open vSwitch. It runs last, in
//!   Open vSwitch's order: `pop_vlan`, `push_vlan`, `dec_ttl`, field writes in the order in which
//!   they were written, then the output. The last action written of each kind counts; of the field
//!   writes, all do. `output`, `in_port`, `flood`, `all`, `normal` and `controller` are one kind. A
//!   packet that misses in table 0 or after a `goto_table` outside resubmits is dropped there, as
//!   OpenFlow says, and the set does not run.
//! - An action on a field that the packet does not have does nothing.
//! - `dec_ttl` at a TTL of 1 or 0 ends its list of actions, and the rest of its rule
//!   (`clear_actions`, `write_actions`, `goto_table`). A list that resubmitted to it continues, and
//!   the action set runs. In the action set it ends the action set. Controllers are not notified.
//! - `set_field` of `vlan_tci` with the present bit pushes a tag of TPID 0x8100 where there is
//!   none; without the present bit it pops the outer tag.
//! - More than [`DEPTH_MAX`] resubmits to the same or an earlier table within each other, more than
//!   [`LOOKUPS_MAX`] resubmits and gotos, or more than [`STEPS_MAX`] steps (an action is one, in
//!   the action set one more; a flood one more for each port): the packet is dropped whole, outputs
//!   included.
//! - What rules see of fragments is a setting ([`crate::view`]): `normal` hides the ports of all of
//!   them, and `drop` lets no rule see them.
//! - A controller's own list runs like a rule's. An output to [`PORT_TABLE`] sends the packet as it
//!   is then through the tables, action set included; then the list continues.
//! - A rule counts a packet once for each lookup that finds it. For a packet beyond a limit, the
//!   lookups up to there count.
//!
//! # Which bits count
//! Bits of the packet that an action wrote are *settled*: a later look at them says nothing about
//! the original. A push or pop of a tag adds all original tag bits to the mask and settles them.
//! `dec_ttl` depends on the TTL: of an original of at least 32, the upper three bits show that it
//! does not expire (`TTL_FAR`). This keeps the megaflows of most traffic few. Otherwise, and when a
//! rule looks at a decremented TTL, the whole TTL is in the mask.
//!
//! Steps after the last output are dropped: they have no visible effect.
//!
//! Cost: a classifier lookup for table 0 and one for each goto and resubmit. Nested lists use a
//! separate stack, bounded by [`LOOKUPS_MAX`]. Panics: none.
//! Source: Fast Software Cache Design for Network Appliances, section 2; Open vSwitch's
//! ofproto-dpif-xlate.

mod action_set;

use std::mem;
use std::sync::Arc;

use overbank_wire::{Field, FlowKey, edit_key, key};

use self::action_set::ActionSet;
use crate::classifier::RuleEntry;
use crate::drop::DropReason;
use crate::ports::{PORT_TABLE, Ports};
pub use crate::program::{Lookup, Op, Translation};
use crate::rule::Action;
use crate::sink::PacketInReason;
use crate::stats::RuleStats;
pub use crate::tables::{RuleError, Tables};
use crate::view::Fragments;

/// Most resubmits to the same or an earlier table within each other.
pub const DEPTH_MAX: u32 = 64;
/// Most resubmits and gotos of one packet.
pub const LOOKUPS_MAX: u32 = 4096;
/// Most steps of one packet.
pub const STEPS_MAX: u32 = 65_536;

/// Bits of a TTL of which at least one is set from 32 on.
const TTL_FAR: u8 = 0xe0;
/// Decrements that a TTL of at least 32 survives.
const TTL_FAR_DECREMENTS: u8 = 31;

/// TPID of the tag that `mod_vlan_vid`, `mod_vlan_pcp` and a write of `vlan_tci` push.
pub const DEFAULT_TPID: u16 = 0x8100;

/// Translates what `tables` do to a packet with this key.
pub fn translate(tables: &Tables, key: &FlowKey, ports: &Ports) -> Translation {
    let mut translator = Translator::new(tables, key, ports);
    let end = match translator.first_table() {
        Some(list) => translator.run(list, Origin::Pipeline),
        None => Ok(()),
    };
    translator.finish(end)
}

/// Translates a controller's list of actions for a packet with this key. An output to
/// [`PORT_TABLE`] sends it through the tables.
pub fn translate_list(
    tables: &Tables,
    key: &FlowKey,
    ports: &Ports,
    actions: &[Action],
) -> Translation {
    let list = List {
        table: 0,
        cookie: u64::MAX,
        reason: PacketInReason::PacketOut,
        actions,
        clear_actions: false,
        write_actions: &[],
    };
    let mut translator = Translator::new(tables, key, ports);
    let end = translator.run(list, Origin::Other);
    translator.finish(end)
}

/// A packet exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMuch;

/// The actions of a rule or of a controller.
#[derive(Clone, Copy)]
struct List<'a> {
    table: u8,
    cookie: u64,
    /// Reason that controllers see if they get the packet from here.
    reason: PacketInReason,
    actions: &'a [Action],
    clear_actions: bool,
    write_actions: &'a [Action],
}

impl<'a> List<'a> {
    fn of(entry: &'a RuleEntry) -> List<'a> {
        let rule = &entry.rule;
        let miss = rule.is_table_miss();
        List {
            table: rule.table,
            cookie: rule.cookie,
            reason: if miss { PacketInReason::NoMatch } else { PacketInReason::Action },
            actions: &rule.actions,
            clear_actions: rule.clear_actions,
            write_actions: &rule.write_actions,
        }
    }
}

/// Where a list of actions comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The first table: the action set runs at its end.
    Pipeline,
    /// A resubmit, or a controller.
    Other,
}

/// A list in progress.
struct Level<'a> {
    list: List<'a>,
    /// Index of its next action.
    at: usize,
    goto: Option<u8>,
    /// Number of enclosing resubmits to the same or an earlier table.
    depth: u32,
    origin: Origin,
}

impl<'a> Level<'a> {
    fn new(list: List<'a>, depth: u32, origin: Origin) -> Level<'a> {
        Level { list, at: 0, goto: None, depth, origin }
    }
}

struct Translator<'a> {
    tables: &'a Tables,
    ports: &'a Ports,
    in_port: u32,
    ttl: u8,
    /// The key after the actions so far.
    now: FlowKey,
    /// Bits of the original that were looked at.
    mask: FlowKey,
    /// Bits of `now` that follow from the actions and from bits of the original in `mask`.
    settled: FlowKey,
    /// Decrements of an original TTL of which only [`TTL_FAR`] is in the mask.
    far_decrements: u8,
    program: Vec<Op>,
    /// Table and rule of each lookup.
    found: Vec<(u8, Option<&'a Arc<RuleStats>>)>,
    set: ActionSet,
    lookups: u32,
    steps: u32,
    /// An output was suppressed.
    suppressed: bool,
    /// No rule matched in table 0 or after a goto.
    missed: bool,
    /// A TTL expired.
    expired: bool,
    /// A lookup met a fragment, and the view drops fragments.
    fragment: bool,
}

impl<'a> Translator<'a> {
    fn new(tables: &'a Tables, key: &FlowKey, ports: &'a Ports) -> Translator<'a> {
        let mut mask = FlowKey { in_port: u32::MAX, dl_type: u16::MAX, ..FlowKey::default() };
        if edit_key::has(Field::NwFrag, key) {
            mask.nw_frag = u8::MAX;
        }
        Translator {
            tables,
            ports,
            in_port: key.in_port,
            ttl: key.nw_ttl,
            now: *key,
            mask,
            settled: FlowKey::default(),
            far_decrements: 0,
            program: Vec::new(),
            // Most packets take one lookup, and the list becomes a box of its length.
            found: Vec::with_capacity(1),
            set: ActionSet::default(),
            lookups: 0,
            steps: 0,
            suppressed: false,
            missed: false,
            expired: false,
            fragment: false,
        }
    }

    /// Looks up in table 0.
    fn first_table(&mut self) -> Option<List<'a>> {
        let found = self.lookup(0, None).map(List::of);
        if found.is_none() {
            self.missed = true;
            self.set.clear();
        }
        found
    }

    fn finish(mut self, end: Result<(), TooMuch>) -> Translation {
        let too_much = end.is_err();
        let sends = self.program.iter().rposition(Op::sends);
        let sure = self.program.iter().any(|op| matches!(op, Op::Output(_)));
        let drop = match () {
            () if too_much => DropReason::TooManyResubmits,
            () if self.expired => DropReason::TtlExpired,
            () if self.fragment => DropReason::Fragment,
            () if self.suppressed => DropReason::NoOutput,
            () if self.missed => DropReason::NoRule,
            () => DropReason::RuleDrop,
        };
        self.program.truncate(sends.filter(|_| !too_much).map_or(0, |at| at + 1));
        let lookup =
            |(table, rule): (u8, Option<&'a Arc<RuleStats>>)| Lookup { table, rule: rule.cloned() };
        Translation {
            mask: self.mask,
            program: self.program.into(),
            drop: (too_much || !sure).then_some(drop),
            lookups: self.found.into_iter().map(lookup).collect(),
        }
    }

    /// Runs a list and all that it leads to.
    fn run(&mut self, first: List<'a>, origin: Origin) -> Result<(), TooMuch> {
        let mut level = Level::new(first, 0, origin);
        let mut enclosing = Vec::new();
        loop {
            let (list, depth) = (level.list, level.depth);
            let Some(action) = list.actions.get(level.at) else {
                if let Some(complete) = self.end_of_list(&mut level)? {
                    self.end_of(level.origin, complete)?;
                    let Some(outer) = enclosing.pop() else { return Ok(()) };
                    level = outer;
                }
                continue;
            };
            level.at += 1;
            self.step(1)?;
            match *action {
                Action::GotoTable(next) => level.goto = Some(next),
                Action::Output(PORT_TABLE) if list.reason == PacketInReason::PacketOut => {
                    self.count_lookup(depth)?;
                    if let Some(found) = self.first_table() {
                        let inner = Level::new(found, depth, Origin::Pipeline);
                        enclosing.push(mem::replace(&mut level, inner));
                    }
                }
                Action::Resubmit { in_port, table } => {
                    self.count_lookup(depth)?;
                    let table = table.unwrap_or(list.table);
                    if let Some(found) = self.lookup(table, in_port) {
                        let depth = depth + u32::from(table <= list.table);
                        let inner = Level::new(List::of(found), depth, Origin::Other);
                        enclosing.push(mem::replace(&mut level, inner));
                    }
                }
                _ => {
                    if !self.action(action, &list)? {
                        self.end_of(level.origin, true)?;
                        let Some(outer) = enclosing.pop() else { return Ok(()) };
                        level = outer;
                    }
                }
            }
        }
    }

    /// Runs what a rule does after its actions. Returns `None` if another table takes over; else
    /// whether that table had a rule.
    fn end_of_list(&mut self, level: &mut Level<'a>) -> Result<Option<bool>, TooMuch> {
        let list = level.list;
        if list.clear_actions {
            self.set.clear();
        }
        for &action in list.write_actions {
            self.step(1)?;
            self.set.write(action.plain(), list.table, list.cookie);
        }
        let Some(next) = level.goto else { return Ok(Some(true)) };
        self.count_lookup(level.depth)?;
        let Some(found) = self.lookup(next, None) else {
            self.missed = true;
            return Ok(Some(false));
        };
        *level = Level::new(List::of(found), level.depth, level.origin);
        Ok(None)
    }

    /// Finishes the first table and those that it went on to.
    fn end_of(&mut self, origin: Origin, complete: bool) -> Result<(), TooMuch> {
        match origin {
            Origin::Other => Ok(()),
            Origin::Pipeline if complete => self.run_action_set(),
            Origin::Pipeline => {
                self.set.clear();
                Ok(())
            }
        }
    }

    /// Runs an action that needs no lookup. Returns false if it ends its list.
    fn action(&mut self, action: &Action, list: &List<'_>) -> Result<bool, TooMuch> {
        match action.plain() {
            Action::Output(port) | Action::OutputAsked { port, .. } => self.output(port),
            Action::InPort => self.send(self.in_port),
            Action::Flood => self.outputs(self.ports.flood())?,
            Action::All => self.outputs(self.ports.all())?,
            Action::Normal => self.program.push(Op::Normal),
            Action::Controller { max_len } => self.program.push(Op::Controller {
                max_len,
                reason: list.reason,
                table: list.table,
                cookie: list.cookie,
            }),
            Action::SetField { field: Field::VlanTci, value, mask } => self.set_tci(value, mask),
            Action::SetField { field, value, mask } => self.set_field(field, value, mask),
            Action::SetVlan { field, value } => {
                if !self.is_tagged() {
                    self.push_vlan(DEFAULT_TPID);
                }
                self.set_field(field, value.into(), field.all_ones());
            }
            Action::PushVlan(tpid) => self.push_vlan(tpid),
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl => return Ok(self.dec_ttl()),
            // `run` handles both, and an action set has neither.
            Action::GotoTable(_) | Action::Resubmit { .. } => {}
        }
        Ok(true)
    }

    /// Runs the action set.
    fn run_action_set(&mut self) -> Result<(), TooMuch> {
        let set = mem::take(&mut self.set);
        for written in set.in_order() {
            self.step(1)?;
            let list = List {
                table: written.table,
                cookie: written.cookie,
                reason: PacketInReason::ActionSet,
                actions: &[],
                clear_actions: false,
                write_actions: &[],
            };
            if !self.action(&written.action, &list)? {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, steps: u32) -> Result<(), TooMuch> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX { Err(TooMuch) } else { Ok(()) }
    }

    fn count_lookup(&mut self, depth: u32) -> Result<(), TooMuch> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX || depth >= DEPTH_MAX { Err(TooMuch) } else { Ok(()) }
    }

    /// Returns the best rule in `table` for the packet as it is now.
    fn lookup(&mut self, table: u8, in_port: Option<u32>) -> Option<&'a RuleEntry> {
        let mut key = FlowKey { in_port: in_port.unwrap_or(self.in_port), ..self.now };
        // Of IP packets all of `nw_frag` is in the mask from the start.
        let fragment = key.nw_frag & key::FRAG_ANY != 0 && edit_key::has(Field::NwFrag, &key);
        let fragments = self.tables.view().fragments;
        if fragment && fragments == Fragments::Drop {
            self.fragment = true;
            self.found.push((table, None));
            return None;
        }
        let hides_ports = fragment && fragments == Fragments::Normal;
        if hides_ports {
            (key.tp_src, key.tp_dst) = (0, 0);
        }
        let mut looked = FlowKey::default();
        let found = self.tables.table(table).and_then(|table| table.lookup(&key, &mut looked));
        self.found.push((table, found.map(|entry| &entry.stats)));
        if hides_ports {
            (looked.tp_src, looked.tp_dst) = (0, 0);
        }
        // The original in_port is in the mask from the start, so a replaced one does no harm.
        self.look(&looked);
        found.map(|entry| &**entry)
    }

    /// Notes that the result depends on these bits of the packet as it is now.
    fn look(&mut self, bits: &FlowKey) {
        let mut fresh = bits.and_not(&self.settled);
        if self.far_decrements > 0 && fresh.nw_ttl != 0 {
            fresh.nw_ttl = u8::MAX;
        }
        self.mask = self.mask.or(&fresh);
    }

    /// Returns whether the packet has `field`, and notes the bits that this depends on.
    fn has(&mut self, field: Field) -> bool {
        let mut bits = edit_key::has_mask(field);
        // The earlier prerequisite decides alone if it fails.
        if !edit_key::has(Field::NwProto, &self.now) {
            (bits.nw_proto, bits.nw_frag) = (0, 0);
        }
        if !edit_key::has(Field::Icmp6Type, &self.now) {
            (bits.tp_src, bits.tp_dst) = (0, 0);
        }
        self.look(&bits);
        edit_key::has(field, &self.now)
    }

    fn output(&mut self, port: u32) {
        if port == self.in_port {
            self.suppressed = true;
        } else {
            self.send(port);
        }
    }

    fn outputs(&mut self, ports: &'a [u32]) -> Result<(), TooMuch> {
        // Steps run out long before 2^32 ports.
        self.step(u32::try_from(ports.len()).unwrap_or(u32::MAX))?;
        ports.iter().for_each(|&port| self.output(port));
        // There may be no port to flood to.
        self.suppressed = true;
        Ok(())
    }

    fn send(&mut self, port: u32) {
        if self.ports.contains(port) {
            self.program.push(Op::Output(port));
        } else {
            self.suppressed = true;
        }
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & edit_key::write_mask(field);
        if mask != 0 && self.has(field) && edit_key::set_field(&mut self.now, field, value, mask) {
            self.program.push(Op::Set { field, value: value & mask, mask });
            let mut written = FlowKey::default();
            field.set(&mut written, mask);
            self.settled = self.settled.or(&written);
        }
    }

    /// Pushes or pops a tag: the present bit is not written as a bit.
    fn set_tci(&mut self, value: u128, mask: u128) {
        let present = u128::from(key::VLAN_PRESENT);
        if mask & present != 0 {
            if value & present == 0 {
                return self.pop_vlan();
            }
            if !self.is_tagged() {
                self.push_vlan(DEFAULT_TPID);
            }
        }
        self.set_field(Field::VlanTci, value, mask);
    }

    fn push_vlan(&mut self, tpid: u16) {
        self.settle_vlan();
        if edit_key::push_vlan(&mut self.now, tpid) {
            self.program.push(Op::PushVlan(tpid));
        }
    }

    fn pop_vlan(&mut self) {
        if self.is_tagged() {
            self.settle_vlan();
            self.program.push(Op::PopVlan);
            edit_key::pop_vlan(&mut self.now);
        }
    }

    fn is_tagged(&mut self) -> bool {
        self.look(&FlowKey { vlan_tci: key::VLAN_PRESENT, ..FlowKey::default() });
        self.now.vlan_tci & key::VLAN_PRESENT != 0
    }

    /// Notes a look at every tag bit of the key.
    fn settle_vlan(&mut self) {
        let all = FlowKey {
            vlan_tci: u16::MAX,
            inner_tci: u16::MAX,
            vlan_tpid: u16::MAX,
            inner_tpid: u16::MAX,
            ..FlowKey::default()
        };
        self.look(&all);
        self.settled = self.settled.or(&all);
    }

    /// Decrements the TTL; returns false if it expires.
    fn dec_ttl(&mut self) -> bool {
        if !self.has(Field::NwTtl) {
            return true;
        }
        if self.settled.nw_ttl != u8::MAX {
            let untouched = self.settled.nw_ttl == 0 && self.far_decrements < TTL_FAR_DECREMENTS;
            if untouched && self.ttl & TTL_FAR != 0 {
                self.mask.nw_ttl |= TTL_FAR;
                self.far_decrements += 1;
            } else {
                (self.mask.nw_ttl, self.settled.nw_ttl) = (u8::MAX, u8::MAX);
            }
        }
        if self.now.nw_ttl <= 1 {
            self.expired = true;
            return false;
        }
        self.now.nw_ttl -= 1;
        self.program.push(Op::DecTtl);
        true
    }
}
