//! Packet captures: reads any pcap or pcapng, writes nanosecond pcap.

mod error;
mod link;
mod pcapng;
mod read;
mod stream;
mod write;

pub use error::{CaptureError, Part};
pub use link::LinkType;
pub use read::{CAPTURED_LEN_MAX, Capture, Packet, read_ethernet};
pub use stream::{CaptureStream, StreamWriter};
pub use write::{CaptureSet, WriteError, without_path};
