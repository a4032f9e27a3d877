//! Tier 3 against the naive twin: classifier and linear scan, translation and oracle.

use std::collections::HashSet;

use crate::common::{Packet, around, packet, ports, rule, rules, view};
use overbank_switch::classifier::Classifier;
use overbank_switch::drop::DropReason;
use overbank_switch::exec::{self, Subject};
use overbank_switch::oracle::{Oracle, Verdict};
use overbank_switch::rule::{Action, Match, Rule};
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket, Sink};
use overbank_switch::tables::{RULES_MAX, RuleError};
use overbank_switch::translate::{
    DEPTH_MAX, LOOKUPS_MAX, Op, STEPS_MAX, Tables, Translation, translate,
};
use overbank_switch::view::{Fragments, View};
use overbank_wire::extract::extract_within;
use overbank_wire::{Field, FlowKey, FrameBuf, extract};
use proptest::prelude::*;

/// Runs a translation on a packet.
fn run(translation: &Translation, packet: &Packet) -> Verdict {
    run_frame(translation, &packet.frame(), packet.in_port())
}

fn run_frame(translation: &Translation, frame: &[u8], in_port: u32) -> Verdict {
    run_within(2, translation, frame, in_port)
}

fn run_within(limit: u8, translation: &Translation, frame: &[u8], in_port: u32) -> Verdict {
    let mut key = FlowKey::default();
    let offsets = extract_within(frame, in_port, limit, &mut key).unwrap();
    let mut collect = Collect { frame, verdict: Verdict::default() };
    let ports = ports();
    let subject = Subject { index: 0, frame, offsets, in_port, ports: &ports };
    let (program, drop) = (&translation.program, translation.drop);
    let drop = exec::run(program, drop, &subject, &mut FrameBuf::new(), &mut collect);
    Verdict { drop, ..collect.verdict }
}

struct Collect<'a> {
    frame: &'a [u8],
    verdict: Verdict,
}

impl Sink for Collect<'_> {
    fn output(&mut self, _index: usize, port: u32, bytes: &[u8], edited: bool) {
        assert!(edited || bytes == self.frame);
        self.verdict.outputs.push((port, bytes.to_vec()));
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {
        unreachable!("the caller drops");
    }

    fn controller(
        &mut self,
        _index: usize,
        packet: &ControllerPacket<'_>,
    ) -> Result<(), DropReason> {
        let takes = crate::common::takes(packet);
        self.verdict.controller.extend(takes.then(|| packet.into()));
        if takes { Ok(()) } else { Err(DropReason::ControllerQueueFull) }
    }

    fn normal(&mut self, _index: usize, packet: &NormalPacket) -> Normal {
        crate::common::normal(packet)
    }
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
        view in view(),
        packets in prop::collection::vec(packet(), 2..12),
        mixes in prop::collection::vec((any::<u32>(), any::<u32>()), 12),
        noise in any::<[u64; 14]>(),
    ) {
        let mut tables = Tables::new(rules.clone()).unwrap();
        tables.set_view(view);
        let oracle = Oracle::new(rules).with_view(view);
        let key_of = |packet: &Packet| packet.key_within(view.vlan_limit);
        let run = |translation: &Translation, p: &Packet| {
            run_within(view.vlan_limit, translation, &p.frame(), p.in_port())
        };
        for (i, p) in packets.iter().enumerate() {
            let key = key_of(p);
            let translation = translate(&tables, &key, &ports());
            prop_assert!(translation.drop.is_some() || has_output(&translation.program));
            let wanted = oracle.process_in(&p.frame(), p.in_port(), &around()).0;
            prop_assert_eq!(run(&translation, p), wanted);
            let other = &packets[(i + 1) % packets.len()];
            // Each single choice of the other packet, and a few together.
            let single = (0..crate::common::CHOICES).map(|bit| 1 << bit);
            for which in single.chain(mixes.iter().map(|(a, b)| a & b)) {
                let q = p.mixed(other, which);
                if key_of(&q).matches(&key, &translation.mask) {
                    let wanted = oracle.process_in(&q.frame(), q.in_port(), &around()).0;
                    prop_assert_eq!(run(&translation, &q), wanted, "{:?} like {:?}", q, p);
                }
            }
            // The translation of any such key is as good, although its mask may differ where it is
            // about the TTL.
            let blurred = blur(&key, &translation.mask, &noise);
            let again = translate(&tables, &blurred, &ports());
            prop_assert_eq!(run(&again, p), run(&translation, p));
            if translation.mask.nw_ttl == 0 {
                prop_assert_eq!(&again.program, &translation.program);
                prop_assert_eq!(again.drop, translation.drop);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// A megaflow may say of a TTL no more than that it is far from its end: rules full of it, and
    /// packets that differ in nothing else.
    #[test]
    fn every_ttl_is_rewritten_or_expires(rules in crate::common::ttl_rules()) {
        let tables = Tables::new(rules.clone()).unwrap();
        let oracle = Oracle::new(rules);
        let plain = Packet([0; crate::common::CHOICES]).frame();
        let packets = [0u8, 1, 2, 3, 4, 62, 63, 64, 65, 66, 127, 128, 129, 254, 255].map(|ttl| {
            let (mut frame, mut key) = (plain.clone(), FlowKey::default());
            frame[14 + 8] = ttl;
            extract(&frame, 1, &mut key).unwrap();
            assert_eq!(key.nw_ttl, ttl);
            let wanted = oracle.process_in(&frame, 1, &around()).0;
            (frame, key, wanted)
        });
        for (_, key, _) in &packets {
            let translation = translate(&tables, key, &ports());
            for (frame, other, wanted) in &packets {
                if other.matches(key, &translation.mask) {
                    prop_assert_eq!(&run_frame(&translation, frame, 1), wanted);
                }
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
    Rule { table, priority, matching, actions: actions.to_vec(), ..Rule::default() }
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
        let translation = translate(&tables, &udp_to(nw_dst), &ports());
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
    let mask = |key: &FlowKey| translate(&tables, key, &ports()).mask;
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

/// A rule that is gone leaves nothing behind that a lookup would look at.
#[test]
fn removed_rules_are_not_looked_at() {
    let host = |nw_dst: u32| udp().with(Field::NwDst, nw_dst.into(), u32::MAX.into());
    let port = |proto| {
        let matching = Match::default().with(Field::DlType, 0x0800, 0xffff);
        matching.with(Field::NwProto, proto, 0xff).with(Field::TpDst, 53, 0xffff)
    };
    let of = |matching| rule_of(0, 9, matching, &[]);
    let rules = [host(0x0a00_0001), host(0x8000_0001), port(132), port(6)];
    let mut tables = Tables::new(rules.into_iter().map(of).collect()).unwrap();
    tables.remove(0, 9, &host(0x8000_0001)).unwrap();
    tables.remove(0, 9, &port(132)).unwrap();
    assert_eq!(translate(&tables, &udp_to(0x8000_0002), &ports()).mask.nw_dst, 0x8000_0000);
    let sctp = FlowKey { nw_proto: 132, tp_dst: 53, ..udp_to(1) };
    assert_eq!(translate(&tables, &sctp, &ports()).mask.tp_dst, 0);
}

#[test]
fn equal_priorities_go_to_the_first_and_a_replacement_keeps_the_place() {
    let mut tables = Tables::new(vec![]).unwrap();
    let narrow = udp().with(Field::NwDst, 0x0a00_0000, 0xff00_0000);
    tables.insert(rule_of(0, 5, udp(), &[Action::Output(2)])).unwrap();
    tables.insert(rule_of(0, 5, narrow, &[Action::Output(3)])).unwrap();
    let program = |tables: &Tables| translate(tables, &udp_to(0x0a00_0001), &ports()).program;
    assert_eq!(*program(&tables), [Op::Output(2)]);
    let old = tables.insert(rule_of(0, 5, udp(), &[Action::Output(5)])).unwrap();
    assert_eq!(old.unwrap().actions, [Action::Output(2)]);
    assert_eq!((tables.len(), &*program(&tables)), (2, &[Op::Output(5)][..]));
    tables.remove(0, 5, &udp()).unwrap();
    assert_eq!(*program(&tables), [Op::Output(3)]);
}

#[test]
fn a_ttl_that_is_far_from_its_end_is_looked_at_coarsely() {
    let actions = [Action::DecTtl, Action::Output(2), Action::GotoTable(1)];
    let mut tables = Tables::new(vec![rule_of(0, 1, Match::default(), &actions)]).unwrap();
    let translation = translate(&tables, &udp_to(1), &ports());
    assert_eq!((translation.mask.nw_ttl, translation.drop), (0xe0, None));
    assert_eq!(*translation.program, [Op::DecTtl, Op::Output(2)]);
    let near = translate(&tables, &FlowKey { nw_ttl: 31, ..udp_to(1) }, &ports());
    assert_eq!(near.mask.nw_ttl, 0xff);
    // 32 and more survive 31 decrements and no more.
    for (decrements, mask) in [(31, 0xe0), (32, 0xff)] {
        let actions = [vec![Action::DecTtl; decrements], vec![Action::Output(2)]].concat();
        let rules = vec![rule_of(0, 1, Match::default(), &actions)];
        let far = FlowKey { nw_ttl: 32, ..udp_to(1) };
        let translation = translate(&Tables::new(rules).unwrap(), &far, &ports());
        assert_eq!((translation.mask.nw_ttl, translation.drop.is_none()), (mask, mask == 0xe0));
    }
    // One bit of the TTL after the decrement depends on the whole TTL before.
    let high = Match::default().with(Field::NwTtl, 0x80, 0x80);
    tables.insert(rule_of(1, 1, high, &[Action::Output(3)])).unwrap();
    assert_eq!(translate(&tables, &udp_to(1), &ports()).mask.nw_ttl, 0xff);
    // Part of it written: the decrement may borrow from what was written.
    let part = Action::SetField { field: Field::NwTtl, value: 0x80, mask: 0xf0 };
    let actions = [part, Action::DecTtl, Action::GotoTable(1)];
    tables.insert(rule_of(0, 1, Match::default(), &actions)).unwrap();
    assert_eq!(translate(&tables, &udp_to(1), &ports()).mask.nw_ttl, 0xff);
    // What a rule wrote is known.
    let set = Action::SetField { field: Field::NwTtl, value: 1, mask: 0xff };
    let actions = [Action::Output(2), set, Action::DecTtl, Action::Output(3)];
    tables.insert(rule_of(0, 1, Match::default(), &actions)).unwrap();
    let translation = translate(&tables, &udp_to(1), &ports());
    assert_eq!((translation.mask.nw_ttl, &*translation.program), (0, &[Op::Output(2)][..]));
}

/// A packet that would do too much only if it survived.
#[test]
fn an_expired_packet_does_not_do_too_much() {
    let again = Action::Resubmit { in_port: None, table: None };
    let actions = [Action::Output(2), Action::DecTtl, again];
    let tables = Tables::new(vec![rule_of(0, 1, Match::default(), &actions)]).unwrap();
    let with_ttl = |nw_ttl| FlowKey { nw_ttl, ..udp_to(1) };
    let of = |nw_ttl| translate(&tables, &with_ttl(nw_ttl), &ports());
    assert_eq!((of(1).mask.nw_ttl, of(1).drop), (0xff, None));
    assert_eq!(of(1).program.len(), 1);
    // With 64 it goes round until the TTL is used up; with 255 it goes too deep.
    assert_eq!(of(64).drop, None);
    assert_eq!((of(255).mask.nw_ttl, of(255).drop), (0xff, Some(DropReason::TooManyResubmits)));
    assert!(of(255).program.is_empty());
}

/// Rules without matches, one a table: what becomes of a plain packet, which oracle and program
/// must agree about.
fn outcome(tables: &[&[Action]]) -> Option<DropReason> {
    let rules: Vec<Rule> = (0..)
        .zip(tables)
        .map(|(table, actions)| rule_of(table, 1, Match::default(), actions))
        .collect();
    let packet = Packet([0; crate::common::CHOICES]);
    let tables = Tables::new(rules.clone()).unwrap();
    let verdict = run(&translate(&tables, &packet.key(), &ports()), &packet);
    let wanted = Oracle::new(rules).process_in(&packet.frame(), packet.in_port(), &around()).0;
    assert_eq!(verdict, wanted);
    verdict.drop
}

/// What Open vSwitch 3.1 does to a packet whose TTL is 1: the list with `dec_ttl` ends, and the
/// rest of its rule; the list that resubmitted to it goes on, and the action set runs.
#[test]
fn an_expired_ttl_ends_its_own_list() {
    use Action::{DecTtl, GotoTable, Output};
    let rule = |table, actions: &[Action], set: &[Action]| Rule {
        write_actions: set.to_vec(),
        ..rule_of(table, 1, Match::default(), actions)
    };
    for (rules, wanted) in [
        // table=0,actions=resubmit(,1),output:3 and table=1,actions=dec_ttl,output:2
        (
            vec![rule(0, &[resubmit(1), Output(3)], &[]), rule(1, &[DecTtl, Output(2)], &[])],
            vec![3],
        ),
        // Its own writes and its goto are left out; what was written before runs.
        (
            vec![
                rule(0, &[GotoTable(1)], &[Output(3)]),
                rule(1, &[Output(2), DecTtl, GotoTable(2)], &[Output(5)]),
                rule(2, &[Output(5)], &[]),
            ],
            vec![2, 3],
        ),
        // In the action set it comes before the output, which does not happen.
        (vec![rule(0, &[Output(2)], &[DecTtl, Output(3)])], vec![2]),
    ] {
        let mut packet = Packet([0; crate::common::CHOICES]);
        packet.0[11] = 3;
        assert_eq!(packet.key().nw_ttl, 1);
        let translation = translate(&Tables::new(rules.clone()).unwrap(), &packet.key(), &ports());
        let verdict = run(&translation, &packet);
        let went: Vec<u32> = verdict.outputs.iter().map(|(port, _)| *port).collect();
        assert_eq!(went, wanted, "{rules:?}");
        let oracle = Oracle::new(rules);
        assert_eq!(verdict, oracle.process_in(&packet.frame(), 1, &around()).0);
    }
}

/// What a rule for port 53 does to the fragments of a UDP datagram to port 53, in each mode, and
/// what a rule for port 0 does.
#[test]
fn fragments_have_the_ports_that_the_mode_says() {
    let port = |port| udp().with(Field::TpDst, port, 0xffff);
    let rules = vec![
        rule_of(0, 2, port(53), &[Action::Output(2)]),
        rule_of(0, 2, port(0), &[Action::Output(3)]),
    ];
    let of = |fragments, frag: u8| {
        let view = View { fragments, ..View::default() };
        let mut tables = Tables::new(rules.clone()).unwrap();
        tables.set_view(view);
        let mut packet = Packet([0; crate::common::CHOICES]);
        (packet.0[12], packet.0[13], packet.0[15]) = (frag, 1, 3);
        let key = packet.key();
        assert_eq!((key.nw_proto, key.nw_frag), (17, [0, 1, 3][usize::from(frag)]));
        let translation = translate(&tables, &key, &ports());
        let verdict = run(&translation, &packet);
        let oracle = Oracle::new(rules.clone()).with_view(view);
        assert_eq!(verdict, oracle.process_in(&packet.frame(), 1, &around()).0);
        let looked_at_ports = translation.mask.tp_dst != 0;
        let port = verdict.outputs.first().map(|(port, _)| *port);
        (port.ok_or(verdict.drop), looked_at_ports)
    };
    let dropped = (Err(Some(DropReason::Fragment)), false);
    for (mode, first, later) in [
        (Fragments::Normal, (Ok(3), false), (Ok(3), false)),
        (Fragments::Drop, dropped, dropped),
        (Fragments::NxMatch, (Ok(2), true), (Ok(3), true)),
    ] {
        assert_eq!(of(mode, 0), (Ok(2), true), "{mode:?}");
        assert_eq!((of(mode, 1), of(mode, 2)), (first, later), "{mode:?}");
    }
    assert_eq!(Tables::default().view().fragments, Fragments::Normal);
}

/// With one tag as the limit, what follows it is the packet's type, and a rule that pops it finds
/// no second one.
#[test]
fn the_limit_of_tags_decides_what_is_behind_them() {
    use Action::{Output, PopVlan};
    let of_type = |value| Match::default().with(Field::DlType, value, 0xffff);
    let rules = vec![
        rule_of(0, 1, of_type(0x8100), &[PopVlan, PopVlan, Output(2)]),
        rule_of(0, 1, of_type(0x0800), &[PopVlan, PopVlan, Output(3)]),
    ];
    // Two tags, then IPv4.
    let mut packet = Packet([0; crate::common::CHOICES]);
    packet.0[3] = 5;
    for (vlan_limit, port, shorter) in [(1, 2, 4), (2, 3, 8)] {
        let view = View { vlan_limit, ..View::default() };
        let mut tables = Tables::new(rules.clone()).unwrap();
        tables.set_view(view);
        let translation = translate(&tables, &packet.key_within(vlan_limit), &ports());
        let verdict = run_within(vlan_limit, &translation, &packet.frame(), 1);
        let (to, bytes) = &verdict.outputs[0];
        assert_eq!((*to, bytes.len()), (port, packet.frame().len() - shorter));
        let oracle = Oracle::new(rules.clone()).with_view(view);
        assert_eq!(verdict, oracle.process_in(&packet.frame(), 1, &around()).0);
    }
}

/// `set_field` of `vlan_tci` pushes with the present bit and pops without it.
#[test]
fn a_written_tci_pushes_and_pops() {
    let set = |value, mask| Action::SetField { field: Field::VlanTci, value, mask };
    // Untagged, and with one tag: VID 0.
    let (mut plain, mut tagged) = ([0; crate::common::CHOICES], [0; crate::common::CHOICES]);
    (plain[3], tagged[3]) = (0, 3);
    let tags = |packet: [u8; crate::common::CHOICES], action: Action| {
        let packet = Packet(packet);
        let rules = vec![rule_of(0, 1, Match::default(), &[action, Action::Output(2)])];
        let translation = translate(&Tables::new(rules.clone()).unwrap(), &packet.key(), &ports());
        let verdict = run(&translation, &packet);
        assert_eq!(verdict, Oracle::new(rules).process_in(&packet.frame(), 1, &around()).0);
        verdict.outputs[0].1[12..16].to_vec()
    };
    let none = plain_start();
    assert_eq!(tags(plain, set(0x1005, 0xffff)), [0x81, 0, 0, 5]);
    assert_eq!(tags(plain, set(0xf005, 0xffff)), [0x81, 0, 0xe0, 5]);
    assert_eq!(tags(plain, set(0, 0xffff)), none);
    assert_eq!(tags(plain, set(5, 0x0fff)), none);
    assert_eq!(tags(tagged, set(0x1005, 0xffff)), [0x81, 0, 0, 5]);
    assert_eq!(tags(tagged, set(5, 0x0fff)), [0x81, 0, 0, 5]);
    assert_eq!(tags(tagged, set(0, 0xffff)), none);
    assert_eq!(tags(tagged, set(5, 0xffff)), none);
}

/// What follows the addresses of an untagged packet.
fn plain_start() -> Vec<u8> {
    Packet([0; crate::common::CHOICES]).frame()[12..16].to_vec()
}

const fn resubmit(table: u8) -> Action {
    Action::Resubmit { in_port: None, table: Some(table) }
}

#[test]
fn only_resubmits_to_the_same_or_an_earlier_table_are_deep() {
    let chain: Vec<[Action; 2]> = (1..255).map(|to| [Action::Output(2), resubmit(to)]).collect();
    for resubmits in [64, 65, 254] {
        let mut tables: Vec<&[Action]> = chain[..resubmits].iter().map(|list| &list[..]).collect();
        tables.push(&[]);
        assert_eq!(outcome(&tables), None, "{resubmits} forwards");
    }
    // Table 1 resubmits to itself with one TTL less each time.
    for (ttl, deep) in [(DEPTH_MAX + 1, false), (DEPTH_MAX + 2, true)] {
        let set = Action::SetField { field: Field::NwTtl, value: ttl.into(), mask: 0xff };
        let first = [Action::Output(2), set, resubmit(1)];
        let wanted = deep.then_some(DropReason::TooManyResubmits);
        assert_eq!(outcome(&[&first, &[Action::DecTtl, resubmit(1)]]), wanted, "{ttl}");
    }
}

/// The most lists within each other that the limits allow: 63 rounds through 65 tables.
#[test]
fn the_deepest_nesting_takes_no_stack() {
    let back = [Action::DecTtl, resubmit(0)];
    let chain: Vec<[Action; 1]> = (1..64).map(|to| [resubmit(to)]).collect();
    let mut tables: Vec<&[Action]> = chain.iter().map(|list| &list[..]).collect();
    tables.push(&back);
    let rules = (0..).zip(&tables).map(|(table, list)| rule_of(table, 1, Match::default(), list));
    let tables = Tables::new(rules.collect()).unwrap();
    let of = |nw_ttl| {
        let translate =
            move || translate(&tables, &FlowKey { nw_ttl, ..udp_to(1) }, &crate::common::ports());
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        thread.spawn(translate).unwrap().join().unwrap()
    };
    let deepest = of(63);
    assert_eq!((deepest.drop, deepest.lookups.len()), (Some(DropReason::TtlExpired), 63 * 64));
}

#[test]
fn lookups_are_bounded() {
    // 64 lists of 63 resubmits, and the 64 that lead to them: the limit exactly.
    let (mut first, second) = (vec![resubmit(1); 64], [resubmit(200); 63]);
    assert_eq!(LOOKUPS_MAX, 4096);
    assert_eq!(outcome(&[&first, &second]), Some(DropReason::RuleDrop));
    first.push(resubmit(200));
    assert_eq!(outcome(&[&first, &second]), Some(DropReason::TooManyResubmits));
    // A goto counts as well.
    *first.last_mut().unwrap() = Action::GotoTable(200);
    assert_eq!(outcome(&[&first, &second]), Some(DropReason::TooManyResubmits));
    // Two lookups at each of 40 levels would be 2^40.
    let wide: Vec<[Action; 2]> = (1..=40).map(|to| [resubmit(to); 2]).collect();
    let wide: Vec<&[Action]> = wide.iter().map(|list| &list[..]).collect();
    assert_eq!(outcome(&wide), Some(DropReason::TooManyResubmits));
}

#[test]
fn steps_are_bounded() {
    assert_eq!(STEPS_MAX, 65_536);
    // 64 resubmits, 63 of them to 1023 steps and one to 1023 of floods and a rest.
    let mut flood = vec![Action::All; 204];
    flood.extend([Action::PopVlan; 3]);
    let first = [[resubmit(1); 63].as_slice(), &[resubmit(2)]].concat();
    assert_eq!(outcome(&[&first, &[Action::PopVlan; 1023], &flood]), None);
    flood.push(Action::PopVlan);
    let too_many = outcome(&[&first, &[Action::PopVlan; 1023], &flood]);
    assert_eq!(too_many, Some(DropReason::TooManyResubmits));
}

/// `resubmit` without a table means that of its rule, also after a goto; an ingress port given to
/// it counts for that lookup only.
#[test]
fn what_resubmit_looks_up() {
    let of = |in_port| Action::Resubmit { in_port, table: None };
    let from = |port| Match::default().with(Field::InPort, port, u32::MAX.into());
    let mut rules = vec![
        rule_of(0, 1, Match::default(), &[Action::GotoTable(1)]),
        rule_of(0, 2, from(7), &[Action::Output(5)]),
        rule_of(1, 1, Match::default(), &[of(Some(7)), Action::Output(3)]),
        rule_of(1, 2, from(7), &[Action::Output(2), Action::InPort, Action::Output(1)]),
    ];
    let program = |rules: &[Rule]| {
        translate(&Tables::new(rules.to_vec()).unwrap(), &udp_to(1), &ports()).program
    };
    let plain = [Op::Output(2), Op::Output(1), Op::Output(3)];
    assert_eq!(*program(&rules), plain);
    // Within it, the real port is back.
    rules[3].actions.push(Action::Resubmit { in_port: None, table: Some(2) });
    rules.push(rule_of(2, 1, from(1), &[Action::Output(5)]));
    assert_eq!(*program(&rules), [plain[0], plain[1], Op::Output(5), plain[2]]);
}

/// The key of a packet with a broken IP header has a TTL of 0, until a rule sets it.
#[test]
fn a_broken_header_has_the_ttl_of_its_key() {
    let mut broken = Packet([0; crate::common::CHOICES]);
    broken.0[7] = 15;
    let set = Action::SetField { field: Field::NwTtl, value: 3, mask: 0xff };
    for (actions, wanted) in [
        (vec![Action::DecTtl, Action::Output(2)], Some(DropReason::TtlExpired)),
        (vec![set, Action::DecTtl, Action::DecTtl, Action::Output(2)], None),
        (vec![set, Action::DecTtl, Action::DecTtl, Action::DecTtl], Some(DropReason::TtlExpired)),
    ] {
        let rules = vec![rule_of(0, 1, Match::default(), &actions)];
        let translation = translate(&Tables::new(rules.clone()).unwrap(), &broken.key(), &ports());
        let verdict = run(&translation, &broken);
        assert_eq!(verdict.drop, wanted);
        assert_eq!(verdict, Oracle::new(rules).process_in(&broken.frame(), 1, &around()).0);
    }
}

#[test]
fn what_is_in_every_mask() {
    let tables = Tables::new(vec![]).unwrap();
    let always = FlowKey { in_port: u32::MAX, dl_type: u16::MAX, ..FlowKey::default() };
    let translation = translate(&tables, &udp_to(1), &ports());
    assert_eq!(translation.mask, FlowKey { nw_frag: u8::MAX, ..always });
    assert_eq!((translation.program.len(), translation.drop), (0, Some(DropReason::NoRule)));
    let lldp = FlowKey { dl_type: 0x88cc, ..FlowKey::default() };
    assert_eq!(translate(&tables, &lldp, &ports()).mask, always);
}

/// Reasons when nothing is sent, from the strongest to the weakest.
#[test]
fn reasons() {
    use Action::{DecTtl, GotoTable, Output};
    let reason = |tables: &[&[Action]]| outcome(tables).unwrap();
    // The plain packet comes in on port 1; 4 does not exist.
    let expired = Action::SetField { field: Field::NwTtl, value: 1, mask: 0xff };
    assert_eq!(reason(&[&[Output(1), expired, DecTtl, Output(2)]]), DropReason::TtlExpired);
    assert_eq!(reason(&[&[Output(1), GotoTable(7)]]), DropReason::NoOutput);
    assert_eq!(reason(&[&[Output(4)]]), DropReason::NoOutput);
    assert_eq!(reason(&[&[GotoTable(7)]]), DropReason::NoRule);
    assert_eq!(reason(&[&[resubmit(7)]]), DropReason::RuleDrop);
    assert_eq!(reason(&[&[]]), DropReason::RuleDrop);
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
