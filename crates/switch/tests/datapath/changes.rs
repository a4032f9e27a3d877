//! Rules and ports that change under a running datapath, against the linear scan: what happens to
//! each packet, byte by byte, and what each rule and table has counted, to the packet.
//!
//! A separate control plane holds the tables, changes them as OpenFlow's messages say and publishes
//! clones. Nothing is revalidated at once, so every kind of stale megaflow occurs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{Packet, packet, packet_out, rule, rules};
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Frame, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::oracle::{Around, Lookups, Oracle, Verdict};
use overbank_switch::ports::{PORT_CONTROLLER, SwitchPort};
use overbank_switch::rule::{Action, Match, Rule, RuleFlags};
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket};
use overbank_switch::tables::{Change, Filter, RuleError, Tables};
use overbank_wire::FlowKey;
use proptest::prelude::*;

/// What the datapath did with each frame.
struct Collect(Vec<Verdict>);

impl Sink for Collect {
    fn output(&mut self, index: usize, port: u32, frame: &[u8], _edited: bool) {
        self.0[index].outputs.push((port, frame.to_vec()));
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        assert!(self.0[index].drop.replace(reason).is_none(), "dropped once");
    }

    fn controller(
        &mut self,
        index: usize,
        packet: &ControllerPacket<'_>,
    ) -> Result<(), DropReason> {
        let takes = crate::common::takes(packet);
        self.0[index].controller.extend(takes.then(|| packet.into()));
        if takes { Ok(()) } else { Err(DropReason::ControllerQueueFull) }
    }

    fn normal(&mut self, _index: usize, packet: &NormalPacket) -> Normal {
        crate::common::normal(packet)
    }
}

/// Which rules a change selects: an existing rule, the bits of its match to keep, and conditions.
#[derive(Clone, Debug)]
struct Aim {
    rule: usize,
    /// Bits of the rule's match to keep; all of them half of the time.
    keep: Option<[u64; 14]>,
    strict: bool,
    any_table: bool,
    out_port: Option<u32>,
    cookie_mask: u64,
}

impl Aim {
    fn filter(&self, rules: &[Rule]) -> Filter {
        let Some(rule) = rules.get(self.rule % rules.len().max(1)) else {
            return Filter::default();
        };
        let mut matching = rule.matching.canonical();
        if let Some(keep) = &self.keep {
            let words = matching.mask.words_mut().iter_mut().zip(keep);
            words.for_each(|(word, keep)| *word &= keep);
        }
        Filter {
            table: (!self.any_table).then_some(rule.table),
            matching,
            priority: self.strict.then_some(rule.priority),
            out_port: self.out_port,
            cookie: rule.cookie,
            cookie_mask: self.cookie_mask,
        }
    }
}

/// The naive twin of `Tables::select`: bit by bit.
fn selected(filter: &Filter, rules: &[Rule]) -> Vec<Rule> {
    let bits = |key: &FlowKey| -> Vec<bool> {
        key.words().iter().flat_map(|w| (0..64).map(move |bit| w >> bit & 1 == 1)).collect()
    };
    let (want, want_mask) = (bits(&filter.matching.key), bits(&filter.matching.mask));
    let selects = |rule: &&Rule| {
        let (have, have_mask) = (bits(&rule.matching.key), bits(&rule.matching.mask));
        let as_specific = (0..want.len())
            .all(|bit| !want_mask[bit] || (have_mask[bit] && want[bit] == have[bit]));
        let equal = as_specific && want_mask == have_mask;
        let sends = |port: u32| {
            let actions = rule.actions.iter().chain(&rule.write_actions);
            actions.into_iter().any(|action| match *action {
                Action::Output(p) | Action::OutputAsked { port: p, .. } => p == port,
                Action::Controller { .. } => port == PORT_CONTROLLER,
                _ => false,
            })
        };
        (match filter.priority {
            Some(priority) => equal && rule.priority == priority,
            None => as_specific,
        }) && filter.table.is_none_or(|table| rule.table == table)
            && filter.out_port.is_none_or(sends)
            && rule.cookie & filter.cookie_mask == filter.cookie & filter.cookie_mask
    };
    rules.iter().filter(selects).cloned().collect()
}

/// Returns whether a packet exists that two rules match and that need different verdicts.
fn overlap(a: &Rule, b: &Rule) -> bool {
    let words = |of: fn(&Rule) -> &FlowKey| [a, b].map(|rule| *of(rule).words());
    let (keys, masks) = (words(|r| &r.matching.key), words(|r| &r.matching.mask));
    let meet = (0..14).all(|w| (keys[0][w] ^ keys[1][w]) & masks[0][w] & masks[1][w] == 0);
    a.table == b.table
        && a.priority == b.priority
        && meet
        && a.matching.canonical() != b.matching.canonical()
}

#[derive(Clone, Debug)]
enum Step {
    Burst(Vec<Packet>),
    PacketOut(Packet, bool, Vec<Action>),
    Add(Box<Rule>),
    Modify(Aim, Box<Rule>, bool),
    Delete(Aim),
    Ports(Vec<SwitchPort>),
    Sweep(usize),
    Flush,
}

fn aim() -> impl Strategy<Value = Aim> {
    let keep = prop_oneof![Just(None), any::<[u64; 14]>().prop_map(Some), Just(Some([0; 14]))];
    let out_port = prop_oneof![4 => Just(None), 1 => (1u32..=5).prop_map(Some), 1 => Just(Some(PORT_CONTROLLER))];
    let cookie_mask = prop_oneof![3 => Just(0), 1 => Just(u64::MAX), 1 => Just(3)];
    (any::<usize>(), keep, any::<bool>(), any::<bool>(), out_port, cookie_mask).prop_map(
        |(rule, keep, strict, any_table, out_port, cookie_mask)| Aim {
            rule,
            keep,
            strict,
            any_table,
            out_port,
            cookie_mask,
        },
    )
}

fn ports() -> impl Strategy<Value = Vec<SwitchPort>> {
    let port = |number| {
        prop::option::weighted(0.8, any::<bool>())
            .prop_map(move |flood| flood.map(|flood| SwitchPort { number, flood }))
    };
    (port(1), port(2), port(3), port(5))
        .prop_map(|(a, b, c, d)| [a, b, c, d].into_iter().flatten().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let flagged = (rule(), 0..8u16)
        .prop_map(|(rule, flags)| Box::new(Rule { flags: RuleFlags::from_bits(flags), ..rule }));
    prop_oneof![
        8 => prop::collection::vec(packet(), 1..40).prop_map(Step::Burst),
        2 => (packet(), any::<bool>(), packet_out())
            .prop_map(|(packet, own, actions)| Step::PacketOut(packet, own, actions)),
        2 => flagged.prop_map(Step::Add),
        2 => (aim(), rule(), any::<bool>())
            .prop_map(|(aim, rule, reset)| Step::Modify(aim, Box::new(rule), reset)),
        1 => aim().prop_map(Step::Delete),
        1 => ports().prop_map(Step::Ports),
        1 => (0..20usize).prop_map(Step::Sweep),
        1 => Just(Step::Flush),
    ]
}

type Identity = (u8, u16, Match);

fn identity(rule: &Rule) -> Identity {
    (rule.table, rule.priority, rule.matching.canonical())
}

/// The expected counters of rules and tables.
#[derive(Default)]
struct Account {
    /// Packets, bytes, last use where it is known.
    rules: HashMap<Identity, (u64, u64, Option<u64>)>,
    /// Lookups, matched.
    tables: HashMap<u8, (u64, u64)>,
}

impl Account {
    fn credit(&mut self, oracle: &Oracle, lookups: &Lookups, bytes: usize, now_ms: u64) {
        for (table, found) in lookups {
            let counts = self.tables.entry(*table).or_default();
            counts.0 += 1;
            let Some(at) = found else { continue };
            counts.1 += 1;
            let rule = self.rules.entry(identity(&oracle.rules()[*at])).or_default();
            *rule = (rule.0 + 1, rule.1 + bytes as u64, rule.2.map(|_| now_ms));
        }
    }

    fn check(&self, tables: &Tables) {
        assert_eq!(tables.entries().count(), self.rules.len());
        for entry in tables.entries() {
            let (packets, bytes, used_ms) = self.rules[&identity(&entry.rule)];
            let stats = &entry.stats;
            assert_eq!((stats.packets(), stats.bytes()), (packets, bytes), "{}", entry.rule);
            if let Some(used_ms) = used_ms {
                assert_eq!(stats.last_used_ms(), used_ms, "{}", entry.rule);
            }
        }
        for table in 0..=254 {
            let stats = tables.table_stats(table).expect("there is such a table");
            let wanted = self.tables.get(&table).copied().unwrap_or_default();
            assert_eq!((stats.lookups(), stats.matched()), wanted, "table {table}");
        }
    }
}

fn design() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["none", "set-4", "cuckoo-2-4", "blp-2-4+pblru", "blp-2-16"])
}

/// Control plane, datapath and their twins.
struct Bench {
    tables: Tables,
    datapath: Datapath,
    oracle: Oracle,
    account: Account,
    ports: Vec<SwitchPort>,
    now_ms: u64,
}

impl Bench {
    fn new(design: &str, megaflows: usize, rules: Vec<Rule>) -> Bench {
        let cache = (design != "none").then(|| CacheConfig {
            design: design.parse().expect("a known design"),
            entries: 64,
            isa: None,
        });
        let ports = crate::common::PORTS.to_vec();
        let config = Config { cache, megaflows, ports: ports.clone(), seed: 3 };
        let oracle = Oracle::new(rules.clone());
        let tables = Tables::new(rules).expect("few rules");
        let rules = oracle.rules().iter().map(|r| (identity(r), (0, 0, Some(0)))).collect();
        Bench {
            datapath: Datapath::new(&config, tables.clone()).expect("sizes are right"),
            tables,
            oracle,
            account: Account { rules, tables: HashMap::new() },
            ports,
            // Beyond 32 bits of milliseconds.
            now_ms: (1 << 32) - 5_000,
        }
    }

    fn around(ports: &[SwitchPort]) -> Around<'_> {
        Around { ports, takes: &crate::common::takes, normal: &crate::common::normal }
    }

    fn publish(&mut self) {
        let old = self.datapath.set_tables(Arc::new(self.tables.clone()));
        drop(old);
    }

    fn burst(&mut self, packets: &[Packet]) {
        let bytes: Vec<Vec<u8>> = packets.iter().map(Packet::frame).collect();
        let frames: Vec<Frame<'_>> = packets
            .iter()
            .zip(&bytes)
            .map(|(p, bytes)| Frame { bytes, in_port: p.in_port() })
            .collect();
        let mut collect = Collect(vec![Verdict::default(); frames.len()]);
        self.datapath.process_mixed(&frames, self.now_ms, &mut collect);
        for (frame, got) in frames.iter().zip(&collect.0) {
            let around = Bench::around(&self.ports);
            let (wanted, lookups) = self.oracle.process_in(frame.bytes, frame.in_port, &around);
            assert_eq!(got, &wanted);
            self.account.credit(&self.oracle, &lookups, frame.bytes.len(), self.now_ms);
        }
    }

    fn packet_out(&mut self, packet: &Packet, own: bool, actions: &[Action]) {
        let bytes = packet.frame();
        let in_port = if own { PORT_CONTROLLER } else { packet.in_port() };
        let frame = Frame { bytes: &bytes, in_port };
        let mut collect = Collect(vec![Verdict::default()]);
        self.datapath.packet_out(frame, actions, self.now_ms, &mut collect);
        let around = Bench::around(&self.ports);
        let (wanted, lookups) = self.oracle.packet_out(&bytes, in_port, actions, &around);
        assert_eq!(collect.0[0], wanted, "{actions:?}");
        self.account.credit(&self.oracle, &lookups, bytes.len(), self.now_ms);
    }

    fn add(&mut self, rule: Rule) {
        let old = self.oracle.rules().iter().any(|r| identity(r) == identity(&rule));
        let overlaps = self.oracle.rules().iter().any(|other| overlap(&rule, other));
        assert_eq!(self.tables.overlap(&rule).is_some(), overlaps);
        let version = self.tables.version();
        match self.tables.add(rule.clone(), self.now_ms) {
            Err(error) => {
                assert_eq!(error, RuleError::Overlap);
                assert!(rule.flags.check_overlap && !old && overlaps);
                assert_eq!(self.tables.version(), version);
                return;
            }
            Ok(added) => {
                assert!(!rule.flags.check_overlap || old || !overlaps);
                assert_eq!(added.replaced.is_some(), old);
                assert_eq!(added.entry.created_ms, self.now_ms);
            }
        }
        let counts = self.account.rules.entry(identity(&rule)).or_default();
        if rule.flags.reset_counts {
            *counts = (0, 0, None);
        }
        counts.2 = Some(self.now_ms);
        self.oracle.insert(rule);
        self.publish();
    }

    fn modify(&mut self, filter: &Filter, with: &Rule, reset_counts: bool) {
        let change = Change {
            actions: with.actions.clone(),
            clear_actions: with.clear_actions,
            write_actions: with.write_actions.clone(),
            cookie: with.cookie.is_multiple_of(2).then_some(with.cookie),
            reset_counts,
        };
        let found = selected(filter, self.oracle.rules());
        let changed: Vec<Rule> = found
            .iter()
            .map(|old| Rule {
                actions: change.actions.clone(),
                clear_actions: change.clear_actions,
                write_actions: change.write_actions.clone(),
                cookie: change.cookie.unwrap_or(old.cookie),
                ..old.clone()
            })
            .collect();
        let wrong: Vec<RuleError> =
            changed.iter().filter_map(|rule| RuleError::check(rule).err()).collect();
        let version = self.tables.version();
        match self.tables.modify(filter, &change, self.now_ms) {
            Err(error) => {
                assert!(wrong.contains(&error), "{error} is not among {wrong:?}");
                assert_eq!(self.tables.version(), version);
                return;
            }
            Ok(entries) => {
                assert!(wrong.is_empty());
                assert_eq!(entries.len(), found.len());
            }
        }
        for rule in changed {
            if reset_counts {
                self.account.rules.insert(identity(&rule), (0, 0, None));
            }
            self.oracle.insert(rule);
        }
        self.publish();
    }

    fn delete(&mut self, filter: &Filter) {
        let mut wanted: Vec<String> = Vec::new();
        for rule in selected(filter, self.oracle.rules()) {
            assert!(self.oracle.remove(rule.table, rule.priority, &rule.matching));
            self.account.rules.remove(&identity(&rule));
            wanted.push(rule.to_string());
        }
        let counted = self.tables.select(filter).len();
        let gone = self.tables.delete(filter);
        assert_eq!(counted, gone.len());
        let mut gone: Vec<String> = gone.iter().map(|entry| entry.rule.to_string()).collect();
        gone.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(gone, wanted);
        assert!(self.tables.select(filter).is_empty());
        self.publish();
    }

    fn check_counts(&mut self) {
        self.datapath.flush_stats(self.now_ms);
        self.account.check(&self.tables);
        assert_eq!(self.tables.len(), self.oracle.rules().len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn each_packet_meets_the_rules_and_ports_of_its_time_and_is_counted_by_them(
        design in design(),
        megaflows in prop::sample::select(vec![1usize, 4, 1000]),
        start in rules(12),
        pool in prop::collection::vec(packet(), 1..10),
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let mut bench = Bench::new(design, megaflows, start);
        for step in steps {
            bench.now_ms += 700;
            match step {
                Step::Burst(packets) => {
                    // Most packets from a small pool, so that flows come again.
                    let packets: Vec<Packet> = packets
                        .iter()
                        .enumerate()
                        .flat_map(|(i, p)| [*p, pool[i % pool.len()]])
                        .collect();
                    bench.burst(&packets);
                }
                Step::PacketOut(packet, own, actions) => bench.packet_out(&packet, own, &actions),
                Step::Add(rule) => bench.add(*rule),
                Step::Modify(aim, with, reset) => {
                    bench.modify(&aim.filter(bench.oracle.rules()), &with, reset);
                }
                Step::Delete(aim) => bench.delete(&aim.filter(bench.oracle.rules())),
                Step::Ports(ports) => {
                    bench.datapath.set_ports(&ports);
                    bench.ports = ports;
                }
                Step::Sweep(budget) => {
                    let before = bench.datapath.megaflows().len();
                    let gone = bench.datapath.sweep(bench.now_ms, 3_000, budget);
                    prop_assert!(gone <= budget);
                    prop_assert_eq!(bench.datapath.megaflows().len(), before - gone);
                }
                Step::Flush => bench.check_counts(),
            }
            prop_assert!(bench.datapath.megaflows().len() <= megaflows);
            prop_assert!(bench.datapath.programs() <= bench.datapath.megaflows().len());
        }
        bench.check_counts();
    }
}
