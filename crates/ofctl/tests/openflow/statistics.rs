//! What the switch says of its flows, tables and ports.

use overbank_openflow::{
    Action, BadMatch, ErrorCode, Instruction, Message, Oxm, OxmField, OxmMatch, PortConfig,
    PortMod, PortModFailed, PortReason, QueueOpFailed, Version,
    consts::{group, meter, port},
    multipart::{FlowRequest, Reply, Request},
};

use super::bench::{Bench, PATIENCE, frame, patient, quiet, wait};
use super::client::{Client, add, everything, output, question, reply};

#[test]
fn unsupported_lists_are_empty() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V14);
    let all = u32::MAX;
    for (request, wanted) in [
        (Request::Queue { port: port::ANY, queue: all }, Reply::Queue),
        (Request::QueueDesc { port: 1, queue: all }, Reply::QueueDesc),
        (Request::Group { group: group::ALL }, Reply::Group),
        (Request::GroupDesc { group: group::ALL }, Reply::GroupDesc),
        (Request::Meter { meter: meter::ALL }, Reply::Meter),
        (Request::MeterConfig { meter: meter::ALL }, Reply::MeterConfig),
    ] {
        assert_eq!(reply(&mut client, request), wanted);
    }
    let Reply::GroupFeatures(features) = reply(&mut client, Request::GroupFeatures) else {
        panic!("no group features")
    };
    assert_eq!(features.types, 0);
    let Reply::TableDesc(tables) = reply(&mut client, Request::TableDesc) else {
        panic!("no table descriptions")
    };
    assert_eq!(tables.len(), 255);
    let Reply::Desc(desc) = reply(&mut client, Request::Desc) else { panic!("no description") };
    assert_eq!(desc.manufacturer.to_string(), "Overbank");
    let mut old = Client::connect(bench.address, Version::V13);
    let queues = old.ask(&Message::QueueGetConfigRequest { port: port::ANY });
    assert_eq!(queues, Message::QueueGetConfigReply { port: port::ANY });
    let none = old.refused(&Message::QueueGetConfigRequest { port: 99 });
    assert_eq!(none, QueueOpFailed::BadPort.into());
}

#[test]
fn ports_are_described_set_and_reported() {
    let bench = Bench::new(3);
    let mut client = Client::connect(bench.address, Version::V14);
    let mut watcher = Client::connect(bench.address, Version::V13);
    let Reply::PortDesc(ports) = reply(&mut client, Request::PortDesc { port: port::ANY }) else {
        panic!("no ports")
    };
    let names: Vec<String> = ports.iter().map(|port| port.name.to_string()).collect();
    assert_eq!(names, ["memory1", "memory2", "memory3"]);
    let mut change = PortMod {
        port: 2,
        hw_addr: ports[1].hw_addr,
        config: PortConfig::NO_FWD,
        mask: PortConfig::NO_FWD,
        advertise: 0,
    };
    client.done(&Message::PortMod(change));
    for client in [&mut client, &mut watcher] {
        let (reason, port) = client.unasked(|message| match message {
            Message::PortStatus(status) => Some((status.reason, status.port)),
            _ => None,
        });
        assert_eq!((reason, port.number), (PortReason::Modify, 2));
        assert_eq!(port.config, PortConfig::NO_FWD);
    }
    client.done(&Message::FlowMod(add(0, OxmMatch::default(), vec![output(port::ALL)])));
    let sent = frame(1, 2, b"x");
    bench.ports[0].inject(&sent);
    assert_eq!(bench.sent(3, 1), std::slice::from_ref(&sent));
    assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    assert_eq!(bench.ports[1].take_sent().len(), 0);
    // Workers tell their counts from time to time.
    wait("the counters", || {
        let ports = bench.switch().status().ports;
        (ports[0].received, ports[2].sent) == (1, 1)
    });
    let Reply::Port(stats) = reply(&mut client, Request::Port { port: port::ANY }) else {
        panic!("no counters")
    };
    assert_eq!((stats[0].rx_packets, stats[0].rx_bytes), (1, sent.len() as u64));
    assert_eq!((stats[2].tx_packets, stats[2].tx_bytes), (1, sent.len() as u64));
    let Reply::Port(one) = reply(&mut client, Request::Port { port: 3 }) else { panic!("none") };
    assert_eq!((one.len(), one[0].port), (1, 3));

    change.port = 9;
    assert_eq!(client.refused(&Message::PortMod(change)), PortModFailed::BadPort.into());
    (change.port, change.hw_addr) = (2, [9; 6]);
    assert_eq!(client.refused(&Message::PortMod(change)), PortModFailed::BadHwAddr.into());
}

/// A conformance tester compares what it asked for with what the dump says.
#[test]
fn a_dump_shows_the_max_len_that_a_controller_gave_each_output() {
    let bench = Bench::new(3);
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut client = Client::connect(bench.address, version);
        let actions: Vec<Action> = [2, port::FLOOD, port::IN_PORT, port::ALL, port::NORMAL]
            .into_iter()
            .zip([0xffe5, 0xffff, 1, 0, 128])
            .map(|(port, max_len)| Action::Output { port, max_len })
            .collect();
        client.done(&Message::FlowMod(add(7, OxmMatch::default(), actions.clone())));
        let flows = client.flows();
        assert_eq!(flows[0].instructions, [Instruction::ApplyActions(actions)]);
        // They are outputs like others: to a filter by port, and to packets.
        let only = |out_port| FlowRequest { out_port, ..everything() };
        let Reply::Aggregate(sum) = reply(&mut client, Request::Aggregate(only(port::FLOOD)))
        else {
            panic!("no sums")
        };
        assert_eq!(sum.flows, Some(1));
        let sent = frame(1, 2, b"max_len");
        bench.ports[0].inject(&sent);
        bench.sent(2, 3);
        bench.ports.iter().for_each(|port| drop(port.take_sent()));
    }
}

#[test]
fn counters_of_flows_and_tables_are_those_of_the_packets() {
    let bench = Bench::with(
        "priority=5,in_port=1,actions=goto_table:3\ntable=3,priority=1,actions=output:2",
        &vec![quiet(); 2],
        patient(),
        vec![],
    );
    let mut client = Client::connect(bench.address, Version::V13);
    let sent = frame(1, 2, b"abc");
    for _ in 0..5 {
        bench.ports[0].inject(&sent);
    }
    bench.ports[1].inject(&sent);
    bench.sent(2, 5);
    wait("the counters", || bench.switch().status().ports[1].received == 1);
    client.done(&Message::EchoReply(vec![]));
    let flows = client.flows();
    assert_eq!(flows.iter().map(|flow| flow.table).collect::<Vec<_>>(), [0, 3]);
    for flow in &flows {
        assert_eq!((flow.stats.packets, flow.stats.bytes), (Some(5), Some(5 * sent.len() as u64)));
    }
    let Reply::Aggregate(sum) = reply(&mut client, Request::Aggregate(everything())) else {
        panic!("no sums")
    };
    assert_eq!((sum.flows, sum.packets), (Some(2), Some(10)));
    let Reply::Table(tables) = reply(&mut client, Request::Table) else { panic!("no tables") };
    assert_eq!(tables.len(), 255);
    let of = |table: usize| (tables[table].active, tables[table].lookups, tables[table].matched);
    assert_eq!((of(0), of(3), of(4)), ((1, 6, 5), (1, 5, 5), (0, 0, 0)));
    let mut none = everything();
    none.out_group = 1;
    let Reply::Aggregate(sum) = reply(&mut client, Request::Aggregate(none)) else {
        panic!("none")
    };
    assert_eq!(sum.flows, Some(0));
    let bad = OxmMatch::from(vec![Oxm::exact(OxmField::Metadata, 1)]);
    let bad = question(Request::Flow(FlowRequest { matching: bad, ..everything() }));
    assert_eq!(client.refused(&bad), ErrorCode::from(BadMatch::BadField));
}

#[test]
fn a_large_dump_comes_whole_and_in_order_while_little_waits_to_be_sent() {
    const RULES: u32 = 20_000;
    let bench = Bench::new(1);
    let handle = bench.handle();
    {
        let mut core = handle.lock();
        for number in 0..RULES {
            let text = format!("priority={},ip,nw_dst={number},actions=output:1", number % 100 + 1);
            let text = text.replace(
                &format!("nw_dst={number}"),
                &format!("nw_dst={}", std::net::Ipv4Addr::from_bits(number)),
            );
            let rule = overbank_switch::parse::parse_rule(&text).expect("a rule");
            core.add(rule).expect("room");
        }
    }
    let mut client = Client::connect(bench.address, Version::V13);
    client.send(&question(Request::Flow(everything())));
    let mut count = 0;
    let mut last = u16::MAX;
    loop {
        let (_, message) = client.try_next(PATIENCE).expect("the dump goes on");
        let Message::MultipartReply(reply) = message else { panic!("{message:?}") };
        let Reply::Flow(flows) = reply.body else { panic!("no flows") };
        for flow in flows {
            assert!(flow.priority <= last, "from the highest priority down");
            last = flow.priority;
            count += 1;
        }
        if !reply.more {
            break;
        }
    }
    assert_eq!(count, RULES);
    // All of it is some megabytes.
    let most = bench.counters.snapshot().bytes_queued_most;
    assert!(most < 512 * 1024, "{most} bytes waited at once");
}

#[test]
fn a_table_that_is_looked_through_elsewhere_is_whole() {
    // More rules than a session looks through on the spot.
    let rules: String = (1..=5000u32)
        .map(|n| {
            let [_, _, a, b] = n.to_be_bytes();
            format!("priority={n},ip,nw_dst=10.0.{a}.{b},actions=output:2\n")
        })
        .collect();
    let bench = Bench::with(&rules, &vec![quiet(); 2], patient(), vec![]);
    let mut client = Client::connect(bench.address, Version::V13);
    let flows = client.flows();
    let priorities: Vec<u16> = flows.iter().map(|flow| flow.priority).collect();
    assert_eq!(priorities, (1..=5000).rev().collect::<Vec<u16>>());
    let Reply::Aggregate(sum) = reply(&mut client, Request::Aggregate(everything())) else {
        panic!("no sum")
    };
    assert_eq!(sum.flows, Some(5000));
}
