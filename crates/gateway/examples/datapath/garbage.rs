//! What a frame of garbage costs, by kind, beside a packet of a session: in turns on one thread.

use super::frames::{HOST, N3, PEER, frame, gtpu, ipv4, terminal, tunnelled};
use super::{BURST, Count, INNER, drawn, gateway};
use overbank_gateway::engine::Gateway;
use overbank_gateway::teid::{Secret, TeidCheck};
use std::error::Error;
use std::time::Instant;

/// Frames of a kind.
const FRAMES: usize = 1 << 14;
const SECRET: [u8; 16] = [9; 16];

/// A kind of frame: what it is, the gateway and the port that it comes to, and the frames.
struct Kind {
    name: &'static str,
    checked: bool,
    port: u16,
    frames: Vec<Vec<u8>>,
}

/// Returns all kinds; the first is of sessions.
fn kinds(count: u32) -> Vec<Kind> {
    let teids = TeidCheck::new(Some(Secret::new(SECRET)), &[N3.into()]);
    let inside = vec![0; INNER - 28];
    let packet = |src, dst| ipv4(src, dst, [5000, 53], &inside);
    let of = |at: usize| drawn(at, count);
    let up = |at: usize| packet(terminal(of(at)), HOST);
    let random = |at: usize| overbank::hash::mix(!at as u64) as u32;
    // Ten thousand invented peers.
    let peer = |at: usize| [198, 51, (at % 100) as u8, (at / 100 % 100) as u8];
    let kind = |name, checked, port, frame: &dyn Fn(usize) -> Vec<u8>| Kind {
        name,
        checked,
        port,
        frames: (0..FRAMES).map(frame).collect(),
    };
    let with = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let error = [&[0; 4][..], &[16, 0, 0, 0, 1, 133, 0, 4], &PEER].concat();
    vec![
        kind("uplink packet of a session", false, 0, &|at| tunnelled(PEER, of(at), &up(at))),
        kind("downlink packet of a session", false, 1, &|at| {
            frame(&packet(HOST, terminal(of(at))))
        }),
        kind("random TEID, refused by its check", true, 0, &|at| {
            let other = random(at);
            // All but those that carry the check by chance.
            let teid = if teids.admits(0, other) { other ^ 1 << 24 } else { other };
            tunnelled(peer(at), teid, &up(at))
        }),
        kind("unknown TEID with a valid check", true, 0, &|at| {
            tunnelled(peer(at), teids.teid(0, count + 1 + at as u32), &up(at))
        }),
        kind("unknown TEID without checks", false, 0, &|at| {
            tunnelled(peer(at), random(at) | 1 << 31, &up(at))
        }),
        kind("spoofed source", false, 0, &|at| {
            tunnelled(PEER, of(at), &packet(terminal(of(at) ^ 1 << 23), HOST))
        }),
        kind("to the gateway itself, through a tunnel", false, 0, &|at| {
            tunnelled(PEER, of(at), &packet(terminal(of(at)), N3))
        }),
        kind("GTP version 2", false, 0, &|at| with(tunnelled(PEER, of(at), &up(at)), 42, 0x50)),
        kind("extension header of length 0", false, 0, &|at| {
            gtpu(PEER, 4, 255, of(at), &[&[0, 0, 0, 0x85, 0, 0, 0, 0][..], &up(at)].concat())
        }),
        kind("inner length of 0", false, 0, &|at| {
            with(with(tunnelled(PEER, of(at), &up(at)), 52, 0), 53, 0)
        }),
        kind("outer fragment", false, 0, &|at| {
            let mut bytes = tunnelled(PEER, of(at), &up(at));
            // "More fragments", and as much less in the checksum.
            let sum = u16::from_be_bytes([bytes[24], bytes[25]]);
            let (sum, borrow) = sum.overflowing_sub(0x2000);
            bytes[20] |= 0x20;
            bytes[24..26].copy_from_slice(&(sum - u16::from(borrow)).to_be_bytes());
            bytes
        }),
        kind("wrong outer checksum", false, 0, &|at| with(tunnelled(PEER, of(at), &up(at)), 24, 1)),
        kind("UDP to another port", false, 0, &|at| with(tunnelled(PEER, of(at), &up(at)), 37, 0)),
        kind("Echo Request beyond the limit", false, 0, &|_| gtpu(PEER, 2, 1, 0, &[0, 1, 0, 0])),
        kind("Error Indication", false, 0, &|_| gtpu(PEER, 2, 26, 0, &error)),
        kind("ARP", false, 0, &|at| with(tunnelled(PEER, of(at), &up(at)), 13, 6)),
        kind("to no terminal of a pool", false, 1, &|at| {
            frame(&packet(HOST, terminal(random(at) & 0x007f_ffff | 1 << 23)))
        }),
        kind("to no pool", false, 1, &|at| frame(&packet(HOST, [192, 0, 2, at as u8]))),
        kind("TTL 1, beyond the limit of errors", false, 1, &|at| {
            let mut bytes = frame(&packet(HOST, terminal(of(at))));
            // One less in the TTL is one more in the checksum.
            let sum = u16::from_be_bytes([bytes[24], bytes[25]]);
            let (sum, carry) = sum.overflowing_add(63 << 8);
            bytes[22] = 1;
            bytes[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
            bytes
        }),
    ]
}

/// Measures all kinds; `count` sessions.
pub fn run(count: u32, rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut gateways = [gateway(count, None)?, gateway(count, Some(Secret::new(SECRET)))?];
    let kinds = kinds(count);
    let mut times = vec![Vec::new(); kinds.len()];
    for round in 0..=rounds {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let of_kind = &mut gateways[usize::from(kind.checked)];
            let ns = time(of_kind, kind, (times.len() + 1) as u64)?;
            // The first round warms up, and uses up what is answered.
            if round > 0 {
                times.push(ns);
            }
        }
    }
    println!("{count} sessions, {rounds} rounds of {FRAMES} frames in turns, ns a frame");
    let ratios: Vec<Vec<f64>> = times
        .iter()
        .map(|list| list.iter().zip(&times[0]).map(|(of, valid)| of / valid).collect())
        .collect();
    for ((kind, mut times), mut ratios) in kinds.iter().zip(times).zip(ratios) {
        for list in [&mut times, &mut ratios] {
            list.sort_by(f64::total_cmp);
        }
        let at = |list: &[f64], tenth: usize| list[(list.len() - 1) * tenth / 10];
        println!(
            "{:40}  {:6.1} [{:.1}–{:.1}]   {:.2} × an uplink packet [{:.2}–{:.2}]",
            kind.name,
            at(&times, 5),
            at(&times, 1),
            at(&times, 9),
            at(&ratios, 5),
            at(&ratios, 1),
            at(&ratios, 9),
        );
    }
    Ok(())
}

/// Times a round of a kind; fails if its frames are not all dropped, or all sent.
fn time(gateway: &mut Gateway, kind: &Kind, now_ms: u64) -> Result<f64, Box<dyn Error>> {
    let slices: Vec<&[u8]> = kind.frames.iter().map(Vec::as_slice).collect();
    let mut count = Count::default();
    let start = Instant::now();
    for burst in slices.chunks(BURST) {
        gateway.forward(burst, kind.port, now_ms, &mut count);
    }
    let ns = start.elapsed().as_nanos() as f64 / FRAMES as f64;
    let valid = kind.name.ends_with("packet of a session");
    // A few Echo Requests are answered.
    let expected = if valid { count.dropped == 0 } else { count.sent <= 50 };
    if !expected || count.sent + count.dropped != FRAMES as u64 {
        let Count { sent, dropped } = count;
        return Err(format!("{}: {sent} sent, {dropped} dropped", kind.name).into());
    }
    Ok(ns)
}
