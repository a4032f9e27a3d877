//! Load on a Redis or memcached, or a proxy before one: GETs by Zipf's law, pipelined, over many
//! connections.
//!
//!     cargo run --release -p overbank-kv --features proxy --example redis_load -- \
//!         PORT CONNECTIONS PIPELINE KEYS THETA SECONDS [memcached]
//!
//! θ of 0 is uniform. Prints a line: requests a second, and the median and 99th percentile of the
//! time from a pipeline's request to its last reply, in microseconds. Keys are those of
//! `redis-benchmark -r`: `key:` and twelve digits.

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use overbank_wire::{memcached, resp, scan::Step};
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Share of the time that warms up.
const WARM_UP: f64 = 0.25;

/// Where replies end.
enum Replies {
    Redis(resp::Replies),
    Memcached(memcached::Replies),
}

impl Replies {
    fn scan(&mut self, bytes: &[u8]) -> Result<Step, Box<dyn Error>> {
        Ok(match self {
            Replies::Redis(replies) => replies.scan(bytes)?,
            Replies::Memcached(replies) => replies.scan(bytes)?,
        })
    }
}

struct Client {
    stream: TcpStream,
    replies: Replies,
    left: usize,
    out: Vec<u8>,
    sent: Instant,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_memcached = words.pop_if(|last| last == "memcached").is_some();
    let numbers: Vec<f64> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [port, connections, pipeline, keys, theta, seconds] = numbers[..] else {
        return Err("PORT CONNECTIONS PIPELINE KEYS THETA SECONDS [memcached]".into());
    };
    let (connections, pipeline) = (connections as usize, pipeline as usize);
    let mut random = Pcg64::seed_from_u64(1);
    let zipf = Zipf::new(keys, theta)?;
    let mut draw = || match theta {
        0.0 => random.random_range(0..keys as u64),
        // Ranks are spread over the keys, as hot keys are.
        _ => (zipf.sample(&mut random) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys as u64,
    };
    let mut poll = Poll::new()?;
    let mut clients = Vec::new();
    for at in 0..connections {
        let address = ([127, 0, 0, 1], port as u16).into();
        let stream = std::net::TcpStream::connect::<std::net::SocketAddr>(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(
            &mut stream,
            Token(at),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        let sent = Instant::now();
        let replies = match is_memcached {
            true => Replies::Memcached(memcached::Replies::new()),
            false => Replies::Redis(resp::Replies::new()),
        };
        clients.push(Client { stream, replies, left: 0, out: Vec::new(), sent });
    }
    let start = Instant::now();
    let measured_from = start + Duration::from_secs_f64(seconds * WARM_UP);
    let end = start + Duration::from_secs_f64(seconds);
    let mut events = Events::with_capacity(1024);
    let (mut done, mut times) = (0u64, Vec::new());
    let mut scratch = vec![0; 256 << 10];
    loop {
        poll.poll(&mut events, Some(Duration::from_millis(100)))?;
        let now = Instant::now();
        if now >= end {
            break;
        }
        for event in &events {
            let client = &mut clients[event.token().0];
            loop {
                if client.left == 0 {
                    client.out.clear();
                    for _ in 0..pipeline {
                        let key = format!("key:{:012}", draw());
                        match is_memcached {
                            true => client.out.extend(format!("get {key}\r\n").as_bytes()),
                            false => resp::command(&[b"GET", key.as_bytes()], &mut client.out),
                        }
                    }
                    (client.left, client.sent) = (pipeline, Instant::now());
                }
                while !client.out.is_empty() {
                    match client.stream.write(&client.out) {
                        Ok(count) => drop(client.out.drain(..count)),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                let count = match client.stream.read(&mut scratch) {
                    Ok(0) => return Err("the connection ended".into()),
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                };
                let mut rest = &scratch[..count];
                while !rest.is_empty() {
                    let step = client.replies.scan(rest)?;
                    rest = &rest[step.len..];
                    client.left -= usize::from(step.end);
                }
                if client.left == 0 && now >= measured_from {
                    done += pipeline as u64;
                    times.push(client.sent.elapsed().as_nanos() as u64);
                }
                if client.left > 0 {
                    break;
                }
            }
        }
    }
    times.sort_unstable();
    let at = |share: f64| {
        times.get((times.len() as f64 * share) as usize).map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    let measured = measured_from.elapsed().as_secs_f64();
    println!("{:.0} {:.1} {:.1}", done as f64 / measured, at(0.5), at(0.99));
    Ok(())
}
