//! Keys whose groups have no solution, with their values: open addressing on a table's words.
//!
//! ```text
//!   pairs   hash │ value + 1      0: never used; u64::MAX: its key has left, a search goes on
//! ```
//!
//! Seven eighths full at most, so that a search for an absent key ends. Readers search it under the
//! versions of [`table`](super::table); the writer scans it whole for a change, as it is small.
//! Cost: one line or two a lookup, for keys of the marked groups only.

use crate::sync::{AtomicU64, Ordering};

use super::block::Entry;

/// Words that hold this many keys.
pub(super) fn words_for(keys: usize) -> usize {
    2 * (keys.max(1) * 8).div_ceil(7)
}

/// The keys.
pub(super) fn entries(words: &[AtomicU64]) -> impl Iterator<Item = Entry> + '_ {
    let pairs = words.chunks_exact(2);
    let pairs = pairs.map(|pair| [&pair[0], &pair[1]].map(|w| w.load(Ordering::Relaxed)));
    pairs.filter(|&[_, value]| live(value)).map(|[hash, value]| (hash, (value - 1) as u8))
}

/// Removes the keys that `gone` names and adds `entries`, `most` keys in all.
///
/// # Errors
/// There is no room for all; nothing changes.
pub(super) fn replace(
    words: &[AtomicU64],
    most: usize,
    gone: impl Fn(u64) -> bool,
    entries: impl Iterator<Item = Entry> + Clone,
) -> Result<(), FallbackFull> {
    let kept = self::entries(words).filter(|entry| !gone(entry.0)).count();
    let keys = kept + entries.clone().count();
    if keys > most {
        return Err(FallbackFull { keys, most });
    }
    for pair in words.chunks_exact(2) {
        let value = pair[1].load(Ordering::Relaxed);
        if kept == 0 {
            pair[1].store(0, Ordering::Relaxed);
        } else if live(value) && gone(pair[0].load(Ordering::Relaxed)) {
            pair[1].store(GONE, Ordering::Relaxed);
        }
    }
    for (hash, value) in entries {
        let (found, free) = places(words, hash);
        let Some(at) = found.or(free) else { continue };
        words[2 * at].store(hash, Ordering::Relaxed);
        words[2 * at + 1].store(u64::from(value) + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// The value word of a pair whose key has left: searches go on behind it.
const GONE: u64 = u64::MAX;

const fn live(value: u64) -> bool {
    value != 0 && value != GONE
}

/// Where `hash` is in the fallback, and the first place that it could take.
fn places(words: &[AtomicU64], hash: u64) -> (Option<usize>, Option<usize>) {
    let pairs = words.len() / 2;
    let mut at = (((crate::hash::mix(hash) >> 32) * pairs as u64) >> 32) as usize;
    let mut free = None;
    // Bounded, should a reader see a table that is being written.
    for _ in 0..pairs {
        let value = words[2 * at + 1].load(Ordering::Relaxed);
        if !live(value) {
            free = free.or(Some(at));
        } else if words[2 * at].load(Ordering::Relaxed) == hash {
            return (Some(at), free);
        }
        if value == 0 {
            break;
        }
        at = if at + 1 == pairs { 0 } else { at + 1 };
    }
    (None, free)
}

/// The value of a key of a group that is in the fallback; any value if it is no key.
#[cold]
pub(super) fn value(words: &[AtomicU64], hash: u64) -> u8 {
    let found = places(words, hash).0;
    found.map_or(0, |at| words[2 * at + 1].load(Ordering::Relaxed).saturating_sub(1) as u8)
}

/// No room for keys whose groups cannot be solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{keys} keys need the fallback table, which holds {most}: plan the table for more keys")]
pub struct FallbackFull {
    /// Keys that would be there.
    pub keys: usize,
    /// The most that it holds.
    pub most: usize,
}
