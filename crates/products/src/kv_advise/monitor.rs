//! Lines of `redis-cli MONITOR`.
//!
//! ```text
//!   1339518083.107412 [0 127.0.0.1:60866] "get" "a \"key\"\x00"
//!   time              db client           arguments, quoted as Redis' sdscatrepr does it
//! ```
//!
//! A client is an address, `unix:` and a path, or `lua`: a script's call. Nothing panics on any
//! bytes.

use overbank_wire::resp::{Request, split};
use std::io::{self, BufRead};
use std::ops::Range;

/// Bytes of a line that are held. Of a longer one, the arguments before count.
pub const LINE_MAX: usize = 1 << 20;

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    pub db: u32,
    pub client: Vec<u8>,
    text: Vec<u8>,
    args: Vec<Range<usize>>,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Command,
    /// `OK`, as redis-cli prints at the start, or nothing.
    Nothing,
    Bad,
}

impl Line {
    /// Reads a line without its end into this one. Of one that `is_cut`, the last argument is
    /// empty.
    pub fn read(&mut self, line: &[u8], is_cut: bool) -> Read {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if matches!(line, b"" | b"OK") {
            return Read::Nothing;
        }
        let Some(args) = self.head(line) else { return Read::Bad };
        self.text.clear();
        self.args.clear();
        let is_whole = split(args, &mut self.text, &mut self.args);
        if is_cut {
            // What `split` has begun of the last one is behind all ranges.
            self.args.push(0..0);
        }
        let has_name = self.args.len() > usize::from(is_cut);
        if has_name && (is_whole || is_cut) { Read::Command } else { Read::Bad }
    }

    /// Reads all before the arguments; returns these.
    fn head<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (time, rest) = split_once(line, b" [")?;
        self.time_ns = time_ns(time)?;
        let (client, args) = split_once(rest, b"] \"")?;
        let (db, client) = split_once(client, b" ")?;
        self.db = number(db)?.try_into().ok()?;
        self.client.clear();
        self.client.extend_from_slice(client);
        // With the quote.
        line.get(line.len() - args.len() - 1..)
    }

    /// Returns whether a script made the call.
    pub fn is_script(&self) -> bool {
        self.client == b"lua"
    }

    /// Returns the command.
    pub fn request(&self) -> Request<'_> {
        Request::new(&self.text, &self.args)
    }
}

fn split_once<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = bytes.windows(at.len()).position(|window| window == at)?;
    Some((bytes.get(..found)?, bytes.get(found + at.len()..)?))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Reads seconds and six digits of microseconds.
fn time_ns(time: &[u8]) -> Option<u64> {
    let (seconds, micros) = split_once(time, b".")?;
    let (seconds, micros) = (number(seconds)?, number(micros).filter(|_| micros.len() == 6)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(micros * 1000)
}

/// Reads the next line into `line`, of which at most [`LINE_MAX`] bytes are held. Returns the bytes
/// read, and whether the line was longer; no bytes at the end.
pub fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<(usize, bool)> {
    line.clear();
    let (mut read, mut is_cut) = (0, false);
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok((read, is_cut));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = end.unwrap_or(bytes.len());
        let kept = part.min(LINE_MAX - line.len());
        is_cut |= kept < part;
        line.extend_from_slice(&bytes[..kept]);
        let used = part + usize::from(end.is_some());
        read += used;
        input.consume(used);
        if end.is_some() {
            return Ok((read, is_cut));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &[u8]) -> Option<(u64, u32, String, Vec<Vec<u8>>)> {
        let mut into = Line::default();
        (into.read(line, false) == Read::Command).then(|| {
            let args = into.request().args().map(<[u8]>::to_vec).collect();
            (into.time_ns, into.db, String::from_utf8(into.client.clone()).unwrap(), args)
        })
    }

    #[test]
    fn lines_as_redis_prints_them() {
        let (time, db, client, args) =
            read(br#"1339518083.107412 [0 127.0.0.1:60866] "get" "key""#).unwrap();
        assert_eq!((time, db), (1_339_518_083_107_412_000, 0));
        assert_eq!(
            (client.as_str(), args),
            ("127.0.0.1:60866", vec![b"get".to_vec(), b"key".to_vec()])
        );
        for (client, text) in [
            ("[::1]:60866", &br#"5.000001 [15 [::1]:60866] "ping""#[..]),
            ("unix:/tmp/a b.sock", br#"5.000001 [15 unix:/tmp/a b.sock] "ping""#),
            ("lua", b"5.000001 [15 lua] \"ping\"\r"),
        ] {
            let (time, db, named, args) = read(text).unwrap();
            assert_eq!((time, db, named.as_str()), (5_000_001_000, 15, client));
            assert_eq!(args, [b"ping"]);
        }
    }

    #[test]
    fn all_escapes_are_read() {
        let line = br#"1.000000 [0 c:1] "set" "\\\"\n\r\t\a\b\x00\xff\xFE] \"q" "" "\x0""#;
        let (.., args) = read(line).unwrap();
        assert_eq!(args[1], b"\\\"\n\r\t\x07\x08\x00\xff\xfe] \"q");
        assert_eq!(args[2..], [b"".to_vec(), b"x0".to_vec()]);
    }

    #[test]
    fn other_lines_are_bad() {
        for line in [
            "hello",
            "1.000000 [0 c:1]",
            "1.000000 [0 c:1] ",
            "1.000000 [0 c:1] get key",
            "1.000000 [0 c:1] \"get\" \"ke",
            "1.000000 [0 c:1] \"get\"\"key\"",
            "1.00000 [0 c:1] \"get\"",
            "1 [0 c:1] \"get\"",
            "-1.000000 [0 c:1] \"get\"",
            "1.000000 [x c:1] \"get\"",
            "1.000000 [0c:1] \"get\"",
            "99999999999999999999.000000 [0 c:1] \"get\"",
            "18446744073709551615.000000 [0 c:1] \"get\"",
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
        for nothing in ["", "\r", "OK"] {
            assert_eq!(Line::default().read(nothing.as_bytes(), false), Read::Nothing);
        }
    }

    #[test]
    fn long_lines_count_with_the_arguments_that_are_held() {
        let mut text = b"1.000000 [0 c:1] \"set\" \"key\" \"".to_vec();
        text.resize(LINE_MAX + 10, b'v');
        text.extend_from_slice(b"\" \"ex\" \"1\"\n1.000000 [0 c:1] \"ping\"");
        let (mut input, mut line, mut into) = (&text[..], Vec::new(), Line::default());
        assert_eq!(next_line(&mut input, &mut line).unwrap(), (LINE_MAX + 21, true));
        assert_eq!(into.read(&line, true), Read::Command);
        let args: Vec<_> = into.request().args().collect();
        assert_eq!(args, [&b"set"[..], b"key", b""]);
        let (_, is_cut) = next_line(&mut input, &mut line).unwrap();
        assert_eq!((into.read(&line, is_cut), into.request().len()), (Read::Command, 1));
        assert_eq!(next_line(&mut input, &mut line).unwrap(), (0, false));
    }

    proptest! {
        #[test]
        fn what_redis_quotes_is_read_again(args in prop::collection::vec(any::<Vec<u8>>(), 1..5)) {
            let mut line = b"7.000000 [3 1.2.3.4:5]".to_vec();
            for arg in &args {
                line.extend_from_slice(b" \"");
                for byte in arg {
                    match byte {
                        b'\\' | b'"' => line.extend([b'\\', *byte]),
                        b'\n' => line.extend(b"\\n"),
                        b'\r' => line.extend(b"\\r"),
                        b'\t' => line.extend(b"\\t"),
                        7 => line.extend(b"\\a"),
                        8 => line.extend(b"\\b"),
                        b' '..=b'~' => line.push(*byte),
                        _ => line.extend(format!("\\x{byte:02x}").bytes()),
                    }
                }
                line.push(b'"');
            }
            prop_assert_eq!(read(&line).unwrap().3, args);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut line: Vec<u8>, good: bool, is_cut: bool) {
            if good {
                line.splice(0..0, *b"1.000000 [0 c:1] \"");
            }
            let mut into = Line::default();
            if into.read(&line, is_cut) == Read::Command {
                prop_assert!(!into.request().is_empty());
            }
        }
    }
}
