//! A server's side of the key-value protocol under any messages, in any order, with a store that
//! answers late, otherwise than asked or not at all.
//!
//! Nothing panics; each message gets one answer at most; what waits has a bound; and the store is
//! asked for a write of a key only when the write before it is done.
//!
//! Input: steps of a byte each and what they take: a message (see `message`), the answer to the
//! oldest request of the store, time that passes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_netcache::agent::{Action, Agent, Answer, Ask, Settings};
use overbank_wire::netcache::{HEADER_LEN, Key, Message, Op, Stamp};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

const EPOCH: u64 = 7;
const SETTINGS: Settings =
    Settings { waiting_max: 8, clients_max: 4, tries_max: 3, ..Settings::DEFAULT };

/// Reads a message of few keys, clients and stamps, so that they meet: eight bytes.
fn message(bytes: &[u8; 8]) -> Option<Message<'static>> {
    let [op, flags, key, client, request, install, writes, status] = *bytes;
    let mut room = [0; HEADER_LEN];
    Message::new(Op::Get, 0, 0, 0).emit(&mut room)?;
    (room[3], room[4], room[5]) = (op % 20, flags & 3, status % 8);
    let head = Message { value: &[], ..Message::parse(&room).ok()? };
    let stamp = Stamp { boot: 1, install: (install % 4).into(), writes: (writes % 8).into() };
    let is_for_agent = matches!(op % 20, 0..=8);
    let client = if is_for_agent { u64::from(client % 6) } else { EPOCH };
    Some(Message { client, request: request.into(), key: (key % 3).into(), stamp, ..head })
}

fuzz_target!(|data: &[u8]| {
    let mut agent = Agent::<u32>::new(SETTINGS, EPOCH);
    let (mut now, mut nth, mut out) = (0, 0, Vec::new());
    let mut asked = VecDeque::<(u64, Key, bool)>::new();
    let mut writing = HashSet::<Key>::new();
    let mut replied = HashSet::<u32>::new();
    let mut rest = data;
    while let [step, bytes @ ..] = rest {
        rest = bytes;
        match step % 4 {
            0 | 1 => {
                let Some((first, more)) = rest.split_first_chunk::<8>() else { return };
                rest = more;
                nth += 1;
                let value = [*step; 40];
                if let Some(said) = message(first) {
                    let len = if said.op.has_value() { usize::from(*step) % 40 } else { 0 };
                    agent.message(now, nth, &Message { value: &value[..len], ..said }, &mut out);
                }
            }
            2 => {
                let Some((number, key, is_write)) = asked.pop_front() else { continue };
                if is_write {
                    writing.remove(&key);
                }
                let answer = match step / 4 % 4 {
                    0 => Answer::Failed,
                    1 => Answer::Read(Some(Arc::from([*step; 20]))),
                    2 => Answer::Read(None),
                    _ => Answer::Written,
                };
                agent.stored(now, number, answer, &mut out);
            }
            _ => {
                now += 1 << (step / 4 % 32);
                let next = agent.tick(now, &mut out);
                assert!(next > now, "it would be called for ever");
            }
        }
        for action in out.drain(..) {
            match action {
                Action::Reply(to, _) => assert!(replied.insert(to), "two answers to a message"),
                Action::Device(letter) => assert!(letter.value.len() <= SETTINGS.value_max),
                Action::Store { number, key, ask } => {
                    let is_write = matches!(ask, Ask::Write(_));
                    assert!(!is_write || writing.insert(key), "two writes of a key at a time");
                    asked.push_back((number, key, is_write));
                }
            }
        }
        // Requests, and a read for each key that is cached.
        assert!(asked.len() <= SETTINGS.waiting_max + 3, "{}", asked.len());
    }
});
