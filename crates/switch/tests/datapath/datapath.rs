//! The three tiers against the linear scan: packet by packet, byte by byte, while rules come and
//! go.

use crate::common::{Packet, around, packet, rule, rules, view};
use overbank::cache::LayoutKind;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Frame, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::oracle::{Oracle, Verdict};
use overbank_switch::parse::parse_rules;
use overbank_switch::rule::Rule;
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket};
use overbank_switch::tables::Tables;
use overbank_switch::view::View;
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

/// Entries of a signature cache that is full after a few flows.
const SMALL: usize = 32;
/// Entries of one of 2 MiB, with which a list of frames goes two bursts deep.
const LARGE: usize = 1 << 19;

fn process(datapath: &mut Datapath, frames: &[Frame<'_>], now_ms: u64) -> Vec<Verdict> {
    let mut collect = Collect(vec![Verdict::default(); frames.len()]);
    datapath.process_mixed(frames, now_ms, &mut collect);
    collect.0
}

fn datapath(design: &str, megaflows: usize, rules: Vec<Rule>) -> Datapath {
    datapath_of(design, SMALL, megaflows, rules)
}

fn datapath_of(design: &str, entries: usize, megaflows: usize, rules: Vec<Rule>) -> Datapath {
    let cache = (design != "none").then(|| CacheConfig {
        design: design.parse().expect("a known design"),
        entries,
        isa: None,
    });
    let config = Config { cache, megaflows, ports: crate::common::PORTS.to_vec(), seed: 3 };
    Datapath::new(&config, Tables::new(rules).expect("few rules")).expect("sizes are right")
}

#[derive(Clone, Debug)]
enum Step {
    Burst(Vec<Packet>),
    Insert(Box<Rule>),
    Remove(usize),
    View(View),
    Expire,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(packet(), 1..80).prop_map(Step::Burst),
        2 => rule().prop_map(|rule| Step::Insert(Box::new(rule))),
        2 => (0..64usize).prop_map(Step::Remove),
        1 => view().prop_map(Step::View),
        1 => Just(Step::Expire),
        1 => Just(Step::Flush),
    ]
}

fn design() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "none",
        "set-4",
        "set-8+dc-bubble",
        "set-16+bubble",
        "cuckoo-2-4",
        "cuckoo-2-8+pblru/2",
        "blp-2-4",
        "blp-2-4+pblru/2",
        "blp-2-16",
        "blp-4-4",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_tiers_agree_with_the_linear_scan(
        design in design(),
        entries in prop_oneof![3 => Just(SMALL), 1 => Just(LARGE)],
        megaflows in prop::sample::select(vec![1usize, 3, 1000]),
        start in rules(20),
        pool in prop::collection::vec(packet(), 1..12),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let mut oracle = Oracle::new(start.clone());
        let mut datapath = datapath_of(design, entries, megaflows, start);
        for (now, step) in steps.into_iter().enumerate() {
            let now_ms = now as u64 * 1000;
            match step {
                Step::Burst(packets) => {
                    // Most packets come from a small pool, so that flows repeat and tiers 1 and 2
                    // hit.
                    let packets: Vec<Packet> = packets
                        .iter()
                        .enumerate()
                        .flat_map(|(i, p)| [*p, pool[i % pool.len()]])
                        .collect();
                    let bytes: Vec<Vec<u8>> = packets.iter().map(Packet::frame).collect();
                    let frames: Vec<Frame<'_>> = packets
                        .iter()
                        .zip(&bytes)
                        .map(|(p, bytes)| Frame { bytes, in_port: p.in_port() })
                        .collect();
                    let got = process(&mut datapath, &frames, now_ms);
                    for (i, got) in got.iter().enumerate() {
                        let frame = frames[i];
                        let expected = oracle.process_in(frame.bytes, frame.in_port, &around()).0;
                        prop_assert_eq!(got, &expected, "{} packet {}", design, i);
                    }
                }
                Step::Insert(rule) => {
                    oracle.insert((*rule).clone());
                    datapath.change_rules(|t| t.insert(*rule).map(|_| ())).0.expect("a valid rule");
                }
                Step::Remove(at) => {
                    let rules = oracle.rules();
                    if rules.is_empty() {
                        continue;
                    }
                    let rule = rules[at % rules.len()].clone();
                    oracle.remove(rule.table, rule.priority, &rule.matching);
                    let removed =
                        datapath.change_rules(|t| t.remove(rule.table, rule.priority, &rule.matching));
                    prop_assert!(removed.0.is_some());
                }
                Step::View(view) => {
                    oracle = oracle.with_view(view);
                    datapath.change_rules(|tables| tables.set_view(view));
                }
                Step::Expire => {
                    datapath.expire(now_ms, 1500);
                }
                Step::Flush => datapath.flush(),
            }
            let counters = datapath.counters();
            let micro = counters.microflow;
            prop_assert_eq!(micro.hits + counters.megaflow.hits + counters.classifier_lookups
                + counters.drops[DropReason::TruncatedEthernet.index()]
                + counters.drops[DropReason::FrameTooLong.index()], counters.packets);
            let mega = counters.megaflow;
            prop_assert!(mega.lookups <= counters.packets && mega.hits <= mega.lookups);
            prop_assert_eq!(mega.lookups - mega.hits, counters.classifier_lookups);
            prop_assert!(datapath.megaflows().len() <= megaflows);
            prop_assert!(datapath.programs() <= datapath.megaflows().len());
        }
    }
}

fn udp(destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], destination, 64)
        .udp(1000, port)
        .write(&mut bytes, &[0; 18])
        .expect("writing to a vector works");
    bytes
}

fn outputs(verdicts: &[Verdict]) -> Vec<u32> {
    verdicts.iter().flat_map(|v| v.outputs.iter().map(|(port, _)| *port)).collect()
}

/// A signature whose megaflow was evicted is refused, and counted.
#[test]
fn a_stale_signature_is_a_false_positive() {
    let text = "udp,tp_dst=1,actions=output:2\nudp,tp_dst=2,actions=output:3\n";
    let mut datapath = datapath("set-4", 1, parse_rules(text).expect("right"));
    for (round, refused) in [0, 2, 4].into_iter().enumerate() {
        for (port, out) in [(1, 2), (2, 3)] {
            let bytes = udp([10, 1, 0, 1], port);
            let frames = [Frame { bytes: &bytes, in_port: 1 }];
            assert_eq!(outputs(&process(&mut datapath, &frames, 0)), [out]);
        }
        let micro = datapath.counters().microflow;
        assert_eq!((micro.hits, micro.false_positives), (0, refused), "round {round}");
    }
}

/// Numbers of megaflows must fit into the values of tier 1.
#[test]
fn many_megaflows_take_wider_signatures() {
    for (megaflows, layout) in
        [(1 << 16, LayoutKind::Fp16V16), ((1 << 16) + 1, LayoutKind::Fp16V32)]
    {
        let datapath = datapath("set-4", megaflows, Vec::new());
        assert_eq!(datapath.cache().map(|c| c.layout()), Some(layout));
    }
}

/// Each step asserts the counters that it moves.
#[test]
fn a_flow_climbs_from_the_classifier_to_the_signature_cache() {
    let rules = parse_rules("udp,nw_dst=10.1.0.0/16,actions=output:2\n").expect("right");
    let mut datapath = datapath("blp-2-16", 100, rules);
    let bytes = udp([10, 1, 0, 1], 53);
    let other = udp([10, 1, 0, 2], 53);
    let frame = |bytes| [Frame { bytes, in_port: 1 }];

    assert_eq!(outputs(&process(&mut datapath, &frame(&bytes), 0)), [2]);
    let c = datapath.counters();
    assert_eq!((c.microflow.hits, c.megaflow.hits, c.classifier_lookups), (0, 0, 1));
    assert_eq!((c.microflow.inserts, c.megaflow.installs), (1, 1));

    assert_eq!(outputs(&process(&mut datapath, &frame(&bytes), 0)), [2]);
    let c = datapath.counters();
    assert_eq!((c.microflow.hits, c.megaflow.hits, c.classifier_lookups), (1, 0, 1));

    // Another flow of the same megaflow: tier 2 knows it.
    assert_eq!(outputs(&process(&mut datapath, &frame(&other), 0)), [2]);
    let c = datapath.counters();
    assert_eq!((c.microflow.hits, c.megaflow.hits, c.classifier_lookups), (1, 1, 1));
    assert_eq!((c.microflow.inserts, c.megaflow.installs), (2, 1));

    // Both in one burst: hits only, in order.
    let both = [frame(&other)[0], frame(&bytes)[0]];
    assert_eq!(outputs(&process(&mut datapath, &both, 0)), [2, 2]);
    assert_eq!(datapath.counters().microflow.hits, 3);
}

#[test]
fn a_burst_of_one_new_flow_asks_the_classifier_once() {
    let rules = parse_rules("udp,actions=output:2\n").expect("right");
    let mut datapath = datapath("set-4", 100, rules);
    let bytes = udp([10, 1, 0, 1], 53);
    let frames = [Frame { bytes: &bytes, in_port: 1 }; 32];
    assert_eq!(outputs(&process(&mut datapath, &frames, 0)).len(), 32);
    let c = datapath.counters();
    assert_eq!((c.classifier_lookups, c.megaflow.installs, c.megaflow.hits), (1, 1, 31));
    // Those that are looked up again after the first one was translated count once.
    assert_eq!((c.megaflow.lookups, c.megaflow.subtables_searched), (32, 0));
}

#[test]
fn changed_rules_hold_from_the_next_packet_on_and_keep_what_is_still_true() {
    let text = "priority=1,udp,nw_dst=10.1.0.0/16,actions=output:2\n\
                priority=1,udp,nw_dst=10.2.0.0/16,actions=output:3\n";
    let mut datapath = datapath("blp-2-4", 100, parse_rules(text).expect("right"));
    let (a, b) = (udp([10, 1, 0, 1], 53), udp([10, 2, 0, 1], 53));
    let frames = [Frame { bytes: &a, in_port: 1 }, Frame { bytes: &b, in_port: 1 }];
    assert_eq!(outputs(&process(&mut datapath, &frames, 0)), [2, 3]);
    assert_eq!(datapath.megaflows().len(), 2);

    let rule = parse_rules("priority=9,udp,nw_dst=10.1.0.1,actions=output:5\n").expect("right");
    let (inserted, gone) = datapath.change_rules(|t| t.insert(rule[0].clone()));
    assert_eq!((inserted, gone), (Ok(None), 1), "the other megaflow is untouched");
    assert_eq!(datapath.cache().map(|c| c.len()), Some(1), "its signature too");
    assert_eq!(outputs(&process(&mut datapath, &frames, 0)), [5, 3]);
    assert_eq!(datapath.counters().megaflow.revalidation_removals, 1);

    let (_, gone) = datapath
        .change_rules(|t| t.remove(rule[0].table, rule[0].priority, &rule[0].matching).is_some());
    assert_eq!(gone, 1);
    assert_eq!(outputs(&process(&mut datapath, &frames, 0)), [2, 3]);
}

#[test]
fn idle_megaflows_expire_with_their_signatures() {
    let rules = parse_rules("udp,actions=output:2\n").expect("right");
    let mut datapath = datapath("set-8", 100, rules);
    let bytes = udp([10, 1, 0, 1], 53);
    let frames = [Frame { bytes: &bytes, in_port: 1 }];
    process(&mut datapath, &frames, 0);
    assert_eq!(datapath.expire(10_000, 10_000), 0);
    assert_eq!(datapath.expire(10_001, 10_000), 1);
    assert_eq!(datapath.megaflows().len(), 0);
    assert_eq!(datapath.cache().map(|c| c.len()), Some(0));
    assert_eq!(outputs(&process(&mut datapath, &frames, 10_002)), [2]);
}

/// More flows than megaflows, one megaflow each: everything is evicted all the time, even the
/// answers for earlier packets of the same burst.
#[test]
fn megaflows_stay_within_their_bound() {
    let rules: String =
        (0..200).map(|i| format!("udp,tp_dst={},actions=output:{}\n", i + 1, 2 + i % 2)).collect();
    let rules = parse_rules(&rules).expect("right");
    let small = [("none", 1), ("set-4", 1), ("blp-2-16", 7)].map(|(d, m)| (d, SMALL, m));
    for (design, entries, megaflows) in small.into_iter().chain([("blp-2-16", LARGE, 7)]) {
        let mut datapath = datapath_of(design, entries, megaflows, rules.clone());
        let bytes: Vec<Vec<u8>> = (0..200).map(|i| udp([10, 1, 0, 1], i + 1)).collect();
        let frames: Vec<Frame<'_>> =
            bytes.iter().map(|bytes| Frame { bytes, in_port: 1 }).collect();
        for _ in 0..3 {
            let expected: Vec<u32> = (0..200).map(|i| 2 + i % 2).collect();
            assert_eq!(outputs(&process(&mut datapath, &frames, 0)), expected);
            assert!(datapath.megaflows().len() <= megaflows);
        }
        assert!(datapath.counters().megaflow.evictions >= 500);
    }
}

#[test]
fn broken_frames_are_dropped_with_a_reason_and_disturb_nobody() {
    let rules = parse_rules("udp,actions=output:2\n").expect("right");
    let mut datapath = datapath("blp-2-16", 100, rules);
    let good = udp([10, 1, 0, 1], 53);
    let frames: Vec<Frame<'_>> = [&good[..], &[], &good[..13], &good, &good[..20]]
        .into_iter()
        .map(|bytes| Frame { bytes, in_port: 1 })
        .collect();
    let verdicts = process(&mut datapath, &frames, 0);
    let drops: Vec<_> = verdicts.iter().map(|v| v.drop).collect();
    let truncated = Some(DropReason::TruncatedEthernet);
    // The last one is an IPv4 frame without an IP header: no rule for UDP matches it.
    assert_eq!(drops, [None, truncated, truncated, None, Some(DropReason::NoRule)]);
    assert_eq!(outputs(&verdicts), [2, 2]);
    assert_eq!(datapath.counters().drops[DropReason::TruncatedEthernet.index()], 2);

    // A frame longer than the switch handles, and one that is just not.
    let mut long = good.clone();
    long.resize(overbank_wire::edit::FRAME_MAX + 1, 0);
    let frames = [&long[..], &long[1..]].map(|bytes| Frame { bytes, in_port: 1 });
    let verdicts = process(&mut datapath, &frames, 0);
    assert_eq!(verdicts[0].drop, Some(DropReason::FrameTooLong));
    assert_ne!(verdicts[1].drop, Some(DropReason::FrameTooLong));
}

/// Bursts with some, with only and without unreadable frames, and a last one that is not full.
#[test]
fn a_long_list_is_treated_as_its_bursts_are() {
    let rules: String =
        (0..200).map(|i| format!("udp,tp_dst={},actions=output:{}\n", i + 1, 2 + i % 2)).collect();
    let rules = parse_rules(&rules).expect("right");
    let bytes: Vec<Vec<u8>> = (0..200u16)
        .map(|i| match i {
            40..70 | 96..128 | 150 | 199 => vec![0; usize::from(i % 14)],
            _ => udp([10, 1, 0, 1], 1 + i * 7 % 50),
        })
        .collect();
    let frames: Vec<Frame<'_>> = bytes.iter().map(|bytes| Frame { bytes, in_port: 1 }).collect();
    for design in ["blp-2-16", "set-4", "cuckoo-2-8"] {
        let [mut whole, mut parts] =
            [LARGE, LARGE].map(|entries| datapath_of(design, entries, 100, rules.clone()));
        for (now_ms, count) in [200, 64, 33, 32, 200, 1, 0, 129].into_iter().enumerate() {
            let (frames, now_ms) = (&frames[200 - count..], now_ms as u64);
            let got = process(&mut whole, frames, now_ms);
            let expected: Vec<Verdict> =
                frames.chunks(32).flat_map(|burst| process(&mut parts, burst, now_ms)).collect();
            assert_eq!(got, expected, "{design}, {count} frames");
            assert_eq!(whole.counters(), parts.counters(), "{design}, {count} frames");
        }
        assert!(whole.counters().microflow.hits > 200, "{design}");
    }
}

#[test]
fn impossible_sizes_are_refused_in_one_line() {
    let make = |megaflows, entries| {
        let cache = CacheConfig { design: "set-4".parse().expect("known"), entries, isa: None };
        let config = Config { cache: Some(cache), megaflows, ports: vec![1.into()], seed: 1 };
        let tables = Tables::new(Vec::new()).expect("no rules");
        Datapath::new(&config, tables).map(|_| ()).expect_err("impossible").to_string()
    };
    assert!(make(0, 64).contains("megaflow"), "{}", make(0, 64));
    for message in [make(10, 0), make(10, usize::MAX)] {
        assert!(message.starts_with("signature cache: ") && !message.contains('\n'), "{message}");
    }
}
