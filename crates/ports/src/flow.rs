//! Which frames belong together: an equal hash for all frames of a flow.

use foldhash::quality::FixedState;
use std::hash::BuildHasher;

use crate::offload;

/// Returns the hash of a frame's flow, equal for both directions. It covers IP addresses, protocol
/// and ports; for fragments no ports, since only the first has them; for other frames the Ethernet
/// addresses.
///
/// The same on all machines of one byte order, so that tests can rely on it.
pub fn flow_hash(frame: &[u8]) -> u64 {
    let state = FixedState::with_seed(0x0b);
    // Both ends are hashed apart and added, so that their order does not matter.
    let pair = |a: &[u8], b: &[u8]| {
        let (a, b) = (state.hash_one(a), state.hash_one(b));
        (a.min(b), a.max(b))
    };
    let Some(h) = offload::parse(frame) else {
        let end = frame.len().min(12);
        let (to, from) = frame[..end].split_at(end.min(6));
        return state.hash_one(pair(to, from));
    };
    let ip = &frame[h.l3..];
    let (from, to) = if h.v6 { (&ip[8..24], &ip[24..40]) } else { (&ip[12..16], &ip[16..20]) };
    // TCP, UDP, DCCP, SCTP, UDP-Lite.
    let with_ports = !h.fragment && matches!(h.proto, 6 | 17 | 33 | 132 | 136);
    let ports = if with_ports { frame.get(h.l4..h.l4 + 4).unwrap_or(&[]) } else { &[] };
    let (from_port, to_port) = ports.split_at(ports.len() / 2);
    let mut ends = [[0u8; 18]; 2];
    for (end, (address, port)) in ends.iter_mut().zip([(from, from_port), (to, to_port)]) {
        end[..address.len()].copy_from_slice(address);
        end[16..16 + port.len()].copy_from_slice(port);
    }
    state.hash_one((pair(&ends[0], &ends[1]), h.proto))
}
