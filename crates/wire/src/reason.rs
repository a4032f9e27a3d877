//! Why a frame is not processed at all.

use thiserror::Error;

/// Why a frame is dropped before any rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DropReason {
    /// Fewer than the 14 bytes of an Ethernet header.
    #[error("frame shorter than an Ethernet header")]
    TruncatedEthernet,
    /// More bytes than [`crate::edit::FRAME_MAX`].
    #[error("frame longer than {} bytes", crate::edit::FRAME_MAX)]
    FrameTooLong,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 2] = [DropReason::TruncatedEthernet, DropReason::FrameTooLong];

    /// A short name for counters and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::TruncatedEthernet => "truncated_ethernet",
            DropReason::FrameTooLong => "frame_too_long",
        }
    }
}

/// The packet's TTL or hop limit does not allow another hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("TTL expired")]
pub struct TtlExpired;
