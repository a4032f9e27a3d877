//! What is written is read; any other bytes are refused.

use super::*;
use overbank::hash::mix;
use overbank_cluster::message::{Answered, Beat, Refusal, RequestId};
use overbank_cluster::table::Gpt;
use overbank_cluster::{Heard, Key, Memory, NodeId, Partition, SessionId, Settings};
use proptest::prelude::*;
use std::sync::Arc;

const PARTITIONS: u16 = 8;

fn member(node: u8) -> Member {
    Member { node: NodeId(node), incarnation: 7 }
}

fn key(nth: u64) -> Key {
    Key { hash: mix(nth) >> 3, full: u128::from(nth) << 70 | 1 }
}

fn settings() -> Settings {
    Settings { partitions: PARTITIONS, ..Settings::default() }
}

fn batch() -> Batch<Dense> {
    let keys = (0..500).map(|nth| (key(nth).hash, NodeId(nth as u8 % 16)));
    let mut writer = Dense::build(&settings(), 3, keys).expect("room");
    let image = Dense::image(&writer).expect("memory");
    let deltas = (0..500).filter_map(|nth| {
        Dense::insert(&mut writer, key(nth).hash, NodeId(nth as u8 % 7)).expect("room")
    });
    let deltas = deltas.collect();
    let keys: Arc<[Key]> = Arc::new([key(1), key(2)]);
    let session = SessionId(key(1).hash);
    let context: Arc<[u8]> = Arc::new([1, 2, 3]);
    let changes = vec![
        Change::Reserve { session, key: key(2) },
        Change::Place {
            session,
            from: None,
            to: member(3),
            keys: keys.clone(),
            context: context.clone(),
            born: 3,
        },
        Change::Move { session, from: member(3), to: member(4), keys, context },
        Change::Route { session, key: key(2), version: 9, to: Some(member(4)) },
        Change::Release { hash: u64::MAX },
        Change::Remove { session, at: member(4) },
    ];
    Batch {
        epoch: 3,
        owner: member(1),
        changes,
        deltas,
        digests: vec![(7, u64::MAX)],
        image: Some(image),
    }
}

fn messages() -> Vec<Message> {
    let session = SessionId(key(1).hash);
    let request = RequestId { at: NodeId(3), number: u64::MAX };
    let mut all = vec![
        Message::Beat(Arc::new(Beat {
            sent: 5,
            membership: 6,
            applied: (0..64).collect(),
            owned: vec![(Partition(3), 77)],
            digests: vec![(Partition(3), 77, 9, u64::MAX)],
            caught_up: true,
            draining: false,
            sessions: 8,
            room: u32::MAX,
        })),
        Message::Confirm { sent: 1, membership: 2 },
        Message::Answer { request, answer: Ok(Answered::Done) },
        Message::Handover(vec![(session, 4); 100], vec![[5; 6]; 100]),
        Message::Checkpoint(vec![(session, 4); 100], vec![[u64::MAX; 6]; 100]),
        Message::Conflict { session, hash: 9, cause: Refusal::KeyResting },
    ];
    all.extend(Refusal::ALL.map(|why| Message::Answer { request, answer: Err(why) }));
    all
}

#[test]
fn what_is_written_is_read() {
    let batch = batch();
    let bytes = of_batch(12, &batch).expect("bytes");
    let (sequence, read) = to_batch(&bytes, PARTITIONS).expect("a batch");
    assert_eq!((sequence, read.epoch, read.owner), (12, batch.epoch, batch.owner));
    assert_eq!((&read.changes, &read.deltas), (&batch.changes, &batch.deltas));
    assert!(read.image == batch.image && read.digests == batch.digests);
    assert_eq!(of_batch(12, &read).expect("bytes"), bytes);
    for message in messages() {
        let bytes = of_message(member(2), &message).expect("bytes");
        assert_eq!(to_message(&bytes).expect("a message"), (member(2), message));
    }
}

#[test]
fn a_table_from_bytes_answers_as_before() {
    let (_, read) = to_batch(&of_batch(1, &batch()).expect("bytes"), PARTITIONS).expect("a batch");
    let mut copy = Dense::empty();
    copy.load(&read.image.expect("one")).expect("memory");
    copy.apply(&read.deltas).expect("they follow");
    let as_made = |nth: u64| copy.lookup(key(nth).hash) == NodeId(nth as u8 % 7);
    assert!((0..500).all(as_made));
}

#[test]
fn snapshots_are_read_as_they_are_written() {
    let mut memory = Memory::<Dense>::new(settings(), 1);
    let mut heard = Vec::new();
    (1..40).for_each(|beat| memory.advance(beat * 50_000, &mut heard));
    for nth in 0..200 {
        let keys = Arc::new([key(nth), key(nth | 1 << 40)]);
        let request = overbank_cluster::message::Request::Establish {
            keys,
            context: Arc::new([9; 40]),
            to: None,
        };
        memory.request(NodeId(0), nth, request);
    }
    (40..60).for_each(|beat| memory.advance(beat * 50_000, &mut heard));
    assert!(heard.iter().any(|heard| matches!(heard, Heard::Answer(_, Ok(_)))));
    let node = memory.node(NodeId(0)).expect("it runs");
    let image = batch().image.expect("one");
    let mut sessions = 0;
    for (partition, rib) in node.reigns() {
        let sequence = node.applied(partition);
        let snapshot =
            Snapshot::<Dense> { sequence, epoch: 3, rib: rib.clone(), image: image.clone() };
        let bytes = of_snapshot(&snapshot, 99).expect("bytes");
        let (read, position) = to_snapshot(&bytes, PARTITIONS).expect("a snapshot");
        assert_eq!((read.sequence, read.epoch, position), (sequence, 3, 99));
        assert!(read.rib == snapshot.rib && read.image == snapshot.image);
        assert_eq!(of_snapshot(&read, 99).expect("bytes"), bytes);
        sessions += rib.sessions.len();
    }
    assert_eq!(sessions, 200);
}

#[test]
fn cut_bytes_are_refused() {
    let batch = of_batch(12, &batch()).expect("bytes");
    for len in (0..batch.len()).step_by(7) {
        assert!(to_batch(&batch[..len], PARTITIONS).is_err(), "{len}");
    }
    let mut longer = batch.clone();
    longer.push(0);
    assert!(matches!(to_batch(&longer, PARTITIONS), Err(BytesError::TooLong(1))));
    let mut newer = batch;
    newer[0] = 2;
    assert!(matches!(to_batch(&newer, PARTITIONS), Err(BytesError::Version(Some(2)))));
    assert!(matches!(to_message(&[]), Err(BytesError::Version(None))));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let with_version = [&[VERSION], &noise[..]].concat();
        let mut flipped = of_batch(12, &batch()).expect("bytes");
        for (at, byte) in &flips {
            let at = at.index(flipped.len());
            flipped[at] = *byte;
        }
        for bytes in [&noise, &with_version, &flipped] {
            let _ = to_batch(bytes, PARTITIONS);
            let _ = to_snapshot(bytes, PARTITIONS);
            let _ = to_message(bytes);
        }
        for message in messages() {
            let mut bytes = of_message(member(2), &message).expect("bytes");
            for (at, byte) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let _ = to_message(&bytes);
        }
    }
}
