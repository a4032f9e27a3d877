//! Overbank's gateway as a contestant: its engine, on buffers that frames are written to in turn.
//! A port counts and drops, as `net_null` does.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use overbank_gateway::engine::{Answers, Gateway, Roles, Sink, View};
use overbank_gateway::next_hops::{NextHops, PortHops};
use overbank_gateway::prefix::Prefix;
use overbank_gateway::reason::DropReason;
use overbank_gateway::session::{Gate, Session};
use overbank_gateway::sessions::{Addresses, Origin, Sessions};

use super::traffic::{Direction, GATEWAY_MAC, HOST_MAC, N3, PEER, Traffic};
use crate::clock;
use crate::ovs::Window;
use crate::ovs::overbank::Work;

/// Frames of a burst, as Open vSwitch takes them.
const BURST: usize = 32;
/// Buffers that packets are written to in turn.
const BUFFERS: usize = 16 * BURST;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Buffer([u8; 256]);

/// Output ports that count.
#[derive(Default)]
struct Ports {
    sent: u64,
    dropped: u64,
}

impl Sink for Ports {
    #[inline]
    fn output(&mut self, _: usize, _: u16, bytes: &[u8]) {
        std::hint::black_box(bytes);
        self.sent += 1;
    }

    #[inline]
    fn output_parts(&mut self, _: usize, _: u16, head: &[u8], rest: &[u8]) {
        std::hint::black_box((head, rest));
        self.sent += 1;
    }

    #[inline]
    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }

    fn originate(&mut self, _: u16, _: &[u8]) {}
}

/// Checks what is sent.
struct Check<'a> {
    traffic: &'a Traffic,
    first_wrong: Option<anyhow::Error>,
    sent: usize,
}

impl Sink for Check<'_> {
    fn output(&mut self, _: usize, _: u16, bytes: &[u8]) {
        self.sent += 1;
        if let Err(error) = self.traffic.check(bytes) {
            self.first_wrong.get_or_insert(error);
        }
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        self.output(index, port, &[head, rest].concat());
    }

    fn drop(&mut self, _: usize, reason: DropReason) {
        self.first_wrong.get_or_insert_with(|| anyhow::anyhow!("dropped: {reason:?}"));
    }

    fn originate(&mut self, _: u16, _: &[u8]) {}
}

/// The gateway with the packets that it gets.
pub struct Runner {
    gateway: Gateway,
    traffic: Arc<Traffic>,
    next: usize,
    buffers: Box<[Buffer; BUFFERS]>,
    ports: Ports,
    start: Instant,
    generator_cycles: u64,
    /// The control side; the workers' tables are its.
    _sessions: Sessions,
}

impl Runner {
    /// Returns a gateway with all sessions of the traffic.
    pub fn new(traffic: &Arc<Traffic>) -> Result<Runner> {
        let prefix = |text| Prefix::parse(text).map_err(|error| anyhow::anyhow!(error));
        let pools = [prefix("10.0.0.0/8")?].into_iter().collect();
        let addresses = Addresses { n3: [N3.into()].into(), pools, ..Addresses::default() };
        let count = traffic.sessions;
        let (mut sessions, mut readers) = Sessions::new(count as usize, addresses.clone(), 1, 1)?;
        for number in 1..=count {
            let session = Session {
                id: u64::from(number),
                n3: N3.into(),
                teid: number,
                peer: PEER.into(),
                peer_teid: number,
                qfi: None,
                ipv4: Some((0x0a00_0000 + number).to_be_bytes().into()),
                ipv6: None,
                gate: Gate::Open,
                rate_up: None,
                rate_down: None,
            };
            sessions.add(session, Origin::File, 0)?;
        }
        let all = prefix("0.0.0.0/0")?;
        let hops = || PortHops::new(GATEWAY_MAC, [(all, Some(HOST_MAC))]);
        let view = View { addresses, hops: NextHops { n3: hops(), n6: hops() }, ..View::default() };
        let (roles, answers) = (Roles { n3: 0, n6: 1 }, Arc::new(Answers::new(1)));
        Ok(Runner {
            gateway: Gateway::new(readers.remove(0), Arc::new(view), roles, answers),
            traffic: Arc::clone(traffic),
            next: 0,
            buffers: Box::new([Buffer([0; 256]); BUFFERS]),
            ports: Ports::default(),
            start: Instant::now(),
            generator_cycles: 0,
            _sessions: sessions,
        })
    }

    /// Sends the first frames of the sequence and checks each that comes out; returns how many.
    pub fn check(&mut self) -> Result<usize> {
        let traffic = Arc::clone(&self.traffic);
        let mut check = Check { traffic: &traffic, first_wrong: None, sent: 0 };
        let (port, ids) = (self.port(), traffic.sequence());
        for &id in ids {
            let Buffer(bytes) = &mut self.buffers[0];
            traffic.template.write(bytes, id);
            self.gateway.forward(&[&bytes[..traffic.template.len()]], port, 1, &mut check);
        }
        match check.first_wrong {
            Some(error) => Err(error.context("Overbank")),
            None if check.sent != ids.len() => bail!("Overbank sent {} frames", check.sent),
            None => Ok(check.sent),
        }
    }

    fn port(&self) -> u16 {
        match self.traffic.direction {
            Direction::Uplink => 0,
            Direction::Downlink => 1,
        }
    }
}

impl Work for Runner {
    fn turn(&mut self) -> u64 {
        let now_ms = self.start.elapsed().as_millis() as u64;
        let (port, ids) = (self.port(), self.traffic.sequence());
        let (template, mask) = (&self.traffic.template, ids.len() - 1);
        for buffers in self.buffers.chunks_exact_mut(BURST) {
            let start = clock::cycles();
            for Buffer(bytes) in &mut *buffers {
                template.write(bytes, ids[self.next & mask]);
                self.next += 1;
            }
            self.generator_cycles += clock::cycles() - start;
            let frames: [&[u8]; BURST] = std::array::from_fn(|i| &buffers[i].0[..template.len()]);
            self.gateway.forward(&frames, port, now_ms, &mut self.ports);
        }
        BUFFERS as u64
    }

    fn begin(&mut self) {
        self.ports = Ports::default();
        self.generator_cycles = 0;
    }

    fn describe(&self, packets: u64, cycles: u64) -> Window {
        let share = |count: u64| count as f64 / packets as f64;
        Window {
            packets: self.ports.sent,
            cycles: share(cycles),
            generator_cycles: share(self.generator_cycles),
            on_core: 1.0,
            upcalls: self.ports.dropped,
            ..Window::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_leaves_as_it_must() {
        for direction in Direction::ALL {
            let traffic = Arc::new(Traffic::new(direction, 100, 10, 1).expect("traffic"));
            let mut runner = Runner::new(&traffic).expect("a gateway");
            assert_eq!(runner.check().expect("right"), 1 << 10);
            runner.begin();
            let packets = runner.turn();
            let window = runner.describe(packets, 1000);
            assert_eq!((window.packets, window.upcalls), (packets, 0));
        }
    }
}
