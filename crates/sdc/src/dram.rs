//! Banks and their open rows.
//!
//! Consecutive rows lie in consecutive banks. A row stays open until another row of its bank is
//! wanted.

use crate::{DramShape, shape::LINE};

const CLOSED: u64 = u64::MAX;

/// State of the bank when a line was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Hit,
    Closed,
    Conflict,
}

pub(crate) struct Dram {
    /// Lines of a row, as a power of two.
    shift: u32,
    /// Open row of each bank.
    open: Vec<u64>,
}

impl Dram {
    /// Returns memory with all banks closed, of a shape that has been checked.
    pub fn new(shape: &DramShape) -> Dram {
        Dram {
            shift: (shape.row_bytes / LINE).trailing_zeros(),
            open: vec![CLOSED; shape.banks as usize],
        }
    }

    /// Reads or writes a line: opens its row. Returns what the bank's state was.
    #[inline]
    pub fn access(&mut self, line: u64) -> Row {
        let row = line >> self.shift;
        let bank = row as usize & (self.open.len() - 1);
        match std::mem::replace(&mut self.open[bank], row) {
            CLOSED => Row::Closed,
            open if open == row => Row::Hit,
            _ => Row::Conflict,
        }
    }
}
