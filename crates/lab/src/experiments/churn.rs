//! Traffic that does not stand still: hot sets that move, scans, bursts of new flows; and whether
//! the papers' sampler of skewed traffic gives the hit rates of the exact one.
//!
//! The figures of the papers have traffic that stays as it is. A flow cache sees flows come and go,
//! so here the real tables are fed such sequences: hit rates only, nothing timed, every design the
//! same packets in the same order.

use crate::prelude::*;
use overbank_kit::micro::designs;
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
/// Flows per slot where all nearly fit, and where hot flows differ from cold ones.
const ALPHAS: [f64; 2] = [0.95, 3.0];
/// Percentages of the flows by which the ranks move on, each time that as many packets have come as
/// there are flows. (By one half, the old hot set would be back at every second move.)
const MOVES: [f64; 4] = [0.1, 1.0, 10.0, 30.0];
/// Percentages of packets that belong to new flows.
const PERCENT_NEW: [f64; 3] = [5.0, 20.0, 40.0];
/// Packets per flow of the base stream: before the measurement, and in it.
const WARM: usize = 20;
const MEASURED: usize = 5;
/// A burst of new flows; a scan has one packet a flow, and as many flows as fill a sixteenth of the
/// slots.
const BURST_OF: Run = Run { flows: 32, packets: 8 };

const NEW: [(Kind, &str); 2] = [(Kind::Scans, "scans"), (Kind::Bursts, "bursts")];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Exact,
    Gray,
    /// Its ranks move on by this percentage of the flows.
    Moving,
    /// This percentage of its packets belongs to new flows.
    Scans,
    Bursts,
    Everything,
}

/// A sequence, and hit rates of the designs on it.
struct Case {
    name: String,
    kind: Kind,
    alpha: f64,
    percent: f64,
    hits: Vec<f64>,
}

impl Case {
    fn hit(&self, name: &str) -> f64 {
        let at = NAMES.iter().position(|n| *n == name).expect("a design of the list");
        self.hits[at]
    }

    fn run(kind: Kind, entries: usize) -> Run {
        let scan = Run { flows: (entries / 16) as u32, packets: 1 };
        if kind == Kind::Scans { scan } else { BURST_OF }
    }

    fn workload(&self, entries: usize, seed: u64) -> Result<Box<dyn Workload>, WorkloadError> {
        let flows = (entries as f64 * self.alpha) as u32;
        let base = FlowStream::zipf(flows, THETA, seed)?;
        let moving = |base, percent: f64| {
            let by = (f64::from(flows) * percent / 100.0).max(1.0) as u32;
            Shifting::new(base, flows.into(), by)
        };
        let (run, share) = (Case::run(self.kind, entries), self.percent / 100.0);
        Ok(match self.kind {
            Kind::Exact => Box::new(base),
            Kind::Gray => Box::new(Gray::new(flows, THETA, seed)?),
            Kind::Moving => Box::new(moving(base, self.percent)?),
            Kind::Scans | Kind::Bursts => Box::new(Newcomers::new(base, share, run, seed)?),
            Kind::Everything => Box::new(Newcomers::new(moving(base, 1.0)?, 0.2, run, seed)?),
        })
    }
}

/// Returns all sequences, with no hits yet.
fn cases() -> Vec<Case> {
    let case = |name, kind, alpha, percent| Case { name, kind, alpha, percent, hits: Vec::new() };
    let [few, many] = ALPHAS;
    let still = ALPHAS.into_iter().flat_map(|alpha| {
        let law = format!("Zipf θ = {THETA}, α = {alpha}");
        let gray = format!("{law}, sampler of Gray et al.");
        [case(law, Kind::Exact, alpha, 0.0), case(gray, Kind::Gray, alpha, 0.0)]
    });
    let moving = MOVES.map(|percent| {
        let name = format!("α = {many}, hot set moves on by {percent} % of the flows");
        case(name, Kind::Moving, many, percent)
    });
    let new = NEW.map(|(kind, what)| {
        PERCENT_NEW.map(|percent| {
            let name = format!("α = {few}, {percent} % in {what} of new flows");
            case(name, kind, few, percent)
        })
    });
    let name = "α = 3, hot set moves on by 1 %, and 20 % in bursts of new flows".to_owned();
    let everything = case(name, Kind::Everything, many, 0.0);
    still.chain(moving).chain(new.into_iter().flatten()).chain([everything]).collect()
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let entries = if context.smoke() { 1 << 11 } else { 1 << 18 };
    let mut record = CHURN.record(context);
    record.setting("entries", entries);
    record.setting("warm-up", format!("{WARM} packets per flow from an empty table on"));
    record.setting("measured", format!("{MEASURED} packets per flow"));
    let designs = designs(&NAMES)?;
    let all = context.each(
        cases(),
        |case| case.name.clone(),
        |context, case| {
            let mut workload = case.workload(entries, context.seed).map_err(LabError::failed)?;
            let flows = (entries as f64 * case.alpha) as usize;
            let (warm, measured) = (WARM * flows, MEASURED * flows);
            let mut ids = vec![0; warm + measured];
            let drawn = workload.fill(&mut ids);
            let sequence = Sequence { ids: &ids[..drawn], hashes: None };
            let hits = designs.iter().map(|&design| {
                let (seed, stop) = (context.seed, context.stop);
                let run = simulate(design, entries, sequence, warm, measured, seed, stop);
                run.map(|run| run.hit_rate).map_err(|error| match error {
                    AdviseError::Stopped => LabError::Stopped,
                    error => LabError::failed(error),
                })
            });
            Ok(Case { hits: hits.collect::<Result<_, _>>()?, ..case })
        },
    )?;

    let [few, many] = ALPHAS;
    let plot = |kind: Kind, title: String, x: &str| {
        // New flows: from none on, which is the first sequence.
        let first = all.iter().take(usize::from(kind != Kind::Moving));
        let points: Vec<&Case> = first.chain(all.iter().filter(|c| c.kind == kind)).collect();
        let curve = |name: &&str| {
            let points = points.iter().map(|case| (case.percent, 100.0 * case.hit(name)));
            Series::measured(*name, points.collect())
        };
        Plot::new(title, x, "hit rate, %").with(NAMES.iter().map(curve))
    };
    let title = format!("Hot sets that move, Zipf θ = {THETA}, α = {many}");
    let x = "flows by which the ranks move on, per packet and flow, %";
    record.plots.push(plot(Kind::Moving, title, x).log_x());
    for (kind, what) in NEW {
        let title = format!("{what} of new flows in Zipf θ = {THETA}, α = {few}");
        record.plots.push(plot(kind, title, "packets of new flows, %"));
    }
    claims(&mut record, &all, entries);
    record.tables.push(Table::pivot(
        "Hit rate, %",
        "traffic",
        (&all, |case: &&Case| case.name.clone()),
        (NAMES, |name: &&str| (*name).to_owned()),
        |case, name| format!("{:.2}", 100.0 * case.hit(name)),
    ));
    record.note(
        "A hot set that moves: after as many packets as flows, each rank goes on to \
         another flow, so that the old head becomes part of the tail. A scan is a run of new flows \
         with one packet each, which no cache can hit; a burst is 32 new flows with 8 packets \
         each, taking turns, of which the first ones miss.",
    );
    Ok(record)
}

fn claims(record: &mut Record, all: &[Case], entries: usize) {
    let of = |kind: Kind| all.iter().filter(move |case| case.kind == kind);
    for (exact, gray) in of(Kind::Exact).zip(of(Kind::Gray)) {
        let off = NAMES.iter().map(|name| (100.0 * (gray.hit(name) - exact.hit(name)), ()));
        let (worst, ()) = farthest(off);
        let what = "hit rates with the sampler of Gray et al. are those of the exact one";
        record.claim(
            format!("α = {}: {what}", exact.alpha),
            "within 2 points",
            format!("{worst:+.2} points at most"),
            worst.abs() < 2.0,
        );
    }
    let both = |case: &Case| {
        let hit = |name| format!("{:.2}", 100.0 * case.hit(name));
        format!("{}, {} %", hit(RECOMMENDED), hit("blp-2-4"))
    };
    let Some((slow, fast)) = of(Kind::Moving).next().zip(of(Kind::Moving).next_back()) else {
        return;
    };
    record.claim(
        "the faster the hot set moves, the fewer hits, in every design",
        format!("{RECOMMENDED}, blp-2-4"),
        format!("{} to {}", both(slow), both(fast)),
        NAMES.iter().all(|name| fast.hit(name) < slow.hit(name)),
    );
    for (kind, what) in NEW {
        let Some(last) = of(kind).next_back() else { continue };
        // The first packet of each new flow misses; two points of luck in the share at the small
        // size.
        let packets = f64::from(Case::run(kind, entries).packets);
        let most = 1.0 - last.percent / 100.0 / packets + 0.02;
        let best = last.hits.iter().copied().fold(0.0, f64::max);
        let percent = last.percent;
        record.claim(
            format!("{percent} % in {what}: no more hits than packets that are not a flow’s first"),
            format!("at most {:.1} %", 100.0 * most),
            format!("{:.2} % at best", 100.0 * best),
            best <= most,
        );
    }
    let lead = |case: &Case| case.hit(RECOMMENDED) - case.hit("blp-2-4");
    let Some(worst) = all.iter().min_by(|a, b| lead(a).total_cmp(&lead(b))) else { return };
    record.claim(
        format!("{RECOMMENDED} hits at least as often as 2-4 BLP in all of this traffic"),
        "within half a point",
        format!("{:+.2} points at least: {}", 100.0 * lead(worst), worst.name),
        lead(worst) >= -0.005,
    );
    record.because(
        "Probably promotion keeps those flows that were hot before, and a flow that is new in the \
         head can be evicted before it is promoted: where hot sets last for few packets, random \
         eviction is the better policy; the table has the same geometry without promotion. \
         `overbank advise` measures on the sequence itself.",
    );
}
