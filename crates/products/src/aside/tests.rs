use super::bench::{Front, Match};
use super::*;
use serde_json::Value;
use std::sync::atomic::Ordering;

pub(super) fn plan(subjects: &[Subject], entries: &str) -> Plan {
    Plan {
        subjects: subjects.to_vec(),
        entries: entries.split(',').map(|text| text.parse().expect("entries")).collect(),
        rounds: 2,
        operations: 4000,
        warm: 3000,
        settle: 0,
        gate: true,
        seed: 1,
        pinned_core: None,
    }
}

fn run_silently(plan: &Plan, stream: &Stream, stop: bool) -> Result<Comparison, AsideError> {
    let input = Input::BuiltIn { mix: Mix::C, keys: 1, theta: 0.0 };
    run(plan, input, stream, None, &AtomicBool::new(stop), &mut |_, _| {})
}

/// Every index with every mix: answers are checked in each turn.
#[test]
fn every_index_runs_every_mix() {
    for mix in Mix::ALL {
        let stream = Stream::drawn(mix, 2000, 0.99, 1).expect("a stream");
        let subjects = Subject::ALL.into_iter().filter(|s| mix != Mix::E || s.is_ordered());
        let subjects: Vec<_> = subjects.collect();
        let found = run_silently(&plan(&subjects, "50%,64"), &stream, false).expect("a comparison");
        assert_eq!(found.indexes.len(), subjects.len());
        for index in &found.indexes {
            let [half, few] = &index.tables[..] else { panic!("two sizes") };
            assert_eq!((half.entries, few.entries), (1000, 64));
            assert!(half.slots >= 1000 && few.slots >= 64 && index.alone_ns.low > 0.0);
            assert_eq!(half.burst_ns.is_some(), mix == Mix::C, "{mix:?}");
            if matches!(mix, Mix::A | Mix::B | Mix::C | Mix::F) {
                let (hits, optimum) = (half.hit_rate.expect("hits"), half.optimum.expect("fixed"));
                assert!(hits > 0.3 && optimum > 0.8, "{mix:?} {}: {hits}", index.index);
            }
        }
    }
}

#[test]
fn a_file_is_looked_up_in_its_order() {
    let lookups: Vec<u64> = (0..5000u64).map(|at| at * at % 997).collect();
    let stream = Stream::file(lookups);
    let found = run_silently(&plan(&[Subject::BTreeMap], "100%"), &stream, false).expect("runs");
    let table = &found.indexes[0].tables[0];
    assert!(
        found.keys < 997 && table.optimum == Some(1.0) && table.hit_rate > Some(0.3),
        "{table:?}"
    );
    assert!(table.burst_ns.is_some());
}

/// With what the command has: timed lookups go through the table, which its timer has measured.
#[test]
fn timed_lookups_go_through_the_table() {
    let stream = Stream::drawn(Mix::C, 100_000, 0.99, 1).expect("a stream");
    let plan = Plan {
        operations: OPERATIONS,
        warm: WARM,
        settle: SETTLE,
        gate: false,
        ..plan(&[Subject::BTreeMap], "10000")
    };
    let found = run_silently(&plan, &stream, false).expect("a comparison");
    let hits = found.indexes[0].tables[0].hit_rate;
    assert!(hits > Some(0.3), "{hits:?}");
    let fresh =
        run_silently(&Plan { settle: 0, rounds: 1, ..plan.clone() }, &stream, false).expect("runs");
    let hits = fresh.indexes[0].tables[0].hit_rate;
    assert!(hits > Some(0.3), "a round that goes around is run again: {hits:?}");
    // Updates: the table is new in the round.
    let stream = Stream::drawn(Mix::B, 100_000, 0.99, 1).expect("a stream");
    let fresh =
        run_silently(&Plan { settle: 0, rounds: 1, ..plan }, &stream, false).expect("a comparison");
    assert_eq!(fresh.indexes[0].tables[0].hit_rate, None, "a new timer goes around");
}

/// Both sides look up the same keys of a file in a round, and tables of two sizes do: those of the
/// second hit as the first.
#[test]
fn a_file_is_the_same_for_all_in_a_round() {
    let lookups: Vec<u64> = (0..50_000u64).map(|at| at * at % 9973).collect();
    let stream = Stream::file(lookups);
    let found = run_silently(&plan(&[Subject::Lmdb], "10%,10%"), &stream, false).expect("runs");
    let [a, b] = &found.indexes[0].tables[..] else { panic!("two sizes") };
    assert!(a.hit_rate > Some(0.0) && a.hit_rate == b.hit_rate, "{a:?} {b:?}");

    let mut stream = Stream::file((0..100_000).collect());
    let stop = AtomicBool::new(false);
    let mut index = Subject::BTreeMap.build(&stream.keys(), &stop).expect("built");
    let plan = plan(&[Subject::BTreeMap], "100");
    let mut contest = Contest::new(&plan, 100);
    let on: On<'_> = (&mut *index, &contest.config, &mut contest.timer);
    let (silent, mut found) = (&mut |_: &str, _| {}, Vec::new());
    let mut run = Run { plan: &plan, stream: &mut stream, stop: &stop, progress: silent };
    run.reading(on, 100, &mut found).expect("measured");
    // The warm-up, in two steps, and of each round two parts, as many operations before as in them.
    let gone = plan.warm + 100 * 18 + found.len() * 2 * 2 * plan.operations;
    assert_eq!(stream.next(1)[0].key, gone as u64);
}

/// A table whose rounds are over is there, and whole, when the next is stopped.
#[test]
fn a_run_is_stopped_between_two_tables() {
    let stream = Stream::drawn(Mix::C, 1000, 0.99, 1).expect("a stream");
    let stop = AtomicBool::new(false);
    let mut index = Subject::BTreeMap.build(&stream.keys(), &stop).expect("built");
    let (of_two, mut shown) = (plan(&[Subject::BTreeMap], "1%,2%"), 0.0);
    let progress = &mut |what: &str, done: f64| {
        assert!(done >= shown && done <= 1.0, "{done} after {shown}");
        shown = done;
        // In its last round.
        if what.starts_with("20 ") && done > 0.8 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let found = measure(&of_two, Subject::BTreeMap, &mut *index, stream, &stop, progress);
    let (record, whole) = found.expect("measured");
    let rounds: Vec<u32> = record.expect("a record").tables.iter().map(|of| of.rounds).collect();
    assert_eq!((rounds, whole), (vec![2, 1], false));
}

#[test]
fn a_run_is_stopped_in_the_middle() {
    let stream = Stream::drawn(Mix::C, 100_000, 0.99, 1).expect("a stream");
    let stop = AtomicBool::new(false);
    let keys = stream.keys();
    for subject in Subject::ALL {
        let mut index = subject.build(&keys[..1000], &stop).expect("built");
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(subject.build(&keys, &stop), Err(AsideError::Stopped)));
        let mut stream = stream.clone();
        let mut work = Work { stream: &mut stream, operations: 1, parts: 1, stop: &stop };
        let done = index.lend(None, &mut |sides| {
            let Sides { mut alone, .. } = sides;
            alone.turn(&mut work).map(drop)
        });
        assert!(matches!(done, Err(AsideError::Stopped)), "{subject}");
        stop.store(false, Ordering::Relaxed);
    }
}

/// An index that counts how often it is lent.
struct Counted(Box<dyn Bench>, u32);

impl Bench for Counted {
    fn lend(&mut self, front: Front<'_>, to: Match<'_>) -> Result<(), AsideError> {
        self.1 += 1;
        self.0.lend(front, to)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Tables that the index's writes pass by are new in each turn.
#[test]
fn a_table_is_kept_where_keys_are_only_read() {
    let stop = AtomicBool::new(false);
    for (mix, lent) in [(Mix::C, 2), (Mix::A, 2 * 2 * 2)] {
        let stream = Stream::drawn(mix, 1000, 0.99, 1).expect("a stream");
        let index = Subject::BTreeMap.build(&stream.keys(), &stop).expect("built");
        let (mut index, plan) = (Counted(index, 0), plan(&[Subject::BTreeMap], "1%,2%"));
        let silent = &mut |_: &str, _| {};
        let found = measure(&plan, Subject::BTreeMap, &mut index, stream, &stop, silent);
        let (record, whole) = found.expect("measured");
        assert!(whole && record.is_some_and(|of| of.tables.iter().all(|table| table.rounds == 2)));
        assert_eq!(index.1, lent, "{mix:?}");
    }
}

#[test]
fn a_plan_without_work_is_refused() {
    let stream = Stream::drawn(Mix::E, 100, 0.99, 1).expect("a stream");
    let refused = |plan: &Plan| run_silently(plan, &stream, false).expect_err("refused");
    assert!(matches!(refused(&plan(&[], "1%")), AsideError::NoIndex));
    assert!(matches!(refused(&plan(&[Subject::HashMap], "1%")), AsideError::Unordered(_)));
    let error = refused(&plan(&[Subject::BTreeMap], "1%,101"));
    assert_eq!(error.to_string(), "--entries 101: must be at most 100, the number of keys");
    let stopped = run_silently(&plan(&[Subject::BTreeMap], "1%"), &stream, true);
    assert!(matches!(stopped, Err(AsideError::Stopped)));
    for wrong in ["0", "0%", "101%", "-1", "x", "1.5", ""] {
        assert!(wrong.parse::<Entries>().is_err(), "{wrong}");
    }
    assert_eq!("0.5%".parse::<Entries>().expect("a share").of(100), 1);
}

fn index(index: &'static str, alone: f64, tables: &[(usize, f64)]) -> IndexRecord {
    let spread = |ns: f64| Spread::of([ns]);
    let tables = tables.iter().map(|&(entries, ns)| TableRecord {
        entries,
        slots: entries,
        bytes: 64 * entries,
        rounds: 1,
        alone_ns: spread(alone),
        ns: spread(ns),
        gain: spread(alone / ns),
        burst_ns: None,
        burst_gain: None,
        hit_rate: Some(0.75),
        optimum: None,
        open_rounds: 1,
        gate: String::new(),
    });
    let tables = tables.collect();
    IndexRecord { index, what: "", bytes: 1, alone_ns: spread(alone), tables }
}

#[test]
fn the_smallest_table_that_saves_nearly_as_much_is_recommended() {
    let trees = [
        index("btreemap", 400.0, &[(10, 390.0), (100, 206.0), (1000, 200.0)]),
        index("redb", 1000.0, &[(10, 900.0), (100, 600.0), (1000, 400.0)]),
        index("hashmap", 40.0, &[(10, 60.0)]),
    ];
    let found = rule::recommend(&trees);
    assert_eq!((found.index, found.entries), (Some("redb"), Some(1000)));
    let wanted = "1000 entries (62.5 KiB) in front of redb: 400 ns an operation instead of 1000 ns, \
                  2.50 times as fast, since 75.00 % of the lookups hit. A table also pays for \
                  btreemap (1.94 times with 100). Leave hashmap without one.";
    assert_eq!(found.reason.replace('\u{202f}', ""), wanted);
    let none = rule::recommend(&trees[2..]);
    assert_eq!((none.index, none.entries), (None, None));
    assert!(none.reason.contains("hashmap takes 40 ns alone and 60 ns with 10 entries"));
}

#[test]
fn the_page_and_the_json_have_the_record() {
    let stream = Stream::drawn(Mix::C, 1000, 0.99, 1).expect("a stream");
    let plan = plan(&[Subject::BTreeMap, Subject::HashMap], "10%");
    let mut found = run_silently(&plan, &stream, false).expect("a comparison");
    found.indexes[0].tables[0].gate = "<because>".to_owned();
    let text = page::page(&found, "overbank aside");
    assert!(text.contains("&lt;because&gt;") && text.contains("<code>overbank aside</code>"));
    assert!(text.contains(&found.recommendation.reason) && !text.contains("Ended early"));
    assert_eq!(page::figures(&found).rows.len(), 4);
    let json: Value = serde_json::to_value(&found).expect("json");
    assert_eq!(json["schema"], "overbank-aside/1");
    assert_eq!(json["indexes"][1]["index"], "hashmap");
    assert!(json["indexes"][0]["tables"][0]["gain"]["median"].as_f64().expect("a number") > 0.0);
    found.interrupted = true;
    assert!(page::page(&found, "").contains("Ended early"));
}
