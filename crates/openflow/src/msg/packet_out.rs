//! A packet from the controller (specification 7.3.6).
//!
//! ```text
//!  8                               12                              16
//!  +-------------------------------+-------------------------------+
//!  |           buffer id           |         ingress port          |   1.3 and 1.4
//!  +---------------+---------------+-------------------------------+
//!  | actions length|                     zeros                     |
//!  +---------------+-----------------------------------------------+
//!  |  actions, packet
//!
//!  +-------------------------------+---------------+---------------+
//!  |           buffer id           | actions length|     zeros     |   1.5
//!  +-------------------------------+---------------+---------------+
//!  |  match: ingress port and other pipeline fields; actions; packet
//! ```

use crate::action::Action;
use crate::bytes::{Put, Reader};
use crate::codes::{BadAction, BadRequest};
use crate::error::{DecodeError, EncodeError};
use crate::oxm::{OxmField, OxmMatch};
use crate::version::Version;

/// A packet to send, or to process by the tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PacketOut {
    /// Number of the buffered packet, or [`BUFFER_NONE`](crate::BUFFER_NONE).
    pub buffer_id: u32,
    /// Ingress port to assume, often [`port::CONTROLLER`](crate::consts::port::CONTROLLER).
    pub in_port: u32,
    /// Other fields that are not part of the packet (1.5).
    pub pipeline: OxmMatch,
    pub actions: Vec<Action>,
    /// The packet, unless it is buffered.
    pub data: Vec<u8>,
}

impl PacketOut {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PacketOut, DecodeError> {
        let buffer_id = r.u32()?;
        let (in_port, pipeline, actions_len) = if version < Version::V15 {
            let (in_port, actions_len) = (r.u32()?, r.u16()?);
            r.skip(6)?;
            (in_port, OxmMatch::default(), actions_len)
        } else {
            let actions_len = r.u16()?;
            r.skip(2)?;
            let start = r.clone();
            let mut pipeline = OxmMatch::decode_fields(r)?;
            let Some(in_port) = pipeline.in_port() else {
                return Err(start.fail("has no ingress port", BadRequest::BadPort.into()));
            };
            pipeline.fields.retain(|oxm| oxm.field != OxmField::InPort);
            if pipeline.iter().any(|oxm| !is_pipeline(oxm.field)) {
                let code = BadRequest::PipelineFieldsOnly.into();
                return Err(start.fail("has a field of a packet", code));
            }
            (in_port, pipeline, actions_len)
        };
        let mut list = r.part(actions_len.into(), "actions", BadAction::BadLen.into())?;
        let actions = Action::decode_list(&mut list, version)?;
        Ok(PacketOut { buffer_id, in_port, pipeline, actions, data: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u32(self.buffer_id);
        let at = if version < Version::V15 {
            if !self.pipeline.is_empty() {
                let what = "pipeline fields of a packet-out";
                return Err(EncodeError::NotInVersion { what, version });
            }
            out.put_u32(self.in_port);
            out.zeros(8);
            out.len() - 8
        } else {
            out.zeros(4);
            let at = out.len() - 4;
            let mut matching = OxmMatch::of_port(self.in_port);
            matching.fields.extend(self.pipeline.iter().filter(|o| o.field != OxmField::InPort));
            matching.encode(version, out)?;
            at
        };
        let start = out.len();
        Action::encode_list(&self.actions, version, out)?;
        out.close(start, at)?;
        out.put(&self.data);
        Ok(())
    }
}

/// Returns whether a field is not part of the packet's bytes.
fn is_pipeline(field: OxmField) -> bool {
    matches!(
        field,
        OxmField::InPhyPort
            | OxmField::Metadata
            | OxmField::TunnelId
            | OxmField::ActsetOutput
            | OxmField::PacketType
    )
}
