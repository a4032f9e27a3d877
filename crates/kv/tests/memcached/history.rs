//! Guarantees as histories show them: what was read, when, and what had been written by then.

use crate::common::Register;
use crate::servers::{Connection, World, binary};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns the number that a reply to `get`, `gets` or `mg` holds; `None` of an absent value.
pub fn number(reply: &str) -> Option<u64> {
    if !reply.starts_with("VA") {
        return None;
    }
    let text = reply.split("\r\n").nth(1)?;
    Some(text.parse().unwrap_or_else(|_| panic!("no number: {reply:?}")))
}

/// Writes a number in one of several ways.
fn write((text, other): (&mut Connection, &mut Connection), key: &str, number: u64) {
    let value = number.to_string();
    let len = value.len();
    match number % 7 {
        0 => text.set(key, &value),
        1 => assert_eq!(text.ask(&format!("ms {key} {len}\r\n{value}")), "HD\r\n"),
        // Done once a later reply has come.
        2 => {
            text.send(format!("set {key} 0 0 {len} noreply\r\n{value}\r\n"));
            let read = text.ask(&format!("get {key}"));
            assert_eq!(read, format!("VALUE {key} 0 {len}\r\n{value}\r\nEND\r\n"));
        }
        3 => {
            text.send(format!("ms {key} {len} q\r\n{value}\r\n"));
            assert_eq!(text.ask("mn"), "MN\r\n");
        }
        4 => {
            other.send(binary(0x11, 7, &[0; 8], key.as_bytes(), value.as_bytes()));
            other.send(binary(0x0a, 7, b"", b"", b""));
            assert_eq!(other.reply()[1], 0x0a);
        }
        5 => {
            let cas = text.ask(&format!("mg {key} c"));
            let cas = cas.trim().strip_prefix("HD c").expect("a CAS id").to_owned();
            assert_eq!(text.ask(&format!("cas {key} 0 0 {len} {cas}\r\n{value}")), "STORED\r\n");
        }
        _ => assert_eq!(text.ask(&format!("incr {key} 1")), format!("{value}\r\n")),
    }
}

fn linearizable(time: Duration) {
    // Nothing but the writes through the proxy ends a value.
    let Some(world) = World::start(&[("workers", "2"), ("max-age", "none")]) else { return };
    let keys = ["k0", "k1", "k2"];
    let registers: [Register; 3] = Default::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (key, register) in keys.iter().zip(&registers) {
            let (over, mut text, mut other) = (&over, world.client(), world.client());
            scope.spawn(move || {
                for number in 1u64.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    register.begun.store(number, Ordering::SeqCst);
                    if number == 1 {
                        text.set(key, "1");
                    } else {
                        write((&mut text, &mut other), key, number);
                    }
                    register.done.store(number, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(500 * (number % 8)));
                }
            });
        }
        for reader in 0..4 {
            let (over, registers, mut client) = (&over, &registers, world.client());
            scope.spawn(move || {
                for turn in reader.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let which = turn % keys.len();
                    let key = keys[which];
                    let line = match turn % 5 {
                        0 => format!("gets {key}"),
                        1 => format!("mg {key} v"),
                        2 => format!("mg {key} v t"),
                        _ => format!("get {key}"),
                    };
                    registers[which].read(|| number(&client.ask(&line)));
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::SeqCst);
    });
    let totals = world.stop();
    assert!(totals.hits > 1000, "{totals:?}");
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

#[test]
fn writes_past_the_proxy_are_seen_within_the_longest_age() {
    let Some(world) = World::start(&[]) else { return };
    let (written, over) = (Mutex::new(Vec::<Instant>::new()), AtomicBool::new(false));
    let bound = Duration::from_secs(1);
    let mut direct = world.server.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u64.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                direct.set("k", &number.to_string());
                written.lock().expect("no panic").push(Instant::now());
                std::thread::sleep(Duration::from_millis(1 + number % 7));
            }
        });
        for mut client in [world.client(), world.client()] {
            let (written, over) = (&written, &over);
            scope.spawn(move || {
                let mut oldest = Duration::ZERO;
                while !over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    let Some(found) = number(&client.ask("get k")) else { continue };
                    // When its successor was stored.
                    let next = written.lock().expect("no panic").get(found as usize + 1).copied();
                    let age = next.map_or(Duration::ZERO, |at| began.saturating_duration_since(at));
                    assert!(age <= bound, "{found} was read {age:?} after its successor");
                    oldest = oldest.max(age);
                }
                println!("oldest {oldest:?}");
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::SeqCst);
    });
    assert!(world.stop().hits > 1000);
}

/// Reads past the proxy, then through it: what the first does not find, the second does not.
fn gone_at_once(world: &World, seconds: u64, begin: impl FnOnce(&mut Connection)) {
    let (mut client, mut direct) = (world.client(), world.server.connect());
    begin(&mut client);
    world.hot(&mut client, "get k");
    let (start, mut absent) = (Instant::now(), 0);
    while absent < 100 {
        assert!(start.elapsed() < Duration::from_secs(seconds), "it stays");
        let is_gone = direct.ask("get k") == "END\r\n";
        let read = client.ask("get k");
        assert!(!is_gone || read == "END\r\n", "{read} after it was gone");
        absent += u64::from(is_gone);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn values_are_never_served_past_their_expiry() {
    let Some(world) = World::start(&[("max-age", "none")]) else { return };
    for set in ["set k 0 3 3\r\none", "ms k 3 T2\r\none"] {
        gone_at_once(&world, 10, |client| drop(client.ask(set)));
    }
    gone_at_once(&world, 10, |client| {
        client.set("k", "one");
        world.hot(client, "get k");
        assert_eq!(client.ask("touch k 3"), "TOUCHED\r\n");
    });
}

#[test]
fn no_value_outlives_a_delayed_flush() {
    let Some(world) = World::start(&[("max-age", "none")]) else { return };
    gone_at_once(&world, 20, |client| {
        client.set("k", "one");
        world.hot(client, "get k");
        assert_eq!(client.ask("flush_all 7"), "OK\r\n");
    });
    // Values are cached again a while behind it.
    let mut client = world.client();
    // What is stored in its second is gone, too.
    std::thread::sleep(Duration::from_secs(2));
    client.set("k", "two");
    assert!(world.hot(&mut client, "get k").contains("two"));
}
