//! Prints a comparison of indexes with and without look-aside table. `let _ = writeln!`: writing to
//! a string does not fail.

use super::draw;
use overbank_kit::report::{ENDED_EARLY, count};
use overbank_products::aside::page::{EXPLAINED, figures, gates};
use overbank_products::aside::record::Comparison;
use std::fmt::Write;

/// Returns the comparison, the recommendation first.
pub fn render(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let pinned = machine.pinned_core.map_or("not pinned".to_owned(), |c| format!("core {c}"));
    let mut out = format!(
        "{}; {} keys in each index; {} ({pinned})\n",
        comparison.input,
        count(comparison.keys as u64),
        machine.cpu
    );
    if comparison.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    let _ = writeln!(out, "\nRecommended: {}\n", comparison.recommendation.reason);
    let _ = writeln!(out, "{}\n{EXPLAINED}\n", draw(&figures(comparison)));
    out.push_str("The gates");
    for (table, gate) in gates(comparison) {
        let _ = write!(out, "\n  {table}: {gate}");
    }
    out
}
