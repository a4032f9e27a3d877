//! Finds the number of a kernel function in the kernel's own type information (BTF).
//!
//! ```text
//!   header │ types, one after the other, numbered from 1 │ names, each ending in a zero
//! ```
//!
//! Read once when a port opens. No bytes make it panic; unreadable ones give `None`. Source:
//! Documentation/bpf/btf.rst of the kernel.

use std::fs::File;
use std::io::Read;

/// File with the kernel's types.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";
/// Read limit, far above the size of any kernel's types.
const BYTES_MAX: u64 = 128 << 20;

/// Returns the number of the running kernel's function `name`, if the kernel has and reports it.
pub(super) fn kernel_function(name: &str) -> Option<u32> {
    let mut bytes = Vec::new();
    File::open(KERNEL).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    function(&bytes, name)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Finds a function in a BTF blob.
fn function(bytes: &[u8], name: &str) -> Option<u32> {
    const MAGIC: u32 = 0xeb9f;
    const KIND_FUNCTION: u32 = 12;
    if word(bytes, 0)? & 0xffff != MAGIC {
        return None;
    }
    let header = word(bytes, 4)? as usize;
    let section = |offset: u32, len: u32| {
        let start = header.checked_add(offset as usize)?;
        bytes.get(start..start.checked_add(len as usize)?)
    };
    let types = section(word(bytes, 8)?, word(bytes, 12)?)?;
    let names = section(word(bytes, 16)?, word(bytes, 20)?)?;
    let is_name = |offset: u32| {
        let rest = names.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    };
    let (mut at, mut number) = (0, 1u32);
    while at < types.len() {
        let (name_offset, info) = (word(types, at)?, word(types, at + 4)?);
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_FUNCTION && is_name(name_offset) {
            return Some(number);
        }
        at += 12
            + match kind {
                // Integers, variables, tags of declarations.
                1 | 14 | 17 => 4,
                // Arrays.
                3 => 12,
                // Structures, unions, sections of data, enumerations of 64 bits.
                4 | 5 | 15 | 19 => 12 * members,
                // Enumerations, prototypes.
                6 | 13 => 8 * members,
                // Pointers, forward declarations, type definitions, qualifiers, functions, floats.
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
        number += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A blob with the given types (name, kind, members, bytes that follow).
    fn blob(types: &[(&str, u32, u32, usize)]) -> Vec<u8> {
        let (mut body, mut names) = (Vec::new(), vec![0u8]);
        for (name, kind, members, more) in types {
            body.extend((names.len() as u32).to_ne_bytes());
            body.extend((kind << 24 | members).to_ne_bytes());
            body.extend([0; 4]);
            body.extend(std::iter::repeat_n(0xff, *more));
            names.extend(name.bytes().chain([0]));
        }
        let mut out = Vec::new();
        for word in [0x1_eb9f, 24, 0, body.len() as u32, body.len() as u32, names.len() as u32] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(body);
        out.extend(names);
        out
    }

    #[test]
    fn a_function_is_found_by_its_name_behind_types_of_every_kind() {
        let bytes = blob(&[
            ("wanted", 1, 0, 4),
            ("wanted", 4, 3, 36),
            ("b", 6, 2, 16),
            ("c", 13, 2, 16),
            ("wanted_not", 12, 0, 0),
            ("d", 19, 1, 12),
            ("e", 3, 0, 12),
            ("wanted", 12, 0, 0),
        ]);
        assert_eq!(function(&bytes, "wanted"), Some(8));
        assert_eq!(function(&bytes, "wanted_not"), Some(5));
        assert_eq!(function(&bytes, "want"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), real: bool) {
            if real {
                let mut made = blob(&[("a", 4, 3, 36), ("wanted", 12, 0, 0)]);
                for (at, byte) in bytes.iter().enumerate().take(6) {
                    let len = made.len();
                    made[(usize::from(*byte) * 7 + at) % len] ^= byte;
                }
                bytes = made;
            }
            let _ = function(&bytes, "wanted");
        }
    }
}
