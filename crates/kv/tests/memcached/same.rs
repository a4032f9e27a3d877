//! A proxy before memcached, and memcached itself: the same requests get the same bytes, CAS ids
//! included.

use crate::servers::{Connection, World, binary};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;

const KEYS: [&str; 4] = ["a", "bb", "k3", "none"];
const IN_BASE64: [&str; 3] = ["YQ==", "YmI=", "AAEg"];

/// Returns a random command of text or meta; some are wrong. Without `writes`, one that may be
/// cached.
fn text(random: &mut Pcg64Mcg, writes: bool) -> String {
    let key = *KEYS.choose(random).expect("keys");
    let other = *KEYS.choose(random).expect("keys");
    let noreply = *["", "", " noreply"].choose(random).expect("some");
    let value = "x\r\n".repeat(random.random_range(0..9));
    let len = value.len();
    let (exptime, number) = ([0, 1000, -1][random.random_range(0..3)], random.random_range(0..40));
    let (key_b, b) = match random.random_range(0..3) {
        0 => (*IN_BASE64.choose(random).expect("keys"), " b"),
        _ => (key, ""),
    };
    let mut flags = String::from(b);
    let all = ["v", "f", "c", "k", "q", "O77", "s", "t", "N30", "R5", "T0", "z", "v"];
    for flag in &all[..if writes { all.len() } else { 7 }] {
        if random.random_range(0..6) == 0 {
            flags.push_str(&format!(" {flag}"));
        }
    }
    let q = *["", " q", " q k O1"].choose(random).expect("some");
    match random.random_range(0..if writes { 40 } else { 19 }) {
        0..8 => format!("get {key}\r\n"),
        8..11 => format!("gets {key} {other}\r\n"),
        11..19 => format!("mg {key_b}{flags}\r\n"),
        19 | 20 => format!("set {key} {number} 0 {len}{noreply}\r\n{value}\r\n"),
        21 => format!("set {key} {number} {exptime} {len}{noreply}\r\n{value}\r\n"),
        22 => format!("add {key} 0 0 {len}{noreply}\r\n{value}\r\n"),
        23 => format!("append {key} 0 0 {len}{noreply}\r\n{value}\r\n"),
        24 => format!("cas {key} 0 0 {len} {number}{noreply}\r\n{value}\r\n"),
        25 => format!("delete {key}{noreply}\r\n"),
        26 => format!("incr {key} {number}{noreply}\r\n"),
        27 => format!("set {key} 0 0 2{noreply}\r\n1{}\r\n", number % 10),
        28 => format!("touch {key} {exptime}{noreply}\r\n"),
        29 => format!("gat {exptime} {key} {other}\r\n"),
        30 | 31 => format!("ms {key_b} {len}{b} F{number}{q}\r\n{value}\r\n"),
        32 => format!("md {key_b}{b}{q}\r\n"),
        33 => format!("ma {key_b}{b} N0 J7{q} v\r\n"),
        34 => format!("set {key} 0 0 3{noreply}\r\nlonger than that\r\n"),
        35 => ["mn\r\n", "version\r\n", "verbosity 0\r\n", "mn\r\n"][number % 4].to_owned(),
        36 => ["bogus\r\n", "\r\n", "get\r\n", "mg\r\n", "set a\r\n"][number % 5].to_owned(),
        37 => format!("mg {} v\r\n", "k".repeat(251)),
        38 if number == 0 => format!("flush_all{noreply}\r\n"),
        _ => format!("get {key} {other} {key}\r\n"),
    }
}

/// Sends commands and what ends them; returns all that came up to the end.
fn batch(client: &mut Connection, bytes: &[u8], end: (&[u8], &[u8])) -> Vec<u8> {
    client.send([bytes, end.0].concat());
    let mut got = Vec::new();
    while !got.ends_with(end.1) {
        let more = client.read();
        assert!(!more.is_empty(), "it ends after {}", got.escape_ascii());
        got.extend(more);
    }
    got
}

/// Returns a batch's replies without the times to live that they show: one server's second may
/// begin before the other's.
fn timeless(replies: &[u8]) -> String {
    let text = replies.escape_ascii().to_string();
    let mut words = text.split(' ');
    let mut all = words.next().unwrap_or_default().to_owned();
    for word in words {
        let seconds = word.strip_prefix('t').map_or("", |rest| rest);
        let end = seconds.find(|c: char| !c.is_ascii_digit()).unwrap_or(seconds.len());
        match end {
            0 => all.push_str(&format!(" {word}")),
            _ => all.push_str(&format!(" t_{}", &seconds[end..])),
        }
    }
    all
}

fn same(
    seed: u64,
    rounds: u64,
    next: impl Fn(&mut Pcg64Mcg, u64) -> (Vec<u8>, Vec<u8>, Vec<u8>),
) -> u64 {
    let (Some(world), Some(twin)) = (World::start(&[]), World::start(&[("mode", "observe")]))
    else {
        return 1000;
    };
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut client, mut direct) = (world.client(), twin.server.connect());
    for round in 0..rounds {
        let (commands, end, ends) = next(&mut random, round);
        let wanted = batch(&mut direct, &commands, (&end, &ends));
        let got = batch(&mut client, &commands, (&end, &ends));
        let what = commands.escape_ascii();
        assert_eq!(timeless(&got), timeless(&wanted), "seed {seed}, round {round}: {what}");
    }
    drop((client, direct));
    let totals = world.stop();
    totals.hits
}

#[test]
fn random_commands_get_the_bytes_of_memcached() {
    for seed in 0..4 {
        let hits = same(seed, 1500, |random, round| {
            let count = random.random_range(1..8);
            // Values are there a little later.
            let writes = round % 4 == 0;
            if round % 4 == 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let commands: String = (0..count).map(|_| text(random, writes)).collect();
            let end = format!("delete zzz noreply\r\nmg zzz k O{round}\r\n");
            (commands.into_bytes(), end.into_bytes(), format!("EN kzzz O{round}\r\n").into_bytes())
        });
        assert!(hits > 100, "{hits} hits");
    }
}

#[test]
fn random_binary_commands_get_the_bytes_of_memcached() {
    same(9, 1500, |random, round| {
        let mut commands = Vec::new();
        for _ in 0..random.random_range(1..12) {
            let key = KEYS.choose(random).expect("keys").as_bytes();
            let counter = [&[0; 7][..], &[1], &[0; 8], &[0; 4]].concat();
            let (opcode, extras, key, value): (u8, &[u8], &[u8], &[u8]) =
                match random.random_range(0..12) {
                    0..3 => ([0, 9, 12, 13][random.random_range(0..4)], b"", key, b""),
                    3 | 4 => ([1, 0x11, 2, 0x12][random.random_range(0..4)], &[0; 8], key, b"12"),
                    5 => ([4, 0x14][random.random_range(0..2)], b"", key, b""),
                    6 => ([5, 0x15][random.random_range(0..2)], &counter, key, b""),
                    7 => ([0x0e, 0x19][random.random_range(0..2)], b"", key, b"x"),
                    8 => (0x1c, &[0; 4], key, b""),
                    9 => (0x1d, &[0; 4], key, b""),
                    10 => (0x0a, b"", b"", b""),
                    _ => (0x0b, b"", b"", b""),
                };
            commands.extend(binary(opcode, 7, extras, key, value));
        }
        let mut ends = binary(0x0a, 1000 + round as u32, b"", b"", b"");
        let end = ends.clone();
        ends[0] = 0x81;
        (commands, end, ends)
    });
}

/// Writes in binary are seen by readers of text.
#[test]
fn protocols_see_each_others_writes() {
    let Some(world) = World::start(&[("max-age", "none")]) else { return };
    let (mut text, mut other) = (world.client(), world.client());
    for round in 0..50 {
        let value = format!("value-{round}");
        let quiet = round % 2 == 0;
        let opcode = if quiet { 0x11 } else { 1 };
        other.send(binary(opcode, 7, &[0; 8], b"k", value.as_bytes()));
        if quiet {
            other.send(binary(0x0a, 7, b"", b"", b""));
        }
        assert_eq!(other.reply().len(), 24);
        assert!(text.ask("get k").contains(&value));
        world.hot(&mut text, "get k");
    }
}
