//! Which rules of a table a change or a question is about.
//!
//! Loose (OpenFlow's non-strict): every rule that is at least as specific as the filter's match.
//! Only subtables whose mask covers the filter's are looked at, and of one with the same mask only
//! the list with the same key: naming rules by their whole match costs a hash lookup for that mask.
//! Strict: the one rule with this match and priority. Panics: none.

use std::sync::Arc;

use super::{Classifier, NIL, RuleEntry};
use crate::ports::PORT_ANY;
use crate::rule::{Match, Rule};

/// Which rules. The default is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of one table only.
    pub table: Option<u8>,
    /// Those that match nothing beyond this; with `priority`, exactly this.
    pub matching: Match,
    /// The one of this priority, whose match is equal: OpenFlow's *strict*.
    pub priority: Option<u16>,
    /// Those that send to this port; reserved ports by OpenFlow's numbers. [`PORT_ANY`] is any
    /// rule, also one that sends nothing.
    pub out_port: Option<u32>,
    /// With `cookie_mask`: those whose cookie agrees on these bits.
    pub cookie: u64,
    /// The bits of the cookie that count.
    pub cookie_mask: u64,
}

impl Filter {
    /// The one rule with the identity of `rule`.
    pub fn strict(rule: &Rule) -> Filter {
        Filter {
            table: Some(rule.table),
            matching: rule.matching,
            priority: Some(rule.priority),
            ..Filter::default()
        }
    }

    /// Whether it is about this rule.
    pub fn selects(&self, rule: &Rule) -> bool {
        let identity = match self.priority {
            Some(priority) => {
                rule.priority == priority && rule.matching == self.matching.canonical()
            }
            None => self.matching.covers(&rule.matching),
        };
        identity && self.table.is_none_or(|table| table == rule.table) && self.allows(rule)
    }

    /// The conditions beside table, priority and match.
    fn allows(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && self
                .out_port
                .is_none_or(|port| port == PORT_ANY || rule.out_ports().any(|p| p == port))
    }

    /// Whether it is about every rule of every table that it is about at all.
    pub(crate) fn takes_all(&self) -> bool {
        self.priority.is_none()
            && self.matching.mask.is_zero()
            && self.cookie_mask == 0
            && self.out_port.is_none_or(|port| port == PORT_ANY)
    }
}

impl Classifier {
    /// The rules that `filter` is about, in the order of insertion; its table is not looked at.
    pub(crate) fn select(&self, filter: &Filter) -> Vec<Arc<RuleEntry>> {
        let matching = filter.matching.canonical();
        if let Some(priority) = filter.priority {
            let found = self.get(priority, &matching).filter(|entry| filter.allows(&entry.rule));
            return found.cloned().into_iter().collect();
        }
        let mut found = Vec::new();
        let mut take = |mut at: u32| {
            while at != NIL {
                let entry = self.entry(at);
                if matching.covers(&entry.rule.matching) && filter.allows(&entry.rule) {
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
        found.sort_unstable_by_key(|entry| entry.seq);
        found
    }

    /// A rule of the same priority that some packet of `rule` could match too, of another match.
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
