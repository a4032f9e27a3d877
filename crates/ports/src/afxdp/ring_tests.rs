//! Rings against a naive twin, the kernel's side played in plain memory.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A ring in memory of our own, with the kernel's side of it.
struct Memory {
    producer: Box<AtomicU32>,
    consumer: Box<AtomicU32>,
    flags: Box<AtomicU32>,
    entries: Box<[u64]>,
}

impl Memory {
    /// Returns an empty ring whose indices begin at `start`.
    fn new(size: u32, start: u32) -> Memory {
        Memory {
            producer: Box::new(AtomicU32::new(start)),
            consumer: Box::new(AtomicU32::new(start)),
            flags: Box::new(AtomicU32::new(0)),
            entries: vec![u64::MAX; size as usize].into(),
        }
    }

    fn parts(&mut self) -> Parts<u64> {
        Parts {
            producer: NonNull::from(&*self.producer),
            consumer: NonNull::from(&*self.consumer),
            flags: NonNull::from(&*self.flags),
            entries: NonNull::from(&mut self.entries[0]),
            size: self.entries.len() as u32,
        }
    }

    fn slot(&self, index: u32) -> *mut u64 {
        let at = index as usize % self.entries.len();
        (&raw const self.entries[at]).cast_mut()
    }

    /// Plays the kernel: takes an entry of a ring that we fill.
    fn take(&self) -> Option<u64> {
        let (head, tail) =
            (self.producer.load(Ordering::Acquire), self.consumer.load(Ordering::Relaxed));
        if head == tail {
            return None;
        }
        // SAFETY: a slot of our own; the other side does not touch it between publish and take.
        let value = unsafe { self.slot(tail).read_volatile() };
        self.consumer.store(tail.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Plays the kernel: puts an entry into a ring that we read.
    fn put(&self, value: u64) -> bool {
        let (head, tail) =
            (self.producer.load(Ordering::Relaxed), self.consumer.load(Ordering::Acquire));
        if head.wrapping_sub(tail) as usize == self.entries.len() {
            return false;
        }
        // SAFETY: a slot of our own that the other side gave back.
        unsafe { self.slot(head).write_volatile(value) };
        self.producer.store(head.wrapping_add(1), Ordering::Release);
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Publish,
    KernelTakes(u8),
}

#[derive(Clone, Debug)]
enum ReadStep {
    KernelPuts(u8),
    Pop(u8),
    Release,
}

/// Starts near the wrap, so that indices cross it.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0u32), (0u32..40).prop_map(|back| 0u32.wrapping_sub(back)), any::<u32>()]
}

proptest! {
    #[test]
    fn a_producer_agrees_with_a_queue(
        start in start(),
        bits in 0u32..5,
        steps in prop::collection::vec(prop_oneof![
            4 => Just(Step::Push),
            1 => Just(Step::Publish),
            2 => (0u8..9).prop_map(Step::KernelTakes),
        ], 0..300),
    ) {
        let size = 1u32 << bits;
        let mut memory = Memory::new(size, start);
        // SAFETY: the memory outlives the ring, and its size is a power of two.
        let mut ring = unsafe { Producer::new(memory.parts()) };
        let (mut visible, mut hidden) = (VecDeque::new(), VecDeque::new());
        let mut taken = start;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push => {
                    let room = visible.len() + hidden.len() < size as usize;
                    prop_assert_eq!(ring.push(number as u64), room);
                    if room {
                        hidden.push_back(number as u64);
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(ring.publish(), !hidden.is_empty());
                    visible.append(&mut hidden);
                    let end = taken.wrapping_add(visible.len() as u32);
                    prop_assert_eq!(ring.published(), end);
                    for (i, value) in visible.iter().enumerate() {
                        prop_assert_eq!(ring.entry(taken.wrapping_add(i as u32)), *value);
                    }
                    if let Some(last) = visible.back_mut() {
                        *last += 1 << 32;
                        ring.replace(end.wrapping_sub(1), *last);
                    }
                }
                Step::KernelTakes(count) => for _ in 0..count {
                    let value = memory.take();
                    prop_assert_eq!(value, visible.pop_front());
                    taken = taken.wrapping_add(u32::from(value.is_some()));
                    prop_assert_eq!(ring.consumed(), taken);
                }
            }
        }
    }

    #[test]
    fn a_consumer_agrees_with_a_queue(
        start in start(),
        bits in 0u32..5,
        steps in prop::collection::vec(prop_oneof![
            (0u8..9).prop_map(ReadStep::KernelPuts),
            (0u8..9).prop_map(ReadStep::Pop),
            Just(ReadStep::Release),
        ], 0..300),
    ) {
        let size = 1u32 << bits;
        let mut memory = Memory::new(size, start);
        // SAFETY: the memory outlives the ring, and its size is a power of two.
        let mut ring = unsafe { Consumer::new(memory.parts()) };
        // `kept` were popped and not released: their slots are not free.
        let (mut waiting, mut kept, mut number) = (VecDeque::new(), 0, 0u64);
        for step in steps {
            match step {
                ReadStep::KernelPuts(count) => for _ in 0..count {
                    let room = waiting.len() + kept < size as usize;
                    prop_assert_eq!(memory.put(number), room);
                    if room {
                        waiting.push_back(number);
                    }
                    number += 1;
                },
                ReadStep::Pop(count) => for _ in 0..count {
                    let value = ring.pop();
                    prop_assert_eq!(value, waiting.pop_front());
                    kept += usize::from(value.is_some());
                },
                ReadStep::Release => {
                    ring.release();
                    kept = 0;
                }
            }
        }
    }

    #[test]
    fn no_index_of_the_other_side_leads_outside(
        ours in any::<u32>(),
        theirs in any::<u32>(),
        bits in 0u32..5,
    ) {
        let mut memory = Memory::new(1 << bits, ours);
        // SAFETY: the memory outlives the rings, and its size is a power of two.
        let (mut producer, mut consumer) =
            unsafe { (Producer::new(memory.parts()), Consumer::new(memory.parts())) };
        memory.consumer.store(theirs, Ordering::Release);
        memory.producer.store(theirs, Ordering::Release);
        for _ in 0..100 {
            producer.push(7);
            consumer.pop();
        }
        producer.publish();
        consumer.release();
    }
}

#[test]
fn a_ring_is_shared_with_a_thread() {
    const FRAMES: u64 = 200_000;
    let mut there = Memory::new(64, u32::MAX - 1000);
    let mut back = Memory::new(64, u32::MAX - 5000);
    // SAFETY: the memory outlives the rings: the threads end before the scope does.
    let (mut out, mut home) =
        unsafe { (Producer::new(there.parts()), Consumer::new(back.parts())) };
    std::thread::scope(|scope| {
        let (there, back) = (&there, &back);
        // The kernel's side: what comes goes back.
        scope.spawn(move || {
            let mut expected = 0;
            while expected < FRAMES {
                let Some(value) = there.take() else {
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!(value, expected);
                expected += 1;
                while !back.put(value) {
                    std::thread::yield_now();
                }
            }
        });
        let (mut sent, mut received) = (0, 0);
        while received < FRAMES {
            while sent < FRAMES && sent - received < 100 && out.push(sent) {
                sent += 1;
            }
            out.publish();
            let before = received;
            while let Some(value) = home.pop() {
                assert_eq!(value, received);
                received += 1;
            }
            home.release();
            if before == received {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn the_flag_is_read() {
    let mut memory = Memory::new(4, 0);
    // SAFETY: the memory outlives the ring, and its size is a power of two.
    let ring = unsafe { Producer::<u64>::new(memory.parts()) };
    assert!(!ring.needs_wakeup());
    memory.flags.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(ring.needs_wakeup());
}
