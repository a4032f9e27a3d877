//! The text of a journal: frames of lines.
//!
//! ```text
//!   overbank-gateway-journal/1
//!   frame NUMBER BYTES TIME SUM      of the frame, of its lines, in ms since 1970; xxh3-64
//!   +7,192.0.2.1,0x101,…             session 7 is this now: the fields of a file of sessions
//!   -8                               session 8 is removed
//!   ~TIME,8,192.0.2.1,0x102          a key that rests until then: a tunnel of session 8,
//!   ~TIME,8,10.45.0.8                or an address
//!   frame …
//! ```
//!
//! A head has [`HEAD`] bytes; numbers have leading zeros. The sum covers head and lines. Frames are
//! numbered without gaps. Panics: none.

use crate::file;
use crate::session::{Key, Session};
use crate::sessions::REST_MS;
use hashbrown::HashMap;
use std::fmt::Write as _;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// First line of a journal.
pub(super) const MAGIC: &str = "overbank-gateway-journal/1\n";
/// Bytes of a head.
pub(super) const HEAD: usize = 71;
/// Those before its sum.
const SUMMED: usize = HEAD - 17;

/// A change of a session, kept as what the session is after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    pub id: u64,
    /// `None`: it is removed.
    pub after: Option<Session>,
    /// Bytes of the line that the session had.
    pub(crate) replaced: u64,
}

impl Edit {
    /// Returns the edit of session `id`.
    pub fn new(id: u64, before: Option<&Session>, after: Option<Session>) -> Edit {
        Edit { id, after, replaced: before.map_or(0, bytes_of) }
    }
}

/// A freed key that no other session may have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Session that had it.
    pub owner: u64,
    pub until_unix_ms: u64,
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub sessions: HashMap<u64, Session, foldhash::fast::FixedState>,
    pub rests: HashMap<Key, Rest, foldhash::fast::FixedState>,
}

/// Head of a frame.
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) unix_ms: u64,
    sum: u64,
    /// That of the head before the sum.
    seed: u64,
}

impl Head {
    /// Reads a head; `None`: the bytes are not one.
    pub(super) fn read(bytes: &[u8]) -> Option<Head> {
        if !bytes.starts_with(b"frame ") {
            return None;
        }
        let text = std::str::from_utf8(bytes.get(..HEAD)?).ok()?;
        let fields = text.strip_suffix('\n')?.get(6..)?;
        let number = |range: std::ops::Range<usize>| {
            let digits = fields.get(range)?;
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| plain)
        };
        let spaces = [16, 31, 47].iter().all(|&at| fields.as_bytes().get(at) == Some(&b' '));
        let sum = fields.get(48..)?;
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let sum = u64::from_str_radix(sum, 16).ok().filter(|_| sum.bytes().all(hex) && spaces)?;
        let seed = xxh3_64(&bytes[..SUMMED]);
        Some(Head {
            number: number(0..16)?,
            bytes: number(17..31)?,
            unix_ms: number(32..47)?,
            sum,
            seed,
        })
    }

    /// Returns whether these are its lines.
    pub(super) fn fits(&self, lines: &[u8]) -> bool {
        lines.len() as u64 == self.bytes && xxh3_64_with_seed(lines, self.seed) == self.sum
    }
}

/// Returns a frame of the lines that `put` adds.
pub(super) fn frame(number: u64, unix_ms: u64, put: impl FnOnce(&mut String)) -> String {
    let mut text = " ".repeat(HEAD);
    put(&mut text);
    let mut head = format!("frame {number:016} {:014} {unix_ms:015} ", text.len() - HEAD);
    let sum = xxh3_64_with_seed(&text.as_bytes()[HEAD..], xxh3_64(head.as_bytes()));
    let _ = writeln!(head, "{sum:016x}");
    text.replace_range(..HEAD, &head);
    text
}

/// Returns whether a whole frame lies anywhere in these bytes.
pub(super) fn any_whole(bytes: &[u8]) -> bool {
    (0..bytes.len()).any(|at| {
        let Some(head) = Head::read(&bytes[at..]) else { return false };
        let end = usize::try_from(head.bytes).ok().and_then(|len| len.checked_add(at + HEAD));
        end.and_then(|end| bytes.get(at + HEAD..end)).is_some_and(|lines| head.fits(lines))
    })
}

/// Adds the line of a session as it is now.
pub(super) fn put_session(lines: &mut String, session: &Session) {
    let _ = writeln!(lines, "+{}", file::line(session));
}

/// Adds the line of an edit.
pub(super) fn put_edit(lines: &mut String, edit: &Edit) {
    match &edit.after {
        Some(session) => put_session(lines, session),
        None => drop(writeln!(lines, "-{}", edit.id)),
    }
}

/// Adds the line of a resting key.
pub(super) fn put_rest(lines: &mut String, key: Key, rest: Rest) {
    let Rest { owner, until_unix_ms } = rest;
    let _ = write!(lines, "~{until_unix_ms},{owner},");
    let _ = match key {
        Key::Tunnel(n3, teid) => writeln!(lines, "{n3},{teid:#x}"),
        Key::Ipv4(address) => writeln!(lines, "{address}"),
        Key::Ipv6(prefix) => writeln!(lines, "{prefix}"),
    };
}

/// Bytes of a session's line.
pub(super) fn bytes_of(session: &Session) -> u64 {
    file::line(session).len() as u64 + 2
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.rests.is_empty()
    }

    /// Takes a line of a frame of this time.
    pub(super) fn take(&mut self, line: &str, unix_ms: u64) -> Result<(), String> {
        let wrong = || "must be +SESSION, -ID or ~TIME,ID,KEY".to_owned();
        match line.split_at_checked(1) {
            Some(("+", fields)) => {
                let session = file::whole_line(fields)?;
                self.put(session.id, Some(session), unix_ms);
            }
            Some(("-", id)) => self.put(file::number(id)?, None, unix_ms),
            Some(("~", fields)) => {
                let mut fields = fields.splitn(3, ',');
                let mut next = || fields.next().ok_or_else(wrong);
                let (until_unix_ms, owner) = (file::number(next()?)?, file::number(next()?)?);
                self.rests.insert(key(next()?)?, Rest { owner, until_unix_ms });
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Changes a session to what it is after an edit: keys that it no longer has rest, those that
    /// it has do not.
    pub fn put(&mut self, id: u64, after: Option<Session>, unix_ms: u64) {
        let before = match after {
            Some(after) => self.sessions.insert(id, after),
            None => self.sessions.remove(&id),
        };
        let rest = Rest { owner: id, until_unix_ms: unix_ms.saturating_add(REST_MS) };
        for key in before.iter().flat_map(Session::keys) {
            self.rests.insert(key, rest);
        }
        for key in after.iter().flat_map(Session::keys) {
            self.rests.remove(&key);
        }
    }
}

/// Reads a key.
fn key(text: &str) -> Result<Key, String> {
    if let Some((n3, teid)) = text.split_once(',') {
        let n3 = n3.parse().map_err(|_| format!("{n3:?}: must be an IP address"))?;
        return Ok(Key::Tunnel(n3, file::number(teid)?));
    }
    if text.contains('/') {
        return file::prefix(text).map(Key::Ipv6);
    }
    text.parse().map(Key::Ipv4).map_err(|_| format!("{text:?}: must be an address"))
}
