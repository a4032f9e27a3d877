//! Numbers that one thread writes and any thread reads, all of one instant.
//!
//! ```text
//!   worker: plain numbers, no atomics on the packet path
//!      │  every few milliseconds, when idle, at the end
//!      ▼
//!   Published: version │ head │ item 0 │ item 1 │ …    words; odd version: being written
//! ```
//!
//! A sequence lock: the writer never waits; a reader that met a write reads again. So accounts that
//! close in the writer's numbers close in every reading. Cost: one relaxed store for each word.
//! Panics: none.

use crate::counters::Counters;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};
use std::marker::PhantomData;

/// The numbers of one worker: one `Head`, and an `Item` for each port, say.
#[repr(align(128))]
pub struct Published<Head, Item> {
    version: AtomicU64,
    words: Box<[AtomicU64]>,
    of: PhantomData<fn() -> (Head, Item)>,
}

impl<Head: Counters, Item: Counters> Published<Head, Item> {
    /// Returns numbers that are all 0, with this many items.
    pub fn new(items: usize) -> Published<Head, Item> {
        let words = Head::WORDS + items * Item::WORDS;
        Published {
            version: AtomicU64::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            of: PhantomData,
        }
    }

    /// Shows new numbers. One thread only: two writers could show a mixture.
    pub fn publish(&self, head: &Head, items: &[Item]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: pairs with the Acquire fence of `read`.
        fence(Ordering::Release);
        let mut shared = self.words.iter();
        let mut put = |word| {
            if let Some(shared) = shared.next() {
                shared.store(word, Ordering::Relaxed);
            }
        };
        head.put(&mut put);
        items.iter().for_each(|item| item.put(&mut put));
        // Release: pairs with the Acquire of `read`.
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the numbers as they were at one instant.
    pub fn read(&self) -> (Head, Vec<Item>) {
        let mut words = vec![0; self.words.len()];
        loop {
            let before = self.version.load(Ordering::Acquire);
            if before & 1 == 0 {
                for (word, shared) in words.iter_mut().zip(&self.words) {
                    *word = shared.load(Ordering::Relaxed);
                }
                // Acquire fence: had a load above seen a newer word, the load below would see its
                // odd version.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    break;
                }
            }
            spin_loop();
        }
        let (head, items) = words.split_at(Head::WORDS);
        let items = items.chunks_exact(Item::WORDS).map(Item::from_words);
        (Head::from_words(head), items.collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    crate::counters! {
        /// For the test.
        struct Worker: "test_" {
            rounds: counter rounds "Rounds";
        }
    }

    crate::counters! {
        /// For the test.
        struct Port: "test_" {
            received: counter packets "Frames received";
            forwarded: counter packets "Frames forwarded";
            dropped: counter packets "Frames dropped";
        }
    }

    #[test]
    fn every_reading_is_of_one_instant() {
        let published = Published::<Worker, Port>::new(3);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200_000u64 {
                    let port = Port { received: 3 * n, forwarded: n, dropped: 2 * n };
                    published.publish(&Worker { rounds: n }, &[port; 3]);
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let mut last = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (worker, ports) = published.read();
                assert!(worker.rounds >= last);
                last = worker.rounds;
                assert_eq!(ports.len(), 3);
                for port in ports {
                    assert_eq!(port.received, port.forwarded + port.dropped);
                    assert_eq!(port.forwarded, worker.rounds);
                }
            }
        });
        assert_eq!(published.read().0.rounds, 199_999);
    }
}
