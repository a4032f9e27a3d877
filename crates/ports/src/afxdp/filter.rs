//! The part of the XDP program that compares a frame with the rules of a
//! [`Select`](crate::select::Select), compiled from them.
//!
//! ```text
//!   Ethernet ─ sources ───┬─ IPv4 ─ prefixes ─ UDP: rules ─▶ no rule: XDP_PASS
//!                         └─ IPv6 ─ prefixes ─ UDP: rules ─▶
//!                 a rule matches: on to what follows the filter
//! ```
//!
//! Every jump leads forwards. Cost: a few instructions for each rule of the frame's family:
//! prefixes two to twelve, UDP two to six. The meaning stands in [`crate::select`].

use super::program::{
    Assembler, CONTEXT, DATA, END, JEQ32, JGT, JLT32, JNE32, JUMP, MD_DATA, MD_DATA_END, UDP_AT,
    XDP_PASS, add, add_register, and32, exit, load8, load16, load32, mov, set, shift_left,
};
use crate::select::{Rule, Rules};
use std::net::IpAddr;

/// Offsets in a frame.
const SRC: i16 = 6;
const TYPE: i16 = 12;
const L3: i16 = 14;
const IP4_FRAGMENT: i16 = L3 + 6;
const IP4_PROTOCOL: i16 = L3 + 9;
const IP4_DST: i16 = L3 + 16;
const IP4_END: i32 = L3 as i32 + 20;
const IP6_NEXT: i16 = L3 + 6;
const IP6_DST: i16 = L3 + 24;
const IP6_END: i32 = L3 as i32 + 40;
const UDP_LEN: i32 = 8;
const FRAGMENT_LEN: i32 = 8;

const PROTOCOL_UDP: u32 = 17;
const PROTOCOL_FRAGMENT: u32 = 44;

/// The first of the registers with the words of an address, as they are in memory.
const WORD: u8 = 2;

/// Returns the number that a 16-bit load of these bytes gives.
fn half(bytes: [u8; 2]) -> u32 {
    u32::from(u16::from_ne_bytes(bytes))
}

/// Returns the words of an address and of a mask, as 32-bit loads give them.
fn words(address: IpAddr, len: u8) -> Vec<(u32, u32)> {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0).to_be_bytes();
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let word = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes);
    let words = |bytes: &[u8]| bytes.as_chunks().0.iter().map(word).collect::<Vec<_>>();
    words(&bytes).into_iter().zip(words(&mask)).map(|(word, mask)| (word & mask, mask)).collect()
}

/// Jumps of a filter whose targets come later.
#[derive(Default)]
struct Exits {
    take: Vec<usize>,
    pass: Vec<usize>,
}

impl Assembler {
    /// Appends a filter: what a rule matches goes on after it, all else to the stack. Returns false
    /// if nothing goes on.
    pub(super) fn filter(&mut self, rules: &Rules) -> bool {
        let mut exits = Exits::default();
        self.put(&[load32(DATA, CONTEXT, MD_DATA), load32(END, CONTEXT, MD_DATA_END)]);
        self.require(DATA, i32::from(L3), &mut exits);
        self.sources(rules, &mut exits);
        self.put(&[load16(1, DATA, TYPE)]);
        let ip4 = self.jump_if(JEQ32, 1, half([0x08, 0x00]));
        let other = self.jump_if(JNE32, 1, half([0x86, 0xdd]));
        exits.pass.push(other);
        self.ip6(rules, &mut exits);
        let done = self.jump(JUMP, 0, 0);
        exits.pass.push(done);
        self.label(&[ip4]);
        self.ip4(rules, &mut exits);
        self.label(&exits.pass);
        self.put(&[set(0, XDP_PASS), exit()]);
        self.label(&exits.take);
        !exits.take.is_empty()
    }

    /// Passes a frame that ends before `len` bytes after `from`.
    fn require(&mut self, from: u8, len: i32, exits: &mut Exits) {
        self.put(&[mov(1, from), add(1, len)]);
        let short = self.jump(JGT, 1, END);
        exits.pass.push(short);
    }

    fn pass_if(&mut self, code: u8, value: u32, exits: &mut Exits) {
        let jump = self.jump_if(code, 1, value);
        exits.pass.push(jump);
    }

    /// Takes a frame that came here by none of the jumps of its rule.
    fn take(&mut self, next: &[usize], exits: &mut Exits) {
        let take = if next.is_empty() {
            // Always true; the verifier refuses code that no jump leads past.
            self.put(&[set(1, 0)]);
            self.jump_if(JEQ32, 1, 0)
        } else {
            self.jump(JUMP, 0, 0)
        };
        exits.take.push(take);
        self.label(next);
    }

    /// Compares the Ethernet source.
    fn sources(&mut self, rules: &Rules, exits: &mut Exits) {
        self.put(&[load16(2, DATA, SRC), load8(3, DATA, SRC + 2)]);
        for rule in rules.iter() {
            let Rule::From { src: [a, b, c] } = *rule else { continue };
            let next = [self.jump_if(JNE32, 2, half([a, b])), self.jump_if(JNE32, 3, u32::from(c))];
            self.take(&next, exits);
        }
    }

    fn ip4(&mut self, rules: &Rules, exits: &mut Exits) {
        self.require(DATA, IP4_END, exits);
        self.version(0x40, exits);
        self.put(&[load32(WORD, DATA, IP4_DST)]);
        self.prefixes(rules, true, exits);
        self.put(&[load8(1, DATA, IP4_PROTOCOL)]);
        self.pass_if(JNE32, PROTOCOL_UDP, exits);
        self.put(&[load16(1, DATA, IP4_FRAGMENT), and32(1, half([0x1f, 0xff]))]);
        self.pass_if(JNE32, 0, exits);
        self.put(&[load8(1, DATA, L3), and32(1, 15)]);
        self.pass_if(JLT32, 5, exits);
        self.put(&[shift_left(1, 2), mov(UDP_AT, DATA), add(UDP_AT, i32::from(L3))]);
        self.put(&[add_register(UDP_AT, 1)]);
        self.udp(rules, true, exits);
    }

    fn ip6(&mut self, rules: &Rules, exits: &mut Exits) {
        self.require(DATA, IP6_END, exits);
        self.version(0x60, exits);
        for word in 0..4 {
            self.put(&[load32(WORD + word, DATA, IP6_DST + 4 * i16::from(word))]);
        }
        self.prefixes(rules, false, exits);
        self.put(&[mov(UDP_AT, DATA), add(UDP_AT, IP6_END), load8(1, DATA, IP6_NEXT)]);
        let udp = self.jump_if(JEQ32, 1, PROTOCOL_UDP);
        self.pass_if(JNE32, PROTOCOL_FRAGMENT, exits);
        self.require(UDP_AT, FRAGMENT_LEN, exits);
        self.put(&[load8(1, UDP_AT, 0)]);
        self.pass_if(JNE32, PROTOCOL_UDP, exits);
        self.put(&[load16(1, UDP_AT, 2), and32(1, half([0xff, 0xf8]))]);
        self.pass_if(JNE32, 0, exits);
        self.put(&[add(UDP_AT, FRAGMENT_LEN)]);
        self.label(&[udp]);
        self.udp(rules, false, exits);
    }

    fn version(&mut self, version: u32, exits: &mut Exits) {
        self.put(&[load8(1, DATA, L3), and32(1, 0xf0)]);
        self.pass_if(JNE32, version, exits);
    }

    /// Compares the destination with the prefixes of a family.
    fn prefixes(&mut self, rules: &Rules, ip4: bool, exits: &mut Exits) {
        for rule in rules.iter() {
            let Rule::To { prefix, len } = *rule else { continue };
            if prefix.is_ipv4() == ip4 {
                let next = self.compare(prefix, len);
                self.take(&next, exits);
            }
        }
    }

    /// Compares the UDP header and the destination with the rules of a family.
    fn udp(&mut self, rules: &Rules, ip4: bool, exits: &mut Exits) {
        self.require(UDP_AT, UDP_LEN, exits);
        self.put(&[load16(0, UDP_AT, 2)]);
        for rule in rules.iter() {
            let Rule::Udp { dst, port } = *rule else { continue };
            if dst.is_ipv4() == ip4 {
                let other = self.jump_if(JNE32, 0, half(port.to_be_bytes()));
                let mut next = self.compare(dst, 128);
                next.push(other);
                self.take(&next, exits);
            }
        }
    }

    /// Compares the first `len` bits of the address in the registers; returns the jumps of one
    /// that differs.
    fn compare(&mut self, address: IpAddr, len: u8) -> Vec<usize> {
        let mut next = Vec::new();
        for (register, (word, mask)) in (WORD..).zip(words(address, len)) {
            let mut register = register;
            if mask == 0 {
                break;
            }
            if mask != u32::MAX {
                self.put(&[mov(1, register), and32(1, mask)]);
                register = 1;
            }
            next.push(self.jump_if(JNE32, register, word));
        }
        next
    }
}
