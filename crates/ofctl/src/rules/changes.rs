//! The rules: added, modified, deleted, read again, ended by time.

use super::events::{Event, FlowRemoved, RemovedReason};
use super::{FailMode, RuleControl, timeouts};
use overbank_switch::rule::{Action, Rule};
use overbank_switch::tables::{Change, Filter, RuleEntry, RuleError, Tables};
use std::collections::HashSet;
use std::sync::Arc;

/// Cookie of the rules that the switch makes by itself.
pub const COOKIE_OWN: u64 = 0x6f76_6572_6261_6e6b;

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleRefused {
    /// The tables are full.
    #[error("the tables are full: at most {max} rules (max-rules)")]
    TableFull {
        /// The limit.
        max: usize,
    },
    /// The rule itself is at fault, or it overlaps another one.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

/// What reading the rules again changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Rules that are new.
    pub added: usize,
    /// Rules that do something else now.
    pub changed: usize,
    /// Rules of the file that are no longer in it.
    pub removed: usize,
    /// Rules that stay with their counters and times.
    pub kept: usize,
}

impl RuleControl {
    /// Returns the rules as they will be published next.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Adds a rule, or puts it in the place of the one with the same identity, which comes back.
    ///
    /// # Errors
    /// The tables are full, the rule is at fault, or it overlaps and asked not to.
    pub fn add(&mut self, rule: Rule) -> Result<Option<Arc<RuleEntry>>, RuleRefused> {
        let max = self.config.rules_max;
        let known = self.tables.entry(rule.table, rule.priority, &rule.matching).is_some();
        if !known && self.tables.len() >= max {
            self.totals.rules_refused += 1;
            return Err(RuleRefused::TableFull { max });
        }
        let added = self.tables.add(rule, self.publisher.now_ms())?;
        self.timeouts.watch(&added.entry, &self.tables);
        self.publisher.touch();
        Ok(added.replaced)
    }

    /// Changes what rules do; returns how many.
    ///
    /// # Errors
    /// The change does not fit one of them; none is changed then.
    pub fn modify(&mut self, which: &Filter, change: &Change) -> Result<usize, RuleRefused> {
        let entries = self.tables.modify(which, change, self.publisher.now_ms())?;
        for entry in &entries {
            self.timeouts.watch(entry, &self.tables);
        }
        if !entries.is_empty() {
            self.publisher.touch();
        }
        Ok(entries.len())
    }

    /// Deletes rules; returns how many.
    pub fn delete(&mut self, which: &Filter) -> usize {
        let entries = self.tables.delete(which);
        for entry in &entries {
            self.removed(entry, RemovedReason::Delete);
        }
        if !entries.is_empty() {
            self.publisher.touch();
        }
        entries.len()
    }

    /// Tells that a rule went, if its flags ask for it.
    fn removed(&mut self, entry: &Arc<RuleEntry>, reason: RemovedReason) {
        if !entry.rule.flags.send_flow_rem {
            return;
        }
        let event = Event::FlowRemoved(FlowRemoved {
            entry: entry.clone(),
            reason,
            packets: entry.stats.packets(),
            bytes: entry.stats.bytes(),
            age_ms: self.publisher.now_ms().saturating_sub(entry.created_ms),
        });
        self.tell(event);
    }

    /// Does all of `work` or nothing: on an error the rules are as before, and no event is sent.
    ///
    /// # Errors
    /// That of `work`.
    pub fn transaction<T, E>(
        &mut self,
        work: impl FnOnce(&mut RuleControl) -> Result<T, E>,
    ) -> Result<T, E> {
        let (tables, told) = (self.tables.clone(), self.pending.len());
        let outcome = work(self);
        if outcome.is_err() {
            self.tables = tables;
            self.pending.truncate(told);
            // Rules that `work` replaced or deleted may have left the heap, had it been cleared.
            let RuleControl { timeouts, tables, .. } = self;
            *timeouts = timeouts::Timeouts::default();
            tables.entries().for_each(|entry| timeouts.watch(entry, tables));
        }
        outcome
    }

    /// Puts the rules of a file in the place of those that came from it before. Rules of
    /// controllers stay; where both name the same rule, the file wins. Rules that say the same as
    /// before keep their counters and times.
    ///
    /// # Errors
    /// One of them is refused; then all is as before.
    pub fn reload(&mut self, rules: Vec<Rule>) -> Result<Reloaded, RuleRefused> {
        let before = self.from_file.clone();
        let earlier = before.clone();
        let outcome = self.transaction(|control| {
            let mut done = Reloaded::default();
            let wanted: HashSet<_> =
                rules.iter().map(|r| (r.table, r.priority, r.matching)).collect();
            for (table, priority, matching) in before {
                if wanted.contains(&(table, priority, matching)) {
                    continue;
                }
                let which = Filter {
                    table: Some(table),
                    priority: Some(priority),
                    matching,
                    ..Filter::default()
                };
                done.removed += control.delete(&which);
            }
            control.from_file = wanted.into_iter().collect();
            for rule in rules {
                match control.tables.entry(rule.table, rule.priority, &rule.matching) {
                    Some(entry) if entry.rule == rule => {
                        done.kept += 1;
                        continue;
                    }
                    Some(_) => done.changed += 1,
                    None => done.added += 1,
                }
                control.add(rule)?;
            }
            Ok(done)
        });
        match &outcome {
            Ok(_) => {
                self.totals.reloads += 1;
                self.follow_fail_mode();
            }
            Err(_) => self.from_file = earlier,
        }
        outcome
    }

    /// Ends the rules whose time has come.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some((entry, reason)) = self.timeouts.next(now_ms, &self.tables) {
            if self.tables.remove_entry(&entry) {
                self.totals.rules_expired += 1;
                self.removed(&entry, reason);
                self.publisher.touch();
            }
        }
    }

    /// Rules that wait for their time.
    pub fn timeouts(&self) -> usize {
        self.timeouts.len()
    }

    /// Counts a controller that connected (`true`) or disconnected.
    pub fn controller_connected(&mut self, connected: bool) {
        self.connected =
            if connected { self.connected + 1 } else { self.connected.saturating_sub(1) };
        self.follow_fail_mode();
    }

    /// Controllers that are connected.
    pub fn controllers(&self) -> usize {
        self.connected
    }

    /// Follows the fail mode. Standalone without a controller: forwards as a learning switch. With
    /// controllers that are away, whatever the rules say; without any, what no rule matches.
    pub(super) fn follow_fail_mode(&mut self) {
        let wanted = self.config.fail_mode == FailMode::Standalone && self.connected == 0;
        if wanted {
            let priority = if self.config.has_controllers { u16::MAX } else { 0 };
            let rule = Rule {
                priority,
                actions: vec![Action::Normal],
                cookie: COOKIE_OWN,
                ..Rule::default()
            };
            // Somebody's own rule of the same identity says what shall happen.
            let taken = self.tables.entry(0, priority, &rule.matching).is_some();
            if !taken && self.tables.add(rule.clone(), self.publisher.now_ms()).is_ok() {
                self.publisher.touch();
            }
            self.standalone = Some(rule);
        } else if let Some(rule) = self.standalone.take() {
            let ours = self.tables.entry(0, rule.priority, &rule.matching);
            if let Some(entry) = ours.filter(|entry| entry.rule == rule).cloned() {
                self.tables.remove_entry(&entry);
                self.publisher.touch();
            }
        }
    }
}
