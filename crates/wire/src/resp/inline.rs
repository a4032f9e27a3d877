//! Commands as people type them: the rules of Redis' `sdssplitargs`.

use std::ops::Range;

/// Splits a line into arguments, which are appended to `out` without quotes and escapes. Returns
/// whether all quotes are closed and followed by space; of a line that ends within quotes, the
/// arguments before them are there.
pub fn split(line: &[u8], out: &mut Vec<u8>, args: &mut Vec<Range<usize>>) -> bool {
    let byte = |at: usize| line.get(at).copied();
    let mut at = 0;
    loop {
        while byte(at).is_some_and(is_space) {
            at += 1;
        }
        if at == line.len() {
            return true;
        }
        let start = out.len();
        let mut quote = None;
        loop {
            let here = byte(at);
            at += 1;
            match (quote, here) {
                (None, None | Some(b' ' | b'\n' | b'\r' | b'\t')) => break,
                (Some(_), None) => return false,
                (None, Some(mark @ (b'"' | b'\''))) => quote = Some(mark),
                (Some(mark), Some(end)) if mark == end => {
                    if byte(at).is_some_and(|after| !is_space(after)) {
                        return false;
                    }
                    break;
                }
                (Some(b'"'), Some(b'\\')) if byte(at).is_some() => {
                    let (escaped, len) = escape(&line[at..]);
                    out.push(escaped);
                    at += len;
                }
                (Some(b'\''), Some(b'\\')) if byte(at) == Some(b'\'') => {
                    out.push(b'\'');
                    at += 1;
                }
                (_, Some(plain)) => out.push(plain),
            }
        }
        args.push(start..out.len());
        at = at.min(line.len());
    }
}

/// Returns the byte that is written as a backslash and the start of `text`, and the length there.
fn escape(text: &[u8]) -> (u8, usize) {
    let hex = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    match *text {
        [b'x', high, low, ..] if let (Some(high), Some(low)) = (hex(high), hex(low)) => {
            (high << 4 | low, 3)
        }
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'b', ..] => (8, 1),
        [b'a', ..] => (7, 1),
        [other, ..] => (other, 1),
        [] => (b'\\', 0),
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
