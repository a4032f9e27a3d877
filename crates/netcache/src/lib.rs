//! A key-value cache on the path, as pure machines: no I/O, no threads, no clock.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017.
//!
//! - [`slots`]: which units of the value memory belong to which cached key (algorithm 2).

pub mod slots;
