//! A set-associative cache with LRU replacement: which lines it holds, not what is in them.
//!
//! ```text
//! tags    set 0: way 0, way 1, …  │ set 1: …     line << 1 | modified; SDC's: extension bit first
//! stamps  set 0: way 0, way 1, …  │ set 1: …     when the line was last used; 0: empty
//! ```
//!
//! The line with the lowest stamp is the least recently used, an empty way before any line. A
//! lookup compares `ways` tags; only a fill looks at stamps.

use overbank::prefetch::prefetch;

/// Tag of a way without a line.
pub(crate) const EMPTY: u64 = u64::MAX;
/// First bit of the tag of a line that is SDC's (paper, §2.2.1).
pub(crate) const EXTENSION: u64 = 1 << 63;
const MODIFIED: u64 = 1;

pub(crate) struct Cache {
    ways: usize,
    /// Number of sets − 1.
    mask: u64,
    now: u64,
    tags: Vec<u64>,
    stamps: Vec<u64>,
}

/// Returns the line that a tag stands for if it must be written back.
pub(crate) fn modified(tag: u64) -> Option<u64> {
    (tag & (EXTENSION | MODIFIED) == MODIFIED).then_some(tag >> 1)
}

impl Cache {
    /// Returns an empty cache; `sets` is a power of two.
    pub fn new(sets: usize, ways: usize) -> Cache {
        Cache {
            ways,
            mask: sets as u64 - 1,
            now: 0,
            tags: vec![EMPTY; sets * ways],
            stamps: vec![0; sets * ways],
        }
    }

    /// Returns the indices of the ways of a set; a line's set is its number modulo the sets.
    #[inline]
    pub fn set(&self, line: u64) -> std::ops::Range<usize> {
        let from = (line & self.mask) as usize * self.ways;
        from..from + self.ways
    }

    /// Prefetches a set: the host waits for several at once.
    #[inline]
    pub fn ask(&self, line: u64) {
        let set = self.set(line);
        for way in [set.start, set.start + self.ways / 2, set.end - 1] {
            prefetch(&self.tags[way]);
            prefetch(&self.stamps[way]);
        }
    }

    /// Returns where an ordinary line lies.
    #[inline]
    pub fn find(&self, line: u64) -> Option<usize> {
        let (set, wanted) = (self.set(line), line << 1);
        let mut found = usize::MAX;
        for (way, tag) in self.tags[set.clone()].iter().enumerate() {
            // No early exit: where a line lies is hard to predict, and the ways are few.
            if tag ^ wanted <= MODIFIED {
                found = way;
            }
        }
        (found != usize::MAX).then(|| set.start + found)
    }

    /// Makes a line the most recently used of its set.
    #[inline]
    pub fn touch(&mut self, at: usize) {
        self.now += 1;
        self.stamps[at] = self.now;
    }

    /// Touches an ordinary line, and marks it as modified if `modified`.
    #[inline]
    pub fn touch_ordinary(&mut self, at: usize, modified: bool) {
        self.tags[at] |= u64::from(modified);
        self.touch(at);
    }

    /// Returns the way of a set that is empty or was not used for the longest time.
    #[inline]
    pub fn victim(&self, set: std::ops::Range<usize>) -> usize {
        let (mut at, mut oldest) = (set.start, u64::MAX);
        for (way, &stamp) in self.stamps[set.clone()].iter().enumerate() {
            if stamp < oldest {
                (at, oldest) = (set.start + way, stamp);
            }
        }
        at
    }

    /// Puts an ordinary line in the victim's place. Returns where, and the victim's tag.
    #[inline]
    pub fn fill(&mut self, line: u64, modified: bool) -> (usize, u64) {
        let at = self.victim(self.set(line));
        let old = self.replace(at, line << 1 | u64::from(modified));
        self.touch(at);
        (at, old)
    }

    /// Replaces a tag. Returns the one before.
    pub fn replace(&mut self, at: usize, tag: u64) -> u64 {
        std::mem::replace(&mut self.tags[at], tag)
    }

    pub fn tag(&self, at: usize) -> u64 {
        self.tags[at]
    }

    pub fn tags(&self) -> &[u64] {
        &self.tags
    }

    /// Returns when a line was last used: lower is colder.
    pub fn stamp(&self, at: usize) -> u64 {
        self.stamps[at]
    }
}
