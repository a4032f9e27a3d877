//! SDC against a twin that keeps lists of values: the paper's rules (§2.2.2) in few plain lines.

use std::collections::BTreeMap;

use overbank_sdc::{
    Counters, Level, Machine, SdcShape, Shape, WayView,
    address::{hash64shift, xorshift},
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Operations over all geometries.
const OPERATIONS: usize = if cfg!(debug_assertions) { 1_500_000 } else { 10_000_000 };

#[derive(Clone, PartialEq)]
enum Owner {
    Program(u64),
    Family(u8, u64),
}

struct Value {
    at: usize,
    sub_tag: u64,
    words: Vec<u64>,
    referenced: Vec<bool>,
    key: u64,
    /// Other keys whose values its insert cleared.
    cleared: Vec<u64>,
}

struct Line {
    owner: Owner,
    values: Vec<Value>,
}

/// Sets are lists of lines, the least recently used one first; lines are lists of values.
struct Twin {
    sets: Vec<Vec<Line>>,
    ways: usize,
    shape: SdcShape,
    evictions: Evictions,
}

/// Inserts that cleared other keys' values.
#[derive(Default)]
struct Evictions {
    thrown_out: u64,
    /// At least and at most: the machine keeps one of several keys.
    thrown_back: [u64; 2],
}

/// Where a value of a size belongs: set, family, slot, sub-tag.
struct Place {
    set: usize,
    owner: Owner,
    at: usize,
    sub_tag: u64,
}

impl Value {
    fn overlaps(&self, from: usize, to: usize) -> bool {
        self.at < to && from < self.at + self.words.len()
    }

    fn is(&self, place: &Place, size: usize) -> bool {
        self.at == place.at && self.words.len() == size && self.sub_tag == place.sub_tag
    }
}

impl Twin {
    fn place(&self, process: u8, key: u64, size: usize) -> Place {
        let (sets, family) = (self.sets.len() as u64, u64::from(self.shape.family));
        let hash = xorshift(key);
        let slot = hash % u64::from(self.shape.slots);
        let hash = hash / u64::from(self.shape.slots);
        let line = hash / sets % self.ways as u64;
        let all = hash64shift(key).wrapping_mul(family).wrapping_add(line % family);
        let bits = self.shape.sub_tag_bits * size as u32;
        Place {
            set: (hash % sets) as usize,
            owner: Owner::Family(process, line / family),
            at: slot as usize / size * size,
            sub_tag: if bits == 64 { all } else { all % (1 << bits) },
        }
    }

    fn used(&mut self, set: usize, line: usize) {
        let line = self.sets[set].remove(line);
        self.sets[set].push(line);
    }

    /// Returns the lines that hold the value that a place and size describe.
    fn candidates(&self, place: &Place, size: usize) -> Vec<usize> {
        let holds = |line: &Line| {
            line.owner == place.owner && line.values.iter().any(|v| v.is(place, size))
        };
        let set = &self.sets[place.set];
        (0..set.len()).filter(|&i| holds(&set[i])).collect()
    }

    fn lookup(&mut self, process: u8, key: u64, size: usize) -> Option<Vec<u64>> {
        let place = self.place(process, key, size);
        let found = self.candidates(&place, size);
        assert!(found.len() <= 1, "never a choice: an insert clears its equals");
        let &line = found.first()?;
        let values = &mut self.sets[place.set][line].values;
        let value = values.iter_mut().find(|v| v.is(&place, size)).unwrap();
        value.referenced.fill(true);
        let words = value.words.clone();
        self.used(place.set, line);
        Some(words)
    }

    /// Returns the values that it cleared.
    fn invalidate(&mut self, process: u8, key: u64) -> Vec<Value> {
        let mut cleared = Vec::new();
        for size in [1, 2, 4, 8] {
            let place = self.place(process, key, size);
            for line in self.candidates(&place, size) {
                let values = &mut self.sets[place.set][line].values;
                cleared.extend(values.extract_if(.., |v| v.is(&place, size)));
            }
        }
        cleared
    }

    fn insert(&mut self, process: u8, key: u64, words: &[u64]) {
        let mut others = self.invalidate(process, key);
        others.retain(|value| value.key != key);
        let alone = others.iter().all(|value| value.cleared == [key]);
        let back = others.iter().any(|value| value.cleared.contains(&key));
        let evictions = &mut self.evictions;
        evictions.thrown_out += u64::from(!others.is_empty());
        evictions.thrown_back[0] += u64::from(back && alone);
        evictions.thrown_back[1] += u64::from(back);
        let cleared = others.iter().map(|value| value.key).collect();
        let Place { set, owner, at, sub_tag } = self.place(process, key, words.len());
        let (from, to) = if self.shape.slots == 1 { (0, 8) } else { (at, at + words.len()) };
        let lines = &mut self.sets[set];
        let family: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].owner == owner).collect();
        let free = |&&i: &&usize| !lines[i].values.iter().any(|v| v.overlaps(from, to));
        let full = lines.len() == self.ways;
        let line = if let Some(&i) = family.iter().find(free) {
            i
        } else if family.len() < self.shape.family as usize && !(full && lines[0].owner == owner) {
            if full {
                lines.remove(0);
            }
            lines.push(Line { owner, values: Vec::new() });
            lines.len() - 1
        } else {
            let mut hand = family.iter().cycle();
            let i = loop {
                let &i = hand.next().unwrap();
                let mut referenced = false;
                for value in &mut lines[i].values {
                    for slot in 0..value.words.len() {
                        if (from..to).contains(&(value.at + slot)) {
                            referenced |= std::mem::take(&mut value.referenced[slot]);
                        }
                    }
                }
                if !referenced {
                    break i;
                }
            };
            lines[i].values.retain(|v| !v.overlaps(from, to));
            i
        };
        let referenced = vec![false; words.len()];
        lines[line].values.push(Value {
            at,
            sub_tag,
            words: words.to_vec(),
            referenced,
            key,
            cleared,
        });
        self.used(set, line);
    }

    fn access(&mut self, line: u64) {
        let set = (line % self.sets.len() as u64) as usize;
        let lines = &mut self.sets[set];
        if let Some(i) = lines.iter().position(|l| l.owner == Owner::Program(line)) {
            self.used(set, i);
        } else {
            if lines.len() == self.ways {
                lines.remove(0);
            }
            lines.push(Line { owner: Owner::Program(line), values: Vec::new() });
        }
    }
}

/// Checks that a set holds what the twin's does, and the invariants. Returns the number of values.
fn check(machine: &Machine, twin: &Twin, set: usize) -> usize {
    let mut values = 0;
    let mut lines: BTreeMap<(u8, u32), u32> = BTreeMap::new();
    let mut pictures = Vec::new();
    for way in machine.set_view(set).unwrap() {
        let mut picture = Vec::new();
        match way {
            WayView::Empty => continue,
            WayView::Ordinary { line, .. } => picture.push((line as usize, vec![])),
            WayView::Sdc { process, family, slots } => {
                *lines.entry((process, family)).or_default() += 1;
                let mut at = 0;
                while at < 8 {
                    let slot = slots[at];
                    if !slot.valid {
                        assert!(!slot.sequence && !slot.reference);
                        at += 1;
                        continue;
                    }
                    let size = 1 + slots[at..].iter().take_while(|s| s.sequence).count();
                    assert!(matches!(size, 1 | 2 | 4 | 8) && at % size == 0, "{slots:?}");
                    assert!(slots[at..at + size].iter().all(|s| s.valid), "{slots:?}");
                    picture.push((at, slots[at..at + size].iter().map(|s| s.reference).collect()));
                    values += 1;
                    at += size;
                }
            }
        }
        pictures.push(picture);
    }
    assert!(lines.values().all(|&n| n <= twin.shape.family), "{lines:?}");
    let mut twins: Vec<Vec<(usize, Vec<bool>)>> = Vec::new();
    for line in &twin.sets[set] {
        let mut picture: Vec<_> =
            line.values.iter().map(|v| (v.at, v.referenced.clone())).collect();
        picture.sort();
        if let Owner::Program(line) = line.owner {
            picture.push((line as usize, vec![]));
        }
        twins.push(picture);
    }
    pictures.sort();
    twins.sort();
    assert_eq!(pictures, twins);
    values
}

fn run(sets: usize, ways: u32, shape: SdcShape, operations: usize, seed: u64) -> Counters {
    let llc = Level { bytes: 64 * u64::from(ways) * sets as u64, ways, cycles: 22 };
    let mut whole = Shape { l1: None, llc, sdc: Some(shape), ..Shape::paper() };
    whole.tlb.walk_levels = 0;
    let mut machine = Machine::new(&whole).unwrap();
    let mut twin = Twin {
        sets: (0..sets).map(|_| Vec::new()).collect(),
        ways: ways as usize,
        shape,
        evictions: Evictions::default(),
    };
    let mut random = Pcg64::seed_from_u64(seed ^ 0x5dc);
    // From keys that all fit to some that fight for each slot.
    let keys = sets * ways as usize * (1 + random.random_range(0..30));
    for operation in 0..operations {
        let (process, key) = (random.random_range(0..3u8), random.random_range(0..keys) as u64);
        let size = 1 << random.random_range(0..4);
        match random.random_range(0..16) {
            0..7 => {
                let mut value = [0; 8];
                let hit = machine.sdc_lookup(process, key, &mut value[..size]);
                let expected = twin.lookup(process, key, size);
                assert_eq!(hit.then(|| value[..size].to_vec()), expected);
                assert!(!hit || value[0] as u8 == process, "another process's value");
            }
            7..13 => {
                let word = |i: usize| (operation << 8 | i << 4) as u64 | u64::from(process);
                let words: Vec<u64> = (0..size).map(word).collect();
                assert!(machine.sdc_insert(process, key, &words));
                twin.insert(process, key, &words);
                if random.random_range(0..4) == 0 {
                    let mut value = [0; 8];
                    assert!(machine.sdc_lookup(process, key, &mut value[..size]));
                    assert_eq!(value[..size], words, "a false negative right after an insert");
                    twin.lookup(process, key, size);
                }
            }
            13 => {
                let any = machine.sdc_invalidate(process, key);
                assert_eq!(any, !twin.invalidate(process, key).is_empty());
            }
            _ => {
                let line = random.random_range(0..sets * ways as usize * 2) as u64;
                machine.load(64 * line, 8);
                twin.access(line);
            }
        }
        check(&machine, &twin, twin.place(process, key, size).set);
    }
    let sdc = &machine.counters().sdc;
    let Evictions { thrown_out, thrown_back: [least, most] } = twin.evictions;
    assert_eq!(sdc.thrown_out, thrown_out);
    assert!((least..=most).contains(&sdc.thrown_back), "{least} to {most}: {sdc:?}");
    assert_eq!(sdc.thrown_back_compared.iter().sum::<u64>(), sdc.thrown_back);
    let values: usize = (0..sets).map(|set| check(&machine, &twin, set)).sum();
    let sdc = &machine.counters().sdc;
    let gone = sdc.evicted;
    let left = gone.clock + gone.line + gone.overwritten + gone.equal + gone.invalidated;
    assert_eq!(sdc.inserts, values as u64 + left, "each value leaves once, by one cause");
    assert_eq!(sdc.inserts, sdc.placed_free + sdc.placed_line + sdc.placed_clock);
    assert_eq!(sdc.lookups, sdc.compared.iter().sum());
    let misses = sdc.lookups - sdc.hits;
    assert_eq!(misses, sdc.compared_others.iter().sum(), "no false hit was reported");
    machine.counters().clone()
}

#[test]
fn lists_of_values_agree_for_every_family_sub_tag_and_size() {
    let mut shapes = Vec::new();
    for family in [1, 2, 4, 8] {
        for sub_tag_bits in 0..=8 {
            for slots in [8, 8, 8, 1] {
                shapes.push(SdcShape { sub_tag_bits, family, slots, ..SdcShape::paper() });
            }
        }
    }
    let each = OPERATIONS / shapes.len();
    let (mut sum, mut back) = ([0; 5], 0);
    for (i, shape) in shapes.into_iter().enumerate() {
        let ways = [1, 2, 3, 4, 8, 12, 16, 20];
        let ways: Vec<u32> = ways.into_iter().filter(|&w| w >= shape.family).collect();
        let sdc = run(1 << (i % 3), ways[i % ways.len()], shape, each, i as u64).sdc;
        back += sdc.thrown_back;
        let gone = sdc.evicted;
        let causes = [gone.clock, gone.line, gone.overwritten, gone.equal, gone.invalidated];
        sum.iter_mut().zip(causes).for_each(|(sum, n)| *sum += n);
    }
    // Rare paths are common here; a geometry that never takes one would prove nothing.
    assert!(sum.iter().all(|&n| n > each as u64 / 4), "{sum:?}");
    assert!(back > 100, "{back}");
}

#[test]
fn processes_never_see_each_others_values() {
    // No sub-tags: each lookup of a family with a value at its slot hits.
    let shape = SdcShape { sub_tag_bits: 0, ..SdcShape::paper() };
    let llc = Level { bytes: 64 * 64, ways: 16, cycles: 22 };
    let mut machine = Machine::new(&Shape { llc, sdc: Some(shape), ..Shape::paper() }).unwrap();
    let mut random = Pcg64::seed_from_u64(3);
    let mut hits = 0;
    for _ in 0..200_000 {
        let (process, key) = (random.random_range(0..10u8), random.random_range(0..300));
        let mut value = [0];
        if random.random_range(0..2) == 0 {
            assert_eq!(machine.sdc_insert(process, key, &[process.into()]), process < 8);
        } else if machine.sdc_lookup(process, key, &mut value) {
            assert_eq!(value, [process.into()]);
            hits += 1;
        }
    }
    assert!(hits > 10_000, "{hits}");
    assert!(machine.counters().sdc.refused > 10_000);
}

#[test]
fn other_sizes_and_processes_are_refused() {
    let mut machine = Machine::new(&Shape::paper_sdc()).unwrap();
    for words in [0, 3, 5, 7, 9, 64] {
        assert!(!machine.sdc_insert(0, 1, &vec![7; words]));
        assert!(!machine.sdc_lookup(0, 1, &mut vec![0; words]));
    }
    assert!(!machine.sdc_insert(8, 1, &[7]) && !machine.sdc_invalidate(255, 1));
    let sdc = machine.counters().sdc;
    assert_eq!((sdc.refused, sdc.operations()), (14, 0));
    assert_eq!(machine.times().as_evaluated, 0.0);
    assert!(machine.sdc_insert(7, 1, &[7]) && machine.sdc_invalidate(7, 1));
    assert!(!machine.sdc_invalidate(7, 1));
}
