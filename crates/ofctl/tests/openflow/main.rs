//! OpenFlow control of a running switch: by a client of our own, by `ovs-ofctl`, by os-ken, and by
//! peers that mean harm.
//!
//! The switch has ports in memory unless a test says otherwise.

mod bench;
mod client;
mod connections;
mod hostile;
mod ofctl;
mod osken;
mod packets;
mod sessions;
mod statistics;
mod writes;
