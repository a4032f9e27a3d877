//! What each server serves (figure 10b).

use super::*;

pub const KV10B: Experiment = Experiment {
    name: "kv10b",
    title: "Load of each server, with a cache and without",
    source: "NetCache, figure 10b",
    run,
};

const THETAS: [f64; 3] = [0.9, 0.95, 0.99];

/// Requests that each server served in a second, ascending.
struct Of {
    theta: f64,
    without: Vec<f64>,
    with: Vec<f64>,
}

/// The fullest server's, as a multiple of the mean.
fn peak(loads: &[f64]) -> f64 {
    fullest(loads) * loads.len() as f64 / loads.iter().sum::<f64>()
}

const CLAIMS: &[Claim<[Of]>] = &[Claim::new(
    "with a cache, the fullest server has 1.1 × the mean at most",
    "balanced",
    |all: &[Of]| {
        let peaks: Vec<f64> = all.iter().map(|of| peak(&of.with)).collect();
        Finding::new(fullest(&peaks) <= 1.1, listed(&peaks, |peak| format!("{peak:.3}")))
    },
)];

const FULL: &[Claim<[Of]>] = &[Claim::new(
    "without, at θ = .99, at least 6 × the mean",
    "a server is overloaded",
    |all: &[Of]| {
        let peak = all.last().map_or(0.0, |of| peak(&of.without));
        Finding::new(peak >= 6.0, format!("{peak:.2} ×"))
    },
)];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keys, share) = if context.smoke() { (100_000, 0.6) } else { (100_000_000, 0.8) };
    // Enough requests for each server that chance makes no peak.
    let size = Size { ns: if context.smoke() { 3_000_000 } else { 4_000_000 }, ..size };
    let mut all = Vec::new();
    for (nth, theta) in THETAS.into_iter().enumerate() {
        context.step(&format!("θ = {theta}"), nth as f64 / THETAS.len() as f64)?;
        let law = Law::new(keys, theta)?;
        let served = |items: usize| {
            let plan = size.plan(items, context.seed);
            let mut rack = Rack::new(plan)?;
            rack.fill()?;
            // All servers take what comes.
            let rate = share * ideal(plan.placement, &law, items as u64);
            let mut served = rack.measure(&reads(&law, rate), size.lead_ns, size.ns).served;
            served.sort_by(f64::total_cmp);
            Ok::<_, LabError>(served)
        };
        all.push(Of { theta, without: served(0)?, with: served(size.items)? });
    }
    let mut record = KV10B.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    record.setting("cached keys", size.items);
    record.setting("offered, of the ideal", percent(share, 0));
    record.judge("", CLAIMS, &all[..]);
    if !context.smoke() {
        record.judge("", FULL, &all[..]);
    }
    for of in &all {
        let curve = |name: &str, loads: &[f64]| {
            let points = loads.iter().enumerate().map(|(nth, load)| (nth as f64 + 1.0, load / 1e6));
            Series::measured(name, points.collect())
        };
        let title = format!("requests of each server, θ = {}", of.theta);
        let plot = Plot::new(title, "servers, by their load", "million requests/s");
        record.plots.push(plot.with([curve("with", &of.with), curve("without", &of.without)]));
    }
    record.tables.push(Table::of(
        "Fullest server, as a multiple of the mean",
        &all,
        &[
            ("θ", &|of| of.theta.to_string()),
            ("without", &|of| format!("{:.2}", peak(&of.without))),
            ("with", &|of| format!("{:.3}", peak(&of.with))),
        ],
    ));
    Ok(record)
}
