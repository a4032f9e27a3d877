//! Frames of a gateway's sessions, one direction: what both gateways get, and what must come out.
//!
//! ```text
//!   uplink     in   Ethernet │ IPv4 │ UDP │ GTP-U, TEID of the session │ packet of the terminal
//!              out  Ethernet │ packet, TTL − 1
//!   downlink   in   Ethernet │ packet to the terminal
//!              out  Ethernet │ IPv4 │ UDP │ GTP-U, TEID of the session │ packet, TTL − 1
//! ```
//!
//! Session `id` has TEID `id + 1` in both directions and the address 10.0.0.0 + `id + 1`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use overbank_kit::workload::FlowStream;
use serde::Serialize;

use crate::folder::Folder;

pub const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Our address on N3, and the other end's.
pub const N3: [u8; 4] = [192, 0, 2, 1];
pub const PEER: [u8; 4] = [192, 0, 2, 7];
/// A host behind N6.
const HOST: [u8; 4] = [203, 0, 113, 80];
/// Bytes of the packets inside.
pub const PACKET_LEN: usize = 128;
const TEMPLATE_MAX: usize = 256;
/// Bytes of a kept frame, its length included.
const OUT_STRIDE: usize = 256;
const OUT_HEADER: usize = 16;
/// Skews of the sequences.
pub const SKEWS: [f64; 2] = [0.0, 0.99];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Uplink,
    Downlink,
}

impl Direction {
    pub const ALL: [Direction; 2] = [Direction::Uplink, Direction::Downlink];

    pub const fn name(self) -> &'static str {
        match self {
            Direction::Uplink => "uplink",
            Direction::Downlink => "downlink",
        }
    }
}

/// As `struct sessions` in peers/ovs/frame.h.
#[derive(Clone)]
#[repr(C)]
pub struct Template {
    len: u32,
    header: u32,
    at: [u32; 2],
    base: [u32; 2],
    frame: [u8; TEMPLATE_MAX],
}

fn checksum(header: &[u8]) -> [u8; 2] {
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// Writes the checksum of an IPv4 header.
fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum);
}

/// Returns an IPv4 packet of UDP.
fn udp(src: [u8; 4], dst: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let [a, b] = len.to_be_bytes();
    let mut packet = vec![0x45, 0, a, b, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(src.into_iter().chain(dst));
    seal(&mut packet);
    packet.extend([ports[0], ports[1], len - 20, 0].iter().flat_map(|word| word.to_be_bytes()));
    packet.extend(payload);
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&GATEWAY_MAC[..], &HOST_MAC, &[8, 0], packet].concat()
}

impl Template {
    fn of(direction: Direction) -> Template {
        const L3: usize = 14;
        const TUNNEL: usize = 20 + 8 + 8;
        let payload: Vec<u8> = (0..PACKET_LEN as u8 - 28).collect();
        let (frame, header, at, base) = match direction {
            Direction::Uplink => {
                let inner = udp([10, 0, 0, 0], HOST, [5000, 53], &payload);
                let message = [&[0x30, 255, 0, PACKET_LEN as u8, 0, 0, 0, 0], &inner[..]].concat();
                let frame = ethernet(&udp(PEER, N3, [2152, 2152], &message));
                let inner = L3 + TUNNEL;
                (frame, inner, [inner - 4, inner + 12], [1, 0x0a00_0001])
            }
            Direction::Downlink => {
                let frame = ethernet(&udp(HOST, [10, 0, 0, 0], [53, 5000], &payload));
                (frame, L3, [L3 + 16; 2], [0x0a00_0001; 2])
            }
        };
        let mut template = [0; TEMPLATE_MAX];
        template[..frame.len()].copy_from_slice(&frame);
        let (len, header, at) = (frame.len() as u32, header as u32, at.map(|at| at as u32));
        Template { len, header, at, base, frame: template }
    }

    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Writes the frame of a session: what the plugin of Open vSwitch does.
    #[inline]
    pub fn write(&self, frame: &mut [u8; TEMPLATE_MAX], id: u32) {
        frame[..self.len()].copy_from_slice(&self.frame[..self.len()]);
        for (at, base) in self.at.iter().zip(self.base) {
            let at = *at as usize;
            frame[at..at + 4].copy_from_slice(&(base + id).to_be_bytes());
        }
        let header = self.header as usize;
        seal(&mut frame[header..header + 20]);
    }
}

/// What a gateway gets in one direction: sequences of sessions, uniform and skewed.
pub struct Traffic {
    pub direction: Direction,
    pub sessions: u32,
    pub template: Template,
    folder: Folder,
    log2: u32,
    ids: Vec<u32>,
    /// The sequence in use, for our gateway.
    chosen: AtomicU64,
}

impl Traffic {
    /// Draws 2^`log2` ids for each skew, and writes the files for the plugin; outputs are kept in
    /// `room` frames.
    pub fn new(direction: Direction, sessions: u32, log2: u32, seed: u64) -> Result<Traffic> {
        let mut ids = vec![0; SKEWS.len() << log2];
        for (part, skew) in ids.chunks_mut(1 << log2).zip(SKEWS) {
            FlowStream::zipf(sessions, skew, seed)?.fill(part);
        }
        let traffic = Traffic {
            direction,
            sessions,
            template: Template::of(direction),
            folder: Folder::new("sessions")?,
            log2,
            ids,
            chosen: AtomicU64::new(0),
        };
        let mut file = BufWriter::new(File::create(traffic.path("sessions"))?);
        file.write_all(b"OBSESSN1")?;
        let Template { len, header, at, base, frame } = &traffic.template;
        let numbers = [traffic.log2, SKEWS.len() as u32, *len, *header].into_iter();
        for number in numbers.chain(*at).chain(*base) {
            file.write_all(&number.to_ne_bytes())?;
        }
        file.write_all(frame)?;
        traffic.ids.iter().try_for_each(|id| file.write_all(&id.to_ne_bytes()))?;
        file.into_inner().context("the sequence of sessions")?;
        let out = File::create(traffic.path("out"))?;
        let room = traffic.room();
        out.set_len((OUT_HEADER + room * OUT_STRIDE) as u64)?;
        (&out).write_all(&[0u64.to_ne_bytes(), (room as u64).to_ne_bytes()].concat())?;
        Ok(traffic)
    }

    /// Outputs that are verified.
    pub const fn room(&self) -> usize {
        1 << self.log2
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Chooses the sequence that our gateway gets from now on.
    pub fn choose(&self, sequence: u64) {
        self.chosen.store(sequence, Ordering::Relaxed);
    }

    /// Returns the chosen sequence.
    #[inline]
    pub fn sequence(&self) -> &[u32] {
        let chosen = self.chosen.load(Ordering::Relaxed) as usize;
        let start = chosen << self.log2;
        self.ids.get(start..start + (1 << self.log2)).unwrap_or_default()
    }

    /// Checks a frame that came out: whole headers, the session's tunnel, and the packet inside
    /// byte for byte.
    pub fn check(&self, frame: &[u8]) -> Result<()> {
        let (macs, at) = ([HOST_MAC, GATEWAY_MAC].concat(), 12);
        if frame.len() < 34 || frame[..at] != macs[..] || frame[at..at + 2] != [8, 0] {
            bail!("wrong Ethernet header: {frame:02x?}");
        }
        let (inner, teid, place) = match self.direction {
            Direction::Uplink => (&frame[14..], None, 12),
            Direction::Downlink => {
                let outer = frame.get(14..50).context("cut short")?;
                let [a, b] = (frame.len() as u16 - 14).to_be_bytes();
                let right = outer[0] == 0x45
                    && outer[2..4] == [a, b]
                    && checksum(&outer[..20]) == [0, 0]
                    && outer[9] == 17
                    && outer[12..16] == N3
                    && outer[16..20] == PEER
                    && outer[22..24] == [8, 104]
                    && outer[28..32] == [0x30, 255, 0, PACKET_LEN as u8];
                if !right {
                    bail!("wrong headers of the tunnel: {outer:02x?}");
                }
                (&frame[50..], outer.last_chunk::<4>().copied(), 16)
            }
        };
        let address = inner.get(place..place + 4).context("cut short")?;
        let address = u32::from_be_bytes(address.try_into()?);
        let id = address.wrapping_sub(0x0a00_0001);
        if id >= self.sessions {
            bail!("no session has the address {address:#x}");
        }
        if teid.is_some_and(|teid| u32::from_be_bytes(teid) != id + 1) {
            bail!("the tunnel of another session than {id}: {teid:?}");
        }
        let mut sent = [0; TEMPLATE_MAX];
        self.template.write(&mut sent, id);
        let start = self.template.header as usize;
        let expected = &mut sent[start..start + PACKET_LEN];
        expected[8] -= 1;
        seal(&mut expected[..20]);
        if inner != &*expected {
            bail!("the packet inside differs:\n{inner:02x?}\nand must be\n{expected:02x?}");
        }
        Ok(())
    }

    /// Checks the frames that the plugin kept; returns how many.
    pub fn check_kept(&self, file: &Path) -> Result<usize> {
        let bytes = std::fs::read(file)?;
        let count = bytes.first_chunk().context("no header")?;
        let count = u64::from_ne_bytes(*count) as usize;
        let frames = bytes.get(OUT_HEADER..).unwrap_or_default().as_chunks::<OUT_STRIDE>().0;
        for (nth, kept) in frames.iter().take(count).enumerate() {
            let len = usize::from(u16::from_ne_bytes([kept[0], kept[1]]));
            let frame = kept.get(2..2 + len).context("length of a frame")?;
            self.check(frame).with_context(|| format!("Open vSwitch, output {nth}"))?;
        }
        Ok(count.min(frames.len()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)] // The plugin's function.

    use super::*;

    unsafe extern "C" {
        /// What the plugin writes to a buffer of Open vSwitch.
        fn peers_write_session(frame: *mut [u8; TEMPLATE_MAX], id: u32, sessions: *const Template);
    }

    #[test]
    fn both_gateways_get_the_same_frames() {
        for direction in Direction::ALL {
            let template = Template::of(direction);
            for id in (0..5000).chain([999_999, 0x00ff_fffe]) {
                let [mut ours, mut theirs] = [[0; TEMPLATE_MAX]; 2];
                template.write(&mut ours, id);
                // SAFETY: writes at most as many bytes as the template has.
                unsafe { peers_write_session(&mut theirs, id, &template) };
                assert_eq!(ours, theirs, "{direction:?} {id}");
            }
        }
    }

    #[test]
    fn a_file_holds_both_sequences_and_a_wrong_output_is_found() {
        let traffic = Traffic::new(Direction::Uplink, 100, 10, 1).expect("written");
        let bytes = std::fs::read(traffic.path("sessions")).expect("a file");
        assert_eq!(bytes.len(), 16 + size_of::<Template>() + (8 << 10));
        assert_eq!(bytes[16 + size_of::<Template>()..][..4], traffic.sequence()[0].to_ne_bytes());
        let mut sent = [0; TEMPLATE_MAX];
        traffic.template.write(&mut sent, 7);
        let mut packet = sent[50..traffic.template.len()].to_vec();
        packet[8] -= 1;
        seal(&mut packet[..20]);
        let frame = [&HOST_MAC[..], &GATEWAY_MAC, &[8, 0], &packet].concat();
        traffic.check(&frame).expect("right");
        for at in 0..frame.len() {
            let mut wrong = frame.clone();
            wrong[at] ^= 1;
            assert!(traffic.check(&wrong).is_err(), "byte {at}");
        }
    }
}
