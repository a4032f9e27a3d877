//! Hosts on ports in memory: a server with an agent and a store of maps, and a client.

use overbank_device::boot::Boot;
use overbank_device::controller::Settings as ControllerSettings;
use overbank_device::pipeline::Config;
use overbank_device::{DeviceAddress, DeviceControl, Setup, start};
use overbank_netcache::Protocol;
use overbank_netcache::agent::{Action, Agent, Answer, Ask, Letter, Settings};
use overbank_ports::looped::{MemoryHandle, MemoryOptions, MemoryPort};
use overbank_runtime::{ConfiguredPort, Options, Running};
use overbank_stations::Limits;
use overbank_wire::netcache::frame::{Datagram, End, write};
use overbank_wire::netcache::{Key, Message, Op, PORT, Stamp};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which a client asks again.
const AGAIN: Duration = Duration::from_millis(50);
pub const BOOT: u32 = 77;
/// Number of the host that is the device.
const DEVICE: u8 = 254;
/// UDP port of the client.
const CLIENT: u16 = 4000;

pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How hosts talk.
#[derive(Clone, Copy)]
pub struct Way {
    pub is_ip4: bool,
    pub vlan: u16,
}

impl Way {
    pub fn end(self, host: u8, port: u16) -> End {
        let ip: IpAddr = match self.is_ip4 {
            true => Ipv4Addr::new(10, 0, 0, host).into(),
            false => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
        };
        End { mac: [2, 0, 0, 0, 0, host], ip, port }
    }

    pub fn device(self) -> End {
        self.end(DEVICE, PORT)
    }

    pub fn frame(self, message: &Message<'_>, from: &End, to: &End) -> Vec<u8> {
        let mut room = [0; 2048];
        let len = write(message, from, to, self.vlan, &mut room).expect("it fits");
        room[..len].to_vec()
    }
}

/// A server: what comes in by its port is taken when [`Server::turn`] is called.
pub struct Server {
    way: Way,
    end: End,
    port: MemoryHandle,
    agent: Agent<End>,
    pub store: HashMap<Key, Arc<[u8]>>,
    start: Instant,
    /// GETs that it has answered.
    pub reads: u64,
}

impl Server {
    pub fn new(way: Way, host: u8, port: MemoryHandle, epoch: u64) -> Server {
        Server {
            way,
            end: way.end(host, PORT),
            port,
            agent: Agent::new(Settings::default(), epoch),
            store: HashMap::new(),
            start: Instant::now(),
            reads: 0,
        }
    }

    /// Begins another run, which knows of no cached key; the store stays.
    pub fn restart(&mut self, epoch: u64) {
        self.agent = Agent::new(Settings::default(), epoch);
    }

    pub fn serves(&self) -> bool {
        self.agent.serves(self.start.elapsed().as_micros() as u64)
    }

    pub fn turn(&mut self) {
        let now = self.start.elapsed().as_micros() as u64;
        let mut out = Vec::new();
        self.agent.tick(now, &mut out);
        for frame in self.port.take_sent() {
            let Ok(Some(found)) = Datagram::of(&frame, PORT) else { continue };
            if found.dst() != self.end {
                continue;
            }
            assert!(found.checksum_is_right());
            let said = Message::parse(found.payload()).expect("a message");
            self.reads += u64::from(said.op == Op::Get);
            self.agent.message(now, found.src(), &said, &mut out);
        }
        // What the store answers may lead to more.
        let mut next = 0;
        while let Some(action) = out.get(next).cloned() {
            next += 1;
            match action {
                Action::Reply(to, letter) => self.send(&letter, &to),
                Action::Device(letter) => self.send(&letter, &self.way.device()),
                Action::Store { number, key, ask } => {
                    let answer = match ask {
                        Ask::Read => Answer::Read(self.store.get(&key).cloned()),
                        Ask::Write(Some(value)) => {
                            self.store.insert(key, value);
                            Answer::Written
                        }
                        Ask::Write(None) => {
                            self.store.remove(&key);
                            Answer::Written
                        }
                    };
                    self.agent.stored(now, number, answer, &mut out);
                }
            }
        }
    }

    fn send(&self, letter: &Letter, to: &End) {
        self.port.inject(&self.way.frame(&letter.message(), &self.end, to));
    }
}

/// What a client was told.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub op: Op,
    pub value: Vec<u8>,
    /// The device answered, not the server.
    pub by_device: bool,
}

/// A device of two workers between a client, a server and a stranger.
pub struct World {
    pub way: Way,
    pub running: Running<DeviceControl>,
    pub ports: Vec<MemoryHandle>,
    pub server: Server,
    request: u64,
}

impl World {
    pub fn new(way: Way) -> World {
        let options = MemoryOptions { keep: 1 << 16, ..MemoryOptions::default() };
        let each = (1..=3).map(|number| {
            let port = MemoryPort::open(&options, &format!("memory{number}"), 2).expect("memory");
            let handle = port.handle();
            (ConfiguredPort { number, spec: None, port: Some(Box::new(port)) }, handle)
        });
        let (configured, ports): (Vec<_>, Vec<_>) = each.unzip();
        let device = DeviceAddress {
            mac: way.device().mac,
            ip4: Some([10, 0, 0, DEVICE].into()),
            ip6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, DEVICE.into())),
        };
        let setup = Setup {
            run: Options { workers: 2, ..Options::default() },
            mac: Limits::default(),
            statics: Vec::new(),
            isolated: Vec::new(),
            seed: 1,
            address: device,
            udp_port: PORT,
            servers: vec![2],
            cache: Config { items: 64, indexes_log2: 6, passes: 1 },
            counting: overbank::sketch::Settings { threshold: 2, sample_log2: 0 },
            controller: ControllerSettings {
                decide_us: 10_000,
                epoch_us: 100_000,
                // Few reads between writes are no reason here.
                writes_epochs: u8::MAX,
                ..ControllerSettings::default()
            },
            queue: 256,
            boot: Boot { number: BOOT, installs_from_ms: 0 },
            protocol: Protocol::Stamps,
        };
        let running = start(&setup, configured).expect("started");
        let server = Server::new(way, 2, ports[1].clone(), 1);
        let mut world = World { way, running, ports, server, request: 0 };
        wait("the controller's word", || {
            world.server.turn();
            world.server.serves()
        });
        world
    }

    /// Asks until there is an answer.
    pub fn ask(&mut self, op: Op, key: Key, value: &[u8]) -> Told {
        self.request += 1;
        let request = Message { value, ..Message::new(op, 9, self.request, key) };
        let (way, client) = (self.way, self.way.end(1, CLIENT));
        let frame = way.frame(&request, &client, &way.end(2, PORT));
        let (mut told, mut asked) = (None, None);
        wait("an answer", || {
            if asked.is_none_or(|at: Instant| at.elapsed() > AGAIN) {
                asked = Some(Instant::now());
                self.ports[0].inject(&frame);
            }
            self.server.turn();
            for frame in self.ports[0].take_sent() {
                let Ok(Some(found)) = Datagram::of(&frame, CLIENT) else { continue };
                assert!(found.checksum_is_right());
                assert_eq!((found.src(), found.dst()), (way.end(2, PORT), client));
                let said = Message::parse(found.payload()).expect("a message");
                if (said.client, said.request) == (9, request.request) {
                    assert_eq!(said.key, key);
                    let by_device = said.stamp != Stamp::NONE;
                    assert!(!by_device || said.stamp.boot == BOOT);
                    told = Some(Told { op: said.op, value: said.value.to_vec(), by_device });
                }
            }
            told.is_some()
        });
        told.expect("an answer")
    }

    /// Reads until the device answers; each answer is this one.
    pub fn hits(&mut self, key: Key, op: Op, value: &[u8]) {
        wait("a hit", || {
            let told = self.ask(Op::Get, key, &[]);
            assert_eq!((told.op, &told.value[..]), (op, value));
            told.by_device
        });
    }

    /// Puts a frame in by a port, and waits until the device has taken it.
    pub fn inject(&mut self, port: usize, frame: &[u8]) {
        let received = |world: &World| world.running.status().ports[port].received;
        let before = received(self);
        assert!(self.ports[port].inject(frame));
        wait("the frame", || received(self) > before);
    }
}
