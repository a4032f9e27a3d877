//! Throughput by skew (figure 10a).

use super::*;

pub const KV10A: Experiment = Experiment {
    name: "kv10a",
    title: "Throughput of a rack by skew, with a cache and without",
    source: "NetCache, figure 10a",
    run,
};

const THETAS: [f64; 4] = [0.0, 0.9, 0.95, 0.99];
/// What the paper states of θ = .9, .95 and .99: the ratio of both.
const STATED: [f64; 3] = [3.6, 6.5, 10.0];

/// A law, and what a placement gave: requests a second, and the ideal.
struct Of {
    theta: f64,
    placements: Vec<Both>,
}

struct Both {
    without: [f64; 2],
    with: [f64; 2],
    /// Rates of switch and servers.
    parts: [f64; 2],
}

impl Of {
    fn spread(&self, of: impl Fn(&Both) -> f64) -> Spread {
        Spread::of(self.placements.iter().map(of))
    }

    fn ratio(&self) -> Spread {
        self.spread(|both| both.with[0] / both.without[0])
    }

    fn ideal_ratio(&self) -> Spread {
        self.spread(|both| both.with[1] / both.without[1])
    }

    /// How far measured and ideal are from each other.
    fn off(&self) -> f64 {
        let off = |[found, ideal]: [f64; 2]| found / ideal - 1.0;
        let all = self.placements.iter().flat_map(|both| [off(both.without), off(both.with)]);
        farthest(all.map(|off| (off, ()))).0
    }

    fn hit_share(&self) -> Spread {
        self.spread(|both| both.parts[0] / (both.parts[0] + both.parts[1]))
    }
}

struct All {
    size: Size,
    keys: u64,
    by: Vec<Of>,
}

impl All {
    fn skewed(&self) -> &[Of] {
        &self.by[1..]
    }
}

const CLAIMS: &[Claim<All>] = &[Claim::new("with a cache, it rises", "rises", |of: &All| {
    let medians = of.by.iter().map(|of| of.spread(|both| both.with[0]).median);
    let medians: Vec<f64> = medians.map(|rate| rate / of.size.uniform()).collect();
    let text = listed(&medians, |share| percent(*share, 1));
    Finding::new(medians.is_sorted(), text)
})];

/// Of the full size alone: the paper's figures are those of its keyspace.
const FULL: &[Claim<All>] = &[
    Claim::new(
        "every rack is within 2 % of its placement's ideal",
        "the instrument",
        |of: &All| {
            let (off, theta) = farthest(of.by.iter().map(|of| (of.off(), of.theta)));
            Finding::new(off.abs() <= 0.02, format!("{:+.1} % at most, θ = {theta}", 100.0 * off))
        },
    ),
    Claim::new("without a cache, throughput falls with the skew", "falls", |of: &All| {
        let medians = of.by.iter().map(|of| of.spread(|both| both.without[0]).median);
        let medians: Vec<f64> = medians.map(|rate| rate / of.size.uniform()).collect();
        let text = listed(&medians, |share| percent(*share, 1));
        Finding::new(medians.is_sorted_by(|a, b| a >= b), text)
    }),
    Claim::new("at least 0.9 × the ideal ratio", "goal", |of: &All| {
        let shares = of.skewed().iter().map(|of| of.ratio().median / of.ideal_ratio().median);
        let least = shares.fold(f64::MAX, f64::min);
        Finding::new(least >= 0.9, format!("{least:.3}"))
    }),
    Claim::new(
        "3.6, 6.5 and 10 × without a cache, at 10⁸ keys",
        "3.6, 6.5, 10 ×",
        |of: &All| {
            let ratios: Vec<f64> = of.skewed().iter().map(|of| of.ratio().median).collect();
            let fits = of.keys == 100_000_000;
            let least = if fits { 1.0 } else { 0.95 };
            let holds = ratios.iter().zip(STATED).all(|(ratio, stated)| *ratio >= least * stated);
            Finding::new(holds, listed(&ratios, |ratio| format!("{ratio:.2} ×")))
        },
    ),
    Claim::new("the cache answers 43 to 49 % at θ = .99", "less than half", |of: &All| {
        let share = of.by.last().map_or(0.0, |of| of.hit_share().median);
        Finding::new((0.43..=0.49).contains(&share), percent(share, 1))
    }),
];

fn measure(
    context: &mut Context<'_>,
    size: Size,
    keys: u64,
    theta: f64,
    placements: u64,
) -> Result<Of, LabError> {
    let law = Law::new(keys, theta)?;
    let mut all = Vec::new();
    for seed in 1..=placements {
        let name = format!("{keys} keys, θ = {theta}, placement {seed}");
        context.step(&name, (seed - 1) as f64 / placements as f64)?;
        let seed = context.seed + seed;
        let mut rates = [[0.0; 2]; 2];
        let mut parts = [0.0; 2];
        for (rates, items) in rates.iter_mut().zip([0, size.items]) {
            let plan = size.plan(items, seed);
            let ideal = ideal(plan.placement, &law, items as u64);
            let mut rack = Rack::new(plan)?;
            rack.fill()?;
            let (found, run) = size.saturate(&mut rack, &law, ideal);
            *rates = [found, ideal];
            parts = run.rates();
        }
        let [without, with] = rates;
        all.push(Both { without, with, parts });
    }
    Ok(Of { theta, placements: all })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keyspaces, placements): (&[u64], u64) = match context.smoke() {
        true => (&[100_000], 1),
        false => (&[100_000_000, 800_000_000], 10),
    };
    let thetas: &[f64] = if context.smoke() { &[0.0, 0.99] } else { &THETAS };
    let mut record = None;
    for (nth, &keys) in keyspaces.iter().enumerate() {
        let part = |nth: usize| nth as f64 / keyspaces.len() as f64;
        let by = context.part((part(nth), part(nth + 1)), |context| {
            let theta =
                |context: &mut Context<'_>, theta| measure(context, size, keys, theta, placements);
            let mut by = Vec::new();
            for (nth, &of) in thetas.iter().enumerate() {
                let part = |nth: usize| nth as f64 / thetas.len() as f64;
                by.push(context.part((part(nth), part(nth + 1)), |context| theta(context, of))?);
            }
            Ok(by)
        })?;
        let all = All { size, keys, by };
        let record = record.get_or_insert_with(|| {
            let mut record = KV10A.record(context);
            settings(&mut record, size, placements);
            record.setting("cached keys", size.items);
            record
        });
        report(record, &all, context.smoke());
    }
    record.ok_or_else(|| LabError::failed("no keyspace"))
}

fn report(record: &mut Record, all: &All, smoke: bool) {
    let place = format!("{} keys", all.keys);
    record.judge(&place, CLAIMS, all);
    if !smoke {
        record.judge(&place, FULL, all);
    }
    let billions = |spread: Spread| spread.map(|rate| rate / 1e9);
    let curve = |name: &str, of: &dyn Fn(&Both) -> f64| {
        let point = |by: &Of| (by.theta, billions(by.spread(of)));
        Series::rounds(name, all.by.iter().map(point))
    };
    let plot = Plot::new(format!("throughput, {place}"), "θ", "billion requests/s");
    record.plots.push(
        plot.with([
            curve("with a cache", &|both| both.with[0]),
            curve("of it, by servers", &|both| both.parts[1]),
            curve("without", &|both| both.without[0]),
            Series::model(
                "ideal with",
                all.by
                    .iter()
                    .map(|of| (of.theta, of.spread(|both| both.with[1]).median / 1e9))
                    .collect(),
            ),
            Series::model(
                "ideal without",
                all.by
                    .iter()
                    .map(|of| (of.theta, of.spread(|both| both.without[1]).median / 1e9))
                    .collect(),
            ),
        ]),
    );
    let uniform = all.size.uniform();
    record.tables.push(Table::of(
        format!("Throughput, {place}"),
        &all.by,
        &[
            ("θ", &|of| of.theta.to_string()),
            ("without, G/s", &|of| billions(of.spread(|both| both.without[0])).cell(3)),
            ("of uniform", &|of| percent(of.spread(|both| both.without[0]).median / uniform, 1)),
            ("ideal", &|of| percent(of.spread(|both| both.without[1]).median / uniform, 1)),
            ("with, G/s", &|of| billions(of.spread(|both| both.with[0])).cell(3)),
            ("ideal, G/s", &|of| billions(of.spread(|both| both.with[1])).cell(3)),
            ("by the cache", &|of| percent(of.hit_share().median, 1)),
            ("ratio", &|of| of.ratio().cell(2)),
            ("ideal ratio", &|of| of.ideal_ratio().cell(2)),
        ],
    ));
}
