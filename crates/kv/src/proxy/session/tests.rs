//! Sessions before a small model of Redis, which is asked directly as well: the same bytes.

use super::rig::{KEYS, Rig, drain, torture};
use super::{End, OUT_MAX};
use crate::proxy::settings::Order;
use crate::proxy::upstream::Protocol;
use overbank_wire::resp::{self, Requests};
use overbank_wire::scan::Scan;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A connection to a Redis that knows a few commands.
struct Model {
    requests: Requests,
    input: Vec<u8>,
    out: VecDeque<u8>,
    store: HashMap<(u32, Vec<u8>), Vec<u8>>,
    db: u32,
    is_three: bool,
    multi: Option<Vec<Vec<Vec<u8>>>>,
    channels: BTreeSet<Vec<u8>>,
    is_silent: bool,
    skip: u8,
    has_quit: bool,
}

impl Model {
    fn new() -> Model {
        Model {
            requests: Requests::new(resp::Limits::default()),
            input: Vec::new(),
            out: VecDeque::new(),
            store: HashMap::new(),
            db: 0,
            is_three: false,
            multi: None,
            channels: BTreeSet::new(),
            is_silent: false,
            skip: 0,
            has_quit: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Ok(Scan::Whole { len }) = self.requests.scan(&self.input) {
            let request = self.requests.request(&self.input);
            let words: Vec<Vec<u8>> = request.args().map(<[u8]>::to_vec).collect();
            self.input.drain(..len);
            if words.is_empty() {
                self.skip = self.skip.saturating_sub(1);
            }
            if words.is_empty() || self.has_quit {
                continue;
            }
            let mut reply = Vec::new();
            self.command(&words, &mut reply);
            let (skipped, skip) = (self.skip == 1, self.skip.saturating_sub(1));
            self.skip = skip;
            if !self.is_silent && !skipped && skip == 0 {
                self.out.extend(reply);
            }
        }
    }

    fn null(&self, reply: &mut Vec<u8>) {
        reply.extend_from_slice(if self.is_three { b"_\r\n" } else { b"$-1\r\n" });
    }

    fn confirm(&self, what: &[u8], channel: Option<&[u8]>, reply: &mut Vec<u8>) {
        reply.extend_from_slice(if self.is_three { b">3\r\n" } else { b"*3\r\n" });
        resp::bulk(what, reply);
        match channel {
            Some(channel) => resp::bulk(channel, reply),
            None => self.null(reply),
        }
        resp::integer(self.channels.len() as i64, reply);
    }

    fn command(&mut self, words: &[Vec<u8>], reply: &mut Vec<u8>) {
        let name = words[0].to_ascii_uppercase();
        let arg = |index: usize| words.get(index).map_or(&b""[..], Vec::as_slice);
        let is_control = [&b"EXEC"[..], b"DISCARD", b"MULTI", b"QUIT", b"RESET"];
        if !is_control.contains(&&name[..])
            && let Some(queued) = &mut self.multi
        {
            queued.push(words.to_vec());
            resp::simple("QUEUED", reply);
            return;
        }
        if !self.is_three && !self.channels.is_empty() {
            let may = [&b"SUBSCRIBE"[..], b"UNSUBSCRIBE", b"QUIT", b"RESET"];
            if !may.contains(&&name[..]) {
                resp::error("ERR only SUBSCRIBE and the like here", reply);
                return;
            }
        }
        match &name[..] {
            b"GET" => match self.store.get(&(self.db, arg(1).to_vec())) {
                Some(value) => resp::bulk(value, reply),
                None => self.null(reply),
            },
            b"MGET" => {
                resp::array(words.len() - 1, reply);
                words[1..].iter().for_each(|key| {
                    self.command(&[b"GET".to_vec(), key.clone()], reply);
                });
            }
            b"SET" => {
                self.store.insert((self.db, arg(1).to_vec()), arg(2).to_vec());
                resp::simple("OK", reply);
            }
            b"DEL" => {
                let gone = self.store.remove(&(self.db, arg(1).to_vec())).is_some();
                resp::integer(gone.into(), reply);
            }
            b"FLUSHALL" => {
                self.store.clear();
                resp::simple("OK", reply);
            }
            b"ECHO" => resp::bulk(arg(1), reply),
            b"SELECT" => match arg(1) {
                b"9" => resp::error("ERR DB index is out of range", reply),
                db => {
                    self.db = u32::from(db.first().unwrap_or(&b'0') - b'0');
                    resp::simple("OK", reply);
                }
            },
            b"HELLO" => {
                self.is_three = arg(1) == b"3";
                let head: &[u8] = if self.is_three { b"%1\r\n" } else { b"*2\r\n" };
                reply.extend_from_slice(head);
                resp::bulk(b"proto", reply);
                resp::integer(2 + i64::from(self.is_three), reply);
            }
            b"MULTI" if self.multi.is_some() => resp::error("ERR MULTI is nested", reply),
            b"MULTI" => {
                self.multi = Some(Vec::new());
                resp::simple("OK", reply);
            }
            b"DISCARD" => match self.multi.take() {
                None => resp::error("ERR DISCARD without MULTI", reply),
                Some(_) => resp::simple("OK", reply),
            },
            b"EXEC" => match self.multi.take() {
                None => resp::error("ERR EXEC without MULTI", reply),
                Some(queued) => {
                    resp::array(queued.len(), reply);
                    queued.iter().for_each(|words| self.command(words, reply));
                }
            },
            b"WATCH" if self.multi.is_some() => resp::error("ERR WATCH inside MULTI", reply),
            b"WATCH" | b"UNWATCH" => resp::simple("OK", reply),
            b"RESET" => {
                let store = std::mem::take(&mut self.store);
                let input = std::mem::take(&mut self.input);
                let (requests, out) = (self.requests.clone(), std::mem::take(&mut self.out));
                *self = Model { requests, input, out, store, ..Model::new() };
                resp::simple("RESET", reply);
            }
            b"QUIT" => {
                self.has_quit = true;
                resp::simple("OK", reply);
            }
            b"SUBSCRIBE" => words[1..].iter().for_each(|channel| {
                self.channels.insert(channel.clone());
                self.confirm(b"subscribe", Some(channel), reply);
            }),
            b"UNSUBSCRIBE" => {
                let all: Vec<Vec<u8>> = match words.len() {
                    1 => self.channels.iter().cloned().collect(),
                    _ => words[1..].to_vec(),
                };
                if all.is_empty() {
                    self.confirm(b"unsubscribe", None, reply);
                }
                for channel in all {
                    self.channels.remove(&channel);
                    self.confirm(b"unsubscribe", Some(&channel), reply);
                }
            }
            b"PUBLISH" => {
                let heard = self.channels.contains(arg(1));
                if heard {
                    reply.extend_from_slice(b">3\r\n");
                    [b"message", arg(1), arg(2)].iter().for_each(|word| resp::bulk(word, reply));
                }
                resp::integer(heard.into(), reply);
            }
            b"CLIENT" => {
                match arg(2).to_ascii_uppercase().as_slice() {
                    b"ON" => self.is_silent = false,
                    b"OFF" => self.is_silent = true,
                    _ if !self.is_silent => self.skip = 2,
                    _ => {}
                }
                resp::simple("OK", reply);
            }
            _ => resp::error("ERR unknown command", reply),
        }
    }
}

/// Returns a request of a kind, and one of its bytes of a tag that makes it unlike others.
fn request(kind: u8, tag: u8, out: &mut Vec<u8>) {
    let key = KEYS[usize::from(tag) % KEYS.len()];
    let other = KEYS[usize::from(tag / 3) % KEYS.len()];
    let text = tag.to_string();
    let text = text.as_bytes();
    let words: &[&[u8]] = match kind {
        0..=11 => &[b"GET", key],
        12..=15 => &[b"SET", key, text],
        16 => &[b"DEL", key],
        17 => &[b"MGET", key, other],
        18 | 19 => &[b"ECHO", text],
        20 => &[b"SELECT", [&b"0"[..], b"0", b"1", b"9"][usize::from(tag) % 4]],
        21 => &[b"HELLO", [&b"2"[..], b"3"][usize::from(tag) % 2]],
        22 => &[b"MULTI"],
        23 => &[b"EXEC"],
        24 => &[b"DISCARD"],
        25 => &[b"RESET"],
        26 => &[b"SUBSCRIBE", key, other],
        27 if tag.is_multiple_of(2) => &[b"UNSUBSCRIBE"],
        27 => &[b"UNSUBSCRIBE", key],
        28 => &[b"FLUSHALL"],
        29 => &[b"CLIENT", b"REPLY", [&b"SKIP"[..], b"ON", b"OFF", b"ON"][usize::from(tag) % 4]],
        30 => &[b"PUBLISH", key, text],
        31 => &[[&b"WATCH"[..], b"UNWATCH"][usize::from(tag) % 2], key],
        32 if tag.is_multiple_of(2) => {
            out.extend_from_slice(b"\r\n");
            return;
        }
        32 => {
            out.extend_from_slice(b"GET a\r\n\r\nset b 'x y'\r\n*0\r\n*-1\r\n");
            return;
        }
        33 => &[b"MULTI", b"wrong"],
        _ => &[b"QUIT"],
    };
    resp::command(words, out);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request is written.
    Ask(u8, u8),
    /// Bytes move from the client, to the server, from there, or a fill.
    Client(usize),
    Server(usize),
    Fill(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![1usize..20, 20usize..200];
    let step = prop_oneof![
        5 => (0u8..34, any::<u8>()).prop_map(|(kind, tag)| Step::Ask(kind, tag)),
        1 => (0u8..20, any::<u8>()).prop_map(|(kind, tag)| Step::Ask(kind, tag)),
        5 => size().prop_map(Step::Client),
        5 => size().prop_map(Step::Server),
        4 => (0u8..3).prop_map(Step::Fill),
    ];
    prop::collection::vec(step, 1..150)
}

/// Takes up to `most` bytes.
fn cut(bytes: &mut VecDeque<u8>, most: usize) -> Vec<u8> {
    bytes.drain(..most.min(bytes.len())).collect()
}

/// Runs the steps; returns the hits.
fn same(steps: &[Step], ends: bool, order: Order) -> Result<u64, TestCaseError> {
    let (mut rig, mut behind, mut direct) =
        (Rig::new(Protocol::Redis, order), Model::new(), Model::new());
    let (mut wire, mut got, mut asked) = (VecDeque::new(), Vec::new(), Vec::new());
    let all = steps.iter().copied().chain(ends.then_some(Step::Ask(34, 0)));
    let last = (0..400).flat_map(|_| [Step::Client(1 << 16), Step::Server(1 << 16)]);
    for step in all.chain(last) {
        match step {
            Step::Ask(kind, tag) => {
                let start = asked.len();
                request(kind, tag, &mut asked);
                wire.extend(&asked[start..]);
            }
            Step::Client(count) => {
                let bytes = cut(&mut wire, count);
                if !rig.client(&bytes) {
                    bytes.into_iter().rev().for_each(|byte| wire.push_front(byte));
                }
            }
            Step::Server(count) => {
                let bytes = cut(&mut behind.out, count);
                prop_assert!(rig.server(&bytes), "replies that are none");
            }
            Step::Fill(key) => {
                let key = KEYS[usize::from(key)];
                rig.fill(key, |db| behind.store.get(&(db, key.to_vec())).cloned());
            }
        }
        behind.take(&drain(rig.session.for_server()));
        got.extend(drain(rig.session.for_client()));
    }
    direct.take(&asked);
    let wanted: Vec<u8> = direct.out.into_iter().collect();
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    prop_assert_eq!(shown(&got), shown(&wanted), "{}", shown(&asked));
    prop_assert_eq!(&behind.store, &direct.store);
    let hits = rig.totals.hits;
    rig.end();
    Ok(hits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_client_gets_the_bytes_that_the_server_would_send(steps in steps(), ends: bool) {
        same(&steps, ends, Order::Key)?;
        same(&steps, ends, Order::Connection)?;
    }

    #[test]
    fn any_bytes_of_both_sides_leave_nothing_behind(
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        torture(&data);
    }

    /// Parts of real requests and replies, in any order.
    #[test]
    fn pieces_of_the_protocol_leave_nothing_behind(
        pieces in prop::collection::vec((0usize..4, 0usize..PIECES.len(), 0usize..64), 0..60),
    ) {
        let mut data = Vec::new();
        for (side, piece, most) in pieces {
            let piece = &PIECES[piece][..PIECES[piece].len().min(most.max(1) * 4).min(63)];
            data.push((piece.len() * 4 + side) as u8);
            data.extend_from_slice(piece);
        }
        torture(&data);
    }
}

const PIECES: [&[u8]; 36] = [
    b"GET a\r\n",
    b"SET a 1\r\n",
    b"SET q 1\r\n",
    b"MULTI\r\n",
    b"EXEC\r\n",
    b"DISCARD\r\n",
    b"WATCH a\r\n",
    b"UNWATCH\r\n",
    b"RESET\r\n",
    b"QUIT\r\n",
    b"MONITOR\r\n",
    b"PSYNC ? -1\r\n",
    b"CLIENT REPLY OFF\r\n",
    b"CLIENT REPLY ON\r\n",
    b"CLIENT REPLY SKIP\r\n",
    b"CLIENT TRACKING ON\r\n",
    b"SUBSCRIBE a b\r\n",
    b"UNSUBSCRIBE\r\n",
    b"PUNSUBSCRIBE p\r\n",
    b"SELECT 1\r\n",
    b"HELLO 3 AUTH u p\r\n",
    b"AUTH p\r\n",
    b"FLUSHALL\r\n",
    b"EVAL x 1 a\r\n",
    b"BLPOP a b 0\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$70000\r\n",
    b"*1\r\n$9223372036854775808\r\n",
    b"+OK\r\n",
    b"+QUEUED\r\n",
    b"-EXECABORT x\r\n",
    b"$1\r\nv\r\n",
    b"*1\r\n+OK\r\n",
    b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
    b">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n",
    b"%1\r\n+proto\r\n:3\r\n",
    b"+RESET\r\n",
];

/// A session that has asked for this and whose server has said that.
fn rig(client: &[u8], server: &[u8]) -> Rig {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    assert!(rig.client(client));
    drain(rig.session.for_server());
    assert!(rig.server(server));
    rig
}

fn value(_: u32) -> Option<Vec<u8>> {
    Some(b"v".to_vec())
}

#[test]
fn hits_do_happen_in_the_model() {
    let steps: Vec<Step> = (0..200)
        .flat_map(|tag| [Step::Fill(tag % 3), Step::Ask(0, tag), Step::Client(99), Step::Server(9)])
        .collect();
    let hits = same(&steps, false, Order::Key).expect("the same");
    assert!(hits >= 190, "{hits}");
}

#[test]
fn a_hit_is_not_written_into_a_push() {
    let mut rig = rig(b"HELLO 3\r\n", b"%1\r\n+proto\r\n:3\r\n");
    rig.fill(b"a", value);
    assert!(rig.server(b">2\r\n+in"));
    assert!(rig.client(b"GET a\r\n"));
    assert!(rig.server(b"fo\r\n:1\r\n$1\r\nv\r\n"));
    let got = drain(rig.session.for_client());
    assert_eq!(got, b"%1\r\n+proto\r\n:3\r\n>2\r\n+info\r\n:1\r\n$1\r\nv\r\n");
    assert_eq!(rig.totals.hits, 0);
    assert!(rig.client(b"GET a\r\n"));
    assert_eq!(
        (drain(rig.session.for_client()).as_slice(), rig.totals.hits),
        (&b"$1\r\nv\r\n"[..], 1)
    );
    rig.end();
}

#[test]
fn what_waits_behind_a_reply_is_written_before_replies_stop() {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    rig.fill(b"a", value);
    assert!(rig.client(b"SET b 1\r\nGET a\r\nMULTI\r\nCLIENT REPLY OFF\r\nSET c 1\r\n"));
    assert_eq!(rig.totals.hits, 1);
    assert!(rig.server(b"+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n"));
    let got = drain(rig.session.for_client());
    assert_eq!(got, b"+OK\r\n$1\r\nv\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    rig.end();
}

#[test]
fn a_push_inside_a_reply_passes() {
    let mut rig = rig(b"HELLO 3\r\n", b"%1\r\n+proto\r\n:3\r\n");
    drain(rig.session.for_client());
    assert!(rig.client(b"MULTI\r\nPUBLISH c x\r\nSET a 1\r\nEXEC\r\n"));
    let reply = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n>2\r\n+message\r\n+x\r\n:1\r\n+OK\r\n";
    for byte in reply {
        assert!(rig.server(&[*byte]));
    }
    assert_eq!(drain(rig.session.for_client()), reply);
    rig.end();
}

#[test]
fn the_error_of_no_request_comes_behind_what_is_owed() {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    assert!(rig.client(b"SET b 1\r\n*1\r\n+x\r\n"));
    assert_eq!(rig.session.end(), Some(End::Refused));
    assert!(drain(rig.session.for_client()).is_empty());
    assert!(rig.server(b"+OK\r\n"));
    let got = drain(rig.session.for_client());
    assert_eq!(got, b"+OK\r\n-ERR Protocol error: expected '$', got '+'\r\n");
    rig.end();
}

#[test]
fn what_may_write_keys_that_are_not_kept_closes_the_cache() {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    rig.fill(b"a", value);
    let mut words = vec![b"DEL".to_vec()];
    words.extend((0..70_000).map(|n| n.to_string().into_bytes()));
    let mut bytes = Vec::new();
    resp::command(&words, &mut bytes);
    for part in bytes.chunks(60_000) {
        assert!(rig.client(part));
        drain(rig.session.for_server());
    }
    assert_eq!(rig.totals.closings, 1);
    assert!(rig.client(b"GET a\r\n"));
    assert_eq!(rig.totals.hits, 0);
    assert!(rig.server(b":0\r\n$-1\r\n"));
    rig.fill(b"a", value);
    assert!(rig.client(b"GET a\r\n"));
    assert_eq!(rig.totals.hits, 1);
    rig.end();
}

#[test]
fn a_client_that_does_not_read_gets_no_hits_beyond_the_bound() {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    rig.fill(b"a", |_| Some(vec![b'v'; 60_000]));
    for _ in 0..100 {
        assert!(rig.client(b"GET a\r\nMGET a a a a a a a a\r\n"));
        drain(rig.session.for_server());
    }
    assert!(rig.session.for_client().len() < 2 * OUT_MAX);
    assert!(rig.totals.missed[crate::proxy::totals::Missed::Room.index()] > 0);
    rig.end();
}

#[test]
fn many_writes_without_replies_close_the_cache_until_replies_come_again() {
    let mut rig = Rig::new(Protocol::Redis, Order::Key);
    assert!(rig.client(b"PING\r\n"));
    assert!(rig.server(b"+PONG\r\n"));
    assert!(rig.client(b"CLIENT REPLY OFF\r\n"));
    for _ in 0..5000 {
        assert!(rig.client(b"SET a 1\r\n"));
    }
    assert_eq!(rig.totals.forwarded, 5002);
    assert!(rig.client(b"CLIENT REPLY ON\r\n"));
    assert!(rig.server(b"+OK\r\n"));
    rig.fill(b"a", value);
    assert!(rig.client(b"GET a\r\n"));
    assert_eq!(rig.totals.hits, 1);
    rig.end();
}
