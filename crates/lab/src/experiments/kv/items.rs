//! Throughput by the number of cached keys (figure 10e).

use super::*;

pub const KV10E: Experiment = Experiment {
    name: "kv10e",
    title: "Throughput by cached keys: that of servers, and all",
    source: "NetCache, figure 10e",
    run,
};

const THETAS: [f64; 2] = [0.9, 0.99];

/// A law: by cached keys, what was answered by the switch and by servers, and the ideal.
struct Of {
    theta: f64,
    by: Vec<(usize, [f64; 2], f64)>,
}

struct All {
    size: Size,
    by: Vec<Of>,
    /// The number of keys that is said to be enough.
    enough: usize,
}

impl Of {
    fn at(&self, items: usize) -> Option<&(usize, [f64; 2], f64)> {
        self.by.iter().find(|of| of.0 == items)
    }
}

const FULL: &[Claim<All>] = &[
    Claim::new("the rack is within 2 % of its placement's ideal", "the instrument", |of: &All| {
        let all = of.by.iter().flat_map(|of| &of.by);
        let off = all.map(|(items, [hits, served], ideal)| ((hits + served) / ideal - 1.0, *items));
        let (off, items) = farthest(off);
        Finding::new(off.abs() <= 0.02, format!("{:+.1} % at most, {items} keys", 100.0 * off))
    }),
    Claim::new("1,000 keys: servers give at least 0.9 of uniform", "balanced", |of: &All| {
        let shares: Vec<f64> = of
            .by
            .iter()
            .filter_map(|by| Some(by.at(of.enough)?.1[1] / of.size.uniform()))
            .collect();
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        Finding::new(least >= 0.9, listed(&shares, |share| format!("{share:.3}")))
    }),
    Claim::new(
        "θ = .9 is ahead with 10 keys, θ = .99 with 100",
        "the curves cross",
        |of: &All| {
            let all =
                |nth: usize, items: usize| of.by[nth].at(items).map_or(0.0, |of| of.1[0] + of.1[1]);
            let (few, many) = (all(0, 10) / all(1, 10), all(0, 100) / all(1, 100));
            Finding::new(few > 1.0 && many < 1.0, format!("{few:.3} ×, {many:.3} ×"))
        },
    ),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keys, items): (u64, &[usize]) = match context.smoke() {
        true => (100_000, &[10, 300]),
        false => (100_000_000, &[0, 10, 30, 100, 300, 1000, 3000, 10_000, 65_536]),
    };
    let mut by = Vec::new();
    for (nth, theta) in THETAS.into_iter().enumerate() {
        let law = Law::new(keys, theta)?;
        let span = (nth as f64 / 2.0, (nth + 1) as f64 / 2.0);
        let of = context.part(span, |context| {
            let seed = context.seed;
            context.each(
                items.to_vec(),
                |items| format!("θ = {theta}, {items} cached keys"),
                |_, items| {
                    let plan = size.plan(items, seed);
                    let ideal = ideal(plan.placement, &law, items as u64);
                    let mut rack = Rack::new(plan)?;
                    rack.fill()?;
                    let (_, run) = size.saturate(&mut rack, &law, ideal);
                    Ok((items, run.rates(), ideal))
                },
            )
        })?;
        by.push(Of { theta, by: of });
    }
    let all = All { size, by, enough: 1000 };
    let mut record = KV10E.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    if !context.smoke() {
        record.judge("", FULL, &all);
    }
    let uniform = size.uniform();
    let curve = |of: &Of, name: &str, rate: fn(&[f64; 2]) -> f64| {
        let point = |(items, rates, _): &(usize, [f64; 2], f64)| {
            ((*items).max(1) as f64, rate(rates) / uniform)
        };
        Series::measured(format!("θ = {}, {name}", of.theta), of.by.iter().map(point).collect())
    };
    let plot = Plot::new("throughput by cached keys", "cached keys (1 means none)", "of uniform");
    let curves = all.by.iter().flat_map(|of| {
        [curve(of, "all", |rates| rates[0] + rates[1]), curve(of, "servers", |rates| rates[1])]
    });
    record.plots.push(plot.log_x().with(curves.collect::<Vec<_>>()));
    record.tables.push(Table::of(
        "Throughput, of uniform",
        all.by.iter().flat_map(|of| of.by.iter().map(move |by| (of.theta, by))),
        &[
            ("θ", &|(theta, _)| theta.to_string()),
            ("cached keys", &|(_, by)| by.0.to_string()),
            ("servers", &|(_, by)| format!("{:.3}", by.1[1] / uniform)),
            ("switch", &|(_, by)| format!("{:.3}", by.1[0] / uniform)),
            ("all", &|(_, by)| format!("{:.3}", (by.1[0] + by.1[1]) / uniform)),
            ("ideal", &|(_, by)| format!("{:.3}", by.2 / uniform)),
        ],
    ));
    Ok(record)
}
