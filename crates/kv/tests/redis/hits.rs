//! Hot keys are answered by the proxy, and writes of any kind are seen.

use crate::common::{self, settled, until};
use crate::servers::{Connection, Redis, proxy};
use overbank_kv::proxy::Running;
use std::time::{Duration, Instant};

/// Reads until the proxy answers; returns that reply.
pub fn hot(running: &Running, client: &mut Connection, line: &str) -> String {
    common::hit(running, || client.ask(line))
}

#[test]
fn a_hot_key_is_answered_here_and_each_write_is_seen() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut client = Connection::open(running.handle().address().port());
    let mut direct = redis.connect();
    assert_eq!(client.ask("SET k one"), "+OK\r\n");
    assert_eq!(hot(&running, &mut client, "GET k"), "$3\r\none\r\n");
    // On the path: at once.
    for round in 0..100 {
        client.ask(&format!("SET k {round}"));
        assert!(client.ask("GET k").ends_with(&format!("\r\n{round}\r\n")));
    }
    // Past the proxy: soon.
    hot(&running, &mut client, "GET k");
    direct.ask("SET k past");
    until("it is seen", || client.ask("GET k") == "$4\r\npast\r\n");
    hot(&running, &mut client, "GET k");
    direct.ask("FLUSHALL");
    until("it is seen", || client.ask("GET k") == "$-1\r\n");
    drop((client, direct));
    let (totals, core) = running.stop();
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>());
    assert!(core.fills > 0 && core.pushes > 0, "{core:?}");
}

/// A write, through the proxy or past it, costs the server one read, and no reader waits.
#[test]
fn a_value_that_is_read_is_asked_for_when_it_is_written() {
    const WRITES: u64 = 20;
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut client = Connection::open(running.handle().address().port());
    let mut direct = redis.connect();
    client.ask("SET k 0");
    hot(&running, &mut client, "GET k");
    direct.ask("CONFIG RESETSTAT");
    let fills = || running.handle().totals().1.fills;
    for round in 1..=WRITES {
        let before = fills();
        let writer = if round % 2 == 0 { &mut client } else { &mut direct };
        assert_eq!(writer.ask(&format!("SET k {round}")), "+OK\r\n");
        until("it is asked for", || fills() > before);
        assert!(client.ask("GET k").ends_with(&format!("\r\n{round}\r\n")));
    }
    let stats = direct.ask("INFO commandstats");
    let gets = stats.split_once("cmdstat_get:calls=").and_then(|(_, it)| it.split_once(','));
    let gets: u64 = gets.expect("they are counted").0.parse().expect("a number");
    // A late sign of life costs a read more.
    assert!((WRITES..WRITES * 3 / 2).contains(&gets), "{gets} reads");
    // Another form of it, once: after the second write, it is as if that had not been.
    hot(&running, &mut client, "GETRANGE k 0 0");
    for round in 1..=WRITES {
        let before = fills();
        client.ask(&format!("SET k {round}"));
        if round > 2 {
            until("it is asked for", || fills() > before);
        }
        hot(&running, &mut client, "GET k");
    }
    // What is not read is not asked for.
    let before = fills();
    client.ask("SET k unread");
    settled(&running);
    direct.ask("CONFIG RESETSTAT");
    for _ in 0..WRITES {
        client.ask("SET k unread");
    }
    until("a read", || hot(&running, &mut client, "GET k") == "$6\r\nunread\r\n");
    assert!(fills() - before < WRITES, "{} for one reader", fills() - before);
}

#[test]
fn a_value_ends_with_its_expiry() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut client = Connection::open(running.handle().address().port());
    client.ask("SET k one PX 400");
    hot(&running, &mut client, "GET k");
    until("it has expired", || client.ask("GET k") == "$-1\r\n");
    let mut direct = redis.connect();
    assert_eq!(direct.ask("EXISTS k"), ":0\r\n");
}

#[test]
fn a_key_is_hot_again_after_its_longest_age() {
    let Some(redis) = Redis::start(&[]) else { return };
    let flags = [("staleness-max", "0.3"), ("max-age", "0.3")];
    let running = proxy(redis.port, &flags);
    let mut client = Connection::open(running.handle().address().port());
    client.ask("SET k one");
    let start = Instant::now();
    // Without a write, and each time a good deal later than the age of the last value.
    for round in 0..4u32 {
        while start.elapsed() < round * Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(hot(&running, &mut client, "GET k"), "$3\r\none\r\n");
        let before = settled(&running);
        (0..20).for_each(|_| drop(client.ask("GET k")));
        // A value that were over as it came would give none.
        assert!(settled(&running) > before, "round {round}");
    }
}

#[test]
fn a_value_of_a_database_that_the_proxy_may_not_choose_is_never_another_ones() {
    let Some(redis) = Redis::start(&[]) else { return };
    let mut direct = redis.connect();
    direct.ask("ACL SETUSER narrow on >pw ~* &* +@all -select");
    direct.ask("SET k zero");
    let url = format!("redis://narrow:pw@127.0.0.1:{}", redis.port);
    let running = proxy(redis.port, &[("upstream", &url)]);
    let mut client = Connection::open(running.handle().address().port());
    let mut other = Connection::open(running.handle().address().port());
    client.ask("SELECT 1");
    client.ask("SET k one");
    for _ in 0..2000 {
        assert_eq!(client.ask("GET k"), "$3\r\none\r\n");
    }
    assert_eq!(hot(&running, &mut other, "GET k"), "$4\r\nzero\r\n");
    for _ in 0..2000 {
        assert_eq!(client.ask("GET k"), "$3\r\none\r\n");
        assert_eq!(other.ask("GET k"), "$4\r\nzero\r\n");
    }
}

#[test]
fn forms_of_a_hot_key_that_are_asked_for_once_are_not_fetched() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut client = Connection::open(running.handle().address().port());
    client.ask("HSET h f 0");
    hot(&running, &mut client, "HGET h f");
    let fills = running.handle().totals().1.fills;
    for field in 0..1000 {
        assert_eq!(client.ask(&format!("HGET h {field}")), "$-1\r\n");
    }
    settled(&running);
    let more = running.handle().totals().1.fills - fills;
    assert!(more < 100, "{more} fills");
    // One that is asked for often is.
    hot(&running, &mut client, "HGET h 7");
}
