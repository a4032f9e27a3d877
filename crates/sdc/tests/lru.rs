//! Caches and TLB against stack distances from a naive list, and against closed forms.

use overbank_sdc::{Level, Machine, Shape};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

const ACCESSES: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// A machine whose first level is the LLC, without walks: each access is one of the LLC.
fn one_level(sets: u64, ways: u32) -> Machine {
    let llc = Level { bytes: 64 * sets * u64::from(ways), ways, cycles: 22 };
    let mut shape = Shape { l1: None, llc, ..Shape::paper() };
    shape.tlb.walk_levels = 0;
    Machine::new(&shape).unwrap()
}

/// Sets as lists, the most recently used line first.
struct Stacks {
    sets: Vec<Vec<u64>>,
}

impl Stacks {
    fn new(sets: u64) -> Stacks {
        Stacks { sets: (0..sets).map(|_| Vec::new()).collect() }
    }

    /// Returns how many other lines of the set were used since the line was; more than `most` if it
    /// never was, or before that many.
    fn distance(&mut self, line: u64, most: usize) -> usize {
        let set = (line % self.sets.len() as u64) as usize;
        let list = &mut self.sets[set];
        let distance = list.iter().position(|&l| l == line);
        match distance {
            Some(i) => drop(list.remove(i)),
            None => list.truncate(most),
        }
        list.insert(0, line);
        distance.unwrap_or(usize::MAX)
    }
}

/// Draws ranks by Zipf's law: a table of sums, searched.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=n).map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        });
        let sums: Vec<f64> = sums.collect();
        Zipf(sums.iter().map(|s| s / sum).collect())
    }

    fn rank(&self, random: &mut Pcg64) -> usize {
        let point = random.random_range(0.0..1.0);
        self.0.partition_point(|&s| s <= point)
    }

    fn share(&self, rank: usize) -> f64 {
        self.0[rank] - if rank == 0 { 0.0 } else { self.0[rank - 1] }
    }
}

/// Streams of lines: random, Zipf, sequential, strided.
fn streams() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = Pcg64::seed_from_u64(7);
    let zipf = Zipf::new(20_000, 0.99);
    let scattered = |rank: usize| rank as u64 * 7_919 % 20_011;
    vec![
        ("random", (0..ACCESSES).map(|_| random.random_range(0..3_000)).collect()),
        ("zipf", (0..ACCESSES).map(|_| scattered(zipf.rank(&mut random))).collect()),
        ("sequential", (0..ACCESSES as u64).map(|i| i / 8 % 1_500).collect()),
        ("strided", (0..ACCESSES as u64).map(|i| i * 48 % 4_096 + i / 1_000 % 3).collect()),
    ]
}

#[test]
fn misses_are_those_of_stack_distances() {
    for (name, lines) in streams() {
        for (sets, ways) in [(1, 64), (16, 1), (16, 3), (64, 8), (128, 12), (256, 16)] {
            let (mut machine, mut stacks) = (one_level(sets, ways), Stacks::new(sets));
            let mut misses = 0;
            for &line in &lines {
                machine.load(line * 64 + line % 57, 8);
                misses += u64::from(stacks.distance(line, ways as usize) >= ways as usize);
                assert_eq!(machine.counters().llc.misses, misses, "{name}, {sets} × {ways}");
            }
            assert!(misses > 0);
        }
    }
}

#[test]
fn each_level_sees_the_misses_of_the_one_above() {
    for shape in [Shape::paper(), Shape::modern()] {
        // Small levels, so that all of them miss.
        let small = |bytes, ways| Level { bytes, ways, cycles: 3 };
        let mut shape = Shape {
            l1: Some(small(4 << 10, 8)),
            l2: shape.l2.map(|_| small(16 << 10, 4)),
            llc: small(48 << 10, 12),
            ..shape
        };
        shape.tlb.walk_levels = 0;
        for (name, lines) in streams() {
            let mut machine = Machine::new(&shape).unwrap();
            let levels = [Some(small(4 << 10, 8)), shape.l2, Some(shape.llc)];
            let mut stacks = levels.map(|l| {
                l.map(|l| (Stacks::new(l.bytes / 64 / u64::from(l.ways)), l.ways as usize, 0))
            });
            for &line in &lines {
                machine.load(line * 64, 8);
                for (stacks, ways, misses) in stacks.iter_mut().flatten() {
                    if stacks.distance(line, *ways) < *ways {
                        break;
                    }
                    *misses += 1;
                }
            }
            let counters = machine.counters();
            let misses = [counters.l1.misses, counters.l2.misses, counters.llc.misses];
            assert_eq!(misses, stacks.map(|l| l.map_or(0, |(_, _, misses)| misses)), "{name}");
            assert_eq!(counters.dram.reads(), counters.llc.misses);
            assert_eq!(counters.accesses, counters.l1.hits + counters.l1.misses);
        }
    }
}

#[test]
fn translations_miss_as_stack_distances_say() {
    for (entries, ways, page_bytes) in [(64, 64, 4096), (64, 4, 4096), (2048, 16, 2 << 20)] {
        let mut shape = Shape::paper();
        (shape.tlb.entries, shape.tlb.ways, shape.tlb.page_bytes) = (entries, ways, page_bytes);
        for (name, pages) in streams() {
            let mut machine = Machine::new(&shape).unwrap();
            let mut stacks = Stacks::new(u64::from(entries / ways));
            let mut misses = 0;
            for (i, &page) in pages.iter().enumerate() {
                machine.load(page * page_bytes + i as u64 % 4096, 1);
                misses += u64::from(stacks.distance(page, ways as usize) >= ways as usize);
                assert_eq!(machine.counters().tlb_misses, misses, "{name}, {entries} entries");
            }
            let walk = machine.counters().walk;
            assert_eq!(walk.l2 + walk.llc + walk.dram, 4 * misses);
        }
    }
}

#[test]
fn uniform_lines_miss_as_often_as_they_do_not_fit() {
    let (ways, lines, accesses) = (512u32, 1_500u64, ACCESSES);
    let (mut machine, mut random) = (one_level(1, ways), Pcg64::seed_from_u64(11));
    let mut pass = |machine: &mut Machine| {
        (0..accesses).for_each(|_| machine.load(64 * random.random_range(0..lines), 8));
    };
    pass(&mut machine);
    machine.restart();
    pass(&mut machine);
    let expected = 1.0 - f64::from(ways) / lines as f64;
    let sigma = (expected * (1.0 - expected) / accesses as f64).sqrt();
    let measured = machine.counters().llc.misses as f64 / accesses as f64;
    assert!((measured - expected).abs() < 3.0 * sigma, "{measured} for {expected} ± {sigma}");
}

#[test]
fn zipf_misses_as_che_says() {
    let (ways, lines) = (512u32, 10_000);
    let zipf = Zipf::new(lines, 0.99);
    // The time in which as many lines are used as fit: Σ 1 − e^(−pT) = C.
    let used = |t: f64| (0..lines).map(|i| 1.0 - (-zipf.share(i) * t).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *(if used(middle) < f64::from(ways) { &mut low } else { &mut high }) = middle;
    }
    let expected: f64 = (0..lines).map(|i| zipf.share(i) * (-zipf.share(i) * low).exp()).sum();

    let (mut machine, mut random) = (one_level(1, ways), Pcg64::seed_from_u64(12));
    for pass in 0..2 {
        if pass == 1 {
            machine.restart();
        }
        (0..ACCESSES).for_each(|_| machine.load(64 * zipf.rank(&mut random) as u64, 8));
    }
    let measured = machine.counters().llc.misses as f64 / ACCESSES as f64;
    assert!((measured - expected).abs() < 0.01, "{measured} for {expected}");
}

#[test]
fn a_scan_misses_once_a_line_and_once_a_row() {
    let mut shape = Shape::paper();
    shape.tlb.walk_levels = 0;
    let mut machine = Machine::new(&shape).unwrap();
    let bytes = 8 << 20;
    (0..bytes / 8).for_each(|word| machine.load(8 * word, 8));
    let counters = machine.counters();
    assert_eq!((counters.l1.misses, counters.llc.misses), (bytes / 64, bytes / 64));
    let rows = bytes / 8192;
    assert_eq!((counters.dram.closed, counters.dram.conflicts), (8, rows - 8));
    assert_eq!(counters.dram.hits, bytes / 64 - rows);
}

/// A set as a list of lines and whether they are modified, the most recently used one first.
type Set = Vec<(u64, bool)>;

/// Levels: their sets and ways.
struct Lists {
    levels: Vec<(Vec<Set>, usize)>,
    misses: Vec<u64>,
    writebacks: Vec<u64>,
}

impl Lists {
    /// Touches a line in a level. One that is not there is read from below if it is not `written`
    /// from above as a whole.
    fn touch(&mut self, level: usize, line: u64, store: bool, written: bool) {
        let Some((sets, ways)) = self.levels.get_mut(level) else { return };
        let set = (line % sets.len() as u64) as usize;
        let list = &mut sets[set];
        let found = list.iter().position(|&(l, _)| l == line).map(|i| list.remove(i));
        list.insert(0, (line, store || found.is_some_and(|(_, modified)| modified)));
        let victim = if list.len() > *ways { list.pop() } else { None };
        if found.is_none() && !written {
            self.misses[level] += 1;
            self.touch(level + 1, line, false, false);
        }
        if let Some((victim, true)) = victim {
            self.writebacks[level] += 1;
            self.touch(level + 1, victim, true, true);
        }
    }
}

#[test]
fn modified_lines_are_written_when_lists_write_them() {
    for with_l2 in [false, true] {
        let level = |bytes, ways| Level { bytes, ways, cycles: 3 };
        let l2 = with_l2.then(|| level(8 << 10, 4));
        let (l1, llc) = (level(2 << 10, 8), level(24 << 10, 12));
        let mut shape = Shape { l1: Some(l1), l2, llc, ..Shape::paper() };
        shape.tlb.walk_levels = 0;
        for (name, lines) in streams() {
            let mut machine = Machine::new(&shape).unwrap();
            let levels: Vec<_> = [Some(l1), l2, Some(llc)].into_iter().flatten().collect();
            let sets = |l: &Level| vec![Vec::new(); (l.bytes / 64 / u64::from(l.ways)) as usize];
            let mut lists = Lists {
                levels: levels.iter().map(|l| (sets(l), l.ways as usize)).collect(),
                misses: vec![0; levels.len()],
                writebacks: vec![0; levels.len()],
            };
            let mut random = Pcg64::seed_from_u64(13);
            for &line in &lines {
                let store = random.random_range(0..3) == 0;
                if store {
                    machine.store(64 * line, 8)
                } else {
                    machine.load(64 * line, 8)
                }
                lists.touch(0, line, store, false);
            }
            let counters = machine.counters();
            let of = |l1, l2, llc| if with_l2 { vec![l1, l2, llc] } else { vec![l1, llc] };
            let misses = of(counters.l1.misses, counters.l2.misses, counters.llc.misses);
            let written = counters.writebacks;
            let written = of(written.l1, written.l2, written.llc);
            assert_eq!((misses, written), (lists.misses, lists.writebacks), "{name}");
        }
    }
}
