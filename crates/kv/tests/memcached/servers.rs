//! memcached servers, proxies before them, and connections that speak bytes.

use crate::common::{self, Program, followed};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::totals::ProxyTotals;
use overbank_wire::memcached::Replies;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};

/// A memcached of a test.
pub struct Memcached(Program);

impl Memcached {
    /// Starts one; `None` if it is not installed and that is known.
    pub fn start() -> Option<Memcached> {
        let program = Program::start("memcached", |command, port| {
            // Root has to say as whom.
            command.args(["-p", &port.to_string(), "-l", "127.0.0.1", "-U", "0", "-u", "daemon"]);
        })?;
        Some(Memcached(program))
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }
}

impl Deref for Memcached {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl DerefMut for Memcached {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.0
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
        let upstream = format!("memcached://127.0.0.1:{}", server.port);
        let (settings, tls) = common::settings(&upstream, flags);
        let running = followed(Running::start(&settings, tls).expect("it starts"));
        Some(World { server, running })
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
        common::hit(&self.running, || client.ask(line))
    }

    /// Returns the hits once they are all published.
    pub fn settled(&self) -> u64 {
        common::settled(&self.running)
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
