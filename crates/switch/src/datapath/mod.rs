//! The datapath of one worker: bursts of frames through the three tiers.
//!
//! ```text
//!  frames ──extract──▶ keys, hashes
//!         ──tier 1───▶ probe the signature cache for the whole burst, verify each match against
//!         │            its megaflow
//!         ──tier 2───▶ the misses, subtable by subtable; found: install the signature
//!         ──tier 3───▶ what is left, one by one: translate, install megaflow and signature
//!         ──execute──▶ every frame, in the order of arrival
//! ```
//!
//! If a call has more than one burst and the signature cache is large, burst n + 1 is extracted
//! before tier 1 of burst n, whose probe then prefetches the lines of the next: see
//! [`Datapath::process`].
//!
//! Hits and misses of a burst leave in order of arrival, so a flow is never reordered. Nothing acts
//! on an unverified signature. A packet of a warm flow allocates nothing.
//!
//! Rules and ports can change between two calls at no cost (`control`). Older megaflows match
//! nothing from then on, and return one by one as their packets are translated again. Packets are
//! counted per verdict; [`Datapath::flush_stats`] credits them to the rules behind it.
//!
//! Source: Fast Software Cache Design for Network Appliances, sections 2 and 6.

mod config;
mod control;

pub use self::config::{CacheConfig, Config, ConfigError, Counters, MEGAFLOWS_16_BIT};
use crate::drop::DropReason;
use crate::exec::{self, Subject};
use crate::megaflow::{BURST, MegaflowCache, NO_ENTRY};
use crate::ports::Ports;
pub use crate::sink::Sink;
use crate::tables::Tables;
use crate::translate;
use crate::verdict::{Shortcut, Verdicts};
use arrayvec::ArrayVec;
use overbank::cache::{self, DynCache, LayoutKind, Probes};
use overbank::hash::Hash64;
use overbank::prefetch::l2_bytes;
use overbank_wire::edit::FRAME_MAX;
use overbank_wire::extract::extract_within;
use overbank_wire::{FlowKey, FrameBuf, Offsets};
use std::mem;
use std::sync::Arc;

/// A frame with its ingress port, for lists of frames from several ports.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// From the Ethernet header on, without the frame check sequence.
    pub bytes: &'a [u8],
    pub in_port: u32,
}

trait Frames<'a>: Copy {
    fn len(self) -> usize;
    /// Iterates over bytes and port of each frame.
    fn iter(self) -> impl Iterator<Item = (&'a [u8], u32)>;
    /// Returns the frames of burst `nth`, at most [`BURST`]; none past the end.
    fn burst(self, nth: usize) -> Self;
}

impl<'a> Frames<'a> for &'a [Frame<'a>] {
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (&'a [u8], u32)> {
        self.iter().map(|frame| (frame.bytes, frame.in_port))
    }

    #[inline(always)]
    fn burst(self, nth: usize) -> Self {
        let rest = &self[(nth * BURST).min(self.len())..];
        &rest[..rest.len().min(BURST)]
    }
}

#[derive(Clone, Copy)]
struct OfPort<'a> {
    frames: &'a [&'a [u8]],
    in_port: u32,
}

impl<'a> Frames<'a> for OfPort<'a> {
    #[inline(always)]
    fn len(self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (&'a [u8], u32)> {
        self.frames.iter().map(move |&frame| (frame, self.in_port))
    }

    #[inline(always)]
    fn burst(self, nth: usize) -> Self {
        let rest = &self.frames[(nth * BURST).min(self.frames.len())..];
        OfPort { frames: &rest[..rest.len().min(BURST)], in_port: self.in_port }
    }
}

/// Working memory of one burst, kept so that a burst neither allocates nor clears any.
#[derive(Debug)]
struct Burst {
    /// Index in the burst of the frame behind key `i`.
    frame: ArrayVec<u8, BURST>,
    keys: [FlowKey; BURST],
    offsets: [Offsets; BURST],
    hashes: [Hash64; BURST],
    verdicts: [u32; BURST],
    probes: Probes,
    /// Frames without a key.
    unreadable: ArrayVec<(u8, DropReason), BURST>,
}

impl Burst {
    fn new() -> Box<Burst> {
        Box::new(Burst {
            frame: ArrayVec::new(),
            keys: [FlowKey::default(); BURST],
            offsets: [Offsets::default(); BURST],
            hashes: [Hash64::default(); BURST],
            verdicts: [0; BURST],
            probes: Probes::new(),
            unreadable: ArrayVec::new(),
        })
    }

    #[inline]
    fn hashes(&self) -> &[Hash64] {
        &self.hashes[..self.frame.len()]
    }

    /// Extracts keys and hashes, with at most `vlan_limit` tags. Reads only the frames.
    #[inline]
    fn extract<'a, F: Frames<'a>>(&mut self, frames: F, vlan_limit: u8) {
        self.frame.clear();
        self.unreadable.clear();
        for (i, (bytes, in_port)) in frames.iter().enumerate() {
            let n = self.frame.len();
            if bytes.len() > FRAME_MAX {
                self.unreadable.push((i as u8, DropReason::FrameTooLong));
                continue;
            }
            match extract_within(bytes, in_port, vlan_limit, &mut self.keys[n]) {
                Ok(offsets) => {
                    self.offsets[n] = offsets;
                    self.hashes[n] = Hash64::new(self.keys[n].microflow_hash());
                    self.frame.push(i as u8);
                }
                Err(reason) => self.unreadable.push((i as u8, reason.into())),
            }
        }
    }
}

/// Returns about what a translation took, in searches of a subtable of megaflows: an estimate from
/// counts, so that equal traffic takes equal paths. A clock would cost more than it tells.
fn translation_cost(tables: &Tables, answer: &translate::Translation) -> u32 {
    let subtables = |lookup: &translate::Lookup| {
        tables.table(lookup.table).map_or(0, |table| table.subtables() as u32)
    };
    32 + answer.lookups.iter().map(|lookup| 8 + 2 * subtables(lookup).min(1 << 12)).sum::<u32>()
}

/// Inserts a signature. The layout was chosen so that every megaflow's id fits.
fn install_signature(cache: &mut dyn DynCache, hash: Hash64, id: u32) {
    let installed = cache.insert(hash, id);
    debug_assert!(installed.is_ok(), "megaflow ids fit into the cache's values");
}

/// The datapath of one worker.
pub struct Datapath {
    tables: Arc<Tables>,
    ports: Ports,
    cache: Option<Box<dyn DynCache>>,
    megaflows: MegaflowCache,
    verdicts: Verdicts,
    /// Verdict references to release after the burst.
    released: Vec<u32>,
    scratch: FrameBuf,
    burst: Box<Burst>,
    /// The next burst, if a call goes two bursts deep.
    upcoming: Box<Burst>,
    /// Set if the signature cache is larger than the CPU's L2. A probe then prefetches the next
    /// burst's lines; in a smaller cache, prefetching costs more than it saves.
    large_cache: bool,
    now_ms: u64,
    classifier_lookups: u64,
    stale_signatures: u64,
    packets: u64,
    packet_outs: u64,
    drops: [u64; DropReason::COUNT],
}

impl Datapath {
    /// Returns a datapath with empty caches.
    pub fn new(config: &Config, tables: impl Into<Arc<Tables>>) -> Result<Datapath, ConfigError> {
        let megaflows =
            MegaflowCache::new(config.megaflows, config.seed).map_err(ConfigError::Megaflows)?;
        let layout = if config.megaflows <= MEGAFLOWS_16_BIT {
            LayoutKind::Fp16V16
        } else {
            LayoutKind::Fp16V32
        };
        let cache = match config.cache {
            Some(c) => {
                let size = cache::Config::entries(c.entries).layout(layout);
                let cache = c.design.build(&size.seed(config.seed).isa(c.isa));
                Some(cache.map_err(ConfigError::Cache)?)
            }
            None => None,
        };
        let large_cache = cache.as_ref().is_some_and(|c| c.memory_bytes() > l2_bytes());
        Ok(Datapath {
            tables: tables.into(),
            ports: Ports::new(&config.ports),
            cache,
            megaflows,
            verdicts: Verdicts::new(config.seed),
            released: Vec::new(),
            scratch: FrameBuf::new(),
            burst: Burst::new(),
            upcoming: Burst::new(),
            large_cache,
            now_ms: 0,
            classifier_lookups: 0,
            stale_signatures: 0,
            packets: 0,
            packet_outs: 0,
            drops: [0; DropReason::COUNT],
        })
    }

    /// Takes the frames of one port through the tiers, in bursts of 32. `now_ms` is the switch's
    /// clock, which never goes back.
    ///
    /// A caller with many frames hands them over in one call. With a signature cache larger than
    /// the CPU's L2, the probe of each burst then prefetches the lines of the next one. The result
    /// for a frame does not depend on it.
    pub fn process<S: Sink>(&mut self, frames: &[&[u8]], in_port: u32, now_ms: u64, sink: &mut S) {
        self.process_all(OfPort { frames, in_port }, now_ms, sink);
    }

    /// Takes frames of several ports through the tiers, as those of a capture.
    pub fn process_mixed<S: Sink>(&mut self, frames: &[Frame<'_>], now_ms: u64, sink: &mut S) {
        self.process_all(frames, now_ms, sink);
    }

    #[inline]
    fn process_all<'a, F: Frames<'a>, S: Sink>(&mut self, frames: F, now_ms: u64, sink: &mut S) {
        self.now_ms = now_ms;
        let vlan_limit = self.tables.view().vlan_limit;
        let ahead = self.large_cache && frames.len() > BURST;
        if ahead {
            self.upcoming.extract(frames.burst(0), vlan_limit);
            if let Some(cache) = &self.cache {
                cache.probe_batch_ahead(&[], self.upcoming.hashes(), &mut self.burst.probes);
            }
        }
        for nth in 0..frames.len().div_ceil(BURST) {
            let burst = frames.burst(nth);
            if ahead {
                mem::swap(&mut self.burst, &mut self.upcoming);
                self.upcoming.extract(frames.burst(nth + 1), vlan_limit);
            } else {
                self.burst.extract(burst, vlan_limit);
            }
            // Megaflows and verdicts store the low half of the clock.
            self.process_burst(burst, now_ms as u32, nth * BURST, ahead, sink);
        }
    }

    /// Takes one extracted burst through the tiers; `ahead`: `upcoming` is the next one.
    #[inline]
    fn process_burst<'a, F: Frames<'a>, S: Sink>(
        &mut self,
        frames: F,
        now_ms: u32,
        base: usize,
        ahead: bool,
        sink: &mut S,
    ) {
        self.packets += frames.len() as u64;
        let mut missed = self.look_up_signatures(now_ms, ahead);
        if !missed.is_empty() {
            self.look_up_megaflows(&mut missed, now_ms);
            self.translate_rest(&missed, now_ms);
        }
        self.execute(frames, now_ms, base, sink);
        self.release();
    }

    /// Releases the verdicts that megaflows no longer have.
    #[inline]
    fn release(&mut self) {
        for number in self.released.drain(..) {
            self.verdicts.release(number, self.now_ms);
        }
    }

    /// Looks up in tier 1. Returns the keys that miss. `ahead`: as in `process_burst`.
    #[inline]
    fn look_up_signatures(&mut self, now_ms: u32, ahead: bool) -> ArrayVec<u8, BURST> {
        let burst = &mut *self.burst;
        let n = burst.frame.len();
        let mut missed = ArrayVec::new();
        let Some(cache) = &mut self.cache else {
            missed.extend(0..n as u8);
            return missed;
        };
        let hashes = &burst.hashes[..n];
        if ahead {
            cache.probe_batch_ahead(hashes, self.upcoming.hashes(), &mut burst.probes);
        } else {
            cache.probe_batch(hashes, &mut burst.probes);
        }
        for &id in burst.probes.values() {
            self.megaflows.prefetch(id);
        }
        let (keys, verdicts) = (&burst.keys, &mut burst.verdicts);
        let hits = burst.probes.resolve(&**cache, hashes, |i, id| {
            let is_right = self.megaflows.verify(id, &keys[i]);
            if is_right {
                verdicts[i] = self.megaflows.use_entry(id, now_ms);
            } else {
                let is_stale = self.megaflows.is_stale_match(id, &keys[i]);
                self.stale_signatures += u64::from(is_stale);
            }
            is_right
        });
        cache.commit(hashes, &hits);
        missed.extend(hits.missed().iter().map(|i| i as u8));
        missed
    }

    /// Looks up in tier 2. Keys that hit leave `missed`.
    fn look_up_megaflows(&mut self, missed: &mut ArrayVec<u8, BURST>, now_ms: u32) {
        let mut found = [NO_ENTRY; BURST];
        self.megaflows.lookup_batch(&self.burst.keys, missed, &mut found);
        self.take_found(&found, now_ms);
    }

    /// Notes the verdicts of the megaflows found and installs their signatures.
    fn take_found(&mut self, found: &[u32; BURST], now_ms: u32) {
        for (i, &id) in found.iter().enumerate().filter(|(_, id)| **id != NO_ENTRY) {
            self.take(i, id, now_ms);
        }
    }

    fn take(&mut self, i: usize, id: u32, now_ms: u32) {
        self.burst.verdicts[i] = self.megaflows.use_entry(id, now_ms);
        if let Some(cache) = &mut self.cache {
            install_signature(&mut **cache, self.burst.hashes[i], id);
        }
    }

    /// Asks tier 3. An earlier packet of the burst may have installed the megaflow that a later one
    /// needs.
    #[cold]
    fn translate_rest(&mut self, missed: &ArrayVec<u8, BURST>, now_ms: u32) {
        let mut installed: ArrayVec<u32, BURST> = ArrayVec::new();
        for &i in missed {
            let i = usize::from(i);
            match self.megaflows.lookup_again(&self.burst.keys[i], &installed) {
                Some(id) => self.take(i, id, now_ms),
                None => installed.extend(self.translate_one(i, now_ms)),
            }
        }
    }

    /// Translates key `i` and returns the megaflow if one is installed.
    fn translate_one(&mut self, i: usize, now_ms: u32) -> Option<u32> {
        let (key, hash) = (&self.burst.keys[i], self.burst.hashes[i]);
        self.classifier_lookups += 1;
        let answer = translate::translate(&self.tables, key, &self.ports);
        self.megaflows.note_miss(translation_cost(&self.tables, &answer));
        // Packets of this burst may still need the verdicts of evicted megaflows.
        let released = &mut self.released;
        let removed = |number| released.push(number);
        let mask = self.megaflows.bounded(&answer.mask, hash.get(), now_ms, removed);
        let number = self.verdicts.acquire(answer, self.tables.stats());
        self.burst.verdicts[i] = number;
        let installed = mask.and_then(|mask| self.megaflows.install(key, &mask, number, now_ms));
        let Some((id, replaced)) = installed else {
            self.released.push(number);
            return None;
        };
        // Packets of this burst may still need the replaced verdict.
        self.released.extend(replaced);
        if let Some(cache) = &mut self.cache {
            install_signature(&mut **cache, hash, id);
        }
        Some(id)
    }

    /// Runs the verdict of every frame of the burst, in order.
    #[inline]
    fn execute<'a, F: Frames<'a>, S: Sink>(
        &mut self,
        frames: F,
        now_ms: u32,
        base: usize,
        sink: &mut S,
    ) {
        let burst = &*self.burst;
        let mut unreadable = burst.unreadable.iter();
        let mut next_unreadable = unreadable.next();
        let mut key = 0;
        for (i, (frame, in_port)) in frames.iter().enumerate() {
            if let Some(&(at, reason)) = next_unreadable
                && usize::from(at) == i
            {
                next_unreadable = unreadable.next();
                self.drops[reason.index()] += 1;
                sink.drop(base + i, reason);
                continue;
            }
            let number = burst.verdicts[key];
            let bytes = frame.len();
            let dropped = match self.verdicts.shortcut(number) {
                Shortcut::Output(port) => {
                    self.verdicts.count(number, bytes, now_ms);
                    sink.output(base + i, port, frame, false);
                    None
                }
                Shortcut::Drop(reason) => {
                    self.verdicts.count(number, bytes, now_ms);
                    Some(reason)
                }
                Shortcut::Program => {
                    let verdict = self.verdicts.get(number);
                    let subject = Subject {
                        index: base + i,
                        frame,
                        offsets: burst.offsets[key],
                        in_port,
                        ports: &self.ports,
                    };
                    let (program, drop) = (&verdict.program, verdict.drop);
                    let dropped = exec::run(program, drop, &subject, &mut self.scratch, sink);
                    self.verdicts.count(number, bytes, now_ms);
                    dropped
                }
            };
            if let Some(reason) = dropped {
                self.drops[reason.index()] += 1;
                sink.drop(base + i, reason);
            }
            key += 1;
        }
        debug_assert_eq!(key, burst.frame.len(), "each readable frame was executed once");
    }
}
