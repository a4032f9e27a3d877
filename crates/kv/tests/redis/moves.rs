//! Keys and roles that move from server to server, by the means that operators use.

use crate::common::{Program, until};
use crate::faults::try_ask;
use crate::hits::hot;
use crate::servers::{Connection, Redis, proxy, seen_within};
use std::time::{Duration, Instant};

/// The default of `staleness-max`.
const BOUND: Duration = Duration::from_secs(1);

/// Keys go one by one, then the slot: `bar` is in slot 5061.
#[test]
fn a_slot_that_is_migrated() {
    let more = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let (Some(from), Some(to)) = (Redis::start(&more), Redis::start(&more)) else { return };
    let (mut source, mut target) = (from.connect(), to.connect());
    assert_eq!(source.ask("CLUSTER ADDSLOTSRANGE 0 8191"), "+OK\r\n");
    assert_eq!(target.ask("CLUSTER ADDSLOTSRANGE 8192 16383"), "+OK\r\n");
    source.ask(&format!("CLUSTER MEET 127.0.0.1 {}", to.port));
    until("it knows the other", || source.ask("GET foo").starts_with("-MOVED 12182 "));
    until("the other knows it", || target.ask("GET bar").starts_with("-MOVED 5061 "));
    let [id_of_source, id_of_target] = [&mut source, &mut target].map(|node| {
        let id = node.ask("CLUSTER MYID");
        id.split("\r\n").nth(1).expect("a bulk").to_owned()
    });
    let (before, behind) = (proxy(from.port, &[]), proxy(to.port, &[]));
    let mut client = Connection::open(before.handle().address().port());
    let mut other = Connection::open(behind.handle().address().port());
    for key in ["{bar}past", "{bar}through"] {
        assert_eq!(source.ask(&format!("SET {key} old")), "+OK\r\n");
        assert_eq!(hot(&before, &mut client, &format!("GET {key}")), "$3\r\nold\r\n");
    }
    target.ask(&format!("CLUSTER SETSLOT 5061 IMPORTING {id_of_source}"));
    source.ask(&format!("CLUSTER SETSLOT 5061 MIGRATING {id_of_target}"));
    // What has not moved yet is served.
    assert_eq!(hot(&before, &mut client, "GET {bar}past"), "$3\r\nold\r\n");
    let port = to.port.to_string();
    let mut migrate = |by: &mut Connection, key: &str| {
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        by.send(&words.map(str::as_bytes));
        assert_eq!(by.reply(), b"+OK\r\n");
        other.ask("ASKING");
        assert_eq!(other.ask(&format!("SET {key} new")), "+OK\r\n");
    };
    migrate(&mut source, "{bar}past");
    seen_within(Instant::now(), BOUND, || client.ask("GET {bar}past").starts_with("-ASK 5061 "));
    // Through the proxy: at once.
    migrate(&mut client, "{bar}through");
    for _ in 0..200 {
        for key in ["{bar}past", "{bar}through"] {
            assert!(client.ask(&format!("GET {key}")).starts_with("-ASK 5061 "), "{key}");
        }
    }
    for node in [&mut target, &mut source] {
        assert_eq!(node.ask(&format!("CLUSTER SETSLOT 5061 NODE {id_of_target}")), "+OK\r\n");
    }
    for key in ["{bar}past", "{bar}through"] {
        seen_within(Instant::now(), BOUND, || {
            client.ask(&format!("GET {key}")).starts_with("-MOVED 5061 ")
        });
        assert_eq!(hot(&behind, &mut other, &format!("GET {key}")), "$3\r\nnew\r\n");
    }
}

/// A sentinel makes the replica the master, and the master a replica of it. A proxy is before each.
#[test]
fn a_failover_by_sentinel() {
    let delay = ["--repl-diskless-sync-delay", "0"];
    let (Some(one), Some(two)) = (Redis::start(&delay), Redis::start(&delay)) else { return };
    let (mut first, mut second) = (one.connect(), two.connect());
    second.ask(&format!("REPLICAOF 127.0.0.1 {}", one.port));
    first.ask("SET k old");
    until("it follows", || second.ask("GET k") == "$3\r\nold\r\n");
    let proxies = [proxy(one.port, &[]), proxy(two.port, &[])];
    let mut clients = [0, 1].map(|at| Connection::open(proxies[at].handle().address().port()));
    for (proxy, client) in proxies.iter().zip(&mut clients) {
        assert_eq!(hot(proxy, client, "GET k"), "$3\r\nold\r\n");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("sentinel.conf");
    let lines = format!(
        "sentinel monitor it 127.0.0.1 {} 1\nsentinel down-after-milliseconds it 5000\n\
         sentinel failover-timeout it 10000\n",
        one.port
    );
    std::fs::write(&file, lines).expect("a file");
    let sentinel = Program::start("redis-server", |command, port| {
        command.arg(&file).args(["--sentinel", "--port", &port.to_string()]);
        command.args(["--bind", "127.0.0.1"]).current_dir(folder.path());
    });
    let mut sentinel = Connection::open(sentinel.as_ref().expect("Redis is there").port);
    until("it knows the replica", || sentinel.ask("SENTINEL FAILOVER it") == "+OK\r\n");
    // Sentinel closes the clients of both.
    let told = |port, line| try_ask(port, &mut None, line).unwrap_or_default();
    until("the replica is a master", || told(two.port, "ROLE").contains("master"));
    let port = proxies[1].handle().address().port();
    until("it takes writes", || told(port, "SET k new") == "+OK\r\n");
    let mut writer = Connection::open(port);
    for _ in 0..200 {
        assert_eq!(writer.ask("GET k"), "$3\r\nnew\r\n");
    }
    assert_eq!(hot(&proxies[1], &mut writer, "GET k"), "$3\r\nnew\r\n");
    // The old master follows, and so does its proxy.
    until("the old master is a replica", || {
        told(one.port, "ROLE").contains("slave") && told(one.port, "GET k") == "$3\r\nnew\r\n"
    });
    let mut reader = Connection::open(proxies[0].handle().address().port());
    seen_within(Instant::now(), BOUND, || reader.ask("GET k") == "$3\r\nnew\r\n");
    assert_eq!(hot(&proxies[0], &mut reader, "GET k"), "$3\r\nnew\r\n");
    assert!(reader.ask("SET k other").starts_with("-READONLY"));
}
