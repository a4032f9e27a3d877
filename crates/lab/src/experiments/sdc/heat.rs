//! How unevenly the slots of a line are used: the paper's case for values of 8 bytes in the cache.

use super::SDC1;
use super::point::{Common, LevelHeat, Outcome, Point, Points};
use crate::prelude::*;
use overbank_sdc::{FEW, SLOTS, used_slots};

/// Lines that are shown, those with the most accesses first.
const SHOWN: usize = 12;

const STORES: [(&str, &str); 2] = [("bplus", "B+ tree, fanout 20"), ("hash", "hash table")];
const SYSTEMS: [&str; 2] = ["regular", "sdc"];

/// Accesses to the slots of a line.
type Line<'a> = &'a [u64];

fn lines(of: &Outcome) -> impl Iterator<Item = Line<'_>> {
    of.heat.chunks_exact(SLOTS).filter(|line| line.iter().any(|count| *count > 0))
}

/// Returns the share of lines of which 3 slots or fewer are used, and the mean number.
fn unevenness(of: &Outcome) -> Option<(f64, f64)> {
    let used: Vec<usize> = lines(of).map(used_slots).collect();
    let count = used.len() as f64;
    let few = used.iter().filter(|used| **used <= FEW).count() as f64;
    (count > 0.0).then(|| (few / count, used.iter().sum::<usize>() as f64 / count))
}

fn few(of: &LevelHeat) -> f64 {
    of.few as f64 / of.lines.max(1) as f64
}

fn point(index: &'static str, system: &'static str, items: u32) -> Point {
    Point::new(index, system, items).with("--heat --value 8 --buckets 8192")
}

struct All {
    items: u32,
    points: Points,
}

impl All {
    fn of(&self, index: &'static str, system: &'static str) -> Option<&Outcome> {
        self.points.get(&point(index, system, self.items))
    }

    fn means(&self, index: &'static str) -> Option<[f64; 2]> {
        let mean = |system| Some(unevenness(self.of(index, system)?)?.1);
        Some([mean("regular")?, mean("sdc")?])
    }
}

const CLAIMS: &[Claim<All>] = &[
    Claim::new(
        "lines of which 3 slots or fewer are used, without SDC",
        "an example: slots 2, 3, 5 of line 84 alone",
        |all: &All| {
            let share = |(index, _)| Some(unevenness(all.of(index, "regular")?)?.0);
            let [Some(tree), Some(hash)] = STORES.map(share) else { return None };
            Finding::new(
                tree > 0.1 && hash > 0.1,
                format!("{}, {}", percent(tree, 0), percent(hash, 0)),
            )
        },
    )
    .because(
        "a place in the cache holds many lines in turn, so that their hot slots add up; of lines of \
         memory the tables below have far more",
    ),
    Claim::timed(
        "B+ tree, lines by level: the largest share of lines with 3 used slots or fewer",
        "leaves or the level above",
        |all: &All| {
            let of = all.of("bplus", "regular")?;
            let nodes = of.levels.iter().filter(|of| of.what.starts_with("level"));
            // A few lines have no share.
            let shares: Vec<_> = nodes.filter(|of| of.lines >= 8).map(|of| (of, few(of))).collect();
            let (most, _) = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let text = listed(&shares, |(of, few)| format!("{} {}", of.what, percent(*few, 0)));
            Finding::new(matches!(most.what.as_str(), "level 0" | "level 1"), text)
        },
    ),
    Claim::timed("B+ tree: SDC raises the slots used of a line", "rises", |all: &All| {
        let [without, with] = all.means("bplus")?;
        Finding::new(with > without, format!("{without:.2}, {with:.2}"))
    }),
    Claim::timed("hash table: SDC raises the slots used of a line", "rises", |all: &All| {
        let [without, with] = all.means("hash")?;
        Finding::new(with > without, format!("{without:.2}, {with:.2}"))
    }),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (items, lookups) = if context.smoke() { (2000, 8000) } else { (8000, 80_000) };
    let common = Common { items, lookups, ..Common::of(context) };
    let all = pairs(&STORES.map(|(index, _)| index), &SYSTEMS);
    let all = all.into_iter().map(|(index, system)| point(index, system, items)).collect();
    let points = Points::run(context, common, all)?;
    let all = All { items, points };
    let mut record = SDC1.record(context);
    record.setting("items", format!("{items} of 8 + 8 bytes"));
    record.setting("lookups", format!("{lookups}, Zipf 0.99"));
    record.setting("cache", "32 KB, 8 ways, no other level");
    all.points.tell(&mut record);
    record.judge("", CLAIMS, &all);
    for (index, name) in STORES {
        let curve = |system: &&'static str| {
            let mut shares = [0.0; SLOTS + 1];
            let of = all.of(index, system).into_iter().flat_map(lines);
            of.for_each(|line| shares[used_slots(line)] += 1.0);
            let sum: f64 = shares.iter().sum();
            let point = |(used, count): (usize, &f64)| (used as f64, 100.0 * count / sum.max(1.0));
            Series::measured(*system, shares.iter().enumerate().skip(1).map(point).collect())
        };
        let plot = Plot::new(name, "slots used of a line", "% of lines");
        record.plots.push(plot.with(SYSTEMS.iter().map(curve)));
        for system in SYSTEMS {
            let Some(of) = all.of(index, system) else { continue };
            let mut hottest: Vec<_> = of.heat.chunks_exact(SLOTS).enumerate().collect();
            hottest.sort_by_key(|(_, line)| std::cmp::Reverse(line.iter().sum::<u64>()));
            let title = format!("{name}, {system}: accesses by slot, the hottest lines");
            let headings =
                ["set, way".to_owned()].into_iter().chain((0..SLOTS).map(|slot| slot.to_string()));
            let mut table = Table::new(title, headings);
            for (at, line) in hottest.into_iter().take(SHOWN) {
                let place = format!("{}, {}", at / 8, at % 8);
                table.row([place].into_iter().chain(line.iter().map(u64::to_string)));
            }
            record.tables.push(table);
        }
    }
    for (index, name) in STORES {
        let Some(of) = all.of(index, "regular") else { continue };
        let each = |of: &LevelHeat, n: u64| format!("{:.1}", n as f64 / of.lines.max(1) as f64);
        let times = |of: &LevelHeat| {
            format!("{:.1}", of.hottest as f64 * SLOTS as f64 / of.accesses.max(1) as f64)
        };
        record.tables.push(Table::of(
            format!("{name}, regular: lines of memory by what they hold"),
            &of.levels,
            &[
                ("", &|of| of.what.clone()),
                ("lines", &|of| of.lines.to_string()),
                ("accesses a line", &|of| each(of, of.accesses)),
                ("3 used slots or fewer", &|of| percent(few(of), 0)),
                ("hottest slot, × the mean slot", &|of| times(of)),
            ],
        ));
    }
    record.note(
        "Level 0 are the leaves; of the hash table, the buckets. `other` is the rest: the handle of \
         the index, the stack, constants. A line that two of them share is a line of each, by its \
         slots.",
    );
    record.note(
        "A place in the cache holds many lines in turn, so each of its slots is used at some time. \
         A slot counts as used if it has a tenth of the accesses of the hottest slot beside it.",
    );
    Ok(record)
}
