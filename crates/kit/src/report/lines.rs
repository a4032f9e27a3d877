//! A line plot as inline SVG: curves over linear or logarithmic axes, with what a paper states as
//! marks.
//!
//! ```text
//!   ● set-4   ■ blp-2-4   - - model   ◇ stated       legend, in rows above the curves
//!   hit rate, %                                      the y axis says what it is at its top
//!  100 ┬────────────────────────
//!      │      ●──────■ ◇ 94 %                         a mark has its label beside it, where it
//!      │   ○ ─ ─ ─ ─ ─                                covers no label and no curve, if it can
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
const LEFT_MIN: f64 = 62.0;
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
const STATED: &str = "stated by the paper";

pub fn svg(plot: &Plot) -> Markup {
    let styles = styles(&plot.series);
    let stated = (!plot.stated.is_empty()).then_some((STATED, None));
    let named = plot.series.iter().map(|s| &*s.name).zip(styles.iter().map(Some));
    let entries: Vec<(&str, Option<&Style>)> = named.chain(stated).collect();
    let places = legend_places(entries.iter().map(|(name, _)| *name));
    let legend = places.last().map_or(LEGEND_ROW, |(_, y)| y + LEGEND_ROW / 2.0);
    let top = legend + TITLE_HEIGHT;
    let foot = top + PLOT_HEIGHT;
    let height = foot + AXIS_HEIGHT;

    let points = || plot.series.iter().flat_map(|s| s.points.iter().copied());
    let ends = plot.series.iter().flat_map(|s| s.ranges.iter().flat_map(|r| [r.0, r.1]));
    let xs = points().map(|p| p.0).chain(plot.stated.iter().map(|m| m.x));
    let ys = points().map(|p| p.1).chain(plot.stated.iter().map(|m| m.y)).chain(ends);
    let x_axis = Axis::new(xs, plot.log_x, 8, true);
    let y_axis = Axis::new(ys, plot.log_y, 6, false);
    let longest = y_axis.ticks.iter().map(|tick| y_axis.label(*tick).chars().count()).max();
    let left = LEFT_MIN.max(14.0 + CHARACTER * longest.unwrap_or(0) as f64);
    // Room at the sides, so that no marker is cut.
    let x = |v: f64| left + 12.0 + (WIDTH - left - RIGHT - 24.0) * x_axis.place(v);
    let y = |v: f64| foot - 4.0 - (PLOT_HEIGHT - 8.0) * y_axis.place(v);
    let description = format!("{}: {} over {}", plot.title, plot.y, plot.x);

    let curves: Vec<Vec<(f64, f64)>> =
        plot.series.iter().map(|s| s.points.iter().map(|p| (x(p.0), y(p.1))).collect()).collect();
    let marks: Vec<(f64, f64)> = plot.stated.iter().map(|m| (x(m.x), y(m.y))).collect();
    let labels = place_labels(&plot.stated, &marks, &curves, [left, top, WIDTH - 2.0, foot]);

    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" aria-label=(description) {
            @for (place, (name, style)) in places.iter().zip(entries) {
                (legend_entry(*place, name, style))
            }
            text class="axis" x=(2) y=(legend + 16.0) { (plot.y) }
            @for tick in &y_axis.ticks {
                line class="grid" x1=(left) x2=(WIDTH - RIGHT) y1=(r(y(*tick))) y2=(r(y(*tick))) {}
                text class="tick" x=(left - 8.0) y=(r(y(*tick) + 4.5)) text-anchor="end" {
                    (y_axis.label(*tick))
                }
            }
            @for tick in &x_axis.ticks {
                line class="grid" x1=(r(x(*tick))) x2=(r(x(*tick))) y1=(top) y2=(foot) {}
                text class="tick" x=(r(x(*tick))) y=(foot + 19.0) text-anchor="middle" {
                    (x_axis.label(*tick))
                }
            }
            line class="base" x1=(left) x2=(WIDTH - RIGHT) y1=(foot) y2=(foot) {}
            text class="axis" x=((left + WIDTH - RIGHT) / 2.0) y=(foot + 40.0)
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

struct Style {
    colour: usize,
    shape: usize,
    model: bool,
}

impl Style {
    fn class(&self) -> String {
        format!("s{}", self.colour)
    }

    fn line(&self) -> &'static str {
        if self.model { "model" } else { "curve" }
    }
}

/// Chooses colours in order; a model takes that of the measured curve whose name its own begins
/// with.
fn styles(series: &[Series]) -> Vec<Style> {
    let is_of = |model: &str, name: &str| {
        model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
    };
    let alike = |s: &Series| {
        let curves = series.iter().enumerate().filter(|(_, c)| s.model && !c.model);
        curves.filter(|(_, c)| is_of(&s.name, &c.name)).max_by_key(|(_, c)| c.name.len())
    };
    // The place of a curve among those with a separate colour.
    let number = |at: usize| series[..at].iter().filter(|s| alike(s).is_none()).count();
    let style = |(at, s): (usize, &Series)| {
        let number = number(alike(s).map_or(at, |(like, _)| like));
        let shape = (number + number / COLOURS) % 4;
        Style { colour: number % COLOURS, shape, model: s.model }
    };
    series.iter().enumerate().map(style).collect()
}

fn draw(series: &Series, style: &Style, curve: &[(f64, f64)], y: &impl Fn(f64) -> f64) -> Markup {
    let markers = !style.model && curve.len() <= MARKERS_MAX;
    html! {
        g class=(style.class()) {
            @for (at, range) in curve.iter().zip(&series.ranges) {
                path class="whisker" d=(bar(at.0, y(range.0), y(range.1))) {}
            }
            @if curve.len() > 1 { path class=(style.line()) d=(polyline(curve)) {} }
            @if markers || curve.len() == 1 {
                @for at in curve { path class="dot" d=(marker(*at, style.shape)) {} }
            }
        }
    }
}

/// Places the entries of a legend in as many rows as it takes.
fn legend_places<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(f64, f64)> {
    let mut next = (2.0, LEGEND_ROW / 2.0);
    let places = names.map(|name| {
        let width = 40.0 + CHARACTER * name.chars().count() as f64 + 18.0;
        if next.0 > 2.0 && next.0 + width > WIDTH {
            next = (2.0, next.1 + LEGEND_ROW);
        }
        let place = next;
        next.0 += width;
        place
    });
    places.collect()
}

/// Draws an entry of the legend: a name with a piece of its curve, or the mark of what is stated.
fn legend_entry((left, y): (f64, f64), name: &str, style: Option<&Style>) -> Markup {
    let middle = (left + 15.0, y);
    html! {
        @if let Some(style) = style {
            g class=(style.class()) {
                path class=(style.line()) d=(format!("M{left:.1} {y:.1}h30")) {}
                @if !style.model { path class="dot" d=(marker(middle, style.shape)) {} }
            }
        } @else {
            path class="stated" d=(diamond(middle, 6.5)) {}
        }
        text class="label" x=(r(left + 38.0)) y=(r(y + 4.5)) { (name) }
    }
}

/// Places the labels: returns left upper corners, each where it is freest around its mark.
fn place_labels(
    stated: &[Mark],
    marks: &[(f64, f64)],
    curves: &[Vec<(f64, f64)>],
    within: [f64; 4],
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
            let [left, top, right, foot] = within;
            let out = area[0] < left || area[2] > right || area[1] < top || area[3] > foot;
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

/// Returns points every few pixels along a curve.
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

/// Draws a circle, a square, a triangle up or down.
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
        Plot { stated, ..Plot::new("t", "α", "%").with(series) }
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
        let places = place_labels(&stated, &marks, &[], [62.0, 50.0, 878.0, 390.0]);
        let width = CHARACTER * 8.0;
        let areas: Vec<[f64; 4]> =
            places.iter().map(|p| [p.0, p.1, p.0 + width, p.1 + LABEL_HEIGHT]).collect();
        for (i, a) in areas.iter().enumerate() {
            assert!(areas[..i].iter().all(|b| !overlap(a, b)), "{places:?}");
        }
    }

    /// A label ends 8 left of the axis and begins inside the picture.
    #[test]
    fn no_label_is_cut_off() {
        for top in [100.0, 1e6, 1e15] {
            let curve = series("a", true, &[(0.0, 0.0), (1.0, top)]);
            let svg = svg(&plot(vec![curve], vec![])).into_string();
            let labels = svg.split("text-anchor=\"end\">").skip(1);
            let longest = labels.map(|l| l.split('<').next().unwrap().chars().count()).max();
            let ends = svg.split("class=\"tick\" x=\"").nth(1).and_then(|x| x.split('"').next());
            let ends: f64 = ends.and_then(|x| x.parse().ok()).expect("where labels end");
            assert!(ends >= CHARACTER * longest.expect("a label") as f64, "{top}: {ends}");
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
