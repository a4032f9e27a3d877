//! Cuts a byte stream into whole messages.
//!
//! A caller feeds bytes as they arrive, in pieces of any size, and takes out messages one by one.
//! Memory: the bytes fed and not yet taken. A caller that takes all messages before feeding again
//! never holds more than one message and the last piece. A length below that of a header is fatal:
//! the stream has lost its framing, and the connection should end.

use crate::codes::{BadRequest, ErrorCode};
use crate::header::{HEADER_LEN, Header, MESSAGE_LEN_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: Header,
    /// The whole message, header included.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the bytes after the header.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
}

/// The stream does not consist of OpenFlow messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message of type {} has a length of {}: must be at least 8", .header.kind, .header.length)]
pub struct FrameError {
    /// The header with the wrong length.
    pub header: Header,
}

impl FrameError {
    /// Error code to answer with before closing the connection.
    pub const CODE: ErrorCode = ErrorCode::BadRequest(BadRequest::BadLen);
}

/// Cuts a stream into frames.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Bytes of the buffer already taken.
    taken: usize,
}

impl Frames {
    pub fn new() -> Frames {
        Frames::default()
    }

    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(2 * (MESSAGE_LEN_MAX + 1));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the number of bytes fed and not yet taken.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Returns the next whole message, if complete. An error repeats on every later call.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let waiting = &self.buffer[self.taken..];
        let Some(header) = Header::parse(waiting) else { return Ok(None) };
        let length = usize::from(header.length);
        if length < HEADER_LEN {
            return Err(FrameError { header });
        }
        let Some(bytes) = waiting.get(..length) else { return Ok(None) };
        self.taken += length;
        Ok(Some(Frame { header, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: usize) -> Vec<u8> {
        let length = (HEADER_LEN + body) as u16;
        let mut bytes = Header { version: 4, kind, length, xid: 7 }.to_bytes().to_vec();
        bytes.resize(usize::from(length), kind);
        bytes
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_messages(
            bodies in prop::collection::vec(0..300usize, 0..20),
            pieces in prop::collection::vec(1..200usize, 1..50),
        ) {
            let sent: Vec<Vec<u8>> =
                bodies.iter().enumerate().map(|(i, &body)| message(i as u8, body)).collect();
            let stream = sent.concat();
            let (mut frames, mut got, mut at) = (Frames::new(), Vec::new(), 0);
            for piece in pieces.into_iter().cycle() {
                let end = (at + piece).min(stream.len());
                frames.extend(&stream[at..end]);
                at = end;
                while let Some(frame) = frames.next_frame().unwrap() {
                    prop_assert_eq!(frame.body().len() + HEADER_LEN, frame.bytes.len());
                    got.push(frame.bytes.to_vec());
                }
                if at == stream.len() {
                    break;
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert_eq!(frames.buffered(), 0);
        }
    }

    #[test]
    fn a_length_below_the_header_ends_the_stream() {
        let mut frames = Frames::new();
        frames.extend(&message(2, 4));
        frames.extend(&[4, 2, 0, 7, 0, 0, 0, 0]);
        assert_eq!(frames.next_frame().unwrap().unwrap().bytes, message(2, 4));
        for _ in 0..2 {
            assert_eq!(frames.next_frame().unwrap_err().header.length, 7);
        }
    }

    #[test]
    fn a_longest_message_leaves_no_large_buffer_behind() {
        let mut frames = Frames::new();
        for _ in 0..4 {
            for piece in message(2, MESSAGE_LEN_MAX - HEADER_LEN).chunks(1000) {
                frames.extend(piece);
            }
            assert_eq!(frames.next_frame().unwrap().unwrap().bytes.len(), MESSAGE_LEN_MAX);
            assert!(frames.buffer.capacity() <= 2 * (MESSAGE_LEN_MAX + 1));
        }
    }
}
