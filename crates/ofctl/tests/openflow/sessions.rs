//! Sessions: versions, configuration, roles, news, and what is refused.

use overbank_openflow::{
    AsyncConfig, BUFFER_NONE, BadAction, BadRequest, FlowCommand, FlowFlags, FlowMod,
    FlowRemovedReason, GroupMod, GroupModFailed, Header, Message, MeterMod, MeterModFailed,
    OxmMatch, PortConfig, PortMod, QueueOpFailed, Role, RoleMasks, RoleRequestFailed, RoleState,
    SwitchConfig, SwitchConfigFailed, TableFeaturesFailed, TableMod, TableModFailed, Version,
    consts::port,
    multipart::{Request, TableFeatures},
};

use super::bench::{Bench, frame};
use super::client::{Client, add, output, packet_in, packet_out, question, to_controller};

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
    assert_eq!(bench.counters.snapshot().sessions_opened, 3);
}

#[test]
fn the_session_keeps_its_configuration() {
    let bench = Bench::new(1);
    let mut client = Client::connect(bench.address, Version::V13);
    let config = |miss_send_len| SwitchConfig { flags: 0, miss_send_len };
    assert_eq!(client.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(128)));
    client.done(&Message::SetConfig(config(999)));
    assert_eq!(client.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(999)));
    for flags in [SwitchConfig::FRAG_REASM, 4, 8] {
        let set = Message::SetConfig(SwitchConfig { flags, miss_send_len: 0 });
        assert_eq!(client.refused(&set), SwitchConfigFailed::BadFlags.into());
    }
    let mut other = Client::connect(bench.address, Version::V13);
    assert_eq!(other.ask(&Message::GetConfigRequest), Message::GetConfigReply(config(128)));
}

#[test]
fn missing_features_are_refused_by_name() {
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
    // An unknown type.
    bytes[..2].copy_from_slice(&[6, 99]);
    bytes[7] = 6;
    std::io::Write::write_all(&mut client.stream, &bytes).expect("it reads");
    let Message::Error(error) = client.answer(6) else { panic!("no error") };
    assert_eq!(error.code, BadRequest::BadType.into());
}

#[test]
fn one_controller_is_master_and_slaves_only_read() {
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
fn a_rule_that_goes_is_reported_with_its_reason_and_counts() {
    const IDLE_S: u16 = 5;
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V13);
    let mut newer = Client::connect(bench.address, Version::V15);
    let of = |priority: u16, cookie, idle_timeout, hard_timeout| {
        let mut flow = add(priority, OxmMatch::of_port(1), vec![output(2)]);
        (flow.cookie, flow.flags) = (cookie, FlowFlags::SEND_FLOW_REM);
        (flow.idle_timeout, flow.hard_timeout) = (idle_timeout, hard_timeout);
        flow
    };
    // Long enough for a machine that has other things to do before the frames come.
    client.done(&Message::FlowMod(of(3, 0xa, IDLE_S, 0)));
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
            let least = match reason {
                FlowRemovedReason::IdleTimeout => IDLE_S.into(),
                FlowRemovedReason::HardTimeout => 1,
                _ => 0,
            };
            assert!(age.sec >= least, "{gone:?}");
        }
    }
    assert_eq!(bench.rules().len(), 0);
}
