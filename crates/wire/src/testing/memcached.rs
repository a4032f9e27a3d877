//! Naive readers of memcached's requests and replies, and callers that feed streams to the scanners
//! in pieces.

use overbank_wire::memcached::{KEYS_MAX, Replies, ReplyError, RequestError, Requests};
use overbank_wire::scan::{BUFFER_MIN, LINE_MAX, Scan};

/// A request: its end in the stream, its keys, whether it is quiet, and the length of its data.
pub type Named = (usize, Vec<Vec<u8>>, bool, u64);

/// Requests of a stream, and why the rest is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Requested {
    pub requests: Vec<Named>,
    pub refused: Option<RequestError>,
}

/// Reads the whole stream.
pub fn naive_requests(bytes: &[u8]) -> Requested {
    let binary = bytes.first() == Some(&0x80);
    let (mut requests, mut at) = (Vec::new(), 0);
    let refused = loop {
        let rest = &bytes[at..];
        let read = if binary { naive_binary(rest) } else { naive_text(rest) };
        match read {
            Ok(Some((len, keys, quiet, data_len))) => {
                at += len;
                requests.push((at, keys, quiet, data_len));
            }
            Ok(None) => break None,
            Err(why) => break Some(why),
        }
    };
    Requested { requests, refused }
}

fn naive_binary(bytes: &[u8]) -> Result<Option<Named>, RequestError> {
    if bytes.first().is_some_and(|&magic| magic != 0x80) {
        return Err(RequestError::Magic);
    }
    if bytes.len() < 24 {
        return Ok(None);
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0usize, |sum, &b| sum * 256 + usize::from(b));
    let (key, extras, body) = (number(&bytes[2..4]), number(&bytes[4..5]), number(&bytes[8..12]));
    if key + extras > body {
        return Err(RequestError::Length);
    }
    let has_key = matches!(bytes[1], 0..=6 | 9 | 0xc..=0xf | 0x11..=0x16 | 0x19 | 0x1a | 0x1c..=0x1e)
        || matches!(bytes[1], 0x23 | 0x24);
    let quiet = matches!(bytes[1], 9 | 0xd | 0x11..=0x1a | 0x1e | 0x24);
    let Some(whole) = bytes.get(..24 + body) else { return Ok(None) };
    let keys = Some(whole[24 + extras..][..key].to_vec());
    let keys = keys.filter(|key| has_key && (1..=250).contains(&key.len()));
    Ok(Some((whole.len(), keys.into_iter().collect(), quiet, (body - extras - key) as u64)))
}

fn naive_text(bytes: &[u8]) -> Result<Option<Named>, RequestError> {
    let stop = |from: usize, max: usize| -> Result<Option<usize>, RequestError> {
        let is_stop = |byte: &u8| [0, b' ', b'\n'].contains(byte);
        match bytes[from..].iter().position(is_stop) {
            Some(len) if len <= max && bytes[from + len] == 0 => Err(RequestError::Nul),
            Some(len) if len <= max => Ok(Some(from + len)),
            None if bytes.len() - from <= max => Ok(None),
            _ => Err(RequestError::Long),
        }
    };
    let start = bytes.iter().position(|&byte| byte != b' ').unwrap_or(bytes.len());
    if start > LINE_MAX {
        return Err(RequestError::Long);
    }
    let Some(end) = stop(start, LINE_MAX - start)? else { return Ok(None) };
    let name = String::from_utf8_lossy(&bytes[start..end]);
    let name = name.strip_suffix('\r').unwrap_or(&name);
    if ["get", "gets", "gat", "gats"].contains(&name) {
        let (mut words, mut at) = (Vec::new(), end);
        loop {
            let Some(end) = stop(at, 2048)? else { return Ok(None) };
            let mut word = bytes[at..end].to_vec();
            at = end + 1;
            let is_last = bytes[end] == b'\n';
            if is_last && word.last() == Some(&b'\r') {
                word.pop();
            }
            words.push(word);
            if is_last {
                break;
            }
        }
        let keys = words.into_iter().filter(|word| !word.is_empty());
        let ahead = usize::from(name.starts_with("ga"));
        return Ok(Some((at, keys.skip(ahead).collect(), false, 0)));
    }
    let end = match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) if end <= LINE_MAX => end,
        None if bytes.len() <= LINE_MAX => return Ok(None),
        _ => return Err(RequestError::Long),
    };
    let mut line = &bytes[..end];
    if line.contains(&0) {
        return Err(RequestError::Nul);
    }
    line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|w| !w.is_empty()).collect();
    let meta = ["mg", "ms", "md", "ma", "me"].contains(&name);
    let classic = ["set", "add", "replace", "append", "prepend", "cas"].contains(&name);
    let other = ["delete", "incr", "decr", "touch"].contains(&name);
    let keys: Vec<Vec<u8>> = match words.get(1) {
        Some(key) if meta || classic || other => vec![key.to_vec()],
        _ => Vec::new(),
    };
    let flags = words.iter().skip(if name == "ms" { 3 } else { 2 });
    let quiet = if meta {
        flags.into_iter().any(|flag| flag[0] == b'q')
    } else {
        words.last() == Some(&&b"noreply"[..])
    };
    let short = keys.first().is_some_and(|key| key.len() <= 250);
    let data = match (name, words.len()) {
        ("ms", 3..=19) => c_number(words[2]),
        ("cas", 6 | 7) if numbers(&words) && unsigned(words[5]) => c_number(words[4]),
        ("cas" | "ms", _) => None,
        (_, 5 | 6) if classic && numbers(&words) => c_number(words[4]),
        _ => None,
    };
    let signed = |&number: &i128| i64::try_from(number).is_ok();
    let data = data.filter(signed).map(|number| number as i32);
    let data = data.filter(|&len| short && (0..=i32::MAX - 2).contains(&len));
    let Some(data) = data else { return Ok(Some((end + 1, keys, quiet, 0))) };
    let whole = end + 1 + data as usize + 2;
    Ok((whole <= bytes.len()).then_some((whole, keys, quiet, data as u64)))
}

/// Whether the flags and the time of a storage command are numbers for memcached.
fn numbers(words: &[&[u8]]) -> bool {
    unsigned(words[2]) && c_number(words[3]).is_some_and(|number| i64::try_from(number).is_ok())
}

fn unsigned(word: &[u8]) -> bool {
    const ALL: i128 = 1 << 64;
    match c_number(word) {
        Some(number @ 0..) => number < ALL,
        // Negative, and small after it wraps.
        Some(number) => number > -ALL && ALL + number < ALL / 2,
        None => false,
    }
}

/// A number as C reads it: behind space, and up to space.
fn c_number(word: &[u8]) -> Option<i128> {
    let text: String = word.iter().map(|&byte| char::from(byte)).collect();
    let space = ['\t', '\n', '\x0b', '\x0c', '\r'];
    let text = text.trim_start_matches(space).split(space).next()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // Too many digits for this type are too many for memcached.
    text.parse().ok()
}

/// Scans a stream that arrives in pieces which end at `cuts`. A partial request is streamed when
/// more than `room` bytes of it wait. Panics if the scanner breaks its contract.
pub fn scan_requests(
    bytes: &[u8],
    cuts: impl IntoIterator<Item = usize>,
    room: usize,
) -> Requested {
    let mut scanner = Requests::new();
    let (mut requests, mut keys): (Vec<_>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    let mut start = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        loop {
            let buffer = &bytes[start..cut.max(start)];
            let scan = match scanner.scan(buffer) {
                Ok(scan) => scan,
                Err(why) => {
                    assert_eq!(scanner.scan(buffer), Err(why), "an error stays");
                    return Requested { requests, refused: Some(why) };
                }
            };
            assert!(scanner.keys().len() <= KEYS_MAX);
            let len = match scan {
                Scan::Whole { len } => {
                    assert!(len > 0 || scanner.data_len() > 0);
                    len
                }
                Scan::Partial if buffer.len() <= room => break,
                Scan::Partial | Scan::Full => {
                    let len = scanner.take(buffer).len;
                    let stuck = len == 0 && buffer.len() >= BUFFER_MIN;
                    assert!(!stuck && (len > 0 || scan == Scan::Partial), "{scan:?}");
                    len
                }
            };
            assert!(len <= buffer.len());
            assert_eq!(scanner.first(), keys.len());
            keys.extend(scanner.keys().iter().map(|range| buffer[..len][range.clone()].to_vec()));
            start += len;
            match scan {
                Scan::Whole { .. } => {
                    let keys = std::mem::take(&mut keys);
                    requests.push((start, keys, scanner.is_quiet(), scanner.data_len()));
                }
                Scan::Partial => break,
                Scan::Full => {}
            }
        }
    }
    Requested { requests, refused: None }
}

/// Ends of the replies of a stream with the starts of their first lines, and why the rest is
/// refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Replied {
    pub replies: Vec<(usize, Vec<u8>)>,
    pub refused: Option<ReplyError>,
}

/// Reads the whole stream.
pub fn naive_replies(bytes: &[u8]) -> Replied {
    let (mut replies, mut at) = (Vec::new(), 0);
    let refused = loop {
        let rest = &bytes[at..];
        let read = if rest.first() == Some(&0x81) {
            naive_binary_reply(rest)
        } else {
            naive_text_reply(rest)
        };
        match read {
            Ok(Some((len, head))) => {
                at += len;
                replies.push((at, head));
            }
            Ok(None) => break None,
            Err(why) => break Some(why),
        }
    };
    Replied { replies, refused }
}

type Reply = Result<Option<(usize, Vec<u8>)>, ReplyError>;

fn naive_binary_reply(bytes: &[u8]) -> Reply {
    let mut at = 0;
    loop {
        let Some(header) = bytes[at..].first_chunk::<24>() else { return Ok(None) };
        let key = usize::from(header[2]) << 8 | usize::from(header[3]);
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if header[0] != 0x81 || key + usize::from(header[4]) > body {
            return Err(ReplyError::Header);
        }
        at += 24 + body;
        if at > bytes.len() {
            return Ok(None);
        }
        if header[1] != 0x10 || key == 0 {
            return Ok(Some((at, bytes[..24].to_vec())));
        }
    }
}

fn naive_text_reply(bytes: &[u8]) -> Reply {
    let (mut at, mut list, mut head) = (0, "", None);
    loop {
        let rest = &bytes[at..];
        let end = match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) if end < LINE_MAX => end,
            None if rest.len() < LINE_MAX => return Ok(None),
            _ => return Err(ReplyError::Line),
        };
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        head.get_or_insert_with(|| line[..line.len().min(64)].to_vec());
        let text: String = line.iter().map(|&byte| char::from(byte)).collect();
        let kinds = [
            ("VALUE ", "value"),
            ("STAT ", "stat"),
            ("ITEM ", "stat"),
            ("PREFIX ", "stat"),
            ("key=", "key"),
            ("mg ", "key"),
        ];
        let kind = kinds.iter().find(|(with, _)| text.starts_with(with)).map_or("", |kind| kind.1);
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let error = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR"];
        let ends = ["END", "EN"].contains(&&text[..])
            || words.first().is_some_and(|word| error.contains(word));
        if !list.is_empty() && kind != list && !(kind.is_empty() && ends) {
            return Err(ReplyError::List);
        }
        at += end + 1;
        let value = match (kind, text.starts_with("VA ")) {
            ("value", _) => Some(3),
            (_, true) => Some(1),
            _ => None,
        };
        if let Some(word) = value {
            if end + 1 > 512 {
                return Err(ReplyError::Line);
            }
            let digits = words.get(word).filter(|word| !word.starts_with('+'));
            let len: u32 = digits.and_then(|w| w.parse().ok()).ok_or(ReplyError::Length)?;
            for (offset, byte) in [(0, b'\r'), (1, b'\n')] {
                match bytes.get(at + len as usize + offset) {
                    None => return Ok(None),
                    Some(found) if *found != byte => return Err(ReplyError::ValueEnd),
                    Some(_) => {}
                }
            }
            at += len as usize + 2;
        }
        if kind.is_empty() {
            return Ok(Some((at, head.unwrap_or_default())));
        }
        list = kind;
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
                replies.push((at, scanner.head().to_vec()));
            }
            assert_eq!(scanner.is_idle(), step.end);
        }
    }
    Replied { replies, refused: None }
}
