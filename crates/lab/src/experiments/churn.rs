//! Traffic that does not stand still: hot sets that move, scans, bursts of new flows; and whether the
//! papers' sampler of skewed traffic gives the hit rates of the exact one.
//!
//! The figures of the papers have traffic that stays as it is. A flow cache sees flows come and go, so
//! here the real tables are fed such sequences: hit rates only, nothing timed, every design the same
//! packets in the same order.

use crate::prelude::*;
use overbank::cache::Design;
use overbank_kit::workload::{Gray, Newcomers, Run, Shifting, Workload, WorkloadError};
use overbank_products::advise::AdviseError;
use overbank_products::advise::simulate::{Sequence, simulate};

pub const CHURN: Experiment = Experiment {
    name: "churn",
    title: "traffic that does not stand still: moving hot sets, scans, bursts of new flows",
    source: "beyond the paper",
    run,
};

const NAMES: [&str; 9] = [
    "set-4",
    "set-8",
    "cuckoo-2-4",
    "blp-2-4",
    "blp-2-4+pblru",
    "set-8+dc-bubble",
    "blp-2-16",
    BARE,
    RECOMMENDED,
];
/// The recommended geometry without promotion.
const BARE: &str = "cuckoo-2-16";
const THETA: f64 = 0.99;
/// Flows per slot where all nearly fit, and where hot flows must be told from cold ones.
const ALPHAS: [f64; 2] = [0.95, 3.0];
/// By what share of the flows the ranks move on, every so many packets as there are flows. (By one
/// half, the old hot set would be back at every second move.)
const MOVES: [f64; 4] = [0.001, 0.01, 0.1, 0.3];
/// Shares of packets that belong to new flows.
const SHARES: [f64; 4] = [0.0, 0.05, 0.2, 0.4];
/// Packets per flow of the base stream: before the measurement, and in it.
const WARM: usize = 20;
const MEASURED: usize = 5;
/// A burst of new flows; a scan has one packet a flow, and as many flows as fill a sixteenth of the
/// slots.
const BURST_OF: Run = Run { flows: 32, packets: 8 };

/// A sequence: its name, what it is by, and hit rates of the designs.
struct Rates {
    workload: String,
    x: f64,
    hits: Vec<f64>,
}

impl Rates {
    fn hit(&self, name: &str) -> f64 {
        let at = NAMES.iter().position(|n| *n == name).expect("a design of the list");
        self.hits[at]
    }
}

/// What was measured: over α the law by the exact sampler and by Gray's; over [`MOVES`]; the first law and
/// over the other [`SHARES`] with scans, and with bursts; everything at once.
struct Found {
    still: Vec<[Rates; 2]>,
    moving: Vec<Rates>,
    mixed: Vec<(&'static str, Run, Vec<Rates>)>,
    everything: Rates,
}

impl Found {
    fn all(&self) -> impl Iterator<Item = &Rates> {
        let mixed = self.mixed.iter().flat_map(|(.., rates)| rates);
        let all = self.still.iter().flatten().chain(&self.moving).chain(mixed);
        all.chain([&self.everything])
    }
}

struct Bench<'a, 'c> {
    context: &'a mut Context<'c>,
    designs: Vec<Design>,
    entries: usize,
    fed: usize,
}

/// Sequences: still ones and Gray's, hot sets, scans and bursts, and all at once.
const RUNS: usize = 5 + MOVES.len() + 2 * (SHARES.len() - 1);

impl Bench<'_, '_> {
    fn feed(
        &mut self,
        (name, x): (String, f64),
        flows: u32,
        workload: Result<impl Workload, WorkloadError>,
    ) -> Result<Rates, LabError> {
        let mut workload = workload.map_err(LabError::failed)?;
        self.context.step(&name, self.fed as f64 / RUNS as f64)?;
        self.fed += 1;
        let (warm, measured) = (WARM * flows as usize, MEASURED * flows as usize);
        let mut ids = vec![0; warm + measured];
        let drawn = workload.fill(&mut ids);
        let sequence = Sequence { ids: &ids[..drawn], hashes: None };
        let (seed, stop) = (self.context.seed, self.context.stop);
        let hits = self.designs.iter().map(|&design| {
            let run = simulate(design, self.entries, sequence, warm, measured, seed, stop);
            run.map(|run| run.hit_rate).map_err(|error| match error {
                AdviseError::Stopped => LabError::Stopped,
                error => LabError::failed(error),
            })
        });
        Ok(Rates { workload: name, x, hits: hits.collect::<Result<_, _>>()? })
    }

    fn measure(&mut self) -> Result<Found, LabError> {
        let seed = self.context.seed;
        let [few, many] = ALPHAS.map(|alpha| (self.entries as f64 * alpha) as u32);
        let zipf = |flows| FlowStream::zipf(flows, THETA, seed);
        let moving = |by: u32| zipf(many).and_then(|base| Shifting::new(base, many.into(), by));
        let mut still = Vec::new();
        for (alpha, flows) in ALPHAS.into_iter().zip([few, many]) {
            let law = format!("Zipf θ = {THETA}, α = {alpha}");
            let gray = (format!("{law}, sampler of Gray et al."), 0.0);
            let exact = self.feed((law, 0.0), flows, zipf(flows))?;
            still.push([exact, self.feed(gray, flows, Gray::new(flows, THETA, seed))?]);
        }
        let mut hot = Vec::new();
        for percent in MOVES.map(|share| 100.0 * share) {
            let by = (f64::from(many) * percent / 100.0).max(1.0) as u32;
            let name = format!("α = {}, hot set moves on by {percent} % of the flows", ALPHAS[1]);
            hot.push(self.feed((name, percent), many, moving(by))?);
        }
        let scan = Run { flows: (self.entries / 16) as u32, packets: 1 };
        let mut mixed = Vec::new();
        for (kind, run) in [("scans", scan), ("bursts", BURST_OF)] {
            let mut rates = Vec::new();
            for &share in &SHARES[1..] {
                let percent = 100.0 * share;
                let name = format!("α = {}, {percent} % in {kind} of new flows", ALPHAS[0]);
                let new = zipf(few).and_then(|base| Newcomers::new(base, share, run, seed));
                rates.push(self.feed((name, percent), few, new)?);
            }
            mixed.push((kind, run, rates));
        }
        let name = "α = 3, hot set moves on by 1 %, and 20 % in bursts of new flows".to_owned();
        let both = moving(many / 100).and_then(|base| Newcomers::new(base, 0.2, BURST_OF, seed));
        let everything = self.feed((name, 0.0), many, both)?;
        Ok(Found { still, moving: hot, mixed, everything })
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let entries = if context.smoke() { 1 << 11 } else { 1 << 18 };
    let mut record = CHURN.record(context);
    record.setting("entries", entries);
    record.setting("warm-up", format!("{WARM} packets per flow from an empty table on"));
    record.setting("measured", format!("{MEASURED} packets per flow"));
    let designs = NAMES.iter().map(|name| design(name)).collect::<Result<_, _>>()?;
    let found = Bench { context, designs, entries, fed: 0 }.measure()?;

    let curves = |title: String, x: &str, points: &[&Rates]| {
        let curve = |name: &&str| {
            let points = points.iter().map(|rates| (rates.x, 100.0 * rates.hit(name)));
            Series::measured(*name, points.collect())
        };
        Plot::new(title, x, "hit rate, %").with(NAMES.iter().map(curve))
    };
    let title = format!("Hot sets that move, Zipf θ = {THETA}, α = {}", ALPHAS[1]);
    let x = "flows by which the ranks move on, per packet and flow, %";
    let moving: Vec<&Rates> = found.moving.iter().collect();
    record.plots.push(curves(title, x, &moving).log_x());
    for (kind, _, rates) in &found.mixed {
        let title = format!("{kind} of new flows in Zipf θ = {THETA}, α = {}", ALPHAS[0]);
        let points: Vec<&Rates> = [&found.still[0][0]].into_iter().chain(rates).collect();
        record.plots.push(curves(title, "packets of new flows, %", &points));
    }
    claims(&mut record, &found);
    record.tables.push(Table::pivot(
        "Hit rate, %",
        "traffic",
        (found.all(), |rates: &&Rates| rates.workload.clone()),
        (NAMES, |name: &&str| (*name).to_owned()),
        |rates, name| format!("{:.2}", 100.0 * rates.hit(name)),
    ));
    record.note(
        "A hot set that moves: every so many packets as there are flows, each rank goes on to another flow, so \
         that the old head becomes part of the tail. A scan is a run of new flows with one packet each, which \
         no cache can hit; a burst is 32 new flows with 8 packets each, taking turns, of which the first ones \
         miss.",
    );
    Ok(record)
}

fn claims(record: &mut Record, found: &Found) {
    for ([exact, gray], alpha) in found.still.iter().zip(ALPHAS) {
        let off = NAMES.iter().map(|name| (100.0 * (gray.hit(name) - exact.hit(name)), ()));
        let (worst, ()) = farthest(off);
        record.claim(
            format!(
                "α = {alpha}: hit rates with the sampler of Gray et al. are those of the exact one"
            ),
            "within 2 points",
            format!("{worst:+.2} points at most"),
            worst.abs() < 2.0,
        );
    }
    let both = |rates: &Rates| {
        let hit = |name| format!("{:.2}", 100.0 * rates.hit(name));
        format!("{}, {} %", hit(RECOMMENDED), hit("blp-2-4"))
    };
    let (slow, fast) = (&found.moving[0], &found.moving[found.moving.len() - 1]);
    record.claim(
        "the faster the hot set moves, the fewer hits, in every design",
        format!("{RECOMMENDED}, blp-2-4"),
        format!("{} to {}", both(slow), both(fast)),
        NAMES.iter().all(|name| fast.hit(name) < slow.hit(name)),
    );
    for (kind, run, rates) in &found.mixed {
        let last = &rates[rates.len() - 1];
        // The first packet of each new flow misses; two points of luck in the share at the small size.
        let most = 1.0 - last.x / 100.0 / f64::from(run.packets) + 0.02;
        let best = last.hits.iter().copied().fold(0.0, f64::max);
        record.claim(
            format!(
                "{} % in {kind}: no more hits than packets that are not a flow’s first",
                last.x
            ),
            format!("at most {:.1} %", 100.0 * most),
            format!("{:.2} % at best", 100.0 * best),
            best <= most,
        );
    }
    let lead = |rates: &Rates| rates.hit(RECOMMENDED) - rates.hit("blp-2-4");
    let Some(worst) = found.all().min_by(|a, b| lead(a).total_cmp(&lead(b))) else { return };
    record.claim(
        format!("{RECOMMENDED} hits at least as often as 2-4 BLP in all of this traffic"),
        "within half a point",
        format!("{:+.2} points at least: {}", 100.0 * lead(worst), worst.workload),
        lead(worst) >= -0.005,
    );
    record.because(
        "Probably promotion keeps those flows that were hot before, and a flow that is new in the head can be \
         evicted before it is promoted: where hot sets last for few packets, random eviction is the better \
         policy; the table has the same geometry without promotion. `overbank advise` measures on the \
         sequence itself.",
    );
}
