//! Counters of a flow: fixed fields before 1.5, OXS afterwards (specification 1.5.1, 7.2.4).
//!
//! ```text
//!  0               2               4
//!  +---------------+---------------+
//!  | reserved = 0  |    length     |   stats; length counts these four bytes, not the padding
//!  +---------------+---------+-+---+---+---------------+
//!  | class = 0x8002| number 7|0| length|     value     |
//!  +---------------+---------+-+-------+---------------+
//! ```

use std::time::Duration;

use crate::bytes::{Put, Reader};
use crate::codes::{BadRequest, ErrorCode};
use crate::error::{DecodeError, EncodeError};

const CLASS: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// A time as OpenFlow writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Elapsed {
    pub sec: u32,
    /// Nanoseconds of the last second.
    pub nsec: u32,
}

impl From<Duration> for Elapsed {
    fn from(time: Duration) -> Elapsed {
        Elapsed { sec: time.as_secs().try_into().unwrap_or(u32::MAX), nsec: time.subsec_nanos() }
    }
}

impl Elapsed {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Elapsed, DecodeError> {
        Ok(Elapsed { sec: r.u32()?, nsec: r.u32()? })
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.put_u32(self.sec);
        out.put_u32(self.nsec);
    }
}

/// Known counters of a flow, or of several. Formats before 1.5 have a fixed place for duration,
/// packets and bytes; an unknown counter is all ones there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Time since the flow was added.
    pub duration: Option<Elapsed>,
    /// Time since its last packet; 1.5 only.
    pub idle: Option<Elapsed>,
    /// Number of flows summed up.
    pub flows: Option<u32>,
    /// Packets that matched.
    pub packets: Option<u64>,
    /// Bytes of these packets.
    pub bytes: Option<u64>,
}

impl Stats {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Stats, DecodeError> {
        let bad_len = ErrorCode::BadRequest(BadRequest::BadLen);
        let (_, mut list) = r.tlv("stats", bad_len)?;
        let mut stats = Stats::default();
        while list.left() > 0 {
            let (class, number, len) = (list.u16()?, list.u8()? >> 1, usize::from(list.u8()?));
            let mut value = list.part(len, "stats field", bad_len)?;
            match (class, number) {
                (CLASS, DURATION) => stats.duration = Some(Elapsed::decode(&mut value)?),
                (CLASS, IDLE_TIME) => stats.idle = Some(Elapsed::decode(&mut value)?),
                (CLASS, FLOW_COUNT) => stats.flows = Some(value.u32()?),
                (CLASS, PACKET_COUNT) => stats.packets = Some(value.u64()?),
                (CLASS, BYTE_COUNT) => stats.bytes = Some(value.u64()?),
                // Other fields are skipped: they do not affect those above.
                _ => continue,
            }
            value.end()?;
        }
        Ok(stats)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let head = |out: &mut Vec<u8>, number: u8, len: u8| {
            out.put_u16(CLASS);
            out.put(&[number << 1, len]);
        };
        out.tlv(0, |out| {
            for (number, time) in [(DURATION, self.duration), (IDLE_TIME, self.idle)] {
                if let Some(time) = time {
                    head(out, number, 8);
                    time.encode(out);
                }
            }
            if let Some(flows) = self.flows {
                head(out, FLOW_COUNT, 4);
                out.put_u32(flows);
            }
            for (number, count) in [(PACKET_COUNT, self.packets), (BYTE_COUNT, self.bytes)] {
                if let Some(count) = count {
                    head(out, number, 8);
                    out.put_u64(count);
                }
            }
            Ok(())
        })
    }
}

/// Returns a counter read from the older formats.
pub(crate) fn counter(wire: u64) -> Option<u64> {
    (wire != u64::MAX).then_some(wire)
}

/// Returns a counter as written in the older formats.
pub(crate) fn wire(counter: Option<u64>) -> u64 {
    counter.unwrap_or(u64::MAX)
}
