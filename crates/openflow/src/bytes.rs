//! A checked cursor over received bytes, and helpers to write big-endian fields.
//!
//! Everything received is read through [`Reader`]. It cannot pass its end, and it knows its
//! position in the message, the structure it reads, and the OpenFlow error of a short read.

use crate::codes::ErrorCode;
use crate::error::{DecodeError, EncodeError};

#[derive(Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the next byte from the start of the message.
    offset: usize,
    what: &'static str,
    /// Answer to a structure that is too short or too long.
    bad_len: ErrorCode,
}

impl<'a> Reader<'a> {
    /// Returns a cursor over `bytes`, a `what` that begins `offset` bytes into the message.
    pub fn new(bytes: &'a [u8], offset: usize, what: &'static str, bad_len: ErrorCode) -> Self {
        Reader { bytes, offset, what, bad_len }
    }

    /// Returns the number of unread bytes.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of structures that follow, each with a type and a length of at least 8,
    /// so that the caller can reserve room for them at once.
    pub fn count(&self) -> usize {
        let (mut bytes, mut count) = (self.bytes, 0);
        while let Some(&[_, _, l0, l1]) = bytes.first_chunk() {
            let len = usize::from(u16::from_be_bytes([l0, l1]));
            let Some(rest) = bytes.get(len..).filter(|_| len >= 8) else { break };
            bytes = rest;
            count += 1;
        }
        count
    }

    /// Returns an error at the next byte.
    pub fn fail(&self, why: &'static str, code: ErrorCode) -> DecodeError {
        DecodeError { what: self.what, why, offset: self.offset, code }
    }

    /// Returns the error of a wrong length.
    pub fn bad_len(&self, why: &'static str) -> DecodeError {
        self.fail(why, self.bad_len)
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.bytes.split_at_checked(len).ok_or_else(|| self.bad_len("ends too early"))?;
        self.bytes = rest;
        self.offset += len;
        Ok(taken)
    }

    /// Takes all unread bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.offset += self.bytes.len();
        std::mem::take(&mut self.bytes)
    }

    /// Takes the next `len` bytes as a separate cursor over a `what`.
    pub fn part(
        &mut self,
        len: usize,
        what: &'static str,
        bad_len: ErrorCode,
    ) -> Result<Reader<'a>, DecodeError> {
        let offset = self.offset;
        let bytes = self.take(len).map_err(|e| DecodeError { what, code: bad_len, ..e })?;
        Ok(Reader { bytes, offset, what, bad_len })
    }

    /// Skips padding.
    pub fn skip(&mut self, len: usize) -> Result<(), DecodeError> {
        self.take(len).map(drop)
    }

    /// Skips padding, as far as it is present.
    pub fn skip_up_to(&mut self, len: usize) {
        let len = len.min(self.left());
        self.bytes = &self.bytes[len..];
        self.offset += len;
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.bad_len("is too long")) }
    }

    /// Takes the next `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a big-endian number of `len` bytes, at most 16.
    pub fn uint(&mut self, len: usize) -> Result<u128, DecodeError> {
        Ok(self.take(len)?.iter().fold(0, |value, &byte| value << 8 | u128::from(byte)))
    }

    /// Reads a type-length-value of 16 bits each: returns its type and a cursor over the value.
    /// `len` includes the four bytes of type and length; padding up to a multiple of 8 is skipped.
    pub fn tlv(
        &mut self,
        what: &'static str,
        bad_len: ErrorCode,
    ) -> Result<(u16, Reader<'a>), DecodeError> {
        let mut head = self.clone();
        head.what = what;
        head.bad_len = bad_len;
        let (kind, len) = (head.u16()?, usize::from(head.u16()?));
        if len < 4 {
            return Err(head.bad_len("has a length below 4"));
        }
        self.skip(4).map_err(|e| DecodeError { what, code: bad_len, ..e })?;
        let value = self.part(len - 4, what, bad_len)?;
        self.skip_up_to(len.next_multiple_of(8) - len);
        Ok((kind, value))
    }
}

/// Appends big-endian fields to a buffer.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put(&mut self, bytes: &[u8]);
    fn zeros(&mut self, len: usize);
    /// Appends the lower `len` bytes of `value`.
    fn put_uint(&mut self, value: u128, len: usize);
    /// Appends zeros until the length since `start` is a multiple of 8.
    fn pad8(&mut self, start: usize);
    /// Writes the length since `start` at `at`.
    fn close(&mut self, start: usize, at: usize) -> Result<(), EncodeError>;
    /// Appends a type-length-value, padded to a multiple of 8 that the length does not include.
    fn tlv(
        &mut self,
        kind: u16,
        value: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError>;
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn zeros(&mut self, len: usize) {
        self.resize(self.len() + len, 0);
    }

    fn put_uint(&mut self, value: u128, len: usize) {
        self.put(&value.to_be_bytes()[16 - len..]);
    }

    fn pad8(&mut self, start: usize) {
        let len = self.len() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }

    fn close(&mut self, start: usize, at: usize) -> Result<(), EncodeError> {
        let len = self.len() - start;
        let short = u16::try_from(len).map_err(|_| EncodeError::TooLong { len })?;
        self[at..at + 2].copy_from_slice(&short.to_be_bytes());
        Ok(())
    }

    fn tlv(
        &mut self,
        kind: u16,
        value: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let start = self.len();
        self.put_u16(kind);
        self.put_u16(0);
        value(self)?;
        self.close(start, start + 2)?;
        self.pad8(start);
        Ok(())
    }
}
