//! Prefetch hints, and the cache level that they bring a line to.
//!
//! ```text
//!  memory ─▶ L3 ─▶ L2 ─▶ L1      near: all the way      far: into L2 and no further
//! ```
//!
//! A core has few buffers for lines on their way into its first level, and more for those that stop
//! at the second. A burst of lines from a table much larger than L2 therefore waits less with
//! *far*. A table that fits L2 gains nothing from it and loses the first level. docs/results.md has
//! the figures.
//!
//! A table decides once, at construction ([`Prefetch`]), and stores the kernels of its choice.

#![allow(unsafe_code)] // The intrinsics; a hint has no effect that a program can observe.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The cache level that the lines of a table are prefetched to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prefetch {
    /// Into the first-level cache.
    Near,
    /// Only into the second-level cache.
    Far,
    /// Far for a table of at least [`FAR_L2S`] second-level caches, near for smaller ones.
    #[default]
    Automatic,
}

impl Prefetch {
    /// Returns whether a table of this many bytes is prefetched far.
    pub fn is_far(self, bytes: usize) -> bool {
        match self {
            Prefetch::Near => false,
            Prefetch::Far => true,
            Prefetch::Automatic => bytes >= FAR_L2S.saturating_mul(l2_bytes()),
        }
    }
}

/// Size of a table, in second-level caches, from which [`Prefetch::Automatic`] is far.
///
/// In a table of twice the L2, half of the lines are in L2 and both hints cost the same; past four
/// times the far hint wins.
pub const FAR_L2S: usize = 4;

/// Assumed second-level cache of a core that does not report one: 1 MiB, as on common server cores
/// (512 KiB to 2 MiB).
pub const L2_BYTES_DEFAULT: usize = 1 << 20;

/// Returns the bytes of a core's second-level cache as the CPU reports it (`CPUID` leaf 4 or
/// 0x8000001D on x86-64, sysfs on other Linux machines), or [`L2_BYTES_DEFAULT`]. Asks once per
/// process.
pub fn l2_bytes() -> usize {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    match ASKED.load(Ordering::Relaxed) {
        0 => {
            let bytes = l2::reported().filter(|&b| b > 0).unwrap_or(L2_BYTES_DEFAULT);
            ASKED.store(bytes, Ordering::Relaxed); // Every thread finds the same.
            bytes
        }
        bytes => bytes,
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, unused_unsafe)] // Newer Rust calls these functions safe.
mod l2 {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    /// Reads leaf 4 on Intel; on AMD and Hygon it is empty, and 0x8000001D has the same layout.
    pub(super) fn reported() -> Option<usize> {
        leaf(4).or_else(|| leaf(0x8000_001d))
    }

    fn leaf(leaf: u32) -> Option<usize> {
        // SAFETY: every x86-64 CPU has the instruction.
        if unsafe { __cpuid(leaf & 0x8000_0000) }.eax < leaf {
            return None;
        }
        // No CPU has more than a handful of caches; type 0 ends the list.
        for cache in 0..16 {
            // SAFETY: as above, and the leaf exists.
            let said = unsafe { __cpuid_count(leaf, cache) };
            let (kind, level) = (said.eax & 0x1f, said.eax >> 5 & 7);
            match (kind, level) {
                (0, _) => return None,
                // Data or unified.
                (1 | 3, 2) => return size(said.ebx, said.ecx),
                _ => {}
            }
        }
        None
    }

    /// Multiplies ways, partitions, bytes of a line and sets; each field holds one less.
    pub(super) fn size(ebx: u32, ecx: u32) -> Option<usize> {
        let [line, partitions, ways] =
            [ebx & 0xfff, ebx >> 12 & 0x3ff, ebx >> 22].map(|field| field as usize + 1);
        (line * partitions * ways).checked_mul(ecx as usize + 1)
    }
}

#[cfg(all(not(target_arch = "x86_64"), target_os = "linux", feature = "detect"))]
mod l2 {
    /// Returns the first level-2 cache for data that the kernel lists.
    pub(super) fn reported() -> Option<usize> {
        (0..16).find_map(|index| {
            let read = |what: &str| {
                let path = std::format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
                std::fs::read_to_string(path).ok()
            };
            if read("level")?.trim() != "2" || read("type")?.trim() == "Instruction" {
                return None;
            }
            super::kibibytes(read("size")?.trim())
        })
    }
}

#[cfg(not(any(target_arch = "x86_64", all(target_os = "linux", feature = "detect"))))]
mod l2 {
    pub(super) const fn reported() -> Option<usize> {
        None
    }
}

/// Parses a size as in sysfs: `1024K`.
#[cfg(any(test, all(not(target_arch = "x86_64"), target_os = "linux", feature = "detect")))]
fn kibibytes(text: &str) -> Option<usize> {
    text.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

/// Prefetches the line that `place` begins on. Costs one instruction; does nothing on machines
/// without a prefetch instruction that Rust supports.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_at::<false>(core::ptr::from_ref(place).cast());
}

/// Prefetches only into the second-level cache, for memory larger than it ([`Prefetch::is_far`]).
#[inline(always)]
pub fn prefetch_far<T>(place: &T) {
    prefetch_at::<true>(core::ptr::from_ref(place).cast());
}

/// Prefetches any address, far or near.
#[inline(always)]
pub(crate) fn prefetch_at<const FAR: bool>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is allowed.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        if FAR {
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        } else {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address is allowed; it reads and writes nothing, and no register.
    unsafe {
        use core::arch::asm;
        if FAR {
            asm!("prfm pldl2keep, [{p}]", p = in(reg) address,
                 options(nostack, preserves_flags, readonly));
        } else {
            asm!("prfm pldl1keep, [{p}]", p = in(reg) address,
                 options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_are_kept_and_automatic_follows_the_l2() {
        let l2 = l2_bytes();
        assert!((128 << 10..=1 << 30).contains(&l2) && l2 == l2_bytes(), "{l2}");
        for bytes in [0, 1, l2, FAR_L2S * l2 - 1] {
            assert!(!Prefetch::Automatic.is_far(bytes), "{bytes}");
        }
        for bytes in [FAR_L2S * l2, usize::MAX] {
            assert!(Prefetch::Automatic.is_far(bytes), "{bytes}");
        }
        for bytes in [0, l2, usize::MAX] {
            assert!(!Prefetch::Near.is_far(bytes) && Prefetch::Far.is_far(bytes));
        }
        assert_eq!(Prefetch::default(), Prefetch::Automatic);
    }

    /// The kernel asks the CPU the same question.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_knows_the_same_l2() {
        let read = |index: usize, what: &str| {
            let path = std::format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            std::fs::read_to_string(path).ok().map(|text| std::string::String::from(text.trim()))
        };
        let kernel = (0..16)
            .filter(|&index| read(index, "level").as_deref() == Some("2"))
            .find_map(|index| kibibytes(&read(index, "size")?));
        assert!(kernel.is_none_or(|kernel| kernel == l2_bytes()), "{kernel:?}: {}", l2_bytes());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_size_is_the_product_of_its_fields() {
        // Zen 4: 8 ways, 1 partition, lines of 64 bytes, 2048 sets. Sapphire Rapids: 16 ways.
        assert_eq!(l2::size(7 << 22 | 63, 2047), Some(1 << 20));
        assert_eq!(l2::size(15 << 22 | 63, 2047), Some(2 << 20));
        assert_eq!(l2::size(u32::MAX, u32::MAX), (4096usize * 1024 * 1024).checked_mul(1 << 32));
    }

    #[test]
    fn sizes_of_sysfs_are_read() {
        assert_eq!(kibibytes("512K"), Some(512 << 10));
        assert_eq!((kibibytes(""), kibibytes("K"), kibibytes("2M")), (None, None, None));
    }
}
