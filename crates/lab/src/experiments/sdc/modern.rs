//! What is left of SDC on a machine of today, and what it is owed to.

use super::point::{Common, Mode, Point, Points};
use super::{SDCMODERN, STORES};
use crate::prelude::*;

/// Sizes of the data set, in last-level caches.
const RATIOS: [f64; 3] = [0.25, 1.0, 3.2];
const SMOKE: [f64; 2] = [0.5, 2.0];

const MACHINE: &str = "--machine modern";
/// Lookups before those that are counted, by these.
const WARM_UP: u32 = 4;
/// Bytes of the lines of an item that a lookup touches: its key and 64 bytes of its value.
const ITEM_LINES: u64 = 128;

/// Machines beside each other: what is written in front of the store, and arguments.
const WAYS: [(&str, &str, &str); 8] = [
    ("regular", "regular", ""),
    ("SDC", "sdc", ""),
    ("SDC, one slot a line", "sdc", "--set sdc.slots=1"),
    ("SLB, addresses", "slb", ""),
    ("Copies", "copies", ""),
    ("regular, 4 KiB pages", "regular", PAGES),
    ("SDC, 4 KiB pages", "sdc", PAGES),
    ("Copies, 4 KiB pages", "copies", PAGES),
];
const PAGES: &str = "--set tlb.page_bytes=4096 --set tlb.walk_levels=4";

struct All {
    common: Common,
    ratios: &'static [f64],
    points: Points,
}

fn point(common: Common, index: &'static str, ratio: f64, way: usize) -> Point {
    let (_, system, more) = WAYS[way];
    let point = Point::new(index, system, common.subset(ratio)).fresh(true);
    point.with(MACHINE).with(format!("--warmup {}", WARM_UP * common.lookups)).with(more)
}

impl All {
    fn gain(&self, index: &'static str, ratio: f64, way: usize, than: usize) -> Option<f64> {
        let [of, than] = [way, than].map(|way| point(self.common, index, ratio, way));
        let overlap: Mode = |of| of.overlap;
        self.points.gain(&of, &than, overlap)
    }

    /// Returns the factors of SDC's gain with 4 KiB pages: walks of the index, density, TLB.
    fn factors(&self, index: &'static str, ratio: f64) -> Option<[f64; 3]> {
        let gain = |way, than| self.gain(index, ratio, way, than);
        Some([gain(2, 0)?, gain(1, 2)?, gain(6, 5)? / gain(1, 0)?])
    }

    /// Returns the gains at all sizes.
    fn all_gains(&self, index: &'static str, way: usize, than: usize) -> Option<Vec<(f64, f64)>> {
        let gain = |ratio: &f64| Some((*ratio, self.gain(index, *ratio, way, than)?));
        self.ratios.iter().map(gain).collect()
    }

    fn gains(&self, index: &'static str, way: usize, than: usize) -> Vec<(f64, f64)> {
        let gain = |ratio: &f64| Some((*ratio, self.gain(index, *ratio, way, than)?));
        self.ratios.iter().filter_map(gain).collect()
    }
}

fn best(gains: Vec<(f64, f64)>) -> Option<Finding> {
    let (ratio, gain) = gains.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Finding::new(gain > 1.0, format!("{gain:.2} at {ratio}"))
}

/// Returns the lines of the items that lookups touched, warm-up included, in caches.
fn touched(all: &All, index: &'static str, ratio: f64) -> Option<f64> {
    let of = all.points.get(&point(all.common, index, ratio, 0))?;
    Some((of.touched * ITEM_LINES) as f64 / all.common.llc as f64)
}

const CLAIMS: &[Claim<All>] = &[
    Claim::timed(
        "lines of items that were touched at the largest size, in caches",
        "above 1.5, without the index",
        |all: &All| {
            let touched = touched(all, "lmdb", *all.ratios.last()?)?;
            Finding::new(touched > 1.5, format!("{touched:.2}"))
        },
    ),
    Claim::new("B+ tree: SDC gains, best", "no figure", |all: &All| {
        best(all.all_gains("lmdb", 1, 0)?)
    }),
    Claim::new("B+ tree, 4 KiB pages: SDC gains, best", "no figure", |all: &All| {
        best(all.all_gains("lmdb", 6, 5)?)
    }),
    Claim::timed("B+ tree: software gains as much as SDC", "no figure", |all: &All| {
        let [Some(slb), Some(copies)] = [3, 4].map(|way| all.all_gains("lmdb", way, 1)) else {
            return None;
        };
        let faster = |(a, b): (&(f64, f64), &(f64, f64))| (a.0, a.1.max(b.1));
        let gains: Vec<_> = slb.iter().zip(&copies).map(faster).collect();
        let holds = gains.iter().all(|(_, gain)| *gain >= 1.0);
        Finding::new(holds, listed(&gains, |(ratio, gain)| format!("{gain:.2} at {ratio}")))
    })
    .because(
        "at a quarter of the cache all values stay in SDC, which a hit reaches by one operation; \
         the table's lines cost it a walk of its bucket and an access to the item",
    ),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (llc, lookups) = if context.smoke() { (256 << 10, 4000) } else { (32 << 20, 500_000) };
    let common = Common { llc, lookups, ..Common::of(context) };
    let ratios: &[f64] = if context.smoke() { &SMOKE } else { &RATIOS };
    let cells = pairs(&pairs(&STORES.map(|(index, _)| index), ratios), &[0, 1, 2, 3, 4, 5, 6, 7]);
    let all = cells.into_iter().rev().map(|((index, ratio), way)| point(common, index, ratio, way));
    let points = Points::run(context, common, all.collect())?;
    let all = All { common, ratios, points };
    let mut record = SDCMODERN.record(context);
    let [items, bytes, llc, _] = common.settings();
    record.settings([items, bytes, llc]);
    let before = WARM_UP * common.lookups;
    record.setting("lookups", format!("{}, after {before} others; fresh keys", common.lookups));
    record.setting("caches", "32 KB, 1 MB, 32 MB of 16 ways");
    record.setting("memory", "DDR5-4800, 2048-entry TLB, pages of 2 MiB");
    all.points.tell(&mut record);
    all.points.tell_modes(&mut record);
    record.judge("", CLAIMS, &all);
    record.note(
        "Speeds are those of the mode in which up to four misses wait together. The gain with one \
         slot a line comes from skipped walks of the index, the further gain with eight from \
         density. What the gain with 4 KiB pages has beyond that with 2 MiB pages comes from the \
         TLB. The three factors multiply to the gain with 4 KiB pages; shares are of its logarithm.",
    );
    record.note(
        "Waits of up to four misses overlap; everything else is counted one after the other, hits \
         of L1 too (4 cycles and the cycles of computing an access): a core of today hides most of \
         those, so that a walk whose lines are in L1 costs less there than here.",
    );
    record.tables.push(Table::of(
        "Items touched, warm-up included",
        pairs(&STORES, ratios),
        &[
            ("store", &|((_, name), _)| (*name).to_owned()),
            ("caches", &|(_, ratio)| ratio.to_string()),
            ("items asked for", &|(_, ratio)| common.subset(*ratio).to_string()),
            ("touched", &|((index, _), ratio)| {
                let of = all.points.get(&point(common, index, *ratio, 0));
                of.map_or("–".to_owned(), |of| of.touched.to_string())
            }),
            ("their lines, in caches", &|((index, _), ratio)| {
                let touched = touched(&all, index, *ratio);
                touched.map_or("–".to_owned(), |touched| format!("{touched:.2}"))
            }),
        ],
    ));
    let factor = |((index, _), ratio): &((&'static str, &str), f64), which: usize| {
        let factors = all.factors(index, *ratio);
        factors.map_or("–".to_owned(), |factors| {
            let [factor, gain] = [factors[which], factors.iter().product()];
            // Of hardly any gain there are no shares.
            let share = (gain > 1.1).then(|| percent(factor.ln() / gain.ln(), 0));
            let share = share.map_or(String::new(), |share| format!(" ({share})"));
            format!("{factor:.2}{share}")
        })
    };
    record.tables.push(Table::of(
        "Factors of SDC's gain with 4 KiB pages, and their shares",
        pairs(&STORES, ratios),
        &[
            ("store", &|((_, name), _)| (*name).to_owned()),
            ("caches", &|(_, ratio)| ratio.to_string()),
            ("gain", &|((index, _), ratio)| {
                let gain = all.gain(index, *ratio, 6, 5);
                gain.map_or("–".to_owned(), |gain| format!("{gain:.2}"))
            }),
            ("no walk of the index", &|at| factor(at, 0)),
            ("eight values a line", &|at| factor(at, 1)),
            ("TLB", &|at| factor(at, 2)),
        ],
    ));
    for (index, name) in STORES {
        let curve = |way: usize| {
            let than = if way >= 5 { 5 } else { 0 };
            Series::measured(WAYS[way].0, all.gains(index, way, than))
        };
        let plot = Plot::new(name, "size of the data set, in caches", "times as fast as regular");
        record.plots.push(plot.log_x().with([1, 2, 3, 4, 6, 7].map(curve)));
    }
    record.tables.push(Table::pivot(
        "Million lookups a second, up to four misses at once",
        "store, caches",
        (pairs(&STORES, ratios), |((_, name), ratio)| format!("{name}, {ratio}")),
        (0..WAYS.len(), |way| WAYS[*way].0.to_owned()),
        |((index, _), ratio), way| {
            let of = all.points.get(&point(common, index, *ratio, *way));
            of.map_or("–".to_owned(), |of| format!("{:.2}", of.lookups_per_second.overlap / 1e6))
        },
    ));
    Ok(record)
}
