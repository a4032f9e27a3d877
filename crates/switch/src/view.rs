//! How rules see fragments and VLAN tags: the settings of a lookup.
//!
//! A part of the rule set ([`crate::tables::Tables::view`]), so a change reaches the workers as a
//! change of rules does: as a whole, and stale megaflows are translated again.

/// Most VLAN tags of a packet that a key can hold.
pub const VLAN_LIMIT_MAX: u8 = 2;

/// What a lookup sees of an IP fragment, including the first one. Modes and names are those of Open
/// vSwitch (ovs-ofctl(8), `set-frags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragments {
    /// Ports, and ICMP type and code, are 0 in every fragment: all fragments of a datagram meet the
    /// same rules.
    #[default]
    Normal,
    /// A fragment is dropped before any rule sees it.
    Drop,
    /// The first fragment has its ports, later ones have none.
    NxMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub fragments: Fragments,
    /// Number of tags to read, 1 or 2. The EtherType after them is the packet's `dl_type`.
    pub vlan_limit: u8,
}

impl Default for View {
    fn default() -> View {
        View { fragments: Fragments::default(), vlan_limit: VLAN_LIMIT_MAX }
    }
}
