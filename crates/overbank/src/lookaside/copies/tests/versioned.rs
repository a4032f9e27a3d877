//! Single scenes of [`Versioned`].

use std::string::ToString;

use crate::lookaside::{At, Config, Found, KEPT_MAX, VERSION_MAX, Versioned};

fn table() -> Versioned<u64, u64> {
    Versioned::new(&Config::entries(3)).expect("small")
}

fn through(at: &At<'_, u64, u64>, key: u64, snapshot: Option<u64>) -> Result<Option<u64>, bool> {
    at.get(key).answer().map_err(|ticket| at.fill(ticket, snapshot))
}

#[test]
fn an_entry_holds_for_snapshots_from_its_stamp_on() {
    let table = table();
    let old = table.at(0);
    assert_eq!(through(&old, 1, Some(10)), Err(true));
    let mut commit = table.commit(1).expect("the first");
    commit.change(1, Some(11));
    assert_eq!(through(&old, 1, Some(10)), Err(false), "changed since");
    assert_eq!(through(&table.latest(), 1, Some(10)), Err(false), "not published yet");
    assert_eq!(through(&table.at(1), 1, Some(11)), Err(false), "not published yet");
    commit.publish();
    assert_eq!(table.published(), 1);
    assert_eq!(through(&table.latest(), 1, None), Ok(Some(11)), "updated");
    assert_eq!(through(&old, 1, Some(10)), Err(false));
    let mut commit = table.commit(2).expect("the second");
    commit.change(1, None);
    commit.publish();
    assert_eq!(through(&table.at(2), 1, Some(7)), Ok(None));
}

#[test]
fn values_of_an_aborted_commit_are_never_served() {
    let table = table();
    assert_eq!(through(&table.at(0), 1, Some(10)), Err(true));
    let mut commit = table.commit(1).expect("the first");
    commit.change(1, Some(666));
    drop(commit);
    assert_eq!(through(&table.at(0), 1, Some(10)), Err(false), "the stamp stays");
    let mut commit = table.commit(1).expect("the number again");
    commit.change(2, Some(20));
    commit.publish();
    assert_eq!(through(&table.at(1), 1, Some(10)), Err(true));
    assert_eq!(through(&table.at(1), 1, None), Ok(Some(10)));
}

#[test]
fn the_last_change_of_a_key_counts() {
    let table = table();
    for (version, touched) in [(1, false), (2, true)] {
        _ = through(&table.latest(), 1, Some(0));
        let mut commit = table.commit(version).expect("the next");
        commit.change(1, Some(1));
        commit.change(1, Some(2));
        if touched {
            commit.touch(1);
        }
        commit.publish();
        let expected = if touched { Err(true) } else { Ok(Some(2)) };
        assert_eq!(through(&table.latest(), 1, Some(3)), expected);
    }
}

#[test]
fn commits_past_the_table_take_everything_out() {
    let table = table();
    assert_eq!(through(&table.at(0), 1, Some(10)), Err(true));
    let old = table.at(0);
    let new = table.at(3);
    assert_eq!((table.published(), new.version()), (3, 3));
    assert_eq!(through(&old, 1, Some(10)), Err(false));
    assert_eq!(through(&table.at(2), 1, Some(12)), Err(false), "before the floor");
    assert_eq!(through(&new, 1, Some(13)), Err(true));
    // The next commit is not the next number.
    let commit = table.commit(6).expect("above");
    assert_eq!((through(&new, 1, Some(13)), table.published()), (Err(false), 5));
    assert_eq!(through(&table.at(5), 1, Some(15)), Err(true));
    commit.publish();
    assert_eq!(through(&table.at(6), 1, None), Ok(Some(15)), "it did not change");
}

#[test]
fn a_clear_by_a_commit_counts_from_its_number_on() {
    let table = table();
    assert_eq!(through(&table.latest(), 1, Some(10)), Err(true));
    let mut commit = table.commit(1).expect("the first");
    commit.change(1, Some(11));
    commit.clear();
    assert_eq!(through(&table.at(0), 2, Some(20)), Err(false));
    // Also if the table is cleared meanwhile.
    table.clear();
    assert_eq!(through(&table.at(0), 2, Some(20)), Err(false));
    commit.publish();
    assert_eq!(through(&table.latest(), 1, None), Err(true));
}

#[test]
fn numbers_are_checked() {
    let table = table();
    table.commit(5).expect("any").publish();
    for version in [0, 5, VERSION_MAX + 1, u64::MAX] {
        let error = table.commit(version).expect_err("no number");
        assert_eq!((error.version, error.published), (version, 5));
        assert!(error.to_string().contains("above 5"), "{error}");
    }
    assert_eq!(through(&table.at(VERSION_MAX + 1), 1, Some(1)), Err(false));
    assert_eq!(table.published(), 5);
    table.commit(VERSION_MAX).expect("the last").publish();
    assert_eq!(through(&table.at(VERSION_MAX), 1, Some(1)), Err(true));
    assert_eq!(through(&table.latest(), 1, None), Ok(Some(1)));
    assert!(table.commit(VERSION_MAX).is_err());
}

#[test]
fn a_commit_that_was_overtaken_takes_everything_out() {
    let table = table();
    for key in [1, 2] {
        assert_eq!(through(&table.latest(), key, Some(10)), Err(true));
    }
    let mut first = table.commit(1).expect("the first");
    first.change(1, Some(11));
    let second = table.commit(1).expect("the first was aborted");
    first.publish();
    assert_eq!(table.published(), 1);
    for key in [1, 2] {
        assert!(matches!(table.at(1).get(key), Found::Miss(_)), "{key}");
    }
    second.publish();
    assert_eq!(through(&table.at(1), 1, Some(1)), Err(true));
}

#[test]
fn a_commit_keeps_a_bounded_number_of_values() {
    let table = Versioned::<u64, u64>::new(&Config::entries(12 * KEPT_MAX)).expect("16 MiB");
    let keys = 0..KEPT_MAX as u64 + 1000;
    let put = keys.clone().filter(|&key| through(&table.latest(), key, Some(1)) == Err(true));
    assert!(put.count() > KEPT_MAX);
    let mut commit = table.commit(1).expect("the first");
    keys.clone().for_each(|key| commit.change(key, Some(2)));
    commit.publish();
    let latest = table.latest();
    let hits = keys.filter(|&key| match latest.get(key) {
        Found::Hit(value) => value == 2,
        Found::Miss(_) => false,
        Found::Absent => panic!("{key}"),
    });
    assert_eq!(hits.count(), KEPT_MAX);
}
