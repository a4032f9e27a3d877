//! Requests of clients: text, meta and binary.
//!
//! Memory: 16 bytes for each key held.

use super::{Flags, HEADER_LEN, KEY_MAX, Verb, storage, words};
use crate::proto::{be16, be32, chunk};
use crate::scan::{LINE_MAX, Part, Scan};
use memchr::{memchr, memchr3};
use std::ops::Range;
use thiserror::Error;

/// Most keys held at a time.
pub const KEYS_MAX: usize = 1024;

/// Longest word in a list of keys. memcached refuses keys over 250 bytes with one error.
const WORD_MAX: usize = 2048;
const MAGIC: u8 = 0x80;

/// Why a connection is closed after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("line is longer than 64 KiB, or a key than 2 KiB")]
    Long,
    #[error("line has a NUL")]
    Nul,
    #[error("binary request does not begin with 0x80")]
    Magic,
    #[error("key and extras of a binary request are longer than its body")]
    Length,
}

/// How the requests of a connection are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Text,
    Binary,
}

/// Replies that a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    One,
    /// None, or one: quiet requests report a hit or an error. All of them precede the reply to a
    /// later `mn` (binary: no-op).
    Maybe,
    /// None: the connection ends.
    Never,
    /// Lines without an end, after one that may be an error.
    Endless,
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug)]
enum At {
    Start,
    /// The first word of a line.
    Word,
    /// A list of keys.
    Keys,
    /// The rest of another line.
    Line,
    /// Header, extras and key.
    Header,
    /// This many bytes of data, or the rest of a binary body.
    Data(u64),
}

/// An incremental scanner of requests: see [`scan`](crate::scan).
#[derive(Clone, Debug)]
pub struct Requests {
    protocol: Option<Protocol>,
    at: At,
    /// Where the word or the data begins that is being read.
    pos: usize,
    /// Where the search for its end goes on.
    pub(super) searched: usize,
    verb: Verb,
    opcode: u8,
    quiet: bool,
    /// Words before the keys of a list.
    ahead: usize,
    data_len: u64,
    /// Index of the first key held, and of the next one to come.
    first: usize,
    next: usize,
    keys: Vec<Range<usize>>,
    /// What follows the key in a meta command.
    flags: Range<usize>,
    /// Whether the keys held were handed out, and the next call drops them.
    handed: bool,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests::new()
    }
}

impl Requests {
    /// Returns a scanner at the start of a connection.
    pub const fn new() -> Requests {
        Requests {
            protocol: None,
            at: At::Start,
            pos: 0,
            searched: 0,
            verb: Verb::Other,
            opcode: 0,
            quiet: false,
            ahead: 0,
            data_len: 0,
            first: 0,
            next: 0,
            keys: Vec::new(),
            flags: 0..0,
            handed: false,
        }
    }

    /// Returns the protocol, which the first byte decides.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns what the request does. Right once it is whole, or once `take` handed out a key.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the opcode of a binary request.
    pub fn opcode(&self) -> Option<u8> {
        (self.protocol == Some(Protocol::Binary)).then_some(self.opcode)
    }

    /// Returns whether the request asks for no reply, or for some replies only: `noreply`, the flag
    /// `q`, or a quiet opcode. Right once the request is whole, and before its data.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns which replies the request gets.
    pub fn expect(&self) -> Expect {
        match self.verb {
            Verb::Quit if self.quiet || self.protocol != Some(Protocol::Binary) => Expect::Never,
            Verb::Watch => Expect::Endless,
            Verb::Shutdown => Expect::Maybe,
            _ if self.quiet => Expect::Maybe,
            _ => Expect::One,
        }
    }

    /// Returns where the keys are that the last `scan` or `take` handed out, in the bytes it had.
    /// A key is as it is written: in base64, if a meta command has the flag `b`.
    pub fn keys(&self) -> &[Range<usize>] {
        &self.keys
    }

    /// Returns the index of the first of those keys in the request. It is 0 unless the request is
    /// streamed.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Returns the flags of a meta command, of the bytes that were handed out with its key.
    pub fn flags<'a>(&self, bytes: &'a [u8]) -> Flags<'a> {
        Flags::new(bytes.get(self.flags.clone()).unwrap_or_default())
    }

    /// Returns the length of the request's data: what is stored, without a line end. Of a binary
    /// request, it is what follows extras and key.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// Scans on; `bytes` begins with the current request, or its part that was not taken.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scan, RequestError> {
        self.drop_handed();
        if bytes.len() < self.searched {
            return Ok(Scan::Partial);
        }
        loop {
            match self.at {
                At::Start => {
                    let Some(&byte) = bytes.first() else { return Ok(Scan::Partial) };
                    let other = if byte == MAGIC { Protocol::Binary } else { Protocol::Text };
                    (self.verb, self.quiet, self.data_len) = (Verb::Other, false, 0);
                    match *self.protocol.get_or_insert(other) {
                        Protocol::Text => self.go(At::Word, 0),
                        Protocol::Binary if byte == MAGIC => self.go(At::Header, 0),
                        Protocol::Binary => return Err(RequestError::Magic),
                    }
                }
                At::Word => {
                    let Some(end) = self.word(bytes, LINE_MAX)? else {
                        return Ok(Scan::Partial);
                    };
                    if end == self.pos && bytes[end] == b' ' && end < LINE_MAX {
                        self.go(At::Word, end + 1);
                        continue;
                    }
                    let word = &bytes[self.pos..end];
                    self.verb = Verb::named(word.strip_suffix(b"\r").unwrap_or(word));
                    self.ahead = usize::from(matches!(self.verb, Verb::Gat | Verb::Gats));
                    let is_list = self.verb.is_list();
                    self.at = if is_list { At::Keys } else { At::Line };
                    self.pos = if is_list { end } else { 0 };
                }
                At::Keys => {
                    if self.keys.len() >= KEYS_MAX {
                        return Ok(Scan::Full);
                    }
                    let Some(end) = self.word(bytes, WORD_MAX)? else {
                        return Ok(Scan::Partial);
                    };
                    let word = &bytes[self.pos..end];
                    let is_last = bytes[end] == b'\n';
                    let word =
                        if is_last { word.strip_suffix(b"\r").unwrap_or(word) } else { word };
                    let (pos, len) = (self.pos, word.len());
                    self.go(At::Keys, end + 1);
                    if len > 0 && self.ahead > 0 {
                        self.ahead -= 1;
                    } else if len > 0 {
                        self.keys.push(pos..pos + len);
                        self.next += 1;
                    }
                    if is_last {
                        return Ok(self.whole(end + 1));
                    }
                }
                At::Line => {
                    let most = bytes.len().min(LINE_MAX + 1);
                    let Some(end) = memchr(b'\n', &bytes[self.searched..most]) else {
                        self.searched = most;
                        return if most > LINE_MAX {
                            Err(RequestError::Long)
                        } else {
                            Ok(Scan::Partial)
                        };
                    };
                    let end = self.searched + end;
                    self.searched = end;
                    if let Some(whole) = self.line(&bytes[..end])? {
                        return Ok(whole);
                    }
                }
                At::Header => {
                    let Some(header) = chunk::<HEADER_LEN>(bytes, 0) else {
                        return Ok(Scan::Partial);
                    };
                    let (key, extras) = (usize::from(be16(header, 2)), usize::from(header[4]));
                    let body = u64::from(be32(header, 8));
                    let Some(value) = body.checked_sub((key + extras) as u64) else {
                        return Err(RequestError::Length);
                    };
                    self.opcode = header[1];
                    (self.verb, self.quiet) = Verb::binary(self.opcode);
                    self.data_len = value;
                    let key = HEADER_LEN + extras..HEADER_LEN + extras + key;
                    if !self.verb.has_key() || key.is_empty() || key.len() > KEY_MAX {
                        self.go(At::Data(body), HEADER_LEN);
                        continue;
                    }
                    if bytes.len() < key.end {
                        return Ok(Scan::Partial);
                    }
                    self.go(At::Data(value), key.end);
                    self.keys.push(key);
                    self.next += 1;
                }
                At::Data(left) => {
                    let here = (bytes.len() - self.pos) as u64;
                    if here < left {
                        return Ok(Scan::Partial);
                    }
                    return Ok(self.whole(self.pos + left as usize));
                }
            }
        }
    }

    /// Hands out what is here of a request that is partial, or whose keys are too many to hold:
    /// whole keys, and of the data what has arrived. `bytes` are those of the last `scan`.
    pub fn take(&mut self, bytes: &[u8]) -> Part {
        self.drop_handed();
        if bytes.len() < self.searched {
            return Part { len: 0, long: None };
        }
        let mut len = 0;
        match self.at {
            At::Keys => len = self.pos,
            At::Data(left) => {
                let here = left.min((bytes.len() - self.pos) as u64);
                self.at = At::Data(left - here);
                len = self.pos + here as usize;
            }
            At::Start | At::Word | At::Line | At::Header => {}
        }
        if len > 0 {
            self.pos = 0;
            self.searched = self.searched.saturating_sub(len);
        }
        self.handed = true;
        Part { len, long: None }
    }

    fn drop_handed(&mut self) {
        if std::mem::take(&mut self.handed) {
            self.keys.clear();
            self.flags = 0..0;
            self.first = self.next;
        }
    }

    fn go(&mut self, at: At, pos: usize) {
        (self.at, self.pos, self.searched) = (at, pos, pos);
    }

    fn whole(&mut self, len: usize) -> Scan {
        self.go(At::Start, 0);
        self.next = 0;
        self.handed = true;
        Scan::Whole { len }
    }

    /// Returns where the space or line end after the current word is.
    fn word(&mut self, bytes: &[u8], max: usize) -> Result<Option<usize>, RequestError> {
        // The first word is searched for from the start of its line.
        let from = if matches!(self.at, At::Word) { 0 } else { self.pos };
        let most = bytes.len().min(from + max + 1);
        let Some(found) = memchr3(b' ', b'\n', 0, &bytes[self.searched..most]) else {
            self.searched = most;
            return if most > from + max { Err(RequestError::Long) } else { Ok(None) };
        };
        self.searched += found;
        if bytes[self.searched] == 0 { Err(RequestError::Nul) } else { Ok(Some(self.searched)) }
    }

    /// Reads a line that is no list of keys. Returns the request if it ends here.
    fn line(&mut self, line: &[u8]) -> Result<Option<Scan>, RequestError> {
        let end = line.len() + 1;
        if memchr(0, line).is_some() {
            return Err(RequestError::Nul);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let offset = |word: &[u8]| word.as_ptr() as usize - line.as_ptr() as usize;
        let mut rest = words(line).skip(1);
        if self.verb.has_key()
            && let Some(key) = rest.next()
        {
            let start = offset(key);
            self.keys.push(start..start + key.len());
            self.next += 1;
            if self.verb == Verb::MetaSet {
                rest.next();
            }
            if self.verb.is_meta() {
                self.flags = rest.next().map_or(0..0, |flag| offset(flag)..line.len());
            }
        }
        self.quiet = if self.verb.is_meta() {
            Flags::new(&line[self.flags.clone()]).has(b'q')
        } else {
            words(line).last() == Some(b"noreply")
        };
        let data_len = self.verb.is_storage().then(|| storage::data_len(self.verb, line)).flatten();
        let Some(data_len) = data_len else { return Ok(Some(self.whole(end))) };
        self.data_len = data_len - 2;
        self.go(At::Data(data_len), end);
        Ok(None)
    }
}
