//! Tier 3: what the rules do to a packet, as a flat program, and every bit that this depends on.
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
//! - A packet starts in table 0. An output to the ingress port or to a port that does not exist
//!   sends nothing. `flood` sends to the ports that flood, `all` to all, neither to the ingress
//!   port. `normal` sends where the sink says ([`crate::sink`]), `controller` to the controllers;
//!   the reason is "no match" if a table-miss rule asks for it. `goto_table` continues, after the rest of its list, in the other table with the
//!   packet as it is then. `resubmit` looks up at once, in the table it names or that of its rule;
//!   its `in_port` counts for that one lookup only. If nothing matches, it does nothing.
//! - A rule carries out its actions, then `clear_actions`, then `write_actions`, then `goto_table`.
//!   The packet has one action set, also within resubmits, as in Open vSwitch. It runs when all
//!   else is done, in Open vSwitch's order: `pop_vlan`, `push_vlan`, `dec_ttl`, the writes of fields
//!   in the order in which they were written, then the output. Of each kind the last one written
//!   counts, but all of the writes; `output`, `in_port`, `flood`, `all`, `normal` and `controller`
//!   are one kind. If the packet missed in table 0 or after a `goto_table` outside of resubmits,
//!   it is dropped there as OpenFlow has it, and the set does not run.
//! - An action on a field that the packet does not have does nothing.
//! - `dec_ttl` at a TTL of 1 or 0 ends the processing of the packet for good, also that of the
//!   lists that resubmitted to it and of the action set; what was output before stands. No
//!   controller hears of it.
//! - More than [`DEPTH_MAX`] resubmits in each other, more than [`LOOKUPS_MAX`] resubmits and
//!   gotos, or more than [`STEPS_MAX`] steps (an action is one, in the action set one more; a flood
//!   one more for each port): the packet is dropped whole, outputs included.
//! - A controller's own list is carried out like a rule's; an output to [`PORT_TABLE`] sends the
//!   packet as it is then through the tables, action set included, and then the list goes on.
//! - A rule counts a packet as often as a lookup finds it. Of a packet whose TTL expires, and of one
//!   that does too much, the lookups up to there count.
//!
//! # Which bits count
//! Bits of the packet that an action wrote are *settled*: a later look at them says nothing of the
//! original. A push or pop of a tag puts the original tags into the mask as a whole and settles
//! them. The TTL is not looked at by `dec_ttl`: one program serves all TTLs, and `exec` stops where
//! it expires; translation goes on as for a packet that survives. Two cases need more. A look at a
//! TTL that was decremented puts the whole original TTL into the mask. And a packet that would be
//! dropped whole for doing too much, but only if it survived a `dec_ttl`, is translated again with
//! its TTL in the mask and settled.
//!
//! Steps after the last output are left out: they change nothing that anybody sees. A program
//! that may send nothing keeps what leads up to its last `dec_ttl`, because that decides the
//! reason, and so does one that looks up rules after it, because that decides which rules count.
//!
//! Cost: a classifier lookup for table 0 and one for each goto and resubmit. Panics: none.
//! Source: Fast Software Cache Design for Network Appliances, section 2; Open vSwitch's
//! ofproto-dpif-xlate.

mod action_set;

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

/// Most resubmits within each other.
pub const DEPTH_MAX: u32 = 64;
/// Most resubmits and gotos of one packet.
pub const LOOKUPS_MAX: u32 = 4096;
/// Most steps of one packet.
pub const STEPS_MAX: u32 = 65_536;

/// TPID of the tag that `mod_vlan_vid` and `mod_vlan_pcp` push.
pub const DEFAULT_TPID: u16 = 0x8100;

/// Translates what `tables` do to a packet with this key.
pub fn translate(tables: &Tables, key: &FlowKey, ports: &Ports) -> Translation {
    run(tables, key, ports, |translator| translator.pipeline())
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
    run(tables, key, ports, |translator| translator.list(list, 0).map(|_| ()))
}

fn run<'a>(
    tables: &'a Tables,
    key: &FlowKey,
    ports: &'a Ports,
    start: impl Fn(&mut Translator<'a>) -> Result<(), Stop>,
) -> Translation {
    let mut translator = Translator::new(tables, key, ports);
    let mut end = start(&mut translator);
    if end == Err(Stop::TooMuch) && translator.open_end > 0 {
        // Only a packet that survives does too much. So the TTL counts.
        translator = Translator::new(tables, key, ports);
        translator.mask.nw_ttl = u8::MAX;
        translator.settled.nw_ttl = u8::MAX;
        end = start(&mut translator);
    }
    translator.finish(end)
}

/// Why translation ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The TTL is known and expires.
    Expired,
    /// Beyond the limits.
    TooMuch,
}

/// The actions of a rule, or a controller's.
#[derive(Clone, Copy)]
struct List<'a> {
    /// The rule's table.
    table: u8,
    cookie: u64,
    /// What a controller is told if it gets the packet from here.
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

struct Translator<'a> {
    tables: &'a Tables,
    ports: &'a Ports,
    in_port: u32,
    /// The key as the actions left it.
    now: FlowKey,
    /// Bits of the original that were looked at.
    mask: FlowKey,
    /// Bits of `now` that follow from the actions and from bits of the original in `mask`.
    settled: FlowKey,
    /// The bits of `now.nw_ttl` that are not settled come from a decrement.
    ttl_moved: bool,
    program: Vec<Op>,
    /// The program's length after the last `DecTtl` that is decided at run time; 0 = none.
    open_end: usize,
    /// `open_end` at the last lookup.
    counted_end: usize,
    /// Table, rule and `open_end` of each lookup.
    found: Vec<(u8, Option<&'a Arc<RuleStats>>, usize)>,
    set: ActionSet,
    lookups: u32,
    steps: u32,
    /// An output was suppressed.
    suppressed: bool,
    /// No rule matched in table 0 or after a goto.
    missed: bool,
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
            now: *key,
            mask,
            settled: FlowKey::default(),
            ttl_moved: false,
            program: Vec::new(),
            open_end: 0,
            counted_end: 0,
            found: Vec::new(),
            set: ActionSet::default(),
            lookups: 0,
            steps: 0,
            suppressed: false,
            missed: false,
        }
    }

    /// The tables from the first on, and the action set.
    fn pipeline(&mut self) -> Result<(), Stop> {
        let Some(found) = self.lookup(0, None) else {
            self.missed = true;
            return Ok(());
        };
        if self.list(List::of(found), 0)? {
            return self.run_action_set();
        }
        self.set.clear();
        Ok(())
    }

    fn finish(mut self, end: Result<(), Stop>) -> Translation {
        let sends = self.program.iter().rposition(Op::sends);
        let sure = self.program.iter().any(|op| matches!(op, Op::Output(_)));
        let drop = match end {
            Err(Stop::TooMuch) => DropReason::TooManyResubmits,
            Err(Stop::Expired) => DropReason::TtlExpired,
            Ok(()) if self.suppressed => DropReason::NoOutput,
            Ok(()) if self.missed => DropReason::NoRule,
            Ok(()) => DropReason::RuleDrop,
        };
        let too_much = end == Err(Stop::TooMuch);
        let len = match sends {
            _ if too_much => 0,
            Some(at) if sure => (at + 1).max(self.counted_end),
            // What comes after what may not send decides the reason.
            Some(at) => (at + 1).max(self.open_end),
            None if drop == DropReason::TtlExpired => self.counted_end,
            None => self.open_end,
        };
        self.program.truncate(len);
        let lookup = |(table, rule, after): (u8, Option<&'a Arc<RuleStats>>, usize)| Lookup {
            table,
            rule: rule.cloned(),
            // A program has no more steps than that.
            after: after as u32,
        };
        Translation {
            mask: self.mask,
            program: self.program.into(),
            drop: (too_much || !sure).then_some(drop),
            lookups: self.found.into_iter().map(lookup).collect(),
        }
    }

    /// Runs a list of actions, then those of the tables that it goes on to. False if one of these
    /// had no rule.
    fn list(&mut self, list: List<'_>, depth: u32) -> Result<bool, Stop> {
        let mut goto = self.actions(list, depth)?;
        while let Some(next) = goto {
            self.count_lookup()?;
            let Some(found) = self.lookup(next, None) else {
                self.missed = true;
                return Ok(false);
            };
            goto = self.actions(List::of(found), depth)?;
        }
        Ok(true)
    }

    /// One list; returns the table to go on in.
    fn actions(&mut self, list: List<'_>, depth: u32) -> Result<Option<u8>, Stop> {
        let mut goto = None;
        for action in list.actions {
            self.step(1)?;
            match *action {
                Action::GotoTable(next) => goto = Some(next),
                Action::Output(PORT_TABLE) if list.reason == PacketInReason::PacketOut => {
                    self.count_lookup()?;
                    self.pipeline()?;
                }
                Action::Resubmit { in_port, table } => {
                    if depth >= DEPTH_MAX {
                        return Err(Stop::TooMuch);
                    }
                    self.count_lookup()?;
                    if let Some(found) = self.lookup(table.unwrap_or(list.table), in_port) {
                        self.list(List::of(found), depth + 1)?;
                    }
                }
                _ => self.action(action, &list)?,
            }
        }
        if list.clear_actions {
            self.set.clear();
        }
        for &action in list.write_actions {
            self.step(1)?;
            self.set.write(action, list.table, list.cookie);
        }
        Ok(goto)
    }

    /// An action that looks nothing up.
    fn action(&mut self, action: &Action, list: &List<'_>) -> Result<(), Stop> {
        match *action {
            Action::Output(port) => self.output(port),
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
            Action::SetField { field, value, mask } => self.set_field(field, value, mask),
            Action::SetVlan { field, value } => {
                if !self.is_tagged() {
                    self.push_vlan(DEFAULT_TPID);
                }
                self.set_field(field, value.into(), field.all_ones());
            }
            Action::PushVlan(tpid) => self.push_vlan(tpid),
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl => self.dec_ttl()?,
            // `actions` sees to the one, and an action set has neither.
            Action::GotoTable(_) | Action::Resubmit { .. } => {}
        }
        Ok(())
    }

    /// What was written into the action set.
    fn run_action_set(&mut self) -> Result<(), Stop> {
        let set = std::mem::take(&mut self.set);
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
            self.action(&written.action, &list)?;
        }
        Ok(())
    }

    fn step(&mut self, steps: u32) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX { Err(Stop::TooMuch) } else { Ok(()) }
    }

    fn count_lookup(&mut self) -> Result<(), Stop> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(Stop::TooMuch) } else { Ok(()) }
    }

    /// The best rule in `table` for the packet as it is now.
    fn lookup(&mut self, table: u8, in_port: Option<u32>) -> Option<&'a RuleEntry> {
        let key = FlowKey { in_port: in_port.unwrap_or(self.in_port), ..self.now };
        let mut looked = FlowKey::default();
        let found = self.tables.table(table).and_then(|table| table.lookup(&key, &mut looked));
        self.found.push((table, found.map(|entry| &entry.stats), self.open_end));
        self.counted_end = self.open_end;
        // The original in_port is in the mask from the start, so a replaced one does no harm.
        self.look(&looked);
        found.map(|entry| &**entry)
    }

    /// Notes that the outcome depends on these bits of the packet as it is now.
    fn look(&mut self, bits: &FlowKey) {
        let mut fresh = bits.and_not(&self.settled);
        if self.ttl_moved && fresh.nw_ttl != 0 {
            fresh.nw_ttl = u8::MAX;
        }
        self.mask = self.mask.or(&fresh);
    }

    /// Whether the packet has `field`; notes what that depends on.
    fn has(&mut self, field: Field) -> bool {
        let mut bits = edit_key::has_mask(field);
        // What comes first decides alone, if it says no.
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

    fn outputs(&mut self, ports: &'a [u32]) -> Result<(), Stop> {
        // As many as fit in 32 bits: the steps run out long before.
        self.step(u32::try_from(ports.len()).unwrap_or(u32::MAX))?;
        ports.iter().for_each(|&port| self.output(port));
        // There may be nobody to flood to.
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

    /// Looks at all that the key says about tags.
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

    fn dec_ttl(&mut self) -> Result<(), Stop> {
        if !self.has(Field::NwTtl) {
            return Ok(());
        }
        self.program.push(Op::DecTtl);
        if self.settled.nw_ttl != u8::MAX {
            self.open_end = self.program.len();
            self.ttl_moved = true;
            self.settled.nw_ttl = 0;
        } else if self.now.nw_ttl <= 1 {
            return Err(Stop::Expired);
        }
        self.now.nw_ttl = self.now.nw_ttl.saturating_sub(1);
        Ok(())
    }
}
