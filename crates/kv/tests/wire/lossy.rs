//! Operations over a path that loses, repeats, reorders and damages: each write is applied once,
//! and each read sees the last one.

use crate::relay::{Faults, Relay};
use crate::{Log, agent};
use overbank_kv::client::{Client, Error, Outcome, Request};
use overbank_kv::key::{self, Encoded};
use overbank_netcache::agent::Settings;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

const FAULTS: Faults = Faults { lost: 5, again: 5, late: 10, damaged: 2 };
/// Keys of a client, each with at most one operation in flight.
const KEYS: u64 = 48;

/// A key of 0 to 40 bytes that no other client has.
fn name(client: u64, key: u64) -> Vec<u8> {
    format!("{client}/{key}/").into_bytes().into_iter().cycle().take(4 + key as usize).collect()
}

/// Does operations on keys that no other client has, and keeps what each must have. Returns the
/// values that were written, by key on the wire.
fn work(servers: &[SocketAddr], number: u64, operations: usize) -> HashMap<u128, Vec<Vec<u8>>> {
    let mut client = Client::new(servers).expect("a socket");
    let mut random = Pcg64Mcg::seed_from_u64(number);
    let mut values: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut flying: HashMap<u64, (u64, Option<Vec<u8>>)> = HashMap::new();
    let mut written: HashMap<u128, Vec<Vec<u8>>> = HashMap::new();
    let (mut begun, mut ended) = (0, Vec::new());
    while begun < operations || !flying.is_empty() {
        let key = random.random_range(0..KEYS);
        let is_free = flying.values().all(|(busy, _)| *busy != key);
        if begun < operations && is_free {
            let value = format!("{number}.{begun}").into_bytes();
            let name = name(number, key);
            let (request, set) = match random.random_range(0..4) {
                0 | 1 => (Request::Get(&name), None),
                2 => (Request::Put(&name, &value), Some(value.clone())),
                _ => (Request::Delete(&name), Some(Vec::new())),
            };
            let ticket = match client.begin(request) {
                Ok(ticket) => ticket,
                // The oldest one has been lost several times: the others wait for it.
                Err(Error::Full { .. }) => {
                    client
                        .poll(Duration::from_millis(1))
                        .map(|done| ended.extend(done))
                        .expect("a socket");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            begun += 1;
            if let Some(value) = &set {
                let encoded = Encoded::new(&name, key::hash);
                let wrapped = match encoded.is_hashed && !value.is_empty() {
                    true => key::wrap(&name, value),
                    false => value.clone(),
                };
                written.entry(encoded.key).or_default().push(wrapped);
            }
            flying.insert(ticket, (key, set));
        }
        let wait = if flying.len() < 32 && begun < operations { 0 } else { 1000 };
        while let Some(done) = match ended.pop() {
            None => client.poll(Duration::from_millis(wait)).expect("a socket"),
            done => done,
        } {
            let (key, set) = flying.remove(&done.ticket).expect("in flight");
            match (done.result.expect("an answer"), set) {
                (Outcome::Written, Some(value)) => _ = values.insert(key, value),
                (Outcome::Read(value), None) => {
                    let wanted = values.get(&key).filter(|value| !value.is_empty());
                    assert_eq!(value.as_ref(), wanted, "key {key}");
                }
                other => panic!("{other:?}"),
            }
            if flying.len() < 32 {
                break;
            }
        }
    }
    let totals = client.totals();
    assert!(totals.repeated > 0 && totals.gave_up == 0, "{totals:?}");
    let unmatched: u64 = totals.unmatched.iter().sum();
    let malformed: u64 = totals.malformed.iter().sum();
    assert_eq!(totals.received, totals.answers + malformed + unmatched + totals.strangers);
    assert!(unmatched > 0 && malformed > 0, "{totals:?}");
    for (key, value) in values {
        let read = client.get(&name(number, key)).expect("an answer").unwrap_or_default();
        assert_eq!(read, value, "key {key} at the end");
    }
    written
}

/// Writes are in the log once each, in the order of their client.
fn once_each(log: &Log, written: HashMap<u128, Vec<Vec<u8>>>) {
    let log = log.lock().expect("no panic");
    for (key, wanted) in written {
        assert_eq!(log.get(&key), Some(&wanted), "key {key:x}");
    }
}

#[test]
fn each_write_is_applied_once_whatever_happens_on_the_path() {
    let (agent, log) = agent(Settings::DEFAULT);
    let server = agent.handle().address();
    let clients: Vec<_> = (0..3)
        .map(|number| {
            let relay = Relay::start(server, FAULTS, number);
            let address = relay.address;
            (relay, std::thread::spawn(move || work(&[address], number, 4000)))
        })
        .collect();
    for (relay, client) in clients {
        once_each(&log, client.join().expect("no assertion failed"));
        drop(relay);
    }
    let totals = agent.stop();
    assert!(totals.repeated > 100, "{totals:?}");
    let refused: u64 = totals.malformed.iter().chain(&totals.dropped).sum();
    assert_eq!(totals.received, totals.handled + refused);
}

#[test]
fn keys_are_spread_over_servers_and_found_there() {
    let agents: Vec<_> = (0..3).map(|_| agent(Settings::DEFAULT)).collect();
    let relays: Vec<_> = (0..)
        .zip(&agents)
        .map(|(seed, (agent, _))| Relay::start(agent.handle().address(), FAULTS, seed))
        .collect();
    let servers: Vec<SocketAddr> = relays.iter().map(|relay| relay.address).collect();
    let written = work(&servers, 7, 1000);
    let mut of_all = HashMap::new();
    for (agent, log) in agents {
        let log = log.lock().expect("no panic");
        assert!(log.len() > 4, "{} keys", log.len());
        of_all.extend(log.clone());
        drop(agent);
    }
    assert_eq!(of_all, written);
}

/// A server that refuses most requests is asked again; all end.
#[test]
fn a_busy_server_is_asked_again() {
    let (agent, _) =
        agent(Settings { clients_max: 1, client_idle_us: 30_000, ..Settings::DEFAULT });
    let server = [agent.handle().address()];
    let (mut first, mut second) =
        (Client::new(&server).expect("a"), Client::new(&server).expect("b"));
    first.put(b"key", b"first").expect("remembered");
    // Refused until the first client is forgotten.
    second.put(b"key", b"second").expect("at last");
    assert!(second.totals().busy > 0 && agent.stop().busy > 0);
}
