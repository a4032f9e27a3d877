//! Writers: each appends to `out`.

use std::io::Write as _;

/// Appends a request with these arguments.
pub fn command<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    array(args.len(), out);
    args.iter().for_each(|arg| bulk(arg.as_ref(), out));
}

/// Appends the head of an array, before its elements.
pub fn array(len: usize, out: &mut Vec<u8>) {
    head(b'*', len, out);
}

/// Appends a bulk string.
pub fn bulk(content: &[u8], out: &mut Vec<u8>) {
    head(b'$', content.len(), out);
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

/// Appends an integer.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    head(b':', number, out);
}

/// Appends a simple string such as `OK`; line ends in it become spaces.
pub fn simple(text: &str, out: &mut Vec<u8>) {
    line(b'+', text.as_bytes(), out);
}

/// Appends an error; its text begins with its code, such as `ERR`. Line ends in it become spaces.
pub fn error(text: &str, out: &mut Vec<u8>) {
    line(b'-', text.as_bytes(), out);
}

pub(super) fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn head(kind: u8, number: impl std::fmt::Display, out: &mut Vec<u8>) {
    out.push(kind);
    // A vector takes any number of bytes.
    let _ = write!(out, "{number}\r\n");
}
