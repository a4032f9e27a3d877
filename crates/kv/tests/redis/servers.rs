//! Redis servers, proxies before them, and connections that speak bytes.

use overbank_declare::settings::{Source, Table as _};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::settings::ProxySettings;
use overbank_kv::proxy::tls::Tls;
use overbank_testing::needs;
use overbank_wire::resp::{self, Replies};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time that anything may take.
pub const LONG: Duration = Duration::from_secs(20);

/// A Redis of a test.
pub struct Redis {
    pub port: u16,
    child: Child,
    directory: TempDir,
    more: Vec<String>,
}

/// Returns a port that was free just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Returns whether a program is installed.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

impl Redis {
    /// Starts one; `None` if it is not installed and that is known.
    pub fn start(more: &[&str]) -> Option<Redis> {
        if !needs("redis-server", has("redis-server")) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
        let port = free_port();
        let child = Redis::run(port, directory.path(), &more);
        Some(Redis { port, child, directory, more })
    }

    fn run(port: u16, directory: &std::path::Path, more: &[String]) -> Child {
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"])
            .args(["--enable-debug-command", "yes"])
            .args(more)
            .current_dir(directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LONG, "Redis does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// Kills it and starts an empty one at the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.child = Redis::run(self.port, self.directory.path(), &self.more);
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

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a proxy before a server, and waits until it follows that.
pub fn proxy(server: u16, flags: &[(&str, &str)]) -> Running {
    let running = start(server, flags);
    until("it follows the server", || running.handle().totals().1.open == 1);
    running
}

/// Returns settings, with what their files have.
pub fn settings(server: u16, flags: &[(&str, &str)]) -> (ProxySettings, Tls) {
    let mut source = Source::new(&[ProxySettings::SECTION]);
    source.flag("listen", ["127.0.0.1:0"]);
    if !flags.iter().any(|(name, _)| *name == "upstream") {
        source.flag("upstream", [format!("redis://127.0.0.1:{server}")]);
    }
    flags.iter().for_each(|(name, value)| source.flag(name, [value]));
    let mut check = source.check();
    let settings = ProxySettings::read(&mut check).expect("settings");
    let tls = settings.check(&mut check);
    check.finish(Some((settings, tls))).expect("settings")
}

pub fn start(server: u16, flags: &[(&str, &str)]) -> Running {
    let (settings, tls) = settings(server, flags);
    Running::start(&settings, tls).expect("it starts")
}

/// Starts a proxy before a server, with these settings; returns the port where clients without TLS
/// reach it.
pub type Way = fn(&Redis, &[(&str, &str)]) -> (Running, u16);

/// The [`Way`] without TLS.
pub fn plainly(redis: &Redis, flags: &[(&str, &str)]) -> (Running, u16) {
    let running = proxy(redis.port, flags);
    let port = running.handle().address().port();
    (running, port)
}

/// Waits for something.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a change is seen that was made before `start`. What was asked for after `bound` has
/// to have it, however busy the machine is.
#[track_caller]
pub fn seen_within(start: Instant, bound: Duration, mut is: impl FnMut() -> bool) {
    loop {
        let asked = start.elapsed();
        if is() {
            return;
        }
        assert!(asked <= bound, "not seen {asked:?} after the change");
    }
}

/// A connection of a client.
pub struct Connection {
    pub stream: TcpStream,
    input: Vec<u8>,
    replies: Replies,
}

impl Connection {
    pub fn open(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(LONG)).expect("an option");
        Connection { stream, input: Vec::new(), replies: Replies::new() }
    }

    /// Sends a command, given as words.
    pub fn send(&mut self, words: &[&[u8]]) {
        let mut bytes = Vec::new();
        resp::command(words, &mut bytes);
        self.stream.write_all(&bytes).expect("it is read");
    }

    /// Reads one reply or push.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut reply = Vec::new();
        loop {
            while !self.input.is_empty() {
                let step = self.replies.scan(&self.input).expect("a reply");
                reply.extend(self.input.drain(..step.len));
                if step.end {
                    return reply;
                }
            }
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes).expect("a reply in time");
            assert!(count > 0, "the connection ends after {:?}", reply.escape_ascii().to_string());
            self.input.extend(&bytes[..count]);
        }
    }

    /// Asks and returns the reply; the words are separated by blanks.
    pub fn ask(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words);
        String::from_utf8_lossy(&self.reply()).into_owned()
    }
}

/// Bytes between a proxy and a server, where those to the tracking connection can be held back.
pub struct Relay {
    pub port: u16,
    stalled: Arc<AtomicBool>,
}

impl Relay {
    pub fn start(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stalled = Arc::new(AtomicBool::new(false));
        let flag = stalled.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let is_tracking = Arc::new(AtomicBool::new(false));
                for (from, to, is_back) in [(&client, &server, false), (&server, &client, true)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (Ok(mut from), Ok(mut to)) = (from, to) else { continue };
                    let (flag, is_tracking) = (flag.clone(), is_tracking.clone());
                    std::thread::spawn(move || {
                        let mut bytes = [0; 16 << 10];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            let some = &bytes[..count];
                            if !is_back && some.windows(8).any(|word| word == b"TRACKING") {
                                is_tracking.store(true, Ordering::SeqCst);
                            }
                            while is_back
                                && is_tracking.load(Ordering::SeqCst)
                                && flag.load(Ordering::SeqCst)
                            {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            if to.write_all(some).is_err() {
                                break;
                            }
                        }
                        // The other side may be closed already.
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Relay { port, stalled }
    }

    pub fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::SeqCst);
    }
}
