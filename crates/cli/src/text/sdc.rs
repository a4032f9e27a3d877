//! Prints a point beside the regular machine. `let _ = writeln!`: writing to a string does not
//! fail.

use super::draw;
use overbank_products::sdc::page::{
    TIMES, bits, figures, held, levels, machine, speeds, values, what,
};
use overbank_products::sdc::record::Comparison;
use std::fmt::Write;

/// Returns the comparison, lookups a second first.
pub fn render(comparison: &Comparison) -> String {
    let point = &comparison.point;
    let mut out = format!("{}, {}: {}\n", point.index, point.system, what(point));
    let _ = writeln!(out, "{}", machine(point));
    let _ = writeln!(out, "\nLookups a second\n{}\n{TIMES}", draw(&speeds(comparison)));
    let tables = [Some(figures(comparison)), Some(levels(comparison)), values(point)];
    for table in tables.into_iter().flatten() {
        let _ = writeln!(out, "\n{}\n{}", table.title, draw(&table));
    }
    for text in [held(point), comparison.bits.as_ref().map(bits)].into_iter().flatten() {
        let _ = write!(out, "\n{text}");
    }
    if !point.addresses_fixed {
        let _ = write!(out, "\nAddresses were not fixed: another run counts a little differently.");
    }
    out.trim_end().to_owned()
}
