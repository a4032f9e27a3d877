//! Sessions before a small model of memcached, which is asked directly as well: the same bytes.

use super::item::Item;
use super::session::{BINARY_NOOP, NOOP};
use crate::proxy::session::End;
use crate::proxy::session::rig::{KEYS, Rig, drain};
use crate::proxy::settings::Order;
use crate::proxy::upstream::Protocol;
use overbank_wire::memcached::{Flags, KEY_MAX, Requests, Verb, decode_key};
use overbank_wire::scan::Scan;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// An item: client flags, CAS id, value.
type Stored = (u32, u64, Vec<u8>);

/// A connection to a memcached that knows a few commands.
struct Model {
    requests: Requests,
    input: Vec<u8>,
    out: VecDeque<u8>,
    store: HashMap<Vec<u8>, Stored>,
    last_cas: u64,
}

impl Model {
    fn new() -> Model {
        Model {
            requests: Requests::new(),
            input: Vec::new(),
            out: VecDeque::new(),
            store: HashMap::new(),
            last_cas: 0,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Ok(Scan::Whole { len }) = self.requests.scan(&self.input) {
            let raw: Vec<u8> = self.input.drain(..len).collect();
            let requests = self.requests.clone();
            let mut reply = Vec::new();
            match requests.opcode() {
                Some(opcode) => self.binary(&requests, opcode, &raw, &mut reply),
                None => self.text(&requests, &raw, &mut reply),
            }
            self.out.extend(reply);
        }
    }

    fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) {
        self.last_cas += 1;
        self.store.insert(key.to_vec(), (flags, self.last_cas, value.to_vec()));
    }

    fn text(&mut self, requests: &Requests, raw: &[u8], reply: &mut Vec<u8>) {
        let quiet = requests.is_quiet();
        let flags = requests.flags(raw);
        let mut room = [0; KEY_MAX];
        let first = requests.keys().first().map_or(&[][..], |key| &raw[key.clone()]);
        let key = match flags.has(b'b') {
            true => decode_key(first, &mut room).unwrap_or(first).to_vec(),
            false => first.to_vec(),
        };
        let line = raw.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let value = &raw[line..];
        let value = value.strip_suffix(b"\r\n").unwrap_or(value);
        let mut say = |text: &[u8], is_quiet: bool| {
            if !(quiet && is_quiet) {
                reply.extend_from_slice(text);
            }
        };
        match requests.verb() {
            Verb::Get | Verb::Gets => {
                for key in requests.keys() {
                    let key = &raw[key.clone()];
                    let Some((flags, cas, value)) = self.store.get(key) else { continue };
                    let mut head = format!(" {flags} {}", value.len());
                    if requests.verb() == Verb::Gets {
                        head.push_str(&format!(" {cas}"));
                    }
                    reply.extend_from_slice(&[b"VALUE ", key, head.as_bytes(), b"\r\n"].concat());
                    reply.extend_from_slice(value);
                    reply.extend_from_slice(b"\r\n");
                }
                reply.extend_from_slice(b"END\r\n");
            }
            Verb::Set => {
                let flags = raw.split(|byte| *byte == b' ').nth(2).expect("flags");
                let flags = std::str::from_utf8(flags).expect("text").parse().expect("a number");
                self.set(&key, flags, value);
                say(b"STORED\r\n", true);
            }
            Verb::MetaSet => {
                self.set(&key, 0, value);
                say(b"HD\r\n", true);
            }
            Verb::Delete => match self.store.remove(&key) {
                Some(_) => say(b"DELETED\r\n", true),
                None => say(b"NOT_FOUND\r\n", true),
            },
            Verb::MetaDelete => match self.store.remove(&key) {
                Some(_) => say(b"HD\r\n", true),
                None => say(b"NF\r\n", true),
            },
            Verb::Incr => say(b"CLIENT_ERROR cannot increment\r\n", false),
            Verb::Touch => say(b"TOUCHED\r\n", true),
            Verb::MetaGet => match self.store.get(&key) {
                None => say(b"EN\r\n", true),
                Some((client, cas, value)) => {
                    let mut text = match flags.has(b'v') {
                        true => format!("VA {}", value.len()),
                        false => "HD".to_owned(),
                    };
                    for (flag, token) in Flags::new(&raw[first.len() + 3..line - 2]) {
                        match flag {
                            b'f' => text.push_str(&format!(" f{client}")),
                            b'c' => text.push_str(&format!(" c{cas}")),
                            b's' => text.push_str(&format!(" s{}", value.len())),
                            b't' => text.push_str(" t-1"),
                            b'k' => text.push_str(&format!(" k{}", String::from_utf8_lossy(&key))),
                            b'O' => text.push_str(&format!(" O{}", String::from_utf8_lossy(token))),
                            _ => {}
                        }
                    }
                    say(&[text.as_bytes(), b"\r\n"].concat(), false);
                    if flags.has(b'v') {
                        say(&[&value[..], b"\r\n"].concat(), false);
                    }
                }
            },
            Verb::MetaNoop => say(b"MN\r\n", false),
            Verb::FlushAll => {
                self.store.clear();
                say(b"OK\r\n", true);
            }
            Verb::Stats => say(b"STAT pid 1\r\nSTAT time 2\r\nEND\r\n", false),
            Verb::Version => say(b"VERSION 1\r\n", false),
            _ => say(b"ERROR\r\n", false),
        }
    }

    fn binary(&mut self, requests: &Requests, opcode: u8, raw: &[u8], reply: &mut Vec<u8>) {
        let key = requests.keys().first().map_or(&[][..], |key| &raw[key.clone()]);
        let (status, value) = match requests.verb() {
            Verb::Get => match self.store.get(key) {
                Some((_, _, value)) => (0, value.clone()),
                None => (1, Vec::new()),
            },
            Verb::Set => {
                let start = raw.len() - requests.data_len() as usize;
                self.set(key, 0, &raw[start..]);
                (0, Vec::new())
            }
            Verb::Delete => (u8::from(self.store.remove(key).is_none()), Vec::new()),
            _ => (0, Vec::new()),
        };
        // Quiet reads say what they find, quiet writes what fails.
        let is_said = match requests.verb() {
            Verb::Get => status == 0,
            _ => status != 0,
        };
        if !requests.is_quiet() || is_said {
            let extras: &[u8] =
                if requests.verb() == Verb::Get && status == 0 { &[0; 4] } else { b"" };
            reply.extend(binary(0x81, opcode, status, extras, b"", &value));
        }
    }
}

fn binary(magic: u8, opcode: u8, status: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 24];
    (bytes[0], bytes[1], bytes[4], bytes[7]) = (magic, opcode, extras.len() as u8, status);
    bytes[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    let body = (extras.len() + key.len() + value.len()) as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    [&bytes[..], extras, key, value].concat()
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let key = || prop::sample::select(vec!["a", "b", "c", "other"]);
    let tail = || prop::sample::select(vec!["", " noreply"]);
    let meta = || {
        prop::sample::select(vec![
            "",
            " v",
            " v q",
            " k v f c",
            " s O1 q",
            " v t",
            " v N30",
            " f c s k O77 v",
        ])
    };
    let reads = prop_oneof![
        key().prop_map(|key| format!("get {key}\r\n")),
        (key(), key()).prop_map(|(key, other)| format!("gets {key} {other}\r\n")),
        (key(), meta()).prop_map(|(key, flags)| format!("mg {key}{flags}\r\n")),
        Just("mg YQ== b v\r\n".to_owned()),
    ];
    let writes = prop_oneof![
        (key(), 0..9u32, "[x\r\n]{0,9}", tail()).prop_map(|(key, flags, value, tail)| {
            format!("set {key} {flags} 0 {}{tail}\r\n{value}\r\n", value.len())
        }),
        (key(), "[x]{0,9}")
            .prop_map(|(key, value)| { format!("ms {key} {} q\r\n{value}\r\n", value.len()) }),
        Just("ms YQ== 1 b\r\nz\r\n".to_owned()),
        (key(), tail()).prop_map(|(key, tail)| format!("delete {key}{tail}\r\n")),
        key().prop_map(|key| format!("md {key} q\r\n")),
        key().prop_map(|key| format!("incr {key} 1 noreply\r\n")),
        key().prop_map(|key| format!("touch {key} 0\r\n")),
        tail().prop_map(|tail| format!("flush_all{tail}\r\n")),
    ];
    let rest =
        prop::sample::select(vec!["mn\r\n", "stats\r\n", "version\r\n", "bogus\r\n", "\r\n"])
            .prop_map(str::to_owned);
    prop_oneof![4 => reads, 3 => writes, 1 => rest].prop_map(String::into_bytes)
}

fn any_binary() -> impl Strategy<Value = Vec<u8>> {
    let key = prop::sample::select(vec!["a", "b", "c", "other"]);
    (prop::sample::select(vec![0u8, 9, 1, 0x11, 4, 0x14, 0x0a, 0x0b]), key).prop_map(
        |(opcode, key)| {
            let (extras, key, value): (&[u8], _, &[u8]) = match opcode {
                1 | 0x11 => (&[0; 8], key, b"value"),
                0x0a | 0x0b => (b"", "", b""),
                _ => (b"", key, b""),
            };
            binary(0x80, opcode, 0, extras, key.as_bytes(), value)
        },
    )
}

/// What happens next: bytes of either side, or a fill.
#[derive(Clone, Debug)]
enum Step {
    Client(usize),
    Server(usize),
    Fill(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..60usize).prop_map(Step::Client),
        4 => (1..60usize).prop_map(Step::Server),
        1 => (0..KEYS.len()).prop_map(Step::Fill),
    ];
    prop::collection::vec(step, 0..120)
}

/// Runs requests through a session before a model, cut as the steps say; returns what the client
/// got, what it had got from a model that it asks itself, and the hits.
fn through(requests: &[u8], steps: &[Step], order: Order) -> (Vec<u8>, Vec<u8>, u64) {
    let (mut rig, mut behind, mut direct) =
        (Rig::new(Protocol::Memcached, order), Model::new(), Model::new());
    direct.take(requests);
    let (mut got, mut rest) = (Vec::new(), requests);
    let all = steps.iter().cloned().chain(std::iter::repeat_n(Step::Server(usize::MAX), 3));
    for (at, step) in all.enumerate() {
        match step {
            Step::Client(count) => {
                let (bytes, later) = rest.split_at(count.min(rest.len()));
                assert!(rig.client(bytes));
                rest = later;
            }
            Step::Server(count) => {
                let count = count.min(behind.out.len());
                let bytes: Vec<u8> = behind.out.drain(..count).collect();
                assert!(rig.server(&bytes), "{}", bytes.escape_ascii());
            }
            Step::Fill(at) => {
                let stored = behind.store.get(KEYS[at]);
                let words =
                    stored.map(|(flags, cas, value)| format!("{flags} {} {cas}", value.len()));
                let value = stored.map(|(_, _, value)| [value, &b"\r\n"[..]].concat());
                let item = words.as_ref().zip(value.as_ref()).map(|(words, value)| Item {
                    words: words.as_bytes(),
                    is_base64: false,
                    value,
                });
                rig.fill_item(KEYS[at], item);
            }
        }
        if at + 1 >= steps.len() && !rest.is_empty() {
            assert!(rig.client(std::mem::take(&mut rest)));
        }
        behind.take(&drain(rig.session.for_server()));
        got.extend(drain(rig.session.for_client()));
    }
    assert!(rig.session.owes_nothing());
    let hits = rig.totals.hits;
    rig.end();
    (got, direct.out.into(), hits)
}

proptest! {
    #[test]
    fn a_client_gets_what_the_server_would_have_said(
        requests in prop::collection::vec(any_text(), 0..40),
        steps in steps(),
        is_strict in any::<bool>(),
    ) {
        let order = if is_strict { Order::Connection } else { Order::Key };
        let (got, wanted, _) = through(&requests.concat(), &steps, order);
        prop_assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    }

    #[test]
    fn binary_requests_pass(
        requests in prop::collection::vec(any_binary(), 0..40),
        steps in steps(),
    ) {
        let (got, wanted, hits) = through(&requests.concat(), &steps, Order::Key);
        prop_assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string());
        prop_assert_eq!(hits, 0);
    }

    #[test]
    fn no_bytes_break_a_session(data in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::proxy::session::rig::torture(&data);
    }
}

const ITEM: Item<'_> = Item { words: b"5 2 17", is_base64: false, value: b"hi\r\n" };

/// A session before a cache that knows `a`, and that `b` is absent.
fn rig() -> Rig {
    let mut rig = Rig::new(Protocol::Memcached, Order::Key);
    rig.fill_item(b"a", Some(ITEM));
    rig.fill_item(b"b", None);
    rig
}

/// What goes to either side.
#[track_caller]
fn sides(rig: &mut Rig, to_client: &str, to_server: &str) {
    let client = drain(rig.session.for_client());
    let server = drain(rig.session.for_server());
    assert_eq!(client.escape_ascii().to_string(), to_client.as_bytes().escape_ascii().to_string());
    assert_eq!(server.escape_ascii().to_string(), to_server.as_bytes().escape_ascii().to_string());
}

#[test]
fn reads_of_what_is_cached_are_answered_here() {
    for (request, reply) in [
        ("get a\r\n", "VALUE a 5 2\r\nhi\r\nEND\r\n"),
        ("get b\r\n", "END\r\n"),
        ("gets b a a\r\n", "VALUE a 5 2 17\r\nhi\r\nVALUE a 5 2 17\r\nhi\r\nEND\r\n"),
        ("mg a v f c\r\n", "VA 2 f5 c17\r\nhi\r\n"),
        ("mg YQ== b k v\r\n", "VA 2 ka\r\nhi\r\n"),
        ("mg b v\r\n", "EN\r\n"),
        ("mg b v q\r\n", ""),
    ] {
        let mut rig = rig();
        for cut in 0..request.len() {
            assert!(rig.client(&request.as_bytes()[..cut]));
            assert!(rig.client(&request.as_bytes()[cut..]));
            sides(&mut rig, reply, "");
        }
        assert_eq!(rig.totals.hits, request.len() as u64);
        rig.end();
    }
    for request in
        ["get a c\r\n", "mg a t\r\n", "mg a v N30\r\n", "mg b k v\r\n", "gat 9 a\r\n", "me a\r\n"]
    {
        let mut rig = rig();
        assert!(rig.client(request.as_bytes()));
        sides(&mut rig, "", request);
        assert_eq!((rig.totals.hits, rig.totals.forwarded), (0, 1), "{request}");
        rig.end();
    }
}

#[test]
fn no_ops_end_quiet_requests() {
    let mut rig = rig();
    // One from here, whose reply is not passed, in whatever pieces it comes.
    assert!(rig.client(b"set c 0 0 1 noreply\r\nx\r\nmd c q\r\n"));
    sides(&mut rig, "", "set c 0 0 1 noreply\r\nx\r\nmd c q\r\nmn\r\n");
    assert!(!rig.session.owes_nothing());
    b"NF\r\nMN\r\n".iter().for_each(|byte| assert!(rig.server(&[*byte])));
    sides(&mut rig, "NF\r\n", "");
    assert!(rig.session.owes_nothing());
    // The client's own.
    assert!(rig.client(b"mg c v q\r\nmn\r\nmg c v\r\n"));
    sides(&mut rig, "", "mg c v q\r\nmn\r\nmg c v\r\n");
    assert!(rig.server(b"MN\r\nEN\r\n"));
    sides(&mut rig, "MN\r\nEN\r\n", "");
    // A hit behind a quiet request waits for the replies before it.
    assert!(rig.client(b"mg c v q\r\nget a\r\nmn\r\n"));
    sides(&mut rig, "", "mg c v q\r\nmn\r\nmn\r\n");
    assert!(rig.server(b"VA 1\r\nx\r\nMN\r\n"));
    sides(&mut rig, "VA 1\r\nx\r\nVALUE a 5 2\r\nhi\r\nEND\r\n", "");
    assert!(rig.server(b"MN\r\n"));
    sides(&mut rig, "MN\r\n", "");
    rig.end();
    // Binary.
    let mut rig = self::rig();
    let quiet = binary(0x80, 0x11, 0, &[0; 8], b"c", b"x");
    assert!(rig.client(&quiet));
    assert_eq!(drain(rig.session.for_server()), [&quiet[..], BINARY_NOOP].concat());
    assert!(rig.server(&binary(0x81, 0x0a, 0, b"", b"", b"")));
    assert!(drain(rig.session.for_client()).is_empty() && rig.session.owes_nothing());
    rig.end();
}

/// memcached would drop the reply to the one before.
#[test]
fn a_list_with_a_long_key_waits_for_all_replies() {
    let mut rig = rig();
    let long = format!("get a {}\r\nget a\r\n", "k".repeat(251));
    assert!(rig.client(b"delete c\r\nmd c q\r\n"));
    assert!(rig.client(long.as_bytes()));
    sides(&mut rig, "", "delete c\r\nmd c q\r\nmn\r\n");
    assert!(rig.server(b"DELETED\r\n"));
    sides(&mut rig, "DELETED\r\n", "");
    assert!(rig.server(b"MN\r\n"));
    sides(&mut rig, "", &long);
    assert!(rig.server(b"CLIENT_ERROR bad command line format\r\nEND\r\n"));
    assert!(rig.session.owes_nothing());
    rig.end();
}

#[test]
fn a_key_is_out_until_its_write_is_answered() {
    for (write, reply) in [
        (&b"set a 0 0 1\r\nx\r\n"[..], &b"STORED\r\n"[..]),
        (b"set a 0 0 1 noreply\r\nx\r\n", b"MN\r\n"),
        (b"ms YQ== 1 b\r\nx\r\n", b"HD\r\n"),
        (b"md a q\r\n", b"MN\r\n"),
        (b"ma a\r\n", b"HD\r\n"),
        (b"mg a v T30\r\n", b"EN\r\n"),
        (b"mg a N30\r\n", b"EN\r\n"),
        (b"gat 9 c a\r\n", b"END\r\n"),
        (b"touch a 9\r\n", b"TOUCHED\r\n"),
        (b"delete a\r\n", b"DELETED\r\n"),
        (b"decr a 1\r\n", b"0\r\n"),
        (b"cas a 0 0 1 7\r\nx\r\n", b"EXISTS\r\n"),
        (b"append a 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"flush_all\r\n", b"OK\r\n"),
        (b"flush_all noreply\r\n", b"MN\r\n"),
        (b"bogus\r\n", b"ERROR\r\n"),
    ] {
        let mut rig = rig();
        let name = write.escape_ascii();
        assert!(rig.client(write));
        rig.fill_item(b"a", Some(ITEM));
        // Of another connection: the word of the key says it, and not this session's filter.
        assert!(!rig.would_hit(b"a"), "{name}");
        assert!(rig.server(reply));
        assert!(!rig.would_hit(b"a"), "{name}: the value of before");
        rig.fill_item(b"a", Some(ITEM));
        assert!(rig.would_hit(b"a"), "{name}: it is out for good");
        rig.end();
    }
    let mut rig = rig();
    assert!(rig.client(b"get c\r\nmg c v t\r\nstats\r\nverbosity 1\r\nme a\r\n"));
    assert!(rig.would_hit(b"a"));
    rig.end();
}

/// The key of a value that comes in parts is marked before its first part goes on.
#[test]
fn long_values_pass_in_parts() {
    for head in ["set a 0 0 300000 noreply\r\n", "ms a 300000 q\r\n", "set a 0 0 300000\r\n"] {
        let mut rig = rig();
        assert!(rig.client(b"md c q\r\n"));
        sides(&mut rig, "", "md c q\r\nmn\r\n");
        let bytes = [head.as_bytes(), &vec![b'v'; 300_000], b"\r\n"].concat();
        let mut passed = Vec::new();
        for part in bytes.chunks(50_000) {
            assert!(rig.client(part));
            passed.extend(drain(rig.session.for_server()));
            assert!(passed.is_empty() || !rig.would_hit(b"a"));
        }
        let is_quiet = head.contains('q') || head.contains("noreply");
        assert_eq!(passed, [&bytes[..], if is_quiet { NOOP } else { b"" }].concat());
        assert!(rig.server(if is_quiet { b"MN\r\nMN\r\n" } else { b"MN\r\nSTORED\r\n" }));
        assert!(rig.session.owes_nothing());
        rig.end();
    }
    // A list of more keys than are held.
    let mut rig = rig();
    let line = ["gat 0".to_owned(), " c".repeat(5000), " a\r\n".to_owned()].concat();
    assert!(rig.client(line.as_bytes()));
    assert_eq!(drain(rig.session.for_server()), line.as_bytes());
    assert!(!rig.would_hit(b"a"));
    assert!(rig.server(b"END\r\n"));
    rig.end();
}

#[test]
fn what_is_no_request_ends_the_connection_after_all_before() {
    let mut rig = rig();
    assert!(rig.client(b"get c\r\nget a\0\r\n"));
    assert_eq!(rig.session.end(), Some(End::Refused));
    sides(&mut rig, "", "get c\r\n");
    assert!(rig.server(b"END\r\n"));
    sides(&mut rig, "END\r\nCLIENT_ERROR line has a NUL\r\n", "");
    rig.end();
    // What nothing has asked for passes, and the connection ends.
    let mut rig = self::rig();
    assert!(rig.server(b"ERROR Too many open connections\r\n"));
    assert_eq!(rig.session.end(), Some(End::Unasked));
    sides(&mut rig, "ERROR Too many open connections\r\n", "");
    rig.end();
    // The server reads nothing behind it.
    let mut rig = self::rig();
    assert!(rig.client(b"get a\r\nquit\r\nset a 0 0 1\r\n"));
    sides(&mut rig, "VALUE a 5 2\r\nhi\r\nEND\r\n", "quit\r\n");
    assert!(rig.would_hit(b"a"));
    rig.end();
}

#[test]
fn a_watcher_gets_lines_and_no_hits() {
    let mut rig = rig();
    assert!(rig.client(b"watch fetchers\r\nget a\r\n"));
    sides(&mut rig, "", "watch fetchers\r\nget a\r\n");
    assert!(rig.server(b"OK\r\nts=1 type=item_get\n"));
    assert!(rig.client(b"get a\r\n"));
    sides(&mut rig, "OK\r\nts=1 type=item_get\n", "get a\r\n");
    assert!(rig.session.blocks());
    rig.end();
    let mut rig = self::rig();
    assert!(rig.client(b"watch\r\nget a\r\n"));
    assert!(rig.server(b"ERROR\r\nEND\r\n"));
    drain(rig.session.for_server());
    assert!(rig.client(b"get a\r\n"));
    sides(&mut rig, "ERROR\r\nEND\r\nVALUE a 5 2\r\nhi\r\nEND\r\n", "");
    rig.end();
}
