//! A horizontal bar chart as inline SVG: one row per design, the value in figures at its end.
//!
//! Colours come from the page's style sheet (`--bar`, `--ink`, …), so that one drawing serves light
//! and dark pages; plotters writes fixed colours, which is why this is our own.

use super::axis::Axis;
use maud::{Markup, html};

#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    /// Where the bar ends; `None` draws a dash.
    pub value: Option<f64>,
    /// Smallest and largest measurement, drawn as a whisker.
    pub range: Option<(f64, f64)>,
    /// Style class: `a` and `b` separate two series.
    pub class: &'static str,
}

impl Bar {
    /// Builds a bar of the first series without a range.
    pub fn new(label: &str, value: Option<f64>) -> Bar {
        Bar { label: label.to_owned(), value, range: None, class: "a" }
    }
}

#[derive(Clone, Debug)]
pub struct Chart {
    /// What the axis shows, with its unit.
    pub axis: &'static str,
    pub bars: Vec<Bar>,
    pub decimals: usize,
    /// Upper end of the axis; `None` takes a tick above the largest value.
    pub max: Option<f64>,
}

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 190.0;
const VALUE_WIDTH: f64 = 90.0;
const ROW: f64 = 26.0;
const AXIS_HEIGHT: f64 = 44.0;

impl Chart {
    pub fn svg(&self) -> Markup {
        let plot = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
        let tops = self.bars.iter().filter_map(|b| b.range.map(|r| r.1).or(b.value));
        let axis = Axis::new(tops.chain(self.max).chain([0.0]), false, 5, false);
        let x = |value: f64| LABEL_WIDTH + plot * axis.place(value);
        let height = self.bars.len() as f64 * ROW + AXIS_HEIGHT;
        let foot = height - AXIS_HEIGHT;
        let description = format!("Bar chart, {}", self.axis);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(description) {
                @for &tick in &axis.ticks {
                    line class="grid" x1=(x(tick)) x2=(x(tick)) y1="0" y2=(foot) {}
                    text class="tick" x=(x(tick)) y=(foot + 16.0) text-anchor="middle" {
                        (axis.label(tick))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_drawn_and_text_is_escaped() {
        let bars = vec![
            Bar { range: Some((4.0, 7.5)), ..Bar::new("set-4", Some(5.0)) },
            Bar::new("<b>", None),
        ];
        let svg = Chart { axis: "Mpps", bars, decimals: 1, max: None }.svg().into_string();
        assert_eq!(svg.matches("<rect").count(), 1);
        assert!(svg.contains("set-4") && svg.contains("&lt;b&gt;") && svg.contains(">5.0<"));
        // From zero to a tick beyond the whisker.
        assert!(svg.contains(">0<") && svg.contains(">8<"), "{svg}");
    }
}
