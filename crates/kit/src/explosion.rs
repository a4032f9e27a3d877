//! Tuple space explosion: packets made to have a mask each, and packets of others.
//!
//! ```text
//!  rules    tp_dst=80 → 2  nw_src=10.0.0.1 → 3  nw_dst=10.0.0.2 → 4  tp_src=1000 → 5  else drop
//!  attack   each field differs from its rule's value first in a chosen bit: to say that no rule
//!           matches, a megaflow needs a prefix of that length, so each choice makes a mask.
//!           The bits below are random: no cache of whole flows has seen such a packet before
//!  others   many flows that the rule of tp_dst matches
//! ```
//!
//! The lab measures the datapath alone with this traffic, `cargo xtask peers explosion` measures it
//! beside Open vSwitch.
//!
//! Source of the attack: Csikor et al., *Tuple Space Explosion: A Denial-of-Service Attack Against
//! a Software Packet Classifier*, CoNEXT 2019.

use crate::traffic::{FRAME_LEN, FlowTuple};
use overbank::random::Pcg32;

/// The rules' fields and values, in the order in which they are added.
const FIELDS: [&str; 4] = ["tp_dst=80", "nw_src=10.0.0.1", "nw_dst=10.0.0.2", "tp_src=1000"];
/// Most fields that rules match.
pub const FIELDS_MAX: usize = FIELDS.len();
/// Choices of bits, hence masks that the attack asks for.
pub const CHOICES: usize = 8192;
/// Attack packets of 100 that are measured; 0 is the time before the attack.
pub const PERCENTS: [f64; 4] = [0.0, 0.1, 1.0, 10.0];
/// Output port of the others.
pub const OUTPUT: u32 = 2;

pub type Frame = [u8; FRAME_LEN];

/// Returns rules over the first `fields` fields, in the syntax of `ovs-ofctl add-flows`; the n-th
/// outputs to port [`OUTPUT`] + n.
pub fn rules(fields: usize) -> String {
    let line = |(port, field)| format!("priority=9,udp,{field},actions=output:{port}\n");
    (OUTPUT..).zip(&FIELDS[..fields]).map(line).collect::<String>() + "priority=0,actions=drop\n"
}

/// Returns packets that no rule of `fields` fields matches. Packet n has the bits of choice n
/// modulo [`CHOICES`].
pub fn attack(fields: usize, packets: usize, seed: u64) -> Vec<Frame> {
    let mut rng = Pcg32::new(seed, fields as u64);
    let widths: [u32; FIELDS_MAX] = [16, 32, 32, 16];
    let choices: Vec<[u32; FIELDS_MAX]> =
        (0..CHOICES).map(|_| widths.map(|width| rng.below(width))).collect();
    let one = |n: usize| {
        let mut differs = |field: usize| {
            let bit = choices[n % CHOICES][field];
            if field < fields { 1 << bit | rng.below(1 << bit) } else { rng.draw() }
        };
        frame(FlowTuple {
            tp_dst: 80 ^ differs(0) as u16,
            nw_src: 0x0a00_0001 ^ differs(1),
            nw_dst: 0x0a00_0002 ^ differs(2),
            tp_src: 1000 ^ differs(3) as u16,
        })
    };
    (0..packets).map(one).collect()
}

/// Returns one packet of each of `flows` flows that the rule of `tp_dst` matches, and no other.
pub fn others(flows: usize, seed: u64) -> Vec<Frame> {
    let mut rng = Pcg32::new(seed, 0);
    let one = |_| {
        let (nw_src, nw_dst) = (0xc000_0000 | rng.below(1 << 28), 0xd000_0000 | rng.below(1 << 28));
        frame(FlowTuple { nw_src, nw_dst, tp_src: 2000 + rng.below(60_000) as u16, tp_dst: 80 })
    };
    (0..flows).map(one).collect()
}

/// Returns the packets of others between two attack packets, so that `percent` of all are the
/// attack's; `None` without an attack.
pub fn between(percent: f64) -> Option<usize> {
    (percent > 0.0).then(|| ((100.0 - percent) / percent).round() as usize)
}

fn frame(tuple: FlowTuple) -> Frame {
    let mut frame = [0; FRAME_LEN];
    tuple.write_frame(&mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_packets_fit_each_other() {
        assert_eq!(rules(4).lines().count(), 5);
        assert!(rules(2).starts_with("priority=9,udp,tp_dst=80,actions=output:2\n"));
        assert!(others(1000, 1).iter().all(|frame| frame[36..38] == [0, 80]));
        for fields in 2..=FIELDS_MAX {
            let attack = attack(fields, 2 * CHOICES, 1);
            let values: [(usize, &[u8]); 4] =
                [(36, &[0, 80]), (26, &[10, 0, 0, 1]), (30, &[10, 0, 0, 2]), (34, &[3, 232])];
            for (at, value) in &values[..fields] {
                let differs = |frame: &Frame| {
                    let bits = |bytes: &[u8]| bytes.iter().fold(0, |n, &b| n << 8 | u32::from(b));
                    bits(&frame[*at..at + value.len()]) ^ bits(value)
                };
                for (a, b) in attack.iter().zip(&attack[CHOICES..]) {
                    assert_ne!(differs(a), 0, "{fields} fields");
                    assert_eq!(differs(a).leading_zeros(), differs(b).leading_zeros());
                }
            }
        }
    }

    #[test]
    fn attack_packets_come_at_their_share() {
        assert_eq!(PERCENTS.map(between), [None, Some(999), Some(99), Some(9)]);
    }
}
