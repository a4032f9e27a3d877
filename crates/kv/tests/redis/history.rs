//! Guarantees as histories show them: what was read, when, and what had been written by then.

use crate::common::{Register, until};
use crate::servers::{Connection, Redis, Relay, proxy};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns the number that a reply holds; `None` of an absent value.
pub fn number(reply: &str) -> Option<u64> {
    match reply.split("\r\n").nth(1) {
        Some("") | None => None,
        Some(text) => Some(text.parse().unwrap_or_else(|_| panic!("no number: {reply:?}"))),
    }
}

/// Writes a number in one of several ways.
fn write(client: &mut Connection, key: &str, number: u64) {
    match number % 5 {
        0 => {
            client.ask("MULTI");
            client.ask(&format!("SET {key} {number}"));
            client.ask("EXEC");
        }
        1 => drop(client.ask(&format!("MSET {key} {number} other {number}"))),
        2 => {
            let script = b"return redis.call('set', KEYS[1], ARGV[1])";
            let number = number.to_string();
            client.send(&[b"EVAL", script, b"1", key.as_bytes(), number.as_bytes()]);
            client.reply();
        }
        // Its own read behind it, at once.
        3 => {
            let (number, key) = (number.to_string(), key.as_bytes());
            client.send(&[b"SET", key, number.as_bytes()]);
            client.send(&[b"GET", key]);
            client.reply();
            let read = client.reply();
            assert_eq!(read, format!("${}\r\n{number}\r\n", number.len()).into_bytes());
        }
        _ => drop(client.ask(&format!("SET {key} {number}"))),
    }
}

fn linearizable(time: Duration) {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[("workers", "2")]);
    let port = running.handle().address().port();
    let keys = ["k0", "k1", "k2"];
    let registers: [Register; 3] = Default::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (key, register) in keys.iter().zip(&registers) {
            let over = &over;
            scope.spawn(move || {
                let mut client = Connection::open(port);
                for number in 1.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    register.begun.store(number, Ordering::SeqCst);
                    write(&mut client, key, number);
                    register.done.store(number, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(500 * (number % 8)));
                }
            });
        }
        for reader in 0..4 {
            let (over, registers) = (&over, &registers);
            scope.spawn(move || {
                let mut client = Connection::open(port);
                for turn in reader.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let which = turn % keys.len();
                    let line = format!("GET {}", keys[which]);
                    registers[which].read(|| number(&client.ask(&line)));
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::SeqCst);
    });
    let (totals, core) = running.stop();
    println!("{totals:?} {core:?}");
    assert!(totals.hits > 1000, "{totals:?}");
    assert_eq!(totals.commands, totals.hits + totals.answered + totals.forwarded + totals.refused);
}

#[test]
fn reads_are_never_older_than_a_write_through_the_proxy() {
    linearizable(Duration::from_secs(4));
}

#[test]
#[ignore = "soak: the same for minutes"]
fn reads_are_linearizable_for_minutes() {
    linearizable(Duration::from_secs(300));
}

/// Writes whose times are kept: of many times the longest bound.
const REMEMBERED: usize = 8192;

/// Numbers that a writer past the proxy has written, and when each was acknowledged.
#[derive(Default)]
pub struct Written {
    acknowledged: Mutex<Vec<(u64, Instant)>>,
    begun: AtomicU64,
    /// Absence may be read up to then: the server has lost its values.
    absent: Mutex<Option<Instant>>,
    is_lost: AtomicBool,
}

impl Written {
    /// Returns the next number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn done(&self, number: u64, bound: Duration) {
        let now = Instant::now();
        let mut all = self.acknowledged.lock().expect("no panic");
        if all.len() >= REMEMBERED {
            all.drain(..REMEMBERED / 2);
        }
        all.push((number, now));
        drop(all);
        if self.is_lost.swap(false, Ordering::SeqCst) {
            *self.absent.lock().expect("no panic") = Some(now + bound);
        }
    }

    /// The server loses its values about now.
    pub fn lose(&self) {
        *self.absent.lock().expect("no panic") = Some(Instant::now() + Duration::from_secs(3600));
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// Checks a read that began then; returns how old its value was.
    pub fn check(&self, began: Instant, found: Option<u64>, bound: Duration) -> Duration {
        let Some(found) = found else {
            let absent = *self.absent.lock().expect("no panic");
            let all = self.acknowledged.lock().expect("no panic");
            let is_right = all.first().is_none_or(|(_, first)| began <= *first + bound)
                || absent.is_some_and(|until| began <= until);
            assert!(is_right, "nothing was read where there is a value");
            return Duration::ZERO;
        };
        assert!(found <= self.begun.load(Ordering::SeqCst), "{found} was never written");
        let all = self.acknowledged.lock().expect("no panic");
        let next = all.iter().rev().take_while(|(number, _)| *number > found).last();
        let age = next.map_or(Duration::ZERO, |(_, at)| began.saturating_duration_since(*at));
        assert!(age <= bound, "{found} was read {age:?} after its successor was written");
        age
    }
}

#[test]
fn writes_past_the_proxy_are_seen_in_time() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let port = running.handle().address().port();
    let (written, over) = (Written::default(), AtomicBool::new(false));
    let bound = Duration::from_secs(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut direct = redis.connect();
            while !over.load(Ordering::SeqCst) {
                let number = written.begin();
                direct.ask(&format!("SET k {number}"));
                written.done(number, bound);
                std::thread::sleep(Duration::from_millis(number % 7));
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Connection::open(port);
                let mut oldest = Duration::ZERO;
                while !over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    let found = number(&client.ask("GET k"));
                    oldest = oldest.max(written.check(began, found, bound));
                }
                println!("oldest {oldest:?}");
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::SeqCst);
    });
    assert!(running.handle().totals().0.hits > 1000);
}

/// The tracking connection alone is cut off without a word: the lease ends.
#[test]
fn a_silent_tracking_connection_ends_the_lease() {
    let Some(redis) = Redis::start(&[]) else { return };
    let relay = Relay::start(redis.port);
    let running = proxy(relay.port, &[("staleness-max", "0.5")]);
    let mut client = Connection::open(running.handle().address().port());
    let mut direct = redis.connect();
    let bound = Duration::from_millis(500);
    let written = Written::default();
    for round in 0..3 {
        let number_before = written.begin();
        direct.ask(&format!("SET k {number_before}"));
        written.done(number_before, bound);
        crate::hits::hot(&running, &mut client, "GET k");
        relay.stall(true);
        let next = written.begin();
        direct.ask(&format!("SET k {next}"));
        written.done(next, bound);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(900) {
            let began = Instant::now();
            written.check(began, number(&client.ask("GET k")), bound);
        }
        assert_eq!(number(&client.ask("GET k")), Some(next), "round {round}");
        relay.stall(false);
        until("it is followed again", || running.handle().totals().1.open == 1);
    }
}

#[test]
fn values_are_never_served_past_their_expiry() {
    let Some(redis) = Redis::start(&[]) else { return };
    let running = proxy(redis.port, &[]);
    let port = running.handle().address().port();
    // When the value with this number is gone for certain.
    let (gone, over) = (Mutex::new(Vec::<Instant>::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Connection::open(port);
            for number in 0.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let life = 10 + number % 5 * 30;
                gone.lock().expect("no panic").push(Instant::now() + Duration::from_secs(9));
                client.ask(&format!("SET k {number} PX {life}"));
                // Redis counts in whole milliseconds.
                let until = Instant::now() + Duration::from_millis(life + 2);
                if let Some(last) = gone.lock().expect("no panic").last_mut() {
                    *last = until;
                }
                std::thread::sleep(Duration::from_millis(life + 15));
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Connection::open(port);
                while !over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    if let Some(found) = number(&client.ask("GET k")) {
                        let until = gone.lock().expect("no panic")[found as usize];
                        assert!(began <= until, "{found} was read {:?} late", began - until);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::SeqCst);
    });
    let (totals, core) = running.stop();
    assert!(totals.hits > 1000, "{totals:?} {core:?}");
}
