//! Measures a packet's time in the gateway's engine beside the Ethernet switch's forwarder with as
//! many addresses, in turns on one thread: frames of 128 bytes inside, of random sessions.
//!
//!     cargo run --release -p overbank-gateway --example datapath -- [SESSIONS [ROUNDS]]
//!
//! With a third argument `garbage`, what a frame of each kind of garbage costs beside one of a
//! session (`garbage.rs`).

mod frames;
mod garbage;

use frames::{HOST, N3, PEER, frame, ipv4, terminal, tunnelled};
use overbank::fib::{Config, MacAddr, Writer};
use overbank_gateway::engine::{Answers, Gateway, Roles, Sink, View};
use overbank_gateway::next_hops::{NextHops, PortHops};
use overbank_gateway::prefix::Prefix;
use overbank_gateway::reason::DropReason;
use overbank_gateway::session::{Gate, Session};
use overbank_gateway::sessions::{Addresses, Origin, Sessions};
use overbank_gateway::teid::{Secret, TeidCheck};
use overbank_stations::Station;
use overbank_stations::forward::{self, Forwarder, Role};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const FRAMES: usize = 1 << 16;
const BURST: usize = 32;
const INNER: usize = 128;

/// Takes frames and counts them.
#[derive(Default)]
struct Count {
    sent: u64,
    dropped: u64,
}

impl Sink for Count {
    fn output(&mut self, _: usize, _: u16, bytes: &[u8]) {
        black_box(bytes);
        self.sent += 1;
    }

    fn output_parts(&mut self, _: usize, _: u16, head: &[u8], rest: &[u8]) {
        black_box((head, rest));
        self.sent += 1;
    }

    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }

    fn originate(&mut self, _: u16, _: &[u8]) {}
}

impl forward::Sink<MacAddr> for Count {
    fn output(&mut self, _: usize, _: u16, bytes: &[u8]) {
        black_box(bytes);
        self.sent += 1;
    }

    fn drop(&mut self, _: usize, _: forward::DropReason) {
        self.dropped += 1;
    }
}

/// A gateway with sessions 1 to `count`, whose TEIDs have a check if there is a secret.
fn gateway(count: u32, secret: Option<Secret>) -> Result<Gateway, Box<dyn Error>> {
    let pools = [Prefix::parse("10.0.0.0/8")?].into_iter().collect();
    let n3 = [N3.into()];
    let teids = TeidCheck::new(secret, &n3);
    let addresses = Addresses { n3: n3.into(), pools, teids: teids.clone() };
    let (mut sessions, mut readers) = Sessions::new(count as usize, addresses.clone(), 1, 1)?;
    for number in 1..=count {
        let session = Session {
            id: u64::from(number),
            n3: N3.into(),
            teid: if teids.is_on() { teids.teid(0, number) } else { number },
            peer: PEER.into(),
            peer_teid: number,
            qfi: Some(9),
            ipv4: Some(terminal(number).into()),
            ipv6: None,
            gate: Gate::Open,
            rate_up: None,
            rate_down: None,
        };
        sessions.add(session, Origin::File, 0)?;
    }
    let all = Prefix::parse("0.0.0.0/0")?;
    let hops = || PortHops::new([2, 0, 0, 0, 0, 1], [(all, Some([2, 0, 0, 0, 0, 9]))]);
    let view = View { addresses, hops: NextHops { n3: hops(), n6: hops() }, ..View::default() };
    let (roles, answers) = (Roles { n3: 0, n6: 1 }, Arc::new(Answers::new(1)));
    Ok(Gateway::new(readers.remove(0), Arc::new(view), roles, answers))
}

/// A session's number for a place in the traffic.
fn drawn(at: usize, count: u32) -> u32 {
    1 + (overbank::hash::mix(at as u64) % u64::from(count)) as u32
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u32 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(15), |text| text.parse())?;
    match arguments.next().as_deref() {
        None => {}
        Some("garbage") => return garbage::run(count, rounds),
        Some(other) => return Err(format!("{other:?}: must be garbage, or absent").into()),
    }
    let mut gateway = gateway(count, None)?;
    let mac = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 1, a, b, c, d]
    };
    let mut fib = Writer::<MacAddr, u16>::new(&Config::entries(count as usize))?;
    for number in 1..=count {
        fib.insert(MacAddr::from(mac(number)), Station::fixed(1).bits())?;
    }
    let switch = Forwarder::new(fib.reader(), &[Role::default(); 2]);

    let drawn = |at| drawn(at, count);
    let inside = vec![0; INNER - 28];
    let up = (0..FRAMES).map(|at| {
        let number = drawn(at);
        let inner = ipv4(terminal(number), HOST, [5000, 53], &inside);
        tunnelled(PEER, number, &inner)
    });
    let down = (0..FRAMES).map(|at| frame(&ipv4(HOST, terminal(drawn(at)), [53, 5000], &inside)));
    let bridged = (0..FRAMES).map(|at| {
        let mut frame = frame(&ipv4(HOST, terminal(drawn(at)), [53, 5000], &inside));
        frame[..6].copy_from_slice(&mac(drawn(at)));
        frame
    });
    let frames: [Vec<Vec<u8>>; 3] = [up.collect(), down.collect(), bridged.collect()];
    let bursts = frames.each_ref().map(|frames| {
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        slices
    });
    let mut times = [const { Vec::new() }; 3];
    let mut counts = [const { Count { sent: 0, dropped: 0 } }; 3];
    for round in 0..=rounds {
        for (kind, slices) in bursts.iter().enumerate() {
            let start = Instant::now();
            for burst in slices.chunks(BURST) {
                match kind {
                    2 => switch.forward(0, burst, &mut counts[2]),
                    port => gateway.forward(burst, port as u16, 1, &mut counts[port]),
                }
            }
            let ns = start.elapsed().as_nanos() as f64 / FRAMES as f64;
            // The first round warms up.
            if round > 0 {
                times[kind].push(ns);
            }
        }
    }
    println!(
        "{count} sessions and addresses, {rounds} rounds of {FRAMES} frames in turns, ns a frame"
    );
    let mut ratio = times.clone();
    for list in &mut ratio {
        list.iter_mut().zip(&times[2]).for_each(|(of, switch)| *of /= switch);
    }
    for (kind, name) in ["uplink", "downlink", "switch"].iter().enumerate() {
        let Count { sent, dropped } = counts[kind];
        assert_eq!((sent, dropped), ((rounds as u64 + 1) * FRAMES as u64, 0), "{name}");
        for list in [&mut times[kind], &mut ratio[kind]] {
            list.sort_by(f64::total_cmp);
        }
        let at = |list: &[f64], tenth: usize| list[(list.len() - 1) * tenth / 10];
        println!(
            "{name:8}  {:6.1} [{:.1}–{:.1}]   {:.2} × the switch [{:.2}–{:.2}]",
            at(&times[kind], 5),
            at(&times[kind], 1),
            at(&times[kind], 9),
            at(&ratio[kind], 5),
            at(&ratio[kind], 1),
            at(&ratio[kind], 9),
        );
    }
    Ok(())
}
