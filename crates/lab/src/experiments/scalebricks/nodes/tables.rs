//! The tables of a cluster, for every architecture.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::gpt::Gpt;
use super::super::handling;
use super::frame::FlowKey;
use super::node::LINE;
use crate::prelude::*;
use overbank::fib::{Config as FibConfig, Reader, Writer};
use overbank::memory::{Pages, Words};

/// The bits of a value that are the slot; the node is above.
pub(crate) const SLOT: u32 = (1 << 24) - 1;
/// Insertions that a prefetch goes ahead.
const AHEAD: u64 = 16;

pub(crate) const fn node_of(value: u32) -> u8 {
    (value >> 24) as u8
}

/// Returns the node that has the entries of a hash, in a hash partition.
#[inline(always)]
pub(crate) fn lookup_node(hash: u64, nodes: u64) -> u8 {
    ((u128::from(hash) * u128::from(nodes)) >> 64) as u8
}

/// A forwarding table for each node has one writer, whatever its entries are chosen by.
pub(crate) struct Tables<K> {
    pub(crate) nodes: u64,
    pub(crate) sessions: Vec<Arc<Words>>,
    /// Every entry; the nodes of a duplication read one copy, as only one of them runs at a time.
    pub(crate) whole: Reader<K, u32>,
    /// By hash; empty tables if the hash partition is left out.
    pub(crate) by_hash: Vec<Reader<K, u32>>,
    /// By handling node.
    pub(crate) own: Vec<Reader<K, u32>>,
    pub(crate) gpt: Gpt,
    pub(crate) setsep: Gpt,
}

fn writer<K: FlowKey>(entries: u64, seed: u64) -> Result<Writer<K, u32>, LabError> {
    let config = FibConfig::entries(entries as usize).seed(seed).pages(Pages::Huge);
    Writer::new(&config).map_err(LabError::failed)
}

fn writers<K: FlowKey>(counts: &[u64], seed: u64) -> Result<Vec<Writer<K, u32>>, LabError> {
    counts.iter().map(|&count| writer(count, seed)).collect()
}

impl<K: FlowKey> Tables<K> {
    /// Builds the tables for sessions 0 to `sessions`; `all`: those of every architecture,
    /// otherwise of full duplication and ScaleBricks alone.
    pub(crate) fn build(
        context: &mut Context<'_>,
        (sessions, nodes): (u64, u64),
        all: bool,
    ) -> Result<Tables<K>, LabError> {
        let seed = context.seed;
        let what = format!("{sessions} sessions, {nodes} nodes");
        context.step(&format!("{what}: forwarding tables"), 0.0)?;
        let (mut own_counts, mut hash_counts) = (vec![0; nodes as usize], vec![0; nodes as usize]);
        for session in 0..sessions {
            own_counts[usize::from(handling(session, nodes))] += 1;
            let by_hash = lookup_node(K::of(session).hash(), nodes);
            hash_counts[usize::from(by_hash)] += u64::from(all);
        }
        let lines = own_counts.iter().map(|&count| {
            let words = Words::zeroed(LINE * count.max(1) as usize, Pages::Huge);
            words.map(Arc::new).map_err(LabError::failed)
        });
        let lines: Vec<Arc<Words>> = lines.collect::<Result<_, _>>()?;
        let mut whole = writer(sessions, seed)?;
        let mut own = writers(&own_counts, seed)?;
        let mut by_hash = writers(&hash_counts, seed)?;
        let mut slots = vec![0u32; nodes as usize];
        for session in 0..sessions {
            let (key, node) = (K::of(session), handling(session, nodes));
            let slot = &mut slots[usize::from(node)];
            let value = u32::from(node) << 24 | *slot;
            let line = &lines[usize::from(node)].get()[LINE * *slot as usize..][..LINE];
            *slot += 1;
            if *slot > SLOT {
                return Err(LabError::Failed(format!("{what}: too many sessions of a node")));
            }
            let [low, high] = key.words();
            // The peer is a base station in 10.0.0.0/8.
            let tunnel = (0x0a00_0000 | session >> 8 & 0xff_ffff) << 32 | (session + 1);
            let words = [low, high, tunnel];
            line.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
            let soon = K::of(session + AHEAD);
            whole.prefetch(soon);
            own[usize::from(handling(session + AHEAD, nodes))].prefetch(soon);
            whole.insert(key, value).map_err(LabError::failed)?;
            own[usize::from(node)].insert(key, value).map_err(LabError::failed)?;
            if all {
                let part = usize::from(lookup_node(key.hash(), nodes));
                by_hash[part].insert(key, value).map_err(LabError::failed)?;
            }
        }
        context.step(&format!("{what}: GPT"), 0.6)?;
        let entries = (0..sessions).map(|s| (K::of(s).hash(), handling(s, nodes)));
        let gpt = Gpt::dense(sessions, nodes, false, entries.clone())?;
        context.step(&format!("{what}: SetSep"), 0.7)?;
        let setsep = if all { Gpt::setsep(sessions, nodes, entries)? } else { Gpt::None };
        let readers = |writers: Vec<Writer<K, u32>>| writers.iter().map(Writer::reader).collect();
        Ok(Tables {
            nodes,
            sessions: lines,
            whole: whole.reader(),
            by_hash: readers(by_hash),
            own: readers(own),
            gpt,
            setsep,
        })
    }
}
