//! Frames one after the other, in memory that is used again.

/// Frames in order.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

impl Burst {
    /// Appends a frame that comes in two parts.
    pub fn push(&mut self, head: &[u8], rest: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(rest);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of frames.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Iterates over the frames.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).filter_map(|(&start, &end)| self.bytes.get(start..end))
    }
}
