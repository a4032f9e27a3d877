//! One contestant at work: its datapath, its place in the traffic, what it counted and how long it
//! took.

use super::digests::Digests;
use super::feed::{CHUNK, Feed, Source};
use super::record::{DesignRecord, PortTally, Totals};
use super::split::Split;
use super::txlog::TxLog;
use super::{Contestant, OutputFrames, Plan, ReplayError};
use overbank::cache::{DynCache, Probes};
use overbank::hash::Hash64;
use overbank::memory::HugePages;
use overbank_kit::spread::{Spread, median};
use overbank_ports::queue;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Frame, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::BURST;
use overbank_switch::translate::Tables;
use overbank_wire::{FlowKey, extract};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
/// Chunks whose lookups are timed alone.
const LOOKUP_CHUNKS: usize = 64;

/// Megaflows unused for longer than this, by the traffic's clock, are removed.
const IDLE_MS: u32 = 10_000;
/// Time between two looks for idle megaflows.
const SWEEP_MS: u32 = 1_000;
pub(super) struct Runner<'a> {
    pub(super) contestant: Contestant,
    pub(super) datapath: Datapath,
    pub(super) feed: Feed<'a>,
    pub(super) log: TxLog,
    pub(super) swept_ms: u32,
    pub(super) first_pass: Totals,
    pub(super) digests: Digests,
    pub(super) ports: BTreeMap<u32, PortTally>,
    pub(super) rounds_ns: Vec<f64>,
    pub(super) split: Split,
}

impl Runner<'_> {
    /// Processes a chunk; returns its packets and how long the datapath had them.
    pub(super) fn chunk(
        &mut self,
        most: u64,
        per_burst: bool,
        mut output: Option<&mut OutputFrames<'_>>,
    ) -> Result<(u64, Duration), ReplayError> {
        let most = usize::try_from(most).unwrap_or(CHUNK).min(CHUNK);
        let chunk = self.feed.chunk(most);
        self.log.clear();
        let frames = &chunk.frames[..];
        // Not timed: by the traffic's clock it is due once a second, and a replay lets seconds pass
        // in microseconds.
        if chunk.now_ms.wrapping_sub(self.swept_ms) >= SWEEP_MS {
            self.datapath.expire(chunk.now_ms.into(), IDLE_MS);
            self.swept_ms = chunk.now_ms;
        }
        let now_ms = u64::from(chunk.now_ms);
        let start = Instant::now();
        if per_burst {
            time_bursts(&mut self.datapath, frames, now_ms, &mut self.log, &mut self.split);
        } else {
            // As a worker of the running switch gets them from a port.
            for (nth, received) in frames.chunks(queue::BURST).enumerate() {
                let mut log = Shifted(&mut self.log, nth * queue::BURST);
                self.datapath.process_mixed(received, now_ms, &mut log);
            }
        }
        let took = start.elapsed();
        let (first, count) = (chunk.first, frames.len() as u64);
        self.log.tally(&mut self.ports);
        self.digests.push(first, count, self.log.digest(frames, first));
        if let Some(output) = &mut output {
            for (index, port, bytes) in self.log.outputs(frames) {
                output(port, chunk.timestamp_ns(index), bytes)?;
            }
        }
        Ok((count, took))
    }

    /// Returns the nanoseconds of a lookup in tier 1 alone, in bursts, without the check of what it
    /// found: median over chunks of the traffic that comes next. `None` without tier 1.
    pub(super) fn time_lookups(&mut self) -> Option<f64> {
        let cache = self.datapath.cache()?;
        let times: Vec<f64> = (0..LOOKUP_CHUNKS)
            .filter_map(|_| time_lookups(cache, &self.feed.chunk(CHUNK).frames))
            .collect();
        (!times.is_empty()).then(|| median(times))
    }

    /// Returns the counts since the last call.
    pub(super) fn take_totals(&mut self) -> Totals {
        let counters = self.datapath.counters();
        let occupied = self.datapath.cache().map_or(0, |c| c.len());
        let megaflows = self.datapath.megaflows();
        let totals =
            Totals::new(&counters, occupied, megaflows.len(), megaflows.masks(), &self.ports);
        self.datapath.reset_counters();
        self.ports.clear();
        totals
    }
}

/// Returns the nanoseconds of a lookup of one of these frames; `None` for less than a burst.
fn time_lookups(cache: &dyn DynCache, frames: &[Frame<'_>]) -> Option<f64> {
    let mut key = FlowKey::default();
    let hash = |frame: &Frame<'_>| {
        extract(frame.bytes, frame.in_port, &mut key)
            .ok()
            .map(|_| Hash64::new(key.microflow_hash()))
    };
    let hashes: Vec<Hash64> = frames.iter().filter_map(hash).collect();
    let bursts = hashes.chunks_exact(BURST);
    let count = bursts.len() * BURST;
    let mut probes = Probes::new();
    let start = Instant::now();
    for burst in bursts {
        cache.probe_batch(burst, &mut probes);
        std::hint::black_box(&probes);
    }
    let took = start.elapsed();
    (count > 0).then(|| took.as_nanos() as f64 / count as f64)
}

/// A log of frames that are processed a few at a time: counts them on.
struct Shifted<'l>(&'l mut TxLog, usize);
impl Sink for Shifted<'_> {
    #[inline]
    fn output(&mut self, index: usize, port: u32, frame: &[u8], edited: bool) {
        self.0.output(self.1 + index, port, frame, edited);
    }
    #[inline]
    fn drop(&mut self, index: usize, reason: DropReason) {
        self.0.drop(self.1 + index, reason);
    }
}

/// Processes frames with a clock around every full burst.
fn time_bursts(
    datapath: &mut Datapath,
    frames: &[Frame<'_>],
    now_ms: u64,
    log: &mut TxLog,
    split: &mut Split,
) {
    let misses = |datapath: &Datapath| {
        datapath.cache().map_or(0, |c| c.counters().lookups - c.counters().hits)
    };
    for (nth, burst) in frames.chunks(BURST).enumerate() {
        let before = misses(datapath);
        let start = Instant::now();
        datapath.process_mixed(burst, now_ms, &mut Shifted(log, nth * BURST));
        let ns = start.elapsed().as_nanos() as f64;
        // The first burst of a chunk pays for what ran before it.
        if burst.len() == BURST && nth > 0 {
            split.add(misses(datapath) - before, ns);
        }
    }
}

pub(super) fn runner<'a>(
    plan: &Plan,
    contestant: Contestant,
    source: &Source<'a>,
    tables: &Tables,
) -> Result<Runner<'a>, ReplayError> {
    let cache = match contestant {
        Contestant::None => None,
        Contestant::Cache(design) => {
            Some(CacheConfig { design, entries: plan.entries, isa: plan.isa })
        }
        Contestant::CacheOn(design, isa) => {
            Some(CacheConfig { design, entries: plan.entries, isa: Some(isa) })
        }
    };
    let ports = plan.ports.iter().map(|&port| port.into()).collect();
    let config = Config { cache, megaflows: plan.megaflows, ports, seed: plan.seed };
    let datapath = Datapath::new(&config, tables.clone())
        .map_err(|reason| ReplayError::Config { design: contestant.to_string(), reason })?;
    Ok(Runner {
        contestant,
        datapath,
        feed: Feed::new(source),
        log: TxLog::default(),
        swept_ms: 0,
        first_pass: Totals::default(),
        digests: Digests::default(),
        ports: BTreeMap::new(),
        rounds_ns: Vec::new(),
        split: Split::default(),
    })
}

pub(super) fn describe(runner: &Runner<'_>, totals: Totals, digest: &str) -> DesignRecord {
    let rounds = &runner.rounds_ns;
    let ns = (!rounds.is_empty()).then(|| Spread::of(rounds.iter().copied()));
    let ns_per_packet = ns.map(|ns| ns.median);
    let mpps = |ns: f64| 1e3 / ns;
    let costs = match runner.contestant {
        Contestant::None => None,
        Contestant::Cache(_) | Contestant::CacheOn(..) => runner.split.costs(BURST),
    };
    let cache = runner.datapath.cache();
    DesignRecord {
        design: runner.contestant.to_string(),
        mpps: ns_per_packet.map(mpps),
        mpps_min: ns.map(|ns| mpps(ns.high)),
        mpps_max: ns.map(|ns| mpps(ns.low)),
        ns_per_packet,
        rounds_ns: rounds.clone(),
        ns_hit: costs.map(|c| c.hit_ns),
        ns_miss: costs.and_then(|c| c.miss_ns),
        ns_lookup: None,
        hit_rate: totals.hit_rate(),
        digest: digest.to_owned(),
        table_bytes: cache.map_or(0, |c| c.memory_bytes()),
        huge_pages: cache.map_or(HugePages::No, |c| c.huge_pages()).to_string(),
        slots: cache.map_or(0, |c| c.capacity()),
        instruction_set: cache.map_or("none".to_owned(), |c| c.isa().to_string()),
        totals,
        first_pass: runner.first_pass.clone(),
    }
}
