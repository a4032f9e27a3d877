//! Features and configuration of a switch (specification 7.3.1, 7.3.2).
//!
//! ```text
//!  8                                                               16
//!  +---------------------------------------------------------------+
//!  |                          datapath id                          |   features
//!  +-------------------------------+-------+-------+---------------+
//!  |           n_buffers           |tables |aux id |     zeros     |
//!  +-------------------------------+-------+-------+---------------+
//!  |         capabilities          |           reserved            |
//!  +-------------------------------+-------------------------------+
//!
//!  8               10              12
//!  +---------------+---------------+
//!  |     flags     | miss_send_len |   configuration
//!  +---------------+---------------+
//! ```

use super::flags;
use crate::bytes::{Put, Reader};
use crate::error::DecodeError;

flags! {
    /// Capabilities of a switch.
    Capabilities: u32 {
        /// Counters of flows.
        FLOW_STATS = 1,
        /// Counters of tables.
        TABLE_STATS = 1 << 1,
        /// Counters of ports.
        PORT_STATS = 1 << 2,
        /// Counters of groups.
        GROUP_STATS = 1 << 3,
        /// Reassembly of IP fragments.
        IP_REASM = 1 << 5,
        /// Counters of queues.
        QUEUE_STATS = 1 << 6,
        /// The switch blocks ports that would form a loop.
        PORT_BLOCKED = 1 << 8,
        /// Bundles (1.4.1 and later).
        BUNDLES = 1 << 9,
        /// Flow monitors (1.4.1 and later).
        FLOW_MONITORING = 1 << 10,
    }
}

/// Reply to a features request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    pub datapath_id: u64,
    /// Packets that it can buffer.
    pub n_buffers: u32,
    /// Number of tables.
    pub n_tables: u8,
    /// Number of this connection to the controller; 0 is the main one.
    pub auxiliary_id: u8,
    pub capabilities: Capabilities,
}

impl Features {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Features, DecodeError> {
        let (datapath_id, n_buffers) = (r.u64()?, r.u32()?);
        let (n_tables, auxiliary_id) = (r.u8()?, r.u8()?);
        r.skip(2)?;
        let capabilities = Capabilities(r.u32()?);
        r.skip(4)?;
        Ok(Features { datapath_id, n_buffers, n_tables, auxiliary_id, capabilities })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.n_buffers);
        out.put(&[self.n_tables, self.auxiliary_id, 0, 0]);
        out.put_u32(self.capabilities.0);
        out.zeros(4);
    }
}

/// Treatment of fragments, and bytes of a packet to send on a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SwitchConfig {
    /// Treatment of fragments: see the constants.
    pub flags: u16,
    /// Bytes to send to the controller if no action gives a length.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// Every fragment matches as a packet without ports, the first included.
    pub const FRAG_NORMAL: u16 = 0;
    /// Fragments are dropped.
    pub const FRAG_DROP: u16 = 1;
    /// Fragments are reassembled first.
    pub const FRAG_REASM: u16 = 2;
    /// The first fragment has its ports, later ones have none (Open vSwitch, `nx-match`).
    pub const FRAG_NX_MATCH: u16 = 3;
    /// Bits of `flags` for fragments.
    pub const FRAG_MASK: u16 = 3;

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<SwitchConfig, DecodeError> {
        Ok(SwitchConfig { flags: r.u16()?, miss_send_len: r.u16()? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags);
        out.put_u16(self.miss_send_len);
    }
}
