//! Packets from the Internet to a terminal, and what nodes write on them for each other.
//!
//! ```text
//!  0        36                    50      70    78       100      128
//!  headroom │ Ethernet            │ IPv4  │ UDP │ 22 bytes │ free   two cache lines
//!           │ 02 4f 42 role last to│ 02 hops slot (4)│ 08 00 │       between nodes
//!  Ethernet │ IPv4 │ UDP │ GTP-U  │ the packet               │       to the base station
//! ```

use overbank::fib::Key;
use overbank::hash::mix;

pub(crate) const PACKET: usize = 50;
pub(crate) const END: usize = 100;
const LINK: usize = 36;
/// How the destination address of a labelled frame begins.
pub(crate) const LABELLED: [u8; 3] = [2, 0x4f, 0x42];
/// Bytes of a packet on a link.
pub(crate) const LEN: u64 = (END - LINK) as u64;

/// What the node that a frame is sent to does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ingress,
    /// Passes it on (VLB).
    Indirect,
    /// Looks up and passes on (hash partition).
    Lookup,
    Handling,
}

pub(crate) const ROLES: [Role; 4] = [Role::Ingress, Role::Indirect, Role::Lookup, Role::Handling];

/// What nodes write on a frame for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) role: Role,
    pub(crate) to: u8,
    /// The handling node, as far as it is known.
    pub(crate) last: u8,
    /// Links that it has crossed.
    pub(crate) hops: u8,
    /// What the forwarding table said.
    pub(crate) value: u32,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Frame {
    pub(crate) bytes: [u8; 128],
}

impl Frame {
    /// Returns a packet of this key as it enters the cluster.
    pub(crate) fn entering<K: FlowKey>(key: K) -> Frame {
        let mut bytes = [0; 128];
        bytes[LINK..LINK + 6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        bytes[LINK + 12..PACKET].copy_from_slice(&[8, 0]);
        bytes[PACKET] = 0x45;
        bytes[PACKET + 3] = (END - PACKET) as u8;
        bytes[PACKET + 8] = 64;
        bytes[PACKET + 9] = 17;
        key.write(&mut bytes);
        Frame { bytes }
    }

    /// Returns a frame that came over a link; `None`: its length is another's.
    pub(crate) fn received(link: &[u8]) -> Option<Frame> {
        let mut bytes = [0; 128];
        (link.len() == END - LINK).then(|| bytes[LINK..END].copy_from_slice(link))?;
        Some(Frame { bytes })
    }

    /// Returns the bytes of a packet on a link.
    pub(crate) fn on_link(&self) -> &[u8] {
        &self.bytes[LINK..END]
    }

    /// Returns the bytes of a packet in its tunnel.
    pub(crate) fn in_tunnel(&self) -> &[u8] {
        &self.bytes[..END]
    }

    /// Whether a node has written a label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.word(LINK) == LABELLED
    }

    pub(crate) fn label(&self) -> Label {
        let [role, last, to, _, hops, a, b, c, d] = self.word(LINK + 3);
        Label {
            role: ROLES[usize::from(role & 3)],
            to,
            last,
            hops,
            value: u32::from_be_bytes([a, b, c, d]),
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, label: Label) {
        let Label { role, to, last, hops, value } = label;
        let [a, b, c, d] = value.to_be_bytes();
        let [x, y, z] = LABELLED;
        let header = [x, y, z, role as u8, last, to, 2, hops, a, b, c, d];
        self.bytes[LINK..LINK + 12].copy_from_slice(&header);
    }

    /// Returns whether it is a whole IPv4 packet without options.
    #[inline(always)]
    fn is_ipv4(&self) -> bool {
        self.word(LINK + 12) == [8, 0, 0x45]
            && self.word(PACKET + 2) == ((END - PACKET) as u16).to_be_bytes()
    }

    #[inline(always)]
    fn word<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut word = [0; N];
        word.copy_from_slice(&self.bytes[at..at + N]);
        word
    }
}

/// A key of packets: the terminal's address, or all of a flow.
pub(crate) trait FlowKey: Key {
    const NAME: &'static str;
    /// Returns the key of a session; numbers below 2³² have different ones.
    fn of(session: u64) -> Self;
    fn write(self, bytes: &mut [u8; 128]);
    /// Reads a frame; `None`: it is no IPv4 packet.
    fn read(frame: &Frame) -> Option<Self>;
    /// Returns what the GPT and the hash partition look at.
    fn hash(self) -> u64;
    fn words(self) -> [u64; 2];
}

/// An odd factor: different numbers have different addresses.
fn address(session: u64) -> u32 {
    (session as u32).wrapping_mul(0x9e37_79b1)
}

impl FlowKey for u64 {
    const NAME: &'static str = "address";

    fn of(session: u64) -> u64 {
        address(session).into()
    }

    fn write(self, bytes: &mut [u8; 128]) {
        bytes[PACKET + 16..PACKET + 20].copy_from_slice(&(self as u32).to_be_bytes());
    }

    #[inline(always)]
    fn read(frame: &Frame) -> Option<u64> {
        let key = u32::from_be_bytes(frame.word(PACKET + 16));
        frame.is_ipv4().then_some(key.into())
    }

    #[inline(always)]
    fn hash(self) -> u64 {
        mix(self)
    }

    fn words(self) -> [u64; 2] {
        [self, 0]
    }
}

impl FlowKey for u128 {
    const NAME: &'static str = "5-tuple";

    fn of(session: u64) -> u128 {
        let (server, ports) = (mix(session) as u32, (mix(!session) as u32).to_be_bytes());
        let [server, address] = [server, address(session)].map(u32::to_be_bytes);
        let mut key = [0; 16];
        key[3] = 17;
        key[4..8].copy_from_slice(&server);
        key[8..12].copy_from_slice(&address);
        key[12..].copy_from_slice(&ports);
        u128::from_be_bytes(key)
    }

    fn write(self, bytes: &mut [u8; 128]) {
        let key = self.to_be_bytes();
        bytes[PACKET + 9] = key[3];
        bytes[PACKET + 12..PACKET + 24].copy_from_slice(&key[4..]);
    }

    #[inline(always)]
    fn read(frame: &Frame) -> Option<u128> {
        let mut key = [0; 16];
        key[3] = frame.bytes[PACKET + 9];
        key[4..].copy_from_slice(&frame.bytes[PACKET + 12..PACKET + 24]);
        frame.is_ipv4().then_some(u128::from_be_bytes(key))
    }

    #[inline(always)]
    fn hash(self) -> u64 {
        mix(self as u64 ^ mix((self >> 64) as u64))
    }

    fn words(self) -> [u64; 2] {
        [self as u64, (self >> 64) as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_key_and_their_label() {
        for session in [0, 1, 77, u64::from(u32::MAX)] {
            let (narrow, wide) = (u64::of(session), u128::of(session));
            assert_eq!(u64::read(&Frame::entering(narrow)), Some(narrow));
            let mut frame = Frame::entering(wide);
            assert!(!frame.is_labelled());
            for role in ROLES {
                let label = Label { role, to: 31, last: 7, hops: 2, value: 0x0102_0304 };
                frame.set(label);
                assert_eq!((frame.label(), u128::read(&frame)), (label, Some(wide)));
            }
            assert_eq!(u64::read(&frame), Some(narrow));
            let other = Frame::received(frame.on_link()).unwrap();
            assert!(other.is_labelled() && other.bytes == frame.bytes);
            assert!(Frame::received(&frame.in_tunnel()[1..]).is_none());
            frame.bytes[LINK + 12] = 0x86;
            assert_eq!((u64::read(&frame), u128::read(&frame)), (None, None));
        }
    }
}
