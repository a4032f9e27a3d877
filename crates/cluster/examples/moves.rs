//! Measures moves between nodes of one process: sessions, moves a second, packets misrouted.
//!
//!     cargo run --release -p overbank-cluster --example moves -- 32 1000000 100000 60
//!
//! The arguments are nodes, sessions, moves a second and seconds; the smallest run is the default.

use std::sync::Arc;
use std::time::{Duration, Instant};

use overbank::hash::mix;
use overbank_cluster::message::Request;
use overbank_cluster::table::Dense;
use overbank_cluster::{Heard, Key, Memory, NodeId, SessionId, Settings};

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [nodes, sessions, rate, seconds] = match arguments.as_slice() {
        [nodes, sessions, rate, seconds] => [*nodes, *sessions, *rate, *seconds],
        _ => [4, 10_000, 10_000, 2],
    };
    let nodes = nodes.clamp(2, 32) as u8;
    let settings = Settings {
        node_bits: 5,
        // Several machines in one process: their beats share its cores.
        lease_us: 30_000_000,
        partition_keys: (sessions as usize / 64 * 5 / 4).max(1 << 14),
        ..Settings::default()
    };
    let mut memory = Memory::<Dense>::new(settings, nodes);
    let start = Instant::now();
    let mut heard = Vec::new();
    let mut now = 0;
    let mut beat = |memory: &mut Memory<Dense>, heard: &mut Vec<Heard>| {
        now += settings.beat_us;
        memory.advance(now, heard);
    };
    (0..20).for_each(|_| beat(&mut memory, &mut heard));
    let key = |nth: u64| Key { hash: mix(nth), full: nth.into() };
    for nth in 0..sessions {
        let (keys, context) = (Arc::new([key(nth)]), Arc::new([]));
        let request = Request::Establish { keys, context, to: None };
        memory.request(NodeId((nth % u64::from(nodes)) as u8), nth, request);
        if nth % 20_000 == 0 {
            beat(&mut memory, &mut heard);
            heard.clear();
        }
    }
    (0..20).for_each(|_| beat(&mut memory, &mut heard));
    println!("{nodes} nodes, {sessions} sessions: ready after {:.1?}", start.elapsed());

    let start = Instant::now();
    let interval = Duration::from_micros(settings.beat_us);
    let per_beat = rate * settings.beat_us / 1_000_000;
    let (mut next, mut number, mut late) = (0, sessions, Duration::ZERO);
    let (mut moved, mut refused, mut packets, mut lost) = (0u64, 0u64, 0u64, 0u64);
    for round in 1..=seconds * 1_000_000 / settings.beat_us {
        for _ in 0..per_beat {
            let session = SessionId(key(next % sessions).hash);
            let at = NodeId((next % u64::from(nodes)) as u8);
            memory.request(at, number, Request::Move { session, to: None });
            (next, number) = (next + 1, number + 1);
        }
        beat(&mut memory, &mut heard);
        for heard in heard.drain(..) {
            match heard {
                Heard::Answer(_, Ok(())) => moved += 1,
                Heard::Answer(_, Err(_)) => refused += 1,
                _ => {}
            }
        }
        // Packets of sessions that move now, and of any.
        for nth in 0..1000 {
            let any = mix(round << 16 | nth);
            let which = if nth % 2 == 0 { next.saturating_sub(any % 20_000 + 1) } else { any };
            let ingress = NodeId((any >> 32) as u8 % nodes);
            packets += 1;
            lost += u64::from(memory.packet(ingress, key(which % sessions)).is_err());
        }
        let due = interval * round as u32;
        match due.checked_sub(start.elapsed()) {
            Some(rest) => std::thread::sleep(rest),
            None => late = late.max(start.elapsed() - due),
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "{moved} moves in {took:.1} s: {:.0} a second, {refused} refused; \
         {packets} packets, {lost} not handled; at most {late:.1?} behind real time",
        moved as f64 / took
    );
}
