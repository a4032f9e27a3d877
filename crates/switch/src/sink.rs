//! What the datapath hands over: frames to ports and controllers, questions of NORMAL, drops.
//!
//! The datapath decides what happens to a packet; a [`Sink`] carries it out. Where a learning
//! switch would send a packet is asked here and for each packet, so no megaflow depends on what was
//! learnt.

use crate::drop::DropReason;

/// Where frames go. `index` counts the frames of one call of [`crate::Datapath::process`].
pub trait Sink {
    /// A frame leaves by `port`; `edited` tells whether it differs from the one that came in.
    fn output(&mut self, index: usize, port: u32, frame: &[u8], edited: bool);

    /// A frame left by no port and went to no controller. Called once for each such frame.
    fn drop(&mut self, index: usize, reason: DropReason);

    /// A frame goes to the controllers; false if it cannot be taken. Who has none takes none.
    fn controller(&mut self, index: usize, packet: &ControllerPacket<'_>) -> bool {
        let _ = (index, packet);
        false
    }

    /// Where would a learning switch send this packet? Who learns nothing drops it.
    fn normal(&mut self, index: usize, packet: &NormalPacket) -> Normal {
        let _ = (index, packet);
        Normal::Drop
    }
}

/// Why a controller gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketInReason {
    /// A table-miss rule sent it: priority 0, matching everything.
    NoMatch,
    /// An action of another rule.
    Action,
    /// The packet's action set.
    ActionSet,
    /// The list of actions that a controller sent along with it.
    PacketOut,
}

impl PacketInReason {
    /// `OFPR_*` of OpenFlow 1.3 and before, which knows two of them.
    pub const fn openflow13(self) -> u8 {
        match self {
            PacketInReason::NoMatch => 0,
            PacketInReason::Action | PacketInReason::ActionSet | PacketInReason::PacketOut => 1,
        }
    }

    /// `OFPR_*` of OpenFlow 1.4 and later.
    pub const fn openflow14(self) -> u8 {
        match self {
            PacketInReason::NoMatch => 0,
            PacketInReason::Action => 1,
            PacketInReason::ActionSet => 3,
            PacketInReason::PacketOut => 5,
        }
    }
}

/// A packet for the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerPacket<'a> {
    /// Why.
    pub reason: PacketInReason,
    /// How many bytes of it they want; `u16::MAX` is all.
    pub max_len: u16,
    /// Table of the rule that sent it; 0 for a controller's own list.
    pub table: u8,
    /// Cookie of that rule; all ones for a controller's own list.
    pub cookie: u64,
    /// Port that it came in on.
    pub in_port: u32,
    /// The frame as it is at this step, whole.
    pub frame: &'a [u8],
}

/// What a learning switch looks at, of the packet as it is at this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormalPacket {
    /// Port that it came in on.
    pub in_port: u32,
    /// Ethernet source.
    pub src: [u8; 6],
    /// Ethernet destination.
    pub dst: [u8; 6],
    /// VID of the outer tag, if there is a tag.
    pub vlan: Option<u16>,
}

/// Where a learning switch sends a packet. The datapath sends nothing to the ingress port or to a
/// port that does not exist, whatever the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normal {
    /// The port behind which the destination was seen.
    Port(u32),
    /// All ports that flood.
    Flood,
    /// Nowhere.
    Drop,
}
