//! SetSep measured, and the partition table beside it: figures 10, 11 and 13 and table 2 of the
//! dissertation (`001`, sections 4.3 to 4.5), and its claims in between.
//!
//! | experiment | file | content |
//! |---|---|---|
//! | `sep-fig10a`, `sep-fig10b`, `sep-tradeoff` | `array.rs` | trials and bits by size of array |
//! | `sep-fig11`, `sep-entropy` | `functions.rs` | one function or two; bits of an index |
//! | `sep-balance`, `sep-table2` | `construction.rs` | largest group; construction |
//! | `sep-fig13` | `lookup.rs` | lookups by batch and number of keys |
//! | `sep-related` | `related.rs` | a Bloom filter for each part |
//! | `sep-billion` | `billion.rs` | a billion keys of the partition table |

mod array;
mod billion;
mod construction;
mod functions;
mod lookup;
mod related;

pub(super) use array::{SEP_FIG10A, SEP_FIG10B, SEP_TRADEOFF};
pub(super) use billion::SEP_BILLION;
pub(super) use construction::{SEP_BALANCE, SEP_TABLE2};
pub(super) use functions::{SEP_ENTROPY, SEP_FIG11};
pub(super) use lookup::SEP_FIG13;
pub(super) use related::SEP_RELATED;

use overbank::hash::mix;

/// Keys of a group on average.
const GROUP: u64 = 16;

/// Random hashes with random values of `bits` bits, from number `first` on.
fn entries(first: u64, keys: u64, bits: u32) -> impl Iterator<Item = (u64, u8)> + Clone {
    (first..first + keys).map(move |i| (mix(i), (mix(!i) & ((1 << bits) - 1)) as u8))
}
