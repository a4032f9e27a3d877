//! Measures a cluster of four processes over one etcd and JetStream, all on this machine.
//!
//!     cargo run --release -p overbank-stores --features services --example moves -- 100000 10 1
//!
//! The arguments are sessions, seconds, and NATS servers (1 or 3, each batch on all of them).
//! Prints moves a second, with the time until a move is answered: all nodes have applied it. Needs
//! `etcd` and `nats-server`. What a batch takes by its size: `overbank lab run sb-log`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use overbank::hash::mix;
use overbank_cluster::etcd::State;
use overbank_cluster::message::{Answer, Counts, Request};
use overbank_cluster::node::Change;
use overbank_cluster::table::Dense;
use overbank_cluster::{Key, Micros, Node, NodeId, SessionId, Settings};
use overbank_stores::{Driver, Host, Options, join};

const NODES: u64 = 4;
/// Moves of a process that wait for their answer.
const WAITING_MAX: usize = 1 << 13;
const READY_MAX: Duration = Duration::from_secs(60);

type Done<T> = Result<T, Box<dyn Error>>;

/// A program that ends with its owner.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[String]) -> Done<Program> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Program(command.spawn().map_err(|error| format!("{program}: {error}"))?))
}

fn free_port() -> Done<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn key(nth: u64) -> Key {
    Key { hash: mix(nth), full: nth.into() }
}

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().map_while(|word| word.parse().ok()).collect();
    match (numbers.as_slice(), arguments.get(5), arguments.get(6)) {
        ([node, sessions, seconds, replicas, 0], Some(etcd), Some(nats)) => {
            run_node(*node as u8, *sessions, *seconds, *replicas as usize, etcd, nats)
        }
        ([sessions, seconds, servers @ (1 | 3)], None, None) => {
            measure(*sessions, *seconds, *servers)
        }
        ([], None, None) => measure(10_000, 2, 1),
        _ => Err("arguments: SESSIONS SECONDS SERVERS, such as 100000 10 1".into()),
    }
}

fn measure(sessions: u64, seconds: u64, servers: u64) -> Done<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path().display();
    let (client, peer) = (free_port()?, free_port()?);
    let (etcd, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let _etcd = start(
        "etcd",
        &[
            "--name=one".to_owned(),
            format!("--data-dir={folder}/etcd"),
            format!("--listen-client-urls={etcd}"),
            format!("--advertise-client-urls={etcd}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=one={peer}"),
        ],
    )?;
    let ports = (0..2 * servers).map(|_| free_port()).collect::<Done<Vec<u16>>>()?;
    let (clients, routes) = ports.split_at(servers as usize);
    let all: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let mut nats = Vec::new();
    for (nth, (port, route)) in clients.iter().zip(&all).enumerate() {
        let mut arguments = vec![
            "--jetstream".to_owned(),
            "--addr=127.0.0.1".to_owned(),
            format!("--name=n{nth}"),
            format!("--port={port}"),
            format!("--store_dir={folder}/nats{nth}"),
        ];
        if servers > 1 {
            let cluster = ["--cluster_name=measured".to_owned(), format!("--cluster={route}")];
            arguments.extend(cluster);
            arguments.push(format!("--routes={}", all.join(",")));
        }
        nats.push(start("nats-server", &arguments)?);
    }
    let urls: Vec<String> = clients.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    std::thread::sleep(Duration::from_secs(if servers > 1 { 8 } else { 2 }));

    let this = std::env::current_exe()?;
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let numbers = [node, sessions, seconds, servers, 0].map(|number| number.to_string());
        let mut command = Command::new(&this);
        command.args(numbers).args([&etcd, &urls.join(",")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("a pipe")?;
        nodes.push((Program(child), BufReader::new(output).lines()));
    }
    for (_, lines) in &mut nodes {
        lines.next().ok_or("a node ended before it was ready")??;
    }
    for (node, _) in &mut nodes {
        writeln!(node.0.stdin.as_mut().ok_or("a pipe")?, "go")?;
    }
    let (mut moved, mut refused) = (0, 0);
    println!("{NODES} processes, {sessions} sessions, {servers} NATS servers, {seconds} s");
    for (_, lines) in &mut nodes {
        let line = lines.next().ok_or("a node ended before its result")??;
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [own, not, p50, p99] = numbers[..] else { return Err(line.into()) };
        println!("  {own} moves, answered after {p50} µs (p50), {p99} µs (p99); {not} refused");
        (moved, refused) = (moved + own, refused + not);
    }
    println!("{} moves a second in all; {refused} refused", moved / seconds);
    drop(nodes);
    Ok(())
}

/// What a node's user notes.
struct Notes {
    begun: Instant,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    is_ready: bool,
    answers: Vec<(u64, bool, Instant)>,
}

impl Host for Notes {
    fn now(&mut self) -> Micros {
        self.begun.elapsed().as_micros() as Micros
    }

    fn change(&mut self, _: &Change) {}

    fn look(&mut self, node: &Node<Dense>) -> bool {
        let live = node.view().in_state(State::Live).count() as u64;
        if let Ok(mut seen) = self.seen.lock() {
            seen.is_ready = live == NODES;
        }
        false
    }

    fn settle(&mut self) {}

    fn counts(&mut self, _: SessionId) -> Counts {
        Counts::default()
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.answers.push((number, answer.is_ok(), Instant::now()));
        }
    }

    fn ended(&mut self) {}
}

fn run_node(
    node: u8,
    sessions: u64,
    seconds: u64,
    replicas: usize,
    etcd: &str,
    nats: &str,
) -> Done<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let list = |urls: &str| urls.split(',').map(str::to_owned).collect::<Vec<_>>();
    let options = Options {
        cluster: "measured".to_owned(),
        node: NodeId(node),
        etcd: list(etcd),
        etcd_access: Default::default(),
        nats: list(nats),
        nats_access: Default::default(),
        replicas,
        settings: Settings {
            node_bits: 2,
            // Four nodes and their services share this machine's cores.
            lease_us: 30_000_000,
            ..Settings::default()
        },
        equal: Vec::new(),
        info: Arc::from([]),
        seed: 1,
    };
    let joined = runtime.block_on(join(options))?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let notes = Notes { begun: Instant::now(), seen: seen.clone() };
    let (driver, handle) = Driver::new(joined, runtime, notes);
    std::thread::spawn(move || driver.run());
    let locked = || seen.lock().map_err(|_| "the driver panicked");
    let end = Instant::now() + READY_MAX;
    while !locked()?.is_ready {
        if Instant::now() > end {
            return Err("the nodes have not found each other".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let own: Vec<u64> = (0..sessions).filter(|nth| nth % NODES == u64::from(node)).collect();
    let (mut next, mut waiting) = (0, 0);
    while next < own.len() || waiting > 0 {
        while waiting < WAITING_MAX && next < own.len() {
            let keys = Arc::new([key(own[next])]);
            let request = Request::Establish { keys, context: Arc::new([]), to: None };
            if !handle.request(next as u64, request) {
                break;
            }
            (next, waiting) = (next + 1, waiting + 1);
        }
        std::thread::sleep(Duration::from_millis(1));
        waiting -= locked()?.answers.drain(..).count();
    }
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;

    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut sent, mut waiting) = (Vec::<Instant>::new(), 0);
    let (mut times, mut refused) = (Vec::new(), 0);
    while Instant::now() < end {
        while waiting < WAITING_MAX.min(own.len() / 2) {
            let session = SessionId(key(own[sent.len() % own.len()]).hash);
            let request = Request::Move { session, to: None };
            if !handle.request((1 << 32) + sent.len() as u64, request) {
                break;
            }
            sent.push(Instant::now());
            waiting += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
        for (number, is_done, at) in locked()?.answers.drain(..) {
            waiting -= 1;
            match is_done {
                true => times.push(at - sent[(number - (1 << 32)) as usize]),
                false => refused += 1,
            }
        }
    }
    let (p50, p99) = quantiles(&mut times);
    println!("{} {refused} {p50} {p99}", times.len());
    // The others are measured to their end.
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// Returns the median and the 99th percentile in microseconds.
fn quantiles(times: &mut [Duration]) -> (u128, u128) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0, Duration::as_micros);
    (at(50), at(99))
}
