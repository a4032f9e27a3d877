//! Tables: counters, configuration, features (specification 7.3.5.5, 7.3.5.17, 7.3.5.18).
//!
//! ```text
//!  0       1                       4                               8
//!  +-------+-----------------------+-------------------------------+
//!  | table |         zeros         |             flows             |   counters
//!  +-------+-----------------------+-------------------------------+
//!  |              lookups, then lookups that matched               |
//!  +---------------------------------------------------------------+
//!
//!  +---------------+-------+-------+-------------------------------+
//!  |    length     | table | zero  |            config             |   description (1.4)
//!  +---------------+-------+-------+-------------------------------+
//!
//!  +---------------+-------+-------+-------------------------------+
//!  |    length     | table |command|           features            |   features; command and
//!  +---------------+-------+-------+-------------------------------+   features: zeros before 1.5
//!  |                        name, 32 bytes                         |
//!  |     metadata bits to match 8, metadata bits to write 8        |
//!  +-------------------------------+-------------------------------+
//!  |   config (1.5: capabilities)  |          most flows           |
//!  +-------------------------------+-------------------------------+
//!  |  properties, padded: type 2, length 2, identifiers            |
//!  +---------------------------------------------------------------+
//! ```
//! `ovs-ofctl` asks for the features before it sends a flow-mod. Before 1.5 it expects all
//! properties of a regular flow from every table; the lists may be empty.

use crate::bytes::{Put, Reader};
use crate::codes::{BadRequest, TableFeaturesFailed};
use crate::error::{DecodeError, EncodeError};
use crate::name::Name;
use crate::version::Version;

const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SETFIELD: u16 = 12;
const APPLY_SETFIELD: u16 = 14;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableStats {
    pub table: u8,
    /// Number of flows.
    pub active: u32,
    /// Lookups.
    pub lookups: u64,
    /// Lookups that matched.
    pub matched: u64,
}

impl TableStats {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<TableStats, DecodeError> {
        let table = r.u8()?;
        r.skip(3)?;
        Ok(TableStats { table, active: r.u32()?, lookups: r.u64()?, matched: r.u64()? })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put(&[self.table, 0, 0, 0]);
        out.put_u32(self.active);
        out.put_u64(self.lookups);
        out.put_u64(self.matched);
        Ok(())
    }
}

/// Configuration of a table (1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableDesc {
    pub table: u8,
    /// Bits, as in a table-mod.
    pub config: u32,
}

impl TableDesc {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<TableDesc, DecodeError> {
        let whole = r.clone();
        let (length, table) = (usize::from(r.u16()?), r.u8()?);
        r.skip(1)?;
        let config = r.u32()?;
        let properties = length.checked_sub(8).ok_or_else(|| whole.bad_len("is too short"))?;
        r.skip(properties)?;
        Ok(TableDesc { table, config })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u16(8);
        out.put(&[self.table, 0]);
        out.put_u32(self.config);
        Ok(())
    }
}

/// Features of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableFeatures {
    pub table: u8,
    /// Change to make (1.5): 0 replace, 1 modify, 2 enable, 3 disable.
    pub command: u8,
    /// Bits: 1 ingress table, 2 egress table, 16 first egress table (1.5).
    pub features: u32,
    pub name: Name<32>,
    /// Bits of metadata that it matches.
    pub metadata_match: u64,
    /// Bits of metadata that it writes.
    pub metadata_write: u64,
    /// Configuration, as in a table-mod; in 1.5 the possible configurations.
    pub config: u32,
    /// Most flows.
    pub entries_max: u32,
    pub properties: Vec<TableProperty>,
}

/// What flows of a table may contain. `miss` marks a property of the table-miss flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableProperty {
    Instructions {
        miss: bool,
        types: Vec<u16>,
    },
    /// Tables that `goto_table` may name.
    NextTables {
        miss: bool,
        tables: Vec<u8>,
    },
    /// Actions of the action set.
    WriteActions {
        miss: bool,
        types: Vec<u16>,
    },
    /// Actions that run at once.
    ApplyActions {
        miss: bool,
        types: Vec<u16>,
    },
    /// Fields to match, as [`OxmField::id`](crate::OxmField::id) returns them.
    Match(Vec<u32>),
    /// Fields that a match may omit.
    Wildcards(Vec<u32>),
    /// Fields that the action set can write.
    WriteSetField {
        miss: bool,
        fields: Vec<u32>,
    },
    /// Fields that can be written at once.
    ApplySetField {
        miss: bool,
        fields: Vec<u32>,
    },
    /// Any other property, and one that lists extensions.
    Other {
        kind: u16,
        /// The bytes after type and length.
        body: Vec<u8>,
    },
}

/// Reads types of instructions or actions, each of length 4. Returns `None` if one is an extension.
fn types(mut r: Reader<'_>) -> Result<Option<Vec<u16>>, DecodeError> {
    let mut types = Vec::with_capacity(r.left() / 4);
    while r.left() > 0 {
        let (kind, length) = (r.u16()?, r.u16()?);
        if kind == 0xffff || length != 4 {
            return Ok(None);
        }
        types.push(kind);
    }
    Ok(Some(types))
}

/// Reads headers of fields. Returns `None` if one is an extension.
fn fields(mut r: Reader<'_>) -> Result<Option<Vec<u32>>, DecodeError> {
    let mut fields = Vec::with_capacity(r.left() / 4);
    while r.left() > 0 {
        let field = r.u32()?;
        if field >> 16 == 0xffff {
            return Ok(None);
        }
        fields.push(field);
    }
    Ok(Some(fields))
}

impl TableProperty {
    fn decode(r: &mut Reader<'_>) -> Result<TableProperty, DecodeError> {
        let bad_len = TableFeaturesFailed::BadLen.into();
        let (kind, mut body) = r.tlv("table property", bad_len)?;
        let miss = kind & 1 == 1;
        let typed =
            match kind & !1 {
                INSTRUCTIONS => {
                    types(body.clone())?.map(|types| TableProperty::Instructions { miss, types })
                }
                WRITE_ACTIONS => {
                    types(body.clone())?.map(|types| TableProperty::WriteActions { miss, types })
                }
                APPLY_ACTIONS => {
                    types(body.clone())?.map(|types| TableProperty::ApplyActions { miss, types })
                }
                NEXT_TABLES => {
                    let tables = body.clone().rest().to_vec();
                    Some(TableProperty::NextTables { miss, tables })
                }
                MATCH if !miss => fields(body.clone())?.map(TableProperty::Match),
                WILDCARDS if !miss => fields(body.clone())?.map(TableProperty::Wildcards),
                WRITE_SETFIELD => fields(body.clone())?
                    .map(|fields| TableProperty::WriteSetField { miss, fields }),
                APPLY_SETFIELD => fields(body.clone())?
                    .map(|fields| TableProperty::ApplySetField { miss, fields }),
                _ => None,
            };
        Ok(typed.unwrap_or_else(|| TableProperty::Other { kind, body: body.rest().to_vec() }))
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let put_types = |kind: u16, miss: bool, types: &[u16], out: &mut Vec<u8>| {
            out.tlv(kind | u16::from(miss), |out| {
                for &kind in types {
                    out.put_u16(kind);
                    out.put_u16(4);
                }
                Ok(())
            })
        };
        let put_fields = |kind: u16, miss: bool, fields: &[u32], out: &mut Vec<u8>| {
            out.tlv(kind | u16::from(miss), |out| {
                fields.iter().for_each(|&field| out.put_u32(field));
                Ok(())
            })
        };
        match *self {
            TableProperty::Instructions { miss, ref types } => {
                put_types(INSTRUCTIONS, miss, types, out)
            }
            TableProperty::WriteActions { miss, ref types } => {
                put_types(WRITE_ACTIONS, miss, types, out)
            }
            TableProperty::ApplyActions { miss, ref types } => {
                put_types(APPLY_ACTIONS, miss, types, out)
            }
            TableProperty::NextTables { miss, ref tables } => {
                out.tlv(NEXT_TABLES | u16::from(miss), |out| {
                    out.put(tables);
                    Ok(())
                })
            }
            TableProperty::Match(ref fields) => put_fields(MATCH, false, fields, out),
            TableProperty::Wildcards(ref fields) => put_fields(WILDCARDS, false, fields, out),
            TableProperty::WriteSetField { miss, ref fields } => {
                put_fields(WRITE_SETFIELD, miss, fields, out)
            }
            TableProperty::ApplySetField { miss, ref fields } => {
                put_fields(APPLY_SETFIELD, miss, fields, out)
            }
            TableProperty::Other { kind, ref body } => out.tlv(kind, |out| {
                out.put(body);
                Ok(())
            }),
        }
    }
}

impl TableFeatures {
    pub(super) fn decode(
        r: &mut Reader<'_>,
        version: Version,
    ) -> Result<TableFeatures, DecodeError> {
        let whole = r.clone();
        let (length, table, command) = (usize::from(r.u16()?), r.u8()?, r.u8()?);
        let features = r.u32()?;
        let (command, features) = if version < Version::V15 { (0, 0) } else { (command, features) };
        let name = Name::from_field(r.take(32)?);
        let (metadata_match, metadata_write) = (r.u64()?, r.u64()?);
        let (config, entries_max) = (r.u32()?, r.u32()?);
        let fixed = whole.left() - r.left();
        let rest = length.checked_sub(fixed).ok_or_else(|| whole.bad_len("is too short"))?;
        let mut list = r.part(rest, "table features", BadRequest::BadLen.into())?;
        let properties = super::list(&mut list, TableProperty::decode)?;
        Ok(TableFeatures {
            table,
            command,
            features,
            name,
            metadata_match,
            metadata_write,
            config,
            entries_max,
            properties,
        })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.zeros(2);
        let (command, features) =
            if version < Version::V15 { (0, 0) } else { (self.command, self.features) };
        out.put(&[self.table, command]);
        out.put_u32(features);
        out.put(self.name.as_bytes());
        out.put_u64(self.metadata_match);
        out.put_u64(self.metadata_write);
        out.put_u32(self.config);
        out.put_u32(self.entries_max);
        self.properties.iter().try_for_each(|property| property.encode(out))?;
        out.close(start, start)
    }
}
