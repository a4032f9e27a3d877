//! The actions of a rule, word by word.
//!
//! `set_field` must be valid for every packet that the rule matches: the match must contain the
//! field's prerequisite. For a VLAN tag, an earlier `push_vlan` or `mod_vlan_vid` will do. The
//! older `mod_…` actions have no such condition: a packet without the field passes unchanged, as in
//! OpenFlow 1.0.
//!
//! Action names are also read in capitals. A `set_field` under a mask of zeros writes nothing and
//! is left out of the rule. Reserved ports are read by name, by OpenFlow's number, and by the
//! number of OpenFlow 1.0 (`output:65534`).
//!
//! `set_field:…->vlan_tci` pushes a tag if the bit 0x1000 is set, else pops one.
//! `set_field:…->vlan_vid` takes a plain VID or the 13-bit value of OpenFlow 1.2 and later (0x1000
//! + VID); `->dl_vlan` takes the plain VID.

use overbank_wire::field::{Field, Prereq};
use overbank_wire::key::VLAN_PRESENT;

use super::error::{Fault, RuleErrorKind, nearest, quote};
use super::lex::{Join, Span, Word};
use super::matches::{Finished, established, has_tag, is_field_elsewhere, needs};
use super::{PORT_LOCAL, values};
use crate::ports::{PORT_CONTROLLER, PORT_NORMAL, PORT_TABLE};
use crate::rule::{Action, Match};

/// Every action, as an error message lists them.
const KNOWN: &str = "output, drop, in_port, flood, all, local, normal, controller, set_field, \
                     mod_dl_src, mod_dl_dst, mod_nw_src, mod_nw_dst, mod_nw_tos, mod_nw_ecn, \
                     mod_nw_ttl, mod_tp_src, mod_tp_dst, mod_vlan_vid, mod_vlan_pcp, \
                     set_vlan_vid, set_vlan_pcp, push_vlan, pop_vlan, strip_vlan, dec_ttl, \
                     clear_actions, write_actions, goto_table, resubmit";
/// Every action of a replay.
const KNOWN_TO_REPLAY: &str = "output, drop, in_port, flood, all, local, set_field, mod_dl_src, \
                               mod_dl_dst, mod_nw_src, mod_nw_dst, mod_nw_tos, mod_nw_ecn, \
                               mod_nw_ttl, mod_tp_src, mod_tp_dst, mod_vlan_vid, mod_vlan_pcp, \
                               set_vlan_vid, set_vlan_pcp, push_vlan, pop_vlan, strip_vlan, \
                               dec_ttl, clear_actions, write_actions, goto_table, resubmit";

/// Actions, instructions and output ports of Open vSwitch that are not supported here.
const NOT_HERE: [&str; 50] = [
    "apply_actions",
    "bundle",
    "bundle_load",
    "check_pkt_larger",
    "clone",
    "conjunction",
    "controller",
    "ct",
    "ct_clear",
    "debug_recirc",
    "debug_slow",
    "dec_mpls_ttl",
    "dec_nsh_ttl",
    "decap",
    "delete_field",
    "encap",
    "enqueue",
    "exit",
    "fin_timeout",
    "group",
    "learn",
    "load",
    "meter",
    "move",
    "multipath",
    "nat",
    "none",
    "normal",
    "note",
    "output_reg",
    "pop",
    "pop_mpls",
    "pop_queue",
    "push",
    "push_mpls",
    "sample",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "set_queue",
    "set_tunnel",
    "set_tunnel64",
    "stack_pop",
    "stack_push",
    "table",
    "unroll_xlate",
    "write_metadata",
    "any",
    "unset",
    "ingress",
];

/// Prerequisite of an action on a tag.
const NEEDS_TAG: &str =
    "a VLAN (`dl_vlan=…`, or `vlan_tci=0x1000/0x1000`), or a `push_vlan` before it";

/// `mod_…` actions that write one field, with that field.
pub(crate) const MOD_FIELDS: [(&str, Field); 9] = [
    ("mod_dl_src", Field::DlSrc),
    ("mod_dl_dst", Field::DlDst),
    ("mod_nw_src", Field::NwSrc),
    ("mod_nw_dst", Field::NwDst),
    ("mod_nw_tos", Field::NwTos),
    ("mod_nw_ecn", Field::NwEcn),
    ("mod_nw_ttl", Field::NwTtl),
    ("mod_tp_src", Field::TpSrc),
    ("mod_tp_dst", Field::TpDst),
];

/// Returns the canonical spelling of an action's name; Open vSwitch also reads capitals.
pub(super) fn canonical(name: &str) -> &str {
    let mut known = KNOWN.split(", ");
    known.find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name)
}

/// Returns whether an action writes nothing: a `set_field` under a mask of zeros.
pub(super) fn writes_nothing(action: &Action) -> bool {
    matches!(action, Action::SetField { mask: 0, .. })
}

/// Reads actions one by one and tracks what is known of the packets that reach each.
pub(super) struct ActionReader {
    matching: Match,
    unsure: bool,
    /// The rule's table, if it could be read.
    table: Option<u8>,
    /// Whether the switch has controllers and an address table.
    live: bool,
    /// Number of tags that every packet has at this point.
    tags: usize,
}

impl ActionReader {
    pub fn new(finished: &Finished, table: Option<u8>, live: bool) -> ActionReader {
        ActionReader {
            matching: finished.matching,
            unsure: finished.unsure,
            table,
            live,
            tags: usize::from(has_tag(&finished.matching)),
        }
    }

    /// Accounts for an action that could not be read: it may have pushed a tag.
    pub fn skip(&mut self) {
        self.tags += 1;
    }

    /// Reads one action; `None` is `drop` or `clear_actions`.
    pub fn action(&mut self, word: &Word<'_>) -> Result<Option<Action>, Fault> {
        let name = word.key.text;
        let known = if self.live { KNOWN } else { KNOWN_TO_REPLAY };
        if elsewhere(name) && !known.split(", ").any(|known| known == name) {
            // A colon or bracket after an unknown word would hide the real mistake: the word.
            return self.bare_port(word).map(Some);
        }
        well_formed(word)?;
        if let Some(&(name, field)) = MOD_FIELDS.iter().find(|m| m.0 == name) {
            let value = value_of(word, name)?;
            let (value, mask) = match field {
                Field::NwTos => (values::tos(value)?, 0xfc),
                field => {
                    values::no_mask(field, value)?;
                    values::of_field(field, value)?
                }
            };
            return Ok(Some(Action::SetField { field, value, mask }));
        }
        let action = match name {
            "drop" | "clear_actions" => {
                alone(word)?;
                return Ok(None);
            }
            "output" => self.output(value_of(word, name)?)?,
            _ if self.live && name.eq_ignore_ascii_case("controller") => controller(word)?,
            "set_field" => self.set_field(value_of(word, name)?)?,
            "set_vlan_vid" => {
                self.set_tag(Field::VlanVid, "set_vlan_vid", word.key, value_of(word, name)?)?
            }
            "set_vlan_pcp" => {
                self.set_tag(Field::VlanPcp, "set_vlan_pcp", word.key, value_of(word, name)?)?
            }
            "mod_vlan_vid" => self.set_vlan(Field::VlanVid, value_of(word, name)?)?,
            "mod_vlan_pcp" => self.set_vlan(Field::VlanPcp, value_of(word, name)?)?,
            "push_vlan" => {
                let value = value_of(word, name)?;
                let expected = "0x8100 or 0x88a8";
                let tpid = values::number_as(value, 0xffff, || expected.into())?;
                self.tags += 1;
                match tpid {
                    0x8100 => Action::PushVlan(0x8100),
                    0x88a8 => Action::PushVlan(0x88a8),
                    _ => return Err(Fault::expected(value.at, expected, value.text)),
                }
            }
            "pop_vlan" | "strip_vlan" => {
                alone(word)?;
                self.tags = self.tags.saturating_sub(1);
                Action::PopVlan
            }
            "dec_ttl" => {
                if !word.value.text.is_empty() {
                    let expected = "`dec_ttl` without controller ids, which are not supported";
                    return Err(Fault::expected(word.whole.at, expected, word.whole.text));
                }
                Action::DecTtl
            }
            "goto_table" => self.goto_table(value_of(word, name)?)?,
            "resubmit" => resubmit(word)?,
            _ => return self.bare_port(word).map(Some),
        };
        Ok(Some(action))
    }

    fn set_vlan(&mut self, field: Field, value: Span<'_>) -> Result<Action, Fault> {
        values::no_mask(field, value)?;
        let number = values::number(value, u64::MAX >> (64 - field.bits()))?;
        self.tags = self.tags.max(1);
        Ok(Action::SetVlan {
            field,
            value: u16::try_from(number).expect("VID and PCP fit into 16 bits"),
        })
    }

    /// Reads a write to a tag that must be present.
    fn set_tag(
        &self,
        field: Field,
        name: &'static str,
        key: Span<'_>,
        value: Span<'_>,
    ) -> Result<Action, Fault> {
        values::no_mask(field, value)?;
        let number = values::number(value, u64::MAX >> (64 - field.bits()))?;
        if self.tags == 0 && !self.unsure {
            let kind = RuleErrorKind::MissingPrereq { field: name, needs: NEEDS_TAG };
            return Err(Fault::new(key.at, kind));
        }
        Ok(Action::SetField { field, value: number.into(), mask: field.all_ones() })
    }

    fn goto_table(&mut self, value: Span<'_>) -> Result<Action, Fault> {
        let table = values::table(value)?;
        if let Some(from) = self.table.filter(|&from| table <= from) {
            return Err(Fault::new(value.at, RuleErrorKind::GotoBackwards { from, table }));
        }
        Ok(Action::GotoTable(table))
    }

    /// Returns the action of a reserved port whose name is an action itself.
    fn reserved(&self, name: &str) -> Option<Action> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match () {
            () if is("in_port") => Some(Action::InPort),
            () if is("flood") => Some(Action::Flood),
            () if is("all") => Some(Action::All),
            () if is("local") => Some(Action::Output(PORT_LOCAL)),
            () if is("normal") && self.live => Some(Action::Normal),
            () if is("controller") && self.live => Some(WHOLE_FRAME),
            () => None,
        }
    }

    fn output(&self, value: Span<'_>) -> Result<Action, Fault> {
        let value = value.trim();
        if let Some(action) = self.reserved(value.text) {
            return Ok(action);
        }
        let by_number = values::reserved_port(value).and_then(|port| match port {
            PORT_CONTROLLER => self.reserved("controller"),
            PORT_NORMAL => self.reserved("normal"),
            PORT_TABLE => None,
            port => Some(Action::OutputAsked { port, max_len: 0 }.plain()),
        });
        if let Some(action) = by_number {
            return Ok(action);
        }
        if elsewhere(value.text) {
            let expected = match self.live {
                true => {
                    "a port number, `in_port`, `flood`, `all`, `local`, `normal` or `controller`"
                }
                false => "a port number, `in_port`, `flood`, `all` or `local`",
            };
            let kind = RuleErrorKind::NotHere { found: quote(value.text), expected };
            return Err(Fault::new(value.at, kind));
        }
        values::port(value).map(Action::Output)
    }

    /// Reads a word that is no action name: a bare port number, or a mistake.
    fn bare_port(&self, word: &Word<'_>) -> Result<Action, Fault> {
        let key = word.key;
        if let Some(action) = self.reserved(key.text) {
            alone(word)?;
            return Ok(action);
        }
        if key.text.starts_with(|c: char| c.is_ascii_digit()) {
            alone(word)?;
            return self.output(key);
        }
        let known = if self.live { KNOWN } else { KNOWN_TO_REPLAY };
        if elsewhere(key.text) {
            let kind = RuleErrorKind::NotHere { found: quote(key.text), expected: known };
            return Err(Fault::new(key.at, kind));
        }
        let suggestion = nearest(key.text, known.split(", "));
        let kind = RuleErrorKind::UnknownAction { found: quote(key.text), known, suggestion };
        Err(Fault::new(key.at, kind))
    }

    /// Reads `VALUE[/MASK]->FIELD`.
    fn set_field(&mut self, text: Span<'_>) -> Result<Action, Fault> {
        let Some((value, target)) = text.split_once("->") else {
            return Err(Fault::expected(text.end(), "`->` and a field after the value", ""));
        };
        let target = target.trim();
        let Some(field) = Field::by_name(target.text) else {
            return Err(Fault::new(target.at, unknown_target(target.text)));
        };
        if !field.writable() {
            return Err(Fault::new(target.at, RuleErrorKind::ReadOnly { field: field.name() }));
        }
        let (bits, mask) = match field {
            Field::VlanVid if target.text == "dl_vlan" => {
                values::no_mask(field, value)?;
                (values::number(value, 0xfff)?.into(), 0xfff)
            }
            Field::VlanVid => {
                let (bits, mask) = values::number_masked(value, 13)?;
                (bits & 0xfff, mask & 0xfff)
            }
            Field::NwTos => (values::tos(value)?, 0xfc),
            field => values::of_field(field, value)?,
        };
        let prereq = field.prereq();
        let met = match prereq {
            Prereq::Vlan => self.tags > 0,
            prereq => established(prereq, &self.matching),
        };
        if !met && !self.unsure {
            let names = field.names().iter().copied();
            let name = names.into_iter().find(|&n| n == target.text).unwrap_or(field.name());
            let needs = match field {
                Field::NwSrc if established(Prereq::Arp, &self.matching) => {
                    "`ip` (ARP's is `arp_spa`)"
                }
                Field::NwDst if established(Prereq::Arp, &self.matching) => {
                    "`ip` (ARP's is `arp_tpa`)"
                }
                Field::VlanVid | Field::VlanPcp => NEEDS_TAG,
                _ => needs(prereq, &self.matching),
            };
            return Err(Fault::new(target.at, RuleErrorKind::MissingPrereq { field: name, needs }));
        }
        if field == Field::VlanTci && mask & u128::from(VLAN_PRESENT) != 0 {
            self.tags = match bits & u128::from(VLAN_PRESENT) {
                0 => self.tags.saturating_sub(1),
                _ => self.tags.max(1),
            };
        }
        Ok(Action::SetField { field, value: bits, mask })
    }
}

/// Returns the value after `name:` or in `name(…)`, or an error if it is missing.
fn value_of<'a>(word: &Word<'a>, name: &str) -> Result<Span<'a>, Fault> {
    if word.join == Join::None || word.value.text.is_empty() {
        let expected = format!("`:` and a value after `{name}`");
        return Err(Fault::expected(word.whole.end(), expected, ""));
    }
    Ok(word.value)
}

/// Checks that an action has no value.
fn alone(word: &Word<'_>) -> Result<(), Fault> {
    if word.join == Join::None {
        return Ok(());
    }
    let expected = format!("{} without a value", quote(word.key.text));
    Err(Fault::expected(word.key.end(), expected, &word.whole.text[word.key.text.len()..]))
}

/// Refuses an unclosed parenthesis and text directly after a closed one.
pub(super) fn well_formed(word: &Word<'_>) -> Result<(), Fault> {
    if word.join == Join::Parens(false) {
        return Err(Fault::expected(word.whole.end(), "`)`", ""));
    }
    if !word.tail.text.is_empty() {
        return Err(Fault::expected(word.tail.at, "a comma after `)`", word.tail.text));
    }
    Ok(())
}

fn elsewhere(name: &str) -> bool {
    NOT_HERE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// `controller` without a length.
const WHOLE_FRAME: Action = Action::Controller { max_len: u16::MAX };

/// Reads `controller`, `controller:LEN`, `controller(LEN)` or `controller(max_len=LEN)`.
fn controller(word: &Word<'_>) -> Result<Action, Fault> {
    let value = word.value.trim();
    if value.text.is_empty() {
        return match word.join {
            Join::None | Join::Parens(_) => Ok(WHOLE_FRAME),
            Join::Assign => {
                let expected = "a number of bytes after `:`";
                Err(Fault::expected(value.at, expected, value.text))
            }
        };
    }
    let number = match value.split_once("=") {
        None => value,
        Some((name, number)) if name.text == "max_len" && word.join != Join::Assign => number,
        Some((name, _)) => {
            return Err(Fault::expected(name.at, "`max_len=` and a number", value.text));
        }
    };
    let max_len = values::number(number, u64::from(u16::MAX))?;
    Ok(Action::Controller { max_len: u16::try_from(max_len).expect("`number` checked the bound") })
}

/// Reads `resubmit:PORT`, `resubmit(PORT)` or `resubmit([PORT],TABLE)`.
fn resubmit(word: &Word<'_>) -> Result<Action, Fault> {
    let at_least_one = || {
        let expected = "`resubmit:PORT` or `resubmit([PORT],[TABLE])` with a port or a table";
        Fault::expected(word.whole.at, expected, word.whole.text)
    };
    let (port, table) = match word.join {
        Join::None => return Err(at_least_one()),
        Join::Assign => (word.value.trim(), None),
        Join::Parens(_) => match word.value.split_once(",") {
            None => (word.value.trim(), None),
            Some((port, table)) => (port.trim(), Some(table.trim())),
        },
    };
    let here = port.text.is_empty() || port.text.eq_ignore_ascii_case("in_port");
    let in_port = if here { None } else { Some(values::port(port)?) };
    let table = match table {
        None => None,
        Some(table) if table.text.is_empty() => None,
        Some(table) => {
            if let Some((_, more)) = table.split_once(",") {
                return Err(Fault::expected(more.at, "`)` after the table", more.text));
            }
            Some(values::table(table)?)
        }
    };
    if in_port.is_none() && table.is_none() {
        return Err(at_least_one());
    }
    Ok(Action::Resubmit { in_port, table })
}

fn unknown_target(name: &str) -> RuleErrorKind {
    if is_field_elsewhere(name) {
        let expected = "a field of the flow key";
        return RuleErrorKind::NotHere { found: quote(name), expected };
    }
    let names = Field::ALL.iter().flat_map(|field| field.names().iter().copied());
    RuleErrorKind::UnknownTarget { found: quote(name), suggestion: nearest(name, names) }
}
