//! Why a frame is not processed.

use thiserror::Error;

overbank_reasons::reasons! {
    /// Why a frame is dropped before any rule sees it.
    pub enum DropReason {
        TruncatedEthernet = "truncated_ethernet", "frame shorter than an Ethernet header";
        FrameTooLong = "frame_too_long", "frame longer than the switch handles";
    }
}

/// The packet's TTL or hop limit does not allow another hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("TTL expired")]
pub struct TtlExpired;

/// A tunnel was congested, and the packet in it cannot carry the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("congestion inside a tunnel")]
pub struct Congested;
