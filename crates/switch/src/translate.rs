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
//!   sends nothing. `goto_table` continues, after the rest of its list, in the other table with the
//!   packet as it is then. `resubmit` looks up at once, in the table it names or that of its rule;
//!   its `in_port` counts for that one lookup only. If nothing matches, it does nothing.
//! - An action on a field that the packet does not have does nothing.
//! - `dec_ttl` at a TTL of 1 or 0 ends the processing of the packet for good, also that of the
//!   lists that resubmitted to it; what was output before stands.
//! - More than [`DEPTH_MAX`] resubmits in each other, more than [`LOOKUPS_MAX`] resubmits and
//!   gotos, or more than [`STEPS_MAX`] steps (an action is one; a flood one more for each port):
//!   the packet is dropped whole, outputs included.
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
//! without outputs keeps what leads up to its last `dec_ttl`, because that decides the reason.
//!
//! Cost: a classifier lookup for table 0 and one for each goto and resubmit. Panics: none.
//! Source: Fast Software Cache Design for Network Appliances, section 2; Open vSwitch's
//! ofproto-dpif-xlate.

use overbank_wire::{Field, FlowKey, evolve, key};

use crate::drop::DropReason;
use crate::rule::Action;
pub use crate::tables::{RuleError, Tables};

/// Most resubmits within each other.
pub const DEPTH_MAX: u32 = 64;
/// Most resubmits and gotos of one packet.
pub const LOOKUPS_MAX: u32 = 4096;
/// Most steps of one packet.
pub const STEPS_MAX: u32 = 65_536;

/// TPID of the tag that `mod_vlan_vid` and `mod_vlan_pcp` push.
pub const DEFAULT_TPID: u16 = 0x8100;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Send the frame as it is now.
    Output(u32),
    /// Write the bits `mask` of a field.
    Set {
        /// Which field.
        field: Field,
        /// The bits to write.
        value: u128,
        /// The bits that are written.
        mask: u128,
    },
    /// Push a tag with this TPID.
    PushVlan(u16),
    /// Remove the outer tag.
    PopVlan,
    /// Decrement TTL or hop limit, or stop here if it is 1 or 0.
    DecTtl,
}

/// What the rules do to a packet and to all that look like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Every bit of the key that the rest depends on.
    pub mask: FlowKey,
    /// The steps.
    pub program: Box<[Op]>,
    /// Why nothing is output, if the program contains no output.
    pub drop: Option<DropReason>,
}

/// Translates what `tables` do to a packet with this key. `ports` are the ports that exist,
/// ascending.
pub fn translate(tables: &Tables, key: &FlowKey, ports: &[u32]) -> Translation {
    let mut translator = Translator::new(tables, key, ports);
    let mut end = translator.start();
    if end == Err(Stop::TooMuch) && translator.open_end > 0 {
        // Only a packet that survives does too much. So the TTL counts.
        translator = Translator::new(tables, key, ports);
        translator.mask.nw_ttl = u8::MAX;
        translator.settled.nw_ttl = u8::MAX;
        end = translator.start();
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

struct Translator<'a> {
    tables: &'a Tables,
    ports: &'a [u32],
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
    lookups: u32,
    steps: u32,
    /// An output was suppressed.
    suppressed: bool,
    /// No rule matched in table 0 or after a goto.
    missed: bool,
}

impl<'a> Translator<'a> {
    fn new(tables: &'a Tables, key: &FlowKey, ports: &'a [u32]) -> Translator<'a> {
        let mut mask = FlowKey { in_port: u32::MAX, dl_type: u16::MAX, ..FlowKey::default() };
        if evolve::has(Field::NwFrag, key) {
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
            lookups: 0,
            steps: 0,
            suppressed: false,
            missed: false,
        }
    }

    fn start(&mut self) -> Result<(), Stop> {
        match self.lookup(0, None) {
            Some(actions) => self.list(0, actions, 0),
            None => {
                self.missed = true;
                Ok(())
            }
        }
    }

    fn finish(mut self, end: Result<(), Stop>) -> Translation {
        let last_output = self.program.iter().rposition(|op| matches!(op, Op::Output(_)));
        let (len, drop) = match (end, last_output) {
            (Err(Stop::TooMuch), _) => (0, Some(DropReason::TooManyResubmits)),
            (_, Some(at)) => (at + 1, None),
            (Err(Stop::Expired), None) => (0, Some(DropReason::TtlExpired)),
            (Ok(()), None) if self.suppressed => (self.open_end, Some(DropReason::NoOutput)),
            (Ok(()), None) if self.missed => (self.open_end, Some(DropReason::NoRule)),
            (Ok(()), None) => (self.open_end, Some(DropReason::RuleDrop)),
        };
        self.program.truncate(len);
        Translation { mask: self.mask, program: self.program.into(), drop }
    }

    /// Runs a list of actions of `table`, then those of the tables that it goes on to.
    fn list(&mut self, mut table: u8, mut actions: &'a [Action], depth: u32) -> Result<(), Stop> {
        loop {
            let mut goto = None;
            for action in actions {
                self.step(1)?;
                match *action {
                    Action::Output(port) => self.output(port),
                    Action::InPort => self.send(self.in_port),
                    Action::Flood => {
                        // As many as fit in 32 bits: the steps run out long before.
                        self.step(u32::try_from(self.ports.len()).unwrap_or(u32::MAX))?;
                        self.ports.iter().for_each(|&port| self.output(port));
                    }
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
                    Action::GotoTable(next) => goto = Some(next),
                    Action::Resubmit { in_port, table: to } => {
                        if depth >= DEPTH_MAX {
                            return Err(Stop::TooMuch);
                        }
                        self.count_lookup()?;
                        let to = to.unwrap_or(table);
                        if let Some(found) = self.lookup(to, in_port) {
                            self.list(to, found, depth + 1)?;
                        }
                    }
                }
            }
            let Some(next) = goto else { return Ok(()) };
            self.count_lookup()?;
            let Some(found) = self.lookup(next, None) else {
                self.missed = true;
                return Ok(());
            };
            (table, actions) = (next, found);
        }
    }

    fn step(&mut self, steps: u32) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX { Err(Stop::TooMuch) } else { Ok(()) }
    }

    fn count_lookup(&mut self) -> Result<(), Stop> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(Stop::TooMuch) } else { Ok(()) }
    }

    /// The actions of the best rule in `table` for the packet as it is now.
    fn lookup(&mut self, table: u8, in_port: Option<u32>) -> Option<&'a [Action]> {
        let key = FlowKey { in_port: in_port.unwrap_or(self.in_port), ..self.now };
        let mut looked = FlowKey::default();
        let found = self.tables.table(table)?.lookup(&key, &mut looked);
        // The original in_port is in the mask from the start, so a replaced one does no harm.
        self.look(&looked);
        found.map(|entry| entry.rule.actions.as_slice())
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
        let mut bits = evolve::has_mask(field);
        // What comes first decides alone, if it says no.
        if !evolve::has(Field::NwProto, &self.now) {
            (bits.nw_proto, bits.nw_frag) = (0, 0);
        }
        if !evolve::has(Field::Icmp6Type, &self.now) {
            (bits.tp_src, bits.tp_dst) = (0, 0);
        }
        self.look(&bits);
        evolve::has(field, &self.now)
    }

    fn output(&mut self, port: u32) {
        if port == self.in_port {
            self.suppressed = true;
        } else {
            self.send(port);
        }
    }

    fn send(&mut self, port: u32) {
        if self.ports.binary_search(&port).is_ok() {
            self.program.push(Op::Output(port));
        } else {
            self.suppressed = true;
        }
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & evolve::write_mask(field);
        if mask != 0 && self.has(field) && evolve::set_field(&mut self.now, field, value, mask) {
            self.program.push(Op::Set { field, value: value & mask, mask });
            let mut written = FlowKey::default();
            field.set(&mut written, mask);
            self.settled = self.settled.or(&written);
        }
    }

    fn push_vlan(&mut self, tpid: u16) {
        self.settle_vlan();
        if evolve::push_vlan(&mut self.now, tpid) {
            self.program.push(Op::PushVlan(tpid));
        }
    }

    fn pop_vlan(&mut self) {
        if self.is_tagged() {
            self.settle_vlan();
            self.program.push(Op::PopVlan);
            evolve::pop_vlan(&mut self.now);
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
