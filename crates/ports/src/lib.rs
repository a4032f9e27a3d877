//! Where packets come from and go to: captures on disk and frames in memory.
//!
//! - [`capture`]: reads pcap and pcapng, plain or gzipped; writes one pcap per output port.
//! - [`live`]: frames that come in on a network interface, for a while.
//! - [`memory`]: many frames in one arena, each on cache lines of its own.
//!
//! Nothing here knows what a frame means: that is `overbank-wire`.

pub mod capture;
#[cfg(target_os = "linux")]
pub mod live;
pub mod memory;
pub mod queue;

pub use capture::{Capture, CaptureError, CaptureSet, LinkType, Packet, WriteError, read_ethernet};
pub use memory::{Frame, FrameStore, Limits, StoreFull};
