//! Tables that grow under their readers, and tables that are built in pieces.

use super::*;

fn growing(row: RowBits, partitions: usize) -> Config {
    Config::new(20_000, 2).row(row).growing(120_000, partitions)
}

#[test]
fn partitions_grow_with_their_keys() {
    for (row, partitions) in [(RowBits::R64, 1), (RowBits::R128, 1), (RowBits::R128, 4)] {
        let config = growing(row, partitions);
        let mut map: BTreeMap<u64, u8> = entries(20_000, 2).collect();
        let (mut writer, _) = Writer::build(&config, entries(20_000, 2)).unwrap();
        let (reader, mut replica) = (writer.reader(), writer.replica().unwrap());
        let (before, mut grown) = (reader.blocks(), 0);
        for i in 20_000..120_000 {
            let value = value(i, 2);
            map.insert(mix(i), value);
            let delta = writer.insert(mix(i), value).unwrap().unwrap();
            grown += usize::from(delta.is_growth());
            replica.apply(&delta).unwrap();
            if delta.is_growth() || i % 20_000 == 19_999 {
                assert_eq!((writer.len(), reader.fallback_len()), (map.len(), 0));
                check(&reader, &map);
                check(&replica.reader(), &map);
            }
        }
        assert!(grown >= partitions && reader.blocks() >= 2 * before, "{grown} times");
        assert_eq!(reader.partitions(), partitions);
        assert_eq!(writer.insert(mix(120_000), 1), Err(InsertError::Full { keys: 120_000 }));
    }
}

/// Keys stay what they are while their partition moves again and again.
#[test]
fn readers_see_every_key_while_the_table_grows() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let map: BTreeMap<u64, u8> = entries(2_000, 4).collect();
    let config = Config::new(20_000, 4).growing(300_000, 2);
    let stop = AtomicBool::new(false);
    let (mut writer, _) = Writer::build(&config, entries(2_000, 4)).unwrap();
    let grown = std::thread::scope(|scope| {
        for _ in 0..2 {
            let reader = writer.reader();
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    check(&reader, map);
                }
            });
        }
        let mut grown = 0;
        for i in 2_000..100_000 {
            let delta = writer.insert(mix(i), value(i, 4)).unwrap();
            grown += usize::from(delta.is_some_and(|delta| delta.is_growth()));
        }
        stop.store(true, Ordering::Relaxed);
        grown
    });
    assert!(grown > 4, "{grown}");
    check(&writer.reader(), &map);
}

#[test]
fn pieces_make_the_table_that_one_piece_makes() {
    let config = Config::new(100_000, 3).growing(200_000, 2);
    let plan = Plan::new(&config).unwrap();
    let entries = || entries(100_000, 3).chain(entries(50, 3));
    let config = Config { keys: 100_050, ..config };
    let more = Plan::new(&config).unwrap();
    let error = plan.pieces(1)[0].build(entries()).map(|_| ()).unwrap_err();
    assert_eq!(error, BuildError::Keys { keys: 100_000 });
    let plan = more;
    let build = |count: usize| {
        let built = plan.pieces(count).into_iter().map(|piece| piece.build(entries()).unwrap());
        plan.writer(built.collect::<Vec<_>>()).unwrap()
    };
    let (whole, stats) = build(1);
    assert_eq!((stats.keys, stats.repeated), (100_000, 50));
    let map: BTreeMap<u64, u8> = entries().collect();
    for count in [2, 3, 5, 1000] {
        let (writer, of_pieces) = build(count);
        assert_eq!(of_pieces, stats);
        check(&writer.reader(), &map);
        for (partition, block) in [(0, 0), (0, 1), (1, 0), (1, 3)] {
            let digest = whole.reader().digest(partition, block);
            assert!(digest.is_some() && digest == writer.reader().digest(partition, block));
        }
        let id = |writer: &Writer| writer.replica().unwrap().id();
        assert_eq!(id(&writer), id(&whole));
    }
    let mut done = Vec::new();
    let piece =
        plan.pieces(1)[0].build_watched(entries(), false, |block| done.push(block)).unwrap();
    assert!(done.iter().copied().eq(1..=plan.pieces(1)[0].blocks()));
    let (copy, of_copy) = plan.replica([piece]).unwrap();
    assert_eq!((of_copy, copy.keys()), (stats, 100_000));
    check(&copy.reader(), &map);
}

#[test]
fn pieces_of_others_make_no_table() {
    let plan = Plan::new(&Config::new(100_000, 1)).unwrap();
    let build = |nth: usize, keys: usize| plan.pieces(2)[nth].build(entries(keys, 1)).unwrap();
    let text = |pieces: Vec<BuiltPiece>| plan.writer(pieces).map(|_| ()).unwrap_err();
    assert_eq!(text(std::vec![]), BuildError::Pieces);
    assert_eq!(text(std::vec![build(0, 10)]), BuildError::Pieces);
    assert_eq!(text(std::vec![build(1, 10), build(0, 10)]), BuildError::Pieces);
    assert_eq!(text(std::vec![build(0, 10), build(1, 11)]), BuildError::Pieces);
    let without = plan.pieces(1)[0].build_watched(entries(10, 1), false, |_| {}).unwrap();
    assert_eq!(text(std::vec![without]), BuildError::Pieces);
    assert!(plan.writer([build(0, 10), build(1, 10)]).is_ok());
}

#[test]
fn wrong_plans_are_named() {
    let text = |config: Config| Plan::new(&config).map(|_| ()).unwrap_err().to_string();
    let config = Config::new(100, 2);
    assert_eq!(
        text(config.clone().growing(200, 3)),
        "3 partitions: must be a power of two, 1 to 1024"
    );
    assert_eq!(text(config.clone().growing(200, 2048)).split(':').next(), Some("2048 partitions"));
    assert_eq!(
        text(config.clone().growing(50, 1)),
        "growth to 50 keys: must be between 100 and 1600 keys"
    );
    assert!(text(config.clone().growing(1700, 1)).starts_with("growth to 1700 keys"));
    assert!(text(Config::new(usize::MAX, 2)).starts_with("more keys than"));
    assert!(Plan::new(&Config::new(0, 2).growing(16, 1)).is_ok());
}

/// A group leaves the fallback when it can be solved again, in the owner's table and in a copy.
#[test]
fn keys_leave_the_fallback() {
    let hash = |i: u64| i << 11 | 5;
    let crowd: BTreeMap<u64, u8> = (0..200).map(|i| (hash(i), (i % 4) as u8)).collect();
    let (mut writer, stats) = Writer::build(&Config::new(10_000, 2), crowd).unwrap();
    assert_eq!(stats.fallback, 200);
    let mut replica = writer.replica().unwrap();
    let mut map = BTreeMap::new();
    for i in 0..200 {
        if i < 150 {
            writer.remove(hash(i));
        } else {
            let value = (i % 3) as u8 + 1;
            map.insert(hash(i), value);
            let Some(delta) = writer.insert(hash(i), value).unwrap() else { continue };
            replica.apply(&delta).unwrap();
        }
    }
    for reader in [writer.reader(), replica.reader()] {
        assert_eq!(reader.fallback_len(), 0);
        check(&reader, &map);
    }
    // Twice as many as there is room for, one generation after the other.
    for generation in 1..20 {
        for i in 0..200 {
            let delta = writer.insert(hash(1000 * generation + i), 1).unwrap().unwrap();
            replica.apply(&delta).unwrap();
        }
        (0..200).for_each(|i| _ = writer.remove(hash(1000 * generation + i)));
    }
    check(&writer.reader(), &map);
    check(&replica.reader(), &map);
}
