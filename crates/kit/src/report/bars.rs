//! A horizontal bar chart as inline SVG: one row per design, the value in figures at its end.
//!
//! Colours come from the page's style sheet (`--bar`, `--ink`, …), so that one drawing serves light
//! and dark pages; plotters writes fixed colours, which is why this is our own.

use maud::{Markup, html};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What the row is called.
    pub label: String,
    /// Where the bar ends; `None` draws a dash.
    pub value: Option<f64>,
    /// Smallest and largest measurement, drawn as a whisker.
    pub range: Option<(f64, f64)>,
    /// Style class: `a` and `b` tell two series apart.
    pub class: &'static str,
}

/// The whole chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What the axis shows, with its unit.
    pub axis: String,
    /// Rows from top to bottom.
    pub bars: Vec<Bar>,
    /// Decimals of the figures.
    pub decimals: usize,
    /// Upper end of the axis; `None` takes a round number above the largest value.
    pub max: Option<f64>,
}

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 190.0;
const VALUE_WIDTH: f64 = 90.0;
const ROW: f64 = 26.0;
const AXIS_HEIGHT: f64 = 44.0;

impl Chart {
    /// The chart as an `svg` element.
    pub fn svg(&self) -> Markup {
        let plot = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
        let tops = self.bars.iter().filter_map(|b| b.range.map(|r| r.1).or(b.value));
        let largest = tops.fold(0.0, f64::max);
        let max = self.max.unwrap_or_else(|| round_up(largest));
        let x = |value: f64| LABEL_WIDTH + plot * (value / max).clamp(0.0, 1.0);
        let height = self.bars.len() as f64 * ROW + AXIS_HEIGHT;
        let foot = height - AXIS_HEIGHT;
        let description = format!("Bar chart, {}", self.axis);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(description) {
                @for tick in 0..=5 {
                    @let value = max * f64::from(tick) / 5.0;
                    line class="grid" x1=(x(value)) x2=(x(value)) y1="0" y2=(foot) {}
                    text class="tick" x=(x(value)) y=(foot + 16.0) text-anchor="middle" {
                        (trimmed(value))
                    }
                }
                text class="axis" x=(LABEL_WIDTH + plot / 2.0) y=(height - 6.0)
                    text-anchor="middle" { (self.axis) }
                @for (row, bar) in self.bars.iter().enumerate() {
                    @let top = row as f64 * ROW;
                    @let middle = top + ROW / 2.0;
                    text class="label" x=(LABEL_WIDTH - 10.0) y=(middle + 4.0)
                        text-anchor="end" { (bar.label) }
                    @if let Some(value) = bar.value {
                        rect class=(bar.class) x=(LABEL_WIDTH) y=(top + 4.0) rx="2"
                            width=(x(value) - LABEL_WIDTH) height=(ROW - 8.0) {}
                        @if let Some((low, high)) = bar.range {
                            path class="whisker" d=(whisker(x(low), x(high), middle)) {}
                        }
                        @let end = bar.range.map_or(value, |r| r.1.max(value));
                        text class="value" x=(x(end) + 6.0) y=(middle + 4.0) {
                            (format!("{value:.*}", self.decimals))
                        }
                    } @else {
                        text class="value" x=(LABEL_WIDTH + 6.0) y=(middle + 4.0) { "–" }
                    }
                }
            }
        }
    }
}

fn whisker(low: f64, high: f64, y: f64) -> String {
    format!("M{low:.1} {y}H{high:.1}M{low:.1} {}v8M{high:.1} {}v8", y - 4.0, y - 4.0)
}

/// The next of 1, 2, 2.5, 5 × a power of ten; five ticks fall on readable numbers.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0];
    steps.iter().map(|s| s * power).find(|&top| top >= value).unwrap_or(10.0 * power)
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers_above_the_data() {
        for (value, top) in [(0.0, 1.0), (0.93, 1.0), (13.2, 15.0), (15.0, 15.0), (610.0, 750.0)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value} {}", round_up(value));
        }
    }

    #[test]
    fn every_row_is_drawn_and_text_is_escaped() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            value,
            range: value.map(|v| (v - 1.0, v + 1.0)),
            class: "a",
        };
        let bars = vec![bar("set-4", Some(5.0)), bar("<b>", None)];
        let chart = Chart { axis: "Mpps".to_owned(), bars, decimals: 1, max: None };
        let svg = chart.svg().into_string();
        assert_eq!(svg.matches("<rect").count(), 1);
        assert!(svg.contains("set-4") && svg.contains("&lt;b&gt;") && svg.contains(">5.0<"));
    }
}
