//! Rules from text, in the syntax of `ovs-ofctl add-flows`.
//!
//! ```text
//!  # one rule in a line; a comment runs to the end of the line
//!  table=0,priority=100,udp,nw_dst=10.0.0.0/8,tp_dst=53,actions=output:2
//!  cookie=0x5, priority=10, dl_vlan=7 actions=pop_vlan,resubmit(,1)
//! ```
//!
//! A line is: `table` (default 0), `priority` (default 32768), `cookie` and the match in any order,
//! parted by commas or blanks; then `actions=` and the actions. See `matches.rs` and `actions.rs`
//! for what each word means and where this is stricter than Open vSwitch, which drops what does not
//! fit; here that is an error. Beyond Open vSwitch go a plain VID in `set_field:5->vlan_vid`, a
//! `set_field` to `dl_vlan`, blanks within `resubmit( 1 , 2 )`. A leading `add` is allowed, other commands are not. The counters
//! that `ovs-ofctl dump-flows` prints (`n_packets=…`) are read over, so that a dump is a file of
//! rules. Timeouts and flags are errors: rules here do not end by themselves.
//!
//! Ports are 0 to [`PORT_MAX`], and `LOCAL`, which is [`PORT_LOCAL`].
//!
//! **Errors.** All of a file's errors are reported, one or more for each line: reading goes on at
//! the next comma. One slip should give one error, so that a missing prerequisite is not reported
//! when a word that might have been it could not be read.
//!
//! **Limits.** [`LINE_BYTES_MAX`] bytes in a line, [`ACTIONS_MAX`] actions in a rule, [`RULES_MAX`]
//! rules, [`ERRORS_KEPT_MAX`] errors kept. Nothing here panics, whatever the text. Time is linear in
//! the text; memory is that of the rules.
//!
//! [`Rule`]'s `Display` writes text that reads back as the same rule.

mod actions;
mod error;
mod lex;
mod matches;
mod values;

pub(crate) use actions::MOD_FIELDS;
pub use error::{ERRORS_KEPT_MAX, RuleError, RuleErrorKind, RuleErrors};
pub(crate) use matches::{PROTOCOLS, fixed};
pub(crate) use values::{FRAG_NAMES, TCP_FLAG_NAMES};

use crate::rule::Rule;
use actions::ActionsBuilder;
use error::{Fault, quote};
use lex::{Join, Span, Word, Words};
use matches::MatchBuilder;

/// Longest line.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most rules in a file.
pub const RULES_MAX: usize = 1_000_000;
/// Most actions in a rule.
pub const ACTIONS_MAX: usize = 256;
/// Highest port number; what follows is reserved in OpenFlow 1.0.
pub const PORT_MAX: u32 = 0xfeff;
/// The port that is called `LOCAL` (`OFPP_LOCAL`).
pub const PORT_LOCAL: u32 = 0xffff_fffe;
/// Priority of a rule that names none.
pub const PRIORITY_DEFAULT: u16 = 0x8000;

/// Counters of a dump, which say nothing about the rule.
const COUNTERS: [&str; 5] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

/// Keywords of Open vSwitch that rules here do not have.
const NOT_HERE: [&str; 11] = [
    "idle_timeout",
    "hard_timeout",
    "importance",
    "send_flow_rem",
    "check_overlap",
    "reset_counts",
    "no_packet_counts",
    "no_byte_counts",
    "out_port",
    "out_group",
    "allow_hidden_fields",
];

/// Commands that may start a line of `ovs-ofctl add-flows`.
const COMMANDS_NOT_HERE: [&str; 4] = ["modify", "modify_strict", "delete", "delete_strict"];

/// Reads a file of rules, in order. Blank lines and comments are skipped.
///
/// # Errors
/// Every error of the file.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, RuleErrors> {
    parse_rules_up_to(text, RULES_MAX)
}

fn parse_rules_up_to(text: &str, rules_max: usize) -> Result<Vec<Rule>, RuleErrors> {
    let mut errors = RuleErrors::default();
    let mut rules = Vec::new();
    let mut count = 0;
    for (line, line_no) in text.split('\n').zip(1u32..) {
        let mut line = LineErrors { errors: &mut errors, line_no, line, seen: Vec::new() };
        if line.is_blank() {
            continue;
        }
        count += 1;
        if count > rules_max {
            line.push(Fault::new(0, RuleErrorKind::TooManyRules { max: rules_max }));
            break;
        }
        if let Some(rule) = read_line(&mut line) {
            rules.push(rule);
        }
    }
    if errors.total() == 0 { Ok(rules) } else { Err(errors) }
}

/// Reads one rule.
///
/// # Errors
/// Every error of the line, also that it holds no rule or more than one line.
pub fn parse_rule(text: &str) -> Result<Rule, RuleErrors> {
    let mut errors = RuleErrors::default();
    let mut line = LineErrors { errors: &mut errors, line_no: 1, line: text, seen: Vec::new() };
    let rule = match text.find('\n') {
        Some(at) => {
            line.push(Fault::expected(at, "one rule", "a second line"));
            None
        }
        None => read_line(&mut line),
    };
    rule.ok_or(errors)
}

/// Where the errors of one line go, and which names it has used.
struct LineErrors<'a> {
    errors: &'a mut RuleErrors,
    line_no: u32,
    line: &'a str,
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

    /// Remembers a known name; a second use of it is an error.
    fn first_time(&mut self, key: Span<'_>) -> bool {
        let Some(&(_, at)) = self.seen.iter().find(|(name, _)| *name == key.text) else {
            // A name out of a fixed set: `seen` stays short.
            let name = &self.line[key.at..key.end()];
            self.seen.push((name, key.at));
            return true;
        };
        let first_column = self.column(at);
        let kind = RuleErrorKind::Duplicate { name: key.text.to_owned(), first_column };
        self.push(Fault::new(key.at, kind));
        false
    }
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(rule, _)| rule)
}

/// The parts of a rule beside match and actions.
struct Head {
    /// `None` if it could not be read.
    table: Option<u8>,
    priority: u16,
    cookie: u64,
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
    let mut head = Head { table: Some(0), priority: PRIORITY_DEFAULT, cookie: 0 };
    let mut builder = MatchBuilder::default();
    let mut has_actions = false;
    for (i, word) in &mut words {
        let key = word.key.text;
        let is_command = i == 0 && word.join == Join::None;
        if matches!(key, "actions" | "action") {
            has_actions = true;
            // The word ends at the `=`, unless there is none or a `:` or `(` in its place.
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
        if NOT_HERE.contains(&key) || is_command && COMMANDS_NOT_HERE.contains(&key) {
            let expected = "a rule to add that has no timeout and no flags";
            let kind = RuleErrorKind::NotHere { found: quote(key), expected };
            line.push(Fault::new(word.whole.at, kind));
            continue;
        }
        if matches!(key, "table" | "priority" | "cookie") {
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
    let mut actions = ActionsBuilder::new(&finished, head.table);
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
        priority: head.priority,
        matching: finished.matching,
        actions,
        cookie: head.cookie,
    })
}

impl Head {
    fn word(&mut self, word: &Word<'_>) -> Result<(), Fault> {
        let key = word.key.text;
        if word.join != Join::Assign {
            self.table = if key == "table" { None } else { self.table };
            let expected = format!("`=` and a number after `{key}`");
            return Err(Fault::expected(word.key.end(), expected, &word.whole.text[key.len()..]));
        }
        match key {
            "table" => {
                let table = values::table(word.value);
                self.table = table.as_ref().ok().copied();
                table?;
            }
            "priority" => {
                let value = values::number(word.value, u64::from(u16::MAX))?;
                self.priority = u16::try_from(value).unwrap_or(u16::MAX);
            }
            _ => {
                if let Some((_, mask)) = word.value.split_once("/") {
                    let expected = "a cookie without a mask";
                    return Err(Fault::expected(mask.at, expected, mask.text));
                }
                self.cookie = values::number(word.value, u64::MAX)?;
            }
        }
        Ok(())
    }
}
