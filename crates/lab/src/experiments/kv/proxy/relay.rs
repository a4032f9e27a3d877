//! A relay that makes servers slow: a thread that passes requests on at a rate, or after a delay.
//!
//! ```text
//!   client ──▶ queue of the server: first come, first served ──▶ server
//!      ◀─────────────────── at once ───────────────────────────────┘
//! ```
//!
//! A bucket of tokens without burst: a request goes 1/rate after the one before it, or later, of
//! whatever connection. Requests of a proxy's own connection take their turns as all others do.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use overbank_kv::load::Poll;
use overbank_wire::resp::{Limits, Requests};
use overbank_wire::scan::Scan;

/// Bytes that are read at a time.
const READ: usize = 64 << 10;

/// How slow servers are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Requests a second of each server.
    pub(super) rate: f64,
    /// Time that each request is held.
    pub(super) delay: Duration,
}

/// A running relay before some servers; dropping it ends it.
pub(super) struct Relay {
    pub(super) addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
}

impl Relay {
    pub(super) fn start(
        place: &Place<'_>,
        servers: &[SocketAddr],
        limit: Limit,
    ) -> Result<Relay, LabError> {
        let work = Work::new(servers, limit).map_err(LabError::failed)?;
        let addresses = work.lines.iter().map(|line| line.listener.local_addr());
        let addresses = addresses.collect::<io::Result<_>>().map_err(LabError::failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, cores) = (stop.clone(), place.cores.clone());
        let run = move || {
            // Where no core can be set, it runs where this one does.
            let _ = keep_on(&cores);
            work.run(&flag)
        };
        Ok(Relay { addresses, stop, thread: Some(thread::spawn(run)) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic has been printed by the thread.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A server and what waits for it.
struct Line {
    listener: TcpListener,
    server: SocketAddr,
    queue: VecDeque<Request>,
    /// When the next request may go.
    next: Instant,
}

struct Request {
    pair: u64,
    came: Instant,
    bytes: Vec<u8>,
}

/// A side of a connection.
struct Side {
    stream: TcpStream,
    /// Bytes that have not been written.
    out: VecDeque<u8>,
}

/// A client's connection and its server's.
struct Pair {
    line: usize,
    /// Client and server.
    sides: [Side; 2],
    scanner: Requests,
    /// Bytes of the client that are no whole request yet.
    rest: Vec<u8>,
}

struct Work {
    limit: Limit,
    poll: Poll,
    lines: Vec<Line>,
    pairs: HashMap<u64, Pair>,
    pairs_begun: u64,
}

/// Numbers of listeners are below this; then twice that of a pair, and its side.
const PAIRS: u64 = 1 << 16;

fn number(pair: u64, side: usize) -> u64 {
    PAIRS + 2 * pair + side as u64
}

impl Work {
    fn new(servers: &[SocketAddr], limit: Limit) -> io::Result<Work> {
        let poll = Poll::new()?;
        let mut lines = Vec::new();
        for &server in servers {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            poll.add(&listener, lines.len() as u64)?;
            let (queue, next) = (VecDeque::new(), Instant::now());
            lines.push(Line { listener, server, queue, next });
        }
        Ok(Work { limit, poll, lines, pairs: HashMap::new(), pairs_begun: 0 })
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        let (mut ready, mut piece) = (Vec::new(), vec![0; READ]);
        while !stop.load(Ordering::Relaxed) {
            let due = self.lines.iter().filter_map(|line| line.due(self.limit)).min();
            self.poll.wait(due, &mut ready)?;
            for number in ready.drain(..) {
                if number < PAIRS {
                    self.accept(number as usize)?;
                    continue;
                }
                let (pair, side) = ((number - PAIRS) / 2, (number % 2) as usize);
                let Some(of) = self.pairs.get_mut(&pair) else { continue };
                // One that ends takes the other one with it.
                if of.passed(pair, side, &self.poll, &mut self.lines, &mut piece).is_err() {
                    let line = of.line;
                    self.pairs.remove(&pair);
                    self.lines[line].queue.retain(|request| request.pair != pair);
                }
            }
            self.release();
        }
        Ok(())
    }

    fn accept(&mut self, line: usize) -> io::Result<()> {
        let Ok((client, _)) = self.lines[line].listener.accept() else { return Ok(()) };
        let server = TcpStream::connect(self.lines[line].server)?;
        let pair = self.pairs_begun;
        self.pairs_begun += 1;
        for (side, stream) in [&client, &server].into_iter().enumerate() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            self.poll.add(stream, number(pair, side))?;
        }
        let sides = [client, server].map(|stream| Side { stream, out: VecDeque::new() });
        let scanner = Requests::new(Limits::default());
        self.pairs.insert(pair, Pair { line, sides, scanner, rest: Vec::new() });
        Ok(())
    }

    /// Passes on what is due.
    fn release(&mut self) {
        let now = Instant::now();
        for line in &mut self.lines {
            while let Some(due) = line.due(self.limit).filter(|due| *due <= now) {
                let Some(request) = line.queue.pop_front() else { break };
                line.next = due + Duration::from_secs_f64(1.0 / self.limit.rate);
                if let Some(pair) = self.pairs.get_mut(&request.pair) {
                    // Its end is seen when it is read.
                    let _ = pair.sides[1].send(&request.bytes, number(request.pair, 1), &self.poll);
                }
            }
        }
    }
}

impl Line {
    /// Returns when the first request is due.
    fn due(&self, limit: Limit) -> Option<Instant> {
        self.queue.front().map(|first| self.next.max(first.came + limit.delay))
    }
}

impl Pair {
    /// Takes what a side has sent, and writes what it had no room for. Fails when it has ended.
    fn passed(
        &mut self,
        pair: u64,
        side: usize,
        poll: &Poll,
        lines: &mut [Line],
        piece: &mut [u8],
    ) -> io::Result<()> {
        if !self.sides[side].out.is_empty() {
            self.sides[side].send(&[], number(pair, side), poll)?;
        }
        let count = match self.sides[side].stream.read(piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if side == 1 {
            return self.sides[0].send(&piece[..count], number(pair, 0), poll);
        }
        self.rest.extend_from_slice(&piece[..count]);
        let mut begun = 0;
        loop {
            match self.scanner.scan(&self.rest[begun..]).map_err(io::Error::other)? {
                Scan::Whole { len } => {
                    let bytes = self.rest[begun..begun + len].to_vec();
                    begun += len;
                    let request = Request { pair, came: Instant::now(), bytes };
                    lines[self.line].queue.push_back(request);
                }
                Scan::Partial => break,
                Scan::Full => return Err(io::Error::other("more arguments than a relay takes")),
            }
        }
        self.rest.drain(..begun);
        Ok(())
    }
}

impl Side {
    /// Writes these bytes after those that wait, as far as there is room.
    fn send(&mut self, bytes: &[u8], number: u64, poll: &Poll) -> io::Result<()> {
        let waited = !self.out.is_empty();
        self.out.extend(bytes);
        while !self.out.is_empty() {
            match self.stream.write(self.out.as_slices().0) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if waited == self.out.is_empty() {
            poll.room(&self.stream, number, !self.out.is_empty())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// Serves one connection at a time; each line gets a reply.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).for_each(|line| {
                    (&stream).write_all(format!("{line}\r\n").as_bytes()).unwrap();
                });
            }
        });
        address
    }

    fn place() -> Place<'static> {
        Place { program: Path::new(""), cores: usable_cores() }
    }

    /// However they come, requests pass at the rate and in their order.
    #[test]
    fn requests_pass_at_the_rate() {
        let limit = Limit { rate: 500.0, delay: Duration::ZERO };
        let relay = Relay::start(&place(), &[server()], limit).unwrap();
        let mut stream = TcpStream::connect(relay.addresses[0]).unwrap();
        // No tokens are kept for later.
        thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        let requests: Vec<String> = (0..51).map(|number| format!("PING {number}\r\n")).collect();
        stream.write_all(requests.concat().as_bytes()).unwrap();
        let replies = BufReader::new(&stream).lines().take(51).map(Result::unwrap);
        assert!(replies.eq(requests.iter().map(|line| line.trim_end())));
        assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
    }

    #[test]
    fn requests_are_held_and_ends_are_passed_on() {
        let limit = Limit { rate: 1e6, delay: Duration::from_millis(20) };
        let relay = Relay::start(&place(), &[server()], limit).unwrap();
        for _ in 0..2 {
            let start = Instant::now();
            let mut stream = TcpStream::connect(relay.addresses[0]).unwrap();
            stream.write_all(b"PING\r\n").unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert!(line == "PING\r\n" && start.elapsed() >= Duration::from_millis(20));
        }
    }
}
