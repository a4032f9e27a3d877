//! The floor: what one random line per key costs, and how close each design's probe comes to it.
//!
//! All keys are hits (α = 0.5, each flow shown once), so a probe is one pass over the burst that
//! fetches, compares and reads a value, and the gather kernel one pass that only fetches. Keys,
//! bursts, memory and kind of pages are the same.

use std::hint::black_box;
use std::time::Instant;

use crate::experiment::{Check, Context, Experiment, LabError, Plot, Record, Series, Table};
use crate::micro::gather::Gather;
use crate::micro::keys::Keys;
use crate::micro::{self, Cell, DESIGNS, Measured, Plan, Spread, measure_all, size_name, tsc};
use crate::recommended::RECOMMENDED;
use crate::workload::FlowStream;

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
        gathered.push((bytes, gather_ns(bytes, keys, context.seed)?));
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
    let mut series = vec![Series {
        name: "gather kernel".into(),
        points: gathered.iter().map(|(bytes, ns)| (in_mib(*bytes), ns.median)).collect(),
        ranges: gathered.iter().map(|(_, ns)| ns.range()).collect(),
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
        headings: ["memory", "ns per key", "lowest", "highest"].map(str::to_owned).to_vec(),
        rows: gathered
            .iter()
            .map(|(bytes, ns)| {
                let mut row = vec![size_name(*bytes)];
                row.extend([ns.median, ns.low, ns.high].map(|ns| format!("{ns:.2}")));
                row
            })
            .collect(),
    });
    let mut headings = vec!["design".to_owned()];
    headings.extend(all.iter().map(|m| m.cell.size()));
    let cell = |ns: f64, floor: f64| format!("{ns:.2} (×{:.2})", ns / floor);
    let mut rows = vec![vec!["gather kernel, same keys".to_owned()]];
    rows[0].extend(all.iter().map(|m| format!("{:.2}", m.floor_ns.median)));
    for (kind, lookup) in [("probe", false), ("verified lookup", true)] {
        rows.extend(names.iter().enumerate().map(|(i, name)| {
            let mut row = vec![format!("{name}, {kind}")];
            row.extend(all.iter().map(|m| {
                let r = &m.rows[i];
                let ns = if lookup { r.lookup_ns } else { r.probe_ns };
                cell(ns.median, m.floor_ns.median)
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
        record.checks = all
            .iter()
            .filter_map(|m| {
                let ratio = m.row(RECOMMENDED)?.probe_ns.median / m.floor_ns.median;
                Some(Check {
                    claim: format!("{RECOMMENDED}, {}: batched lookup hit to floor", m.cell.size()),
                    stated: format!("at most {TARGET}"),
                    measured: format!("{ratio:.2}"),
                    holds: ratio <= TARGET,
                })
            })
            .collect();
        differ = all.iter().filter_map(why_not).collect();
    }
    record.notes = vec![
        "The kernel loads a hash, computes a line's number, prefetches it, and in a second pass over \
         the burst adds one word of it. A probe does that and compares fingerprints, finds the slot \
         and loads its value; geometries that read two lines need twice the memory traffic, which \
         shows once the table is past the last-level cache."
            .into(),
    ];
    record.notes.append(&mut differ);
    Ok(record)
}

/// Why the recommended design is past the target in a cell, if it is: figures of this run.
fn why_not(m: &Measured) -> Option<String> {
    let (ours, floor) = (m.row(RECOMMENDED)?.probe_ns.median, m.floor_ns.median);
    if ours / floor <= TARGET {
        return None;
    }
    let best = m.rows.iter().min_by(|a, b| a.probe_ns.median.total_cmp(&b.probe_ns.median))?;
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

/// Nanoseconds per key of the gather kernel on `bytes` of memory, over seven rounds of new keys.
fn gather_ns(bytes: usize, keys: usize, seed: u64) -> Result<Spread, LabError> {
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
    Ok(Spread::of(rounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::Row;
    use overbank::cache::HugePages;

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
            warmed: 0.0,
        };
        assert_eq!(why_not(&measured(3.2)), None);
        let why = why_not(&measured(4.0)).unwrap();
        for part in
            ["4 MiB: past", "takes 2.00 ns", "2.00 ns more", "set-4 with 1.00 ns more (×1.50)"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}
