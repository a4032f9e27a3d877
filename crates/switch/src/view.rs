//! What rules see of a packet where that is a setting: of fragments, and of VLAN tags.
//!
//! Part of the rule set ([`crate::tables::Tables::view`]), so that a change reaches workers as a
//! change of rules does: as a whole, and with stale megaflows translated again.

/// VLAN tags of a packet that a key can hold.
pub const VLAN_LIMIT_MAX: u8 = 2;

/// What a lookup sees of an IP fragment, the first one included. The modes and their names are
/// those of Open vSwitch (ovs-ofctl(8), `set-frags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragments {
    /// Ports, and type and code of ICMP, are 0 in every fragment, so that all of a datagram's
    /// fragments meet the same rules.
    #[default]
    Normal,
    /// No rule sees a fragment; it is dropped.
    Drop,
    /// The first fragment has its ports, later ones have none.
    NxMatch,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// What a lookup sees of fragments.
    pub fragments: Fragments,
    /// Tags that count as such, 1 or 2. What follows them is the packet's `dl_type`.
    pub vlan_limit: u8,
}

impl Default for View {
    fn default() -> View {
        View { fragments: Fragments::default(), vlan_limit: VLAN_LIMIT_MAX }
    }
}
