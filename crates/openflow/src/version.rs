//! Versions of OpenFlow, and sets of them as in HELLO.

use std::fmt;

/// A supported version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 1.3, wire version 0x04.
    V13,
    /// 1.4, wire version 0x05.
    V14,
    /// 1.5, wire version 0x06.
    V15,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 3] = [Version::V13, Version::V14, Version::V15];

    /// Returns the number in a header.
    pub const fn wire(self) -> u8 {
        match self {
            Version::V13 => 4,
            Version::V14 => 5,
            Version::V15 => 6,
        }
    }

    /// Returns the version with this number in a header.
    pub fn from_wire(wire: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.wire() == wire)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.wire() - 1)
    }
}

/// A set of wire versions: bit `n` is wire version `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionSet(pub u32);

impl VersionSet {
    /// Returns every supported version.
    pub fn ours() -> VersionSet {
        VersionSet::of(&Version::ALL)
    }

    /// Returns the set of these versions.
    pub fn of(versions: &[Version]) -> VersionSet {
        VersionSet(versions.iter().fold(0, |set, version| set | 1 << version.wire()))
    }

    /// Returns wire versions 1 to `wire`: the offer of a HELLO without a bitmap.
    pub fn up_to(wire: u8) -> VersionSet {
        let above = 2u64.checked_shl(wire.into()).map_or(0, |bits| bits as u32);
        VersionSet(above.wrapping_sub(1) & !1)
    }

    pub fn contains(self, version: Version) -> bool {
        self.0 >> version.wire() & 1 == 1
    }

    /// Returns the newest supported version in the set.
    pub fn highest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|&version| self.contains(version))
    }

    /// Returns the newest supported version in both sets.
    pub fn highest_common(self, other: VersionSet) -> Option<Version> {
        VersionSet(self.0 & other.0).highest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_their_wire_numbers() {
        assert_eq!(Version::ALL.map(Version::wire), [4, 5, 6]);
        assert_eq!(Version::ALL.map(|v| v.to_string()), ["1.3", "1.4", "1.5"]);
        assert_eq!(Version::from_wire(1), None);
        assert_eq!(VersionSet::ours().0, 0x70);
    }

    #[test]
    fn a_hello_without_a_bitmap_offers_all_up_to_its_version() {
        assert_eq!(VersionSet::up_to(4).0, 0b11110);
        assert_eq!(VersionSet::up_to(0).0, 0);
        for wire in 31..=255 {
            assert_eq!(VersionSet::up_to(wire).0, !1, "{wire}");
        }
    }

    #[test]
    fn the_newest_common_version_wins() {
        let ours = VersionSet::ours();
        assert_eq!(ours.highest_common(VersionSet::of(&[Version::V13])), Some(Version::V13));
        assert_eq!(ours.highest_common(VersionSet(u32::MAX)), Some(Version::V15));
        assert_eq!(ours.highest_common(VersionSet(0b1110)), None);
    }
}
