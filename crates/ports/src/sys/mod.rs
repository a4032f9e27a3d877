//! System calls that several kinds of port need, each behind a safe function.

pub(crate) mod interface;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod socket;
