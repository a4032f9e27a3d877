//! The hash of a microflow: computed once for each packet; all tables share its bits.
//!
//! Multiplies two 64-bit words to 128 bits and folds the halves with an exclusive or (after
//! wyhash). Words 0 to 4 of the key always count, without TTL, TOS and TCP flags, which change
//! within a connection. The IPv6, neighbour and ARP words count if the packet has them; VLAN TPIDs
//! and the IPv6 label never do. A table that finds an entry by this hash verifies it by the whole
//! key.
//!
//! Cost for IPv4: five multiplications, three deep, and one predictable branch. All 64 bits are
//! mixed (tested): take the index from the upper 32 and the fingerprint from the lower 16. The seed
//! keeps senders from preparing collisions; it is no cryptographic protection.

use crate::key::FlowKey;
use crate::proto::{ethernet, number};

/// Seed of [`FlowKey::microflow_hash`].
pub const DEFAULT_SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Fractional bits of the square roots of 2, 3, 5, 7, 11 and 13, about half of them set.
pub(crate) const K: [u64; 6] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
];

/// Returns the halves of the 128-bit product, folded.
#[inline(always)]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl FlowKey {
    /// Returns 64 well-mixed bits, equal for all packets of a microflow; see [`crate::hash`].
    #[inline]
    pub fn microflow_hash(&self) -> u64 {
        self.microflow_hash_seeded(DEFAULT_SEED)
    }

    /// Returns [`Self::microflow_hash`] with another seed.
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

    /// Adds the words that packets other than IPv4 have.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::WORDS;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// A UDP packet between two addresses.
    fn udp(src: u32, dst: u32, ports: (u16, u16)) -> FlowKey {
        FlowKey {
            in_port: 1,
            dl_type: ethernet::TYPE_IP4,
            nw_proto: number::UDP,
            dl_dst: [2, 0, 0, 0, 0, 1],
            dl_src: [2, 0, 0, 0, 0, 2],
            nw_src: src,
            nw_dst: dst,
            tp_src: ports.0,
            tp_dst: ports.1,
            ..FlowKey::default()
        }
    }

    /// A packet of this type, everything else random.
    fn random(rng: &mut Pcg64Mcg, dl_type: u16, nw_proto: u8) -> FlowKey {
        let mut key = FlowKey::default();
        *key.words_mut() = rng.random();
        (key.dl_type, key.nw_proto, key.reserved) = (dl_type, nw_proto, 0);
        key
    }

    /// The bits of a key of this type that must count.
    fn counted(dl_type: u16, nw_proto: u8) -> FlowKey {
        let mut mask = FlowKey::default();
        mask.words_mut()[..4].fill(u64::MAX);
        // A change of type changes what counts; it is tested on its own.
        (mask.dl_type, mask.nw_proto) = (0, 0);
        (mask.tp_src, mask.tp_dst) = (u16::MAX, u16::MAX);
        if dl_type == ethernet::TYPE_IP6 {
            (mask.ipv6_src, mask.ipv6_dst) = ([255; 16], [255; 16]);
        }
        let neighbours = dl_type == ethernet::TYPE_IP6 && nw_proto == number::ICMP6;
        if neighbours {
            mask.nd_target = [255; 16];
        }
        if neighbours || dl_type == ethernet::TYPE_ARP {
            (mask.arp_sha, mask.arp_tha) = ([255; 6], [255; 6]);
        }
        mask
    }

    const KINDS: [(u16, u8); 5] = [
        (ethernet::TYPE_IP4, number::UDP),
        (ethernet::TYPE_IP6, number::TCP),
        (ethernet::TYPE_IP6, number::ICMP6),
        (ethernet::TYPE_ARP, 1),
        (0x88cc, 0),
    ];

    #[test]
    fn each_bit_that_counts_flips_each_bit_of_the_hash_half_of_the_time() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        const ROUNDS: u32 = 2000;
        for (dl_type, nw_proto) in KINDS {
            let counted = counted(dl_type, nw_proto);
            for bit in 0..WORDS * 64 {
                if counted.words()[bit / 64] >> (bit % 64) & 1 == 0 {
                    continue;
                }
                let mut flips = [0u32; 64];
                for _ in 0..ROUNDS {
                    let mut key = random(&mut rng, dl_type, nw_proto);
                    let before = key.microflow_hash();
                    key.words_mut()[bit / 64] ^= 1 << (bit % 64);
                    let changed = before ^ key.microflow_hash();
                    flips.iter_mut().enumerate().for_each(|(i, n)| *n += (changed >> i & 1) as u32);
                }
                for (out, &n) in flips.iter().enumerate() {
                    // Six standard deviations of a fair coin: 22 each.
                    assert!(n.abs_diff(ROUNDS / 2) < 135, "{dl_type:x}: bit {bit} to {out}: {n}");
                }
            }
        }
    }

    #[test]
    fn changes_within_a_microflow_do_not_count() {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        for (dl_type, nw_proto) in KINDS {
            for _ in 0..100 {
                let key = random(&mut rng, dl_type, nw_proto);
                let mut other = random(&mut rng, dl_type, nw_proto);
                let mut mask = counted(dl_type, nw_proto);
                (mask.dl_type, mask.nw_proto) = (u16::MAX, u8::MAX);
                other = key.masked(&mask).or(&other.and_not(&mask));
                assert_eq!(key.microflow_hash(), other.microflow_hash());
                assert_ne!(key.microflow_hash(), key.microflow_hash_seeded(1));
            }
        }
    }

    #[test]
    fn type_and_protocol_count() {
        let mut seen = std::collections::HashSet::new();
        let mut key = udp(1, 2, (3, 4));
        for dl_type in 0..=u16::MAX {
            key.dl_type = dl_type;
            assert!(seen.insert(key.microflow_hash()));
        }
        key.dl_type = ethernet::TYPE_IP4;
        for nw_proto in 0..=u8::MAX {
            key.nw_proto = nw_proto;
            assert!(seen.insert(key.microflow_hash()) || nw_proto == number::UDP);
        }
    }

    /// Chi-square of counts against an even spread, in standard deviations from its mean.
    fn unevenness(counts: &[u32]) -> f64 {
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    /// A name, and the key of the i-th packet.
    type Sequence = (&'static str, fn(u32) -> FlowKey);
    /// A name, and a bucket from a hash.
    type Part = (&'static str, fn(u64) -> u64);

    #[test]
    fn sequences_spread_like_random_numbers() {
        const KEYS: u32 = 1 << 17;
        const BUCKETS: usize = 1 << 12;
        let sequences: [Sequence; 8] = [
            ("sources", |i| udp(0x0a00_0000 + i, 7, (5, 6))),
            ("destinations", |i| udp(7, 0x0a00_0000 + i, (5, 6))),
            ("networks", |i| udp(i << 15, 7, (5, 6))),
            ("ports", |i| udp(1, 2 + (i >> 16), (i as u16, 80))),
            ("destination ports", |i| udp(1, 2 + (i >> 16), (80, i as u16))),
            ("a square of ports", |i| udp(1, 2, (1024 + (i & 511) as u16, 80 + (i >> 9) as u16))),
            ("both addresses", |i| udp(0x0a00_0000 + i, 0x0b00_0000 + i, (5, 6))),
            ("IPv6 sources", |i| {
                let mut key = udp(0, 0, (5, 6));
                key.dl_type = ethernet::TYPE_IP6;
                key.ipv6_src[12..].copy_from_slice(&i.to_be_bytes());
                key
            }),
        ];
        for (name, key) in sequences {
            let hashes: Vec<u64> = (0..KEYS).map(|i| key(i).microflow_hash()).collect();
            let parts: [Part; 5] = [
                ("index", |h| ((h >> 32) * BUCKETS as u64) >> 32),
                ("low bits of the index", |h| (h >> 32) & (BUCKETS as u64 - 1)),
                ("fingerprint", |h| h & (BUCKETS as u64 - 1)),
                ("top of the fingerprint", |h| (h >> 4) & (BUCKETS as u64 - 1)),
                ("index and fingerprint", |h| ((h >> 58) << 6) | (h & 63)),
            ];
            for (part, bucket) in parts {
                let mut counts = vec![0; BUCKETS];
                hashes.iter().for_each(|&h| counts[bucket(h) as usize] += 1);
                let off = unevenness(&counts);
                assert!(off.abs() < 6.0, "{name}, {part}: {off:.1} standard deviations");
            }
        }
    }
}
