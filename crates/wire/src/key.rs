//! The flow key: every header field that a rule can match, in fourteen 64-bit words.
//!
//! ```text
//!  word   0                 1              2              3               4
//!       in_port  dl_type   dl_dst         dl_src         nw_src  nw_dst   tp_src tp_dst
//!       nw_proto nw_frag   vlan_tci       inner_tci                       tcp_flags tos ttl
//!  word   5                 6..7           8..9           10..11          12..13
//!       ipv6_label         ipv6_src       ipv6_dst       nd_target       arp_sha arp_tha
//!       vlan_tpid inner_tpid
//! ```
//!
//! An untagged IPv4 packet uses words 0 to 4 only, 40 bytes; the whole key is 112 bytes. Integers
//! are in host order. The same type serves as key and as mask (a set bit counts). Fields mean what
//! they mean in Open vSwitch (ovs-fields(7)); fields absent from a frame are zero.

use std::hash::{Hash, Hasher};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of 64-bit words of a [`FlowKey`].
pub const WORDS: usize = 14;

/// `nw_frag`: the packet is a fragment.
pub const FRAG_ANY: u8 = 1;
/// `nw_frag`: the packet is a fragment with a non-zero offset (it has no transport header).
pub const FRAG_LATER: u8 = 2;
/// `vlan_tci` and `inner_tci`: set when the tag is present (in place of the CFI bit on the wire).
pub const VLAN_PRESENT: u16 = 0x1000;
/// `dl_type` of an 802.3 frame that carries no Ethernet type (`OFP_DL_TYPE_NOT_ETH_TYPE`).
pub const DL_TYPE_NONE: u16 = 0x05ff;

/// Header fields of one packet, or a mask over them. 112 bytes; see the picture above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct FlowKey {
    /// OpenFlow number of the ingress port.
    pub in_port: u32,
    /// Ethernet type after any VLAN tags, or [`DL_TYPE_NONE`].
    pub dl_type: u16,
    /// IP protocol (IPv6: of the last header reached), or the low byte of the ARP opcode.
    pub nw_proto: u8,
    /// [`FRAG_ANY`] and [`FRAG_LATER`].
    pub nw_frag: u8,
    /// Ethernet destination.
    pub dl_dst: [u8; 6],
    /// Outer tag: PCP (3 bits), [`VLAN_PRESENT`], VID (12 bits); 0 without a tag.
    pub vlan_tci: u16,
    /// Ethernet source.
    pub dl_src: [u8; 6],
    /// Second tag, laid out like `vlan_tci`.
    pub inner_tci: u16,
    /// IPv4 source, or the ARP sender's protocol address.
    pub nw_src: u32,
    /// IPv4 destination, or the ARP target's protocol address.
    pub nw_dst: u32,
    /// TCP, UDP or SCTP source port; ICMP or ICMPv6 type.
    pub tp_src: u16,
    /// TCP, UDP or SCTP destination port; ICMP or ICMPv6 code.
    pub tp_dst: u16,
    /// The twelve TCP flag bits.
    pub tcp_flags: u16,
    /// IPv4 type of service or IPv6 traffic class: DSCP (6 bits) and ECN (2 bits).
    pub nw_tos: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub nw_ttl: u8,
    /// IPv6 flow label (20 bits).
    pub ipv6_label: u32,
    /// Tag protocol identifier of the outer tag (0x8100 or 0x88a8); 0 without a tag.
    pub vlan_tpid: u16,
    /// Tag protocol identifier of the second tag.
    pub inner_tpid: u16,
    /// IPv6 source.
    pub ipv6_src: [u8; 16],
    /// IPv6 destination.
    pub ipv6_dst: [u8; 16],
    /// Target of a neighbour solicitation or advertisement.
    pub nd_target: [u8; 16],
    /// ARP sender's hardware address, or the ND source link-layer option.
    pub arp_sha: [u8; 6],
    /// ARP target's hardware address, or the ND target link-layer option.
    pub arp_tha: [u8; 6],
    /// Always zero: fills the last word.
    pub reserved: u32,
}

const _: () = assert!(size_of::<FlowKey>() == WORDS * 8);

// Derived, both go field by field, which costs a translation as much as a classifier lookup.
impl Default for FlowKey {
    #[inline(always)]
    fn default() -> FlowKey {
        zerocopy::transmute!([0u64; WORDS])
    }
}

impl Hash for FlowKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl FlowKey {
    /// Returns the key as words, in the order of the picture above.
    #[inline(always)]
    pub fn words(&self) -> &[u64; WORDS] {
        zerocopy::transmute_ref!(self)
    }

    /// Returns the words for writing.
    #[inline(always)]
    pub fn words_mut(&mut self) -> &mut [u64; WORDS] {
        zerocopy::transmute_mut!(self)
    }

    /// Returns `self & mask`, bit by bit.
    #[inline]
    pub fn masked(&self, mask: &FlowKey) -> FlowKey {
        let mut out = *self;
        out.words_mut().iter_mut().zip(mask.words()).for_each(|(w, m)| *w &= m);
        out
    }

    /// Returns `self | other`, bit by bit: the union of two masks.
    #[inline]
    pub fn or(&self, other: &FlowKey) -> FlowKey {
        let mut out = *self;
        out.words_mut().iter_mut().zip(other.words()).for_each(|(w, m)| *w |= m);
        out
    }

    /// Returns `self & !other`, bit by bit.
    #[inline]
    pub fn and_not(&self, other: &FlowKey) -> FlowKey {
        let mut out = *self;
        out.words_mut().iter_mut().zip(other.words()).for_each(|(w, m)| *w &= !m);
        out
    }

    /// Returns whether no bit is set.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.words().iter().all(|&w| w == 0)
    }

    /// Returns whether `self` and `other` agree on every bit of `mask`.
    #[inline]
    pub fn matches(&self, other: &FlowKey, mask: &FlowKey) -> bool {
        let (a, b, m) = (self.words(), other.words(), mask.words());
        (0..WORDS).fold(0, |diff, i| diff | ((a[i] ^ b[i]) & m[i])) == 0
    }
}
