//! The record of figure 7.

use super::learning::Learning;
use super::{FRAME, Measured, PORTS, RING, THETA};
use crate::experiments::fib::measure::Plan;
use crate::experiments::fib::sizes;
use overbank_kit::experiment::{Mark, Plot, Record, Series, Size, Table};
use overbank_kit::spread::Spread;

/// The paper's hardware forwarded so many million packets a second, with so many threads.
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

/// Million a second, from nanoseconds each.
fn rates(ns: &[f64]) -> Spread {
    Spread::of(ns.iter().map(|ns| 1000.0 / ns))
}

/// Nanoseconds that the forwarder adds to the loop, by round.
fn added(ns: &[f64], pass: &[f64]) -> Spread {
    Spread::of(ns.iter().zip(pass).map(|(ns, pass)| ns - pass))
}

fn text(spread: Spread) -> String {
    let Spread { median, low, high } = spread;
    format!("{median:.1} [{low:.1}–{high:.1}]")
}

pub(super) fn write(record: &mut Record, plan: &Plan, all: &[Measured]) {
    record.setting("frames", format!("{FRAME} bytes and the check sequence, a ring of {RING}"));
    record.setting("ports", format!("1 in, {PORTS} out, in memory; bursts of 32"));
    record
        .setting("with learning", "as --mode l2: 32 destinations and 32 sources a burst, untagged");
    record.setting("frames of a round", plan.keys);
    record.setting("rounds", plan.rounds);
    record.setting("skew", format!("Zipf {THETA} by the formula of Gray et al."));
    record.setting("threads", "1 (the paper: 16)");
    record.setting("the paper's machine", "2 × Xeon E5-2680, 8 ports of 10 GbE, about 92 Mpps");
    record.plots.extend([packets(all), insertions(all)]);
    record.tables.push(forwarding(all));
    record.tables.extend(with_learning(all));
    record.tables.extend([tables(all), latencies(all), bands(all)]);
    claims(record, all);
    record.notes.push(
        "The loop alone is the same loop without the forwarder: a new destination is written into each \
         frame, the frame is received and sent. Addresses are drawn when the clock does not run. The \
         paper's figure ends at what its network cards can do; here no card is in the way, and none \
         helps. Every frame is counted at the port that it left by."
            .into(),
    );
    record.notes.push(
        "With learning is what the live switch's --mode l2 does: each address in a VLAN of its own table \
         of stations, which has learnt them all, and for each frame a lookup of the destination and one \
         of the source, 64 keys a burst. Half of the stations are behind the port that frames come in \
         on and send, half behind the others and receive; every source is known, so nothing is reported. \
         Without learning a burst is 32 keys of 48 bits, as in the paper."
            .into(),
    );
    let left_out = all.iter().filter_map(|m| m.learning.as_ref().err());
    record.notes.extend(left_out.map(|line| format!("{line}.")));
    record.notes.push(
        "Insertions: the table is filled from a list of addresses, the lines of each asked for 16 \
         insertions ahead. Single insertions are timed one by one, of new addresses whose lines nobody \
         asked for, after another entry was removed, so at 95 % but for one entry; the time of the clock \
         is in them."
            .into(),
    );
}

fn packets(all: &[Measured]) -> Plot {
    let curve = |name: &str, of: &dyn Fn(&Measured) -> Spread, model| Series {
        name: name.to_owned(),
        points: all.iter().map(|m| (m.entries as f64, of(m).median)).collect(),
        ranges: all.iter().map(|m| of(m).range()).collect(),
        model,
    };
    let learnt = |name: &str, of: fn(&Learning) -> &Vec<f64>| {
        let sizes =
            || all.iter().filter_map(|m| Some((m.entries as f64, m.learning.as_ref().ok()?)));
        Series {
            name: name.to_owned(),
            points: sizes().map(|(x, l)| (x, rates(of(l)).median)).collect(),
            ranges: sizes().map(|(_, l)| rates(of(l)).range()).collect(),
            model: false,
        }
    };
    let series = [
        curve("uniform", &|m| rates(&m.times.uniform), false),
        curve("Zipf 0.99", &|m| rates(&m.times.zipf), false),
        curve("the loop alone", &|m| rates(&m.times.pass), true),
        learnt("uniform, with learning", |l| &l.uniform),
        learnt("Zipf 0.99, with learning", |l| &l.zipf),
    ];
    Plot {
        title: "frames forwarded by one core".into(),
        x: "entries of the table".into(),
        y: "million packets a second".into(),
        log_x: true,
        log_y: false,
        series: series.into_iter().filter(|series| !series.points.is_empty()).collect(),
        // Where that size was measured; elsewhere the mark would stretch the axis.
        stated: all.iter().filter(|m| m.entries == 1_000_000_000).map(paper).collect(),
    }
}

fn paper(m: &Measured) -> Mark {
    let name = "the paper's 92 Mpps, by thread".into();
    Mark { name, x: m.entries as f64, y: PAPER.0 / PAPER.1 }
}

fn insertions(all: &[Measured]) -> Plot {
    let series = all.iter().map(|m| {
        let points = m.built.bands.iter().map(|band| (band.percent as f64, band.rate));
        Series::measured(format!("{} entries", m.name()), points.collect())
    });
    Plot {
        title: "rate of insertion up to each occupancy".into(),
        x: "occupancy, %".into(),
        y: "million insertions a second".into(),
        log_x: false,
        log_y: true,
        series: series.collect(),
        stated: Vec::new(),
    }
}

fn table(title: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
    Table { title: title.to_owned(), headings, rows }
}

fn forwarding(all: &[Measured]) -> Table {
    let rows = all.iter().map(|m| {
        let times = &m.times;
        vec![
            m.name(),
            text(rates(&times.uniform)),
            text(rates(&times.zipf)),
            text(rates(&times.pass)),
            text(Spread::of(times.uniform.clone())),
            text(Spread::of(times.zipf.clone())),
            text(Spread::of(times.pass.clone())),
            text(added(&times.uniform, &times.pass)),
            text(added(&times.zipf, &times.pass)),
        ]
    });
    table(
        "Forwarding: median and range of the rounds",
        &[
            "entries",
            "uniform: Mpps",
            "Zipf 0.99: Mpps",
            "the loop alone: Mpps",
            "uniform: ns a frame",
            "Zipf 0.99: ns",
            "the loop alone: ns",
            "added, uniform: ns",
            "added, Zipf 0.99: ns",
        ],
        rows.collect(),
    )
}

/// How many times as long a frame takes, by round.
fn slower(with: &[f64], without: &[f64]) -> Spread {
    Spread::of(with.iter().zip(without).map(|(with, without)| with / without))
}

/// The live switch; `None` if no size was measured with learning.
fn with_learning(all: &[Measured]) -> Option<Table> {
    let row = |m: &Measured| {
        let (l, times) = (m.learning.as_ref().ok()?, &m.times);
        let factor = |with, without| format!("{:.2}", slower(with, without).median);
        Some(vec![
            m.name(),
            text(rates(&l.uniform)),
            text(rates(&l.zipf)),
            text(Spread::of(l.uniform.clone())),
            text(Spread::of(l.zipf.clone())),
            text(added(&l.uniform, &times.pass)),
            text(added(&l.zipf, &times.pass)),
            factor(&l.uniform, &times.uniform),
            factor(&l.zipf, &times.zipf),
            format!("{:.3}", l.bytes as f64 / f64::from(1 << 30)),
            format!("{:.2}", l.bytes as f64 / m.entries as f64),
            format!("{:.2} %", 100.0 * l.occupancy),
            l.pages.clone(),
            format!("{:.2}", l.seconds),
        ])
    };
    let rows: Vec<_> = all.iter().filter_map(row).collect();
    let headings = [
        "entries",
        "uniform: Mpps",
        "Zipf 0.99: Mpps",
        "uniform: ns a frame",
        "Zipf 0.99: ns",
        "added, uniform: ns",
        "added, Zipf 0.99: ns",
        "× without learning, uniform",
        "× without learning, Zipf 0.99",
        "GiB",
        "bytes an entry",
        "occupancy",
        "huge pages",
        "learnt in: s",
    ];
    let title = "Forwarding with learning, as --mode l2: address and VLAN, destination and source \
                 looked up, all sources known";
    (!rows.is_empty()).then(|| table(title, &headings, rows))
}

fn tables(all: &[Measured]) -> Table {
    let rows = all.iter().map(|m| {
        let total = m.built.allocated_s + m.built.filled_s;
        vec![
            m.name(),
            format!("{:.3}", m.gib()),
            format!("{:.2}", m.bytes as f64 / m.entries as f64),
            format!("{:.2} %", 100.0 * m.occupancy),
            m.pages.clone(),
            format!("{:.2}", m.built.allocated_s),
            format!("{:.2}", m.built.filled_s),
            format!("{total:.2}"),
            format!("{:.1}", m.entries as f64 / m.built.filled_s / 1e6),
        ]
    });
    table(
        "Building the table",
        &[
            "entries",
            "GiB",
            "bytes an entry",
            "occupancy",
            "huge pages",
            "memory: s",
            "insertions: s",
            "all: s",
            "M insertions a second",
        ],
        rows.collect(),
    )
}

fn latencies(all: &[Measured]) -> Table {
    let rows = all.iter().map(|m| {
        let l = &m.latency;
        let mut row = vec![m.name()];
        row.extend([l.p50, l.p99, l.p999, l.max, l.clock, l.count].map(|n| n.to_string()));
        row
    });
    table(
        "One insertion at 95 %: ns",
        &["entries", "p50", "p99", "p99.9", "longest", "of it the clock", "insertions"],
        rows.collect(),
    )
}

fn bands(all: &[Measured]) -> Table {
    let mut headings = vec!["occupancy up to".to_owned()];
    headings.extend(all.iter().map(|m| format!("{} entries", m.name())));
    let percents = all.first().map_or(&[][..], |m| &m.built.bands);
    let rows = percents.iter().enumerate().map(|(i, band)| {
        let mut row = vec![format!("{} %", band.percent)];
        row.extend(all.iter().map(|m| {
            let band = &m.built.bands[i];
            format!("{:.1} ({:.3})", band.rate, band.moves)
        }));
        row
    });
    Table {
        title: "Million insertions a second (entries moved by each)".into(),
        headings,
        rows: rows.collect(),
    }
}

fn claims(record: &mut Record, all: &[Measured]) {
    for m in all {
        record.claim(
            format!("{} entries: every frame leaves by the port of its address", m.name()),
            "all",
            format!("{} of {}", m.counts.right, m.counts.frames),
            m.counts.right == m.counts.frames,
        );
        if let Ok(learning) = &m.learning {
            let counts = learning.counts;
            record.claim(
                format!(
                    "{} entries, with learning: every frame leaves by the port of its address, and \
                     every source is known",
                    m.name()
                ),
                "all, none to report",
                format!("{} of {}, {} to report", counts.right, counts.frames, counts.news),
                counts.right == counts.frames && counts.news == 0,
            );
        }
        record.claim(
            format!("{} entries: occupancy without a refused insertion", m.name()),
            "about 95 % at least",
            format!("{:.2} %", 100.0 * m.occupancy),
            // The two spare buckets count in a small table.
            m.occupancy > 0.9495,
        );
        let moves = |i: usize| m.built.bands.get(i).map_or(f64::NAN, |band| band.moves);
        let (first, last) = (moves(0), moves(m.built.bands.len().saturating_sub(1)));
        record.claim(
            format!(
                "{} entries: entries moved by an insertion, up to 5 % and up to 95 %",
                m.name()
            ),
            "none at first, more at the end, at most 1 on average",
            format!("{first:.3}, {last:.3}"),
            first == 0.0 && last > 0.0 && last <= 1.0,
        );
        if m.entries >= 1_000_000_000 {
            let each = m.bytes as f64 / m.entries as f64 * 1e9 / f64::from(1 << 30);
            record.claim(
                format!("{} entries of 8 bytes: GiB a billion", m.name()),
                format!("below {GIB_MAX}"),
                format!("{each:.2}"),
                each < GIB_MAX,
            );
        }
        if record.size == Size::Full {
            let (uniform, zipf) = (rates(&m.times.uniform).median, rates(&m.times.zipf).median);
            record.claim(
                format!("{} entries: Mpps of one core, uniform and Zipf 0.99", m.name()),
                format!(
                    "the paper: {} by {} threads up to a billion entries, {:.2} each",
                    PAPER.0,
                    PAPER.1,
                    PAPER.0 / PAPER.1
                ),
                format!("{uniform:.1}, {zipf:.1}"),
                uniform.min(zipf) >= PAPER.0 / PAPER.1,
            );
        }
    }
}
