//! One message of every kind, for the tests.
#![allow(dead_code)]

use overbank_openflow::consts::{experimenter, group, meter, port, table};
use overbank_openflow::multipart::{
    Desc, FlowMonitor, FlowRequest, FlowStats, FlowStatsShort, GroupFeatures, MeterFeatures,
    MultipartReply, MultipartRequest, PortStats, Reply, Request, StatsReason, TableDesc,
    TableFeatures, TableProperty, TableStats,
};
use overbank_openflow::*;

/// A message, and what `ovs-ofctl ofp-parse` must say of it: every one of these texts. None where
/// Open vSwitch 3.1 does not know the message.
pub struct Sample {
    pub message: Message,
    pub prints: &'static [&'static str],
}

pub fn header_of(bytes: &[u8]) -> Header {
    Header::parse(bytes).expect("a message has a header")
}

/// Decodes one whole message.
pub fn decode(version: Version, bytes: &[u8]) -> Result<Message, DecodeError> {
    Message::decode(version, &header_of(bytes), &bytes[HEADER_LEN..])
}

pub fn encode(message: &Message, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(version, 0x1234, &mut out).expect("a sample can be written");
    out
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert_eq!(digits.len() % 2, 0);
    let value = |digit: u8| (digit as char).to_digit(16).expect("filtered") as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

/// What must hold of any bytes that are one message: decoding does not panic, and what was decoded
/// encodes and decodes to the same. Only where the older form that was read is shorter than the
/// one that is written may it grow too long.
pub fn check(version: Version, bytes: &[u8]) -> Result<Message, DecodeError> {
    let message = decode(version, bytes)?;
    let mut again = Vec::new();
    match message.encode(version, header_of(bytes).xid, &mut again) {
        Err(EncodeError::TooLong { .. }) => assert!(bytes.len() > 20_000),
        Err(other) => panic!("{other}: {message:?}"),
        Ok(()) if usize::from(header_of(&again).length) < again.len() => {
            assert!(bytes.len() > 20_000, "{message:?}");
        }
        Ok(()) => assert_eq!(decode(version, &again).as_ref(), Ok(&message), "{}", hex(bytes)),
    }
    Ok(message)
}

/// A match on TCP over IPv4, of one port and one tag.
pub fn tcp_match() -> OxmMatch {
    vec![
        Oxm::exact(OxmField::InPort, 1),
        Oxm::masked(OxmField::EthSrc, 0x0011_2200_0000, 0xffff_ff00_0000),
        Oxm::exact(OxmField::EthType, 0x0800),
        Oxm::exact(OxmField::VlanVid, VID_PRESENT | 5),
        Oxm::exact(OxmField::IpDscp, 8),
        Oxm::exact(OxmField::IpProto, 6),
        Oxm::masked(OxmField::Ipv4Dst, 0x0a00_0000, 0xff00_0000),
        Oxm::exact(OxmField::TcpDst, 80),
        Oxm::masked(OxmField::TcpFlags, 0x002, 0x012),
        Oxm::exact(OxmField::NxIpTtl, 64),
    ]
    .into()
}

pub fn nd_match() -> OxmMatch {
    vec![
        Oxm::exact(OxmField::EthType, 0x86dd),
        Oxm::masked(OxmField::Ipv6Src, 0xfe80 << 112, !0 << 64),
        Oxm::exact(OxmField::Ipv6Flabel, 5),
        Oxm::exact(OxmField::IpProto, 58),
        Oxm::exact(OxmField::Icmpv6Type, 135),
        Oxm::exact(OxmField::Icmpv6Code, 0),
        Oxm::exact(OxmField::NdTarget, 0xfe80 << 112 | 1),
        Oxm::exact(OxmField::NdSll, 1),
    ]
    .into()
}

pub fn actions() -> Vec<Action> {
    vec![
        Action::PushVlan(0x8100),
        Action::SetField(Oxm::exact(OxmField::VlanVid, VID_PRESENT | 7)),
        Action::SetField(Oxm::exact(OxmField::EthDst, 0x0000_0000_0001)),
        Action::SetField(Oxm::masked(OxmField::EthSrc, 0x01, 0xff)),
        Action::SetField(Oxm::exact(OxmField::Ipv4Src, 0x0102_0304)),
        Action::PopVlan,
        Action::SetNwTtl(5),
        Action::DecNwTtl,
        Action::SetQueue(3),
        Action::Output { port: 2, max_len: 0 },
        Action::Output { port: port::CONTROLLER, max_len: 100 },
        Action::Output { port: port::NORMAL, max_len: 0 },
        Action::Output { port: port::IN_PORT, max_len: 0 },
        Action::Resubmit { in_port: None, table: Some(3) },
        Action::Resubmit { in_port: Some(9), table: None },
        Action::NxController { max_len: 60, controller_id: 7, reason: PacketInReason::InvalidTtl },
        Action::Group(5),
    ]
}

pub fn instructions() -> Vec<Instruction> {
    vec![
        Instruction::ApplyActions(actions()),
        Instruction::ClearActions,
        Instruction::WriteActions(vec![Action::Output { port: 3, max_len: 0 }]),
        Instruction::WriteMetadata { metadata: 5, mask: 7 },
        Instruction::GotoTable(4),
    ]
}

pub fn flow_mod(version: Version) -> FlowMod {
    FlowMod {
        cookie: 0x77,
        cookie_mask: 0,
        table: 2,
        command: FlowCommand::Add,
        idle_timeout: 5,
        hard_timeout: 9,
        priority: 100,
        buffer_id: BUFFER_NONE,
        out_port: port::ANY,
        out_group: group::ANY,
        flags: FlowFlags::SEND_FLOW_REM | FlowFlags::CHECK_OVERLAP,
        importance: if version < Version::V14 { 0 } else { 3 },
        matching: tcp_match(),
        instructions: instructions(),
    }
}

pub fn stats(version: Version) -> Stats {
    Stats {
        duration: Some(Elapsed { sec: 12, nsec: 345_000_000 }),
        idle: (version >= Version::V15).then_some(Elapsed { sec: 3, nsec: 0 }),
        flows: None,
        packets: Some(1000),
        bytes: Some(64_000),
    }
}

pub fn flow_stats(version: Version) -> FlowStats {
    let FlowMod { table, priority, idle_timeout, hard_timeout, flags, importance, cookie, .. } =
        flow_mod(version);
    FlowStats {
        table,
        priority,
        idle_timeout,
        hard_timeout,
        flags,
        importance,
        cookie,
        stats: stats(version),
        matching: tcp_match(),
        instructions: instructions(),
    }
}

pub fn a_port() -> Port {
    Port {
        number: 3,
        hw_addr: [2, 0, 0, 0, 0, 3],
        name: Name::new("veth3"),
        config: PortConfig::PORT_DOWN,
        state: PortState::LINK_DOWN,
        speeds: PortSpeeds {
            curr: 1 << 6,
            advertised: 1 << 6,
            supported: 1 << 6,
            peer: 0,
            curr_speed_kbps: 10_000_000,
            max_speed_kbps: 10_000_000,
        },
    }
}

/// Features with everything that Open vSwitch asks for before 1.5.
pub fn table_features(version: Version) -> TableFeatures {
    let ids: Vec<u32> = OxmField::ALL.iter().filter_map(|f| f.id(version)).take(40).collect();
    TableFeatures {
        table: 0,
        command: 0,
        features: 0,
        name: Name::new("table0"),
        metadata_match: 0,
        metadata_write: 0,
        config: 0,
        entries_max: 1_000_000,
        properties: vec![
            TableProperty::Instructions { miss: false, types: vec![1, 3, 4, 5] },
            TableProperty::NextTables { miss: false, tables: vec![1, 2, 3] },
            TableProperty::WriteActions { miss: false, types: vec![0, 17, 18] },
            TableProperty::ApplyActions { miss: false, types: vec![0, 17, 18] },
            TableProperty::Match(ids.clone()),
            TableProperty::Wildcards(ids),
            TableProperty::WriteSetField { miss: false, fields: vec![0x8000_0606] },
            TableProperty::ApplySetField { miss: false, fields: vec![0x8000_0606] },
        ],
    }
}

fn flow_request() -> FlowRequest {
    FlowRequest {
        table: table::ALL,
        out_port: port::ANY,
        out_group: group::ANY,
        cookie: 5,
        cookie_mask: u64::MAX,
        matching: nd_match(),
    }
}

pub const FRAME: [u8; 16] =
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0x12, 0x34, 0xaa, 0xbb];

/// One message of every kind that `version` has.
pub fn samples(version: Version) -> Vec<Sample> {
    let v14 = version >= Version::V14;
    let v15 = version >= Version::V15;
    let mut list = Vec::new();
    let mut add = |message, prints| list.push(Sample { message, prints });
    let part = |body| Message::MultipartRequest(MultipartRequest { more: false, body });
    let reply = |body| Message::MultipartReply(MultipartReply::whole(body));

    add(
        Message::Hello(Hello { versions: VersionSet::ours() }),
        &["OFPT_HELLO", "version bitmap: 0x04, 0x05, 0x06"],
    );
    add(
        Message::Error(ErrorMessage::new(
            FlowModFailed::TableFull,
            &[version.wire(), 20, 0, 8, 0, 0, 0, 1],
        )),
        &["OFPT_ERROR", "OFPFMFC_TABLE_FULL"],
    );
    add(Message::EchoRequest(b"abc".to_vec()), &["OFPT_ECHO_REQUEST", "3 bytes of payload"]);
    add(Message::EchoReply(Vec::new()), &["OFPT_ECHO_REPLY", "0 bytes of payload"]);
    let data = vec![0, 0, 0, 2];
    add(
        Message::Experimenter(Experimenter {
            experimenter: experimenter::NICIRA,
            exp_type: 16,
            data,
        }),
        &["NXT_SET_PACKET_IN_FORMAT"],
    );
    add(Message::FeaturesRequest, &["OFPT_FEATURES_REQUEST"]);
    add(
        Message::FeaturesReply(Features {
            datapath_id: 0x1122_3344,
            n_buffers: 256,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS | Capabilities::PORT_STATS,
        }),
        &[
            "OFPT_FEATURES_REPLY",
            "dpid:0000000011223344",
            "n_tables:254, n_buffers:256",
            "FLOW_STATS PORT_STATS",
        ],
    );
    add(Message::GetConfigRequest, &["OFPT_GET_CONFIG_REQUEST"]);
    let config = SwitchConfig { flags: SwitchConfig::FRAG_DROP, miss_send_len: 128 };
    add(
        Message::GetConfigReply(config),
        &["OFPT_GET_CONFIG_REPLY", "frags=drop", "miss_send_len=128"],
    );
    add(Message::SetConfig(config), &["OFPT_SET_CONFIG", "frags=drop"]);
    add(
        Message::PacketIn(PacketIn {
            buffer_id: 0x111,
            total_len: 60,
            reason: PacketInReason::TableMiss,
            table: 4,
            cookie: 0x99,
            matching: OxmMatch::of_port(3),
            data: FRAME.to_vec(),
        }),
        &[
            "OFPT_PACKET_IN",
            "table_id=4",
            "cookie=0x99",
            "total_len=60",
            "in_port=3",
            "data_len=16",
            "buffer=0x00000111",
            "via no_match",
        ],
    );
    add(
        Message::FlowRemoved(FlowRemoved {
            cookie: 0x77,
            priority: 100,
            reason: FlowRemovedReason::IdleTimeout,
            table: 2,
            idle_timeout: 5,
            hard_timeout: 9,
            stats: Stats { idle: None, ..stats(version) },
            matching: tcp_match(),
        }),
        &[
            "OFPT_FLOW_REMOVED",
            "priority=100,",
            "reason=idle",
            "table_id=2",
            "cookie:0x77",
            "duration12.345s",
            "idle5",
            "pkts1000",
            "bytes64000",
            "tcp_flags=+syn-ack",
        ],
    );
    add(
        Message::PortStatus(PortStatus { reason: PortReason::Modify, port: a_port() }),
        &["OFPT_PORT_STATUS", "MOD: 3(veth3)", "PORT_DOWN", "LINK_DOWN", "speed: 10000 Mbps now"],
    );
    add(
        Message::PacketOut(PacketOut {
            buffer_id: BUFFER_NONE,
            in_port: port::CONTROLLER,
            pipeline: OxmMatch::default(),
            actions: vec![Action::Output { port: port::TABLE, max_len: 0 }],
            data: FRAME.to_vec(),
        }),
        &["OFPT_PACKET_OUT", "in_port=CONTROLLER", "actions=TABLE", "data_len=16"],
    );
    add(
        Message::FlowMod(flow_mod(version)),
        &[
            "OFPT_FLOW_MOD",
            "ADD table:2 priority=100,tcp,in_port=1,dl_vlan=5,dl_src=00:11:22:00:00:00/ff:ff:ff:00:00:00",
            "nw_dst=10.0.0.0/8",
            "nw_tos=32",
            "nw_ttl=64",
            "tp_dst=80",
            "tcp_flags=+syn-ack",
            "cookie:0x77",
            "idle:5 hard:9",
            "send_flow_rem",
            "check_overlap",
            "actions=push_vlan:0x8100,",
            "set_field:00:00:00:00:00:01->eth_dst",
            "set_field:00:00:00:00:00:01/00:00:00:00:00:ff->eth_src",
            "pop_vlan",
            "dec_ttl",
            "set_queue:3",
            "CONTROLLER:100",
            "NORMAL",
            "IN_PORT",
            "resubmit(,3)",
            "resubmit:9",
            "controller(reason=invalid_ttl,max_len=60,id=7)",
            "group:5",
            "clear_actions",
            "write_actions(output:3)",
            "write_metadata:0x5/0x7",
            "goto_table:4",
        ],
    );
    add(
        Message::FlowMod(FlowMod {
            command: FlowCommand::DeleteStrict,
            table: table::ALL,
            matching: nd_match(),
            instructions: Vec::new(),
            ..flow_mod(version)
        }),
        &[
            "DEL_STRICT table:255",
            "icmp6",
            "ipv6_src=fe80::/64",
            "ipv6_label=0x00005",
            "icmp_type=135",
            "nd_target=fe80::1",
            "nd_sll=00:00:00:00:00:01",
        ],
    );
    let mut group_mod = GroupMod {
        command: GroupMod::DELETE,
        kind: 0,
        group: group::ALL,
        bucket: 0,
        buckets: Vec::new(),
        properties: Vec::new(),
    };
    if v15 {
        group_mod.bucket = u32::MAX;
    }
    add(Message::GroupMod(group_mod), &["OFPT_GROUP_MOD", "DEL"]);
    add(
        Message::PortMod(PortMod {
            port: 3,
            hw_addr: [2, 0, 0, 0, 0, 3],
            config: PortConfig::PORT_DOWN,
            mask: PortConfig::PORT_DOWN,
            advertise: 0,
        }),
        &["OFPT_PORT_MOD", "port: 3", "02:00:00:00:00:03", "PORT_DOWN"],
    );
    add(
        Message::TableMod(TableMod { table: 3, config: 0, properties: Vec::new() }),
        &["OFPT_TABLE_MOD", "table_id=3"],
    );
    add(
        Message::MeterMod(MeterMod {
            command: 0,
            flags: 1,
            meter: 1,
            bands: vec![0, 1, 0, 16, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0],
        }),
        &["OFPT_METER_MOD", "meter=1 kbps bands="],
    );
    add(part(Request::Desc), &["OFPST_DESC request"]);
    add(part(Request::Flow(flow_request())), &["OFPST_FLOW request", "icmp6"]);
    add(part(Request::Aggregate(flow_request())), &["OFPST_AGGREGATE request", "icmp6"]);
    add(part(Request::Table), &["OFPST_TABLE request"]);
    add(part(Request::Port { port: 3 }), &["OFPST_PORT request", "port_no=3"]);
    add(part(Request::Queue { port: port::ANY, queue: u32::MAX }), &["OFPST_QUEUE request"]);
    add(part(Request::Group { group: group::ALL }), &["OFPST_GROUP request"]);
    add(part(Request::GroupDesc { group: group::ALL }), &["OFPST_GROUP_DESC request"]);
    add(part(Request::GroupFeatures), &["OFPST_GROUP_FEATURES request"]);
    add(part(Request::Meter { meter: meter::ALL }), &["OFPST_METER request", "meter=all"]);
    add(part(Request::MeterConfig { meter: 1 }), &["OFPST_METER_CONFIG request", "meter=1"]);
    add(part(Request::MeterFeatures), &["OFPST_METER_FEATURES request"]);
    add(part(Request::TableFeatures(Vec::new())), &["OFPST_TABLE_FEATURES request"]);
    add(part(Request::PortDesc { port: port::ANY }), &["OFPST_PORT_DESC request"]);

    add(
        reply(Reply::Desc(Box::new(Desc {
            manufacturer: Name::new("Overbank"),
            hardware: Name::new("a computer"),
            software: Name::new("0.1.0"),
            serial: Name::new("none"),
            datapath: Name::new("br0"),
        }))),
        &[
            "OFPST_DESC reply",
            "Manufacturer: Overbank",
            "Hardware: a computer",
            "Software: 0.1.0",
            "Serial Num: none",
            "DP Description: br0",
        ],
    );
    add(
        reply(Reply::Flow(vec![flow_stats(version), flow_stats(version)])),
        &[
            "OFPST_FLOW reply",
            "cookie=0x77, duration=12.345s, table=2, n_packets=1000, n_bytes=64000, \
             idle_timeout=5, hard_timeout=9,",
            "priority=100,tcp,in_port=1,dl_vlan=5",
            "goto_table:4",
        ],
    );
    let sum = Stats { duration: None, idle: None, flows: Some(7), ..stats(version) };
    add(
        reply(Reply::Aggregate(sum)),
        &["OFPST_AGGREGATE reply", "packet_count=1000 byte_count=64000 flow_count=7"],
    );
    add(
        reply(Reply::Table(vec![TableStats { table: 0, active: 4, lookups: 9, matched: 8 }])),
        &["OFPST_TABLE reply", "active=4, lookup=9, matched=8"],
    );
    add(
        reply(Reply::Port(vec![PortStats {
            port: 3,
            rx_packets: 1,
            tx_packets: 2,
            rx_bytes: 3,
            tx_bytes: 4,
            rx_dropped: 5,
            tx_dropped: 6,
            rx_errors: 7,
            tx_errors: 8,
            rx_frame_err: 9,
            rx_over_err: 10,
            rx_crc_err: 11,
            collisions: 12,
            age: Elapsed { sec: 13, nsec: 500_000_000 },
        }])),
        &[
            "OFPST_PORT reply",
            "rx pkts=1, bytes=3, drop=5, errs=7, frame=9, over=10, crc=11",
            "tx pkts=2, bytes=4, drop=6, errs=8, coll=12",
            "duration=13.500s",
        ],
    );
    add(reply(Reply::Queue), &["OFPST_QUEUE reply", "0 queues"]);
    add(reply(Reply::Group), &["OFPST_GROUP reply"]);
    add(reply(Reply::GroupDesc), &["OFPST_GROUP_DESC reply"]);
    add(
        reply(Reply::GroupFeatures(GroupFeatures::default())),
        &["OFPST_GROUP_FEATURES reply", "Capabilities:  0x0"],
    );
    add(reply(Reply::Meter), &["OFPST_METER reply"]);
    add(reply(Reply::MeterConfig), &["OFPST_METER_CONFIG reply"]);
    add(
        reply(Reply::MeterFeatures(MeterFeatures::default())),
        &["OFPST_METER_FEATURES reply", "max_meter:0 max_bands:0"],
    );
    add(
        reply(Reply::TableFeatures(vec![table_features(version)])),
        &["OFPST_TABLE_FEATURES reply", "table 0 (\"table0\")", "max_entries=1000000"],
    );
    add(
        reply(Reply::PortDesc(vec![a_port(), Port { number: 4, ..a_port() }])),
        &["OFPST_PORT_DESC reply", "3(veth3): addr:02:00:00:00:00:03", "4(veth3)"],
    );
    add(Message::BarrierRequest, &["OFPT_BARRIER_REQUEST"]);
    add(Message::BarrierReply, &["OFPT_BARRIER_REPLY"]);
    let role = RoleState { role: Role::Master, generation_id: 2 };
    add(Message::RoleRequest(role), &["OFPT_ROLE_REQUEST", "generation_id=2"]);
    add(Message::RoleReply(role), &["OFPT_ROLE_REPLY", "generation_id=2"]);
    let masks = RoleMasks { master: Some(3), slave: Some(1) };
    let config = AsyncConfig {
        packet_in: masks,
        port_status: masks,
        flow_removed: masks,
        ..AsyncConfig::default()
    };
    add(Message::GetAsyncRequest, &["OFPT_GET_ASYNC_REQUEST"]);
    add(Message::GetAsyncReply(config), &["OFPT_GET_ASYNC_REPLY", "PACKET_IN: no_match action"]);
    add(Message::SetAsync(config), &["OFPT_SET_ASYNC", "PORT_STATUS: add"]);
    if !v14 {
        add(
            Message::QueueGetConfigRequest { port: 3 },
            &["OFPT_QUEUE_GET_CONFIG_REQUEST", "port=3"],
        );
        add(Message::QueueGetConfigReply { port: 3 }, &["OFPT_QUEUE_GET_CONFIG_REPLY"]);
    }
    if v14 {
        add(
            Message::RoleStatus(RoleStatus {
                role: Role::Slave,
                reason: RoleStatusReason::MasterRequest,
                generation_id: 2,
            }),
            &["OFPT_ROLE_STATUS", "generation_id=2", "reason="],
        );
        add(
            Message::BundleControl(BundleControl { bundle: 7, kind: 0, flags: 3 }),
            &["OFPT_BUNDLE_CONTROL", "bundle_id=0x7 type=OPEN_REQUEST flags=atomic ordered"],
        );
        let inner = encode(&Message::FlowMod(flow_mod(version)), version);
        add(
            Message::BundleAdd(BundleAdd { bundle: 7, flags: 3, message: inner }),
            &["OFPT_BUNDLE_ADD_MESSAGE", "bundle_id=0x7", "OFPT_FLOW_MOD"],
        );
        add(part(Request::TableDesc), &["OFPST_TABLE_DESC request"]);
        add(part(Request::QueueDesc { port: 3, queue: u32::MAX }), &["OFPST_QUEUE_DESC request"]);
        add(
            part(Request::FlowMonitor(vec![FlowMonitor {
                monitor: 1,
                out_port: port::ANY,
                out_group: group::ANY,
                flags: 0xf,
                table: table::ALL,
                command: 0,
                matching: nd_match(),
            }])),
            &["OFPST_FLOW_MONITOR request", "id=1", "icmp6"],
        );
        add(
            reply(Reply::TableDesc(vec![TableDesc { table: 3, config: 0 }])),
            &["OFPST_TABLE_DESC reply", "table 3"],
        );
        add(reply(Reply::QueueDesc), &["OFPST_QUEUE_DESC reply"]);
        add(reply(Reply::FlowMonitor), &["OFPST_FLOW_MONITOR reply"]);
    }
    if v15 {
        add(part(Request::FlowStats(flow_request())), &[]);
        add(
            reply(Reply::FlowStats(vec![FlowStatsShort {
                table: 2,
                reason: StatsReason::Request,
                priority: 100,
                matching: tcp_match(),
                stats: stats(version),
            }])),
            &[],
        );
    }
    list
}
