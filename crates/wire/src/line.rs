//! A line of a stream, joined from the pieces in which it arrives.

use memchr::memchr;

/// Holds the first `N` bytes of a line that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Line<const N: usize> {
    held: [u8; N],
    /// Bytes so far.
    len: u64,
    /// Whether the last byte is a carriage return.
    cr: bool,
}

/// A whole line.
pub(crate) struct Found<'a> {
    /// Its first `N` bytes, without its end.
    pub head: &'a [u8],
    /// Its length with its end.
    pub len: u64,
    /// Bytes of the piece that belong to it.
    pub used: usize,
}

impl<const N: usize> Line<N> {
    pub(crate) const fn new() -> Line<N> {
        Line { held: [0; N], len: 0, cr: false }
    }

    /// Returns the length of what has arrived of a line that has not ended.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the first byte of a line that has not ended.
    pub(crate) fn first(&self) -> Option<u8> {
        (self.len > 0).then_some(self.held[0])
    }

    /// Returns the line if it ends in this piece, and holds the piece otherwise. A line ends with
    /// `\r\n`, or with a bare `\n` as well if `bare`.
    pub(crate) fn feed<'a>(&'a mut self, piece: &'a [u8], bare: bool) -> Option<Found<'a>> {
        let (mut from, mut end) = (0, None);
        while let Some(found) = memchr(b'\n', &piece[from..]) {
            let at = from + found;
            let cr = at.checked_sub(1).map_or(self.cr, |before| piece[before] == b'\r');
            if cr || bare {
                end = Some((at + 1, 1 + usize::from(cr)));
                break;
            }
            from = at + 1;
        }
        let Some((used, end)) = end else {
            self.hold(piece);
            return None;
        };
        if self.len == 0 {
            let head = &piece[..(used - end).min(N)];
            return Some(Found { head, len: used as u64, used });
        }
        self.hold(&piece[..used]);
        let len = std::mem::take(&mut self.len);
        self.cr = false;
        let head = len.saturating_sub(end as u64).min(N as u64);
        Some(Found { head: &self.held[..head as usize], len, used })
    }

    fn hold(&mut self, piece: &[u8]) {
        let Some(&last) = piece.last() else { return };
        let at = self.len.min(N as u64) as usize;
        let kept = piece.len().min(N - at);
        self.held[at..at + kept].copy_from_slice(&piece[..kept]);
        self.len += piece.len() as u64;
        self.cr = last == b'\r';
    }
}
