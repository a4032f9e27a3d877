//! What befalls a server, a connection to it or its values, while keys are hot: nothing older than
//! the bound is read, nothing wrong, and hits come again.

use crate::common::until;
use crate::history::{Written, number};
use crate::servers::{Connection, Redis, proxy, seen_within};
use overbank_kv::proxy::Running;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The bound of all these tests, and time that threads of a busy machine may lose.
const STALENESS: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_millis(100);
const FLAGS: [(&str, &str); 1] = [("staleness-max", "0.5")];

/// Asks, if the other side lives.
pub fn try_ask(port: u16, stream: &mut Option<TcpStream>, line: &str) -> Option<String> {
    if stream.is_none() {
        let opened = TcpStream::connect(("127.0.0.1", port)).ok()?;
        opened.set_nodelay(true).ok()?;
        opened.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
        *stream = Some(opened);
    }
    let open = stream.as_mut()?;
    let mut bytes = [0; 4096];
    let asked =
        open.write_all(format!("{line}\r\n").as_bytes()).and_then(|()| open.read(&mut bytes));
    match asked {
        Ok(count @ 1..) => Some(String::from_utf8_lossy(&bytes[..count]).into_owned()),
        _ => {
            *stream = None;
            None
        }
    }
}

struct World {
    redis: Redis,
    running: Running,
    written: Written,
}

impl World {
    fn start(more: &[&str]) -> Option<World> {
        let redis = Redis::start(more)?;
        let running = proxy(redis.port, &FLAGS);
        Some(World { redis, running, written: Written::default() })
    }

    fn client(&self) -> Connection {
        Connection::open(self.running.handle().address().port())
    }

    fn hits(&self) -> u64 {
        self.running.handle().totals().0.hits
    }

    fn core(&self) -> overbank_kv::proxy::totals::CoreTotals {
        self.running.handle().totals().1
    }
}

/// Reads and writes a key, past the proxy and through it, while `fault` happens to the server.
fn survives(more: &[&str], fault: impl FnOnce(&mut World)) {
    let Some(mut world) = World::start(more) else { return };
    let (over, server) = (AtomicBool::new(false), world.redis.port);
    let behind = world.running.handle().address().port();
    let handle = world.running.handle().clone();
    let written = std::mem::take(&mut world.written);
    let written = std::sync::Arc::new(written);
    let bound = STALENESS + SLACK;
    std::thread::scope(|scope| {
        let (over, written) = (&over, &written);
        scope.spawn(move || {
            let mut stream = None;
            while !over.load(Ordering::SeqCst) {
                let number = written.begin();
                let reply = try_ask(server, &mut stream, &format!("SET k {number}"));
                if reply.as_deref() == Some("+OK\r\n") {
                    written.done(number, bound);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        scope.spawn(move || {
            let mut stream = None;
            while !over.load(Ordering::SeqCst) {
                let began = Instant::now();
                match try_ask(behind, &mut stream, "GET k") {
                    Some(reply) if reply.starts_with('$') => {
                        written.check(began, number(&reply), bound);
                    }
                    _ => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        // The threads end in any case.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("hits", || handle.totals().0.hits > 100);
            LOSES.with(|loses| *loses.borrow_mut() = Some(written.clone()));
            fault(&mut world);
            let before = handle.totals().0.hits;
            until("hits again", || handle.totals().0.hits > before + 1000);
        }));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    let World { running, .. } = world;
    assert!(!running.is_broken());
    let (totals, _) = running.stop();
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
    assert_eq!(totals.reads, totals.hits + totals.missed.iter().sum::<u64>());
}

thread_local! {
    static LOSES: std::cell::RefCell<Option<std::sync::Arc<Written>>> =
        const { std::cell::RefCell::new(None) };
}

/// The server is about to lose its values.
fn lose() {
    LOSES.with(|loses| loses.borrow().as_ref().expect("a test").lose());
}

#[test]
fn a_server_that_is_killed_and_comes_back_empty() {
    survives(&[], |world| {
        lose();
        world.redis.restart();
    });
}

#[test]
fn a_server_that_stops_for_longer_than_the_lease() {
    survives(&[], |world| {
        world.redis.signal("-STOP");
        std::thread::sleep(STALENESS * 2);
        assert_eq!(world.core().open, 0, "the lease is over");
        let before = world.hits();
        std::thread::sleep(STALENESS);
        assert_eq!(world.hits(), before, "hits without a lease");
        world.redis.signal("-CONT");
    });
}

#[test]
fn a_server_that_kills_its_clients() {
    survives(&[], |world| {
        let connects = world.core().connects;
        for _ in 0..5 {
            world.redis.connect().ask("CLIENT KILL TYPE normal SKIPME yes");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(world.core().connects > connects);
    });
}

#[test]
fn a_server_that_kills_the_tracking_connection() {
    survives(&[], |world| {
        let mut direct = world.redis.connect();
        for _ in 0..5 {
            let list = direct.ask("CLIENT LIST");
            let line = list.lines().find(|line| line.contains("overbank-kv-proxy"));
            let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
            // It may be between two connections.
            if let Some(id) = id {
                assert_eq!(direct.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
            }
            std::thread::sleep(Duration::from_millis(150));
        }
        assert!(world.core().connects > 2);
    });
}

#[test]
fn values_that_are_flushed() {
    survives(&[], |world| {
        let (mut direct, mut client) = (world.redis.connect(), world.client());
        for line in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHDB SYNC"] {
            lose();
            direct.ask(line);
            std::thread::sleep(Duration::from_millis(50));
            lose();
            client.ask(line);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn databases_that_are_swapped_through_the_proxy() {
    survives(&[], |world| {
        let mut client = world.client();
        for _ in 0..10 {
            lose();
            assert_eq!(client.ask("SWAPDB 0 1"), "+OK\r\n");
            assert_eq!(client.ask("SWAPDB 0 1"), "+OK\r\n");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// SWAPDB past the proxy is not pushed: `max-age` is its bound.
#[test]
fn databases_that_are_swapped_past_the_proxy() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[("staleness-max", "0.5"), ("max-age", "1")]);
    let mut client = Connection::open(running.handle().address().port());
    let mut direct = redis.connect();
    direct.ask("SET k before");
    crate::hits::hot(&running, &mut client, "GET k");
    direct.ask("SWAPDB 0 1");
    let start = Instant::now();
    seen_within(start, Duration::from_secs(1), || client.ask("GET k") == "$-1\r\n");
}

#[test]
fn values_that_are_evicted() {
    survives(&["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"], |world| {
        let mut direct = world.redis.connect();
        for number in 0..3000 {
            if number % 50 == 0 {
                lose();
            }
            direct.send(&[b"SET", format!("filler-{number}").as_bytes(), &[b'x'; 4000]]);
            direct.reply();
        }
        assert!(!direct.ask("INFO stats").contains("evicted_keys:0\r"));
        direct.ask("FLUSHALL");
        direct.ask("CONFIG SET maxmemory 0");
    });
}

#[test]
fn settings_and_values_that_are_loaded_again() {
    survives(&[], |world| {
        let (mut direct, mut client) = (world.redis.connect(), world.client());
        for _ in 0..3 {
            lose();
            assert_eq!(direct.ask("DEBUG RELOAD"), "+OK\r\n");
            assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
            assert_eq!(client.ask("CONFIG SET maxmemory-policy allkeys-lru"), "+OK\r\n");
            assert_eq!(client.ask("CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
        }
    });
}

#[test]
fn invalidations_that_exceed_the_output_buffer() {
    survives(&[], |world| {
        let (mut direct, mut client) = (world.redis.connect(), world.client());
        let keys: Vec<String> = (0..60).map(|n| format!("{n}-{}", "long".repeat(1000))).collect();
        keys.iter().for_each(|key| drop(direct.ask(&format!("SET {key} before"))));
        until("all of them are cached", || {
            keys.iter().for_each(|key| drop(client.ask(&format!("GET {key}"))));
            world.core().filled >= keys.len() as u64
        });
        let connects = world.core().connects;
        let limit = |direct: &mut Connection, limit: &[u8]| {
            direct.send(&[b"CONFIG", b"SET", b"client-output-buffer-limit", limit]);
            assert_eq!(direct.reply(), b"+OK\r\n");
        };
        limit(&mut direct, b"normal 100000 0 0");
        let script = b"for _, k in ipairs(KEYS) do redis.call('set', k, 'after') end";
        let count = keys.len().to_string();
        let words = [&b"EVAL"[..], script, count.as_bytes()];
        let words: Vec<&[u8]> =
            words.into_iter().chain(keys.iter().map(|key| key.as_bytes())).collect();
        direct.send(&words);
        assert_eq!(direct.reply(), b"$-1\r\n");
        std::thread::sleep(STALENESS + SLACK);
        for key in &keys {
            assert_eq!(client.ask(&format!("GET {key}")), "$5\r\nafter\r\n");
        }
        limit(&mut direct, b"normal 0 0 0");
        until("it is followed again", || world.core().open == 1);
        assert!(world.core().connects > connects);
    });
}

/// A replica becomes the master, and the master a replica of it.
#[test]
fn a_replica_that_is_promoted() {
    let (Some(master), Some(replica)) = (Redis::start(&[]), Redis::start(&[])) else { return };
    let mut direct = replica.connect();
    direct.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    master.connect().ask("SET k of-the-master");
    until("it follows", || direct.ask("GET k").contains("of-the-master"));
    let running = proxy(replica.port, &FLAGS);
    let mut client = Connection::open(running.handle().address().port());
    crate::hits::hot(&running, &mut client, "GET k");
    master.connect().ask("SET k second");
    until("writes of the master are seen", || client.ask("GET k").contains("second"));
    assert!(client.ask("SET k mine").starts_with("-READONLY"));
    direct.ask("REPLICAOF NO ONE");
    until("it is a master", || running.handle().totals().1.connects > 1);
    assert_eq!(client.ask("SET k mine"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$4\r\nmine\r\n");
    crate::hits::hot(&running, &mut client, "GET k");
    // And back: all of its values are replaced.
    direct.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    until("it follows again", || client.ask("GET k").contains("second"));
    crate::hits::hot(&running, &mut client, "GET k");
}
