//! Flow-mods to rules, and rules to flow statistics.

use std::time::Duration;

use overbank_openflow::{
    BadAction, BadInstruction, Elapsed, ErrorCode, FlowFlags, FlowMod, FlowModFailed, FlowRemoved,
    FlowRemovedReason, Stats,
    consts::{group, port, table},
    multipart::{FlowRequest, FlowStats},
};
use overbank_switch::rule::{Match, Rule, RuleFlags};
use overbank_switch::tables::{Change, Filter, RuleEntry, RuleError};

use super::{actions, instructions, matching};
use crate::rules::{RemovedReason, RuleRefused};

/// Returns the rule that a flow-mod adds.
///
/// # Errors
/// As [`matching::from_oxm`] and [`actions::from_instructions`]; `BadTableId` for table 255,
/// `BadFlags` for flags that are not known.
pub fn to_rule(flow: &FlowMod) -> Result<Rule, ErrorCode> {
    let (table, matching, of_rule) = parts(flow)?;
    let table = table.ok_or(FlowModFailed::BadTableId)?;
    Ok(Rule {
        table,
        priority: flow.priority,
        matching,
        actions: of_rule.actions,
        clear_actions: of_rule.clear_actions,
        write_actions: of_rule.write_actions,
        cookie: flow.cookie,
        idle_timeout_s: flow.idle_timeout,
        hard_timeout_s: flow.hard_timeout,
        importance: flow.importance,
        flags: RuleFlags::from_bits(flow.flags.0),
    })
}

/// Returns the rules that a flow-mod modifies, and the change.
///
/// # Errors
/// As [`to_rule`].
pub fn to_change(flow: &FlowMod, strict: bool) -> Result<(Filter, Change), ErrorCode> {
    let (table, matching, of_rule) = parts(flow)?;
    let table = table.ok_or(FlowModFailed::BadTableId)?;
    let which = Filter {
        table: Some(table),
        matching,
        priority: strict.then_some(flow.priority),
        cookie: flow.cookie,
        cookie_mask: flow.cookie_mask,
        ..Filter::default()
    };
    let change = Change {
        actions: of_rule.actions,
        clear_actions: of_rule.clear_actions,
        write_actions: of_rule.write_actions,
        cookie: None,
        reset_counts: flow.flags.contains(FlowFlags::RESET_COUNTS),
    };
    Ok((which, change))
}

/// Returns the rules that a flow-mod deletes; `None` if it asks for a group, which no rule has.
///
/// # Errors
/// As [`matching::from_oxm`].
pub fn to_deletion(flow: &FlowMod, strict: bool) -> Result<Option<Filter>, ErrorCode> {
    let mut filter = filter(
        flow.table,
        &matching::from_oxm(&flow.matching)?,
        (flow.cookie, flow.cookie_mask),
        (flow.out_port, flow.out_group),
    );
    if let Some(filter) = &mut filter {
        filter.priority = strict.then_some(flow.priority);
    }
    Ok(filter)
}

/// Returns which flows a request for statistics asks for; `None` if it can be none.
///
/// # Errors
/// As [`matching::from_oxm`].
pub fn to_filter(request: &FlowRequest) -> Result<Option<Filter>, ErrorCode> {
    Ok(filter(
        request.table,
        &matching::from_oxm(&request.matching)?,
        (request.cookie, request.cookie_mask),
        (request.out_port, request.out_group),
    ))
}

fn filter(
    in_table: u8,
    matching: &Match,
    (cookie, cookie_mask): (u64, u64),
    (out_port, out_group): (u32, u32),
) -> Option<Filter> {
    (out_group == group::ANY).then(|| Filter {
        table: (in_table != table::ALL).then_some(in_table),
        matching: *matching,
        cookie,
        cookie_mask,
        out_port: (out_port != port::ANY).then_some(out_port),
        ..Filter::default()
    })
}

/// Returns table, match and actions of one that adds or modifies.
fn parts(flow: &FlowMod) -> Result<(Option<u8>, Match, actions::RuleActions), ErrorCode> {
    if flow.flags.0 & !FlowFlags::KNOWN.0 != 0 {
        return Err(FlowModFailed::BadFlags.into());
    }
    let matching = matching::from_oxm(&flow.matching)?;
    let instructions = actions::from_instructions(&flow.instructions, flow.table, &matching)?;
    Ok(((flow.table != table::ALL).then_some(flow.table), matching, instructions))
}

/// Returns the specification's code for what the tables refused.
pub fn refusal(refused: &RuleRefused) -> ErrorCode {
    match refused {
        RuleRefused::TableFull { .. } => FlowModFailed::TableFull.into(),
        RuleRefused::Rule(error) => match error {
            RuleError::TooManyRules => FlowModFailed::TableFull.into(),
            RuleError::NoSuchTable(_) => FlowModFailed::BadTableId.into(),
            RuleError::GotoNotLater { .. } => BadInstruction::BadTableId.into(),
            RuleError::TooManyActions(_) => BadAction::TooMany.into(),
            RuleError::NotInActionSet => BadAction::BadType.into(),
            RuleError::Overlap => FlowModFailed::Overlap.into(),
        },
    }
}

/// Returns a rule as a dump shows it at `now_ms`.
pub fn stats(entry: &RuleEntry, now_ms: u64) -> FlowStats {
    let rule = &entry.rule;
    let elapsed = |since_ms: u64| ms(now_ms.saturating_sub(since_ms));
    FlowStats {
        table: rule.table,
        priority: rule.priority,
        idle_timeout: rule.idle_timeout_s,
        hard_timeout: rule.hard_timeout_s,
        flags: FlowFlags(rule.flags.bits()),
        importance: rule.importance,
        cookie: rule.cookie,
        stats: Stats {
            duration: Some(elapsed(entry.created_ms)),
            idle: Some(elapsed(entry.stats.last_used_ms())),
            flows: None,
            packets: Some(entry.stats.packets()),
            bytes: Some(entry.stats.bytes()),
        },
        matching: matching::to_oxm(&rule.matching),
        instructions: instructions::to_instructions(rule),
    }
}

/// Returns the flow-removed message of a rule.
pub fn removed(gone: &crate::rules::FlowRemoved) -> FlowRemoved {
    let rule = &gone.entry.rule;
    FlowRemoved {
        cookie: rule.cookie,
        priority: rule.priority,
        reason: match gone.reason {
            RemovedReason::Idle => FlowRemovedReason::IdleTimeout,
            RemovedReason::Hard => FlowRemovedReason::HardTimeout,
            RemovedReason::Delete => FlowRemovedReason::Delete,
        },
        table: rule.table,
        idle_timeout: rule.idle_timeout_s,
        hard_timeout: rule.hard_timeout_s,
        stats: Stats {
            duration: Some(ms(gone.age_ms)),
            packets: Some(gone.packets),
            bytes: Some(gone.bytes),
            ..Stats::default()
        },
        matching: matching::to_oxm(&rule.matching),
    }
}

/// Milliseconds as OpenFlow writes times.
pub fn ms(ms: u64) -> Elapsed {
    Duration::from_millis(ms).into()
}
