//! Numbers that one thread counts and any thread reads, all of one instant.
//!
//! ```text
//!   writer: private plain numbers, no atomics while it works
//!      │  every few milliseconds: publish()
//!      ▼
//!   Publication: version │ word 0 │ word 1 │ …      read() by anyone
//! ```
//!
//! A sequence lock: the version is odd while words are written. The writer never waits; a reader
//! retries if the version changed meanwhile. Words are relaxed atomics between fences, so an early
//! reader sees old or new words, and never returns a mixture.
//!
//! **Consistency.** A read returns the words of exactly one [`Publication::publish`].
//!
//! Cost: a relaxed store for each word, and two for the version. Panics: none. `tests` has the loom
//! model.

use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

#[derive(Debug)]
#[repr(align(128))] // A pair of cache lines: the version of another worker is not beside it.
pub struct Publication {
    version: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Publication {
    /// Returns words that are all zero.
    pub fn new(words: usize) -> Publication {
        Publication {
            version: AtomicU64::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Publishes new words, exactly [`Publication::len`] of them; one thread only.
    pub fn publish(&self, words: impl IntoIterator<Item = u64>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: pairs with the Acquire fence of `try_read`. A reader that sees one of the
        // words below sees the odd version, too.
        fence(Ordering::Release);
        let (mut words, mut stored) = (words.into_iter(), 0);
        for (shared, word) in self.words.iter().zip(&mut words) {
            shared.store(word, Ordering::Relaxed);
            stored += 1;
        }
        debug_assert!(stored == self.words.len() && words.next().is_none(), "one value a word");
        // Release: pairs with the Acquire of `try_read`.
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the words of one instant.
    pub fn read(&self) -> Vec<u64> {
        let mut words = vec![0; self.words.len()];
        while !self.try_read(&mut words) {
            spin_loop();
        }
        words
    }

    /// Reads into `words`; returns false if they changed meanwhile and are invalid.
    fn try_read(&self, words: &mut [u64]) -> bool {
        // Acquire: pairs with the Release at the end of `publish`.
        let before = self.version.load(Ordering::Acquire);
        if before & 1 == 1 {
            return false;
        }
        for (word, shared) in words.iter_mut().zip(&self.words) {
            *word = shared.load(Ordering::Relaxed);
        }
        // Acquire fence: had a load above seen a newer word, the load below would see its odd
        // version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == before
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_reading_is_of_one_instant() {
        let publication = Publication::new(40);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200_000u64 {
                    publication.publish((0..40).map(|i| n + i));
                }
                stop.store(true, Ordering::Relaxed);
            });
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                let words = publication.read();
                // All zero before the first.
                let first = words[0];
                let even = words.iter().zip(0..).all(|(word, i)| *word == first + i);
                assert!(even || words.iter().all(|word| *word == 0), "{words:?}");
                assert!(first >= last);
                last = first;
            }
        });
        assert_eq!((publication.read()[0], publication.len()), (199_999, 40));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn publication_is_read_whole_or_not_at_all() {
        loom::model(|| {
            let publication = Arc::new(Publication::new(2));
            let writer = publication.clone();
            let thread = thread::spawn(move || {
                for n in 1..3 {
                    writer.publish([n, 10 * n]);
                }
            });
            let mut words = [0; 2];
            if publication.try_read(&mut words) {
                assert_eq!(words[1], 10 * words[0], "of one instant");
            }
            thread.join().unwrap();
            assert_eq!(publication.read(), [2, 20]);
        });
    }
}
