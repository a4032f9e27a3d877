//! The round trip as a property: rules as OpenFlow can make them, through OpenFlow, are the same.

use overbank_openflow::{
    BUFFER_NONE, FlowCommand, FlowFlags, FlowMod, Header, Message, Version,
    consts::{group, port},
};
use overbank_switch::parse::parse_rule;
use overbank_switch::rule::{Action, Rule, RuleFlags};
use overbank_wire::Field;
use proptest::prelude::*;

use super::{flow, instructions, matching};

/// Returns a flow-mod that adds the rule.
fn to_flow_mod(rule: &Rule) -> FlowMod {
    FlowMod {
        cookie: rule.cookie,
        cookie_mask: 0,
        table: rule.table,
        command: FlowCommand::Add,
        idle_timeout: rule.idle_timeout_s,
        hard_timeout: rule.hard_timeout_s,
        priority: rule.priority,
        buffer_id: BUFFER_NONE,
        out_port: port::ANY,
        out_group: group::ANY,
        flags: FlowFlags(rule.flags.bits()),
        importance: rule.importance,
        matching: matching::to_oxm(&rule.matching),
        instructions: instructions::to_instructions(rule),
    }
}

/// Matches, with fields that may be set under them.
const MATCHES: &[(&str, &[Field])] = &[
    ("", &[Field::DlSrc, Field::DlDst]),
    ("in_port=3", &[Field::DlSrc]),
    ("dl_vlan=7,dl_vlan_pcp=2", &[Field::VlanVid, Field::VlanPcp, Field::DlDst]),
    ("vlan_tci=0x1000/0x1000,arp", &[Field::ArpSpa, Field::ArpTpa, Field::ArpSha, Field::ArpOp]),
    ("ip,nw_dst=10.0.0.0/8", &[Field::NwSrc, Field::NwDst, Field::IpDscp, Field::NwEcn]),
    ("tcp,tp_dst=80", &[Field::TcpSrc, Field::TcpDst, Field::NwTtl]),
    ("udp6", &[Field::UdpSrc, Field::UdpDst, Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label]),
    ("sctp", &[Field::SctpSrc, Field::SctpDst]),
    ("icmp", &[Field::IcmpType, Field::IcmpCode]),
    ("icmp6,icmpv6_type=135", &[Field::NdTarget, Field::NdSll, Field::Icmp6Code]),
    ("icmp6,icmpv6_type=136", &[Field::NdTll]),
    ("ip,ip_frag=later", &[Field::NwSrc]),
];

fn set(field: Field, value: u128, mask: u128) -> Action {
    let whole = field.all_ones();
    // Only fields that OpenFlow masks.
    let masked = matches!(
        field,
        Field::DlSrc | Field::DlDst | Field::NwSrc | Field::NwDst | Field::Ipv6Src | Field::TcpDst
    );
    let mask = if masked && mask & whole != 0 { mask & whole } else { whole };
    Action::SetField { field, value: value & mask, mask }
}

fn an_action(fields: &'static [Field]) -> impl Strategy<Value = Action> {
    let set = (prop::sample::select(fields), any::<u128>(), any::<u128>())
        .prop_map(|(field, value, mask)| set(field, value, mask));
    prop_oneof![
        (0..0xff00u32).prop_map(Action::Output),
        prop::sample::select(vec![
            Action::Output(port::LOCAL),
            Action::InPort,
            Action::Flood,
            Action::All,
            Action::Normal,
            Action::PushVlan(0x8100),
            Action::PushVlan(0x88a8),
            Action::DecTtl,
        ]),
        any::<u16>().prop_map(|max_len| Action::Controller { max_len }),
        (prop_oneof![0..0xff00u32, Just(port::FLOOD), Just(port::IN_PORT)], 1..=u16::MAX)
            .prop_map(|(port, max_len)| Action::OutputAsked { port, max_len }),
        set,
    ]
}

fn a_rule() -> impl Strategy<Value = Rule> {
    prop::sample::select(MATCHES).prop_flat_map(|(matching, fields)| {
        let resubmit = (prop::option::of(0..0xff00u32), prop::option::of(0..255u8))
            .prop_map(|(in_port, table)| Action::Resubmit { in_port, table });
        let apply = prop::collection::vec(prop_oneof![4 => an_action(fields), 1 => resubmit], 0..6);
        let write = prop::collection::vec(an_action(fields), 0..4);
        let head = (0..200u8, any::<u16>(), any::<u64>(), any::<[u16; 3]>(), 0..32u16);
        (head, apply, any::<bool>(), write, prop::option::of(200..255u8)).prop_map(
            move |(head, mut actions, clear_actions, write_actions, goto)| {
                actions.extend(goto.map(Action::GotoTable));
                let (table, priority, cookie, [idle, hard, importance], flags) = head;
                let line = format!("{matching} actions=drop");
                Rule {
                    table,
                    priority,
                    matching: parse_rule(&line).expect("one of the table above").matching,
                    actions,
                    clear_actions,
                    write_actions,
                    cookie,
                    idle_timeout_s: idle,
                    hard_timeout_s: hard,
                    importance,
                    flags: RuleFlags::from_bits(flags),
                }
            },
        )
    })
}

proptest! {
    #[test]
    fn a_rule_comes_back_as_it_was(rule in a_rule()) {
        prop_assert_eq!(flow::to_rule(&to_flow_mod(&rule)), Ok(rule));
    }

    /// Also through the bytes of 1.5, which has masked set-fields and importance.
    #[test]
    fn a_rule_comes_back_through_bytes(rule in a_rule()) {
        let mut bytes = Vec::new();
        let message = Message::FlowMod(to_flow_mod(&rule));
        message.encode(Version::V15, 1, &mut bytes).expect("it fits");
        let header = Header::parse(&bytes).expect("a header");
        let decoded = Message::decode(Version::V15, &header, &bytes[8..]);
        let Ok(Message::FlowMod(flow)) = decoded else { panic!("{decoded:?}") };
        prop_assert_eq!(flow::to_rule(&flow), Ok(rule));
    }
}
