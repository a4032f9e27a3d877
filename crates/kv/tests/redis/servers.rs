//! Redis servers, proxies before them, and connections that speak bytes.

use crate::common::{self, Program, followed};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::settings::ProxySettings;
use overbank_kv::proxy::tls::Tls;
use overbank_wire::resp::{self, Replies};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A Redis of a test, in an empty directory.
pub struct Redis {
    program: Program,
    directory: TempDir,
}

impl Redis {
    /// Starts one; `None` if it is not installed and that is known.
    pub fn start(more: &[&str]) -> Option<Redis> {
        let directory = tempfile::tempdir().expect("a directory");
        let program = Program::start("redis-server", |command, port| {
            command
                .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"])
                .args(["--enable-debug-command", "yes"])
                .args(more)
                .current_dir(directory.path());
        })?;
        Some(Redis { program, directory })
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }

    /// Kills it and starts an empty one at the same port, also after DEBUG RELOAD.
    pub fn restart(&mut self) {
        // There may be none.
        let _ = std::fs::remove_file(self.directory.path().join("dump.rdb"));
        self.program.restart();
    }
}

impl Deref for Redis {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Redis {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

/// Starts a proxy before a server, and waits until it follows that.
pub fn proxy(server: u16, flags: &[(&str, &str)]) -> Running {
    followed(start(server, flags))
}

/// Returns settings, with what their files have.
pub fn settings(server: u16, flags: &[(&str, &str)]) -> (ProxySettings, Tls) {
    common::settings(&format!("redis://127.0.0.1:{server}"), flags)
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
        let stream = common::connect(port);
        Connection { stream, input: Vec::new(), replies: Replies::new() }
    }

    /// Sends a command, given as words.
    pub fn send(&mut self, words: &[&[u8]]) {
        self.try_send(words).expect("it is read");
    }

    /// Reads one reply or push.
    pub fn reply(&mut self) -> Vec<u8> {
        self.try_reply().expect("a reply in time")
    }

    /// As [`Connection::send`]; fails if the connection has ended.
    pub fn try_send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        resp::command(words, &mut bytes);
        self.stream.write_all(&bytes)
    }

    /// As [`Connection::reply`]; fails if the connection ends before.
    pub fn try_reply(&mut self) -> io::Result<Vec<u8>> {
        let mut reply = Vec::new();
        loop {
            while !self.input.is_empty() {
                let step = self.replies.scan(&self.input).expect("a reply");
                reply.extend(self.input.drain(..step.len));
                if step.end {
                    return Ok(reply);
                }
            }
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes)?;
            if count == 0 {
                let after = reply.escape_ascii().to_string();
                return Err(io::Error::other(format!("the connection ends after {after:?}")));
            }
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
