//! Tier 3 against the naive twin: classifier and linear scan, translation and oracle.

mod common;

use std::collections::HashSet;

use common::{PORTS, Packet, packet, rule, rules};
use overbank_switch::classifier::Classifier;
use overbank_switch::drop::DropReason;
use overbank_switch::exec;
use overbank_switch::oracle::{Oracle, Verdict};
use overbank_switch::rule::{Action, Match, Rule};
use overbank_switch::tables::{RULES_MAX, RuleError};
use overbank_switch::translate::{LOOKUPS_MAX, Op, Tables, Translation, translate};
use overbank_wire::{Field, FlowKey, FrameBuf, extract};
use proptest::prelude::*;

/// Runs a translation on a packet.
fn run(translation: &Translation, packet: &Packet) -> Verdict {
    let (frame, mut key) = (packet.frame(), FlowKey::default());
    let offsets = extract(&frame, packet.in_port(), &mut key).unwrap();
    let mut outputs = Vec::new();
    let drop = exec::run(
        &translation.program,
        translation.drop,
        &frame,
        offsets,
        &mut FrameBuf::new(),
        &mut |port, bytes, edited| {
            assert!(edited || bytes == frame);
            outputs.push((port, bytes.to_vec()));
        },
    );
    Verdict { outputs, drop }
}

/// `key` with the bits of `noise` where `mask` does not count.
fn blur(key: &FlowKey, mask: &FlowKey, noise: &[u64; 14]) -> FlowKey {
    let mut out = key.masked(mask);
    let free = out.words_mut().iter_mut().zip(mask.words()).zip(noise);
    free.for_each(|((word, mask), noise)| *word |= noise & !mask);
    out
}

fn same_rule(found: Option<&Rule>, wanted: Option<&Rule>) -> bool {
    match (found, wanted) {
        (Some(found), Some(wanted)) => found.cookie == wanted.cookie && found == wanted,
        (found, wanted) => found.is_none() && wanted.is_none(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// The classifier finds what the scan finds, for any key with the same bits as well; also after
    /// rules have come and gone.
    #[test]
    fn classifier_agrees_with_the_scan(
        start in rules(30),
        changes in prop::collection::vec((rule(), any::<prop::sample::Index>(), any::<bool>()), 0..30),
        packets in prop::collection::vec((packet(), any::<[u64; 14]>()), 1..20),
    ) {
        let mut tables = Tables::new(start.clone()).unwrap();
        let mut oracle = Oracle::new(start);
        for (rule, index, add) in changes {
            let version = tables.version();
            if add || oracle.rules().is_empty() {
                oracle.insert(rule.clone());
                tables.insert(rule).unwrap();
            } else {
                let gone = index.get(oracle.rules()).clone();
                prop_assert!(oracle.remove(gone.table, gone.priority, &gone.matching));
                let removed = tables.remove(gone.table, gone.priority, &gone.matching);
                prop_assert_eq!(removed, Some(gone.clone()));
                prop_assert!(tables.get(gone.table, gone.priority, &gone.matching).is_none());
            }
            prop_assert!(tables.version() > version);
        }
        prop_assert_eq!(tables.len(), oracle.rules().len());
        let mut in_tables: Vec<&Rule> = oracle.rules().iter().collect();
        in_tables.sort_by_key(|rule| rule.table);
        prop_assert_eq!(tables.rules(), in_tables);
        let rebuilt = Tables::new(oracle.rules().to_vec()).unwrap();
        for (packet, noise) in packets {
            let key = packet.key();
            for table in 0..3 {
                for tables in [&tables, &rebuilt] {
                    let mut mask = FlowKey::default();
                    let find = |key: &FlowKey, mask: &mut FlowKey| {
                        tables.table(table).and_then(|t| t.lookup(key, mask)).map(|e| &e.rule)
                    };
                    let found = find(&key, &mut mask);
                    prop_assert!(same_rule(found, oracle.lookup(table, &key)));
                    for twisted in [[0; 14], [u64::MAX; 14], noise] {
                        let other = blur(&key, &mask, &twisted);
                        let again = find(&other, &mut FlowKey::default());
                        prop_assert!(same_rule(again, oracle.lookup(table, &other)));
                        prop_assert!(same_rule(again, found));
                    }
                }
            }
        }
    }

    /// A translation does to its packet, and to every packet that agrees with it on the mask, what
    /// the oracle does, byte by byte.
    #[test]
    fn translation_agrees_with_the_oracle(
        rules in rules(16),
        packets in prop::collection::vec(packet(), 2..12),
        mixes in prop::collection::vec((any::<u32>(), any::<u32>()), 12),
        noise in any::<[u64; 14]>(),
    ) {
        let tables = Tables::new(rules.clone()).unwrap();
        let oracle = Oracle::new(rules);
        for (i, p) in packets.iter().enumerate() {
            let key = p.key();
            let translation = translate(&tables, &key, &PORTS);
            prop_assert_eq!(translation.drop.is_some(), !has_output(&translation.program));
            let wanted = oracle.process(&p.frame(), p.in_port(), &PORTS);
            prop_assert_eq!(run(&translation, p), wanted);
            let other = &packets[(i + 1) % packets.len()];
            // Each single choice of the other packet, and a few together.
            let single = (0..common::CHOICES).map(|bit| 1 << bit);
            for which in single.chain(mixes.iter().map(|(a, b)| a & b)) {
                let q = p.mixed(other, which);
                if q.key().matches(&key, &translation.mask) {
                    let wanted = oracle.process(&q.frame(), q.in_port(), &PORTS);
                    prop_assert_eq!(run(&translation, &q), wanted, "{:?} like {:?}", q, p);
                }
            }
            // The translation of any such key is as good, although its mask may differ, and its
            // program where the TTL is known.
            let blurred = blur(&key, &translation.mask, &noise);
            let again = translate(&tables, &blurred, &PORTS);
            prop_assert_eq!(run(&again, p), run(&translation, p));
            if translation.mask.nw_ttl == 0 {
                prop_assert_eq!(&again.program, &translation.program);
                prop_assert_eq!(again.drop, translation.drop);
            }
        }
    }
}

fn has_output(program: &[Op]) -> bool {
    program.iter().any(|op| matches!(op, Op::Output(_)))
}

/// A UDP packet to an address.
fn udp_to(nw_dst: u32) -> FlowKey {
    FlowKey { in_port: 1, dl_type: 0x0800, nw_proto: 17, nw_dst, nw_ttl: 64, ..Default::default() }
}

fn udp() -> Match {
    Match::default().with(Field::DlType, 0x0800, 0xffff).with(Field::NwProto, 17, 0xff)
}

fn rule_of(table: u8, priority: u16, matching: Match, actions: &[Action]) -> Rule {
    Rule { table, priority, matching, actions: actions.to_vec(), cookie: 0 }
}

/// The rules that Open vSwitch is measured with: class c is an address of c ones and a zero.
#[test]
fn twenty_classes_make_twenty_masks() {
    let rules = (0..20).map(|c: u32| {
        let mask = u32::MAX << (31 - c);
        let base = if c == 0 { 0 } else { u32::MAX << (32 - c) };
        let matching = udp().with(Field::NwDst, base.into(), mask.into());
        rule_of(0, 100, matching, &[Action::Output(2)])
    });
    let tables = Tables::new(rules.collect()).unwrap();
    let mut masks = HashSet::new();
    let mut random = 0x1234_5678_9abc_def1u64;
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Few leading ones are as likely as many.
        let class = (random >> 58) as u32 % 20;
        let nw_dst = (random >> 16) as u32 >> (class + 1) | !(u32::MAX >> class);
        let translation = translate(&tables, &udp_to(nw_dst), &PORTS);
        assert_eq!(*translation.program, [Op::Output(2)]);
        assert_eq!(translation.mask.nw_dst, u32::MAX << (31 - class), "class {class}");
        masks.insert(translation.mask);
    }
    assert_eq!(masks.len(), 20);
}

/// A packet that misses a /32 rule is no reason for a /32 megaflow, nor one that misses a port.
#[test]
fn a_near_miss_looks_at_few_bits() {
    let host = udp().with(Field::NwDst, 0x0a01_0203, 0xffff_ffff).with(Field::TpDst, 53, 0xffff);
    let tables = Tables::new(vec![
        rule_of(0, 10, host, &[Action::Output(2)]),
        rule_of(0, 1, Match::default(), &[Action::Output(3)]),
    ])
    .unwrap();
    let mask = |key: &FlowKey| translate(&tables, key, &PORTS).mask;
    assert_eq!(mask(&udp_to(0x8000_0000)).nw_dst, 0x8000_0000);
    assert_eq!(mask(&udp_to(0x0a01_0202)).nw_dst, 0xffff_ffff);
    assert_eq!(mask(&udp_to(0x0a81_0203)).nw_dst, 0xff80_0000);
    // Another protocol fails in the first stage: no address at all.
    let tcp = FlowKey { nw_proto: 6, ..udp_to(0x0a01_0203) };
    assert_eq!(mask(&tcp).nw_dst, 0);
    // The right host, but another port: 53 is 110101, so 32768 differs in the first bit.
    let other_port = FlowKey { tp_dst: 0x8000, ..udp_to(0x0a01_0203) };
    assert_eq!(mask(&other_port).tp_dst, 0x8000);
    assert_eq!(mask(&udp_to(0x8000_0000)).tp_dst, 0);
}

#[test]
fn equal_priorities_go_to_the_first_and_a_replacement_keeps_the_place() {
    let mut tables = Tables::new(vec![]).unwrap();
    let narrow = udp().with(Field::NwDst, 0x0a00_0000, 0xff00_0000);
    tables.insert(rule_of(0, 5, udp(), &[Action::Output(2)])).unwrap();
    tables.insert(rule_of(0, 5, narrow, &[Action::Output(3)])).unwrap();
    let program = |tables: &Tables| translate(tables, &udp_to(0x0a00_0001), &PORTS).program;
    assert_eq!(*program(&tables), [Op::Output(2)]);
    let old = tables.insert(rule_of(0, 5, udp(), &[Action::Output(5)])).unwrap();
    assert_eq!(old.unwrap().actions, [Action::Output(2)]);
    assert_eq!((tables.len(), &*program(&tables)), (2, &[Op::Output(5)][..]));
    tables.remove(0, 5, &udp()).unwrap();
    assert_eq!(*program(&tables), [Op::Output(3)]);
}

#[test]
fn a_ttl_is_looked_at_only_when_a_rule_asks() {
    let actions = [Action::DecTtl, Action::Output(2), Action::GotoTable(1)];
    let mut tables = Tables::new(vec![rule_of(0, 1, Match::default(), &actions)]).unwrap();
    let translation = translate(&tables, &udp_to(1), &PORTS);
    assert_eq!((translation.mask.nw_ttl, translation.drop), (0, None));
    assert_eq!(*translation.program, [Op::DecTtl, Op::Output(2)]);
    // One bit of the TTL after the decrement depends on the whole TTL before.
    let high = Match::default().with(Field::NwTtl, 0x80, 0x80);
    tables.insert(rule_of(1, 1, high, &[Action::Output(3)])).unwrap();
    assert_eq!(translate(&tables, &udp_to(1), &PORTS).mask.nw_ttl, 0xff);
    // What a rule wrote is known.
    let set = Action::SetField { field: Field::NwTtl, value: 1, mask: 0xff };
    let actions = [Action::Output(2), set, Action::DecTtl, Action::Output(3)];
    tables.insert(rule_of(0, 1, Match::default(), &actions)).unwrap();
    let translation = translate(&tables, &udp_to(1), &PORTS);
    assert_eq!((translation.mask.nw_ttl, &*translation.program), (0, &[Op::Output(2)][..]));
}

/// A packet that would do too much only if it survived: the TTL decides, so it is in the mask.
#[test]
fn an_expired_packet_cannot_do_too_much() {
    let again = Action::Resubmit { in_port: None, table: None };
    let actions = [Action::Output(2), Action::DecTtl, again];
    let tables = Tables::new(vec![rule_of(0, 1, Match::default(), &actions)]).unwrap();
    let with_ttl = |nw_ttl| FlowKey { nw_ttl, ..udp_to(1) };
    let of = |nw_ttl| translate(&tables, &with_ttl(nw_ttl), &PORTS);
    assert_eq!((of(1).mask.nw_ttl, of(1).drop), (0xff, None));
    assert_eq!(of(1).program.len(), 1);
    // With 64 it goes round until the TTL is used up; with 255 it goes too deep.
    assert_eq!(of(64).drop, None);
    assert_eq!((of(255).mask.nw_ttl, of(255).drop), (0xff, Some(DropReason::TooManyResubmits)));
    assert!(of(255).program.is_empty());
}

#[test]
fn branching_resubmits_end() {
    let again = Action::Resubmit { in_port: None, table: Some(1) };
    let mut rules = vec![rule_of(0, 1, Match::default(), &[again, again])];
    // Two lookups at each of 40 levels would be 2^40.
    for table in 1..40 {
        let next = Action::Resubmit { in_port: None, table: Some(table + 1) };
        rules.push(rule_of(table, 1, Match::default(), &[Action::Output(2), next, next]));
    }
    let tables = Tables::new(rules.clone()).unwrap();
    let translation = translate(&tables, &udp_to(1), &PORTS);
    assert_eq!(translation.drop, Some(DropReason::TooManyResubmits), "after {LOOKUPS_MAX} lookups");
    assert!(translation.program.is_empty());
}

#[test]
fn rules_that_are_refused() {
    let goto = rule_of(3, 1, Match::default(), &[Action::GotoTable(3)]);
    assert_eq!(Tables::new(vec![goto]).unwrap_err(), RuleError::GotoNotLater { from: 3, to: 3 });
    let table = rule_of(255, 1, Match::default(), &[]);
    assert_eq!(Tables::new(vec![table]).unwrap_err(), RuleError::NoSuchTable(255));
    let long = rule_of(0, 1, Match::default(), &[Action::DecTtl; 1025]);
    assert_eq!(Tables::new(vec![long]).unwrap_err(), RuleError::TooManyActions(1025));
}

/// As many rules as there may be build in seconds, and one more is refused.
#[test]
fn a_million_rules() {
    let rules = (0..RULES_MAX as u32).map(|i| {
        let address = i.wrapping_mul(0x9e37_79b1);
        let len = 20 + i % 13;
        let matching = udp().with(Field::NwDst, address.into(), (u32::MAX << (32 - len)).into());
        // The priority makes rules with the same prefix distinct.
        rule_of(0, (i / 20_000) as u16 * 64 + len as u16, matching, &[])
    });
    let mut tables = Tables::new(rules.collect()).unwrap();
    let mut next = 0;
    while tables.len() < RULES_MAX {
        let matching = udp().with(Field::NwSrc, next, u32::MAX.into());
        tables.insert(rule_of(1, 1, matching, &[])).unwrap();
        next += 1;
    }
    let one_more = rule_of(2, 1, Match::default(), &[]);
    assert_eq!(tables.insert(one_more).unwrap_err(), RuleError::TooManyRules);
    let replacement = tables.rules()[7].clone();
    assert!(tables.insert(replacement).unwrap().is_some());
    let table: &Classifier = tables.table(0).unwrap();
    assert_eq!(table.subtables(), 13);
    assert!(table.lookup(&udp_to(0), &mut FlowKey::default()).is_some());
}
