//! Next hops of packet ports, from the kernel's routes and neighbours.
//!
//! A port that takes its frames past the kernel (AF_XDP) sends them by the kernel's routes all the
//! same: routing daemons, `ip route`, ARP and neighbour discovery go on as before.
//!
//! ```text
//!   events (rtnetlink groups)  ─▶ something changed ─▶ links, routes, neighbours, read as a whole
//!                                                                      │
//!   engine ◀─ routes of a port: prefix ─▶ MAC address, or none ◀── [`Hops::of`]
//! ```
//!
//! An event says only that something changed. The state always comes from a dump, so that neither a
//! lost event nor one out of order can leave it wrong, whatever the kernel's version reports.
//!
//! - [`Held`]: an address that an interface has while this process lives.
//! - [`Watcher`]: asks the kernel. No thread: the caller calls [`Watcher::refresh`] now and then.
//! - [`Facts`]: what the kernel said. [`Hops`]: what follows from it for one interface.
//!
//! Limits: tables `main` and `local`, no policy rules; of several next hops of a route, the first
//! that can be reached. Routes and neighbours are bounded ([`MAX`]): beyond it, the error says so
//! and the hops of before stay. Cost: a dump when something changed, a tenth of the time at most.

mod held;
mod hops;
mod kernel;

pub use held::Held;
pub use hops::{Facts, Hops, Link, Mac, Neighbour, NextHop, Route, Way};
pub use kernel::{MAX, WatchError, Watcher};
