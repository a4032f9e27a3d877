//! Throughput by the share of writes and their skew (figure 10d), with the paper's protocol beside
//! ours.

use super::racks::r_squared;
use super::*;

pub const KV10D: Experiment = Experiment {
    name: "kv10d",
    title: "Throughput by the share of writes, with our protocol and the paper's",
    source: "NetCache, figure 10d",
    run,
};

const READS: f64 = 0.99;
const THETAS: [f64; 4] = [0.0, 0.9, 0.95, 0.99];
/// Limits of a saturated load are found to 2 %.
const EXACT: f64 = 1.02;

/// A kind of rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Ours,
    Paper,
    /// Ours, and keys that are written often are not cached.
    LeftOut,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::None, "no cache"),
    (Kind::Ours, "ours"),
    (Kind::Paper, "paper's protocol"),
    (Kind::LeftOut, "ours, write-hot keys left out"),
];

/// What a share of writes gave, by kind: answers a second, and microseconds of a write.
struct Of {
    writes: f64,
    by: [(f64, f64); KINDS.len()],
}

impl Of {
    fn rate(&self, kind: Kind) -> f64 {
        self.by[kind as usize].0
    }

    fn ratio(&self, kind: Kind, to: Kind) -> f64 {
        self.rate(kind) / self.rate(to)
    }
}

/// The writes' θ, and what was measured.
struct Writes {
    theta: f64,
    by: Vec<Of>,
}

/// Whether each is at least the one after, up to what saturation is found to.
fn falls(rates: impl Iterator<Item = f64>) -> bool {
    rates.collect::<Vec<f64>>().is_sorted_by(|a, b| *a >= b / (EXACT * EXACT))
}

const CLAIMS: &[Claim<[Writes]>] = &[
    Claim::new(
        "uniform writes: with a cache, throughput falls along a line",
        "linearly",
        |all: &[Writes]| {
            let points = all[0].by.iter().map(|of| (of.writes, of.rate(Kind::Ours)));
            let fit = r_squared(points);
            Finding::new(fit >= 0.98, format!("R² = {fit:.4}"))
        },
    ),
    Claim::new("and without one it rises", "rises", |all: &[Writes]| {
        let rates = all[0].by.iter().rev().map(|of| of.rate(Kind::None));
        let first = all[0].by.first().map_or(0.0, |of| of.rate(Kind::None));
        let last = all[0].by.last().map_or(0.0, |of| of.rate(Kind::None));
        Finding::new(falls(rates), format!("{:.1} × from first to last", last / first))
    }),
    Claim::new(
        "writes by θ = .99, a fifth or more: 0.85 to 1.25 × no cache",
        "similar",
        |all: &[Writes]| {
            let same = all.iter().filter(|of| of.theta == READS).flat_map(|of| &of.by);
            let ratios: Vec<f64> = same
                .filter(|of| of.writes >= 0.2)
                .map(|of| of.ratio(Kind::Ours, Kind::None))
                .collect();
            let holds = ratios.iter().all(|ratio| (0.85..=1.25).contains(ratio));
            Finding::new(holds, listed(&ratios, |ratio| format!("{ratio:.2}")))
        },
    ),
    Claim::new(
        "fewer and less skewed writes gain more",
        "the gap is bigger",
        |all: &[Writes]| {
            let skewed = || all.iter().filter(|of| of.theta > 0.0);
            let by_share =
                skewed().all(|of| falls(of.by.iter().map(|of| of.ratio(Kind::Ours, Kind::None))));
            let at =
                |law: &Writes| law.by.get(1).map_or(0.0, |of| of.ratio(Kind::Ours, Kind::None));
            let gains: Vec<f64> = skewed().map(at).collect();
            let by_skew = falls(gains.iter().copied());
            Finding::new(by_share && by_skew, listed(&gains, |gain| format!("{gain:.2} ×")))
        },
    ),
    Claim::new("ours at least 0.98 × the paper's protocol", "goal", |all: &[Writes]| {
        let each = all.iter().flat_map(|of| &of.by);
        let least = each.map(|of| of.ratio(Kind::Ours, Kind::Paper)).fold(f64::MAX, f64::min);
        Finding::new(least >= 0.98, format!("{least:.3} at least"))
    }),
    Claim::new(
        "no write waits for the device: its mean is the paper's at most",
        "goal",
        |all: &[Writes]| {
            let each = all.iter().flat_map(|of| &of.by).filter(|of| of.writes > 0.0);
            let us = |of: &Of, kind: Kind| of.by[kind as usize].1;
            let most = each.map(|of| us(of, Kind::Ours) / us(of, Kind::Paper)).fold(0.0, f64::max);
            Finding::new(most <= 1.02, format!("{most:.3} × at most"))
        },
    ),
    Claim::new(
        "with write-hot keys left out, never below 0.97 × no cache",
        "goal",
        |all: &[Writes]| {
            let each = all.iter().flat_map(|of| &of.by);
            let least = each.map(|of| of.ratio(Kind::LeftOut, Kind::None)).fold(f64::MAX, f64::min);
            Finding::new(least >= 0.97, format!("{least:.3} at least"))
        },
    ),
];

/// Returns the saturated rate of a kind, and the mean microseconds of a write at it.
fn measure(size: Size, kind: Kind, load: &Load, seed: u64) -> Result<(f64, f64), LabError> {
    let items = if kind == Kind::None { 0 } else { size.items };
    let protocol = if kind == Kind::Paper { Protocol::Paper } else { Protocol::Stamps };
    let plan = Plan { protocol, ..size.plan(items, seed) };
    // Epochs are short here, as is the time that a run has; what waits ends with its epoch.
    let quick = controller::Settings {
        epoch_us: 500,
        decide_us: 500,
        changes_a_second: 100_000_000,
        ..plan.controller
    };
    let never = controller::Settings { writes_epochs: u8::MAX, ..plan.controller };
    let controller = if kind == Kind::LeftOut { quick } else { never };
    let mut rack = Rack::new(Plan { controller, ..plan })?;
    rack.fill()?;
    let alone = |cached: u64| {
        let reads = plan.placement.loads(&load.law, cached);
        let law = load.write_law.as_ref().unwrap_or(&load.law);
        let writes = plan.placement.loads(law, 0);
        let both = reads.iter().zip(&writes);
        let both: Vec<f64> = both
            .map(|(reads, writes)| (1.0 - load.writes) * reads + load.writes * writes)
            .collect();
        RATE / fullest(&both)
    };
    // Between a rack whose cache is of no use, and one whose keys are always valid.
    let span = (0.7 * alone(0), 1.1 * alone(items as u64));
    let lead_ns = size.lead_ns + if kind == Kind::LeftOut { 2_000_000 } else { 0 };
    let (rate, run) = rack.saturate(load, span, (lead_ns, size.ns), (LOSS_MAX, EXACT));
    Ok((rate, run.outcome.write_ns as f64 / run.outcome.written.max(1) as f64 / 1e3))
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keys, shares): (u64, &[f64]) = match context.smoke() {
        true => (100_000, &[0.2]),
        false => (100_000_000, &[0.0, 0.05, 0.2, 0.5, 1.0]),
    };
    let thetas: &[f64] = if context.smoke() { &[0.99] } else { &THETAS };
    let law = Law::new(keys, READS)?;
    let mut all = Vec::new();
    for (nth, &theta) in thetas.iter().enumerate() {
        let write_law = Some(Law::new(keys, theta)?);
        let part = |nth: usize| nth as f64 / thetas.len() as f64;
        let by = context.part((part(nth), part(nth + 1)), |context| {
            let seed = context.seed;
            context.each(
                shares.to_vec(),
                |writes| format!("writes by θ = {theta}: {}", percent(*writes, 0)),
                |_, writes| {
                    let load = Load { writes, write_law: write_law.clone(), ..reads(&law, 1.0) };
                    let mut by = [(0.0, 0.0); KINDS.len()];
                    for (by, (kind, _)) in by.iter_mut().zip(KINDS) {
                        *by = measure(size, kind, &load, seed)?;
                    }
                    Ok(Of { writes, by })
                },
            )
        })?;
        all.push(Writes { theta, by });
    }
    let mut record = KV10D.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    record.setting("θ of reads", READS);
    record.setting("cached keys", size.items);
    if !context.smoke() {
        record.judge("", CLAIMS, &all[..]);
    }
    for law in &all {
        let curve = |(kind, name): (Kind, &str)| {
            Series::measured(
                name,
                law.by.iter().map(|of| (of.writes, of.rate(kind) / 1e9)).collect(),
            )
        };
        let title = format!("throughput, writes by θ = {}", law.theta);
        let plot = Plot::new(title, "share of writes", "billion answers/s");
        record.plots.push(plot.with(KINDS.map(curve)));
    }
    let giga = |of: &Of, kind: Kind| format!("{:.3}", of.rate(kind) / 1e9);
    record.tables.push(Table::of(
        "Throughput by the share of writes",
        all.iter().flat_map(|law| law.by.iter().map(move |of| (law.theta, of))),
        &[
            ("θ of writes", &|(theta, _)| theta.to_string()),
            ("writes", &|(_, of)| percent(of.writes, 0)),
            ("no cache, G/s", &|(_, of)| giga(of, Kind::None)),
            ("ours, G/s", &|(_, of)| giga(of, Kind::Ours)),
            ("paper's protocol, G/s", &|(_, of)| giga(of, Kind::Paper)),
            ("ours, write-hot keys left out, G/s", &|(_, of)| giga(of, Kind::LeftOut)),
            ("a write, ours, µs", &|(_, of)| format!("{:.1}", of.by[Kind::Ours as usize].1)),
            ("a write, paper's, µs", &|(_, of)| format!("{:.1}", of.by[Kind::Paper as usize].1)),
        ],
    ));
    record.note(
        "Messages that keep the device right take no time of a server. Writes that are lost are not \
         repeated here: the load does not depend on answers.",
    );
    Ok(record)
}
