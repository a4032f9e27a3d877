//! Sessions: versions, configuration, roles, packets in and out, buffers, news, statistics.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use overbank_live::control::ControlOptions;
use overbank_live::target::Target;
use overbank_openflow::{
    AsyncConfig, BUFFER_NONE, BadAction, BadMatch, BadRequest, ErrorCode, FlowCommand, FlowFlags,
    FlowMod, FlowRemovedReason, GroupMod, GroupModFailed, Header, Message, MeterMod,
    MeterModFailed, Oxm, OxmField, OxmMatch, PacketIn, PacketInReason, PacketOut, PortConfig,
    PortMod, PortModFailed, PortReason, QueueOpFailed, Role, RoleMasks, RoleRequestFailed,
    RoleState, SwitchConfig, SwitchConfigFailed, TableFeaturesFailed, TableMod, TableModFailed,
    Version,
    consts::{group, meter, port},
    multipart::{Reply, Request, TableFeatures},
};

use super::bench::{Bench, PATIENCE, frame, quiet, wait};
use super::client::{Client, add, everything, output, question};

fn reply(client: &mut Client, request: Request) -> Reply {
    match client.ask(&question(request)) {
        Message::MultipartReply(reply) => reply.body,
        other => panic!("{other:?}"),
    }
}

/// A rule that sends all to the controllers.
fn to_controller(max_len: u16) -> Message {
    let action = overbank_openflow::Action::Output { port: port::CONTROLLER, max_len };
    Message::FlowMod(add(0, OxmMatch::default(), vec![action]))
}

fn packet_in(client: &mut Client) -> PacketIn {
    client.unasked(|message| match message {
        Message::PacketIn(packet) => Some(packet.clone()),
        _ => None,
    })
}

fn packet_out(buffer_id: u32, in_port: u32, to: u32, data: Vec<u8>) -> Message {
    let actions = vec![output(to)];
    Message::PacketOut(PacketOut {
        buffer_id,
        in_port,
        pipeline: OxmMatch::default(),
        actions,
        data,
    })
}

#[test]
fn the_highest_version_in_common_is_spoken() {
    let bench = Bench::new(1);
    for version in Version::ALL {
        let mut client = Client::connect(bench.address, version);
        let Message::FeaturesReply(features) = client.ask(&Message::FeaturesRequest) else {
            panic!("no features")
        };
        assert_eq!((features.n_tables, features.n_buffers, features.datapath_id), (255, 256, 1));
        let echo = client.ask(&Message::EchoRequest(vec![1, 2, 3]));
        assert_eq!(echo, Message::EchoReply(vec![1, 2, 3]));
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
    assert_eq!(bench.counters.snapshot().sessions_total, 3);
}

#[test]
fn the_configuration_is_that_of_the_session() {
    let bench = Bench::new(1);
    let mut client = Client::connect(bench.address, Version::V13);
    let config = |miss_send_len| SwitchConfig { flags: 0, miss_send_len };
    assert_eq!(client.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(128)));
    client.done(&Message::SetConfig(config(999)));
    assert_eq!(client.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(999)));
    for flags in [SwitchConfig::FRAG_DROP, SwitchConfig::FRAG_REASM, 3, 8] {
        let set = Message::SetConfig(SwitchConfig { flags, miss_send_len: 0 });
        assert_eq!(client.refused(&set), SwitchConfigFailed::BadFlags.into());
    }
    let mut other = Client::connect(bench.address, Version::V13);
    assert_eq!(other.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(128)));
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V15);
    let group = |command| {
        let (buckets, properties) = (Vec::new(), Vec::new());
        Message::GroupMod(GroupMod { command, kind: 0, group: 1, bucket: 0, buckets, properties })
    };
    let meter =
        |command| Message::MeterMod(MeterMod { command, flags: 0, meter: 1, bands: vec![] });
    let table = |config| Message::TableMod(TableMod { table: 255, config, properties: vec![] });
    let nicira =
        overbank_openflow::Experimenter { experimenter: 0x2320, exp_type: 16, data: vec![] };
    let wanted = TableFeatures { table: 1, ..TableFeatures::default() };
    for (message, code) in [
        (group(GroupMod::ADD), GroupModFailed::OutOfGroups.into()),
        (group(GroupMod::MODIFY), GroupModFailed::UnknownGroup.into()),
        (meter(0), MeterModFailed::OutOfMeters.into()),
        (meter(1), MeterModFailed::UnknownMeter.into()),
        (table(4), TableModFailed::BadConfig.into()),
        (Message::Experimenter(nicira.clone()), BadRequest::BadExperimenter.into()),
        (question(Request::Experimenter(nicira)), BadRequest::BadExperimenter.into()),
        (question(Request::FlowMonitor(vec![])), BadRequest::BadMultipart.into()),
        (question(Request::TableFeatures(vec![wanted])), TableFeaturesFailed::Eperm.into()),
        (question(Request::Port { port: 99 }), BadRequest::BadPort.into()),
        (question(Request::PortDesc { port: 99 }), BadRequest::BadPort.into()),
        (question(Request::Queue { port: 99, queue: u32::MAX }), QueueOpFailed::BadPort.into()),
        (question(Request::Queue { port: 1, queue: 0 }), QueueOpFailed::BadQueue.into()),
        (question(Request::Meter { meter: 5 }), MeterModFailed::UnknownMeter.into()),
        (packet_out(77, 1, 2, vec![]), BadRequest::BufferUnknown.into()),
        (packet_out(BUFFER_NONE, port::FLOOD, 2, vec![0; 60]), BadRequest::BadPort.into()),
        (packet_out(BUFFER_NONE, 1, port::ANY, vec![0; 60]), BadAction::BadOutPort.into()),
        (Message::BarrierReply, BadRequest::BadType.into()),
    ] {
        assert_eq!(client.refused(&message), code, "{message:?}");
    }
    for message in [group(GroupMod::DELETE), meter(MeterMod::DELETE), table(0)] {
        client.done(&message);
    }
    let errors = bench.counters.snapshot().errors_sent;
    assert_eq!(errors, 18);
    // A message of another version is none of this session.
    let mut bytes = Header { version: 4, kind: 2, length: 8, xid: 5 }.to_bytes().to_vec();
    std::io::Write::write_all(&mut client.stream, &bytes).expect("it reads");
    let Message::Error(error) = client.answer(5) else { panic!("no error") };
    assert_eq!(error.code, BadRequest::BadVersion.into());
    assert_eq!(error.data, bytes);
    // A type that there is not.
    bytes[..2].copy_from_slice(&[6, 99]);
    bytes[7] = 6;
    std::io::Write::write_all(&mut client.stream, &bytes).expect("it reads");
    let Message::Error(error) = client.answer(6) else { panic!("no error") };
    assert_eq!(error.code, BadRequest::BadType.into());
}

#[test]
fn lists_of_what_there_is_not_are_empty() {
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
fn packets_come_in_with_buffers_and_leave_from_them() {
    let bench = Bench::new(3);
    let mut client = Client::connect(bench.address, Version::V13);
    client.done(&to_controller(20));
    let sent = frame(1, 2, &[0x5a; 100]);
    bench.ports[0].inject(&sent);
    let packet = packet_in(&mut client);
    assert_eq!(packet.data, &sent[..20]);
    assert_eq!(usize::from(packet.total_len), sent.len());
    assert_eq!((packet.reason, packet.table, packet.cookie), (PacketInReason::TableMiss, 0, 0));
    assert_eq!(packet.matching.in_port(), Some(1));
    assert_ne!(packet.buffer_id, BUFFER_NONE);
    assert_eq!(bench.counters.snapshot().buffers_in_use, 1);
    // Another session has buffers of its own.
    let mut other = Client::connect(bench.address, Version::V13);
    let stolen = other.refused(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(stolen, BadRequest::BufferUnknown.into());

    client.done(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(bench.sent(2, 1), [sent.clone()]);
    let again = client.refused(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(again, BadRequest::BufferEmpty.into());
    assert_eq!(bench.counters.snapshot().buffers_in_use, 0);

    // A flow-mod sends the packet through the tables as they are then.
    bench.ports[0].inject(&sent);
    let packet = packet_in(&mut client);
    let mut flow = add(9, OxmMatch::of_port(1), vec![output(3)]);
    flow.buffer_id = packet.buffer_id;
    client.done(&Message::FlowMod(flow.clone()));
    assert_eq!(bench.sent(3, 1), std::slice::from_ref(&sent));
    // The rule stands, also if its buffer is gone.
    flow.priority = 10;
    assert_eq!(client.refused(&Message::FlowMod(flow)), BadRequest::BufferEmpty.into());
    assert_eq!(client.flows().len(), 3);

    // Whole frames need no buffer.
    client.done(&to_controller(0xffff));
    bench.ports[1].inject(&sent);
    let packet = packet_in(&mut client);
    assert_eq!((packet.buffer_id, packet.data), (BUFFER_NONE, sent));
    assert_eq!(packet.matching.in_port(), Some(2));
}

#[test]
fn packets_of_a_controller_leave_by_ports_and_go_through_the_tables() {
    let bench = Bench::with(
        "priority=5,in_port=2,actions=output:3\npriority=4,actions=output:1",
        &vec![quiet(); 3],
        ControlOptions::default(),
        vec![],
    );
    let mut client = Client::connect(bench.address, Version::V15);
    let data = frame(1, 2, b"hello");
    client.done(&packet_out(BUFFER_NONE, port::CONTROLLER, 2, data.clone()));
    assert_eq!(bench.sent(2, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, 2, port::TABLE, data.clone()));
    assert_eq!(bench.sent(3, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, port::CONTROLLER, port::TABLE, data.clone()));
    assert_eq!(bench.sent(1, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, 1, port::FLOOD, data.clone()));
    assert_eq!((bench.sent(2, 1).len(), bench.sent(3, 1).len()), (1, 1));
    assert_eq!(bench.ports[0].take_sent().len(), 0, "not back where it came from");
    client.done(&packet_out(BUFFER_NONE, 1, port::IN_PORT, data.clone()));
    assert_eq!(bench.sent(1, 1), [data]);
    assert_eq!(bench.counters.snapshot().packet_outs, 5);
}

#[test]
fn there_is_one_master_and_slaves_only_read() {
    let bench = Bench::new(2);
    let mut one = Client::connect(bench.address, Version::V14);
    let mut two = Client::connect(bench.address, Version::V13);
    let role = |role, generation_id| Message::RoleRequest(RoleState { role, generation_id });
    let is = |role, generation_id| Message::RoleReply(RoleState { role, generation_id });
    assert_eq!(one.ask(&role(Role::NoChange, 0)), is(Role::Equal, u64::MAX));
    assert_eq!(one.ask(&role(Role::Master, 7)), is(Role::Master, 7));
    assert_eq!(two.refused(&role(Role::Master, 6)), RoleRequestFailed::Stale.into());
    assert_eq!(two.ask(&role(Role::Master, 8)), is(Role::Master, 8));
    let told = one.unasked(|message| match message {
        Message::RoleStatus(status) => Some((status.role, status.generation_id)),
        _ => None,
    });
    assert_eq!(told, (Role::Slave, 8));
    assert_eq!(one.ask(&role(Role::NoChange, 0)), is(Role::Slave, 8));

    let flow = Message::FlowMod(add(0, OxmMatch::default(), vec![output(1)]));
    let bundle = overbank_openflow::BundleControl { bundle: 1, kind: 0, flags: 3 };
    let port_mod = PortMod {
        port: 1,
        hw_addr: [0; 6],
        config: PortConfig(0),
        mask: PortConfig(0),
        advertise: 0,
    };
    for message in [
        flow.clone(),
        packet_out(BUFFER_NONE, 1, 2, vec![0; 60]),
        Message::PortMod(port_mod),
        Message::BundleControl(bundle),
        Message::TableMod(TableMod { table: 0, config: 0, properties: vec![] }),
        Message::MeterMod(MeterMod { command: 2, flags: 0, meter: 1, bands: vec![] }),
    ] {
        assert_eq!(one.refused(&message), BadRequest::IsSlave.into(), "{message:?}");
    }
    assert_eq!(bench.rules().len(), 0);
    two.done(&flow);
    assert_eq!(one.flows().len(), 1, "a slave may read");

    // A slave hears of ports only, unless it asks for more.
    two.done(&to_controller(0xffff));
    bench.ports[0].inject(&frame(1, 2, b"x"));
    bench.ports[0].inject(&frame(1, 2, b"y"));
    packet_in(&mut two);
    packet_in(&mut two);
    assert_eq!(one.drain(), []);
    let slave = RoleMasks { master: None, slave: Some(0b11) };
    one.done(&Message::SetAsync(AsyncConfig { packet_in: slave, ..AsyncConfig::default() }));
    bench.ports[0].inject(&frame(1, 2, b"z"));
    packet_in(&mut one);
    let Message::GetAsyncReply(config) = one.ask(&Message::GetAsyncRequest) else {
        panic!("no async configuration")
    };
    assert_eq!(config.packet_in.slave, Some(0b11));
    assert_eq!(config.port_status.slave, Some(0b111));
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

#[test]
fn a_rule_that_goes_is_reported_with_its_reason_and_counts() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V13);
    let mut newer = Client::connect(bench.address, Version::V15);
    let of = |priority: u16, cookie, idle_timeout, hard_timeout| {
        let mut flow = add(priority, OxmMatch::of_port(1), vec![output(2)]);
        (flow.cookie, flow.flags) = (cookie, FlowFlags::SEND_FLOW_REM);
        (flow.idle_timeout, flow.hard_timeout) = (idle_timeout, hard_timeout);
        flow
    };
    client.done(&Message::FlowMod(of(3, 0xa, 1, 0)));
    let sent = frame(1, 2, b"four");
    for _ in 0..3 {
        bench.ports[0].inject(&sent);
    }
    bench.sent(2, 3);
    client.done(&Message::FlowMod(of(2, 0xb, 0, 1)));
    client.done(&Message::FlowMod(of(1, 0xc, 0, 0)));
    let delete =
        FlowMod { command: FlowCommand::DeleteStrict, flags: FlowFlags(0), ..of(1, 0, 0, 0) };
    client.done(&Message::FlowMod(delete));
    for client in [&mut client, &mut newer] {
        for (cookie, reason, packets) in [
            (0xc, FlowRemovedReason::Delete, 0),
            (0xa, FlowRemovedReason::IdleTimeout, 3),
            (0xb, FlowRemovedReason::HardTimeout, 0),
        ] {
            let gone = client.unasked(|message| match message {
                Message::FlowRemoved(gone) if gone.cookie == cookie => Some(gone.clone()),
                _ => None,
            });
            assert_eq!(gone.reason, reason, "{gone:?}");
            assert_eq!(gone.stats.packets, Some(packets), "{gone:?}");
            assert_eq!(gone.stats.bytes, Some(packets * sent.len() as u64));
            assert_eq!(gone.matching, OxmMatch::of_port(1));
            let age = gone.stats.duration.expect("how long it stood");
            assert!(reason == FlowRemovedReason::Delete || age.sec >= 1, "{gone:?}");
        }
    }
    assert_eq!(bench.rules().len(), 0);
}

#[test]
fn counters_of_flows_and_tables_are_those_of_the_packets() {
    let bench = Bench::with(
        "priority=5,in_port=1,actions=goto_table:3\ntable=3,priority=1,actions=output:2",
        &vec![quiet(); 2],
        ControlOptions::default(),
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
    let bad = question(Request::Flow(overbank_openflow::multipart::FlowRequest {
        matching: bad,
        ..everything()
    }));
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
    let xid = client.send(&question(Request::Flow(everything())));
    let _ = xid;
    wait("the dump is under way", || bench.counters.snapshot().bytes_queued > 0);
    std::thread::sleep(Duration::from_millis(100));
    let queued = bench.counters.snapshot().bytes_queued;
    assert!(queued < 1024 * 1024, "{queued} bytes wait");
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
}

#[test]
fn the_switch_connects_to_a_controller_and_again_when_it_returns() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let options = ControlOptions {
        backoff: (Duration::from_millis(10), Duration::from_millis(40)),
        ..ControlOptions::default()
    };
    let target = Target::Connect { host: "127.0.0.1".to_owned(), port: address.port() };
    let bench = Bench::with("", &[quiet()], options, vec![target]);
    for _ in 0..2 {
        let (stream, _) = listener.accept().expect("it comes");
        let mut client = Client::greet(stream, Version::V13);
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
        wait("it counts as connected", || bench.handle().lock().controllers() == 1);
    }
    drop(listener);
    wait("attempts that fail", || bench.counters.snapshot().connects_failed >= 3);
    wait("it counts as away", || bench.handle().lock().controllers() == 0);
    let listener = TcpListener::bind(address).expect("the same port");
    let (stream, _) = listener.accept().expect("it comes back");
    drop(Client::greet(stream, Version::V15));
}

#[test]
fn unix_sockets_serve_both_ways_and_leave_no_file() {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    // A file that a killed switch left.
    drop(UnixListener::bind(&ours).expect("a socket"));
    let listener = UnixListener::bind(&theirs).expect("a socket");
    let targets = vec![Target::UnixListen(ours.clone()), Target::UnixConnect(theirs)];
    let bench = Bench::with("", &[quiet()], ControlOptions::default(), targets);
    let mut accepted = listener.accept().expect("it comes").0;
    let mut connected = UnixStream::connect(&ours).expect("it listens");
    for stream in [&mut accepted, &mut connected] {
        let mut hello = [0; 8];
        stream.read_exact(&mut hello).expect("a hello");
        assert_eq!(hello[..2], [6, 0]);
    }
    drop((accepted, connected, bench));
    assert!(!ours.exists());
}

#[test]
fn a_target_that_cannot_be_had_is_an_error_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let bench = Bench::new(1);
    let target = Target::Listen(taken.local_addr().expect("bound"));
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let served = overbank_live::control::serve(
        vec![target],
        bench.handle(),
        ControlOptions::default(),
        stopped,
    );
    let error = bench.runtime.block_on(served).expect_err("taken").to_string();
    assert!(error.starts_with("cannot listen on ptcp:"), "{error}");
}

#[test]
fn too_many_connections_are_closed_and_counted() {
    let options = ControlOptions { connections: 2, ..ControlOptions::default() };
    let bench = Bench::with("", &[quiet()], options, vec![]);
    let one = Client::connect(bench.address, Version::V13);
    let mut two = Client::connect(bench.address, Version::V13);
    let stream = TcpStream::connect(bench.address).expect("it listens");
    wait("the third is refused", || bench.counters.snapshot().connections_refused == 1);
    drop((stream, one));
    wait("the first has left", || bench.counters.snapshot().connections == 1);
    let mut three = Client::connect(bench.address, Version::V13);
    for client in [&mut two, &mut three] {
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
}
