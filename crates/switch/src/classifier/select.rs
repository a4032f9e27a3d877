//! Selects the rules of a table that a change or a request applies to.
//!
//! Loose (OpenFlow's non-strict) selects every rule at least as specific as the filter's match. It
//! visits only subtables whose mask covers the filter's; of the one with the same mask, only the
//! list with the same key. A rule named by its whole match thus costs one hash lookup for its mask.
//! Strict selects the one rule with this match and priority. Panics: none.

use std::sync::Arc;

use super::{Classifier, NIL, RuleEntry};
use crate::ports::PORT_ANY;
use crate::rule::{Match, Rule};

/// Conditions on rules. The default selects all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Rules of this table only.
    pub table: Option<u8>,
    /// Rules at least as specific as this; with `priority`, exactly this match.
    pub matching: Match,
    /// The rule of this priority with an equal match: OpenFlow's *strict*.
    pub priority: Option<u16>,
    /// Rules that send to this port; reserved ports by OpenFlow's numbers. [`PORT_ANY`] selects any
    /// rule, even one that sends nothing.
    pub out_port: Option<u32>,
    /// Rules whose cookie agrees with this on the bits of `cookie_mask`.
    pub cookie: u64,
    pub cookie_mask: u64,
}

impl Filter {
    /// Returns the filter for the one rule with the identity of `rule`.
    pub fn strict(rule: &Rule) -> Filter {
        Filter {
            table: Some(rule.table),
            matching: rule.matching,
            priority: Some(rule.priority),
            ..Filter::default()
        }
    }

    /// Returns whether this filter selects the rule.
    pub fn selects(&self, rule: &Rule) -> bool {
        let identity = match self.priority {
            Some(priority) => {
                rule.priority == priority && rule.matching == self.matching.canonical()
            }
            None => self.matching.covers(&rule.matching),
        };
        identity && self.table.is_none_or(|table| table == rule.table) && self.allows(rule)
    }

    /// Checks the conditions other than table, priority and match.
    fn allows(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && self
                .out_port
                .is_none_or(|port| port == PORT_ANY || rule.out_ports().any(|p| p == port))
    }

    /// Returns whether the filter selects every rule of its tables.
    pub(crate) fn takes_all(&self) -> bool {
        self.priority.is_none()
            && self.matching.mask.is_zero()
            && self.cookie_mask == 0
            && self.out_port.is_none_or(|port| port == PORT_ANY)
    }
}

impl Classifier {
    /// Returns the rules that `filter` selects, in insertion order; ignores its table.
    pub(crate) fn select(&self, filter: &Filter) -> Vec<Arc<RuleEntry>> {
        let matching = filter.matching.canonical();
        if let Some(priority) = filter.priority {
            let found = self.get(priority, &matching).filter(|entry| filter.allows(&entry.rule));
            return found.cloned().into_iter().collect();
        }
        let (mut found, all) = (Vec::new(), filter.takes_all());
        let mut take = |mut at: u32| {
            while at != NIL {
                let entry = self.entry(at);
                if all || matching.covers(&entry.rule.matching) && filter.allows(&entry.rule) {
                    found.push(Arc::clone(entry));
                }
                at = self.next(at);
            }
        };
        for (mask, &index) in self.by_mask.iter() {
            let subtable = self.subtable(index);
            if *mask == matching.mask {
                subtable.head(&matching.key, &self.rules).into_iter().for_each(&mut take);
            } else if matching.mask.and_not(mask).is_zero() {
                subtable.heads().for_each(&mut take);
            }
        }
        // Entries lie apart: each is looked at once.
        found.sort_by_cached_key(|entry| entry.seq);
        found
    }

    /// Returns a rule of the same priority and another match that some packet of `rule` could match
    /// too.
    pub(crate) fn overlap(&self, rule: &Rule) -> Option<&Arc<RuleEntry>> {
        let matching = rule.matching.canonical();
        let subtables = self.subtables.iter().flatten();
        subtables.filter(|subtable| subtable.has_priority(rule.priority)).find_map(|subtable| {
            let mut lists = subtable.heads();
            lists.find_map(|mut at| {
                while at != NIL {
                    let entry = self.entry(at);
                    let other = &entry.rule;
                    if other.priority == rule.priority
                        && other.matching != matching
                        && other.matching.overlaps(&matching)
                    {
                        return Some(entry);
                    }
                    at = self.next(at);
                }
                None
            })
        })
    }
}
