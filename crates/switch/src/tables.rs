//! The rule set as the switch holds it: one [`Classifier`] for each OpenFlow table in use.
//!
//! What is bounded here bounds every packet: the number of rules, of actions in a rule, and that
//! `goto_table` only leads to later tables. Changes count up [`Tables::version`]. Panics: none.

use crate::classifier::{Classifier, RuleEntry};
use crate::rule::{Action, Match, Rule, TABLE_MAX};

/// Most rules in all tables together.
pub const RULES_MAX: usize = 1_000_000;
/// Most actions in one rule.
pub const ACTIONS_MAX: usize = 1024;

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The tables are full.
    #[error("more than {RULES_MAX} rules")]
    TooManyRules,
    /// The rule's table is not 0 to [`TABLE_MAX`].
    #[error("table {0} is not one of 0 to {TABLE_MAX}")]
    NoSuchTable(u8),
    /// `goto_table` must name a later table than that of its rule.
    #[error("goto_table from table {from} to {to}, which is not a later one")]
    GotoNotLater {
        /// Table of the rule.
        from: u8,
        /// Table that it names.
        to: u8,
    },
    /// The rule's list of actions is too long.
    #[error("{0} actions, more than {ACTIONS_MAX}")]
    TooManyActions(usize),
}

impl RuleError {
    /// Whether `rule` by itself is acceptable.
    pub fn check(rule: &Rule) -> Result<(), RuleError> {
        let table = |table| {
            if table > TABLE_MAX { Err(RuleError::NoSuchTable(table)) } else { Ok(()) }
        };
        table(rule.table)?;
        if rule.actions.len() > ACTIONS_MAX {
            return Err(RuleError::TooManyActions(rule.actions.len()));
        }
        for action in &rule.actions {
            match *action {
                Action::GotoTable(to) if to <= rule.table => {
                    return Err(RuleError::GotoNotLater { from: rule.table, to });
                }
                Action::GotoTable(to) | Action::Resubmit { table: Some(to), .. } => table(to)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// All OpenFlow tables; see the module.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// By table number; only as long as needed.
    tables: Vec<Classifier>,
    len: usize,
    next_seq: u64,
    version: u64,
}

impl Tables {
    /// The tables with these rules, the first being the oldest. Of rules with the same identity the
    /// last stays, in the place of the first.
    pub fn new(rules: Vec<Rule>) -> Result<Tables, RuleError> {
        let mut tables = Tables::default();
        for rule in rules {
            tables.put(rule, Classifier::put)?;
        }
        tables.tables.iter_mut().for_each(Classifier::restore_order);
        Ok(tables)
    }

    /// Adds a rule, or replaces and returns the one with the same identity; the new one takes the
    /// old one's place in the order of insertion.
    pub fn insert(&mut self, rule: Rule) -> Result<Option<Rule>, RuleError> {
        self.put(rule, Classifier::insert)
    }

    fn put(
        &mut self,
        rule: Rule,
        into: fn(&mut Classifier, Rule, u64) -> Option<Rule>,
    ) -> Result<Option<Rule>, RuleError> {
        RuleError::check(&rule)?;
        let at = usize::from(rule.table);
        let full = self.len >= RULES_MAX;
        if full && self.get(rule.table, rule.priority, &rule.matching).is_none() {
            return Err(RuleError::TooManyRules);
        }
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, Classifier::new);
        }
        let replaced = into(&mut self.tables[at], rule, self.next_seq);
        self.next_seq += 1;
        self.version += 1;
        self.len += usize::from(replaced.is_none());
        Ok(replaced)
    }

    /// Removes the rule with this table, priority and match, and returns it.
    pub fn remove(&mut self, table: u8, priority: u16, matching: &Match) -> Option<Rule> {
        let removed = self.tables.get_mut(usize::from(table))?.remove(priority, matching)?;
        self.len -= 1;
        self.version += 1;
        Some(removed)
    }

    /// The rule with this table, priority and match.
    pub fn get(&self, table: u8, priority: u16, matching: &Match) -> Option<&Rule> {
        self.tables.get(usize::from(table))?.get(priority, matching)
    }

    /// One OpenFlow table, if it has ever held a rule.
    #[inline]
    pub fn table(&self, table: u8) -> Option<&Classifier> {
        self.tables.get(usize::from(table))
    }

    /// Every rule: by table, then in the order of insertion.
    pub fn rules(&self) -> Vec<&Rule> {
        self.tables
            .iter()
            .flat_map(|table| {
                let mut entries: Vec<&RuleEntry> = table.iter().collect();
                entries.sort_unstable_by_key(|entry| entry.seq);
                entries.into_iter().map(|entry| &entry.rule)
            })
            .collect()
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Counts every change of the rules.
    pub fn version(&self) -> u64 {
        self.version
    }
}
