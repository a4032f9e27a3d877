//! What coherence costs: our protocol, the paper's, and write-around under writes, with and without
//! faults.
//!
//! No two writes have the same value. A read is *stale* if a later write had replaced what it
//! returns, and had been answered before the read was sent. That is exact while each path keeps its
//! order; with faults, the histories of the hottest keys are judged (`kit::histories`).
//!
//! *Write-around*: a write makes the key invalid, and no update follows. The switch's controller
//! has values brought again, one each 100 µs, the hottest key first: "control plane updates", some
//! 10,000 a second (section 4.3 and 6).

use super::*;

pub const KVCOHERENCE: Experiment = Experiment {
    name: "kvcoherence",
    title: "Stale reads, the time of writes, and how long keys are invalid",
    source: "NetCache, section 4.3; Overbank",
    run,
};

const THETA: f64 = 0.99;
const WRITES: [f64; 4] = [0.001, 0.01, 0.05, 0.2];
const WATCHED: u64 = 100;
const AROUND_NS: u64 = 100_000;
const FAULTS: Faults = Faults { lost: 0.01, twice: 0.01, late: 0.05, late_ns: 20_000 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours,
    Paper,
    Around,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Ours, "ours"), (Kind::Paper, "the paper's"), (Kind::Around, "write-around")];

struct Of {
    writes: f64,
    faults: bool,
    kind: Kind,
    name: &'static str,
    run: Run,
    /// Watched keys whose history has no order.
    wrong: usize,
}

impl Of {
    fn reads(&self) -> u64 {
        self.run.outcome.hits + self.run.outcome.misses
    }

    /// Share of the reads that the switch has answered.
    fn hit_share(&self) -> f64 {
        self.run.outcome.hits as f64 / self.reads().max(1) as f64
    }

    /// Mean microseconds of a write.
    fn write_us(&self) -> f64 {
        self.run.outcome.write_ns as f64 / self.run.outcome.written.max(1) as f64 / 1e3
    }
}

/// Returns a figure of ours by that of another kind, for each share of writes without faults.
fn ratios(all: &[Of], other: Kind, figure: impl Fn(&Of) -> f64) -> Vec<f64> {
    let of = |kind: Kind| all.iter().filter(move |of| of.kind == kind && !of.faults);
    of(Kind::Ours).zip(of(other)).map(|(ours, other)| figure(ours) / figure(other)).collect()
}

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("ours: no read is stale, each history has an order", "goal", |all: &[Of]| {
        let of = || all.iter().filter(|of| of.kind == Kind::Ours);
        let stale: u64 = of().filter(|of| !of.faults).map(|of| of.run.outcome.stale).sum();
        let (reads, wrong): (u64, usize) =
            (of().map(Of::reads).sum(), of().map(|of| of.wrong).sum());
        let judged = of().count() as u64 * WATCHED;
        let holds = stale == 0 && wrong == 0;
        Finding::new(holds, format!("{stale} of {reads} reads, {wrong} of {judged} histories"))
    }),
    Claim::new("with faults, the paper's gives old values back", "section 2", |all: &[Of]| {
        let of = || all.iter().filter(|of| of.kind == Kind::Paper && of.faults);
        let (wrong, judged) = (of().map(|of| of.wrong).sum::<usize>(), of().count() as u64);
        Finding::new(wrong > 0, format!("{wrong} of {} histories", judged * WATCHED))
    }),
    Claim::new(
        "a write of ours takes no longer than the paper's",
        "no write waits",
        |all: &[Of]| {
            let ratios = ratios(all, Kind::Paper, Of::write_us);
            Finding::new(fullest(&ratios) <= 1.02, listed(&ratios, |ratio| format!("{ratio:.2} ×")))
        },
    ),
    Claim::new("ours answers more from the switch than write-around", "faster", |all: &[Of]| {
        let ratios = ratios(all, Kind::Around, Of::hit_share);
        let holds = ratios.iter().all(|ratio| *ratio >= 1.0);
        Finding::new(holds, listed(&ratios, |ratio| format!("{ratio:.2} ×")))
    }),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keys, ns) = if context.smoke() { (100_000, 2_000_000) } else { (100_000_000, 10_000_000) };
    let law = Law::new(keys, THETA)?;
    let seed = context.seed;
    let cases = pairs(&pairs(&[false, true], &WRITES), &KINDS);
    let all = context.each(
        cases,
        |((faults, writes), (_, name))| {
            let faults = if *faults { ", with faults" } else { "" };
            format!("{name}, {} writes{faults}", percent(*writes, 1))
        },
        |_, ((faults, writes), (kind, name))| {
            let plan = size.plan(size.items, seed);
            let never = controller::Settings { writes_epochs: u8::MAX, ..plan.controller };
            let (paper, around) = (kind == Kind::Paper, kind == Kind::Around);
            let mut rack = Rack::new(Plan {
                controller: never,
                protocol: if paper { Protocol::Paper } else { Protocol::Stamps },
                around_ns: around.then_some(AROUND_NS),
                faults: if faults { FAULTS } else { Faults::default() },
                watched: WATCHED,
                ..plan
            })?;
            rack.fill()?;
            // All servers take what comes, even if nothing is answered by the switch.
            let rate = 0.8 * ideal(plan.placement, &law, 0);
            let load = Load { writes, write_law: Some(law.clone()), ..reads(&law, rate) };
            let run = rack.measure(&load, size.lead_ns, ns);
            Ok(Of { writes, faults, kind, name, run, wrong: rack.wrong() })
        },
    )?;
    let mut record = KVCOHERENCE.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    record.setting("θ of reads and writes", THETA);
    record.setting("cached keys", size.items);
    record.setting("keys whose history is judged", WATCHED);
    record.setting("faults of each way", "1 % lost, 1 % twice, 5 % up to 20 µs late");
    record.judge("", CLAIMS, &all[..]);
    record.tables.push(Table::of(
        "Reads and writes",
        &all,
        &[
            ("faults", &|of| if of.faults { "yes" } else { "no" }.to_owned()),
            ("writes", &|of| percent(of.writes, 1)),
            ("protocol", &|of| of.name.to_owned()),
            ("reads", &|of| of.reads().to_string()),
            ("stale", &|of| {
                if of.faults { String::new() } else { of.run.outcome.stale.to_string() }
            }),
            ("histories without an order", &|of| of.wrong.to_string()),
            ("answered by the switch", &|of| percent(of.hit_share(), 1)),
            ("hottest keys invalid", &|of| percent(of.run.invalid, 1)),
            ("a write, µs", &|of| format!("{:.1}", of.write_us())),
        ],
    ));
    record.note(
        "Without faults, the answer to a write passes the switch just before its update, on the same \
         way, so that readers find no stale value with the paper's protocol either. With faults, one \
         is ahead of the other now and then. What is lost is not sent again by clients here. The \
         product under faults, as processes: `cargo xtask coherence`.",
    );
    Ok(record)
}
