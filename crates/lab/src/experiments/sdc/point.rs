//! Points: runs of `overbank-workloads`, the program in which real indexes run on the machine of
//! the paper ([`overbank_products::sdc`] finds and runs it). Points are simulated, not timed, so as
//! many run at once as there are cores.

use crate::prelude::*;
use overbank_kit::machine::{keep_on, usable_cores};
pub use overbank_products::sdc::point::{LevelHeat, MODES, Mode, Modes, Outcome};
use overbank_products::sdc::program::Program;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What a point runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub index: &'static str,
    pub system: &'static str,
    /// Items that are asked for.
    pub subset: u32,
    /// Whether the measured keys are not those of the warm-up.
    pub fresh: bool,
    /// Further arguments of the program.
    pub more: Vec<String>,
}

impl Point {
    pub fn new(index: &'static str, system: &'static str, subset: u32) -> Point {
        Point { index, system, subset, fresh: false, more: Vec::new() }
    }

    pub fn fresh(self, fresh: bool) -> Point {
        Point { fresh, ..self }
    }

    /// Adds arguments, separated by spaces.
    pub fn with(mut self, arguments: impl AsRef<str>) -> Point {
        self.more.extend(arguments.as_ref().split_whitespace().map(str::to_owned));
        self
    }
}

/// Two points whose speeds are compared, as evaluated, with other seeds too.
pub struct Compared {
    pub name: String,
    pub of: Point,
    pub than: Point,
}

/// Gains with three seeds.
pub struct Seeds {
    table: Table,
    points: Points,
}

impl Seeds {
    /// Adds the gains, and the points with other seeds that did not run, to a record.
    pub fn tell(self, record: &mut Record) {
        let others = |point: &Point| point.more.iter().any(|argument| argument == SEED);
        self.points.tell_failed(record, others);
        record.tables.push(self.table);
    }
}

/// Names the seed of a point that is not the record's.
const SEED: &str = "--seed";

/// Runs pairs of points with three seeds.
///
/// # Errors
/// As [`Points::run`].
pub fn spread(
    context: &mut Context<'_>,
    common: Common,
    pairs: &[Compared],
) -> Result<Seeds, LabError> {
    let seeds = [0, 1, 2].map(|more| context.seed + more);
    let seeded = |point: &Point, seed: u64| match seed == seeds[0] {
        // As the record's other points, which have run.
        true => point.clone(),
        false => point.clone().with(format!("{SEED} {seed}")),
    };
    let all = pairs.iter().flat_map(|pair| {
        seeds.iter().flat_map(move |seed| [&pair.of, &pair.than].map(|of| seeded(of, *seed)))
    });
    let mut points: Vec<Point> = Vec::new();
    for point in all {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let points = Points::run(context, common, points)?;
    let headings = ["".to_owned()].into_iter().chain(seeds.map(|seed| format!("seed {seed}")));
    let mut table = Table::new(
        "Times as fast, as evaluated, with three seeds",
        headings.chain(["range".to_owned()]),
    );
    for Compared { name, of, than } in pairs {
        let gains = seeds.map(|seed| {
            let [of, than] = [of, than].map(|point| seeded(point, seed));
            points.gain(&of, &than, |modes| modes.as_evaluated)
        });
        let none = || "–".to_owned();
        let all: Option<Vec<f64>> = gains.into_iter().collect();
        let range = all.map_or_else(none, |all| {
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            format!("{least:.2} to {most:.2}")
        });
        let cells = gains.map(|gain| gain.map_or_else(none, |gain| format!("{gain:.2}")));
        table.row([name.clone()].into_iter().chain(cells).chain([range]));
    }
    Ok(Seeds { table, points })
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { index, system, subset, fresh, more } = self;
        write!(f, "{index}, {system}, {subset} items")?;
        if *fresh {
            f.write_str(", fresh keys")?;
        }
        more.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// What the points of an experiment have in common.
#[derive(Clone, Copy)]
pub struct Common {
    pub items: u32,
    pub lookups: u32,
    pub llc: u64,
}

impl Common {
    /// Returns the paper's 1.5 million items before 3 MB; at smoke size a fiftieth.
    pub fn of(context: &Context<'_>) -> Common {
        if context.smoke() {
            Common { items: 30_000, lookups: 4000, llc: 192 << 10 }
        } else {
            Common { items: 1_500_000, lookups: 200_000, llc: 3 << 20 }
        }
    }

    /// Returns the items of a data set that is this many times the cache: of each, a lookup touches
    /// its key and the 64 bytes of its value that are read.
    pub fn subset(&self, ratio: f64) -> u32 {
        ((ratio * self.llc as f64 / 72.0) as u32).min(self.items)
    }

    pub fn settings(&self) -> [(&'static str, String); 4] {
        [
            ("items of a store", self.items.to_string()),
            ("key, value, bytes read of it", "8, 512, 64".to_owned()),
            ("last-level cache", format!("{} KB", self.llc >> 10)),
            ("lookups", format!("{}, after three times as many", self.lookups)),
        ]
    }

    pub fn arguments(&self, point: &Point, seed: u64) -> Vec<String> {
        let given = |name: &str| point.more.iter().any(|argument| argument == name);
        let mut arguments = vec!["run".to_owned()];
        let keys = if point.fresh { "fresh" } else { "replayed" };
        let usual = [
            ("--index", point.index.to_owned()),
            ("--system", point.system.to_owned()),
            ("--items", self.items.to_string()),
            ("--subset", point.subset.to_string()),
            ("--lookups", self.lookups.to_string()),
            ("--llc", self.llc.to_string()),
            ("--keys", keys.to_owned()),
            ("--seed", seed.to_string()),
        ];
        for (name, value) in usual {
            // A mix of YCSB has its own keys, and a heat map its own cache.
            let other =
                (name == "--keys" && given("--ycsb")) || (name == "--llc" && given("--heat"));
            if !given(name) && !other {
                arguments.extend([name.to_owned(), value]);
            }
        }
        arguments.extend(point.more.iter().cloned());
        arguments
    }
}

/// Outcomes by arguments: experiments share points, and each comes out the same again.
static KNOWN: Mutex<BTreeMap<Vec<String>, Outcome>> = Mutex::new(BTreeMap::new());

fn known(
    program: &Program,
    arguments: &[String],
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, String> {
    let outcomes = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outcome) = outcomes().get(arguments) {
        return Ok(outcome.clone());
    }
    let outcome = program.run(arguments, stopped).map_err(|error| error.to_string())?;
    outcomes().insert(arguments.to_vec(), outcome.clone());
    Ok(outcome)
}

/// Accesses a second of core time of points, hooks included, one program at a time: median and
/// range of three runs, or why there is none.
pub struct Speeds(Vec<(Point, Result<Spread, String>)>);

impl Speeds {
    /// Measures points; at smoke size once each.
    pub fn run(
        context: &mut Context<'_>,
        common: Common,
        points: Vec<Point>,
    ) -> Result<Speeds, LabError> {
        let program = Program::find().map_err(|error| LabError::failed(error.to_string()))?;
        let (stop, count) = (context.stop, points.len() as f64);
        let runs = if context.smoke() { 1 } else { 3 };
        let mut speeds = Vec::new();
        for (nth, point) in points.into_iter().enumerate() {
            context.step("accesses a second", nth as f64 / count)?;
            let arguments = common.arguments(&point, context.seed);
            let run = |_| program.run(&arguments, &|| stop.load(Ordering::Relaxed));
            let outcomes = (0..runs).map(run).collect::<Result<Vec<_>, _>>();
            let speed =
                |all: Vec<Outcome>| Spread::of(all.iter().map(|of| of.hooks_per_second / 1e6));
            speeds.push((point, outcomes.map(speed).map_err(|error| error.to_string())));
        }
        // What was stopped has failed.
        context.step("accesses a second", 1.0)?;
        Ok(Speeds(speeds))
    }

    /// Returns the least of the medians; `None` if a point failed.
    pub fn least(&self) -> Option<f64> {
        let medians = self.0.iter().map(|(_, speed)| Some(speed.as_ref().ok()?.median));
        medians.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    /// Adds the speeds to a record, and what did not run.
    pub fn tell(&self, record: &mut Record) {
        for (point, speed) in &self.0 {
            if let Err(why) = speed {
                record.claim(format!("{point} runs alone"), "it does", why.clone(), false);
            }
        }
        record.tables.push(Table::of(
            "Million accesses a second of core time, hooks included, one program at a time",
            &self.0,
            &[
                ("point", &|(point, _)| point.to_string()),
                ("accesses", &|(_, speed)| {
                    speed.as_ref().map_or("–".to_owned(), |speed| speed.cell(1))
                }),
            ],
        ));
    }
}

/// Points with their outcomes, or why there is none, in one line.
pub struct Points(Vec<(Point, Result<Outcome, String>)>);

impl Points {
    /// Runs points. One that fails is without outcome, and the others stand.
    pub fn run(
        context: &mut Context<'_>,
        common: Common,
        points: Vec<Point>,
    ) -> Result<Points, LabError> {
        context.step("points", 0.0)?;
        let program = Program::find().map_err(|error| LabError::failed(error.to_string()))?;
        let (seed, stop) = (context.seed, context.stop);
        let stopped = || stop.load(Ordering::Relaxed);
        let count = points.len();
        let waiting = Mutex::new(points.iter().enumerate());
        let (sender, ended) = std::sync::mpsc::channel();
        // The measurement is pinned, but nothing here is timed.
        let cores = usable_cores();
        let workers = cores.len().clamp(1, count.max(1));
        let mut outcomes = vec![None; count];
        thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, waiting) = (sender.clone(), &waiting);
                let (program, cores) = (&program, &cores);
                scope.spawn(move || {
                    let _ = keep_on(cores);
                    loop {
                        let next = waiting.lock().ok().and_then(|mut points| points.next());
                        let Some((at, point)) = next.filter(|_| !stopped()) else { return };
                        let outcome = known(program, &common.arguments(point, seed), &stopped);
                        if sender.send((at, outcome)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut done = 0;
            for (at, outcome) in ended {
                outcomes[at] = Some(outcome);
                done += 1;
                (context.progress)(&points[at].to_string(), done as f64 / count as f64);
            }
        });
        if stopped() {
            return Err(LabError::Stopped);
        }
        let none = || Err("did not run".to_owned());
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(none));
        Ok(Points(points.into_iter().zip(outcomes).collect()))
    }

    pub fn get(&self, point: &Point) -> Option<&Outcome> {
        let (_, outcome) = self.0.iter().find(|(of, _)| of == point)?;
        outcome.as_ref().ok()
    }

    /// Returns how many times as fast one is as the other.
    pub fn gain(&self, point: &Point, than: &Point, mode: Mode) -> Option<f64> {
        let speed = |of| Some(mode(&self.get(of)?.lookups_per_second));
        Some(speed(point)? / speed(than)?)
    }

    pub fn all(&self) -> impl Iterator<Item = (&Point, &Outcome)> {
        self.0.iter().filter_map(|(point, outcome)| Some((point, outcome.as_ref().ok()?)))
    }

    /// Adds the points of a kind that did not run to a record, as claims that are missed.
    fn tell_failed(&self, record: &mut Record, of_kind: impl Fn(&Point) -> bool) {
        for (point, outcome) in self.0.iter().filter(|(point, _)| of_kind(point)) {
            if let Err(why) = outcome {
                record.claim(format!("{point} runs"), "it does", why.clone(), false);
            }
        }
    }

    /// Adds the speeds of all points in each way of counting cycles.
    pub fn tell_modes(&self, record: &mut Record) {
        let mut table = Table::new(
            "Million lookups a second, by way of counting cycles",
            ["point"].into_iter().chain(MODES.map(|(name, _)| name)),
        );
        for (point, of) in self.all() {
            let speeds =
                MODES.map(|(_, mode)| format!("{:.2}", mode(&of.lookups_per_second) / 1e6));
            table.row([point.to_string()].into_iter().chain(speeds));
        }
        record.tables.push(table);
    }

    /// Adds what did not run, and what did, to a record.
    pub fn tell(&self, record: &mut Record) {
        self.tell_failed(record, |_| true);
        let mut kinds: Vec<(&Point, &Outcome)> = Vec::new();
        for (point, outcome) in self.all() {
            let same = |of: &Point| (of.index, of.system) == (point.index, point.system);
            if !kinds.iter().any(|(of, _)| same(of)) {
                kinds.push((point, outcome));
            }
        }
        record.tables.push(Table::of(
            "What ran, at the first of its points",
            kinds,
            &[
                ("index", &|(point, _)| point.index.to_owned()),
                ("system", &|(point, _)| point.system.to_owned()),
                ("depth", &|(_, of)| of.depth.map_or("–".to_owned(), |depth| depth.to_string())),
                ("accesses a lookup", &|(_, of)| format!("{:.1}", of.accesses_per_lookup)),
            ],
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_did_not_run_is_a_missed_claim() {
        let (stop, mut silent) = (std::sync::atomic::AtomicBool::new(false), |_: &str, _: f64| {});
        let mut record = Record::new(("a", "b", "c"), &Context::smoke_run(&stop, &mut silent));
        let point = Point::new("lmdb", "sdc", 5);
        let failed = |point: Point| (point, Err("no memory".to_owned()));
        let points = Points(vec![failed(point.clone()), failed(point.with("--seed 2"))]);
        Seeds { table: Table::new("gains", [""]), points }.tell(&mut record);
        // The one with the record's own seed is among the record's points.
        let claims: Vec<_> =
            record.checks.iter().map(|check| (&*check.claim, check.holds)).collect();
        assert_eq!(claims, [("lmdb, sdc, 5 items --seed 2 runs", false)]);
        assert_eq!(record.tables.len(), 1);
    }

    #[test]
    fn arguments_of_a_point_go_before_the_usual_ones() {
        let common = Common { items: 10, lookups: 20, llc: 4096 };
        let point = Point::new("lmdb", "sdc", 5).with("--lookups 7 --set sdc.family=2");
        let expected = "run --index lmdb --system sdc --items 10 --subset 5 --llc 4096 --keys \
                        replayed --seed 3 --lookups 7 --set sdc.family=2";
        assert_eq!(common.arguments(&point, 3).join(" "), expected);
        let ycsb = common.arguments(&Point::new("lmdb", "sdc", 5).with("--ycsb B"), 3);
        assert!(!ycsb.contains(&"--keys".to_owned()));
    }
}
