//! Images and batches of deltas: what is written is read, and nothing else is.

use std::fs;
use std::path::Path;

use super::*;
use crate::memory::Pages;
use crate::partition::shape::Place;

/// A table that has moved, grown and reseeded groups, and its map.
fn changed(row: RowBits, bits: usize) -> (Writer, BTreeMap<u64, u8>) {
    let config = Config::new(20_000, bits).row(row).growing(60_000, 2).generation(7).seed(99);
    let mut map: BTreeMap<u64, u8> = entries(20_000, bits).collect();
    let (mut writer, _) = Writer::build(&config, entries(20_000, bits)).unwrap();
    for i in 19_000..30_000 {
        let (hash, value) = (mix(i), value(i ^ 5, bits));
        writer.insert(hash, value).unwrap();
        map.insert(hash, value);
    }
    (writer, map)
}

fn load(path: &Path, isa: Isa) -> Result<Replica, PartitionImageError> {
    Replica::load(path, Some(isa), Pages::Small)
}

#[test]
fn an_image_is_the_table_and_follows_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    for (row, bits) in
        [RowBits::R64, RowBits::R128].into_iter().flat_map(|r| (1..=8).map(move |b| (r, b)))
    {
        let (mut writer, mut map) = changed(row, bits);
        writer.save(&first).unwrap();
        let mut copies: Vec<Replica> =
            Isa::available().map(|isa| load(&first, isa).unwrap()).collect();
        for i in 29_000..35_000 {
            let (hash, value) = (mix(i), value(i ^ 9, bits));
            map.insert(hash, value);
            let Some(delta) = writer.insert(hash, value).unwrap() else { continue };
            copies.iter_mut().for_each(|copy| copy.apply(&delta).unwrap());
        }
        for copy in &copies {
            check(&copy.reader(), &map);
            assert_eq!((copy.generation(), copy.seed(), copy.keys()), (7, 99, 30_000));
            assert_eq!(copy.sequence(), writer.sequence());
            copy.save(&first).unwrap();
            load(&first, Isa::Portable).unwrap().save(&second).unwrap();
            assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());
        }
    }
}

#[test]
fn keys_of_the_fallback_are_in_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let hash = |i: u64| i << 11 | 5;
    let map: BTreeMap<u64, u8> = (0..200).map(|i| (hash(i), (i % 4) as u8)).collect();
    let (writer, stats) = Writer::build(&Config::new(10_000, 2), map.clone()).unwrap();
    assert_eq!(stats.fallback, 200);
    writer.save(&path).unwrap();
    let copy = load(&path, Isa::Portable).unwrap();
    assert_eq!(copy.reader().fallback_len(), 200);
    check(&copy.reader(), &map);
}

#[test]
fn damaged_truncated_and_foreign_images_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bad) = (dir.path().join("image"), dir.path().join("bad"));
    let (writer, _) =
        Writer::build(&Config::new(200, 2).row(RowBits::R64), entries(200, 2)).unwrap();
    writer.save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        let error = load(&bad, Isa::Portable).map(|_| ()).expect_err("refused").to_string();
        assert!(error.lines().count() == 1 && error.contains("bad"), "{error}");
        error
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes);
    }
    for len in 0..whole.len() {
        refused(&whole[..len]);
    }
    assert!(refused(&[&whole[..], &[0]].concat()).contains("its header says"));
    assert!(refused(&[&b"OVBKFIB\n"[..], &whole[8..]].concat()).contains("not an image of a part"));
    assert!(load(&dir.path().join("none"), Isa::Portable).is_err());
    assert!(load(dir.path(), Isa::Portable).is_err());
    assert!(writer.save(dir.path().join("no/folder")).is_err());
    load(&path, Isa::Portable).unwrap();
}

/// Everything that a writer publishes, in batches.
#[test]
fn deltas_come_back_from_their_bytes() {
    for (row, move_bytes) in [(RowBits::R64, 15), (RowBits::R128, 23)] {
        let (mut writer, mut map) = changed(row, 3);
        let (mut copy, mut batch) = (writer.replica().unwrap(), Vec::new());
        let mut kinds = [0; 4];
        for i in 0..9000 {
            let (hash, value) = (mix(i % 7000 + 28_000), value(i * 3, 3));
            map.insert(hash, value);
            if let Some(delta) = writer.insert(hash, value).unwrap() {
                let kind = match &delta.change {
                    Change::Move { .. } => 0,
                    Change::Groups { .. } => 1,
                    Change::Block(_) => 2,
                    Change::Partition(_) => 3,
                };
                kinds[kind] += 1;
                assert!(kind != 0 || delta.bytes() == move_bytes);
                batch.push(delta);
            }
            if i % 2000 == 0 {
                batch.push(writer.republish(1, 0).unwrap());
                kinds[2] += 1;
            }
            if batch.len() > 100 {
                let bytes = Delta::encode(&batch).unwrap();
                assert_eq!(bytes.len(), 56 + batch.iter().map(Delta::bytes).sum::<usize>());
                let decoded = Delta::decode(&bytes).unwrap();
                assert_eq!(decoded, batch);
                decoded.iter().for_each(|delta| copy.apply(delta).unwrap());
                batch.clear();
            }
        }
        batch.iter().for_each(|delta| copy.apply(delta).unwrap());
        assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
        check(&copy.reader(), &map);
        for (partition, block) in [(0, 0), (1, 0)] {
            let digest = writer.reader().digest(partition, block);
            assert!(digest.is_some() && digest == copy.reader().digest(partition, block));
        }
        assert!(writer.republish(2, 0).is_none() && writer.republish(0, 1 << 30).is_none());
    }
}

#[test]
fn damaged_batches_are_refused() {
    let (mut writer, _) = changed(RowBits::R128, 2);
    let mut deltas: Vec<Delta> =
        (0..5).map(|i| writer.insert(mix(90_000 + i), 1).unwrap().unwrap()).collect();
    deltas.push(writer.insert(mix(90_000), 2).unwrap().unwrap());
    let whole = Delta::encode(&deltas).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(Delta::decode(&bytes).is_err(), "byte {at}");
        assert!(Delta::decode(&whole[..at]).is_err(), "{at} bytes");
    }
    assert!(matches!(Delta::decode(&[&whole[..], &[0]].concat()), Err(BatchError::Length { .. })));
    assert_eq!(Delta::decode(b"OVBKFIB\n"), Err(BatchError::Magic));
    assert_eq!(Delta::encode(&[]), Err(BatchError::Mixed));
    assert_eq!(Delta::encode(&[deltas[0].clone(), deltas[2].clone()]), Err(BatchError::Mixed));

    // Right checksums, wrong numbers.
    let last = deltas.last().unwrap();
    let sequence = last.sequence;
    let with = |change: Change| {
        let bytes = Delta::encode(&[Delta { change, ..last.clone() }]).unwrap();
        assert_eq!(Delta::decode(&bytes), Err(BatchError::Delta { sequence }));
    };
    let groups = last.form.groups;
    with(Change::Move { group: groups, planes: 1, correction: [0; 2] });
    with(Change::Move { group: 0, planes: 4, correction: [0; 2] });
    let (none, words) = (Vec::new, std::vec![0; last.form.group_words()]);
    let change = |turns, groups, fallback| Change::Groups { turns, groups, fallback };
    with(change(std::vec![2048], std::vec![], none()));
    with(change(std::vec![], std::vec![(groups, words.clone())], none()));
    with(change(std::vec![], std::vec![], std::vec![(1, 4)]));
    with(Change::Partition(Vec::new()));
    let form = |form| Delta::decode(&Delta::encode(&[Delta { form, ..last.clone() }]).unwrap());
    let wrong = crate::partition::shape::Form { planes: 9, ..last.form };
    assert_eq!(form(wrong), Err(BatchError::Numbers));
}

#[test]
fn deltas_of_others_are_refused_by_name() {
    let build = |generation, bits| {
        let config = Config::new(300, bits).generation(generation);
        Writer::build(&config, entries(200, 1)).unwrap().0
    };
    let mut writer = build(1, 2);
    let mut copy = writer.replica().unwrap();
    let [first, second] = [1, 2].map(|i| writer.insert(mix(1000 + i), 1).unwrap().unwrap());
    let other = build(2, 2).insert(mix(1001), 1).unwrap().unwrap();
    assert_eq!(copy.apply(&other), Err(DeltaError::Generation { found: 2, expected: 1 }));
    let other = build(1, 3).insert(mix(1001), 1).unwrap().unwrap();
    assert_eq!(copy.apply(&other), Err(DeltaError::Shape { sequence: 1 }));
    let nowhere = Delta { place: Place::new(0, 1), ..first.clone() };
    assert_eq!(copy.apply(&nowhere), Err(DeltaError::Shape { sequence: 1 }));
    let nowhere = Delta { place: Place::new(1, 0), ..first.clone() };
    assert_eq!(copy.apply(&nowhere), Err(DeltaError::Shape { sequence: 1 }));
    assert_eq!(copy.apply(&second), Err(DeltaError::Sequence { found: 2, expected: 1 }));
    let twice = [first.clone(), first.clone()];
    assert_eq!(copy.apply_all(&twice), Err(DeltaError::Sequence { found: 1, expected: 2 }));
    assert_eq!(copy.sequence(), 1, "the first is applied");
    assert_eq!(copy.apply(&first), Err(DeltaError::Sequence { found: 1, expected: 2 }));
    copy.apply(&second).unwrap();
    let large = Delta { change: Change::Partition(Vec::new()), sequence: 3, ..second };
    assert_eq!(copy.apply(&large), Err(DeltaError::Shape { sequence: 3 }));
}
