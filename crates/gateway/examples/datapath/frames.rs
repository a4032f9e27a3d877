//! Frames of the measurements.

/// The gateway's address on N3, the base station's, and that of a host behind N6.
pub const N3: [u8; 4] = [192, 0, 2, 1];
pub const PEER: [u8; 4] = [198, 51, 100, 7];
pub const HOST: [u8; 4] = [203, 0, 113, 80];

fn checksum(header: &[u8]) -> [u8; 2] {
    let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An IPv4 packet of UDP.
pub fn ipv4(src: [u8; 4], dst: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = 28 + payload.len() as u16;
    let mut packet = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(src.into_iter().chain(dst));
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend([ports[0], ports[1], len - 20, 0].iter().flat_map(|word| word.to_be_bytes()));
    packet.extend(payload);
    packet
}

pub fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0], packet].concat()
}

pub fn terminal(number: u32) -> [u8; 4] {
    (0x0a00_0000 + number).to_be_bytes()
}

/// A message of GTP-U from a peer; `flags` beside the version, and the bytes behind the TEID.
pub fn gtpu(peer: [u8; 4], flags: u8, kind: u8, teid: u32, body: &[u8]) -> Vec<u8> {
    let [a, b] = (body.len() as u16).to_be_bytes();
    let message = [&[0x30 | flags, kind, a, b][..], &teid.to_be_bytes(), body].concat();
    frame(&ipv4(peer, N3, [2152, 2152], &message))
}

/// A packet inside a tunnel.
pub fn tunnelled(peer: [u8; 4], teid: u32, packet: &[u8]) -> Vec<u8> {
    gtpu(peer, 0, 255, teid, packet)
}
