//! Open vSwitch beside Overbank, as tables and as a record.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Contestant, Window};
use crate::output::{Block, Report, target};
use overbank_kit::spread::Spread;

/// All contestants on one workload.
#[derive(Serialize)]
pub struct Workload {
    flows: u32,
    zipf: f64,
    /// Packet rate of Overbank's best design over that of Open vSwitch's best configuration: median
    /// of the rounds' ratios, and their range.
    ratio: Spread,
    contestants: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    switch: String,
    cache: String,
    cycles: Spread,
    /// Nanoseconds per packet.
    ns: Spread,
    /// Share of the time on the core, in percent.
    on_core_percent: f64,
    /// Without what making the packet cost.
    ns_without_generator: Spread,
    mpps: f64,
    emc_percent: f64,
    signature_percent: f64,
    megaflow_percent: f64,
    subtables: f64,
    upcalls: u64,
    windows: Vec<Window>,
}

impl Row {
    fn is_overbank(&self) -> bool {
        self.switch == "overbank"
    }
}

impl Workload {
    /// Sums the windows up.
    pub fn new(flows: u32, zipf: f64, contestants: Vec<Contestant>, hertz: f64) -> Workload {
        let rows: Vec<Row> = contestants.into_iter().map(|c| row(c, hertz)).collect();
        Workload { flows, zipf, ratio: ratio(&rows), contestants: rows }
    }
}

fn row(contestant: Contestant, hertz: f64) -> Row {
    let Contestant { switch, cache, windows } = contestant;
    let of = |value: &dyn Fn(&Window) -> f64| Spread::of(windows.iter().map(value));
    let cycles = of(&|w| w.cycles);
    Row {
        switch,
        cache,
        cycles,
        ns: of(&|w| w.cycles / hertz * 1e9),
        ns_without_generator: of(&|w| (w.cycles - w.generator_cycles) / hertz * 1e9),
        on_core_percent: 100.0 * of(&|w| w.on_core).median,
        mpps: hertz / cycles.median / 1e6,
        emc_percent: 100.0 * of(&|w| w.emc).median,
        signature_percent: 100.0 * of(&|w| w.signature).median,
        megaflow_percent: 100.0 * of(&|w| w.megaflow).median,
        subtables: of(&|w| w.subtables).median,
        upcalls: windows.iter().map(|w| w.upcalls).sum(),
        windows,
    }
}

/// Returns the ratio of best to best, by their medians; then round by round, for those two.
fn ratio(rows: &[Row]) -> Spread {
    let best = |overbank: bool| {
        rows.iter()
            .filter(|row| row.is_overbank() == overbank)
            .min_by(|a, b| a.cycles.median.total_cmp(&b.cycles.median))
    };
    let (Some(ours), Some(theirs)) = (best(true), best(false)) else { return Spread::default() };
    Spread::of(ours.windows.iter().zip(&theirs.windows).map(|(a, b)| b.cycles / a.cycles))
}

fn law(workload: &Workload) -> String {
    match workload.zipf {
        0.0 => "uniform".into(),
        theta => format!("Zipf {theta}"),
    }
}

/// Writes `ovs.json`, `ovs.txt`, `ovs.md`.
pub fn write(folder: &Path, mut record: Value, workloads: &[Workload]) -> Result<()> {
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_string();
    let intro = format!(
        "Open vSwitch 3.1 with DPDK beside Overbank's datapath: 64-byte UDP frames, 20 megaflow masks, \
         {} output ports, one core each in turn, median [range] of {} windows of {} s.\n\
         Cycles of the time stamp counter ({:.2} GHz) while on the core, reception and transmission \
         included.\n{}, {}.\n\
         `{}`",
        record["outputs"],
        record["rounds"],
        record["window_seconds"],
        record["tsc_ghz"].as_f64().unwrap_or_default(),
        text("cpu"),
        text("date"),
        text("command"),
    );
    let mut blocks = vec![summary(workloads)];
    blocks.extend(workloads.iter().map(block));
    record["workloads"] = json!(workloads);
    let claim = |workload: &Workload| {
        let what = "packet rate to Open vSwitch at its best";
        target(format!("{} flows, {}: {what}", workload.flows, law(workload)), 2.0, workload.ratio)
    };
    Report {
        name: "ovs",
        title: "Open vSwitch with DPDK beside Overbank's datapath",
        record: &record,
        intro,
        blocks,
        claims: workloads.iter().map(claim).collect(),
        core: 1,
    }
    .write(folder)
}

fn summary(workloads: &[Workload]) -> Block {
    let rows = workloads.iter().map(|workload| {
        let best = |overbank: bool| {
            let rows = workload.contestants.iter().filter(|row| row.is_overbank() == overbank);
            let best = rows.min_by(|a, b| a.cycles.median.total_cmp(&b.cycles.median));
            best.map_or(String::new(), |row| {
                format!("{} {}, {:.2} Mpps", row.switch, row.cache, row.mpps)
            })
        };
        let ratio = workload.ratio.cell(2);
        vec![workload.flows.to_string(), law(workload), best(true), best(false), ratio]
    });
    Block {
        title: "Overbank's best over Open vSwitch's best, packet rate".into(),
        header: ["flows", "law", "Overbank", "Open vSwitch", "ratio"].map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn block(workload: &Workload) -> Block {
    let header = [
        "switch",
        "cache",
        "cycles/packet",
        "ns",
        "ns less generator",
        "Mpps",
        "on core %",
        "emc %",
        "signature %",
        "megaflow %",
        "subtables",
        "upcalls",
    ];
    let rows = workload.contestants.iter().map(|row| {
        vec![
            row.switch.clone(),
            row.cache.clone(),
            row.cycles.cell(0),
            format!("{:.1}", row.ns.median),
            format!("{:.1}", row.ns_without_generator.median),
            format!("{:.2}", row.mpps),
            format!("{:.0}", row.on_core_percent),
            format!("{:.2}", row.emc_percent),
            format!("{:.2}", row.signature_percent),
            format!("{:.2}", row.megaflow_percent),
            format!("{:.2}", row.subtables),
            row.upcalls.to_string(),
        ]
    });
    Block {
        title: format!("{} flows, {}", workload.flows, law(workload)),
        header: header.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_each_side_are_compared_round_by_round() {
        let contestant = |switch: &str, cycles: &[f64]| Contestant {
            switch: switch.into(),
            cache: String::new(),
            windows: cycles.iter().map(|&cycles| Window { cycles, ..Window::default() }).collect(),
        };
        let contestants = vec![
            contestant("overbank", &[100.0, 110.0, 100.0]),
            contestant("overbank", &[300.0, 10.0, 300.0]),
            contestant("debian", &[200.0, 330.0, 300.0]),
            contestant("native", &[900.0, 900.0, 900.0]),
        ];
        let workload = Workload::new(5, 0.0, contestants, 1e9);
        assert_eq!(workload.ratio, Spread { median: 3.0, low: 2.0, high: 3.0 });
        assert_eq!(workload.contestants[2].mpps, 1e3 / 300.0);
    }
}
