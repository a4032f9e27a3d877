use super::*;
use crate::scan::{BUFFER_MIN, LINE_MAX, Part, Scan, Step};
use crate::testing::memcached::{naive_replies, naive_requests, scan_replies, scan_requests};
use proptest::prelude::*;

/// Scans byte by byte, cut at every place, and streamed in rooms of all sizes.
fn every_way(bytes: &[u8]) {
    let naive = naive_requests(bytes);
    assert_eq!(scan_requests(bytes, [], usize::MAX), naive, "{}", bytes.escape_ascii());
    assert_eq!(scan_requests(bytes, 1..bytes.len(), usize::MAX), naive);
    for cut in 0..=bytes.len() {
        assert_eq!(scan_requests(bytes, [cut], usize::MAX), naive, "cut at {cut}");
    }
    for room in [0, 1, 7, 20] {
        assert_eq!(scan_requests(bytes, 1..bytes.len(), room), naive, "room {room}");
    }
}

fn replies_every_way(bytes: &[u8]) {
    let naive = naive_replies(bytes);
    assert_eq!(scan_replies(bytes, []), naive, "{}", bytes.escape_ascii());
    assert_eq!(scan_replies(bytes, 1..bytes.len()), naive, "{}", bytes.escape_ascii());
    for cut in 0..=bytes.len() {
        assert_eq!(scan_replies(bytes, [cut]), naive, "cut at {cut}");
    }
}

/// A binary request or reply.
fn binary(magic: u8, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    (bytes[0], bytes[1], bytes[4]) = (magic, opcode, extras.len() as u8);
    bytes[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    let body = (extras.len() + key.len() + value.len()) as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    [&bytes, extras, key, value].concat()
}

#[test]
fn text_requests_end_where_memcached_ends_them() {
    // Line, verb, keys, quiet, length of the data if memcached 1.6.18 reads any.
    type Fixture<'a> = (&'a str, Verb, &'a [&'a str], bool, Option<u64>);
    let long = "k".repeat(251);
    let flags = |count: usize| format!("ms k 3{}", " I".repeat(count));
    let (few, many) = (flags(16), flags(17));
    let (set_long, ms_long) = (format!("set {long} 0 0 3"), format!("ms {long} 3"));
    let fixtures: &[Fixture] = &[
        ("get k", Verb::Get, &["k"], false, None),
        ("gets  a b  c ", Verb::Gets, &["a", "b", "c"], false, None),
        ("gat 0 a b", Verb::Gat, &["a", "b"], false, None),
        ("gats  5", Verb::Gats, &[], false, None),
        ("get noreply", Verb::Get, &["noreply"], false, None),
        ("  get a", Verb::Get, &["a"], false, None),
        ("get", Verb::Get, &[], false, None),
        ("GET k", Verb::Other, &[], false, None),
        ("", Verb::Other, &[], false, None),
        ("set k 0 0 3", Verb::Set, &["k"], false, Some(3)),
        ("set  k  0  0 3 ", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 3 noreply", Verb::Set, &["k"], true, Some(3)),
        ("set k 0 0 3 foo", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 3 a b", Verb::Set, &["k"], false, None),
        ("set k 0 0", Verb::Set, &["k"], false, None),
        ("set k 0 0 +3", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 3\t9", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 \x0b3", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 3x", Verb::Set, &["k"], false, None),
        ("set k 0 0 -1", Verb::Set, &["k"], false, None),
        ("set k 0 0 4294967299", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 0 2147483646", Verb::Set, &["k"], false, None),
        ("set k 0 2147483648 3", Verb::Set, &["k"], false, Some(3)),
        ("set k 0 9223372036854775808 3", Verb::Set, &["k"], false, None),
        ("set k x 0 3", Verb::Set, &["k"], false, None),
        ("set k 0x1 0 3", Verb::Set, &["k"], false, None),
        ("set k -1 0 3", Verb::Set, &["k"], false, None),
        ("set k 18446744073709551615 0 3", Verb::Set, &["k"], false, Some(3)),
        ("set k 18446744073709551616 0 3", Verb::Set, &["k"], false, None),
        ("set k -18446744073709551615 0 3", Verb::Set, &["k"], false, Some(3)),
        (&set_long, Verb::Set, &[&long], false, None),
        ("add k 0 0 0", Verb::Add, &["k"], false, Some(0)),
        ("replace k 0 0 1", Verb::Replace, &["k"], false, Some(1)),
        ("append k 0 0 1", Verb::Append, &["k"], false, Some(1)),
        ("prepend k 0 0 1", Verb::Prepend, &["k"], false, Some(1)),
        ("cas k 0 0 3 1", Verb::Cas, &["k"], false, Some(3)),
        ("cas k 0 0 3 1 noreply", Verb::Cas, &["k"], true, Some(3)),
        ("cas k 0 0 3", Verb::Cas, &["k"], false, None),
        ("cas k 0 0 3 x", Verb::Cas, &["k"], false, None),
        ("cas k 0 0 3 -1", Verb::Cas, &["k"], false, None),
        ("delete k noreply", Verb::Delete, &["k"], true, None),
        ("incr k 1", Verb::Incr, &["k"], false, None),
        ("decr k 1 noreply", Verb::Decr, &["k"], true, None),
        ("touch k 0", Verb::Touch, &["k"], false, None),
        ("delete", Verb::Delete, &[], false, None),
        ("mg k v q O1", Verb::MetaGet, &["k"], true, None),
        ("mg q v", Verb::MetaGet, &["q"], false, None),
        ("ms k 3", Verb::MetaSet, &["k"], false, Some(3)),
        ("ms k 3 T0 q", Verb::MetaSet, &["k"], true, Some(3)),
        ("ms k 3\t q", Verb::MetaSet, &["k"], true, Some(3)),
        ("ms k S3", Verb::MetaSet, &["k"], false, None),
        ("ms k", Verb::MetaSet, &["k"], false, None),
        ("ms k -1", Verb::MetaSet, &["k"], false, None),
        ("ms k 4294967299", Verb::MetaSet, &["k"], false, Some(3)),
        (&few, Verb::MetaSet, &["k"], false, Some(3)),
        (&many, Verb::MetaSet, &["k"], false, None),
        (&ms_long, Verb::MetaSet, &[&long], false, None),
        ("md k q", Verb::MetaDelete, &["k"], true, None),
        ("ma k N0", Verb::MetaArithmetic, &["k"], false, None),
        ("me k", Verb::MetaDebug, &["k"], false, None),
        ("mn", Verb::MetaNoop, &[], false, None),
        ("flush_all 10 noreply", Verb::FlushAll, &[], true, None),
        ("version", Verb::Version, &[], false, None),
        ("verbosity 1", Verb::Verbosity, &[], false, None),
        ("stats items", Verb::Stats, &[], false, None),
        ("quit", Verb::Quit, &[], false, None),
        ("shutdown", Verb::Shutdown, &[], false, None),
        ("slabs automove 1 noreply", Verb::Slabs, &[], true, None),
        ("lru mode flat", Verb::Lru, &[], false, None),
        ("lru_crawler metadump all", Verb::LruCrawler, &[], false, None),
        ("cache_memlimit 64", Verb::CacheMemlimit, &[], false, None),
        ("watch fetchers", Verb::Watch, &[], false, None),
    ];
    for &(line, verb, keys, quiet, data) in fixtures {
        for line_end in ["\r\n", "\n"] {
            let head = [line, line_end].concat();
            let value = data.map_or(String::new(), |len| "x".repeat(len as usize) + "\r\n");
            let bytes = [&head, &value[..], "mn\r\n"].concat();
            let mut scanner = Requests::new();
            let len = head.len() + value.len();
            assert_eq!(scanner.scan(bytes.as_bytes()), Ok(Scan::Whole { len }), "{line}");
            let found: Vec<&str> = scanner.keys().iter().map(|key| &bytes[key.clone()]).collect();
            assert_eq!((scanner.verb(), &found[..]), (verb, keys), "{line}");
            let read = (scanner.is_quiet(), scanner.data_len());
            assert_eq!(read, (quiet, data.unwrap_or(0)), "{line}");
            assert_eq!(scanner.protocol(), Some(Protocol::Text));
            every_way(bytes.as_bytes());
        }
    }
}

#[test]
fn requests_say_which_replies_they_get() {
    let text = |line: &[u8]| {
        let mut scanner = Requests::new();
        assert!(matches!(scanner.scan(line), Ok(Scan::Whole { .. })));
        scanner.expect()
    };
    assert_eq!(text(b"get k\r\n"), Expect::One);
    assert_eq!(text(b"mg k q\r\n"), Expect::Maybe);
    assert_eq!(text(b"delete k noreply\r\n"), Expect::Maybe);
    assert_eq!(text(b"shutdown\r\n"), Expect::Maybe);
    assert_eq!(text(b"quit\r\n"), Expect::Never);
    assert_eq!(text(b"watch\r\n"), Expect::Endless);
    assert_eq!(text(&binary(0x80, 0x07, b"", b"", b"")), Expect::One);
    assert_eq!(text(&binary(0x80, 0x17, b"", b"", b"")), Expect::Never);
    assert_eq!(text(&binary(0x80, 0x11, &[0; 8], b"k", b"v")), Expect::Maybe);
    let written = [Verb::Set, Verb::Gat, Verb::Touch, Verb::MetaDelete, Verb::Cas, Verb::Incr];
    assert!(written.iter().all(|verb| verb.writes_key()));
    let read = [Verb::Get, Verb::Gets, Verb::MetaGet, Verb::MetaDebug, Verb::FlushAll, Verb::Stats];
    assert!(!read.iter().any(|verb| verb.writes_key()));
}

#[test]
fn binary_requests_are_read_by_their_header() {
    let all = [
        binary(0x80, 0x01, &[0; 8], b"key", b"value"),
        binary(0x80, 0x0d, b"", b"k", b""),
        binary(0x80, 0x10, b"", b"items", b""),
        binary(0x80, 0x21, b"", b"PLAIN", b"\0user\0word"),
        binary(0x80, 0x04, b"", &[b'k'; 251], b""),
        binary(0x80, 0x0a, b"", b"", b""),
    ];
    let bytes = all.concat();
    let read = scan_requests(&bytes, [], usize::MAX);
    let keys: Vec<_> = read.requests.iter().map(|request| request.1.concat()).collect();
    assert_eq!(keys, [&b"key"[..], b"k", b"", b"", b"", b""]);
    let rest: Vec<_> = read.requests.iter().map(|&(_, _, quiet, len)| (quiet, len)).collect();
    assert_eq!(rest, [(false, 5), (true, 0), (false, 0), (false, 10), (false, 0), (false, 0)]);
    every_way(&bytes);
    for opcode in 0..=u8::MAX {
        every_way(&binary(0x80, opcode, b"e", b"k", b"v"));
    }
    let mut scanner = Requests::new();
    assert_eq!(scanner.scan(&all[0]), Ok(Scan::Whole { len: all[0].len() }));
    assert_eq!((scanner.opcode(), scanner.verb()), (Some(1), Verb::Set));
    assert_eq!(scanner.scan(b"get k\r\n"), Err(RequestError::Magic));
    let mut short = all[0].clone();
    short[11] = 10;
    assert_eq!(Requests::new().scan(&short), Err(RequestError::Length));
    assert_eq!(scan_requests(b"mn\r\n\x80\r\nmn\r\n", [], 0).requests.len(), 3, "text for good");
}

#[test]
fn lines_and_keys_are_bounded() {
    let line = |len: usize| [b"version ".repeat(len / 8), b"x".repeat(len % 8)].concat();
    let read = |bytes: &[u8]| {
        let whole = scan_requests(bytes, [], usize::MAX);
        assert_eq!(whole, naive_requests(bytes));
        assert_eq!(scan_requests(bytes, (0..bytes.len()).step_by(991), usize::MAX), whole);
        whole.refused
    };
    assert_eq!(read(&[line(LINE_MAX), b"\n".to_vec()].concat()), None);
    assert_eq!(read(&[line(LINE_MAX + 1), b"\n".to_vec()].concat()), Some(RequestError::Long));
    assert_eq!(read(&line(LINE_MAX)), None);
    assert_eq!(read(&line(LINE_MAX + 1)), Some(RequestError::Long));
    assert_eq!(read(&b" ".repeat(LINE_MAX + 1)), Some(RequestError::Long));
    assert_eq!(read(&b"x".repeat(LINE_MAX + 1)), Some(RequestError::Long));
    assert_eq!(read(&[b"get ", &b"k".repeat(2048)[..], b"\n"].concat()), None);
    assert_eq!(read(&[b"get ", &b"k".repeat(2049)[..]].concat()), Some(RequestError::Long));
    for nul in [&b"get\0"[..], b"get k\0", b"\0", b"set k\0 0 0 1\r\n"] {
        assert_eq!(read(nul), Some(RequestError::Nul));
        every_way(nul);
    }
}

#[test]
fn long_requests_are_streamed_with_every_key() {
    let mut bytes = b"get".to_vec();
    for at in 0..3 * KEYS_MAX {
        bytes.extend(format!(" key:{at}").as_bytes());
    }
    bytes.extend(b"\r\nset k 0 0 200000\r\n");
    bytes.extend(vec![b'v'; 200_000]);
    bytes.extend(b"\r\nget ");
    bytes.extend(b"a ".repeat(BUFFER_MIN));
    bytes.extend(b"\r\n");
    let naive = naive_requests(&bytes);
    assert_eq!(naive.requests.iter().map(|request| request.1.len()).sum::<usize>(), 68_610);
    for step in [1000, 16384, 70_000] {
        for room in [0, 100, BUFFER_MIN - 1] {
            let cuts = (step..bytes.len()).step_by(step);
            assert_eq!(scan_requests(&bytes, cuts, room), naive, "step {step}, room {room}");
        }
    }
    // The verb and what is known of a request outlast its keys.
    let mut scanner = Requests::new();
    let head = b"ms k 9 T1 q b\r\n12";
    assert_eq!(scanner.scan(head), Ok(Scan::Partial));
    assert_eq!(scanner.take(head), Part { len: head.len(), long: None });
    assert_eq!((scanner.keys().len(), scanner.keys()[0].clone()), (1, 3..4));
    let flags: Vec<_> = scanner.flags(head).collect();
    assert_eq!(flags, [(b'T', &b"1"[..]), (b'q', b""), (b'b', b"")]);
    assert!(scanner.flags(head).has(b'b') && !scanner.flags(head).has(b'1'));
    assert_eq!(scanner.scan(b"3456789\r\nmn"), Ok(Scan::Whole { len: 9 }));
    assert_eq!((scanner.verb(), scanner.is_quiet()), (Verb::MetaSet, true));
    assert_eq!((scanner.keys().len(), scanner.flags(head).count()), (0, 0));
    // A caller that gives fewer bytes than before learns nothing, and nothing panics.
    assert_eq!(scanner.scan(b"version"), Ok(Scan::Partial));
    assert_eq!(scanner.scan(b"ver"), Ok(Scan::Partial));
    assert_eq!(scanner.take(b"ver"), Part { len: 0, long: None });
}

#[test]
fn a_line_that_arrives_byte_by_byte_is_read_once() {
    for head in [&b"x"[..], b"version "] {
        let line = [head, &vec![b'x'; LINE_MAX - head.len()], b"\n"].concat();
        let mut scanner = Requests::new();
        for len in 1..line.len() {
            assert_eq!(scanner.scan(&line[..len]), Ok(Scan::Partial));
            assert!(scanner.searched + 1 >= len);
            // In vain: the line stays in the buffer, and what was searched is known.
            assert_eq!(scanner.take(&line[..len]), Part { len: 0, long: None });
            assert!(scanner.searched + 1 >= len);
        }
        assert_eq!(scanner.scan(&line), Ok(Scan::Whole { len: line.len() }));
    }
}

#[test]
fn keys_are_decoded_as_memcached_decodes_them() {
    let fixtures: &[(&str, Option<&[u8]>)] = &[
        ("Zm9v", Some(b"foo")),
        ("Zm8=", Some(b"fo")),
        ("Zg==", Some(b"f")),
        ("Zh==", Some(b"f")),
        ("+/AB", Some(b"\xfb\xf0\x01")),
        ("Zm9vZg==Zm9v", Some(b"foof")),
        ("", None),
        ("Zg", None),
        ("Zm8", None),
        ("Zm-_", None),
        ("Z===", None),
        ("****", None),
    ];
    let mut out = [0; KEY_MAX];
    for (text, key) in fixtures {
        assert_eq!(decode_key(text.as_bytes(), &mut out), *key, "{text}");
    }
    for len in 0..9 {
        let key: Vec<u8> = (0..len).map(|at| 255 - 31 * at).collect();
        let mut text = Vec::new();
        encode_key(&key, &mut text);
        let decoded = if key.is_empty() { None } else { Some(&key[..]) };
        assert_eq!(decode_key(&text, &mut out), decoded, "{}", text.escape_ascii());
    }
    assert_eq!(decode_key("A".repeat(248).as_bytes(), &mut out).map(<[u8]>::len), Some(186));
    assert_eq!(decode_key("A".repeat(252).as_bytes(), &mut out), None);
}

#[test]
fn replies_end_by_their_first_word() {
    use ReplyError::{Header, Length, Line, List, ValueEnd};
    let stats = [
        binary(0x81, 0x10, b"", b"pid", b"1"),
        binary(0x81, 0x10, b"", b"time", b"22"),
        binary(0x81, 0x10, b"", b"", b""),
    ];
    let (found, cut) = (binary(0x81, 0, &[0; 4], b"", b"v"), binary(0x81, 0, b"", b"k", b""));
    let wrong = [&stats[0][..], b"END\r\n", &[0; 24]].concat();
    let mut short = cut.clone();
    short[11] = 0;
    let long = |len: usize| [b"STAT ", &b"x".repeat(len - 7)[..], b"\r\nEND\r\n"].concat();
    let va = |len: usize| [b"VA 1 ", &b"x".repeat(len - 7)[..], b"\r\nv\r\n"].concat();
    let fixtures: &[(&[u8], usize, Option<ReplyError>)] = &[
        (b"STORED\r\nVERSION 1.6.18\r\n5\r\n\r\nOK\n", 5, None),
        (b"VALUE k 0 3\r\nEND\r\nEND\r\n", 1, None),
        (b"VALUE k 0 1 7\r\na\r\nVALUE j 0 0\r\n\r\nEND\r\nEND\r\n", 2, None),
        (b"VALUE k 0 1\r\na\r\nSERVER_ERROR out of memory writing get response\r\n", 1, None),
        (b"VALUE k 0 1\r\na\r\nSTORED\r\n", 0, Some(List)),
        (b"VALUE k 0 1\r\na\r\nVA 1\r\na\r\n", 0, Some(List)),
        (b"VALUE k 0 1\r\nab", 0, Some(ValueEnd)),
        (b"VALUE k 0 1\r\na\rb", 0, Some(ValueEnd)),
        (b"VALUE k 0\r\n", 0, Some(Length)),
        (b"VALUE k 0 -1\r\n", 0, Some(Length)),
        (b"VALUE k 0 +1\r\n", 0, Some(Length)),
        (b"VALUE k 0 4294967296\r\n", 0, Some(Length)),
        (b"VALUE k 0 4294967295\r\n", 0, None),
        (b"VA 3 t1 f0\r\nEN\n\r\nEN\r\nHD\r\nMN\r\n", 4, None),
        (b"VA x\r\n", 0, Some(Length)),
        (b"ME k exp=-1 la=0\r\n", 1, None),
        (b"STAT pid 1\r\nSTAT time 2\r\nEND\r\nRESET\r\n", 2, None),
        (b"STAT pid 1\r\nVALUE k 0 1\r\n", 0, Some(List)),
        (b"ITEM k [1 b; 0 s]\r\nEND\r\nPREFIX a get 1\r\nEND\r\n", 2, None),
        (b"key=a exp=-1\nkey=b exp=-1\nEND\r\n", 1, None),
        (b"mg a\r\nmg b\r\nEN\r\n", 1, None),
        (b"CLIENT_ERROR bad data chunk\r\nERROR\r\n", 2, None),
        (&stats.concat(), 1, None),
        (&found, 1, None),
        (&cut, 1, None),
        (&short, 0, Some(Header)),
        (&wrong, 0, Some(Header)),
        (&long(LINE_MAX), 1, None),
        (&long(LINE_MAX + 1), 0, Some(Line)),
        (&long(LINE_MAX + 1)[..LINE_MAX], 0, Some(Line)),
        (&long(LINE_MAX + 1)[..LINE_MAX - 1], 0, None),
        (&va(512), 1, None),
        (&va(513), 0, Some(Line)),
    ];
    for &(bytes, count, refused) in fixtures {
        let read = scan_replies(bytes, []);
        let name = bytes[..bytes.len().min(80)].escape_ascii();
        assert_eq!((read.replies.len(), read.refused), (count, refused), "{name}");
        if bytes.len() < 600 {
            replies_every_way(bytes);
        } else {
            assert_eq!(read, naive_replies(bytes), "{name}");
            assert_eq!(scan_replies(bytes, 1..bytes.len()), read, "{name}");
        }
    }
}

#[test]
fn the_first_line_of_a_reply_is_kept() {
    let mut scanner = Replies::new();
    let bytes = b"VALUE k 0 1\r\na\r\nEND\r\nMN\r\n";
    assert_eq!(scanner.scan(&bytes[..20]), Ok(Step { len: 20, end: false }));
    assert_eq!((scanner.head(), scanner.is_idle()), (&b"VALUE k 0 1"[..], false));
    assert_eq!(scanner.scan(&bytes[20..]), Ok(Step { len: 1, end: true }));
    assert_eq!((scanner.head(), scanner.is_idle()), (&b"VALUE k 0 1"[..], true));
    assert_eq!(scanner.scan(&bytes[21..]), Ok(Step { len: 4, end: true }));
    assert_eq!(scanner.head(), b"MN");
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let verb = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "set",
        "add",
        "cas",
        "delete",
        "incr",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "mn",
        "flush_all",
        "quit",
        "GET",
    ]);
    let word = prop_oneof![
        "[a-c]{1,3}",
        "[0-4]",
        "[-+]?[0-9]{1,3}\t?",
        prop::sample::select(vec!["noreply", "q", "b", "T1", "4294967297", "", "\r", "\u{b}1"])
            .prop_map(str::to_owned),
    ];
    let words = prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "));
    let wild = (verb, words, "[x\r\n]{0,5}", "\r?\n")
        .prop_map(|(verb, words, data, end)| format!("{verb} {words}{end}{data}\r\n").into_bytes());
    let right = ("(set|add|cas|ms)", "[ab]{1,2}", any::<bool>(), "[x\r\n]{0,5}").prop_map(
        |(verb, key, quiet, data)| {
            let (len, q) = (data.len(), if quiet { " q" } else { "" });
            let noreply = if quiet { " noreply" } else { "" };
            match &verb[..] {
                "ms" => format!("ms {key} {len}{q}\r\n{data}\r\n"),
                "cas" => format!("cas {key} 0 0 {len} 1{noreply}\r\n{data}\r\n"),
                _ => format!("{verb} {key} 0 0 {len}{noreply}\r\n{data}\r\n"),
            }
            .into_bytes()
        },
    );
    prop_oneof![wild, right]
}

fn any_binary(magic: u8) -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..5);
    (0..0x28u8, bytes(), bytes(), bytes())
        .prop_map(move |(opcode, extras, key, value)| binary(magic, opcode, &extras, &key, &value))
}

fn any_reply() -> impl Strategy<Value = Vec<u8>> {
    let value = |head: String, data: String| format!("{head} {}\r\n{data}\r\n", data.len());
    let values = prop::collection::vec("[x\r\n]{0,4}", 0..3).prop_map(move |all| {
        let all = all.into_iter().map(|data| value("VALUE k 0".to_owned(), data));
        all.collect::<String>() + "END\r\n"
    });
    prop_oneof![
        prop::sample::select(vec![
            "HD\r\n",
            "EN\r\n",
            "STORED\r\n",
            "STAT a 1\r\nEND\r\n",
            "key=a\nEND\r\n",
            "mg a\r\nEN\r\n",
            "ERROR\r\n",
            "12\r\n",
            "ITEM a\r\n",
        ])
        .prop_map(str::to_owned),
        values,
        "[x\r\n]{0,4}".prop_map(move |data| value("VA".to_owned(), data)),
    ]
    .prop_map(String::into_bytes)
}

fn change(bytes: &mut [u8], changes: &[(prop::sample::Index, u8)]) {
    for (at, byte) in changes {
        if !bytes.is_empty() {
            bytes[at.index(bytes.len())] = *byte;
        }
    }
}

fn any_changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![
        prop::sample::select(b"\r\n\0 -+0123456789qbVASTEND\x80\x81".to_vec()),
        any::<u8>()
    ];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 0..3)
}

proptest! {
    #[test]
    fn requests_are_the_same_however_they_arrive(
        text in prop::collection::vec(any_line(), 0..4),
        binary in prop::collection::vec(any_binary(0x80), 0..4),
        changes in any_changes(),
    ) {
        for mut bytes in [text.concat(), binary.concat()] {
            every_way(&bytes);
            change(&mut bytes, &changes);
            every_way(&bytes);
        }
    }

    #[test]
    fn replies_are_the_same_however_they_arrive(
        text in prop::collection::vec(any_reply(), 0..4),
        binary in prop::collection::vec(any_binary(0x81), 0..4),
        changes in any_changes(),
    ) {
        for mut bytes in [text.concat(), binary.concat()] {
            replies_every_way(&bytes);
            change(&mut bytes, &changes);
            replies_every_way(&bytes);
        }
    }
}
