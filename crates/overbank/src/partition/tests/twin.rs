//! Random operations on a table, its copies on every instruction set, and a hash map: after each
//! batch every key, everywhere.
//!
//! Tables of usual shape, and tables of tiny groups with hardly more unknowns than keys: full
//! groups, other seeds and the fallback are constant there. `OVERBANK_TWIN_OPERATIONS` and
//! `OVERBANK_TWIN_SEED` set the size and the draws (`cargo xtask test twins-full`).

use std::collections::HashMap;
use std::env;
use std::eprintln;

use super::*;
use crate::memory::Pages;

/// Operations between two looks at every key.
const BATCH: usize = 1000;

/// How often what is rare has happened.
#[derive(Debug, Default)]
struct Happened {
    moves: usize,
    groups: usize,
    turns: usize,
    blocks: usize,
    growths: usize,
    /// Groups that took another seed than the first, as they were seen after batches.
    reseeded: usize,
    /// Keys in the fallback, as they were seen after batches.
    fallback: usize,
    refused: usize,
    full: usize,
    images: usize,
    builds: usize,
}

impl Happened {
    fn add(&mut self, change: &Change) {
        match change {
            Change::Move { .. } => self.moves += 1,
            Change::Groups { turns, .. } => {
                self.groups += 1;
                self.turns += turns.len();
            }
            Change::Block(_) => self.blocks += 1,
            Change::Partition(_) => self.growths += 1,
        }
    }
}

/// See [`Plan::tiny`].
#[derive(Clone, Copy, Debug)]
struct Tiny {
    unknowns: usize,
    block_keys: usize,
    percent: usize,
}

struct Twin {
    config: Config,
    tiny: Option<Tiny>,
    writer: Writer,
    /// One for each instruction set.
    copies: Vec<Replica>,
    deltas: Vec<Delta>,
    map: HashMap<u64, u8>,
    /// The keys of `map`.
    keys: Vec<u64>,
    next: u64,
    pcg: Pcg32,
    dir: tempfile::TempDir,
    happened: Happened,
}

impl Twin {
    fn new(config: Config, tiny: Option<Tiny>, seed: u64) -> Twin {
        let (keys, bits) = (config.keys * 7 / 8, config.value_bits);
        let map: HashMap<u64, u8> = entries(keys, bits).collect();
        let writer = build(&config, tiny, &map).expect("seven eighths of the keys fit");
        let mut twin = Twin {
            config,
            tiny,
            writer,
            copies: Vec::new(),
            deltas: Vec::new(),
            keys: map.keys().copied().collect(),
            map,
            next: keys as u64,
            pcg: Pcg32::new(seed, 7),
            dir: tempfile::tempdir().unwrap(),
            happened: Happened::default(),
        };
        twin.keys.sort_unstable();
        twin.image();
        twin
    }

    fn run(mut self, operations: usize) -> Happened {
        for batch in 0..operations.div_ceil(BATCH) {
            // Tables fill, stay and empty.
            let removals = [1, 6, 4][batch / 6 % 3];
            (0..BATCH).for_each(|_| self.operation(removals));
            match batch % 16 {
                7 => self.image(),
                15 => self.build_again(),
                _ => self.flush(),
            }
            self.check();
        }
        self.happened
    }

    /// One operation; `removals` of eight remove a key.
    fn operation(&mut self, removals: u32) {
        let known = (!self.keys.is_empty()).then(|| {
            let at = self.pcg.below(self.keys.len() as u32) as usize;
            (at, self.keys[at])
        });
        let value = (self.pcg.draw() & (0xff >> (8 - self.config.value_bits))) as u8;
        match (self.pcg.below(16), known) {
            (0..8, Some((at, hash))) if self.pcg.below(8) < removals => {
                assert_eq!(self.writer.remove(hash), self.map.remove(&hash));
                self.keys.swap_remove(at);
                assert_eq!(self.writer.remove(hash), None);
            }
            (8..15, Some((_, hash))) => self.insert(hash, value),
            (15, _) if self.pcg.below(64) == 0 => {
                let blocks = self.writer.reader().blocks() as u32;
                let partition = self.pcg.below(self.writer.reader().partitions() as u32) as usize;
                let delta = self.writer.republish(partition, self.pcg.below(blocks) as usize);
                self.published(delta);
            }
            _ => {
                self.next += 1;
                self.insert(mix(self.next), value);
            }
        }
    }

    fn insert(&mut self, hash: u64, value: u8) {
        let before = self.map.get(&hash).copied();
        match self.writer.insert(hash, value) {
            Ok(delta) => {
                assert_eq!(delta.is_none(), before == Some(value));
                if self.map.insert(hash, value).is_none() {
                    self.keys.push(hash);
                }
                self.published(delta);
            }
            Err(error) => {
                assert_eq!(self.writer.get(hash), before, "{error}");
                match error {
                    InsertError::Fallback(_) => self.happened.refused += 1,
                    InsertError::Full { keys } => {
                        assert!(before.is_none() && keys == self.map.len());
                        self.happened.full += 1;
                    }
                    InsertError::Value { .. } | InsertError::Memory(_) => panic!("{error}"),
                }
            }
        }
    }

    fn published(&mut self, delta: Option<Delta>) {
        delta.iter().for_each(|delta| self.happened.add(&delta.change));
        self.deltas.extend(delta);
    }

    /// Sends the deltas as bytes to every copy.
    fn flush(&mut self) {
        if self.deltas.is_empty() {
            return;
        }
        let bytes = Delta::encode(&self.deltas).unwrap();
        let deltas = Delta::decode(&bytes).unwrap();
        assert!(deltas == self.deltas);
        for copy in &mut self.copies {
            copy.apply_all(&deltas).unwrap();
        }
        self.deltas.clear();
    }

    /// Replaces the copies by what is read from an image; theirs and the owner's are the same.
    fn image(&mut self) {
        self.flush();
        let [path, other] = ["image", "other"].map(|name| self.dir.path().join(name));
        self.writer.save(&path).unwrap();
        let loaded = Isa::available().map(|isa| Replica::load(&path, Some(isa), Pages::Small));
        let loaded = loaded.map(Result::unwrap).collect();
        for copy in std::mem::replace(&mut self.copies, loaded).iter_mut() {
            copy.keys = self.map.len();
            copy.save(&other).unwrap();
            assert!(std::fs::read(&path).unwrap() == std::fs::read(&other).unwrap());
        }
        self.happened.images += 1;
    }

    /// Builds a new generation of the table; one that does not fit leaves the old one.
    fn build_again(&mut self) {
        self.flush();
        if self.map.len() > self.config.keys {
            return;
        }
        let config = self.config.clone().generation(self.config.generation + 1);
        match build(&config, self.tiny, &self.map) {
            Ok(writer) => {
                (self.writer, self.config) = (writer, config);
                self.copies.clear();
                self.image();
                self.happened.builds += 1;
            }
            Err(error) => assert!(matches!(error, BuildError::Fallback(_)), "{error}"),
        }
    }

    fn check(&mut self) {
        assert_eq!((self.writer.len(), self.keys.len()), (self.map.len(), self.map.len()));
        let owner = self.writer.reader();
        let fallback = owner.fallback_len();
        let readers = self.copies.iter().map(Replica::reader);
        let mut values = std::vec![0; self.keys.len()];
        for reader in readers.chain([owner.clone()]) {
            reader.lookup_all(&self.keys, &mut values);
            for (hash, value) in self.keys.iter().zip(&values) {
                assert_eq!(Some(value), self.map.get(hash), "{hash:#x} in {reader:?}");
            }
            assert_eq!(reader.fallback_len(), fallback);
        }
        let mut keys = 0;
        self.writer.for_each(|(hash, value)| {
            assert_eq!(self.map.get(&hash), Some(&value));
            keys += 1;
        });
        assert_eq!(keys, self.map.len());
        self.happened.fallback += fallback;
        self.happened.reseeded += owner.seeds()[1..15].iter().sum::<usize>();
    }
}

fn build(
    config: &Config,
    tiny: Option<Tiny>,
    map: &HashMap<u64, u8>,
) -> Result<Writer, BuildError> {
    let plan = Plan::new(config)?;
    let plan = match tiny {
        Some(Tiny { unknowns, block_keys, percent }) => plan.tiny(unknowns, block_keys, percent),
        None => plan,
    };
    let entries = || map.iter().map(|(&hash, &value)| (hash, value));
    let pieces: Result<Vec<_>, _> =
        plan.pieces(3).iter().map(|piece| piece.build(entries())).collect();
    Ok(plan.writer(pieces?)?.0)
}

fn number(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Every row width, value width and instruction set, `operations` of each; and the sum.
fn each(
    name: &str,
    operations: usize,
    shape: impl Fn(Config, u64) -> (Config, Option<Tiny>),
) -> Vec<Happened> {
    let operations = number("OVERBANK_TWIN_OPERATIONS", operations);
    let seed = number("OVERBANK_TWIN_SEED", 1) as u64;
    eprintln!("{name}: {operations} operations of each kind, seed {seed}");
    let mut all = Vec::new();
    for (isa, row) in Isa::available().flat_map(|isa| [(isa, RowBits::R64), (isa, RowBits::R128)]) {
        for bits in 1..=8 {
            let seed = mix(seed ^ all.len() as u64);
            let config = Config::new(3000, bits).row(row).isa(Some(isa));
            let (config, tiny) = shape(config, seed);
            all.push(Twin::new(config, tiny, seed).run(operations));
        }
    }
    all
}

#[test]
fn a_table_of_tiny_groups_is_its_twin() {
    let all = each("tiny groups", 16_000, |config, seed| {
        let unknowns = [6, 9, 17, 40][seed as usize % 4];
        let grows = seed & 4 == 0;
        let tiny = Tiny { unknowns, block_keys: 750, percent: if grows { 109 } else { 107 } };
        (if grows { config.growing(5000, 2) } else { config }, Some(tiny))
    });
    for happened in &all {
        let Happened { moves, turns, reseeded, fallback, images, blocks, .. } = happened;
        assert!(
            [moves, turns, reseeded, fallback].iter().all(|&&count| count > 99),
            "{happened:?}"
        );
        assert!(*images > 1 && *blocks > 0, "{happened:?}");
    }
    assert!(all.iter().any(|happened| happened.builds > 0));
    assert!(all.iter().any(|happened| happened.refused > 0));
    assert!(all.iter().any(|happened| happened.growths > 0));
}

#[test]
fn a_table_is_its_twin() {
    let all = each("usual groups", 16_000, |config, seed| {
        let config = config.generation(seed as u32);
        let config = if seed & 1 == 0 { config } else { config.packed() };
        (if seed & 6 == 0 { config } else { config.growing(40_000, 1 << (seed % 3)) }, None)
    });
    assert!(all.iter().all(|happened| happened.moves > 0 && happened.groups > 0));
}
