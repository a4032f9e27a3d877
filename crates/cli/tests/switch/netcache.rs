//! `--mode netcache`: a server's agent and a client in namespaces, over sockets of the kernel.

use crate::net::Net;
use crate::process::{PATIENCE, Running, must, overbank, sh, totals, wait};
use overbank_netcache::agent::{Action, Agent, Answer, Ask, Letter, Settings};
use overbank_wire::netcache::{Key, Message, Op, PORT, Stamp, VALUE_MAX};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const KEY: Key = 0xfeed_f00d;
/// Time after which a client asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// Opens a socket in a host's namespace; it stays there.
fn socket(net: &Net, host: u8, port: u16) -> UdpSocket {
    let space = format!("/run/netns/{}", net.space(host));
    let opened = thread::spawn(move || {
        let space = File::open(space).expect("the namespace");
        let network = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(space.as_fd(), network).expect("root");
        UdpSocket::bind(("0.0.0.0", port)).expect("a free port")
    });
    let socket = opened.join().expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
    socket
}

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut room = vec![0; message.emit_len()];
    message.emit(&mut room).expect("room");
    room
}

/// An agent over a map, in a thread.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Server {
    fn start(socket: UdpSocket, device: SocketAddr, epoch: u64) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || serve(&socket, device, epoch, &stopped));
        Server { stop, thread: Some(thread) }
    }

    /// Ends it; returns how many GETs it had.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &UdpSocket, device: SocketAddr, epoch: u64, stop: &AtomicBool) -> u64 {
    let settings = Settings { value_max: VALUE_MAX, ..Settings::default() };
    let (mut agent, start) = (Agent::new(settings, epoch), Instant::now());
    let (mut store, mut reads) = (HashMap::<Key, Arc<[u8]>>::new(), 0);
    let mut room = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let (now, mut out) = (start.elapsed().as_micros() as u64, Vec::new());
        agent.tick(now, &mut out);
        if let Ok((len, from)) = socket.recv_from(&mut room) {
            let said = Message::parse(&room[..len]).expect("a message");
            reads += u64::from(said.op == Op::Get);
            agent.message(now, from, &said, &mut out);
        }
        let mut next = 0;
        while let Some(action) = out.get(next).cloned() {
            next += 1;
            let send = |letter: Letter, to| {
                // The host may not have resolved the address yet: agents repeat, clients, too.
                let _ = socket.send_to(&written(&letter.message()), to);
            };
            match action {
                Action::Reply(to, letter) => send(letter, to),
                Action::Device(letter) => send(letter, device),
                Action::Store { number, key, ask } => {
                    let answer = match ask {
                        Ask::Read => Answer::Read(store.get(&key).cloned()),
                        Ask::Write(value) => {
                            match value {
                                Some(value) => store.insert(key, value),
                                None => store.remove(&key),
                            };
                            Answer::Written
                        }
                    };
                    agent.stored(now, number, answer, &mut out);
                }
            }
        }
    }
    reads
}

/// A client of one server.
struct Client {
    socket: UdpSocket,
    server: SocketAddr,
    request: u64,
}

impl Client {
    /// Asks until there is an answer: operation, value, and whether the device has given it.
    fn ask(&mut self, op: Op, value: &[u8]) -> (Op, Vec<u8>, bool) {
        self.request += 1;
        let request = written(&Message { value, ..Message::new(op, 9, self.request, KEY) });
        let start = Instant::now();
        let mut room = [0; 2048];
        while start.elapsed() < PATIENCE {
            // A host that does not answer yet is one that does later.
            let _ = self.socket.send_to(&request, self.server);
            let asked = Instant::now();
            while asked.elapsed() < AGAIN {
                let Ok((len, from)) = self.socket.recv_from(&mut room) else { continue };
                let said = Message::parse(&room[..len]).expect("a message");
                if from == self.server && said.request == self.request {
                    return (said.op, said.value.to_vec(), said.stamp != Stamp::NONE);
                }
            }
        }
        panic!("no answer to {op:?} within {PATIENCE:?}");
    }

    /// Reads until the device answers; each answer has this value.
    fn hits(&mut self, value: &[u8]) {
        wait("a hit", || {
            let (op, read, by_device) = self.ask(Op::Get, &[]);
            assert_eq!((op, &read[..]), (Op::GetOk, value));
            by_device
        });
    }
}

fn line(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(line.as_bytes()).expect("it reads");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    serde_json::from_str(&answer).expect("one JSON document")
}

/// Taps for the switch, each in a bridge with the near end of a host's pair.
struct Taps(Vec<String>);

impl Taps {
    fn new(net: &Net, hosts: u8) -> Taps {
        let near: Vec<String> = (1..=hosts).map(|host| net.near(host)).collect();
        for near in &near {
            must(&format!(
                "ip tuntap add dev {near}t mode tap multi_queue && ip link add {near}b type bridge \
                 && ip link set {near} master {near}b && ip link set {near}t master {near}b up && \
                 ip link set {near}b up"
            ));
        }
        Taps(near)
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        for near in &self.0 {
            let _ = sh(&format!("ip link delete {near}b; ip link delete {near}t"));
        }
    }
}

fn through_it(kind: &str, tag: &str) {
    let Some(net) = Net::new(tag, 3) else { return };
    let taps = (kind == "tap").then(|| Taps::new(&net, 3));
    let folder = tempfile::tempdir().expect("a folder");
    let (status, state) = (folder.path().join("socket"), folder.path().join("state"));
    let start = || {
        let mut command = overbank();
        command.args(["switch", "--mode", "netcache", "--workers", "2", "--format", "json"]);
        command.args(["--kv-address", "02:00:00:00:00:fe,10.78.0.254", "--kv-threshold", "2"]);
        command.args(["--metrics", "off", "--kv-servers", "2", "--status-socket"]).arg(&status);
        command.args(["--kv-passes", "11", "--kv-state"]).arg(&state);
        for host in 1..=3 {
            let tap = if taps.is_some() { "t" } else { "" };
            command.arg("--port").arg(format!("{host}={kind}:{}{tap}", net.near(host)));
        }
        Running::start(&mut command)
    };
    let running = start();
    // All that is not the protocol goes as ever.
    wait("a ping", || net.pings(1, 2));
    wait("a ping", || net.pings(3, 1));
    net.transfers();
    let device = SocketAddr::from(([10, 78, 0, 254], PORT));
    let server = Server::start(socket(&net, 2, PORT), device, 1);
    let mut client = Client {
        socket: socket(&net, 1, 0),
        server: SocketAddr::from(([10, 78, 0, 2], PORT)),
        request: 0,
    };
    assert_eq!(client.ask(Op::Put, b"first").0, Op::WriteOk);
    client.hits(b"first");
    for value in [&b"second"[..], &[7; 128], &[8; VALUE_MAX], b"third"] {
        assert_eq!(client.ask(Op::Put, value).0, Op::WriteOk);
        client.hits(value);
    }
    // A host behind another port cannot say what only the server may.
    let stranger = socket(&net, 3, PORT);
    wait("dropped", || {
        for op in [Op::Fence, Op::Update] {
            stranger.send_to(&written(&Message::new(op, 1, 1, KEY)), device).expect("sent");
        }
        let ports = line(&status, "status\n")["ports"].take();
        ports[2]["dropped"]["wrong_port"].as_u64() > Some(1)
    });
    client.hits(b"third");
    let hot = line(&status, "hot 3\n");
    assert_eq!(
        (&hot["schema"], &hot["cached"]),
        (&"overbank-kv-hot/1".into(), &1.into()),
        "{hot:#}"
    );
    assert_eq!(hot["keys"][0]["key"], format!("{KEY:032x}"), "{hot:#}");
    assert_eq!(hot["keys"][0]["server"]["address"], "10.78.0.2", "{hot:#}");
    let error = line(&status, "hot all\n");
    assert!(
        error["error"].as_str().expect("text").contains("a number from 0 to 1000"),
        "{error:#}"
    );
    let listing = line(&status, "fdb\n");
    assert!(listing["known"].as_u64() >= Some(3), "{listing:#}");
    let first = totals(&running.end("TERM"));
    let kv = &first["control"]["kv"];
    assert_eq!((&first["mode"], &kv["boot"]), (&"netcache".into(), &1.into()), "{first:#}");
    let hits = first["total"]["kv_hits"].as_u64().expect("a number");
    assert!(hits >= 6, "{first:#}");
    // The longest value came in, and went out, in eleven passes.
    assert!(first["total"]["kv_passes"].as_u64() >= Some(20), "{first:#}");
    // Another run knows nothing and hears nothing wrong from agents of the one before.
    let running = start();
    client.hits(b"third");
    assert_eq!(client.ask(Op::Put, b"fourth").0, Op::WriteOk);
    client.hits(b"fourth");
    let reads = server.end();
    let second = totals(&running.end("TERM"));
    assert_eq!(second["control"]["kv"]["boot"], 2);
    let of = |name: &str| {
        [&first, &second]
            .map(|run| run["total"][name].as_u64().expect("a number"))
            .iter()
            .sum::<u64>()
    };
    // What the device answered, the server did not see.
    assert!(reads <= of("kv_misses"), "{reads} {first:#} {second:#}");
    assert!(of("kv_hits") >= 8 && of("kv_writes") >= 5, "{first:#} {second:#}");
}

#[test]
fn a_server_behind_the_cache_on_packet_sockets() {
    through_it("afpacket", "n");
}

#[test]
fn a_server_behind_the_cache_on_af_xdp() {
    through_it("afxdp", "m");
}

#[test]
fn a_server_behind_the_cache_on_taps() {
    through_it("tap", "t");
}
