//! What SDC gains by the size of the data set: speed, accesses saved, reads of DRAM, hits.

use super::point::{
    Common, Compared, MODES, Mode, Modes, Outcome, Point, Points, Seeds, Speeds, spread,
};
use super::{KNEE, SDC7, SDC8, SDC9, SDC10, STORES};
use crate::prelude::*;

/// Sizes of the data set, in caches.
const RATIOS: [f64; 8] = [0.25, 0.5, 1.0, 2.0, KNEE, 5.0, 8.0, 16.0];
const SMOKE: [f64; 3] = [0.5, 2.0, 8.0];

/// Makes a point of another system of that of the regular machine.
type Way = fn(Point) -> Point;

/// The machine in which each value of SDC takes a whole line.
const THIRD: &str = "--set sdc.slots=1";

/// The same of keys that were not those of the warm-up.
const FRESH: [Way; 5] = [
    |point| point.fresh(true),
    |point| sdc(point).fresh(true),
    |point| slb(point).fresh(true),
    |point| addresses(point).fresh(true),
    |point| copies(point).fresh(true),
];

fn as_evaluated(of: &Modes) -> f64 {
    of.as_evaluated
}

/// A run of both stores over all sizes.
struct Sizes {
    common: Common,
    ratios: &'static [f64],
    points: Points,
    /// Only where they are judged.
    speeds: Option<Speeds>,
}

impl Sizes {
    /// Runs each store at each size as each of `ways` makes it a point.
    fn run(context: &mut Context<'_>, ways: &[Way]) -> Result<Sizes, LabError> {
        let common = Common::of(context);
        let ratios: &[f64] = if context.smoke() { &SMOKE } else { &RATIOS };
        // The large ones, which take longest, first.
        let sizes = ratios.iter().rev().map(|ratio| common.subset(*ratio));
        let stores = sizes.flat_map(|subset| STORES.map(|(index, _)| (index, subset)));
        let all = stores.flat_map(|(index, subset)| {
            ways.iter().map(move |way| way(Point::new(index, "regular", subset)))
        });
        let points = Points::run(context, common, all.collect())?;
        Ok(Sizes { common, ratios, points, speeds: None })
    }

    fn point(&self, index: &'static str, ratio: f64) -> Point {
        Point::new(index, "regular", self.common.subset(ratio))
    }

    fn outcome(&self, index: &'static str, ratio: f64, way: Way) -> Option<&Outcome> {
        self.points.get(&way(self.point(index, ratio)))
    }

    fn gain(
        &self,
        (index, ratio): (&'static str, f64),
        (way, than): (Way, Way),
        mode: Mode,
    ) -> Option<f64> {
        let point = self.point(index, ratio);
        self.points.gain(&way(point.clone()), &than(point), mode)
    }

    /// Returns gains over the regular machine by size, as evaluated.
    fn gains(&self, index: &'static str, way: Way) -> Vec<(f64, f64)> {
        let gain =
            |ratio: &f64| Some((*ratio, self.gain((index, *ratio), (way, regular), as_evaluated)?));
        self.ratios.iter().filter_map(gain).collect()
    }

    /// As [`Sizes::gains`], if each point has run.
    fn all_gains(&self, index: &'static str, way: Way) -> Option<Vec<(f64, f64)>> {
        Some(self.gains(index, way)).filter(|gains| gains.len() == self.ratios.len())
    }

    /// Judges the best speed of SDC as a multiple of another's, of all stores and sizes.
    fn best_to(&self, than: Way) -> Option<Finding> {
        let all = pairs(&STORES.map(|(index, _)| index), self.ratios);
        let gains = all.into_iter().filter_map(|(index, ratio)| {
            Some((ratio, self.gain((index, ratio), (sdc, than), as_evaluated)?))
        });
        let best = best(&gains.collect::<Vec<_>>())?;
        Finding::new(best.1 >= 1.2, at(best))
    }

    /// Judges whether SDC is as fast as a form of SLB, and that as the regular machine, up to
    /// [`KNEE`].
    fn fastest(&self, slb: Way) -> Option<Finding> {
        let all = pairs(&STORES.map(|(index, _)| index), &self.small().collect::<Vec<_>>());
        let wrong = all.into_iter().filter(|point| {
            let holds =
                |ways| self.gain(*point, ways, as_evaluated).is_some_and(|gain| gain >= 1.0);
            !(holds((sdc, slb)) && holds((slb, regular)))
        });
        let wrong: Vec<_> = wrong.collect();
        let not = listed_or_none(&wrong, |(index, ratio)| format!("{index} at {ratio}"));
        Finding::new(wrong.is_empty(), format!("not: {not}"))
    }

    /// Runs what the claims say of the smallest size, and the B+ tree at the cache's, with three
    /// seeds.
    fn seeds(&self, context: &mut Context<'_>) -> Result<Seeds, LabError> {
        let ways: [(&str, Way); 3] =
            [("regular", regular), ("SLB", slb), ("SLB, addresses", addresses)];
        let cells = pairs(&STORES, &self.ratios[..1]).into_iter();
        let cells = cells.chain([(STORES[0], 1.0)]);
        let compared = cells.flat_map(|((index, store), ratio)| {
            ways.map(|(name, way)| Compared {
                name: format!("{store}, {ratio} caches: SDC to {name}"),
                of: sdc(self.point(index, ratio)),
                than: way(self.point(index, ratio)),
            })
        });
        spread(context, self.common, &compared.collect::<Vec<_>>())
    }

    /// Measures the program itself: the paper's systems at both ends and at the size of the cache,
    /// the others where it is slowest, at the largest size.
    fn measure_speeds(&mut self, context: &mut Context<'_>) -> Result<(), LabError> {
        let last = self.ratios[self.ratios.len() - 1];
        let ratios = self.ratios.iter().copied();
        let ratios = ratios.filter(|ratio| [self.ratios[0], 1.0, last].contains(ratio));
        let of = |ratio: f64, ways: &[Way]| {
            let all = pairs(&STORES.map(|(index, _)| index), ways).into_iter();
            all.map(|(index, way)| way(self.point(index, ratio))).collect::<Vec<_>>()
        };
        let mut points: Vec<Point> = ratios.flat_map(|ratio| of(ratio, &[regular, sdc])).collect();
        points.extend(of(last, &[slb, addresses, copies]));
        points.extend(of(last, &FRESH));
        self.speeds = Some(Speeds::run(context, self.common, points)?);
        Ok(())
    }

    fn curve(
        &self,
        name: &str,
        index: &'static str,
        way: Way,
        of: impl Fn(&Outcome) -> f64,
    ) -> Series {
        let at = |ratio: &f64| Some((*ratio, of(self.outcome(index, *ratio, way)?)));
        Series::measured(name, self.ratios.iter().filter_map(at).collect())
    }

    fn small(&self) -> impl Iterator<Item = f64> {
        self.ratios.iter().copied().filter(|ratio| *ratio <= KNEE)
    }

    fn record(&self, context: &Context<'_>, experiment: &Experiment) -> Record {
        let mut record = experiment.record(context);
        record.settings(self.common.settings());
        self.points.tell(&mut record);
        record
    }
}

fn regular(point: Point) -> Point {
    point
}

fn sdc(point: Point) -> Point {
    Point { system: "sdc", ..point }
}

/// As the paper describes it: it copies items.
fn slb(point: Point) -> Point {
    Point { system: "slb-items", ..point }
}

fn addresses(point: Point) -> Point {
    Point { system: "slb", ..point }
}

fn copies(point: Point) -> Point {
    Point { system: "copies", ..point }
}

fn third(point: Point) -> Point {
    sdc(point).with(THIRD)
}

const WAYS: [(&str, Way); 5] = [
    ("regular", regular),
    ("SDC", sdc),
    ("SLB", slb),
    ("SLB, addresses", addresses),
    ("Copies", copies),
];

fn best(gains: &[(f64, f64)]) -> Option<(f64, f64)> {
    gains.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
}

fn at((ratio, value): (f64, f64)) -> String {
    format!("{value:.2} at {ratio}")
}

/// Of smoke runs, whose larger sizes say nothing; [`SPEED`] has all sizes.
const SMALLEST: &[Claim<Sizes>] = &[Claim::new(
    "SDC is faster than the regular machine at the smallest size",
    "above 1, both stores",
    |of: &Sizes| {
        let gains = STORES.map(|(index, _)| Some(of.gains(index, sdc).first()?.1));
        let [Some(tree), Some(hash)] = gains else { return None };
        Finding::new(tree > 1.0 && hash > 1.0, format!("{tree:.2}, {hash:.2}"))
    },
)];

/// Why a table in memory is ahead of SDC.
const BEYOND: &str = "what leaves the last-level cache is lost to SDC, and one read of DRAM away for \
     a table in memory";

const SPEED: &[Claim<Sizes>] = &[
    Claim::timed("SDC is faster than the regular machine", "at all sizes", |of: &Sizes| {
        let gains = STORES.map(|(index, _)| of.gains(index, sdc));
        let all = gains.iter().all(|gains| gains.len() == of.ratios.len());
        let least = gains.iter().flatten().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| all)?;
        Finding::new(least.1 > 1.0, format!("least {}", at(*least)))
    })
    .because(
        "in front of the hash table two lookups in five miss at the largest size, and each pays the \
         cycles of an operation for nothing",
    ),
    Claim::timed("B+ tree, best gain", "up to 5.3; ≥ 4.0 here", |of: &Sizes| {
        let best = best(&of.all_gains("lmdb", sdc)?)?;
        Finding::new(best.1 >= 4.0, at(best))
    }),
    Claim::timed("hash table, best gain", "1.10 to 1.23; 1.05 to 1.35 here", |of: &Sizes| {
        let best = best(&of.all_gains("hash", sdc)?)?;
        Finding::new((1.05..=1.35).contains(&best.1), at(best))
    })
    .because(
        "at a quarter of the cache all values stay in SDC, whose hits save the table's reads and \
         their translations; from the cache's size on the gain is the paper's",
    ),
    Claim::timed(
        "SDC ≥ SLB ≥ regular up to 3.2 caches",
        "SDC is fastest in every scenario",
        |of: &Sizes| of.fastest(slb),
    )
    .because(BEYOND),
    Claim::timed(
        "SDC ≥ SLB of addresses ≥ regular up to 3.2 caches",
        "SDC is fastest in every scenario",
        |of: &Sizes| of.fastest(addresses),
    )
    .because(BEYOND),
    Claim::timed("best SDC to SLB", "up to 1.54; ≥ 1.2 here", |of: &Sizes| of.best_to(slb)),
    Claim::timed("best SDC to SLB of addresses", "up to 1.54; ≥ 1.2 here", |of: &Sizes| {
        of.best_to(addresses)
    })
    .because("a table of addresses is small enough to stay in the cache at a quarter of it, too"),
    Claim::timed(
        "B+ tree, size from which the gain is below half of its best",
        "falls from about 3.2; 2 to 5 here",
        |of: &Sizes| {
            let gains = of.all_gains("lmdb", sdc)?;
            let (_, best) = best(&gains)?;
            let (ratio, _) = gains.into_iter().rfind(|(_, gain)| *gain >= best / 2.0)?;
            let next = of.ratios.iter().find(|next| **next > ratio)?;
            Finding::new((2.0..=5.0).contains(next), format!("{next}"))
        },
    )
    .because(
        "the best is where all values stay in SDC; at half of the cache walks that miss throw out \
         SDC's lines already (`overbank sdc run` shows what the cache holds)",
    ),
    Claim::timed(
        "accesses a second of core time, hooks included, one program at a time",
        "20 million",
        |of: &Sizes| {
            let least = of.speeds.as_ref()?.least()?;
            Finding::new(least >= 20.0, format!("at least {least:.1} million"))
        },
    )
    .because(
        "it waits for the host's memory: one unchanged program had 17.6 and 13.7 million two hours \
         apart at the slowest point, a hash table of 16 caches",
    ),
];

pub fn throughput(context: &mut Context<'_>) -> Result<Record, LabError> {
    let ways: Vec<Way> = WAYS.into_iter().map(|(_, way)| way).chain(FRESH).collect();
    let mut all = context.part((0.0, 0.8), |context| Sizes::run(context, &ways))?;
    let seeds = context.part((0.8, 0.9), |context| all.seeds(context))?;
    context.part((0.9, 1.0), |context| all.measure_speeds(context))?;
    let mut record = all.record(context, &SDC7);
    seeds.tell(&mut record);
    all.speeds.iter().for_each(|speeds| speeds.tell(&mut record));
    if context.smoke() {
        record.judge("", SMALLEST, &all);
    }
    record.judge("", SPEED, &all);
    for (index, name) in STORES {
        let millions = |of: &Outcome| of.lookups_per_second.as_evaluated / 1e6;
        let curves = WAYS.map(|(name, way)| all.curve(name, index, way, millions));
        let title = format!("{name}, replayed keys, as evaluated");
        let plot = Plot::new(title, "size of the data set, in caches", "million lookups a second");
        record.plots.push(plot.log_x().with(curves));
    }
    for fresh in [false, true] {
        let keys = if fresh { "fresh" } else { "replayed" };
        let rows: Vec<_> = pairs(&STORES, all.ratios)
            .into_iter()
            .flat_map(|(store, ratio)| MODES.map(|mode| (store, ratio, mode)))
            .collect();
        let figure = |(index, ratio, mode): (&'static str, f64, Mode), way: usize| {
            let point = ways[way + WAYS.len() * usize::from(fresh)](all.point(index, ratio));
            let speed = all.points.get(&point).map(|of| mode(&of.lookups_per_second) / 1e6);
            speed.map_or("–".to_owned(), |speed| format!("{speed:.2}"))
        };
        let table = Table::of(
            format!("Million lookups a second, {keys} keys"),
            rows,
            &[
                ("store", &|((_, name), ..)| (*name).to_owned()),
                ("caches", &|(_, ratio, _)| ratio.to_string()),
                ("cycles", &|(.., (name, _))| (*name).to_owned()),
                ("regular", &|((index, _), ratio, (_, mode))| figure((index, *ratio, *mode), 0)),
                ("SDC", &|((index, _), ratio, (_, mode))| figure((index, *ratio, *mode), 1)),
                ("SLB", &|((index, _), ratio, (_, mode))| figure((index, *ratio, *mode), 2)),
                ("SLB, addresses", &|((index, _), ratio, (_, mode))| {
                    figure((index, *ratio, *mode), 3)
                }),
                ("Copies", &|((index, _), ratio, (_, mode))| figure((index, *ratio, *mode), 4)),
            ],
        );
        record.tables.push(table);
    }
    Ok(record)
}

/// Reads of DRAM saved a lookup: by walks that did not happen, by denser lines.
fn causes(of: &Sizes, index: &'static str, ratio: f64) -> Option<(f64, f64)> {
    let reads = |way| Some(of.outcome(index, ratio, way)?.dram_per_lookup);
    Some((reads(regular)? - reads(third)?, reads(third)? - reads(sdc)?))
}

/// Returns the means over sizes up to [`KNEE`].
fn mean(of: &Sizes, index: &'static str) -> Option<(f64, f64)> {
    let all: Option<Vec<_>> = of.small().map(|ratio| causes(of, index, ratio)).collect();
    let all = all?;
    let count = all.len() as f64;
    let sum = all.iter().fold((0.0, 0.0), |(a, b), (walk, dense)| (a + walk, b + dense));
    Some((sum.0 / count, sum.1 / count))
}

const CAUSES: &[Claim<Sizes>] = &[
    Claim::timed("B+ tree: most is saved by walks", "mostly the first cause", |of: &Sizes| {
        let (walk, dense) = mean(of, "lmdb")?;
        Finding::new(
            walk > dense,
            format!("{walk:.2} and {dense:.2} reads a lookup, mean of sizes up to 3.2"),
        )
    }),
    Claim::new(
        "hash table: most is saved by denser lines",
        "more of the second cause",
        |of: &Sizes| {
            let (walk, dense) = mean(of, "hash")?;
            let figures =
                format!("{walk:.2} and {dense:.2} reads a lookup, mean of sizes up to 3.2");
            Finding::new(dense > walk, figures)
        },
    ),
];

pub fn saved(context: &mut Context<'_>) -> Result<Record, LabError> {
    let fresh_third: Way = |point| third(point).fresh(true);
    let fresh = [FRESH[0], fresh_third, FRESH[1]];
    let all = Sizes::run(context, &[[regular, third, sdc], fresh].concat())?;
    let mut record = all.record(context, &SDC8);
    record.judge("", CAUSES, &all);
    record.note(
        "A third machine takes the causes apart: its SDC has the same capacity in lines, but each \
         value takes a whole one. What it saves is saved by lookups that walk no index; what the \
         real one saves beyond it is saved by eight values a line.",
    );
    for (index, name) in STORES {
        let curve = |which: fn((f64, f64)) -> f64| {
            let at = |ratio: &f64| Some((*ratio, which(causes(&all, index, *ratio)?)));
            all.ratios.iter().filter_map(at).collect::<Vec<_>>()
        };
        let plot =
            Plot::new(name, "size of the data set, in caches", "reads of DRAM saved a lookup");
        record.plots.push(plot.log_x().with([
            Series::measured("no walk", curve(|causes| causes.0)),
            Series::measured("denser lines", curve(|causes| causes.1)),
        ]));
    }
    let names = ["regular", "one slot a line", "SDC"];
    let of = |ways: [Way; 3]| names.into_iter().zip(ways).collect::<Vec<_>>();
    record.tables.push(reads(&all, READS, &of([regular, third, sdc])));
    record.tables.push(reads(&all, FRESH_READS, &of(fresh)));
    Ok(record)
}

const READS: &str = "Reads of DRAM a lookup";
const FRESH_READS: &str = "Reads of DRAM a lookup, fresh keys";

fn reads(all: &Sizes, title: &str, ways: &[(&str, Way)]) -> Table {
    Table::pivot(
        title,
        "store, caches",
        (pairs(&STORES, all.ratios), |((_, name), ratio)| format!("{name}, {ratio}")),
        (ways.iter(), |(name, _)| (*name).to_owned()),
        |((index, _), ratio), (_, way)| {
            let of = all.outcome(index, *ratio, *way);
            of.map_or("–".to_owned(), |of| format!("{:.2}", of.dram_per_lookup))
        },
    )
}

const DRAM: &[Claim<Sizes>] = &[Claim::timed(
    "B+ tree, best: fewer reads of DRAM by",
    "up to 85 %; ≥ 75 % here",
    |of: &Sizes| {
        let share = |ratio: &f64| {
            let reads = |way| Some(of.outcome("lmdb", *ratio, way)?.dram_per_lookup);
            // At the smallest sizes there are hardly any.
            Some((*ratio, 1.0 - reads(sdc)? / reads(regular).filter(|reads| *reads > 0.1)?))
        };
        let (ratio, share) = best(&of.ratios.iter().filter_map(share).collect::<Vec<_>>())?;
        Finding::new(share >= 0.75, format!("{} at {ratio}", percent(share, 0)))
    },
)];

pub fn dram(context: &mut Context<'_>) -> Result<Record, LabError> {
    let ways: Vec<Way> = WAYS.into_iter().map(|(_, way)| way).chain(FRESH).collect();
    let all = Sizes::run(context, &ways)?;
    let mut record = all.record(context, &SDC9);
    record.judge("", DRAM, &all);
    for (index, name) in STORES {
        let curves =
            WAYS.map(|(name, way)| all.curve(name, index, way, |of: &Outcome| of.dram_per_lookup));
        let plot = Plot::new(name, "size of the data set, in caches", "reads of DRAM a lookup");
        record.plots.push(plot.log_x().with(curves));
    }
    record.tables.push(reads(&all, READS, &WAYS));
    let fresh: Vec<_> = WAYS.iter().zip(FRESH).map(|((name, _), way)| (*name, way)).collect();
    record.tables.push(reads(&all, FRESH_READS, &fresh));
    Ok(record)
}

/// Hits of CLOCK alone less SDC's, as shares of lookups, by store and size; fresh keys.
fn behind(of: &Sizes) -> Vec<(f64, (&'static str, f64))> {
    let all = pairs(&STORES.map(|(index, _)| index), of.ratios);
    let behind = all.into_iter().filter_map(|(index, ratio)| {
        let sdc = of.outcome(index, ratio, |point| sdc(point).fresh(true))?;
        let hits = sdc.clock?.hits as f64 / sdc.lookups as f64;
        Some((hits - sdc.hit_rate(), (index, ratio)))
    });
    behind.collect()
}

const HITS: &[Claim<Sizes>] = &[
    Claim::timed(
        "hits of CLOCK alone, with as many slots as SDC holds values, beyond SDC's: at most",
        "2 points",
        |of: &Sizes| {
            let behind = behind(of);
            let is_whole = behind.len() == STORES.len() * of.ratios.len();
            let (most, (index, ratio)) = is_whole.then(|| farthest(behind))?;
            Finding::new(most.abs() <= 0.02, format!("{} for {index} at {ratio}", percent(most, 1)))
        },
    )
    .because("CLOCK chooses the value that goes; LRU takes a cold line of SDC with all its values"),
    Claim::new(
        "hits fall with the size of the data set",
        "from each size to the next",
        |of: &Sizes| {
            let hits = STORES.map(|(index, _)| {
                let at = |ratio: &f64| Some(of.outcome(index, *ratio, sdc)?.hit_rate());
                of.ratios.iter().filter_map(at).collect::<Vec<_>>()
            });
            if hits.iter().any(|hits| hits.len() < of.ratios.len()) {
                return None;
            }
            let falls = |hits: &Vec<f64>| hits.windows(2).all(|pair| pair[1] <= pair[0] + 0.002);
            Finding::new(
                hits.iter().all(falls),
                listed(&hits, |hits| {
                    let ends = [hits.first(), hits.last()];
                    listed(ends.into_iter().flatten(), |hits| percent(*hits, 1))
                }),
            )
        },
    ),
];

pub fn hits(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all = Sizes::run(context, &[sdc, |point| sdc(point).fresh(true)])?;
    let mut record = all.record(context, &SDC10);
    record.judge("", HITS, &all);
    record.note(
        "CLOCK alone is one ring of slots for any key, of the same requests. SDC's lines are the \
         last level's: LRU takes a cold line with all its values, and most slots of a line are \
         empty when it goes. So the ring has as many slots as SDC holds values, not as its lines \
         have.",
    );
    let share = |of: &Outcome| 100.0 * of.hit_rate();
    let curves = STORES.iter().flat_map(|(index, name)| {
        let fresh = format!("{name}, fresh keys");
        [
            all.curve(name, index, sdc, share),
            all.curve(&fresh, index, |point| sdc(point).fresh(true), share),
        ]
    });
    let plot = Plot::new("Hits of SDC", "size of the data set, in caches", "% of lookups");
    record.plots.push(plot.log_x().with(curves.collect::<Vec<_>>()));
    let ways: [(&str, Way); 2] = [("replayed", sdc), ("fresh", |point| sdc(point).fresh(true))];
    record.tables.push(Table::pivot(
        "Hits of SDC, % of lookups",
        "store, caches",
        (pairs(&STORES, all.ratios), |((_, name), ratio)| format!("{name}, {ratio}")),
        (ways.iter(), |(name, _)| (*name).to_owned()),
        |((index, _), ratio), (_, way)| {
            let of = all.outcome(index, *ratio, *way);
            of.map_or("–".to_owned(), |of| format!("{:.1}", share(of)))
        },
    ));
    Ok(record)
}
