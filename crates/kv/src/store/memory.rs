//! Values in the agent's memory.
//!
//! A map with a bound of bytes, counted as the value's and [`OVERHEAD`] for its entry. A write that
//! would exceed it is refused. Keys are hashed with a secret, so no choice of keys makes it slow.

use super::{Answers, Store};
use overbank_netcache::agent::{Answer, Ask, Value};
use overbank_wire::netcache::Key;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes that an entry takes beside its value: 40 in the table at its usual load, and the
/// allocation's head and rounding.
const OVERHEAD: u64 = 96;

/// See the module.
#[derive(Debug)]
pub struct Memory {
    values: HashMap<Key, Arc<[u8]>>,
    bytes: u64,
    bytes_max: u64,
}

fn cost(value: &[u8]) -> u64 {
    value.len() as u64 + OVERHEAD
}

impl Memory {
    pub fn new(bytes_max: u64) -> Memory {
        Memory { values: HashMap::new(), bytes: 0, bytes_max }
    }

    fn write(&mut self, key: Key, value: Value) -> Answer {
        let old = self.values.get(&key).map_or(0, |old| cost(old));
        let bytes = self.bytes - old + value.as_ref().map_or(0, |value| cost(value));
        if bytes > self.bytes_max && bytes > self.bytes {
            return Answer::Failed;
        }
        self.bytes = bytes;
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
        Answer::Written
    }
}

impl Store for Memory {
    fn ask(&mut self, number: u64, key: Key, ask: Ask, answers: &mut Answers) {
        let answer = match ask {
            Ask::Read => Answer::Read(self.values.get(&key).cloned()),
            Ask::Write(value) => self.write(key, value),
        };
        answers.push((number, answer));
    }

    fn answers(&mut self, _answers: &mut Answers) {}

    fn held(&self) -> (u64, u64) {
        (self.values.len() as u64, self.bytes)
    }
}
