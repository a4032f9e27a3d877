//! One point: build, warm up, measure, report.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result, bail};
use overbank_sdc::{Counters, FEW, Machine, SLOTS, Shape, SlotView, Times, WayView, used_slots};
use overbank_watched::front::FalseHit;
use overbank_watched::item::WORD;
use overbank_watched::store::{Store, System, store};
use serde::Serialize;

use crate::arguments::{Run, name};
use crate::client::Client;
use crate::clock::Clock;
use crate::held::Held;
use crate::keys::{self, Keys, Op, Ycsb};
use crate::{arena, fixed, hooks};

/// The error of the plain build.
pub const NO_HOOKS: &str = "built without hooks: build it by `cargo xtask workloads`";

/// What is printed.
#[derive(Serialize)]
struct Report<'a> {
    index: String,
    system: String,
    items: usize,
    subset: usize,
    placement: String,
    lookups: usize,
    warmup: usize,
    /// `replayed`, `fresh`, or the mix of YCSB.
    keys: String,
    theta: f64,
    seed: u64,
    value_bytes: u64,
    /// Bytes of SLB, copies or hints; none for the others.
    table_bytes: Option<usize>,
    /// Items asked for × the bytes of each that a lookup touches: its key and what it reads.
    data_set_bytes: usize,
    /// Different items that were asked for, in the warm-up too.
    touched: usize,
    false_hit: String,
    shape: &'a Shape,
    /// Levels of a tree or items of the longest chain.
    depth: Option<u64>,
    /// Without, counters differ a little from run to run.
    addresses_fixed: bool,
    /// Of the measured requests, as all that follows.
    counters: &'a Counters,
    /// Lookups that the system in front answered.
    hits: u64,
    /// Lookups that ended without an answer (`--false-hit dropped`).
    dropped: u64,
    cycles_per_lookup: Modes,
    lookups_per_second: Modes,
    accesses_per_lookup: f64,
    dram_per_lookup: f64,
    /// A cache of the same keys by CLOCK alone; only with SDC and without writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<Alone>,
    /// Lines of the LLC that SDC holds at the end.
    sdc_lines: usize,
    /// By set, way and slot; only with `--heat`.
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    heat: &'a [u64],
    /// Lines of memory by what they hold; only with `--heat`, and where the index knows its nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    levels: Vec<LevelHeat>,
    /// What the LLC holds at the end; only with `--view`.
    #[serde(skip_serializing_if = "Option::is_none")]
    llc: Option<Held>,
    /// For which this thread was on a core, for the measured requests.
    seconds: f64,
    hooks_per_second: f64,
}

/// Accesses to the lines of memory that one level of a tree, or the items, lie on. A line that two
/// of them share is a line of each, by its slots.
#[derive(Default, Serialize)]
struct LevelHeat {
    /// `level 0` for leaves, `level 1` above them and so on; `items`; `other` for the stack, roots
    /// and what stands in front of the index.
    what: String,
    /// Those that were accessed.
    lines: u64,
    accesses: u64,
    /// Lines of which 3 slots or fewer have a tenth of the accesses of the hottest one at least.
    few: u64,
    /// Accesses to the hottest slot of each line, summed.
    hottest: u64,
}

/// A cache without sets, families and sub-tags, that serves the same requests.
#[derive(Serialize)]
struct Alone {
    /// As many as SDC holds values, the mean of the beginning and the end.
    slots: usize,
    hits: u64,
}

/// A figure for each way of counting cycles.
#[derive(Serialize)]
struct Modes {
    blocking: f64,
    overlap: f64,
    as_evaluated: f64,
}

impl Modes {
    fn of(times: Times, figure: impl Fn(f64) -> f64) -> Self {
        let Times { blocking, overlap, as_evaluated } = times;
        let [blocking, overlap, as_evaluated] = [blocking, overlap, as_evaluated].map(figure);
        Self { blocking, overlap, as_evaluated }
    }
}

/// Runs a point and prints its report.
pub fn run(run: &Run) -> Result<()> {
    let shape = run.shape()?;
    let options = run.store(&shape)?;
    let subset = run.subset(&shape);
    let mut keys = Keys::new(
        run.items as u32,
        subset as u32,
        run.theta,
        run.ycsb.unwrap_or(Ycsb::C),
        run.seed,
    )
    .context("internal error: keys; please report it")?;
    let mut machine = Machine::new(&shape)?;
    let writes = run.ycsb.is_some_and(|mix| mix.writes_percent() > 0);
    let mut point = Point {
        store: arena::within(|| store(&options))?,
        client: Client::new(
            if writes { options.items } else { 0 },
            options.reading,
            run.watch_requests,
        ),
        machine: &mut machine,
        may_drop: run.system.has_sdc() && run.false_hit == FalseHit::Dropped,
        asked: (run.system.has_sdc() && !writes).then(Vec::new),
        touched: vec![false; options.items],
    };
    let order = keys.order(run.placement);
    arena::within(|| {
        order.into_iter().try_for_each(|item| point.store.fill(keys::key(item)))?;
        point.store.ready()
    })?;
    // QEMU has threads beside the program's, and no hooks.
    if hooks::are_there(&shape)? {
        fixed::one_thread()?;
    }
    let measured = point.warm_up(run, &mut keys)?;

    point.machine.restart();
    let values = values(point.machine);
    let start = fixed::core_time();
    point.pass(measured)?;
    let seconds = (fixed::core_time() - start).as_secs_f64();
    let Point { mut store, client, machine, asked, touched, .. } = point;
    let levels = levels(machine, &mut *store, &touched);
    let slots = (values + self::values(machine)) / 2;
    let counters = machine.counters();
    if counters.accesses == 0 {
        bail!(NO_HOOKS);
    }
    let n = run.lookups as f64;
    let times = machine.times();
    let report = Report {
        index: name(&run.index),
        system: name(&run.system),
        items: run.items,
        subset,
        placement: name(&run.placement),
        lookups: run.lookups,
        warmup: run.warmup(),
        keys: match run.ycsb {
            Some(ycsb) => format!("ycsb-{}", name(&ycsb)),
            None => if run.replayed() { "replayed" } else { "fresh" }.to_owned(),
        },
        theta: run.theta,
        seed: run.seed,
        value_bytes: run.value,
        table_bytes: (run.system != System::Regular && !run.system.has_sdc())
            .then_some(options.table_bytes),
        data_set_bytes: subset * WORD * (1 + options.reading.words),
        touched: touched.iter().filter(|touched| **touched).count(),
        false_hit: name(&run.false_hit),
        shape: &shape,
        depth: store.depth(),
        addresses_fixed: fixed::are_fixed(),
        counters,
        hits: client.hits,
        dropped: client.nothing,
        cycles_per_lookup: Modes::of(times, |cycles| cycles / n),
        lookups_per_second: Modes::of(times, |cycles| n * shape.ghz * 1e9 / cycles),
        accesses_per_lookup: counters.accesses as f64 / n,
        dram_per_lookup: counters.dram.reads() as f64 / n,
        clock: asked.map(|asked| alone(&asked, run.lookups, slots, run.items)),
        sdc_lines: machine.sdc_lines(),
        heat: machine.heat(),
        levels,
        llc: run.view.as_ref().map(|view| Held::of(machine, view)),
        seconds,
        hooks_per_second: counters.accesses as f64 / seconds,
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &report).context("cannot write the report")?;
    writeln!(out).context("cannot write the report")
}

/// Returns accesses to lines of memory by level of the index, to items and to the rest; none
/// without heat or nodes.
fn levels(machine: &Machine, store: &mut dyn Store, touched: &[bool]) -> Vec<LevelHeat> {
    if machine.line_heat().is_empty() {
        return Vec::new();
    }
    // First and last slot of each block, and what it is: blocks begin inside lines.
    let mut blocks: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    let mut block = |address: u64, bytes: u64, what: String| {
        blocks.insert(address / WORD as u64, ((address + bytes - 1) / WORD as u64, what));
    };
    let mut nodes = 0;
    store.nodes(&mut |address, bytes, level| {
        nodes += 1;
        block(address, bytes, format!("level {level}"));
    });
    if nodes == 0 {
        return Vec::new();
    }
    for item in (0..).zip(touched).filter_map(|(item, touched)| touched.then_some(item)) {
        if let Some((address, bytes)) = store.item(keys::key(item)) {
            block(address, bytes, "items".to_owned());
        }
    }
    let what = |slot: u64| match blocks.range(..=slot).next_back() {
        Some((_, (last, what))) if slot <= *last => what.as_str(),
        _ => "other",
    };
    let mut levels: BTreeMap<&str, LevelHeat> = BTreeMap::new();
    for (line, slots) in machine.line_heat() {
        let mut parts: BTreeMap<&str, [u64; SLOTS]> = BTreeMap::new();
        for (slot, count) in slots.iter().enumerate().filter(|(_, count)| **count > 0) {
            parts.entry(what(line * SLOTS as u64 + slot as u64)).or_default()[slot] = *count;
        }
        for (what, slots) in parts {
            let of = levels.entry(what).or_default();
            of.lines += 1;
            of.accesses += slots.iter().sum::<u64>();
            of.hottest += slots.iter().max().copied().unwrap_or(0);
            of.few += u64::from(used_slots(&slots) <= FEW);
        }
    }
    let named = |(what, of): (&str, LevelHeat)| LevelHeat { what: what.to_owned(), ..of };
    levels.into_iter().map(named).collect()
}

/// Returns the values that SDC holds, of any length: the last slot of each.
fn values(machine: &Machine) -> usize {
    let ways = (0..).map_while(|set| machine.set_view(set)).flatten();
    let is_last = |slot: &&SlotView| slot.valid && !slot.sequence;
    ways.map(|way| match way {
        WayView::Sdc { slots, .. } => slots.iter().filter(is_last).count(),
        WayView::Empty | WayView::Ordinary { .. } => 0,
    })
    .sum()
}

/// Serves all requests from a cache by CLOCK; counts hits of the last ones.
fn alone(asked: &[Op], measured: usize, slots: usize, items: usize) -> Alone {
    let mut clock = Clock::new(slots, items);
    let hits: Vec<bool> = asked.iter().map(|op| clock.touch(op.item())).collect();
    let last = &hits[hits.len().saturating_sub(measured)..];
    Alone { slots, hits: last.iter().filter(|hit| **hit).count() as u64 }
}

/// What serves requests.
struct Point<'a> {
    store: Box<dyn Store>,
    client: Client,
    machine: &'a mut Machine,
    /// Whether a lookup may end without an answer.
    may_drop: bool,
    /// All requests, for [`alone`].
    asked: Option<Vec<Op>>,
    /// By item, whether it was asked for.
    touched: Vec<bool>,
}

impl Point<'_> {
    /// Serves the warm-up; returns the requests to measure.
    fn warm_up(&mut self, run: &Run, keys: &mut Keys) -> Result<Vec<Op>> {
        let warmup = run.warmup();
        if !run.replayed() {
            // Both first: drawing them later would throw lines out of valgrind's cache.
            let [warm, measured] = [warmup, run.lookups].map(|requests| keys.draw(requests));
            self.touch(&warm);
            self.touch(&measured);
            self.pass(warm)?;
            return Ok(measured);
        }
        // The sequence again and again, so that its end is the warm-up's.
        let sequence = keys.draw(run.lookups);
        self.touch(&sequence);
        self.pass(sequence[run.lookups - warmup % run.lookups..].to_vec())?;
        for _ in 0..warmup / run.lookups {
            self.pass(sequence.clone())?;
        }
        Ok(sequence)
    }

    /// Notes what is asked for.
    fn touch(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.touched[op.item() as usize] = true);
    }

    /// Serves requests with the hooks on; fails if an answer is wrong.
    fn pass(&mut self, ops: Vec<Op>) -> Result<()> {
        let requests = ops.len() as u64;
        if let Some(asked) = &mut self.asked {
            asked.extend_from_slice(&ops);
        }
        let (store, machine) = (&mut self.store, &mut *self.machine);
        self.client.send(ops, || hooks::watched(machine, || arena::within(|| store.serve())))?;
        let Client { answered, nothing, wrong, .. } = self.client;
        if wrong > 0 || answered + nothing != requests || (nothing > 0 && !self.may_drop) {
            bail!(
                "internal error: of {requests} requests {answered} have answers, {wrong} wrong \
                 ones; please report it"
            );
        }
        Ok(())
    }
}
