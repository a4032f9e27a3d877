//! The floor: a kernel that touches one random line per key and does nothing else.
//!
//! Same bursts as a cache's probe, same prefetches, same kind of pages ([`Words`]), and the
//! line is chosen from the hash in the same way. No table that keeps its entries in memory can
//! answer for less than this, so every lookup cost is also given as a multiple of it. Where lookups
//! ask for the next burst meanwhile, the kernel does, too, and the floor is the cheaper of both
//! ways. Large memory is asked for into the second-level cache ([`Prefetch`]), as the tables do,
//! which is what makes it cheap.
//!
//! *Same kind of pages* is not guaranteed: the kernel may give huge pages to one memory and not to
//! the next. A line on a small page also costs a walk of the page tables, so a floor on other pages
//! is not comparable. [`Footing`] checks this. If the pages differ, no multiple is reported, no
//! claim is judged, and the record has the line of [`refusal`].

use super::Way;
use overbank::hash::Hash64;
use overbank::memory::{HugePages, Pages, Words};
use overbank::prefetch::{Prefetch, prefetch, prefetch_far};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const BURST_MAX: usize = 64;

const LINE: usize = 8;

/// Lines to be touched. Each word of a line holds the line's number.
pub struct Gather {
    words: Words,
}

impl Gather {
    /// Maps `bytes` of memory, at least one line, on huge pages where the kernel gives them. `None`
    /// if there is not enough.
    pub fn new(bytes: usize) -> Option<Gather> {
        let words = Words::zeroed((bytes / 64).max(1) * LINE, Pages::Huge).ok()?;
        for (at, word) in words.get().iter().enumerate() {
            word.store((at / LINE) as u64, Relaxed);
        }
        Some(Gather { words })
    }

    /// Returns the pages that the kernel gave. Reads a file of the kernel.
    pub fn huge_pages(&self) -> HugePages {
        self.words.huge_pages()
    }

    /// Touches the lines of `hashes` in bursts of `burst`, from 1 to [`BURST_MAX`]; ahead, each
    /// asks for the lines of the next one. Returns a checksum, so that the reads are not optimised
    /// away.
    #[inline(never)]
    pub fn touch(&self, burst: usize, way: Way, hashes: &[Hash64]) -> u64 {
        let ahead = way == Way::Ahead;
        match (Prefetch::Automatic.is_far(size_of_val(self.words.get())), ahead) {
            (false, false) => self.in_bursts::<false>(burst, hashes, prefetch),
            (false, true) => self.in_bursts::<true>(burst, hashes, prefetch),
            (true, false) => self.in_bursts::<false>(burst, hashes, prefetch_far),
            (true, true) => self.in_bursts::<true>(burst, hashes, prefetch_far),
        }
    }

    #[inline(always)]
    fn in_bursts<const AHEAD: bool>(
        &self,
        burst: usize,
        hashes: &[Hash64],
        prefetch: impl Fn(&AtomicU64),
    ) -> u64 {
        let words = self.words.get();
        let burst = burst.clamp(1, BURST_MAX);
        let (mut at, mut next_at) = ([0; BURST_MAX], [0; BURST_MAX]);
        let ask_all = |at: &mut [usize], hashes: &[Hash64]| {
            at.iter_mut().zip(hashes).for_each(|(at, &hash)| *at = ask(words, hash, &prefetch));
        };
        let mut upcoming = hashes.chunks(burst);
        if AHEAD {
            ask_all(&mut at, upcoming.next().unwrap_or_default());
        }
        let mut sum = 0u64;
        for hashes in hashes.chunks(burst) {
            if !AHEAD {
                ask_all(&mut at, hashes);
            }
            let next = if AHEAD { upcoming.next().unwrap_or_default() } else { &[] };
            for (i, &hash) in hashes.iter().enumerate() {
                if AHEAD && let Some(&hash) = next.get(i) {
                    next_at[i] = ask(words, hash, &prefetch);
                }
                sum = sum.wrapping_add(words[at[i] + (hash.get() & 7) as usize].load(Relaxed));
            }
            if AHEAD {
                std::mem::swap(&mut at, &mut next_at);
            }
        }
        sum
    }
}

/// Prefetches the line of a hash; returns its first word.
#[inline(always)]
fn ask(words: &[AtomicU64], hash: Hash64, prefetch: &impl Fn(&AtomicU64)) -> usize {
    let at = (((hash.get() >> 32) * (words.len() / LINE) as u64) >> 32) as usize * LINE;
    prefetch(&words[at]);
    at
}

/// Shares of a memory on huge pages that differ by no more than this are alike.
const ALIKE: f64 = 0.1;

/// The pages of a table and of the kernel's memory beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footing {
    pub table: HugePages,
    pub floor: HugePages,
    pub bytes: usize,
}

impl Footing {
    /// Returns whether both lie on huge pages alike, to a tenth. Not where it is not known.
    pub fn is_alike(&self) -> bool {
        let share = |pages| match pages {
            HugePages::No => Some(0.0),
            HugePages::Partly { bytes } => Some(bytes as f64 / self.bytes.max(1) as f64),
            HugePages::Yes => Some(1.0),
            // The kernel's memory is never on pages of 1 GiB.
            _ => None,
        };
        let both = share(self.table).zip(share(self.floor));
        both.is_some_and(|(table, floor)| (table - floor).abs() <= ALIKE)
    }

    /// Returns nanoseconds as a multiple of the floor's; `None` where it is no floor.
    pub fn multiple(&self, ns: f64, floor_ns: f64) -> Option<f64> {
        self.is_alike().then_some(ns / floor_ns)
    }
}

impl std::fmt::Display for Footing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "huge pages: {}, the kernel's: {}", self.table, self.floor)
    }
}

/// Cell of a table in place of a multiple: the two runs had different pages.
pub const OTHER_PAGES: &str = "other pages";

/// Returns a multiple in a table: "×1.62", or [`OTHER_PAGES`].
pub fn times(multiple: Option<f64>) -> String {
    multiple.map_or_else(|| OTHER_PAGES.to_owned(), |multiple| format!("×{multiple:.2}"))
}

/// Returns the line of a record whose kernel lay on other pages than these tables; `None` if there
/// are none.
pub fn refusal(tables: &[String]) -> Option<String> {
    (!tables.is_empty()).then(|| {
        format!(
            "No multiple of the gather kernel is given, and no claim about one judged, where its \
             memory lay on other pages than the table: {}.",
            tables.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::hash::Hash64;

    #[test]
    fn a_floor_on_other_pages_is_none() {
        const BYTES: usize = 1 << 30;
        let partly = |percent| HugePages::Partly { bytes: BYTES / 100 * percent };
        let multiple = |table, floor| Footing { table, floor, bytes: BYTES }.multiple(3.0, 2.0);
        let (yes, no, unknown) = (HugePages::Yes, HugePages::No, HugePages::Unknown);
        for (a, b) in
            [(yes, yes), (no, no), (partly(95), yes), (partly(40), partly(35)), (partly(9), no)]
        {
            assert_eq!(multiple(a, b), Some(1.5), "{a}, {b}");
            assert_eq!(multiple(b, a), Some(1.5), "{b}, {a}");
        }
        let gigabyte = HugePages::Gigabyte;
        for (a, b) in
            [(yes, no), (yes, partly(89)), (no, partly(11)), (unknown, unknown), (yes, gigabyte)]
        {
            assert_eq!(multiple(a, b), None, "{a}, {b}");
            assert_eq!(multiple(b, a), None, "{b}, {a}");
        }
    }

    #[test]
    fn a_refusal_is_one_line() {
        assert_eq!(refusal(&[]), None);
        let footing = Footing { table: HugePages::Yes, floor: HugePages::No, bytes: 1 };
        let line = refusal(&[format!("16 M entries ({footing})"), "all of 4 MiB".into()]).unwrap();
        let end = "16 M entries (huge pages: yes, the kernel's: no); all of 4 MiB.";
        assert!(line.ends_with(end) && !line.contains('\n'), "{line}");
        assert_eq!([times(Some(1.5)), times(None)], ["×1.50", "other pages"]);
    }

    #[test]
    fn touches_the_lines_of_the_hashes() {
        let gather = Gather::new(1 << 16).unwrap();
        for count in [0, 1, 31, 32, 33, 100] {
            let hashes: Vec<Hash64> = (0..count).map(Hash64::mix).collect();
            let expected = hashes.iter().map(|h| h.get() >> (64 - 10)).sum::<u64>();
            for (burst, way) in
                [0, 1, 2, 63, 64, 65].into_iter().flat_map(|b| Way::ALL.map(|w| (b, w)))
            {
                assert_eq!(gather.touch(burst, way, &hashes), expected);
            }
        }
        // Near and far.
        for mib in [4, 8] {
            let gather = Gather::new(mib << 20).unwrap();
            let last = (mib << 20) as u64 / 64 - 1;
            let sums = Way::ALL.map(|way| gather.touch(32, way, Hash64::slice(&[u64::MAX, 0])));
            assert_eq!(sums, [last; 2]);
        }
    }
}
