//! Open vSwitch's `gtpu` beside Overbank's gateway, as tables and as a record.

use std::path::Path;

use anyhow::Result;
use overbank_kit::spread::Spread;
use serde_json::{Value, json};

use super::{Window, Workload};
use crate::output::{Block, Report, target};

/// The target: packets a second, in multiples of Open vSwitch's.
const TARGET: f64 = 2.0;

/// Cycles of a packet without making it.
fn cycles(window: &Window) -> f64 {
    window.cycles - window.generator_cycles
}

impl Workload {
    /// Returns Open vSwitch's fastest configuration.
    fn best(&self) -> (&str, &[Window]) {
        let median = |windows: &[Window]| Spread::of(windows.iter().map(cycles)).median;
        let best = self.theirs.iter().min_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
        best.map_or(("", &[]), |(name, windows)| (name, windows))
    }

    /// Returns our packet rate over that of its fastest configuration, by round.
    fn ratio(&self) -> Spread {
        let theirs = self.best().1.iter().map(cycles);
        Spread::of_ratios(theirs, self.ours.iter().map(cycles))
    }

    fn name(&self) -> String {
        let law = match self.zipf {
            0.0 => "uniform".to_owned(),
            theta => format!("Zipf {theta}"),
        };
        format!("{}, {} sessions, {law}", self.direction.name(), self.sessions)
    }
}

/// Writes `gateway.json`, `gateway.txt`, `gateway.md` and the record.
pub fn write(folder: &Path, mut record: Value, workloads: &[Workload], hertz: f64) -> Result<()> {
    let intro = format!(
        "Open vSwitch 3.1 with DPDK and a gtpu port beside Overbank's gateway: packets of {} bytes \
         inside, tunnels over IPv4 without extension headers, a rule for each session. Both take \
         turns on one core, median [range] of {} windows of {} s; what making the packets costs is \
         left out. Each output of a pass was compared with what must leave.\n{}, {}.\n`{}`",
        record["packet_bytes"],
        record["rounds"],
        record["window_seconds"],
        record["cpu"].as_str().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    );
    record["workloads"] = json!(workloads);
    let claim = |workload: &Workload| {
        let what = "packet rate to Open vSwitch at its best";
        target(format!("{}: {what}", workload.name()), TARGET, workload.ratio())
    };
    Report {
        name: "gateway",
        title: "Open vSwitch's gtpu beside Overbank's gateway",
        record: &record,
        intro,
        blocks: vec![rates(workloads, hertz), flows(workloads)],
        claims: workloads.iter().map(claim).collect(),
        core: 1,
    }
    .write(folder)
}

fn rates(workloads: &[Workload], hertz: f64) -> Block {
    let ns = |windows: &[Window]| Spread::of(windows.iter().map(|w| cycles(w) / hertz * 1e9));
    let rows = workloads.iter().map(|workload| {
        let (name, best) = workload.best();
        let mut row = vec![workload.name(), ns(&workload.ours).cell(1)];
        row.extend([name.to_owned(), ns(best).cell(1), workload.ratio().cell(2)]);
        let all = workload.theirs.iter().map(|(_, windows)| format!("{:.0}", ns(windows).median));
        row.push(all.collect::<Vec<_>>().join(", "));
        row
    });
    let names = super::CONFIGURATIONS.join(", ");
    let header = ["workload", "Overbank, ns", "caches", "Open vSwitch, ns", "ratio"];
    let header = header.into_iter().map(str::to_owned).chain([format!("ns with {names}")]);
    Block {
        title: "Nanoseconds a packet; Open vSwitch in its fastest configuration".into(),
        header: header.collect(),
        rows: rows.collect(),
    }
}

fn flows(workloads: &[Workload]) -> Block {
    let rows = workloads.iter().map(|workload| {
        let best = workload.best().1;
        let of = |value: fn(&Window) -> f64| Spread::of(best.iter().map(value)).median;
        vec![
            workload.name(),
            workload.flows.0.to_string(),
            workload.flows.1.to_string(),
            format!("{:.1}", of(|w| 1e6 * w.upcalls as f64 / w.packets.max(1) as f64)),
            format!("{:.0}, {:.0}", of(|w| 100.0 * w.emc), of(|w| 100.0 * w.signature)),
            format!("{:.2}", of(|w| w.subtables)),
            workload.verified.map(|count| count.to_string()).join(", "),
        ]
    });
    let header = [
        "workload",
        "flows",
        "limit",
        "upcalls of a million",
        "emc, smc hits a packet, %",
        "subtables",
        "outputs verified: Overbank, Open vSwitch",
    ];
    Block {
        title: "Flows of Open vSwitch's datapath (a tunnel takes two lookups uplink)".into(),
        header: header.map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::Direction;
    use super::*;

    #[test]
    fn the_fastest_configuration_is_compared_without_the_generator() {
        let windows = |cycles: [f64; 2]| {
            let window = |cycles| Window { cycles, generator_cycles: 10.0, ..Window::default() };
            cycles.map(window).to_vec()
        };
        let workload = Workload {
            direction: Direction::Uplink,
            sessions: 7,
            zipf: 0.0,
            flows: (8, 9),
            verified: [1, 2],
            ours: windows([60.0, 110.0]),
            theirs: vec![
                ("emc".into(), windows([910.0, 910.0])),
                ("both".into(), windows([160.0, 310.0])),
            ],
        };
        assert_eq!((workload.best().0, workload.ratio().median), ("both", 3.0));
        for block in [rates(std::slice::from_ref(&workload), 1e9), flows(&[workload])] {
            assert!(block.rows.iter().all(|row| row.len() == block.header.len()));
        }
    }
}
