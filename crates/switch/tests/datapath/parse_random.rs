//! Rules from text, at random: printed rules read back, the order of a match does not matter, and
//! no text whatever makes the parser panic or point outside of its line.

use overbank_switch::parse::{PORT_LOCAL, PORT_MAX, parse_replay_rules, parse_rule, parse_rules};
use overbank_switch::rule::RuleFlags;
use overbank_switch::{Action, Match, Rule};
use overbank_wire::Field;
use proptest::prelude::*;

/// Values for a match on a field, masked where the parser lets it be.
fn masked(field: Field, value: u128, mask: u128) -> (u128, u128) {
    let text = matches!(
        field,
        Field::DlSrc
            | Field::DlDst
            | Field::ArpSha
            | Field::ArpTha
            | Field::NwSrc
            | Field::NwDst
            | Field::ArpSpa
            | Field::ArpTpa
            | Field::Ipv6Src
            | Field::Ipv6Dst
            | Field::Ipv6Label
            | Field::NdTarget
            | Field::TpSrc
            | Field::TpDst
            | Field::TcpFlags
            | Field::NdSll
            | Field::NdTll
    );
    let mask = if text { mask & field.all_ones() } else { field.all_ones() };
    (value & mask, mask)
}

/// A match that text can say: the fields of one protocol, each there or not, with random masks.
fn any_match() -> impl Strategy<Value = Match> {
    use Field::*;
    let l2: &[Field] = &[InPort, DlSrc, DlDst];
    let ip: &[Field] = &[IpDscp, NwEcn, NwTtl];
    let v4: &[Field] = &[NwSrc, NwDst];
    let v6: &[Field] = &[Ipv6Src, Ipv6Dst, Ipv6Label];
    let arp: &[Field] = &[ArpSpa, ArpTpa, ArpOp, ArpSha, ArpTha];
    // Ethernet type, protocol, fields.
    let kinds: Vec<(Option<u16>, Option<u8>, Vec<Field>)> = vec![
        (None, None, l2.into()),
        (Some(0x88cc), None, l2.into()),
        (Some(0x0806), None, [l2, arp].concat()),
        (Some(0x8035), None, [l2, arp].concat()),
        (Some(0x0800), None, [l2, v4, ip, &[NwProto]].concat()),
        (Some(0x86dd), None, [l2, v6, ip, &[NwProto]].concat()),
        (Some(0x0800), Some(6), [l2, v4, ip, &[TpSrc, TpDst, TcpFlags]].concat()),
        (Some(0x86dd), Some(6), [l2, v6, ip, &[TpSrc, TpDst, TcpFlags]].concat()),
        (Some(0x0800), Some(17), [l2, v4, ip, &[TpSrc, TpDst]].concat()),
        (Some(0x86dd), Some(132), [l2, v6, ip, &[TpSrc, TpDst]].concat()),
        (Some(0x0800), Some(1), [l2, v4, ip, &[IcmpType, IcmpCode]].concat()),
        (Some(0x86dd), Some(58), [l2, v6, ip, &[Icmp6Type, Icmp6Code]].concat()),
    ];
    let bits =
        || prop_oneof![Just(u128::MAX), any::<u128>(), (0..128u32).prop_map(|n| u128::MAX << n)];
    let field_bits = prop::collection::vec((any::<bool>(), any::<u128>(), bits()), 16);
    (0..kinds.len(), field_bits, any_vlan(), 0..8usize).prop_map(move |(kind, bits, vlan, nd)| {
        let (dl_type, proto, fields) = &kinds[kind];
        let mut m = Match::default();
        for (&field, &(there, value, mask)) in fields.iter().zip(&bits) {
            let (mut value, mask) = masked(field, value, mask);
            if field == InPort {
                value = if value % 9 == 0 {
                    PORT_LOCAL.into()
                } else {
                    value % u128::from(PORT_MAX + 1)
                };
            }
            m = if there { m.with(field, value, mask) } else { m };
        }
        m = dl_type.map_or(m, |v| m.with(DlType, v.into(), 0xffff));
        m = proto.map_or(m, |v| m.with(NwProto, v.into(), 0xff));
        m = m.with(VlanTci, vlan.0.into(), vlan.1.into());
        // Ports and later fragments exclude each other.
        let ip_alone = matches!(dl_type, Some(0x0800 | 0x86dd)) && proto.is_none();
        m = match bits[15].1 % 6 {
            n @ 0..5 if ip_alone => {
                let (value, mask) = [(0, 3), (1, 1), (1, 3), (3, 3), (0, 2)][n as usize];
                m.with(NwFrag, value, mask)
            }
            0 if proto.is_some() => m.with(NwFrag, 0, 3),
            _ => m,
        };
        if *proto == Some(58) && nd < 4 {
            m.key.tp_dst = 0;
            m.mask.tp_src |= 0xff;
            m.key.tp_src = if nd < 2 { 135 } else { 136 };
            let (value, mask) = masked(NdTarget, bits[14].1, bits[14].2);
            m = m.with(NdTarget, value, mask);
            let lladdr = if nd < 2 { NdSll } else { NdTll };
            let (value, mask) = masked(lladdr, bits[13].1, bits[13].2);
            m = m.with(lladdr, value, mask);
        }
        m
    })
}

/// Value and mask of the tag: any that a packet can have.
fn any_vlan() -> impl Strategy<Value = (u16, u16)> {
    let masks = prop_oneof![
        Just(0u16),
        Just(0x1fff),
        Just(0xf000),
        Just(0xffff),
        Just(0x1000),
        Just(0x0fff),
        any::<u16>()
    ];
    (any::<u16>(), masks).prop_map(|(value, mask)| {
        let value = value & mask;
        let impossible = mask & 0x1000 != 0 && value & 0x1000 == 0;
        (if impossible { 0 } else { value }, mask)
    })
}

fn any_action() -> impl Strategy<Value = Action> {
    use Field::*;
    let port = || prop_oneof![8 => 0..=PORT_MAX, 1 => Just(PORT_LOCAL)];
    // Anyone may write these: `mod_…` and Ethernet addresses.
    let whole = prop::sample::select(vec![NwSrc, NwDst, NwTos, NwEcn, NwTtl, TpSrc, TpDst])
        .prop_flat_map(|field| {
            let mask = if field == NwTos { 0xfc } else { field.all_ones() };
            any::<u128>().prop_map(move |v| Action::SetField { field, value: v & mask, mask })
        });
    let l2 = (prop::sample::select(vec![DlSrc, DlDst, VlanTci]), any::<u128>(), any::<u128>())
        .prop_map(|(field, value, mask)| {
            let mask = (mask | 1) & field.all_ones();
            Action::SetField { field, value: value & mask, mask }
        });
    prop_oneof![
        port().prop_map(Action::Output),
        Just(Action::InPort),
        Just(Action::Flood),
        Just(Action::All),
        Just(Action::Normal),
        any::<u16>().prop_map(|max_len| Action::Controller { max_len }),
        whole,
        l2,
        (0..4096u16).prop_map(|value| Action::SetVlan { field: VlanVid, value }),
        (0..8u16).prop_map(|value| Action::SetVlan { field: VlanPcp, value }),
        prop::sample::select(vec![0x8100, 0x88a8]).prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        Just(Action::DecTtl),
        (port(), prop::option::of(0..=254u8))
            .prop_map(|(p, table)| Action::Resubmit { in_port: Some(p), table }),
        (0..=254u8).prop_map(|table| Action::Resubmit { in_port: None, table: Some(table) }),
    ]
}

/// `set_field` of what the match establishes, at the head of the list.
fn fitting(m: &Match, pick: usize, value: u128, mask: u128) -> Option<Action> {
    use Field::*;
    let tagged = m.key.vlan_tci & 0x1000 != 0;
    let all = [
        (NwSrc, m.key.dl_type == 0x800),
        (Ipv6Dst, m.key.dl_type == 0x86dd),
        (Ipv6Label, m.key.dl_type == 0x86dd),
        (ArpSpa, m.key.dl_type == 0x806),
        (ArpTha, m.key.dl_type == 0x8035),
        (TcpDst, m.key.nw_proto == 6 && m.mask.tcp_flags != 0),
        (IpDscp, m.key.dl_type == 0x800 || m.key.dl_type == 0x86dd),
        (VlanVid, tagged),
        (VlanPcp, tagged),
    ];
    let known: Vec<_> = all.iter().filter(|(_, holds)| *holds).collect();
    let field = known.get(pick % known.len().max(1))?.0;
    let partial = !matches!(field, IpDscp | VlanPcp);
    let mask = if partial { (mask | 1) & field.all_ones() } else { field.all_ones() };
    Some(Action::SetField { field, value: value & mask, mask })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let actions = prop::collection::vec(any_action(), 0..6);
    let set = (any::<usize>(), any::<u128>(), any::<u128>());
    let goto = prop::option::of(any::<u8>());
    let numbers =
        (any::<u16>(), any::<u64>(), [any::<u16>(), any::<u16>(), any::<u16>()], 0..32u16);
    let write = (any::<bool>(), prop::collection::vec(any_action(), 0..5));
    (0..=254u8, numbers, any_match(), actions, set, write, goto).prop_map(
        |(table, numbers, matching, mut actions, (pick, value, mask), write, goto)| {
            let (priority, cookie, [idle, hard, importance], flags) = numbers;
            actions.splice(..0, fitting(&matching, pick, value, mask));
            let goto = goto.filter(|&to| to > table && to < 255);
            actions.extend(goto.map(Action::GotoTable));
            let (clear_actions, mut write_actions) = write;
            write_actions.retain(|action| !matches!(action, Action::Resubmit { .. }));
            Rule {
                table,
                priority,
                matching,
                actions,
                clear_actions,
                write_actions,
                cookie: cookie >> (cookie % 64),
                // Often none.
                idle_timeout_s: idle >> (idle % 17).min(15),
                hard_timeout_s: hard >> (hard % 17).min(15),
                importance: importance >> (importance % 17).min(15),
                flags: RuleFlags::from_bits(flags),
            }
        },
    )
}

/// Every error has its place within its line, or just after it.
fn check_places(text: &str) {
    if parse_rules(text).is_err() {
        assert!(parse_replay_rules(text).is_err(), "a replay reads no more than that");
    }
    let Err(errors) = parse_rules(text) else { return };
    assert!(errors.total() > 0);
    let lines: Vec<&str> = text.split('\n').collect();
    for error in errors.kept() {
        let line = lines[error.line as usize - 1];
        let columns = 1..=line.chars().count() as u32 + 1;
        assert!(columns.contains(&error.column), "{error} in {line:?}");
        assert!(!error.with_source("r").to_string().is_empty());
    }
    assert!(!errors.with_source("r").to_string().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn printed_rules_read_back(rule in any_rule()) {
        let text = rule.to_string();
        let back = parse_rule(&text);
        prop_assert_eq!(back.as_ref(), Ok(&rule), "{}", text);
    }

    #[test]
    fn order_of_the_match_does_not_matter(m in any_match(), turn in any::<usize>()) {
        let text = m.to_string();
        let mut words: Vec<&str> = text.split(',').collect();
        let turn = turn % words.len();
        words.rotate_left(turn);
        let back = parse_rule(&format!("{} actions=drop", words.join(" , ")));
        prop_assert_eq!(back.map(|r| r.matching), Ok(m));
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_places(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_text(text in "(?s).{0,120}") {
        check_places(&text);
    }

    #[test]
    fn random_words(words in prop::collection::vec(any_word(), 0..12)) {
        check_places(&words.concat());
    }

    #[test]
    fn mutated_lines(rule in any_rule(), edits in prop::collection::vec((any::<usize>(), any::<u8>(), 0..4u8), 1..5)) {
        let mut bytes = rule.to_string().into_bytes();
        for (at, byte, kind) in edits {
            let at = at % bytes.len().max(1);
            match kind {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 if !bytes.is_empty() => { bytes.remove(at); }
                2 => bytes.insert(at.min(bytes.len()), b",=:()/|+-> \n#"[usize::from(byte) % 13]),
                _ => bytes.truncate(at),
            }
        }
        check_places(&String::from_utf8_lossy(&bytes));
    }

    /// Any match at all prints, each bit of its mask included (megaflows are shown this way).
    #[test]
    fn any_mask_prints(words in prop::array::uniform14(any::<u64>()), only in 0..14usize * 64) {
        let mut m = Match::default();
        m.mask.words_mut().copy_from_slice(&words);
        prop_assert!(!m.to_string().is_empty());
        let mut one = Match::default();
        one.mask.words_mut()[only / 64] = 1 << (only % 64);
        prop_assert!(!one.to_string().is_empty(), "bit {}", only);
    }
}

/// A scrap of the syntax.
fn any_word() -> impl Strategy<Value = String> {
    let fields = Field::ALL.iter().flat_map(|f| f.names().iter().map(|n| n.to_string()));
    let scraps = [
        "actions=",
        "table=",
        "priority=",
        "cookie=",
        "output:",
        "resubmit(",
        "write_actions(",
        "clear_actions",
        "controller",
        "max_len=",
        "normal",
        "idle_timeout=",
        "send_flow_rem",
        "set_field:",
        "->",
        ",",
        " ",
        ")",
        "(",
        "/",
        "=",
        ":",
        "\n",
        "#",
        "+syn",
        "-ack",
        "|",
        "0x",
        "65535",
        "1",
        "10.0.0.0",
        "fe80::",
        "ff:ff:ff:ff:ff:ff",
        "tcp",
        "udp6",
        "icmp6",
        "arp",
        "drop",
        "é",
        "goto_table:",
        "push_vlan:",
        "pop_vlan",
        "dec_ttl",
        "mod_vlan_vid:",
        "*",
        "\"",
        "ip",
        "\0",
    ];
    let all: Vec<String> = fields.chain(scraps.iter().map(|s| s.to_string())).collect();
    prop::sample::select(all)
}
