//! memcached servers, proxies before them, and connections that speak bytes.

use overbank_declare::settings::{Source, Table as _};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::settings::ProxySettings;
use overbank_kv::proxy::totals::ProxyTotals;
use overbank_testing::needs;
use overbank_wire::memcached::Replies;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that anything may take.
pub const LONG: Duration = Duration::from_secs(20);

/// A memcached of a test.
pub struct Memcached {
    pub port: u16,
    child: Child,
}

/// Returns whether a program is installed.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

impl Memcached {
    /// Starts one; `None` if it is not installed and that is known.
    pub fn start() -> Option<Memcached> {
        if !needs("memcached", has("memcached")) {
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        Some(Memcached { port, child: Memcached::run(port) })
    }

    fn run(port: u16) -> Child {
        // Root has to say as whom.
        let child = Command::new("memcached")
            .args(["-p", &port.to_string(), "-l", "127.0.0.1", "-U", "0", "-u", "daemon"])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LONG, "memcached does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// Kills it and starts an empty one at the same port.
    pub fn restart(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = Memcached::run(self.port);
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

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server and a proxy before it.
pub struct World {
    pub server: Memcached,
    pub running: Running,
}

impl World {
    pub fn start(flags: &[(&str, &str)]) -> Option<World> {
        let server = Memcached::start()?;
        let mut source = Source::new(&[ProxySettings::SECTION]);
        source.flag("listen", ["127.0.0.1:0"]);
        source.flag("upstream", [format!("memcached://127.0.0.1:{}", server.port)]);
        flags.iter().for_each(|(name, value)| source.flag(name, [value]));
        let mut check = source.check();
        let settings = ProxySettings::read(&mut check).expect("settings");
        let tls = settings.check(&mut check);
        let (settings, tls) = check.finish(Some((settings, tls))).expect("settings");
        let running = Running::start(&settings, tls).expect("it starts");
        let world = World { server, running };
        until("it follows the server", || world.is_open());
        Some(world)
    }

    pub fn is_open(&self) -> bool {
        self.running.handle().totals().1.open == 1
    }

    pub fn client(&self) -> Connection {
        Connection::open(self.running.handle().address().port())
    }

    pub fn totals(&self) -> ProxyTotals {
        self.running.handle().totals().0
    }

    /// Reads until the proxy answers; returns that reply.
    #[track_caller]
    pub fn hot(&self, client: &mut Connection, line: &str) -> String {
        let before = self.settled();
        let mut last = String::new();
        until(line, || {
            last = client.ask(line);
            self.totals().hits > before
        });
        last
    }

    /// Returns the hits once they are all published: counters follow the replies that they count.
    pub fn settled(&self) -> u64 {
        let mut last = self.totals().hits;
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.totals().hits;
            if now == last {
                return now;
            }
            last = now;
        }
    }

    /// Stops it; each command has been counted once.
    #[track_caller]
    pub fn stop(self) -> ProxyTotals {
        assert!(!self.running.is_broken());
        let (totals, core) = self.running.stop();
        assert!(totals.closes(), "{totals:?}");
        println!("{totals:?} {core:?}");
        totals
    }
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

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("it is read");
    }

    /// Reads some bytes; none at the end.
    pub fn read(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let count = self.stream.read(&mut bytes).expect("bytes in time");
        bytes.truncate(count);
        bytes
    }

    /// Reads one reply.
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
            let bytes = self.read();
            assert!(!bytes.is_empty(), "the connection ends after {:?}", reply.escape_ascii());
            self.input.extend(bytes);
        }
    }

    /// Asks and returns the reply.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        String::from_utf8_lossy(&self.reply()).into_owned()
    }

    /// Stores a value.
    pub fn set(&mut self, key: &str, value: &str) {
        let stored = self.ask(&format!("set {key} 0 0 {}\r\n{value}", value.len()));
        assert_eq!(stored, "STORED\r\n");
    }
}

/// Returns a binary request.
pub fn binary(opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 24];
    (bytes[0], bytes[1], bytes[4]) = (0x80, opcode, extras.len() as u8);
    bytes[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    let body = (extras.len() + key.len() + value.len()) as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes[12..16].copy_from_slice(&opaque.to_be_bytes());
    [&bytes[..], extras, key, value].concat()
}
