//! All at once, for long: hot keys that change, one write in ten, a writer past the proxy, and
//! every second a fault. Nothing wrong is read, nothing older than the bound, and neither
//! memory nor descriptors grow.
//!
//! ```text
//!   clients: Zipf over KEYS, hot ones move ─▶ proxy ─▶ redis ◀─ writer past the proxy
//!   faults:  lose values (all clients wait) · break connections · stop the server · another proxy
//! ```
//!
//! A key of the clients has one writer, so what may be read of it is known ([`Key`]). `SEED` in the
//! environment repeats the draws, `OVERBANK_KV_SOAK_SECONDS` sets the time.

use crate::common::until;
use crate::history::{Written, number};
use crate::servers::{Connection, Redis, proxy};
use overbank_kv::proxy::Running;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::SeqCst};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

const KEYS: usize = 400;
const CLIENTS: usize = 4;
/// Keys that are written past the proxy.
const PAST: usize = 3;
/// Time after which other keys are hot, and how far they are.
const MOVES: Duration = Duration::from_secs(3);
const STEP: usize = 37;
const STALENESS: Duration = Duration::from_millis(500);
/// Time that threads of a busy machine may lose.
const SLACK: Duration = Duration::from_millis(300);
const BOUND: Duration = STALENESS.saturating_add(SLACK);
/// Between two faults, and after the last one.
const QUIET: Duration = Duration::from_millis(700);
/// Growth of medians that is none: the allocator's pages, a connection that is about to end.
const MORE_BYTES: u64 = 4 << 20;
const MORE_FILES: usize = 1;
/// Seconds that have enough rounds of faults to compare.
const JUDGED: u64 = 60;

/// A key that one client writes with growing numbers.
#[derive(Default)]
struct Key {
    begun: AtomicU64,
    done: AtomicU64,
    /// The largest number that was read.
    seen: AtomicU64,
    /// Numbers up to this one are lost.
    lost: AtomicU64,
}

impl Key {
    /// Returns the least number that a read may find that begins now.
    fn least(&self) -> u64 {
        self.done.load(SeqCst).max(self.seen.load(SeqCst))
    }

    fn check(&self, least: u64, found: Option<u64>) {
        let found = found.unwrap_or(0);
        let (most, lost) = (self.begun.load(SeqCst), self.lost.load(SeqCst));
        assert!(found >= least, "{found} was read after {least} had been");
        assert!(found <= most, "{found} was read before it was written");
        assert!(found == 0 || found > lost, "{found} was read, and {lost} had been lost");
        self.seen.fetch_max(found, SeqCst);
    }

    /// The server has lost it; nothing is on its way.
    fn lose(&self) {
        self.lost.store(self.begun.load(SeqCst), SeqCst);
        self.done.store(0, SeqCst);
        self.seen.store(0, SeqCst);
    }
}

struct World {
    keys: Vec<Key>,
    past: [Written; PAST],
    /// Clients hold it while a request is on its way.
    gate: RwLock<()>,
    /// The proxy's.
    port: AtomicU16,
    over: AtomicBool,
    start: Instant,
    reads: AtomicU64,
    writes: AtomicU64,
    broken: AtomicU64,
}

impl World {
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().expect("no panic")
    }

    /// Returns a key: log-uniform, near Zipf's law, and moving.
    fn draw(&self, random: &mut Pcg64) -> usize {
        let rank = (KEYS as f64).powf(random.random_range(0.0..1.0)) as usize - 1;
        let moves = self.start.elapsed().as_millis() / MOVES.as_millis();
        (rank + moves as usize * STEP) % KEYS
    }
}

/// A client that connects again when its connection has ended.
struct Client {
    connection: Option<Connection>,
}

impl Client {
    /// Sends commands to a port; returns their replies, or nothing if one is missing or an error.
    fn ask(&mut self, port: u16, commands: &[&[&str]]) -> Option<Vec<String>> {
        let connection = self.connection.get_or_insert_with(|| Connection::open(port));
        let mut all = || -> io::Result<Vec<String>> {
            for words in commands {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                connection.try_send(&words)?;
            }
            let replies = commands.iter().map(|_| connection.try_reply());
            let text = |reply: Vec<u8>| String::from_utf8_lossy(&reply).into_owned();
            replies.map(|reply| Ok(text(reply?))).collect()
        };
        let replies = all().ok().filter(|all| !all.iter().any(|reply| reply.starts_with('-')));
        if replies.is_none() {
            self.connection = None;
        }
        replies
    }
}

fn client(world: &World, (nth, seed): (usize, u64)) {
    let mut random = Pcg64::seed_from_u64(seed + nth as u64);
    let mut client = Client { connection: None };
    while !world.over.load(SeqCst) {
        let at = world.draw(&mut random);
        let pass = world.pass();
        let done = match random.random_range(0..100) {
            0..10 => write(world, &mut client, (at / CLIENTS * CLIENTS + nth) % KEYS),
            10..15 => past(world, &mut client, random.random_range(0..PAST)),
            15..25 => read(world, &mut client, &[at, world.draw(&mut random)]),
            _ => read(world, &mut client, &[at]),
        };
        drop(pass);
        if done.is_none() {
            world.broken.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes a key in one of several ways. Without replies, it may have been written or not, but is
/// not written later: its connection has ended.
fn write(world: &World, client: &mut Client, at: usize) -> Option<()> {
    let key = &world.keys[at];
    let number = key.begun.fetch_add(1, SeqCst) + 1;
    let (name, text) = (format!("k{at}"), number.to_string());
    let port = world.port.load(SeqCst);
    let script = "return redis.call('set', KEYS[1], ARGV[1])";
    match number % 4 {
        0 => client.ask(port, &[&["MULTI"], &["SET", &name, &text], &["EXEC"]]),
        1 => client.ask(port, &[&["EVAL", script, "1", &name, &text]]),
        2 => client.ask(port, &[&["MSET", &name, &text, "other", "x"]]),
        _ => client.ask(port, &[&["SET", &name, &text]]),
    }?;
    key.done.fetch_max(number, SeqCst);
    world.writes.fetch_add(1, SeqCst);
    Some(())
}

fn read(world: &World, client: &mut Client, at: &[usize]) -> Option<()> {
    let names: Vec<String> = at.iter().map(|at| format!("k{at}")).collect();
    let least: Vec<u64> = at.iter().map(|at| world.keys[*at].least()).collect();
    let commands: Vec<[&str; 2]> = names.iter().map(|name| ["GET", name]).collect();
    let commands: Vec<&[&str]> = commands.iter().map(|words| words.as_slice()).collect();
    let replies = client.ask(world.port.load(SeqCst), &commands)?;
    for ((at, least), reply) in at.iter().zip(least).zip(replies) {
        world.keys[*at].check(least, number(&reply));
    }
    world.reads.fetch_add(at.len() as u64, SeqCst);
    Some(())
}

/// Reads a key that is written past the proxy.
fn past(world: &World, client: &mut Client, which: usize) -> Option<()> {
    let began = Instant::now();
    let reply = client.ask(world.port.load(SeqCst), &[&["GET", &format!("past{which}")]])?;
    world.past[which].check(began, number(&reply[0]), BOUND);
    Some(())
}

fn writer(world: &World, server: u16) {
    let mut client = Client { connection: None };
    for turn in 0.. {
        if world.over.load(SeqCst) {
            return;
        }
        let pass = world.pass();
        let (which, written) = (turn % PAST, &world.past[turn % PAST]);
        let number = written.begin();
        let done = client.ask(server, &[&["SET", &format!("past{which}"), &number.to_string()]]);
        if done.is_some() {
            written.done(number, BOUND);
        }
        drop(pass);
        std::thread::sleep(Duration::from_millis(7));
    }
}

/// What happens to the server, to a connection, or to the proxy.
type Fault = fn(&World, &mut Redis, &mut Running);

const FAULTS: [(&str, Fault); 8] = [
    ("restarted empty", |world, redis, _| lose(world, BOUND, || redis.restart())),
    ("flushed through the proxy", |world, _, running| {
        let mut client = Connection::open(running.handle().address().port());
        lose(world, Duration::ZERO, || assert_eq!(client.ask("FLUSHALL"), "+OK\r\n"));
    }),
    ("flushed past the proxy", |world, redis, _| {
        let mut direct = redis.connect();
        lose(world, BOUND, || assert_eq!(direct.ask("FLUSHALL"), "+OK\r\n"));
    }),
    ("loaded again", |_, redis, _| assert_eq!(redis.connect().ask("DEBUG RELOAD"), "+OK\r\n")),
    ("clients killed", |_, redis, _| {
        let killed = redis.connect().ask("CLIENT KILL TYPE normal SKIPME yes");
        assert!(killed.starts_with(':') && killed != ":0\r\n", "{killed}");
    }),
    ("tracking killed", |_, redis, _| {
        let mut direct = redis.connect();
        until("it is followed and killed", || {
            let list = direct.ask("CLIENT LIST");
            let line = list.lines().find(|line| line.contains("overbank-kv-proxy"));
            let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
            id.is_some_and(|id| direct.ask(&format!("CLIENT KILL ID {id}")) == ":1\r\n")
        });
    }),
    ("stopped past the lease", |_, redis, _| {
        redis.signal("-STOP");
        std::thread::sleep(STALENESS * 2);
        redis.signal("-CONT");
    }),
    ("proxy started again", |world, redis, running| {
        // A write that is on its way could be done after the next one, through another proxy.
        let _all = world.gate.write().expect("no panic");
        stop(std::mem::replace(running, started(redis)));
        world.port.store(running.handle().address().port(), SeqCst);
    }),
];

/// All values are lost while no request is on its way, and for so long that none is served any more
/// after `bound`.
fn lose(world: &World, bound: Duration, how: impl FnOnce()) {
    let _all = world.gate.write().expect("no panic");
    world.past.iter().for_each(Written::lose);
    how();
    std::thread::sleep(bound);
    world.keys.iter().for_each(Key::lose);
}

/// Starts a proxy of few entries: the hot ones displace each other.
fn started(redis: &Redis) -> Running {
    proxy(redis.port, &[("staleness-max", "0.5"), ("entries", "64"), ("workers", "2")])
}

/// Stops a proxy, whose accounts close.
fn stop(running: Running) {
    assert!(!running.is_broken());
    let (totals, core) = running.stop();
    println!("{totals:?} {core:?}");
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>());
    assert_eq!((totals.clients, totals.accepted), (0, totals.closed.iter().sum()));
    assert!(totals.hits > 1000 && core.connects > 2, "{totals:?} {core:?}");
}

/// Resident bytes and open files of this process.
fn used() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (kib << 10, std::fs::read_dir("/proc/self/fd").expect("there").count())
}

/// Runs for a time, and returns memory and files after each round of faults; `None` without Redis.
fn soak(time: Duration) -> Option<Vec<(u64, usize)>> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut redis = Redis::start(&[])?;
    let (mut running, server) = (started(&redis), redis.port);
    let world = World {
        keys: (0..KEYS).map(|_| Key::default()).collect(),
        past: Default::default(),
        gate: RwLock::default(),
        port: AtomicU16::new(running.handle().address().port()),
        over: AtomicBool::new(false),
        start: Instant::now(),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    };
    let mut rounds = Vec::new();
    std::thread::scope(|scope| {
        let world = &world;
        let threads: Vec<_> = (0..CLIENTS)
            .map(|nth| scope.spawn(move || client(world, (nth, seed))))
            .chain([scope.spawn(move || writer(world, server))])
            .collect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut last = "the start";
            while world.start.elapsed() < time {
                for (what, fault) in FAULTS {
                    let hits = running.handle().totals().0.hits;
                    until(&format!("hits after {last}"), || {
                        let failed = threads.iter().any(|thread| thread.is_finished());
                        assert!(!failed, "a thread has failed after {last}");
                        running.handle().totals().0.hits > hits + 500
                    });
                    std::thread::sleep(QUIET);
                    fault(world, &mut redis, &mut running);
                    last = what;
                }
                std::thread::sleep(QUIET);
                rounds.push(used());
            }
            // The last proxy has seen each of these as well.
            for nth in 0..3 {
                let (what, fault) = FAULTS[(nth + 4) % FAULTS.len()];
                let hits = running.handle().totals().0.hits;
                until(what, || running.handle().totals().0.hits > hits + 500);
                fault(world, &mut redis, &mut running);
            }
        }));
        // The threads end in any case.
        world.over.store(true, SeqCst);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    stop(running);
    let [reads, writes, broken] =
        [&world.reads, &world.writes, &world.broken].map(|count| count.load(SeqCst));
    println!("{} rounds; {reads} reads, {writes} writes, {broken} broken", rounds.len());
    assert!(writes > 0 && reads > 1000 && broken > 0);
    Some(rounds)
}

#[test]
fn faults_change_nothing_that_is_read() {
    soak(Duration::from_secs(1));
}

#[test]
#[ignore = "soak: for an hour; cargo xtask test proxy-full"]
fn faults_change_nothing_for_an_hour() {
    let seconds = std::env::var("OVERBANK_KV_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(3600, |text| text.parse().expect("OVERBANK_KV_SOAK_SECONDS"));
    let Some(rounds) = soak(Duration::from_secs(seconds)) else { return };
    // The first fourth fills pools and caches.
    let later = &rounds[rounds.len() / 4..];
    let (half, last) = later.split_at(later.len() / 2);
    let median = |rounds: &[(u64, usize)]| {
        let mut bytes: Vec<u64> = rounds.iter().map(|(bytes, _)| *bytes).collect();
        let mut files: Vec<usize> = rounds.iter().map(|(_, files)| *files).collect();
        bytes.sort_unstable();
        files.sort_unstable();
        Some((*bytes.get(bytes.len() / 2)?, *files.get(files.len() / 2)?))
    };
    let (Some(before), Some(after)) = (median(half), median(last)) else {
        panic!("OVERBANK_KV_SOAK_SECONDS is {seconds}: at least {JUDGED} for its judgement");
    };
    println!("median of bytes and files, then and last: {before:?}, {after:?}");
    assert!(after.0 <= before.0 + MORE_BYTES, "memory grows: {rounds:?}");
    assert!(after.1 <= before.1 + MORE_FILES, "descriptors grow: {rounds:?}");
}
