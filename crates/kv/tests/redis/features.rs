//! Features of Redis through the proxy, one by one.

use crate::common::{LONG, until};
use crate::hits::hot;
use crate::servers::{Connection, Redis, Way, plainly, proxy, seen_within};
use overbank_kv::proxy::Running;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

struct World {
    redis: Redis,
    running: Running,
    port: u16,
}

impl World {
    fn start(more: &[&str], flags: &[(&str, &str)]) -> Option<World> {
        let redis = Redis::start(more)?;
        let url = "redis://:secret@127.0.0.1:".to_owned() + &redis.port.to_string();
        let own = [("upstream", url.as_str())];
        let is_closed = more.contains(&"--requirepass");
        let flags = [flags, if is_closed { &own } else { &[] }].concat();
        let running = proxy(redis.port, &flags);
        let port = running.handle().address().port();
        Some(World { redis, running, port })
    }

    fn by(way: Way) -> Option<World> {
        let redis = Redis::start(&[])?;
        let (running, port) = way(&redis, &[]);
        Some(World { redis, running, port })
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn client(&self) -> Connection {
        Connection::open(self.port())
    }

    fn hits(&self) -> u64 {
        self.running.handle().totals().0.hits
    }

    fn clients(&self) -> u64 {
        self.running.handle().totals().0.clients
    }
}

/// Reads until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.set_read_timeout(Some(LONG)).expect("an option");
    stream.read_to_end(&mut all).expect("it ends in time");
    all
}

/// Returns the memory of this process, in MiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    (pages.unwrap_or(0) * 4096) >> 20
}

#[test]
fn hits_are_for_those_who_have_said_the_password() {
    let Some(world) = World::start(&["--requirepass", "secret"], &[]) else { return };
    let mut client = world.client();
    assert!(client.ask("GET k").starts_with("-NOAUTH"));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
    client.ask("SET k one");
    hot(&world.running, &mut client, "GET k");
    let mut other = world.client();
    (0..100).for_each(|_| assert!(other.ask("GET k").starts_with("-NOAUTH")));
    assert!(other.ask("HELLO 3 AUTH default secret").starts_with('%'));
    assert_eq!(hot(&world.running, &mut other, "GET k"), "$3\r\none\r\n");
    assert_eq!(other.ask("RESET"), "+RESET\r\n");
    (0..100).for_each(|_| assert!(other.ask("GET k").starts_with("-NOAUTH")));
}

#[test]
fn users_of_some_keys_get_no_others() {
    let Some(world) = World::start(&[], &[]) else { return };
    let mut client = world.client();
    client.ask("SET k one");
    client.ask("SET mine two");
    client.ask("ACL SETUSER few on >few ~mine +@all");
    client.ask("ACL SETUSER get on >get ~* +get +set");
    client.ask("ACL SETUSER all on >all ~* +@all");
    hot(&world.running, &mut client, "GET k");
    hot(&world.running, &mut client, "STRLEN k");
    let mut few = world.client();
    assert_eq!(few.ask("AUTH few few"), "+OK\r\n");
    let mut get = world.client();
    assert!(get.ask("HELLO 2 AUTH get get").starts_with('*'));
    let mut all = world.client();
    assert_eq!(all.ask("AUTH all all"), "+OK\r\n");
    hot(&world.running, &mut all, "GET k");
    for _ in 0..100 {
        client.ask("GET k");
        assert!(few.ask("GET k").starts_with("-NOPERM"));
        assert_eq!(few.ask("GET mine"), "$3\r\ntwo\r\n");
        assert!(get.ask("STRLEN k").starts_with("-NOPERM"));
        assert_eq!(get.ask("GET k"), "$3\r\none\r\n");
    }
    // A user loses keys, by a command through the proxy: at once.
    for _ in 0..20 {
        client.ask("ACL SETUSER all resetkeys ~none");
        (0..5).for_each(|_| assert!(all.ask("GET k").starts_with("-NOPERM")));
        client.ask("ACL SETUSER all ~*");
        assert_eq!(all.ask("GET k"), "$3\r\none\r\n");
        hot(&world.running, &mut client, "GET k");
    }
    client.ask("ACL DELUSER all");
    assert!(rest(&mut all.stream).is_empty());
}

#[test]
fn a_key_has_a_value_in_each_database() {
    let Some(world) = World::start(&[], &[]) else { return };
    let (mut client, mut other) = (world.client(), world.client());
    other.ask("SELECT 1");
    client.ask("SET k zero");
    other.ask("SET k one");
    for _ in 0..20 {
        assert_eq!(hot(&world.running, &mut client, "GET k"), "$4\r\nzero\r\n");
        assert_eq!(hot(&world.running, &mut other, "GET k"), "$3\r\none\r\n");
        other.ask("SELECT 0");
        assert_eq!(other.ask("GET k"), "$4\r\nzero\r\n");
        assert!(other.ask("SELECT 99").starts_with("-ERR"));
        assert_eq!(other.ask("GET k"), "$4\r\nzero\r\n");
        other.ask("SELECT 1");
        other.ask("SET k one");
        assert_eq!(other.ask("GET k"), "$3\r\none\r\n");
        client.ask("MOVE none 1");
    }
}

#[test]
fn watch_loses_no_update() {
    let Some(world) = World::start(&[], &[("workers", "2")]) else { return };
    let port = world.port();
    world.client().ask("SET sum 0");
    let done: u64 = std::thread::scope(|scope| {
        let add = || {
            let mut client = Connection::open(port);
            let mut done = 0;
            for _ in 0..300 {
                client.ask("GET sum");
                client.ask("WATCH sum");
                let value = crate::history::number(&client.ask("GET sum")).unwrap_or(0);
                client.ask("MULTI");
                client.ask(&format!("SET sum {}", value + 1));
                done += u64::from(client.ask("EXEC") == "*1\r\n+OK\r\n");
            }
            done
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(done > 0);
    let sum = done.to_string();
    assert_eq!(world.client().ask("GET sum"), format!("${}\r\n{sum}\r\n", sum.len()));
}

#[test]
fn an_element_is_not_lost_by_a_client_that_leaves() {
    let Some(world) = World::start(&[], &[]) else { return };
    let mut direct = world.redis.connect();
    for round in 0..20 {
        // It waits and leaves.
        let mut client = world.client();
        client.send(&[b"BLPOP", b"list", b"0"]);
        until("it waits", || direct.ask("INFO clients").contains("blocked_clients:1\r"));
        if round % 2 == 0 {
            client.stream.shutdown(Shutdown::Write).expect("it is open");
            assert!(rest(&mut client.stream).is_empty());
        }
        drop(client);
        until("it is gone", || direct.ask("INFO clients").contains("blocked_clients:0\r"));
        direct.ask("RPUSH list element");
        // It says that it sends nothing more, as `printf | nc` does, and gets what is there.
        let mut client = world.client();
        client.send(&[b"BLPOP", b"list", b"0"]);
        client.stream.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(rest(&mut client.stream), b"*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n");
    }
}

#[test]
fn a_client_that_says_no_more_gets_all_replies() {
    let Some(world) = World::start(&[], &[]) else { return };
    let mut warm = world.client();
    warm.ask("SET k one");
    hot(&world.running, &mut warm, "GET k");
    for count in [1, 3, 1000, 20_000] {
        let mut stream = TcpStream::connect(("127.0.0.1", world.port())).expect("it listens");
        let mut reader = stream.try_clone().expect("a descriptor");
        let read = std::thread::spawn(move || rest(&mut reader));
        stream.write_all("GET k\r\nGET other\r\n".repeat(count).as_bytes()).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let got = read.join().expect("no panic");
        assert_eq!(got.len(), "$3\r\none\r\n$-1\r\n".len() * count);
    }
    until("they are gone", || world.clients() == 1);
}

#[test]
fn channels_monitor_and_tracking_reach_the_client() {
    let Some(world) = World::start(&[], &[]) else { return };
    let mut direct = world.redis.connect();
    let mut two = world.client();
    assert_eq!(two.ask("SUBSCRIBE c"), "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    direct.ask("PUBLISH c text");
    assert_eq!(two.reply(), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\ntext\r\n");
    assert!(two.ask("GET k").starts_with("-ERR Can't execute"));
    assert_eq!(two.ask("UNSUBSCRIBE"), "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
    two.ask("SET k one");
    assert_eq!(hot(&world.running, &mut two, "GET k"), "$3\r\none\r\n");
    // In RESP3, hits go on beside messages.
    let mut three = world.client();
    three.ask("HELLO 3");
    assert!(three.ask("SUBSCRIBE c").starts_with(">3\r\n$9\r\nsubscribe"));
    hot(&world.running, &mut three, "GET k");
    direct.ask(&format!("PUBLISH c {}", "x".repeat(300_000)));
    assert!(three.reply().len() > 300_000);
    // What a client reads itself is followed for it.
    assert_eq!(three.ask("CLIENT TRACKING ON"), "+OK\r\n");
    assert_eq!(three.ask("GET k"), "$3\r\none\r\n");
    direct.ask("SET k two");
    assert_eq!(three.reply(), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
    assert_eq!(three.ask("GET k"), "$3\r\ntwo\r\n");
    // Off again, hits come.
    assert_eq!(three.ask("CLIENT TRACKING OFF"), "+OK\r\n");
    hot(&world.running, &mut three, "GET k");
    let mut monitor = world.client();
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    direct.ask("ECHO heard");
    until("it is heard", || String::from_utf8_lossy(&monitor.reply()).contains("heard"));
}

#[test]
fn a_cluster_redirects_as_it_does_without_the_proxy() {
    let more = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let Some(world) = World::start(&more, &[]) else { return };
    let Some(second) = Redis::start(&more) else { return };
    let (mut direct, mut other) = (world.redis.connect(), second.connect());
    assert_eq!(direct.ask("CLUSTER ADDSLOTSRANGE 0 8191"), "+OK\r\n");
    assert_eq!(other.ask("CLUSTER ADDSLOTSRANGE 8192 16383"), "+OK\r\n");
    direct.ask(&format!("CLUSTER MEET 127.0.0.1 {}", second.port));
    // `foo` is in slot 12182, `bar` in 5061, `hello` in 866.
    until("they know each other", || direct.ask("GET foo").starts_with("-MOVED 12182 "));
    until("it serves", || direct.ask("SET bar one") == "+OK\r\n");
    let mut client = world.client();
    client.ask("SET hello two");
    assert_eq!(hot(&world.running, &mut client, "GET bar"), "$3\r\none\r\n");
    hot(&world.running, &mut client, "GET hello");
    hot(&world.running, &mut client, "MGET bar");
    for line in ["GET foo", "SET foo x", "MGET bar hello", "MSET bar 1 hello 2", "MGET bar foo"] {
        for _ in 0..20 {
            client.ask("GET bar");
            client.ask("GET hello");
            assert_eq!(client.ask(line), direct.ask(line), "{line}");
        }
    }
    assert_eq!(client.ask("ASKING"), "+OK\r\n");
    assert_eq!(client.ask("GET bar"), "$3\r\none\r\n");
    // A slot that moves: an absent key of it is not served for long.
    assert_eq!(hot(&world.running, &mut client, "GET {bar}none"), "$-1\r\n");
    let id = other.ask("CLUSTER MYID");
    let id = id.split("\r\n").nth(1).expect("a bulk");
    direct.ask("DEL bar");
    direct.ask(&format!("CLUSTER SETSLOT 5061 NODE {id}"));
    let start = Instant::now();
    let bound = Duration::from_secs(1);
    seen_within(start, bound, || client.ask("GET {bar}none").starts_with("-MOVED"));
}

#[test]
fn a_replica_follows_through_the_proxy() {
    let Some(world) = World::start(&["--repl-diskless-sync-delay", "0"], &[]) else { return };
    let Some(replica) = Redis::start(&[]) else { return };
    let (mut direct, mut client) = (replica.connect(), world.client());
    client.ask("SET before 1");
    direct.ask(&format!("REPLICAOF 127.0.0.1 {}", world.port()));
    until("it has what was", || direct.ask("GET before") == "$1\r\n1\r\n");
    for round in 0..100 {
        client.ask(&format!("SET k {round}"));
    }
    until("it has what came", || direct.ask("GET k") == "$2\r\n99\r\n");
    assert_eq!(client.ask("WAIT 1 5000"), ":1\r\n");
    client.ask("SET k last");
    hot(&world.running, &mut client, "GET k");
}

/// Reads at least `len` bytes of replies; returns how many there are in all.
fn read_long(stream: &mut TcpStream, len: usize) -> usize {
    let (mut bytes, mut all) = (vec![0; 1 << 20], 0);
    while all < len {
        let count = stream.read(&mut bytes).expect("it goes on");
        assert!(count > 0, "it ends after {all}");
        all += count;
    }
    all
}

pub fn long_values(len: usize, way: Way) {
    let Some(world) = World::by(way) else { return };
    let mut direct = world.redis.connect();
    direct.ask(&format!("SETRANGE big {} x", len - 1));
    let before = resident();
    let mut client = world.client();
    client.send(&[b"GET", b"big"]);
    let frame = format!("${len}\r\n").len() + 2;
    assert_eq!(read_long(&mut client.stream, len + frame), len + frame);
    write!(client.stream, "*3\r\n$3\r\nSET\r\n$5\r\nother\r\n${len}\r\n").expect("it is read");
    let some = vec![b'y'; 1 << 20];
    for _ in 0..len / some.len() {
        client.stream.write_all(&some).expect("it is read");
    }
    client.stream.write_all(b"\r\n").expect("it is read");
    assert_eq!(client.reply(), b"+OK\r\n");
    assert_eq!(client.ask("STRLEN other"), direct.ask("STRLEN big"));
    let grown = resident().saturating_sub(before);
    assert!(grown < 128, "{grown} MiB for a value of {} MiB", len >> 20);
}

#[test]
fn long_values_are_streamed() {
    long_values(128 << 20, plainly);
}

#[test]
#[ignore = "soak: the longest value, twice in the server's memory"]
fn the_longest_values_are_streamed() {
    long_values(512 << 20, plainly);
}

/// Writes all requests before it reads a reply.
pub fn pipeline(count: usize, request: &str, reply: &str, is_hot: bool, way: Way) {
    let Some(world) = World::by(way) else { return };
    let mut client = world.client();
    client.ask("SET k one");
    if is_hot {
        hot(&world.running, &mut client, "GET k");
    }
    let before = resident();
    let requests = request.repeat(1000);
    for _ in 0..count / 1000 {
        client.stream.write_all(requests.as_bytes()).expect("it is read");
    }
    let all = read_long(&mut client.stream, reply.len() * count);
    assert_eq!(all, reply.len() * count);
    let grown = resident().saturating_sub(before);
    assert!(grown < 128, "{grown} MiB for {count} of {request:?}");
    assert_eq!(client.ask("ECHO end"), "$3\r\nend\r\n");
}

#[test]
fn a_million_requests_are_written_before_a_reply_is_read() {
    pipeline(1_000_000, "GET k\r\n", "$3\r\none\r\n", true, plainly);
    pipeline(1_000_000, "GET none\r\n", "$-1\r\n", false, plainly);
    pipeline(1_000_000, "SET k one\r\n", "+OK\r\n", true, plainly);
}

#[test]
fn what_is_no_request_gets_the_error_of_redis() {
    let Some(world) = World::start(&[], &[]) else { return };
    for bytes in [
        &b"*1\r\n$9223372036854775808\r\n"[..],
        b"*1\r\n$-1\r\n",
        b"PING\r\n*2147483648\r\n",
        b"SET a 1\r\nGET a\r\n*1\r\n+x\r\n",
        b"GET \"x\r\n",
        b"*1\r\n$536870913\r\n",
    ] {
        let answer = |port| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            stream.write_all(bytes).expect("it is read");
            rest(&mut stream)
        };
        let (wanted, got) = (answer(world.redis.port), answer(world.port()));
        assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    }
    assert_eq!(world.client().ask("PING"), "+PONG\r\n");
    // QUIT ends a connection, and nothing behind it is answered.
    let mut client = world.client();
    client.ask("SET k one");
    hot(&world.running, &mut client, "GET k");
    client.stream.write_all(b"GET k\r\nQUIT\r\nGET k\r\n").expect("it is read");
    assert_eq!(rest(&mut client.stream), b"$3\r\none\r\n+OK\r\n");
    drop(client);
    let (totals, _) = world.running.stop();
    assert_eq!(totals.refused, 6);
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>());
}

#[test]
fn slow_and_vanishing_clients_harm_no_others() {
    let Some(world) = World::start(&[], &[]) else { return };
    let mut client = world.client();
    client.ask(&format!("SET k {}", "x".repeat(10_000)));
    hot(&world.running, &mut client, "GET k");
    // They ask for much and do not read.
    let mut slow: Vec<Connection> = (0..10).map(|_| world.client()).collect();
    for one in &mut slow {
        one.stream.write_all("GET k\r\n".repeat(2000).as_bytes()).expect("it is read");
    }
    for round in 0..300 {
        let mut gone = world.client();
        let some: &[u8] = match round % 4 {
            0 => b"*3\r\n$3\r\nSET\r\n",
            1 => b"SET k",
            2 => b"MULTI\r\nSET other 1\r\nGET k\r\n",
            _ => b"*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$100000\r\nabc",
        };
        gone.stream.write_all(some).expect("it is read");
        assert!(client.ask("GET k").len() > 10_000);
    }
    // Those that read at last get all.
    let reply = 10_000 + "$10000\r\n\r\n".len();
    for one in &mut slow {
        assert_eq!(read_long(&mut one.stream, reply * 2000), reply * 2000);
    }
    drop(slow);
    until("they are gone", || world.clients() == 1);
    let before = world.hits();
    until("hits again", || {
        client.ask("GET k");
        world.hits() > before
    });
}

#[test]
fn idle_clients_cost_little() {
    let Some(world) = World::start(&[], &[]) else { return };
    let before = resident();
    let mut idle: Vec<Connection> = (0..2000).map(|_| world.client()).collect();
    for one in &mut idle {
        assert_eq!(one.ask("PING"), "+PONG\r\n");
    }
    assert_eq!(world.clients(), 2000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64, "{grown} MiB for 2000 clients");
    drop(idle);
    until("they are gone", || world.clients() == 0);
}
