//! Arbitrary messages of each version: what is written reads back as it was, byte for byte the
//! second time.

use crate::common::{decode, header_of};
use overbank_openflow::multipart::{
    Desc, FlowMonitor, FlowRequest, FlowStats, FlowStatsShort, GroupFeatures, MeterFeatures,
    MultipartReply, MultipartRequest, PortStats, Reply, Request, StatsReason, TableDesc,
    TableFeatures, TableProperty, TableStats,
};
use overbank_openflow::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Some fields with values, in an order in which prerequisites come first; with `rule`, without
/// those whose prerequisite is missing.
fn matching(rule: bool) -> impl Strategy<Value = OxmMatch> {
    let field = (select(OxmField::ALL), any::<u128>(), prop_oneof![Just(u128::MAX), any::<u128>()]);
    let head = (
        option::of(select(vec![0x0800u128, 0x86dd, 0x0806, 0x8847, 0x88e7])),
        option::of(select(vec![6u128, 17, 132, 1, 58])),
        option::of(select(vec![135u128, 136])),
        any::<bool>(),
    );
    (head, vec(field, 0..20)).prop_map(move |((ether, protocol, icmp, tag), rest)| {
        let exact = |field, value: Option<u128>| value.map(|value| Oxm::exact(field, value));
        let head = [
            exact(OxmField::EthType, ether),
            exact(OxmField::VlanVid, tag.then_some(VID_PRESENT | 9)),
            exact(OxmField::IpProto, protocol),
            exact(OxmField::Icmpv6Type, icmp),
        ];
        let rest = rest.into_iter().map(|(field, value, mask)| {
            Oxm::masked(field, value, if field.maskable() { mask } else { u128::MAX })
        });
        let mut made = OxmMatch::default();
        for oxm in head.into_iter().flatten().chain(rest) {
            let vlan = matches!(oxm.field, OxmField::VlanVid | OxmField::NxVlanTci);
            let odd = vlan && oxm.value & VID_PRESENT == 0 && oxm.value != 0;
            if made.get(oxm.field).is_none()
                && (!rule
                    || (made.meets_prereq(oxm.field) && !(odd && oxm.mask & VID_PRESENT != 0)))
            {
                made.fields.push(oxm);
            }
        }
        made
    })
}

fn words(max: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..max).prop_flat_map(|n| vec(any::<u8>(), 8 * n))
}

fn action(version: Version) -> BoxedStrategy<Action> {
    let settable: Vec<OxmField> = OxmField::ALL.iter().copied().filter(|f| f.settable()).collect();
    let mut kinds: Vec<u16> = vec![11, 12, 15, 16, 19, 20, 26, 27];
    if version >= Version::V15 {
        kinds.push(28);
    }
    let port = prop_oneof![0..0xff00u32, 0xffff_ff00..0xffff_fff8u32, 0xffff_fff9..=u32::MAX];
    let set = (select(settable), any::<u128>(), prop_oneof![Just(u128::MAX), any::<u128>()]);
    let other = (select(kinds), words(3)).prop_map(|(kind, mut body)| {
        body.extend([1, 2, 3, 4]);
        Action::Other { kind, body }
    });
    let reason = any::<u8>().prop_map(PacketInReason::from_wire);
    let base = prop_oneof![
        (any::<u32>(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        set.prop_map(|(field, value, mask)| {
            // One run of bits where there can be no mask: it is loaded.
            let run = field.all_ones() >> (mask % u128::from(field.bits())) as u32;
            let mask = if field.maskable() { mask } else { run };
            let mask = if mask == 0 { u128::MAX } else { mask };
            Action::SetField(Oxm::masked(field, value, mask))
        }),
        any::<u16>().prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        Just(Action::DecNwTtl),
        any::<u8>().prop_map(Action::SetNwTtl),
        any::<u32>().prop_map(Action::Group),
        any::<u32>().prop_map(Action::SetQueue),
        (option::of(port), option::of(0..255u8))
            .prop_map(|(in_port, table)| Action::Resubmit { in_port, table }),
        (any::<u16>(), any::<u16>(), reason).prop_map(|(max_len, controller_id, reason)| {
            Action::NxController { max_len, controller_id, reason }
        }),
        other,
        (1..9u32, words(3))
            .prop_map(|(experimenter, data)| Action::Experimenter { experimenter, data }),
    ];
    if version >= Version::V15 {
        prop_oneof![12 => base, 1 => any::<u32>().prop_map(Action::Meter)].boxed()
    } else {
        base.boxed()
    }
}

fn actions(version: Version) -> impl Strategy<Value = Vec<Action>> {
    vec(action(version), 0..8)
}

fn instructions(version: Version) -> impl Strategy<Value = Vec<Instruction>> {
    let last = if version < Version::V15 {
        any::<u32>().prop_map(Instruction::Meter).boxed()
    } else {
        Just(Instruction::Other { kind: 7, body: vec![1; 12] }).boxed()
    };
    let experimenter = (any::<u32>(), words(3))
        .prop_map(|(experimenter, data)| Instruction::Experimenter { experimenter, data });
    let each = (
        option::of(any::<u8>().prop_map(Instruction::GotoTable)),
        option::of(
            (any::<u64>(), any::<u64>())
                .prop_map(|(metadata, mask)| Instruction::WriteMetadata { metadata, mask }),
        ),
        option::of(actions(version).prop_map(Instruction::WriteActions)),
        option::of(actions(version).prop_map(Instruction::ApplyActions)),
        option::of(Just(Instruction::ClearActions)),
        option::of(last),
        option::of(experimenter),
    );
    each.prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].into_iter().flatten().collect())
}

fn elapsed() -> impl Strategy<Value = Elapsed> {
    (any::<u32>(), any::<u32>()).prop_map(|(sec, nsec)| Elapsed { sec, nsec })
}

fn stats(version: Version) -> BoxedStrategy<Stats> {
    if version >= Version::V15 {
        let each = (
            option::of(elapsed()),
            option::of(elapsed()),
            any::<Option<u32>>(),
            any::<Option<u64>>(),
            any::<Option<u64>>(),
        );
        each.prop_map(|(duration, idle, flows, packets, bytes)| Stats {
            duration,
            idle,
            flows,
            packets,
            bytes,
        })
        .boxed()
    } else {
        (elapsed(), option::of(0..u64::MAX), option::of(0..u64::MAX))
            .prop_map(|(duration, packets, bytes)| Stats {
                duration: Some(duration),
                idle: None,
                flows: None,
                packets,
                bytes,
            })
            .boxed()
    }
}

/// 0 where the version does not have it.
fn since(first: Version, version: Version) -> impl Strategy<Value = u16> {
    any::<u16>().prop_map(move |value| if version < first { 0 } else { value })
}

fn name<const N: usize>() -> impl Strategy<Value = Name<N>> {
    "\\PC{0,40}".prop_map(|text| Name::new(&text))
}

fn a_port() -> impl Strategy<Value = Port> {
    let speeds =
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(a, b, c, d, e, f)| PortSpeeds {
                curr: a,
                advertised: b,
                supported: c,
                peer: d,
                curr_speed_kbps: e,
                max_speed_kbps: f,
            });
    (any::<u32>(), any::<[u8; 6]>(), name(), any::<u32>(), any::<u32>(), speeds).prop_map(
        |(number, hw_addr, name, config, state, speeds)| Port {
            number,
            hw_addr,
            name,
            config: PortConfig(config),
            state: PortState(state),
            speeds,
        },
    )
}

fn flow_mod(version: Version) -> impl Strategy<Value = Message> {
    let command = select(vec![
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ]);
    (
        (any::<u64>(), any::<u64>(), any::<u8>(), command),
        (any::<u16>(), any::<u16>(), any::<u16>(), 0..32u16, since(Version::V14, version)),
        (any::<u32>(), any::<u32>(), any::<u32>()),
        (matching(true), instructions(version)),
    )
        .prop_map(|(a, b, c, d)| {
            Message::FlowMod(FlowMod {
                cookie: a.0,
                cookie_mask: a.1,
                table: a.2,
                command: a.3,
                idle_timeout: b.0,
                hard_timeout: b.1,
                priority: b.2,
                flags: FlowFlags(b.3),
                importance: b.4,
                buffer_id: c.0,
                out_port: c.1,
                out_group: c.2,
                matching: d.0,
                instructions: d.1,
            })
        })
}

fn flow_request() -> impl Strategy<Value = FlowRequest> {
    (any::<u8>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), matching(true)).prop_map(
        |(table, out_port, out_group, cookie, cookie_mask, matching)| FlowRequest {
            table,
            out_port,
            out_group,
            cookie,
            cookie_mask,
            matching,
        },
    )
}

fn table_property() -> impl Strategy<Value = TableProperty> {
    let types = || vec(0..0xffffu16, 0..6);
    let fields = || vec(0..0xffff_0000u32, 0..6);
    prop_oneof![
        (any::<bool>(), types())
            .prop_map(|(miss, types)| TableProperty::Instructions { miss, types }),
        (any::<bool>(), types())
            .prop_map(|(miss, types)| TableProperty::WriteActions { miss, types }),
        (any::<bool>(), types())
            .prop_map(|(miss, types)| TableProperty::ApplyActions { miss, types }),
        (any::<bool>(), vec(any::<u8>(), 0..20))
            .prop_map(|(miss, tables)| TableProperty::NextTables { miss, tables }),
        fields().prop_map(TableProperty::Match),
        fields().prop_map(TableProperty::Wildcards),
        (any::<bool>(), fields())
            .prop_map(|(miss, fields)| TableProperty::WriteSetField { miss, fields }),
        (any::<bool>(), fields())
            .prop_map(|(miss, fields)| TableProperty::ApplySetField { miss, fields }),
        (16..=0xffffu16, vec(any::<u8>(), 0..20))
            .prop_map(|(kind, body)| TableProperty::Other { kind, body }),
    ]
}

fn table_features(version: Version) -> impl Strategy<Value = TableFeatures> {
    (
        (any::<u8>(), any::<u8>(), any::<u32>(), name()),
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()),
        vec(table_property(), 0..5),
    )
        .prop_map(move |(a, b, properties)| {
            let v15 = version >= Version::V15;
            TableFeatures {
                table: a.0,
                command: if v15 { a.1 } else { 0 },
                features: if v15 { a.2 } else { 0 },
                name: a.3,
                metadata_match: b.0,
                metadata_write: b.1,
                config: b.2,
                entries_max: b.3,
                properties,
            }
        })
}

fn experimenter() -> impl Strategy<Value = Experimenter> {
    (any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..30))
        .prop_map(|(experimenter, exp_type, data)| Experimenter { experimenter, exp_type, data })
}

fn request(version: Version) -> impl Strategy<Value = Message> {
    let v15 = version >= Version::V15;
    let one = move |all: u32| any::<u32>().prop_map(move |n| if v15 { n } else { all });
    let mut list: Vec<BoxedStrategy<Request>> = vec![
        select(vec![Request::Desc, Request::Table, Request::GroupFeatures, Request::MeterFeatures])
            .boxed(),
        flow_request().prop_map(Request::Flow).boxed(),
        flow_request().prop_map(Request::Aggregate).boxed(),
        any::<u32>().prop_map(|port| Request::Port { port }).boxed(),
        (any::<u32>(), any::<u32>())
            .prop_map(|(port, queue)| Request::Queue { port, queue })
            .boxed(),
        any::<u32>().prop_map(|group| Request::Group { group }).boxed(),
        one(consts::group::ALL).prop_map(|group| Request::GroupDesc { group }).boxed(),
        any::<u32>().prop_map(|meter| Request::Meter { meter }).boxed(),
        any::<u32>().prop_map(|meter| Request::MeterConfig { meter }).boxed(),
        vec(table_features(version), 0..3).prop_map(Request::TableFeatures).boxed(),
        one(consts::port::ANY).prop_map(|port| Request::PortDesc { port }).boxed(),
        experimenter().prop_map(Request::Experimenter).boxed(),
    ];
    if version >= Version::V14 {
        let monitor = (
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u16>(),
            any::<u8>(),
            0..3u8,
            matching(true),
        )
            .prop_map(|(monitor, out_port, out_group, flags, table, command, matching)| {
                FlowMonitor { monitor, out_port, out_group, flags, table, command, matching }
            });
        list.push(Just(Request::TableDesc).boxed());
        list.push(
            (any::<u32>(), any::<u32>())
                .prop_map(|(port, queue)| Request::QueueDesc { port, queue })
                .boxed(),
        );
        list.push(vec(monitor, 0..3).prop_map(Request::FlowMonitor).boxed());
    }
    if v15 {
        list.push(flow_request().prop_map(Request::FlowStats).boxed());
    }
    (any::<bool>(), prop::strategy::Union::new(list))
        .prop_map(|(more, body)| Message::MultipartRequest(MultipartRequest { more, body }))
}

fn flow_stats(version: Version) -> impl Strategy<Value = FlowStats> {
    (
        (any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>(), any::<u16>()),
        (since(Version::V14, version), any::<u64>(), stats(version)),
        (matching(true), instructions(version)),
    )
        .prop_map(|(a, b, c)| FlowStats {
            table: a.0,
            priority: a.1,
            idle_timeout: a.2,
            hard_timeout: a.3,
            flags: FlowFlags(a.4),
            importance: b.0,
            cookie: b.1,
            stats: b.2,
            matching: c.0,
            instructions: c.1,
        })
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    (any::<u32>(), any::<[u64; 12]>(), elapsed()).prop_map(|(port, n, age)| PortStats {
        port,
        rx_packets: n[0],
        tx_packets: n[1],
        rx_bytes: n[2],
        tx_bytes: n[3],
        rx_dropped: n[4],
        tx_dropped: n[5],
        rx_errors: n[6],
        tx_errors: n[7],
        rx_frame_err: n[8],
        rx_over_err: n[9],
        rx_crc_err: n[10],
        collisions: n[11],
        age,
    })
}

fn reply(version: Version) -> impl Strategy<Value = Message> {
    let desc = (name(), name(), name(), name(), name()).prop_map(|(a, b, c, d, e)| {
        let desc = Desc { manufacturer: a, hardware: b, software: c, serial: d, datapath: e };
        Reply::Desc(Box::new(desc))
    });
    let sum = stats(version).prop_map(move |stats| {
        let old = version < Version::V15;
        let flows = if old { Some(7) } else { stats.flows };
        let duration = stats.duration.filter(|_| !old);
        Reply::Aggregate(Stats { flows, duration, ..stats })
    });
    let table = (any::<u8>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
        |(table, active, lookups, matched)| TableStats { table, active, lookups, matched },
    );
    let groups = (any::<u32>(), any::<u32>(), any::<[u32; 4]>(), any::<[u32; 4]>()).prop_map(
        |(types, capabilities, groups_max, actions)| {
            Reply::GroupFeatures(GroupFeatures { types, capabilities, groups_max, actions })
        },
    );
    let meters = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u8>()).prop_map(
        |(meters_max, band_types, capabilities, bands_max, colors_max)| {
            Reply::MeterFeatures(MeterFeatures {
                meters_max,
                band_types,
                capabilities,
                bands_max,
                colors_max,
            })
        },
    );
    let mut empty =
        vec![Reply::Queue, Reply::Group, Reply::GroupDesc, Reply::Meter, Reply::MeterConfig];
    if version >= Version::V14 {
        empty.extend([Reply::QueueDesc, Reply::FlowMonitor]);
    }
    let mut list: Vec<BoxedStrategy<Reply>> = vec![
        desc.boxed(),
        sum.boxed(),
        groups.boxed(),
        meters.boxed(),
        select(empty).boxed(),
        vec(flow_stats(version), 0..5).prop_map(Reply::Flow).boxed(),
        vec(table, 0..9).prop_map(Reply::Table).boxed(),
        vec(port_stats(), 0..9).prop_map(Reply::Port).boxed(),
        vec(table_features(version), 0..4).prop_map(Reply::TableFeatures).boxed(),
        vec(a_port(), 0..9).prop_map(Reply::PortDesc).boxed(),
        experimenter().prop_map(Reply::Experimenter).boxed(),
    ];
    if version >= Version::V14 {
        let table =
            (any::<u8>(), any::<u32>()).prop_map(|(table, config)| TableDesc { table, config });
        list.push(vec(table, 0..9).prop_map(Reply::TableDesc).boxed());
    }
    if version >= Version::V15 {
        let short = (any::<u8>(), any::<u8>(), any::<u16>(), matching(true), stats(version))
            .prop_map(|(table, reason, priority, matching, stats)| FlowStatsShort {
                table,
                reason: StatsReason::from_wire(reason),
                priority,
                matching,
                stats,
            });
        list.push(vec(short, 0..5).prop_map(Reply::FlowStats).boxed());
    }
    (any::<bool>(), prop::strategy::Union::new(list))
        .prop_map(|(more, body)| Message::MultipartReply(MultipartReply { more, body }))
}

fn async_config(version: Version) -> impl Strategy<Value = AsyncConfig> {
    any::<[[Option<u32>; 2]; 7]>().prop_map(move |masks| {
        let old = version < Version::V14;
        let of = |n: usize, first: Version| RoleMasks {
            master: masks[n][0].or(old.then_some(1)).filter(|_| version >= first),
            slave: masks[n][1].or(old.then_some(2)).filter(|_| version >= first),
        };
        AsyncConfig {
            packet_in: of(0, Version::V13),
            port_status: of(1, Version::V13),
            flow_removed: of(2, Version::V13),
            role_status: of(3, Version::V14),
            table_status: of(4, Version::V14),
            requestforward: of(5, Version::V14),
            controller_status: of(6, Version::V15),
        }
    })
}

fn other(version: Version) -> impl Strategy<Value = Message> {
    let v14 = version >= Version::V14;
    let v15 = version >= Version::V15;
    let bytes = || vec(any::<u8>(), 0..100);
    let config = || {
        (any::<u16>(), any::<u16>())
            .prop_map(|(flags, miss_send_len)| SwitchConfig { flags, miss_send_len })
    };
    let role = || {
        let role = select(vec![Role::NoChange, Role::Equal, Role::Master, Role::Slave]);
        (role, any::<u64>()).prop_map(|(role, generation_id)| RoleState { role, generation_id })
    };
    // Reasons that a version does not have are written as others.
    let reason = move |known: u8, later: u8| {
        any::<u8>().prop_map(move |n| if !v14 && (known..later).contains(&n) { 0 } else { n })
    };
    let mut list: Vec<BoxedStrategy<Message>> = vec![
        select(vec![
            Message::FeaturesRequest,
            Message::GetConfigRequest,
            Message::BarrierRequest,
            Message::BarrierReply,
            Message::GetAsyncRequest,
        ])
        .boxed(),
        any::<u32>().prop_map(|set| Message::Hello(Hello { versions: VersionSet(set) })).boxed(),
        (any::<u16>(), any::<u16>(), bytes())
            .prop_map(|(kind, code, data)| {
                Message::Error(ErrorMessage { code: ErrorCode::from_wire(kind, code), data })
            })
            .boxed(),
        bytes().prop_map(Message::EchoRequest).boxed(),
        bytes().prop_map(Message::EchoReply).boxed(),
        experimenter().prop_map(Message::Experimenter).boxed(),
        (any::<u64>(), any::<u32>(), any::<u8>(), any::<u8>(), any::<u32>())
            .prop_map(|(datapath_id, n_buffers, n_tables, auxiliary_id, capabilities)| {
                Message::FeaturesReply(Features {
                    datapath_id,
                    n_buffers,
                    n_tables,
                    auxiliary_id,
                    capabilities: Capabilities(capabilities),
                })
            })
            .boxed(),
        config().prop_map(Message::GetConfigReply).boxed(),
        config().prop_map(Message::SetConfig).boxed(),
        (
            any::<u32>(),
            any::<u16>(),
            reason(3, 6),
            any::<u8>(),
            any::<u64>(),
            matching(false),
            bytes(),
        )
            .prop_map(|(buffer_id, total_len, reason, table, cookie, matching, data)| {
                let reason = PacketInReason::from_wire(reason);
                Message::PacketIn(PacketIn {
                    buffer_id,
                    total_len,
                    reason,
                    table,
                    cookie,
                    matching,
                    data,
                })
            })
            .boxed(),
        (
            (any::<u64>(), any::<u16>(), reason(4, 6), any::<u8>(), any::<u16>(), any::<u16>()),
            stats(version),
            matching(false),
        )
            .prop_map(|(a, stats, matching)| {
                Message::FlowRemoved(FlowRemoved {
                    cookie: a.0,
                    priority: a.1,
                    reason: FlowRemovedReason::from_wire(a.2),
                    table: a.3,
                    idle_timeout: a.4,
                    hard_timeout: a.5,
                    stats,
                    matching,
                })
            })
            .boxed(),
        (any::<u8>(), a_port())
            .prop_map(|(reason, port)| {
                Message::PortStatus(PortStatus { reason: PortReason::from_wire(reason), port })
            })
            .boxed(),
        (any::<u32>(), any::<u32>(), any::<[Option<u64>; 2]>(), actions(version), bytes())
            .prop_map(move |(buffer_id, in_port, fields, actions, data)| {
                let names = [OxmField::Metadata, OxmField::TunnelId];
                let fields = names.into_iter().zip(fields).filter(|_| v15);
                let pipeline: Vec<Oxm> = fields
                    .filter_map(|(field, value)| Some(Oxm::exact(field, value?.into())))
                    .collect();
                let pipeline = pipeline.into();
                Message::PacketOut(PacketOut { buffer_id, in_port, pipeline, actions, data })
            })
            .boxed(),
        (0..3u16, any::<u8>(), any::<u32>(), any::<u32>(), bytes(), bytes())
            .prop_map(move |(command, kind, group, bucket, buckets, properties)| {
                Message::GroupMod(GroupMod {
                    command,
                    kind,
                    group,
                    bucket: if v15 { bucket } else { 0 },
                    buckets,
                    properties: if v15 { properties } else { Vec::new() },
                })
            })
            .boxed(),
        (any::<u32>(), any::<[u8; 6]>(), any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(port, hw_addr, config, mask, advertise)| {
                Message::PortMod(PortMod {
                    port,
                    hw_addr,
                    config: PortConfig(config),
                    mask: PortConfig(mask & PortConfig::KNOWN.0),
                    advertise,
                })
            })
            .boxed(),
        (any::<u8>(), any::<u32>(), bytes())
            .prop_map(move |(table, config, properties)| {
                let properties = if v14 { properties } else { Vec::new() };
                Message::TableMod(TableMod { table, config, properties })
            })
            .boxed(),
        role().prop_map(Message::RoleRequest).boxed(),
        role().prop_map(Message::RoleReply).boxed(),
        async_config(version).prop_map(Message::GetAsyncReply).boxed(),
        async_config(version).prop_map(Message::SetAsync).boxed(),
        (0..3u16, any::<u16>(), any::<u32>(), bytes())
            .prop_map(|(command, flags, meter, bands)| {
                Message::MeterMod(MeterMod { command, flags, meter, bands })
            })
            .boxed(),
    ];
    if v14 {
        list.push(
            (role(), any::<u8>())
                .prop_map(|(state, reason)| {
                    Message::RoleStatus(RoleStatus {
                        role: state.role,
                        reason: RoleStatusReason::from_wire(reason),
                        generation_id: state.generation_id,
                    })
                })
                .boxed(),
        );
        list.push(
            (any::<u32>(), any::<u16>(), any::<u16>())
                .prop_map(|(bundle, kind, flags)| {
                    Message::BundleControl(BundleControl { bundle, kind, flags })
                })
                .boxed(),
        );
    } else {
        list.push(any::<u32>().prop_map(|port| Message::QueueGetConfigRequest { port }).boxed());
        list.push(any::<u32>().prop_map(|port| Message::QueueGetConfigReply { port }).boxed());
    }
    prop::strategy::Union::new(list)
}

fn message(version: Version) -> impl Strategy<Value = Message> {
    prop_oneof![3 => flow_mod(version), 3 => reply(version), 2 => request(version), 6 => other(version)]
}

fn reads_back(version: Version, message: &Message) -> Result<(), TestCaseError> {
    let mut bytes = vec![0xee; 3];
    message.encode(version, 77, &mut bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&bytes[..3], &[0xee; 3]);
    let bytes = &bytes[3..];
    let header = header_of(bytes);
    prop_assert_eq!(usize::from(header.length), bytes.len());
    prop_assert_eq!(
        (header.version, header.kind, header.xid),
        (version.wire(), message.kind(), 77)
    );
    let again = decode(version, bytes);
    prop_assert_eq!(again.as_ref(), Ok(message));
    let mut second = Vec::new();
    message.encode(version, 77, &mut second).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&second[..], bytes);
    // Of another version it is refused, but for a hello.
    let other = if version == Version::V13 { Version::V14 } else { Version::V13 };
    match decode(other, bytes) {
        Ok(Message::Hello(_)) => {}
        Ok(read) => return Err(TestCaseError::fail(format!("read as {other}: {read:?}"))),
        Err(error) => prop_assert_eq!(error.code, BadRequest::BadVersion.into()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn messages_of_1_3(message in message(Version::V13)) {
        reads_back(Version::V13, &message)?;
    }

    #[test]
    fn messages_of_1_4(message in message(Version::V14)) {
        reads_back(Version::V14, &message)?;
    }

    #[test]
    fn messages_of_1_5(message in message(Version::V15)) {
        reads_back(Version::V15, &message)?;
    }
}
