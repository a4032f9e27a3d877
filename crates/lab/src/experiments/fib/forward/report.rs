//! The record of figure 7.

use super::learning::Learning;
use super::{FRAME, Measured, PORTS, RING, THETA};
use crate::experiments::fib::measure::{self, Plan};
use crate::experiments::fib::sizes;
use overbank_kit::experiment::{Claim, Column, Finding, Plot, Record, Series, Table};
use overbank_kit::spread::Spread;

/// The paper's hardware forwarded 92 million packets a second with 16 threads.
const PAPER: (f64, f64) = (92.0, 16.0);
/// A billion entries are to be in less.
const GIB_MAX: f64 = 9.0;

impl Measured {
    fn name(&self) -> String {
        sizes::name(self.entries)
    }

    fn gib(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 30)
    }
}

fn ns(ns: &[f64]) -> Spread {
    Spread::of(ns.iter().copied())
}

/// Million a second, from nanoseconds each.
fn rate(of: &[f64]) -> Spread {
    measure::rate(ns(of))
}

/// Nanoseconds that the forwarder adds to the loop, by round.
fn added(ns: &[f64], pass: &[f64]) -> Spread {
    Spread::of_differences(ns.iter().copied(), pass.iter().copied())
}

pub(super) fn write(record: &mut Record, plan: &Plan, all: &[Measured]) {
    record.settings([
        ("frames", format!("{FRAME} bytes and the check sequence, a ring of {RING}")),
        ("ports", format!("1 in, {PORTS} out, in memory; bursts of 32")),
        ("with learning", "as --mode l2: 32 destinations and 32 sources a burst, untagged".into()),
        ("frames of a round", plan.keys.to_string()),
        ("rounds", plan.rounds.to_string()),
        ("skew", format!("Zipf {THETA} by the formula of Gray et al.")),
        ("threads", "1 (the paper: 16)".into()),
        ("the paper's machine", "2 × Xeon E5-2680, 8 ports of 10 GbE, about 92 Mpps".into()),
    ]);
    record.plots.extend([packets(all), insertions(all)]);
    record.tables.push(forwarding(all));
    record.tables.extend(with_learning(all));
    record.tables.extend([tables(all), latencies(all), bands(all)]);
    all.iter().for_each(|m| record.judge(&format!("{} entries", m.name()), CLAIMS, m));
    record.note(
        "The loop alone is the same loop without the forwarder: a new destination is written into each \
         frame, the frame is received and sent. Addresses are drawn when the clock does not run. The \
         paper's figure ends at what its network cards can do; here no card is in the way, and none \
         helps. Every frame is counted at the port that it left by.",
    );
    record.note(
        "With learning is what the switch's --mode l2 does: each address in a VLAN of its table of \
         stations, which has learnt them all, and for each frame a lookup of the destination and one \
         of the source, 64 keys a burst. Half of the stations are behind the port that frames come in \
         on and send, half behind the others and receive; every source is known, so nothing is \
         reported. Without learning a burst is 32 keys of 48 bits, as in the paper.",
    );
    let left_out = all.iter().filter_map(|m| m.learning.as_ref().err());
    record.notes.extend(left_out.map(|line| format!("{line}.")));
    record.note(
        "Insertions: the table is filled from a list of addresses, the lines of each asked for 16 \
         insertions ahead. Single insertions are timed one by one, of new addresses whose lines were \
         not asked for, after another entry was removed, so at 95 % but for one entry; the time of the \
         clock is in them.",
    );
}

fn packets(all: &[Measured]) -> Plot {
    let curve = |name: &str, of: fn(&Measured) -> Option<&Vec<f64>>| {
        let points = all.iter().filter_map(|m| Some((m.entries as f64, rate(of(m)?))));
        Series::rounds(name, points)
    };
    let series = [
        curve("uniform", |m| Some(&m.times.uniform)),
        curve("Zipf 0.99", |m| Some(&m.times.zipf)),
        Series { model: true, ..curve("the loop alone", |m| Some(&m.times.pass)) },
        curve("uniform, with learning", |m| Some(&m.learning.as_ref().ok()?.uniform)),
        curve("Zipf 0.99, with learning", |m| Some(&m.learning.as_ref().ok()?.zipf)),
    ];
    let plot = Plot::new(
        "frames forwarded by one core",
        "entries of the table",
        "million packets a second",
    );
    let drawn = series.into_iter().filter(|series| !series.points.is_empty());
    // Where that size was measured; elsewhere the mark would stretch the axis.
    let billion = all.iter().filter(|m| m.entries == 1_000_000_000);
    billion.fold(plot.log_x().with(drawn), |plot, m| {
        plot.mark("the paper's 92 Mpps, by thread", m.entries as f64, PAPER.0 / PAPER.1)
    })
}

fn insertions(all: &[Measured]) -> Plot {
    let series = all.iter().map(|m| {
        let points = m.built.bands.iter().map(|band| (band.percent as f64, band.rate));
        Series::measured(format!("{} entries", m.name()), points.collect())
    });
    let (x, y) = ("occupancy, %", "million insertions a second");
    Plot::new("rate of insertion up to each occupancy", x, y).log_y().with(series)
}

fn forwarding(all: &[Measured]) -> Table {
    Table::of(
        "Forwarding: median and range of the rounds",
        all,
        &[
            ("entries", &|m| m.name()),
            ("uniform: Mpps", &|m| rate(&m.times.uniform).cell(1)),
            ("Zipf 0.99: Mpps", &|m| rate(&m.times.zipf).cell(1)),
            ("the loop alone: Mpps", &|m| rate(&m.times.pass).cell(1)),
            ("uniform: ns a frame", &|m| ns(&m.times.uniform).cell(1)),
            ("Zipf 0.99: ns", &|m| ns(&m.times.zipf).cell(1)),
            ("the loop alone: ns", &|m| ns(&m.times.pass).cell(1)),
            ("added, uniform: ns", &|m| added(&m.times.uniform, &m.times.pass).cell(1)),
            ("added, Zipf 0.99: ns", &|m| added(&m.times.zipf, &m.times.pass).cell(1)),
        ],
    )
}

/// The switch that learns; `None` if no size was measured with learning.
fn with_learning(all: &[Measured]) -> Option<Table> {
    let learnt: Vec<(&Measured, &Learning)> =
        all.iter().filter_map(|m| Some((m, m.learning.as_ref().ok()?))).collect();
    let slower = |with: &[f64], without: &[f64]| {
        let factor = Spread::of_ratios(with.iter().copied(), without.iter().copied());
        format!("{:.2}", factor.median)
    };
    let title = "Forwarding with learning, as --mode l2: address and VLAN, destination and source \
                 looked up, all sources known";
    let columns: &[Column<'_, &(&Measured, &Learning)>] = &[
        ("entries", &|(m, _)| m.name()),
        ("uniform: Mpps", &|(_, l)| rate(&l.uniform).cell(1)),
        ("Zipf 0.99: Mpps", &|(_, l)| rate(&l.zipf).cell(1)),
        ("uniform: ns a frame", &|(_, l)| ns(&l.uniform).cell(1)),
        ("Zipf 0.99: ns", &|(_, l)| ns(&l.zipf).cell(1)),
        ("added, uniform: ns", &|(m, l)| added(&l.uniform, &m.times.pass).cell(1)),
        ("added, Zipf 0.99: ns", &|(m, l)| added(&l.zipf, &m.times.pass).cell(1)),
        ("× without learning, uniform", &|(m, l)| slower(&l.uniform, &m.times.uniform)),
        ("× without learning, Zipf 0.99", &|(m, l)| slower(&l.zipf, &m.times.zipf)),
        ("GiB", &|(_, l)| format!("{:.3}", l.bytes as f64 / f64::from(1 << 30))),
        ("bytes an entry", &|(m, l)| format!("{:.2}", l.bytes as f64 / m.entries as f64)),
        ("occupancy", &|(_, l)| format!("{:.2} %", 100.0 * l.occupancy)),
        ("huge pages", &|(_, l)| l.pages.clone()),
        ("learnt in: s", &|(_, l)| format!("{:.2}", l.seconds)),
    ];
    (!learnt.is_empty()).then(|| Table::of(title, &learnt, columns))
}

fn tables(all: &[Measured]) -> Table {
    Table::of(
        "Building the table",
        all,
        &[
            ("entries", &|m| m.name()),
            ("GiB", &|m| format!("{:.3}", m.gib())),
            ("bytes an entry", &|m| format!("{:.2}", m.bytes as f64 / m.entries as f64)),
            ("occupancy", &|m| format!("{:.2} %", 100.0 * m.occupancy)),
            ("huge pages", &|m| m.pages.clone()),
            ("memory: s", &|m| format!("{:.2}", m.built.allocated_s)),
            ("insertions: s", &|m| format!("{:.2}", m.built.filled_s)),
            ("all: s", &|m| format!("{:.2}", m.built.allocated_s + m.built.filled_s)),
            ("M insertions a second", &|m| {
                format!("{:.1}", m.entries as f64 / m.built.filled_s / 1e6)
            }),
        ],
    )
}

fn latencies(all: &[Measured]) -> Table {
    Table::of(
        "One insertion at 95 %: ns",
        all,
        &[
            ("entries", &|m| m.name()),
            ("p50", &|m| m.latency.p50.to_string()),
            ("p99", &|m| m.latency.p99.to_string()),
            ("p99.9", &|m| m.latency.p999.to_string()),
            ("longest", &|m| m.latency.max.to_string()),
            ("of it the clock", &|m| m.latency.clock.to_string()),
            ("insertions", &|m| m.latency.count.to_string()),
        ],
    )
}

fn bands(all: &[Measured]) -> Table {
    let sizes = all.iter().map(|m| format!("{} entries", m.name()));
    let mut table = Table::new(
        "Million insertions a second (entries moved by each)",
        ["occupancy up to".to_owned()].into_iter().chain(sizes),
    );
    for (i, band) in all.first().map_or(&[][..], |m| &m.built.bands).iter().enumerate() {
        let cells = all.iter().map(|m| {
            let band = &m.built.bands[i];
            format!("{:.1} ({:.3})", band.rate, band.moves)
        });
        table.row([format!("{} %", band.percent)].into_iter().chain(cells));
    }
    table
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
        Finding::new(m.occupancy > 0.9495, format!("{:.2} %", 100.0 * m.occupancy))
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
        let each = m.bytes as f64 / m.entries as f64 * 1e9 / f64::from(1 << 30);
        let found = Finding::new(each < GIB_MAX, format!("{each:.2}"));
        found.filter(|_| m.entries >= 1_000_000_000)
    }),
    Claim::timed(
        "Mpps of one core, uniform and Zipf 0.99",
        "the paper: 92 by 16 threads up to a billion entries, 5.75 each",
        |m| {
            let (uniform, zipf) = (rate(&m.times.uniform).median, rate(&m.times.zipf).median);
            let holds = uniform.min(zipf) >= PAPER.0 / PAPER.1;
            Finding::new(holds, format!("{uniform:.1}, {zipf:.1}"))
        },
    ),
];
