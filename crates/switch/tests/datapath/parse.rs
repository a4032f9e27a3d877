//! Rules from text, as tables: what each form means, what each mistake says and where, the limits.
//!
//! Both columns of `READ`, `MATCHES` and `ACTIONS` were given to `ovs-ofctl parse-flow` of Open
//! vSwitch 3.1, which makes the same flow of both, apart from what the parser's head names as its
//! own: a plain VID in `set_field`, `set_field` to `dl_vlan`, blanks within `resubmit( )`.

use overbank_switch::parse::{
    ACTIONS_MAX, ERRORS_KEPT_MAX, LINE_BYTES_MAX, PORT_LOCAL, RuleErrorKind, parse_replay_rules,
    parse_rule, parse_rules,
};
use overbank_switch::{Action, Match};
use overbank_wire::Field;

/// Text, and the text that this crate writes for it.
const READ: &[(&str, &str)] = &[
    // Whole rules.
    (
        "table=0,priority=100,udp,nw_dst=10.0.0.0/8,tp_dst=53,actions=output:2",
        "table=0,priority=100,udp,nw_dst=10.0.0.0/8,tp_dst=53,actions=output:2",
    ),
    ("actions=1", "table=0,priority=32768,actions=output:1"),
    ("actions=", "table=0,priority=32768,actions=drop"),
    ("actions=drop", "table=0,priority=32768,actions=drop"),
    ("add priority=0x10 actions=drop # why", "table=0,priority=16,actions=drop"),
    (
        "\tpriority=1   ip\t, actions=1 2 ,, 3,\r",
        "table=0,priority=1,ip,actions=output:1,output:2,output:3",
    ),
    ("cookie=0x1234,table=254,actions=drop", "cookie=0x1234,table=254,priority=32768,actions=drop"),
    (
        " cookie=0x0, duration=4.1s, table=3, n_packets=7, n_bytes=99, idle_age=2, priority=9,udp actions=output:1",
        "table=3,priority=9,udp,actions=output:1",
    ),
    ("actions = 1", "table=0,priority=32768,actions=output:1"),
    (
        "hard_timeout=60 idle_timeout=0x5,no_byte_counts reset_counts,send_flow_rem,priority=1,importance=7 check_overlap no_packet_counts,actions=1",
        "table=0,idle_timeout=5,hard_timeout=60,importance=7,send_flow_rem,check_overlap,reset_counts,no_packet_counts,no_byte_counts,priority=1,actions=output:1",
    ),
    ("idle_timeout=0,actions=1", "table=0,priority=32768,actions=output:1"),
    ("tp_dst=53,udp,action=1", "table=0,priority=32768,udp,tp_dst=53,actions=output:1"),
    (
        "udp,actions=OUTPUT:2,Normal,Controller:9,RESUBMIT(,1),Goto_Table:4 # capitals, too",
        "table=0,priority=32768,udp,actions=output:2,normal,controller:9,resubmit(,1),goto_table:4",
    ),
    ("ip6,actions=DROP", "table=0,priority=32768,ipv6,actions=drop"),
    (
        "actions=CLEAR_ACTIONS,Write_Actions(OUTPUT:1,FLOOD)",
        "table=0,priority=32768,actions=clear_actions,write_actions(output:1,flood)",
    ),
    (
        "dl_vlan=3,actions=set_vlan_vid:5,Set_Vlan_Pcp:2,1",
        "table=0,priority=32768,dl_vlan=3,actions=set_field:4101->vlan_vid,set_field:2->vlan_pcp,output:1",
    ),
    // Numbers of reserved ports, in 16 bits and in 32.
    (
        "in_port=65534,actions=output:65534,65528,output:0xfffa,65531,65532,output:65533",
        "table=0,priority=32768,in_port=LOCAL,actions=local,in_port,normal,flood,all,controller:65535",
    ),
    ("in_port=4294967294,actions=1", "table=0,priority=32768,in_port=LOCAL,actions=output:1"),
    // A mask of zeros writes nothing.
    ("ip,actions=set_field:0/0->nw_ttl,3", "table=0,priority=32768,ip,actions=output:3"),
    (
        "ip,actions=write_actions(set_field:1.2.3.4/0->nw_src,output:1)",
        "table=0,priority=32768,ip,actions=write_actions(output:1)",
    ),
    (
        "actions=set_field:0x1005->vlan_tci,set_vlan_vid:6",
        "table=0,priority=32768,actions=set_field:4101->vlan_tci,set_field:4102->vlan_vid",
    ),
];

/// Match, and the match that this crate writes for it.
const MATCHES: &[(&str, &str)] = &[
    ("in_port=7", "in_port=7"),
    ("in_port=local", "in_port=LOCAL"),
    ("dl_src=1:2:3:4:5:6", "dl_src=01:02:03:04:05:06"),
    ("eth_dst=01:80:c2:00:00:0f/01:00:00:00:00:00", "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
    ("dl_vlan=5", "dl_vlan=5"),
    ("dl_vlan=0", "dl_vlan=0"),
    ("dl_vlan=0xffff", "vlan_tci=0x0000/0x1fff"),
    ("dl_vlan=5,dl_vlan_pcp=3", "dl_vlan=5,dl_vlan_pcp=3"),
    ("vlan_pcp=3", "dl_vlan_pcp=3"),
    ("vlan_vid=0x1005", "dl_vlan=5"),
    ("vlan_vid=4101", "dl_vlan=5"),
    ("vlan_vid=0", "vlan_tci=0x0000/0x1fff"),
    ("vlan_vid=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
    ("vlan_vid=5/0xfff", "vlan_tci=0x0005/0x0fff"),
    ("vlan_tci=0", "vlan_tci=0x0000"),
    ("tcp,tp_src[5]=1", "tcp,tp_src=0x20/0x20"),
    ("tcp,tp_src[0..3]=5,tp_src[8]=0", "tcp,tp_src=0x5/0x10f"),
    ("udp,tp_dst[]=53", "udp,tp_dst=53"),
    ("vlan_vid[0]=1", "vlan_tci=0x0001/0x0001"),
    ("vlan_tci[12]=1", "vlan_tci=0x1000/0x1000"),
    ("ip6,ipv6_src[64..127]=0xfd", "ipv6,ipv6_src=0:0:0:fd::/64"),
    ("vlan_tci=0x1005/0x1fff", "dl_vlan=5"),
    ("ip,ip_src=10.1.2.3/8", "ip,nw_src=10.0.0.0/8"),
    ("ip,nw_src=10.1.2.3/255.0.255.0", "ip,nw_src=10.0.2.0/255.0.255.0"),
    ("ip,nw_src=1.2.3.4/0", "ip"),
    ("ip,nw_src=1.2.3.4/32", "ip,nw_src=1.2.3.4"),
    ("nw_dst=1.2.3.4,eth_type=0x800", "ip,nw_dst=1.2.3.4"),
    ("ip,ip_proto=6", "tcp"),
    ("tcp,nw_proto=6,dl_type=0x0800", "tcp"),
    ("ip,nw_proto=47", "ip,nw_proto=47"),
    ("dl_type=0x88cc", "dl_type=0x88cc"),
    ("mpls", "mpls"),
    (
        "arp,nw_src=10.0.0.1,nw_dst=10.0.0.0/24,nw_proto=1",
        "arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1",
    ),
    (
        "rarp,arp_op=3,arp_sha=2:0:0:0:0:1,arp_tha=2:0:0:0:0:2",
        "rarp,arp_op=3,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02",
    ),
    ("ip,nw_tos=184", "ip,nw_tos=184"),
    ("ip,ip_dscp=46", "ip,nw_tos=184"),
    ("ip,nw_ecn=2,nw_ttl=64", "ip,nw_ecn=2,nw_ttl=64"),
    ("ip,ip_dscp=1,ip_ecn=1", "ip,nw_tos=4,nw_ecn=1"),
    ("ip,ip_frag=no", "ip,ip_frag=no"),
    ("ipv6,nw_frag=yes", "ipv6,ip_frag=yes"),
    ("ip,ip_frag=first", "ip,ip_frag=first"),
    ("ip,ip_frag=later", "ip,ip_frag=later"),
    ("ip,ip_frag=not_later", "ip,ip_frag=not_later"),
    ("tcp,tp_src=0x1234/0xf000", "tcp,tp_src=0x1000/0xf000"),
    ("tcp6,tcp_dst=443", "tcp6,tp_dst=443"),
    ("udp6,udp_src=53", "udp6,tp_src=53"),
    ("sctp,sctp_dst=9,sctp_src=8", "sctp,tp_src=8,tp_dst=9"),
    ("tcp,tp_src=*", "tcp"),
    ("tcp,tcp_flags=+syn-ack", "tcp,tcp_flags=+syn-ack"),
    ("tcp,tcp_flags=0x2/0x12", "tcp,tcp_flags=+syn-ack"),
    ("tcp,tcp_flags=ack|syn", "tcp,tcp_flags=syn|ack"),
    ("tcp,tcp_flags=2", "tcp,tcp_flags=syn"),
    ("tcp,tcp_flags=0", "tcp,tcp_flags=0x0"),
    ("tcp,tcp_flags=0x800/0x801", "tcp,tcp_flags=0x800/0x801"),
    ("icmp,icmp_type=8,icmp_code=0", "icmp,icmp_type=8,icmp_code=0"),
    ("icmp,tp_src=8,tp_dst=0", "icmp,icmp_type=8,icmp_code=0"),
    ("icmp6,icmp_type=135", "icmp6,icmpv6_type=135"),
    (
        "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::1,nd_sll=2:0:0:0:0:1",
        "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::1,nd_sll=02:00:00:00:00:01",
    ),
    ("icmp6,icmp_type=136,nd_tll=2:0:0:0:0:1", "icmp6,icmpv6_type=136,nd_tll=02:00:00:00:00:01"),
    (
        "ipv6,ipv6_src=fe80::1/10,ipv6_dst=fe80::1/ffff::ff",
        "ipv6,ipv6_src=fe80::/10,ipv6_dst=fe80::1/ffff::ff",
    ),
    ("ipv6,ipv6_label=0x12345/0xff", "ipv6,ipv6_label=0x45/0xff"),
    ("ipv6,ipv6_label=7", "ipv6,ipv6_label=7"),
];

/// Actions of a rule, and the actions that this crate writes for them.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("", "output:2,3,in_port,flood,ALL,LOCAL", "output:2,output:3,in_port,flood,all,local"),
    ("", "output:in_port,output:flood,output(4)", "in_port,flood,output:4"),
    ("", "normal,NORMAL,output:normal,all,output:all", "normal,normal,normal,all,all"),
    (
        "",
        "controller,CONTROLLER:128,output:controller,controller(max_len=0),controller(9),controller()",
        "controller:65535,controller:128,controller:65535,controller:0,controller:9,controller:65535",
    ),
    ("", "clear_actions", "clear_actions"),
    ("", "write_actions()", "drop"),
    (
        "",
        "1,clear_actions,write_actions(dec_ttl,controller(max_len=3), mod_vlan_vid:7),goto_table:3",
        "output:1,clear_actions,write_actions(dec_ttl,controller:3,mod_vlan_vid:7),goto_table:3",
    ),
    (
        "tcp",
        "write_actions(set_field:80->tcp_dst,normal)",
        "write_actions(set_field:80->tcp_dst,normal)",
    ),
    ("", "mod_dl_src:00:11:22:33:44:55", "mod_dl_src:00:11:22:33:44:55"),
    ("", "mod_dl_dst=0:1:2:3:4:5", "mod_dl_dst:00:01:02:03:04:05"),
    ("", "mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1", "mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1"),
    ("", "mod_nw_tos:184,mod_nw_ecn:3,mod_nw_ttl:1", "mod_nw_tos:184,mod_nw_ecn:3,mod_nw_ttl:1"),
    ("", "mod_tp_src:80,mod_tp_dst:0xffff", "mod_tp_src:80,mod_tp_dst:65535"),
    ("", "mod_vlan_vid:5,mod_vlan_pcp:7", "mod_vlan_vid:5,mod_vlan_pcp:7"),
    ("", "strip_vlan,pop_vlan", "pop_vlan,pop_vlan"),
    ("", "push_vlan:33024,push_vlan:0x88a8", "push_vlan:0x8100,push_vlan:0x88a8"),
    ("", "push_vlan:0x8100,set_field:5->vlan_vid", "push_vlan:0x8100,set_field:4101->vlan_vid"),
    ("", "mod_vlan_vid:3,set_field:3->vlan_pcp", "mod_vlan_vid:3,set_field:3->vlan_pcp"),
    (
        "",
        "push_vlan:0x8100,push_vlan:0x8100,pop_vlan,set_field:3->vlan_pcp",
        "push_vlan:0x8100,push_vlan:0x8100,pop_vlan,set_field:3->vlan_pcp",
    ),
    ("dl_vlan=5", "set_field:0x1006->vlan_vid", "set_field:4102->vlan_vid"),
    ("dl_vlan=5", "set_field:6->dl_vlan", "set_field:4102->vlan_vid"),
    ("vlan_tci=0x1000/0x1000", "set_field:0x1006/0xff->vlan_vid", "set_field:0x6/0xff->vlan_vid"),
    (
        "",
        "set_field:0x1005->vlan_tci,set_field:6->vlan_vid",
        "set_field:4101->vlan_tci,set_field:4102->vlan_vid",
    ),
    ("", "set_field:00:11:22:33:44:55->eth_src", "mod_dl_src:00:11:22:33:44:55"),
    (
        "",
        "set_field:00:11:22:33:44:55/ff:00:00:00:00:00->eth_src",
        "set_field:00:00:00:00:00:00/ff:00:00:00:00:00->dl_src",
    ),
    ("ip", "set_field:1.2.3.4/24->ip_dst", "set_field:1.2.3.0/24->nw_dst"),
    (
        "arp",
        "set_field:1.2.3.4->arp_spa,set_field:2->arp_op",
        "set_field:1.2.3.4->arp_spa,set_field:2->arp_op",
    ),
    ("tcp", "set_field:80->tp_src,set_field:81->tcp_dst", "mod_tp_src:80,set_field:81->tcp_dst"),
    ("icmp", "set_field:0->icmp_type", "set_field:0->icmp_type"),
    (
        "ipv6",
        "set_field:fe80::1/ffff::->ipv6_src,set_field:2->ipv6_label",
        "set_field:fe80::/16->ipv6_src,set_field:2->ipv6_label",
    ),
    ("icmp6,icmpv6_type=135", "set_field:fe80::1->nd_target", "set_field:fe80::1->nd_target"),
    ("ip", "set_field:46->ip_dscp,set_field:4->nw_tos", "set_field:46->ip_dscp,mod_nw_tos:4"),
    ("", "dec_ttl,dec_ttl()", "dec_ttl,dec_ttl"),
    ("", "1,goto_table:3", "output:1,goto_table:3"),
    (
        "",
        "resubmit:3,resubmit(3,4),resubmit(,4),resubmit(3),resubmit(3,)",
        "resubmit(3),resubmit(3,4),resubmit(,4),resubmit(3),resubmit(3)",
    ),
    ("", "resubmit(in_port,4),resubmit(LOCAL, 2 )", "resubmit(,4),resubmit(LOCAL,2)"),
];

#[test]
fn forms_that_people_write() {
    let matches = MATCHES.iter().map(|(text, want)| {
        let want = format!("table=0,priority=32768,{want},actions=drop");
        (format!("{text},actions=drop"), want)
    });
    let actions = ACTIONS.iter().map(|(prefix, text, want)| {
        let rule = |text| format!("priority=1,{prefix},actions={text}");
        let canonical = parse_rule(&rule(want)).expect("canonical text reads back").to_string();
        let end = canonical.split_once("actions=").expect("a rule has actions").1;
        assert_eq!(end, *want, "canonical text stays as it is");
        (rule(text), canonical)
    });
    let whole = READ.iter().map(|(text, want)| (text.to_string(), want.to_string()));
    for (text, want) in whole.chain(matches).chain(actions) {
        let rule = parse_rule(&text).unwrap_or_else(|e| panic!("{}", e.with_source("rule")));
        assert_eq!(rule.to_string(), want, "{text}");
        assert_eq!(parse_rule(&want), Ok(rule), "{text}");
    }
}

#[test]
fn bits_of_a_match() {
    let all = |field: Field, value| (field, value, field.all_ones());
    let ip = all(Field::DlType, 0x800);
    /// Field, value, mask.
    type Bits = (Field, u128, u128);
    let table: &[(&str, &[Bits])] = &[
        ("dl_vlan=5", &[(Field::VlanTci, 0x1005, 0x1fff)]),
        ("dl_vlan=0xffff", &[(Field::VlanTci, 0, 0x1fff)]),
        ("dl_vlan_pcp=3", &[(Field::VlanTci, 0x7000, 0xf000)]),
        ("vlan_tci=0", &[all(Field::VlanTci, 0)]),
        ("ip,nw_src=10.1.2.3/8", &[ip, (Field::NwSrc, 0x0a00_0000, 0xff00_0000)]),
        ("ip,nw_tos=184", &[ip, (Field::NwTos, 184, 0xfc)]),
        ("ip,ip_dscp=46", &[ip, (Field::NwTos, 184, 0xfc)]),
        ("ip,ip_frag=first", &[ip, (Field::NwFrag, 1, 3)]),
        ("ip,ip_frag=not_later", &[ip, (Field::NwFrag, 0, 2)]),
        ("icmp,tp_src=8", &[ip, all(Field::NwProto, 1), all(Field::IcmpType, 8)]),
        ("arp,nw_proto=2", &[all(Field::DlType, 0x806), all(Field::ArpOp, 2)]),
        ("arp,nw_src=0.0.0.1", &[all(Field::DlType, 0x806), all(Field::ArpSpa, 1)]),
        (
            "tcp6,tp_dst=0x1234/0xff00,tcp_flags=+syn-ack",
            &[
                all(Field::DlType, 0x86dd),
                all(Field::NwProto, 6),
                (Field::TpDst, 0x1200, 0xff00),
                (Field::TcpFlags, 0x002, 0x012),
            ],
        ),
        ("in_port=LOCAL", &[all(Field::InPort, PORT_LOCAL.into())]),
    ];
    for (text, wishes) in table {
        let want =
            wishes.iter().fold(Match::default(), |m, &(f, value, mask)| m.with(f, value, mask));
        let rule = parse_rule(&format!("{text},actions=drop")).expect("a good rule");
        assert_eq!(rule.matching, want, "{text}");
    }
}

#[test]
fn steps_of_the_actions() {
    let set = |field, value, mask| Action::SetField { field, value, mask };
    let again = |in_port, table| Action::Resubmit { in_port, table };
    let table: &[(&str, Action)] = &[
        ("1", Action::Output(1)),
        ("LOCAL", Action::Output(PORT_LOCAL)),
        ("IN_PORT", Action::InPort),
        ("all", Action::All),
        ("mod_nw_tos:8", set(Field::NwTos, 8, 0xfc)),
        ("mod_tp_src:8", set(Field::TpSrc, 8, 0xffff)),
        ("mod_dl_dst:1:2:3:4:5:6", set(Field::DlDst, 0x0102_0304_0506, 0xffff_ffff_ffff)),
        ("mod_vlan_vid:9", Action::SetVlan { field: Field::VlanVid, value: 9 }),
        ("mod_vlan_pcp:7", Action::SetVlan { field: Field::VlanPcp, value: 7 }),
        ("set_field:0x1009->vlan_vid", set(Field::VlanVid, 9, 0xfff)),
        ("set_field:9->vlan_vid", set(Field::VlanVid, 9, 0xfff)),
        ("set_field:2->vlan_pcp", set(Field::VlanPcp, 2, 7)),
        ("set_field:1.2.3.4/8->nw_src", set(Field::NwSrc, 0x0100_0000, 0xff00_0000)),
        ("push_vlan:0x88a8", Action::PushVlan(0x88a8)),
        ("strip_vlan", Action::PopVlan),
        ("dec_ttl", Action::DecTtl),
        ("goto_table:7", Action::GotoTable(7)),
        ("resubmit:3", again(Some(3), None)),
        ("resubmit(,4)", again(None, Some(4))),
        ("resubmit(3,4)", again(Some(3), Some(4))),
    ];
    for (text, want) in table {
        let rule = parse_rule(&format!("ip,dl_vlan=1,actions={text}")).expect("a good rule");
        assert_eq!(rule.actions, [*want], "{text}");
    }
}

/// A wrong line; then for each of its errors the column and words of the message, in order.
const WRONG: &[(&str, &[(u32, &str)])] = &[
    ("", &[(1, "expected `actions=`, found the end of the rule")]),
    ("priority=1,ip  # no actions=1", &[(14, "expected `actions=`")]),
    ("prio=1,actions=1", &[(1, "expected a field, a protocol, `table`")]),
    ("ip,nw_dest=10.0.0.1,actions=1", &[(4, "(did you mean `nw_dst`?)")]),
    ("TCP,actions=1", &[(1, "found `TCP`")]),
    (
        "tun_id=5,reg0=1,NXM_OF_IP_SRC=1.2.3.4,actions=1",
        &[
            (1, "`tun_id` is not supported here, only in Open vSwitch"),
            (10, "`reg0` is not supported"),
            (17, "`NXM_OF_IP_SRC` is not supported"),
        ],
    ),
    (
        "idle_timeout=65536,send_flow_rem=1,importance,actions=1",
        &[
            (14, "expected a number from 0 to 65535, found `65536`"),
            (20, "expected `send_flow_rem` without a value"),
            (46, "expected `=` and a number after `importance`"),
        ],
    ),
    ("check_overlap,check_overlap,actions=1", &[(15, "expected `check_overlap` once")]),
    ("idle_timeuot=1,actions=1", &[(1, "(did you mean `idle_timeout`?)")]),
    ("delete table=1,actions=1", &[(1, "`delete` is not supported here")]),
    // Keywords.
    (
        "table=255,priority=65536,cookie=1/2,actions=1",
        &[
            (7, "expected a table from 0 to 254, found `255`"),
            (20, "expected a number from 0 to 65535, found `65536`"),
            (35, "expected a cookie without a mask, found `2`"),
        ],
    ),
    ("table,actions=1", &[(6, "expected `=` and a number after `table`, found nothing")]),
    (
        "priority=1,priority=1,actions=1",
        &[(12, "expected `priority` once, found it twice (first at column 1)")],
    ),
    ("cookie=18446744073709551616,actions=1", &[(8, "from 0 to 18446744073709551615")]),
    ("priority=010,actions=1", &[(10, "expected a number without a leading zero, found `010`")]),
    ("priority=-1,actions=1", &[(10, "found `-1`")]),
    ("priority=0x,actions=1", &[(10, "found `0x`")]),
    // Values.
    (
        "dl_vlan=5000,actions=1",
        &[(9, "expected a VLAN from 0 to 4095, or 0xffff for untagged packets")],
    ),
    (
        "dl_vlan=5/0xf,actions=1",
        &[(11, "expected a value of `dl_vlan` without a mask, found `0xf`")],
    ),
    ("vlan_vid=5,actions=1", &[(10, "expected the bit 0x1000")]),
    ("vlan_tci=0x6123,actions=1", &[(10, "expected the bit 0x1000")]),
    ("dl_vlan_pcp=8,actions=1", &[(13, "a priority from 0 to 7")]),
    (
        "ip,nw_src=1.2.3,nw_dst=1.2.3.4/33,actions=1",
        &[
            (11, "expected an IPv4 address like 10.0.0.0/8, found `1.2.3`"),
            (32, "expected a prefix length from 0 to 32 or a mask like 255.255.255.0, found `33`"),
        ],
    ),
    (
        "ipv6,ipv6_src=fe80::/129,ipv6_dst=1.2.3.4,actions=1",
        &[(22, "a prefix length from 0 to 128"), (35, "expected an IPv6 address")],
    ),
    (
        "dl_src=1:2:3:4:5,dl_dst=01-00-00-00-00-00,actions=1",
        &[
            (8, "expected an Ethernet address like 00:11:22:aa:bb:cc, found `1:2:3:4:5`"),
            (25, "found `01-00-00-00-00-00`"),
        ],
    ),
    (
        "ip,nw_tos=7,nw_ecn=4,ip_dscp=64,nw_ttl=64/0xf0,actions=1",
        &[
            (11, "lower two bits 0"),
            (20, "from 0 to 3"),
            (30, "from 0 to 63"),
            (43, "expected a value of `nw_ttl` without a mask, found `0xf0`"),
        ],
    ),
    (
        "ip,ip_frag=maybe,actions=1",
        &[(12, "expected `no`, `yes`, `first`, `later` or `not_later`, found `maybe`")],
    ),
    ("tcp,tcp_flags=+syn+foo,actions=1", &[(20, "expected a TCP flag (fin, syn, rst")]),
    ("tcp,tcp_flags=+syn-syn,actions=1", &[(20, "expected each TCP flag once, found `syn`")]),
    ("tcp,tcp_flags=syn|,actions=1", &[(19, "expected a TCP flag")]),
    ("tcp,tcp_flags=0x1000,actions=1", &[(15, "from 0 to 4095")]),
    ("tcp,tcp_flags=,actions=1", &[(15, "expected TCP flags like")]),
    ("in_port=65280,actions=1", &[(9, "expected a port from 0 to 65279 or LOCAL, found `65280`")]),
    ("in_port=\"eth0\",actions=1", &[(9, "found `\"eth0\"`")]),
    ("icmp,tp_src=300,actions=1", &[(13, "expected an ICMP type from 0 to 255, found `300`")]),
    ("icmp6,tp_dst=1/0xf,actions=1", &[(14, "expected an ICMP code from 0 to 255")]),
    ("tcp=5,actions=1", &[(1, "expected `tcp` without a value, found `tcp=5`")]),
    ("nw_dst,actions=1", &[(7, "expected `=` and a value after `nw_dst`, found nothing")]),
    // Prerequisites, repetition, contradiction.
    ("tp_dst=53,actions=1", &[(1, "`tp_dst` needs `tcp`, `udp`, `sctp`")]),
    ("nw_src=10.0.0.1,actions=1", &[(1, "`nw_src` needs `ip` (or `arp`)")]),
    ("ipv6,ip_src=10.0.0.1,actions=1", &[(6, "`ip_src` needs `ip`")]),
    ("nw_proto=6,actions=1", &[(1, "`nw_proto` needs `ip` or `ipv6`")]),
    (
        "udp,tcp_dst=1,tcp_flags=syn,actions=1",
        &[(5, "`tcp_dst` needs `tcp` or `tcp6`"), (15, "`tcp_flags` needs `tcp` or `tcp6`")],
    ),
    (
        "tcp,ip_frag=later,tp_src=80,actions=1",
        &[(19, "`tp_src` needs a match without later fragments")],
    ),
    ("arp,nw_tos=4,actions=1", &[(5, "`nw_tos` needs `ip` or `ipv6`")]),
    ("ip,arp_op=1,actions=1", &[(4, "`arp_op` needs `arp` or `rarp`")]),
    ("icmp6,nd_target=fe80::1,actions=1", &[(7, "`nd_target` needs `icmp6,icmpv6_type=135`")]),
    ("icmp6,icmp_type=135,icmp_code=1,nd_sll=0:0:0:0:0:1,actions=1", &[(33, "`nd_sll` needs")]),
    ("tcp,udp,actions=1", &[(5, "a match that agrees with `tcp` at column 1, found `udp`")]),
    (
        "dl_vlan=5,vlan_tci=0x1006/0x1fff,actions=1",
        &[(11, "expected a match that agrees with `dl_vlan=5` at column 1")],
    ),
    ("in_port=1,in_port=1,actions=1", &[(11, "expected `in_port` once")]),
    // Errors of one line come in its order, whenever they were found.
    (
        "tp_dst=53,in_port=x,actions=1",
        &[(1, "`tp_dst` needs"), (19, "expected a port from 0 to 65279")],
    ),
    // A slip in what might have been the prerequisite is one error, not two.
    ("udpp,tp_dst=53,actions=set_field:5->udp_src", &[(1, "(did you mean `udp`?)")]),
    // Actions.
    ("actions=1,drop", &[(11, "expected `drop` alone")]),
    ("actions=drop,goto_table:3", &[(9, "expected `drop` alone")]),
    ("actions=normal:1", &[(15, "expected `normal` without a value")]),
    (
        "actions=controller:65536,controller:,controller(reason=action)",
        &[
            (20, "expected a number from 0 to 65535, found `65536`"),
            (37, "expected a number of bytes after `:`"),
            (49, "expected `max_len=` and a number, found `reason=action`"),
        ],
    ),
    ("actions=output:table", &[(16, "`table` is not supported here, only in Open vSwitch")]),
    // Instructions.
    (
        "actions=write_actions(1),2,clear_actions,write_actions(3)",
        &[
            (26, "expected `2` before `write_actions`"),
            (28, "expected `clear_actions` before `write_actions`"),
            (42, "expected `write_actions` once"),
        ],
    ),
    ("actions=clear_actions,1", &[(23, "expected `1` before `clear_actions`")]),
    ("actions=clear_actions:1", &[(22, "expected `clear_actions` without a value")]),
    ("actions=drop,clear_actions", &[(9, "expected `drop` alone")]),
    (
        "actions=goto_table:1,clear_actions",
        &[(22, "expected the end of the rule after `goto_table`, found `clear_actions`")],
    ),
    ("actions=write_actions", &[(22, "expected `(` and actions after `write_actions`")]),
    ("actions=write_actions:1", &[(22, "expected `(` and actions after `write_actions`")]),
    ("actions=write_actions(1", &[(24, "expected `)`")]),
    (
        "actions=write_actions(outptu:1,goto_table:2,resubmit(,1),drop,set_field:1->tcp_dst)",
        &[
            (23, "expected one of output"),
            (32, "expected an action that an action set can hold, found `goto_table`"),
            (45, "found `resubmit`"),
            (58, "found `drop`"),
            (76, "`tcp_dst` needs `tcp`"),
        ],
    ),
    ("actions=note:(a,b),1", &[(9, "`note` is not supported here")]),
    ("actions=outptu:3", &[(9, "expected one of output, drop, in_port")]),
    ("actions=mod_nw_dest:1.2.3.4", &[(9, "(did you mean `mod_nw_dst`?)")]),
    (
        "actions=output:,output,65280,3:4",
        &[
            (16, "expected `:` and a value after `output`, found nothing"),
            (23, "expected `:` and a value after `output`"),
            (24, "expected a port from 0 to 65279 or LOCAL, found `65280`"),
            (31, "expected `3` without a value, found `:4`"),
        ],
    ),
    (
        "actions=mod_vlan_vid:4096,mod_vlan_pcp:8,mod_nw_tos:7,mod_tp_dst:65536",
        &[
            (22, "from 0 to 4095"),
            (40, "from 0 to 7"),
            (53, "lower two bits 0"),
            (66, "from 0 to 65535"),
        ],
    ),
    ("actions=mod_nw_src:1.2.3.4/8", &[(28, "expected a value of `nw_src` without a mask")]),
    (
        "actions=push_vlan:0x9100,push_vlan",
        &[
            (19, "expected 0x8100 or 0x88a8, found `0x9100`"),
            (35, "expected `:` and a value after `push_vlan`"),
        ],
    ),
    ("actions=pop_vlan:1", &[(17, "expected `pop_vlan` without a value, found `:1`")]),
    ("actions=dec_ttl(1,2)", &[(9, "expected `dec_ttl` without controller ids")]),
    ("table=3,actions=goto_table:3", &[(28, "expected a table after 3, found 3")]),
    ("actions=goto_table:255", &[(20, "expected a table from 0 to 254")]),
    (
        "actions=goto_table:3,1,2",
        &[(22, "expected the end of the rule after `goto_table`, found `1`"), (24, "found `2`")],
    ),
    (
        "actions=resubmit(),resubmit,resubmit(1,2,ct),resubmit(x,1)",
        &[
            (9, "expected `resubmit:PORT`"),
            (20, "expected `resubmit:PORT`"),
            (42, "expected `)` after the table, found `ct`"),
            (55, "expected a port from 0 to 65279"),
        ],
    ),
    ("actions=resubmit(1,2", &[(21, "expected `)`, found nothing")]),
    ("actions=resubmit(1,2)3", &[(22, "expected a comma after `)`, found `3`")]),
    (
        "actions=set_field:5,set_field:5->foo,set_field:5->nw_proto,set_field:5->reg1",
        &[
            (20, "expected `->` and a field after the value"),
            (34, "expected the name of a field, found `foo`"),
            (51, "expected a field that can be set, found `nw_proto`, which is read-only"),
            (73, "`reg1` is not supported here"),
        ],
    ),
    ("actions=set_field:1.2.3.4->nw_src", &[(28, "`nw_src` needs `ip`")]),
    ("arp,actions=set_field:1.2.3.4->nw_src", &[(32, "`nw_src` needs `ip` (ARP's is `arp_spa`)")]),
    ("udp,actions=set_field:80->tcp_src", &[(27, "`tcp_src` needs `tcp` or `tcp6`")]),
    ("dl_vlan=3,actions=pop_vlan,set_field:3->vlan_pcp", &[(41, "or a `push_vlan` before it")]),
    ("dl_vlan=0xffff,actions=set_field:3->vlan_vid", &[(37, "`vlan_vid` needs a VLAN")]),
    ("dl_vlan=3,actions=set_field:8->vlan_pcp", &[(29, "from 0 to 7")]),
    ("ip,actions=set_field:7->nw_tos", &[(22, "lower two bits 0")]),
    (
        "actions=check_pkt_larger(1500)->NXM_NX_REG0[0]",
        &[(9, "`check_pkt_larger` is not supported here, only in Open vSwitch")],
    ),
    ("actions=set_vlan_vid:5", &[(9, "`set_vlan_vid` needs a VLAN")]),
    (
        "dl_vlan=3,actions=set_field:0->vlan_tci,set_vlan_pcp:5",
        &[(41, "`set_vlan_pcp` needs a VLAN")],
    ),
    ("tcp,tp_src[16]=1,actions=1", &[(12, "with bits from 0 to 15, at most 64, found `16]`")]),
    ("tcp,tp_src[3..1]=1,actions=1", &[(12, "`[BIT]` or `[LOW..HIGH]`")]),
    ("tcp,tp_src[1=1,actions=1", &[(12, "`[BIT]` or `[LOW..HIGH]`")]),
    ("tcp,tp_src[0..1]=4,actions=1", &[(18, "expected a number from 0 to 3")]),
    ("ip,nw_proto[0]=1,actions=1", &[(13, "without a mask")]),
    ("ipv6,ipv6_src[0..64]=1,actions=1", &[(15, "at most 64")]),
    ("tcp,reg0[0..3]=1,actions=1", &[(5, "`reg0` is not supported here")]),
    ("ip actions", &[(11, "expected `=` after `actions`, found nothing")]),
    ("ip actions:1=,2", &[(11, "found `:1=`")]),
    ("ip actions:1,2", &[(11, "expected `=` after `actions`, found `:1`")]),
    ("actions=1,actions=2", &[(11, "found `actions`")]),
    // Errors in the match and in the actions, counted in characters.
    (
        "priority=x,α=1,udp,tp_dst=99999,actions=output:y,frob",
        &[
            (10, "from 0 to 65535, found `x`"),
            (12, "found `α`"),
            (27, "from 0 to 65535, found `99999`"),
            (48, "expected a port"),
            (50, "found `frob`"),
        ],
    ),
];

#[test]
fn mistakes_are_reported_with_place_and_problem() {
    for (text, want) in WRONG {
        let errors = parse_rule(text).expect_err(text);
        let found: Vec<_> = errors.kept().iter().map(|e| (e.column, e.kind.to_string())).collect();
        let agrees = found.len() == want.len()
            && want.iter().zip(&found).all(|(w, f)| w.0 == f.0 && f.1.contains(w.1));
        assert!(agrees, "{text}\n  want {want:#?}\n  found {found:#?}");
    }
}

/// A replay has no clock for rules, no controllers and learns no addresses.
#[test]
fn a_replay_refuses_what_needs_a_live_switch() {
    let wrong = [
        (
            "idle_timeout=5,send_flow_rem actions=1",
            1,
            "`idle_timeout` is not supported here, only in Open vSwitch: expected a rule \
             without timeouts",
        ),
        ("hard_timeout=5 actions=1", 1, "`hard_timeout` is not supported here"),
        (
            "actions=normal",
            9,
            "`normal` is not supported here, only in Open vSwitch: expected output, drop",
        ),
        ("actions=CONTROLLER:128", 9, "`controller` is not supported here"),
        (
            "actions=output:controller",
            16,
            "`controller` is not supported here, only in Open vSwitch: expected a port number",
        ),
        ("actions=write_actions(normal)", 23, "`normal` is not supported here"),
    ];
    for (text, column, message) in wrong {
        let rule = parse_rule(text).expect("right for a live switch");
        assert!(rule.needs_a_live_switch(), "{text}");
        let errors = parse_replay_rules(text).expect_err(text);
        let first = &errors.kept()[0];
        let said = first.kind.to_string();
        assert!(first.column == column && said.contains(message), "{text}: {first}");
        assert!(!said.contains("controller,"), "{text}: {first}");
    }
    let text = "actions=all,clear_actions,write_actions(flood),goto_table:1";
    assert_eq!(parse_replay_rules(text), parse_rules(text));
    assert!(!parse_rule(text).expect("right").needs_a_live_switch());
}

#[test]
fn a_file_gives_every_error() {
    let text = "# rules\n\npriority=1,udp,actions=1\r\nudp,tp_dst=x,actions=2\n  ipp actions=3\nactions=1\nip";
    let errors = parse_rules(text).expect_err("three wrong lines");
    assert_eq!(
        errors.in_file("rules.txt").to_string(),
        "rules.txt:4:12: expected a number from 0 to 65535, found `x`\n\
         rules.txt:5:3: expected a field, a protocol, `table`, `priority`, `cookie` or `actions`, \
         found `ipp` (did you mean `ip`?)\n\
         rules.txt:7:3: expected `actions=`, found the end of the rule"
    );
    assert_eq!(
        errors.kept()[0].with_source("r").to_string(),
        "r:4:12: expected a number from 0 to 65535, found `x`\n\
         \x20 4 | udp,tp_dst=x,actions=2\n\
         \x20   |            ^"
    );
    assert_eq!(errors.to_string().lines().count(), 3);

    let good = parse_rules("# one\npriority=1,actions=1\n\n  # two\nactions=drop").expect("good");
    assert_eq!(good.iter().map(|r| r.priority).collect::<Vec<_>>(), [1, 32768]);
    assert_eq!(parse_rules(""), Ok(vec![]));
}

#[test]
fn limits_are_errors() {
    let many = "frob\n".repeat(ERRORS_KEPT_MAX);
    let errors = parse_rules(&many).expect_err("each line is wrong twice");
    assert_eq!(errors.kept().len(), ERRORS_KEPT_MAX);
    assert_eq!(errors.total(), 2 * ERRORS_KEPT_MAX);
    assert!(errors.to_string().ends_with("\nand 100 more errors"));

    let kind = |text: &str| parse_rule(text).expect_err("over a limit").kept()[0].kind.clone();
    let long = format!("actions=1#{}", "x".repeat(LINE_BYTES_MAX));
    assert_eq!(kind(&long), RuleErrorKind::LineTooLong { max: LINE_BYTES_MAX, found: long.len() });
    let blank = " ".repeat(LINE_BYTES_MAX + 1);
    assert!(parse_rules(&blank).is_err());

    let outputs = |n| format!("actions={}", "1,".repeat(n));
    assert_eq!(parse_rule(&outputs(ACTIONS_MAX)).expect("at the limit").actions.len(), ACTIONS_MAX);
    assert_eq!(kind(&outputs(ACTIONS_MAX + 1)), RuleErrorKind::TooManyActions { max: ACTIONS_MAX });
    let set = format!("actions=1,write_actions({})", "1,".repeat(ACTIONS_MAX));
    assert_eq!(kind(&set), RuleErrorKind::TooManyActions { max: ACTIONS_MAX });
    assert_eq!(kind(&outputs(30_000)), RuleErrorKind::TooManyActions { max: ACTIONS_MAX });
    assert!(parse_rule("actions=1\nactions=2").is_err());

    // A terminal gets no control characters and no endless lines.
    let nasty = format!("{}\x1b[2J\u{202e}{}", "α".repeat(500), "y".repeat(500));
    let shown = parse_rule(&nasty).expect_err("nonsense").with_source("r").to_string();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()) && !shown.contains('\u{202e}'));
    assert!(shown.lines().all(|line| line.chars().count() < 300), "{shown}");
    for text in ["actions=write_actions(1),\0a\0", "actions=write_actions(1),\x1b(1)"] {
        let shown = parse_rule(text).expect_err("out of order").to_string();
        assert!(shown.contains("before `write_actions`"), "{shown}");
        assert!(shown.lines().all(|line| !line.contains(char::is_control)), "{shown:?}");
    }
    let shown = parse_rule("actions=2\0x:12").expect_err("no value").to_string();
    assert!(shown.contains("without a value"), "{shown}");
    assert!(shown.lines().all(|line| !line.contains(char::is_control)), "{shown:?}");
}

#[test]
fn an_error_quotes_no_control_character() {
    let text = "tcp,tp_src[6\0)[5=17,tcp,tp_src[6\0)[5=17,actions=1";
    let errors = parse_rules(text).expect_err("fields twice");
    let twice = errors.kept().iter().filter(|error| error.to_string().contains("found it twice"));
    assert!(twice.count() > 0, "{errors}");
    for error in errors.kept() {
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
    }
}
