//! A naive reader of RESP requests, and callers that feed streams to the scanners in pieces.

use overbank_wire::resp::{self, ARG_MAX, ARGS_MAX, Limits, Replies, ReplyError, Requests};
use overbank_wire::scan::{BUFFER_MIN, LINE_MAX, Scan};

/// A request: its arguments, of which those are missing that are too long to hand out.
pub type Args = Vec<Option<Vec<u8>>>;

/// Requests of a stream with the offsets of their ends, and what the last bytes are: the start of a
/// request, or what Redis refuses with these words.
#[derive(Debug, PartialEq, Eq)]
pub struct Requested {
    pub requests: Vec<(usize, Args)>,
    pub refused: Option<String>,
}

/// Reads the whole stream, as Redis' source says it.
pub fn naive_requests(bytes: &[u8], limits: Limits) -> Requested {
    let (mut requests, mut at) = (Vec::new(), 0);
    loop {
        match naive_request(&bytes[at..], limits) {
            Ok(Some((len, args))) => {
                at += len;
                requests.push((at, args.into_iter().map(Some).collect()));
            }
            Ok(None) => return Requested { requests, refused: None },
            Err(why) => {
                let refused = Some(format!("ERR Protocol error: {why}"));
                return Requested { requests, refused };
            }
        }
    }
}

type Whole = (usize, Vec<Vec<u8>>);

fn naive_request(bytes: &[u8], limits: Limits) -> Result<Option<Whole>, String> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    if first != b'*' {
        let Some(end) = naive_line(bytes, b'\n', "too big inline request")? else {
            return Ok(None);
        };
        let mut line = &bytes[..end];
        if line.last() == Some(&b'\r') {
            line = &line[..end - 1];
        }
        let args = naive_split(line).ok_or("unbalanced quotes in request")?;
        return Ok(Some((end + 1, args)));
    }
    let Some(end) = naive_line(bytes, b'\r', "too big mbulk count string")? else {
        return Ok(None);
    };
    if bytes.len() < end + 2 {
        return Ok(None);
    }
    let count = naive_number(&bytes[1..end]).filter(|&n| n <= 0x7fff_ffff);
    let count = count.ok_or("invalid multibulk length")?;
    if limits.unauthenticated && count > 10 {
        return Err("unauthenticated multibulk length".to_owned());
    }
    let (mut at, mut args) = (end + 2, Vec::new());
    for _ in 0..count.max(0) {
        let rest = &bytes[at..];
        let Some(end) = naive_line(rest, b'\r', "too big bulk count string")? else {
            return Ok(None);
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        if rest[0] != b'$' {
            return Err(format!("expected '$', got '{}'", char::from(rest[0])));
        }
        let len = naive_number(&rest[1..end]).and_then(|n| u64::try_from(n).ok());
        let len = len.filter(|&n| n <= limits.bulk_len_max).ok_or("invalid bulk length")? as usize;
        if limits.unauthenticated && len > 16384 {
            return Err("unauthenticated bulk length".to_owned());
        }
        if rest.len() < end + 2 + len + 2 {
            return Ok(None);
        }
        args.push(rest[end + 2..end + 2 + len].to_vec());
        at += end + 2 + len + 2;
    }
    Ok(Some((at, args)))
}

fn naive_line(bytes: &[u8], end: u8, big: &str) -> Result<Option<usize>, String> {
    let seen = &bytes[..bytes.len().min(LINE_MAX + 1)];
    let text = seen.split(|&byte| byte == 0).next().unwrap_or_default();
    match text.iter().position(|&byte| byte == end) {
        None if bytes.len() > LINE_MAX => Err(big.to_owned()),
        found => Ok(found),
    }
}

fn naive_number(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn naive_split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let blank = |byte: u8| byte == b' ' || (9..=13).contains(&byte);
    let mut args = Vec::new();
    let mut rest = line;
    loop {
        while let [byte, tail @ ..] = rest
            && blank(*byte)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(args);
        }
        let mut arg = Vec::new();
        loop {
            match rest {
                [] => break,
                [b' ' | b'\t' | b'\r' | b'\n', ..] => break,
                [b'"', tail @ ..] => {
                    rest = quoted(tail, &mut arg)?;
                    if rest.first().is_some_and(|&byte| !blank(byte)) {
                        return None;
                    }
                    break;
                }
                [b'\'', tail @ ..] => {
                    rest = tail;
                    loop {
                        match rest {
                            [] => return None,
                            [b'\\', b'\'', tail @ ..] => (rest, _) = (tail, arg.push(b'\'')),
                            [b'\'', tail @ ..] => break rest = tail,
                            [byte, tail @ ..] => (rest, _) = (tail, arg.push(*byte)),
                        }
                    }
                    if rest.first().is_some_and(|&byte| !blank(byte)) {
                        return None;
                    }
                    break;
                }
                [byte, tail @ ..] => (rest, _) = (tail, arg.push(*byte)),
            }
        }
        args.push(arg);
    }
}

fn quoted<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', a, b, tail @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                let digits = String::from_utf8(vec![*a, *b]).expect("ASCII");
                (u8::from_str_radix(&digits, 16).expect("hexadecimal"), tail)
            }
            [b'\\', b'n', tail @ ..] => (b'\n', tail),
            [b'\\', b'r', tail @ ..] => (b'\r', tail),
            [b'\\', b't', tail @ ..] => (b'\t', tail),
            [b'\\', b'b', tail @ ..] => (8, tail),
            [b'\\', b'a', tail @ ..] => (7, tail),
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (*byte, tail),
        };
        arg.push(byte);
        rest = tail;
    }
}

/// Scans a stream that arrives in pieces which end at `cuts`. A partial request is streamed when
/// more than `room` bytes of it wait. Panics if the scanner breaks its contract.
pub fn scan_requests(
    bytes: &[u8],
    cuts: impl IntoIterator<Item = usize>,
    room: usize,
    limits: Limits,
) -> Requested {
    let mut scanner = Requests::new(limits);
    let (mut requests, mut args): (Vec<_>, Args) = (Vec::new(), Vec::new());
    let mut start = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        loop {
            let buffer = &bytes[start..cut.max(start)];
            let scan = match scanner.scan(buffer) {
                Ok(scan) => scan,
                Err(why) => {
                    assert_eq!(scanner.scan(buffer), Err(why), "an error stays");
                    assert_eq!(reply_of(why), displayed(why));
                    return Requested { requests, refused: Some(why.to_string()) };
                }
            };
            assert!(scanner.args().len() <= ARGS_MAX || scanner.is_inline());
            let part = match scan {
                Scan::Whole { len } => {
                    assert!(len > 0 && len <= buffer.len());
                    assert_eq!(scanner.first(), args.len());
                    args.extend(scanner.request(buffer).args().map(|arg| Some(arg.to_vec())));
                    start += len;
                    requests.push((start, std::mem::take(&mut args)));
                    continue;
                }
                Scan::Partial if buffer.len() <= room => break,
                Scan::Partial | Scan::Full => scanner.take(buffer),
            };
            assert!(part.len <= buffer.len());
            let stuck = part.len == 0 && buffer.len() >= BUFFER_MIN;
            assert!(!stuck && (part.len > 0 || scan == Scan::Partial), "{scan:?}");
            assert_eq!(scanner.first(), args.len());
            for range in scanner.args() {
                assert!(range.end <= part.len);
                args.push(Some(buffer[range.clone()].to_vec()));
            }
            if let Some(long) = part.long {
                assert_eq!(long, args.len());
                args.push(None);
            }
            start += part.len;
            if scan == Scan::Partial {
                break;
            }
        }
    }
    Requested { requests, refused: None }
}

/// Removes from `whole` what `streamed` did not hand out; only long arguments may be missing.
pub fn without_long(mut whole: Requested, streamed: &Requested) -> Requested {
    for ((_, whole), (_, streamed)) in whole.requests.iter_mut().zip(&streamed.requests) {
        for (arg, _) in whole.iter_mut().zip(streamed).filter(|(_, streamed)| streamed.is_none()) {
            assert!(arg.as_ref().is_some_and(|arg| arg.len() > ARG_MAX));
            *arg = None;
        }
    }
    whole
}

fn reply_of(why: resp::RequestError) -> Vec<u8> {
    let mut out = Vec::new();
    why.reply(&mut out);
    out
}

fn displayed(why: resp::RequestError) -> Vec<u8> {
    // Latin-1: the error may quote any byte.
    let text = why.to_string().replace(['\r', '\n'], " ");
    let text: Vec<u8> = text.chars().map(|c| u8::try_from(c).expect("a byte")).collect();
    [b"-", &text[..], b"\r\n"].concat()
}

/// Ends of the replies of a stream with their first lines' starts, and why the rest is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Replied {
    pub replies: Vec<(usize, Vec<u8>)>,
    pub refused: Option<ReplyError>,
}

/// Reads the whole stream with the reader of trees.
pub fn naive_replies(bytes: &[u8]) -> Replied {
    let (mut replies, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match resp::tree(&bytes[at..]) {
            Ok((_, len)) => {
                replies.push((at + len, naive_head(&bytes[at..])));
                at += len;
            }
            Err(ReplyError::Unfinished) => break,
            Err(why) => return Replied { replies, refused: Some(why) },
        }
    }
    Replied { replies, refused: None }
}

/// Returns the start of the first line that belongs to no attribute.
fn naive_head(mut bytes: &[u8]) -> Vec<u8> {
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line");
        let line = &bytes[..end];
        if line[0] != b'|' {
            return line[..end.min(resp::HEAD_MAX)].to_vec();
        }
        bytes = &bytes[end + 2..];
        let pairs: usize = std::str::from_utf8(&line[1..]).expect("digits").parse().expect("count");
        for _ in 0..2 * pairs {
            let (_, len) = resp::tree(bytes).expect("a value");
            bytes = &bytes[len..];
        }
    }
}

/// Scans a stream of replies that arrives in pieces which end at `cuts`.
pub fn scan_replies(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> Replied {
    let mut scanner = Replies::new();
    let (mut replies, mut at) = (Vec::new(), 0);
    for cut in cuts.into_iter().chain([bytes.len()]) {
        while at < cut {
            let step = match scanner.scan(&bytes[at..cut]) {
                Ok(step) => step,
                Err(why) => return Replied { replies, refused: Some(why) },
            };
            assert!(step.len > 0 && at + step.len <= cut && (step.end || at + step.len == cut));
            at += step.len;
            if step.end {
                assert_eq!(scanner.kind(), scanner.head().first().copied());
                replies.push((at, scanner.head().to_vec()));
            }
            assert_eq!(scanner.is_idle(), step.end);
        }
    }
    Replied { replies, refused: None }
}
