//! What is memcached's own: a client's connection, its items, and what follows the server.
//!
//! ```text
//!   session   one client's connection as a pure machine; replies: what the server answers
//!   item      a cached item, and the replies to get, gets and mg that are made of it
//!   follow    the proxy's own connection: mn ten times a second, mg for values
//!   flush     delayed flush_all: no value outlives it
//! ```
//!
//! memcached says nothing of changes. A change past the proxy is seen when a value's longest age is
//! over; values that are read are asked for again before that. Binary requests pass; of them, keys
//! and writes are known.

mod flush;
mod follow;
mod item;
mod replies;
mod session;
#[cfg(test)]
mod tests;

pub use flush::Flushes;
pub use follow::Follower;
#[cfg(any(test, feature = "fuzz"))]
pub use item::Item;
pub use session::Session;
