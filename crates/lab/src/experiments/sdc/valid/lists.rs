//! Caches as lists, and closed forms: what the machine's misses must be.

use crate::prelude::*;
use overbank_kit::zipf::Zipf;
use overbank_sdc::{Counters, Level, Machine, Shape};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

/// Sets and ways.
const GEOMETRIES: [(u64, u32); 6] = [(1, 64), (16, 1), (16, 3), (64, 8), (128, 12), (256, 16)];
const STREAMS: [&str; 4] = ["random", "zipf", "sequential", "strided"];
const THETA: f64 = 0.99;
/// Lines that a fully associative cache holds, in the closed forms.
const HELD: u32 = 512;

/// A stream of accesses to a cache of one level, and to a list.
pub struct Twin {
    pub stream: &'static str,
    pub sets: u64,
    pub ways: u32,
    /// Misses of the machine.
    pub model: u64,
    /// Accesses with a stack distance of at least `ways`.
    pub list: u64,
    /// Accesses after which the two differed.
    pub differing: u64,
}

/// A figure of the machine, and of a formula.
pub struct Form {
    pub model: f64,
    pub formula: f64,
    /// Most that they may differ by.
    pub most: f64,
}

fn machine(level: Level, l1: Option<Level>) -> Result<Machine, LabError> {
    let mut shape = Shape { l1, llc: level, ..Shape::paper() };
    shape.tlb.walk_levels = 0;
    Machine::new(&shape).map_err(LabError::failed)
}

/// Returns a machine whose only cache has these sets and ways.
fn one_level(sets: u64, ways: u32) -> Result<Machine, LabError> {
    machine(Level { bytes: 64 * sets * u64::from(ways), ways, cycles: 1 }, None)
}

fn zipf(lines: u32) -> Result<Zipf, LabError> {
    Zipf::new(lines, THETA).ok_or_else(|| LabError::failed("internal error: Zipf's law"))
}

fn below(random: &mut Pcg64Mcg, n: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(n)) >> 64) as u64
}

/// Returns the lines of a stream.
fn lines(stream: &str, accesses: u64, seed: u64) -> Result<Vec<u64>, LabError> {
    let mut random = Pcg64Mcg::new(seed.into());
    let zipf = zipf(20_000)?;
    let line = |i: u64| match stream {
        "random" => below(&mut random, 3000),
        // Ranks that follow each other lie in different sets.
        "zipf" => u64::from(zipf.rank(random.next_u64())) * 7919 % 20_011,
        "sequential" => i / 8 % 1500,
        _ => i * 48 % 4096 + i / 1000 % 3,
    };
    Ok((0..accesses).map(line).collect())
}

/// Runs each stream on each geometry.
pub fn twins(context: &mut Context<'_>, accesses: u64) -> Result<Vec<Twin>, LabError> {
    let seed = context.seed;
    let all = pairs(&STREAMS, &GEOMETRIES);
    let name = |(stream, (sets, ways)): &(&str, (u64, u32))| format!("{stream}, {sets} x {ways}");
    context.each(all, name, |_, (stream, (sets, ways))| {
        let mut machine = one_level(sets, ways)?;
        let mut lists = vec![Vec::new(); sets as usize];
        let (mut list, mut differing) = (0, 0);
        for line in lines(stream, accesses, seed)? {
            machine.load(64 * line, 8);
            let set = &mut lists[(line % sets) as usize];
            list += u64::from(distance(set, line) >= ways as usize);
            // Farther down all are misses.
            set.truncate(ways as usize);
            differing += u64::from(machine.counters().llc.misses != list);
        }
        Ok(Twin { stream, sets, ways, model: machine.counters().llc.misses, list, differing })
    })
}

/// Returns how many other lines of the set were used since the line was, or the most if it is not
/// in the list; makes it the most recently used.
fn distance(set: &mut Vec<u64>, line: u64) -> usize {
    let found = set.iter().position(|&other| other == line);
    if let Some(at) = found {
        set.remove(at);
    }
    set.insert(0, line);
    found.unwrap_or(usize::MAX)
}

/// Returns the share of accesses that miss in a fully associative cache of [`HELD`] lines, after as
/// many to warm up.
fn share(accesses: u64, mut line: impl FnMut() -> u64) -> Result<f64, LabError> {
    let mut machine = one_level(1, HELD)?;
    for _ in 0..2 {
        machine.restart();
        (0..accesses).for_each(|_| machine.load(64 * line(), 8));
    }
    Ok(machine.counters().llc.misses as f64 / accesses as f64)
}

/// Draws lines uniformly: all but the share that the cache holds miss.
pub fn uniform(seed: u64, accesses: u64) -> Result<Form, LabError> {
    let (lines, mut random) = (1500, Pcg64Mcg::new(seed.into()));
    let model = share(accesses, || below(&mut random, lines))?;
    let formula = 1.0 - f64::from(HELD) / lines as f64;
    let sigma = (formula * (1.0 - formula) / accesses as f64).sqrt();
    Ok(Form { model, formula, most: 3.0 * sigma })
}

/// Draws lines by Zipf's law, and returns Che's approximation: a line is held for the time in which
/// as many different lines are used as the cache holds.
pub fn che(seed: u64, accesses: u64) -> Result<Form, LabError> {
    let (lines, mut random) = (10_000u32, Pcg64Mcg::new(seed.into()));
    let zipf = zipf(lines)?;
    let model = share(accesses, || zipf.rank(random.next_u64()).into())?;
    let weights: Vec<f64> = (1..=lines).map(|rank| f64::from(rank).powf(-THETA)).collect();
    let sum: f64 = weights.iter().sum();
    let used = |time: f64| weights.iter().map(|w| 1.0 - (-w / sum * time).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *(if used(middle) < f64::from(HELD) { &mut low } else { &mut high }) = middle;
    }
    let formula = weights.iter().map(|w| w / sum * (-w / sum * low).exp()).sum();
    Ok(Form { model, formula, most: 0.01 })
}

/// Bytes that [`scan`] reads.
pub const SCANNED: u64 = 8 << 20;

/// Reads word after word on the paper's machine.
pub fn scan() -> Result<Counters, LabError> {
    let paper = Shape::paper();
    let mut machine = machine(paper.llc, paper.l1)?;
    (0..SCANNED / 8).for_each(|word| machine.load(8 * word, 8));
    Ok(machine.counters().clone())
}
