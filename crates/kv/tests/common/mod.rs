//! What a test of the proxy needs whatever server is behind it: that program, a proxy, and a
//! register whose reads are checked.

use overbank_declare::settings::{Source, Table as _};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::settings::ProxySettings;
use overbank_kv::proxy::tls::Tls;
use overbank_testing::needs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest time that anything may take.
pub const LONG: Duration = Duration::from_secs(20);

/// Waits for something.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a port that was free just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A server that others have written, at a port of this machine.
pub struct Program {
    pub port: u16,
    command: Command,
    child: Child,
}

impl Program {
    /// Starts one with the arguments that it needs to listen there; `None` if it is not installed
    /// and that is known.
    pub fn start(name: &str, arguments: impl FnOnce(&mut Command, u16)) -> Option<Program> {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        if !needs(name, found.is_ok_and(|status| status.success())) {
            return None;
        }
        let (port, mut command) = (free_port(), Command::new(name));
        arguments(command.stdout(Stdio::null()), port);
        let child = run(&mut command, port);
        Some(Program { port, command, child })
    }

    /// Kills it and starts an empty one at the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.child = run(&mut self.command, self.port);
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command, port: u16) -> Child {
    let child = command.spawn().expect("it starts");
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < LONG, "{command:?} does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Connects to a port of this machine.
pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(LONG)).expect("an option");
    stream
}

/// Returns settings before that server, with what their files have.
pub fn settings(upstream: &str, flags: &[(&str, &str)]) -> (ProxySettings, Tls) {
    let mut source = Source::new(&[ProxySettings::SECTION]);
    source.flag("listen", ["127.0.0.1:0"]);
    if !flags.iter().any(|(name, _)| *name == "upstream") {
        source.flag("upstream", [upstream]);
    }
    flags.iter().for_each(|(name, value)| source.flag(name, [value]));
    let mut check = source.check();
    let settings = ProxySettings::read(&mut check).expect("settings");
    let tls = settings.check(&mut check);
    check.finish(Some((settings, tls))).expect("settings")
}

/// Waits until the proxy follows its server.
pub fn followed(running: Running) -> Running {
    until("it follows the server", || running.handle().totals().1.open == 1);
    running
}

/// Returns the hits once they are all published: counters follow the replies that they count.
pub fn settled(running: &Running) -> u64 {
    let hits = || running.handle().totals().0.hits;
    let mut last = hits();
    loop {
        // Twice the time in which a worker without work publishes.
        std::thread::sleep(Duration::from_millis(5));
        let now = hits();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Asks until the proxy answers; returns that reply.
#[track_caller]
pub fn hit(running: &Running, mut ask: impl FnMut() -> String) -> String {
    let before = settled(running);
    let mut last = String::new();
    until("a hit", || {
        last = ask();
        running.handle().totals().0.hits > before
    });
    last
}

/// A key that one writer writes with growing numbers.
#[derive(Default)]
pub struct Register {
    pub begun: AtomicU64,
    pub done: AtomicU64,
    /// The largest number that a finished read has returned.
    seen: AtomicU64,
}

impl Register {
    /// Reads: no less than what was written or read before, no more than what is being written.
    pub fn read(&self, read: impl FnOnce() -> Option<u64>) {
        let least = self.done.load(Ordering::SeqCst).max(self.seen.load(Ordering::SeqCst));
        let found = read().unwrap_or(0);
        let most = self.begun.load(Ordering::SeqCst);
        assert!(found >= least, "{found} was read after {least} had been");
        assert!(found <= most, "{found} was read before it was written");
        self.seen.fetch_max(found, Ordering::SeqCst);
    }
}
