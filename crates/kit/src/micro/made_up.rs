//! Measurements that were not made: for tests of what is said about measurements.

use super::{Cell, Measured, Round, Row};
use crate::spread::Spread;
use overbank::memory::HugePages;

/// Hit rate (0 to 1), nanoseconds of a lookup, and million keys a second of a design.
pub type Figures = (f64, f64, f64);

/// Returns a cell with these designs, in one round; the gather kernel takes `floor_ns`.
pub fn measured(cell: Cell, floor_ns: f64, rows: &[(&str, Figures)]) -> Measured {
    let row = |&(name, figures): &(&str, Figures)| row(name, &[figures]);
    Measured {
        cell,
        rows: rows.iter().map(row).collect(),
        ahead: Vec::new(),
        floor_ns: Spread { median: floor_ns, low: floor_ns, high: floor_ns },
        floor_rounds: vec![floor_ns],
        floor_pages: HugePages::Yes,
        warmed: 1.0,
    }
}

/// Returns a design with its figures in each round; the hit rate is that of the first.
pub fn row(name: &str, rounds: &[Figures]) -> Row {
    let round = |&(_, ns, throughput): &Figures| Round {
        probe_ns: ns,
        lookup_ns: ns,
        whole_ns: ns,
        throughput,
    };
    let design = name.parse().expect("a design");
    let row = Row::new(design, rounds[0].0, rounds.iter().map(round).collect());
    Row { trial: row.throughput.median, huge_pages: HugePages::Yes, ..row }
}
