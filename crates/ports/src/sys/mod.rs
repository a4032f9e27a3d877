//! System calls for several kinds of port, each behind a safe function.

pub(crate) mod interface;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod socket;
