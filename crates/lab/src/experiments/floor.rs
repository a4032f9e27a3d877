//! The floor: what one random line per key costs, and how close each design's probe comes to it.
//!
//! All keys are hits (α = 0.5, each flow shown once), so a probe is one pass over the burst that
//! fetches, compares and reads a value, and the gather kernel one pass that only fetches. Keys,
//! bursts, memory and kind of pages are the same.

use std::hint::black_box;
use std::time::Instant;

use crate::experiment::{Check, Context, Experiment, LabError, Plot, Record, Series, Table};
use crate::micro::gather::{Footing, Gather, times};
use crate::micro::keys::Keys;
use crate::micro::{self, Cell, DESIGNS, Measured, Plan, Row, Spread, measure_all, size_name, tsc};
use crate::recommended::RECOMMENDED;
use crate::workload::FlowStream;
use overbank::cache::HugePages;

/// The floor.
pub const FLOOR: Experiment = Experiment {
    name: "floor",
    title: "batched lookup hits against a kernel that only gathers lines",
    source: "beyond the paper",
    run,
};

/// How many times the floor a batched lookup hit may cost.
const TARGET: f64 = 1.6;

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
    let cells: Vec<Cell> = mib.iter().map(|&mib| Cell::mib(mib, 0.5, 0.0)).collect();
    let mut names = DESIGNS.to_vec();
    if !names.contains(&RECOMMENDED) {
        names.push(RECOMMENDED);
    }
    let designs = micro::designs(&names)?;
    let plan = |_: &Cell| Plan {
        warm_per_flow: 0.0,
        warm_max: 0,
        keys: if smoke { 1 << 13 } else { 1 << 19 },
        trial: 0,
        rounds: if smoke { 2 } else { 7 },
        penalty_cycles: 0.0,
    };
    let all = measure_all(context, (0.1, 1.0), &cells, &designs, plan, cycles_per_ns)?;

    let mut record = Record::new((FLOOR.name, FLOOR.title, FLOOR.source), context);
    record.settings = vec![
        ("keys of a round".into(), plan(&cells[0]).keys.to_string()),
        ("TSC".into(), format!("{cycles_per_ns:.3} GHz")),
        ("instruction set".into(), overbank::cache::Isa::best().to_string()),
        ("share of hits".into(), "α = 0.5: all but the conflicts of narrow designs".into()),
    ];
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    let in_mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let floors: Vec<&Gathered> = gathered.iter().filter(|g| g.is_floor(&all)).collect();
    let mut series = vec![Series {
        name: "gather kernel".into(),
        points: floors.iter().map(|g| (in_mib(g.bytes), g.ns.median)).collect(),
        ranges: floors.iter().map(|g| g.ns.range()).collect(),
        model: true,
    }];
    series.extend(names.iter().enumerate().map(|(i, name)| {
        Series {
            name: (*name).to_owned(),
            points: all
                .iter()
                .map(|m| (in_mib(m.cell.entries * micro::SLOT_BYTES), m.rows[i].probe_ns.median))
                .collect(),
            ranges: all.iter().map(|m| m.rows[i].probe_ns.range()).collect(),
            model: false,
        }
    }));
    record.plots.push(Plot {
        title: "batched probe, all hits".into(),
        x: "table, MiB".into(),
        y: "ns per key".into(),
        log_x: true,
        log_y: true,
        series,
        stated: Vec::new(),
    });
    record.tables.push(Table {
        title: "The gather kernel".into(),
        headings: ["memory", "huge pages", "ns per key", "lowest", "highest"]
            .map(str::to_owned)
            .to_vec(),
        rows: gathered
            .iter()
            .map(|g| {
                let mut row = vec![size_name(g.bytes), g.pages.to_string()];
                row.extend([g.ns.median, g.ns.low, g.ns.high].map(|ns| format!("{ns:.2}")));
                row
            })
            .collect(),
    });
    let mut headings = vec!["design".to_owned()];
    headings.extend(all.iter().map(|m| m.cell.size()));
    let mut rows = vec![vec!["gather kernel, same keys".to_owned()]];
    rows[0].extend(all.iter().map(|m| format!("{:.2}", m.floor_ns.median)));
    for (kind, lookup) in [("probe", false), ("verified lookup", true)] {
        rows.extend(names.iter().enumerate().map(|(i, name)| {
            let mut row = vec![format!("{name}, {kind}")];
            row.extend(all.iter().map(|m| {
                let r = &m.rows[i];
                let ns = if lookup { r.lookup_ns } else { r.probe_ns };
                format!("{:.2} ({})", ns.median, times(m.to_floor(r, ns.median)))
            }));
            row
        }));
    }
    record.tables.push(Table {
        title: "ns per key (as a multiple of the gather kernel on the same keys)".into(),
        headings,
        rows,
    });
    let mut differ = Vec::new();
    if !smoke {
        record.checks = all.iter().filter_map(check).collect();
        differ = all.iter().filter_map(why_not).collect();
    }
    record.notes = vec![
        "The kernel loads a hash, computes a line's number, prefetches it, and in a second pass over \
         the burst adds one word of it. A probe does that and compares fingerprints, finds the slot \
         and loads its value; geometries that read two lines need twice the memory traffic, which \
         shows once the table is past the last-level cache."
            .into(),
    ];
    record.notes.extend(micro::without_floor(&all));
    record.notes.append(&mut differ);
    Ok(record)
}

/// The target of a cell; `None` where the kernel is no floor of our table.
fn check(m: &Measured) -> Option<Check> {
    let ours = m.row(RECOMMENDED)?;
    let ratio = m.to_floor(ours, ours.probe_ns.median)?;
    Some(Check {
        claim: format!("{RECOMMENDED}, {}: batched lookup hit to floor", m.cell.size()),
        stated: format!("at most {TARGET}"),
        measured: format!("{ratio:.2}"),
        holds: ratio <= TARGET,
    })
}

/// Why the recommended design is past the target in a cell, if it is: figures of this run.
fn why_not(m: &Measured) -> Option<String> {
    if check(m)?.holds {
        return None;
    }
    let (ours, floor) = (m.row(RECOMMENDED)?.probe_ns.median, m.floor_ns.median);
    let rows = m.rows.iter().filter(|row| m.has_floor(row));
    let best = rows.min_by(|a, b| a.probe_ns.median.total_cmp(&b.probe_ns.median))?;
    Some(format!(
        "{}: past the target. The kernel takes {floor:.2} ns a key, and the probe {:.2} ns more; the \
         cheapest probe of any design here is that of {} with {:.2} ns more (×{:.2}). Where memory is \
         near, the kernel hardly waits, and what it costs to compare fingerprints and to choose a slot \
         is a large multiple of little; where it is far, a second line counts.",
        m.cell.size(),
        ours - floor,
        best.design,
        best.probe_ns.median - floor,
        best.probe_ns.median / floor,
    ))
}

/// The gather kernel alone.
struct Gathered {
    bytes: usize,
    pages: HugePages,
    /// Nanoseconds per key.
    ns: Spread,
}

impl Gathered {
    /// Whether it is a floor of some table of its size, if there is one: its curve is drawn among theirs.
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

/// The gather kernel on `bytes` of memory, over seven rounds of new keys.
fn gather_ns(bytes: usize, keys: usize, seed: u64) -> Result<Gathered, LabError> {
    let failed = |error: String| LabError::Failed(error);
    let gather = Gather::new(bytes)
        .ok_or_else(|| failed(format!("not enough memory for {}", size_name(bytes))))?;
    let mut stream = FlowStream::uniform(u32::MAX, seed).map_err(|e| failed(e.to_string()))?;
    let mut drawn = Keys::default();
    let mut rounds = Vec::new();
    for _ in 0..7 {
        drawn.draw(&mut stream, keys);
        let (lead_in, timed) = drawn.hashes.split_at(keys / 4);
        black_box(gather.touch(lead_in));
        let times = timed.chunks(4096).map(|hashes| {
            let start = Instant::now();
            black_box(gather.touch(hashes));
            start.elapsed().as_secs_f64() * 1e9 / hashes.len() as f64
        });
        rounds.push(Spread::of(times.collect()).median);
    }
    Ok(Gathered { bytes, pages: gather.huge_pages(), ns: Spread::of(rounds) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::grid::made_up;

    #[test]
    fn past_the_target_it_says_why() {
        let row = |name: &str, ns| Row {
            design: name.parse().unwrap(),
            hit_rate: 1.0,
            probe_ns: Spread { median: ns, ..Spread::default() },
            lookup_ns: Spread::default(),
            whole_ns: Spread::default(),
            throughput: Spread::default(),
            trial: 0.0,
            huge_pages: HugePages::Yes,
        };
        let measured = |ours| Measured {
            cell: Cell::mib(4.0, 0.5, 0.0),
            rows: vec![row("set-4", 3.0), row(RECOMMENDED, ours)],
            floor_ns: Spread { median: 2.0, ..Spread::default() },
            floor_pages: HugePages::Yes,
            warmed: 0.0,
        };
        assert_eq!(why_not(&measured(3.2)), None);
        let why = why_not(&measured(4.0)).unwrap();
        for part in
            ["4 MiB: past", "takes 2.00 ns", "2.00 ns more", "set-4 with 1.00 ns more (×1.50)"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
        let mut other = measured(4.0);
        other.rows[0].huge_pages = HugePages::No;
        let why = why_not(&other).unwrap();
        assert!(why.contains(&format!("{RECOMMENDED} with 2.00 ns")), "set-4 has no floor: {why}");
    }

    #[test]
    fn a_floor_on_other_pages_is_not_judged_by() {
        let rows = [("set-4", (1.0, 3.0, 1.0)), (RECOMMENDED, (1.0, 3.0, 1.0))];
        let mut m = made_up::measured(Cell::mib(4.0, 0.5, 0.0), 2.0, &rows);
        assert!(check(&m).unwrap().holds);
        for row in &mut m.rows {
            row.probe_ns.median = 4.0;
        }
        assert!(!check(&m).unwrap().holds && why_not(&m).is_some());
        m.floor_pages = HugePages::No;
        assert!(check(&m).is_none() && why_not(&m).is_none());
        m.floor_pages = HugePages::Yes;
        m.rows[0].huge_pages = HugePages::No;
        assert!(check(&m).is_some(), "the other table's pages do not matter");

        // The kernel alone, on as much memory as the tables, and on more.
        let of = |mib: usize, pages| Gathered { bytes: mib << 20, pages, ns: Spread::default() };
        let all = [m];
        assert!(of(4, HugePages::Yes).is_floor(&all) && of(4, HugePages::No).is_floor(&all));
        assert!(!of(4, HugePages::Unknown).is_floor(&all));
        assert!(of(8, HugePages::Unknown).is_floor(&all));
    }
}
