//! Valid frames of every kind, built naively, with the key that they must give and all checksums
//! right.

use super::{crc32c, internet_checksum};
use crate::key::{DL_TYPE_NONE, FRAG_ANY, FRAG_LATER, FlowKey, VLAN_PRESENT};
use proptest::prelude::*;

/// A frame, its key, and where the builder put what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Built {
    pub(crate) frame: Vec<u8>,
    pub(crate) key: FlowKey,
    /// Where the network header starts.
    pub(crate) l3: usize,
    /// End of the IP packet.
    pub(crate) end: usize,
    /// Transport header, and the protocol, if the frame has one.
    pub(crate) l4: Option<(usize, u8)>,
    /// Payload of the datagram that is in later fragments; the transport checksum covers it.
    pub(crate) hidden: Vec<u8>,
    /// The final destination, if a routing header has segments left.
    pub(crate) final_dst: Option<[u8; 16]>,
}

impl Built {
    /// `frame` with every checksum computed anew. Its headers start `shift` bytes later than those
    /// of the frame that was built.
    pub(crate) fn reseal(&self, frame: &[u8], shift: isize) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let at = |built: usize| built.checked_add_signed(shift).unwrap();
        let (l3, end) = (at(self.l3), at(self.end));
        let ip4 = self.key.dl_type == 0x0800;
        if ip4 {
            let header_len = usize::from(frame[l3] & 15) * 4;
            frame[l3 + 10..l3 + 12].fill(0);
            let sum = internet_checksum(&frame[l3..l3 + header_len]);
            frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let Some((l4, proto)) = self.l4 else { return frame };
        let l4 = at(l4);
        let sum_at = l4
            + match proto {
                6 => 16,
                17 => 6,
                1 | 58 => 2,
                132 if self.key.nw_frag == 0 => {
                    frame[l4 + 8..l4 + 12].fill(0);
                    let crc = crc32c(&frame[l4..end]);
                    frame[l4 + 8..l4 + 12].copy_from_slice(&crc.to_le_bytes());
                    return frame;
                }
                _ => return frame,
            };
        if proto == 17 && frame[sum_at..sum_at + 2] == [0, 0] {
            return frame;
        }
        frame[sum_at..sum_at + 2].fill(0);
        let len = (end - l4 + self.hidden.len()) as u32;
        let mut covered = match (proto, ip4) {
            (1, _) => vec![],
            (_, true) => frame[l3 + 12..l3 + 20].to_vec(),
            (_, false) => {
                let dst = self.final_dst.unwrap_or(frame[l3 + 24..l3 + 40].try_into().unwrap());
                [&frame[l3 + 8..l3 + 24], &dst].concat()
            }
        };
        if proto != 1 {
            covered.extend(u32::from(proto).to_be_bytes());
            covered.extend(len.to_be_bytes());
        }
        covered.extend(&frame[l4..end]);
        covered.extend(&self.hidden);
        let sum = match internet_checksum(&covered) {
            0 if proto == 17 => 0xffff,
            sum => sum,
        };
        frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

/// What a transport header is made of.
#[derive(Clone, Debug)]
enum L4 {
    Tcp { ports: (u16, u16), flags: u16 },
    Udp { ports: (u16, u16), no_checksum: bool },
    Sctp { ports: (u16, u16) },
    Icmp { kind: u8, code: u8, rest: u32 },
    Icmp6 { kind: u8, code: u8 },
    Nd { advert: bool, target: u128, sll: Option<[u8; 6]>, tll: Option<[u8; 6]> },
    Other { proto: u8 },
}

/// An IPv6 extension header other than the fragment header.
#[derive(Clone, Debug)]
enum Ext {
    Options { proto: u8, words: u8 },
    Routing { left: u8, dst: u128 },
    Auth { words: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Frag {
    None,
    First,
    Later(u16),
}

#[derive(Clone, Debug)]
enum L3 {
    Arp {
        rarp: bool,
        op: u16,
        sha: [u8; 6],
        spa: u32,
        tha: [u8; 6],
        tpa: u32,
    },
    Ip4 {
        tos: u8,
        ttl: u8,
        addr: (u32, u32),
        options: u8,
        frag: Frag,
        l4: L4,
        payload: Vec<u8>,
    },
    Ip6 {
        first: u32,
        hops: u8,
        addr: (u128, u128),
        ext: Vec<Ext>,
        frag: Frag,
        l4: L4,
        payload: Vec<u8>,
    },
    Other {
        dl_type: u16,
        payload: Vec<u8>,
    },
}

type Ports = (u16, u16);
type Mac = [u8; 6];

fn l4() -> impl Strategy<Value = L4> {
    let mac = || {
        prop::option::of(any::<[u8; 6]>().prop_map(|mut m| {
            m[0] |= 1;
            m
        }))
    };
    prop_oneof![
        3 => (any::<Ports>(), 0..0x1000u16).prop_map(|(ports, flags)| L4::Tcp { ports, flags }),
        3 => (any::<Ports>(), any::<bool>())
            .prop_map(|(ports, no_checksum)| L4::Udp { ports, no_checksum }),
        1 => any::<Ports>().prop_map(|ports| L4::Sctp { ports }),
        1 => (any::<u8>(), any::<u8>(), prop_oneof![Just(0), any::<u32>()])
            .prop_map(|(kind, code, rest)| L4::Icmp { kind, code, rest }),
        1 => (any::<u8>(), 1u8..).prop_map(|(kind, code)| L4::Icmp6 { kind, code }),
        1 => (any::<bool>(), any::<u128>(), mac(), mac())
            .prop_map(|(advert, target, sll, tll)| L4::Nd { advert, target, sll, tll }),
        1 => prop::sample::select(vec![2u8, 47, 59, 89, 255]).prop_map(|proto| L4::Other { proto }),
    ]
}

fn frag() -> impl Strategy<Value = Frag> {
    let later = (1..0x2000u16).prop_map(Frag::Later);
    prop_oneof![6 => Just(Frag::None), 1 => Just(Frag::First), 1 => later]
}

fn l3() -> impl Strategy<Value = L3> {
    let payload = || prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..80);
    let ext = prop_oneof![
        (prop::sample::select(vec![0u8, 60]), 0..4u8)
            .prop_map(|(proto, words)| Ext::Options { proto, words }),
        (0..3u8, any::<u128>()).prop_map(|(left, dst)| Ext::Routing { left, dst }),
        (1..6u8).prop_map(|words| Ext::Auth { words }),
    ];
    let op = prop_oneof![1..10u16, any::<u16>()];
    let arp = (any::<bool>(), op, any::<Mac>(), any::<u32>(), any::<Mac>(), any::<u32>())
        .prop_map(|(rarp, op, sha, spa, tha, tpa)| L3::Arp { rarp, op, sha, spa, tha, tpa });
    let options = prop_oneof![Just(0), 0..=10u8];
    let bytes = any::<(u8, u8)>();
    let ip4 = (bytes, any::<(u32, u32)>(), options, frag(), l4(), payload()).prop_map(
        |((tos, ttl), addr, options, frag, l4, payload)| L3::Ip4 {
            tos,
            ttl,
            addr,
            options,
            frag,
            l4,
            payload,
        },
    );
    let first = any::<(u32, u8)>();
    let ext = prop::collection::vec(ext, 0..4);
    let ip6 = (first, any::<(u128, u128)>(), ext, frag(), l4(), payload()).prop_map(
        |((first, hops), addr, ext, frag, l4, payload)| L3::Ip6 {
            first,
            hops,
            addr,
            ext,
            frag,
            l4,
            payload,
        },
    );
    let other = (prop::sample::select(vec![0x8847u16, 0x9100, 0x88cc]), payload())
        .prop_map(|(dl_type, payload)| L3::Other { dl_type, payload });
    prop_oneof![1 => arp, 4 => ip4, 4 => ip6, 1 => other]
}

/// Generates any valid frame with at most two tags, on port 1.
pub(crate) fn valid() -> impl Strategy<Value = Built> {
    let tag = (prop::sample::select(vec![0x8100u16, 0x88a8]), any::<u16>());
    let link = prop_oneof![8 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    (any::<[[u8; 6]; 2]>(), prop::collection::vec(tag, 0..=2), link, l3(), 0..47usize)
        .prop_map(|(macs, tags, link, l3, padding)| build(macs, &tags, link, &l3, padding))
}

/// `link`: 0 Ethernet II, 1 SNAP, 2 LLC without an Ethernet type.
fn build(macs: [[u8; 6]; 2], tags: &[(u16, u16)], link: u8, l3: &L3, padding: usize) -> Built {
    let mut key = FlowKey { in_port: 1, dl_dst: macs[0], dl_src: macs[1], ..FlowKey::default() };
    let mut frame = macs.concat();
    for (i, &(tpid, tci)) in tags.iter().enumerate() {
        frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        if i == 0 {
            (key.vlan_tpid, key.vlan_tci) = (tpid, tci | VLAN_PRESENT);
        } else {
            (key.inner_tpid, key.inner_tci) = (tpid, tci | VLAN_PRESENT);
        }
    }
    key.dl_type = match l3 {
        L3::Arp { rarp, .. } => {
            if *rarp {
                0x8035
            } else {
                0x0806
            }
        }
        L3::Ip4 { .. } => 0x0800,
        L3::Ip6 { .. } => 0x86dd,
        L3::Other { dl_type, .. } => *dl_type,
    };
    match link {
        0 => frame.extend(key.dl_type.to_be_bytes()),
        1 => {
            frame.extend([0x05, 0xdc, 0xaa, 0xaa, 0x03, 0, 0, 0]);
            frame.extend(key.dl_type.to_be_bytes());
        }
        _ => {
            key.dl_type = DL_TYPE_NONE;
            frame.extend([0, 38, 0x42, 0x42, 0x03]);
            frame.extend([7; 35]);
            let end = frame.len();
            return Built { frame, key, l3: end, end, ..Built::default() };
        }
    }
    let mut built = Built { l3: frame.len(), frame, key, ..Built::default() };
    network(&mut built, l3);
    built.end = built.frame.len();
    built.frame = built.reseal(&built.frame, 0);
    built.frame.extend(std::iter::repeat_n(0xee, padding));
    built
}

fn network(built: &mut Built, l3: &L3) {
    let key = &mut built.key;
    match l3 {
        L3::Arp { op, sha, spa, tha, tpa, .. } => {
            (key.arp_sha, key.arp_tha, key.nw_src, key.nw_dst) = (*sha, *tha, *spa, *tpa);
            key.nw_proto = if *op < 256 { *op as u8 } else { 0 };
            built.frame.extend([0, 1, 8, 0, 6, 4]);
            built.frame.extend(op.to_be_bytes());
            built.frame.extend([&sha[..], &spa.to_be_bytes(), tha, &tpa.to_be_bytes()].concat());
        }
        L3::Other { payload, .. } => built.frame.extend(payload),
        L3::Ip4 { tos, ttl, addr, options, frag, l4, payload } => {
            (key.nw_tos, key.nw_ttl, key.nw_src, key.nw_dst) = (*tos, *ttl, addr.0, addr.1);
            let (proto, body) = transport(built, true, *frag, l4, payload);
            built.key.nw_proto = proto;
            let bits = match frag {
                Frag::None => 0x4000u16,
                Frag::First => 0x2000,
                Frag::Later(offset) => *offset,
            };
            let header_len = 20 + 4 * usize::from(*options);
            built.frame.extend([0x45 + options, *tos]);
            built.frame.extend(((header_len + body.len()) as u16).to_be_bytes());
            built.frame.extend([0x12, 0x34]);
            built.frame.extend(bits.to_be_bytes());
            built.frame.extend([*ttl, proto, 0, 0]);
            built.frame.extend([addr.0.to_be_bytes(), addr.1.to_be_bytes()].concat());
            built.frame.extend(std::iter::repeat_n(1, header_len - 20));
            place_transport(built, proto, &body);
        }
        L3::Ip6 { first, hops, addr, ext, frag, l4, payload } => {
            (key.ipv6_src, key.ipv6_dst) = (addr.0.to_be_bytes(), addr.1.to_be_bytes());
            (key.nw_tos, key.nw_ttl) = ((first >> 20) as u8, *hops);
            key.ipv6_label = first & 0xf_ffff;
            let (proto, body) = transport(built, false, *frag, l4, payload);
            // From the last extension header to the first, each names the one after it.
            let (mut next, mut chain) = (proto, vec![]);
            if *frag != Frag::None {
                let bits = if let Frag::Later(offset) = frag { offset << 3 } else { 1 };
                chain = [&[next, 0][..], &bits.to_be_bytes(), &[9, 9, 9, 9]].concat();
                next = 44;
            }
            for e in ext.iter().rev() {
                let (this, header) = match e {
                    Ext::Options { proto, words } => (
                        *proto,
                        [vec![next, *words], vec![0; 6 + 8 * usize::from(*words)]].concat(),
                    ),
                    Ext::Routing { left, dst } => {
                        if *left > 0 {
                            built.final_dst = Some(dst.to_be_bytes());
                        }
                        (43, [&[next, 2, 0, *left, 0, 0, 0, 0][..], &dst.to_be_bytes()].concat())
                    }
                    Ext::Auth { words } => {
                        (51, [vec![next, *words], vec![3; 6 + 4 * usize::from(*words)]].concat())
                    }
                };
                chain = [header, chain].concat();
                next = this;
            }
            let later = built.key.nw_frag & FRAG_LATER != 0;
            built.key.nw_proto = if later { 44 } else { proto };
            built.frame.extend((0x6000_0000 | first & 0x0fff_ffff).to_be_bytes());
            built.frame.extend(((chain.len() + body.len()) as u16).to_be_bytes());
            built.frame.extend([next, *hops]);
            built.frame.extend([addr.0.to_be_bytes(), addr.1.to_be_bytes()].concat());
            built.frame.extend(chain);
            place_transport(built, proto, &body);
        }
    }
}

fn place_transport(built: &mut Built, proto: u8, body: &[u8]) {
    if built.key.nw_frag & FRAG_LATER == 0 {
        built.l4 = Some((built.frame.len(), proto));
    }
    built.frame.extend(body);
}

/// Generates the transport header and payload, without a checksum; sets the key's fields.
fn transport(built: &mut Built, ip4: bool, frag: Frag, l4: &L4, payload: &[u8]) -> (u8, Vec<u8>) {
    let key = &mut built.key;
    let (proto, mut body) = match l4 {
        L4::Tcp { ports, flags } => {
            (key.tp_src, key.tp_dst, key.tcp_flags) = (ports.0, ports.1, *flags);
            let mut body = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
            body.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            body.extend((0x5000 | flags).to_be_bytes());
            body.extend([1, 0, 0, 0, 0, 0]);
            (6, body)
        }
        L4::Udp { ports, no_checksum } => {
            (key.tp_src, key.tp_dst) = *ports;
            let mut body = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
            body.extend((8 + payload.len() as u16).to_be_bytes());
            body.extend([0, u8::from(!no_checksum)]);
            (17, body)
        }
        L4::Sctp { ports } => {
            (key.tp_src, key.tp_dst) = *ports;
            let mut body = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
            body.extend([1, 2, 3, 4, 0, 0, 0, 0]);
            (132, body)
        }
        L4::Icmp { kind, code, rest } if ip4 => {
            (key.tp_src, key.tp_dst) = (u16::from(*kind), u16::from(*code));
            (1, [&[*kind, *code, 0, 0][..], &rest.to_be_bytes()].concat())
        }
        L4::Icmp6 { kind, code } if !ip4 => {
            (key.tp_src, key.tp_dst) = (u16::from(*kind), u16::from(*code));
            (58, vec![*kind, *code, 0, 0, 1, 2, 3, 4])
        }
        L4::Nd { advert, target, sll, tll } if !ip4 => {
            (key.tp_src, key.tp_dst) = (135 + u16::from(*advert), 0);
            key.nd_target = target.to_be_bytes();
            (key.arp_sha, key.arp_tha) = (sll.unwrap_or_default(), tll.unwrap_or_default());
            let mut body = vec![135 + u8::from(*advert), 0, 0, 0, 0, 0, 0, 0];
            body.extend(target.to_be_bytes());
            // A nonce option first: unknown options are skipped.
            body.extend([14, 2, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
            sll.iter().for_each(|mac| body.extend([&[1, 1], &mac[..]].concat()));
            tll.iter().for_each(|mac| body.extend([&[2, 1], &mac[..]].concat()));
            (58, body)
        }
        L4::Icmp { .. } | L4::Icmp6 { .. } | L4::Nd { .. } => (253, vec![]),
        L4::Other { proto } => (*proto, vec![]),
    };
    if !matches!(l4, L4::Nd { .. }) {
        body.extend(payload);
    }
    match frag {
        Frag::None => {}
        Frag::First => {
            key.nw_frag = FRAG_ANY;
            // Fragments end on multiples of eight bytes.
            body.resize(body.len().next_multiple_of(8), 0);
            built.hidden = payload.to_vec();
        }
        Frag::Later(_) => {
            (key.nw_frag, key.tp_src, key.tp_dst) = (FRAG_ANY | FRAG_LATER, 0, 0);
            (key.tcp_flags, key.nd_target) = (0, [0; 16]);
            (key.arp_sha, key.arp_tha) = ([0; 6], [0; 6]);
        }
    }
    (proto, body)
}

/// Generates a valid frame with some bytes changed, cut off or appended.
pub(crate) fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let tail = prop_oneof![2 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (
        valid(),
        prop::collection::vec(change, 0..6),
        tail,
        prop_oneof![4 => Just(0), 1 => 0..600usize],
    )
        .prop_map(|(built, changes, cut, more)| {
            let mut frame = built.frame;
            for (at, byte) in changes {
                // Headers are where it hurts: half of the changes go there.
                let len = if byte & 1 == 0 { frame.len() } else { frame.len().min(64) };
                frame[at.index(len)] = byte.rotate_left(3);
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            frame.extend(std::iter::repeat_n(0, more));
            frame
        })
}
