//! Figure 6: lookup rate by batch size, and how far from the gather floor it is.
//!
//! ```text
//!  table       keys that are there   batches looked up alone   each by itself: `lookup_batch`
//!  of 5 sizes  or absent             next burst named          asks for the next one's lines
//!                                                              meanwhile: `lookup_batch_ahead`
//!                                   lists of 1024 keys        burst after burst: `lookup_all`
//!  floor       one random line a key, of the table's own lines, in the same batches,
//!              alone or ahead, whichever is cheaper: `touch`
//! ```
//!
//! All take turns in every round; each draws its own keys anew. The paper's batches are alone.

use super::measure::{
    Answers, Draws, LIST, Part, Plan, Which, build, look_up, look_up_ahead, look_up_lists,
    ns_per_key, own_floor_ns,
};
use super::sizes;
use overbank::fib::{BURST_MAX, Key6, Reader};
use overbank::memory::HugePages;
use overbank_kit::experiment::{
    Context, Experiment, LabError, Mark, Plot, Record, Series, Size, Table,
};
use overbank_kit::spread::Spread;

/// Figure 6.
pub const FIB6: Experiment = Experiment {
    name: "fib6",
    title: "forwarding table: lookup rate by batch size, hits and misses to the gather floor",
    source: "dissertation, figure 6",
    run,
};

const SMOKE: [u64; 2] = [10_000, 100_000];
const FULL: [u64; 5] = [100_000, 1_000_000, 16_000_000, 128_000_000, 1_000_000_000];

/// Batch sizes; 14 is the paper's best one.
const BATCHES: [usize; 9] = [1, 2, 4, 8, 14, 16, 24, 32, 64];
/// Those that the target of the floor is for: the burst of our ports, and the longest.
const TARGET_BATCHES: [usize; 2] = [32, 64];
/// Within so many times the gather floor.
const TARGET: f64 = 1.7;
/// From so many entries up.
const TARGET_ENTRIES: u64 = 16_000_000;
/// Threads of the paper's runs, and the million lookups a second that all of them reached.
const PAPER: (f64, f64) = (16.0, 350.0);

/// Nanoseconds a key by round, of one batch size.
#[derive(Clone, Default)]
struct Rounds {
    hit: Vec<f64>,
    miss: Vec<f64>,
    /// Next burst named.
    hit_ahead: Vec<f64>,
    miss_ahead: Vec<f64>,
    floor: Vec<f64>,
}

impl Rounds {
    fn hit(&self) -> Spread {
        Spread::of(self.hit.clone())
    }

    fn miss(&self) -> Spread {
        Spread::of(self.miss.clone())
    }

    fn floor(&self) -> Spread {
        Spread::of(self.floor.clone())
    }

    /// Multiples of the floor of the same round.
    fn to_floor(&self, ns: &[f64]) -> Spread {
        Spread::of(ns.iter().zip(&self.floor).map(|(ns, floor)| ns / floor))
    }
}

/// [`look_up`] or [`look_up_ahead`].
type Way = fn(&Reader<Key6, u16>, usize, &[Key6]) -> Answers;

struct Measured {
    entries: u64,
    bytes: u64,
    huge_pages: HugePages,
    lines_a_hit: f64,
    /// As [`BATCHES`].
    batches: Vec<Rounds>,
    /// Nanoseconds a key by round in lists: present keys, absent ones.
    lists: [Vec<f64>; 2],
}

impl Measured {
    fn name(&self) -> String {
        sizes::name(self.entries)
    }

    /// Lists to the floor in its longest bursts, of the same round.
    fn lists_to_floor(&self, which: Which) -> Spread {
        self.batch(BURST_MAX).to_floor(&self.lists[which as usize])
    }

    fn batch(&self, size: usize) -> &Rounds {
        let at = BATCHES.iter().position(|&batch| batch == size);
        &self.batches[at.expect("one of the list")]
    }

    /// How many times as fast hits of one batch size are as of another, medians.
    fn gain(&self, size: usize, over: usize) -> f64 {
        self.batch(over).hit().median / self.batch(size).hit().median
    }
}

fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    part: Part,
    entries: u64,
) -> Result<Measured, LabError> {
    let name = sizes::name(entries);
    let fib = build(context, &format!("{name} entries"), part.piece(0.0, 0.6), entries)?;
    let reader = fib.reader();
    let bytes = reader.bytes();
    let mut draws = Draws::uniform(entries, context.seed)?;
    let mut batches = vec![Rounds::default(); BATCHES.len()];
    let mut lists = [Vec::new(), Vec::new()];
    for round in 0..plan.rounds {
        let share = 0.6 + 0.4 * round as f64 / plan.rounds as f64;
        context.step(&format!("{name} entries: lookups"), part.at(share))?;
        for (&batch, rounds) in BATCHES.iter().zip(&mut batches) {
            let mut timed = |which, look_up: Way| {
                let mut work = |keys: &[_]| look_up(&reader, batch, keys);
                ns_per_key("overbank::fib", &mut draws, (which, plan.keys, bytes), &mut work)
            };
            rounds.hit.push(timed(Which::Present, look_up)?);
            rounds.hit_ahead.push(timed(Which::Present, look_up_ahead)?);
            rounds.miss.push(timed(Which::Absent, look_up)?);
            rounds.miss_ahead.push(timed(Which::Absent, look_up_ahead)?);
            rounds.floor.push(own_floor_ns(&reader, &mut draws, batch, (plan.keys, bytes)));
        }
        for (which, rounds) in [Which::Present, Which::Absent].into_iter().zip(&mut lists) {
            let mut work = |keys: &[_]| look_up_lists(&reader, keys);
            let size = (which, plan.keys, bytes);
            rounds.push(ns_per_key("overbank::fib", &mut draws, size, &mut work)?);
        }
    }
    Ok(Measured {
        entries,
        bytes: bytes as u64,
        huge_pages: reader.huge_pages(),
        lines_a_hit: 1.0 + fib.stats().second as f64 / entries as f64,
        batches,
        lists,
    })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let wanted = sizes::wanted(context, &SMOKE, &FULL);
    let plan = Plan::of(context.smoke());
    let (all, missing) = sizes::each(context, &wanted, |context, part, entries| {
        match sizes::does_not_fit(entries, sizes::fib_bytes(entries)) {
            Some(line) => Ok(Err(line)),
            None => measure(context, &plan, part, entries).map(Ok),
        }
    })?;
    let mut record = Record::new((FIB6.name, FIB6.title, FIB6.source), context);
    sizes::left_out(&mut record, &wanted, missing)?;
    record.setting("lookups", format!("uniform, {}", plan.describe()));
    record.setting("threads", "1 (the paper: 16)");
    record.setting("instruction set", overbank::isa::Isa::best());
    record.setting("the paper's machine", "2 × Xeon E5-2680, 2 × 20 MiB of L3 cache");
    record.plots.extend(plots(&all));
    record.tables.push(table("Present keys", &all, |rounds| &rounds.hit));
    record.tables.push(table("Absent keys", &all, |rounds| &rounds.miss));
    let named = "next burst named";
    record.tables.push(table(&format!("Present keys, {named}"), &all, |rounds| &rounds.hit_ahead));
    record.tables.push(table(&format!("Absent keys, {named}"), &all, |rounds| &rounds.miss_ahead));
    record.tables.push(lists(&all));
    record.tables.push(floors(&all));
    claims(&mut record, &all);
    record.notes.push(
        "The floor is one random line a key, of the table's own lines, prefetched in the same bursts. \
         A lookup also hashes the key, compares, takes the value \
         and looks at the version again; at 95 % a fifth of the present keys needs a second line, \
         asked for when the first has come."
            .into(),
    );
    record.notes.push(
        "Next burst named: while a burst is looked up, the home lines of the next one are asked for; \
         the first is prefetched. Lists go on with the next burst before the second lines of this one \
         are compared. The floor is the cheaper of bursts alone and bursts that ask ahead."
            .into(),
    );
    Ok(record)
}

fn plots(all: &[Measured]) -> Vec<Plot> {
    let curve = |m: &Measured, value: &dyn Fn(&Rounds) -> Spread| {
        let points = BATCHES.iter().zip(&m.batches);
        Series {
            name: format!("{} entries", m.name()),
            points: points.clone().map(|(&b, r)| (b as f64, value(r).median)).collect(),
            ranges: points.map(|(_, r)| value(r).range()).collect(),
            model: false,
        }
    };
    let rate = |ns: Spread| {
        let of = |ns: f64| 1000.0 / ns;
        Spread { median: of(ns.median), low: of(ns.high), high: of(ns.low) }
    };
    let plot = |title: &str, y: &str, value: &dyn Fn(&Rounds) -> Spread| Plot {
        title: title.to_owned(),
        x: "lookups of a batch".into(),
        y: y.to_owned(),
        log_x: true,
        log_y: false,
        series: all.iter().map(|m| curve(m, value)).collect(),
        stated: Vec::new(),
    };
    let mut hits = plot("present keys, one core", "million lookups a second", &|r| rate(r.hit()));
    hits.stated.push(Mark {
        name: "the paper's 350 M/s, by thread".into(),
        x: 14.0,
        y: PAPER.1 / PAPER.0,
    });
    let misses = plot("absent keys, one core", "million lookups a second", &|r| rate(r.miss()));
    let title = "present keys to the gather floor";
    let alone = plot(title, "multiple", &|r| r.to_floor(&r.hit));
    let title = "present keys to the gather floor, next burst named";
    vec![hits, misses, alone, plot(title, "multiple", &|r| r.to_floor(&r.hit_ahead))]
}

fn table(title: &str, all: &[Measured], ns: fn(&Rounds) -> &Vec<f64>) -> Table {
    let mut headings = vec!["batch".to_owned()];
    headings.extend(all.iter().map(|m| format!("{} entries", m.name())));
    let rows = BATCHES.iter().enumerate().map(|(i, batch)| {
        let mut row = vec![batch.to_string()];
        row.extend(all.iter().map(|m| {
            let rounds = &m.batches[i];
            let ns = ns(rounds);
            let factor = rounds.to_floor(ns).median;
            let Spread { median, low, high } = Spread::of(ns.clone());
            format!("{median:.1} [{low:.1}–{high:.1}] (×{factor:.2})")
        }));
        row
    });
    Table {
        title: format!("{title}: ns a lookup, median and range of the rounds (to the floor)"),
        headings,
        rows: rows.collect(),
    }
}

fn lists(all: &[Measured]) -> Table {
    let mut headings = vec!["keys".to_owned()];
    headings.extend(all.iter().map(|m| format!("{} entries", m.name())));
    let row = |(which, name): (Which, &str)| {
        let mut row = vec![name.to_owned()];
        row.extend(all.iter().map(|m| {
            let Spread { median, low, high } = Spread::of(m.lists[which as usize].clone());
            let factor = m.lists_to_floor(which).median;
            format!("{median:.1} [{low:.1}–{high:.1}] (×{factor:.2})")
        }));
        row
    };
    Table {
        title: format!(
            "Lists of {LIST} keys: ns a lookup, median and range of the rounds (to the floor in bursts \
             of {BURST_MAX})"
        ),
        headings,
        rows: [(Which::Present, "present"), (Which::Absent, "absent")].map(row).into(),
    }
}

fn floors(all: &[Measured]) -> Table {
    let mut headings = vec!["entries", "MiB", "bytes an entry", "lines a hit", "huge pages"];
    let batches = TARGET_BATCHES.map(|batch| format!("floor, bursts of {batch}: ns"));
    headings.extend(batches.iter().map(String::as_str));
    let rows = all.iter().map(|m| {
        let mut row = vec![
            m.name(),
            format!("{:.1}", m.bytes as f64 / f64::from(1 << 20)),
            format!("{:.2}", m.bytes as f64 / m.entries as f64),
            format!("{:.2}", m.lines_a_hit),
            m.huge_pages.to_string(),
        ];
        row.extend(TARGET_BATCHES.map(|batch| {
            let Spread { median, low, high } = m.batch(batch).floor();
            format!("{median:.1} [{low:.1}–{high:.1}]")
        }));
        row
    });
    Table {
        title: "The tables, 95 % full, and the gather kernel".into(),
        headings: headings.into_iter().map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

fn claims(record: &mut Record, all: &[Measured]) {
    for m in all {
        // 7 slots of 8, two spare buckets: counts, at any size.
        let each = m.bytes as f64 / m.entries as f64;
        record.claim(
            format!("{} entries at 95 %: bytes an entry of 8", m.name()),
            "below 9.66 (9 GiB for a billion)",
            format!("{each:.2}"),
            each < 9.66,
        );
        record.claim(
            format!("{} entries at 95 %: lines a present key", m.name()),
            "fewer than the paper's 1.5",
            format!("{:.2}", m.lines_a_hit),
            m.lines_a_hit < 1.5,
        );
    }
    if record.size == Size::Smoke {
        return;
    }
    for m in all.iter().filter(|m| m.entries >= TARGET_ENTRIES) {
        for batch in TARGET_BATCHES {
            let rounds = m.batch(batch);
            for (what, way, ns) in [
                ("hits", "looked up alone", &rounds.hit),
                ("misses", "looked up alone", &rounds.miss),
                ("hits", "next burst named", &rounds.hit_ahead),
                ("misses", "next burst named", &rounds.miss_ahead),
            ] {
                let Spread { median, low, high } = rounds.to_floor(ns);
                let bursts = format!("{} entries, bursts of {batch}, {way}", m.name());
                record.claim(
                    format!("{bursts}: {what} to the gather floor"),
                    format!("at most {TARGET} ×"),
                    format!("{median:.2} × [{low:.2}–{high:.2}]"),
                    median <= TARGET,
                );
            }
        }
        for (which, what) in [(Which::Present, "hits"), (Which::Absent, "misses")] {
            let Spread { median, low, high } = m.lists_to_floor(which);
            record.claim(
                format!("{} entries, lists: {what} to the gather floor", m.name()),
                format!("at most {TARGET} ×"),
                format!("{median:.2} × [{low:.2}–{high:.2}]"),
                median <= TARGET,
            );
        }
    }
    let cached = all.iter().rfind(|m| sizes::past_the_caches(2 * m.bytes) == Some(false));
    let past = all.iter().rfind(|m| sizes::past_the_caches(m.bytes) == Some(true));
    for m in [cached, past].into_iter().flatten() {
        let gain = m.gain(4, 1);
        record.claim(
            format!("{} entries: batches of 4 to no batching", m.name()),
            "a significant improvement for both small and large tables: at least 1.2 ×",
            format!("{gain:.2} ×"),
            gain >= 1.2,
        );
    }
    if let Some(m) = cached {
        let gain = m.gain(14, 4);
        record.claim(
            format!("{} entries, in the L3 cache: batches of 14 to 4", m.name()),
            "slightly slower: 0.8 to 1 ×",
            format!("{gain:.2} ×"),
            (0.8..=1.0).contains(&gain),
        );
    }
    if let Some(m) = past {
        let gain = m.gain(14, 4);
        record.claim(
            format!("{} entries, past the caches: batches of 14 to 4", m.name()),
            "increases greatly: at least 1.2 ×",
            format!("{gain:.2} ×"),
            gain >= 1.2,
        );
        let gain = m.gain(16, 14);
        record.claim(
            format!("{} entries: batches of 16 to 14", m.name()),
            "6 % slower",
            format!("{:+.1} %", 100.0 * (gain - 1.0)),
            (0.90..=0.98).contains(&gain),
        );
    }
    let best = all.iter().flat_map(|m| m.batches.iter().map(|r| 1000.0 / r.hit().median));
    let worst =
        all.iter().map(|m| m.batches.iter().map(|r| 1000.0 / r.hit().median).fold(0.0, f64::max));
    let (best, worst) = (best.fold(0.0, f64::max), worst.fold(f64::MAX, f64::min));
    record.claim(
        "million lookups a second of one core, best batch, best and worst table",
        format!("nearly {} by {} threads: {:.1} each", PAPER.1, PAPER.0, PAPER.1 / PAPER.0),
        format!("{best:.1}, {worst:.1}"),
        worst >= PAPER.1 / PAPER.0,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fib::measure::full_record;

    fn measured(hit: f64) -> Measured {
        let of = |ns| vec![ns; 3];
        let (hit_ahead, miss_ahead) = (of(hit - 0.3), of(1.2));
        let rounds = Rounds { hit: of(hit), miss: of(1.4), hit_ahead, miss_ahead, floor: of(1.0) };
        let bytes = TARGET_ENTRIES * 9;
        Measured {
            entries: TARGET_ENTRIES,
            bytes,
            huge_pages: HugePages::Yes,
            lines_a_hit: 1.2,
            batches: vec![rounds; BATCHES.len()],
            lists: [of(hit - 0.4), of(1.1)],
        }
    }

    /// Whether they hold: the claims about the floor of a full run that measured this.
    fn judged(m: Measured) -> Vec<bool> {
        let mut record = full_record(&FIB6);
        claims(&mut record, &[m]);
        let floors = record.checks.iter().filter(|check| check.claim.contains("gather floor"));
        floors.map(|check| check.holds).collect()
    }

    #[test]
    fn all_ways_are_judged_by_the_floor() {
        // Hits and misses, alone and with the next burst named, in bursts of 32 and 64.
        // And lists.
        let all = |hit, ahead, list| {
            [vec![hit, true, ahead, true, hit, true, ahead, true], vec![list, true]].concat()
        };
        assert_eq!(judged(measured(1.5)), all(true, true, true));
        assert_eq!(judged(measured(1.8)), all(false, true, true));
        assert_eq!(judged(measured(2.05)), all(false, false, true));
        assert_eq!(judged(measured(2.2)), all(false, false, false));
        let all = [measured(1.5)];
        assert_eq!(table("", &all, |rounds| &rounds.hit).rows[0][1], "1.5 [1.5–1.5] (×1.50)");
        assert_eq!(lists(&all).rows[1][1], "1.1 [1.1–1.1] (×1.10)");
    }
}
