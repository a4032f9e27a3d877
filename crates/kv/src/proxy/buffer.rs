//! Bytes on their way out, in order, and a reply on its way in.

use std::io::{self, ErrorKind, Write};

/// Capacity that an empty buffer keeps, in bytes: idle clients are many.
const KEEP: usize = 1024;

/// Bytes that a socket has not taken yet.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    /// Bytes at the front that have been taken.
    taken: usize,
}

impl Out {
    /// Returns how many bytes wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what waits.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Returns where further bytes go.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes what the socket takes; returns how many bytes it took.
    ///
    /// # Errors
    /// The socket fails, or takes nothing more for ever.
    pub fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let before = self.taken;
        while let Some(rest) = self.bytes.get(self.taken..).filter(|rest| !rest.is_empty()) {
            match to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let written = self.taken - before;
        if self.is_empty() {
            self.bytes.clear();
            self.taken = 0;
            self.bytes.shrink_to(KEEP);
        } else if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        Ok(written)
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        *self = Out::default();
    }
}

/// A reply that comes in parts, or that it was too long to keep.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    is_long: bool,
}

impl Gathered {
    /// Adds a part; drops all of a reply of more than `max` bytes.
    pub fn add(&mut self, part: &[u8], max: usize) {
        if self.bytes.len() + part.len() > max {
            *self = Gathered { bytes: Vec::new(), is_long: true };
        }
        if !self.is_long {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Returns the reply, and whether it was too long.
    pub fn take(&mut self) -> (Vec<u8>, bool) {
        let Gathered { bytes, is_long } = std::mem::take(self);
        (bytes, is_long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, and sometimes none.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(7);
            self.0.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_bytes_go_out_once_and_in_order() {
        let (mut out, mut slow) = (Out::default(), Slow(Vec::new(), 0));
        let mut all: Vec<u8> = Vec::new();
        for round in 0..100u8 {
            let bytes = vec![round; usize::from(round)];
            out.end().extend(&bytes);
            all.extend(&bytes);
            let before = out.len();
            let written = out.write(&mut slow).expect("it takes some");
            assert_eq!(out.len(), before - written);
        }
        while !out.is_empty() {
            out.write(&mut slow).expect("it takes some");
        }
        assert_eq!(slow.0, all);
        assert!(out.bytes.capacity() <= KEEP);
    }

    #[test]
    fn a_socket_that_fails_is_an_error() {
        struct Broken(ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Out::default();
        out.end().push(1);
        assert!(out.write(&mut Broken(ErrorKind::BrokenPipe)).is_err());
        assert_eq!(out.len(), 1);
        assert_eq!(out.write(&mut Broken(ErrorKind::WouldBlock)).ok(), Some(0));
    }
}
