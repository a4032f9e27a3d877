//! Keys and flags of meta commands.

use super::KEY_MAX;

/// The flags of a meta command, or of its reply: each a letter and what follows it.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    rest: &'a [u8],
}

impl<'a> Flags<'a> {
    /// Returns the flags in the end of a line.
    pub fn new(text: &'a [u8]) -> Flags<'a> {
        Flags { rest: text }
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.clone().any(|(found, _)| found == flag)
    }
}

impl<'a> Iterator for Flags<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        self.rest = &rest[end..];
        rest[..end].split_first().map(|(&flag, token)| (flag, token))
    }
}

/// Appends a key in base64.
pub fn encode_key(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in key.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= group.len() { digit } else { b'=' });
        }
    }
}

/// Decodes the key of a meta command with the flag `b`, as memcached does: base64 in groups of four
/// that end at the first padding. Returns nothing if memcached refuses it.
pub fn decode_key<'a>(text: &[u8], out: &'a mut [u8; KEY_MAX]) -> Option<&'a [u8]> {
    let mut len = 0;
    if text.is_empty() || text.len() > KEY_MAX || !text.len().is_multiple_of(4) {
        return None;
    }
    for group in text.chunks_exact(4) {
        let padding = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        let mut bits = 0u32;
        for &digit in &group[..4 - padding] {
            let six = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * padding;
        let bytes = &bits.to_be_bytes()[1..4 - padding];
        out[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
        if padding > 0 {
            break;
        }
    }
    Some(&out[..len])
}
