use super::point::{Alone, Held, LevelHeat, Lines, SetView, Slots};
use super::*;
use overbank_sdc::{Counters, Shape, SlotView, WayView};
use std::path::Path;
use std::process::Command;

/// Returns a point of a small machine with SDC, as the program would print it.
fn outcome(system: &str) -> Outcome {
    let mut shape = if system == "sdc" { Shape::paper_sdc() } else { Shape::paper() };
    shape.llc.bytes = 12 << 10;
    let slot = SlotView { valid: true, sequence: false, reference: true, sub_tag: 0x1f };
    let mut slots = [SlotView::default(); 8];
    slots[3] = slot;
    slots[4] = SlotView { reference: false, sequence: true, ..slot };
    let mut ways = vec![WayView::Empty; 10];
    ways.push(WayView::Sdc { process: 0, family: 2, slots });
    ways.push(WayView::Ordinary { line: 0x1000, modified: true });
    let modes = |x: f64| Modes { blocking: x, overlap: x * 2.0, as_evaluated: x / 2.0 };
    let (mut counters, lookups) = (Counters::default(), 1000);
    (counters.accesses, counters.sdc.lookups, counters.sdc.inserts) = (30_000, lookups, 250);
    Outcome {
        index: "lmdb".to_owned(),
        system: system.to_owned(),
        items: 500,
        subset: 400,
        placement: "together".to_owned(),
        lookups,
        warmup: 3000,
        keys: "ycsb-b".to_owned(),
        theta: 0.99,
        seed: 1,
        value_bytes: 512,
        table_bytes: None,
        data_set_bytes: 28_800,
        touched: 300,
        false_hit: "through".to_owned(),
        shape,
        depth: Some(3),
        addresses_fixed: false,
        counters,
        hits: 750,
        dropped: 0,
        cycles_per_lookup: modes(100.0),
        lookups_per_second: modes(if system == "sdc" { 3e6 } else { 1e6 }),
        accesses_per_lookup: 30.0,
        dram_per_lookup: 0.5,
        sdc_lines: 1,
        clock: Some(Alone { slots: 2, hits: 1000 }),
        heat: vec![7; 4096],
        levels: Vec::new(),
        llc: Some(Held {
            lines: Lines { empty: 190, ordinary: 1, sdc: 1 },
            slots: Slots { valid: 2, referenced: 1 },
            sets: vec![SetView { set: 15, ways }],
        }),
        seconds: 0.1,
        hooks_per_second: 3e5,
    }
}

fn plan(system: &str) -> Plan {
    Plan { index: "lmdb".to_owned(), system: system.to_owned(), ..Plan::default() }
}

#[test]
fn a_point_is_compared_and_drawn() {
    let (point, regular) = (outcome("sdc"), outcome("regular"));
    assert_eq!((point.check(), regular.check()), (Ok(()), Ok(())));
    let found = compare(&plan("sdc"), point, Some(regular)).expect("compared");
    assert_eq!(gains(&found.gain.expect("a gain")).map(|(_, gain)| gain), [3.0; 3]);
    let bits = found.bits.as_ref().expect("SDC has bits");
    assert_eq!(bits.extra_bytes, i64::from(bits.line.extra) * 192 / 8);
    let page = page::page(&found, "overbank sdc run <x>");
    for wanted in [
        "lmdb behind sdc: 3.00 × as fast",
        "YCSB B, Zipf 0.99",
        "Set 15: 1 lines of SDC, 1 ordinary, 10 empty; of 8 slots 2 valid, 1 of them hit",
        "way 10, family 2",
        ">1f<",
        "1f ›",
        "line 0x40000, modified",
        "&lt;x&gt;",
        "Accesses to the slots of the first level",
        "Addresses were not fixed",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("http"), "nothing from a network");
    let text = page::bits(bits);
    assert!(text.contains(&format!("SDC adds {} bits to a line", bits.line.extra)), "{text}");
}

#[test]
fn a_point_without_sdc_has_no_bits() {
    let found = compare(&plan("regular"), outcome("regular"), None).expect("a point");
    assert!(found.bits.is_none() && found.gain.is_none());
    assert!(page::values(&found.point).is_none() && page::held(&found.point).is_none());
    let other = compare(&plan("sdc"), outcome("regular"), None).expect_err("another point");
    assert!(other.to_string().contains("printed a point of lmdb, regular"), "{other}");
}

/// Returns a level of one line, with this many that have few used slots.
fn level(what: &str, few: u64) -> LevelHeat {
    LevelHeat { what: what.to_owned(), lines: 1, accesses: 1, few, hottest: 1 }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut of = outcome("sdc");
    of.levels = vec![level("level 0", 1); 64];
    assert_eq!(of.check(), Ok(()));
    type Change = (&'static str, fn(&mut Outcome));
    let changes: &[Change] = &[
        ("the name", |of| of.index = "<script>".to_owned()),
        ("the name", |of| of.keys = "\u{1b}[2J".to_owned()),
        ("llc: ", |of| of.shape.llc.ways = 0),
        ("of 0 lookups", |of| of.lookups = 0),
        ("1001 hits", |of| of.hits = 1001),
        ("items", |of| of.items = u64::MAX),
        ("a counter of", |of| of.counters.dram.hits = u64::MAX),
        ("a rate", |of| of.lookups_per_second.overlap = 0.0),
        ("a rate", |of| of.dram_per_lookup = -1.0),
        ("lines of SDC", |of| of.sdc_lines = 193),
        ("1001 hits of CLOCK", |of| of.clock.as_mut().expect("there").hits = 1001),
        ("clock", |of| of.clock.as_mut().expect("there").slots = u64::MAX),
        ("4501 items touched", |of| of.touched = 4501),
        ("levels: ", |of| of.levels.push(level("<level>", 1))),
        ("levels: ", |of| of.levels.push(level("level 0", 2))),
        ("levels: ", |of| of.levels = vec![level("level 0", 1); 65]),
        ("a map of 4095 slots", |of| of.heat.truncate(4095)),
        ("beyond all counts", |of| of.heat[0] = u64::MAX),
        ("lines; must be 192", |of| of.llc.as_mut().expect("there").lines.sdc = u64::MAX),
        ("referenced slots", |of| of.llc.as_mut().expect("there").slots.referenced = 3),
        ("set 16 with", |of| of.llc.as_mut().expect("there").sets[0].set = 16),
        ("with 11 ways", |of| of.llc.as_mut().expect("there").sets[0].ways.truncate(11)),
    ];
    for (wanted, change) in changes {
        let mut of = outcome("sdc");
        change(&mut of);
        let error = of.check().expect_err(wanted);
        assert!(error.contains(wanted), "{error}, not {wanted}");
    }
}

#[test]
fn the_error_of_either_point_is_shown() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = dir.path().join("program");
    let script = "#!/bin/sh\ncase \"$*\" in *regular*) exec sleep 60;; esac\necho no >&2\nexit 1\n";
    written(&path, script);
    let mut last = 0.0;
    let stop = AtomicBool::new(false);
    let error = run(&Program::at(&path), &plan("sdc"), &stop, &mut |_, done| last = done);
    assert_eq!(error.expect_err("it failed").to_string(), "no");
    assert!((0.5..=1.0).contains(&last), "{last}");
}

/// Writes a program. By another process: a program that this one has open for writing while another
/// thread starts a process is busy.
fn written(path: &Path, script: &str) {
    let write = "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"";
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", write, "sh", script]).arg(path).status().expect("sh");
    assert!(done.success());
}
