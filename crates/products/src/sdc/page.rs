//! A point as tables, for the terminal too, and as one self-contained HTML page.

use super::point::{Held, MODES, Mode, Outcome, SLOTS, SetView};
use super::record::{BitsRecord, Comparison};
use crate::advise::size_text;
use maud::{Markup, html};
use overbank_kit::experiment::Table;
use overbank_kit::report::bars::{Bar, Chart};
use overbank_kit::report::cells::{Cell, Cells, Row};
use overbank_kit::report::heat::Heat;
use overbank_kit::report::page::{document, made, table};
use overbank_kit::report::{count, percent};
use overbank_sdc::{FEW, SlotView, WayView, used_slots};

/// What the three ways of counting time are.
pub const TIMES: &str = "Blocking: each miss waits. Overlap: up to four misses that lie near each \
                         other wait together. As evaluated: blocking, and each SDC operation takes \
                         40 cycles more, as in the paper's figures.";

/// Sets of the map of accesses.
const HEAT_SETS: usize = 64;
/// Ways of it.
const HEAT_WAYS: usize = 16;

/// Says what ran.
pub fn what(of: &Outcome) -> String {
    let ratio = of.data_set_bytes as f64 / of.shape.llc.bytes as f64;
    format!(
        "{} lookups of {} items among {} ({}, {ratio:.2} × the last-level cache), {}",
        count(of.lookups),
        count(of.subset),
        count(of.items),
        size_text(of.data_set_bytes as usize),
        keys(of),
    )
}

fn keys(of: &Outcome) -> String {
    let skew = format!("Zipf {}", of.theta);
    match of.keys.strip_prefix("ycsb-") {
        Some(mix) => format!("YCSB {}, {skew}", mix.to_ascii_uppercase()),
        None => format!("{skew}, {} keys", of.keys),
    }
}

/// Says what the machine is.
pub fn machine(of: &Outcome) -> String {
    let llc = &of.shape.llc;
    let mut text = format!(
        "{} GHz; last-level cache of {}, {} ways",
        of.shape.ghz,
        size_text(llc.bytes as usize),
        llc.ways
    );
    if let Some(sdc) = &of.shape.sdc {
        let slots = if sdc.slots == 1 {
            "1 value a line".to_owned()
        } else {
            format!("{} slots a line", sdc.slots)
        };
        let (family, bits) = (sdc.family, sdc.sub_tag_bits);
        text += &format!("; SDC: families of up to {family}, sub-tags of {bits} bits, {slots}");
    }
    text
}

/// Figures of a lookup or of all, by name.
type Figures = Vec<(String, String)>;

fn per_lookup(of: &Outcome, n: u64) -> String {
    format!("{:.2}", n as f64 / of.lookups as f64)
}

/// Tables a row of which is one figure, with a column for each point.
fn beside(title: &str, comparison: &Comparison, figures: fn(&Outcome) -> Figures) -> Table {
    let points: Vec<&Outcome> = comparison.regular.iter().chain([&comparison.point]).collect();
    let headings = [String::new()].into_iter().chain(points.iter().map(|of| of.system.clone()));
    let mut table = Table::new(title, headings);
    let columns: Vec<Figures> = points.iter().map(|of| figures(of)).collect();
    for (at, (name, _)) in columns[0].iter().enumerate() {
        let cells =
            columns.iter().map(|column| column.get(at).map_or_else(String::new, |it| it.1.clone()));
        table.row([name.clone()].into_iter().chain(cells));
    }
    table
}

/// Lookups a second and the gain.
pub fn speeds(comparison: &Comparison) -> Table {
    let point = &comparison.point;
    let mut headings = vec![String::new()];
    headings.extend(comparison.regular.iter().chain([point]).map(|of| of.system.clone()));
    headings.extend(comparison.gain.map(|_| "gain".to_owned()));
    let mut table = Table::new("Lookups a second", headings);
    for (name, mode) in MODES {
        let speed = |of: &Outcome| count(mode(&of.lookups_per_second).round() as u64);
        let mut row = vec![name.to_owned()];
        row.extend(comparison.regular.iter().chain([point]).map(speed));
        row.extend(comparison.gain.as_ref().map(|gain| format!("{:.2} ×", mode(gain))));
        table.row(row);
    }
    table
}

/// Hits and accesses a lookup.
pub fn figures(comparison: &Comparison) -> Table {
    beside("Of a lookup", comparison, |of| {
        let has = of.system != "regular";
        let rate = |rate: f64| if has { percent(rate) } else { "–".to_owned() };
        let sdc = of.shape.sdc.map_or("–".to_owned(), |_| percent(of.false_hit_rate()));
        let named = [
            ("hits in front, %", rate(of.hit_rate())),
            ("false hits, %", sdc),
            ("accesses", format!("{:.1}", of.accesses_per_lookup)),
            ("DRAM reads", format!("{:.2}", of.dram_per_lookup)),
            ("TLB misses", per_lookup(of, of.counters.tlb_misses)),
        ];
        named.map(|(name, cell)| (name.to_owned(), cell)).into()
    })
}

/// Accesses of a lookup by the level that had the line.
pub fn levels(comparison: &Comparison) -> Table {
    beside("Accesses a lookup, by where the line was", comparison, |of| {
        let (counters, shape) = (&of.counters, &of.shape);
        let mut named = Figures::new();
        let mut row = |name: &str, n: u64| named.push((name.to_owned(), per_lookup(of, n)));
        if shape.l1.is_some() {
            row("L1", counters.l1.hits);
        }
        if shape.l2.is_some() {
            row("L2", counters.l2.hits);
        }
        row("last-level cache", counters.llc.hits);
        row("DRAM", counters.llc.misses);
        row("page table in L2 or the last-level cache", counters.walk.l2 + counters.walk.llc);
        row("page table in DRAM", counters.walk.dram);
        named
    })
}

/// What became of SDC's values; none without SDC.
pub fn values(of: &Outcome) -> Option<Table> {
    of.shape.sdc?;
    let sdc = &of.counters.sdc;
    let gone = &sdc.evicted;
    let mut table = Table::new("Values of SDC", ["", "values", "% of inserts"]);
    let rows = [
        ("inserted", sdc.inserts),
        ("placed in an invalid slot of the family", sdc.placed_free),
        ("placed in a line that joined the family", sdc.placed_line),
        ("placed where CLOCK found room", sdc.placed_clock),
        ("left, replaced by CLOCK", gone.clock),
        ("left with a line that was replaced", gone.line),
        ("left, a part overwritten", gone.overwritten),
        ("left, another key had the same sub-tag", gone.equal),
        ("left, invalidated", gone.invalidated),
    ];
    for (name, n) in rows {
        let share = percent(n as f64 / sdc.inserts.max(1) as f64);
        table.row([name.to_owned(), count(n), share]);
    }
    Some(table)
}

/// What the last-level cache holds at the end.
pub fn held(of: &Outcome) -> Option<String> {
    let lines = of.shape.llc.bytes / 64;
    of.shape.sdc?;
    let mut text = format!(
        "At the end SDC holds {} of {} lines ({} %)",
        count(of.sdc_lines),
        count(lines),
        percent(of.sdc_lines as f64 / lines as f64)
    );
    if let Some(Held { slots, lines, .. }) = &of.llc {
        let share = slots.valid as f64 / (lines.sdc.max(1) * SLOTS as u64) as f64;
        text += &format!(
            ", and {} % of their slots are valid: {}, of which {} were hit since CLOCK came by",
            percent(share),
            count(slots.valid),
            count(slots.referenced)
        );
    }
    Some(text + ".")
}

/// Says what SDC costs.
pub fn bits(bits: &BitsRecord) -> String {
    let line = &bits.line;
    let sign = if bits.extra_bytes < 0 { "-" } else { "" };
    format!(
        "SDC adds {} bits to a line ({:.2} % of its data): {} for sub-tags and states of its slots, \
         less {} by which its tag of {} bits is shorter than the ordinary one of {}. In all: {sign}{}.",
        line.extra,
        line.share * 100.0,
        line.slots,
        i64::from(line.regular_tag) - i64::from(line.sdc_tag),
        line.sdc_tag,
        line.regular_tag,
        size_text(bits.extra_bytes.unsigned_abs() as usize),
    )
}

/// Renders the page. `command` is what the reader would type to make it again.
pub fn page(comparison: &Comparison, command: &str) -> String {
    let Comparison { point, .. } = comparison;
    let title = format!("Overbank SDC: {}, {}", point.index, point.system);
    let heading = match &comparison.gain {
        Some(gain) => {
            format!("{} behind {}: {:.2} × as fast", point.index, point.system, gain.blocking)
        }
        None => format!("{}, {}", point.index, point.system),
    };
    let body = html! {
        header {
            h1 { (heading) }
            p { (what(point)) "." }
            p { (machine(point)) "." }
            @if !point.addresses_fixed {
                p class="warning" { "Addresses were not fixed: another run counts a little \
                    differently." }
            }
        }
        figure {
            h2 { "Lookups a second" }
            (bars(comparison))
            figcaption { (TIMES)
                @if comparison.regular.is_some() {
                    " " span class="key a" {} " regular "
                    span class="key b" {} " " (point.system) "."
                }
            }
        }
        section {
            h2 { "Figures" }
            div class="pair" {
                div { (table(&speeds(comparison))) (table(&figures(comparison))) }
                div { (table(&levels(comparison))) }
                @if let Some(values) = values(point) { div { (table(&values)) } }
            }
            @if let Some(held) = held(point) { p { (held) } }
            @if let Some(cost) = &comparison.bits { p { (bits(cost)) } }
        }
        @if !point.heat.is_empty() { (heat(point)) }
        @if let Some(held) = &point.llc { (sets(point, held)) }
        footer { (made(comparison.version, command)) }
    };
    document(&title, "", &body)
}

fn bars(comparison: &Comparison) -> Markup {
    let points = || comparison.regular.iter().map(|of| (of, "a")).chain([(&comparison.point, "b")]);
    let bar = |name: &str, mode: Mode| {
        points()
            .map(|(of, class)| {
                let speed = mode(&of.lookups_per_second) / 1e6;
                Bar { class, ..Bar::new(&format!("{name}, {}", of.system), Some(speed)) }
            })
            .collect::<Vec<_>>()
    };
    let bars = MODES.iter().flat_map(|(name, mode)| bar(name, *mode)).collect();
    Chart { axis: "million lookups a second", bars, decimals: 2, max: None }.svg()
}

/// Draws sets of the last-level cache, way by way.
fn sets(of: &Outcome, held: &Held) -> Markup {
    let key = |class: &str, text: &str| {
        html! { span class="item" { span class={ "key " (class) } {} " " (text) } " " }
    };
    html! {
        section class="sets" {
            h2 { "Sets of the last-level cache" }
            p {
                "A row is a way, a column one of its 8 slots; a family's lines stand together. In a \
                 slot: the sub-tag of its value (hexadecimal); › says that the value goes on in the \
                 next slot. Ways are drawn as they were after the last lookup."
            }
            p class="legend" {
                (key("hot", "valid, hit since CLOCK came by")) (key("valid", "valid"))
                (key("invalid", "invalid")) (key("ordinary", "ordinary line"))
                (key("none", "empty way"))
            }
            @for set in &held.sets {
                figure {
                    h3 { "Set " (count(set.set)) ": " (tally(set)) }
                    (drawn(set, of).svg())
                }
            }
        }
    }
}

/// Counts the ways of a set.
fn tally(set: &SetView) -> String {
    let is = |kind: fn(&WayView) -> bool| set.ways.iter().filter(|way| kind(way)).count();
    let slots = |wanted: fn(&SlotView) -> bool| {
        let of = |way: &WayView| match way {
            WayView::Sdc { slots, .. } => slots.iter().filter(|slot| wanted(slot)).count(),
            _ => 0,
        };
        set.ways.iter().map(of).sum::<usize>()
    };
    let sdc = is(|way| matches!(way, WayView::Sdc { .. }));
    format!(
        "{sdc} lines of SDC, {} ordinary, {} empty; of {} slots {} valid, {} of them hit",
        is(|way| matches!(way, WayView::Ordinary { .. })),
        is(|way| matches!(way, WayView::Empty)),
        sdc * SLOTS,
        slots(|slot| slot.valid),
        slots(|slot| slot.valid && slot.reference),
    )
}

fn drawn(set: &SetView, of: &Outcome) -> Cells {
    let mut ways: Vec<(usize, &WayView)> = set.ways.iter().enumerate().collect();
    ways.sort_by_key(|(at, way)| match way {
        WayView::Sdc { process, family, .. } => (0, *process, *family, *at),
        WayView::Ordinary { .. } => (1, 0, 0, *at),
        WayView::Empty => (2, 0, 0, *at),
    });
    let rows = ways.into_iter().map(|(at, way)| match way {
        WayView::Empty => Row {
            label: format!("way {at}"),
            mark: None,
            cells: vec![Cell { class: "none", span: SLOTS, text: "empty".to_owned() }],
        },
        WayView::Ordinary { line, modified } => Row {
            label: format!("way {at}"),
            mark: None,
            cells: vec![Cell {
                class: "ordinary",
                span: SLOTS,
                text: format!(
                    "line {:#x}{}",
                    line.wrapping_mul(64),
                    if *modified { ", modified" } else { "" }
                ),
            }],
        },
        WayView::Sdc { process, family, slots } => {
            let cell = |slot: &SlotView| Cell {
                class: match (slot.valid, slot.reference) {
                    (true, true) => "hot",
                    (true, false) => "valid",
                    (false, _) => "invalid",
                },
                span: 1,
                text: match (slot.valid, slot.sequence) {
                    (true, true) => format!("{:02x} ›", slot.sub_tag),
                    (true, false) => format!("{:02x}", slot.sub_tag),
                    (false, _) => String::new(),
                },
            };
            let process = if *process > 0 { format!(", process {process}") } else { String::new() };
            Row {
                label: format!("way {at}, family {family}{process}"),
                mark: Some(*family as usize),
                cells: slots.iter().map(cell).collect(),
            }
        }
    });
    Cells {
        what: format!("Set {} of the last-level cache of {}", set.set, of.system),
        columns: (0..SLOTS).map(|slot| format!("slot {slot}")).collect(),
        rows: rows.collect(),
    }
}

/// Draws the accesses to the slots of the first level.
fn heat(of: &Outcome) -> Markup {
    let ways = of.heat_ways() as usize;
    let shown_ways = ways.min(HEAT_WAYS);
    let sets: Vec<&[u64]> = of.heat.chunks(ways.max(1) * SLOTS).collect();
    let shown_sets = sets.len().min(HEAT_SETS);
    let rows = sets[..shown_sets].iter().map(|set| set[..shown_ways * SLOTS].to_vec()).collect();
    let used = |line: &&[u64]| used_slots(line) <= FEW;
    let lines = of.heat.chunks(SLOTS).filter(|line| line.iter().any(|n| *n > 0));
    let (all, few) = (lines.clone().count(), lines.filter(used).count());
    html! {
        section {
            h2 { "Accesses to the slots of the first level" }
            p {
                "A row is a set, a group of 8 columns the slots of a way. Of " (count(all as u64))
                " lines with accesses, " (percent(few as f64 / all.max(1) as f64))
                " % use 3 slots or fewer: the others have less than a tenth of the accesses of the \
                 line's hottest slot."
                @if shown_sets < sets.len() || shown_ways < ways {
                    " The map has the first " (shown_sets) " sets and " (shown_ways) " ways."
                }
            }
            (Heat { what: "Accesses by set, way and slot", group: SLOTS, rows }.svg())
        }
    }
}
