//! Offsets of a frame's headers, as far as offloads need them; `overbank-wire` does the rest.

/// Most VLAN tags and IPv6 extension headers that are read.
const DEPTH_MAX: usize = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// Offsets into a frame. `l3 < l4 <= end <= frame.len()`, and the IP header up to `l4` is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub l3: usize,
    /// Start after the IP header and its extensions.
    pub l4: usize,
    /// End of the IP packet; Ethernet padding follows.
    pub end: usize,
    /// IP protocol at `l4`.
    pub proto: u8,
    /// IPv6 rather than IPv4.
    pub v6: bool,
    /// A fragment, the first included.
    pub fragment: bool,
    /// A header before `l4` makes addresses or lengths differ from those of the pseudo-header.
    pub odd: bool,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

/// Returns the length of the Ethernet header with its whole VLAN tags.
pub(crate) fn link_len(frame: &[u8]) -> usize {
    let mut at = 12;
    for _ in 0..DEPTH_MAX {
        match be16(frame, at) {
            Some(tag) if is_tag(tag) && frame.len() >= at + 6 => at += 4,
            _ => break,
        }
    }
    at + 2
}

/// Returns the headers of an IP frame; `None` for other or broken frames.
pub(crate) fn parse(frame: &[u8]) -> Option<Headers> {
    let l3 = link_len(frame);
    match be16(frame, l3 - 2)? {
        0x0800 => parse_v4(frame, l3),
        0x86dd => parse_v6(frame, l3),
        _ => None,
    }
}

fn parse_v4(frame: &[u8], l3: usize) -> Option<Headers> {
    let ip = frame.get(l3..)?;
    let first = *ip.first()?;
    let header_len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header_len < 20 || ip.len() < header_len {
        return None;
    }
    // Super-frames of more than 64 KiB have a length of 0.
    let len = match usize::from(be16(ip, 2)?) {
        0 => ip.len(),
        len => len,
    };
    if len < header_len || len > ip.len() {
        return None;
    }
    let fragment = be16(ip, 6)? & 0x3fff != 0;
    let (l4, end) = (l3 + header_len, l3 + len);
    // A source route keeps the final destination in its option.
    let odd = header_len > 20 && has_source_route(&ip[20..header_len]);
    Some(Headers { l3, l4, end, proto: ip[9], v6: false, fragment, odd })
}

fn has_source_route(options: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match kind {
            0 => return false,
            1 => at += 1,
            131 | 137 => return true,
            _ => match options.get(at + 1) {
                Some(&len) if len >= 2 => at += usize::from(len),
                _ => return true,
            },
        }
    }
    false
}

fn parse_v6(frame: &[u8], l3: usize) -> Option<Headers> {
    let ip = frame.get(l3..)?;
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return None;
    }
    let len = match usize::from(be16(ip, 4)?) {
        0 => ip.len(),
        len => 40 + len,
    };
    if len > ip.len() {
        return None;
    }
    let ip = &ip[..len];
    let (mut at, mut proto) = (40, ip[6]);
    let (mut fragment, mut odd) = (false, false);
    for _ in 0..DEPTH_MAX {
        let header_len = match proto {
            // Hop by hop, routing, destination options.
            0 | 43 | 60 => 8 + 8 * usize::from(*ip.get(at + 1)?),
            44 => 8,
            _ => break,
        };
        let header = ip.get(at..at + header_len)?;
        match proto {
            0 => odd |= header[2] == 0xc2, // Jumbo payload.
            43 => odd |= header[3] != 0,   // Segments left: the destination is not the last one.
            44 => {
                fragment |= be16(header, 2)? & 0xfff9 != 0;
                if be16(header, 2)? & 0xfff8 != 0 {
                    // The payload continues an earlier fragment.
                    proto = header[0];
                    at += header_len;
                    break;
                }
            }
            _ => {}
        }
        proto = header[0];
        at += header_len;
    }
    Some(Headers { l3, l4: l3 + at, end: l3 + len, proto, v6: true, fragment, odd })
}
