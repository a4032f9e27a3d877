//! Random rules and packets from domains so small that they meet each other.
//!
//! Shared by the property tests of this crate. A [`Packet`] is a list of choices from which a frame
//! is built: mixing the choices of two packets gives a third that shares many fields with both.

// Each test file uses its own part of this.
#![allow(dead_code)]

use overbank_switch::oracle::Around;
use overbank_switch::ports::{
    PORT_ALL, PORT_FLOOD, PORT_IN_PORT, PORT_NORMAL, PORT_TABLE, Ports, SwitchPort,
};
use overbank_switch::rule::{Action, Match, Rule};
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket};
use overbank_switch::view::{Fragments, View};
use overbank_wire::extract::extract_within;
use overbank_wire::{Field, FlowKey};
use proptest::{prelude::*, sample::select};

/// The ports that exist. Packets come in on 1 to 4, rules output to 1 to 5: 4 does not exist.
pub const PORTS: [SwitchPort; 4] = [
    SwitchPort { number: 1, flood: true },
    SwitchPort { number: 2, flood: true },
    SwitchPort { number: 3, flood: false },
    SwitchPort { number: 5, flood: true },
];

/// The same, as translations read them.
pub fn ports() -> Ports {
    Ports::new(&PORTS)
}

/// Controllers whose queue has no room for some packets, whichever they are.
pub fn takes(packet: &ControllerPacket<'_>) -> bool {
    !packet.max_len.is_multiple_of(3)
}

/// A learning switch that knows some addresses: also one behind port 4, which does not exist.
pub fn normal(packet: &NormalPacket) -> Normal {
    match packet.dst[5] ^ packet.src[5] ^ packet.vlan.unwrap_or(0) as u8 {
        0 => Normal::Flood,
        1 => Normal::Drop,
        n => Normal::Port(u32::from(n) % 5 + 1),
    }
}

/// [`PORTS`] with these two.
pub fn around() -> Around<'static> {
    Around { ports: &PORTS, takes: &takes, normal: &normal }
}

/// What rules see of fragments and tags.
pub fn view() -> impl Strategy<Value = View> {
    let fragments = select(vec![Fragments::Normal, Fragments::Drop, Fragments::NxMatch]);
    (fragments, 1u8..=2).prop_map(|(fragments, vlan_limit)| View { fragments, vlan_limit })
}

/// Value number `choice` of a field.
pub fn value(field: Field, choice: u8) -> u128 {
    let pick = |of: &[u128]| of[usize::from(choice) % of.len()];
    let small = u128::from(choice % 3);
    let mac = 0x0200_0000_0000 + small;
    match field {
        Field::InPort => 1 + u128::from(choice % 4),
        Field::DlSrc | Field::DlDst | Field::ArpSha | Field::ArpTha => mac,
        Field::NdSll | Field::NdTll => mac,
        Field::DlType => pick(&[0x0800, 0x0800, 0x86dd, 0x0806, 0x88cc]),
        Field::VlanTci => pick(&[0, 0x1000, 0x1001, 0x1002, 0x3001, 0x5002]),
        Field::VlanVid | Field::VlanPcp | Field::Ipv6Label => small,
        Field::NwSrc | Field::NwDst | Field::ArpSpa | Field::ArpTpa => {
            pick(&[0x0a00_0001, 0x0a00_0002, 0x0a00_0003, 0x0a00_0101, 0xc0a8_0001, 0])
        }
        Field::Ipv6Src | Field::Ipv6Dst | Field::NdTarget => {
            (0xfd << 120) + (u128::from(choice & 1) << 64) + u128::from(choice >> 1 & 3)
        }
        Field::NwProto => pick(&[6, 17, 1, 58, 132, 47]),
        Field::NwTos => pick(&[0, 0xb8, 0x03, 0x20]),
        Field::IpDscp => pick(&[0, 46, 8]),
        Field::NwEcn => u128::from(choice % 4),
        Field::NwTtl => pick(&[64, 3, 2, 1, 0, 0x41, 255]),
        Field::NwFrag => pick(&[0, 1, 3]),
        Field::ArpOp => pick(&[1, 2]),
        Field::TcpFlags => pick(&[0x02, 0x12, 0x10]),
        Field::TpSrc | Field::TpDst | Field::TcpSrc | Field::TcpDst => pick(&[1, 2, 3, 53, 0]),
        Field::UdpSrc | Field::UdpDst | Field::SctpSrc | Field::SctpDst => pick(&[1, 2, 3, 53, 0]),
        Field::IcmpType | Field::IcmpCode | Field::Icmp6Code => pick(&[0, 8, 0]),
        Field::Icmp6Type => pick(&[135, 136, 128]),
    }
}

/// Fields that share bits or decide about others: writes and matches should meet here.
const CLOSE: [Field; 9] = [
    Field::NwTtl,
    Field::NwTtl,
    Field::NwTos,
    Field::IpDscp,
    Field::VlanTci,
    Field::VlanVid,
    Field::UdpDst,
    Field::TpDst,
    Field::Icmp6Type,
];

/// Any field, half of the time one of [`CLOSE`].
fn field() -> impl Strategy<Value = Field> {
    prop_oneof![select(Field::ALL), select(&CLOSE[..])]
}

/// All bits of a field, a prefix of it, or any of its bits.
fn field_mask(field: Field) -> BoxedStrategy<u128> {
    let (bits, all) = (field.bits(), field.all_ones());
    prop_oneof![
        6 => Just(all),
        3 => (1..=bits).prop_map(move |len| all & !(all.checked_shr(len).unwrap_or(0))),
        1 => any::<u128>().prop_map(move |mask| mask & all),
    ]
    .boxed()
}

/// A match on a few fields; most have the prerequisites that a parser would add.
pub fn matching() -> impl Strategy<Value = Match> {
    let field = field()
        .prop_flat_map(|field| (Just(field), any::<u8>(), field_mask(field)))
        .prop_map(|(field, choice, mask)| (field, value(field, choice), mask));
    let context = prop_oneof![
        2 => Just(vec![]),
        1 => Just(vec![(Field::DlType, 0x0806)]),
        1 => Just(vec![(Field::DlType, 0x0800)]),
        1 => Just(vec![(Field::DlType, 0x86dd)]),
        1 => Just(vec![(Field::DlType, 0x0800), (Field::NwProto, 6)]),
        2 => Just(vec![(Field::DlType, 0x0800), (Field::NwProto, 17)]),
        1 => Just(vec![(Field::DlType, 0x86dd), (Field::NwProto, 58)]),
    ];
    (context, prop::collection::vec(field, 0..4)).prop_map(|(context, fields)| {
        let context = context.into_iter().map(|(field, v)| (field, v, field.all_ones()));
        fields
            .into_iter()
            .chain(context)
            .fold(Match::default(), |m, (f, v, mask)| m.with(f, v, mask))
    })
}

/// An action that does not look up rules.
fn plain_action() -> impl Strategy<Value = Action> {
    let set = field()
        .prop_filter("writable", |field| field.writable())
        .prop_flat_map(|field| (Just(field), any::<u8>(), field_mask(field)))
        .prop_map(|(field, choice, mask)| Action::SetField {
            field,
            value: value(field, choice) & mask,
            mask,
        });
    prop_oneof![
        6 => (1u32..=5).prop_map(Action::Output),
        1 => select(vec![1, 2, 5, PORT_IN_PORT, PORT_FLOOD, PORT_ALL, PORT_NORMAL])
            .prop_map(|port| Action::OutputAsked { port, max_len: 9 }),
        1 => Just(Action::InPort),
        1 => Just(Action::Flood),
        1 => Just(Action::All),
        1 => Just(Action::Normal),
        2 => (0u16..6).prop_map(|max_len| Action::Controller { max_len }),
        5 => set,
        1 => (0u8..8, any::<bool>()).prop_map(|(value, vid)| Action::SetVlan {
            field: if vid { Field::VlanVid } else { Field::VlanPcp },
            value: value.into(),
        }),
        2 => select(vec![0x8100, 0x88a8]).prop_map(Action::PushVlan),
        2 => Just(Action::PopVlan),
        3 => Just(Action::DecTtl),
    ]
}

/// An action of a rule in `table`.
fn action(table: u8) -> impl Strategy<Value = Action> {
    prop_oneof![
        25 => plain_action(),
        2 => (table + 1..=3).prop_map(Action::GotoTable),
        2 => (prop::option::of(1u32..=5), prop::option::of(0u8..=3))
            .prop_map(|(in_port, table)| Action::Resubmit { in_port, table }),
    ]
}

/// A rule in one of three tables.
pub fn rule() -> impl Strategy<Value = Rule> {
    let table = prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    (table, 0u16..6, matching(), any::<u64>())
        .prop_flat_map(|(table, priority, matching, cookie)| {
            let actions = prop::collection::vec(action(table), 0..6);
            (Just((table, priority, matching, cookie)), actions, action_set())
        })
        .prop_map(|((table, priority, matching, cookie), actions, (clear_actions, set))| Rule {
            table,
            priority,
            matching,
            actions,
            clear_actions,
            write_actions: set,
            cookie,
            ..Rule::default()
        })
}

/// What a rule does to the action set; half of them nothing.
fn action_set() -> impl Strategy<Value = (bool, Vec<Action>)> {
    prop_oneof![
        Just((false, vec![])),
        (prop::bool::weighted(0.2), prop::collection::vec(plain_action(), 0..6)),
    ]
}

/// A controller's list of actions.
pub fn packet_out() -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(prop_oneof![3 => action(0), 1 => Just(Action::Output(PORT_TABLE))], 0..6)
}

/// Up to `max` rules.
pub fn rules(max: usize) -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(rule(), 1..=max)
}

/// A value and a mask for the TTL.
fn ttl_bits() -> impl Strategy<Value = (u128, u128)> {
    let any_mask = any::<u8>().prop_map(u128::from);
    prop_oneof![(select(vec![0u128, 1, 2, 3, 62, 63, 64, 0xff]), any_mask), (0u128..3, Just(0xff)),]
        .prop_map(|(value, mask)| (value & mask, mask))
}

/// An action that has to do with the TTL, of a rule in `table`.
fn ttl_action(table: u8) -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (2u32..=5).prop_map(Action::Output),
        4 => Just(Action::DecTtl),
        2 => ttl_bits().prop_map(|(value, mask)| {
            Action::SetField { field: Field::NwTtl, value, mask }
        }),
        2 => (0u8..3).prop_map(|to| Action::Resubmit { in_port: None, table: Some(to) }),
        2 => (table + 1..=3).prop_map(Action::GotoTable),
    ]
}

/// Rules in three tables that look at nothing but the TTL, write parts of it and decrement it.
pub fn ttl_rules() -> impl Strategy<Value = Vec<Rule>> {
    let matching = prop_oneof![
        1 => Just(Match::default()),
        3 => ttl_bits().prop_map(|(v, mask)| Match::default().with(Field::NwTtl, v, mask)),
    ];
    let set = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec(ttl_action(0), 0..3),
    ];
    let rule =
        (0u8..3, 0u16..3, matching, set).prop_flat_map(|(table, priority, matching, set)| {
            let mut set = set;
            set.retain(|a| !matches!(a, Action::GotoTable(_) | Action::Resubmit { .. }));
            prop::collection::vec(ttl_action(table), 0..6).prop_map(move |actions| Rule {
                table,
                priority,
                matching,
                actions,
                write_actions: set.clone(),
                ..Rule::default()
            })
        });
    prop::collection::vec(rule, 1..12)
}

/// How many choices make a packet.
pub const CHOICES: usize = 24;

/// A packet, as the choices that make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet(pub [u8; CHOICES]);

/// Any packet.
pub fn packet() -> impl Strategy<Value = Packet> {
    any::<[u8; CHOICES]>().prop_map(Packet)
}

impl Packet {
    /// This packet with those choices of `other` whose bit is set in `which`.
    pub fn mixed(&self, other: &Packet, which: u32) -> Packet {
        Packet(std::array::from_fn(|i| if which >> i & 1 == 1 { other.0[i] } else { self.0[i] }))
    }

    /// The port that it comes in on.
    pub fn in_port(&self) -> u32 {
        self.get(Field::InPort, 0) as u32
    }

    /// Its flow key.
    pub fn key(&self) -> FlowKey {
        self.key_within(2)
    }

    /// Returns its flow key with at most this many tags.
    pub fn key_within(&self, vlan_limit: u8) -> FlowKey {
        let mut key = FlowKey::default();
        extract_within(&self.frame(), self.in_port(), vlan_limit, &mut key)
            .expect("longer than an Ethernet header");
        key
    }

    fn get(&self, field: Field, choice: usize) -> u128 {
        value(field, self.0[choice])
    }

    /// Its bytes.
    pub fn frame(&self) -> Vec<u8> {
        let c = &self.0;
        let mut out = Vec::new();
        let put = |out: &mut Vec<u8>, value: u128, len: usize| {
            out.extend_from_slice(&value.to_be_bytes()[16 - len..]);
        };
        put(&mut out, self.get(Field::DlDst, 1), 6);
        put(&mut out, self.get(Field::DlSrc, 2), 6);
        for tag in 0..[0, 0, 0, 1, 1, 2, 2, 3][usize::from(c[3] % 8)] {
            put(&mut out, if c[4] >> tag & 1 == 0 { 0x8100 } else { 0x88a8 }, 2);
            let tci = self.get(Field::VlanTci, [5, 6, 4][tag]) & 0xefff;
            put(&mut out, tci, 2);
        }
        match c[7] % 16 {
            0..=7 => {
                put(&mut out, 0x0800, 2);
                self.ip4(&mut out);
            }
            8..=11 => {
                put(&mut out, 0x86dd, 2);
                self.ip6(&mut out);
            }
            12 | 13 => {
                put(&mut out, 0x0806, 2);
                put(&mut out, 0x0001_0800_0604, 6);
                put(&mut out, self.get(Field::ArpOp, 22), 2);
                put(&mut out, self.get(Field::ArpSha, 20), 6);
                put(&mut out, self.get(Field::ArpSpa, 8), 4);
                put(&mut out, self.get(Field::ArpTha, 21), 6);
                put(&mut out, self.get(Field::ArpTpa, 9), 4);
            }
            14 => put(&mut out, 0x88cc, 2),
            // An IPv4 header that says it is shorter than it may be.
            _ => {
                put(&mut out, 0x0800, 2);
                put(&mut out, 0x42, 1);
                out.extend_from_slice(&[0; 30]);
            }
        }
        // Now and then cut short, or padded.
        match c[23] {
            n @ 0..=15 => out.truncate(out.len().saturating_sub(usize::from(n)).max(14)),
            n @ 16..=40 => out.resize(out.len() + usize::from(n), 0),
            _ => {}
        }
        out
    }

    /// An IPv4 packet, with options and fragments.
    fn ip4(&self, out: &mut Vec<u8>) {
        let (proto, body) = self.transport(true);
        let options = if self.0[18].is_multiple_of(4) { 4 } else { 0 };
        let frag = self.get(Field::NwFrag, 12);
        let mut header = vec![0u8; 20 + options];
        header[0] = 0x45 + u8::from(options > 0);
        header[1] = self.get(Field::NwTos, 10) as u8;
        let len = (header.len() + body.len()) as u16;
        header[2..4].copy_from_slice(&len.to_be_bytes());
        let frag: u16 = match frag {
            0 => 0x4000,
            1 => 0x2000,
            _ => 0x0010,
        };
        header[6..8].copy_from_slice(&frag.to_be_bytes());
        header[8] = self.get(Field::NwTtl, 11) as u8;
        header[9] = proto;
        header[12..16].copy_from_slice(&(self.get(Field::NwSrc, 8) as u32).to_be_bytes());
        header[16..20].copy_from_slice(&(self.get(Field::NwDst, 9) as u32).to_be_bytes());
        let sum = header.chunks(2).fold(0u32, |s, w| s + u32::from(w[0]) * 256 + u32::from(w[1]));
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend(header);
        out.extend(body);
    }

    /// An IPv6 packet, with extension headers.
    fn ip6(&self, out: &mut Vec<u8>) {
        let (proto, body) = self.transport(false);
        let mut extensions = Vec::new();
        let frag = self.get(Field::NwFrag, 12);
        let hop_by_hop = self.0[18].is_multiple_of(4);
        let after = if frag == 0 { proto } else { 44 };
        if hop_by_hop {
            extensions.extend([after, 0, 1, 4, 0, 0, 0, 0]);
        }
        if frag > 0 {
            let [high, low] = if frag == 1 { [0, 1] } else { [0, 0x10] };
            extensions.extend([proto, 0, high, low, 0, 0, 0, 7]);
        }
        let len = (extensions.len() + body.len()) as u128;
        let word = 6 << 28 | self.get(Field::NwTos, 10) << 20 | self.get(Field::Ipv6Label, 17);
        out.extend_from_slice(&(word as u32).to_be_bytes());
        out.extend_from_slice(&(len as u16).to_be_bytes());
        out.push(if hop_by_hop { 0 } else { after });
        out.push(self.get(Field::NwTtl, 11) as u8);
        out.extend_from_slice(&self.get(Field::Ipv6Src, 8).to_be_bytes());
        out.extend_from_slice(&self.get(Field::Ipv6Dst, 9).to_be_bytes());
        out.extend(extensions);
        out.extend(body);
    }

    /// Protocol and bytes of the transport layer.
    fn transport(&self, over_ip4: bool) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        let proto = self.get(Field::NwProto, 13) as u8;
        let proto = if proto == 58 && over_ip4 && self.0[18] > 9 { 17 } else { proto };
        match proto {
            6 | 17 | 132 => {
                body.extend_from_slice(&(self.get(Field::TpSrc, 14) as u16).to_be_bytes());
                body.extend_from_slice(&(self.get(Field::TpDst, 15) as u16).to_be_bytes());
            }
            58 => {
                body.extend([self.get(Field::Icmp6Type, 14) as u8, (self.0[15] % 4 / 3) * 8]);
                body.extend([0x12, 0x34, 0, 0, 0, 0]);
                body.extend_from_slice(&self.get(Field::NdTarget, 19).to_be_bytes());
                body.extend([1, 1]);
                body.extend_from_slice(&self.get(Field::NdSll, 20).to_be_bytes()[10..]);
                body.extend([2, 1]);
                body.extend_from_slice(&self.get(Field::NdTll, 21).to_be_bytes()[10..]);
            }
            _ => {
                let kind = self.get(Field::IcmpType, 14) as u8;
                body.extend([kind, self.get(Field::IcmpCode, 15) as u8, 0x12, 0x34, 0, 1, 0, 2]);
            }
        }
        match proto {
            6 => {
                body.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50]);
                body.push(self.get(Field::TcpFlags, 16) as u8);
                body.extend([1, 0, 0x12, 0x34, 0, 0]);
            }
            17 => {
                let sum = if self.0[16].is_multiple_of(4) { [0, 0] } else { [0x12, 0x34] };
                body.extend([0, 12]);
                body.extend(sum);
                body.extend(*b"data");
            }
            132 => body.extend([0, 0, 0, 1, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 4]),
            _ => {}
        }
        (proto, body)
    }
}
