//! Hot keys are answered by the proxy, and writes of any kind are seen.

use crate::servers::{Connection, Redis, proxy, until};
use overbank_kv::proxy::Running;

/// Reads until the proxy answers; returns that reply.
pub fn hot(running: &Running, client: &mut Connection, line: &str) -> String {
    let hits = || running.handle().totals().0.hits;
    let before = hits();
    let mut last = String::new();
    until("a hit", || {
        last = client.ask(line);
        hits() > before
    });
    last
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
