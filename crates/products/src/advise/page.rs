//! The advice as one self-contained HTML page.

use super::profile::Window;
use super::{Advice, Cell, Costs, size_text};
use maud::html;
use overbank_kit::experiment::{Plot, Series, Table};
use overbank_kit::report::page::{document, ended_early, made, table};
use overbank_kit::report::{count, lines, optional, percent};

/// What the last column of the tables of designs and sizes means.
pub const TRIED: &str = "Tried: with a figure in the last column the lookups were timed here with \
                         this traffic, and the estimate rests on that; with a dash, on the costs \
                         below. Estimates of the two kinds are not on one scale.";

/// Shows designs at sizes as `advise` measured them; a dash where a design was not tried.
pub fn design_table<'a>(title: &str, cells: impl IntoIterator<Item = &'a Cell>) -> Table {
    Table::of(
        title,
        cells,
        &[
            ("design", &|c| c.design.clone()),
            ("entries", &|c| count(c.entries as u64)),
            ("memory", &|c| size_text(c.table_bytes)),
            ("α", &|c| format!("{:.2}", c.alpha)),
            ("predicted %", &|c| c.predicted.map_or("simulated only".to_owned(), percent)),
            ("measured %", &|c| percent(c.measured)),
            ("est. ns/packet", &|c| format!("{:.1}", c.ns_per_packet)),
            ("tried: ns/lookup", &|c| optional(c.lookup_ns, 1)),
        ],
    )
}

/// Renders the page. `command` is what the reader would type to make it again.
pub fn page(advice: &Advice, command: &str) -> String {
    let title = format!("Overbank advice: {}", advice.traffic);
    let (r, p) = (&advice.recommendation, &advice.profile);
    let seconds = |s: Option<f64>| s.map_or("–".to_owned(), |s| format!("{s:.1}"));
    let facts = vec![
        ("packets", count(p.packets)),
        ("flows", count(p.flows)),
        ("flows of one packet", count(p.flows_of_one_packet)),
        ("share of the top 1 % of flows", format!("{:.1} %", p.top_hundredth_share * 100.0)),
        ("seconds", seconds(p.seconds)),
        ("new flows a packet, second half", format!("{:.4}", p.new_flows_per_packet_later)),
        ("new flows a second", seconds(p.new_flows_per_second)),
        ("fitted skew θ", format!("{:.2} over {} flows", p.skew.theta, count(p.skew.flows as u64))),
    ];
    let mut cells = design_table("", &advice.cells);
    for (row, cell) in cells.rows.iter_mut().zip(&advice.cells) {
        if (&cell.design, cell.entries) == (&r.design, r.entries) {
            row[0] += " ←";
        }
    }
    let body = html! {
        header {
            h1 { (r.design) ", " (count(r.entries as u64)) " entries, " (size_text(r.table_bytes)) }
            p { (r.reason) }
            p { (advice.traffic.to_string()) "." }
            (ended_early(advice.interrupted))
        }
        section {
            h2 { "The traffic" }
            div class="scroll" { table { tbody {
                @for (name, value) in &facts { tr { td { (name) } td { (value) } } }
            } } }
        }
        @if p.windows.len() > 1 { figure {
            h2 { "Working set over time" }
            (lines::svg(&working_set(advice)))
            figcaption { "Windows of " (count(p.windows[0].packets)) " packets: the flows in each, "
                "and those of them that were never there before." }
        } }
        figure {
            h2 { "Hit rate by size" }
            (lines::svg(&hit_rates(advice)))
            figcaption { "Hit rate of real tables on this sequence of flows. Dashed: the model, "
                "which knows how often each flow came and not in which order." }
        }
        section {
            h2 { "The model and the tables" }
            @for note in &advice.model.notes { p { (note) } }
        }
        section { h2 { "Every design at every size" } p { (TRIED) } (table(&cells)) }
        footer {
            p { (costs_line(&advice.costs)) }
            (made(advice.version, command))
        }
    };
    document(&title, "", &body)
}

/// Says what the estimates are made of, in a line.
pub fn costs_line(costs: &Costs) -> String {
    format!(
        "Estimates: {:.1} ns a packet, {:.1} ns more for a miss; for a hit {:.1} ns more with \
         PBLRU, {:.1} with bubbling on each hit, {:.1} with half-bubble in a full table with skew; \
         {:.1} ns more in cuckoo-lite that is nearly full. Policies and second line: {}.",
        costs.hit_ns,
        costs.miss_ns,
        costs.promote_ns,
        costs.bubble_ns,
        costs.half_bubble_ns,
        costs.second_line_ns,
        if costs.calibrated { "measured here, at the start" } else { "as measured in the lab" }
    )
}

fn working_set(advice: &Advice) -> Plot {
    let windows = &advice.profile.windows;
    let timed = windows.iter().all(|w| w.start_seconds.is_some());
    let x = |w: &Window| w.start_seconds.filter(|_| timed).unwrap_or(w.first_packet as f64);
    let curve = |name: &str, y: fn(&Window) -> u64| {
        Series::measured(name, windows.iter().map(|w| (x(w), y(w) as f64)).collect())
    };
    let axis = if timed { "seconds since the first packet" } else { "packets since the start" };
    let curves = [curve("flows", |w| w.distinct), curve("new", |w| w.new_flows)];
    Plot::new("Working set", axis, "flows in a window").with(curves)
}

fn hit_rates(advice: &Advice) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for cell in &advice.cells {
        if !names.contains(&cell.design.as_str()) {
            names.push(&cell.design);
        }
    }
    // More lines than six are a thicket; the recommended design is one of them.
    let recommended = advice.recommendation.design.as_str();
    let points = |name: &str, y: fn(&Cell) -> Option<f64>| -> Vec<(f64, f64)> {
        let of = advice.cells.iter().filter(|c| c.design == name);
        of.filter_map(|c| Some((c.entries as f64, 100.0 * y(c)?))).collect()
    };
    // The model knows random eviction: of another policy, that of the same geometry is shown.
    let bare = recommended.split('+').next().unwrap_or(recommended);
    let predicted = |name: &&&str| !points(name, |c| c.predicted).is_empty();
    let candidates = [recommended, bare];
    let modelled = candidates.iter().find(predicted).or_else(|| names.iter().find(predicted));
    let modelled = modelled.copied();
    names.sort_by_key(|n| (*n != recommended, Some(*n) != modelled));
    names.truncate(6);
    let measured =
        names.iter().map(|name| Series::measured(*name, points(name, |c| Some(c.measured))));
    let model =
        modelled.map(|name| Series::model(format!("{name}, model"), points(name, |c| c.predicted)));
    let plot = Plot::new("Hit rate by size", "entries", "hits per 100 packets").log_x();
    plot.with(measured).with(model)
}
