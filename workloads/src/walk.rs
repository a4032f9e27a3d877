//! Reads of an array that nothing has touched before: the least that another simulator can repeat.

use std::hint::black_box;
use std::io::Write as _;

use anyhow::{Context, Result, bail};
use overbank_sdc::{Counters, Machine, Shape};
use overbank_watched::item::WORD;
use overbank_watched::walk::walk;
use serde::Serialize;

use crate::arguments::{LINE, Order, Walk, name};
use crate::hooks;
use crate::point::NO_HOOKS;

/// Words from one read to the next of [`Order::Strided`]: a line and a word, eight times.
const STRIDE: u64 = 65;
/// Knuth's generator MMIX.
const RANDOM: (u64, u64) = (0x5851_f42d_4c95_7f2d, 0x1405_7b7e_f767_814f);

/// What is printed.
#[derive(Serialize)]
struct Report<'a> {
    order: String,
    bytes: u64,
    accesses: u64,
    shape: &'a Shape,
    counters: &'a Counters,
}

/// Runs a walk and prints its report.
pub fn run(options: &Walk) -> Result<()> {
    let shape = options.shape()?;
    let mut machine = Machine::new(&shape)?;
    // Zeros that the system hands out as they are: no write puts them in a cache. The allocator's
    // words before the array are in another line.
    let (words, line) = (options.bytes as usize / WORD, LINE / WORD);
    let memory = vec![0u64; words + line];
    let from = memory.as_ptr().align_offset(LINE).min(line);
    let words = &memory[from..from + words];
    let one = 1 << (64 - words.len().trailing_zeros());
    let (multiplier, step) = match options.order {
        Order::Sequential => (1, one),
        Order::Strided => (1, one * STRIDE),
        Order::Random => RANDOM,
    };
    let sum = hooks::watched(&mut machine, || walk(words, multiplier, step, options.accesses));
    black_box(sum);
    let counters = machine.counters();
    if counters.accesses == 0 {
        bail!(NO_HOOKS);
    }
    let (bytes, accesses) = (options.bytes, options.accesses);
    let report = Report { order: name(&options.order), bytes, accesses, shape: &shape, counters };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &report).context("cannot write the report")?;
    writeln!(out).context("cannot write the report")
}
