//! What coherence costs: our protocol and the paper's under writes.
//!
//! Nothing is lost, late or repeated here, and nothing fails. No two writes have the same value. A
//! read is *stale* if a later write had replaced what it returns, and had been answered before the
//! read was sent.

use super::*;

pub const KVCOHERENCE: Experiment = Experiment {
    name: "kvcoherence",
    title: "Stale reads and the time of writes, with our protocol and the paper's",
    source: "NetCache, section 4.3; Overbank",
    run,
};

const THETA: f64 = 0.99;
const WRITES: [f64; 4] = [0.001, 0.01, 0.05, 0.2];
const KINDS: [(Protocol, &str); 2] = [(Protocol::Stamps, "ours"), (Protocol::Paper, "the paper's")];

struct Of {
    writes: f64,
    protocol: Protocol,
    name: &'static str,
    reads: u64,
    stale: u64,
    hit_share: f64,
    /// Mean microseconds of a write.
    write_us: f64,
}

impl Of {
    fn per_million(&self) -> f64 {
        self.stale as f64 / self.reads.max(1) as f64 * 1e6
    }
}

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("ours: no read is stale", "goal", |all: &[Of]| {
        let of = || all.iter().filter(|of| of.protocol == Protocol::Stamps);
        let (stale, reads): (u64, u64) =
            (of().map(|of| of.stale).sum(), of().map(|of| of.reads).sum());
        Finding::new(stale == 0, format!("{stale} of {reads}"))
    }),
    Claim::new(
        "a write of ours takes no longer than the paper's",
        "no write waits",
        |all: &[Of]| {
            let ratios: Vec<f64> =
                all.chunks(2).map(|both| both[0].write_us / both[1].write_us).collect();
            Finding::new(fullest(&ratios) <= 1.02, listed(&ratios, |ratio| format!("{ratio:.2} ×")))
        },
    ),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let size = Size::of(context);
    let (keys, ns) = if context.smoke() { (100_000, 2_000_000) } else { (100_000_000, 10_000_000) };
    let law = Law::new(keys, THETA)?;
    let seed = context.seed;
    let all = context.each(
        pairs(&WRITES, &KINDS),
        |(writes, (_, name))| format!("{name}, {} writes", percent(*writes, 1)),
        |_, (writes, (protocol, name))| {
            let plan = Plan { protocol, ..size.plan(size.items, seed) };
            let never = controller::Settings { writes_epochs: u8::MAX, ..plan.controller };
            let mut rack = Rack::new(Plan { controller: never, ..plan })?;
            rack.fill()?;
            // All servers take what comes, even if nothing is answered by the switch.
            let rate = 0.8 * ideal(plan.placement, &law, 0);
            let load = Load { writes, write_law: Some(law.clone()), ..reads(&law, rate) };
            let run = rack.measure(&load, size.lead_ns, ns);
            let Outcome { hits, misses, written, stale, write_ns, .. } = run.outcome;
            Ok(Of {
                writes,
                protocol,
                name,
                reads: hits + misses,
                stale,
                hit_share: hits as f64 / (hits + misses).max(1) as f64,
                write_us: write_ns as f64 / written.max(1) as f64 / 1e3,
            })
        },
    )?;
    let mut record = KVCOHERENCE.record(context);
    settings(&mut record, size, 1);
    record.setting("keys", keys);
    record.setting("θ of reads and writes", THETA);
    record.setting("cached keys", size.items);
    record.judge("", CLAIMS, &all[..]);
    record.tables.push(Table::of(
        "Reads and writes",
        &all,
        &[
            ("writes", &|of| percent(of.writes, 1)),
            ("protocol", &|of| of.name.to_owned()),
            ("reads", &|of| of.reads.to_string()),
            ("stale", &|of| of.stale.to_string()),
            ("of a million", &|of| format!("{:.0}", of.per_million())),
            ("answered by the switch", &|of| percent(of.hit_share, 1)),
            ("a write, µs", &|of| format!("{:.1}", of.write_us)),
        ],
    ));
    record.note(
        "Here the answer to a write passes the switch just before its update, on the same way, so \
         that readers find no stale value with the paper's protocol either. Where the answer is \
         ahead, they do: `cargo xtask coherence` and its short form in the tests, with processes.",
    );
    Ok(record)
}
