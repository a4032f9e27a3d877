//! The floor: what one random line per key costs, and how close each design's probe and verified
//! lookup come to it. Each flow is shown once, then all are looked up, at two loads ([`NOTES`]);
//! keys, bursts, memory and kind of pages are the same for all.

use crate::prelude::*;
use overbank::cache::BURST;
use overbank::memory::HugePages;
use overbank_kit::micro::gather::{Footing, Gather, times};
use overbank_kit::micro::keys::Keys;
use overbank_kit::micro::{
    self, Cell, DESIGNS, Measured, Plan, Round, Row, Way, measure_all, ns_per_key, size_name, tsc,
};
use std::hint::black_box;

pub const FLOOR: Experiment = Experiment {
    name: "floor",
    title: "batched probes and verified lookups against a kernel that only gathers lines",
    source: "beyond the paper",
    run,
};

const ALPHAS: [f64; 2] = [0.5, 0.95];

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    way: Way,
    ns: fn(&Round) -> f64,
}

impl Kind {
    fn spread(&self, row: &Row) -> Spread {
        Spread::of(row.rounds.iter().map(self.ns))
    }
}

const PROBE: Kind = Kind { name: "batched probe", way: Way::Alone, ns: |round| round.probe_ns };
const LOOKUP: Kind = Kind { name: "verified lookup", way: Way::Alone, ns: |round| round.lookup_ns };
const KINDS: [Kind; 4] = [
    PROBE,
    LOOKUP,
    Kind { name: "batched probe, ahead", way: Way::Ahead, ..PROBE },
    Kind { name: "verified lookup, ahead", way: Way::Ahead, ..LOOKUP },
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let cycles_per_ns = tsc::cycles_per_ns();
    let mib: &[f64] = if smoke { &[0.125, 1.0] } else { &[4.0, 16.0, 64.0, 256.0, 1024.0] };
    let keys = if smoke { 1 << 13 } else { 1 << 20 };
    let mut gathered = Vec::new();
    for (i, &mib) in mib.iter().enumerate() {
        let bytes = (mib * f64::from(1 << 20)) as usize;
        context.step(&format!("gather, {}", size_name(bytes)), 0.1 * i as f64 / 5.0)?;
        gathered.push(gather_ns(bytes, keys, context.seed)?);
    }

    let mib: &[f64] = if smoke { &[0.125] } else { &[4.0, 16.0, 64.0, 256.0] };
    let cells = pairs(mib, &ALPHAS).into_iter().map(|(mib, alpha)| Cell::mib(mib, alpha, 0.0));
    let cells: Vec<Cell> = cells.collect();
    let designs = |_: &Cell| micro::designs(DESIGNS);
    let plan = |_: &Cell| Plan {
        warm_per_flow: 0.0,
        warm_max: 0,
        keys: if smoke { 1 << 13 } else { 1 << 19 },
        trial: 0,
        rounds: if smoke { 2 } else { 7 },
        penalty_cycles: 0.0,
        ahead: true,
    };
    let all = measure_all(context, (0.1, 1.0), &cells, designs, plan, cycles_per_ns)?;

    let mut record = FLOOR.record(context);
    let l2 = overbank::prefetch::l2_bytes();
    record.settings([
        ("keys of a round".to_owned(), plan(&cells[0]).keys.to_string()),
        ("TSC".to_owned(), format!("{cycles_per_ns:.3} GHz")),
        isa(),
        ("L2 cache".to_owned(), size_name(l2)),
    ]);
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    let floors: Vec<&Gathered> = gathered.iter().filter(|g| g.is_floor(&all)).collect();
    for alpha in ALPHAS {
        let at: Vec<&Measured> = all.iter().filter(|m| m.cell.alpha == alpha).collect();
        record.plots.extend(KINDS.map(|kind| plot(&at, &floors, kind)));
    }
    record.tables.push(Table::of(
        "The gather kernel",
        &gathered,
        &[
            ("memory", &|g| size_name(g.bytes)),
            ("huge pages", &|g| g.pages.to_string()),
            ("ns per key", &|g| format!("{:.2}", g.ns.median)),
            ("lowest", &|g| format!("{:.2}", g.ns.low)),
            ("highest", &|g| format!("{:.2}", g.ns.high)),
        ],
    ));
    let cells = all.iter().map(|m| format!("{}, α = {}", m.cell.size(), m.cell.alpha));
    let title = "ns per key (as a multiple of the gather kernel in the same round)";
    let mut table = Table::new(title, ["design".to_owned()].into_iter().chain(cells));
    let mut row = |name: String, cell: &dyn Fn(&Measured) -> String| {
        table.row([name].into_iter().chain(all.iter().map(cell)));
    };
    row("gather kernel, same keys".to_owned(), &|m| format!("{:.2}", m.floor_ns.median));
    for (kind, (i, name)) in
        KINDS.iter().flat_map(|k| DESIGNS.iter().enumerate().map(move |d| (k, d)))
    {
        row(format!("{name}, {}", kind.name), &|m| {
            let of = &m.rows_of(kind.way)[i];
            let multiple = m.to_floor(of, kind.ns).map(|multiple| multiple.median);
            format!("{:.2} ({})", kind.spread(of).median, times(multiple))
        });
    }
    for (i, name) in DESIGNS.iter().enumerate() {
        row(format!("{name}, hit rate"), &|m| percent(m.rows[i].hit_rate, 2));
    }
    record.tables.push(table);
    claims(&mut record, &all, l2);
    record.notes = NOTES.map(str::to_owned).into();
    record.notes.extend(micro::without_floor(&all));
    Ok(record)
}

const NOTES: [&str; 2] = [
    "The kernel loads a hash, computes a line's number, prefetches it, and in a second pass over \
     the burst adds one word of it; it runs alone and ahead, and the cheaper way of a round is the \
     floor. A probe also compares fingerprints, finds the slot and loads its value; a verified \
     lookup compares that with the key's and reports the hit to the policy. Ahead: each burst asks \
     for the lines of the next one.",
    "At α = 0.5 nearly all keys are hits. At α = 0.95 the table is nearly full, where the \
     recommended design reads two lines of many keys, and some keys miss: the table has the share \
     of hits.",
];

/// Why a multiple may be past the target.
const PAST: &str = "Where memory is near, the kernel hardly waits, and what it costs to compare \
    fingerprints and to choose a slot is a large multiple of little; where it is far, a second \
    line counts. The table has every design's multiple.";

/// Draws all designs and the kernel over the size of the table.
fn plot(at: &[&Measured], floors: &[&Gathered], kind: Kind) -> Plot {
    let in_mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let kernel = Series::rounds("gather kernel", floors.iter().map(|g| (in_mib(g.bytes), g.ns)));
    let curves = DESIGNS.iter().enumerate().map(|(i, name)| {
        let point = |m: &&Measured| {
            let mib = in_mib(m.cell.entries * micro::SLOT_BYTES);
            (mib, kind.spread(&m.rows_of(kind.way)[i]))
        };
        Series::rounds(*name, at.iter().map(point))
    });
    let alpha = at[0].cell.alpha;
    let plot = Plot::new(format!("{}, α = {alpha}", kind.name), "table, MiB", "ns per key");
    plot.log_x().log_y().with([Series { model: true, ..kernel }]).with(curves)
}

/// Judges what the targets rest on, that keys are hits, at any size; and, past the L2 cache and
/// where the kernel is a floor of our table, how many times that floor a probe or a verified lookup
/// may cost.
fn claims(record: &mut Record, all: &[Measured], l2: usize) {
    let place = |m: &Measured, past: &str| {
        format!("{RECOMMENDED}, {}{past}, α = {}", m.cell.size(), m.cell.alpha)
    };
    for (m, ours) in all.iter().filter_map(|m| Some((m, m.row(RECOMMENDED)?))) {
        let (least, hits) = (if m.cell.alpha > 0.9 { 0.97 } else { 0.999 }, ours.hit_rate);
        let stated = format!("at least {} %", 100.0 * least);
        record.claim(
            format!("{}: hit rate", place(m, "")),
            stated,
            percent(hits, 2),
            hits >= least,
        );
    }
    let is_past = |m: &&Measured| m.cell.entries.saturating_mul(micro::SLOT_BYTES) > l2;
    let full = record.size == Size::Full;
    for (m, kind) in all.iter().filter(is_past).flat_map(|m| KINDS.map(|kind| (m, kind))) {
        let of = m.row_of(RECOMMENDED, kind.way).filter(|_| full);
        if let Some(floors) = of.and_then(|row| m.to_floor(row, kind.ns)) {
            let claim = format!("{}: {} to the floor", place(m, ", past the L2 cache"), kind.name);
            record.claim(claim, "at most 1.6", floors.text(), floors.median <= 1.6);
            record.because(PAST);
        }
    }
}

struct Gathered {
    bytes: usize,
    pages: HugePages,
    ns: Spread,
}

impl Gathered {
    /// Returns whether it is a floor of some table of its size, if there is one: its curve is drawn
    /// among theirs.
    fn is_floor(&self, all: &[Measured]) -> bool {
        let same = all.iter().filter(|m| m.cell.entries * micro::SLOT_BYTES == self.bytes);
        let mut rows = same.flat_map(|m| &m.rows).peekable();
        let alike = |row: &Row| {
            let &Gathered { bytes, pages: floor, .. } = self;
            Footing { table: row.huge_pages, floor, bytes }.is_alike()
        };
        rows.peek().is_none() || rows.any(alike)
    }
}

/// Measures the gather kernel on `bytes` of memory in seven rounds of new keys; of each the cheaper
/// way, bursts alone or ahead.
fn gather_ns(bytes: usize, keys: usize, seed: u64) -> Result<Gathered, LabError> {
    let gather = Gather::new(bytes)
        .ok_or_else(|| LabError::Failed(format!("not enough memory for {}", size_name(bytes))))?;
    let mut stream = draws(u32::MAX, 0.0, seed)?;
    let mut drawn = Keys::seeded(seed);
    let rounds = (0..7).map(|_| {
        drawn.draw(&mut stream, keys / 4);
        black_box(gather.touch(BURST, Way::Alone, &drawn.hashes));
        drawn.draw(&mut stream, keys - keys / 4);
        let ns = Way::ALL.map(|way| {
            ns_per_key(&drawn, |hashes, _| _ = black_box(gather.touch(BURST, way, hashes)))
        });
        ns[0].min(ns[1])
    });
    Ok(Gathered { bytes, pages: gather.huge_pages(), ns: Spread::of(rounds) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::micro::made_up;

    fn measured(alpha: f64, hits: f64) -> Measured {
        let rows = [("set-4", (1.0, 3.0, 1.0)), (RECOMMENDED, (hits, 3.2, 1.0))];
        let m = made_up::measured(Cell::mib(4.0, alpha, 0.0), 2.0, &rows);
        Measured { ahead: m.rows.clone(), ..m }
    }

    fn judged(m: &Measured, l2: usize) -> Vec<bool> {
        let mut record = full_record(&FLOOR);
        claims(&mut record, std::slice::from_ref(m), l2);
        record.checks.iter().map(|check| check.holds).collect()
    }

    /// Hits, and probe and lookup, alone and ahead, each by its figure.
    #[test]
    fn each_is_judged_by_its_name() {
        for (alpha, least) in [(0.5, 0.999), (0.95, 0.97)] {
            assert!(judged(&measured(alpha, least), 0)[0]);
            assert!(!judged(&measured(alpha, least - 0.0001), 0)[0]);
        }
        let good = measured(0.95, 1.0);
        assert_eq!(judged(&good, 2 << 20), [true; 5]);
        assert_eq!(judged(&good, 4 << 20), [true], "a table as large as the cache is not past it");
        for kind in 0..KINDS.len() {
            let mut m = good.clone();
            let row = if kind < 2 { &mut m.rows[1] } else { &mut m.ahead[1] };
            let round = &mut row.rounds[0];
            *if kind % 2 == 0 { &mut round.probe_ns } else { &mut round.lookup_ns } = 3.3;
            let failed = judged(&m, 0)[1..].iter().position(|holds| !holds);
            assert_eq!(failed, Some(kind));
        }
    }

    #[test]
    fn a_floor_on_other_pages_is_not_judged_by() {
        let mut m = measured(0.95, 1.0);
        m.rows[0].huge_pages = HugePages::No;
        assert_eq!(judged(&m, 0).len(), 5, "the other table's pages do not matter");
        // The kernel alone, on as much memory as the tables, and on more.
        let of = |mib: usize, pages| Gathered { bytes: mib << 20, pages, ns: Spread::default() };
        let all = [m.clone()];
        assert!(of(4, HugePages::Yes).is_floor(&all) && of(4, HugePages::No).is_floor(&all));
        assert!(!of(4, HugePages::Unknown).is_floor(&all));
        assert!(of(8, HugePages::Unknown).is_floor(&all));
        m.floor_pages = HugePages::No;
        assert_eq!(judged(&m, 0).len(), 1);
    }
}
