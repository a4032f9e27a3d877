//! Forwarding tables against a `HashMap`: every pair of key and value types, on every instruction
//! set; occupancy, refusals, bursts.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv6Addr;

use overbank::fib::*;
use overbank::isa::Isa;
use overbank::memory::{HugePages, Pages};
use overbank::prefetch::{FAR_L2S, Prefetch, l2_bytes};
use overbank::random::Pcg32;

/// Types under test: how to make keys and values of numbers.
trait Made: Copy + PartialEq + std::fmt::Debug {
    fn of(number: u64) -> Self;
}

impl Made for MacAddr {
    fn of(number: u64) -> Self {
        MacAddr::new(number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff).unwrap()
    }
}
impl Made for MacVlan {
    fn of(number: u64) -> Self {
        MacVlan::new(MacAddr::of(number / 3).to_bytes(), (number % 3) as u16)
    }
}
impl Made for u128 {
    /// Low words repeat, so that only both words tell keys apart.
    fn of(number: u64) -> Self {
        u128::from(number) << 64 | u128::from(number % 5)
    }
}
impl Made for Ipv6Addr {
    fn of(number: u64) -> Self {
        u128::of(number).into()
    }
}
impl Made for [u8; 9] {
    fn of(number: u64) -> Self {
        let [low, high] = [number, number % 3].map(u64::to_le_bytes);
        [low[0], low[1], 0, 0xff, high[0], 7, 0, low[2], high[0]]
    }
}

/// A caller's own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Own(u64);
impl Key for Own {
    const BITS: usize = 20;
    fn to_words(self) -> [u64; 2] {
        // What is past the bits is ignored.
        [self.0 | u64::MAX << 20, u64::MAX]
    }
    fn from_words([low, high]: [u64; 2]) -> Self {
        assert_eq!((low >> 20, high), (0, 0));
        Own(low)
    }
}
impl Made for Own {
    fn of(number: u64) -> Self {
        Own((number * 0x1_2345) & 0xf_ffff)
    }
}
impl Made for u16 {
    fn of(number: u64) -> Self {
        number as u16
    }
}
impl Made for u32 {
    fn of(number: u64) -> Self {
        number.wrapping_mul(0x9e37_79b9) as u32
    }
}
impl Made for u64 {
    fn of(number: u64) -> Self {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Calls `$check::<K, V>` for every pair of types.
macro_rules! every_kind {
    ($check:ident $(, $argument:expr)*) => {
        $check::<MacAddr, u16>($($argument),*);
        $check::<MacAddr, u32>($($argument),*);
        $check::<MacAddr, u64>($($argument),*);
        $check::<u32, u16>($($argument),*);
        $check::<u32, u32>($($argument),*);
        $check::<u32, u64>($($argument),*);
        $check::<Own, u16>($($argument),*);
        $check::<[u8; 9], u32>($($argument),*);
        $check::<Ipv6Addr, u16>($($argument),*);
        $check::<u64, u16>($($argument),*);
        $check::<u64, u32>($($argument),*);
        $check::<u64, u64>($($argument),*);
        $check::<MacVlan, u16>($($argument),*);
        $check::<MacVlan, u32>($($argument),*);
        $check::<MacVlan, u64>($($argument),*);
        $check::<u128, u16>($($argument),*);
        $check::<u128, u32>($($argument),*);
        $check::<u128, u64>($($argument),*);
    };
}

/// All entries, in order of their keys.
fn sorted<K: Key, V: Value>(entries: impl Iterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.0);
    entries
}

/// Random operations on few keys in a small table: full and not full, again and again.
fn twin<K: Key + Made, V: Value + Made>(isa: Isa, seed: u64) {
    let mut pcg = Pcg32::new(seed, 1);
    let buckets = 2 + pcg.below(9) as usize;
    let config = Config::buckets(buckets).seed(seed).isa(Some(isa)).search_max(64);
    let mut writer = Writer::<K, V>::new(&config).unwrap();
    let reader = writer.reader();
    assert_eq!(reader.isa(), isa);
    let numbers = writer.slots() as u32 + 8;
    let mut twin: HashMap<K, V> = HashMap::new();
    let (mut refused, mut overflowed) = (0, 0);
    for step in 0..1500u64 {
        let key = K::of(u64::from(pcg.below(numbers)));
        let value = V::of(step);
        match pcg.below(10) {
            0..=4 => match writer.insert(key, value) {
                Ok(old) => assert_eq!(old, twin.insert(key, value)),
                Err(full) => {
                    assert!(!twin.contains_key(&key));
                    assert_eq!((full.entries, full.slots), (twin.len(), writer.slots()));
                    refused += 1;
                }
            },
            5 => {
                let old = twin.get(&key).copied();
                assert_eq!(writer.update(key, value), old);
                old.and_then(|_| twin.insert(key, value));
            }
            6..=8 => assert_eq!(writer.remove(key), twin.remove(&key)),
            _ => writer.shuffle(4),
        }
        overflowed = overflowed.max(writer.stats().second);
        assert_eq!((writer.len(), reader.len()), (twin.len(), twin.len()));
        let keys: [K; 64] = std::array::from_fn(|_| K::of(u64::from(pcg.below(numbers + 4))));
        let count = pcg.below(65) as usize;
        let mut values = [V::of(99); 64];
        let hits = reader.lookup_batch(&keys[..count], &mut values);
        for (i, key) in keys[..count].iter().enumerate() {
            let expected = twin.get(key).copied();
            assert_eq!(reader.lookup(*key), expected);
            assert_eq!(writer.get(*key), expected);
            assert_eq!((hits >> i & 1 == 1).then_some(values[i]), expected);
            assert_eq!(values[i], expected.unwrap_or_default());
        }
        assert!(count == 64 || hits >> count == 0);
        assert!(values[count..].iter().all(|&value| value == V::of(99)));
        // Naming a next burst, whichever, changes nothing.
        let mut ahead = [V::of(99); 64];
        let next = &keys[..pcg.below(65) as usize];
        assert_eq!(reader.lookup_batch_ahead(&keys[..count], &mut ahead, next), hits);
        assert_eq!(ahead, values);
    }
    let all = sorted(twin.into_iter());
    assert_eq!(sorted(writer.iter()), all);
    assert_eq!((writer.buckets(), config.bytes::<K, V>()), (buckets, reader.bytes()));
    let slices = (0..buckets + 3).step_by(3).flat_map(|from| writer.iter_in(from..from + 3));
    assert!(slices.eq(writer.iter()));
    let stats = writer.stats();
    assert_eq!(stats.refused, refused);
    assert_eq!(stats.inserted - stats.removed, writer.len() as u64);
    assert!(stats.searches >= refused && stats.displaced > 0 && overflowed > 0);
    // All leave, those too that nothing asks for.
    assert_eq!(writer.drain().len(), all.len());
    assert_eq!((writer.len(), reader.len()), (0, 0));
    let again = all.iter().copied().filter(|&(key, value)| writer.insert(key, value).is_ok());
    let again = again.collect::<Vec<_>>();
    assert_eq!(sorted(writer.drain()), again);
    assert!(all.iter().all(|entry| reader.lookup(entry.0).is_none()));
    assert_eq!((writer.iter().count(), writer.stats().second), (0, 0));
}

/// A key whose words do not tell it from others, nor make it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Lying(u64);
impl Key for Lying {
    const BITS: usize = 64;
    fn to_words(self) -> [u64; 2] {
        [self.0 / 3, self.0]
    }
    fn from_words([low, high]: [u64; 2]) -> Self {
        Lying(low.rotate_left(7) ^ high)
    }
}

#[test]
fn a_key_that_lies_harms_nothing_but_its_entries() {
    for isa in Isa::available() {
        let config = Config::buckets(20).isa(Some(isa)).search_max(64);
        let mut writer = Writer::<Lying, u16>::new(&config).unwrap();
        let (reader, mut pcg) = (writer.reader(), Pcg32::new(3, 3));
        for step in 0..20_000 {
            let key = Lying(u64::from(pcg.below(300)));
            match pcg.below(8) {
                0..=4 => _ = writer.insert(key, step as u16),
                5 => _ = writer.remove(key),
                6 => writer.shuffle(4),
                _ => _ = reader.lookup_batch(&[key; 64], &mut [0; 64]),
            }
            if step % 5000 == 4999 {
                let len = writer.len();
                assert_eq!((writer.drain().count(), reader.len()), (len, 0));
            }
        }
    }
}

#[test]
fn agrees_with_its_twin() {
    for isa in Isa::available() {
        for seed in 0..4 {
            every_kind!(twin, isa, seed);
        }
    }
}

/// Fills until the first refusal.
fn fills<K: Key + Made, V: Value + Made>(buckets: usize, seed: u64) -> f64 {
    let mut writer = Writer::<K, V>::new(&Config::buckets(buckets).seed(seed)).unwrap();
    let reader = writer.reader();
    let mut number = 0;
    while writer.insert(K::of(number), V::of(number)).is_ok() {
        number += 1;
    }
    assert_eq!(writer.len() as u64, number);
    assert!((0..number).all(|number| reader.lookup(K::of(number)) == Some(V::of(number))));
    writer.occupancy()
}

fn fills_to_95_percent<K: Key + Made, V: Value + Made>() {
    for seed in 0..3 {
        let occupancy = fills::<K, V>(20_000, seed);
        let kind = std::any::type_name::<(K, V)>();
        println!("{kind}, seed {seed}: {:.2} %", 100.0 * occupancy);
        assert!(occupancy >= 0.95, "{kind}, seed {seed}: {occupancy}");
    }
}

#[test]
fn every_kind_fills_to_95_percent() {
    every_kind!(fills_to_95_percent);
}

#[test]
fn as_many_entries_as_were_asked_for_find_a_place() {
    for entries in [0usize, 1, 10, 100, 1000, 30_000] {
        for seed in 0..5 {
            let mut writer = Writer::<u64, u64>::new(&Config::entries(entries).seed(seed)).unwrap();
            for number in 0..entries as u64 {
                assert_eq!(writer.insert(u64::of(number), number), Ok(None), "{entries} {seed}");
            }
            assert_eq!((writer.len(), writer.is_empty()), (entries, entries == 0));
        }
    }
}

#[test]
fn a_refused_insertion_changes_nothing() {
    for search_max in [0, 2, 5, 100] {
        let config = Config::buckets(50).search_max(search_max);
        let mut writer = Writer::<MacAddr, u16>::new(&config).unwrap();
        let mut number = 0;
        while writer.insert(MacAddr::of(number), 1).is_ok() {
            number += 1;
        }
        for number in number..number + 50 {
            let (before, stats) = (writer.iter().collect::<Vec<_>>(), writer.stats());
            let Err(full) = writer.insert(MacAddr::of(number), 2) else { continue };
            assert_eq!((full.entries, full.slots), (writer.len(), 350));
            assert!(full.searched <= search_max.max(2));
            assert!(full.to_string().starts_with("the table is full: "), "{full}");
            assert_eq!(writer.get(MacAddr::of(number)), None);
            if !cfg!(feature = "always-displace") {
                assert_eq!(writer.iter().collect::<Vec<_>>(), before, "not even the order");
                assert_eq!(writer.stats().displaced, stats.displaced);
            }
            assert_eq!(writer.stats().refused, stats.refused + 1);
        }
    }
}

/// The keys below 500, each with its number.
fn of_500<K: Key + Made, V: Value + Made>(isa: Isa) -> Writer<K, V> {
    let mut writer = Writer::new(&Config::entries(500).isa(Some(isa))).unwrap();
    for number in 0..500 {
        writer.insert(K::of(number), V::of(number)).unwrap();
    }
    writer
}

/// Lists of any length are that many lookups, and what no key belongs to stays as it was.
fn lists<K: Key + Made, V: Value + Made>(isa: Isa) {
    let reader = of_500::<K, V>(isa).reader();
    let mut pcg = Pcg32::new(3, 4);
    for size in (0..70usize).chain([95, 96, 97, 127, 128, 129, 200, 1000]) {
        let keys: Vec<K> = (0..size).map(|_| K::of(u64::from(pcg.below(1000)))).collect();
        for (room, words) in [(size, size.div_ceil(64)), (size + 9, 17), (40, 17), (size, 1)] {
            let looked_at = size.min(room).min(words * 64);
            let (mut values, mut hits) = (vec![V::of(7); room], vec![u64::MAX; words]);
            reader.lookup_all(&keys, &mut values, &mut hits);
            for (i, &key) in keys[..looked_at].iter().enumerate() {
                let hit = hits[i / 64] >> (i % 64) & 1 == 1;
                assert_eq!(hit.then_some(values[i]), reader.lookup(key), "key {i} of {size}");
                assert!(hit || values[i] == V::default());
            }
            assert!(values[looked_at..].iter().all(|&value| value == V::of(7)));
            assert!(hits[looked_at.div_ceil(64)..].iter().all(|&word| word == u64::MAX));
            if looked_at % 64 != 0 {
                assert_eq!(hits[looked_at / 64] >> (looked_at % 64), 0, "bits of no key");
            }
        }
    }
}

fn bursts<K: Key + Made, V: Value + Made>(isa: Isa) {
    let reader = of_500::<K, V>(isa).reader();
    let mut pcg = Pcg32::new(3, 3);
    for size in 0..=70 {
        let keys: Vec<K> = (0..size).map(|_| K::of(u64::from(pcg.below(1000)))).collect();
        for room in [size, 64, 20] {
            let looked_at = size.min(room).min(BURST_MAX);
            let mut values = vec![V::of(7); room];
            let hits = reader.lookup_batch(&keys, &mut values);
            for (i, &key) in keys[..looked_at].iter().enumerate() {
                assert_eq!((hits >> i & 1 == 1).then_some(values[i]), reader.lookup(key));
            }
            assert!(values[looked_at..].iter().all(|&value| value == V::of(7)));
            assert!(looked_at == 64 || hits >> looked_at == 0);
            for next in [&keys[..], &keys[looked_at..], &keys[..size.min(3)], &[]] {
                let mut ahead = vec![V::of(7); room];
                assert_eq!(reader.lookup_batch_ahead(&keys, &mut ahead, next), hits);
                assert_eq!(ahead, values);
            }
        }
    }
}

#[test]
fn a_burst_of_any_size_is_that_many_lookups() {
    for isa in Isa::available() {
        every_kind!(bursts, isa);
    }
}

#[test]
fn a_list_of_any_length_is_that_many_lookups() {
    for isa in Isa::available() {
        every_kind!(lists, isa);
    }
}

#[test]
fn the_floor_touches_the_lines_of_its_hashes() {
    let mut writer = Writer::<MacAddr, u16>::new(&Config::buckets(64)).unwrap();
    (0..300).for_each(|number| assert!(writer.insert(MacAddr::of(number), 9).is_ok()));
    let reader = writer.reader();
    // A line by its high half, a word of it by the low bits: all entries are seen.
    let hash = |line: u64, word: u64| line << 58 | word;
    let word = |line, word| reader.touch(1, false, &[hash(line, word)]);
    let lines = || 0..64u64;
    let mut entries: BTreeSet<u64> =
        lines().flat_map(|l| (1..8).map(move |w| (l, w))).map(|(l, w)| word(l, w)).collect();
    entries.remove(&0);
    assert_eq!(entries.len(), 300);
    assert_eq!(word(63, 7), reader.touch(1, true, &[u64::MAX]));
    // And any number of them is the sum of each, in both ways.
    let hashes: Vec<u64> = (0..300).map(|i| hash(i * 7 % 64, i % 8)).collect();
    for count in [0, 1, 31, 32, 33, 64, 65, 300] {
        let hashes = &hashes[..count];
        let sum =
            hashes.iter().fold(0, |sum: u64, &h| sum.wrapping_add(reader.touch(1, false, &[h])));
        for burst in [0, 1, 7, 32, 64, 99] {
            assert_eq!([false, true].map(|ahead| reader.touch(burst, ahead, hashes)), [sum; 2]);
        }
    }
}

#[test]
#[cfg(not(feature = "always-displace"))] // Which drives half of the entries from home.
fn most_misses_are_settled_by_one_line() {
    let mut writer = Writer::<MacAddr, u16>::new(&Config::entries(100_000)).unwrap();
    (0..100_000).for_each(|number| assert!(writer.insert(MacAddr::of(number), 1).is_ok()));
    assert!(writer.occupancy() > 0.949);
    let settled = |reader: &Reader<MacAddr, u16>| {
        (1 << 30..(1 << 30) + 100_000)
            .filter(|&number| reader.lines_if_absent(MacAddr::of(number)) == 1)
            .count()
    };
    let share = settled(&writer.reader());
    assert!(share > 80_000, "{share} of 100000 at 95 %");
    // Replacing every entry ten times leaves no marks behind.
    for number in 0..1_000_000 {
        writer.remove(MacAddr::of(number)).unwrap();
        writer.insert(MacAddr::of(number + 100_000), 1).unwrap();
    }
    let share = settled(&writer.reader());
    assert!(share > 70_000, "{share} of 100000 after much coming and going");
    for number in 1_000_000..1_100_000 {
        writer.remove(MacAddr::of(number)).unwrap();
    }
    assert_eq!(writer.stats().second, 0);
    let (stuck, right) = (writer.stuck_markers(), writer.recount());
    assert!(stuck < 100 && stuck == right, "{stuck} {right}");
    assert_eq!(settled(&writer.reader()), 100_000);
}

#[test]
fn extreme_keys_are_keys_like_others() {
    let mut writer = Writer::<u64, u64>::new(&Config::buckets(2)).unwrap();
    for key in [0, u64::MAX] {
        assert_eq!((writer.get(key), writer.reader().lookup(key)), (None, None));
        assert_eq!(writer.insert(key, key), Ok(None));
    }
    assert_eq!((writer.get(0), writer.get(u64::MAX)), (Some(0), Some(u64::MAX)));
    let mut writer = Writer::<MacAddr, u16>::new(&Config::buckets(2)).unwrap();
    let keys = [MacAddr::from([0; 6]), MacAddr::from([0xff; 6])];
    let mut values = [9; 2];
    assert_eq!(writer.reader().lookup_batch(&keys, &mut values), 0);
    for key in keys {
        assert_eq!(writer.insert(key, 0xffff), Ok(None));
        assert_eq!(writer.remove(key), Some(0xffff));
        assert_eq!((writer.reader().lookup(key), writer.len()), (None, 0));
    }
}

#[test]
fn impossible_tables_are_an_error() {
    for buckets in [0, 1, BUCKETS_MAX + 1, usize::MAX] {
        let error = Writer::<u128, u64>::new(&Config::buckets(buckets)).unwrap_err();
        assert_eq!(error, FibError::Buckets { buckets });
    }
    assert!(Writer::<u128, u64>::new(&Config::entries(usize::MAX)).is_err());
    let pages = Pages::Gigabyte { required: false };
    let writer = Writer::<u64, u64>::new(&Config::buckets(1 << 16).pages(pages)).unwrap();
    let reader = writer.reader();
    assert_eq!((reader.bytes(), reader.slots()), (64 << 16, 3 << 16));
    assert_ne!(reader.huge_pages(), HugePages::Unknown);
    let writer = Writer::<u64, u64>::new(&Config::buckets(1 << 16).pages(Pages::Small)).unwrap();
    assert_eq!(writer.reader().huge_pages(), HugePages::No);
}

#[test]
fn a_billion_ethernet_entries_take_less_than_9_gib() {
    // By the arithmetic of a thousandth; the whole is built by the lab.
    let writer = Writer::<MacAddr, u16>::new(&Config::entries(1_000_000)).unwrap();
    assert!(writer.reader().bytes() * 1000 < 9 << 30);
}

/// Near, far and automatic, decided at construction and by the table's size alone.
#[test]
fn the_prefetch_is_used_as_requested() {
    // A bucket is a line; the last size below which automatic is near.
    let large = FAR_L2S * l2_bytes() / 64;
    for (buckets, automatic) in [(2, false), (large - 1, false), (large, true)] {
        let far = |prefetch| {
            let config = Config::buckets(buckets).prefetch(prefetch);
            let reader = Writer::<MacAddr, u16>::new(&config).unwrap().reader();
            assert_eq!(reader.clone().prefetches_far(), reader.prefetches_far());
            reader.prefetches_far()
        };
        let found = [Prefetch::Near, Prefetch::Far, Prefetch::Automatic].map(far);
        assert_eq!(found, [false, true, automatic], "{buckets} buckets");
    }
    // The same answers.
    let readers = [Prefetch::Near, Prefetch::Far].map(|prefetch| {
        let mut writer =
            Writer::<MacAddr, u16>::new(&Config::buckets(300).prefetch(prefetch)).unwrap();
        (0..1900).for_each(|i| assert_eq!(writer.insert(MacAddr::of(i), i as u16), Ok(None)));
        writer.reader()
    });
    let keys: Vec<MacAddr> = (0..3800).map(MacAddr::of).collect();
    let answers = readers.map(|reader| {
        let (mut values, mut hits) = (vec![0; keys.len()], vec![0; keys.len().div_ceil(64)]);
        reader.lookup_all(&keys, &mut values, &mut hits);
        reader.prefetch(&keys[..64]);
        (reader.touch(32, true, &[]), values, hits)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].2.iter().map(|word| word.count_ones()).sum::<u32>(), 1900);
}
