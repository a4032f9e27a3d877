//! Ports: descriptions, notifications, changes (specification 7.2.1, 7.3.4.3, 7.4.3).
//!
//! ```text
//!  0                               4               6               8
//!  +-------------------------------+---------------+---------------+
//!  |            number             |    length     |     zeros     |   port; length: 1.4 and later
//!  +-------------------------------+---------------+---------------+
//!  |               hardware address                |     zeros     |
//!  +-----------------------------------------------+---------------+
//!  |                            name, 16 bytes                     |
//!  |                                                               |
//!  +-------------------------------+-------------------------------+
//!  |            config             |             state             |
//!  +-------------------------------+-------------------------------+
//!  | 1.3: six numbers of speeds; 1.4: properties, speeds are the   |
//!  |      property 0 of 32 bytes: type 2, length 2, zeros 4, six   |
//!  +---------------------------------------------------------------+
//!
//!  +-------------------------------+-------------------------------+
//!  |            number             |             zeros             |   port-mod
//!  +-------------------------------+---------------+---------------+
//!  |               hardware address                |     zeros     |
//!  +-------------------------------+---------------+---------------+
//!  |            config             |             mask              |
//!  +-------------------------------+-------------------------------+
//!  | 1.3: advertise 4, zeros 4; 1.4: properties, advertise is the  |
//!  |      property 0 of 8 bytes                                    |
//!  +---------------------------------------------------------------+
//! ```

use super::{flags, reasons};
use crate::bytes::{Put, Reader};
use crate::codes::{BadProperty, BadRequest, PortModFailed};
use crate::error::{DecodeError, EncodeError};
use crate::name::Name;
use crate::version::Version;

/// The property with speeds, or with features to advertise.
const ETHERNET: u16 = 0;
const EXPERIMENTER: u16 = 0xffff;

flags! {
    PortConfig: u32 {
        /// Administratively down.
        PORT_DOWN = 1,
        /// Drop all packets received.
        NO_RECV = 1 << 2,
        /// Drop all packets to send.
        NO_FWD = 1 << 5,
        /// No packet-in for packets of this port.
        NO_PACKET_IN = 1 << 6,
    }
}

flags! {
    PortState: u32 {
        /// No link.
        LINK_DOWN = 1,
        /// Blocked by the switch.
        BLOCKED = 1 << 1,
        /// Live for fast failover.
        LIVE = 1 << 2,
    }
}

/// Speeds of a port. The first four are sets of bits that ovs-ofctl and others name (`10GB-FD` is
/// bit 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSpeeds {
    /// Features in use.
    pub curr: u32,
    /// Features advertised.
    pub advertised: u32,
    /// Features supported.
    pub supported: u32,
    /// Features advertised by the peer.
    pub peer: u32,
    pub curr_speed_kbps: u32,
    pub max_speed_kbps: u32,
}

impl PortSpeeds {
    fn decode(r: &mut Reader<'_>) -> Result<PortSpeeds, DecodeError> {
        Ok(PortSpeeds {
            curr: r.u32()?,
            advertised: r.u32()?,
            supported: r.u32()?,
            peer: r.u32()?,
            curr_speed_kbps: r.u32()?,
            max_speed_kbps: r.u32()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.curr);
        out.put_u32(self.advertised);
        out.put_u32(self.supported);
        out.put_u32(self.peer);
        out.put_u32(self.curr_speed_kbps);
        out.put_u32(self.max_speed_kbps);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Port {
    pub number: u32,
    pub hw_addr: [u8; 6],
    pub name: Name<16>,
    pub config: PortConfig,
    pub state: PortState,
    pub speeds: PortSpeeds,
}

impl Port {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<Port, DecodeError> {
        let whole = r.clone();
        let (number, length) = (r.u32()?, usize::from(r.u16()?));
        r.skip(2)?;
        let hw_addr = r.array()?;
        r.skip(2)?;
        let name = Name::from_field(r.take(16)?);
        let (config, state) = (PortConfig(r.u32()?), PortState(r.u32()?));
        let mut port = Port { number, hw_addr, name, config, state, speeds: PortSpeeds::default() };
        if version < Version::V14 {
            port.speeds = PortSpeeds::decode(r)?;
            return Ok(port);
        }
        let fixed = whole.left() - r.left();
        let rest = length.checked_sub(fixed).ok_or_else(|| whole.bad_len("is too short"))?;
        let mut properties = r.part(rest, "port", BadRequest::BadLen.into())?;
        while properties.left() > 0 {
            let (kind, mut property) =
                properties.tlv("port property", BadProperty::BadLen.into())?;
            if kind == ETHERNET {
                property.skip(4)?;
                port.speeds = PortSpeeds::decode(&mut property)?;
                property.end()?;
            }
        }
        Ok(port)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.put_u32(self.number);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.put(self.name.as_bytes());
        out.put_u32(self.config.0);
        out.put_u32(self.state.0);
        if version < Version::V14 {
            self.speeds.encode(out);
            return Ok(());
        }
        out.tlv(ETHERNET, |out| {
            out.zeros(4);
            self.speeds.encode(out);
            Ok(())
        })?;
        out.close(start, start + 4)
    }
}

reasons! {
    PortReason {
        Add = 0,
        Delete = 1,
        Modify = 2,
    }
}

/// Notification of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortStatus {
    pub reason: PortReason,
    /// The port as it is now, or was last.
    pub port: Port,
}

impl PortStatus {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PortStatus, DecodeError> {
        let reason = PortReason::from_wire(r.u8()?);
        r.skip(7)?;
        Ok(PortStatus { reason, port: Port::decode(r, version)? })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u8(self.reason.to_wire());
        out.zeros(7);
        self.port.encode(version, out)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortMod {
    pub port: u32,
    /// Must equal the port's address.
    pub hw_addr: [u8; 6],
    /// New values of the bits in `mask`.
    pub config: PortConfig,
    /// Bits to change.
    pub mask: PortConfig,
    /// Features to advertise from now on; 0 changes nothing.
    pub advertise: u32,
}

impl PortMod {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PortMod, DecodeError> {
        let port = r.u32()?;
        r.skip(4)?;
        let hw_addr = r.array()?;
        r.skip(2)?;
        let start = r.clone();
        let (config, mask) = (PortConfig(r.u32()?), PortConfig(r.u32()?));
        if !PortConfig::KNOWN.contains(mask) {
            return Err(start.fail("changes unknown bits", PortModFailed::BadConfig.into()));
        }
        let mut advertise = 0;
        if version < Version::V14 {
            advertise = r.u32()?;
            r.skip(4)?;
        }
        while r.left() > 0 && version >= Version::V14 {
            let start = r.clone();
            let (kind, mut property) = r.tlv("port-mod property", BadProperty::BadLen.into())?;
            match kind {
                ETHERNET => advertise = property.u32()?,
                EXPERIMENTER => {
                    let code = BadProperty::BadExperimenter.into();
                    return Err(start.fail("has an unknown experimenter", code));
                }
                _ => {
                    let code = BadProperty::BadType.into();
                    return Err(start.fail("has an unknown property", code));
                }
            }
            property.end()?;
        }
        Ok(PortMod { port, hw_addr, config, mask, advertise })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u32(self.port);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.put_u32(self.config.0);
        out.put_u32(self.mask.0);
        if version < Version::V14 {
            out.put_u32(self.advertise);
            out.zeros(4);
        } else if self.advertise != 0 {
            out.tlv(ETHERNET, |out| {
                out.put_u32(self.advertise);
                Ok(())
            })?;
        }
        Ok(())
    }
}
