//! What a running switch needs of the datapath, case by case: stale megaflows, ports that flood or
//! not, packets for controllers and for a learning switch, counters of rules.

use std::sync::Arc;

use overbank_switch::datapath::{CacheConfig, Config, Datapath, Frame, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::oracle::PacketIn;
use overbank_switch::parse::{parse_rule, parse_rules};
use overbank_switch::ports::{PORT_CONTROLLER, PORT_TABLE, SwitchPort};
use overbank_switch::rule::Action;
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket, PacketInReason};
use overbank_switch::tables::Tables;

/// What came out of the datapath.
#[derive(Default)]
struct Hear {
    outputs: Vec<(u32, usize)>,
    controller: Vec<PacketIn>,
    asked: Vec<NormalPacket>,
    drops: Vec<DropReason>,
    full: bool,
    answer: Option<Normal>,
}

impl Sink for Hear {
    fn output(&mut self, _index: usize, port: u32, frame: &[u8], _edited: bool) {
        self.outputs.push((port, frame.len()));
    }

    fn drop(&mut self, _index: usize, reason: DropReason) {
        self.drops.push(reason);
    }

    fn controller(
        &mut self,
        _index: usize,
        packet: &ControllerPacket<'_>,
    ) -> Result<(), DropReason> {
        self.controller.extend((!self.full).then(|| packet.into()));
        if self.full { Err(DropReason::ControllerQueueFull) } else { Ok(()) }
    }

    fn normal(&mut self, _index: usize, packet: &NormalPacket) -> Normal {
        self.asked.push(*packet);
        self.answer.unwrap_or(Normal::Drop)
    }
}

impl Hear {
    fn ports(&self) -> Vec<u32> {
        self.outputs.iter().map(|(port, _)| *port).collect()
    }
}

fn udp(last: u8, port: u16, ttl: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 1, 0, last], ttl)
        .udp(1000, port)
        .write(&mut bytes, &[0; 18])
        .expect("writing to a vector works");
    bytes
}

fn tables(text: &str) -> Tables {
    Tables::new(parse_rules(text).expect("right")).expect("few rules")
}

/// Ports 1 to 4; 3 does not flood.
fn ports() -> Vec<SwitchPort> {
    (1..=4).map(|number| SwitchPort { number, flood: number != 3 }).collect()
}

fn datapath(tables: &Tables) -> Datapath {
    let design = "blp-2-16".parse().expect("known");
    let cache = Some(CacheConfig { design, entries: 1024, isa: None });
    let config = Config { cache, megaflows: 100, ports: ports(), seed: 1 };
    Datapath::new(&config, tables.clone()).expect("sizes are right")
}

fn send(datapath: &mut Datapath, frame: &[u8], now_ms: u64, mut hear: Hear) -> Hear {
    datapath.process(&[frame], 1, now_ms, &mut hear);
    hear
}

fn send_ports(datapath: &mut Datapath, frame: &[u8], now_ms: u64) -> Vec<u32> {
    send(datapath, frame, now_ms, Hear::default()).ports()
}

/// A datapath moves to its worker, and all workers read the tables.
#[test]
fn what_crosses_threads() {
    fn moves<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    moves::<Datapath>();
    shared::<Tables>();
}

#[test]
fn a_megaflow_comes_back_in_its_place_and_its_signature_holds_again() {
    let mut tables = tables("priority=1,udp,actions=output:2");
    let mut datapath = datapath(&tables);
    let (a, b) = (udp(1, 53, 64), udp(2, 53, 64));
    for frame in [&a, &b, &a, &b] {
        assert_eq!(send_ports(&mut datapath, frame, 0), [2]);
    }
    assert_eq!(datapath.counters().microflow.hits, 2);
    datapath.reset_counters();

    // Another rule, which needs no more of these packets than their protocol.
    tables.add(parse_rule("priority=2,tcp,actions=drop").expect("right"), 0).expect("room");
    let old = datapath.set_tables(Arc::new(tables.clone()));
    assert_eq!(old.len(), 1);
    assert_eq!(send_ports(&mut datapath, &a, 10), [2]);
    let c = datapath.counters();
    assert_eq!((c.stale_signatures, c.megaflow.stale_refusals, c.megaflow.refreshes), (1, 1, 1));
    assert_eq!((c.classifier_lookups, c.megaflow.installs, datapath.megaflows().len()), (1, 0, 1));
    // The other flow of the megaflow, and this one again: tier 1 knows both.
    assert_eq!(send_ports(&mut datapath, &b, 10), [2]);
    assert_eq!(send_ports(&mut datapath, &a, 10), [2]);
    let c = datapath.counters();
    assert_eq!((c.microflow.hits, c.classifier_lookups, c.stale_signatures), (2, 1, 1));
    assert_eq!(datapath.programs(), 1);
}

#[test]
fn a_megaflow_that_no_longer_fits_waits_for_the_sweep() {
    let mut tables = tables("priority=1,udp,actions=output:2");
    let mut datapath = datapath(&tables);
    let frame = udp(1, 53, 64);
    assert_eq!(send_ports(&mut datapath, &frame, 0), [2]);
    // Now the port counts: another mask.
    tables.add(parse_rule("priority=2,udp,tp_dst=99,actions=drop").expect("right"), 0).expect("ok");
    datapath.set_tables(Arc::new(tables));
    assert_eq!(send_ports(&mut datapath, &frame, 1000), [2]);
    assert_eq!(datapath.megaflows().len(), 2);
    let stale_ms = u64::from(overbank_switch::megaflow::STALE_MS);
    assert_eq!(datapath.sweep(stale_ms, u32::MAX, 1000), 0, "it may still come back");
    // Three slices over a hundred entries, of which one goes.
    let gone: Vec<usize> =
        (0..3).map(|_| datapath.sweep(stale_ms + 1, u32::MAX, 34)).filter(|n| *n > 0).collect();
    assert_eq!((gone, datapath.megaflows().len()), (vec![1], 1));
    assert_eq!(datapath.counters().megaflow.revalidation_removals, 1);
    assert_eq!(datapath.sweep(12_000, 10_000, 100), 1);
    assert_eq!((datapath.counters().megaflow.expirations, datapath.programs()), (1, 0));
}

#[test]
fn ports_that_change_hold_from_the_next_packet_on() {
    let rules =
        "udp,tp_dst=1,actions=flood\nudp,tp_dst=2,actions=all\nudp,tp_dst=3,actions=output:4";
    let mut datapath = datapath(&tables(rules));
    let out = |datapath: &mut Datapath, port| send_ports(datapath, &udp(1, port, 64), 0);
    for _ in 0..2 {
        assert_eq!(out(&mut datapath, 1), [2, 4]);
        assert_eq!(out(&mut datapath, 2), [2, 3, 4]);
        assert_eq!(out(&mut datapath, 3), [4]);
    }
    datapath.set_ports(&[1, 3].map(SwitchPort::from));
    for _ in 0..2 {
        assert_eq!(out(&mut datapath, 1), [3]);
        assert_eq!(out(&mut datapath, 2), [3]);
        let hear = send(&mut datapath, &udp(1, 3, 64), 0, Hear::default());
        assert_eq!((hear.ports(), hear.drops), (vec![], vec![DropReason::NoOutput]));
    }
    // No port to flood to.
    datapath.set_ports(&[SwitchPort { number: 3, flood: false }]);
    let hear = send(&mut datapath, &udp(1, 1, 64), 0, Hear::default());
    assert_eq!(hear.drops, [DropReason::NoOutput]);
}

#[test]
fn a_controller_receives_its_events() {
    let rules = "priority=0,actions=controller:128\n\
                 cookie=7,priority=1,udp,tp_dst=1,actions=mod_vlan_vid:5,controller,goto_table:2\n\
                 cookie=8,table=2,priority=0,udp,actions=write_actions(controller:0)\n\
                 table=2,priority=1,udp,tp_dst=9,actions=drop";
    let mut datapath = datapath(&tables(rules));
    for _ in 0..2 {
        let frame = udp(1, 2, 64);
        let hear = send(&mut datapath, &frame, 0, Hear::default());
        let miss = PacketIn {
            reason: PacketInReason::NoMatch,
            max_len: 128,
            table: 0,
            cookie: 0,
            in_port: 1,
            frame: frame.clone(),
        };
        assert_eq!((hear.controller, hear.drops), (vec![miss], vec![]));

        let hear = send(&mut datapath, &udp(1, 1, 64), 0, Hear::default());
        let told: Vec<_> = hear
            .controller
            .iter()
            .map(|p| (p.reason, p.max_len, p.table, p.cookie, p.frame.len() - frame.len()))
            .collect();
        let wanted =
            [(PacketInReason::Action, u16::MAX, 0, 7, 4), (PacketInReason::ActionSet, 0, 2, 8, 4)];
        assert_eq!(told, wanted);

        let hear = send(&mut datapath, &frame, 0, Hear { full: true, ..Hear::default() });
        assert_eq!((hear.controller, hear.drops), (vec![], vec![DropReason::ControllerQueueFull]));
    }
    assert_eq!(datapath.counters().drops[DropReason::ControllerQueueFull.index()], 2);
}

#[test]
fn a_learning_switch_exchanges_valid_messages() {
    let mut datapath = datapath(&tables("actions=push_vlan:0x8100,mod_vlan_vid:9,normal"));
    let frame = udp(1, 2, 64);
    let mut out = |answer| {
        let hear = send(&mut datapath, &frame, 0, Hear { answer: Some(answer), ..Hear::default() });
        let asked = NormalPacket {
            in_port: 1,
            src: [2, 0, 0, 0, 0, 1],
            dst: [2, 0, 0, 0, 0, 2],
            vlan: Some(9),
        };
        assert_eq!(hear.asked, [asked]);
        (hear.ports(), hear.drops)
    };
    assert_eq!(out(Normal::Port(3)), (vec![3], vec![]));
    assert_eq!(out(Normal::Flood), (vec![2, 4], vec![]));
    assert_eq!(out(Normal::Drop), (vec![], vec![DropReason::NormalDrop]));
    // To the ingress port, and to one that does not exist.
    assert_eq!(out(Normal::Port(1)), (vec![], vec![DropReason::NoOutput]));
    assert_eq!(out(Normal::Port(9)), (vec![], vec![DropReason::NoOutput]));
    assert_eq!(datapath.counters().classifier_lookups, 1, "no answer is part of a megaflow");

    let untagged = "ip,actions=normal,strip_vlan,output:2";
    let mut datapath = self::datapath(&tables(untagged));
    let hear = send(&mut datapath, &frame, 0, Hear::default());
    assert_eq!((hear.asked[0].vlan, hear.ports(), hear.drops), (None, vec![2], vec![]));
}

#[test]
fn a_controllers_packet_takes_its_list_and_the_tables() {
    let tables = tables("in_port=1,udp,actions=output:2");
    let mut datapath = datapath(&tables);
    let bytes = udp(1, 2, 64);
    let mut out = |in_port, actions: &[Action]| {
        let mut hear = Hear::default();
        datapath.packet_out(Frame { bytes: &bytes, in_port }, actions, 5, &mut hear);
        hear
    };
    // From nowhere: no port is the ingress port.
    assert_eq!(out(PORT_CONTROLLER, &[Action::Flood, Action::Output(1)]).ports(), [1, 2, 4, 1]);
    assert_eq!(out(PORT_CONTROLLER, &[Action::InPort]).drops, [DropReason::NoOutput]);
    assert_eq!(out(PORT_CONTROLLER, &[]).drops, [DropReason::RuleDrop]);
    assert_eq!(out(1, &[Action::All, Action::InPort]).ports(), [2, 3, 4, 1]);
    let hear = out(1, &[Action::Output(PORT_TABLE), Action::Controller { max_len: 9 }]);
    assert_eq!(hear.ports(), [2]);
    let told = &hear.controller[0];
    assert_eq!((told.reason, told.cookie), (PacketInReason::PacketOut, u64::MAX));
    // In a rule, that port does not exist.
    let entry = tables.entries().find(|e| e.rule.matching.key.in_port == 1).expect("there");
    assert_eq!((entry.stats.packets(), entry.stats.last_used_ms()), (1, 5));
    let mut hear = Hear::default();
    datapath.packet_out(Frame { bytes: &bytes[..9], in_port: 1 }, &[], 0, &mut hear);
    assert_eq!(hear.drops, [DropReason::TruncatedEthernet]);
    let counters = datapath.counters();
    assert_eq!((counters.packet_outs, counters.packets, counters.drops.iter().sum()), (6, 0, 0));
}

/// No count is lost when a megaflow goes, for whatever reason.
#[test]
fn rules_are_credited_for_packets_of_megaflows_that_went() {
    let tables = tables("udp,actions=dec_ttl,resubmit(,1),output:2\ntable=1,actions=drop");
    let mut datapath = datapath(&tables);
    let counts = || {
        let mut counts: Vec<_> =
            tables.entries().map(|e| (e.rule.table, e.stats.packets(), e.stats.bytes())).collect();
        counts.sort_unstable();
        counts
    };
    let long = udp(1, 1, 64).len() as u64;
    send(&mut datapath, &udp(1, 1, 64), 100, Hear::default());
    assert_eq!(counts(), [(0, 0, 0), (1, 0, 0)], "not flushed");
    assert_eq!(datapath.expire(20_000, 1000), 1);
    assert_eq!(counts(), [(0, 1, long), (1, 1, long)]);
    assert!(tables.entries().all(|e| e.stats.last_used_ms() == 100));
    // One that expires on the way has not come to table 1.
    let hear = send(&mut datapath, &udp(1, 1, 1), 20_001, Hear::default());
    assert_eq!(hear.drops, [DropReason::TtlExpired]);
    datapath.flush();
    assert_eq!(counts(), [(0, 2, 2 * long), (1, 1, long)]);
    let table = |n| tables.table_stats(n).map(|t| (t.lookups(), t.matched()));
    assert_eq!((table(0), table(1)), (Some((2, 2)), Some((1, 1))));

    // Rules that replace others count in their own tables; those that went keep theirs.
    send(&mut datapath, &udp(1, 1, 64), 20_002, Hear::default());
    let other = self::tables("udp,actions=drop");
    datapath.set_tables(Arc::new(other.clone()));
    send(&mut datapath, &udp(1, 1, 64), 20_003, Hear::default());
    datapath.flush_stats(20_003);
    assert_eq!((counts()[0].1, other.entries().map(|e| e.stats.packets()).sum()), (3, 1));
    assert_eq!(other.table_stats(0).map(|t| t.lookups()), Some(1));
}

/// A replacing rule inherits the counters or not, as OpenFlow 1.3 says.
#[test]
fn whose_counters_a_new_rule_has() {
    let mut tables = tables("udp,actions=output:2");
    let mut datapath = datapath(&tables);
    let frame = udp(1, 1, 64);
    let mut packet = |tables: &Tables, now_ms| {
        datapath.set_tables(Arc::new(tables.clone()));
        send(&mut datapath, &frame, now_ms, Hear::default());
        datapath.flush_stats(now_ms);
        let entry = tables.entries().next().expect("one rule").clone();
        (entry.stats.packets(), entry.created_ms, entry.stats.last_used_ms())
    };
    assert_eq!(packet(&tables, 10), (1, 0, 10));
    let again = parse_rule("udp,actions=output:3").expect("right");
    tables.add(again, 20).expect("room");
    assert_eq!(packet(&tables, 21), (2, 20, 21));
    let fresh = parse_rule("reset_counts,udp,actions=output:3").expect("right");
    tables.add(fresh.clone(), 30).expect("room");
    assert_eq!(packet(&tables, 31), (1, 30, 31));
    let entry = Arc::clone(tables.entries().next().expect("one rule"));
    tables.add(fresh, 40).expect("room");
    assert!(!tables.remove_entry(&entry), "another one stands there now");
    let standing = Arc::clone(tables.entries().next().expect("one rule"));
    assert!(tables.remove_entry(&standing) && tables.is_empty());
}
