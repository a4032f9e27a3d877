//! The record: settings, tables, targets.

use super::contestants::Contestant;
use super::contestants::{AFPACKET, AFPACKET_V3, AFXDP, AFXDP_BUSY, OVS_AFXDP, OVS_SYSTEM};
use super::host::Window;
use super::kernel::{Found, Measured, Turn};
use super::memory::{Rate, Scaling};
use super::ovs::Ovs;
use super::{Cores, Plan};
use overbank_kit::experiment::{Plot, Record, Series, Size, Table};
use overbank_kit::micro::tsc::cycles_per_ns;
use overbank_kit::spread::Spread;

/// The target of two workers, in multiples of one.
const SCALING_TARGET: f64 = 1.8;
/// Percentiles of the tables, as shares.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Ours, and theirs on the same kind of port; the first two are the aim.
const PAIRS: [(Contestant, Contestant); 4] = [
    (AFXDP, OVS_AFXDP),
    (AFPACKET, OVS_SYSTEM),
    (AFXDP_BUSY, OVS_AFXDP),
    (AFPACKET_V3, OVS_SYSTEM),
];

fn of(values: impl Iterator<Item = f64>) -> Spread {
    Spread::of(values)
}

fn shown(spread: Spread, digits: usize) -> String {
    let Spread { median, low, high } = spread;
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn workers_text(workers: usize) -> &'static str {
    if workers == 1 { "one worker" } else { "two workers" }
}

/// Records sizes, cores and programs.
pub fn settings(record: &mut Record, plan: &Plan, cores: &Cores) {
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs_f64());
    record.setting("frames", "UDP, 64 bytes on the wire");
    record.setting("rules", "20 prefixes of the destination, all to port 2");
    record.setting("flows", format!("{}, uniform", plan.kernel.flows));
    record.setting("rounds", plan.kernel.rounds);
    record.setting("window", seconds(plan.kernel.window));
    record.setting("flows from memory", plan.memory.flows);
    record.setting("rounds from memory", plan.memory.rounds);
    record.setting("core of generator and sink", cores.host);
    let switch: Vec<String> = cores.workers.iter().map(usize::to_string).collect();
    record.setting("cores of the switch, by worker", switch.join(", "));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    record.setting("kernel", kernel.trim());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    record.setting("load of the machine before", load.split(' ').next().unwrap_or_default());
    if let Ok(version) = Ovs::version() {
        record.setting("Open vSwitch", version);
    }
}

/// Records one worker and two from memory.
pub fn memory(record: &mut Record, scaling: &Scaling, two_cores: bool) {
    let rates = |n: usize| of(scaling.rounds.iter().map(|round| round[n].mpps));
    let ratio = of(scaling.rounds.iter().map(|round| round[1].mpps / round[0].mpps));
    let on_core = |n: usize| {
        let shares: Option<Vec<f64>> =
            scaling.rounds.iter().map(|round| round[n].on_core).collect();
        shares.map_or("–".to_owned(), |s| shown(of(s.into_iter().map(|s| 100.0 * s)), 0))
    };
    let undisturbed = |round: &[Rate; 2]| {
        let [one, two] = round.map(|rate| rate.while_on_core());
        Some(two? / one?)
    };
    let undisturbed: Option<Vec<f64>> = scaling.rounds.iter().map(undisturbed).collect();
    let undisturbed = undisturbed.map_or("–".to_owned(), |r| shown(of(r.into_iter()), 2));
    let row = |n: usize, ratio: String, undisturbed: String| {
        vec![(n + 1).to_string(), shown(rates(n), 2), ratio, on_core(n), undisturbed]
    };
    record.tables.push(Table {
        title: "From memory ports: million packets a second".to_owned(),
        headings: headings(&[
            "workers",
            "Mpps",
            "to one worker, by round",
            "% of the time on core",
            "to one worker, by time on core",
        ]),
        rows: vec![row(0, "1".to_owned(), "1".to_owned()), row(1, shown(ratio, 2), undisturbed)],
    });
    record.claim(
        "from memory ports: received = forwarded = sent, to the packet, at the end of every window",
        "holds",
        if scaling.accounts { "it closes" } else { "it does not close" },
        scaling.accounts,
    );
    if record.size == Size::Full && two_cores {
        record.claim(
            "from memory ports: two workers to one",
            format!("at least {SCALING_TARGET}"),
            shown(ratio, 2),
            ratio.median >= SCALING_TARGET,
        );
    } else if record.size == Size::Full {
        record.notes.push("There is one core only: two workers cannot scale.".to_owned());
    }
}

/// Records all switches between interfaces with `workers` workers.
pub fn kernel(record: &mut Record, found: &Found, workers: usize, cores: &Cores) {
    let with = workers_text(workers);
    rates(record, found, with);
    if record.size == Size::Full {
        ratios(record, found, with);
    }
    latencies(record, found, with);
    shares(record, found, with);
    correctness(record, found, with);
    for why in &found.left_out {
        record.notes.push(format!("Left out with {with}: {why}."));
    }
    if !cores.apart(workers) {
        let of = if workers == 1 { "The worker" } else { "The second worker" };
        record.notes.push(format!(
            "{of} shared core {} with generator and sink, as there are no more cores: the rates with \
             {with} are of switch and hosts together, and the latencies hold waits for the core.",
            cores.host
        ));
    }
}

fn rates(record: &mut Record, found: &Found, with: &str) {
    let row = |m: &Measured| {
        let spread = |f: fn(&Window) -> f64| of(m.turns.iter().map(|turn| f(&turn.flat_out)));
        let disordered: u64 = all(m).map(|w| w.disordered).sum();
        vec![
            m.contestant.name(),
            shown(spread(|w| w.rate() / 1e6), 3),
            shown(spread(|w| w.offered as f64 / w.seconds / 1e6), 3),
            shown(spread(|w| 100.0 * w.loss()), 1),
            format!("{:.3}", m.lossless / 1e6),
            disordered.to_string(),
        ]
    };
    record.tables.push(Table {
        title: format!("Flat out, {with}: million frames a second, median and range of the rounds"),
        headings: headings(&[
            "switch",
            "arrived",
            "offered",
            "lost, %",
            "without loss",
            "out of order, all loads",
        ]),
        rows: found.measured.iter().map(row).collect(),
    });
}

fn ratios(record: &mut Record, found: &Found, with: &str) {
    let get = |contestant| found.measured.iter().find(|m: &&Measured| m.contestant == contestant);
    let mut rows = Vec::new();
    for (nth, (ours, theirs)) in PAIRS.into_iter().enumerate() {
        let (Some(a), Some(b)) = (get(ours), get(theirs)) else { continue };
        let pairs = a.turns.iter().zip(&b.turns);
        let ratio = of(pairs.map(|(a, b)| a.flat_out.rate() / b.flat_out.rate().max(1.0)));
        rows.push(vec![ours.name(), theirs.name(), shown(ratio, 2)]);
        if nth < 2 {
            record.claim(
                format!("{with}: frames a second of {} to {}", ours.name(), theirs.name()),
                "more than 1",
                shown(ratio, 2),
                ratio.median > 1.0,
            );
        }
    }
    if !rows.is_empty() {
        record.tables.push(Table {
            title: format!("Flat out, {with}: on the same kind of port, ratio by round"),
            headings: headings(&["ours", "theirs", "ratio"]),
            rows,
        });
    }
}

fn latencies(record: &mut Record, found: &Found, with: &str) {
    let mut rows = Vec::new();
    let mut plot = Plot {
        title: format!("Latency at {:.0} thousand frames a second, {with}", found.common / 1e3),
        x: "one frame of this many takes longer".to_owned(),
        y: "microseconds".to_owned(),
        log_x: true,
        log_y: true,
        series: Vec::new(),
        stated: Vec::new(),
    };
    for m in &found.measured {
        type Load = fn(&Turn) -> &Window;
        let loads: [(&str, Load); 2] = [("common", |t| &t.common), ("half", |t| &t.half)];
        for (name, load) in loads {
            let spread = |f: &dyn Fn(&Window) -> f64| of(m.turns.iter().map(|t| f(load(t))));
            let mut row = vec![m.contestant.name(), name.to_owned()];
            row.push(format!("{:.0}", spread(&|w| w.rate() / 1e3).median));
            row.extend(QUANTILES.map(|(_, share)| shown(spread(&|w| w.latency_us(share)), 1)));
            row.push(shown(spread(&|w| 100.0 * w.loss()), 2));
            rows.push(row);
            if name == "common" {
                let each = QUANTILES.map(|(_, share)| {
                    let spread = spread(&|w| w.latency_us(share));
                    ((1.0 / (1.0 - share), spread.median), spread.range())
                });
                let (points, ranges) = each.into_iter().unzip();
                plot.series
                    .push(Series { ranges, ..Series::measured(m.contestant.name(), points) });
            }
        }
    }
    let mut names = vec!["switch", "load", "thousand a second"];
    names.extend(QUANTILES.map(|(name, _)| name));
    names.push("lost, %");
    record.tables.push(Table {
        title: format!("Latency, {with}: microseconds, median and range of the rounds"),
        headings: headings(&names),
        rows,
    });
    if record.size == Size::Full {
        record.plots.push(plot);
    }
}

/// Records where Overbank's time goes.
fn shares(record: &mut Record, found: &Found, with: &str) {
    let per_ns = cycles_per_ns();
    let mut rows = Vec::new();
    for m in found.measured.iter().filter(|m| m.contestant.is_overbank()) {
        let cycles: Vec<[f64; 4]> = m.turns.iter().filter_map(|turn| turn.cycles).collect();
        if cycles.is_empty() {
            continue;
        }
        let ns = |part: usize| of(cycles.iter().map(|c| c[part] / per_ns));
        let share = of(cycles.iter().map(|c| 100.0 * c[0] / c.iter().sum::<f64>().max(1.0)));
        let mut row = vec![m.contestant.name(), shown(share, 1)];
        row.extend((0..4).map(|part| shown(ns(part), 0)));
        rows.push(row);
    }
    if !rows.is_empty() {
        record.tables.push(Table {
            title: format!("Flat out, {with}: where Overbank's time goes, ns a packet"),
            headings: headings(&[
                "switch",
                "datapath, % of the time",
                "datapath",
                "receiving",
                "copying out",
                "flushing (system calls)",
            ]),
            rows,
        });
    }
}

/// Records what must hold whatever the clock says.
fn correctness(record: &mut Record, found: &Found, with: &str) {
    let ours: Vec<&Measured> =
        found.measured.iter().filter(|m| m.contestant.is_overbank()).collect();
    let names = |is_wrong: &dyn Fn(&Measured) -> bool| {
        let names = ours.iter().filter(|m| is_wrong(m)).map(|m| m.contestant.name());
        names.collect::<Vec<_>>().join(", ")
    };
    let received: u64 = ours.iter().flat_map(|m| all(m)).map(|w| w.received).sum();
    let wrong = names(&|m| all(m).any(|w| w.received == 0 || w.disordered + w.changed > 0));
    record.claim(
        format!(
            "overbank, {with}: under every load frames arrive, as they were sent, each flow in its \
             order"
        ),
        "on every kind of port",
        if wrong.is_empty() { format!("{received} frames do") } else { format!("not by {wrong}") },
        wrong.is_empty(),
    );
    let wrong = names(&|m| !m.accounts);
    record.claim(
        format!(
            "overbank, {with}: the accounts close, and offered ≥ forwarded = outputs ≥ sent ≥ arrived"
        ),
        "on every kind of port",
        if wrong.is_empty() { "holds".to_owned() } else { format!("not by {wrong}") },
        wrong.is_empty(),
    );
}

/// Iterates over every window of a switch.
fn all(m: &Measured) -> impl Iterator<Item = &Window> {
    m.turns.iter().flat_map(|turn| [&turn.flat_out, &turn.common, &turn.half])
}

/// Records what a reader of the tables must know.
pub fn notes(record: &mut Record) {
    record.notes.extend(
        [
            "Generator and sink are one thread on one core, the switch's threads are on another. A \
             frame that is sent into a veth pair is brought to the other end by the sender's core, \
             so the generator's core also does the kernel's part of receiving for the switch, and \
             the switch's core that of the sink. The Linux bridge does all its work that way, inside \
             of the generator's system call; the other core is idle, and no thread has to be woken.",
            "A switch that loses nothing flat out is faster than this generator; its rate is then \
             the generator's.",
            "Open vSwitch on AF_XDP polls without pause (PMD threads); `overbank …, busy` does the \
             same, `overbank afxdp` and the others wait for frames when there are none. Open \
             vSwitch's AF_PACKET ports are read by its main thread alone, also where two workers are \
             asked for.",
            "Common is half of what the slowest switch forwards without loss, half is half of what \
             the switch itself forwards without loss. A frame's time runs from just before the \
             system call that sends it until the sink finds it, both on the same core.",
            "The bridge looks at Ethernet addresses and has no rules. What is not the datapath's \
             share of the time is the kernel's: receiving from rings, copying to them, system calls.",
        ]
        .map(str::to_owned),
    );
}
