//! Look-aside: keeps the answer of a search, not the path to it.
//!
//! - [`Hints`]: positions in an index that can be asked whether a key lies there.
//! - [`Tree`]: an ordered map in a bounded arena whose positions prove themselves.

mod hints;
#[cfg(test)]
mod tests;
pub mod tree;

pub use hints::{Hints, Positions};
pub use tree::Tree;
