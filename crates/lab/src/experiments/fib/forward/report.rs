//! The record of figure 7.

use super::{
    ALONE, FRAME, LEARNT_UNIFORM, LEARNT_ZIPF, Measured, PORTS, RING, THETA, UNIFORM, ZIPF,
};
use crate::experiments::fib::insertion::{Band, LATENCIES};
use crate::experiments::fib::measure::{Plan, rate};
use crate::experiments::fib::sizes::{self, gib};
use crate::prelude::*;
use overbank_ports::queue::BURST;

/// The paper's hardware forwarded 92 million packets a second with 16 threads.
const PAPER: (f64, f64) = (92.0, 16.0);
/// A billion entries are to be in less.
const GIB_MAX: f64 = 9.0;

const LANES: [(&str, usize); 5] = [
    ("uniform", UNIFORM),
    ("Zipf 0.99", ZIPF),
    ("the loop alone", ALONE),
    ("uniform, with learning", LEARNT_UNIFORM),
    ("Zipf 0.99, with learning", LEARNT_ZIPF),
];

impl Measured {
    /// Returns the million frames a second.
    fn rate(&self, lane: usize) -> Spread {
        rate(self.times.spread(lane))
    }

    /// Returns the nanoseconds that the forwarder adds to the loop, by round.
    fn added(&self, lane: usize) -> Spread {
        let of = |lane: usize| self.times.figures[lane].iter().copied();
        Spread::of_differences(of(lane), of(ALONE))
    }

    fn has(&self, lane: usize) -> bool {
        lane < self.times.figures.len()
    }
}

pub(super) fn write(record: &mut Record, plan: &Plan, all: &[Measured]) {
    record.settings([
        ("frames", format!("{FRAME} bytes and the check sequence, a ring of {RING}")),
        ("ports", format!("1 in, {PORTS} out, in memory; up to {BURST} frames a call")),
        ("with learning", "as --mode l2: 32 destinations and 32 sources a burst, untagged".into()),
        ("frames of a round", plan.keys.to_string()),
        ("rounds", plan.rounds.to_string()),
        ("skew", format!("Zipf {THETA} by the formula of Gray et al.")),
        ("threads", "1 (the paper: 16)".into()),
        ("the paper's machine", "2 × Xeon E5-2680, 8 ports of 10 GbE, about 92 Mpps".into()),
    ]);
    record.plots.extend([packets(all), insertions(all)]);
    record.tables.extend(tables(all));
    all.iter().for_each(|m| record.judge(&sizes::name_of(m.entries), CLAIMS, m));
    record.note(
        "The loop alone is the same loop without the forwarder: a new destination is written into \
         each frame, the frame is received and sent. The paper's figure ends at what its network \
         cards can do; here no card is in the way, and none helps.",
    );
    record.note(
        "With learning is what the switch's --mode l2 does: for each frame a lookup of the \
         destination and one of the source, an address in a VLAN each. Half of the stations send \
         from behind the ingress, half receive behind the other ports; every source is known, so \
         nothing is reported.",
    );
    let left_out = all.iter().filter_map(|m| m.learning.as_ref().err());
    record.notes.extend(left_out.map(|line| format!("{line}.")));
    record.note(
        "Insertions: the table is filled with the lines of each address asked for 16 insertions \
         ahead. Single insertions are of new addresses whose lines were not asked for, at 95 % but \
         for one entry; the time of the clock is in them.",
    );
}

fn packets(all: &[Measured]) -> Plot {
    let curves = LANES.map(|(name, lane)| {
        let measured = all.iter().filter(|m| m.has(lane));
        let points = measured.map(|m| (m.entries as f64, m.rate(lane)));
        Series { model: lane == ALONE, ..Series::rounds(name, points) }
    });
    let (x, y) = ("entries of the table", "million packets a second");
    let plot = Plot::new("frames forwarded by one core", x, y).log_x();
    let plot = plot.with(curves.into_iter().filter(|curve| !curve.points.is_empty()));
    // Where that size was measured; elsewhere the mark would stretch the axis.
    all.iter().filter(|m| m.entries == 1_000_000_000).fold(plot, |plot, m| {
        plot.mark("the paper's 92 Mpps, by thread", m.entries as f64, PAPER.0 / PAPER.1)
    })
}

fn insertions(all: &[Measured]) -> Plot {
    let series = all.iter().map(|m| {
        let points = m.built.bands.iter().map(|band| (band.percent as f64, band.rate));
        Series::measured(sizes::name_of(m.entries), points.collect())
    });
    let (x, y) = ("occupancy, %", "million insertions a second");
    Plot::new("rate of insertion up to each occupancy", x, y).log_y().with(series)
}

fn tables(all: &[Measured]) -> [Table; 4] {
    let lanes = all.iter().flat_map(|m| LANES.map(|(name, lane)| (m, name, lane)));
    let forwarding = Table::of(
        "Forwarding: median and range of the rounds",
        lanes.filter(|(m, _, lane)| m.has(*lane)),
        &[
            ("entries", &|(m, ..)| sizes::name(m.entries)),
            ("frames", &|(_, name, _)| (*name).to_owned()),
            ("Mpps", &|(m, _, lane)| m.rate(*lane).cell(1)),
            ("ns a frame", &|(m, _, lane)| m.times.spread(*lane).cell(1)),
            ("added to the loop: ns", &|&(m, _, lane)| match lane {
                ALONE => "–".to_owned(),
                lane => m.added(lane).cell(1),
            }),
            ("× without learning", &|&(m, _, lane)| match lane {
                LEARNT_UNIFORM | LEARNT_ZIPF => {
                    format!("{:.2}", m.times.ratio(lane, lane - LEARNT_UNIFORM).median)
                }
                _ => "–".to_owned(),
            }),
        ],
    );
    let own =
        all.iter().map(|m| (m.entries, "", &m.facts, Some(m.built.allocated_s), m.built.filled_s));
    let learnt = all.iter().filter_map(|m| {
        let learning = m.learning.as_ref().ok()?;
        Some((m.entries, ", with learning", &learning.facts, None, learning.seconds))
    });
    let building = Table::of(
        "Building the table",
        own.chain(learnt),
        &[
            ("entries", &|(entries, how, ..)| format!("{}{how}", sizes::name(*entries))),
            ("GiB", &|(_, _, facts, ..)| format!("{:.3}", gib(facts.bytes))),
            ("bytes an entry", &|(entries, _, facts, ..)| sizes::each(facts.bytes, *entries)),
            ("occupancy", &|(_, _, facts, ..)| percent(facts.occupancy, 2)),
            ("huge pages", &|(_, _, facts, ..)| facts.pages.clone()),
            ("memory: s", &|(.., memory, _)| memory.map_or("–".into(), |s| format!("{s:.2}"))),
            ("all: s", &|(.., memory, filled)| format!("{:.2}", memory.unwrap_or(0.0) + filled)),
            ("M insertions a second", &|(entries, .., filled)| {
                format!("{:.1}", *entries as f64 / filled / 1e6)
            }),
        ],
    );
    let latencies = Table::pivot(
        "One insertion at 95 %: ns",
        "entries",
        (all, |m: &&Measured| sizes::name(m.entries)),
        (LATENCIES.into_iter().enumerate(), |(_, name): &(usize, &str)| (*name).to_owned()),
        |m, &(i, _)| m.latency[i].to_string(),
    );
    let bands = all.first().map_or(&[][..], |m| &m.built.bands).iter().enumerate();
    let bands = Table::pivot(
        "Million insertions a second (entries moved by each)",
        "occupancy up to",
        (bands, |(_, band): &(usize, &Band)| format!("{} %", band.percent)),
        (all, |m: &&Measured| sizes::name_of(m.entries)),
        |&(i, _), m| format!("{:.1} ({:.3})", m.built.bands[i].rate, m.built.bands[i].moves),
    );
    [forwarding, building, latencies, bands]
}

const CLAIMS: &[Claim<Measured>] = &[
    Claim::new("every frame leaves by the port of its address", "all", |m| {
        let counts = m.counts;
        let measured = format!("{} of {}", counts.right, counts.frames);
        Finding::new(counts.right == counts.frames, measured)
    }),
    Claim::new(
        "with learning, every frame leaves by the port of its address, and every source is known",
        "all, none to report",
        |m| {
            let counts = m.learning.as_ref().ok()?.counts;
            let holds = counts.right == counts.frames && counts.news == 0;
            let right = format!("{} of {}", counts.right, counts.frames);
            Finding::new(holds, format!("{right}, {} to report", counts.news))
        },
    ),
    // The two spare buckets count in a small table.
    Claim::new("occupancy without a refused insertion", "about 95 % at least", |m| {
        Finding::new(m.facts.occupancy > 0.9495, percent(m.facts.occupancy, 2))
    }),
    Claim::new(
        "entries moved by an insertion, up to 5 % and up to 95 %",
        "none at first, more at the end, at most 1 on average",
        |m| {
            let (first, last) = (m.built.bands.first()?.moves, m.built.bands.last()?.moves);
            let holds = first == 0.0 && last > 0.0 && last <= 1.0;
            Finding::new(holds, format!("{first:.3}, {last:.3}"))
        },
    ),
    Claim::new("GiB a billion of 8 bytes", "below 9", |m| {
        let each = gib(m.facts.bytes) / m.entries as f64 * 1e9;
        let found = Finding::new(each < GIB_MAX, format!("{each:.2}"));
        found.filter(|_| m.entries >= 1_000_000_000)
    }),
    Claim::timed(
        "Mpps of one core, uniform and Zipf 0.99",
        "the paper: 92 by 16 threads up to a billion entries, 5.75 each",
        |m| {
            let [uniform, zipf] = [UNIFORM, ZIPF].map(|lane| m.rate(lane).median);
            let holds = uniform.min(zipf) >= PAPER.0 / PAPER.1;
            Finding::new(holds, format!("{uniform:.1}, {zipf:.1}"))
        },
    ),
];
