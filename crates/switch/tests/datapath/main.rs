//! Rules in, packets through: every tier against the oracle.

mod allocations;
mod changes;
mod common;
mod datapath;
mod explosion;
mod live;
mod megaflow;
mod parse;
mod parse_random;
mod translate;
