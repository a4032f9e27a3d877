use super::*;
use crate::looped::{MemoryHandle, MemoryOptions, MemoryPort};

/// A port that receives `count` different frames, and keeps what is sent.
fn memory(count: u32) -> (Box<dyn Port>, MemoryHandle) {
    let options = MemoryOptions {
        flows: count,
        limit: Some(count.into()),
        keep: 2 * count as usize,
        ..MemoryOptions::default()
    };
    let port = MemoryPort::open(&options, "memory:", 1).unwrap();
    let handle = port.handle();
    (Box::new(port), handle)
}

fn through(options: &FaultOptions, count: u32) -> (Vec<Vec<u8>>, FaultCounters) {
    let mut port = FaultPort::new(memory(count).0, options);
    let mut queue = port.take_queues().remove(0);
    let mut out = Vec::new();
    while !queue.receive.is_finished() {
        out.extend(queue.receive.receive().unwrap().iter().map(|f| f.to_vec()));
    }
    (out, port.counters())
}

fn plain(count: u32) -> Vec<Vec<u8>> {
    through(&FaultOptions::default(), count).0
}

const N: u32 = 20_000;

/// Asserts a count within six standard deviations of a binomial one.
fn expected(count: u64, probability: f64) -> bool {
    let n = f64::from(N);
    let deviation = (n * probability * (1.0 - probability)).sqrt();
    (count as f64 - n * probability).abs() <= 6.0 * deviation
}

#[test]
fn without_faults_nothing_changes() {
    let (out, counters) = through(&FaultOptions::default(), N);
    assert_eq!(counters, FaultCounters { frames: N.into(), ..FaultCounters::default() });
    assert_eq!(out.len(), N as usize);
    let source = |frame: &Vec<u8>| u32::from_be_bytes(frame[26..30].try_into().unwrap());
    assert!(out.iter().enumerate().all(|(i, frame)| source(frame) == 0x0a00_0000 + i as u32));
}

#[test]
fn each_fault_happens_as_often_as_asked() {
    let before = plain(N);
    let loss = FaultOptions { loss: 0.1, ..FaultOptions::default() };
    let (out, c) = through(&loss, N);
    assert!(expected(c.lost, 0.1), "{c:?}");
    assert_eq!(out.len() as u64, u64::from(N) - c.lost);
    assert!(out.windows(2).all(|w| w[0][26..30] < w[1][26..30]), "the others keep their order");

    let corrupt = FaultOptions { corrupt: 0.05, ..FaultOptions::default() };
    let (out, c) = through(&corrupt, N);
    assert!(expected(c.corrupted, 0.05), "{c:?}");
    let bits = |(a, b): (&Vec<u8>, &Vec<u8>)| -> u32 {
        a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
    };
    let changed: Vec<u32> = before.iter().zip(&out).map(bits).filter(|&n| n > 0).collect();
    assert_eq!(changed.len() as u64, c.corrupted);
    assert!(changed.iter().all(|&n| n == 1), "one bit each");

    let duplicate = FaultOptions { duplicate: 0.2, ..FaultOptions::default() };
    let (mut out, c) = through(&duplicate, N);
    assert!(expected(c.duplicated, 0.2), "{c:?}");
    assert_eq!(out.len() as u64, u64::from(N) + c.duplicated);
    out.dedup();
    assert!(out == before, "the second right behind the first");

    let reorder = FaultOptions { reorder: 0.1, ..FaultOptions::default() };
    let (out, c) = through(&reorder, N);
    assert!(expected(c.reordered, 0.1), "{c:?}");
    let place = |frame: &Vec<u8>| u32::from_be_bytes(frame[26..30].try_into().unwrap());
    let mut late = 0;
    let mut last = 0;
    for (i, frame) in out.iter().enumerate() {
        let at = (place(frame) - 0x0a00_0000) as usize;
        // Some of those that overtake are held back themselves.
        assert!(at.abs_diff(i) <= 4 * OVERTAKEN_MAX as usize, "{at} at {i}");
        late += u64::from(at < last);
        last = last.max(at);
    }
    assert!(late > c.reordered * 8 / 10 && late <= c.reordered, "{late} of {}", c.reordered);
    let mut sorted = out;
    sorted.sort_by_key(place);
    assert!(sorted == before, "all of them, each once");
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
    let all = FaultOptions {
        loss: 0.05,
        corrupt: 0.05,
        reorder: 0.05,
        duplicate: 0.05,
        seed: 42,
        on: FaultOn::In,
    };
    let first = through(&all, N);
    assert!(first == through(&all, N));
    assert!(first.0 != through(&FaultOptions { seed: 43, ..all }, N).0);
    // Pinned, so that a change of the generator is seen.
    let FaultCounters { lost, corrupted, reordered, duplicated, .. } = first.1;
    assert_eq!([lost, corrupted, reordered, duplicated], [1000, 972, 905, 937]);
    // A fault switched off does not move the others.
    let (_, without) = through(&FaultOptions { reorder: 0.0, ..all }, N);
    assert_eq!((without.lost, without.corrupted), (lost, corrupted));
}

#[test]
fn faults_on_the_way_out() {
    let (port, handle) = memory(1000);
    let options = FaultOptions {
        loss: 0.1,
        reorder: 0.2,
        duplicate: 0.1,
        on: FaultOn::Out,
        ..FaultOptions::default()
    };
    let mut port = FaultPort::new(port, &options);
    let mut queue = port.take_queues().remove(0);
    let before = plain(1000);
    for burst in before.chunks(5) {
        for frame in burst {
            queue.transmit.send(frame).unwrap();
        }
        queue.transmit.flush().unwrap();
    }
    queue.transmit.flush().unwrap();
    let out = handle.take_sent();
    let c = port.counters();
    assert_eq!(out.len() as u64, 1000 - c.lost + c.duplicated);
    assert!(c.lost > 0 && c.duplicated > 0 && c.reordered > 0);
    assert!(!out.is_sorted());
    let mut rest = out.clone();
    rest.sort();
    rest.dedup();
    assert_eq!(rest.len() as u64, 1000 - c.lost, "nothing stays behind");
    let told = queue.transmit.counters();
    assert_eq!((told.sent, told.lost), (1000 - c.lost, c.lost), "each once");
    // In the other direction nothing happens.
    assert_eq!(queue.receive.receive().unwrap().len(), BURST);
    assert_eq!(port.counters().frames, 1000);
}

/// A queue that refuses some frames at once and loses some later.
struct Picky {
    number: u64,
    waiting: Vec<u64>,
    counters: TransmitCounters,
}

impl Transmit for Picky {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.number += 1;
        if self.number % 5 == 2 {
            return Err(SendError::Full);
        }
        self.waiting.push(frame.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        // The last one always waits for the next time.
        for len in self.waiting.drain(..self.waiting.len().saturating_sub(1)) {
            self.number += 1;
            if self.number % 7 == 3 {
                self.counters.lost += 1;
            } else {
                self.counters.sent += 1;
                self.counters.sent_bytes += len;
            }
        }
        Ok(())
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}

#[test]
fn the_account_of_the_sender_closes_whatever_happens_on_the_way_out() {
    let faults = FaultOptions {
        loss: 0.1,
        reorder: 0.2,
        duplicate: 0.2,
        on: FaultOn::Out,
        ..FaultOptions::default()
    };
    let line = Line::new(&faults, 0, true, &Arc::default());
    let inner = Picky { number: 0, waiting: Vec::new(), counters: TransmitCounters::default() };
    let mut transmit = FaultTransmit {
        inner: Box::new(inner),
        line,
        fresh: false,
        refused: 0,
        told: TransmitCounters::default(),
    };
    let (mut taken, mut before) = (0, TransmitCounters::default());
    let mut look = |transmit: &mut FaultTransmit, taken: u64| {
        let now = transmit.counters();
        assert!(now.sent + now.lost <= taken, "{now:?} of {taken}");
        assert!(now.sent >= before.sent && now.lost >= before.lost, "{before:?} {now:?}");
        assert!(now.sent_bytes >= before.sent_bytes);
        before = now;
        now
    };
    for frame in plain(2000) {
        taken += u64::from(transmit.send(&frame).is_ok());
        look(&mut transmit, taken);
        if taken % 9 == 0 {
            transmit.flush().unwrap();
            look(&mut transmit, taken);
        }
    }
    assert!(taken < 2000, "some are refused");
    for _ in 0..4 {
        transmit.flush().unwrap();
    }
    let told = look(&mut transmit, taken);
    // One waits for ever.
    assert_eq!(told.sent + told.lost + 1, taken);
    assert!(told.sent > told.lost && told.lost > 200, "{told:?}");
}
