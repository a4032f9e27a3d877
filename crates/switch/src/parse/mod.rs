//! Rules from text, in the syntax of `ovs-ofctl add-flows`.
//!
//! ```text
//!  # one rule in a line; a comment runs to the end of the line
//!  table=0,priority=100,udp,nw_dst=10.0.0.0/8,tp_dst=53,actions=output:2
//!  cookie=0x5, priority=10, dl_vlan=7 actions=pop_vlan,resubmit(,1)
//! ```
//!
//! A line holds `table` (default 0), `priority` (default 32768), `cookie`, `idle_timeout`,
//! `hard_timeout`, `importance`, flags and the match, in any order, separated by commas or blanks.
//! `actions=` and the actions follow. `matches.rs`, `actions.rs` and `instructions.rs` say what
//! each word means.
//!
//! The parser is stricter than Open vSwitch: bits that do not fit are an error, where Open vSwitch
//! drops them. It also reads more: a plain VID in `set_field:5->vlan_vid`, a `set_field` to
//! `dl_vlan`, blanks within `resubmit( 1 , 2 )`, and IPv6 masks that begin with a decimal digit.
//! (Open vSwitch takes `fd00::1/3bab::` for a prefix length and refuses it; a controller can set
//! any mask, and printed rules must read back.)
//!
//! A leading `add` is allowed, other commands are not. The counters that `ovs-ofctl dump-flows`
//! prints (`n_packets=…`) are skipped, so a dump is a file of rules. A replay has no clock for
//! rules, no controller and no address table: [`parse_replay_rules`] refuses rules that need one.
//!
//! Ports are 0 to [`PORT_MAX`], and `LOCAL`, which is [`PORT_LOCAL`].
//!
//! **Errors.** All errors of a file are reported, one or more for each line: parsing resumes at the
//! next comma. One slip should give one error. A missing prerequisite is therefore not reported if
//! a word that might have been it could not be read.
//!
//! **Limits.** [`LINE_BYTES_MAX`] bytes in a line, [`ACTIONS_MAX`] actions in a rule, [`RULES_MAX`]
//! rules, [`ERRORS_KEPT_MAX`] errors kept. No text makes the parser panic. Time is linear in the
//! text; memory is that of the rules.
//!
//! [`Rule`]'s `Display` writes text that reads back as the same rule.

mod actions;
mod error;
mod instructions;
mod lex;
mod matches;
mod values;

pub(crate) use actions::MOD_FIELDS;
pub use error::{ERRORS_KEPT_MAX, RuleError, RuleErrorKind, RuleErrors};
pub(crate) use matches::{PROTOCOLS, fixed};
pub(crate) use values::{FRAG_NAMES, TCP_FLAG_NAMES};

pub use crate::ports::PORT_LOCAL;
use crate::rule::{Rule, RuleFlags};
use actions::ActionReader;
use error::{Fault, quote};
use instructions::Builder;
use lex::{Join, Span, Word, Words};
use matches::MatchBuilder;

pub const LINE_BYTES_MAX: usize = 64 * 1024;
pub const RULES_MAX: usize = 1_000_000;
pub const ACTIONS_MAX: usize = 256;
/// Highest number of an ordinary port; OpenFlow 1.0 reserves the numbers above.
pub const PORT_MAX: u32 = 0xfeff;
/// Priority of a rule without `priority=`.
pub const PRIORITY_DEFAULT: u16 = 0x8000;

/// Counters in a dump; skipped.
const COUNTERS: [&str; 5] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

const LIFETIMES: [&str; 3] = ["idle_timeout", "hard_timeout", "importance"];

/// Names of the flags, in the order of their bits in OpenFlow.
pub(crate) const FLAG_NAMES: [&str; 5] =
    ["send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"];

/// Keywords of Open vSwitch that are not supported.
const NOT_HERE: [&str; 3] = ["out_port", "out_group", "allow_hidden_fields"];

/// Commands that must not start a line.
const COMMANDS_NOT_HERE: [&str; 4] = ["modify", "modify_strict", "delete", "delete_strict"];

/// Parses a file of rules and returns them in order. Skips blank lines and comments.
///
/// # Errors
/// Every error of the file.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, RuleErrors> {
    read_file(text, true)
}

/// Parses a file of rules for a replay. As [`parse_rules`], but refuses what needs a clock, a
/// controller or an address table: timeouts, flags, `controller`, `normal`.
///
/// # Errors
/// Every error of the file.
pub fn parse_replay_rules(text: &str) -> Result<Vec<Rule>, RuleErrors> {
    read_file(text, false)
}

fn read_file(text: &str, live: bool) -> Result<Vec<Rule>, RuleErrors> {
    let mut errors = RuleErrors::default();
    let mut rules = Vec::new();
    let mut count = 0;
    for (line, line_no) in text.split('\n').zip(1u32..) {
        let mut line = LineErrors { errors: &mut errors, line_no, line, live, seen: Vec::new() };
        if line.is_blank() {
            continue;
        }
        count += 1;
        if count > RULES_MAX {
            line.push(Fault::new(0, RuleErrorKind::TooManyRules { max: RULES_MAX }));
            break;
        }
        if let Some(rule) = read_line(&mut line) {
            rules.push(rule);
        }
    }
    if errors.total() == 0 { Ok(rules) } else { Err(errors) }
}

/// Parses one rule.
///
/// # Errors
/// Every error of the line. A text without a rule, or with more than one line, is an error.
pub fn parse_rule(text: &str) -> Result<Rule, RuleErrors> {
    let mut errors = RuleErrors::default();
    let (line_no, seen) = (1, Vec::new());
    let mut line = LineErrors { errors: &mut errors, line_no, line: text, live: true, seen };
    let rule = match text.find('\n') {
        Some(at) => {
            line.push(Fault::expected(at, "one rule", "a second line"));
            None
        }
        None => read_line(&mut line),
    };
    rule.ok_or(errors)
}

/// Collects the errors of one line and remembers the names that it has used.
struct LineErrors<'a> {
    errors: &'a mut RuleErrors,
    line_no: u32,
    line: &'a str,
    /// Whether the rule may use what a replay does not have.
    live: bool,
    seen: Vec<(&'a str, usize)>,
}

impl<'a> LineErrors<'a> {
    fn push(&mut self, fault: Fault) {
        self.errors.push(self.line_no, self.line, fault);
    }

    fn column(&self, at: usize) -> u32 {
        let before = self.line.get(..at).unwrap_or(self.line).chars().count();
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    fn is_blank(&self) -> bool {
        self.line.len() <= LINE_BYTES_MAX && without_comment(self.line).trim().is_empty()
    }

    /// Notes a known name; reports an error if the line has used it before.
    fn first_time(&mut self, key: Span<'_>) -> bool {
        let Some(&(_, at)) = self.seen.iter().find(|(name, _)| *name == key.text) else {
            // Names come from a fixed set, so `seen` stays short.
            let name = &self.line[key.at..key.end()];
            self.seen.push((name, key.at));
            return true;
        };
        let first_column = self.column(at);
        let kind = RuleErrorKind::Duplicate { name: quote(key.text), first_column };
        self.push(Fault::new(key.at, kind));
        false
    }
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(rule, _)| rule)
}

fn read_line(line: &mut LineErrors<'_>) -> Option<Rule> {
    let (errors_before, kept_before) = (line.errors.total(), line.errors.kept().len());
    if line.line.len() > LINE_BYTES_MAX {
        let kind = RuleErrorKind::LineTooLong { max: LINE_BYTES_MAX, found: line.line.len() };
        line.push(Fault::new(0, kind));
        return None;
    }
    let text = without_comment(line.line);
    let mut words = Words::new(text).enumerate();
    let mut head = Head { table: Some(0), ..Head::default() };
    let mut builder = MatchBuilder::default();
    let mut has_actions = false;
    for (i, word) in &mut words {
        let key = word.key.text;
        let is_command = i == 0 && word.join == Join::None;
        if matches!(key, "actions" | "action") {
            has_actions = true;
            // The word ends at the `=`, unless a `:` or `(` stands in its place.
            if !(word.value.text.is_empty() && word.whole.text.ends_with('=')) {
                let expected = format!("`=` after `{key}`");
                let found = &word.whole.text[key.len()..];
                line.push(Fault::expected(word.key.end(), expected, found));
            }
            break;
        }
        if is_command && key == "add" || COUNTERS.contains(&key) {
            continue;
        }
        let of_life = LIFETIMES.contains(&key) || FLAG_NAMES.contains(&key);
        let missing = NOT_HERE.contains(&key) || of_life && !line.live;
        if missing || is_command && COMMANDS_NOT_HERE.contains(&key) {
            let expected = "a rule without timeouts and flags";
            let kind = RuleErrorKind::NotHere { found: quote(key), expected };
            line.push(Fault::new(word.whole.at, kind));
            continue;
        }
        if of_life || matches!(key, "table" | "priority" | "cookie") {
            if line.first_time(word.key)
                && let Err(fault) = head.word(&word)
            {
                line.push(fault);
            }
            continue;
        }
        builder.word(&word, line);
    }
    if !has_actions {
        line.push(Fault::new(text.trim_end().len(), RuleErrorKind::MissingActions));
    }
    let finished = builder.finish(line);
    let mut actions = Builder::new(ActionReader::new(&finished, head.table, line.live));
    for (_, word) in words {
        if !actions.word(&word, line) {
            break;
        }
    }
    let actions = actions.finish(line);
    line.errors.sort_line(kept_before);
    let table = head.table?;
    (line.errors.total() == errors_before).then_some(Rule {
        table,
        matching: finished.matching,
        actions: actions.list,
        clear_actions: actions.clear,
        write_actions: actions.set,
        ..head.rule
    })
}

/// Parts of a rule other than match and actions.
struct Head {
    /// `None` if it could not be read.
    table: Option<u8>,
    rule: Rule,
}

impl Default for Head {
    fn default() -> Head {
        Head { table: None, rule: Rule { priority: PRIORITY_DEFAULT, ..Rule::default() } }
    }
}

impl Head {
    fn word(&mut self, word: &Word<'_>) -> Result<(), Fault> {
        let key = word.key.text;
        if let Some(bit) = FLAG_NAMES.iter().position(|&name| name == key) {
            if word.join != Join::None {
                let expected = format!("`{key}` without a value");
                return Err(Fault::expected(word.whole.at, expected, word.whole.text));
            }
            self.rule.flags = RuleFlags::from_bits(self.rule.flags.bits() | 1 << bit);
            return Ok(());
        }
        if word.join != Join::Assign {
            self.table = if key == "table" { None } else { self.table };
            let expected = format!("`=` and a number after `{key}`");
            return Err(Fault::expected(word.key.end(), expected, &word.whole.text[key.len()..]));
        }
        let short = || {
            let value = values::number(word.value, u64::from(u16::MAX))?;
            Ok(u16::try_from(value).expect("`number` checked the bound"))
        };
        match key {
            "table" => {
                let table = values::table(word.value);
                self.table = table.as_ref().ok().copied();
                table?;
            }
            "priority" => self.rule.priority = short()?,
            "idle_timeout" => self.rule.idle_timeout_s = short()?,
            "hard_timeout" => self.rule.hard_timeout_s = short()?,
            "importance" => self.rule.importance = short()?,
            _ => {
                if let Some((_, mask)) = word.value.split_once("/") {
                    let expected = "a cookie without a mask";
                    return Err(Fault::expected(mask.at, expected, mask.text));
                }
                self.rule.cookie = values::number(word.value, u64::MAX)?;
            }
        }
        Ok(())
    }
}
