//! Throughput while popularity changes (figures 11a to 11c).
//!
//! The rack is a thousandth of the paper's: 128 servers of 10,000 requests/s. Each request is
//! counted, as one in a thousand would be at the paper's rate. Clients raise their rate while they
//! lose less than 1 %, and lower it when they lose more than 5 % (section 7.4): by how much the
//! paper does not say; here it is 3 % up and 7 % down each 100 ms.

use overbank::random::Pcg32;
use overbank::sketch;

use super::*;

pub const KV11A: Experiment = Experiment {
    name: "kv11a",
    title: "Throughput while the coldest keys become the hottest",
    source: "NetCache, figure 11a",
    run: |context| run(context, &KV11A, &HOT_IN),
};
pub const KV11B: Experiment = Experiment {
    name: "kv11b",
    title: "Throughput while random hot keys are replaced",
    source: "NetCache, figure 11b",
    run: |context| run(context, &KV11B, &RANDOM),
};
pub const KV11C: Experiment = Experiment {
    name: "kv11c",
    title: "Throughput while the hottest keys become the coldest",
    source: "NetCache, figure 11c",
    run: |context| run(context, &KV11C, &HOT_OUT),
};

pub(super) const THETA: f64 = 0.99;
/// Requests a second of a server.
const SCALED: f64 = RATE / 1000.0;
/// Time between two decisions of the clients.
const STEP_NS: u64 = 100_000_000;
const STEPS_A_SECOND: u64 = 1_000_000_000 / STEP_NS;
/// What clients multiply their rate by, and the losses at which they do.
pub(super) const UP: f64 = 1.03;
pub(super) const DOWN: f64 = 0.93;
pub(super) const LOSSES: [f64; 2] = [0.01, 0.05];
/// Ranks that are looked up to know what servers would take.
const LOOKED_UP: u64 = 1 << 20;

/// A change of popularity, and what is said of it.
pub(super) struct Kind {
    /// Seconds between two changes.
    pub(super) every: u64,
    pub(super) change: fn(&mut Popularity, u64, &mut Pcg32, usize),
    pub(super) claims: &'static [Claim<Timeline>],
}

pub(super) const HOT_IN: Kind = Kind {
    every: 10,
    change: |ranks, count, _, _| ranks.hot_in(count),
    claims: &[Claim::new(
        "0.9 of the steady rate 2 s after each change",
        "seconds",
        |of: &Timeline| {
            let least = of.seconds_after(2).fold(f64::MAX, f64::min) / of.steady();
            Finding::new(least >= 0.9, format!("{least:.3} at least"))
        },
    )],
};

pub(super) const RANDOM: Kind = Kind {
    every: 1,
    change: |ranks, count, random, items| {
        for _ in 0..count {
            let hot = 1 + u64::from(random.below(items as u32));
            let cold = items as u64 + 1 + u64::from(random.below(10 * items as u32));
            ranks.exchange(hot, cold);
        }
    },
    claims: &[Claim::new(
        "each mean of 10 s is 0.9 of the steady rate",
        "hardly any dip",
        |of: &Timeline| {
            let least = of.tens().fold(f64::MAX, f64::min) / of.steady();
            Finding::new(least >= 0.9, format!("{least:.3} at least"))
        },
    )],
};

pub(super) const HOT_OUT: Kind = Kind {
    every: 1,
    change: |ranks, count, _, _| ranks.hot_out(count),
    claims: &[Claim::new("each second has 0.9 of the steady rate", "steady", |of: &Timeline| {
        let least = of.answered.iter().copied().fold(f64::MAX, f64::min) / of.steady();
        Finding::new(least >= 0.9, format!("{least:.3} at least"))
    })],
};

/// Rates by second, from the first change on.
#[derive(Default)]
pub(super) struct Timeline {
    pub(super) every: u64,
    /// Answers in a second; before the changes; what could be answered with what was cached, where
    /// that is known.
    pub(super) answered: Vec<f64>,
    pub(super) before: Vec<f64>,
    pub(super) possible: Vec<f64>,
    pub(super) hit_share: Vec<f64>,
    pub(super) installed: u64,
    pub(super) evicted: u64,
    pub(super) reports: u64,
}

impl Timeline {
    pub(super) fn steady(&self) -> f64 {
        median(self.before.iter().copied())
    }

    /// Rates of the second that begins so long after each change.
    fn seconds_after(&self, after: usize) -> impl Iterator<Item = f64> + '_ {
        let changes = (0..self.answered.len()).step_by(self.every as usize);
        changes.filter_map(move |change| self.answered.get(change + after).copied())
    }

    fn tens(&self) -> impl Iterator<Item = f64> + '_ {
        self.answered.chunks(10).map(|ten| ten.iter().sum::<f64>() / ten.len() as f64)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) servers: u16,
    pub(super) items: usize,
    pub(super) keys: u64,
    /// Keys of a change.
    pub(super) count: u64,
    pub(super) lead_s: u64,
    pub(super) seconds: u64,
}

/// Returns what the servers would take at most, with what is cached now.
fn possible(rack: &Rack, placement: Placement, load: &Load) -> f64 {
    let looked_up = LOOKED_UP.min(load.law.keys);
    let rest = (1.0 - load.law.head(looked_up)) / f64::from(placement.servers);
    let mut loads = vec![rest; usize::from(placement.servers)];
    for rank in 1..=looked_up {
        let key = load.ranks.key(rank);
        if !rack.is_valid(key) {
            loads[usize::from(placement.server(key))] += load.law.probability(rank);
        }
    }
    SCALED / fullest(&loads)
}

fn measure(context: &mut Context<'_>, kind: &Kind, sizes: &Sizes) -> Result<Timeline, LabError> {
    let placement = Placement { servers: sizes.servers, seed: context.seed };
    let law = Law::new(sizes.keys, THETA)?;
    let ideal = SCALED / fullest(&placement.loads(&law, sizes.items as u64));
    let counting = sketch::Settings { threshold: (ideal / 8192.0).max(2.0) as u16, sample_log2: 0 };
    let plan = Plan { counting, ..Plan::of(placement, SCALED, sizes.items) };
    let mut rack = Rack::new(plan)?;
    rack.fill()?;
    let mut load = reads(&law, 0.8 * ideal);
    let mut random = Pcg32::new(context.seed, 11);
    let mut of = Timeline { every: kind.every, ..Timeline::default() };
    let mut at_change = rack.control();
    for second in 0..sizes.lead_s + sizes.seconds {
        let done = second as f64 / (sizes.lead_s + sizes.seconds) as f64;
        context.step(&format!("second {second}"), done)?;
        let since = second.checked_sub(sizes.lead_s);
        if since == Some(0) {
            at_change = rack.control();
        }
        if since.is_some_and(|since| since.is_multiple_of(kind.every)) {
            (kind.change)(&mut load.ranks, sizes.count, &mut random, sizes.items);
        }
        let (mut answered, mut hits) = (0, 0);
        for _ in 0..STEPS_A_SECOND {
            rack.run(Some(&load), STEP_NS);
            let run = rack.take(STEP_NS);
            let all = run.outcome.hits + run.outcome.misses;
            let loss = 1.0 - all as f64 / run.outcome.sent.max(1) as f64;
            if loss < LOSSES[0] {
                load.rate *= UP;
            } else if loss > LOSSES[1] {
                load.rate *= DOWN;
            }
            answered += all;
            hits += run.outcome.hits;
        }
        if since.is_some() {
            of.answered.push(answered as f64);
            of.hit_share.push(hits as f64 / answered.max(1) as f64);
            of.possible.push(possible(&rack, placement, &load));
        } else if second + 5 >= sizes.lead_s {
            of.before.push(answered as f64);
        }
    }
    let totals = rack.control();
    of.installed = totals.installed - at_change.installed;
    of.evicted = totals.evicted - at_change.evicted;
    of.reports = totals.reports - at_change.reports;
    Ok(of)
}

fn run(
    context: &mut Context<'_>,
    experiment: &Experiment,
    kind: &Kind,
) -> Result<Record, LabError> {
    let sizes = match context.smoke() {
        true => Sizes { servers: 8, items: 100, keys: 50_000, count: 4, lead_s: 3, seconds: 3 },
        false => Sizes {
            servers: 128,
            items: 10_000,
            keys: 100_000_000,
            count: 200,
            lead_s: 10,
            seconds: 60,
        },
    };
    let of = measure(context, kind, &sizes)?;
    let mut record = experiment.record(context);
    record.setting("instrument", "a rack in virtual time");
    record.setting("servers", sizes.servers);
    record.setting("requests/s of a server (input)", SCALED);
    report(&mut record, kind, &sizes, &of);
    record.note(
        "What is possible is added up once a second, key by key, with what the switch answers then. \
         Clients need time to find that rate: they know their losses alone.",
    );
    Ok(record)
}

/// Adds settings, claims at full size, curves and the table.
pub(super) fn report(record: &mut Record, kind: &Kind, sizes: &Sizes, of: &Timeline) {
    record.setting("keys", sizes.keys);
    record.setting("θ", THETA);
    record.setting("cached keys", sizes.items);
    record.setting("keys of a change", sizes.count);
    record.setting("seconds between changes", kind.every);
    if record.size == overbank_kit::experiment::Size::Full {
        record.judge("", kind.claims, of);
    }
    // Racks of millions a second, and of thousands.
    let (unit, name, short) = match of.steady() {
        many if many >= 1e6 => (1e6, "million answers/s", "M/s"),
        _ => (1e3, "thousand answers/s", "k/s"),
    };
    let curve = |name: &str, rates: &[f64]| {
        let points = rates.iter().enumerate().map(|(second, rate)| (second as f64, rate / unit));
        Series::measured(name, points.collect())
    };
    let tens: Vec<f64> = of.tens().flat_map(|ten| [ten; 10]).take(of.answered.len()).collect();
    let plot = Plot::new("answers by second", "seconds since the first change", name);
    let mut plot = plot.with([curve("each second", &of.answered), curve("mean of 10 s", &tens)]);
    if !of.possible.is_empty() {
        let possible = curve("possible with what is cached", &of.possible);
        plot = plot.with([Series { model: true, ..possible }]);
    }
    record.plots.push(plot);
    let mut shares: Vec<f64> = of.answered.iter().map(|rate| rate / of.steady()).collect();
    shares.sort_by(f64::total_cmp);
    let per_second = |count: u64| format!("{:.0}", count as f64 / sizes.seconds as f64);
    record.tables.push(Table::of(
        "From the first change on",
        [of],
        &[
            (&format!("steady, {short}"), &|of| format!("{:.3}", of.steady() / unit)),
            ("lowest second", &|_| format!("{:.3}", shares[0])),
            ("median second", &|_| format!("{:.3}", shares[shares.len() / 2])),
            ("by the cache", &|of| percent(median(of.hit_share.iter().copied()), 1)),
            ("reports/s", &|of| per_second(of.reports)),
            ("installed/s", &|of| per_second(of.installed)),
            ("evicted/s", &|of| per_second(of.evicted)),
        ],
    ));
}
