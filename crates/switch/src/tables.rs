//! The rule set as the switch holds it: one [`Classifier`] for each OpenFlow table in use.
//!
//! The control plane keeps a copy, changes it by OpenFlow's flow-mod messages, and gives clones to
//! the workers. A clone costs one reference count for each table. The first change of a table after
//! that copies lists of its parts and the parts that it touches (`crate::cow`).
//!
//! Bounds that protect every packet: the number of rules, the number of actions in a rule, and
//! `goto_table` only to later tables. Each change increments [`Tables::version`]. Panics: none.

use std::sync::Arc;

pub use crate::classifier::{Added, Filter, RuleEntry};

use crate::classifier::Classifier;
use crate::rule::{Action, Match, Rule, TABLE_MAX};
use crate::stats::{AllTableStats, RuleStats, TableStats};
use crate::view::View;

pub const RULES_MAX: usize = 1_000_000;
pub const ACTIONS_MAX: usize = 1024;

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("too many rules: the limit is {RULES_MAX}")]
    TooManyRules,
    /// The rule's table is above [`TABLE_MAX`].
    #[error("table {0}: must be between 0 and {TABLE_MAX}")]
    NoSuchTable(u8),
    /// `goto_table` must name a later table than that of its rule.
    #[error("goto_table:{to} in table {from}: must name a later table")]
    GotoNotLater {
        /// Table of the rule.
        from: u8,
        /// Table that it names.
        to: u8,
    },
    /// The rule's list of actions is too long.
    #[error("{0} actions in one rule: the limit is {ACTIONS_MAX}")]
    TooManyActions(usize),
    #[error("an action set cannot hold goto_table or resubmit")]
    NotInActionSet,
    /// The rule has `check_overlap` and overlaps a rule of the same priority.
    #[error("overlaps a rule of the same priority")]
    Overlap,
}

impl RuleError {
    /// Checks `rule` by itself.
    pub fn check(rule: &Rule) -> Result<(), RuleError> {
        let table = |table| {
            if table > TABLE_MAX { Err(RuleError::NoSuchTable(table)) } else { Ok(()) }
        };
        table(rule.table)?;
        let actions = rule.actions.len().saturating_add(rule.write_actions.len());
        if actions > ACTIONS_MAX {
            return Err(RuleError::TooManyActions(actions));
        }
        let elsewhere =
            |action: &Action| matches!(action, Action::GotoTable(_) | Action::Resubmit { .. });
        if rule.write_actions.iter().any(elsewhere) {
            return Err(RuleError::NotInActionSet);
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

/// New values that [`Tables::modify`] gives to rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// As [`Rule::actions`].
    pub actions: Vec<Action>,
    /// As [`Rule::clear_actions`].
    pub clear_actions: bool,
    /// As [`Rule::write_actions`].
    pub write_actions: Vec<Action>,
    /// A new cookie, if any.
    pub cookie: Option<u64>,
    /// Whether counters restart at zero.
    pub reset_counts: bool,
}

/// All OpenFlow tables; see the module.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// By table number; only as long as needed.
    tables: Vec<Arc<Classifier>>,
    stats: AllTableStats,
    len: usize,
    next_seq: u64,
    version: u64,
    view: View,
}

impl Tables {
    /// Returns tables with these rules, the first being the oldest. Of rules with the same
    /// identity, the last one takes the place of the first.
    pub fn new(rules: Vec<Rule>) -> Result<Tables, RuleError> {
        let mut tables = Tables::default();
        for rule in rules {
            RuleError::check(&rule)?;
            tables.check_room(&rule)?;
            tables.put(rule, Arc::default(), 0, Classifier::put);
        }
        let restore = |table| Classifier::restore_order(Arc::make_mut(table));
        tables.tables.iter_mut().for_each(restore);
        Ok(tables)
    }

    /// Adds a rule at `now_ms`, or replaces the one with the same identity and takes its place in
    /// insertion order. The new rule keeps the old counters, unless its flags say otherwise; its
    /// timeouts restart.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn add(&mut self, rule: Rule, now_ms: u64) -> Result<Added, RuleError> {
        RuleError::check(&rule)?;
        self.check_room(&rule)?;
        let old = self.entry(rule.table, rule.priority, &rule.matching);
        if rule.flags.check_overlap && old.is_none() && self.overlap(&rule).is_some() {
            return Err(RuleError::Overlap);
        }
        let stats = match old {
            Some(old) if !rule.flags.reset_counts => {
                old.stats.touch(now_ms);
                Arc::clone(&old.stats)
            }
            _ => Arc::new(RuleStats::new(now_ms)),
        };
        Ok(self.put(rule, stats, now_ms, Classifier::insert))
    }

    /// Adds a rule at time 0 and returns the rule that it replaced. Ignores the rule's flags.
    pub fn insert(&mut self, rule: Rule) -> Result<Option<Rule>, RuleError> {
        RuleError::check(&rule)?;
        self.check_room(&rule)?;
        let added = self.put(rule, Arc::default(), 0, Classifier::insert);
        Ok(added.replaced.map(|entry| entry.rule.clone()))
    }

    fn check_room(&self, rule: &Rule) -> Result<(), RuleError> {
        let full = self.len >= RULES_MAX;
        if full && self.get(rule.table, rule.priority, &rule.matching).is_none() {
            return Err(RuleError::TooManyRules);
        }
        Ok(())
    }

    fn put(
        &mut self,
        rule: Rule,
        stats: Arc<RuleStats>,
        created_ms: u64,
        into: fn(&mut Classifier, RuleEntry) -> Added,
    ) -> Added {
        let at = usize::from(rule.table);
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, Arc::default);
        }
        let entry = RuleEntry { rule, seq: self.next_seq, stats, created_ms };
        let added = into(Arc::make_mut(&mut self.tables[at]), entry);
        self.next_seq += 1;
        self.version += 1;
        self.len += usize::from(added.replaced.is_none());
        added
    }

    /// Changes the actions of the rules that `filter` selects, and returns these rules. Times
    /// continue; counters do too, unless the change resets them.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn modify(
        &mut self,
        filter: &Filter,
        change: &Change,
        now_ms: u64,
    ) -> Result<Vec<Arc<RuleEntry>>, RuleError> {
        let found = self.select(filter);
        let with = |old: &Rule| Rule {
            actions: change.actions.clone(),
            clear_actions: change.clear_actions,
            write_actions: change.write_actions.clone(),
            cookie: change.cookie.unwrap_or(old.cookie),
            ..old.clone()
        };
        found.iter().try_for_each(|old| RuleError::check(&with(&old.rule)))?;
        let modified = found.into_iter().map(|old| {
            let stats = match change.reset_counts {
                // An idle timeout continues from the last packet.
                true => Arc::new(RuleStats::new(old.stats.last_used_ms().min(now_ms))),
                false => Arc::clone(&old.stats),
            };
            self.put(with(&old.rule), stats, old.created_ms, Classifier::insert).entry
        });
        Ok(modified.collect())
    }

    /// Removes the rules that `filter` selects, and returns them.
    pub fn delete(&mut self, filter: &Filter) -> Vec<Arc<RuleEntry>> {
        let found = self.select(filter);
        if found.is_empty() {
            return found;
        }
        self.version += 1;
        self.len -= found.len();
        if filter.takes_all() {
            for at in self.about(filter) {
                self.tables[at] = Arc::default();
            }
            return found;
        }
        for RuleEntry { rule, .. } in found.iter().map(|entry| &**entry) {
            let table = Arc::make_mut(&mut self.tables[usize::from(rule.table)]);
            table.remove(rule.priority, &rule.matching);
        }
        found
    }

    /// Returns the rules that `filter` selects: by table, then in insertion order.
    pub fn select(&self, filter: &Filter) -> Vec<Arc<RuleEntry>> {
        self.about(filter).flat_map(|at| self.tables[at].select(filter)).collect()
    }

    /// Returns the tables that a filter can select from.
    fn about(&self, filter: &Filter) -> std::ops::Range<usize> {
        match filter.table.map(usize::from) {
            Some(table) => table.min(self.tables.len())..(table + 1).min(self.tables.len()),
            None => 0..self.tables.len(),
        }
    }

    /// Returns a rule of the same table and priority with a different match that some packet of
    /// `rule` could match too.
    pub fn overlap(&self, rule: &Rule) -> Option<&Arc<RuleEntry>> {
        self.table(rule.table)?.overlap(rule)
    }

    /// Removes the rule with this table, priority and match, and returns it.
    pub fn remove(&mut self, table: u8, priority: u16, matching: &Match) -> Option<Rule> {
        // Look first: a copy in vain would unshare the table.
        self.entry(table, priority, matching)?;
        let table = Arc::make_mut(self.tables.get_mut(usize::from(table))?);
        let removed = table.remove(priority, matching)?;
        self.len -= 1;
        self.version += 1;
        Some(removed.rule.clone())
    }

    /// Removes this very entry, for a rule that timed out. Returns whether it was still present.
    pub fn remove_entry(&mut self, entry: &Arc<RuleEntry>) -> bool {
        let rule = &entry.rule;
        let standing = self.entry(rule.table, rule.priority, &rule.matching);
        standing.is_some_and(|standing| Arc::ptr_eq(standing, entry))
            && self.remove(rule.table, rule.priority, &rule.matching).is_some()
    }

    /// Returns the rule with this table, priority and match.
    pub fn get(&self, table: u8, priority: u16, matching: &Match) -> Option<&Rule> {
        self.entry(table, priority, matching).map(|entry| &entry.rule)
    }

    /// Returns the rule with this table, priority and match, with its counters and times.
    pub fn entry(&self, table: u8, priority: u16, matching: &Match) -> Option<&Arc<RuleEntry>> {
        self.table(table)?.get(priority, matching)
    }

    /// Returns one OpenFlow table, if it has ever held a rule.
    #[inline]
    pub fn table(&self, table: u8) -> Option<&Classifier> {
        self.tables.get(usize::from(table)).map(|table| &**table)
    }

    /// Iterates over every rule: by table, in no particular order within.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<RuleEntry>> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    /// Returns every rule: by table, then in insertion order.
    pub fn rules(&self) -> Vec<&Rule> {
        self.tables
            .iter()
            .flat_map(|table| {
                let mut entries: Vec<&Arc<RuleEntry>> = table.iter().collect();
                entries.sort_unstable_by_key(|entry| entry.seq);
                entries.into_iter().map(|entry| &entry.rule)
            })
            .collect()
    }

    /// Returns the counters of a table; `None` above [`TABLE_MAX`]. Clones count together.
    pub fn table_stats(&self, table: u8) -> Option<&TableStats> {
        self.stats.get(table)
    }

    /// Returns the counters of all tables.
    pub(crate) fn stats(&self) -> &AllTableStats {
        &self.stats
    }

    /// Returns the number of rules in a table.
    pub fn table_len(&self, table: u8) -> usize {
        self.table(table).map_or(0, Classifier::len)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how rules see fragments and VLAN tags.
    pub fn view(&self) -> View {
        self.view
    }

    /// Changes how rules see packets; returns false if nothing changes.
    pub fn set_view(&mut self, view: View) -> bool {
        let changes = self.view != view;
        self.version += u64::from(changes);
        self.view = view;
        changes
    }

    /// Returns a number that increases with every change of the rules.
    pub fn version(&self) -> u64 {
        self.version
    }
}
