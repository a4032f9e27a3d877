//! Hot keys are answered by the proxy, and writes of any kind are seen.

use crate::common::until;
use crate::servers::{Connection, World};
use overbank_kv::proxy::totals::Missed;
use std::time::{Duration, Instant};

#[test]
fn a_hot_key_is_answered_here_and_each_write_is_seen() {
    let Some(world) = World::start(&[]) else { return };
    let (mut client, mut direct) = (world.client(), world.server.connect());
    assert_eq!(client.ask("set k 7 0 3\r\none"), "STORED\r\n");
    for line in
        ["get k", "gets k", "mg k v", "mg k k f c s v Oq1 q", "mg aw== b v k", "get k k", "mg k"]
    {
        let wanted = direct.ask(line);
        assert_eq!(world.hot(&mut client, line), wanted, "{line}");
    }
    // Absence is cached, too.
    assert_eq!(world.hot(&mut client, "get none"), "END\r\n");
    assert_eq!(world.hot(&mut client, "mg none v"), "EN\r\n");
    assert_eq!(world.hot(&mut client, "gets none k none"), direct.ask("gets none k none"));
    // On the path: at once.
    for round in 0..100 {
        client.set("k", &round.to_string());
        assert!(client.ask("get k").ends_with(&format!("\r\n{round}\r\nEND\r\n")));
    }
    // Past the proxy: within the longest age.
    world.hot(&mut client, "get k");
    direct.set("k", "past");
    until("it is seen", || client.ask("get k").contains("past"));
    drop((client, direct));
    let totals = world.stop();
    assert!(totals.hits > 10);
}

/// A write costs the server one read, and no reader waits.
#[test]
fn a_value_that_is_read_is_asked_for_when_it_is_written() {
    const WRITES: u64 = 20;
    let Some(world) = World::start(&[("max-age", "60")]) else { return };
    let (mut client, mut direct) = (world.client(), world.server.connect());
    client.set("k", "0");
    world.hot(&mut client, "get k");
    let gets = |direct: &mut Connection| -> u64 {
        let stats = direct.ask("stats");
        let gets = stats.split_once("STAT cmd_get ").and_then(|(_, it)| it.split_once('\r'));
        gets.expect("they are counted").0.parse().expect("a number")
    };
    let before = gets(&mut direct);
    for round in 1..=WRITES {
        let fills = world.running.handle().totals().1.fills;
        client.set("k", &round.to_string());
        until("it is asked for", || world.running.handle().totals().1.fills > fills);
        assert!(client.ask("get k").contains(&format!("\r\n{round}\r\n")));
    }
    let gets = gets(&mut direct) - before;
    // A late sign of life costs a read more.
    assert!((WRITES..WRITES * 3 / 2).contains(&gets), "{gets} reads");
}

#[test]
fn keys_in_base64_are_cached_as_memcached_shows_them() {
    let Some(world) = World::start(&[]) else { return };
    let (mut client, mut direct) = (world.client(), world.server.connect());
    assert_eq!(client.ask("ms AAEgAg== 2 b\r\nhi"), "HD\r\n");
    assert_eq!(client.ask("ms YmFy 2 b\r\nhi"), "HD\r\n");
    for line in
        ["mg AAEgAg== b k v", "mg AAEgAg== b v s", "mg bar k v", "mg YmFy b v k f", "get bar"]
    {
        let wanted = direct.ask(line);
        assert_eq!(world.hot(&mut client, line), wanted, "{line}");
    }
    // A write by the other name is one of the key.
    client.set("bar", "new");
    assert_eq!(client.ask("mg YmFy b v"), "VA 3\r\nnew\r\n");
    world.hot(&mut client, "mg bar v");
    assert_eq!(client.ask("ms YmFy 2 b\r\nhi"), "HD\r\n");
    assert_eq!(client.ask("get bar"), "VALUE bar 0 2\r\nhi\r\nEND\r\n");
}

/// Readers do not wait for a value that is asked for again in time.
#[test]
fn a_value_that_is_read_is_refreshed() {
    let Some(world) = World::start(&[]) else { return };
    let mut client = world.client();
    client.set("k", "one");
    world.hot(&mut client, "get k");
    let before = world.totals();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        assert_eq!(client.ask("get k"), "VALUE k 0 3\r\none\r\nEND\r\n");
        std::thread::sleep(Duration::from_millis(1));
    }
    world.settled();
    let after = world.totals();
    // Now and then a busy machine is late.
    let expired = after.missed[Missed::Expired.index()] - before.missed[Missed::Expired.index()];
    assert!(expired < 4 && after.hits - before.hits > 100, "{expired} {after:?}");
    let fills = world.running.handle().totals().1.fills;
    assert!((5..16).contains(&fills), "{fills}");
    // One that is not read is not.
    std::thread::sleep(Duration::from_secs(3));
    assert!(world.running.handle().totals().1.fills < fills + 3);
}

/// A value is not served beyond its age, even if it was not read meanwhile.
#[test]
fn a_value_that_is_not_read_ends_with_its_age() {
    let Some(world) = World::start(&[]) else { return };
    let (mut client, mut direct) = (world.client(), world.server.connect());
    client.set("k", "one");
    world.hot(&mut client, "get k");
    // It is refreshed once more.
    std::thread::sleep(Duration::from_millis(1700));
    direct.set("k", "past");
    std::thread::sleep(Duration::from_millis(1100));
    assert!(client.ask("get k").contains("past"));
}

#[test]
fn without_a_longest_age_values_last_until_they_are_written() {
    let Some(world) = World::start(&[("max-age", "none")]) else { return };
    let (mut client, mut direct) = (world.client(), world.server.connect());
    client.set("k", "one");
    world.hot(&mut client, "get k");
    direct.set("k", "past");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(client.ask("get k").contains("one"), "it was asked for again");
    client.set("k", "two");
    assert!(client.ask("get k").contains("two"));
}

#[test]
fn a_stale_item_makes_one_reader_store_it_again() {
    let Some(world) = World::start(&[("max-age", "none")]) else { return };
    let mut client = world.client();
    for round in 0..5 {
        let key = format!("k{round}");
        client.set(&key, "one");
        world.hot(&mut client, &format!("mg {key} v"));
        assert_eq!(client.ask(&format!("md {key} I T30")), "HD\r\n");
        // By get, nothing shows.
        (0..200).for_each(|_| drop(client.ask(&format!("get {key}"))));
        std::thread::sleep(Duration::from_millis(50));
        assert!(client.ask(&format!("mg {key} v")).starts_with("VA 3 X W\r\n"));
        assert!(client.ask(&format!("mg {key} v")).starts_with("VA 3 Z X\r\n"));
    }
}

#[test]
fn a_key_that_is_written_all_the_time_is_left_out() {
    let Some(world) = World::start(&[]) else { return };
    let mut client = world.client();
    until("it is evicted", || {
        client.set("k", "one");
        client.ask("get k");
        world.running.handle().totals().1.evicted > 0
    });
    let hottest = world.running.handle().hottest();
    assert!(hottest.keys.iter().all(|hot| !hot.is_cached || hot.writes > 0), "{hottest:?}");
}

#[test]
fn rules_and_modes_hold() {
    let Some(world) = World::start(&[("deny", "lock:"), ("prefix", "lock:,page:")]) else { return };
    let mut client = world.client();
    for _ in 0..300 {
        client.ask("get lock:1");
        client.ask("get other");
    }
    assert_eq!(world.settled(), 0);
    world.hot(&mut client, "get page:1");
    drop(client);
    world.stop();
    let Some(world) = World::start(&[("mode", "observe")]) else { return };
    let mut client = world.client();
    until("it is seen", || {
        client.ask("get k");
        world.running.handle().hottest().keys.iter().any(|hot| *hot.key == *b"k")
    });
    assert_eq!(world.settled(), 0);
}
