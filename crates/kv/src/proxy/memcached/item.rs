//! A cached item, and the replies that are made of it: the bytes of memcached 1.6.
//!
//! ```text
//!   get    VALUE key flags len\r\n value\r\n … END\r\n       gets: and the CAS id behind len
//!   mg     VA len flags…\r\n value\r\n,  HD flags…\r\n,  EN\r\n
//! ```

use crate::proxy::slots::Variant;
use overbank_wire::memcached::{Flags, encode_key};

/// Longest opaque token.
const OPAQUE_MAX: usize = 31;

/// What is known of a key: an item, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Client flags, length and CAS id, in decimal, with a blank between.
    pub words: &'a [u8],
    /// It was stored under a key in base64, and is shown so.
    pub is_base64: bool,
    /// The value, and the line end behind it.
    pub value: &'a [u8],
}

/// What kind of item a variant is: its first byte.
const TEXT: u8 = b't';
const BASE64: u8 = b'b';

impl<'a> Item<'a> {
    /// Returns what slots keep of an item: `resp2` is what is known of it, empty if there is none,
    /// `resp3` the value.
    pub fn variant(item: Option<Item<'_>>) -> Variant {
        let (known, value) = match item {
            Some(Item { words, is_base64, value }) => {
                (&[&[if is_base64 { BASE64 } else { TEXT }], words].concat()[..], value)
            }
            None => (&[][..], &[][..]),
        };
        Variant { db: 0, request: Box::default(), resp3: value.into(), resp2: known.into() }
    }

    /// Returns the item of a variant, if there is one.
    pub fn of(variant: &'a Variant) -> Option<Item<'a>> {
        let (kind, words) = variant.resp2.split_first()?;
        Some(Item { words, is_base64: *kind == BASE64, value: &variant.resp3 })
    }

    fn word(&self, at: usize) -> &'a [u8] {
        self.words.split(|byte| *byte == b' ').nth(at).unwrap_or_default()
    }

    /// Writes what `get` or `gets` says of it.
    pub fn get(&self, key: &[u8], with_cas: bool, out: &mut Vec<u8>) {
        let cas = self.words.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        out.push(b' ');
        out.extend_from_slice(if with_cas { self.words } else { &self.words[..cas] });
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.value);
    }
}

/// An `mg` that may be answered from the cache: a bit for each letter of its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet(u128);

impl MetaGet {
    /// Returns what the flags ask for; `None` if the server has to answer.
    pub fn new(flags: Flags<'_>) -> Option<MetaGet> {
        let mut found = MetaGet(0);
        for (flag, token) in flags {
            let is_served = match flag {
                b'v' | b'f' | b'c' | b'k' | b'q' | b'b' | b's' => token.is_empty(),
                b'O' => token.len() <= OPAQUE_MAX,
                _ => false,
            };
            // The server refuses a flag that comes twice.
            if !is_served || found.has(flag) {
                return None;
            }
            found.0 |= 1 << flag;
        }
        Some(found)
    }

    const fn has(self, flag: u8) -> bool {
        self.0 >> flag & 1 != 0
    }

    /// Writes the reply; returns whether that could be made of the item. What a miss with a key or
    /// an opaque token gets depends on the server's version.
    pub fn reply(
        self,
        item: Option<Item<'_>>,
        key: &[u8],
        flags: Flags<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(item) = item else {
            if self.has(b'k') || self.has(b'O') {
                return false;
            }
            if !self.has(b'q') {
                out.extend_from_slice(b"EN\r\n");
            }
            return true;
        };
        match self.has(b'v') {
            true => {
                out.extend_from_slice(b"VA ");
                out.extend_from_slice(item.word(1));
            }
            false => out.extend_from_slice(b"HD"),
        }
        for (flag, token) in flags {
            let is_shown = !matches!(flag, b'v' | b'q' | b'b');
            if is_shown {
                out.extend_from_slice(&[b' ', flag]);
            }
            match flag {
                b'f' => out.extend_from_slice(item.word(0)),
                b's' => out.extend_from_slice(item.word(1)),
                b'c' => out.extend_from_slice(item.word(2)),
                b'O' => out.extend_from_slice(token),
                b'k' if item.is_base64 => {
                    encode_key(key, out);
                    out.extend_from_slice(b" b");
                }
                b'k' => out.extend_from_slice(key),
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        if self.has(b'v') {
            out.extend_from_slice(item.value);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(item: Option<Item<'_>>, flags: &str) -> Option<String> {
        let asked = MetaGet::new(Flags::new(flags.as_bytes()))?;
        let mut out = Vec::new();
        let is_known = asked.reply(item, b"foo", Flags::new(flags.as_bytes()), &mut out);
        is_known.then(|| String::from_utf8(out).expect("text"))
    }

    /// As memcached 1.6.18 answers.
    #[test]
    fn replies_are_those_of_memcached() {
        let item = Item { words: b"5 2 17", is_base64: false, value: b"hi\r\n" };
        let other = Item { is_base64: true, ..item };
        for (flags, reply) in [
            ("", Some("HD\r\n")),
            ("v", Some("VA 2\r\nhi\r\n")),
            ("k f v c s", Some("VA 2 kfoo f5 c17 s2\r\nhi\r\n")),
            ("s c v Oabc q k b", Some("VA 2 s2 c17 Oabc kfoo\r\nhi\r\n")),
            ("O", Some("HD O\r\n")),
            ("v v", None),
            ("vx", None),
            ("t", None),
            ("v N30", None),
            ("Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", Some("HD Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n")),
            ("Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", None),
        ] {
            assert_eq!(meta(Some(item), flags).as_deref(), reply, "{flags}");
        }
        assert_eq!(meta(Some(other), "v f k s").as_deref(), Some("VA 2 f5 kZm9v b s2\r\nhi\r\n"));
        for (flags, reply) in [
            ("v", Some("EN\r\n")),
            ("v q", Some("")),
            ("b v f c s", Some("EN\r\n")),
            ("k", None),
            ("O", None),
        ] {
            assert_eq!(meta(None, flags).as_deref(), reply, "{flags}");
        }
        let mut out = Vec::new();
        item.get(b"foo", false, &mut out);
        item.get(b"foo", true, &mut out);
        assert_eq!(out, b"VALUE foo 5 2\r\nhi\r\nVALUE foo 5 2 17\r\nhi\r\n");
    }

    #[test]
    fn an_item_is_what_its_variant_says() {
        let item = Item { words: b"0 1 2", is_base64: true, value: b"x\r\n" };
        assert_eq!(Item::of(&Item::variant(Some(item))), Some(item));
        assert_eq!(Item::of(&Item::variant(None)), None);
    }
}
