//! The hash of a microflow: one per packet, its bits shared out among all tables.
//!
//! Own multiply-mix: two 64-bit words are multiplied to 128 bits and the halves folded with an
//! exclusive or (after the idea of wyhash). Words 0 to 4 of the key always count, without TTL, TOS
//! and TCP flags, which change within a connection; the IPv6, neighbour and ARP words count where
//! the packet has them. VLAN TPIDs and the IPv6 label never do. Whoever finds an entry by this hash
//! verifies it by the whole key.
//!
//! Cost for IPv4: five multiplications, three deep, and one predictable branch. All 64 bits are
//! mixed (tested): take the index from the upper 32 and the fingerprint from the lower 16. The seed
//! keeps strangers from preparing collisions; it is no cryptographic protection.

use crate::key::FlowKey;
use crate::proto::{ethernet, number};

/// Seed of [`FlowKey::microflow_hash`].
pub const DEFAULT_SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Fractional bits of the square roots of 2, 3, 5, 7, 11 and 13: nothing up the sleeve, and about
/// half of the bits set.
const K: [u64; 6] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
];

/// The halves of the 128-bit product, folded.
#[inline(always)]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl FlowKey {
    /// 64 well-mixed bits that are equal for all packets of a microflow; see [`crate::hash`].
    #[inline]
    pub fn microflow_hash(&self) -> u64 {
        self.microflow_hash_seeded(DEFAULT_SEED)
    }

    /// [`Self::microflow_hash`] under another seed.
    #[inline]
    pub fn microflow_hash_seeded(&self, seed: u64) -> u64 {
        let words = self.words();
        let ports = u64::from(self.tp_src) | u64::from(self.tp_dst) << 16;
        let low = mix(words[0] ^ K[0] ^ seed, words[1] ^ K[1]);
        let high = mix(words[2] ^ K[2], words[3] ^ K[3] ^ seed);
        let mut hash = mix(low ^ ports, high ^ K[4]);
        if self.dl_type != ethernet::TYPE_IP4 {
            hash = self.mix_others(hash);
        }
        mix(hash ^ K[5], seed ^ K[0])
    }

    /// Adds what packets other than IPv4 have.
    #[inline]
    fn mix_others(&self, mut hash: u64) -> u64 {
        let words = self.words();
        if self.dl_type == ethernet::TYPE_IP6 {
            hash = mix(hash ^ words[6], words[7] ^ K[1]) ^ mix(words[8] ^ K[2], words[9] ^ K[3]);
            if self.nw_proto == number::ICMP6 {
                hash = mix(hash ^ words[10], words[11] ^ K[4]);
                hash = mix(hash ^ words[12], words[13] ^ K[5]);
            }
        } else if matches!(self.dl_type, ethernet::TYPE_ARP | ethernet::TYPE_RARP) {
            hash = mix(hash ^ words[12], words[13] ^ K[5]);
        }
        hash
    }
}
