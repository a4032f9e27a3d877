//! Latency by throughput (figure 10c).

use super::*;

pub const KV10C: Experiment = Experiment {
    name: "kv10c",
    title: "Latency by throughput, with a cache and without",
    source: "NetCache, figure 10c",
    run,
};

const THETA: f64 = 0.99;
/// Microseconds of an idle rack, which are put in.
const HIT_US: f64 = 7.0;
const MISS_US: f64 = 15.0;
/// Offered, as a share of the ideal.
const OFFERED: [f64; 8] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97, 1.1];

struct Of {
    /// Offered, as a share of the ideal, and answered in a second.
    offered: f64,
    answered: f64,
    hit_share: f64,
    /// Microseconds.
    mean: f64,
    p50: f64,
    p99: f64,
}

struct All {
    with: Vec<Of>,
    without: Vec<Of>,
    /// The ideal without a cache, in requests a second.
    ideal: f64,
}

const CLAIMS: &[Claim<All>] = &[
    Claim::new(
        "with a cache, the mean is 7 h + 15 (1 − h) µs within 5 %",
        "11 to 12 µs",
        |of: &All| {
            let steady = of.with.iter().filter(|of| of.offered <= 0.9);
            let off = steady.map(|of| {
                let model = HIT_US * of.hit_share + MISS_US * (1.0 - of.hit_share);
                (of.mean / model - 1.0, of.offered)
            });
            let (off, offered) = farthest(off);
            let text = format!("{:+.1} % at {}", 100.0 * off, percent(offered, 0));
            Finding::new(off.abs() <= 0.05, text)
        },
    ),
    Claim::new("without, it is 15 µs before a server is full", "15 µs", |of: &All| {
        let means: Vec<f64> =
            of.without.iter().filter(|of| of.offered <= 0.7).map(|of| of.mean).collect();
        let holds = means.iter().all(|mean| (mean / MISS_US - 1.0).abs() <= 0.05);
        Finding::new(holds, listed(&means, |mean| format!("{mean:.2} µs")))
    }),
    Claim::new("and it grows when one is", "diverges", |of: &All| {
        let last = |nth: usize| of.without.iter().rev().nth(nth).map_or(0.0, |of| of.p99);
        Finding::new(last(0) > 1.5 * MISS_US, format!("p99 {:.1} µs", last(0)))
    }),
];

const FULL: &[Claim<All>] = &[Claim::new("which is at 0.2 G/s ± 10 %", "0.2 BQPS", |of: &All| {
    let ideal = of.ideal / 1e9;
    Finding::new((0.18..=0.22).contains(&ideal), format!("{ideal:.3} G/s"))
})];

fn measure(
    context: &mut Context<'_>,
    (size, items): (Size, usize),
    law: &Law,
) -> Result<(Vec<Of>, f64), LabError> {
    let plan = size.plan(items, context.seed);
    let mut rack = Rack::new(plan)?;
    rack.fill()?;
    let ideal = ideal(plan.placement, law, items as u64);
    let all = context.each(
        OFFERED,
        |offered| format!("{items} cached keys, {} of the ideal", percent(*offered, 0)),
        |_, offered| {
            let run = rack.measure(&reads(law, offered * ideal), size.lead_ns, size.ns);
            let mut times = run.outcome.times.clone();
            times.sort_unstable();
            let at = |share: f64| {
                let at = (share * times.len() as f64) as usize;
                times.get(at).map_or(0.0, |ns| f64::from(*ns) / 1e3)
            };
            let sum: f64 = times.iter().map(|ns| f64::from(*ns)).sum();
            let [hits, misses] = run.rates();
            Ok(Of {
                offered,
                answered: hits + misses,
                hit_share: hits / (hits + misses),
                mean: sum / times.len().max(1) as f64 / 1e3,
                p50: at(0.5),
                p99: at(0.99),
            })
        },
    )?;
    Ok((all, ideal))
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let keys = if context.smoke() { 100_000 } else { 800_000_000 };
    let law = Law::new(keys, THETA)?;
    let (with, _) = context.part((0.0, 0.8), |c| measure(c, (size, size.items), &law))?;
    let (without, ideal) = context.part((0.8, 1.0), |c| measure(c, (size, 0), &law))?;
    let all = All { with, without, ideal };
    let mut record = KV10C.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    record.setting("θ", THETA);
    record.setting("cached keys", size.items);
    record.judge("", CLAIMS, &all);
    if !context.smoke() {
        record.judge("", FULL, &all);
    }
    let curve = |name: &str, of: &[Of], us: fn(&Of) -> f64| {
        Series::measured(name, of.iter().map(|of| (of.answered / 1e9, us(of))).collect())
    };
    let plot = Plot::new("latency by throughput", "billion answers/s", "µs").log_x();
    record.plots.push(plot.with([
        curve("with, mean", &all.with, |of| of.mean),
        curve("with, p99", &all.with, |of| of.p99),
        curve("without, mean", &all.without, |of| of.mean),
        curve("without, p99", &all.without, |of| of.p99),
    ]));
    let rows = all.without.iter().map(|of| ("without", of));
    record.tables.push(Table::of(
        "Latency",
        rows.chain(all.with.iter().map(|of| ("with", of))),
        &[
            ("cache", &|(name, _)| (*name).to_owned()),
            ("offered, of the ideal", &|(_, of)| percent(of.offered, 0)),
            ("answered, G/s", &|(_, of)| format!("{:.3}", of.answered / 1e9)),
            ("by the cache", &|(_, of)| percent(of.hit_share, 1)),
            ("mean, µs", &|(_, of)| format!("{:.2}", of.mean)),
            ("p50, µs", &|(_, of)| format!("{:.2}", of.p50)),
            ("p99, µs", &|(_, of)| format!("{:.2}", of.p99)),
        ],
    ));
    Ok(record)
}
