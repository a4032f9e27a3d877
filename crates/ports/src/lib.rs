//! Where packets come from and go to: captures on disk, frames in memory, interfaces.
//!
//! - [`capture`]: reads pcap and pcapng, plain or gzipped; writes one pcap per output port.
//! - [`sniff`]: frames that come in on a network interface, for a while.
//! - [`memory`]: many frames in one arena, each on cache lines of its own.
//! - [`queue`]: what a port of a running switch is. [`spec`] makes one of a text; the kinds are
//!   [`afpacket`], [`afxdp`], [`tap`], [`mod@pcap`] and [`looped`]; [`fault`] and [`dump`] go around
//!   any of them.
//! - [`offload`]: checksums and segments that the kernel left to hardware.
//!
//! Beyond what offloads and spreading over queues need, nothing here knows what a frame means: that
//! is `overbank-wire`.

#[cfg(target_os = "linux")]
pub mod afpacket;
#[cfg(target_os = "linux")]
pub mod afxdp;
pub mod capture;
pub mod dump;
pub mod fault;
pub mod flow;
pub mod looped;
pub mod memory;
pub mod offload;
pub mod pcap;
pub mod queue;
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
