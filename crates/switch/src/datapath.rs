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
//! Hits and misses of a burst leave in the order in which they came, so a flow is never reordered.
//! Nothing acts on an unverified signature. A packet of a warm flow costs no allocation.
//!
//! Source: Fast Software Cache Design for Network Appliances, sections 2 and 6.

use crate::drop::DropReason;
use crate::exec;
use crate::megaflow::{BURST, MegaflowCache, MegaflowCounters, NO_ENTRY, SizeError};
use crate::translate::{self, Tables};
use crate::verdict::{Shortcut, Verdict, Verdicts};
use arrayvec::ArrayVec;
use overbank::cache::{self, Design, Isa, LayoutKind, Probes, SignatureCache};
use overbank_wire::edit::FRAME_MAX;
use overbank_wire::{FlowKey, FrameBuf, Offsets, extract};

/// Megaflow capacity up to which 16-bit values in tier 1 are enough.
pub const MEGAFLOWS_16_BIT: usize = 1 << 16;

/// What a datapath is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The signature cache; `None` sends every packet to tier 2.
    pub cache: Option<CacheConfig>,
    /// Most megaflows.
    pub megaflows: usize,
    /// OpenFlow port numbers that exist.
    pub ports: Vec<u32>,
    /// Varies hash functions and random evictions.
    pub seed: u64,
}

/// What tier 1 is made of.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Geometry and policy.
    pub design: Design,
    /// Slots.
    pub entries: usize,
    /// Instruction set; `None` takes the best that the machine has, or what `OVERBANK_SIMD` says.
    pub isa: Option<Isa>,
}

/// Why a datapath cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The signature cache cannot be made.
    #[error("signature cache: {0}")]
    Cache(cache::Error),
    /// The megaflow cache cannot be made.
    #[error("megaflow cache: {0}")]
    Megaflows(SizeError),
}

/// A frame and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// From the Ethernet header on, without the frame check sequence.
    pub bytes: &'a [u8],
    /// OpenFlow port number.
    pub in_port: u32,
}

/// Where frames go. `index` counts the frames of one call of [`Datapath::process`].
pub trait Sink {
    /// A frame leaves by `port`; `edited` tells whether it differs from the one that came in.
    fn output(&mut self, index: usize, port: u32, frame: &[u8], edited: bool);
    /// A frame left by no port.
    fn drop(&mut self, index: usize, reason: DropReason);
}

/// What the datapath did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub packets: u64,
    /// Packets looked up in tier 1, hits, and matches that verification refused.
    pub microflow: cache::Counters,
    /// Tier 2.
    pub megaflow: MegaflowCounters,
    /// Packets that went to the classifier.
    pub classifier_lookups: u64,
    /// Frames that left by no port, by [`DropReason::index`].
    pub drops: [u64; DropReason::COUNT],
}

impl Counters {
    /// Share of the packets looked up in tier 1 that were found there, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.microflow.hits, self.microflow.lookups)
    }

    /// Subtables searched per lookup in tier 2.
    pub fn subtables_per_lookup(&self) -> f64 {
        ratio(self.megaflow.subtables_searched, self.megaflow.lookups)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Working memory of one burst, kept so that nothing is allocated or cleared per burst.
#[derive(Debug)]
struct Burst {
    /// Place in the burst of the frame behind key `i`.
    frame: ArrayVec<u8, BURST>,
    keys: [FlowKey; BURST],
    offsets: [Offsets; BURST],
    hashes: [u64; BURST],
    verdicts: [u32; BURST],
    slots: [u8; BURST],
    probes: Probes,
    /// Frames without a key.
    unreadable: ArrayVec<(u8, DropReason), BURST>,
}

/// Puts a signature in. The layout was chosen so that every megaflow's id fits.
fn install_signature(cache: &mut dyn SignatureCache, hash: u64, id: u32) {
    let installed = cache.insert(hash, id);
    debug_assert!(installed.is_ok(), "megaflow ids fit into the cache's values");
}

/// One worker's datapath.
pub struct Datapath {
    tables: Tables,
    ports: Vec<u32>,
    cache: Option<Box<dyn SignatureCache>>,
    megaflows: MegaflowCache,
    verdicts: Verdicts,
    /// References to give back when the burst is over.
    released: Vec<u32>,
    scratch: FrameBuf,
    burst: Box<Burst>,
    classifier_lookups: u64,
    packets: u64,
    drops: [u64; DropReason::COUNT],
}

impl Datapath {
    /// A datapath with empty caches.
    pub fn new(config: &Config, tables: Tables) -> Result<Datapath, ConfigError> {
        let megaflows =
            MegaflowCache::new(config.megaflows, config.seed).map_err(ConfigError::Megaflows)?;
        let layout = if config.megaflows <= MEGAFLOWS_16_BIT {
            LayoutKind::Fp16V16
        } else {
            LayoutKind::Fp16V32
        };
        let cache = match config.cache {
            Some(c) => {
                let cache = c.design.build(c.entries, layout, config.seed, c.isa);
                Some(cache.map_err(ConfigError::Cache)?)
            }
            None => None,
        };
        let mut ports = config.ports.clone();
        ports.sort_unstable();
        ports.dedup();
        Ok(Datapath {
            tables,
            ports,
            cache,
            megaflows,
            verdicts: Verdicts::new(config.seed),
            released: Vec::new(),
            scratch: FrameBuf::new(),
            burst: Box::new(Burst {
                frame: ArrayVec::new(),
                keys: [FlowKey::default(); BURST],
                offsets: [Offsets::default(); BURST],
                hashes: [0; BURST],
                verdicts: [0; BURST],
                slots: [0; BURST],
                probes: Probes::new(),
                unreadable: ArrayVec::new(),
            }),
            classifier_lookups: 0,
            packets: 0,
            drops: [0; DropReason::COUNT],
        })
    }

    /// Takes frames through the tiers, in bursts of 32. `now_ms` is any clock that goes forward;
    /// only its differences count.
    pub fn process<S: Sink>(&mut self, frames: &[Frame<'_>], now_ms: u32, sink: &mut S) {
        for (nth, burst) in frames.chunks(BURST).enumerate() {
            self.process_burst(burst, now_ms, nth * BURST, sink);
        }
    }

    #[inline]
    fn process_burst<S: Sink>(
        &mut self,
        frames: &[Frame<'_>],
        now_ms: u32,
        base: usize,
        sink: &mut S,
    ) {
        self.packets += frames.len() as u64;
        self.extract(frames);
        let mut missed = self.look_up_signatures(now_ms);
        if !missed.is_empty() {
            self.look_up_megaflows(&mut missed, now_ms);
            self.translate_rest(&missed, now_ms);
        }
        self.execute(frames, base, sink);
        for number in self.released.drain(..) {
            self.verdicts.release(number);
        }
    }

    /// Frames to keys and hashes.
    #[inline]
    fn extract(&mut self, frames: &[Frame<'_>]) {
        let burst = &mut *self.burst;
        burst.frame.clear();
        burst.unreadable.clear();
        for (i, frame) in frames.iter().enumerate() {
            let n = burst.frame.len();
            if frame.bytes.len() > FRAME_MAX {
                burst.unreadable.push((i as u8, DropReason::FrameTooLong));
                continue;
            }
            match extract(frame.bytes, frame.in_port, &mut burst.keys[n]) {
                Ok(offsets) => {
                    burst.offsets[n] = offsets;
                    burst.hashes[n] = burst.keys[n].microflow_hash();
                    burst.frame.push(i as u8);
                }
                Err(reason) => burst.unreadable.push((i as u8, reason.into())),
            }
        }
    }

    /// Tier 1. Returns the keys that it does not know.
    #[inline]
    fn look_up_signatures(&mut self, now_ms: u32) -> ArrayVec<u8, BURST> {
        let burst = &mut *self.burst;
        let n = burst.frame.len();
        let mut missed = ArrayVec::new();
        let Some(cache) = &mut self.cache else {
            missed.extend(0..n as u8);
            return missed;
        };
        let hashes = &burst.hashes[..n];
        cache.probe_batch(hashes, &mut burst.probes);
        for i in 0..n {
            self.megaflows.prefetch(burst.probes.value[i]);
        }
        let mut refused = 0;
        for (i, &hash) in hashes.iter().enumerate() {
            let mut mask = burst.probes.mask[i];
            let mut id = burst.probes.value[i];
            burst.slots[i] = cache::MISS;
            while mask != 0 {
                if self.megaflows.verify(id, &burst.keys[i]) {
                    burst.slots[i] = mask.trailing_zeros() as u8;
                    burst.verdicts[i] = self.megaflows.use_entry(id, now_ms);
                    break;
                }
                refused += 1;
                mask &= mask - 1;
                if mask != 0 {
                    id = cache.candidate(hash, mask.trailing_zeros() as u8);
                }
            }
            if mask == 0 {
                missed.push(i as u8);
            }
        }
        cache.commit_hits(hashes, &burst.slots[..n], refused);
        missed
    }

    /// Tier 2. Those found leave `missed`.
    fn look_up_megaflows(&mut self, missed: &mut ArrayVec<u8, BURST>, now_ms: u32) {
        let mut found = [NO_ENTRY; BURST];
        self.megaflows.lookup_batch(&self.burst.keys, missed, &mut found);
        self.take_found(&found, now_ms);
    }

    /// Notes the verdicts of the megaflows found and installs their signatures.
    fn take_found(&mut self, found: &[u32; BURST], now_ms: u32) {
        for (i, &id) in found.iter().enumerate().filter(|(_, id)| **id != NO_ENTRY) {
            self.burst.verdicts[i] = self.megaflows.use_entry(id, now_ms);
            if let Some(cache) = &mut self.cache {
                install_signature(&mut **cache, self.burst.hashes[i], id);
            }
        }
    }

    /// Tier 3. An earlier packet of the burst may have brought the megaflow that a later one needs.
    #[cold]
    fn translate_rest(&mut self, missed: &ArrayVec<u8, BURST>, now_ms: u32) {
        let mut installed = false;
        for &i in missed {
            if installed {
                let mut again = ArrayVec::new();
                again.push(i);
                let mut found = [NO_ENTRY; BURST];
                self.megaflows.lookup_again(&self.burst.keys, &mut again, &mut found);
                self.take_found(&found, now_ms);
                if again.is_empty() {
                    continue;
                }
            }
            installed |= self.translate_one(usize::from(i), now_ms);
        }
    }

    /// Asks the classifier about key `i` and installs the answer; false if it could not be.
    fn translate_one(&mut self, i: usize, now_ms: u32) -> bool {
        let key = &self.burst.keys[i];
        self.classifier_lookups += 1;
        let answer = translate::translate(&self.tables, key, &self.ports);
        let verdict = Verdict { program: answer.program, drop: answer.drop };
        let number = self.verdicts.acquire(verdict);
        self.burst.verdicts[i] = number;
        match self.megaflows.install(key, &answer.mask, number, now_ms) {
            Some((id, replaced)) => {
                // Packets of this burst may still need the verdict that was replaced.
                self.released.extend(replaced);
                if let Some(cache) = &mut self.cache {
                    install_signature(&mut **cache, self.burst.hashes[i], id);
                }
                true
            }
            None => {
                self.released.push(number);
                false
            }
        }
    }

    /// Every frame of the burst, in order.
    #[inline]
    fn execute<S: Sink>(&mut self, frames: &[Frame<'_>], base: usize, sink: &mut S) {
        let burst = &*self.burst;
        let mut unreadable = burst.unreadable.iter().peekable();
        let mut key = 0;
        for (i, frame) in frames.iter().enumerate() {
            if let Some((_, reason)) = unreadable.next_if(|(at, _)| usize::from(*at) == i) {
                self.drops[reason.index()] += 1;
                sink.drop(base + i, *reason);
                continue;
            }
            let number = burst.verdicts[key];
            let dropped = match self.verdicts.shortcut(number) {
                Shortcut::Output(port) => {
                    sink.output(base + i, port, frame.bytes, false);
                    None
                }
                Shortcut::Drop(reason) => Some(reason),
                Shortcut::Program => {
                    let verdict = self.verdicts.get(number);
                    exec::run(
                        &verdict.program,
                        verdict.drop,
                        frame.bytes,
                        burst.offsets[key],
                        &mut self.scratch,
                        &mut |port, bytes, edited| sink.output(base + i, port, bytes, edited),
                    )
                }
            };
            if let Some(reason) = dropped {
                self.drops[reason.index()] += 1;
                sink.drop(base + i, reason);
            }
            key += 1;
        }
    }

    /// Changes the rules, then asks them about every megaflow again: those whose verdict or mask
    /// no longer holds go. Returns what `change` returned, and how many megaflows went.
    pub fn change_rules<T>(&mut self, change: impl FnOnce(&mut Tables) -> T) -> (T, usize) {
        let out = change(&mut self.tables);
        let (tables, ports, verdicts) = (&self.tables, &self.ports, &self.verdicts);
        let mut released = Vec::new();
        let gone = self.megaflows.revalidate(
            |key, mask, number| {
                let now = translate::translate(tables, key, ports);
                let was = verdicts.get(number);
                now.mask.and_not(mask).is_zero()
                    && now.program[..] == was.program[..]
                    && now.drop == was.drop
            },
            |number| released.push(number),
        );
        self.forget(released);
        (out, gone)
    }

    /// Removes megaflows that no packet has used for longer than `idle_ms`; returns how many.
    pub fn expire(&mut self, now_ms: u32, idle_ms: u32) -> usize {
        let mut released = Vec::new();
        let gone = self.megaflows.expire(now_ms, idle_ms, |number| released.push(number));
        self.forget(released);
        gone
    }

    /// Empties tiers 1 and 2; the next packets ask the classifier again.
    pub fn flush(&mut self) {
        let mut released = Vec::new();
        self.megaflows.revalidate(|_, _, _| false, |number| released.push(number));
        released.into_iter().for_each(|number| self.verdicts.release(number));
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
    }

    /// After megaflows went: gives their verdicts back and takes their signatures out.
    fn forget(&mut self, released: Vec<u32>) {
        if released.is_empty() {
            return;
        }
        for number in released {
            self.verdicts.release(number);
        }
        let megaflows = &self.megaflows;
        if let Some(cache) = &mut self.cache {
            cache.retain(&mut |_, id| megaflows.is_live(id));
        }
    }

    /// The rules.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Tier 1, if there is one.
    pub fn cache(&self) -> Option<&dyn SignatureCache> {
        self.cache.as_deref()
    }

    /// Tier 2.
    pub fn megaflows(&self) -> &MegaflowCache {
        &self.megaflows
    }

    /// Different action programs that the megaflows have: at most one each.
    pub fn programs(&self) -> usize {
        self.verdicts.len()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            packets: self.packets,
            microflow: self.cache.as_ref().map(|c| *c.counters()).unwrap_or_default(),
            megaflow: *self.megaflows.counters(),
            classifier_lookups: self.classifier_lookups,
            drops: self.drops,
        }
    }

    /// Sets all counters to zero and leaves the caches as they are.
    pub fn reset_counters(&mut self) {
        self.packets = 0;
        self.classifier_lookups = 0;
        self.drops = [0; DropReason::COUNT];
        self.megaflows.reset_counters();
        if let Some(cache) = &mut self.cache {
            cache.reset_counters();
        }
    }
}
