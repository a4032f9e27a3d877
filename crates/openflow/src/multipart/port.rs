//! Counters of ports (specification 7.3.5.6).
//!
//! ```text
//!  0                               4                               8
//!  +-------------------------------+-------------------------------+
//!  |             port              |             zeros             |   1.3
//!  +-------------------------------+-------------------------------+
//!  |  eight counters, four of Ethernet errors, then the age        |
//!  +---------------------------------------------------------------+
//!
//!  +---------------+---------------+-------------------------------+
//!  |    length     |     zeros     |             port              |   1.4 and 1.5
//!  +---------------+---------------+-------------------------------+
//!  |                      age, s and ns                            |
//!  +---------------------------------------------------------------+
//!  |  eight counters; properties: Ethernet errors are property 0   |
//!  |  of 40 bytes: type 2, length 2, zeros 4, four counters        |
//!  +---------------------------------------------------------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::{BadProperty, BadRequest};
use crate::error::{DecodeError, EncodeError};
use crate::stats::Elapsed;
use crate::version::Version;

const ETHERNET: u16 = 0;

/// Counters of a port. An unknown counter is all ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortStats {
    pub port: u32,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    /// Packets dropped on reception.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    /// Frame alignment errors, also in `rx_errors`.
    pub rx_frame_err: u64,
    /// Overruns, also in `rx_errors`.
    pub rx_over_err: u64,
    /// Checksum errors, also in `rx_errors`.
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// Time since the port was added.
    pub age: Elapsed,
}

impl PortStats {
    fn counters(&mut self) -> [&mut u64; 8] {
        [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.rx_errors,
            &mut self.tx_errors,
        ]
    }

    fn ethernet(&mut self) -> [&mut u64; 4] {
        [&mut self.rx_frame_err, &mut self.rx_over_err, &mut self.rx_crc_err, &mut self.collisions]
    }

    pub(super) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PortStats, DecodeError> {
        let mut stats = PortStats::default();
        if version < Version::V14 {
            stats.port = super::number(r)?;
            for counter in stats.counters() {
                *counter = r.u64()?;
            }
            for counter in stats.ethernet() {
                *counter = r.u64()?;
            }
            stats.age = Elapsed::decode(r)?;
            return Ok(stats);
        }
        let whole = r.clone();
        let length = usize::from(r.u16()?);
        r.skip(2)?;
        (stats.port, stats.age) = (r.u32()?, Elapsed::decode(r)?);
        for counter in stats.counters() {
            *counter = r.u64()?;
        }
        let fixed = whole.left() - r.left();
        let rest = length.checked_sub(fixed).ok_or_else(|| whole.bad_len("is too short"))?;
        let mut properties = r.part(rest, "port counters", BadRequest::BadLen.into())?;
        for counter in stats.ethernet() {
            *counter = u64::MAX;
        }
        while properties.left() > 0 {
            let (kind, mut property) =
                properties.tlv("port counters property", BadProperty::BadLen.into())?;
            if kind == ETHERNET {
                property.skip(4)?;
                for counter in stats.ethernet() {
                    *counter = property.u64()?;
                }
                property.end()?;
            }
        }
        Ok(stats)
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut stats = *self;
        if version < Version::V14 {
            out.put_u32(self.port);
            out.zeros(4);
            stats.counters().into_iter().for_each(|counter| out.put_u64(*counter));
            stats.ethernet().into_iter().for_each(|counter| out.put_u64(*counter));
            self.age.encode(out);
            return Ok(());
        }
        let start = out.len();
        out.zeros(4);
        out.put_u32(self.port);
        self.age.encode(out);
        stats.counters().into_iter().for_each(|counter| out.put_u64(*counter));
        out.tlv(ETHERNET, |out| {
            out.zeros(4);
            stats.ethernet().into_iter().for_each(|counter| out.put_u64(*counter));
            Ok(())
        })?;
        out.close(start, start)
    }
}
