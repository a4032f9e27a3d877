//! A heat map of counts as inline SVG: the darker, the more, by powers.
//!
//! Counts of caches are far apart, so a shade is a step of the logarithm between the least count
//! and the most, and the legend names each step's counts. A shade is one path: a map of thousands
//! of squares stays small.

use super::count;
use maud::{Markup, html};
use std::fmt::Write as _;

#[derive(Clone, Debug)]
pub struct Heat {
    /// What is counted, for readers that do not see it.
    pub what: &'static str,
    /// Columns that stand together.
    pub group: usize,
    /// As many counts in each.
    pub rows: Vec<Vec<u64>>,
}

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 60.0;
const HEAD: f64 = 20.0;
const GROUP_GAP: f64 = 4.0;
const ROW: f64 = 10.0;
const FOOT: f64 = 40.0;
/// Rows from one label to the next.
const LABELLED: usize = 8;
/// Shades, none for a count of zero.
const SHADES: usize = 6;

impl Heat {
    pub fn svg(&self) -> Markup {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let groups = columns.div_ceil(self.group.max(1)).max(1);
        let group_width = (WIDTH - LABEL_WIDTH) / groups as f64;
        let cell = (group_width - GROUP_GAP) / self.group.max(1) as f64;
        let foot = HEAD + self.rows.len() as f64 * ROW;
        let counts = || self.rows.iter().flatten().copied().filter(|n| *n > 0);
        let range = (counts().min().unwrap_or(1), counts().max().unwrap_or(1));
        let mut paths = vec![String::new(); SHADES + 1];
        for (at, row) in self.rows.iter().enumerate() {
            for (column, n) in row.iter().enumerate() {
                let (group, within) = (column / self.group.max(1), column % self.group.max(1));
                let x = LABEL_WIDTH + group as f64 * group_width + within as f64 * cell;
                let y = HEAD + at as f64 * ROW;
                // Writing to a string does not fail.
                let _ = write!(paths[shade(*n, range)], "M{x:.1} {y}h{cell:.1}v{ROW}h-{cell:.1}z");
            }
        }
        html! {
            svg class="heat" viewBox=(format!("0 0 {WIDTH} {}", foot + FOOT)) role="img"
                aria-label=(self.what) {
                @for group in 0..groups {
                    text class="tick" y="14" text-anchor="middle"
                        x=(format!("{:.1}", LABEL_WIDTH + (group as f64 + 0.5) * group_width)) {
                        "way " (group)
                    }
                }
                @for row in (0..self.rows.len()).step_by(LABELLED) {
                    text class="tick" x=(LABEL_WIDTH - 8.0) y=(HEAD + row as f64 * ROW + 10.0)
                        text-anchor="end" { "set " (row) }
                }
                @for (shade, path) in paths.iter().enumerate() {
                    @if !path.is_empty() { path class={ "heat" (shade) } d=(path) {} }
                }
                @for (shade, (low, high)) in steps(range).into_iter().enumerate() {
                    @let x = LABEL_WIDTH + shade as f64 * (WIDTH - LABEL_WIDTH) / (SHADES + 1) as f64;
                    rect class={ "heat" (shade) } x=(format!("{x:.1}")) y=(foot + 16.0) width="12"
                        height="12" rx="2" {}
                    text class="tick" x=(format!("{:.1}", x + 17.0)) y=(foot + 26.5) {
                        @if low == high { (count(low)) } @else { (count(low)) "–" (count(high)) }
                    }
                }
            }
        }
    }
}

/// Returns the step of a count: 0 for none, [`SHADES`] for the most.
fn shade(n: u64, range: (u64, u64)) -> usize {
    let steps = steps(range);
    // Counts of zero are the first step.
    steps.iter().position(|(_, high)| n <= *high).unwrap_or(steps.len() - 1)
}

/// Returns the least and the most of each step, zero first; steps without a number are left out.
fn steps((least, most): (u64, u64)) -> Vec<(u64, u64)> {
    let ratio = most as f64 / least as f64;
    let bound = |step: usize| least as f64 * ratio.powf(step as f64 / SHADES as f64);
    let mut steps = vec![(0, 0)];
    let mut low = least;
    for step in 1..=SHADES {
        let high = if step == SHADES { most } else { bound(step) as u64 };
        if low <= high {
            steps.push((low, high));
            low = high + 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_follow_the_logarithm() {
        let range = (100, 100_000_000);
        assert_eq!([0, 100, 999, 1002, 100_000_000].map(|n| shade(n, range)), [0, 1, 1, 2, 6]);
        assert_eq!(steps((7, 7)), [(0, 0), (7, 7)]);
        assert_eq!(steps((1, 3)), [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert_eq!(steps(range).last().map(|(_, high)| *high), Some(100_000_000));
    }

    #[test]
    fn a_shade_is_one_path() {
        let rows = vec![vec![0, 1, 5, 900]; 20];
        let svg = Heat { what: "accesses", group: 2, rows }.svg().into_string();
        assert_eq!(svg.matches("<path").count(), 4, "{svg}");
        assert!(svg.contains("way 1") && svg.contains("set 16") && svg.contains("–900<"), "{svg}");
        let empty = Heat { what: "", group: 8, rows: vec![] };
        assert!(empty.svg().into_string().contains("svg"));
    }
}
