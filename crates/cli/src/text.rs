//! Prints the record of a replay as tables. `let _ = writeln!`: writing to a string does not fail.

pub mod advise;
#[cfg(feature = "aside")]
pub mod aside;
#[cfg(feature = "kv-proxy")]
pub mod kv_advise;
pub mod lab;
pub mod sdc;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};
use overbank_kit::experiment::Table as Figures;
use overbank_kit::report::{ENDED_EARLY, count};
use overbank_products::replay::record::{Replay, Totals};
use overbank_products::replay::tables;
use std::fmt::Write;

/// Returns all tables, the most important first.
pub fn render(replay: &Replay) -> String {
    let mut out = String::new();
    let pinned =
        replay.machine.pinned_core.map_or("not pinned".to_owned(), |c| format!("core {c}"));
    let _ = writeln!(
        out,
        "{}; {} rules; {} ({pinned})",
        replay.traffic, replay.rules, replay.machine.cpu
    );
    if replay.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    let rounds = tables::tiers("Tiers, measured rounds", &replay.designs, |design| &design.totals);
    let cold = "Tiers, first pass from cold caches on";
    let first_pass = tables::tiers(cold, &replay.designs, |design| &design.first_pass);
    let _ = writeln!(out, "\n{}", draw(&tables::rates(&replay.designs)));
    for tiers in [rounds, first_pass] {
        let _ = writeln!(out, "\n{}\n{}", tiers.title, draw(&tiers));
    }
    if let Some(first) = replay.designs.first() {
        let _ = writeln!(out, "\n{}", fates(&first.first_pass));
    }
    let _ = write!(
        out,
        "\nAll designs forwarded {} packets alike, byte for byte: digest {}",
        count(replay.digest_packets),
        replay.digest
    );
    out
}

fn draw(figures: &Figures) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(&figures.headings);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if i == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.add_rows(&figures.rows);
    table
}

/// Lists the fates of the packets, which are the same for every design.
fn fates(totals: &Totals) -> String {
    let mut out = String::from("Where the packets of the first pass went\n");
    for port in &totals.ports {
        let (packets, bytes) = (count(port.packets), count(port.bytes));
        let _ = writeln!(out, "  port {:<10} {packets:>15} packets {bytes:>18} bytes", port.port);
    }
    for (reason, packets) in &totals.drops {
        let _ = writeln!(out, "  dropped, {reason}: {}", count(*packets));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::traffic::Traffic;
    use overbank_kit::workload::FlowStream;
    use overbank_products::TrafficSource;
    use overbank_products::replay::feed::Source;
    use overbank_products::replay::{self, Length, Plan};
    use overbank_switch::parse::parse_rules;
    use overbank_switch::translate::Tables;
    use std::sync::atomic::AtomicBool;

    fn text(stopped: bool, pinned_core: Option<usize>) -> String {
        let traffic = Traffic::default();
        let stream = FlowStream::uniform(100, 1).expect("flows");
        let source = Source::BuiltIn { stream: &stream, traffic };
        let rules = parse_rules(&traffic.rules()).expect("rules");
        let plan = Plan {
            contestants: vec!["set-4".parse().expect("known")],
            entries: 64,
            megaflows: 64,
            ports: (1..8).collect(),
            seed: 1,
            isa: None,
            warmup_loops: 1,
            length: Length::Loops(1),
            rounds: 1,
            pinned_core,
        };
        let record = TrafficSource::drawn(100, 0.0);
        let tables = Tables::new(rules).expect("tables");
        let stop = AtomicBool::new(stopped);
        let run = replay::run(&plan, &source, &tables, record, None, &stop, &mut |_| {});
        render(&run.expect("it runs"))
    }

    #[test]
    fn says_whether_it_ended_early() {
        assert!(text(true, None).contains("Ended early: "));
        assert!(!text(false, None).contains("Ended early"));
    }

    #[test]
    fn says_which_core_it_ran_on() {
        assert!(text(false, Some(3)).contains("(core 3)"));
        assert!(text(false, None).contains("(not pinned)"));
    }
}
