//! What the text compares with: a Bloom filter for each part (BUFFALO), and what binary fuse takes.

use super::entries;
use crate::prelude::*;
use overbank::hash::mix;
use overbank::partition::{Config, Writer};

pub const SEP_RELATED: Experiment = Experiment {
    name: "sep-related",
    title: "bits a key and a move's cost beside a Bloom filter for each part",
    source: "SetSep, section 7",
    run,
};

/// False positives of a filter.
const RATE: f64 = 0.01;

/// A Bloom filter for `keys` keys.
struct Bloom {
    words: Vec<u64>,
    hashes: u32,
}

impl Bloom {
    fn new(keys: u64) -> Bloom {
        let bits = -(keys.max(1) as f64) * RATE.ln() / std::f64::consts::LN_2.powi(2);
        let hashes = (bits / keys.max(1) as f64 * std::f64::consts::LN_2).round() as u32;
        Bloom { words: vec![0; (bits / 64.0).ceil() as usize], hashes }
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (step, bits) = (mix(hash) | 1, 64 * self.words.len() as u64);
        (0..u64::from(self.hashes)).map(move |nth| {
            let place = hash.wrapping_add(nth.wrapping_mul(step));
            let bit = ((u128::from(place) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn insert(&mut self, hash: u64) {
        for (word, bit) in self.places(hash) {
            self.words[word] |= bit;
        }
    }

    fn contains(&self, hash: u64) -> bool {
        self.places(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

/// Of a number of parts: bits a key, and what a move takes to send.
struct Compared {
    parts: u64,
    filters: f64,
    /// Share of known keys that more than one filter claims.
    ambiguous: f64,
    filter_bytes: f64,
    ours: f64,
    move_bytes: f64,
}

impl Compared {
    fn value_bits(&self) -> f64 {
        f64::from(self.parts.ilog2())
    }

    fn setsep(&self) -> f64 {
        0.5 + 1.5 * self.value_bits()
    }

    fn fuse(&self) -> f64 {
        1.125 * self.value_bits()
    }
}

fn compare(keys: u64, parts: u64) -> Result<Compared, LabError> {
    let bits = parts.ilog2();
    let all: Vec<(u64, u8)> = entries(0, keys, bits).collect();
    let count = |part: u64| all.iter().filter(|entry| u64::from(entry.1) == part).count() as u64;
    let mut filters: Vec<Bloom> = (0..parts).map(|part| Bloom::new(count(part))).collect();
    all.iter().for_each(|&(hash, part)| filters[usize::from(part)].insert(hash));
    let claims = |hash: u64| filters.iter().filter(|filter| filter.contains(hash)).count();
    if all.iter().any(|&(hash, part)| !filters[usize::from(part)].contains(hash)) {
        return Err(LabError::Failed("a filter lost a key".into()));
    }
    let ambiguous = all.iter().filter(|&&(hash, _)| claims(hash) > 1).count() as f64 / keys as f64;
    let words: usize = filters.iter().map(|filter| filter.words.len()).sum();
    let config = Config::new(keys as usize, bits as usize).packed();
    let (mut writer, _) = Writer::build(&config, all.iter().copied()).map_err(LabError::failed)?;
    let ours = 8.0 * writer.reader().bytes() as f64 / keys as f64;
    let delta = writer.insert(all[0].0, all[0].1 ^ 1).map_err(LabError::failed)?;
    Ok(Compared {
        parts,
        filters: 64.0 * words as f64 / keys as f64,
        ambiguous,
        filter_bytes: 8.0 * words as f64 / parts as f64,
        ours,
        move_bytes: delta.map_or(0.0, |delta| delta.bytes() as f64),
    })
}

const CLAIMS: &[Claim<Compared>] = &[
    Claim::new("SetSep takes fewer bits than filters with 1 % false positives", "fewer", |of| {
        let (setsep, filters) = (of.setsep(), of.filters);
        Finding::new(setsep < filters, format!("{setsep:.2} and {filters:.2} bits a key"))
    }),
    Claim::new("filters claim some known keys for several parts", "ambiguous", |of: &Compared| {
        let due = 1.0 - (1.0 - RATE).powf(of.parts as f64 - 1.0);
        let holds = (of.ambiguous / due - 1.0).abs() < 0.3;
        Finding::new(holds, format!("{}, {} due", percent(of.ambiguous, 2), percent(due, 2)))
    }),
    Claim::new("the partition table takes fewer bits than SetSep", "goal", |of: &Compared| {
        Finding::new(of.ours < of.setsep(), format!("{:.2} and {:.2}", of.ours, of.setsep()))
    }),
    Claim::new("a move takes 24 bytes at most, a filter is sent whole", "goal", |of: &Compared| {
        let text = format!("{} bytes; {:.0} bytes", of.move_bytes, of.filter_bytes);
        Finding::new(of.move_bytes > 0.0 && of.move_bytes <= 24.0, text)
    }),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let keys: u64 = if context.smoke() { 100_000 } else { 4_000_000 };
    let all =
        context.each([4, 16], |parts| format!("{parts} parts"), |_, parts| compare(keys, parts))?;
    let mut record = SEP_RELATED.record(context);
    record.setting("keys", keys);
    record.setting("false positives of a filter", percent(RATE, 0));
    record.tables.push(Table::of(
        "Bits a key",
        &all,
        &[
            ("parts", &|of| of.parts.to_string()),
            ("Bloom filter a part", &|of| format!("{:.2}", of.filters)),
            ("ambiguous keys", &|of| percent(of.ambiguous, 2)),
            ("SetSep 16+8", &|of| format!("{:.2}", of.setsep())),
            ("binary fuse (static, by its formula)", &|of| format!("{:.2}", of.fuse())),
            ("partition table", &|of| format!("{:.2}", of.ours)),
        ],
    ));
    for of in &all {
        record.judge(&format!("{} parts", of.parts), CLAIMS, of);
    }
    record.note(
        "A binary fuse filter is smaller than SetSep, and faster than both, for keys that never change: it \
         is solved as a whole. A key that moves leaves its old Bloom filter only when that is built anew.",
    );
    Ok(record)
}
