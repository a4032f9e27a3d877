//! Advice for a terminal.

use super::{draw, table};
use comfy_table::Table;
use overbank_kit::report::{ENDED_EARLY, count};
use overbank_products::advise::page::{TRIED, costs_line, design_table, traffic_line};
use overbank_products::advise::{Advice, Cell, size_text};
use std::fmt::Write;

/// Rows of the working set that are printed.
const WINDOWS: usize = 10;

/// Everything that a person wants to see first; the recommendation comes first.
pub fn render(advice: &Advice) -> String {
    let (r, p) = (&advice.recommendation, &advice.profile);
    let mut out = format!("{}\n", traffic_line(&advice.traffic));
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
    if p.windows.len() > 1 {
        let _ = writeln!(out, "Working set over time\n{}\n", windows(advice));
    }
    let _ = writeln!(out, "Best design of each size\n{}\n", sizes(&advice.cells));
    let title = format!("All designs with {} entries", count(r.entries as u64));
    let _ = writeln!(out, "{title}\n{}\n", designs(&advice.cells, r.entries));
    let _ = writeln!(out, "{TRIED}\n{}\n", costs_line(&advice.costs));
    out.push_str("The model and the tables");
    for note in &advice.model.notes {
        let _ = write!(out, "\n  {note}");
    }
    out
}

fn windows(advice: &Advice) -> Table {
    let windows = &advice.profile.windows;
    let mut out = table(&["from packet", "packets", "seconds", "flows", "new flows"]);
    for window in windows.iter().step_by(windows.len().div_ceil(WINDOWS)) {
        out.add_row([
            count(window.first_packet),
            count(window.packets),
            window.start_seconds.map_or("-".to_owned(), |s| format!("{s:.2}")),
            count(window.distinct),
            count(window.new_flows),
        ]);
    }
    out
}

fn sizes(cells: &[Cell]) -> Table {
    let mut sizes: Vec<usize> = cells.iter().map(|c| c.entries).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = sizes.into_iter().filter_map(|entries| {
        let of_size = cells.iter().filter(|c| c.entries == entries);
        of_size.min_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet))
    });
    draw(&design_table(best))
}

fn designs(cells: &[Cell], entries: usize) -> Table {
    draw(&design_table(cells.iter().filter(|c| c.entries == entries)))
}
