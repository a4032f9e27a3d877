//! Rules: accounts that close, rules that change under traffic, packets to and from controllers,
//! MAC learning, timeouts.

use crate::common::{PATIENCE, closed, frame, mac, number_of, ports, quiet, wait};
use overbank_ofctl::engine::PacketOut;
use overbank_ofctl::rules::{
    ControllerHandle as _, Event, PortConfig, RemovedReason, SubscriptionLimits,
};
use overbank_ofctl::{Setup, start};
use overbank_ports::looped::MemoryOptions;
use overbank_runtime::{NotSent, Options};
use overbank_switch::datapath::CacheConfig;
use overbank_switch::parse::parse_rules;
use overbank_switch::ports::{PORT_CONTROLLER, PORT_TABLE};
use overbank_switch::rule::{Action, Rule};
use overbank_switch::sink::PacketInReason;
use overbank_switch::tables::Filter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn rules(text: &str) -> Vec<Rule> {
    parse_rules(text).expect("rules of the test")
}

fn setup(workers: usize, text: &str) -> Setup {
    let design = "cuckoo-2-16+half-bubble".parse().expect("a design");
    Setup {
        run: Options { workers, ..Options::default() },
        rules: rules(text),
        cache: Some(CacheConfig { design, entries: 4096, isa: None }),
        megaflows: 1024,
        ..Setup::default()
    }
}

#[test]
fn every_frame_is_accounted_for_with_one_worker_and_with_several() {
    for workers in [1, 2, 3] {
        let of = |flows, size, limit| MemoryOptions {
            flows,
            size,
            limit: Some(limit),
            ..MemoryOptions::default()
        };
        let (ports, _) =
            ports(&[of(500, 64, 50_000), of(700, 128, 70_000), of(1, 60, 1000)], workers);
        let text = "priority=9,in_port=1,ip,nw_src=10.0.0.0/25,actions=output:2
                    priority=8,in_port=1,ip,nw_src=10.0.1.0/24,actions=drop
                    priority=7,in_port=1,actions=output:2,output:3
                    priority=6,in_port=2,ip,nw_src=10.0.0.0/24,actions=mod_nw_tos:32,output:1,output:2
                    priority=6,in_port=2,ip,nw_src=10.0.1.0/24,actions=controller
                    in_port=2,ip,nw_src=10.0.2.0/24,actions=output:9";
        let switch = start(setup(workers, text), ports).expect("started");
        wait("the end of the frames", || switch.is_finished());
        let status = switch.stop();
        closed(&status);
        let received: Vec<u64> = status.ports.iter().map(|port| port.received).collect();
        assert_eq!(received, [50_000, 70_000, 1000, 0], "{workers} workers");
        // One frame a flow, over and over; source addresses count up from 10.0.0.0.
        let [one, two, three, _] = &status.ports[..] else { panic!("four ports") };
        assert_eq!(one.received_bytes, 50_000 * 64);
        assert_eq!(one.dropped.of("rule_drop"), 244 * 100, "{one:?}");
        assert_eq!(one.forwarded, 256 * 100, "{one:?}");
        assert_eq!(two.forwarded, 256 * 100, "{two:?}");
        assert_eq!(two.dropped.of("no_controller"), 256 * 100);
        assert_eq!(two.dropped.of("no_output"), 188 * 100);
        assert_eq!(three.dropped.of("no_rule"), 1000);
        assert_eq!((one.sent, two.sent), (256 * 100, 256 * 100), "output:2 is its own port");
        assert_eq!(status.total.packets, 121_000);
        assert_eq!(status.workers.len(), workers);
        assert_eq!(
            status.total.engine.microflow_lookups,
            status.total.engine.microflow_hits + status.total.engine.megaflow_lookups
        );
    }
}

/// Each frame carries a number, each set of rules writes its version into what it forwards. For
/// each number it is known which version was in force for certain when it came in, and which was
/// the newest when it was seen again: what was written lies between them.
#[test]
fn packets_are_treated_by_the_rules_that_stood_or_by_those_that_replaced_them() {
    const CONFIRMED: u64 = 100;
    let by_version = |version: u64| {
        let text = format!(
            "priority=10,udp,actions=mod_nw_tos:{},mod_tp_dst:{version},output:2",
            version % 64 * 4
        );
        rules(&text)
    };
    let workers = 2;
    let (ports, handles) = quiet(2, workers);
    let switch = start(setup(workers, ""), ports).expect("started");
    let handle = switch.handle().clone();
    handle.lock().reload(by_version(1)).expect("rules");
    assert!(handle.barrier_blocking(PATIENCE));
    let (confirmed, asked) = (AtomicU64::new(1), AtomicU64::new(1));
    let (injected, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let mut low = Vec::new();
    let mut changes = 0;
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut version = 1;
            for round in 0..CONFIRMED {
                // Some that replace each other at once, then one that is surely in force.
                for _ in 0..=round % 3 {
                    version += 1;
                    asked.store(version, Ordering::SeqCst);
                    handle.lock().reload(by_version(version)).expect("rules");
                }
                assert!(handle.barrier_blocking(PATIENCE));
                confirmed.store(version, Ordering::SeqCst);
                // Frames that came in afterwards leave before the next change.
                let target = injected.load(Ordering::SeqCst) + 300;
                wait("frames", || done.load(Ordering::SeqCst) >= target);
            }
            over.store(1, Ordering::SeqCst);
            version
        });
        let start = Instant::now();
        let mut last = [0u64; 64];
        while over.load(Ordering::SeqCst) == 0 || done.load(Ordering::SeqCst) < low.len() as u64 {
            assert!(start.elapsed() < PATIENCE * 2, "{} frames only", low.len());
            let in_flight = low.len() as u64 - done.load(Ordering::SeqCst);
            if in_flight < 256 && over.load(Ordering::SeqCst) == 0 {
                let number = low.len() as u64;
                low.push(confirmed.load(Ordering::SeqCst));
                // 64 flows, which are divided over the workers.
                let flow = 1000 + (number % 64) as u16;
                assert!(handles[0].inject(&frame(mac(1), mac(2), flow, number)));
                injected.store(number + 1, Ordering::SeqCst);
            }
            for sent in handles[1].take_sent() {
                let high = asked.load(Ordering::SeqCst);
                let number = number_of(&sent);
                let version = u64::from(u16::from_be_bytes([sent[36], sent[37]]));
                assert_eq!(u64::from(sent[15]), version % 64 * 4, "one version writes both fields");
                let low = low[number as usize];
                assert!((low..=high).contains(&version), "{number}: {low} ≤ {version} ≤ {high}");
                let last = &mut last[(number % 64) as usize];
                assert!(*last <= number, "flows keep their order");
                *last = number;
                done.fetch_add(1, Ordering::SeqCst);
            }
        }
        changes = changer.join().expect("no assertion failed");
    });
    let status = switch.stop();
    closed(&status);
    assert_eq!(status.ports[0].forwarded, low.len() as u64);
    assert!(changes > CONFIRMED && status.total.snapshots > CONFIRMED, "{changes} changes");
}

#[test]
fn normal_learns_floods_and_follows_a_station_that_moves() {
    let (ports, handles) = quiet(3, 2);
    let switch = start(setup(2, "actions=normal"), ports).expect("started");
    let seen = |n: usize| handles[n].take_sent().iter().map(|f| number_of(f)).collect::<Vec<_>>();
    let stations = |n| wait("stations", || switch.status().control.stations.totals.stations == n);
    handles[0].inject(&frame(mac(1), mac(2), 5, 1));
    stations(1);
    wait("both others", || switch.status().ports[0].forwarded == 1);
    wait("flooded", || {
        let status = switch.status();
        (status.ports[1].sent, status.ports[2].sent) == (1, 1)
    });
    assert_eq!((seen(0), seen(1), seen(2)), (vec![], vec![1], vec![1]));
    handles[1].inject(&frame(mac(2), mac(1), 5, 2));
    stations(2);
    wait("only to the known port", || seen(0) == [2]);
    assert!(seen(2).is_empty());
    // Station 1 goes to port 3; what is for it follows at once.
    handles[2].inject(&frame(mac(1), mac(2), 5, 3));
    wait("moved", || switch.status().control.stations.macs.moved == 1);
    wait("to port 2", || seen(1) == [3]);
    handles[1].inject(&frame(mac(2), mac(1), 5, 4));
    wait("to port 3", || seen(2) == [4]);
    // Behind the same port: dropped. Reserved for link protocols: dropped. Broadcast: flooded.
    handles[2].inject(&frame(mac(9), mac(1), 5, 5));
    handles[2].inject(&frame(mac(9), [1, 0x80, 0xc2, 0, 0, 3], 5, 6));
    handles[2].inject(&frame(mac(9), [0xff; 6], 5, 7));
    wait("dropped", || switch.status().ports[2].dropped.of("normal_drop") == 2);
    wait("flooded", || seen(0) == [7]);
    let status = switch.stop();
    closed(&status);
}

#[test]
fn controllers_get_packets_and_send_them() {
    let (ports, handles) = quiet(3, 2);
    let text = "priority=5,udp,tp_src=1,actions=controller:50
                priority=5,udp,tp_src=2,actions=output:2,controller
                priority=5,udp,tp_src=3,actions=output:3
                priority=0,actions=controller";
    let mut setup = setup(2, text);
    setup.controller_queue = 4;
    let switch = start(setup, ports).expect("started");
    let handle = switch.handle().clone();
    let mut subscription = handle.subscribe(SubscriptionLimits::default());
    handles[0].inject(&frame(mac(1), mac(2), 1, 11));
    let mut next = || {
        let mut got = None;
        wait("a packet", || {
            got = subscription.packets.try_recv().ok();
            got.is_some()
        });
        got.expect("waited for")
    };
    let packet = next();
    assert_eq!((packet.reason, packet.max_len, packet.in_port), (PacketInReason::Action, 50, 1));
    assert_eq!(number_of(&packet.frame), 11, "all of it");
    handles[0].inject(&frame(mac(1), mac(2), 2, 12));
    assert_eq!(number_of(&next().frame), 12);
    handles[0].inject(&frame(mac(1), mac(2), 99, 13));
    assert_eq!(next().reason, PacketInReason::NoMatch);
    wait("the frame for port 2", || switch.status().ports[1].sent == 1);
    // Back: by a list of actions, and through the tables.
    let out = |actions, number| PacketOut {
        frame: frame(mac(3), mac(4), 3, number),
        in_port: PORT_CONTROLLER,
        actions,
    };
    handle.packet_out(out(vec![Action::Output(1), Action::Output(2)], 20)).expect("room");
    handle.packet_out(out(vec![Action::Output(PORT_TABLE)], 21)).expect("room");
    handle.packet_out(out(vec![], 22)).expect("room");
    assert!(handle.barrier_blocking(PATIENCE));
    let numbers =
        |n: usize| handles[n].take_sent().iter().map(|f| number_of(f)).collect::<Vec<_>>();
    assert_eq!((numbers(0), numbers(1), numbers(2)), (vec![20], vec![12, 20], vec![21]));
    // A port whose packets controllers do not want.
    let config = PortConfig { no_packet_in: true, ..PortConfig::default() };
    handle.lock().set_port_config(1, config).expect("there is a port 1");
    assert!(handle.lock().set_port_config(7, config).is_err());
    assert!(handle.barrier_blocking(PATIENCE));
    handles[0].inject(&frame(mac(1), mac(2), 1, 14));
    wait("refused", || switch.status().ports[0].dropped.of("port_no_packet_in") != 0);
    drop(subscription);
    handles[1].inject(&frame(mac(1), mac(2), 1, 15));
    wait("no controller", || switch.status().ports[1].dropped.of("no_controller") != 0);
    let status = switch.stop();
    closed(&status);
    let one = &status.ports[0];
    assert_eq!(
        (one.received, one.forwarded, one.to_controller, one.controller_copies),
        (4, 1, 2, 1)
    );
    let controllers = status.ports.last().expect("the controllers");
    assert_eq!((controllers.received, controllers.forwarded), (3, 2));
    assert_eq!(status.total.engine.packet_outs, 3);
}

/// No session takes packets out of the queue: it fills up to its bound, and forwarding goes on.
#[test]
fn a_controller_that_does_not_listen_costs_nothing_but_its_packets() {
    let looping = MemoryOptions { flows: 10, limit: Some(20_000), ..MemoryOptions::default() };
    let (ports, _) = ports(&[looping, MemoryOptions::default()], 1);
    let text = "ip,nw_src=10.0.0.0/30,actions=controller
                ip,actions=output:2";
    let mut setup = setup(1, text);
    setup.controller_queue = 3;
    let switch = start(setup, ports).expect("started");
    let mut subscription = switch.handle().subscribe(SubscriptionLimits { events: 1, packets: 5 });
    wait("the end of the frames", || switch.status().ports[0].received == 20_000);
    let status = switch.stop();
    closed(&status);
    let one = &status.ports[0];
    assert_eq!(one.forwarded, 12_000);
    let full = one.dropped.of("controller_queue_full");
    let no_controller = one.dropped.of("no_controller");
    assert_eq!(one.to_controller + full + no_controller, 8000);
    let mut taken = 0;
    while subscription.packets.try_recv().is_ok() {
        taken += 1;
    }
    assert!(taken <= 5 && subscription.lost_packets() <= one.to_controller);
}

#[test]
fn rules_end_by_themselves_and_say_so() {
    let (ports, handles) = quiet(2, 1);
    let text = "priority=1,idle_timeout=1,send_flow_rem,actions=output:2
                priority=2,udp,tp_src=5,hard_timeout=1,send_flow_rem,cookie=5,actions=output:2
                priority=3,udp,tp_src=6,actions=output:2,normal";
    let text = text.replace("cookie=5,", "");
    let switch = start(setup(1, &text), ports).expect("started");
    let handle = switch.handle().clone();
    let mut subscription = handle.subscribe(SubscriptionLimits::default());
    // Traffic keeps the first one for as long as it comes, and does not keep the second one. How
    // long the machine lets us wait between two frames is not ours to say: it may end the first
    // one, too.
    let idle =
        handle.lock().tables().entries().find(|entry| entry.rule.idle_timeout_s != 0).cloned();
    let idle = idle.expect("it was just added");
    let (mut sent, mut removed, mut after) = (0, Vec::new(), 0);
    let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    while after < 20 {
        assert!(start.elapsed() < PATIENCE, "{removed:?}");
        handles[0].inject(&frame(mac(1), mac(2), 5, 0));
        handles[0].inject(&frame(mac(1), mac(2), 7, 0));
        sent += 1;
        std::thread::sleep(Duration::from_millis(50));
        wait("received", || switch.status().ports[0].received == 2 * sent);
        longest = longest.max(std::mem::replace(&mut last, Instant::now()).elapsed());
        while let Ok(event) = subscription.events.try_recv() {
            removed.push(event);
            assert!(handle.barrier_blocking(PATIENCE));
        }
        after += u32::from(!removed.is_empty());
    }
    wait("both report it", || {
        while let Ok(event) = subscription.events.try_recv() {
            removed.push(event);
        }
        removed.len() == 2
    });
    let told = |wanted| {
        let of = removed.iter().filter_map(|event| match &**event {
            Event::FlowRemoved(flow) if flow.reason == wanted => Some(flow.clone()),
            _ => None,
        });
        let all: Vec<_> = of.collect();
        assert_eq!(all.len(), 1, "{removed:?}");
        all[0].clone()
    };
    let (hard, gone) = (told(RemovedReason::Hard), told(RemovedReason::Idle));
    assert!(hard.age_ms >= 1000 && gone.age_ms >= 1000, "{removed:?}");
    assert!(handle.barrier_blocking(PATIENCE));
    // After the hard one went, its packets fell to the other one, and when there was none, to none.
    let no_rule = switch.status().ports[0].dropped.of("no_rule");
    let [by_hard, by_idle] = [&hard, &gone].map(|flow| flow.entry.stats.packets());
    assert_eq!(by_hard + by_idle + no_rule, 2 * sent, "{removed:?}");
    assert!(by_hard < sent, "{removed:?}");
    // The idle one ended a second after its last packet and no sooner, unless we sent none for
    // long.
    let (end, last) = (idle.created_ms + gone.age_ms, idle.stats.last_used_ms());
    let stalled = longest > Duration::from_millis(500);
    assert!(end >= last + 1000 || stalled, "used at {last} ms, ended at {end} ms, {gone:?}");
    if !stalled {
        assert_eq!(no_rule, 0, "{removed:?}");
        assert!(hard.packets > 0 && gone.packets > sent, "{removed:?}");
        // Late by less than as long again, and half a second for a busy machine.
        assert!(hard.age_ms < 2500 && end < last + 2500, "used at {last} ms, {removed:?}");
    }
    assert_eq!(handle.lock().delete(&Filter::default()), 1);
    assert!(subscription.events.try_recv().is_err(), "it did not ask to tell");
    closed(&switch.stop());
}

#[test]
fn ports_that_shall_not_do_not() {
    let (ports, handles) = quiet(3, 1);
    let switch = start(setup(1, "actions=flood"), ports).expect("started");
    let handle = switch.handle().clone();
    let set = |number, config| {
        handle.lock().set_port_config(number, config).expect("there is such a port");
        assert!(handle.barrier_blocking(PATIENCE));
    };
    let inject = |n: usize, number| {
        let before = switch.status().ports[n].received;
        handles[n].inject(&frame(mac(1), mac(2), 5, number));
        wait("received", || switch.status().ports[n].received == before + 1);
    };
    set(2, PortConfig { no_flood: true, ..PortConfig::default() });
    inject(0, 1);
    set(2, PortConfig { no_forward: true, ..PortConfig::default() });
    inject(0, 2);
    set(2, PortConfig::default());
    set(3, PortConfig { no_receive: true, ..PortConfig::default() });
    inject(2, 3);
    set(1, PortConfig { down: true, ..PortConfig::default() });
    inject(0, 4);
    inject(1, 5);
    let sent = |n: usize| handles[n].take_sent().iter().map(|f| number_of(f)).collect::<Vec<_>>();
    let status = switch.stop();
    closed(&status);
    assert_eq!((sent(0), sent(1), sent(2)), (vec![], vec![], vec![1, 2, 5]));
    assert_eq!(status.ports[1].not_sent[NotSent::Blocked.index()], 1);
    assert_eq!(status.ports[2].dropped.of("port_blocked"), 1);
    assert_eq!(status.ports[0].dropped.of("port_blocked"), 1);
    assert_eq!(status.ports[0].not_sent[NotSent::Blocked.index()], 1);
}
