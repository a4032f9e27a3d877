//! The PDU Session Container (TS 38.415, 5.5): the QoS flow of a packet, and delay measurements.
//!
//! ```text
//!          0           1           2
//!  down:   |0 QMP SNP MSNP| PPP RQI QFI | PPI | sent (8) | sequence (3) | MBS sequence (4)
//!  up:     |1 QMP DL UL SNP| N3N9 New QFI | repeated, received, sent (8 each) | DL delay (4) |
//!            UL delay (4) | sequence (3) | N3/N9 delay (4) | new flags | PDCP delay (4)
//! ```
//!
//! A field is present if its flag is set. Fields of later releases follow these and are ignored, as
//! padding is. Time stamps are those of NTP, 64 bits; delays are in the units of the standard.

use super::extensions::{Extensions, kind};

/// Content of a PDU Session Container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    Downlink(Downlink),
    Uplink(Uplink),
}

/// DL PDU SESSION INFORMATION: towards the access network. Values wider than their field on the
/// wire lose their upper bits when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Downlink {
    /// QoS flow, 6 bits.
    pub qfi: u8,
    /// Reflective QoS: the terminal uses this flow for the opposite direction as well.
    pub rqi: bool,
    /// Paging policy, 3 bits.
    pub ppi: Option<u8>,
    /// Time of sending; asks for QoS monitoring.
    pub sent: Option<u64>,
    /// Number of the packet within its flow, 24 bits.
    pub sequence: Option<u32>,
    /// The same for a multicast session.
    pub mbs_sequence: Option<u32>,
}

/// UL PDU SESSION INFORMATION: from the access network. Values wider than their field on the wire
/// lose their upper bits when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    /// QoS flow, 6 bits.
    pub qfi: u8,
    /// Time stamps of QoS monitoring: downlink sent (repeated), downlink received, uplink sent.
    pub monitoring: Option<[u64; 3]>,
    pub dl_delay: Option<u32>,
    pub ul_delay: Option<u32>,
    /// Number of the packet within its flow, 24 bits.
    pub sequence: Option<u32>,
    pub n3_n9_delay: Option<u32>,
    pub pdcp_delay: Option<u32>,
}

/// First byte, both types.
const TYPE_UPLINK: u8 = 0x10;
const QMP: u8 = 8;
/// First byte, downlink.
const DL_SNP: u8 = 4;
const MSNP: u8 = 2;
/// First byte, uplink.
const DL_DELAY: u8 = 4;
const UL_DELAY: u8 = 2;
const UL_SNP: u8 = 1;
/// Second byte, downlink.
const PPP: u8 = 0x80;
const RQI: u8 = 0x40;
/// Second byte, uplink.
const N3_N9_DELAY: u8 = 0x80;
const NEW_FLAGS: u8 = 0x40;
/// Byte of the new flags.
const PDCP_DELAY: u8 = 1;
const QFI: u8 = 0x3f;

impl Container {
    /// Longest content that is written.
    pub const LEN_MAX: usize = 46;
    /// Longest extension header that is written.
    pub const HEADER_LEN_MAX: usize = 48;

    /// Returns the container of a downlink packet of a flow.
    pub fn downlink(qfi: u8) -> Container {
        Container::Downlink(Downlink { qfi, ..Downlink::default() })
    }

    pub const fn qfi(&self) -> u8 {
        match self {
            Container::Downlink(down) => down.qfi,
            Container::Uplink(up) => up.qfi,
        }
    }

    /// Returns whether [`Self::parse`] reads the content.
    #[inline(always)]
    pub(super) fn is_valid(content: &[u8]) -> bool {
        match content {
            // Flow and reflective QoS alone: nearly every packet.
            [0, second, ..] if second & PPP == 0 => true,
            [TYPE_UPLINK, second, ..] if second & !QFI == 0 => true,
            _ => Container::parse(content).is_some(),
        }
    }

    /// Returns the QoS flow in a valid content.
    #[inline]
    pub(super) fn qfi_of(content: &[u8]) -> Option<u8> {
        content.get(1).map(|second| second & QFI)
    }

    /// Reads the content of an extension header; `None` if its type is unknown or a field is cut
    /// short.
    pub fn parse(content: &[u8]) -> Option<Container> {
        let (&[first, second], mut rest) = content.split_first_chunk::<2>()?;
        let qfi = second & QFI;
        match first & 0xf0 {
            0 => {
                let mut down = Downlink { qfi, rqi: second & RQI != 0, ..Downlink::default() };
                if first & (QMP | DL_SNP | MSNP) != 0 || second & PPP != 0 {
                    let field = &mut rest;
                    down.ppi = number::<1>(second & PPP != 0, field)?.map(|ppi| ppi as u8 >> 5);
                    down.sent = number::<8>(first & QMP != 0, field)?;
                    down.sequence = number::<3>(first & DL_SNP != 0, field)?.map(|n| n as u32);
                    down.mbs_sequence = number::<4>(first & MSNP != 0, field)?.map(|n| n as u32);
                }
                Some(Container::Downlink(down))
            }
            TYPE_UPLINK => {
                let mut up = Uplink { qfi, ..Uplink::default() };
                if first & 0x0f != 0 || second & !QFI != 0 {
                    up.read(first, second, rest)?;
                }
                Some(Container::Uplink(up))
            }
            _ => None,
        }
    }

    /// Writes the content, without padding, and returns its length.
    pub fn write_content(&self, room: &mut [u8; Self::LEN_MAX]) -> usize {
        let mut out = Out { room, len: 2 };
        let (first, second) = match *self {
            Container::Downlink(down) => {
                let ppi = out.number::<1>(down.ppi.map(|ppi| u64::from(ppi << 5)), PPP);
                let sent = out.number::<8>(down.sent, QMP);
                let sequence = out.number::<3>(down.sequence.map(u64::from), DL_SNP);
                let mbs = out.number::<4>(down.mbs_sequence.map(u64::from), MSNP);
                let rqi = if down.rqi { RQI } else { 0 };
                (sent | sequence | mbs, ppi | rqi | down.qfi & QFI)
            }
            Container::Uplink(up) => {
                let times = up.monitoring.map_or([None; 3], |times| times.map(Some));
                let qmp = times.map(|time| out.number::<8>(time, QMP))[0];
                let dl = out.number::<4>(up.dl_delay.map(u64::from), DL_DELAY);
                let ul = out.number::<4>(up.ul_delay.map(u64::from), UL_DELAY);
                let sequence = out.number::<3>(up.sequence.map(u64::from), UL_SNP);
                let n3_n9 = out.number::<4>(up.n3_n9_delay.map(u64::from), N3_N9_DELAY);
                let flags = up.pdcp_delay.map(|_| u64::from(PDCP_DELAY));
                let new = out.number::<1>(flags, NEW_FLAGS);
                out.number::<4>(up.pdcp_delay.map(u64::from), PDCP_DELAY);
                (TYPE_UPLINK | qmp | dl | ul | sequence, n3_n9 | new | up.qfi & QFI)
            }
        };
        let len = out.len;
        room[..2].copy_from_slice(&[first, second]);
        len
    }

    /// Returns the extension header of the container of nearly every packet, as the last one;
    /// `None` for any other.
    #[inline]
    pub(super) fn plain(&self) -> Option<[u8; 4]> {
        match *self {
            Container::Downlink(Downlink {
                qfi,
                rqi,
                ppi: None,
                sent: None,
                sequence: None,
                mbs_sequence: None,
            }) => Some([1, 0, if rqi { RQI } else { 0 } | qfi & QFI, kind::NONE]),
            _ => None,
        }
    }

    /// Writes the container as the only extension header of a message, and returns its bytes.
    #[inline]
    pub(super) fn write_header<'a>(&self, room: &'a mut [u8; Self::HEADER_LEN_MAX]) -> &'a [u8] {
        if let Some(header) = self.plain() {
            room[..4].copy_from_slice(&header);
            return &room[..4];
        }
        let mut content = [0; Self::LEN_MAX];
        let len = (self.write_content(&mut content) + 2).next_multiple_of(4);
        room.fill(0);
        room[0] = (len / 4) as u8;
        room[1..=Self::LEN_MAX].copy_from_slice(&content);
        &room[..len]
    }

    /// Writes the container as the only extension header of a message.
    pub fn write<'a>(&self, room: &'a mut [u8; Self::HEADER_LEN_MAX]) -> Extensions<'a> {
        Extensions::of_session(self.write_header(room))
    }
}

impl Uplink {
    /// Reads the optional fields.
    #[cold]
    fn read(&mut self, first: u8, second: u8, mut rest: &[u8]) -> Option<()> {
        let field = &mut rest;
        if first & QMP != 0 {
            let mut times = [0; 3];
            for time in &mut times {
                *time = number::<8>(true, field)??;
            }
            self.monitoring = Some(times);
        }
        self.dl_delay = number::<4>(first & DL_DELAY != 0, field)?.map(|n| n as u32);
        self.ul_delay = number::<4>(first & UL_DELAY != 0, field)?.map(|n| n as u32);
        self.sequence = number::<3>(first & UL_SNP != 0, field)?.map(|n| n as u32);
        self.n3_n9_delay = number::<4>(second & N3_N9_DELAY != 0, field)?.map(|n| n as u32);
        let new = number::<1>(second & NEW_FLAGS != 0, field)?.unwrap_or(0) as u8;
        self.pdcp_delay = number::<4>(new & PDCP_DELAY != 0, field)?.map(|n| n as u32);
        Some(())
    }
}

/// Takes a field of `N` bytes off `rest` if it is present; `None` if it is cut short.
#[inline]
fn number<const N: usize>(present: bool, rest: &mut &[u8]) -> Option<Option<u64>> {
    if !present {
        return Some(None);
    }
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))))
}

/// Writes the optional fields.
struct Out<'a> {
    room: &'a mut [u8; Container::LEN_MAX],
    len: usize,
}

impl Out<'_> {
    /// Writes a field of `N` bytes, if there is a value, and returns its flag.
    fn number<const N: usize>(&mut self, value: Option<u64>, flag: u8) -> u8 {
        let Some(value) = value else { return 0 };
        // All fields together are as long as the room.
        self.room[self.len..self.len + N].copy_from_slice(&value.to_be_bytes()[8 - N..]);
        self.len += N;
        flag
    }
}
