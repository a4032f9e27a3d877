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

/// Moving traffic.
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

/// Hit rates of the designs on one sequence.
struct Rates {
    workload: String,
    hits: Vec<f64>,
}

/// Scans or bursts: what they are called and are, and percent of packets with the number of the run.
type Mixed<'a> = (&'a str, Run, Vec<(f64, usize)>);

/// The designs, their size, and what was measured so far.
struct Bench<'a, 'c> {
    context: &'a mut Context<'c>,
    designs: Vec<Design>,
    entries: usize,
    all: Vec<Rates>,
}

impl Bench<'_, '_> {
    /// Feeds a workload to every design; gives its number.
    fn feed(
        &mut self,
        name: &str,
        flows: u32,
        workload: Result<impl Workload, WorkloadError>,
    ) -> Result<usize, LabError> {
        let mut workload = workload.map_err(LabError::failed)?;
        self.context.step(name, self.all.len() as f64 / RUNS as f64)?;
        let (warm, measured) = (WARM * flows as usize, MEASURED * flows as usize);
        let mut ids = vec![0; warm + measured];
        let drawn = workload.fill(&mut ids);
        ids.truncate(drawn);
        let sequence = Sequence { ids: &ids, hashes: None };
        let (seed, stop) = (self.context.seed, self.context.stop);
        let hits = self.designs.iter().map(|&design| {
            let run = simulate(design, self.entries, sequence, warm, measured, seed, stop);
            run.map(|run| run.hit_rate).map_err(|error| match error {
                AdviseError::Stopped => LabError::Stopped,
                error => LabError::failed(error),
            })
        });
        let hits = hits.collect::<Result<_, _>>()?;
        self.all.push(Rates { workload: name.to_owned(), hits });
        Ok(self.all.len() - 1)
    }

    fn hit(&self, run: usize, name: &str) -> f64 {
        let at = NAMES.iter().position(|n| *n == name).expect("a design of the list");
        self.all[run].hits[at]
    }
}

/// Sequences: still ones and Gray's, hot sets, scans and bursts, and all at once.
const RUNS: usize = 5 + MOVES.len() + 2 * (SHARES.len() - 1);

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let seed = context.seed;
    let entries = if context.smoke() { 1 << 11 } else { 1 << 18 };
    let mut record = CHURN.record(context);
    record.setting("entries", entries);
    record.setting("warm-up", format!("{WARM} packets per flow from an empty table on"));
    record.setting("measured", format!("{MEASURED} packets per flow"));
    let designs = NAMES.iter().map(|name| design(name)).collect::<Result<_, _>>()?;
    let mut bench = Bench { context, designs, entries, all: Vec::new() };
    let [few, many] = ALPHAS.map(|alpha| (entries as f64 * alpha) as u32);
    let zipf = |flows| FlowStream::zipf(flows, THETA, seed);

    let mut still = Vec::new();
    for (alpha, flows) in ALPHAS.into_iter().zip([few, many]) {
        let law = format!("Zipf θ = {THETA}, α = {alpha}");
        let exact = bench.feed(&law, flows, zipf(flows))?;
        let gray = Gray::new(flows, THETA, seed);
        still.push((exact, bench.feed(&format!("{law}, sampler of Gray et al."), flows, gray)?));
    }
    let mut moving = Vec::new();
    for share in MOVES {
        let by = (f64::from(many) * share).max(1.0) as u32;
        let shifting = zipf(many).and_then(|base| Shifting::new(base, u64::from(many), by));
        let name =
            format!("α = {}, hot set moves on by {} % of the flows", ALPHAS[1], share * 100.0);
        moving.push((100.0 * share, bench.feed(&name, many, shifting)?));
    }
    let scan = Run { flows: (entries / 16) as u32, packets: 1 };
    let mut mixed = Vec::new();
    for (kind, run) in [("scans", scan), ("bursts", BURST_OF)] {
        let mut shares = vec![(0.0, still[0].0)];
        for &share in &SHARES[1..] {
            let name = format!("α = {}, {} % in {kind} of new flows", ALPHAS[0], share * 100.0);
            let new = zipf(few).and_then(|base| Newcomers::new(base, share, run, seed));
            shares.push((100.0 * share, bench.feed(&name, few, new)?));
        }
        mixed.push((kind, run, shares));
    }
    let everything = zipf(many)
        .and_then(|base| Shifting::new(base, u64::from(many), many / 100))
        .and_then(|base| Newcomers::new(base, 0.2, BURST_OF, seed));
    bench.feed(
        "α = 3, hot set moves on by 1 %, and 20 % in bursts of new flows",
        many,
        everything,
    )?;

    let curves = |title: String, x: &str, points: &[(f64, usize)]| {
        let curve = |name: &&str| {
            let at = |p: &(f64, usize)| (p.0, 100.0 * bench.hit(p.1, name));
            Series::measured(*name, points.iter().map(at).collect())
        };
        Plot::new(title, x, "hit rate, %").with(NAMES.iter().map(curve))
    };
    let title = format!("Hot sets that move, Zipf θ = {THETA}, α = {}", ALPHAS[1]);
    let x = "flows by which the ranks move on, per packet and flow, %";
    record.plots.push(curves(title, x, &moving).log_x());
    for (kind, _, shares) in &mixed {
        let title = format!("{kind} of new flows in Zipf θ = {THETA}, α = {}", ALPHAS[0]);
        record.plots.push(curves(title, "packets of new flows, %", shares));
    }
    claims(&mut record, &bench, &still, &moving, &mixed);
    let mut table = Table::new("Hit rate, %", ["traffic"].iter().chain(&NAMES).copied());
    for Rates { workload, hits } in &bench.all {
        let hits = hits.iter().map(|hit| format!("{:.2}", 100.0 * hit));
        table.row([workload.clone()].into_iter().chain(hits));
    }
    record.tables.push(table);
    record.notes.push(
        "A hot set that moves: every so many packets as there are flows, each rank goes on to another \
         flow, so that the old head becomes part of the tail. A scan is a run of new flows with one \
         packet each, which no cache can hit; a burst is 32 new flows with 8 packets each, taking \
         turns, of which the first ones miss."
            .to_owned(),
    );
    Ok(record)
}

fn claims(
    record: &mut Record,
    bench: &Bench<'_, '_>,
    still: &[(usize, usize)],
    moving: &[(f64, usize)],
    mixed: &[Mixed<'_>],
) {
    for (&(exact, gray), alpha) in still.iter().zip(ALPHAS) {
        let off = |name: &&str| 100.0 * (bench.hit(gray, name) - bench.hit(exact, name));
        let worst =
            NAMES.iter().map(off).fold(0.0, |w: f64, o| if o.abs() > w.abs() { o } else { w });
        record.claim(
            format!(
                "α = {alpha}: hit rates with the sampler of Gray et al. are those of the exact one"
            ),
            "within 2 points",
            format!("{worst:+.2} points at most"),
            worst.abs() < 2.0,
        );
    }
    let both = |run: usize| {
        let hit = |name| format!("{:.2}", 100.0 * bench.hit(run, name));
        format!("{}, {} %", hit(RECOMMENDED), hit("blp-2-4"))
    };
    let (slow, fast) = (moving[0].1, moving[moving.len() - 1].1);
    let falls = |name: &&str| bench.hit(fast, name) < bench.hit(slow, name);
    record.claim(
        "the faster the hot set moves, the fewer hits, in every design",
        format!("{RECOMMENDED}, blp-2-4"),
        format!("{} to {}", both(slow), both(fast)),
        NAMES.iter().all(falls),
    );
    for (kind, run, shares) in mixed {
        let (percent, last) = shares[shares.len() - 1];
        // The first packet of each new flow misses; two points of luck in the share at the small size.
        let most = 1.0 - percent / 100.0 / f64::from(run.packets) + 0.02;
        let best = NAMES.iter().map(|name| bench.hit(last, name)).fold(0.0, f64::max);
        record.claim(
            format!("{percent} % in {kind}: no more hits than packets that are not a flow’s first"),
            format!("at most {:.1} %", 100.0 * most),
            format!("{:.2} % at best", 100.0 * best),
            best <= most,
        );
    }
    let lead = |run: usize| bench.hit(run, RECOMMENDED) - bench.hit(run, "blp-2-4");
    let runs = 0..bench.all.len();
    let Some(worst) = runs.min_by(|&a, &b| lead(a).total_cmp(&lead(b))) else { return };
    record.claim(
        format!("{RECOMMENDED} hits at least as often as 2-4 BLP in all of this traffic"),
        "within half a point",
        format!("{:+.2} points at least: {}", 100.0 * lead(worst), bench.all[worst].workload),
        lead(worst) >= -0.005,
    );
    record.because(
        "Probably promotion keeps those flows that were hot before, and a flow that is new in the head can be \
         evicted before it is promoted: where hot sets last for few packets, random eviction is the better \
         policy; the table has the same geometry without promotion. `overbank advise` measures on the \
         sequence itself.",
    );
}
