//! Throughput by skew (figure 10a), with processes.

use super::client::Rule;
use super::*;

pub const KV10A_REAL: Experiment = Experiment {
    name: "kv10a-real",
    title: "Throughput by skew, with a cache and without, over real links",
    source: "NetCache, figure 10a",
    run,
};

/// The client holds its losses at 1 %, of all requests.
const LOSS: f64 = 0.01;
const RULE: Rule = Rule { losses: [LOSS, LOSS], up: 1.02, down: 0.98 };

struct Sizes {
    servers: u16,
    rate: u32,
    items: usize,
    keys: u64,
    thetas: &'static [f64],
    /// Seconds before a measurement, and of it.
    lead: usize,
    seconds: usize,
}

/// What a rack has answered.
struct Run {
    /// Answers a second, by second.
    answered: Spread,
    /// What the servers of this placement could answer at this loss.
    ideal: f64,
    hit_share: f64,
    watched: Watched,
}

impl Run {
    fn of_ideal(&self) -> f64 {
        self.answered.median / self.ideal
    }
}

struct Of {
    theta: f64,
    without: Run,
    with: Run,
}

impl Of {
    fn ratio(&self) -> f64 {
        self.with.answered.median / self.without.answered.median
    }

    fn ideal_ratio(&self) -> f64 {
        self.with.ideal / self.without.ideal
    }

    fn runs(&self) -> [&Run; 2] {
        [&self.without, &self.with]
    }
}

const CLAIMS: &[Claim<[Of]>] =
    &[Claim::new("more with a cache", "a cache helps", |all: &[Of]| {
        let ratios: Vec<f64> = all.iter().map(Of::ratio).collect();
        let text = listed(&ratios, |ratio| format!("{ratio:.2} ×"));
        Finding::new(ratios.iter().all(|ratio| *ratio > 1.1), text)
    })];

const FULL: &[Claim<[Of]>] = &[
    Claim::new("every rack is within 10 % of its ideal", "the instrument", |all: &[Of]| {
        let runs = all.iter().flat_map(|of| of.runs());
        let (off, _) = farthest(runs.map(|run| (run.of_ideal() - 1.0, ())));
        Finding::new(off.abs() <= 0.1, format!("{:+.1} % at most", 100.0 * off))
    }),
    Claim::new("at least 0.9 × the ideal ratio", "goal", |all: &[Of]| {
        let least = all.iter().map(|of| of.ratio() / of.ideal_ratio()).fold(f64::MAX, f64::min);
        Finding::new(least >= 0.9, format!("{least:.3}"))
    }),
];

/// Returns what is answered at the load at which this share of the requests is lost: by servers
/// that have `loads` of all and take `rate` each, and by a cache that has the rest.
fn answered(loads: &[f64], rate: f64, loss: f64) -> f64 {
    let lost = |offered: f64| {
        loads.iter().map(|load| (load * offered - rate).max(0.0)).sum::<f64>() / offered
    };
    let mut span = [rate / fullest(loads), rate / fullest(loads)];
    while lost(span[1]) < loss {
        span[1] *= 2.0;
    }
    for _ in 0..60 {
        let middle = (span[0] + span[1]) / 2.0;
        span[usize::from(lost(middle) >= loss)] = middle;
    }
    span[0] * (1.0 - loss)
}

fn measure(
    context: &mut Context<'_>,
    sizes: &Sizes,
    theta: f64,
    items: usize,
) -> Result<Run, LabError> {
    let plan = Plan { items, ..plan(context, sizes) };
    let law = Law::new(sizes.keys, theta)?;
    let loads = plan.placement.loads(&law, items as u64);
    let ideal = answered(&loads, f64::from(sizes.rate), LOSS);
    let mut scene = Scene::start(context, &plan)?;
    context.part((0.0, 0.4), |context| scene.client.fill(context, items))?;
    let mut load = reads(&law, 0.8 * ideal);
    scene.client.rest();
    let mut seconds = Vec::new();
    let mut begun = None;
    let all = sizes.lead + sizes.seconds;
    for nth in 0..all {
        context.step(&format!("second {nth}"), 0.4 + 0.6 * nth as f64 / all as f64)?;
        if nth == sizes.lead {
            begun = Some(scene.begin()?);
        }
        let seen = scene.client.second(&mut load, &RULE)?;
        if begun.is_some() {
            seconds.push(seen);
        }
    }
    let begun = begun.ok_or_else(|| LabError::failed("no second was measured"))?;
    let watched = scene.end(&begun)?;
    watched.valid(context)?;
    let hits: u64 = seconds.iter().map(|seen| seen.hits).sum();
    let of_all: u64 = seconds.iter().map(Seen::answered).sum();
    let answered = Spread::of(seconds.iter().map(|seen| seen.answered() as f64));
    Ok(Run { answered, ideal, hit_share: hits as f64 / of_all.max(1) as f64, watched })
}

fn plan(context: &Context<'_>, sizes: &Sizes) -> Plan {
    let (seed, rate, items) = (context.seed, sizes.rate, sizes.items);
    Plan { placement: Placement { servers: sizes.servers, seed }, rate, items, seed }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let sizes = match context.smoke() {
        true => Sizes {
            servers: 8,
            rate: 100,
            items: 100,
            keys: 50_000,
            thetas: &[0.99],
            lead: 2,
            seconds: 2,
        },
        false => Sizes {
            servers: 128,
            rate: RATE,
            items: 10_000,
            keys: 100_000_000,
            thetas: &[0.9, 0.99],
            lead: 8,
            seconds: 12,
        },
    };
    let all = context.each(
        sizes.thetas.to_vec(),
        |theta| format!("θ = {theta}"),
        |context, theta| {
            let mut of =
                |part, items| context.part(part, |context| measure(context, &sizes, theta, items));
            let (without, with) = (of((0.0, 0.4), 0)?, of((0.4, 1.0), sizes.items)?);
            Ok(Of { theta, without, with })
        },
    )?;
    let mut record = KV10A_REAL.record(context);
    let runs = all.iter().flat_map(Of::runs).map(|run| run.watched);
    let worst = runs.reduce(Watched::worst).ok_or_else(|| LabError::failed("no run"))?;
    describe(&mut record, &plan(context, &sizes), worst, context.smoke());
    record.setting("keys", sizes.keys);
    record.setting("cached keys", sizes.items);
    record.setting("seconds of a run", sizes.seconds);
    record.setting("loss that the client holds", percent(LOSS, 0));
    record.judge("", CLAIMS, &all[..]);
    if !context.smoke() {
        record.judge("", FULL, &all[..]);
    }
    let thousands = |spread: Spread| spread.map(|rate| rate / 1e3);
    let curve = |name: &str, of: fn(&Of) -> &Run| {
        Series::rounds(name, all.iter().map(|by| (by.theta, thousands(of(by).answered))))
    };
    let model = |name: &str, of: fn(&Of) -> &Run| {
        Series::model(name, all.iter().map(|by| (by.theta, of(by).ideal / 1e3)).collect())
    };
    let plot = Plot::new("throughput", "θ", "thousand answers/s");
    record.plots.push(plot.with([
        curve("with a cache", |of| &of.with),
        curve("without", |of| &of.without),
        model("ideal with", |of| &of.with),
        model("ideal without", |of| &of.without),
    ]));
    let ideal = |run: &Run| format!("{:.2}", run.ideal / 1e3);
    record.tables.push(Table::of(
        "Throughput",
        &all,
        &[
            ("θ", &|of| of.theta.to_string()),
            ("without, k/s", &|of| thousands(of.without.answered).cell(2)),
            ("ideal", &|of| ideal(&of.without)),
            ("with, k/s", &|of| thousands(of.with.answered).cell(2)),
            ("ideal, k/s", &|of| ideal(&of.with)),
            ("by the cache", &|of| percent(of.with.hit_share, 1)),
            ("ratio", &|of| format!("{:.2}", of.ratio())),
            ("ideal ratio", &|of| format!("{:.2}", of.ideal_ratio())),
            ("cores in use", &|of| percent(of.with.watched.cores, 0)),
        ],
    ));
    record.note(
        "The client knows the losses of all alone, and holds them at 1 %. The ideal is what the \
         servers of this placement answer at that loss, added up key by key, with the hottest keys \
         cached; a single overloaded server may lose far more than 1 % of its requests. The \
         controller is at work: which keys are cached is what it finds. Ranges are over seconds; \
         there is one placement.",
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_at_a_loss_follows_from_the_loads() {
        // Balanced: all lose as much.
        assert!((answered(&[0.25; 4], 100.0, 0.01) - 400.0).abs() < 1e-6);
        // A cache has half: what is lost is of the other half.
        assert!((answered(&[0.25; 2], 100.0, 0.01) - 0.99 * 200.0 / 0.49).abs() < 1e-6);
        // One has half of all: it alone loses.
        let loads = [0.5, 0.25, 0.25];
        let found = answered(&loads, 100.0, 0.01);
        assert!((found - 0.99 * 100.0 / 0.49).abs() < 1e-6, "{found}");
    }
}
