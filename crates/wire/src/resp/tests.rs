use super::*;
use crate::scan::{BUFFER_MIN, LINE_MAX, Part, Scan, Step};
use crate::testing::resp::{
    naive_replies, naive_requests, scan_replies, scan_requests, without_long,
};
use proptest::prelude::*;

const OPEN: Limits = Limits { bulk_len_max: 1 << 20, unauthenticated: false };
const CLOSED: Limits = Limits { unauthenticated: true, ..OPEN };

/// Scans byte by byte, cut at every place, and streamed in rooms of all sizes.
fn every_way(bytes: &[u8], limits: Limits) {
    let naive = || naive_requests(bytes, limits);
    let whole = scan_requests(bytes, [], usize::MAX, limits);
    assert_eq!(whole, naive());
    assert_eq!(scan_requests(bytes, 1..bytes.len(), usize::MAX, limits), whole);
    for cut in 0..=bytes.len() {
        assert_eq!(scan_requests(bytes, [cut], usize::MAX, limits), whole, "cut at {cut}");
    }
    for room in [0, 1, 7, 20] {
        let streamed = scan_requests(bytes, 1..bytes.len(), room, limits);
        assert_eq!(without_long(naive(), &streamed), streamed, "room {room}");
    }
}

#[test]
fn requests_are_split_as_redis_splits_them() {
    // Bytes, arguments of the requests, words of the refusal: as Redis 7.0.15 answered them.
    type Fixture = (&'static [u8], &'static [&'static [&'static str]], Option<&'static str>);
    const INLINE: Option<&str> = Some("unbalanced quotes in request");
    const COUNT: Option<&str> = Some("invalid multibulk length");
    const BULK: Option<&str> = Some("invalid bulk length");
    let fixtures: &[Fixture] = &[
        (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[&["GET", "k"]], None),
        (b"*1\r\n$0\r\n\r\nPING\r\n", &[&[""], &["PING"]], None),
        (b"*0\r\n*-1\r\n*-5\r\nPING\r\n", &[&[], &[], &[], &["PING"]], None),
        (b"\r\n \r\n\nPING\n", &[&[], &[], &[], &["PING"]], None),
        (b"*1\rX$4\rXPINGxxPING\r\n", &[&["PING"], &["PING"]], None),
        (b"*\r\n", &[], COUNT),
        (b"*-0\r\n", &[], COUNT),
        (b"*+1\r\n", &[], COUNT),
        (b"*01\r\n", &[], COUNT),
        (b"* 1\r\n", &[], COUNT),
        (b"*-\r\n", &[], COUNT),
        (b"*1a\r\n", &[], COUNT),
        (b"*2147483647\r\n", &[], None),
        (b"*2147483648\r\n", &[], COUNT),
        (b"*-9223372036854775808\r\n", &[&[]], None),
        (b"*-9223372036854775809\r\n", &[], COUNT),
        (b"*9223372036854775808\r\n", &[], COUNT),
        (b"*18446744073709551617\r\n", &[], COUNT),
        (b"*1\r\n\r\n", &[], Some("expected '$', got '\r'")),
        (b"*1\r\n\n\r\n", &[], Some("expected '$', got '\n'")),
        (b"*1\r\n+PING\r\n", &[], Some("expected '$', got '+'")),
        (b"*1\r\n\xff\r\n", &[], Some("expected '$', got '\u{ff}'")),
        (b"*1\r\n$-1\r\n", &[], BULK),
        (b"*1\r\n$\r\n", &[], BULK),
        (b"*1\r\n$1048577\r\n", &[], BULK),
        (b"*1\r\n$1048576\r\n", &[], None),
        (b"PING \"a\r\n", &[], INLINE),
        (b"PING \"a\"b\r\n", &[], INLINE),
        (b"PING 'a'b\r\n", &[], INLINE),
        (b"PING 'a\r\n", &[], INLINE),
        (b"PING \"\\\"\r\n", &[], INLINE),
        (b"PING \"\\\r\n", &[], INLINE),
        (b"PING 'a\\'b' ''\r\n", &[&["PING", "a'b", ""]], None),
        (b"PING '\\n'\r\n", &[&["PING", "\\n"]], None),
        (b"PING \"\\x41\\n\\r\\t\\b\\a\\q\\x4g\"\r\n", &[&["PING", "A\n\r\t\x08\x07qx4g"]], None),
        (b"PING a\"b c\"\r\n", &[&["PING", "ab c"]], None),
        (b"ECHO 'a\"'\n", &[&["ECHO", "a\""]], None),
        (b"PING a\x0bb \x0b\"a\"\x0b\r\n", &[&["PING", "a\x0bb", "a"]], None),
        (b"PING a\rb\r\n", &[&["PING", "a", "b"]], None),
        (b"PING a\r\r\n", &[&["PING", "a"]], None),
        (b"PI\0NG\r\nPING\r\n", &[], None),
        (b"\0PING\r\n", &[], None),
        (b"*1\r\n\0\r\n", &[], None),
    ];
    for &(bytes, requests, refused) in fixtures {
        let read = scan_requests(bytes, [], usize::MAX, OPEN);
        let args: Vec<Vec<&[u8]>> = read
            .requests
            .iter()
            .map(|(_, args)| args.iter().map(|arg| arg.as_deref().expect("short")).collect())
            .collect();
        let wanted: Vec<Vec<&[u8]>> =
            requests.iter().map(|args| args.iter().map(|arg| arg.as_bytes()).collect()).collect();
        assert_eq!(args, wanted, "{}", bytes.escape_ascii());
        let refused = refused.map(|words| format!("ERR Protocol error: {words}"));
        assert_eq!(read.refused, refused, "{}", bytes.escape_ascii());
        every_way(bytes, OPEN);
    }
}

#[test]
fn limits_before_the_login_are_lower() {
    let read = |bytes: &[u8]| scan_requests(bytes, [], usize::MAX, CLOSED).refused;
    let refused = |words: &str| Some(format!("ERR Protocol error: unauthenticated {words} length"));
    assert_eq!(read(b"*10\r\n$16384\r\n"), None);
    assert_eq!(read(b"*11\r\n"), refused("multibulk"));
    assert_eq!(read(b"*10\r\n$16385\r\n"), refused("bulk"));
    every_way(b"*1\r\n$16385\r\n", CLOSED);
    let mut scanner = Requests::new(CLOSED);
    assert_eq!(scanner.scan(b"*11\r\n"), Err(RequestError::UnauthenticatedCount));
    scanner.set_limits(OPEN);
    assert_eq!(scanner.scan(b"*11\r\n"), Ok(Scan::Partial));
}

#[test]
fn lines_are_refused_past_64_kib() {
    let heads: [(&[u8], u8, &str); 3] = [
        (b"", b'\n', "too big inline request"),
        (b"*", b'\r', "too big mbulk count string"),
        (b"*1\r\n$", b'\r', "too big bulk count string"),
    ];
    for (head, end, words) in heads {
        let before = head.len() - usize::from(!head.is_empty());
        let before = if before > 1 { before } else { 0 };
        for (fill, refused) in [(LINE_MAX, false), (LINE_MAX + 1, true)] {
            let mut bytes = head.to_vec();
            bytes.resize(before + fill, b'1');
            bytes.extend([end, b'\n']);
            let steps = || (0..bytes.len()).step_by(997);
            let read = scan_requests(&bytes, [], usize::MAX, OPEN);
            let is_big = read.refused.as_ref().is_some_and(|text| text.ends_with(words));
            assert_eq!(is_big, refused, "{words}: {:?}", read.refused);
            assert_eq!(read, naive_requests(&bytes, OPEN));
            assert_eq!(scan_requests(&bytes, steps(), usize::MAX, OPEN), read);
            // Without its end, one byte more than the limit is enough.
            let cut = &bytes[..bytes.len() - 2];
            assert_eq!(scan_requests(cut, [], usize::MAX, OPEN).refused.is_some(), refused);
        }
    }
}

#[test]
fn long_requests_are_streamed_with_every_argument() {
    // Long values between short ones, and more arguments than the scanner holds.
    let long = vec![b'v'; 3 * BUFFER_MIN];
    let mut args: Vec<&[u8]> = vec![b"MSET"];
    for at in 0..3 * ARGS_MAX {
        args.push(b"key");
        args.push(if at % 1000 == 999 { &long } else { &long[..at % 40] });
    }
    let mut bytes = Vec::new();
    command(&args, &mut bytes);
    command(&["PING"], &mut bytes);
    for step in [1000, 4096, 16384, 70_000] {
        for room in [0, 100, BUFFER_MIN - 1] {
            let cuts = (step..bytes.len()).step_by(step);
            let streamed = scan_requests(&bytes, cuts, room, OPEN);
            let missing = streamed.requests[0].1.iter().filter(|arg| arg.is_none()).count();
            assert_eq!(missing, 3);
            let whole = naive_requests(&bytes, OPEN);
            assert_eq!(without_long(whole, &streamed), streamed, "step {step}, room {room}");
        }
    }
}

#[test]
fn a_streamed_argument_is_named_once_and_skipped() {
    let mut scanner = Requests::new(OPEN);
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$40000\r\nvv";
    assert_eq!(scanner.scan(head), Ok(Scan::Partial));
    assert_eq!(scanner.take(head), Part { len: head.len(), long: Some(2) });
    assert_eq!(scanner.args(), [8..11, 17..18]);
    let middle = vec![b'v'; 39_998];
    assert_eq!(scanner.scan(&middle), Ok(Scan::Partial));
    assert_eq!(scanner.take(&middle), Part { len: middle.len(), long: None });
    assert_eq!(scanner.args(), []);
    assert_eq!(scanner.scan(b"\r"), Ok(Scan::Partial));
    assert_eq!(scanner.scan(b"\r\n*"), Ok(Scan::Whole { len: 2 }));
    assert_eq!((scanner.first(), scanner.args().len()), (3, 0));
    // A short one stays in the buffer, without its length.
    let short = b"*1\r\n$4\r\nPI";
    assert_eq!(scanner.scan(short), Ok(Scan::Partial));
    assert_eq!(scanner.take(short), Part { len: 8, long: None });
    assert_eq!(scanner.scan(b"PING\r\n"), Ok(Scan::Whole { len: 6 }));
    assert_eq!((scanner.first(), scanner.request(b"PING\r\n").arg(0)), (0, Some(&b"PING"[..])));
    // A caller that gives fewer bytes than before learns nothing, and nothing panics.
    assert_eq!(scanner.scan(b"*1\r\n$4\r\nPI"), Ok(Scan::Partial));
    assert_eq!(scanner.scan(b"*1"), Ok(Scan::Partial));
    assert_eq!(scanner.take(b"*1"), Part { len: 0, long: None });
}

#[test]
fn a_line_that_arrives_byte_by_byte_is_read_once() {
    // Quadratic, these are 2·10⁹ and 5·10¹¹ bytes, and take minutes.
    let mut inline = vec![b'x'; LINE_MAX];
    inline.push(b'\n');
    let mut scanner = Requests::new(OPEN);
    for len in 1..inline.len() {
        assert_eq!(scanner.scan(&inline[..len]), Ok(Scan::Partial));
        assert_eq!(scanner.searched, len);
        // In vain: the line stays in the buffer, and what was searched is known.
        assert_eq!(scanner.take(&inline[..len]), Part { len: 0, long: None });
        assert_eq!(scanner.searched, len);
    }
    assert_eq!(scanner.scan(&inline), Ok(Scan::Whole { len: inline.len() }));
    let mut bulk = Vec::new();
    command(&[vec![b'x'; 1 << 20]], &mut bulk);
    let mut scanner = Requests::new(OPEN);
    for len in 1..bulk.len() {
        assert_eq!(scanner.scan(&bulk[..len]), Ok(Scan::Partial));
        assert!(scanner.searched <= 14);
    }
    assert_eq!(scanner.scan(&bulk), Ok(Scan::Whole { len: bulk.len() }));
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop_oneof![
        "[a-c\"' \\\\x0-9\t]{0,5}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    let bulk = prop::collection::vec(arg, 0..4).prop_map(|args| {
        let mut out = Vec::new();
        command(&args, &mut out);
        out
    });
    let line = "[a-c\"' \\\\xn0-9\t]{0,12}\r?\n".prop_map(String::into_bytes);
    prop::collection::vec(prop_oneof![3 => bulk, 2 => line], 0..5).prop_map(|all| all.concat())
}

/// Changes to a stream: where, and to what.
fn any_changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![
        prop::sample::select(b"\r\n\0*$+-:0123456789?%~|>.;\"'\\ ".to_vec()),
        any::<u8>()
    ];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 0..3)
}

fn change(bytes: &mut [u8], changes: &[(prop::sample::Index, u8)]) {
    for (at, byte) in changes {
        if !bytes.is_empty() {
            bytes[at.index(bytes.len())] = *byte;
        }
    }
}

/// Values of all kinds, written as RESP3, and what [`tree`] reads.
fn any_reply() -> impl Strategy<Value = (Vec<u8>, Value<'static>)> {
    let line = |text: String| [text.as_bytes(), b"\r\n"].concat();
    let bytes = || prop::collection::vec(any::<u8>(), 0..9);
    let blob = |kind: char, text: &[u8]| {
        [format!("{kind}{}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
    };
    let leaf = prop_oneof![
        Just((b"+OK\r\n".to_vec(), Value::Simple(b"OK"))),
        Just((b"-ERR \rx\r\n".to_vec(), Value::Error(b"ERR \rx"[..].into()))),
        any::<i64>().prop_map(move |n| (line(format!(":{n}")), Value::Integer(n))),
        any::<u32>().prop_map(move |n| (line(format!(":+{n}")), Value::Integer(n.into()))),
        bytes().prop_map(move |text| (blob('$', &text), Value::Bulk(text.into()))),
        bytes().prop_map(move |text| (blob('!', &text), Value::Error(text.into()))),
        bytes().prop_map(|text| {
            let mut out = b"$?\r\n".to_vec();
            for piece in text.chunks(3) {
                out.extend(format!(";{}\r\n", piece.len()).as_bytes());
                out.extend([piece, b"\r\n"].concat());
            }
            out.extend(b";0\r\n");
            (out, Value::Bulk(text.into()))
        }),
        Just((b"=7\r\ntxt:a\r\n\r\n".to_vec(), Value::Verbatim(*b"txt", b"a\r\n"))),
        prop::sample::select(vec![&b"_\r\n"[..], b"$-1\r\n", b"*-1\r\n"])
            .prop_map(|text| (text.to_vec(), Value::Null)),
        any::<bool>().prop_map(|truth| {
            (if truth { &b"#t\r\n"[..] } else { b"#f\r\n" }.to_vec(), Value::Boolean(truth))
        }),
        Just((b",-1.5e3\r\n".to_vec(), Value::Double(b"-1.5e3"))),
        Just((b",inf\r\n".to_vec(), Value::Double(b"inf"))),
        Just((b"(123456789012345678901234567890\r\n".to_vec(), {
            Value::Big(b"123456789012345678901234567890")
        })),
    ];
    let inner = |value: BoxedStrategy<(Vec<u8>, Value<'static>)>| {
        let values = || prop::collection::vec(value.clone(), 0..4);
        let aggregate = |kind: &str, count: usize, endless: bool, parts: Vec<Vec<u8>>| {
            if endless {
                [format!("{kind}?\r\n").into_bytes(), parts.concat(), b".\r\n".to_vec()].concat()
            } else {
                [format!("{kind}{count}\r\n").into_bytes(), parts.concat()].concat()
            }
        };
        let list = (values(), any::<bool>(), any::<bool>()).prop_map(move |(all, endless, set)| {
            let (parts, all): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let kind = if set { "~" } else { "*" };
            let bytes = aggregate(kind, all.len(), endless, parts);
            (bytes, if set { Value::Set(all) } else { Value::Array(all) })
        });
        let pairs = || prop::collection::vec((value.clone(), value.clone()), 0..3);
        let map = (pairs(), any::<bool>()).prop_map(move |(all, endless)| {
            let parts = all.iter().map(|(k, v)| [&k.0[..], &v.0].concat()).collect();
            let bytes = aggregate("%", all.len(), endless, parts);
            (bytes, Value::Map(all.into_iter().map(|(k, v)| (k.1, v.1)).collect()))
        });
        let attributed = (pairs(), value.clone()).prop_map(|(all, value)| {
            let parts: Vec<u8> = all.iter().flat_map(|(k, v)| [&k.0[..], &v.0].concat()).collect();
            let head = format!("|{}\r\n", all.len()).into_bytes();
            ([head, parts, value.0].concat(), value.1)
        });
        prop_oneof![list, map, attributed]
    };
    let value = leaf.boxed().prop_recursive(3, 12, 4, inner);
    prop_oneof![
        4 => value.clone(),
        1 => prop::collection::vec(value, 0..4).prop_map(|all| {
            let (parts, all): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let head = format!(">{}\r\n", all.len()).into_bytes();
            ([head, parts.concat()].concat(), Value::Push(all))
        }),
    ]
}

proptest! {
    #[test]
    fn requests_are_the_same_however_they_arrive(
        mut bytes in any_stream(), changes in any_changes(), closed: bool,
    ) {
        every_way(&bytes, if closed { CLOSED } else { OPEN });
        change(&mut bytes, &changes);
        every_way(&bytes, OPEN);
    }

    #[test]
    fn what_is_written_is_scanned(args in prop::collection::vec(any::<Vec<u8>>(), 0..9)) {
        let mut bytes = Vec::new();
        command(&args, &mut bytes);
        let mut scanner = Requests::new(OPEN);
        prop_assert_eq!(scanner.scan(&bytes), Ok(Scan::Whole { len: bytes.len() }));
        let request = scanner.request(&bytes);
        prop_assert_eq!(request.args().map(<[u8]>::to_vec).collect::<Vec<_>>(), args);
    }

    #[test]
    fn replies_are_the_same_however_they_arrive(
        replies in prop::collection::vec(any_reply(), 0..4), changes in any_changes(),
    ) {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for (written, value) in &replies {
            let read = tree(written);
            prop_assert_eq!(read.as_ref(), Ok(&(value.clone(), written.len())));
            bytes.extend(written);
            ends.push(bytes.len());
            // A translation has only types of RESP2, and translates to itself.
            if let Some(old) = to_resp2(written, Null::Bulk) {
                prop_assert_eq!(to_resp2(&old, Null::Bulk), Some(old.clone()));
                prop_assert_eq!(scan_replies(&old, []).replies[0].0, old.len());
            } else {
                prop_assert!(matches!(value, Value::Push(_)));
            }
        }
        let whole = scan_replies(&bytes, []);
        prop_assert_eq!(whole.replies.iter().map(|(end, _)| *end).collect::<Vec<_>>(), ends);
        change(&mut bytes, &changes);
        let whole = scan_replies(&bytes, []);
        prop_assert_eq!(&whole, &naive_replies(&bytes));
        prop_assert_eq!(&scan_replies(&bytes, 1..bytes.len()), &whole);
        for cut in 0..bytes.len() {
            prop_assert_eq!(&scan_replies(&bytes, [cut]), &whole);
        }
    }
}

#[test]
fn malformed_replies_are_refused_by_name() {
    use ReplyError::{BulkEnd, Kind, Line, Nested, Number, Place, Unfinished};
    let deep = |depth| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    let long = |kind: char, len| format!("{kind}{}\r\n", "1".repeat(len)).into_bytes();
    let fixtures: &[(&[u8], Result<usize, ReplyError>)] = &[
        (b"+OK\r\n", Ok(5)),
        (b"+O\rK\n\r\n", Ok(7)),
        (b"+OK\r", Err(Unfinished)),
        (b"\r\n", Err(Kind(b'\r'))),
        (b"OK\r\n", Err(Kind(b'O'))),
        (b":\r\n", Err(Number)),
        (b":1a\r\n", Err(Number)),
        (b":+1\r\n", Ok(5)),
        (b":-0\r\n", Err(Number)),
        (b"$-1\r\n", Ok(5)),
        (b"$-2\r\n", Err(Number)),
        (b"!-1\r\n", Err(Number)),
        (b"$1\r\na\r\n", Ok(7)),
        (b"$1\r\nab\r\n", Err(BulkEnd)),
        (b"$1\r\na\rb", Err(BulkEnd)),
        (b"$1099511627777\r\n", Err(Number)),
        (b"$1099511627776\r\n", Err(Unfinished)),
        (b"=3\r\ntxt\r\n", Err(Number)),
        (b"=4\r\ntxt:\r\n", Ok(10)),
        (b"*2147483648\r\n", Err(Number)),
        (b"*2147483647\r\n", Err(Unfinished)),
        (b"%1073741824\r\n", Err(Number)),
        (b"%1073741823\r\n", Err(Unfinished)),
        (b"%-1\r\n", Err(Number)),
        (b"_\r\n", Ok(3)),
        (b"_x\r\n", Err(Number)),
        (b"#x\r\n", Err(Number)),
        (b",\r\n", Err(Number)),
        (b",1.5x\r\n", Err(Number)),
        (b",nan\r\n", Ok(6)),
        (b"*1\r\n>0\r\n", Err(Place)),
        (b">0\r\n", Ok(4)),
        (b".\r\n", Err(Place)),
        (b"*1\r\n.\r\n", Err(Place)),
        (b"*?\r\n.\r\n", Ok(7)),
        (b"%?\r\n:1\r\n.\r\n", Err(Place)),
        (b"%?\r\n:1\r\n:2\r\n.\r\n", Ok(15)),
        (b">?\r\n", Err(Number)),
        (b"|0\r\n|0\r\n:1\r\n", Ok(12)),
        (b"*?\r\n|0\r\n.\r\n", Err(Place)),
        (b"*1\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n", Ok(22)),
        (b"$?\r\n;1\r\na\r\n;0\r\n", Ok(15)),
        (b"$?\r\n:1\r\n", Err(Number)),
        (b";1\r\n", Err(Kind(b';'))),
        (&deep(32), Ok(132)),
        (&deep(33), Err(Nested)),
        (&long(':', 18), Ok(21)),
        (&long(':', 61), Err(Number)),
        (&long(':', 62), Err(Line)),
        (&long(':', 1000), Err(Line)),
        (&long(':', 1000)[..64], Err(Line)),
        (&long(':', 1000)[..63], Err(Unfinished)),
        (&long('(', 1000), Ok(1003)),
        // Past its first bytes, no line is checked.
        (&[&long('(', 63)[..64], b"x\r\n"].concat(), Ok(67)),
        (&[&long('(', 62)[..63], b"x\r\n"].concat(), Err(Number)),
        (&long('+', 100_000), Ok(100_003)),
    ];
    for (bytes, wanted) in fixtures {
        assert_eq!(tree(bytes).map(|(_, len)| len), *wanted, "{}", bytes.escape_ascii());
        let whole = scan_replies(bytes, []);
        assert_eq!(whole, naive_replies(bytes), "{}", bytes.escape_ascii());
        assert_eq!(scan_replies(bytes, 1..bytes.len()), whole, "{}", bytes.escape_ascii());
    }
    let many = [format!("*{}\r\n", ELEMENTS_MAX - 1).into_bytes(), b"_\r\n".repeat(ELEMENTS_MAX)];
    assert!(tree(&many.concat()).is_ok());
    let many = [format!("*{ELEMENTS_MAX}\r\n").into_bytes(), b"_\r\n".repeat(ELEMENTS_MAX)];
    assert_eq!(tree(&many.concat()).map(|(_, len)| len), Err(Unfinished));
    // A chain of attributes needs no stack.
    let chain = b"|0\r\n".repeat(ELEMENTS_MAX - 1);
    assert!(tree(&[&chain[..], b"_\r\n"].concat()).is_ok());
}

#[test]
fn the_first_line_of_a_reply_is_kept() {
    let mut scanner = Replies::new();
    let bytes = b"|1\r\n+a\r\n+b\r\n-MOVED 1 x:1\r\n>1\r\n+x\r\n";
    assert_eq!(scanner.scan(&bytes[..14]), Ok(Step { len: 14, end: false }));
    assert_eq!((scanner.kind(), scanner.is_idle()), (None, false));
    assert_eq!(scanner.scan(&bytes[14..]), Ok(Step { len: 12, end: true }));
    assert_eq!((scanner.head(), scanner.kind()), (&b"-MOVED 1 x:1"[..], Some(b'-')));
    assert_eq!(scanner.scan(&[]), Ok(Step { len: 0, end: false }));
    assert_eq!((scanner.kind(), scanner.is_push()), (Some(b'-'), false));
    assert_eq!(scanner.scan(&bytes[26..]), Ok(Step { len: 8, end: true }));
    assert!(scanner.is_push() && scanner.is_idle());
}

#[test]
fn replies_are_translated_to_resp2() {
    let fixtures: &[(&[u8], Option<&[u8]>)] = &[
        (b"_\r\n", Some(b"$-1\r\n")),
        (b",1.5\r\n", Some(b"$3\r\n1.5\r\n")),
        (b"#t\r\n", Some(b":1\r\n")),
        (b"#f\r\n", Some(b":0\r\n")),
        (b"(12\r\n", Some(b"$2\r\n12\r\n")),
        (b"=5\r\ntxt:a\r\n", Some(b"$1\r\na\r\n")),
        (b"!5\r\nERR\rx\r\n", Some(b"-ERR x\r\n")),
        (b"-ERR x\r\n", Some(b"-ERR x\r\n")),
        (b"%1\r\n+a\r\n~2\r\n:1\r\n_\r\n", Some(b"*2\r\n+a\r\n*2\r\n:1\r\n$-1\r\n")),
        (b"|1\r\n+a\r\n+b\r\n*1\r\n|0\r\n:1\r\n", Some(b"*1\r\n:1\r\n")),
        (b"*?\r\n$?\r\n;1\r\na\r\n;1\r\nb\r\n;0\r\n.\r\n", Some(b"*1\r\n$2\r\nab\r\n")),
        (b">1\r\n:1\r\n", None),
        (b":1\r\n:2\r\n", None),
        (b":1\r", None),
    ];
    for (new, old) in fixtures {
        assert_eq!(to_resp2(new, Null::Bulk).as_deref(), *old, "{}", new.escape_ascii());
    }
    assert_eq!(to_resp2(b"_\r\n", Null::Array).as_deref(), Some(&b"*-1\r\n"[..]));
}

#[test]
fn trees_are_looked_up() {
    let (hello, _) =
        tree(b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n").expect("whole");
    assert_eq!(hello.get(b"server").and_then(Value::text), Some(&b"redis"[..]));
    assert_eq!(hello.get(b"proto").and_then(Value::integer), Some(3));
    assert_eq!((hello.get(b"redis"), hello.elements()), (None, None));
    let (old, _) = tree(b"*4\r\n+a\r\n+b\r\n+b\r\n:1\r\n").expect("whole");
    assert_eq!(old.get(b"b").and_then(Value::integer), Some(1));
    assert_eq!(old.elements().map(<[_]>::len), Some(4));
    let mut out = Vec::new();
    simple("O\r\nK", &mut out);
    error("ERR no", &mut out);
    integer(-7, &mut out);
    bulk(b"\r\n", &mut out);
    assert_eq!(out, b"+O  K\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n");
}
