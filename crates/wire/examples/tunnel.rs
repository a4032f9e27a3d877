//! Packets into GTP-U tunnels and out of them, for an instruction count: run it under callgrind
//! with `--toggle-collect='*measured*'`, as `cargo xtask instructions` does.
//!
//!     tunnel read|decap|encap 4|6        4, 6: the outer IP version; inside is IPv4 with UDP
//!     tunnel short-decap|short-encap 4   the short paths, which leave the payload where it is
//!
//! - `read`: finds datagram, message and inner packet in a frame.
//! - `decap`: the same, and the packet in a new frame with its TTL decremented.
//! - `encap`: reads a frame with a packet, decrements its TTL, and writes the headers of a tunnel.
//!
//! Prints the packets that went through `measured`.

use overbank_wire::gtpu::{self, Body, Container, Encap, Link, Message, Outer, Plain, Refused};
use overbank_wire::ip::{Ends, Packet};
use overbank_wire::ip4::{HEADER_LEN, Packet4};
use overbank_wire::{FlowKey, FrameBuf, extract};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Packets of a run.
const PACKETS: usize = 4096;
/// An IPv4 packet of 46 bytes with UDP, of 10.45.0.2, without a checksum.
const PACKET: [u8; 46] = {
    let mut packet = [0; 46];
    let header = [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x6e, 0x3f, 10, 45, 0, 2, 192, 0, 2, 80];
    let mut i = 0;
    while i < header.len() {
        packet[i] = header[i];
        i += 1;
    }
    (packet[20], packet[21], packet[23], packet[25]) = (0x13, 0x88, 53, 26);
    packet
};

fn read(frame: &[u8]) -> Result<(u32, Packet<'_>), Refused> {
    let datagram = gtpu::datagram(frame)?;
    let message = Message::parse(datagram.payload())?;
    match message.body {
        Body::GPdu(packet) => Ok((message.teid, Packet::parse(packet)?)),
        _ => Err(Refused::UnknownMessage),
    }
}

#[inline(never)]
fn measured_read(frames: &[Vec<u8>]) -> u64 {
    let mut sum = 0;
    for frame in frames {
        if let Ok((teid, packet)) = read(frame) {
            sum += u64::from(teid) + packet.bytes().len() as u64;
        }
    }
    sum
}

#[inline(never)]
fn measured_decap(frames: &[Vec<u8>], link: &Link, buffer: &mut FrameBuf) -> u64 {
    let mut sum = 0;
    for frame in frames {
        if let Ok((teid, packet)) = read(frame)
            && buffer.load_packet(&packet, link).is_ok()
            && buffer.dec_ttl().is_ok()
        {
            sum += u64::from(teid) + buffer.as_slice().len() as u64;
        }
    }
    sum
}

#[inline(never)]
fn measured_encap(frames: &[Vec<u8>], encap: &Encap, buffer: &mut FrameBuf) -> u64 {
    let mut sum = 0;
    for frame in frames {
        let mut key = FlowKey::default();
        let Ok(offsets) = extract(frame, 0, &mut key) else { continue };
        if buffer.load(frame, offsets).is_ok()
            && buffer.dec_ttl().is_ok()
            && buffer.encapsulate(encap, key.microflow_hash(), key.nw_tos >> 2).is_ok()
        {
            sum += buffer.as_slice().len() as u64;
        }
    }
    sum
}

#[inline(never)]
fn measured_short_decap(frames: &[Vec<u8>], link: &Link) -> u64 {
    let mut sum = 0;
    for frame in frames {
        if let Some(Plain { teid, packet, .. }) = Plain::of(frame) {
            let (head, rest) = (black_box(packet.forwarded(link)), packet.payload());
            sum += u64::from(teid) + (head.len() + rest.len()) as u64;
        }
    }
    sum
}

#[inline(never)]
fn measured_short_encap(frames: &[Vec<u8>], encap: &Encap) -> u64 {
    let mut sum = 0;
    for frame in frames {
        let Some(packet) = Packet4::of_frame(frame) else { continue };
        let mut head = [0; Encap::LEN_MAX + HEADER_LEN];
        let Some((room, inner)) = head.split_last_chunk_mut::<HEADER_LEN>() else { continue };
        let (len, dscp) = (packet.bytes().len(), packet.tos() >> 2);
        let Some(start) = encap.write_plain(room, len, packet.flow_hash(), dscp) else { continue };
        *inner = packet.next_hop();
        let head = black_box(&head[start..]);
        sum += (head.len() + packet.payload().len()) as u64;
    }
    sum
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: tunnel read|decap|encap 4|6, or short-decap|short-encap 4";
    let mut args = std::env::args().skip(1);
    let what = args.next().ok_or(usage)?;
    let ends = match args.next().ok_or(usage)?.as_str() {
        "4" => Ends::V4 { src: Ipv4Addr::new(192, 0, 2, 1), dst: Ipv4Addr::new(192, 0, 2, 2) },
        "6" => Ends::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST },
        _ => return Err(usage.into()),
    };
    let link = Link { dst: [2; 6], src: [4; 6], vlan: None };
    let session = Some(Container::downlink(9));
    let encap = Encap { outer: Outer { link, ends, ttl: 64 }, teid: 1, session };
    let mut buffer = FrameBuf::new();
    buffer.load_packet(&Packet::parse(&PACKET)?, &link)?;
    let plain = buffer.as_slice().to_vec();
    buffer.encapsulate(&encap, 1, 0)?;
    let tunnelled = buffer.as_slice().to_vec();
    let tunnelled_len = tunnelled.len();
    let frame = if what.ends_with("encap") { plain } else { tunnelled };
    let frames = vec![frame.clone(); PACKETS];
    let sum = match what.as_str() {
        "read" => measured_read(&frames),
        "decap" => measured_decap(&frames, &link, &mut buffer),
        "encap" => measured_encap(&frames, &encap, &mut buffer),
        "short-decap" => measured_short_decap(&frames, &link),
        "short-encap" => measured_short_encap(&frames, &encap),
        _ => return Err(usage.into()),
    };
    // All were processed, or the count is worth nothing.
    let len = match what.as_str() {
        "read" => PACKET.len() + 1,
        "decap" | "short-decap" => frame.len().min(PACKET.len() + link.header_len()) + 1,
        _ => tunnelled_len,
    };
    if sum != (PACKETS * len) as u64 {
        return Err(format!("processed {sum} instead of {}", PACKETS * len).into());
    }
    black_box(sum);
    println!("{PACKETS}");
    Ok(())
}
