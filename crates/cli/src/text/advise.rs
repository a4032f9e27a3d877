//! Prints advice. `let _ = writeln!`: writing to a string does not fail.

use super::draw;
use overbank_kit::experiment::Table;
use overbank_kit::report::{ENDED_EARLY, count, optional};
use overbank_products::advise::page::{TRIED, costs_line, design_table};
use overbank_products::advise::{Advice, Cell, rule, size_text};
use std::fmt::Write;

/// Printed rows of the working set.
const WINDOWS: usize = 10;

/// Returns the advice, the recommendation first.
pub fn render(advice: &Advice) -> String {
    let (r, p) = (&advice.recommendation, &advice.profile);
    let mut out = format!("{}\n", advice.traffic);
    if advice.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    out.push('\n');
    let _ = writeln!(
        out,
        "Recommended: {} with {} entries, {}\n{}\n",
        r.design,
        count(r.entries as u64),
        size_text(r.table_bytes),
        r.reason
    );
    let _ = writeln!(
        out,
        "The traffic\n  {} packets of {} flows, {} of them with one packet; the top 1 % of the flows \
         has {:.1} % of the packets",
        count(p.packets),
        count(p.flows),
        count(p.flows_of_one_packet),
        p.top_hundredth_share * 100.0
    );
    let per_second =
        p.new_flows_per_second.map_or(String::new(), |n| format!(", {n:.1} a second over all"));
    let _ = writeln!(
        out,
        "  new flows: {:.4} a packet over all, {:.4} in the second half{per_second}",
        p.new_flows_per_packet, p.new_flows_per_packet_later
    );
    let _ = writeln!(
        out,
        "  skew: like Zipf θ = {:.2} over {} flows (same collision probability, same flows seen)\n",
        p.skew.theta,
        count(p.skew.flows as u64)
    );
    let title = format!("All designs with {} entries", count(r.entries as u64));
    let of_size = advice.cells.iter().filter(|c| c.entries == r.entries);
    let windows = (p.windows.len() > 1).then(|| windows(advice));
    let designs = [sizes(&advice.cells), design_table(&title, of_size)];
    for table in windows.into_iter().chain(designs) {
        let _ = writeln!(out, "{}\n{}\n", table.title, draw(&table));
    }
    let _ = writeln!(out, "{TRIED}\n{}\n", costs_line(&advice.costs));
    out.push_str("The model and the tables");
    for note in &advice.model.notes {
        let _ = write!(out, "\n  {note}");
    }
    out
}

fn windows(advice: &Advice) -> Table {
    let windows = &advice.profile.windows;
    Table::of(
        "Working set over time",
        windows.iter().step_by(windows.len().div_ceil(WINDOWS)),
        &[
            ("from packet", &|w| count(w.first_packet)),
            ("packets", &|w| count(w.packets)),
            ("seconds", &|w| optional(w.start_seconds, 2)),
            ("flows", &|w| count(w.distinct)),
            ("new flows", &|w| count(w.new_flows)),
        ],
    )
}

/// Returns each size with its best design; the recommended one is among them.
fn sizes(cells: &[Cell]) -> Table {
    let mut sizes: Vec<usize> = cells.iter().map(|c| c.entries).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = sizes.into_iter().filter_map(|entries| rule::design(cells, entries));
    design_table("Best design of each size", best)
}
