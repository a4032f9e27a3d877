//! Whole replies: as a tree, and as RESP2 has them.

use super::replies::{HEAD_MAX, Head, NESTED_MAX, ReplyError, line_max, piece};
use super::write;
use std::borrow::Cow;

/// Most values in a tree.
pub const ELEMENTS_MAX: usize = 1 << 18;

/// A reply, or a part of one. Text that arrived in pieces is joined.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Simple(&'a [u8]),
    /// `-` or `!`.
    Error(Cow<'a, [u8]>),
    Integer(i64),
    Bulk(Cow<'a, [u8]>),
    /// `_`, `$-1` or `*-1`.
    Null,
    /// The number as it is written.
    Double(&'a [u8]),
    Boolean(bool),
    /// The number as it is written.
    Big(&'a [u8]),
    /// Format of three bytes, and text.
    Verbatim([u8; 3], &'a [u8]),
    Array(Vec<Value<'a>>),
    Set(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    Push(Vec<Value<'a>>),
}

impl<'a> Value<'a> {
    /// Returns the text of a string or an error.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(text) | Value::Verbatim(_, text) => Some(text),
            Value::Error(text) | Value::Bulk(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the elements of an array, a set or a push.
    pub fn elements(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => Some(values),
            _ => None,
        }
    }

    /// Returns what a map has under a key of text; an array stands for a map, as in RESP2.
    pub fn get(&self, key: &[u8]) -> Option<&Value<'a>> {
        match self {
            Value::Map(pairs) => {
                pairs.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
            }
            Value::Array(values) => {
                let mut pairs = values.chunks_exact(2);
                pairs.find(|pair| pair[0].text() == Some(key)).map(|pair| &pair[1])
            }
            _ => None,
        }
    }
}

/// Reads the reply at the start of `bytes` and returns its length, too. Attributes are dropped.
/// Fails if it is malformed, cut short, or has more than [`ELEMENTS_MAX`] values.
pub fn tree(bytes: &[u8]) -> Result<(Value<'_>, usize), ReplyError> {
    let mut reader = Reader { bytes, pos: 0, elements: 0 };
    match reader.value(0)? {
        Some(value) => Ok((value, reader.pos)),
        None => Err(ReplyError::Place),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    elements: usize,
}

impl<'a> Reader<'a> {
    /// Reads a value with its attributes, or an end: nothing.
    fn value(&mut self, depth: usize) -> Result<Option<Value<'a>>, ReplyError> {
        let mut attributed = false;
        loop {
            self.elements += 1;
            if self.elements > ELEMENTS_MAX {
                return Err(ReplyError::Unfinished);
            }
            let line = self.line()?;
            // As much as the scanner checks, so that both accept the same.
            let head = Head::parse(&line[..line.len().min(HEAD_MAX)])?;
            if line[0] != b'|' {
                let value = self.behind(line, head, depth)?;
                // A value must follow an attribute, and an end is none.
                return if attributed {
                    value.ok_or(ReplyError::Place).map(Some)
                } else {
                    Ok(value)
                };
            }
            if depth == NESTED_MAX {
                return Err(ReplyError::Nested);
            }
            self.values(head, depth)?;
            attributed = true;
        }
    }

    /// Reads what a line begins.
    fn behind(
        &mut self,
        line: &'a [u8],
        head: Head,
        depth: usize,
    ) -> Result<Option<Value<'a>>, ReplyError> {
        let (kind, rest) = (line[0], &line[1..]);
        if matches!(head, Head::Open(_) | Head::OpenEnded) && depth == NESTED_MAX {
            return Err(ReplyError::Nested);
        }
        if kind == b'>' && depth > 0 {
            return Err(ReplyError::Place);
        }
        Ok(Some(match (kind, head) {
            (b'+', _) => Value::Simple(rest),
            (b'-', _) => Value::Error(rest.into()),
            (b',', _) => Value::Double(rest),
            (b'(', _) => Value::Big(rest),
            (b'#', _) => Value::Boolean(rest == b"t"),
            (b':', _) => {
                let digits = rest.strip_prefix(b"+").unwrap_or(rest);
                Value::Integer(super::number(digits).ok_or(ReplyError::Number)?)
            }
            (_, Head::Line) => Value::Null,
            (b'=', Head::Bulk(len)) => match self.bulk(len)?.split_first_chunk() {
                Some((&[a, b, c, _], text)) => Value::Verbatim([a, b, c], text),
                None => return Err(ReplyError::Number),
            },
            (b'!', Head::Bulk(len)) => Value::Error(self.bulk(len)?.into()),
            (_, Head::Bulk(len)) => Value::Bulk(self.bulk(len)?.into()),
            (_, Head::Pieces) => {
                let mut text = Vec::new();
                loop {
                    let len = piece(self.line()?)?;
                    if len == 0 {
                        break Value::Bulk(text.into());
                    }
                    text.extend_from_slice(self.bulk(len)?);
                }
            }
            (_, Head::End) => return Ok(None),
            (b'~', _) => Value::Set(self.values(head, depth)?),
            (b'>', _) => Value::Push(self.values(head, depth)?),
            (b'%', _) => {
                let mut values = self.values(head, depth)?.into_iter();
                let mut pairs = Vec::with_capacity(values.len() / 2);
                while let Some(key) = values.next() {
                    pairs.push((key, values.next().ok_or(ReplyError::Place)?));
                }
                Value::Map(pairs)
            }
            _ => Value::Array(self.values(head, depth)?),
        }))
    }

    /// Reads the values of an aggregate.
    fn values(&mut self, head: Head, depth: usize) -> Result<Vec<Value<'a>>, ReplyError> {
        let mut values = Vec::new();
        loop {
            match head {
                Head::Open(count) if values.len() == count as usize => return Ok(values),
                _ => match (self.value(depth + 1)?, head) {
                    (Some(value), _) => values.push(value),
                    (None, Head::OpenEnded) => return Ok(values),
                    (None, _) => return Err(ReplyError::Place),
                },
            }
        }
    }

    fn line(&mut self) -> Result<&'a [u8], ReplyError> {
        let rest = &self.bytes[self.pos..];
        let most = rest.first().map_or(0, |&kind| line_max(kind));
        let rest = &rest[..rest.len().min(most as usize)];
        match memchr::memmem::find(rest, b"\r\n") {
            Some(end) => {
                self.pos += end + 2;
                Ok(&rest[..end])
            }
            None if rest.len() as u64 == most && most > 0 => Err(ReplyError::Line),
            None => Err(ReplyError::Unfinished),
        }
    }

    fn bulk(&mut self, len: u64) -> Result<&'a [u8], ReplyError> {
        let rest = &self.bytes[self.pos..];
        let Some((content, rest)) = rest.split_at_checked(len as usize) else {
            return Err(ReplyError::Unfinished);
        };
        match rest {
            [b'\r', b'\n', ..] => {
                self.pos += content.len() + 2;
                Ok(content)
            }
            [] | [b'\r'] => Err(ReplyError::Unfinished),
            _ => Err(ReplyError::BulkEnd),
        }
    }
}

/// How RESP2 writes a null: `$-1` where the command has a string, `*-1` where it has an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    Bulk,
    Array,
}

/// Translates one whole RESP3 reply, type by type, as Redis 7.0 writes each for RESP2. A reply with
/// another shape is left to the caller, such as pairs that RESP2 lists flat. Returns nothing
/// for a push, for what [`tree`] refuses, and if bytes follow.
pub fn to_resp2(bytes: &[u8], null: Null) -> Option<Vec<u8>> {
    let (value, len) = tree(bytes).ok()?;
    if len != bytes.len() || matches!(value, Value::Push(_)) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    emit(&value, null, &mut out);
    Some(out)
}

fn emit(value: &Value<'_>, null: Null, out: &mut Vec<u8>) {
    match value {
        Value::Simple(text) => write::line(b'+', text, out),
        Value::Error(text) => write::line(b'-', text, out),
        Value::Integer(number) => write::integer(*number, out),
        Value::Bulk(text) => write::bulk(text, out),
        Value::Double(text) | Value::Big(text) | Value::Verbatim(_, text) => write::bulk(text, out),
        Value::Boolean(truth) => write::integer(i64::from(*truth), out),
        Value::Null => out.extend_from_slice(match null {
            Null::Bulk => b"$-1\r\n",
            Null::Array => b"*-1\r\n",
        }),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            write::array(values.len(), out);
            values.iter().for_each(|value| emit(value, null, out));
        }
        Value::Map(pairs) => {
            write::array(pairs.len() * 2, out);
            for (key, value) in pairs {
                emit(key, null, out);
                emit(value, null, out);
            }
        }
    }
}
