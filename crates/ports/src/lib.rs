//! Sources and destinations of packets: captures on disk, frames in memory, interfaces.
//!
//! - [`capture`]: reads pcap and pcapng, plain or gzipped; writes one pcap per output port.
//! - [`sniff`]: receives frames of a network interface for a while.
//! - [`memory`]: many frames in one arena, each on separate cache lines.
//! - [`queue`]: the interface of a running switch's port. [`spec`] opens one from a text. The kinds
//!   are [`afpacket`], [`afxdp`], [`tap`], [`mod@pcap`] and [`looped`]; [`fault`] and [`dump`] wrap
//!   any of them.
//! - [`offload`]: checksums and segments that the kernel left to hardware.
//!
//! Apart from offloads and spreading over queues, this crate does not interpret frames:
//! `overbank-wire` does.

#[cfg(target_os = "linux")]
pub mod afpacket;
#[cfg(target_os = "linux")]
pub mod afxdp;
#[cfg(target_os = "linux")]
pub mod announce;
pub mod capture;
pub mod dump;
pub mod fault;
pub mod flow;
pub mod looped;
pub mod memory;
pub mod offload;
pub mod pcap;
pub mod queue;
pub mod select;
#[cfg(target_os = "linux")]
pub mod sniff;
#[cfg(target_os = "linux")]
pub mod spec;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
pub mod tap;

pub use capture::{Capture, CaptureError, CaptureSet, LinkType, Packet, WriteError, read_ethernet};
pub use memory::{Frame, FrameStore, Limits, StoreFull};
#[cfg(target_os = "linux")]
pub use spec::{PortSpec, SpecError, open};
