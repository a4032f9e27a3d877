//! An engine, its tables, and frames.

use crate::address::DeviceAddress;
use crate::engine::{Device, News, Parts, Sink};
use crate::reason::DropReason;
use overbank::sketch::{self, Keeper};
use overbank_handover::grace::Grace;
use overbank_netcache::pipeline::{Config, Counts, Pipeline, Table};
use overbank_netcache::slots::PASSES_MAX;
use overbank_reasons::Reasons;
use overbank_runtime::link::Common;
use overbank_stations::forward::{Forwarder, Role};
use overbank_stations::{Limits, Reports, Stations, Watch};
use overbank_wire::netcache::frame::{End, write};
use overbank_wire::netcache::{Message, PORT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub const PORTS: u16 = 4;
pub const BOOT: u32 = 5;
/// Number of the host that is the device.
pub const DEVICE: u8 = 254;

pub fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// A host's address, over one family or the other.
pub fn end(n: u8, is_ip4: bool, port: u16) -> End {
    let ip: IpAddr = match is_ip4 {
        true => Ipv4Addr::new(10, 0, 0, n).into(),
        false => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into(),
    };
    End { mac: mac(n), ip, port }
}

pub fn address() -> DeviceAddress {
    let ip6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, DEVICE.into());
    DeviceAddress { mac: mac(DEVICE), ip4: Some([10, 0, 0, DEVICE].into()), ip6: Some(ip6) }
}

pub fn framed(message: &Message<'_>, from: &End, to: &End, vlan: u16) -> Vec<u8> {
    let mut room = [0; 2048];
    let len = write(message, from, to, vlan, &mut room).expect("it fits");
    room[..len].to_vec()
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Sent(Vec<(u16, Vec<u8>)>),
    Dropped(&'static str),
    Control,
}

/// Notes what becomes of each frame of a burst; fails if that is nothing, or twice something.
pub struct Fates(pub Vec<Option<Fate>>);

impl Fates {
    fn once(&mut self, index: usize, fate: Fate) {
        let before = self.0[index].replace(fate);
        assert_eq!(before, None, "frame {index}");
    }
}

impl Sink for Fates {
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        let sent = (port, [head, rest].concat());
        match &mut self.0[index] {
            Some(Fate::Sent(all)) => all.push(sent),
            _ => self.once(index, Fate::Sent(vec![sent])),
        }
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        self.once(index, Fate::Dropped(DropReason::name_at(reason.index())));
    }

    fn to_control(&mut self, index: usize) {
        self.once(index, Fate::Control);
    }
}

/// A device of one worker, moved on by hand, with its table in the hands of the test.
pub struct Rig {
    pub stations: Stations,
    reports: Arc<Reports>,
    pub table: Table,
    pub keeper: Keeper,
    pub device: Device,
    pub news: Arc<News>,
    pub now_ms: u64,
}

impl Rig {
    pub fn new(threshold: u16, queue: usize) -> Rig {
        let limits = Limits { entries_max: 4096, ..Limits::default() };
        let stations = Stations::new(limits, usize::from(PORTS), 0, 3).expect("memory");
        let (watch, reports) = Watch::new(&stations, usize::from(PORTS), &limits);
        let roles = [Role::default(); PORTS as usize];
        let config = Config { items: 64, indexes_log2: 8, passes: PASSES_MAX };
        let table = Table::new(config, BOOT).expect("memory");
        let (counts, _) = Counts::new(config.items);
        let counting = sketch::Settings { threshold, sample_log2: 0 };
        let (counter, keeper) = sketch::Config::default().build(1, counting).expect("memory");
        let (_, mut visitors) = Grace::new(1);
        let news = News::new(queue);
        let device = Device::new(Parts {
            forwarder: Forwarder::new(stations.reader(), &roles).learning(stations.epoch()),
            watch,
            pipeline: Pipeline::new(table.reader(), table.arrays(), counts, counter, 3),
            visitor: visitors.remove(0),
            news: news.clone(),
            address: address(),
            udp_port: PORT,
            servers: vec![true; PORTS.into()],
            common: Arc::new(Common::new().expect("descriptors")),
        });
        Rig { stations, reports, table, keeper, device, news, now_ms: 0 }
    }

    /// Passes a burst; then the table of stations has what its frames said.
    pub fn pass(&mut self, ingress: u16, frames: &[Vec<u8>]) -> Vec<Fate> {
        let burst: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        let mut fates = Fates(vec![None; frames.len()]);
        self.device.forward(ingress, &burst, self.now_ms, &mut fates);
        self.stations.hear(&self.reports);
        self.now_ms += 50;
        fates.0.into_iter().map(|fate| fate.expect("each frame has a fate")).collect()
    }
}

/// Checks lengths and checksums of a frame with a message, by another program's eyes. Over IPv4,
/// the UDP checksum may be absent.
pub fn check(frame: &[u8]) {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let packet = SlicedPacket::from_ethernet(frame).expect("headers that can be read");
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("{packet:?}") };
    let (header, payload) = (udp.to_header(), udp.payload());
    assert_eq!(usize::from(header.length), 8 + payload.len());
    match packet.net.as_ref().expect("IP") {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let sum = header.calc_checksum_ipv4(&ip, payload).expect("short enough");
            assert!([0, sum].contains(&header.checksum), "{packet:?}");
        }
        NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            let sum = header.calc_checksum_ipv6(&ip, payload).expect("short enough");
            assert_eq!(header.checksum, sum, "{packet:?}");
        }
        _ => panic!("{packet:?}"),
    }
}
