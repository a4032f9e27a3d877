//! Families of lines and lengths of sub-tags: hits, false hits, speed.

use super::point::{Common, Compared, MODES, Outcome, Point, Points, Seeds, spread};
use super::{KEYS, KNEE, SDC11, SDC12, SDC13, SDC14, STORES};
use crate::prelude::*;

const FAMILIES: [u32; 4] = [1, 2, 4, 8];
const SUB_TAGS: [u32; 7] = [0, 1, 2, 3, 4, 5, 6];
/// Sizes of the data set, in caches.
const RATIOS: [f64; 6] = [0.5, 1.0, 2.0, KNEE, 8.0, 16.0];
const TAG_RATIOS: [f64; 3] = [1.0, KNEE, 8.0];
const SMOKE: [f64; 2] = [0.5, 4.0];
/// The family of figures 13 and 14.
const FAMILY: u32 = 4;

/// A store, and the size of the data set in caches.
type At = (&'static str, f64);

/// Runs of both stores, by what is varied.
struct Varied {
    common: Common,
    ratios: &'static [f64],
    values: &'static [u32],
    point: fn(Point, u32) -> Point,
    points: Points,
}

/// Sub-tags have 3 bits without families, and one more at each doubling.
fn family(point: Point, lines: u32) -> Point {
    let bits = 3 + lines.ilog2();
    point.with(format!("--set sdc.family={lines} --set sdc.sub_tag_bits={bits}"))
}

fn sub_tag(point: Point, bits: u32) -> Point {
    point.with(format!("--set sdc.family={FAMILY} --set sdc.sub_tag_bits={bits}"))
}

impl Varied {
    /// Runs all points with replayed keys, and with fresh ones.
    fn run(
        context: &mut Context<'_>,
        full: &'static [f64],
        values: &'static [u32],
        point: fn(Point, u32) -> Point,
    ) -> Result<Varied, LabError> {
        let common = Common::of(context);
        let ratios: &[f64] = if context.smoke() { &SMOKE } else { full };
        let all = ratios.iter().rev().flat_map(|ratio| {
            let stores = pairs(&STORES.map(|(index, _)| index), values);
            let subset = common.subset(*ratio);
            pairs(&stores, &KEYS).into_iter().map(move |((index, value), (_, fresh))| {
                point(Point::new(index, "sdc", subset).fresh(fresh), value)
            })
        });
        let points = Points::run(context, common, all.collect())?;
        Ok(Varied { common, ratios, values, point, points })
    }

    fn at(&self, index: &'static str, ratio: f64, value: u32) -> Option<&Outcome> {
        self.of_keys(index, ratio, value, false)
    }

    fn of_keys(
        &self,
        index: &'static str,
        ratio: f64,
        value: u32,
        fresh: bool,
    ) -> Option<&Outcome> {
        let point = Point::new(index, "sdc", self.common.subset(ratio)).fresh(fresh);
        self.points.get(&(self.point)(point, value))
    }

    /// Returns all points with replayed keys and these values, if each has run.
    fn each(&self, values: &[u32]) -> Option<Vec<(At, u32, &Outcome)>> {
        let places = pairs(&STORES.map(|(index, _)| index), self.ratios);
        let all = pairs(&places, values).into_iter();
        all.map(|((index, ratio), value)| {
            Some(((index, ratio), value, self.at(index, ratio, value)?))
        })
        .collect()
    }

    fn speed(&self, index: &'static str, ratio: f64, value: u32) -> Option<f64> {
        Some(self.at(index, ratio, value)?.lookups_per_second.as_evaluated)
    }

    /// As [`Varied::gains`], if each point has run.
    fn all_gains(&self, index: &'static str, value: u32, than: u32) -> Option<Vec<(f64, f64)>> {
        Some(self.gains(index, value, than)).filter(|gains| gains.len() == self.ratios.len())
    }

    /// Returns speeds by size, as shares of those of another value.
    fn gains(&self, index: &'static str, value: u32, than: u32) -> Vec<(f64, f64)> {
        let gain = |ratio: &f64| {
            let speed = |value| self.speed(index, *ratio, value);
            Some((*ratio, speed(value)? / speed(than)?))
        };
        self.ratios.iter().filter_map(gain).collect()
    }

    /// Runs the best gain of families of 4 in front of the B+ tree with three seeds.
    fn seeds(&self, context: &mut Context<'_>) -> Result<Seeds, LabError> {
        let best = self.gains("lmdb", FAMILY, 1).into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let compared = best.map(|(ratio, _)| {
            let point =
                |lines| (self.point)(Point::new("lmdb", "sdc", self.common.subset(ratio)), lines);
            let name = format!("B+ tree, {ratio} caches: families of 4 to 1");
            Compared { name, of: point(FAMILY), than: point(1) }
        });
        spread(context, self.common, &compared.into_iter().collect::<Vec<_>>())
    }

    fn record(&self, context: &Context<'_>, experiment: &Experiment) -> Record {
        let mut record = experiment.record(context);
        record.settings(self.common.settings());
        self.points.tell(&mut record);
        record
    }

    /// Returns the table with replayed keys.
    fn table(&self, title: &str, name: &str, cell: impl Fn(&Outcome) -> String) -> Table {
        self.table_of(title, name, false, cell)
    }

    /// Adds the table with replayed keys, and that with fresh ones.
    fn tables(
        &self,
        record: &mut Record,
        title: &str,
        name: &str,
        cell: impl Fn(&Outcome) -> String,
    ) {
        record.tables.push(self.table(title, name, &cell));
        record.tables.push(self.table_of(&format!("{title}, fresh keys"), name, true, &cell));
    }

    fn table_of(
        &self,
        title: &str,
        name: &str,
        fresh: bool,
        cell: impl Fn(&Outcome) -> String,
    ) -> Table {
        Table::pivot(
            title,
            "store, caches",
            (pairs(&STORES, self.ratios), |((_, name), ratio)| format!("{name}, {ratio}")),
            (self.values, |value| format!("{name} {value}")),
            |((index, _), ratio), value| {
                self.of_keys(index, *ratio, **value, fresh).map_or("–".to_owned(), &cell)
            },
        )
    }

    fn plots(&self, y: &str, name: &str, of: impl Fn(&Outcome) -> f64) -> Vec<Plot> {
        let curve = |index, value: u32| {
            let at = |ratio: &f64| Some((*ratio, of(self.at(index, *ratio, value)?)));
            let points = self.ratios.iter().filter_map(at).collect();
            Series::measured(format!("{name} {value}"), points)
        };
        let plot = |(index, store)| {
            let curves: Vec<_> = self.values.iter().map(|value| curve(index, *value)).collect();
            Plot::new(store, "size of the data set, in caches", y).log_x().with(curves)
        };
        STORES.into_iter().map(plot).collect()
    }
}

fn share(part: f64) -> String {
    format!("{:.2}", 100.0 * part)
}

const FALSE_HITS: &[Claim<Varied>] = &[
    Claim::new(
        "larger families hit more often: B+ tree, 1 ≤ 2 ≤ 4",
        "at every size",
        |of: &Varied| {
            of.each(&FAMILIES)?;
            let hits = |ratio, lines| of.at("lmdb", ratio, lines).map(Outcome::hit_rate);
            let rises = |ratio: &f64| {
                hits(*ratio, 1) <= hits(*ratio, 2) && hits(*ratio, 2) <= hits(*ratio, 4)
            };
            let wrong: Vec<_> = of.ratios.iter().filter(|ratio| !rises(ratio)).collect();
            let not = listed_or_none(wrong.iter(), |ratio| format!("{ratio} caches"));
            Finding::new(wrong.is_empty(), format!("not at: {not}"))
        },
    ),
    Claim::new("false hits at family 4 and 5 bits", "< 1.5 %", |of: &Varied| {
        let rates = of.each(&[4])?.into_iter().map(|(.., of)| of.false_hit_rate());
        let most = rates.fold(0.0, f64::max);
        Finding::new(most < 0.015, format!("at most {}", percent(most, 2)))
    }),
];

pub fn hits(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all = Varied::run(context, &RATIOS, &FAMILIES, family)?;
    let mut record = all.record(context, &SDC11);
    record.judge("", FALSE_HITS, &all);
    record.plots = all.plots("hits, % of lookups", "family", |of| 100.0 * of.hit_rate());
    all.tables(&mut record, "Hits, % of lookups", "family", |of| share(of.hit_rate()));
    let title = "False hits, % of lookups";
    all.tables(&mut record, title, "family", |of| share(of.false_hit_rate()));
    Ok(record)
}

const SPEED: &[Claim<Varied>] = &[
    Claim::timed("B+ tree, best gain of family 4", "up to 2.3; ≥ 1.5 here", |of: &Varied| {
        let gains = of.all_gains("lmdb", 4, 1)?;
        let (ratio, best) = gains.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Finding::new(best >= 1.5, format!("{best:.2} at {ratio}"))
    })
    .because(
        "families add 2 to 8 points of hits (sdc11); a lookup that misses walks the index as before, \
         so that the gain is near that of the hits",
    ),
    Claim::new("B+ tree: speeds of families 1 ≤ 2 ≤ 4", "at every size", |of: &Varied| {
        let [two, four] = [of.all_gains("lmdb", 2, 1)?, of.all_gains("lmdb", 4, 2)?];
        let rises = |gains: &[(f64, f64)]| gains.iter().all(|(_, gain)| *gain >= 0.999);
        let text = listed(&two, |(ratio, gain)| format!("{gain:.2} at {ratio}"));
        Finding::new(rises(&two) && rises(&four), format!("2 to 1: {text}"))
    }),
    Claim::timed("hash table: where family 2 loses", "at small sizes", |of: &Varied| {
        let gains = of.all_gains("hash", 2, 1)?;
        let loses: Vec<_> = gains.iter().filter(|(_, gain)| *gain < 1.0).collect();
        let small = !loses.is_empty() && loses.iter().all(|(ratio, _)| *ratio <= 1.0);
        let (ratio, least) = gains.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Finding::new(small, format!("at {} sizes; least {least:.3} at {ratio}", loses.len()))
    })
    .because("a lookup costs the same by any family here: its comparisons take no cycles more"),
];

pub fn throughput(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all =
        context.part((0.0, 0.9), |context| Varied::run(context, &RATIOS, &FAMILIES, family))?;
    let seeds = context.part((0.9, 1.0), |context| all.seeds(context))?;
    let mut record = all.record(context, &SDC12);
    record.judge("", SPEED, &all);
    seeds.tell(&mut record);
    for (index, store) in STORES {
        let curve =
            |lines: &u32| Series::measured(format!("family {lines}"), all.gains(index, *lines, 1));
        let (x, y) = ("size of the data set, in caches", "times as fast as family 1");
        let curves: Vec<_> = FAMILIES.iter().map(curve).collect();
        record.plots.push(Plot::new(store, x, y).log_x().with(curves));
    }
    speeds(&all, &mut record, "family");
    Ok(record)
}

/// Adds tables of speeds by way of counting cycles.
fn speeds(all: &Varied, record: &mut Record, name: &str) {
    for (what, mode) in MODES {
        let title = format!("Million lookups a second, {what}");
        all.tables(record, &title, name, |of| format!("{:.2}", mode(&of.lookups_per_second) / 1e6));
    }
}

/// Returns the false hits that random sub-tags would cause: of the lookups that compared f values,
/// all of other keys, those of which one has the same sub-tag.
fn expected(compared: &[u64], bits: u32) -> f64 {
    let differs = 1.0 - 0.5f64.powi(bits as i32);
    let meets = |(f, n): (usize, &u64)| *n as f64 * (1.0 - differs.powi(f as i32));
    compared.iter().enumerate().map(meets).sum()
}

/// Fewest false hits of a point that is judged.
const JUDGED: u64 = 500;

/// Returns false hits by those that random sub-tags would cause; `None` if there are fewer than
/// [`JUDGED`].
fn to_chance(of: &Outcome, bits: u32) -> Option<f64> {
    let sdc = &of.counters.sdc;
    let expected = expected(&sdc.compared_others, bits);
    (sdc.false_hits >= JUDGED).then(|| sdc.false_hits as f64 / expected)
}

/// Returns the same without false hits with a value that had thrown this key's out: their sub-tags
/// are equal for certain, not by chance.
fn to_chance_alone(of: &Outcome, bits: u32) -> Option<f64> {
    let sdc = &of.counters.sdc;
    let by_chance = sdc.false_hits.saturating_sub(sdc.thrown_back);
    let expected = expected(&sdc.compared_others, bits) - expected(&sdc.thrown_back_compared, bits);
    (by_chance >= JUDGED).then(|| by_chance as f64 / expected)
}

/// A ratio of false hits to the formula's, by bits of a sub-tag.
type Ratio = fn(&Outcome, u32) -> Option<f64>;

/// Returns a ratio less 1 wherever there are enough false hits, and of how many points; `None` if a
/// point failed, or there are nowhere enough.
fn errors(of: &Varied, ratio: Ratio) -> Option<(Vec<(f64, String)>, String)> {
    let all = of.each(LENGTHS)?;
    let count = all.len();
    let errors = all.into_iter().filter_map(|((index, caches), bits, of)| {
        Some((ratio(of, bits)? - 1.0, format!("{index}, {caches} caches, {bits} bits")))
    });
    let errors: Vec<_> = errors.collect();
    let judged = format!("{} of {count} points", errors.len());
    (!errors.is_empty()).then_some((errors, judged))
}

/// Lengths of sub-tags that the formula is compared with.
const LENGTHS: &[u32] = &[0, 1, 2, 3, 4, 5];

const TAGS: &[Claim<Varied>] = &[
    Claim::new("false hits fall with each bit", "dramatically more at 0 and 1", |of: &Varied| {
        let all = of.each(&SUB_TAGS)?;
        let falls = |of: &[(At, u32, &Outcome)]| {
            of.windows(2).all(|pair| pair[1].2.false_hit_rate() <= pair[0].2.false_hit_rate())
        };
        let wrong: Vec<_> = all.chunks(SUB_TAGS.len()).filter(|of| !falls(of)).collect();
        let not = listed_or_none(&wrong, |of| format!("{} at {}", of[0].0.0, of[0].0.1));
        Finding::new(wrong.is_empty(), format!("not: {not}"))
    }),
    Claim::timed(
        "they follow Σ compared[f] × (1 − (1 − 2^−L)^f), where there are 500 of them",
        "within 20 %",
        |of: &Varied| {
            let (errors, judged) = errors(of, to_chance)?;
            let (error, place) = farthest(errors);
            let text = format!("{} at {place}; {judged}", percent(error, 0));
            Finding::new(error.abs() <= 0.2, text)
        },
    )
    .because(
        "two popular keys with one sub-tag throw each other out in turn: the one that is asked for \
         meets the other for certain; the next claim leaves those out",
    ),
    Claim::timed(
        "they exceed it by keys that throw each other out alone",
        "without those, no more than it",
        |of: &Varied| {
            let (errors, judged) = errors(of, to_chance_alone)?;
            let most = errors.iter().map(|(error, _)| *error).fold(f64::MIN, f64::max);
            let (error, place) = farthest(errors);
            let text = format!(
                "at most {:+.0} %, farthest {:+.0} % at {place}; {judged}",
                100.0 * most,
                100.0 * error
            );
            Finding::new(most <= 0.02, text)
        },
    ),
];

pub fn false_hits(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all = Varied::run(context, &TAG_RATIOS, &SUB_TAGS, sub_tag)?;
    let mut record = all.record(context, &SDC13);
    record.judge("", TAGS, &all);
    record.plots = all.plots("false hits, % of lookups", "bits", |of| 100.0 * of.false_hit_rate());
    let title = "False hits, % of lookups";
    all.tables(&mut record, title, "bits", |of| share(of.false_hit_rate()));
    for (title, ratio) in [
        ("False hits by those that random sub-tags would cause", to_chance as Ratio),
        ("The same without those of keys that throw each other out", to_chance_alone),
    ] {
        record.tables.push(Table::pivot(
            title,
            "store, caches",
            (pairs(&STORES, all.ratios), |((_, name), ratio)| format!("{name}, {ratio}")),
            (all.values, |value| format!("bits {value}")),
            |((index, _), caches), bits| {
                let times = all.at(index, *caches, **bits).and_then(|of| ratio(of, **bits));
                times.map_or("–".to_owned(), |times| format!("{times:.2}"))
            },
        ));
    }
    let thrown = |of: &Outcome| {
        share(of.counters.sdc.thrown_out as f64 / of.counters.sdc.inserts.max(1) as f64)
    };
    let title = "Inserts that evicted another key's value, % of inserts";
    record.tables.push(all.table(title, "bits", thrown));
    let title = "False hits of two keys that throw each other out, % of false hits";
    let back = |of: &Outcome| {
        share(of.counters.sdc.thrown_back as f64 / of.counters.sdc.false_hits.max(1) as f64)
    };
    record.tables.push(all.table(title, "bits", back));
    let judged = pairs(&STORES, all.ratios).into_iter().map(|((index, name), ratio)| {
        let most = LENGTHS.iter().rev().find(|bits| {
            all.at(index, ratio, **bits).is_some_and(|of| to_chance(of, **bits).is_some())
        });
        let most = most.map_or("none".to_owned(), |bits| format!("up to {bits} bits"));
        format!("{name}, {ratio} caches: {most}")
    });
    record.note(format!(
        "The formula is judged, and shown, where a point has {JUDGED} false hits or more: {}.",
        judged.collect::<Vec<_>>().join("; ")
    ));
    record.note(
        "compared[f]: lookups that met no value of their key and compared f values. The formula \
         takes sub-tags as drawn anew at each lookup. They are not: a false hit is corrected by an \
         insert, which clears the value with the same sub-tag. Two popular keys with one sub-tag \
         throw each other out each time that the other is asked for, and each of those lookups \
         meets an equal sub-tag for certain. The machine counts them, and by how many values they \
         compared: the second ratio takes them from the false hits and their lookups from the \
         formula. What remains is below chance, since equal sub-tags of popular keys are among what \
         was taken.",
    );
    Ok(record)
}

const SHORT: &[Claim<Varied>] = &[
    Claim::new("speed at 0 bits, of that at 5", "falls moderately; ≥ 0.6 here", |of: &Varied| {
        of.each(&SUB_TAGS)?;
        let all = STORES.into_iter().flat_map(|(index, _)| of.gains(index, 0, 5));
        let least = all.map(|(_, gain)| gain).fold(f64::INFINITY, f64::min);
        Finding::new(least >= 0.6, format!("at least {least:.2}"))
    }),
    Claim::timed("3 to 5 bits suffice", "0.95 of the speed at 6", |of: &Varied| {
        of.each(&SUB_TAGS)?;
        let all = STORES.into_iter().flat_map(|(index, _)| of.gains(index, 3, 6));
        let least = all.map(|(_, gain)| gain).fold(f64::INFINITY, f64::min);
        Finding::new(least >= 0.95, format!("at 3 bits at least {least:.2} of the speed at 6"))
    }),
];

pub fn short_tags(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all = Varied::run(context, &TAG_RATIOS, &SUB_TAGS, sub_tag)?;
    let mut record = all.record(context, &SDC14);
    record.judge("", SHORT, &all);
    record.plots = all
        .plots("million lookups a second", "bits", |of| of.lookups_per_second.as_evaluated / 1e6);
    speeds(&all, &mut record, "bits");
    Ok(record)
}
