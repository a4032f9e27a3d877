//! Names in fields of fixed length.

use std::borrow::Cow;
use std::fmt;

/// A text of at most `N - 1` bytes in a field of `N` bytes that ends with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// Takes as much of `text` as fits, cut between characters and before the first zero byte.
    pub fn new(text: &str) -> Name<N> {
        let text = text.split('\0').next().expect("a split has a first piece");
        let end = (0..N.min(text.len() + 1)).rev().find(|&end| text.is_char_boundary(end));
        Name::from_field(&text.as_bytes()[..end.unwrap_or(0)])
    }

    /// Reads a received field: it ends at the first zero byte, and the last byte is always zero.
    pub(crate) fn from_field(field: &[u8]) -> Name<N> {
        let mut name = [0; N];
        for (to, &from) in name.iter_mut().take(N.saturating_sub(1)).zip(field) {
            if from == 0 {
                break;
            }
            *to = from;
        }
        Name(name)
    }

    pub fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// Returns the text; replaces bytes that are not UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&self.0[..len])
    }
}

impl<const N: usize> Default for Name<N> {
    fn default() -> Self {
        Name([0; N])
    }
}

impl<const N: usize> fmt::Display for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<const N: usize> fmt::Debug for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_their_field() {
        assert_eq!(Name::<8>::new("veth1").to_string(), "veth1");
        assert_eq!(Name::<8>::new("veth1-long").to_string(), "veth1-l");
        assert_eq!(Name::<8>::new("abcdef\u{20ac}").to_string(), "abcdef");
        assert_eq!(Name::<8>::new("a\0b").to_string(), "a");
        assert_eq!(Name::<8>::new("").as_bytes(), &[0; 8]);
        assert_eq!(Name::<4>::from_field(b"abcdef").as_bytes(), b"abc\0");
        assert_eq!(Name::<8>::from_field(b"ab\0cdefg").as_bytes(), b"ab\0\0\0\0\0\0");
    }
}
