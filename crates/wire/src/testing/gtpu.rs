//! GTP-U messages for the tests, and a naive reader written from the tables of the standards.

use crate::gtpu::{Body, Container, Downlink, Extension, Message, Refused, Uplink};
use proptest::prelude::*;
use std::net::IpAddr;

/// A message with everything it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Naive {
    pub(crate) teid: u32,
    pub(crate) sequence: Option<u16>,
    pub(crate) n_pdu: Option<u8>,
    /// Type and content of each extension header.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) session: Option<Container>,
    pub(crate) udp_port: Option<u16>,
    pub(crate) body: NaiveBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NaiveBody {
    GPdu(Vec<u8>),
    EchoRequest,
    EchoResponse(Option<u8>),
    ErrorIndication(u32, IpAddr),
    EndMarker,
    SupportedExtensions(Vec<u8>),
}

impl From<&Message<'_>> for Naive {
    fn from(message: &Message<'_>) -> Naive {
        let extensions = message.extensions.iter();
        Naive {
            teid: message.teid,
            sequence: message.sequence,
            n_pdu: message.n_pdu,
            extensions: extensions
                .map(|Extension { kind, content }| (kind, content.into()))
                .collect(),
            session: message.extensions.session(),
            udp_port: message.extensions.udp_port(),
            body: match message.body {
                Body::GPdu(packet) => NaiveBody::GPdu(packet.into()),
                Body::EchoRequest => NaiveBody::EchoRequest,
                Body::EchoResponse { recovery } => NaiveBody::EchoResponse(recovery),
                Body::ErrorIndication { teid, peer } => NaiveBody::ErrorIndication(teid, peer),
                Body::EndMarker => NaiveBody::EndMarker,
                Body::SupportedExtensions(kinds) => NaiveBody::SupportedExtensions(kinds.into()),
            },
        }
    }
}

/// Reads fields from the most significant bit on, as the standards' figures have them.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// Returns the next `n` bits; `None` past the end.
    fn take(&mut self, n: usize) -> Option<u64> {
        let mut number = 0;
        for _ in 0..n {
            let byte = self.bytes.get(self.at / 8)?;
            number = number << 1 | u64::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(number)
    }

    fn flag(&mut self) -> Option<bool> {
        self.take(1).map(|bit| bit == 1)
    }

    /// Returns the next `n` bits if the field is present.
    fn optional(&mut self, present: bool, n: usize) -> Option<Option<u64>> {
        if present { self.take(n).map(Some) } else { Some(None) }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at / 8..]
    }
}

/// Reads a message: figure 5.1-1 of TS 29.281, then the extension headers, then the elements.
pub(crate) fn read(payload: &[u8]) -> Result<Naive, Refused> {
    let mut bits = Bits { bytes: payload, at: 0 };
    if payload.len() < 8 {
        return Err(Refused::ShortHeader);
    }
    let mut field = |n| bits.take(n).expect("eight bytes");
    let (version, gtp, _spare) = (field(3), field(1), field(1));
    let (e, s, pn) = (field(1) == 1, field(1) == 1, field(1) == 1);
    let (kind, length, teid) = (field(8), field(16), field(32));
    if (version, gtp) != (1, 1) {
        return Err(Refused::Version);
    }
    let rest = bits.rest();
    if (rest.len() as u64) < length {
        return Err(Refused::Length);
    }
    let mut bits = Bits { bytes: &rest[..length as usize], at: 0 };
    let (mut sequence, mut n_pdu, mut next) = (None, None, 0);
    if e || s || pn {
        let mut field = |n| bits.take(n).ok_or(Refused::Length);
        let optional = (field(16)? as u16, field(8)? as u8, field(8)? as u8);
        sequence = s.then_some(optional.0);
        n_pdu = pn.then_some(optional.1);
        next = if e { optional.2 } else { 0 };
    }
    let mut extensions: Vec<(u8, Vec<u8>)> = vec![];
    let (mut session, mut udp_port) = (None, None);
    while next != 0 {
        if extensions.len() == 8 {
            return Err(Refused::TooManyExtensions);
        }
        let units = bits.take(8).ok_or(Refused::ShortExtension)? as usize;
        if units == 0 {
            return Err(Refused::EmptyExtension);
        }
        let mut content = vec![];
        for _ in 0..units * 4 - 2 {
            content.push(bits.take(8).ok_or(Refused::ShortExtension)? as u8);
        }
        let following = bits.take(8).ok_or(Refused::ShortExtension)? as u8;
        // Table 5.2.1-1: the two upper bits of the type.
        match (next, next >> 6) {
            (0x85, _) if session.is_some() => return Err(Refused::RepeatedContainer),
            (0x85, _) => session = Some(container(&content).ok_or(Refused::BrokenContainer)?),
            (0x40, _) => {
                udp_port = udp_port.or(Some(u16::from(content[0]) << 8 | u16::from(content[1])));
            }
            (_, 0b00 | 0b01) => {}
            _ => return Err(Refused::UnknownExtension),
        }
        extensions.push((next, content));
        next = following;
    }
    let body = match kind {
        255 => NaiveBody::GPdu(bits.rest().to_vec()),
        1 | 2 | 26 | 31 | 254 => {
            let elements = elements(bits.rest()).ok_or(Refused::BrokenElement)?;
            let find = |kind| elements.iter().find(|element| element.0 == kind).map(|e| &e.1[..]);
            match kind {
                1 => NaiveBody::EchoRequest,
                2 => NaiveBody::EchoResponse(find(14).map(|value| value[0])),
                26 => {
                    let teid = find(16).ok_or(Refused::MissingElement)?;
                    let peer = find(133).ok_or(Refused::MissingElement)?;
                    let teid = u32::from_be_bytes(teid.try_into().expect("four bytes"));
                    NaiveBody::ErrorIndication(teid, address(peer).expect("checked"))
                }
                31 => NaiveBody::SupportedExtensions(
                    find(141).ok_or(Refused::MissingElement)?.to_vec(),
                ),
                _ => NaiveBody::EndMarker,
            }
        }
        _ => return Err(Refused::UnknownMessage),
    };
    Ok(Naive { teid: teid as u32, sequence, n_pdu, extensions, session, udp_port, body })
}

/// Reads the information elements of section 8: type and value.
fn elements(bytes: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut bits = Bits { bytes, at: 0 };
    let mut found = vec![];
    while !bits.rest().is_empty() {
        let kind = bits.take(8)? as u8;
        let len = match kind {
            14 => 1,
            16 => 4,
            0..=127 => return None,
            141 => bits.take(8)?,
            _ => bits.take(16)?,
        };
        let value: Vec<u8> =
            (0..len).map(|_| bits.take(8).map(|byte| byte as u8)).collect::<Option<_>>()?;
        if kind == 133 {
            address(&value)?;
        }
        found.push((kind, value));
    }
    Some(found)
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).expect("four bytes"))),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).expect("sixteen bytes"))),
        _ => None,
    }
}

/// Reads a PDU Session Container: figures 5.5.2.1-1 and 5.5.2.2-1 of TS 38.415.
fn container(content: &[u8]) -> Option<Container> {
    let mut bits = Bits { bytes: content, at: 0 };
    let kind = bits.take(4)?;
    let qmp = bits.flag()?;
    match kind {
        0 => {
            let (snp, msnp, _spare) = (bits.flag()?, bits.flag()?, bits.flag()?);
            let (ppp, rqi, qfi) = (bits.flag()?, bits.flag()?, bits.take(6)? as u8);
            let ppi = bits.optional(ppp, 3)?;
            bits.optional(ppp, 5)?;
            Some(Container::Downlink(Downlink {
                qfi,
                rqi,
                ppi: ppi.map(|ppi| ppi as u8),
                sent: bits.optional(qmp, 64)?,
                sequence: bits.optional(snp, 24)?.map(|n| n as u32),
                mbs_sequence: bits.optional(msnp, 32)?.map(|n| n as u32),
            }))
        }
        1 => {
            let (dl, ul, snp) = (bits.flag()?, bits.flag()?, bits.flag()?);
            let (n3_n9, new, qfi) = (bits.flag()?, bits.flag()?, bits.take(6)? as u8);
            let times = [(); 3].map(|()| bits.optional(qmp, 64));
            let times = [times[0]?, times[1]?, times[2]?];
            let mut delay = |present, n| Some(bits.optional(present, n)?.map(|n| n as u32));
            let (dl_delay, ul_delay) = (delay(dl, 32)?, delay(ul, 32)?);
            let (sequence, n3_n9_delay) = (delay(snp, 24)?, delay(n3_n9, 32)?);
            delay(new, 7)?;
            let pdcp = delay(new, 1)? == Some(1);
            Some(Container::Uplink(Uplink {
                qfi,
                monitoring: qmp.then(|| times.map(|time| time.expect("present"))),
                dl_delay,
                ul_delay,
                sequence,
                n3_n9_delay,
                pdcp_delay: delay(pdcp, 32)?,
            }))
        }
        _ => None,
    }
}

/// Generates containers whose values fit their fields.
pub(crate) fn containers() -> impl Strategy<Value = Container> {
    use prop::option::of;
    let down = (0..64u8, any::<bool>(), of(0..8u8), any::<Option<u64>>(), of(0..1u32 << 24))
        .prop_flat_map(|(qfi, rqi, ppi, sent, sequence)| {
            any::<Option<u32>>().prop_map(move |mbs_sequence| {
                Container::Downlink(Downlink { qfi, rqi, ppi, sent, sequence, mbs_sequence })
            })
        });
    let up = (0..64u8, any::<Option<[u64; 3]>>(), any::<[Option<u32>; 4]>(), of(0..1u32 << 24))
        .prop_map(|(qfi, monitoring, [dl_delay, ul_delay, n3_n9_delay, pdcp_delay], sequence)| {
            Container::Uplink(Uplink {
                qfi,
                monitoring,
                dl_delay,
                ul_delay,
                sequence,
                n3_n9_delay,
                pdcp_delay,
            })
        });
    let short = (0..64u8, any::<bool>())
        .prop_map(|(qfi, rqi)| Container::Downlink(Downlink { qfi, rqi, ..Downlink::default() }));
    prop_oneof![short, down, up]
}

/// Generates chains of up to eight extension headers that an endpoint must accept.
fn chains() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let content = |bytes: Vec<u8>| {
        let len = (bytes.len() + 2).next_multiple_of(4).max(4) - 2;
        bytes.into_iter().chain(std::iter::repeat(0)).take(len).collect::<Vec<u8>>()
    };
    let other = (1..0x80u8, prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(move |(kind, bytes)| (kind, content(bytes)));
    let session = containers().prop_map(move |container| {
        let mut room = [0; Container::LEN_MAX];
        let len = container.write_content(&mut room);
        (0x85, content(room[..len].to_vec()))
    });
    (prop::collection::vec(other, 0..8), prop::option::of((session, any::<prop::sample::Index>())))
        .prop_map(|(mut chain, session)| {
            if let Some((session, at)) = session {
                chain.insert(at.index(chain.len() + 1), session);
            }
            chain
        })
}

fn bodies() -> impl Strategy<Value = NaiveBody> {
    let bytes = |len| prop::collection::vec(any::<u8>(), 0..len);
    prop_oneof![
        4 => bytes(200).prop_map(NaiveBody::GPdu),
        1 => Just(NaiveBody::EchoRequest),
        1 => any::<Option<u8>>().prop_map(NaiveBody::EchoResponse),
        2 => any::<(u32, IpAddr)>().prop_map(|(teid, peer)| NaiveBody::ErrorIndication(teid, peer)),
        1 => Just(NaiveBody::EndMarker),
        1 => bytes(256).prop_map(NaiveBody::SupportedExtensions),
    ]
}

/// Generates messages that an endpoint must accept.
pub(crate) fn messages() -> impl Strategy<Value = Naive> {
    (any::<(u32, Option<u16>, Option<u8>)>(), chains(), bodies()).prop_map(
        |((teid, sequence, n_pdu), extensions, body)| {
            let of_kind = |kind| extensions.iter().find(|header| header.0 == kind);
            let session = of_kind(0x85).map(|(_, content)| container(content).expect("valid"));
            let udp_port = of_kind(0x40)
                .map(|(_, content)| u16::from(content[0]) << 8 | u16::from(content[1]));
            Naive { teid, sequence, n_pdu, session, udp_port, extensions, body }
        },
    )
}

impl Naive {
    /// Writes the message byte by byte. `spare` sets the bits that receivers must not evaluate.
    pub(crate) fn write(&self, spare: bool) -> Vec<u8> {
        let mut payload = vec![];
        let long = self.sequence.is_some() || self.n_pdu.is_some() || !self.extensions.is_empty();
        let absent = if spare { 0xff } else { 0 };
        if long {
            let absent16 = u16::from_be_bytes([absent; 2]);
            payload.extend(self.sequence.unwrap_or(absent16).to_be_bytes());
            payload.push(self.n_pdu.unwrap_or(absent));
            payload.push(self.extensions.first().map_or(absent, |header| header.0));
            for (i, (_, content)) in self.extensions.iter().enumerate() {
                payload.push(((content.len() + 2) / 4) as u8);
                payload.extend(content);
                payload.push(self.extensions.get(i + 1).map_or(0, |header| header.0));
            }
        }
        let kind = match &self.body {
            NaiveBody::GPdu(packet) => {
                payload.extend(packet);
                255
            }
            NaiveBody::EchoRequest => 1,
            NaiveBody::EchoResponse(recovery) => {
                payload.extend(recovery.iter().flat_map(|&counter| [14, counter]));
                2
            }
            NaiveBody::ErrorIndication(teid, peer) => {
                payload.push(16);
                payload.extend(teid.to_be_bytes());
                match peer {
                    IpAddr::V4(peer) => {
                        payload.extend([&[133, 0, 4], &peer.octets()[..]].concat());
                    }
                    IpAddr::V6(peer) => {
                        payload.extend([&[133, 0, 16], &peer.octets()[..]].concat());
                    }
                }
                26
            }
            NaiveBody::EndMarker => 254,
            NaiveBody::SupportedExtensions(kinds) => {
                payload.extend([141, kinds.len() as u8]);
                payload.extend(kinds);
                31
            }
        };
        let flags = 0b0011_0000
            | u8::from(spare) << 3
            | u8::from(!self.extensions.is_empty()) << 2
            | u8::from(self.sequence.is_some()) << 1
            | u8::from(self.n_pdu.is_some());
        let mut bytes = vec![flags, kind];
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend(self.teid.to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}

/// Generates valid messages with some bytes changed, cut off or appended.
pub(crate) fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let tail = prop_oneof![2 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    let more = prop::collection::vec(any::<u8>(), 0..8);
    (messages(), any::<bool>(), prop::collection::vec(change, 0..4), tail, more).prop_map(
        |(message, spare, changes, cut, more)| {
            let mut bytes = message.write(spare);
            for (at, byte) in changes {
                let len = if byte & 1 == 0 { bytes.len() } else { bytes.len().min(20) };
                bytes[at.index(len)] = byte.rotate_left(3);
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes.extend(more);
            bytes
        },
    )
}
