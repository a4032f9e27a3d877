//! A device whose cache is full of values, without threads and controller: for measurements.
//!
//! Port 0 has a client, port 1 the server of all keys. The values came in as UPDATE frames. Beside
//! it, [`Plain`] is an Ethernet switch over the same table of stations, with learning, as mode `l2`
//! has it.

use crate::address::DeviceAddress;
use crate::engine::{Device, News, Parts, Sink};
use crate::reason::DropReason;
use overbank::fib;
use overbank::sketch;
use overbank_handover::grace::Grace;
use overbank_netcache::pipeline::{Config, Counts, Pipeline, Table, TableError};
use overbank_netcache::slots::passes_of;
use overbank_runtime::link::Common;
use overbank_stations::forward::{self, Forwarder, Role};
use overbank_stations::{Limits, Reports, Sighting, Stations, Watch};
use overbank_wire::netcache::frame::{End, HEAD_MAX, write};
use overbank_wire::netcache::{Key, Message, Op, PORT, Stamp, VALUE_MAX};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

const PORTS: usize = 2;
const BOOT: u32 = 1;
const SEED: u64 = 7;
const CLIENT: End = end(1, 4000);
const SERVER: End = end(2, PORT);
const DEVICE: End = end(254, PORT);

const fn end(host: u8, port: u16) -> End {
    let ip = std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
    End { mac: [2, 0, 0, 0, 0, host], ip, port }
}

/// There is no such device.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Keys(#[from] TableError),
    #[error(transparent)]
    Table(#[from] fib::FibError),
    #[error(transparent)]
    Sketch(#[from] sketch::SketchError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("the device has not taken the value of key {0}")]
    Value(Key),
}

/// The device and what it stands on.
pub struct Loaded {
    pub device: Device,
    pub plain: Plain,
    /// Kept: they are the writers of what the device reads.
    _table: Table,
    _stations: Stations,
}

/// An Ethernet switch that learns.
pub struct Plain {
    forwarder: Forwarder,
    watch: Watch,
}

impl Loaded {
    /// Returns a device with room for the paper's 65,536 items, of which the keys below `cached`
    /// are valid and have values of `bytes`.
    ///
    /// # Errors
    /// There is no memory, or no room for these values.
    pub fn new(cached: usize, bytes: usize) -> Result<Loaded, LoadError> {
        let limits = Limits::default();
        let mut stations = Stations::new(limits, PORTS, 0, SEED)?;
        let roles = [Role::default(); PORTS];
        let forwarder = |of: &Stations| Forwarder::new(of.reader(), &roles).learning(of.epoch());
        let config = Config { passes: passes_of(bytes), ..Config::default() };
        let mut table = Table::new(config, BOOT)?;
        let (counts, _) = Counts::new(table.items());
        let counting = sketch::Settings { threshold: sketch::COUNT_MAX, sample_log2: 0 };
        let (counter, _) = sketch::Config::default().build(SEED, counting)?;
        let (watch, reports) = Watch::new(&stations, PORTS, &limits);
        let (plain_watch, _) = Watch::new(&stations, PORTS, &limits);
        let (_, mut visitors) = Grace::new(1);
        let mut device = Device::new(Parts {
            forwarder: forwarder(&stations),
            watch,
            pipeline: Pipeline::new(table.reader(), table.arrays(), counts, counter, SEED),
            visitor: visitors.remove(0),
            news: News::new(1),
            address: DeviceAddress {
                mac: DEVICE.mac,
                ip4: Some([10, 0, 0, 254].into()),
                ip6: None,
            },
            udp_port: PORT,
            servers: vec![true; PORTS],
            common: Arc::new(Common::new()?),
        });
        for key in (0..cached as u64).map(Key::from) {
            let installed = table.install(key, 1, bytes)?;
            let stamp = Stamp { boot: BOOT, install: installed.install, writes: 0 };
            let value = vec![key as u8; bytes];
            let update = Message { stamp, value: &value, ..Message::new(Op::Update, 1, 1, key) };
            device.forward(1, &[&framed(&update, &SERVER, &DEVICE)], 0, &mut Nothing);
            if !table.status(key).is_some_and(|status| status.is_valid()) {
                return Err(LoadError::Value(key));
            }
        }
        learn(&mut device, &mut stations, &reports);
        let plain = Plain { forwarder: forwarder(&stations), watch: plain_watch };
        Ok(Loaded { device, plain, _table: table, _stations: stations })
    }
}

/// Lets the table have the client and the server.
fn learn(device: &mut Device, stations: &mut Stations, reports: &Reports) {
    for (port, from, to) in [(0, &CLIENT, &SERVER), (1, &SERVER, &CLIENT)] {
        let said = Message::new(Op::Error, 0, 0, 0);
        device.forward(port, &[&framed(&said, from, to)], 1000, &mut Nothing);
    }
    stations.hear(reports);
}

fn framed(message: &Message<'_>, from: &End, to: &End) -> Vec<u8> {
    let mut room = [0; HEAD_MAX + VALUE_MAX];
    let len = write(message, from, to, 0, &mut room).unwrap_or(0);
    room[..len].to_vec()
}

/// Returns the client's read of a key, in its frame; it comes in by port 0.
pub fn get(key: Key) -> Vec<u8> {
    framed(&Message::new(Op::Get, 9, key as u64, key), &CLIENT, &SERVER)
}

/// Returns the client's write of a key.
pub fn put(key: Key, value: &[u8]) -> Vec<u8> {
    framed(&Message { value, ..Message::new(Op::Put, 9, key as u64, key) }, &CLIENT, &SERVER)
}

/// Takes all frames.
pub struct Nothing;

impl Sink for Nothing {
    fn output(&mut self, _: usize, _: u16, _: &[u8]) {}
    fn output_parts(&mut self, _: usize, _: u16, _: &[u8], _: &[u8]) {}
    fn drop(&mut self, _: usize, _: DropReason) {}
    fn to_control(&mut self, _: usize) {}
}

impl Plain {
    /// Forwards a burst, without a look at its messages.
    #[inline]
    pub fn forward<S: Sink>(&mut self, ingress: u16, burst: &[&[u8]], now_ms: u64, out: &mut S) {
        let Plain { forwarder, watch } = self;
        forwarder.forward(ingress, burst, &mut Burst { watch, now_ms, out });
    }
}

struct Burst<'a, S> {
    watch: &'a mut Watch,
    now_ms: u64,
    out: &'a mut S,
}

impl<S: Sink> forward::Sink for Burst<'_, S> {
    #[inline]
    fn output(&mut self, index: usize, port: u16, frame: &[u8]) {
        self.out.output(index, port, frame);
    }

    fn drop(&mut self, index: usize, reason: forward::DropReason) {
        self.out.drop(index, reason.into());
    }

    fn saw(&mut self, sighting: Sighting) {
        self.watch.report(sighting, self.now_ms);
    }
}
