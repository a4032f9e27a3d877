//! What settings leave out is not cached, and what they bound stays within it.

use crate::common::{settled, until};
use crate::hits::hot;
use crate::servers::{Connection, Redis, proxy};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::totals::Missed;
use std::io::Read;

/// Reads that make any key hot.
const READS: usize = 300;

/// A proxy with settings, a client of it, and one of the server.
fn world(flags: &[(&str, &str)]) -> Option<(Redis, Running, Connection, Connection)> {
    let redis = Redis::start(&[])?;
    let running = proxy(redis.port, flags);
    let client = Connection::open(running.handle().address().port());
    let direct = redis.connect();
    Some((redis, running, client, direct))
}

fn missed(running: &Running, why: Missed) -> u64 {
    running.handle().totals().0.missed[why.index()]
}

#[test]
fn replies_of_listed_commands_alone_are_cached() {
    let list = [("cacheable", "get,HLEN")];
    let Some((_redis, running, mut client, mut direct)) = world(&list) else { return };
    direct.ask("SET k one");
    direct.ask("HSET h f one");
    for _ in 0..READS {
        assert_eq!(client.ask("STRLEN k"), ":3\r\n");
        assert_eq!(client.ask("HGETALL h"), "*2\r\n$1\r\nf\r\n$3\r\none\r\n");
    }
    assert_eq!(settled(&running), 0);
    assert_eq!(running.handle().totals().0.reads, 0, "they are not looked up");
    assert_eq!(hot(&running, &mut client, "GET k"), "$3\r\none\r\n");
    assert_eq!(hot(&running, &mut client, "HLEN h"), ":1\r\n");
}

#[test]
fn long_values_are_passed_on() {
    let limit = [("value-max", "100")];
    let Some((_redis, running, mut client, mut direct)) = world(&limit) else { return };
    let long = "v".repeat(101);
    direct.ask(&format!("SET long {long}"));
    direct.ask("SET short one");
    for _ in 0..READS {
        assert_eq!(client.ask("GET long"), format!("$101\r\n{long}\r\n"));
    }
    assert_eq!(settled(&running), 0);
    hot(&running, &mut client, "GET short");
}

#[test]
fn no_more_keys_are_cached_than_the_limit() {
    let limit = [("entries", "2")];
    let Some((_redis, running, mut client, _direct)) = world(&limit) else { return };
    for key in 0..8 {
        (0..READS).for_each(|_| drop(client.ask(&format!("GET {key}"))));
        assert!(running.handle().totals().1.cached <= 2);
    }
    until("it is full", || running.handle().totals().1.cached == 2);
}

#[test]
fn no_more_clients_are_served_than_the_limit() {
    let limit = [("clients", "1")];
    let Some((_redis, running, mut client, _direct)) = world(&limit) else { return };
    let port = running.handle().address().port();
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    let mut more = Connection::open(port);
    assert_eq!(more.reply(), b"-ERR max number of clients reached\r\n", "in Redis' words");
    assert_eq!(more.stream.read(&mut [0; 1]).ok(), Some(0));
    assert_eq!(client.ask("GET k"), "$-1\r\n", "the first one stays");
    drop(client);
    until("there is room again", || {
        let mut next = Connection::open(port);
        next.send(&[b"GET", b"k"]);
        next.reply() == b"$-1\r\n"
    });
}

#[test]
fn a_hit_waits_for_what_came_before_it_where_the_connection_orders() {
    let order = [("order", "connection"), ("lanes", "dedicated")];
    let Some((_redis, running, mut client, _direct)) = world(&order) else { return };
    hot(&running, &mut client, "GET k");
    let before = missed(&running, Missed::Order);
    for round in 0..READS {
        client.send(&[b"SET", b"other", round.to_string().as_bytes()]);
        client.send(&[b"GET", b"k"]);
        assert_eq!(client.reply(), b"+OK\r\n");
        assert_eq!(client.reply(), b"$-1\r\n");
    }
    until("they are counted", || missed(&running, Missed::Order) > before);
}

#[test]
fn a_script_closes_the_cache_where_any_key_may_be_written() {
    let scripts = [("scripts", "close")];
    let Some((_redis, running, mut client, _direct)) = world(&scripts) else { return };
    client.ask("SET k 0");
    let script: &[u8] = b"return redis.call('incr', 'k')";
    for round in 1..=50 {
        hot(&running, &mut client, "GET k");
        // It declares no key.
        client.send(&[b"EVAL", script, b"0"]);
        assert_eq!(client.reply(), format!(":{round}\r\n").into_bytes());
        assert!(client.ask("GET k").ends_with(&format!("\r\n{round}\r\n")), "round {round}");
    }
}
