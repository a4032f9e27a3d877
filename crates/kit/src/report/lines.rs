//! A line plot as inline SVG: curves over linear or logarithmic axes, with what a paper states as
//! marks.
//!
//! ```text
//!   ● set-4   ■ blp-2-4   - - model   ◇ stated       legend, in rows above the curves
//!   hit rate, %                                      the y axis says what it is at its top
//!  100 ┬────────────────────────
//!      │      ●──────■ ◇ 94 %                         a mark has its label beside it, where it
//!      │   ○ ─ ─ ─ ─ ─                                covers no other label and no curve, if it can
//!   80 ┴────┬─────┬─────┬───── α
//! ```
//!
//! A measured curve is solid with a marker at each point and a bar from its lowest to its highest
//! measurement; a model is dashed and bare. A model named like a measured curve ("set-4, model")
//! has its colour. Colours are variables of the page's style sheet, for light and dark.

use super::axis::Axis;
use crate::experiment::{Mark, Plot, Series};
use maud::{Markup, html};

const WIDTH: f64 = 880.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 22.0;
const PLOT_HEIGHT: f64 = 340.0;
const AXIS_HEIGHT: f64 = 48.0;
const LEGEND_ROW: f64 = 22.0;
const TITLE_HEIGHT: f64 = 26.0;
/// Average width of a character of the legend and of mark labels.
const CHARACTER: f64 = 7.0;
const LABEL_HEIGHT: f64 = 15.0;
/// Colours of the style sheet, `--s0` and on.
const COLOURS: usize = 10;
/// Points beyond which markers would be a stripe.
const MARKERS_MAX: usize = 60;

/// The plot as an `svg` element.
pub fn svg(plot: &Plot) -> Markup {
    let styles = styles(&plot.series);
    let legend = Legend::new(plot, &styles);
    let top = legend.height + TITLE_HEIGHT;
    let foot = top + PLOT_HEIGHT;
    let height = foot + AXIS_HEIGHT;

    let points = || plot.series.iter().flat_map(|s| s.points.iter().copied());
    let ends = plot.series.iter().flat_map(|s| s.ranges.iter().flat_map(|r| [r.0, r.1]));
    let xs = points().map(|p| p.0).chain(plot.stated.iter().map(|m| m.x));
    let ys = points().map(|p| p.1).chain(plot.stated.iter().map(|m| m.y)).chain(ends);
    let x_axis = Axis::new(xs, plot.log_x, 8, true);
    let y_axis = Axis::new(ys, plot.log_y, 6, false);
    // Room at the sides, so that no marker is cut.
    let x = |v: f64| LEFT + 12.0 + (WIDTH - LEFT - RIGHT - 24.0) * x_axis.place(v);
    let y = |v: f64| foot - 4.0 - (PLOT_HEIGHT - 8.0) * y_axis.place(v);
    let description = format!("{}: {} over {}", plot.title, plot.y, plot.x);

    let curves: Vec<Vec<(f64, f64)>> =
        plot.series.iter().map(|s| s.points.iter().map(|p| (x(p.0), y(p.1))).collect()).collect();
    let marks: Vec<(f64, f64)> = plot.stated.iter().map(|m| (x(m.x), y(m.y))).collect();
    let labels = place_labels(&plot.stated, &marks, &curves, top, foot);

    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" aria-label=(description) {
            (legend.draw())
            text class="axis" x=(2) y=(legend.height + 16.0) { (plot.y) }
            @for tick in &y_axis.ticks {
                line class="grid" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(r(y(*tick))) y2=(r(y(*tick))) {}
                text class="tick" x=(LEFT - 8.0) y=(r(y(*tick) + 4.5)) text-anchor="end" {
                    (y_axis.label(*tick))
                }
            }
            @for tick in &x_axis.ticks {
                line class="grid" x1=(r(x(*tick))) x2=(r(x(*tick))) y1=(top) y2=(foot) {}
                text class="tick" x=(r(x(*tick))) y=(foot + 19.0) text-anchor="middle" {
                    (x_axis.label(*tick))
                }
            }
            line class="base" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(foot) y2=(foot) {}
            text class="axis" x=((LEFT + WIDTH - RIGHT) / 2.0) y=(foot + 40.0)
                text-anchor="middle" { (plot.x) }
            @for ((series, style), curve) in plot.series.iter().zip(&styles).zip(&curves) {
                (draw(series, style, curve, &y))
            }
            @for (at, (mark, label)) in marks.iter().zip(plot.stated.iter().zip(&labels)) {
                path class="stated" d=(diamond(*at, 6.5)) {}
                text class="mark" x=(r(label.0)) y=(r(label.1 + LABEL_HEIGHT - 3.5)) { (mark.name) }
            }
        }
    }
}

/// How a curve is drawn.
struct Style {
    colour: usize,
    shape: usize,
    model: bool,
}

impl Style {
    fn class(&self) -> String {
        format!("s{}", self.colour)
    }
}

/// Colours in order; a model takes that of the measured curve whose name its own begins with.
fn styles(series: &[Series]) -> Vec<Style> {
    let alike = |model: &Series| {
        let same = series.iter().enumerate().filter(|(_, s)| {
            !s.model && (model.name == s.name || model.name.starts_with(&format!("{},", s.name)))
        });
        same.max_by_key(|(_, s)| s.name.len()).map(|(i, _)| i)
    };
    let mut numbers = vec![0; series.len()];
    let mut next = 0;
    for (i, s) in series.iter().enumerate() {
        if !s.model || alike(s).is_none() {
            numbers[i] = next;
            next += 1;
        }
    }
    let number = |(i, s): (usize, &Series)| match alike(s) {
        Some(like) if s.model => numbers[like],
        _ => numbers[i],
    };
    let numbers = series.iter().enumerate().map(number).collect::<Vec<_>>();
    let style = |(s, number): (&Series, usize)| Style {
        colour: number % COLOURS,
        shape: (number + number / COLOURS) % 4,
        model: s.model,
    };
    series.iter().zip(numbers).map(style).collect()
}

fn draw(series: &Series, style: &Style, curve: &[(f64, f64)], y: &impl Fn(f64) -> f64) -> Markup {
    let class = style.class();
    let line = if style.model { "model" } else { "curve" };
    let markers = !style.model && curve.len() <= MARKERS_MAX;
    html! {
        g class=(class) {
            @for (at, range) in curve.iter().zip(&series.ranges) {
                path class="whisker" d=(bar(at.0, y(range.0), y(range.1))) {}
            }
            @if curve.len() > 1 { path class=(line) d=(polyline(curve)) {} }
            @if markers || curve.len() == 1 {
                @for at in curve { path class="dot" d=(marker(*at, style.shape)) {} }
            }
        }
    }
}

/// Names with a piece of their curve, in as many rows as it takes.
struct Legend {
    entries: Vec<(f64, f64, Entry)>,
    height: f64,
}

enum Entry {
    Curve { name: String, class: String, model: bool, shape: usize },
    Stated,
}

impl Legend {
    fn new(plot: &Plot, styles: &[Style]) -> Legend {
        let curves = plot.series.iter().zip(styles).map(|(s, style)| Entry::Curve {
            name: s.name.clone(),
            class: style.class(),
            model: style.model,
            shape: style.shape,
        });
        let stated = (!plot.stated.is_empty()).then_some(Entry::Stated);
        let (mut left, mut row) = (2.0, 0.0);
        let mut entries = Vec::new();
        for entry in curves.chain(stated) {
            let width = 40.0 + CHARACTER * entry.name().chars().count() as f64 + 18.0;
            if left > 2.0 && left + width > WIDTH {
                (left, row) = (2.0, row + 1.0);
            }
            entries.push((left, row * LEGEND_ROW + LEGEND_ROW / 2.0, entry));
            left += width;
        }
        Legend { entries, height: (row + 1.0) * LEGEND_ROW }
    }

    fn draw(&self) -> Markup {
        html! {
            @for (left, y, entry) in &self.entries {
                @let middle = (left + 15.0, *y);
                @match entry {
                    Entry::Curve { class, model, shape, .. } => g class=(class) {
                        path class=(if *model { "model" } else { "curve" })
                            d=(format!("M{left:.1} {y:.1}h30")) {}
                        @if !*model { path class="dot" d=(marker(middle, *shape)) {} }
                    },
                    Entry::Stated => path class="stated" d=(diamond(middle, 6.5)) {},
                }
                text class="label" x=(r(left + 38.0)) y=(r(y + 4.5)) { (entry.name()) }
            }
        }
    }
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Entry::Curve { name, .. } => name,
            Entry::Stated => "stated by the paper",
        }
    }
}

/// Left upper corners of the labels: each in the place around its mark that is freest.
fn place_labels(
    stated: &[Mark],
    marks: &[(f64, f64)],
    curves: &[Vec<(f64, f64)>],
    top: f64,
    foot: f64,
) -> Vec<(f64, f64)> {
    let mut taken: Vec<[f64; 4]> =
        marks.iter().map(|m| [m.0 - 8.0, m.1 - 8.0, m.0 + 8.0, m.1 + 8.0]).collect();
    let on_curves: Vec<(f64, f64)> = curves.iter().flat_map(|c| along(c)).collect();
    let mut places = Vec::new();
    for (own, (mark, at)) in stated.iter().zip(marks).enumerate() {
        let width = CHARACTER * mark.name.chars().count() as f64;
        let half = LABEL_HEIGHT / 2.0;
        let mut candidates = Vec::new();
        for far in [0.0, 12.0, 26.0, 44.0] {
            candidates.extend([
                (at.0 + 11.0 + far / 4.0, at.1 - half),
                (at.0 + 8.0, at.1 - LABEL_HEIGHT - 5.0 - far),
                (at.0 + 8.0, at.1 + 5.0 + far),
                (at.0 - 8.0 - width, at.1 - LABEL_HEIGHT - 5.0 - far),
                (at.0 - 8.0 - width, at.1 + 5.0 + far),
                (at.0 - 11.0 - far / 4.0 - width, at.1 - half),
                (at.0 - width / 2.0, at.1 - LABEL_HEIGHT - 9.0 - far),
                (at.0 - width / 2.0, at.1 + 9.0 + far),
            ]);
        }
        let cost = |(number, place): (usize, &(f64, f64))| {
            let area = [place.0, place.1, place.0 + width, place.1 + LABEL_HEIGHT];
            let out = area[0] < LEFT || area[2] > WIDTH - 2.0 || area[1] < top || area[3] > foot;
            let labels =
                taken.iter().enumerate().filter(|(i, t)| *i != own && overlap(&area, t)).count();
            let lines = on_curves
                .iter()
                .filter(|p| {
                    (area[0] - 2.0..area[2] + 2.0).contains(&p.0)
                        && (area[1] - 1.0..area[3] + 1.0).contains(&p.1)
                })
                .count();
            (usize::from(out) * 100_000 + labels * 10_000 + lines * 40 + number, number)
        };
        let best = candidates.iter().enumerate().min_by_key(|c| cost(*c));
        let place = best.map_or(*at, |(_, place)| *place);
        taken.push([place.0, place.1, place.0 + width, place.1 + LABEL_HEIGHT]);
        places.push(place);
    }
    places
}

/// Points every few pixels along a curve.
fn along(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = curve.to_vec();
    for pair in curve.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let steps = ((b.0 - a.0).hypot(b.1 - a.1) / 4.0).ceil().max(1.0);
        out.extend((1..steps as u32).map(|i| {
            let t = f64::from(i) / steps;
            (a.0 + (b.0 - a.0) * t, a.1 + (b.1 - a.1) * t)
        }));
    }
    out
}

fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Coordinates to a tenth of a pixel.
fn r(value: f64) -> String {
    format!("{value:.1}")
}

fn polyline(points: &[(f64, f64)]) -> String {
    let steps = points.iter().enumerate().map(|(i, p)| {
        let step = if i == 0 { 'M' } else { 'L' };
        format!("{step}{:.1} {:.1}", p.0, p.1)
    });
    steps.collect()
}

fn bar(x: f64, low: f64, high: f64) -> String {
    let left = x - 3.0;
    format!("M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h6M{left:.1} {high:.1}h6")
}

fn diamond((x, y): (f64, f64), size: f64) -> String {
    format!("M{:.1} {y:.1}l{size} -{size}l{size} {size}l-{size} {size}z", x - size)
}

/// Circle, square, triangle up, triangle down.
fn marker((x, y): (f64, f64), shape: usize) -> String {
    match shape {
        0 => format!("M{:.1} {y:.1}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z", x - 3.6),
        1 => format!("M{:.1} {:.1}h6.4v6.4h-6.4z", x - 3.2, y - 3.2),
        2 => format!("M{:.1} {:.1}l4.2 7.2h-8.4z", x, y - 4.4),
        _ => format!("M{:.1} {:.1}l4.2 -7.2h-8.4z", x, y + 4.4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, model: bool, points: &[(f64, f64)]) -> Series {
        let ranges = if model { vec![] } else { points.iter().map(|p| (p.1, p.1 + 1.0)).collect() };
        Series { name: name.to_owned(), points: points.to_vec(), ranges, model }
    }

    fn plot(series: Vec<Series>, stated: Vec<Mark>) -> Plot {
        let text = |s: &str| s.to_owned();
        Plot {
            title: text("t"),
            x: text("α"),
            y: text("%"),
            log_x: false,
            log_y: false,
            series,
            stated,
        }
    }

    #[test]
    fn everything_is_drawn_and_text_is_escaped() {
        let points = [(0.5, 90.0), (1.0, 80.0), (2.0, 50.0)];
        let curves = vec![series("<b>", false, &points), series("<b>, model", true, &points[..2])];
        let mark = Mark { name: "81 %".to_owned(), x: 0.95, y: 81.0 };
        let svg = svg(&plot(curves, vec![mark])).into_string();
        assert_eq!(svg.matches("class=\"dot\"").count(), 3 + 1);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
        assert_eq!(svg.matches("class=\"model\"").count(), 2);
        assert_eq!(svg.matches("class=\"stated\"").count(), 2);
        assert!(svg.contains("&lt;b&gt;, model") && !svg.contains("<b>"));
        assert!(svg.contains(">81 %<") && svg.contains("stated by the paper"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_model_has_the_colour_of_what_it_models() {
        let p = [(0.0, 0.0)];
        let all = [
            series("set-4, model", true, &p),
            series("set-4", false, &p),
            series("blp-2-4", false, &p),
            series("ODE", true, &p),
            series("blp-2-4, model", true, &p),
        ];
        let colours: Vec<usize> = styles(&all).iter().map(|s| s.colour).collect();
        assert_eq!(colours, [0, 0, 1, 2, 1]);
    }

    #[test]
    fn labels_lie_apart() {
        let stated: Vec<Mark> =
            (0..6).map(|i| Mark { name: format!("stated {i}"), x: 0.0, y: f64::from(i) }).collect();
        let marks: Vec<(f64, f64)> = (0..6).map(|i| (400.0, 200.0 + f64::from(i) * 3.0)).collect();
        let places = place_labels(&stated, &marks, &[], 50.0, 390.0);
        let width = CHARACTER * 8.0;
        let areas: Vec<[f64; 4]> =
            places.iter().map(|p| [p.0, p.1, p.0 + width, p.1 + LABEL_HEIGHT]).collect();
        for (i, a) in areas.iter().enumerate() {
            assert!(areas[..i].iter().all(|b| !overlap(a, b)), "{places:?}");
        }
    }

    #[test]
    fn no_data_and_odd_data_are_drawn_too() {
        for log in [false, true] {
            for points in [vec![], vec![(0.0, 0.0)], vec![(-1.0, 5.0), (0.0, -5.0)]] {
                let mut plot = plot(vec![series("a", false, &points)], vec![]);
                (plot.log_x, plot.log_y) = (log, log);
                let svg = svg(&plot).into_string();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
