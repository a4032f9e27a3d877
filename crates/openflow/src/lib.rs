//! OpenFlow 1.3, 1.4 and 1.5: messages to bytes and back.
//!
//! A codec only: no I/O, no clock, no session state. [`Frames`] cuts a byte stream into whole
//! messages, [`Message::decode`] reads one, [`Message::encode`] writes one. Extensions of Open
//! vSwitch that its tools send by default are decoded if a rule of this switch can express them.
//! The rest stays opaque, so that a switch can refuse it by name.
//!
//! Each message family has one file, which draws the layout and names the section of the
//! specification (OpenFlow Switch Specification 1.3.5, 1.4.1, 1.5.1).
//!
//! Guarantees:
//! - Decoding is a total function of the bytes. It returns a value, or a [`DecodeError`] that says
//!   what is wrong and where, and which OpenFlow error a switch answers with. No input panics.
//! - Decoding allocates in proportion to the message (at most 65,535 bytes): every list element
//!   stands for bytes received, and no length field is trusted before its bytes were seen.
//! - Encoding either appends whole messages, or fails and leaves the buffer as it was.
//! - A decoded message encodes again, and decodes to the same value.

mod action;
mod bytes;
mod codes;
pub mod consts;
mod error;
mod frames;
mod header;
mod hello;
mod instruction;
mod message;
mod msg;
pub mod multipart;
mod name;
mod oxm;
mod stats;
mod version;

pub use action::Action;
pub use codes::{
    AsyncConfigFailed, BadAction, BadInstruction, BadMatch, BadProperty, BadRequest, BundleFailed,
    ErrorCode, FlowModFailed, FlowMonitorFailed, GroupModFailed, HelloFailed, MeterModFailed,
    PortModFailed, QueueOpFailed, RoleRequestFailed, SwitchConfigFailed, TableFeaturesFailed,
    TableModFailed,
};
pub use consts::{BUFFER_NONE, MAX_LEN_NO_BUFFER};
pub use error::{DecodeError, EncodeError};
pub use frames::{Frame, FrameError, Frames};
pub use header::{HEADER_LEN, Header, MESSAGE_LEN_MAX};
pub use hello::{Hello, negotiate};
pub use instruction::Instruction;
pub use message::Message;
pub use msg::async_config::{AsyncConfig, RoleMasks};
pub use msg::bundle::{BundleAdd, BundleControl};
pub use msg::error::{ERROR_DATA_LEN, ErrorMessage};
pub use msg::experimenter::Experimenter;
pub use msg::features::{Capabilities, Features, SwitchConfig};
pub use msg::flow_mod::{FlowCommand, FlowFlags, FlowMod};
pub use msg::flow_removed::{FlowRemoved, FlowRemovedReason};
pub use msg::group::GroupMod;
pub use msg::meter::MeterMod;
pub use msg::packet_in::{PacketIn, PacketInReason};
pub use msg::packet_out::PacketOut;
pub use msg::port::{Port, PortConfig, PortMod, PortReason, PortSpeeds, PortState, PortStatus};
pub use msg::role::{Role, RoleState, RoleStatus, RoleStatusReason};
pub use msg::table::TableMod;
pub use multipart::{MultipartReply, MultipartRequest};
pub use name::Name;
pub use oxm::{Oxm, OxmField, OxmMatch, Prereq, VID_PRESENT};
pub use stats::{Elapsed, Stats};
pub use version::{Version, VersionSet};
