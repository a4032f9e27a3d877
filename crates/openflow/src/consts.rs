//! Numbers with a special meaning.

/// No buffered packet.
pub const BUFFER_NONE: u32 = u32::MAX;

/// `max_len` of an output to the controller: the whole packet, not buffered.
pub const MAX_LEN_NO_BUFFER: u16 = 0xffff;

/// Reserved port numbers (specification 4.5).
pub mod port {
    /// Highest number of a physical or logical port.
    pub const MAX: u32 = 0xffff_ff00;
    /// No output port in the action set (1.5).
    pub const UNSET: u32 = 0xffff_fff7;
    /// The ingress port.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// The flow tables; in a packet-out only.
    pub const TABLE: u32 = 0xffff_fff9;
    /// Forwarding as a learning switch.
    pub const NORMAL: u32 = 0xffff_fffa;
    /// All ports that flood, except the ingress port.
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports except the ingress port.
    pub const ALL: u32 = 0xffff_fffc;
    /// The controllers.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The switch's local port.
    pub const LOCAL: u32 = 0xffff_fffe;
    /// Any port, in requests and deletions.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Reserved group numbers.
pub mod group {
    /// Highest number of a group.
    pub const MAX: u32 = 0xffff_ff00;
    /// All groups, in deletions and requests.
    pub const ALL: u32 = 0xffff_fffc;
    /// Any group: no restriction.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Reserved table numbers.
pub mod table {
    /// Highest number of a table.
    pub const MAX: u8 = 0xfe;
    /// All tables, in deletions and requests.
    pub const ALL: u8 = 0xff;
}

/// Reserved meter numbers.
pub mod meter {
    /// Highest number of a meter.
    pub const MAX: u32 = 0xffff_0000;
    /// All meters, in requests.
    pub const ALL: u32 = 0xffff_ffff;
}

/// Organisations with extensions.
pub mod experimenter {
    /// Nicira, whose extensions Open vSwitch implements.
    pub const NICIRA: u32 = 0x0000_2320;
    /// The Open Networking Foundation.
    pub const ONF: u32 = 0x4f4e_4600;
}
