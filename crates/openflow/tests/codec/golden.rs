//! What `ovs-ofctl` really sends, and what the specification draws: fixed bytes against values.

use crate::common::{check, decode, header_of, hex, unhex};
use overbank_openflow::consts::{experimenter, group, port, table};
use overbank_openflow::multipart::{MultipartRequest, Request};
use overbank_openflow::*;

/// Every message of the recording: the command that sent it, its version, its bytes.
fn recorded() -> Vec<(&'static str, Version, Vec<u8>)> {
    let mut command = "";
    let mut list = Vec::new();
    for line in include_str!("golden/ovs-ofctl.txt").lines() {
        match line.strip_prefix("$ ") {
            Some(text) => command = text,
            None if line.starts_with('#') => {}
            None => {
                let bytes = unhex(line);
                let version = Version::from_wire(bytes[0]).expect("1.3 to 1.5");
                list.push((command, version, bytes));
            }
        }
    }
    list
}

/// The messages that `command` sends beside questions.
fn sent_by(command: &str, version: Version) -> Vec<Vec<u8>> {
    let is_it = |found: &(&str, Version, Vec<u8>)| {
        found.0 == command && found.1 == version && !matches!(found.2[1], 5 | 7 | 18)
    };
    let found: Vec<_> = recorded().into_iter().filter(is_it).map(|(_, _, bytes)| bytes).collect();
    assert!(!found.is_empty(), "{command} is not in the recording");
    found
}

fn flow_mod(command: &str, version: Version) -> FlowMod {
    match decode(version, &sent_by(command, version)[0]) {
        Ok(Message::FlowMod(flow)) => flow,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn everything_that_ovs_ofctl_sends_is_read_and_written_as_it_was() {
    let mut messages = 0;
    for (command, version, bytes) in recorded() {
        messages += 1;
        // Fields that the switch does not have.
        let unknown = ["reg0=5", "ct_state=+trk"].iter().any(|field| command.contains(field));
        let message = match check(version, &bytes) {
            Ok(message) => message,
            Err(error) => {
                assert!(unknown && bytes[1] == 14, "{command}: {error}");
                assert_eq!(error.code, BadMatch::BadField.into());
                // Right behind the header, the flow-mod and the match's own header.
                assert_eq!(error.offset, 8 + 40 + 4);
                continue;
            }
        };
        assert!(!unknown || bytes[1] != 14, "{command} was read: {message:?}");
        // `reg_load` is read as the `set_field` that it is.
        let loads = bytes.windows(6).any(|w| w == [0, 0, 0x23, 0x20, 0, 7]);
        let mut again = Vec::new();
        message.encode(version, header_of(&bytes).xid, &mut again).expect("it was decoded");
        assert_eq!(again == bytes, !loads, "{command}\n{}\n{}", hex(&bytes), hex(&again));
    }
    assert!(messages > 170, "{messages}");
}

#[test]
fn a_flow_with_an_output() {
    for version in Version::ALL {
        let flow =
            flow_mod("add-flow SWITCH priority=100,ip,nw_dst=10.0.0.2,actions=output:2", version);
        let action = Action::Output { port: 2, max_len: 0 };
        assert_eq!(
            flow,
            FlowMod {
                cookie: 0,
                cookie_mask: 0,
                table: 0,
                command: FlowCommand::Add,
                idle_timeout: 0,
                hard_timeout: 0,
                priority: 100,
                buffer_id: BUFFER_NONE,
                out_port: port::ANY,
                out_group: group::ANY,
                flags: FlowFlags::default(),
                importance: 0,
                matching: vec![
                    Oxm::exact(OxmField::EthType, 0x0800),
                    Oxm::exact(OxmField::Ipv4Dst, 0x0a00_0002),
                ]
                .into(),
                instructions: vec![Instruction::ApplyActions(vec![action])],
            }
        );
    }
}

#[test]
fn a_flow_with_nearly_everything() {
    let start = "add-flow SWITCH idle_timeout=5,";
    let all = recorded();
    let command = all.iter().find(|r| r.0.starts_with(start)).expect("it is in the recording").0;
    for version in Version::ALL {
        let flow = flow_mod(command, version);
        assert_eq!((flow.idle_timeout, flow.hard_timeout, flow.cookie), (5, 9, 0x77));
        assert_eq!(flow.importance, if version < Version::V14 { 0 } else { 3 });
        assert_eq!(
            flow.matching.fields,
            [
                Oxm::exact(OxmField::InPort, 1),
                Oxm::masked(OxmField::EthSrc, 0x0011_2200_0000, 0xffff_ff00_0000),
                Oxm::exact(OxmField::EthType, 0x0800),
                Oxm::exact(OxmField::VlanVid, VID_PRESENT | 5),
                Oxm::exact(OxmField::NxIpFrag, 0),
                Oxm::exact(OxmField::IpDscp, 8),
                Oxm::exact(OxmField::IpEcn, 1),
                Oxm::exact(OxmField::NxIpTtl, 64),
                Oxm::exact(OxmField::IpProto, 6),
                Oxm::masked(OxmField::TcpDst, 80, 0xfff0),
                Oxm::masked(OxmField::TcpFlags, 0x002, 0x012),
            ]
        );
        let set = |field, value| Action::SetField(Oxm::exact(field, value));
        let output = |port| Action::Output { port, max_len: 0 };
        let actions = vec![
            set(OxmField::VlanVid, VID_PRESENT | 7),
            set(OxmField::VlanPcp, 3),
            Action::PopVlan,
            Action::PushVlan(0x8100),
            set(OxmField::VlanVid, 5),
            Action::DecNwTtl,
            Action::SetNwTtl(5),
            set(OxmField::Ipv4Src, 0x0102_0304),
            set(OxmField::TcpDst, 99),
            set(OxmField::Ipv4Dst, 0x0a00_0001),
            set(OxmField::EthDst, 1),
            set(OxmField::IpDscp, 4),
            output(3),
            Action::Output { port: port::CONTROLLER, max_len: 100 },
            Action::Output { port: port::CONTROLLER, max_len: MAX_LEN_NO_BUFFER },
            output(port::NORMAL),
            output(port::FLOOD),
            output(port::ALL),
            output(port::IN_PORT),
            output(port::LOCAL),
            Action::Resubmit { in_port: Some(5), table: None },
            Action::Resubmit { in_port: None, table: Some(3) },
            Action::Resubmit { in_port: Some(9), table: Some(4) },
            Action::Group(5),
            Action::SetQueue(3),
        ];
        assert_eq!(
            flow.instructions,
            [Instruction::ApplyActions(actions), Instruction::GotoTable(4)]
        );
    }
}

#[test]
fn a_field_is_set_under_a_mask_in_every_version() {
    let command = "add-flow SWITCH dl_src=00:00:00:00:00:01/01:00:00:00:00:00,actions=set_field:\
                   00:00:00:00:00:01/00:00:00:00:00:ff->eth_src,output(port=3,max_len=100),\
                   resubmit(in_port,1)";
    for version in Version::ALL {
        let flow = flow_mod(command, version);
        let [Instruction::ApplyActions(actions)] = &flow.instructions[..] else {
            panic!("{:?}", flow.instructions)
        };
        assert_eq!(actions[0], Action::SetField(Oxm::masked(OxmField::EthSrc, 1, 0xff)));
        // output(max_len) is an action of Nicira that stays as it is.
        assert_eq!(actions[1].nx_subtype(), Some(39));
        assert_eq!(actions[2], Action::Resubmit { in_port: None, table: Some(1) });
    }
}

#[test]
fn flags_and_meters() {
    let command = "add-flow SWITCH send_flow_rem,check_overlap,reset_counts,no_packet_counts,\
                   no_byte_counts,sctp,sctp_dst=5,actions=meter:1,output:in_port";
    let output = Action::Output { port: port::IN_PORT, max_len: 0 };
    for version in Version::ALL {
        let flow = flow_mod(command, version);
        assert_eq!(flow.flags, FlowFlags::KNOWN);
        let expected = if version < Version::V15 {
            vec![Instruction::Meter(1), Instruction::ApplyActions(vec![output.clone()])]
        } else {
            vec![Instruction::ApplyActions(vec![Action::Meter(1), output.clone()])]
        };
        assert_eq!(flow.instructions, expected);
    }
}

#[test]
fn packets_go_out() {
    let command = "packet-out SWITCH in_port=CONTROLLER,packet=ffffffffffff0000000000010800aabb,\
                   actions=TABLE";
    for version in Version::ALL {
        let expected = PacketOut {
            buffer_id: BUFFER_NONE,
            in_port: port::CONTROLLER,
            pipeline: OxmMatch::default(),
            actions: vec![Action::Output { port: port::TABLE, max_len: 0 }],
            data: unhex("ffffffffffff0000000000010800aabb"),
        };
        let sent = sent_by(command, version);
        assert_eq!(decode(version, &sent[0]), Ok(Message::PacketOut(expected)));
    }
}

#[test]
fn ports_change_in_both_formats() {
    for version in Version::ALL {
        let sent = sent_by("mod-port SWITCH 3 down", version);
        let expected = PortMod {
            port: 3,
            hw_addr: *b"abcdef",
            config: PortConfig::PORT_DOWN,
            mask: PortConfig::PORT_DOWN,
            advertise: 0,
        };
        assert_eq!(decode(version, &sent[0]), Ok(Message::PortMod(expected)));
    }
}

#[test]
fn the_packet_in_format_of_nicira_is_an_experimenter_message() {
    for version in Version::ALL {
        let sent = sent_by("monitor SWITCH 65", version);
        let data = vec![0, 0, 0, 2];
        let format = Experimenter { experimenter: experimenter::NICIRA, exp_type: 16, data };
        let found = sent
            .iter()
            .any(|bytes| decode(version, bytes) == Ok(Message::Experimenter(format.clone())));
        assert!(found);
    }
}

#[test]
fn questions_about_flows() {
    for (command, version, bytes) in recorded() {
        if command != "dump-flows SWITCH" || bytes[9] != 1 {
            continue;
        }
        let Ok(Message::MultipartRequest(MultipartRequest { more: false, body })) =
            decode(version, &bytes)
        else {
            panic!("{command}")
        };
        let Request::Flow(flow) = body else { panic!("{body:?}") };
        assert_eq!(
            (flow.table, flow.out_port, flow.out_group),
            (table::ALL, port::ANY, group::ANY)
        );
        assert_eq!((flow.cookie_mask, flow.matching), (0, OxmMatch::default()));
    }
}

/// Layouts of the specification, written out by hand: a comment for each line of fields.
#[test]
fn bytes_are_those_that_the_specification_draws() {
    let (v13, v14, v15) = (Version::V13, Version::V14, Version::V15);
    let in_port = "0001 000c 8000 0004 0000 0003 00000000";
    let packet_in = Message::PacketIn(PacketIn {
        buffer_id: 7,
        total_len: 60,
        reason: PacketInReason::ApplyAction,
        table: 2,
        cookie: 9,
        matching: OxmMatch::of_port(3),
        data: vec![1, 2, 3],
    });
    let removed = |version| {
        Message::FlowRemoved(FlowRemoved {
            cookie: 9,
            priority: 100,
            reason: FlowRemovedReason::HardTimeout,
            table: 2,
            idle_timeout: 5,
            hard_timeout: 6,
            stats: Stats {
                duration: Some(Elapsed { sec: 1, nsec: 2 }),
                idle: None,
                flows: None,
                packets: Some(3),
                bytes: if version < v15 { None } else { Some(4) },
            },
            matching: OxmMatch::of_port(3),
        })
    };
    let status = Message::PortStatus(PortStatus {
        reason: PortReason::Add,
        port: Port { number: 3, name: Name::new("p3"), ..Port::default() },
    });
    let role = RoleState { role: Role::Slave, generation_id: 5 };
    let masks = RoleMasks { master: Some(1), slave: Some(2) };
    let masks = AsyncConfig {
        packet_in: masks,
        port_status: masks,
        flow_removed: masks,
        ..AsyncConfig::default()
    };
    let name = "7033 0000000000000000000000000000";
    for (version, message, expected) in [
        (
            v15,
            Message::Hello(Hello { versions: VersionSet::ours() }),
            "06 00 0010 00000001  0001 0008 00000070".to_owned(),
        ),
        (
            v13,
            Message::Error(ErrorMessage::new(BadRequest::BadType, &[4, 99, 0, 8, 0, 0, 0, 1])),
            "04 01 0014 00000001  0001 0001 0463000800000001".to_owned(),
        ),
        (v13, Message::BarrierReply, "04 15 0008 00000001".to_owned()),
        (
            v13,
            packet_in,
            // buffer, length, reason, table; cookie; match; two zeros; packet
            format!(
                "04 0a 002d 00000001 00000007 003c 01 02 0000000000000009 {in_port} 0000 010203"
            ),
        ),
        (
            v14,
            removed(v14),
            // cookie; priority, reason, table, seconds; nanoseconds, timeouts; packets; bytes
            format!(
                "05 0b 0040 00000001 0000000000000009 0064 01 02 00000001 00000002 0005 0006 \
                 0000000000000003 ffffffffffffffff {in_port}"
            ),
        ),
        (
            v15,
            removed(v15),
            // table, reason, priority, timeouts; cookie; match; stats: duration, packets, bytes
            format!(
                "06 0b 0050 00000001 02 01 0064 0005 0006 0000000000000009 {in_port} \
                 0000 0028 8002 00 08 00000001 00000002 8002 08 08 0000000000000003 \
                 8002 0a 08 0000000000000004"
            ),
        ),
        (
            v13,
            status.clone(),
            // reason; number; address; name; config, state; six speeds
            format!(
                "04 0c 0050 00000001 00 00000000000000 00000003 00000000 000000000000 0000 {name} \
                 00000000 00000000 {:048}",
                0
            ),
        ),
        (
            v14,
            status,
            // reason; number, length; address; name; config, state; the property of speeds
            format!(
                "05 0c 0058 00000001 00 00000000000000 00000003 0048 0000 000000000000 0000 {name} \
                 00000000 00000000 0000 0020 00000000 {:048}",
                0
            ),
        ),
        (
            v13,
            Message::RoleReply(role),
            "04 19 0018 00000001 00000003 00000000 0000000000000005".to_owned(),
        ),
        (
            v13,
            Message::SetAsync(masks),
            "04 1c 0020 00000001 00000001 00000002 00000001 00000002 00000001 00000002".to_owned(),
        ),
        (
            v14,
            Message::SetAsync(masks),
            "05 1c 0038 00000001 0000 0008 00000002 0001 0008 00000001 0002 0008 00000002 \
             0003 0008 00000001 0004 0008 00000002 0005 0008 00000001"
                .to_owned(),
        ),
    ] {
        let mut bytes = Vec::new();
        message.encode(version, 1, &mut bytes).expect("it is in the version");
        assert_eq!(hex(&bytes), hex(&unhex(&expected)), "{version} {}", message.name());
        assert_eq!(decode(version, &bytes), Ok(message));
    }
}
