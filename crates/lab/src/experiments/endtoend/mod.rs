//! Figures 6, 7 and 10: end to end through the three tiers of the switch.
//!
//! The paper's set-up (section 7.2): minimum-sized UDP packets, a microflow cache of 2²⁰ entries
//! (4 MiB), about 20 megaflow masks, α from 0.5 to 2, uniform and Zipf 0.99; our packets come from
//! memory, not from a network card. All designs of a point take turns in one run of the replay
//! engine, which also proves that they forward every packet alike.
//!
//! Figures 6 and 7 are two views of one measurement: whichever runs first makes it, the other one
//! takes it over if size and seed are the same.

mod fig10;
mod fig6;
mod fig7;

pub use fig6::FIG6;
pub use fig7::FIG7;
pub use fig10::FIG10;

use crate::experiment::{Check, Context, LabError, Mark, Plot, Record, Series};
use crate::micro::{SLOT_BYTES, size_name};
use crate::recommended::RECOMMENDED;
use crate::replay::feed::Source;
use crate::replay::record::{DesignRecord, TrafficRecord};
use crate::replay::{self, Contestant, Length, Plan, Progress};
use crate::traffic::Traffic;
use crate::workload::FlowStream;
use overbank_switch::parse::parse_rules;
use overbank_switch::translate::Tables;
use std::sync::{Arc, Mutex, PoisonError};

/// The paper's "4-way": the table of Open vSwitch's SMC, without vector instructions.
const SCALAR: &str = "set-4@portable";
const DESIGNS: [&str; 8] =
    [SCALAR, "set-4", "set-8", "cuckoo-2-4", "blp-2-4", "blp-2-4+pblru", "blp-2-16", RECOMMENDED];
/// The paper's designs with random eviction.
const PLAIN: [&str; 4] = ["set-4", "set-8", "cuckoo-2-4", "blp-2-4"];
const THETAS: [f64; 2] = [0.0, 0.99];

/// A load and a skew, and what each design did there.
struct Point {
    alpha: f64,
    theta: f64,
    designs: Vec<DesignRecord>,
}

impl Point {
    /// The record of a design; every design asked for was measured.
    fn of(&self, name: &str) -> &DesignRecord {
        self.designs.iter().find(|d| d.design == name).expect("a design of the list")
    }

    fn mpps(&self, name: &str) -> f64 {
        self.of(name).mpps.unwrap_or(0.0)
    }

    fn points(&self, name: &str) -> f64 {
        100.0 * self.of(name).hit_rate
    }

    fn lookup(&self, name: &str) -> f64 {
        self.of(name).ns_lookup.unwrap_or(0.0)
    }

    fn ns(&self, name: &str) -> f64 {
        self.of(name).ns_per_packet.unwrap_or(0.0)
    }

    /// What a miss costs more than a hit, if there were both.
    fn miss_ns(&self, name: &str) -> Option<f64> {
        let design = self.of(name);
        Some(design.ns_miss? - design.ns_hit?)
    }

    /// How much faster, in percent.
    fn gain(&self, name: &str, over: &str) -> f64 {
        100.0 * (self.mpps(name) / self.mpps(over) - 1.0)
    }
}

/// Sizes of a series of points.
struct Course {
    entries: usize,
    alphas: &'static [f64],
    thetas: &'static [f64],
    warmup_loops: u64,
    rounds: u32,
}

impl Course {
    fn figures_6_and_7(smoke: bool) -> Course {
        let alphas: &[f64] = if smoke { &[0.5, 0.95, 2.0] } else { &[0.5, 0.75, 0.95, 1.25, 2.0] };
        Course { alphas, thetas: &THETAS, ..Course::sized(smoke) }
    }

    fn figure_10(smoke: bool) -> Course {
        let alphas: &[f64] = if smoke { &[0.5, 2.0] } else { &[0.5, 1.0, 1.5, 2.0] };
        let thetas: &[f64] = if smoke { &[0.0, 0.99] } else { &[0.0, 0.5, 0.75, 0.9, 0.99, 1.1] };
        Course { alphas, thetas, ..Course::sized(smoke) }
    }

    fn sized(smoke: bool) -> Course {
        let (entries, warmup_loops, rounds) =
            if smoke { (1 << 11, 20, 4) } else { (1 << 20, 10, 5) };
        Course { entries, alphas: &[], thetas: &[], warmup_loops, rounds }
    }

    fn measure(&self, context: &mut Context<'_>, designs: &[&str]) -> Result<Vec<Point>, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::Failed(e.to_string());
        let contestants: Vec<Contestant> = designs
            .iter()
            .map(|name| name.parse().map_err(|e| failed(&e)))
            .collect::<Result<_, _>>()?;
        let traffic = Traffic::default();
        let rules = parse_rules(&traffic.rules()).map_err(|e| failed(&e))?;
        let tables = Tables::new(rules).map_err(|e| failed(&e))?;
        let whole: f64 = self.alphas.iter().sum::<f64>() * self.thetas.len() as f64;
        let mut before = 0.0;
        let mut points = Vec::new();
        for &theta in self.thetas {
            for &alpha in self.alphas {
                context.step(&format!("α = {alpha}, θ = {theta}"), before / whole)?;
                let flows = (alpha * self.entries as f64) as u32;
                let stream =
                    FlowStream::zipf(flows, theta, context.seed).map_err(|e| failed(&e))?;
                let source = Source::BuiltIn { stream: &stream, traffic };
                let plan = Plan {
                    contestants: contestants.clone(),
                    entries: self.entries,
                    megaflows: 1 << 16,
                    ports: (1..=5).collect(),
                    seed: context.seed,
                    isa: None,
                    warmup_loops: self.warmup_loops,
                    // As many packets a round as there are flows.
                    length: Length::Loops(1),
                    rounds: self.rounds,
                    pinned_core: None,
                };
                let classes = traffic.classes();
                let record = TrafficRecord::BuiltIn { flows, theta, classes, alpha };
                let (stop, progress) = (context.stop, &mut *context.progress);
                let mut show = |p: Progress| {
                    let part = p.done as f64 / p.total.max(1) as f64;
                    let text = format!("α = {alpha}, θ = {theta}: {}, {}", p.contestant, p.phase);
                    progress(&text, ((before + alpha * part) / whole).min(1.0));
                };
                let replay = replay::run(&plan, &source, &tables, record, None, stop, &mut show)
                    .map_err(|e| failed(&e))?;
                if replay.interrupted {
                    return Err(LabError::Stopped);
                }
                points.push(Point { alpha, theta, designs: replay.designs });
                before += alpha;
            }
        }
        Ok(points)
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![
            (
                "entries".into(),
                format!("{} ({})", self.entries, size_name(self.entries * SLOT_BYTES)),
            ),
            ("megaflow masks".into(), Traffic::default().classes().to_string()),
            ("frames".into(), "60 bytes, UDP, from memory".into()),
            ("warm-up".into(), format!("{} packets per flow", self.warmup_loops)),
            ("rounds".into(), format!("{}, in which the designs take turns", self.rounds)),
            ("instruction set".into(), overbank::cache::Isa::best().to_string()),
        ]
    }
}

type Measured = (bool, u64, Arc<Vec<Point>>);
/// The last measurement of figures 6 and 7: smoke or not, seed, points.
static LAST: Mutex<Option<Measured>> = Mutex::new(None);

fn points(context: &mut Context<'_>) -> Result<Arc<Vec<Point>>, LabError> {
    let (smoke, seed) = (context.smoke(), context.seed);
    context.step("end to end", 0.0)?;
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((s, d, points)) = &*last
        && (*s, *d) == (smoke, seed)
    {
        return Ok(points.clone());
    }
    let points = Arc::new(Course::figures_6_and_7(smoke).measure(context, &DESIGNS)?);
    *last = Some((smoke, seed, points.clone()));
    Ok(points)
}

fn law(theta: f64) -> String {
    if theta == 0.0 { "uniform".to_owned() } else { format!("Zipf θ = {theta}") }
}

/// A value with its range.
type Ranged = (f64, Option<(f64, f64)>);

fn plot(points: &[&Point], title: &str, y: &str, value: impl Fn(&DesignRecord) -> Ranged) -> Plot {
    let series = DESIGNS.iter().map(|name| Series {
        name: (*name).to_owned(),
        points: points.iter().map(|p| (p.alpha, value(p.of(name)).0)).collect(),
        ranges: points.iter().filter_map(|p| value(p.of(name)).1).collect(),
        model: false,
    });
    Plot {
        title: title.to_owned(),
        x: "oversubscription α (flows per slot)".into(),
        y: y.to_owned(),
        log_x: false,
        log_y: false,
        series: series.collect(),
        stated: Vec::new(),
    }
}

/// Adds a value that the text states without saying where: a dashed line over the whole axis, with a
/// mark at its end.
fn state_anywhere(plot: &mut Plot, name: &str, y: f64) {
    let xs = || plot.series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let ends = (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max));
    if ends.0 > ends.1 {
        return;
    }
    plot.series.push(Series::model(format!("the paper: {name}"), vec![(ends.0, y), (ends.1, y)]));
    plot.stated.push(Mark { name: name.to_owned(), x: ends.1, y });
}

/// Whether `most` is what "up to `stated`" promises: at least four fifths of it. The share is ours.
fn reaches(most: f64, stated: f64) -> bool {
    most >= 0.8 * stated
}

/// A claim of the paper, and what was found.
struct Claim<'a> {
    /// Whether it is about time: those are not made of a smoke run.
    timed: bool,
    text: &'a str,
    stated: &'a str,
    /// Whether it holds, and what was measured.
    found: (bool, String),
    /// Why it differs, if it does: figures of this run, or said to be a guess.
    why: String,
}

impl Claim<'_> {
    fn note(self, record: &mut Record, smoke: bool) {
        if self.timed && smoke {
            return;
        }
        let (holds, measured) = self.found;
        if !holds {
            record.notes.push(format!("\"{}\" does not hold here. {}", self.text, self.why));
        }
        let (claim, stated) = (self.text.to_owned(), self.stated.to_owned());
        record.checks.push(Check { claim, stated, measured, holds });
    }
}

/// One value for each point, as text.
fn each(points: &[&Point], value: impl Fn(&Point) -> String) -> String {
    let texts = points.iter().map(|p| format!("α {}: {}", p.alpha, value(p)));
    texts.collect::<Vec<_>>().join("; ")
}

/// Lookups and hit rates of 2-4 cuckoo-lite and 2-4 BLP, and what a miss costs: all measured here.
fn cuckoo_and_blp(points: &[&Point]) -> String {
    let (a, b) = ("cuckoo-2-4", "blp-2-4");
    let shown = each(points, |p| {
        format!("{:+.1} ns, {:+.1} points", p.lookup(a) - p.lookup(b), p.points(a) - p.points(b))
    });
    format!(
        "Measured here, 2-4 cuckoo-lite against 2-4 BLP, a lookup of tier 1 and its hit rate: {shown}. A \
         miss costs {} more than a hit. Probably the lookups are that close because every design has \
         the same burst, which asks for all lines before it reads the first; up to two fifths full, \
         cuckoo-lite looks at the second bucket only where it must.",
        misses(points, b)
    )
}

/// What a miss costs more than a hit with `name`, from the lowest to the highest α where both came.
fn misses(points: &[&Point], name: &str) -> String {
    let costs: Vec<f64> = points.iter().filter_map(|p| p.miss_ns(name)).collect();
    let low = costs.iter().copied().fold(f64::MAX, f64::min);
    let high = costs.iter().copied().fold(f64::MIN, f64::max);
    if costs.is_empty() {
        "an unknown time".to_owned()
    } else {
        format!("{low:.0} to {high:.0} ns")
    }
}

/// What PBLRU wins and costs with 2-4 BLP: all measured here.
fn promotion(points: &[&Point]) -> String {
    let (a, b) = ("blp-2-4+pblru", "blp-2-4");
    let shown = each(points, |p| {
        format!(
            "θ {}: {:+.1} points, {:+.1} ns",
            p.theta,
            p.points(a) - p.points(b),
            p.ns(a) - p.ns(b)
        )
    });
    format!(
        "Measured here, PBLRU against random eviction, hit rate and time a packet: {shown}. A miss costs \
         {} more than a hit, so a point of hit rate is worth a hundredth of that.",
        misses(points, b)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_readable_sizes() {
        let size = |smoke| Course::sized(smoke).settings()[0].1.clone();
        assert_eq!(size(true), "2048 (8 KiB)");
        assert_eq!(size(false), "1048576 (4 MiB)");
    }

    #[test]
    fn what_is_stated_for_no_place_is_a_line_and_a_mark() {
        let mut plot = Plot {
            title: String::new(),
            x: String::new(),
            y: String::new(),
            log_x: false,
            log_y: false,
            series: vec![Series::measured("a", vec![(0.5, 1.0), (2.0, 3.0)])],
            stated: Vec::new(),
        };
        state_anywhere(&mut plot, "up to 15 %", 15.0);
        assert_eq!(plot.series[1].points, [(0.5, 15.0), (2.0, 15.0)]);
        assert!(plot.series[1].model && plot.series[1].name.contains("up to 15 %"));
        assert_eq!((plot.stated[0].x, plot.stated[0].y), (2.0, 15.0));
        (plot.series, plot.stated) = (Vec::new(), Vec::new());
        state_anywhere(&mut plot, "up to 15 %", 15.0);
        assert!(plot.series.is_empty() && plot.stated.is_empty());
    }

    #[test]
    fn up_to_means_four_fifths_of_it() {
        assert!(reaches(12.01, 15.0) && reaches(20.0, 15.0) && !reaches(11.99, 15.0));
        assert!(!reaches(-1.0, 7.5));
    }
}
