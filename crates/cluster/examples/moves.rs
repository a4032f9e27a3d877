//! Measures the cluster engine with all nodes in one process: what moves, a death, a drain and a
//! join cost, and which packets they lose.
//!
//!     cargo run --release -p overbank-cluster --example moves -- moves 32 1000000 100000 60
//!     cargo run --release -p overbank-cluster --example moves -- death 4 1000000
//!     cargo run --release -p overbank-cluster --example moves -- drain 4 1000000
//!     cargo run --release -p overbank-cluster --example moves -- join 4 1000000
//!     cargo run --release -p overbank-cluster --example moves -- image 16000000
//!
//! `moves` takes nodes, sessions, moves a second, seconds, and keys of a session (1). Each second
//! 20,000 packets come in at random nodes, half of them of sessions that are being moved. A packet
//! is *misrouted* if a node handles it that does not have its session in that slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use overbank::hash::mix;
use overbank_cluster::etcd::State;
use overbank_cluster::message::Request;
use overbank_cluster::table::{Broken, Dense, Gpt, NoRoom};
use overbank_cluster::{Epoch, Heard, Key, Memory, Micros, NodeId, SessionId, Settings};

/// Nanoseconds in which tables were built and changed, of all threads.
static SOLVING: AtomicU64 = AtomicU64::new(0);

/// The product's table, whose owners' work is timed.
struct Timed(Dense);

fn timed<R>(work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    SOLVING.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    result
}

impl Gpt for Timed {
    type Writer = <Dense as Gpt>::Writer;
    type Delta = <Dense as Gpt>::Delta;
    type Image = <Dense as Gpt>::Image;

    fn empty() -> Self {
        Self(Dense::empty())
    }
    fn load(&mut self, image: &Self::Image) -> Result<(), Broken> {
        self.0.load(image)
    }
    fn apply(&mut self, deltas: &[Self::Delta]) -> Result<(), Broken> {
        self.0.apply(deltas)
    }
    fn lookup(&self, hash: u64) -> NodeId {
        self.0.lookup(hash)
    }
    fn digest(&self, block: u32) -> Option<u64> {
        self.0.digest(block)
    }
    fn written(writer: &Self::Writer, block: u32) -> Option<(u64, u32)> {
        Dense::written(writer, block)
    }
    fn republish(writer: &mut Self::Writer, block: u32) -> Option<Self::Delta> {
        Dense::republish(writer, block)
    }
    fn bytes(delta: &Self::Delta) -> usize {
        Dense::bytes(delta)
    }
    fn build(
        settings: &Settings,
        epoch: Epoch,
        keys: impl Iterator<Item = (u64, NodeId)>,
    ) -> Result<Self::Writer, NoRoom> {
        timed(|| Dense::build(settings, epoch, keys))
    }
    fn image(writer: &Self::Writer) -> Result<Self::Image, NoRoom> {
        Dense::image(writer)
    }
    fn insert(
        writer: &mut Self::Writer,
        hash: u64,
        to: NodeId,
    ) -> Result<Option<Self::Delta>, NoRoom> {
        timed(|| Dense::insert(writer, hash, to))
    }
    fn remove(writer: &mut Self::Writer, hash: u64) {
        Dense::remove(writer, hash);
    }
}

/// Seconds of CPU that this process has used; from Linux, to 10 ms.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct Cluster {
    memory: Memory<Timed>,
    settings: Settings,
    nodes: u8,
    sessions: u64,
    keys: u64,
    now: Micros,
    heard: Vec<Heard>,
    number: u64,
    packets: u64,
    lost: u64,
    misrouted: u64,
}

impl Cluster {
    fn new(nodes: u64, sessions: u64, keys: u64) -> Self {
        let (nodes, keys) = (nodes.clamp(2, 32) as u8, keys.clamp(1, 16));
        let settings = Settings {
            node_bits: 5,
            partition_keys: ((sessions * keys) as usize / 64 * 5 / 4).max(1 << 14),
            ..Settings::default()
        };
        let mut memory = Memory::new(settings, nodes);
        memory.threads(2);
        let (now, heard, number) = (0, Vec::new(), sessions);
        let (packets, lost, misrouted) = (0, 0, 0);
        let mut cluster = Self {
            memory,
            settings,
            nodes,
            sessions,
            keys,
            now,
            heard,
            number,
            packets,
            lost,
            misrouted,
        };
        let start = Instant::now();
        cluster.beats(20);
        let mut done = 0;
        for nth in 0..sessions {
            let keys: Arc<[Key]> = (0..keys).map(|which| cluster.key(nth, which)).collect();
            let request = Request::Establish { keys, context: Arc::new([]), to: None };
            cluster.memory.request(cluster.node_of(nth), nth, request);
            if nth % 50_000 == 49_999 {
                done += cluster.beats(1);
                eprint!("\r{} of {sessions} sessions", nth + 1);
            }
        }
        done += cluster.beats(20);
        eprintln!();
        assert_eq!(done, sessions, "each session is answered");
        println!("{nodes} nodes, {sessions} sessions of {keys} keys after {:.1?}", start.elapsed());
        cluster
    }

    fn key(&self, nth: u64, which: u64) -> Key {
        let full = nth | which << 40;
        Key { hash: mix(full), full: full.into() }
    }

    fn node_of(&self, nth: u64) -> NodeId {
        NodeId((nth % u64::from(self.nodes)) as u8)
    }

    /// Beats; returns how many requests were done.
    fn beats(&mut self, count: u64) -> u64 {
        let mut done = 0;
        for _ in 0..count {
            self.now += self.settings.beat_us;
            self.memory.advance(self.now, &mut self.heard);
            let ok = |heard: &Heard| matches!(heard, Heard::Answer(_, Ok(_)));
            done += self.heard.drain(..).filter(ok).count() as u64;
        }
        done
    }

    /// Requests moves of the next sessions.
    fn moves(&mut self, count: u64) {
        for _ in 0..count {
            let nth = self.number % self.sessions;
            let session = SessionId(self.key(nth, 0).hash);
            let request = Request::Move { session, to: None };
            self.memory.request(self.node_of(nth), self.number, request);
            self.number += 1;
        }
    }

    /// Sends a packet in; returns whether the right node handled it.
    fn packet(&mut self, ingress: NodeId, nth: u64, which: u64) -> bool {
        let session = SessionId(self.key(nth, 0).hash);
        let handled = self.memory.packet(ingress, self.key(nth, which));
        let Ok((node, slot)) = handled else { return false };
        let local = self.memory.node(node).and_then(|node| node.sessions().get(&session));
        self.misrouted += u64::from(local.is_none_or(|local| local.slot != slot));
        true
    }

    /// Sends packets in at random nodes that run and take packets, half of them of sessions that
    /// were asked to move last.
    fn traffic(&mut self, count: u64) {
        for _ in 0..count {
            self.packets += 1;
            let any = mix(self.packets);
            let ingress = NodeId((any >> 32) as u8 % self.nodes);
            let state = self.memory.node(ingress).and_then(|node| node.state());
            if !matches!(state, Some(State::Live | State::Draining)) {
                continue;
            }
            let back =
                if self.packets.is_multiple_of(2) { any % 30_000 } else { any % self.sessions };
            let nth = self.number.saturating_sub(back + 1) % self.sessions;
            self.lost += u64::from(!self.packet(ingress, nth, any >> 40 & (self.keys - 1)));
        }
    }

    fn account(&self) -> String {
        format!("{} packets, {} lost, {} misrouted", self.packets, self.lost, self.misrouted)
    }
}

fn moves(nodes: u64, sessions: u64, rate: u64, seconds: u64, keys: u64) {
    let mut cluster = Cluster::new(nodes, sessions, keys);
    let interval = Duration::from_micros(cluster.settings.beat_us);
    let rounds = seconds * 1_000_000 / cluster.settings.beat_us;
    let (start, cpu_start) = (Instant::now(), cpu());
    let (mut moved, mut late, mut busy) = (0, Duration::ZERO, Duration::ZERO);
    SOLVING.store(0, Relaxed);
    for round in 1..=rounds {
        let began = Instant::now();
        cluster.moves(rate * cluster.settings.beat_us / 1_000_000);
        moved += cluster.beats(1);
        busy += began.elapsed();
        cluster.traffic(1000);
        let due = interval * round as u32;
        match due.checked_sub(start.elapsed()) {
            Some(rest) => std::thread::sleep(rest),
            None => late = late.max(start.elapsed() - due),
        }
        if round % 20 == 0 {
            let lag = start.elapsed().saturating_sub(due);
            eprint!("\r{} s, {moved} moves, {lag:.1?} behind  ", round / 20);
        }
    }
    eprintln!();
    let took = start.elapsed().as_secs_f64();
    let used = cpu() - cpu_start;
    println!(
        "{moved} moves in {took:.1} s: {:.0} a second, {:.1} us of CPU each ({:.1} us of it \
         solving), {:.0} % of the time at work; {}; at most {late:.1?} behind real time",
        moved as f64 / took,
        used / moved as f64 * 1e6,
        SOLVING.load(Relaxed) as f64 / moved as f64 / 1e3,
        busy.as_secs_f64() / took * 100.0,
        cluster.account(),
    );
}

fn death(nodes: u64, sessions: u64) {
    let mut cluster = Cluster::new(nodes, sessions, 1);
    let dead = NodeId(1);
    let of_dead = |cluster: &Cluster, nth| {
        let session = SessionId(cluster.key(nth, 0).hash);
        cluster.memory.node(dead).is_some_and(|node| node.sessions().contains_key(&session))
    };
    let mut away: Vec<u64> = (0..sessions).filter(|&nth| of_dead(&cluster, nth)).collect();
    let victims = away.len();
    cluster.memory.kill(dead);
    let lives = |cluster: &Cluster| {
        cluster.memory.node(NodeId(0)).is_some_and(|node| node.view().alive.contains_key(&dead))
    };
    SOLVING.store(0, Relaxed);
    let (mut time, mut used) = (Duration::ZERO, 0.0);
    while !away.is_empty() && time < Duration::from_secs(60) {
        let (began, cpu_began) = (Instant::now(), cpu());
        cluster.beats(1);
        if !lives(&cluster) {
            // The lease ended at the beginning of this beat at the latest.
            let interval = Duration::from_micros(cluster.settings.beat_us);
            (time, used) = (time + began.elapsed().max(interval), used + cpu() - cpu_began);
        }
        // In at each node that lives.
        let ingress = (0..cluster.nodes).map(NodeId).filter(|&node| node != dead);
        let ingress: Vec<NodeId> = ingress.collect();
        away.retain(|&nth| !ingress.iter().all(|&at| cluster.packet(at, nth, 0)));
    }
    println!(
        "node 1 dies with {victims} sessions: all reached from all nodes {time:.2?} after its \
         lease; {used:.2} s of CPU, {:.2} s of it solving; {} left, {} misrouted",
        SOLVING.load(Relaxed) as f64 / 1e9,
        away.len(),
        cluster.misrouted
    );
}

fn drain(nodes: u64, sessions: u64) {
    let mut cluster = Cluster::new(nodes, sessions, 1);
    let leaves = NodeId(1);
    let had = cluster.memory.node(leaves).map_or(0, |node| node.sessions().len());
    cluster.memory.drain(leaves);
    let (start, cpu_start, began) = (Instant::now(), cpu(), cluster.now);
    while cluster.memory.node(leaves).is_some() && start.elapsed() < Duration::from_secs(60) {
        cluster.beats(1);
        cluster.traffic(5000);
    }
    println!(
        "node 1 drains {had} sessions at {} a second: it left after {:.2} s ({:.1?} of work), \
         {:.2} s of CPU; {}",
        cluster.settings.drain_rate,
        (cluster.now - began) as f64 / 1e6,
        start.elapsed(),
        cpu() - cpu_start,
        cluster.account()
    );
}

fn join(nodes: u64, sessions: u64) {
    let mut cluster = Cluster::new(nodes, sessions, 1);
    let joins = NodeId(1);
    cluster.memory.kill(joins);
    let lives = |cluster: &Cluster| {
        let state = cluster.memory.node(joins).and_then(|node| node.state());
        state == Some(State::Live)
    };
    cluster.beats(100);
    cluster.memory.start(joins);
    let (cpu_start, mut work, began) = (cpu(), Duration::ZERO, cluster.now);
    while !lives(&cluster) && cluster.now < began + 60_000_000 {
        let start = Instant::now();
        cluster.beats(1);
        work += start.elapsed();
        cluster.traffic(1000);
    }
    println!(
        "node 1 joins: it is live after {:.2} s ({work:.1?} of work), {:.2} s of CPU; {}",
        (cluster.now - began) as f64 / 1e6,
        cpu() - cpu_start,
        cluster.account()
    );
}

/// What a node that joins does with the tables of all partitions.
fn image(keys: u64) {
    let partitions = 64;
    let settings = Settings { node_bits: 5, partition_keys: 1 << 14, ..Settings::default() };
    let each = (keys / partitions).min(16 << 14);
    let images = (0..partitions).map(|partition| {
        eprint!("\rtable {}", partition + 1);
        let keys = (0..each).map(|nth| {
            let hash = mix(nth | partition << 40) >> 6 | partition << 58;
            (hash, NodeId((nth % 32) as u8))
        });
        let writer = Dense::build(&settings, 1, keys).expect("memory for a table");
        Dense::image(&writer).expect("memory for its image")
    });
    let images: Vec<_> = images.collect();
    eprintln!();
    let bytes: usize = images.iter().map(|image| image.table.reader().bytes()).sum();
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let mut tables: Vec<Dense> = images.iter().map(|_| Dense::empty()).collect();
        let start = Instant::now();
        for (table, image) in tables.iter_mut().zip(&images) {
            table.load(image).expect("memory for a copy");
        }
        best = best.min(start.elapsed());
    }
    println!(
        "images of {} keys, {:.1} MB: loaded in {best:.2?}, {:.2} GB/s",
        each * partitions,
        bytes as f64 / 1e6,
        bytes as f64 / best.as_secs_f64() / 1e9
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    let numbers: Vec<u64> = arguments.filter_map(|number| number.parse().ok()).collect();
    match (what.as_deref(), numbers.as_slice()) {
        (None, []) => moves(4, 10_000, 10_000, 2, 1),
        (Some("moves"), &[nodes, sessions, rate, seconds]) => {
            moves(nodes, sessions, rate, seconds, 1);
        }
        (Some("moves"), &[nodes, sessions, rate, seconds, keys]) => {
            moves(nodes, sessions, rate, seconds, keys);
        }
        (Some("death"), &[nodes, sessions]) => death(nodes, sessions),
        (Some("drain"), &[nodes, sessions]) => drain(nodes, sessions),
        (Some("join"), &[nodes, sessions]) => join(nodes, sessions),
        (Some("image"), &[keys]) => image(keys),
        _ => {
            eprintln!("moves NODES SESSIONS RATE SECONDS [KEYS]");
            eprintln!("death, drain or join NODES SESSIONS; image KEYS");
            std::process::exit(2);
        }
    }
}
