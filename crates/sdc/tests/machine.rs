//! The whole machine: time by hand, writebacks, walks, heat, and that SDC unused changes nothing.

use overbank_sdc::{DRAIN_CYCLES, Level, Machine, Mode, Refused, SdcShape, Shape, WayView};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// The paper's machine without walks.
fn plain() -> Shape {
    let mut shape = Shape::paper();
    shape.tlb.walk_levels = 0;
    shape
}

const HIT: f64 = 39.0 * 2.5;
const CLOSED: f64 = 52.5 * 2.5;
const CONFLICT: f64 = 66.0 * 2.5;

#[test]
fn unused_sdc_changes_no_access() {
    for (regular, with) in [
        (Shape::paper(), Shape::paper_sdc()),
        (Shape::modern(), Shape::modern_sdc()),
        (
            Shape { l1: None, heat: true, ..Shape::paper() },
            Shape { l1: None, heat: true, ..Shape::paper_sdc() },
        ),
    ] {
        let small = |mut shape: Shape| {
            shape.llc.bytes = 64 * 16 * u64::from(shape.llc.ways);
            Machine::new(&shape).unwrap()
        };
        let (mut regular, mut with) = (small(regular), small(with));
        let mut random = Pcg64::seed_from_u64(5);
        for i in 0..100_000 {
            let address =
                (random.random_range(0..1 << 17) * (1 + random.random_range(0..2) * 4096)) as u64;
            let (len, store) =
                (1 + random.random_range(0..100) as u32, random.random_range(0..3) == 0);
            for machine in [&mut regular, &mut with] {
                if store { machine.store(address, len) } else { machine.load(address, len) }
            }
            assert_eq!(regular.counters(), with.counters());
            assert_eq!(regular.times(), with.times());
            assert_eq!(regular.set_view(i % 16), with.set_view(i % 16));
        }
        assert_eq!(regular.heat(), with.heat());
        assert!(regular.counters().writebacks.llc > 1_000);
        // And then SDC takes part of it.
        assert!(with.sdc_insert(0, 1, &[2]) && with.sdc_lines() == 1);
        assert!(!regular.sdc_insert(0, 1, &[2]) && regular.sdc_lines() == 0);
    }
}

#[test]
fn cycles_are_those_counted_by_hand() {
    let mut machine = Machine::new(&plain()).unwrap();
    let access = 1.0 + 3.0;
    let mut expected = 0.0;
    // A closed bank; the same line again; the next line of the row; another row of the same bank.
    for (address, wait) in [
        (0, 22.0 + CLOSED),
        (8, 0.0),
        (64, 22.0 + HIT),
        (64 << 10, 22.0 + CONFLICT),
        (0, 0.0),
        (128, 22.0 + CONFLICT),
    ] {
        machine.load(address, 8);
        expected += access + wait;
        assert_eq!(machine.cycles(Mode::Blocking), expected);
    }
    // Line 1 waited with line 0. The row 64 KiB away is a followed pointer, line 2 far from it.
    assert_eq!(machine.cycles(Mode::Overlap), expected - (22.0 + HIT));
    machine.work(1000);
    machine.restart();
    assert_eq!(machine.times(), Default::default());
    machine.load(0, 1);
    assert_eq!(machine.cycles(Mode::Blocking), access);
}

#[test]
fn misses_of_one_object_wait_together_four_at_a_time() {
    let lines = |n: u64, between: u64, far: u64| {
        let mut machine = Machine::new(&plain()).unwrap();
        machine.load(1 << 30, 8);
        (0..between).for_each(|_| machine.load(1 << 30, 8));
        machine.restart();
        for line in 0..n {
            machine.load(64 * line * far, 8);
            (0..between).for_each(|_| machine.load(64 * line * far, 8));
        }
        let times = machine.times();
        times.blocking - times.overlap
    };
    // Waits but the longest of each four: the row's first, then those of row hits.
    assert_eq!(lines(2, 0, 1), 22.0 + HIT);
    assert_eq!(lines(4, 0, 1), 3.0 * (22.0 + HIT));
    assert_eq!(lines(5, 0, 1), 3.0 * (22.0 + HIT));
    assert_eq!(lines(8, 0, 1), 6.0 * (22.0 + HIT));
    assert_eq!(lines(4, 0, 8), 3.0 * (22.0 + HIT));
    assert_eq!(lines(4, 0, 9), 0.0, "out of reach");
    assert_eq!(lines(2, 31, 1), 22.0 + HIT);
    assert_eq!(lines(2, 32, 1), 0.0, "out of the window");

    // The longest wait may come last: line 0 is in the LLC, line 1 in DRAM.
    let mut machine = Machine::new(&plain()).unwrap();
    (0..9).for_each(|i| machine.load(4096 * i, 8));
    machine.restart();
    machine.load(0, 8);
    machine.load(64, 8);
    let times = machine.times();
    assert_eq!((machine.counters().llc.hits, times.blocking - times.overlap), (1, 22.0));
}

#[test]
fn sdc_operations_take_29_cycles_or_69_and_end_a_group() {
    let mut shape = plain();
    shape.sdc = Shape::paper_sdc().sdc;
    let mut machine = Machine::new(&shape).unwrap();
    machine.load(0, 8);
    assert!(machine.sdc_insert(0, 1, &[5]));
    machine.load(64, 8);
    assert!(!machine.sdc_lookup(0, 2, &mut [0]));
    machine.sdc_invalidate(0, 1);
    machine.false_hit();
    let times = machine.times();
    assert_eq!(times.blocking, 2.0 * (4.0 + 22.0) + CLOSED + HIT + 3.0 * 29.0);
    assert_eq!(times.overlap, times.blocking);
    assert_eq!(times.as_evaluated, times.blocking + 3.0 * DRAIN_CYCLES as f64);
    let sdc = machine.counters().sdc;
    assert_eq!((sdc.lookups, sdc.inserts, sdc.invalidations, sdc.false_hits), (1, 1, 1, 1));
}

#[test]
fn straddling_accesses_touch_each_line_once() {
    let mut machine = Machine::new(&plain()).unwrap();
    for (address, len, lines) in
        [(60, 4, 1), (60, 5, 2), (0, 64, 1), (1, 64, 2), (0, 640, 10), (9, 0, 0), (u64::MAX, 9, 1)]
    {
        machine.restart();
        machine.load(address, len);
        assert_eq!(machine.counters().accesses, lines, "{address} {len}");
    }
}

#[test]
fn modified_lines_are_written_back_level_by_level() {
    let level = |bytes, ways| Level { bytes, ways, cycles: 3 };
    let mut shape = plain();
    // One line of L1, two of the LLC.
    (shape.l1, shape.llc) = (Some(level(64, 1)), level(128, 2));
    let mut machine = Machine::new(&shape).unwrap();
    let count = |machine: &Machine| {
        let counters = machine.counters();
        (counters.writebacks.l1, counters.writebacks.llc, counters.dram.reads())
    };
    machine.load(0, 8);
    machine.store(8, 8); // The last line, now modified.
    machine.store(0, 8);
    assert_eq!(count(&machine), (0, 0, 1));
    machine.load(64, 8); // Line 0 leaves L1.
    assert_eq!(count(&machine), (1, 0, 2));
    machine.load(128, 8); // Line 1 is clean, and older in the LLC than line 0's writeback.
    assert_eq!(count(&machine), (1, 0, 3));
    machine.load(192, 8);
    assert_eq!(count(&machine), (1, 1, 4));
    assert_eq!((machine.counters().stores, machine.counters().accesses), (2, 6));
}

#[test]
fn a_line_of_sdc_that_takes_a_modified_lines_place_has_it_written() {
    let mut shape = plain();
    (shape.l1, shape.sdc) = (None, Shape::paper_sdc().sdc);
    (shape.llc.bytes, shape.llc.ways) = (64 * 4, 4);
    let mut machine = Machine::new(&shape).unwrap();
    (0..4).for_each(|line| machine.store(64 * line, 8));
    assert!(machine.sdc_insert(0, 9, &[1]));
    let counters = machine.counters();
    assert_eq!((counters.writebacks.llc, counters.sdc.lines_taken), (1, 1));
    // Four lines more: the value's line goes, and nothing of it is written.
    (4..8).for_each(|line| machine.load(64 * line, 8));
    assert_eq!(machine.counters().writebacks.llc, 4);
    assert_eq!(machine.counters().sdc.evicted.line, 1);
    assert!(!machine.sdc_lookup(0, 9, &mut [0]));
}

#[test]
fn walks_read_the_tables_through_the_llc() {
    let mut machine = Machine::new(&Shape::paper()).unwrap();
    machine.load(0, 8);
    let walk = machine.counters().walk;
    assert_eq!((walk.l2, walk.llc, walk.dram), (0, 0, 4));
    // The neighbour's entries are in the same lines.
    machine.load(4096, 8);
    let counters = machine.counters();
    assert_eq!((counters.walk.llc, counters.walk.dram, counters.tlb_misses), (4, 4, 2));
    assert_eq!(counters.llc.misses, 2, "walks are counted apart");
    // Eight entries a line: the eighth table has its own leaf line, the ninth one of level 1 too.
    machine.load(7 * 512 * 4096, 8);
    assert_eq!(machine.counters().walk.dram, 5);
    machine.load(8 * 512 * 4096, 8);
    assert_eq!(machine.counters().walk.dram, 7);
    // A wait is a walk's and the line's own.
    let before = machine.cycles(Mode::Blocking);
    machine.load(4096 * 2, 8);
    let dram = machine.cycles(Mode::Blocking) - before - (4.0 + 4.0 * 22.0 + 22.0);
    assert!(dram == HIT || dram == CLOSED || dram == CONFLICT, "{dram}");
}

#[test]
fn heat_counts_slots() {
    let mut shape = Shape { heat: true, ..plain() };
    let mut machine = Machine::new(&shape).unwrap();
    machine.load(64 * 65 + 16, 8); // Set 1, way 0 (the first one), slot 2.
    machine.load(64 * 65 + 20, 8); // Slots 2 and 3.
    machine.load(64 * 65 + 63, 2); // Slot 7, and slot 0 of the next set's line.
    let heat = machine.heat();
    assert_eq!(heat.len(), 64 * 8 * 8);
    assert_eq!(heat[8 * 8..8 * 8 + 8], [0, 0, 2, 1, 0, 0, 0, 1]);
    assert_eq!(heat[2 * 8 * 8], 1);
    assert_eq!(heat.iter().sum::<u64>(), 5);

    // sdc1 (b): one 32 KiB cache with SDC in it.
    (shape.l1, shape.sdc) = (None, Shape::paper_sdc().sdc);
    (shape.llc.bytes, shape.llc.ways) = (32 << 10, 8);
    let mut machine = Machine::new(&shape).unwrap();
    assert!(machine.sdc_insert(0, 1, &[7, 8]) && machine.sdc_lookup(0, 1, &mut [0; 2]));
    let used: Vec<u64> = machine.heat().iter().copied().filter(|&n| n > 0).collect();
    assert_eq!(used, [2, 2]);
    machine.restart();
    assert!(machine.heat().iter().all(|&n| n == 0));
}

#[test]
fn a_view_shows_a_set() {
    let mut shape = plain();
    (shape.l1, shape.sdc) = (None, Shape::paper_sdc().sdc);
    (shape.llc.bytes, shape.llc.ways) = (64 * 4, 4);
    let mut machine = Machine::new(&shape).unwrap();
    assert_eq!(machine.set_view(0), Some(vec![WayView::Empty; 4]));
    assert_eq!(machine.set_view(1), None);
    machine.store(64 * 5, 8);
    assert!(machine.sdc_insert(3, 0, &[1, 2]) && machine.sdc_lookup(3, 0, &mut [0, 0]));
    let view = machine.set_view(0).unwrap();
    assert_eq!(view[0], WayView::Ordinary { line: 5, modified: true });
    let WayView::Sdc { process: 3, family: 0, slots } = &view[1] else { panic!("{view:?}") };
    assert_eq!(slots.map(|s| s.valid), std::array::from_fn(|i| i < 2));
    assert_eq!(slots.map(|s| s.sequence), std::array::from_fn(|i| i < 1));
    assert_eq!(slots.map(|s| s.reference), std::array::from_fn(|i| i < 2));
}

#[test]
fn shapes_that_cannot_be_built_are_refused() {
    type Change = fn(&mut Shape);
    let table: &[(Change, &str)] = &[
        (|s| s.llc.bytes = 3_000_000, "llc: 3000000 bytes, 12 ways: bytes must be 64 x ways x a"),
        (|s| s.llc.bytes = 0, "llc: 0 bytes, 12 ways: bytes must be"),
        (|s| s.llc.bytes = 9 * 12 * 64, "llc: 6912 bytes, 12 ways: bytes must be"),
        (|s| s.llc.bytes = u64::MAX, "llc: 18446744073709551615 bytes: must be at most 1073741824"),
        (|s| s.llc.ways = 0, "llc: 0 ways: must be between 1 and 1024"),
        (|s| s.l1.as_mut().unwrap().ways = 1025, "l1: 1025 ways: must be"),
        (|s| s.l2 = Some(Level { bytes: 65, ways: 1, cycles: 1 }), "l2: 65 bytes, 1 ways: bytes"),
        (|s| (s.l1, s.l2) = (None, s.l1), "l2 without l1: give an l1"),
        (|s| (s.llc.ways, s.llc.bytes) = (128, 128 * 64), "sdc: 128 ways of the llc: must be at"),
        (|s| s.sdc.as_mut().unwrap().family = 3, "sdc: family of 3 lines: must be 1, 2, 4 or 8"),
        (|s| s.sdc.as_mut().unwrap().family = 0, "sdc: family of 0 lines"),
        (|s| s.sdc.as_mut().unwrap().family = 16, "sdc: family of 16 lines"),
        (
            |s| (s.llc.ways, s.llc.bytes) = (2, 128),
            "sdc: family of 4 lines: must be 1, 2, 4 or 8 \
          and at most the llc's 2 ways",
        ),
        (|s| s.sdc.as_mut().unwrap().sub_tag_bits = 9, "sdc: sub-tag of 9 bits: must be between 0"),
        (|s| s.sdc.as_mut().unwrap().process_bits = 9, "sdc: process number of 9 bits: must be"),
        (|s| s.sdc.as_mut().unwrap().slots = 4, "sdc: 4 slots a line: must be 8, or 1"),
        (|s| s.tlb.entries = 96, "tlb: 96 entries, 64 ways: entries must be ways x a power of two"),
        (|s| s.tlb.entries = 192, "tlb: 192 entries, 64 ways: entries must be"),
        (|s| s.tlb.entries = 0, "tlb: 0 entries, 64 ways: entries must be"),
        (|s| s.tlb.ways = 0, "tlb: 0 ways: must be between"),
        (|s| s.tlb.page_bytes = 5000, "tlb: pages of 5000 bytes: must be a power of two between"),
        (|s| s.tlb.page_bytes = 64, "tlb: pages of 64 bytes"),
        (|s| s.tlb.walk_levels = 6, "tlb: a walk of 6 levels: must be between 0 and 5"),
        (|s| s.dram.banks = 6, "dram: 6 banks: must be a power of two between 1 and 4096"),
        (|s| s.dram.banks = 0, "dram: 0 banks"),
        (|s| s.dram.row_bytes = 100, "dram: rows of 100 bytes: must be a power of two between 64"),
        (|s| s.dram.hit_ns = -1.0, "dram.hit_ns: -1: must be a number between 0 and 1000000"),
        (|s| s.dram.closed_ns = f64::NAN, "dram.closed_ns: NaN: must be"),
        (|s| s.dram.conflict_ns = f64::INFINITY, "dram.conflict_ns: inf: must be"),
        (|s| s.ghz = 0.0, "ghz: 0: must be a number above zero"),
        (|s| s.base_cycles = -0.5, "base_cycles: -0.5: must be"),
        (|s| s.overlap.misses = 0, "overlap: 0 misses at once: must be at least 1"),
    ];
    for (change, message) in table {
        let mut shape = Shape::paper_sdc();
        change(&mut shape);
        let refused: Refused = Machine::new(&shape).err().unwrap_or_else(|| panic!("{message}"));
        let line = refused.to_string();
        assert!(line.starts_with(message) && !line.contains('\n'), "{line} for {message}");
    }
    for shape in [Shape::paper(), Shape::paper_sdc(), Shape::modern(), Shape::modern_sdc()] {
        assert_eq!(Machine::new(&shape).unwrap().shape(), &shape);
    }
}

#[test]
fn keys_that_throw_each_other_out_are_counted() {
    // Without sub-tags, all keys of a family and slot are equal.
    let sdc = SdcShape { sub_tag_bits: 0, family: 1, ..SdcShape::paper() };
    let mut machine = Machine::new(&Shape { sdc: Some(sdc), ..Shape::paper() }).unwrap();
    let llc = machine.shape().llc;
    let place = |key| {
        let place = overbank_sdc::address::Widths::new(&llc, &sdc).unwrap().place(key);
        (place.set, place.family, place.slot)
    };
    let mut same = (0..).filter(|&key| place(key) == place(7));
    let [a, b, c] = [(); 3].map(|()| same.next().unwrap());
    let mut thrown = |key| {
        assert!(machine.sdc_insert(0, key, &[key]));
        let sdc = machine.counters().sdc;
        (sdc.thrown_out, sdc.thrown_back)
    };
    assert_eq!([a, a, b].map(&mut thrown), [(0, 0), (0, 0), (1, 0)]);
    assert_eq!([a, b, c].map(&mut thrown), [(2, 1), (3, 2), (4, 2)]);
    assert_eq!([a, c, c].map(&mut thrown), [(5, 2), (6, 3), (6, 3)]);
    // c is there: its own lookup compares its value, the others compare another key's.
    let mut value = [0];
    assert!(machine.sdc_lookup(0, c, &mut value) && machine.sdc_lookup(0, a, &mut value));
    machine.false_hit();
    assert!(!machine.sdc_lookup(0, (0..).find(|&key| place(key) != place(7)).unwrap(), &mut value));
    let sdc = machine.counters().sdc;
    assert_eq!((sdc.compared[..2].to_vec(), sdc.false_hits), (vec![1, 2], 1));
    assert_eq!(sdc.compared_others[..2], [1, 1]);
}

#[test]
fn heat_by_line_of_memory_adds_up_to_that_by_place() {
    let llc = Level { bytes: 4096, ways: 2, cycles: 1 };
    let shape = Shape { l1: None, llc, heat: true, ..Shape::paper() };
    let mut machine = Machine::new(&shape).unwrap();
    for at in 0..1000u64 {
        machine.load(at * 8 * 37 % 65_536, 8);
    }
    machine.store(64 * 5 + 60, 8);
    let lines = machine.line_heat();
    let sum = |slots: &[u64]| slots.iter().sum::<u64>();
    assert_eq!(lines.values().map(|slots| sum(slots)).sum::<u64>(), sum(machine.heat()));
    assert!(lines[&5][7] > 0 && lines[&6][0] > 0 && lines.len() > 900, "{}", lines.len());
    machine.restart();
    assert!(machine.line_heat().is_empty());
}
