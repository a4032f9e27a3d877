//! SetSep, the table of the paper (`001`, sections 4.3 and 4.4), whole: the reference that
//! [`partition`](super) is compared with. Take that one for use: it is smaller, is built faster and
//! changes under readers.
//!
//! **A key that was never inserted gets an arbitrary value.**
//!
//! ```text
//!   hash ─▶ block (1024 keys), bucket (4 keys) ─ 2 bits ─▶ one of 4 candidate groups of 64
//!
//!   group   value bit 0: │ i │ array of m bits │    value bit j = array_j[H_i(key)]
//!           value bit 1: │ i │ array of m bits │    H_i = G1 + i · G2, its top bits
//! ```
//!
//! A group is solved by trying i = 1, 2, …: each key takes the array's bit that H_i leads it to,
//! unless a key with the other value has it. The settings are those of table 2 and figure 10: 8 or
//! 16 bits of index, arrays of 2 to 30 bits. 0.5 + v (index + m) / 16 bits a key for v value bits;
//! with 16 + 8 that is 0.5 + 1.5 v. Each value bit has its own i; all of them are tested under an i
//! before the next one, so that H_i is computed once for all (section 4.5.1).
//!
//! The largest index marks a group without a solution, whose keys are in a list beside the table.
//!
//! A lookup reads two lines, the second of which depends on the first; a burst asks for all of the
//! first, then for all of the second. Panics: bursts of the wrong length; none otherwise.

mod balance;
mod search;
mod table;
#[cfg(all(test, not(feature = "loom")))]
mod tests;

pub use table::{Config, GroupDelta, SetSep, SetSepError, Stats};

pub use search::Search;
