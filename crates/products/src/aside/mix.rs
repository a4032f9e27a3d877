//! Sequences of operations: a YCSB mix over drawn keys, or the lookups of a file.
//!
//! A drawn key's number is its rank: 0 is the most popular. Keys are a bijection of the number, so
//! neighbours in rank are no neighbours in order, and numbers inserted in turn are keys in random
//! order.

use overbank::hash::mix;
use overbank_kit::workload::{FlowStream, WorkloadError};
use overbank_models::law::power_sum;
use serde::Serialize;
use std::str::FromStr;
use std::sync::Arc;

/// Most keys that a scan of mix E reads.
pub const SCAN_MAX: u32 = 100;

/// A mix of YCSB (Cooper et al., *Benchmarking Cloud Serving Systems with YCSB*, SoCC 2010).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mix {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the newest keys, 5 % insertions.
    D,
    /// 95 % scans of up to [`SCAN_MAX`] keys, 5 % insertions.
    E,
    /// Half reads, half reads with a change of what was read.
    F,
}

impl Mix {
    pub const ALL: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

    /// Says what it is made of.
    pub fn what(self) -> &'static str {
        match self {
            Mix::A => "50 % reads, 50 % updates",
            Mix::B => "95 % reads, 5 % updates",
            Mix::C => "reads only",
            Mix::D => "95 % reads of the newest keys, 5 % insertions",
            Mix::E => "95 % scans, 5 % insertions",
            Mix::F => "50 % reads, 50 % read-modify-writes",
        }
    }

    fn others(self) -> (u32, Kind) {
        match self {
            Mix::A => (50, Kind::Update),
            Mix::B => (5, Kind::Update),
            Mix::C => (0, Kind::Update),
            Mix::D | Mix::E => (5, Kind::Insert),
            Mix::F => (50, Kind::Modify),
        }
    }

    fn lookup_share(self) -> f64 {
        match (self, self.others()) {
            (Mix::E, _) => 0.0,
            (_, (percent, other)) if !other.looks_up() => 1.0 - f64::from(percent) / 100.0,
            _ => 1.0,
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mix = Mix::ALL.into_iter().find(|mix| text.eq_ignore_ascii_case(&format!("{mix:?}")));
        mix.ok_or_else(|| "must be a letter from A to F".to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Update,
    Insert,
    /// This many keys from the key on.
    Scan(u32),
    Modify,
}

impl Kind {
    /// Returns whether it looks its key up.
    pub fn looks_up(self) -> bool {
        matches!(self, Kind::Read | Kind::Modify)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub kind: Kind,
    pub key: u64,
}

/// Returns the key of a number.
pub fn key(number: u64) -> u64 {
    mix(number.wrapping_add(0x5dc))
}

/// Where operations come from.
#[derive(Clone)]
pub enum Stream {
    Drawn {
        mix: Mix,
        ranks: FlowStream,
        choices: FlowStream,
        theta: f64,
        /// Keys in the index, those inserted included.
        keys: u64,
        /// The key of each number; if there is none, [`key`].
        list: Option<Arc<[u64]>>,
    },
    File {
        lookups: Arc<[u64]>,
        at: usize,
        /// Each once.
        keys: Arc<[u64]>,
        /// Lookups of the most popular keys: of 1, of 2, and so on.
        popular: Arc<[u64]>,
    },
}

/// Most bytes that a [`Stream::file`] takes for each lookup, while it is made.
pub const LOOKUP_BYTES: u64 = 40;

impl Stream {
    /// Draws from a mix over keys 0 to `keys` − 1, by Zipf's law with this θ.
    ///
    /// # Errors
    /// No keys, too many, or no such skew.
    pub fn drawn(mix: Mix, keys: u32, theta: f64, seed: u64) -> Result<Stream, WorkloadError> {
        let ranks = FlowStream::zipf(keys, theta, seed)?;
        let choices = FlowStream::uniform(100 * SCAN_MAX, seed ^ 0xa51de)?;
        Ok(Stream::Drawn { mix, ranks, choices, theta, keys: u64::from(keys), list: None })
    }

    /// Draws reads of these keys, by Zipf's law with this θ.
    ///
    /// # Errors
    /// No keys, too many, or no such skew.
    pub fn drawn_of(mut of: Vec<u64>, theta: f64, seed: u64) -> Result<Stream, WorkloadError> {
        let count = u32::try_from(of.len()).unwrap_or(u32::MAX);
        let mut stream = Stream::drawn(Mix::C, count, theta, seed)?;
        // Neighbours in rank are no neighbours in order.
        of.sort_unstable_by_key(|key| mix(*key));
        if let Stream::Drawn { list, .. } = &mut stream {
            *list = Some(of.into());
        }
        Ok(stream)
    }

    /// Reads a file's keys in order, again and again.
    pub fn file(lookups: Vec<u64>) -> Stream {
        let mut keys = lookups.clone();
        keys.sort_unstable();
        let mut popular: Vec<u64> = keys.chunk_by(|a, b| a == b).map(|a| a.len() as u64).collect();
        popular.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        popular.iter_mut().for_each(|count| {
            sum += *count;
            *count = sum;
        });
        keys.dedup();
        // As likely in any order: by the hash.
        keys.sort_unstable_by_key(|key| mix(*key));
        Stream::File { lookups: lookups.into(), at: 0, keys: keys.into(), popular: popular.into() }
    }

    /// Looks a file's keys up in an index of these.
    pub fn over(mut self, of: Vec<u64>) -> Stream {
        if let Stream::File { keys, .. } = &mut self {
            *keys = of.into();
        }
        self
    }

    /// Returns the keys that the index has at first, in the order in which they are inserted.
    pub fn keys(&self) -> Arc<[u64]> {
        match self {
            Stream::Drawn { list: Some(list), .. } => list.clone(),
            Stream::Drawn { keys, .. } => (0..*keys).map(key).collect(),
            Stream::File { keys, .. } => keys.clone(),
        }
    }

    /// Returns the number of keys that the index has at first.
    pub fn key_count(&self) -> usize {
        match self {
            Stream::Drawn { ranks, .. } => ranks.flows() as usize,
            Stream::File { keys, .. } => keys.len(),
        }
    }

    /// Returns the share of the operations that look a key up.
    pub fn lookup_share(&self) -> f64 {
        match self {
            Stream::Drawn { mix, .. } => mix.lookup_share(),
            Stream::File { .. } => 1.0,
        }
    }

    /// Returns whether there are reads alone.
    pub fn reads_only(&self) -> bool {
        matches!(self, Stream::File { .. } | Stream::Drawn { mix: Mix::C, .. })
    }

    /// Goes back to where a file's lookups were before. Drawn operations go on: returns false.
    pub fn go_back_to(&mut self, before: &Stream) -> bool {
        match (self, before) {
            (Stream::File { at, .. }, Stream::File { at: before, .. }) => {
                *at = *before;
                true
            }
            _ => false,
        }
    }

    /// Returns the next operations.
    pub fn next(&mut self, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        let (mix, ranks, choices, keys, list) = match self {
            Stream::File { lookups, at, .. } => {
                let key = lookups[*at];
                *at = (*at + 1) % lookups.len();
                return Op { kind: Kind::Read, key };
            }
            Stream::Drawn { mix, ranks, choices, keys, list, .. } => {
                (*mix, ranks, choices, keys, list)
            }
        };
        let (rank, choice) = (u64::from(ranks.next_flow()), choices.next_flow());
        if let Some(list) = list {
            return Op { kind: Kind::Read, key: list[rank as usize] };
        }
        let (share, other) = mix.others();
        if choice % 100 < share {
            if other == Kind::Insert {
                *keys += 1;
                return Op { kind: other, key: key(*keys - 1) };
            }
            return Op { kind: other, key: key(rank) };
        }
        match mix {
            Mix::D => Op { kind: Kind::Read, key: key(*keys - 1 - rank) },
            Mix::E => Op { kind: Kind::Scan(1 + choice / 100), key: key(rank) },
            _ => Op { kind: Kind::Read, key: key(rank) },
        }
    }

    /// Returns the highest hit rate that any fixed choice of `entries` keys has; `None` where the
    /// popular keys change.
    pub fn optimum(&self, entries: usize) -> Option<f64> {
        match self {
            Stream::Drawn { mix: Mix::D | Mix::E, .. } => None,
            Stream::Drawn { theta, ranks, .. } => {
                let keys = f64::from(ranks.flows());
                let sum = |to: f64| power_sum(1.0, to, *theta);
                Some(sum(keys.min(entries as f64).max(1.0)) / sum(keys))
            }
            Stream::File { lookups, popular, .. } => {
                let top = popular.get(entries.clamp(1, popular.len()) - 1)?;
                Some(*top as f64 / lookups.len() as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_their_shares() {
        for mix in Mix::ALL {
            assert_eq!(format!("{mix:?}").parse(), Ok(mix));
            let mut stream = Stream::drawn(mix, 1000, 0.99, 1).expect("a stream");
            let ops = stream.next(20_000);
            let share = |kind: fn(&Kind) -> bool| {
                ops.iter().filter(|op| kind(&op.kind)).count() * 100 / ops.len()
            };
            let reads = share(|kind| *kind == Kind::Read);
            let scans = share(|kind| matches!(kind, Kind::Scan(1..=SCAN_MAX)));
            let expected = match mix {
                Mix::A | Mix::F => (49..=51, 0..=0),
                Mix::B | Mix::D => (94..=95, 0..=0),
                Mix::C => (100..=100, 0..=0),
                Mix::E => (0..=0, 94..=95),
            };
            assert!(expected.0.contains(&reads) && expected.1.contains(&scans), "{mix:?}");
            assert_eq!(stream.reads_only(), mix == Mix::C);
            let looked_up = ops.iter().filter(|op| op.kind.looks_up()).count() as f64;
            assert!((looked_up / ops.len() as f64 - stream.lookup_share()).abs() < 0.02, "{mix:?}");
        }
        assert!("G".parse::<Mix>().is_err());
    }

    #[test]
    fn insertions_are_new_keys_in_turn() {
        let mut stream = Stream::drawn(Mix::D, 100, 0.99, 1).expect("a stream");
        let mut known: std::collections::HashSet<u64> = stream.keys().iter().copied().collect();
        assert_eq!(known.len(), 100);
        for op in stream.next(10_000) {
            match op.kind {
                Kind::Insert => assert!(known.insert(op.key)),
                _ => assert!(known.contains(&op.key)),
            }
        }
    }

    #[test]
    fn the_optimum_is_the_share_of_the_most_popular_keys() {
        let stream = Stream::drawn(Mix::C, 1000, 0.0, 1).expect("a stream");
        assert!((stream.optimum(100).expect("fixed") - 0.1).abs() < 1e-9);
        assert_eq!(stream.optimum(5000), Some(1.0));
        let stream = Stream::file(vec![5, 5, 5, 7, 7, 9]);
        assert_eq!(stream.keys().len(), 3);
        assert_eq!((stream.optimum(1), stream.optimum(2)), (Some(0.5), Some(5.0 / 6.0)));
        assert_eq!(stream.optimum(9), Some(1.0));
        assert_eq!(Stream::drawn(Mix::D, 10, 0.9, 1).expect("a stream").optimum(5), None);
    }

    #[test]
    fn listed_keys_are_drawn() {
        let list: Vec<u64> = (0..100).map(|key| 3 * key).collect();
        let mut stream = Stream::drawn_of(list.clone(), 0.99, 1).expect("a stream");
        let mut keys = stream.keys().to_vec();
        assert!(keys != list && stream.key_count() == 100 && stream.reads_only());
        keys.sort_unstable();
        assert_eq!(keys, list);
        let drawn = stream.next(10_000);
        assert!(drawn.iter().all(|op| op.kind == Kind::Read && list.contains(&op.key)));
        let most = drawn.iter().filter(|op| op.key == stream.keys()[0]).count();
        assert!(most > 1500, "the first of them is the most popular: {most}");
    }

    #[test]
    fn a_file_begins_again() {
        let keys: Vec<u64> = Stream::file(vec![1, 2, 3]).next(5).iter().map(|op| op.key).collect();
        assert_eq!(keys, [1, 2, 3, 1, 2]);
    }
}
