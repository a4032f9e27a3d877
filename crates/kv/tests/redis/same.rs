//! A proxy before Redis, and Redis itself: the same requests get the same bytes.

use crate::common::{LONG, until};
use crate::servers::{Connection, Redis, Way, plainly, proxy};
use overbank_kv::proxy::Running;
use overbank_wire::resp::{self, Replies};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

type Words = Vec<Vec<u8>>;

/// Every read that may be cached, with values of its type, of others, and none.
const CACHEABLE: [&str; 31] = [
    "GET s0",
    "MGET s0 s1 none",
    "STRLEN s0",
    "EXISTS s0",
    "TYPE s0",
    "TYPE none",
    "GETRANGE s0 1 -2",
    "HGET h0 f1",
    "HGET h0 none",
    "HMGET h0 f1 none f2",
    "HGETALL h0",
    "HGETALL none",
    "HLEN h0",
    "SMEMBERS t0",
    "SMEMBERS none",
    "SISMEMBER t0 1",
    "SCARD t0",
    "LRANGE l0 0 -1",
    "LRANGE none 0 -1",
    "LLEN l0",
    "LINDEX l0 0",
    "LINDEX l0 99",
    "ZRANGE z0 0 -1",
    "ZRANGE z0 0 1 REV",
    "ZSCORE z0 m1",
    "ZSCORE z0 none",
    "ZCARD z0",
    "BITCOUNT s0",
    "BITCOUNT s0 0 0",
    "GETBIT s0 3",
    "MGET s0",
];

const FILLING: [&str; 9] = [
    "SET s0 one",
    "SET s1 \u{e9}\u{7f}",
    "SET n0 7",
    "HSET h0 f1 one f2 2",
    "HSET h1 f1 x",
    "SADD t0 1 2 3",
    "RPUSH l0 a b c",
    "ZADD z0 1.5 m1 2 m2 inf m3",
    "XADD x0 1-1 f v",
];

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn each_cacheable_read_is_answered_here_as_by_the_server() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let mut direct = redis.connect();
    let mut client = Connection::open(running.handle().address().port());
    FILLING.iter().for_each(|line| drop(direct.ask(line)));
    let hits = || running.handle().totals().0.hits;
    for version in ["HELLO 2", "HELLO 3"] {
        direct.ask(version);
        client.ask(version);
        for line in CACHEABLE {
            let wanted = direct.ask(line);
            let before = hits();
            until(line, || {
                assert_eq!(client.ask(line), wanted, "{version} {line}");
                hits() > before
            });
        }
        // Errors are not cached.
        for line in
            ["GET h0", "LLEN s0", "HGET s0 f", "GETRANGE s0 x y", "ZRANGE z0 0 1 WITHSCORES"]
        {
            let wanted = direct.ask(line);
            (0..50).for_each(|_| assert_eq!(client.ask(line), wanted, "{version} {line}"));
        }
    }
}

/// What random commands are made of.
struct Source {
    random: Pcg64Mcg,
    /// Names and arities of the server's commands.
    all: Vec<(String, i64)>,
    id: u64,
}

/// Commands that end the server or its peace, whose effects are of time, chance, other clients or
/// the order of a hash table, or that other tests cover.
const LEFT_OUT: &str = "acl auth bgrewriteaof bgsave blmove blmpop blpop brpop brpoplpush bzmpop \
    bzpopmax bzpopmin client cluster command config debug dump failover function hello hrandfield \
    info keys lastsave latency lolwut memory migrate module monitor multi object psync pubsub quit \
    randomkey readonly readwrite replconf replicaof role save scan hscan sscan zscan script \
    shutdown slaveof slowlog spop srandmember sync time wait xadd xautoclaim xclaim xgroup xinfo \
    xpending xread xreadgroup zrandmember subscribe psubscribe ssubscribe exec reset ttl pttl \
    expiretime pexpiretime swapdb flushall flushdb asking pfselftest pfdebug restore \
    restore-asking sort sort_ro expire pexpire setex psetex";

impl Source {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.choose(&mut self.random).copied().unwrap_or_default()
    }

    fn key(&mut self, kind: &str) -> String {
        let kind = match self.random.random_range(0..12) {
            0 => self.pick(&["s", "n", "h", "l", "t", "z", "none"]),
            _ => kind,
        };
        format!("{kind}{}", self.random.random_range(0..2))
    }

    /// Replaces `s`, `n`, `h`, `l`, `t`, `z` and `x` by keys, `#` by a small number.
    fn filled(&mut self, line: &str) -> Words {
        let words = line.split(' ').map(|word| match word {
            "s" | "n" | "h" | "l" | "t" | "z" | "x" => self.key(word).into_bytes(),
            "#" => self.random.random_range(0..9).to_string().into_bytes(),
            "ID" => {
                self.id += 1;
                format!("{}-1", self.id).into_bytes()
            }
            _ => word.as_bytes().to_vec(),
        });
        words.collect()
    }

    fn read(&mut self) -> Words {
        let line = self.pick(&[
            "GET s",
            "GET s",
            "GET n",
            "MGET s s n",
            "STRLEN s",
            "EXISTS s",
            "TYPE h",
            "GETRANGE s 0 3",
            "HGET h f1",
            "HMGET h f1 f#",
            "HGETALL h",
            "HLEN h",
            "SMEMBERS t",
            "SISMEMBER t #",
            "SCARD t",
            "LRANGE l 0 -1",
            "LLEN l",
            "LINDEX l #",
            "ZRANGE z 0 -1",
            "ZRANGE z 0 -1 WITHSCORES",
            "ZRANGE z 0 5 BYSCORE",
            "ZSCORE z m1",
            "ZCARD z",
            "BITCOUNT s",
            "BITCOUNT s 0 1",
            "GETBIT s #",
            "XRANGE x - +",
            "XLEN x",
            "HKEYS h",
            "ZRANK z m1",
            "EXISTS s h l",
            "OBJECT ENCODING s",
            "PFCOUNT p",
            "get s",
            "GeT n",
        ]);
        self.filled(line)
    }

    fn write(&mut self) -> Words {
        let line = self.pick(&[
            "SET s v#",
            "SET s v# EX 1000",
            "SET s longer-#-value KEEPTTL",
            "SETRANGE s # xy",
            "APPEND s #",
            "INCR n",
            "INCRBY n #",
            "DEL s",
            "UNLINK h",
            "DEL s h l",
            "HSET h f# #",
            "HDEL h f#",
            "HINCRBY h f9 1",
            "LPUSH l #",
            "RPUSH l a b",
            "LPOP l",
            "RPOP l",
            "LSET l 0 x#",
            "LTRIM l 0 5",
            "SADD t # 1",
            "SREM t #",
            "ZADD z # m#",
            "ZADD z 1.5 m1",
            "ZINCRBY z # m1",
            "ZREM z m#",
            "XADD x ID f v",
            "EXPIRE s 1000",
            "EXPIRE h 1000",
            "PEXPIREAT s 1",
            "PERSIST s",
            "RENAME s s",
            "RENAMENX s n",
            "COPY s s REPLACE",
            "COPY h h DB 1 REPLACE",
            "MSET s # s #",
            "MSETNX s # n #",
            "GETSET s #",
            "GETDEL s",
            "GETEX s PERSIST",
            "SETBIT s # 1",
            "BITOP NOT s s",
            "SINTERSTORE t t t",
            "ZUNIONSTORE z 2 z z",
            "SORT l ALPHA STORE l",
            "LMOVE l l LEFT RIGHT",
            "RPOPLPUSH l l",
            "MOVE s 1",
            "BITFIELD s SET u8 0 #",
            "PFADD p #",
            "SMOVE t t #",
            "ZPOPMIN z",
            "LMPOP 1 l LEFT",
            "HSETNX h f# x",
            "SETNX s #",
            "SETEX s 1000 v#",
            "LINSERT l BEFORE a b",
        ]);
        self.filled(line)
    }

    fn script(&mut self) -> Words {
        let key = self.key("s").into_bytes();
        let body: &[u8] = match self.random.random_range(0..4) {
            0 => b"return redis.call('set', KEYS[1], ARGV[1])",
            1 => b"return redis.call('get', KEYS[1])",
            2 => b"redis.call('select', 1) return redis.call('incr', KEYS[1])",
            _ => b"return {1, 'a', redis.error_reply('ERR x'), false}",
        };
        vec![b"EVAL".to_vec(), body.to_vec(), b"1".to_vec(), key, b"5".to_vec()]
    }

    /// What changes the connection.
    fn control(&mut self) -> Words {
        let line = self.pick(&[
            "MULTI",
            "MULTI",
            "EXEC",
            "EXEC",
            "EXEC",
            "DISCARD",
            "WATCH s",
            "WATCH s h",
            "UNWATCH",
            "SELECT 0",
            "SELECT 0",
            "SELECT 1",
            "SELECT 99",
            "SELECT x",
            "HELLO 2",
            "HELLO 3",
            "HELLO 4",
            "RESET",
            "SUBSCRIBE c1 c2",
            "SUBSCRIBE c1",
            "PSUBSCRIBE c*",
            "SSUBSCRIBE c1",
            "UNSUBSCRIBE",
            "UNSUBSCRIBE c1 c1",
            "PUNSUBSCRIBE",
            "SUNSUBSCRIBE",
            "PUBLISH c1 text",
            "SPUBLISH c1 text",
            "CLIENT REPLY OFF",
            "CLIENT REPLY SKIP",
            "CLIENT REPLY ON",
            "CLIENT REPLY ON",
            "CLIENT REPLY",
            "CLIENT TRACKING ON",
            "CLIENT TRACKING OFF",
            "PING",
            "PING text",
            "ECHO text",
            "AUTH wrong",
            "AUTH default any",
            "HELLO 3 AUTH default any",
            "CLIENT SETNAME me",
            "CLIENT GETNAME",
            "EXEC extra",
            "DISCARD extra",
            "MULTI extra",
            "BLPOP l 0.01",
            "BLMOVE l l LEFT RIGHT 0.01",
            "BZPOPMIN z 0.01",
            "XREAD COUNT 1 STREAMS x 0",
            "XREAD BLOCK 5 STREAMS x 999999-1",
            "WAIT 0 10",
            "OBJECT HELP",
            "COMMAND COUNT",
            "CLIENT NO-EVICT off",
            "ACL WHOAMI",
            "QUITE unknown",
            "FLUSHDB",
            "SWAPDB 0 1",
            "CONFIG GET hz",
            "SCRIPT EXISTS ff",
            "PUBSUB NUMSUB none",
            "ASKING",
            "READONLY",
        ]);
        self.filled(line)
    }

    /// Any command of the server with any arguments.
    fn any(&mut self) -> Words {
        let Some((name, arity)) = self.all.choose(&mut self.random).cloned() else {
            return self.read();
        };
        let least = arity.unsigned_abs() as usize;
        let more = if arity < 0 { self.random.random_range(0..4) } else { 0 };
        let wrong = usize::from(self.random.random_range(0..20) == 0);
        let mut line = name.replace('|', " ");
        for _ in line.split(' ').count()..least + more + wrong {
            line.push(' ');
            line.push_str(
                self.pick(&["s", "n", "h", "l", "t", "z", "#", "#", "f1", "m1", "x", "*"]),
            );
        }
        self.filled(&line)
    }

    fn one(&mut self, is_odd: bool) -> Words {
        match self.random.random_range(0..20) {
            0..=7 => self.read(),
            8..=12 => self.write(),
            13 => self.script(),
            14..=15 => self.any(),
            _ if is_odd => self.control(),
            _ => self.write(),
        }
    }

    /// Appends a request in one of its forms.
    fn emit(&mut self, words: &Words, out: &mut Vec<u8>) {
        let is_plain = |word: &Vec<u8>| {
            !word.is_empty()
                && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.')
        };
        if self.random.random_range(0..8) == 0 && words.iter().all(is_plain) {
            out.extend(words.join(&b' '));
            out.extend_from_slice(
                [&b"\r\n"[..], b"\n", b"\r\n\r\n"].choose(&mut self.random).unwrap_or(&&b"\n"[..]),
            );
        } else {
            resp::command(words, out);
        }
    }
}

/// Reads all up to the reply to ECHO of this text; returns the replies before it.
fn read_to(connection: &mut Connection, mark: &str) -> Vec<Vec<u8>> {
    let end = format!("${}\r\n{mark}\r\n", mark.len());
    let (mut all, mut bytes) = (Vec::new(), [0; 16 << 10]);
    let start = Instant::now();
    while !all.ends_with(end.as_bytes()) {
        let shown = || String::from_utf8_lossy(&all).into_owned();
        assert!(start.elapsed() < LONG, "no {mark} in {}", shown());
        let count =
            connection.stream.read(&mut bytes).unwrap_or_else(|e| panic!("{e}: {}", shown()));
        assert!(count > 0, "it ends after {}", shown());
        all.extend_from_slice(&bytes[..count]);
    }
    let (mut scanner, mut rest) = (Replies::new(), &all[..]);
    let mut replies: Vec<Vec<u8>> = Vec::new();
    while !rest.is_empty() {
        // In a transaction, Redis writes pushes into the reply: the rest is compared as it is.
        let Ok(step) = scanner.scan(rest) else {
            replies.push(rest.to_vec());
            return replies;
        };
        replies.push(rest[..step.len].to_vec());
        rest = &rest[step.len..];
    }
    replies.pop();
    replies
}

/// Returns a reply without the client's numbers, and the lines of a list in some order: that of
/// sets depends on a server's seed.
pub fn plain(reply: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = reply.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    // More than one HELLO may be answered in one EXEC.
    let mut was_id = false;
    lines.retain(|line| !std::mem::replace(&mut was_id, line == b"id\r"));
    // UNSUBSCRIBE names its channels in the order of a hash table.
    if lines.iter().any(|line| line.ends_with(b"unsubscribe\r")) {
        lines.retain(|line| !line.starts_with(b"c"));
    }
    if matches!(reply.first(), Some(b'*' | b'~' | b'%')) {
        lines.sort();
    }
    lines
}

struct Pair {
    source: Source,
    direct: Connection,
    behind: Connection,
    running: Running,
    /// Both servers.
    servers: [Connection; 2],
    marks: u64,
    log: Vec<String>,
}

impl Pair {
    /// Sends the same to both, cut in two, and compares what comes.
    fn compare(&mut self, commands: &[Words], resets: bool) {
        self.marks += 1;
        let mark = format!("mark-{}", self.marks);
        let mut bytes = Vec::new();
        for words in commands {
            self.log.push(words.join(&b' ').escape_ascii().to_string());
            self.source.emit(words, &mut bytes);
        }
        if resets {
            self.log.push("RESET".to_owned());
            bytes.extend_from_slice(b"RESET\r\n");
        }
        resp::command(&["ECHO", &mark], &mut bytes);
        let cut = self.source.random.random_range(0..=bytes.len());
        for connection in [&mut self.direct, &mut self.behind] {
            connection.stream.write_all(&bytes[..cut]).expect("it is read");
            connection.stream.write_all(&bytes[cut..]).expect("it is read");
        }
        let wanted = read_to(&mut self.direct, &mark);
        let got = read_to(&mut self.behind, &mark);
        let shown = |replies: &[Vec<u8>]| -> Vec<String> {
            replies.iter().map(|reply| reply.escape_ascii().to_string()).collect()
        };
        let same = wanted.len() == got.len()
            && wanted.iter().zip(&got).all(|(a, b)| a == b || plain(a) == plain(b));
        let tail = self.log.len().saturating_sub(commands.len() + 40);
        let first = wanted.iter().zip(&got).position(|(a, b)| plain(a) != plain(b));
        let [one, two] = &mut self.servers;
        let held: Vec<String> = ["s", "n", "h", "l", "t", "z", "none", "x"]
            .iter()
            .filter(|_| !same)
            .flat_map(|kind| [format!("TYPE {kind}0"), format!("TYPE {kind}1")])
            .filter_map(|line| {
                let (a, b) = (one.ask(&line), two.ask(&line));
                (a != b).then(|| format!("{line}: {a} {b}"))
            })
            .collect();
        assert!(
            same,
            "after {:#?}\nat {first:?}, servers differ in {held:?}\nthe server {:#?}\nthe proxy {:#?}",
            &self.log[tail..],
            shown(&wanted),
            shown(&got)
        );
    }
}

pub fn random_requests(seed: u64, time: Duration, way: Way) {
    println!("seed {seed}");
    let (Some(one), Some(two)) = (Redis::start(&[]), Redis::start(&[])) else { return };
    let (running, port) = way(&two, &[("staleness-max", "0.3")]);
    let direct = one.connect();
    let behind = Connection::open(port);
    let mut info = one.connect();
    info.send(&[b"COMMAND"]);
    let reply = info.reply();
    let (list, _) = resp::tree(&reply).expect("a reply");
    let mut all = Vec::new();
    let text = |value: &resp::Value<'_>| {
        String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned()
    };
    for command in list.elements().unwrap_or_default() {
        let parts = command.elements().unwrap_or_default();
        let name = text(&parts[0]);
        if !LEFT_OUT.split_whitespace().any(|left| left == name) {
            all.push((name, parts[1].integer().unwrap_or(0)));
        }
    }
    assert!(all.len() > 100, "{}", all.len());
    let servers = [one.connect(), two.connect()];
    let source = Source { random: Pcg64Mcg::seed_from_u64(seed), all, id: 0 };
    let (marks, log) = (0, Vec::new());
    let mut pair = Pair { source, direct, behind, running, servers, marks, log };
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < time {
        rounds += 1;
        if rounds % 40 == 1 {
            let commands: Vec<Words> = FILLING.iter().map(|line| words(line)).collect();
            pair.compare(&commands, false);
        }
        let three = pair.source.random.random_bool(0.5);
        let mut first = vec![words(if three { "HELLO 3" } else { "HELLO 2" })];
        if pair.source.random.random_range(0..4) == 0 {
            first.push(words("SELECT 1"));
        }
        pair.compare(&first, false);
        for _ in 0..pair.source.random.random_range(1..4) {
            let count = pair.source.random.random_range(0..4);
            let writes: Vec<Words> = (0..count).map(|_| pair.source.write()).collect();
            pair.compare(&writes, false);
            for _ in 0..6 {
                let reads: Vec<Words> = (0..6).map(|_| pair.source.read()).collect();
                pair.compare(&reads, false);
                pair.compare(&reads, false);
                std::thread::sleep(Duration::from_millis(1));
            }
            let mixed: Vec<Words> = (0..8).map(|_| pair.source.one(false)).collect();
            pair.compare(&mixed, false);
        }
        if rounds % 4 != 0 {
            continue;
        }
        let count = pair.source.random.random_range(1..60);
        let odd: Vec<Words> = (0..count).map(|_| pair.source.one(true)).collect();
        pair.compare(&odd, true);
        // What has made replies uncountable lasts as long as a connection.
        pair.direct = one.connect();
        pair.behind = Connection::open(port);
        if rounds % 50 == 0 {
            pair.log.clear();
        }
    }
    let (totals, core) = pair.running.stop();
    println!("{rounds} rounds, {totals:?}, {core:?}");
    assert!(totals.hits > 2000, "{totals:?}");
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>());
}

#[test]
fn random_requests_get_the_same_bytes() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    random_requests(seed.unwrap_or(1), Duration::from_secs(10), plainly);
}

#[test]
#[ignore = "soak: the same for minutes, with other seeds"]
fn many_random_requests_get_the_same_bytes() {
    (2..20).for_each(|seed| random_requests(seed, Duration::from_secs(20), plainly));
}
