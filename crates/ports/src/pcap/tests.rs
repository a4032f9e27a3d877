use super::*;
use crate::{Limits, read_ethernet};
use std::path::Path;
use std::time::Duration;

/// Returns a capture of `count` frames, 1 ms apart, each of a different length.
fn write(path: &Path, count: usize) {
    let mut bytes: Vec<u8> = [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 262_144, 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for i in 0..count as u32 {
        for word in [100 + i / 1000, i % 1000 * 1_000_000, 60 + i, 60 + i] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(vec![i as u8; 60 + i as usize]);
    }
    std::fs::write(path, bytes).unwrap();
}

fn options(input: Option<&Path>, output: Option<&Path>, pace: bool) -> PcapOptions {
    PcapOptions { input: input.map(Into::into), output: output.map(Into::into), pace }
}

#[test]
fn frames_go_from_file_to_file_and_queue_0_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    write(&input, 100);
    let mut port = open(&options(Some(&input), Some(&output), false), "pcap:", 2).unwrap();
    let mut queues = port.take_queues();
    assert!(queues[1].receive.is_finished());
    assert!(queues[1].receive.receive().unwrap().is_empty());
    let (first, second) = queues.split_at_mut(1);
    let mut n = 0;
    while !first[0].receive.is_finished() {
        for frame in &first[0].receive.receive().unwrap() {
            second[0].transmit.send(frame).unwrap();
            n += 1;
        }
        second[0].transmit.flush().unwrap();
    }
    assert_eq!(n, 100);
    let bytes = (0..100).map(|i| 60 + i).sum();
    let sent = TransmitCounters { sent: 100, sent_bytes: bytes, lost: 0 };
    assert_eq!(second[0].transmit.counters(), sent);
    let (before, after) = (
        read_ethernet(&input, &Limits::default()).unwrap(),
        read_ethernet(&output, &Limits::default()).unwrap(),
    );
    assert!(before.iter().map(|f| f.data).eq(after.iter().map(|f| f.data)));
}

#[test]
fn paced_frames_are_never_early_and_all_come() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.pcap");
    write(&input, 50);
    let mut port = open(&options(Some(&input), None, true), "pcap:", 1).unwrap();
    let mut queue = port.take_queues().remove(0);
    let start = Instant::now();
    let mut n = 0u32;
    while !queue.receive.is_finished() {
        let got = queue.receive.receive().unwrap().len() as u32;
        // Asked after receiving, so that the test can only be too kind by its own delay.
        let elapsed = start.elapsed();
        n += got;
        assert!(n == 0 || elapsed >= Duration::from_millis(u64::from(n) - 1), "{n} {elapsed:?}");
    }
    assert_eq!(n, 50);
    assert_eq!(queue.transmit.send(&[0; 60]), Err(SendError::Down), "no output");
}

#[test]
fn a_broken_capture_gives_what_is_before_the_break() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.pcap");
    for pace in [false, true] {
        write(&input, 3);
        let bytes = std::fs::read(&input).unwrap();
        std::fs::write(&input, &bytes[..bytes.len() - 1]).unwrap();
        let mut port = open(&options(Some(&input), None, pace), "pcap:", 1).unwrap();
        let mut queue = port.take_queues().remove(0);
        let (mut frames, mut errors) = (0, 0);
        while !queue.receive.is_finished() {
            match queue.receive.receive() {
                Ok(got) => frames += got.len(),
                Err(error) => {
                    assert!(error.to_string().contains("truncated capture"), "{error}");
                    errors += 1;
                }
            }
        }
        assert_eq!((frames, errors), (2, 1));
    }
}

#[test]
fn cut_frames_are_errors_and_other_link_types_refused() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.pcap");
    write(&input, 5);
    let mut bytes = std::fs::read(&input).unwrap();
    // The original length of the first and the second frame.
    bytes[24 + 12] += 1;
    bytes[24 + 16 + 60 + 12] += 1;
    std::fs::write(&input, &bytes).unwrap();
    let mut port = open(&options(Some(&input), None, false), "pcap:", 1).unwrap();
    let mut queue = port.take_queues().remove(0);
    assert_eq!(queue.receive.receive().unwrap().len(), 3);
    assert_eq!(queue.receive.counters().errors, 2);
    bytes[20] = 101;
    std::fs::write(&input, &bytes).unwrap();
    let error = open(&options(Some(&input), None, false), "pcap:x", 1).err().unwrap();
    assert_eq!(error.to_string(), "pcap:x: a capture of raw IP (101), expected Ethernet");
}
