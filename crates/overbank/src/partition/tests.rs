//! Tables against maps: after each batch of operations every key, in the owner's table and in a
//! copy.

mod bytes;
mod growth;
mod twin;

use super::delta::Change;
use super::*;
use crate::hash::mix;
use crate::isa::Isa;
use crate::random::Pcg32;
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec::Vec;

fn value(i: u64, bits: usize) -> u8 {
    (mix(!i) as u8) & (0xff >> (8 - bits)) as u8
}

fn entries(keys: usize, bits: usize) -> impl Iterator<Item = (u64, u8)> + Clone {
    (0..keys as u64).map(move |i| (mix(i), value(i, bits)))
}

fn check(reader: &Reader, map: &BTreeMap<u64, u8>) {
    let hashes: Vec<u64> = map.keys().copied().collect();
    let mut values = std::vec![0; hashes.len()];
    reader.lookup_all(&hashes, &mut values);
    for (hash, value) in hashes.iter().zip(values) {
        assert_eq!(value, map[hash], "{hash:#x} in {reader:?}");
    }
}

#[test]
fn every_key_has_its_value() {
    for isa in Isa::available() {
        for row in [RowBits::R64, RowBits::R128] {
            for bits in 1..=8 {
                for keys in [0, 1, 2, 100, 5_000, 40_000] {
                    let config = Config::new(keys, bits).row(row).isa(Some(isa));
                    for config in [config.clone(), config.packed()] {
                        let (writer, stats) = Writer::build(&config, entries(keys, bits)).unwrap();
                        assert_eq!(stats.fallback, 0, "{config:?}");
                        check(&writer.reader(), &entries(keys, bits).collect());
                    }
                }
            }
        }
    }
}

/// Groups solved anew by an insertion, on average.
fn churn(config: &Config) -> f64 {
    let (keys, bits) = (config.keys, config.value_bits);
    let mut pcg = Pcg32::new(bits as u64, keys as u64);
    let (mut writer, _) = Writer::build(config, entries(keys, bits)).unwrap();
    let (reader, mut replica) = (writer.reader(), writer.replica().unwrap());
    let mut map: BTreeMap<u64, u8> = entries(keys, bits).collect();
    let mut hashes: Vec<u64> = map.keys().copied().collect();
    let (mut next, mut groups, mut inserted) = (keys as u64, 0, 0);
    for _ in 0..6 {
        for _ in 0..keys / 3 {
            let at = pcg.below(hashes.len() as u32) as usize;
            if pcg.below(2) == 0 {
                assert_eq!(writer.remove(hashes[at]), map.remove(&hashes[at]));
                hashes[at] = mix(next);
                next += 1;
                inserted += 1;
            }
            let value = value(u64::from(pcg.below(1 << 30)), bits);
            let before = map.insert(hashes[at], value);
            let delta = writer.insert(hashes[at], value).unwrap();
            assert_eq!(delta.is_none(), before == Some(value));
            let Some(delta) = delta else { continue };
            match &delta.change {
                Change::Move { .. } => assert!(before.is_some() && delta.bytes() <= 24),
                Change::Groups { groups: solved, .. } => groups += solved.len(),
                Change::Block(_) | Change::Partition(_) => panic!("no growth was planned"),
            }
            replica.apply(&delta).unwrap();
        }
        assert_eq!(writer.len(), map.len());
        check(&reader, &map);
        check(&replica.reader(), &map);
    }
    let mut all = BTreeMap::new();
    writer.for_each(|(hash, value)| assert_eq!(all.insert(hash, value), None));
    assert_eq!(all, map);
    groups as f64 / f64::from(inserted)
}

#[test]
fn a_table_follows_its_keys() {
    for (row, at_most) in [(RowBits::R64, 1.15), (RowBits::R128, 1.1)] {
        for bits in [1, 2, 3, 4, 8] {
            let config = |keys| Config::new(keys, bits).row(row);
            let groups = churn(&config(12_000));
            assert!(groups < at_most, "{groups} groups an insertion, {row:?}, {bits} bits");
            churn(&config(300));
            // Packed to the brim: buckets walk, and the fallback table fills.
            churn(&config(12_000).packed());
        }
    }
}

#[test]
fn bad_input_is_named_and_changes_nothing() {
    let text = |result: Result<(Writer, BuildStats), BuildError>| match result {
        Err(error) => error.to_string(),
        Ok(_) => "built".into(),
    };
    let build = |bits, entries: &[(u64, u8)]| {
        text(Writer::build(&Config::new(3, bits), entries.iter().copied()))
    };
    assert_eq!(build(0, &[]), "values have 1 to 8 bits, not 0");
    assert_eq!(build(9, &[]), "values have 1 to 8 bits, not 9");
    assert_eq!(build(2, &[(1, 4)]), "value 4 of hash 0x0000000000000001 has more than 2 bits");
    assert_eq!(build(2, &[(1, 1), (1, 2)]), "hash 0x0000000000000001 has two values, 1 and 2");
    assert_eq!(build(2, &[(1, 1); 3]), "built");
    assert_eq!(build(2, &[(1, 1); 4]), "more keys than the 3 that the table is for");

    let (mut writer, _) = Writer::build(&Config::new(3, 2), [(mix(1), 1), (mix(1), 1)]).unwrap();
    assert_eq!(writer.len(), 1);
    let mut replica = writer.replica().unwrap();
    assert_eq!(writer.insert(mix(2), 4).unwrap_err().to_string(), "value 4 has more than 2 bits");
    let first = writer.insert(mix(2), 2).unwrap().unwrap();
    let second = writer.insert(mix(3), 3).unwrap().unwrap();
    assert_eq!(writer.insert(mix(4), 1), Err(InsertError::Full { keys: 3 }));
    assert!(writer.insert(mix(3), 0).is_ok(), "a known key may move");
    assert_eq!(replica.apply(&second), Err(DeltaError::Sequence { found: 2, expected: 1 }));
    replica.apply(&first).unwrap();
    assert_eq!(replica.apply(&first), Err(DeltaError::Sequence { found: 1, expected: 2 }));
    let (mut other, _) = Writer::build(&Config::new(3, 2), [(mix(9), 1)]).unwrap();
    let foreign = other.insert(mix(2), 2).unwrap().unwrap();
    assert!(matches!(replica.apply(&foreign), Err(DeltaError::Table { .. })));
    assert_eq!(replica.reader().lookup(mix(2)), 2);
}

/// Keys that all lie in one bucket, as strangers that know the seed could choose them.
#[test]
fn a_crowded_bucket_fills_the_fallback_and_then_is_refused() {
    let hash = |i: u64| i << 11 | 5;
    let crowd = |keys: u64| {
        let entries = (0..keys).map(|i| (hash(i), (i % 4) as u8));
        Writer::build(&Config::new(10_000, 2), entries)
    };
    let (writer, stats) = crowd(200).unwrap();
    assert_eq!((stats.fallback, writer.reader().fallback_len()), (200, 200));
    check(&writer.reader(), &(0..200).map(|i| (hash(i), (i % 4) as u8)).collect());
    assert!(matches!(crowd(2_000), Err(BuildError::Fallback(_))));
    // Inserted one by one, the last one is refused, and all before it stay.
    let (mut writer, _) = Writer::build(&Config::new(10_000, 2), []).unwrap();
    let mut map = BTreeMap::new();
    let mut refused = 0;
    for i in 0..2_000 {
        match writer.insert(hash(i), (i % 4) as u8) {
            Ok(_) => assert_eq!(map.insert(hash(i), (i % 4) as u8), None),
            Err(error) => {
                assert!(matches!(error, InsertError::Fallback(_)));
                assert_eq!(writer.get(hash(i)), None);
                refused += 1;
            }
        }
    }
    assert!(map.len() > 200 && refused > 1000, "{} in, {refused} refused", map.len());
    assert_eq!(writer.len(), map.len());
    check(&writer.reader(), &map);
    // Its block, published as it is, takes the place of the keys that a copy has there.
    let mut replica = writer.replica().unwrap();
    let block = writer.republish(0, 0).unwrap();
    replica.apply(&block).unwrap();
    assert_eq!(replica.reader().fallback_len(), writer.reader().fallback_len());
    check(&replica.reader(), &map);
}

/// One key moves between two values while others look on; everybody else stays.
#[test]
fn readers_see_only_values_that_were_there() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let keys = 3_000;
    let (mut writer, _) = Writer::build(&Config::new(keys + 1000, 4), entries(keys, 4)).unwrap();
    let map: BTreeMap<u64, u8> = entries(keys, 4).skip(1).collect();
    let moving = mix(0);
    writer.insert(moving, 0b0101).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let reader = writer.reader();
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    check(&reader, map);
                    let value = reader.lookup(moving);
                    assert!(value == 0b0101 || value == 0b1010, "{value:#06b}");
                }
            });
        }
        for round in 0..20_000u64 {
            writer.insert(moving, if round % 2 == 0 { 0b1010 } else { 0b0101 }).unwrap();
            // Groups are solved anew, and buckets move.
            writer.insert(mix(1_000_000 + round % 1000), value(round, 4)).unwrap();
            if round % 3 == 0 {
                writer.remove(mix(1_000_000 + round % 1000));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
