//! Clients that share connections to Redis: each gets the replies that it would get alone.

use crate::common::{LONG, until};
use crate::hits::hot;
use crate::same::plain;
use crate::servers::{Connection, Redis, Way, plainly, proxy};
use overbank_kv::proxy::Running;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Commands that stay on a lane: `@` begins a client's own keys, `#` is a digit.
const SHAREABLE: [&str; 46] = [
    "GET hot-s",
    "GET hot-s",
    "GET hot-none",
    "MGET hot-s @s hot-none",
    "HGETALL hot-h",
    "HMGET hot-h f1 none",
    "LRANGE hot-l 0 -1",
    "SMEMBERS hot-t",
    "ZRANGE hot-z 0 -1 WITHSCORES",
    "ZSCORE hot-z m1",
    "GET @s",
    "GET @h",
    "STRLEN @s",
    "TYPE @#",
    "SET @s v#",
    "SET @s longer-#-value",
    "APPEND @s #",
    "SETRANGE @s # xy",
    "INCR @n",
    "INCR @s",
    "DEL @s @h",
    "HSET @h f# # g #",
    "HINCRBY @h f# 1",
    "HGETALL @h",
    "HGET @h f#",
    "RPUSH @l a b #",
    "LPOP @l",
    "LRANGE @l 0 -1",
    "LTRIM @l 0 5",
    "SADD @t # 1 2",
    "SREM @t #",
    "SMEMBERS @t",
    "SISMEMBER @t #",
    "ZADD @z # m#",
    "ZINCRBY @z 1.5 m#",
    "ZRANGE @z 0 -1 WITHSCORES",
    "ZSCORE @z m#",
    "XADD @x * f v",
    "XLEN @x",
    "MSET @s # @s2 #",
    "GETSET @s2 #",
    "GETDEL @s2",
    "SETBIT @b # 1",
    "BITCOUNT @b",
    "PING",
    "PING text-#",
];

/// What a client asks at its start, or again, that the proxy or a lane answers.
const STARTS: [&str; 4] =
    ["SELECT 0", "CLIENT SETINFO LIB-NAME test", "CLIENT SETINFO LIB-VER 1.#", "PING"];

/// What no lane takes, and what ends it.
const LEAVING: [&[&str]; 8] = [
    &["MULTI", "SET @s in-#", "INCR @n", "GET hot-s", "EXEC"],
    &["SUBSCRIBE @c", "UNSUBSCRIBE @c"],
    &["SELECT 1", "SET @s one-#", "GET @s", "SELECT 0", "GET @s"],
    &["BLPOP @none 0.01"],
    &["CLIENT ID"],
    &["WATCH @s", "GET @s", "UNWATCH"],
    &["EVAL return{1,'a'} 0", "ECHO text"],
    &["HELLO 2", "HGETALL hot-h"],
];

fn accounts(running: Running) -> overbank_kv::proxy::totals::ProxyTotals {
    assert!(!running.is_broken());
    let (totals, _) = running.stop();
    let sum = totals.hits + totals.answered + totals.forwarded + totals.refused;
    assert_eq!(totals.commands, sum, "{totals:?}");
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>(), "{totals:?}");
    totals
}

fn client(running: &Running) -> Connection {
    Connection::open(running.handle().address().port())
}

/// Returns the number of connections that the server has, without the one that asks and the one
/// that is tracked.
fn connections(direct: &mut Connection) -> usize {
    let list = direct.ask("CLIENT LIST");
    let others = |line: &&str| line.starts_with("id=") && !line.contains("overbank-kv-proxy");
    list.lines().map(|line| line.trim_start_matches("txt:")).filter(others).count() - 1
}

/// Reads until the other side ends, or an error of the connection.
fn rest(connection: &mut Connection) -> usize {
    let (mut all, mut bytes) = (0, vec![0; 1 << 20]);
    loop {
        match connection.stream.read(&mut bytes) {
            Ok(0) => return all,
            Ok(count) => all += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("it does not end: {error}"),
        }
    }
}

/// A client behind the proxy and its twin at another server.
struct Twins {
    random: Pcg64Mcg,
    prefix: String,
    both: [Connection; 2],
    name: Option<String>,
    log: Vec<String>,
}

impl Twins {
    fn words(&mut self, line: &str) -> Vec<Vec<u8>> {
        let digit = self.random.random_range(0..9u8).to_string();
        let line = line.replace('@', &self.prefix).replace('#', &digit);
        // Two servers give different numbers.
        let id = self.log.len() + 1;
        self.log.push(line.clone());
        let text = |word: &str| match word {
            "*" => format!("{id}-1").into_bytes(),
            word => word.as_bytes().to_vec(),
        };
        line.split(' ').map(text).collect()
    }

    /// Sends the same to both and compares as many replies as there are commands.
    fn compare(&mut self, commands: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| overbank_wire::resp::command(words, &mut bytes));
        let cut = self.random.random_range(0..=bytes.len());
        for connection in &mut self.both {
            connection.stream.write_all(&bytes[..cut]).expect("it is read");
            connection.stream.write_all(&bytes[cut..]).expect("it is read");
        }
        let [direct, behind] = &mut self.both;
        for words in commands {
            let (wanted, got) = (direct.reply(), behind.reply());
            let same = wanted == got
                || plain(&wanted) == plain(&got)
                || words[..] == [b"CLIENT".to_vec(), b"ID".to_vec()] && got.starts_with(b":");
            let tail = self.log.len().saturating_sub(60);
            assert!(
                same,
                "{} after {:#?}\nthe server {}\nthe proxy {}",
                words.join(&b' ').escape_ascii(),
                &self.log[tail..],
                wanted.escape_ascii(),
                got.escape_ascii()
            );
        }
    }

    fn start(&mut self) {
        self.name = None;
        let mut commands = Vec::new();
        if self.random.random_bool(0.5) {
            commands.push(self.words("HELLO 3"));
        }
        for _ in 0..self.random.random_range(0..3) {
            let line = STARTS.choose(&mut self.random).copied().unwrap_or("PING");
            commands.push(self.words(line));
        }
        if self.random.random_bool(0.5) {
            let name = format!("name-{}", self.log.len());
            commands.push(self.words(&format!("CLIENT SETNAME {name}")));
            self.name = Some(name);
        }
        self.compare(&commands);
    }

    fn pipeline(&mut self) {
        let count = self.random.random_range(1..40);
        let mut commands = Vec::new();
        for _ in 0..count {
            let from: &[&str] = if self.random.random_ratio(1, 30) { &STARTS } else { &SHAREABLE };
            let line = from.choose(&mut self.random).copied().unwrap_or("PING");
            commands.push(self.words(line));
        }
        self.compare(&commands);
    }

    /// Leaves the lane among other commands.
    fn leave(&mut self) {
        let mut commands = Vec::new();
        for _ in 0..self.random.random_range(0..20) {
            let line = SHAREABLE.choose(&mut self.random).copied().unwrap_or("PING");
            commands.push(self.words(line));
        }
        match self.random.random_range(0..LEAVING.len() + 2) {
            at if at < LEAVING.len() => {
                for line in LEAVING[at] {
                    commands.push(self.words(line));
                }
            }
            at if at == LEAVING.len() => {
                let mut long = self.words("SET @s");
                long.push(vec![b'x'; 100_000]);
                commands.push(long);
                commands.push(self.words("STRLEN @s"));
                commands.push(self.words("CLIENT ID"));
            }
            _ => {
                (0..1500).for_each(|_| commands.push(vec![b"INCR".to_vec(), self.key("n")]));
                commands.push(self.words("CLIENT ID"));
            }
        }
        commands.push(self.words("CLIENT GETNAME"));
        commands.push(self.words("GET @s"));
        self.compare(&commands);
        let got = self.both[1].ask("CLIENT GETNAME");
        match &self.name {
            Some(name) => assert!(got.contains(name.as_str()), "{name}: {got}"),
            None => assert!(got.starts_with("$-1") || got.starts_with('_'), "{got}"),
        }
    }

    fn key(&self, kind: &str) -> Vec<u8> {
        format!("{}{kind}", self.prefix).into_bytes()
    }
}

pub fn random_clients(seed: u64, time: Duration, way: Way) {
    println!("seed {seed}");
    let (Some(one), Some(two)) = (Redis::start(&[]), Redis::start(&[])) else { return };
    let (running, port) = way(&two, &[("staleness-max", "0.3")]);
    let ports = [one.port, port];
    for mut direct in [one.connect(), two.connect()] {
        direct.ask("SET hot-s one");
        direct.ask("HSET hot-h f1 one f2 2");
        direct.ask("RPUSH hot-l a b c");
        direct.ask("SADD hot-t 1 2 3");
        direct.ask("ZADD hot-z 1.5 m1 2 m2");
    }
    let left = std::thread::scope(|scope| {
        let run = |number: u64| {
            let mut left = 0;
            let mut twins = Twins {
                random: Pcg64Mcg::seed_from_u64(seed * 100 + number),
                prefix: format!("c{number}:"),
                both: ports.map(Connection::open),
                name: None,
                log: Vec::new(),
            };
            let start = Instant::now();
            while start.elapsed() < time {
                twins.both = ports.map(Connection::open);
                twins.start();
                (0..twins.random.random_range(0..40)).for_each(|_| twins.pipeline());
                if twins.random.random_bool(0.5) {
                    left += 1;
                    twins.leave();
                    (0..twins.random.random_range(0..5)).for_each(|_| twins.pipeline());
                }
            }
            left
        };
        let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>()
    });
    let totals = accounts(running);
    assert_eq!(totals.left_lanes, left, "{totals:?}");
    assert!(totals.hits > 100 && totals.answered > 100 && left > 10, "{totals:?}");
}

#[test]
fn clients_on_lanes_get_the_bytes_of_the_server() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    random_clients(seed.unwrap_or(1), Duration::from_secs(4), plainly);
}

#[test]
#[ignore = "soak: the same for minutes, with other seeds"]
fn many_clients_on_lanes_get_the_bytes_of_the_server() {
    (2..12).for_each(|seed| random_clients(seed, Duration::from_secs(20), plainly));
}

#[test]
fn two_thousand_clients_use_two_connections() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, mut direct) = (proxy(redis.port, &[]), redis.connect());
    let mut idle: Vec<Connection> = (0..2000).map(|_| client(&running)).collect();
    for (at, one) in idle.iter_mut().enumerate() {
        if at % 2 == 0 {
            assert!(one.ask("HELLO 3").starts_with('%'));
        }
        assert_eq!(one.ask(&format!("INCR {at}")), ":1\r\n");
    }
    assert_eq!(connections(&mut direct), 2);
    assert_eq!(running.handle().totals().0.left_lanes, 0);
    assert_eq!(idle[7].ask("MULTI"), "+OK\r\n");
    assert_eq!(connections(&mut direct), 3);
    drop(idle);
    until("its connection ends", || connections(&mut direct) == 2);
    assert_eq!(accounts(running).left_lanes, 1);
}

#[test]
fn a_lane_that_is_lost_ends_those_that_wait_on_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    // One worker has one lane, which is lost with all that wait on it.
    let (running, mut direct) = (proxy(redis.port, &[("workers", "1")]), redis.connect());
    let mut other = client(&running);
    other.ask("SET k one");
    other.ask("SET j one");
    hot(&running, &mut other, "GET k");
    hot(&running, &mut other, "GET j");
    for round in 0..3u64 {
        // Replies to writes are held back.
        assert_eq!(direct.ask("CLIENT PAUSE 10000 WRITE"), "+OK\r\n");
        let mut waiting: Vec<Connection> = (0..5).map(|_| client(&running)).collect();
        let forwarded = running.handle().totals().0.forwarded;
        for one in &mut waiting {
            one.send(&[b"SET", b"k", b"two"]);
        }
        until("they are sent", || running.handle().totals().0.forwarded == forwarded + 5);
        until("they wait", || {
            let list = direct.ask("CLIENT LIST");
            list.lines().any(|line| line.contains("cmd=set") && line.contains("flags=b"))
        });
        let late = running.handle().totals().0.late;
        let start = Instant::now();
        direct.ask("CLIENT KILL TYPE normal SKIPME yes");
        for one in &mut waiting {
            assert_eq!(rest(one), 0);
        }
        until("writes are kept out", || running.handle().totals().0.late == late + 5);
        assert_eq!(direct.ask("CLIENT UNPAUSE"), "+OK\r\n");
        let mut new = client(&running);
        for one in [&mut other, &mut new] {
            assert!(one.ask("GET k").starts_with("$3"));
            assert_eq!(one.ask("SET j one"), "+OK\r\n");
        }
        hot(&running, &mut other, "GET j");
        let of_j = start.elapsed();
        hot(&running, &mut other, "GET k");
        assert!(of_j < start.elapsed(), "{of_j:?}");
        assert!(start.elapsed() > Duration::from_millis(990), "{:?}", start.elapsed());
        assert!(running.handle().totals().0.left_lanes == 0, "{round}");
    }
    drop(other);
    accounts(running);
}

#[test]
fn a_server_that_is_killed_is_called_again() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut idle = client(&running);
    idle.ask("SET k one");
    hot(&running, &mut idle, "GET k");
    redis.kill();
    let mut lost = client(&running);
    lost.send(&[b"SET", b"other", b"x"]);
    assert_eq!(rest(&mut lost), 0);
    redis.restart();
    until("it serves", || {
        let mut new = client(&running);
        new.send(&[b"SET", b"k", b"two"]);
        let mut bytes = [0; 64];
        new.stream.read(&mut bytes).unwrap_or(0) > 0
    });
    // It had nothing outstanding.
    assert_eq!(idle.ask("SET k three"), "+OK\r\n");
    assert_eq!(hot(&running, &mut idle, "GET k"), "$5\r\nthree\r\n");
    drop(idle);
    accounts(running);
}

#[test]
fn a_client_that_does_not_read_delays_others_for_a_while() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, mut direct) = (proxy(redis.port, &[]), redis.connect());
    direct.ask(&format!("SETRANGE big {} x", (8 << 20) - 1));
    let mut other = client(&running);
    other.ask("SET k one");
    let before = resident();
    let mut slow = client(&running);
    slow.stream.write_all("GET big\r\n".repeat(30).as_bytes()).expect("it is read");
    let start = Instant::now();
    let (mut longest, mut most) = (Duration::ZERO, 0);
    until("it is closed", || {
        let asked = Instant::now();
        assert_eq!(other.ask("GET none"), "$-1\r\n");
        longest = longest.max(asked.elapsed());
        most = most.max(resident().saturating_sub(before));
        running.handle().totals().0.clients == 1
    });
    println!("{:?}, longest {longest:?}, {most} MiB", start.elapsed());
    assert!(most < 200, "{most} MiB");
    // Five seconds by design; a busy machine adds to that.
    assert!(longest < Duration::from_secs(15), "{longest:?}");
    rest(&mut slow);
    assert!(other.ask("GET k").starts_with("$3"));
    // One that reads gets all.
    let len = ("$8388608\r\n\r\n".len() + (8 << 20)) * 30;
    let mut quick = client(&running);
    quick.stream.write_all("GET big\r\n".repeat(30).as_bytes()).expect("it is read");
    quick.stream.shutdown(Shutdown::Write).expect("it is open");
    let start = Instant::now();
    assert_eq!(rest(&mut quick), len);
    println!("240 MiB in {:?}", start.elapsed());
    drop(other);
    accounts(running);
}

/// Returns the memory of this process, in MiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    (pages.unwrap_or(0) * 4096) >> 20
}

#[test]
fn a_client_that_reads_late_gets_all_and_keeps_no_other_waiting() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut other = client(&running);
    other.ask(&format!("SET k {}", "x".repeat(10_000)));
    other.ask("SET j one");
    // In parts, so that the proxy sees that earlier replies wait.
    let mut slow = client(&running);
    for _ in 0..300 {
        slow.stream.write_all("GETRANGE k 0 9999\r\n".repeat(100).as_bytes()).expect("room");
        assert_eq!(other.ask("GET j"), "$3\r\none\r\n");
    }
    assert_eq!(running.handle().totals().0.left_lanes, 1);
    slow.stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(rest(&mut slow), ("$10000\r\n\r\n".len() + 10_000) * 30_000);
    drop(other);
    accounts(running);
}

#[test]
fn replies_of_a_client_that_has_left_go_to_no_other() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, mut direct) = (proxy(redis.port, &[]), redis.connect());
    for at in 0..8 {
        direct.ask(&format!("SET gone-{at} {}", "gone".repeat(1 << (2 * at))));
    }
    let mut others: Vec<Connection> = (0..4).map(|_| client(&running)).collect();
    for round in 0..150 {
        let mut gone = client(&running);
        let lines: String = (0..50)
            .map(|at| format!("GET gone-{}\r\nINCR left-{}\r\n", at % 8, round % 7))
            .collect();
        gone.stream.write_all(lines.as_bytes()).expect("it is read");
        if round % 3 == 0 {
            // Half of it has come.
            gone.reply();
        }
        for (at, other) in others.iter_mut().enumerate() {
            other.send(&[b"SET", format!("o-{at}").as_bytes(), round.to_string().as_bytes()]);
            other.send(&[b"GET", format!("o-{at}").as_bytes()]);
        }
        drop(gone);
        for other in &mut others {
            assert_eq!(other.reply(), b"+OK\r\n");
            let text = round.to_string();
            let wanted = format!("${}\r\n{text}\r\n", text.len());
            assert_eq!(other.reply(), wanted.as_bytes());
        }
    }
    assert_eq!(connections(&mut direct), 1);
    drop(others);
    assert_eq!(accounts(running).left_lanes, 0);
}

/// Returns whether a new client has to log in; one that came too early is closed.
fn asks_for_password(running: &Running) -> bool {
    let mut new = client(running);
    new.send(&[b"GET", b"none"]);
    let mut bytes = [0; 64];
    let count = new.stream.read(&mut bytes).unwrap_or(0);
    bytes[..count].starts_with(b"-NOAUTH")
}

#[test]
fn a_default_user_with_a_password_shares_nothing() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, mut direct) = (proxy(redis.port, &[]), redis.connect());
    let mut before = client(&running);
    before.ask("SET k one");
    hot(&running, &mut before, "GET k");
    // Once the server has said again that it asks for no password, `before` stays.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(direct.ask("ACL SETUSER default resetpass >pw"), "+OK\r\n");
    until("it is seen", || asks_for_password(&running));
    let hits = running.handle().totals().0.hits;
    for _ in 0..50 {
        let mut new = client(&running);
        assert!(new.ask("HELLO 3").starts_with("-NOAUTH"));
        assert!(new.ask("GET k").starts_with("-NOAUTH"));
        assert!(new.ask("SET k two").starts_with("-NOAUTH"));
    }
    assert_eq!(running.handle().totals().0.hits, hits);
    let mut new = client(&running);
    assert_eq!(new.ask("AUTH pw"), "+OK\r\n");
    assert_eq!(new.ask("GET k"), "$3\r\none\r\n");
    // One that was there before is the default user until its connection ends.
    assert_eq!(redis.connect().ask("GET k").get(..7), Some("-NOAUTH"));
    assert_eq!(before.ask("GET k"), "$3\r\none\r\n");
    // Open again, and closed through the proxy: at once.
    assert_eq!(direct.ask("ACL SETUSER default nopass"), "+OK\r\n");
    until("it is seen", || client(&running).ask("GET k") == "$3\r\none\r\n");
    for _ in 0..20 {
        assert_eq!(before.ask("ACL SETUSER default resetpass >pw"), "+OK\r\n");
        (0..3).for_each(|_| assert!(client(&running).ask("SET k two").starts_with("-NOAUTH")));
        assert_eq!(before.ask("ACL SETUSER default nopass"), "+OK\r\n");
        until("it is seen", || client(&running).ask("GET k") == "$3\r\none\r\n");
    }
    drop((before, new));
    accounts(running);
}

/// WAIT is for writes that the client has done before, on the lane.
#[test]
fn wait_counts_replicas_that_have_what_a_lane_wrote() {
    let more = ["--repl-diskless-sync-delay", "0"];
    let (Some(redis), Some(replica)) = (Redis::start(&more), Redis::start(&[])) else { return };
    replica.connect().ask(&format!("REPLICAOF 127.0.0.1 {}", redis.port));
    let mut direct = redis.connect();
    until("it follows", || {
        direct.ask("SET before 1");
        direct.ask("WAIT 1 100") == ":1\r\n"
    });
    let running = proxy(redis.port, &[]);
    replica.signal("-STOP");
    for named in [false, true] {
        let (mut alone, mut shared) = (redis.connect(), client(&running));
        for one in [&mut alone, &mut shared] {
            if named {
                one.ask("CLIENT SETNAME me");
            }
            assert_eq!(one.ask("SET k 1"), "+OK\r\n");
            assert_eq!(one.ask("WAIT 1 100"), ":0\r\n");
        }
    }
    replica.signal("-CONT");
    let mut shared = client(&running);
    shared.ask("SET k 2");
    let wait = LONG.as_millis();
    assert_eq!(shared.ask(&format!("WAIT 1 {wait}")), ":1\r\n");
    drop(shared);
    accounts(running);
}

#[test]
fn clients_that_came_before_the_password_was_known_have_to_log_in() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, mut direct) = (proxy(redis.port, &[]), redis.connect());
    let mut old = client(&running);
    assert_eq!(old.ask("SET k one"), "+OK\r\n");
    // The server says once a second that it asks for no password: `old` came before one of these.
    std::thread::sleep(Duration::from_millis(2500));
    direct.ask("ACL SETUSER default resetpass >pw");
    let mut late = client(&running);
    late.send(&[b"GET", b"k"]);
    // Served from the lane, or closed; but not for long.
    until("it is closed", || {
        let mut bytes = [0; 64];
        matches!(std::io::Read::read(&mut late.stream, &mut bytes), Ok(0) | Err(_))
    });
    let mut new = client(&running);
    assert!(new.ask("GET k").starts_with("-NOAUTH"));
    // As on a direct connection: it has been let in.
    assert_eq!(old.ask("GET k"), "$3\r\none\r\n");
    drop((old, late, new));
}
