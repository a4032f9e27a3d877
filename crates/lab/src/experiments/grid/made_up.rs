//! Measurements that were not made: for tests of what is said about measurements.

use crate::micro::{Cell, Measured, Row, Spread};
use overbank::cache::HugePages;

/// Hit rate (0 to 1), nanoseconds of a lookup, and million keys a second of a design.
pub(crate) type Figures = (f64, f64, f64);

/// A cell with these designs; the gather kernel takes `floor_ns`.
pub(crate) fn measured(cell: Cell, floor_ns: f64, rows: &[(&str, Figures)]) -> Measured {
    let spread = |x| Spread { median: x, low: x, high: x };
    let row = |&(name, (hit_rate, lookup, rate)): &(&str, Figures)| Row {
        design: name.parse().expect("a design"),
        hit_rate,
        probe_ns: spread(lookup),
        lookup_ns: spread(lookup),
        whole_ns: spread(lookup),
        throughput: spread(rate),
        trial: rate,
        huge_pages: HugePages::Yes,
    };
    Measured {
        cell,
        rows: rows.iter().map(row).collect(),
        floor_ns: spread(floor_ns),
        floor_pages: HugePages::Yes,
        warmed: 1.0,
    }
}
