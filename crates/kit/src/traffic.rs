//! Built-in traffic: the end-to-end set-up of the paper (section 7.2), 64-byte UDP frames whose
//! flows fall on about 20 megaflow masks, and the rules that make them so.
//!
//! ```text
//! class c    nw_dst = c ones, a zero, then 31 − c random bits:  matched by a prefix of c + 1 bits
//! frame      02:..:02 02:..:01 0800 │ IPv4, 46 bytes, TTL 64 │ UDP, 26 bytes, checksum 0 │ 18 × 0
//! ```
//!
//! Flow ids map to addresses and ports by SplitMix64, without a table. The function is the one of
//! the packet generator that Open vSwitch is measured with, so that both see the same flows.
//! 60 bytes in memory are 64 on the wire: the frame check sequence is not there.

/// Bytes of a frame, without the frame check sequence.
pub const FRAME_LEN: usize = 60;

/// Most classes: the longest prefix is then /31.
pub const CLASSES_MAX: u32 = 31;

/// Output ports of the built-in rules, taken in turn by the classes.
pub const OUTPUT_PORTS: [u32; 4] = [2, 3, 4, 5];

const TEMPLATE: [u8; FRAME_LEN] = {
    let mut t = [0; FRAME_LEN];
    (t[0], t[5], t[6], t[11]) = (2, 2, 2, 1);
    t[12] = 8; // IPv4
    t[14] = 0x45; // version 4, five words
    t[17] = 46; // total length
    t[22] = 64; // time to live
    t[23] = 17; // UDP
    t[39] = 26; // UDP length
    t
};

/// Sum of the constant words of the IPv4 header.
const IP_SUM: u32 = 0x4500 + 46 + 0x4011;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowTuple {
    pub nw_src: u32,
    /// IPv4 destination; its leading ones are the class.
    pub nw_dst: u32,
    /// UDP source port, never 0.
    pub tp_src: u16,
    /// UDP destination port, never 0.
    pub tp_dst: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    classes: u32,
}

impl Default for Traffic {
    /// Returns traffic of twenty classes, as in the paper.
    fn default() -> Self {
        Traffic { classes: 20 }
    }
}

impl Traffic {
    /// Returns traffic of `classes` classes; `None` unless 1 ≤ classes ≤ [`CLASSES_MAX`].
    pub fn new(classes: u32) -> Option<Traffic> {
        (1..=CLASSES_MAX).contains(&classes).then_some(Traffic { classes })
    }

    pub fn classes(&self) -> u32 {
        self.classes
    }

    #[inline]
    pub fn flow_tuple(&self, id: u32) -> FlowTuple {
        let mut state = 0x123_4567_u64.wrapping_mul(GOLDEN).wrapping_add(u64::from(id));
        let [first, second, third] = [0; 3].map(|_| split_mix(&mut state));
        let class = (first >> 32) as u32 % self.classes;
        let low = u32::MAX >> (class + 1);
        // The ones above the class's zero bit.
        let ones = !(low << 1 | 1);
        FlowTuple {
            nw_src: second as u32,
            nw_dst: ones | third as u32 & low,
            tp_src: ((second >> 32) as u16).max(1),
            tp_dst: ((second >> 48) as u16).max(1),
        }
    }

    #[inline]
    pub fn write_frame(&self, id: u32, frame: &mut [u8; FRAME_LEN]) {
        self.flow_tuple(id).write_frame(frame);
    }

    /// Returns the rules, one class a line, in the syntax of `ovs-ofctl add-flows`: class c goes
    /// out of one of [`OUTPUT_PORTS`] in turn.
    pub fn rules(&self) -> String {
        let line = |class: u32| {
            let prefix = u32::MAX.checked_shl(32 - class).unwrap_or(0);
            let [a, b, c, d] = prefix.to_be_bytes();
            let port = OUTPUT_PORTS[class as usize % OUTPUT_PORTS.len()];
            let length = class + 1;
            format!("priority=100,udp,nw_dst={a}.{b}.{c}.{d}/{length},actions=output:{port}\n")
        };
        (0..self.classes).map(line).collect()
    }
}

impl FlowTuple {
    #[inline]
    pub fn write_frame(&self, frame: &mut [u8; FRAME_LEN]) {
        let FlowTuple { nw_src, nw_dst, tp_src, tp_dst } = *self;
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        let sum = IP_SUM + halves(nw_src) + halves(nw_dst);
        let checksum = !(halves(halves(sum)) as u16);
        *frame = TEMPLATE;
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame[26..30].copy_from_slice(&nw_src.to_be_bytes());
        frame[30..34].copy_from_slice(&nw_dst.to_be_bytes());
        frame[34..36].copy_from_slice(&tp_src.to_be_bytes());
        frame[36..38].copy_from_slice(&tp_dst.to_be_bytes());
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the next number of SplitMix64 (Steele, Lea and Flood, 2014).
#[inline]
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Printed by the C function of the packet generator: classes, id, source, destination, ports.
    const REFERENCE: [(u32, u32, u32, u32, u16, u16); 15] = [
        (1, 0, 0x3666_2b29, 0x4887_a1ec, 51076, 61975),
        (1, 1, 0x75a8_20fb, 0x3f95_5d96, 5186, 19217),
        (1, 2, 0xfcbe_b027, 0x1661_c856, 8297, 29617),
        (1, 999_999, 0x2209_2dbc, 0x2c91_68fd, 29313, 27567),
        (1, 4_294_967_295, 0x3bce_1480, 0x4894_f676, 25337, 3057),
        (20, 0, 0x3666_2b29, 0xfffd_a1ec, 51076, 61975),
        (20, 1, 0x75a8_20fb, 0xf795_5d96, 5186, 19217),
        (20, 2, 0xfcbe_b027, 0xff61_c856, 8297, 29617),
        (20, 999_999, 0x2209_2dbc, 0xffff_e8fd, 29313, 27567),
        (20, 4_294_967_295, 0x3bce_1480, 0xffff_7676, 25337, 3057),
        (31, 0, 0x3666_2b29, 0xffc7_a1ec, 51076, 61975),
        (31, 1, 0x75a8_20fb, 0xffff_ff16, 5186, 19217),
        (31, 2, 0xfcbe_b027, 0xe661_c856, 8297, 29617),
        (31, 999_999, 0x2209_2dbc, 0xffff_ffbd, 29313, 27567),
        (31, 4_294_967_295, 0x3bce_1480, 0xffff_fa76, 25337, 3057),
    ];
    /// FNV over the tuples of ids 0 to 999 999 with 20 classes, from the same C function.
    const DIGEST: u64 = 0x8306_aacb_7b7e_0efd;

    #[test]
    fn flows_are_those_of_the_packet_generator() {
        for (classes, id, nw_src, nw_dst, tp_src, tp_dst) in REFERENCE {
            let tuple = Traffic::new(classes).unwrap().flow_tuple(id);
            assert_eq!(tuple, FlowTuple { nw_src, nw_dst, tp_src, tp_dst });
        }
        let mut digest = 0u64;
        let mut step = |word: u64| digest = (digest ^ word).wrapping_mul(0x100_0000_01b3);
        for id in 0..1_000_000 {
            let t = Traffic::default().flow_tuple(id);
            step(u64::from(t.nw_src) << 32 | u64::from(t.nw_dst));
            step(u64::from(t.tp_src) << 16 | u64::from(t.tp_dst));
        }
        assert_eq!(digest, DIGEST);
    }

    proptest! {
        #[test]
        fn frames_are_well_formed(id in any::<u32>(), classes in 1..=CLASSES_MAX) {
            let traffic = Traffic::new(classes).unwrap();
            let mut frame = [0xff; FRAME_LEN];
            traffic.write_frame(id, &mut frame);
            let tuple = traffic.flow_tuple(id);
            let mut sum: u32 =
                frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
            while sum > 0xffff {
                sum = (sum >> 16) + (sum & 0xffff);
            }
            prop_assert_eq!(sum, 0xffff);
            prop_assert_eq!(&frame[26..30], tuple.nw_src.to_be_bytes());
            prop_assert_eq!(&frame[30..34], tuple.nw_dst.to_be_bytes());
            prop_assert_eq!(&frame[34..36], tuple.tp_src.to_be_bytes());
            prop_assert_eq!(&frame[36..38], tuple.tp_dst.to_be_bytes());
            prop_assert_eq!(&frame[38..42], [0, 26, 0, 0]);
            prop_assert!(frame[42..].iter().all(|&b| b == 0));
            prop_assert!(tuple.nw_dst.leading_ones() < classes);
            prop_assert!(tuple.tp_src != 0 && tuple.tp_dst != 0);
        }
    }

    #[test]
    fn rules_are_one_prefix_a_class() {
        let rules = Traffic::default().rules();
        let lines: Vec<_> = rules.lines().collect();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], "priority=100,udp,nw_dst=0.0.0.0/1,actions=output:2");
        assert_eq!(lines[1], "priority=100,udp,nw_dst=128.0.0.0/2,actions=output:3");
        assert_eq!(lines[19], "priority=100,udp,nw_dst=255.255.224.0/20,actions=output:5");
        assert_eq!(Traffic::new(31).unwrap().rules().lines().count(), 31);
        assert!(Traffic::new(0).is_none() && Traffic::new(32).is_none());
    }
}
