//! The table against a map, and its sizes against table 2.

use super::*;
use crate::hash::mix;
use crate::isa::Isa;
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec::Vec;

fn entries(keys: u64, bits: u32) -> impl Iterator<Item = (u64, u8)> + Clone {
    (0..keys).map(move |i| (mix(i), (mix(!i) as u8) & (0xff >> (8 - bits)) as u8))
}

fn check(table: &SetSep, entries: impl Iterator<Item = (u64, u8)>) {
    let (hashes, due): (Vec<u64>, Vec<u8>) = entries.unzip();
    let mut values = std::vec![0; hashes.len()];
    table.lookup_batch(&hashes, &mut values);
    assert_eq!(values, due);
    for (hash, value) in hashes.iter().zip(due).step_by(7) {
        assert_eq!(table.lookup(*hash), value);
    }
}

#[test]
fn every_key_has_its_value_in_every_setting() {
    for isa in Isa::available() {
        for (index, m) in [(16, 8), (8, 16), (16, 16), (16, 12), (8, 30), (16, 7)] {
            for bits in [1, 2, 3, 4, 8] {
                for keys in [0, 1, 50, 3000] {
                    let config = Config::new(keys as usize, bits).setting(index, m).isa(Some(isa));
                    let (table, stats) = SetSep::build(&config, entries(keys, bits)).unwrap();
                    check(&table, entries(keys, bits));
                    assert!(index == 8 || m < 8 || stats.fallback == 0, "{index} + {m}: {stats:?}");
                }
            }
        }
    }
}

/// Tiny indices make groups without a solution common.
#[test]
fn keys_without_a_solution_are_kept_beside_the_table() {
    let config = Config::new(20_000, 4).setting(8, 4);
    let (table, stats) = SetSep::build(&config, entries(20_000, 4)).unwrap();
    assert!(stats.fallback > 10_000, "{stats:?}");
    check(&table, entries(20_000, 4));
}

/// Table 2: bits a key of the settings, and the share of keys in the fallback of 8 + 16.
#[test]
fn sizes_are_those_of_table_2() {
    let keys = 1 << 16;
    let build = |bits, index, m| {
        let config = Config::new(keys as usize, bits).setting(index, m);
        let (table, stats) = SetSep::build(&config, entries(keys, bits)).unwrap();
        let listed = 16 * stats.fallback;
        (8.0 * (table.bytes() - listed) as f64 / keys as f64, stats.fallback as f64 / keys as f64)
    };
    for (bits, due) in [(1, 2.0), (2, 3.5), (3, 5.0), (4, 6.5)] {
        assert_eq!(build(bits, 16, 8), (due, 0.0));
    }
    assert_eq!(build(1, 16, 16), (2.5, 0.0));
    let (bits, fallback) = build(1, 8, 16);
    assert_eq!(bits, 2.0);
    assert!((0.003..0.03).contains(&fallback), "{fallback}");
}

/// A key moves: its group is solved anew by its owner and copied by another table.
#[test]
fn deltas_carry_a_group() {
    let mut map: BTreeMap<u64, u8> = entries(5000, 2).collect();
    let build = || SetSep::build(&Config::new(5000, 2), entries(5000, 2)).unwrap().0;
    let (mut owner, mut copy) = (build(), build());
    let hashes: Vec<u64> = map.keys().copied().collect();
    for &hash in hashes.iter().step_by(9) {
        *map.get_mut(&hash).unwrap() ^= 3;
        let group = owner.group_of(hash);
        let in_group = map.iter().filter(|(hash, _)| owner.group_of(**hash) == group);
        let keys: Vec<(u64, u8)> = in_group.map(|(hash, value)| (*hash, *value)).collect();
        let delta = owner.solve(group, &keys, &mut 0);
        assert_eq!(delta.bits(&owner), 48);
        owner.apply(&delta);
        copy.apply(&delta);
    }
    for table in [&owner, &copy] {
        check(table, map.iter().map(|(hash, value)| (*hash, *value)));
    }
}

#[test]
fn bad_input_is_named() {
    let build = |config: Config, entries: &[(u64, u8)]| {
        let table = SetSep::build(&config, entries.iter().copied());
        table.map_or_else(|error| error.to_string(), |_| "built".to_string())
    };
    assert_eq!(build(Config::new(1, 0), &[]), "values have 1 to 8 bits, not 0");
    assert_eq!(
        build(Config::new(1, 1).setting(9, 8), &[]),
        "a setting has 8 or 16 bits of index and arrays of 2 to 30 bits, not 9 + 8"
    );
    assert_eq!(
        build(Config::new(1, 1), &[(1, 2)]),
        "value 2 of hash 0x0000000000000001 has more than 1 bits"
    );
    assert_eq!(
        build(Config::new(2, 1), &[(1, 1), (1, 0)]),
        "hash 0x0000000000000001 has two values, 0 and 1"
    );
    assert_eq!(
        build(Config::new(1, 1), &[(1, 1), (2, 1)]),
        "more keys than the 1 that the table is for"
    );
}

#[test]
fn both_searches_build_the_same_table() {
    let build = |search| {
        let config = Config::new(4000, 3).search(search);
        let (table, stats) = SetSep::build(&config, entries(4000, 3)).unwrap();
        check(&table, entries(4000, 3));
        stats
    };
    assert_eq!(build(Search::Plain), build(Search::Lanes));
}
