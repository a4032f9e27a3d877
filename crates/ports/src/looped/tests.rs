use super::*;
use std::collections::HashMap;

fn all(queue: &mut Queue, most: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while frames.len() < most && !queue.receive.is_finished() {
        let burst = queue.receive.receive().unwrap();
        assert!(burst.len() <= BURST);
        frames.extend(burst.iter().map(|f| f.to_vec()));
    }
    frames
}

#[test]
fn queues_share_the_frames_by_flow_and_keep_their_order() {
    let options =
        MemoryOptions { flows: 1000, size: 64, limit: Some(2345), ..MemoryOptions::default() };
    for queues in [1, 2, 3] {
        let mut port = MemoryPort::open(&options, "memory:", queues).unwrap();
        let mut taken = port.take_queues();
        assert_eq!(taken.len(), queues);
        assert!(port.take_queues().is_empty());
        let mut seen = HashMap::new();
        let mut total = 0;
        for (q, queue) in taken.iter_mut().enumerate() {
            let frames = all(queue, usize::MAX);
            assert!(frames.len() > 2345 / queues / 2, "shared out evenly, more or less");
            let sources = |f: &[u8]| u32::from_be_bytes(f[26..30].try_into().unwrap());
            for frame in &frames {
                assert_eq!(*seen.entry(sources(frame)).or_insert(q), q, "a flow has one queue");
                assert_eq!(frame.len(), 64);
            }
            let again = frames.windows(2).filter(|w| sources(&w[0]) >= sources(&w[1])).count();
            assert_eq!(again, 2, "in order, three times");
            total += frames.len();
        }
        assert_eq!((total, seen.len()), (2345, 1000));
    }
}

#[test]
fn injected_frames_come_in_the_queue_of_their_flow() {
    let mut port = MemoryPort::open(&MemoryOptions::default(), "memory:", 2).unwrap();
    let handle = port.handle();
    let frames: Vec<_> = (0..100).map(|flow| udp_frame(flow, 60)).collect();
    assert!(frames.iter().all(|frame| handle.inject(frame)));
    let mut got = Vec::new();
    for (q, queue) in port.take_queues().iter_mut().enumerate() {
        assert!(!queue.receive.is_finished());
        for _ in 0..10 {
            for frame in &queue.receive.receive().unwrap() {
                assert_eq!(flow_hash(frame) % 2, q as u64);
                got.push(frame.to_vec());
            }
        }
    }
    got.sort_by_key(|frame| frame[26..30].to_vec());
    assert!(got == frames, "each once");
    while handle.inject(&frames[0]) {}
    assert!(handle.inject(&frames[1]) || handle.inject(&frames[2]), "one queue is full");
}

#[test]
fn sent_frames_are_counted_and_the_last_kept() {
    let options = MemoryOptions { keep: 3, ..MemoryOptions::default() };
    let mut port = MemoryPort::open(&options, "memory:", 1).unwrap();
    let mut queue = port.take_queues().remove(0);
    for flow in 0..50 {
        queue.transmit.send(&udp_frame(flow, 60)).unwrap();
    }
    assert_eq!(queue.transmit.send(&[0; 1515]), Err(SendError::TooLong));
    queue.transmit.flush().unwrap();
    let counters = queue.transmit.counters();
    assert_eq!(counters, TransmitCounters { sent: 50, sent_bytes: 3000, lost: 0 });
    let kept = port.handle().take_sent();
    assert_eq!(kept, (47..50).map(|flow| udp_frame(flow, 60)).collect::<Vec<_>>());
    assert!(port.handle().take_sent().is_empty());
}

#[test]
fn a_missing_capture_is_named() {
    let file = Some(PathBuf::from("/nowhere/in.pcap"));
    let options = MemoryOptions { file, ..MemoryOptions::default() };
    let error = MemoryPort::open(&options, "memory:file=/nowhere/in.pcap", 1).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("cannot open the capture") && !text.contains('\n'), "{text}");
}
