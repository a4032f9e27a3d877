//! Sessions by part of the RIB, and their moves.

use super::super::{handling, hash};
use super::rib::VALUE_BITS;
use overbank::hash::mix;
use overbank::random::Pcg32;

pub(super) const PARTS: usize = 32;

/// The sessions of a part with their nodes.
pub(super) struct Sessions {
    pub(super) numbers: Vec<u64>,
    pub(super) nodes: Vec<u8>,
}

pub(super) fn part_of(session: u64) -> usize {
    (mix(hash(session)) >> 32) as usize % PARTS
}

pub(super) fn sessions(keys: u64) -> Vec<Sessions> {
    let empty = || Sessions { numbers: Vec::new(), nodes: Vec::new() };
    let mut all: Vec<Sessions> = (0..PARTS).map(|_| empty()).collect();
    for session in 0..keys {
        let of = &mut all[part_of(session)];
        of.numbers.push(session);
        of.nodes.push(handling(session, 1 << VALUE_BITS));
    }
    all
}

/// What changes: the part, the session's place in it, the key's hash, the new node.
pub(super) type Change = (usize, usize, u64, u8);

/// Draws moves of sessions of some parts, each to another node.
pub(super) fn moves(
    sessions: &mut [Sessions],
    parts: std::ops::Range<usize>,
    count: usize,
    pcg: &mut Pcg32,
) -> Vec<Change> {
    let mut draw = || {
        let part = parts.start + pcg.below(parts.len() as u32) as usize;
        let of = &mut sessions[part];
        let at = pcg.below(of.numbers.len() as u32) as usize;
        let by = 1 + pcg.below((1 << VALUE_BITS) - 1) as u8;
        of.nodes[at] = (of.nodes[at] + by) % (1 << VALUE_BITS);
        (part, at, hash(of.numbers[at]), of.nodes[at])
    };
    (0..count).map(|_| draw()).collect()
}
