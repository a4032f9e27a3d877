//! The client: hands out requests and checks every answer. Not watched: a request arrives in
//! registers.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use overbank_watched::item::{Reading, expected};
use overbank_watched::outside::{Ask, Request};

use crate::hooks;
use crate::keys::{self, Op};

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(null_mut());

/// The state of one run.
pub struct Client {
    ops: Vec<Op>,
    next: usize,
    /// Of each item, counted in updates; empty where nothing is written, so that valgrind and QEMU
    /// see no cache lines of the client.
    versions: Vec<u32>,
    reading: Reading,
    /// Whether the machine sees reads of the list.
    watched: bool,
    /// Answers since the last [`Client::send`].
    pub answered: u64,
    /// Lookups that the system in front answered, since then.
    pub hits: u64,
    /// Lookups without an answer, since then.
    pub nothing: u64,
    /// Answers that are not what was inserted, since then.
    pub wrong: u64,
}

impl Client {
    /// Returns a client of a store of which this many items may change, inserts included.
    pub fn new(items: usize, reading: Reading, watched: bool) -> Self {
        let versions = vec![0; items];
        let (answered, hits, nothing, wrong) = (0, 0, 0, 0);
        let (ops, next) = (Vec::new(), 0);
        Self { ops, next, versions, reading, watched, answered, hits, nothing, wrong }
    }

    /// Hands these requests to `serve`, which asks for them, and counts afresh.
    pub fn send<R>(&mut self, ops: Vec<Op>, serve: impl FnOnce() -> R) -> R {
        /// Ends what `send` has lent, after a panic too.
        struct Sent;
        impl Drop for Sent {
            fn drop(&mut self) {
                CLIENT.store(null_mut(), Relaxed);
            }
        }
        (self.ops, self.next) = (ops, 0);
        (self.answered, self.hits, self.nothing, self.wrong) = (0, 0, 0, 0);
        CLIENT.store(self, Relaxed);
        let _sent = Sent;
        serve()
    }

    fn request(&mut self) -> Request {
        let Some(op) = self.ops.get(self.next) else {
            return Request { what: Ask::End as u64, key: 0 };
        };
        if self.watched {
            hooks::load(op);
        }
        let op = *op;
        self.next += 1;
        if op.ask() == Ask::Update
            && let Some(version) = self.versions.get_mut(op.item() as usize)
        {
            *version += 1;
        }
        Request { what: op.ask() as u64 | self.version(op) << 2, key: keys::key(op.item()) }
    }

    fn version(&self, op: Op) -> u64 {
        self.versions.get(op.item() as usize).copied().unwrap_or(0).into()
    }

    fn check(&mut self, sum: u64) {
        self.answered += 1;
        let Some(&op) = self.next.checked_sub(1).and_then(|last| self.ops.get(last)) else {
            return;
        };
        let expected = || expected(keys::key(op.item()), self.version(op), self.reading);
        if op.ask() == Ask::Read && sum != expected() {
            self.wrong += 1;
        }
    }
}

fn client() -> Option<&'static mut Client> {
    // SAFETY: the pointer is null or that of `send`, which has the client until the pointer is null
    // again. One thread works, the main one waits for it; no function below calls another.
    unsafe { CLIENT.load(Relaxed).as_mut() }
}

// SAFETY: the declaration in `watched/src/outside.rs` is the only other use of the name.
#[unsafe(no_mangle)]
extern "C" fn overbank_client_next() -> Request {
    client().map_or(Request { what: Ask::End as u64, key: 0 }, Client::request)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_client_answer(sum: u64) {
    if let Some(client) = client() {
        client.check(sum);
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_client_nothing() {
    if let Some(client) = client() {
        client.nothing += 1;
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_client_hit() {
    if let Some(client) = client() {
        client.hits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_takes_the_client_back() {
        let mut client = Client::new(0, Reading { words: 1, stride: 1 }, false);
        let sent = AssertUnwindSafe(|| client.send(Vec::new(), || panic!("as it should")));
        assert!(catch_unwind(sent).is_err());
        assert!(CLIENT.load(Relaxed).is_null());
    }
}
