//! What the datapath hands over: frames for ports and controllers, NORMAL lookups, drops.
//!
//! The datapath decides and a [`Sink`] acts. It asks the sink for each packet where a learning
//! switch would send, so no megaflow depends on learnt addresses.

use crate::drop::DropReason;

/// Receives frames. `index` counts the frames of one call of [`crate::Datapath::process`].
pub trait Sink {
    /// Sends a frame out of `port`; `edited` says whether it differs from the frame received.
    fn output(&mut self, index: usize, port: u32, frame: &[u8], edited: bool);

    /// Notes a drop. Called once for each frame that left by no port and went to no controller.
    fn drop(&mut self, index: usize, reason: DropReason);

    /// Sends a frame to the controllers. By default there are none.
    ///
    /// # Errors
    /// The reason to drop the frame, unless it also goes elsewhere.
    fn controller(
        &mut self,
        index: usize,
        packet: &ControllerPacket<'_>,
    ) -> Result<(), DropReason> {
        // The parameters have names for the documentation.
        let _ = (index, packet);
        Err(DropReason::ControllerQueueFull)
    }

    /// Returns where a learning switch would send this packet. By default nowhere.
    fn normal(&mut self, index: usize, packet: &NormalPacket) -> Normal {
        // The parameters have names for the documentation.
        let _ = (index, packet);
        Normal::Drop
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketInReason {
    /// From a table-miss rule: priority 0, matching everything.
    NoMatch,
    /// From an action of another rule.
    Action,
    /// From the packet's action set.
    ActionSet,
    /// From the list of actions that a controller sent along with it.
    PacketOut,
}

impl PacketInReason {
    /// Returns the `OFPR_*` of OpenFlow 1.3 and before, which has two of them.
    pub const fn openflow13(self) -> u8 {
        match self {
            PacketInReason::NoMatch => 0,
            PacketInReason::Action | PacketInReason::ActionSet | PacketInReason::PacketOut => 1,
        }
    }

    /// Returns the `OFPR_*` of OpenFlow 1.4 and later.
    pub const fn openflow14(self) -> u8 {
        match self {
            PacketInReason::NoMatch => 0,
            PacketInReason::Action => 1,
            PacketInReason::ActionSet => 3,
            PacketInReason::PacketOut => 5,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerPacket<'a> {
    pub reason: PacketInReason,
    /// Bytes to send; `u16::MAX` is all.
    pub max_len: u16,
    /// Table of the rule that sent it; 0 for a controller's own list.
    pub table: u8,
    /// Cookie of that rule; all ones for a controller's own list.
    pub cookie: u64,
    pub in_port: u32,
    /// The whole frame as it is at this step.
    pub frame: &'a [u8],
}

/// The headers that a learning switch reads, as they are at this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormalPacket {
    pub in_port: u32,
    pub src: [u8; 6],
    pub dst: [u8; 6],
    /// VID of the outer tag, if tagged.
    pub vlan: Option<u16>,
}

/// Where a learning switch sends a packet. The datapath never sends to the ingress port or to an
/// unknown port, whatever the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normal {
    /// The port behind which the destination was seen.
    Port(u32),
    /// All ports that flood.
    Flood,
    Drop,
}
