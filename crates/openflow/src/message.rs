//! Every message as one type.

use crate::bytes::Put;
use crate::bytes::Reader;
use crate::codes::{BadRequest, ErrorCode};
use crate::error::{DecodeError, EncodeError};
use crate::header::{HEADER_LEN, Header, kind};
use crate::hello::Hello;
use crate::msg::async_config::AsyncConfig;
use crate::msg::bundle::{BundleAdd, BundleControl};
use crate::msg::error::ErrorMessage;
use crate::msg::experimenter::Experimenter;
use crate::msg::features::{Features, SwitchConfig};
use crate::msg::flow_mod::FlowMod;
use crate::msg::flow_removed::FlowRemoved;
use crate::msg::group::GroupMod;
use crate::msg::meter::MeterMod;
use crate::msg::packet_in::PacketIn;
use crate::msg::packet_out::PacketOut;
use crate::msg::port::{PortMod, PortStatus};
use crate::msg::role::{RoleState, RoleStatus};
use crate::msg::table::TableMod;
use crate::multipart::{MultipartReply, MultipartRequest};
use crate::version::Version;

/// A message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Versions that a side speaks.
    Hello(Hello),
    Error(ErrorMessage),
    /// Request for an echo reply with the same bytes.
    EchoRequest(Vec<u8>),
    /// Answer to an echo request.
    EchoReply(Vec<u8>),
    /// A message of an extension.
    Experimenter(Experimenter),
    /// Request for the switch's features.
    FeaturesRequest,
    FeaturesReply(Features),
    /// Request for the switch's configuration.
    GetConfigRequest,
    GetConfigReply(SwitchConfig),
    /// Change of the switch's configuration.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// A removed flow.
    FlowRemoved(FlowRemoved),
    /// A port that was added, removed or changed.
    PortStatus(PortStatus),
    /// A packet from the controller.
    PacketOut(PacketOut),
    FlowMod(FlowMod),
    GroupMod(GroupMod),
    PortMod(PortMod),
    TableMod(TableMod),
    MultipartRequest(MultipartRequest),
    MultipartReply(MultipartReply),
    /// Request for a reply once all earlier messages are done.
    BarrierRequest,
    BarrierReply,
    /// Request for the queues of a port (1.3).
    QueueGetConfigRequest {
        /// The port, or [`port::ANY`](crate::consts::port::ANY).
        port: u32,
    },
    /// Reply that a port has no queues (1.3).
    QueueGetConfigReply {
        /// The port of the request.
        port: u32,
    },
    /// Request for a role.
    RoleRequest(RoleState),
    RoleReply(RoleState),
    /// Change of the controller's role (1.4).
    RoleStatus(RoleStatus),
    /// Request for the set of asynchronous messages.
    GetAsyncRequest,
    GetAsyncReply(AsyncConfig),
    /// Choice of the asynchronous messages to receive.
    SetAsync(AsyncConfig),
    MeterMod(MeterMod),
    /// Opens, closes, commits or discards a bundle (1.4).
    BundleControl(BundleControl),
    /// Adds a message to a bundle (1.4).
    BundleAdd(BundleAdd),
}

/// Returns the first and the last version that have a type of message.
fn versions(kind: u8) -> Option<(Version, Version)> {
    match kind {
        kind::QUEUE_GET_CONFIG_REQUEST | kind::QUEUE_GET_CONFIG_REPLY => {
            Some((Version::V13, Version::V13))
        }
        0..=kind::METER_MOD => Some((Version::V13, Version::V15)),
        kind::ROLE_STATUS | kind::BUNDLE_CONTROL | kind::BUNDLE_ADD_MESSAGE => {
            Some((Version::V14, Version::V15))
        }
        _ => None,
    }
}

fn has(version: Version, kind: u8) -> bool {
    versions(kind).is_some_and(|(first, last)| (first..=last).contains(&version))
}

impl Message {
    /// Reads the body of a message of the negotiated `version`. A HELLO may have any version.
    pub fn decode(version: Version, header: &Header, body: &[u8]) -> Result<Message, DecodeError> {
        let bad_len = ErrorCode::BadRequest(BadRequest::BadLen);
        let at_type = Reader::new(&[], 1, "message", bad_len);
        let mut reader = Reader::new(body, HEADER_LEN, name(header.kind), bad_len);
        let r = &mut reader;
        if header.kind == kind::HELLO {
            return Ok(Message::Hello(Hello::decode(header, body)));
        }
        if header.version != version.wire() {
            let at_version = Reader::new(&[], 0, "message", bad_len);
            return Err(at_version.fail("is of another version", BadRequest::BadVersion.into()));
        }
        if !has(version, header.kind) {
            return Err(at_type.fail("has an unknown type", BadRequest::BadType.into()));
        }
        let message = match header.kind {
            kind::ERROR => Message::Error(ErrorMessage::decode(r)?),
            kind::ECHO_REQUEST => Message::EchoRequest(r.rest().to_vec()),
            kind::ECHO_REPLY => Message::EchoReply(r.rest().to_vec()),
            kind::EXPERIMENTER => Message::Experimenter(Experimenter::decode(r)?),
            kind::FEATURES_REQUEST => Message::FeaturesRequest,
            kind::FEATURES_REPLY => Message::FeaturesReply(Features::decode(r)?),
            kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
            kind::GET_CONFIG_REPLY => Message::GetConfigReply(SwitchConfig::decode(r)?),
            kind::SET_CONFIG => Message::SetConfig(SwitchConfig::decode(r)?),
            kind::PACKET_IN => Message::PacketIn(PacketIn::decode(r, version)?),
            kind::FLOW_REMOVED => Message::FlowRemoved(FlowRemoved::decode(r, version)?),
            kind::PORT_STATUS => Message::PortStatus(PortStatus::decode(r, version)?),
            kind::PACKET_OUT => Message::PacketOut(PacketOut::decode(r, version)?),
            kind::FLOW_MOD => Message::FlowMod(FlowMod::decode(r, version)?),
            kind::GROUP_MOD => Message::GroupMod(GroupMod::decode(r, version)?),
            kind::PORT_MOD => Message::PortMod(PortMod::decode(r, version)?),
            kind::TABLE_MOD => Message::TableMod(TableMod::decode(r, version)?),
            kind::MULTIPART_REQUEST => {
                Message::MultipartRequest(MultipartRequest::decode(r, version)?)
            }
            kind::MULTIPART_REPLY => Message::MultipartReply(MultipartReply::decode(r, version)?),
            kind::BARRIER_REQUEST => Message::BarrierRequest,
            kind::BARRIER_REPLY => Message::BarrierReply,
            kind::QUEUE_GET_CONFIG_REQUEST | kind::QUEUE_GET_CONFIG_REPLY => {
                let port = r.u32()?;
                r.skip(4)?;
                if header.kind == kind::QUEUE_GET_CONFIG_REQUEST {
                    Message::QueueGetConfigRequest { port }
                } else {
                    Message::QueueGetConfigReply { port }
                }
            }
            kind::ROLE_REQUEST => Message::RoleRequest(RoleState::decode(r)?),
            kind::ROLE_REPLY => Message::RoleReply(RoleState::decode(r)?),
            kind::ROLE_STATUS => Message::RoleStatus(RoleStatus::decode(r)?),
            kind::GET_ASYNC_REQUEST => Message::GetAsyncRequest,
            kind::GET_ASYNC_REPLY => Message::GetAsyncReply(AsyncConfig::decode(r, version)?),
            kind::SET_ASYNC => Message::SetAsync(AsyncConfig::decode(r, version)?),
            kind::METER_MOD => Message::MeterMod(MeterMod::decode(r)?),
            kind::BUNDLE_CONTROL => Message::BundleControl(BundleControl::decode(r)?),
            kind::BUNDLE_ADD_MESSAGE => Message::BundleAdd(BundleAdd::decode(r, header.xid)?),
            _ => return Err(at_type.fail("has an unknown type", BadRequest::BadType.into())),
        };
        reader.end()?;
        Ok(message)
    }

    /// Appends the message with its header to `out`; a reply that is too long for one message
    /// becomes several. On error, `out` is unchanged.
    pub fn encode(&self, version: Version, xid: u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let written = self.write(version, xid, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn write(&self, version: Version, xid: u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let kind = self.kind();
        if !has(version, kind) {
            return Err(EncodeError::NotInVersion { what: name(kind), version });
        }
        if let Message::MultipartReply(reply) = self {
            return reply.encode_parts(version, xid, out);
        }
        let start = out.len();
        out.put(&Header { version: version.wire(), kind, length: 0, xid }.to_bytes());
        match self {
            Message::Hello(hello) => hello.encode(out)?,
            Message::Error(error) => error.encode(out),
            Message::EchoRequest(data) | Message::EchoReply(data) => out.put(data),
            Message::Experimenter(experimenter) => experimenter.encode(out),
            Message::FeaturesReply(features) => features.encode(out),
            Message::GetConfigReply(config) | Message::SetConfig(config) => config.encode(out),
            Message::PacketIn(packet) => packet.encode(version, out)?,
            Message::FlowRemoved(removed) => removed.encode(version, out)?,
            Message::PortStatus(status) => status.encode(version, out)?,
            Message::PacketOut(packet) => packet.encode(version, out)?,
            Message::FlowMod(flow) => flow.encode(version, out)?,
            Message::GroupMod(group) => group.encode(version, out)?,
            Message::PortMod(port) => port.encode(version, out)?,
            Message::TableMod(table) => table.encode(version, out)?,
            Message::MultipartRequest(request) => request.encode(version, out)?,
            Message::QueueGetConfigRequest { port } | Message::QueueGetConfigReply { port } => {
                out.put_u32(*port);
                out.zeros(4);
            }
            Message::RoleRequest(state) | Message::RoleReply(state) => state.encode(out),
            Message::RoleStatus(status) => status.encode(out),
            Message::GetAsyncReply(config) | Message::SetAsync(config) => {
                config.encode(version, out)?;
            }
            Message::MeterMod(meter) => meter.encode(out),
            Message::BundleControl(control) => control.encode(out),
            Message::BundleAdd(add) => add.encode(out),
            Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest
            | Message::MultipartReply(_) => {}
        }
        out.close(start, start + 2)
    }

    pub fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => kind::HELLO,
            Message::Error(_) => kind::ERROR,
            Message::EchoRequest(_) => kind::ECHO_REQUEST,
            Message::EchoReply(_) => kind::ECHO_REPLY,
            Message::Experimenter(_) => kind::EXPERIMENTER,
            Message::FeaturesRequest => kind::FEATURES_REQUEST,
            Message::FeaturesReply(_) => kind::FEATURES_REPLY,
            Message::GetConfigRequest => kind::GET_CONFIG_REQUEST,
            Message::GetConfigReply(_) => kind::GET_CONFIG_REPLY,
            Message::SetConfig(_) => kind::SET_CONFIG,
            Message::PacketIn(_) => kind::PACKET_IN,
            Message::FlowRemoved(_) => kind::FLOW_REMOVED,
            Message::PortStatus(_) => kind::PORT_STATUS,
            Message::PacketOut(_) => kind::PACKET_OUT,
            Message::FlowMod(_) => kind::FLOW_MOD,
            Message::GroupMod(_) => kind::GROUP_MOD,
            Message::PortMod(_) => kind::PORT_MOD,
            Message::TableMod(_) => kind::TABLE_MOD,
            Message::MultipartRequest(_) => kind::MULTIPART_REQUEST,
            Message::MultipartReply(_) => kind::MULTIPART_REPLY,
            Message::BarrierRequest => kind::BARRIER_REQUEST,
            Message::BarrierReply => kind::BARRIER_REPLY,
            Message::QueueGetConfigRequest { .. } => kind::QUEUE_GET_CONFIG_REQUEST,
            Message::QueueGetConfigReply { .. } => kind::QUEUE_GET_CONFIG_REPLY,
            Message::RoleRequest(_) => kind::ROLE_REQUEST,
            Message::RoleReply(_) => kind::ROLE_REPLY,
            Message::RoleStatus(_) => kind::ROLE_STATUS,
            Message::GetAsyncRequest => kind::GET_ASYNC_REQUEST,
            Message::GetAsyncReply(_) => kind::GET_ASYNC_REPLY,
            Message::SetAsync(_) => kind::SET_ASYNC,
            Message::MeterMod(_) => kind::METER_MOD,
            Message::BundleControl(_) => kind::BUNDLE_CONTROL,
            Message::BundleAdd(_) => kind::BUNDLE_ADD_MESSAGE,
        }
    }

    /// Returns the specification's name of the message.
    pub fn name(&self) -> &'static str {
        name(self.kind())
    }
}

/// Returns the specification's name of a type of message.
fn name(kind: u8) -> &'static str {
    match kind {
        kind::HELLO => "hello",
        kind::ERROR => "error",
        kind::ECHO_REQUEST => "echo request",
        kind::ECHO_REPLY => "echo reply",
        kind::EXPERIMENTER => "experimenter",
        kind::FEATURES_REQUEST => "features request",
        kind::FEATURES_REPLY => "features reply",
        kind::GET_CONFIG_REQUEST => "get-config request",
        kind::GET_CONFIG_REPLY => "get-config reply",
        kind::SET_CONFIG => "set-config",
        kind::PACKET_IN => "packet-in",
        kind::FLOW_REMOVED => "flow-removed",
        kind::PORT_STATUS => "port-status",
        kind::PACKET_OUT => "packet-out",
        kind::FLOW_MOD => "flow-mod",
        kind::GROUP_MOD => "group-mod",
        kind::PORT_MOD => "port-mod",
        kind::TABLE_MOD => "table-mod",
        kind::MULTIPART_REQUEST => "multipart request",
        kind::MULTIPART_REPLY => "multipart reply",
        kind::BARRIER_REQUEST => "barrier request",
        kind::BARRIER_REPLY => "barrier reply",
        kind::QUEUE_GET_CONFIG_REQUEST => "queue-get-config request",
        kind::QUEUE_GET_CONFIG_REPLY => "queue-get-config reply",
        kind::ROLE_REQUEST => "role request",
        kind::ROLE_REPLY => "role reply",
        kind::ROLE_STATUS => "role-status",
        kind::GET_ASYNC_REQUEST => "get-async request",
        kind::GET_ASYNC_REPLY => "get-async reply",
        kind::SET_ASYNC => "set-async",
        kind::METER_MOD => "meter-mod",
        kind::BUNDLE_CONTROL => "bundle control",
        kind::BUNDLE_ADD_MESSAGE => "bundle add",
        _ => "message",
    }
}
