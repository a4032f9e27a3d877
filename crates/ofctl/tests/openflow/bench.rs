//! A switch over ports in memory, with its control plane.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use overbank_ofctl::sessions::{self, ControlCounters, ControlError, ControlOptions};
use overbank_ofctl::target::Target;
use overbank_ofctl::{RuleControl, Setup, Switch};
use overbank_ports::looped::{MemoryHandle, MemoryOptions, MemoryPort};
use overbank_runtime::ConfiguredPort;
use overbank_runtime::Handle;
use overbank_switch::parse::parse_rules;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Nothing here takes as long; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `done`.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// UDP over IPv4.
pub fn frame(src: u8, dst: u8, payload: &[u8]) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, src], [2, 0, 0, 0, 0, dst])
        .ipv4([10, 0, 0, src], [10, 0, 0, dst], 64)
        .udp(1000, 2000);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).expect("into memory");
    bytes
}

/// A running switch and its control plane, which listens on a separate port.
pub struct Bench {
    pub ports: Vec<MemoryHandle>,
    pub counters: Arc<ControlCounters>,
    pub address: SocketAddr,
    pub runtime: Runtime,
    switch: Option<Switch>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<Result<(), ControlError>>>,
}

impl Bench {
    /// A switch without rules.
    pub fn new(ports: usize) -> Bench {
        Bench::with("", &vec![quiet(); ports], patient(), Vec::new())
    }

    /// With rules, these ports, options, and targets besides the one that it listens on.
    pub fn with(
        rules: &str,
        ports: &[MemoryOptions],
        options: ControlOptions,
        targets: Vec<Target>,
    ) -> Bench {
        let setup = Setup {
            rules: parse_rules(rules).expect("rules"),
            megaflows: 1024,
            ..Setup::default()
        };
        Bench::of(setup, ports, options, targets)
    }

    /// With all of the setup.
    pub fn of(
        setup: Setup,
        ports: &[MemoryOptions],
        options: ControlOptions,
        targets: Vec<Target>,
    ) -> Bench {
        let each = (1..).zip(ports).map(|(number, options)| {
            let name = format!("memory{number}");
            let port = MemoryPort::open(options, &name, setup.run.workers).expect("memory");
            let handle = port.handle();
            (ConfiguredPort { number, spec: None, port: Some(Box::new(port)) }, handle)
        });
        let (opened, ports): (Vec<ConfiguredPort>, Vec<MemoryHandle>) = each.unzip();
        let mut bench = Bench::over(setup, opened, options, targets);
        bench.ports = ports;
        bench
    }

    /// Over other ports than those in memory.
    pub fn over(
        setup: Setup,
        opened: Vec<ConfiguredPort>,
        options: ControlOptions,
        targets: Vec<Target>,
    ) -> Bench {
        let switch = overbank_ofctl::start(setup, opened).expect("started");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let (stop, stopped) = watch::channel(false);
        let counters = options.counters.clone();
        let any = "127.0.0.1:0".parse().expect("an address");
        let all = [vec![Target::Listen(any)], targets].concat();
        let task = runtime.spawn(sessions::serve(all, switch.handle().clone(), options, stopped));
        wait("the control plane listens", || !counters.listening().is_empty());
        let address = counters.listening()[0];
        let (switch, task) = (Some(switch), Some(task));
        Bench { ports: Vec::new(), counters, address, runtime, switch, stop, task }
    }

    /// The control side.
    pub fn handle(&self) -> Handle<RuleControl> {
        self.switch.as_ref().expect("it runs").handle().clone()
    }

    /// The switch itself.
    pub fn switch(&self) -> &Switch {
        self.switch.as_ref().expect("it runs")
    }

    /// The rules as text, sorted.
    pub fn rules(&self) -> Vec<String> {
        let handle = self.handle();
        let mut rules: Vec<String> =
            handle.lock().tables().entries().map(|entry| entry.rule.to_string()).collect();
        rules.sort();
        rules
    }

    /// Waits until this number of frames in all left by a port, and takes them.
    pub fn sent(&self, port: usize, frames: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        wait(&format!("{frames} frames at port {port}"), || {
            all.extend(self.ports[port - 1].take_sent());
            all.len() >= frames
        });
        all
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(task) = self.task.take() {
            let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await });
            if !std::thread::panicking() {
                ended.expect("the control plane ends").expect("no panic").expect("no error");
                assert_eq!(self.counters.snapshot().connections, 0, "all are closed");
                assert_eq!(self.counters.snapshot().bytes_queued, 0);
                assert_eq!(self.counters.snapshot().buffers_in_use, 0);
            }
        }
        drop(self.switch.take());
    }
}

/// Options under which no session ends because a test, or the machine, takes its time.
pub fn patient() -> ControlOptions {
    ControlOptions {
        probe: Duration::ZERO,
        stall: Duration::from_secs(3600),
        handshake: Duration::from_secs(3600),
        ..ControlOptions::default()
    }
}

/// An address of the loopback interface that no other test uses, where a port that was let go stays
/// free: other tests, and all other clients, use 127.0.0.1.
pub fn own_address() -> Ipv4Addr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | high >> 1, low, NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A port to put frames in by hand.
pub fn quiet() -> MemoryOptions {
    MemoryOptions { keep: 1 << 12, ..MemoryOptions::default() }
}

/// A port that brings frames without end.
pub fn busy() -> MemoryOptions {
    MemoryOptions { flows: 64, ..MemoryOptions::default() }
}
