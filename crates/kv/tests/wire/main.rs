//! Clients and agents over sockets, and what may go wrong between them.

mod hostile;
mod lossy;
mod relay;

use overbank_kv::agent::{Running, Setup};
use overbank_kv::store::{Answers, Memory, Store};
use overbank_netcache::Protocol;
use overbank_netcache::agent::{Ask, Settings};
use overbank_wire::netcache::Key;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Every value that was written, by key, in the order of the store.
type Log = Arc<Mutex<HashMap<Key, Vec<Vec<u8>>>>>;

/// A store that keeps what was written.
struct Logged {
    memory: Memory,
    log: Log,
}

impl Store for Logged {
    fn ask(&mut self, number: u64, key: Key, ask: Ask, answers: &mut Answers) {
        if let Ask::Write(value) = &ask {
            let value = value.as_deref().unwrap_or_default().to_vec();
            self.log.lock().expect("no panic").entry(key).or_default().push(value);
        }
        self.memory.ask(number, key, ask, answers);
    }

    fn answers(&mut self, _: &mut Answers) {}
}

fn agent(machine: Settings) -> (Running, Log) {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let protocol = Protocol::Stamps;
    let setup =
        Setup { listen, device: None, receive_bytes: 4 << 20, machine, protocol, rate: None };
    let log = Log::default();
    let store = Logged { memory: Memory::new(1 << 30), log: log.clone() };
    let agent = Running::start(&setup, |_| Ok(Box::new(store))).expect("it starts");
    (agent, log)
}
