//! Memory for what is measured: on huge pages where the kernel gives them, or kept off them.
//!
//! Laid out as that of a table (`overbank::cache`, `memory.rs`): from 2 MiB on Linux a mapping of its
//! own that starts at a multiple of 2 MiB, between inaccessible pages, advised before it is touched;
//! smaller, or elsewhere, the global allocator's. Every page is written at construction.

#![allow(unsafe_code)] // A mapping, advice about its pages, and the slice over it.

use overbank::memory::HugePages;

/// `count` values side by side, shared by whoever has a reference.
pub struct Memory<T> {
    backing: Backing<T>,
}

enum Backing<T> {
    Allocated(Vec<T>),
    #[cfg(target_os = "linux")]
    Mapped(mapping::Mapping<T>),
}

impl<T> Memory<T> {
    /// `count` values, at least one, made one after the other; `huge`: on 2 MiB pages where the
    /// kernel gives them, otherwise on none. `None` if there is not enough memory.
    pub fn new(count: usize, huge: bool, make: impl FnMut(usize) -> T) -> Option<Memory<T>> {
        const { assert!(!std::mem::needs_drop::<T>()) };
        let count = count.max(1);
        #[cfg(target_os = "linux")]
        if count.checked_mul(size_of::<T>())? >= mapping::HUGE_PAGE {
            let mapping = mapping::Mapping::new(count, huge, make)?;
            return Some(Memory { backing: Backing::Mapped(mapping) });
        }
        let _ = huge;
        let mut values = Vec::new();
        values.try_reserve_exact(count).ok()?;
        values.extend((0..count).map(make));
        Some(Memory { backing: Backing::Allocated(values) })
    }

    /// The values.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        match &self.backing {
            Backing::Allocated(values) => values,
            #[cfg(target_os = "linux")]
            Backing::Mapped(mapping) => mapping.values(),
        }
    }

    /// The pages that the kernel gave. Reads a file of the kernel.
    pub fn huge_pages(&self) -> HugePages {
        match &self.backing {
            Backing::Allocated(_) => HugePages::No,
            #[cfg(target_os = "linux")]
            Backing::Mapped(mapping) => mapping.huge_pages(),
        }
    }
}

#[cfg(target_os = "linux")]
mod mapping {
    use std::io::{BufRead, BufReader};
    use std::ptr::NonNull;

    use overbank::memory::HugePages;

    /// Bytes of a huge page.
    pub(super) const HUGE_PAGE: usize = 2 << 20;

    /// Values from a multiple of 2 MiB on, with inaccessible pages on both sides.
    pub(super) struct Mapping<T> {
        reservation: NonNull<u8>,
        reserved: usize,
        start: NonNull<T>,
        /// Values that were written.
        count: usize,
    }

    // SAFETY: a mapping owns its values alone, as a `Box<[T]>` does.
    unsafe impl<T: Send> Send for Mapping<T> {}
    // SAFETY: as above; a shared mapping gives shared references only.
    unsafe impl<T: Sync> Sync for Mapping<T> {}

    impl<T> Mapping<T> {
        pub(super) fn new(
            count: usize,
            huge: bool,
            mut make: impl FnMut(usize) -> T,
        ) -> Option<Mapping<T>> {
            const { assert!(align_of::<T>() <= HUGE_PAGE) };
            let bytes = count.checked_mul(size_of::<T>())?;
            let reserved = bytes.checked_next_multiple_of(HUGE_PAGE)?.checked_add(3 * HUGE_PAGE)?;
            if reserved > isize::MAX as usize {
                return None;
            }
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing
            // that exists.
            let reservation = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    reserved,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if reservation == libc::MAP_FAILED {
                return None;
            }
            let reservation = NonNull::new(reservation.cast::<u8>())?;
            let skip = HUGE_PAGE + reservation.as_ptr().align_offset(HUGE_PAGE);
            // SAFETY: skip < 2 huge pages, so the values and a guard after them end inside the
            // reservation.
            let start = unsafe { reservation.add(skip) }.cast::<T>();
            let mut mapping = Mapping { reservation, reserved, start, count: 0 };
            // SAFETY: `start .. start + bytes` lies in the reservation, and `start` is page aligned.
            let opened = unsafe {
                libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE)
            };
            if opened != 0 {
                return None; // `mapping` unmaps.
            }
            let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            // SAFETY: advice on our own mapping changes no byte; a refusal only costs speed.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
            for i in 0..count {
                // SAFETY: i < count, so the place is inside the range that was opened, and aligned:
                // `start` is at a multiple of 2 MiB.
                unsafe { start.add(i).write(make(i)) };
            }
            mapping.count = count;
            Some(mapping)
        }

        #[inline(always)]
        pub(super) fn values(&self) -> &[T] {
            // SAFETY: `start` is aligned and valid for `count` values, which `new` wrote, as long as
            // `self` lives; nothing makes a mutable reference to them.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }

        pub(super) fn huge_pages(&self) -> HugePages {
            let bytes = self.count * size_of::<T>();
            match huge_bytes(self.start.as_ptr() as usize) {
                None => HugePages::Unknown,
                Some(0) => HugePages::No,
                Some(huge) if huge + HUGE_PAGE > bytes => HugePages::Yes,
                Some(bytes) => HugePages::Partly { bytes },
            }
        }
    }

    /// Bytes on huge pages of the mapping that begins at this address, by the kernel's books.
    fn huge_bytes(start: usize) -> Option<usize> {
        let smaps = BufReader::new(std::fs::File::open("/proc/self/smaps").ok()?);
        let begins = format!("{start:x}-");
        let mut lines = smaps.lines().map_while(Result::ok).skip_while(|l| !l.starts_with(&begins));
        let line = lines.find(|line| line.starts_with("AnonHugePages:"))?;
        let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
        kib.checked_mul(1024)
    }

    impl<T> Drop for Mapping<T> {
        fn drop(&mut self) {
            // SAFETY: exactly the reservation that `new` made; nothing else points in, and the
            // values need no drop.
            unsafe { libc::munmap(self.reservation.as_ptr().cast(), self.reserved) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn starts_at_a_huge_page_as_tables_do() {
        const HUGE: usize = 2 << 20;
        for bytes in [HUGE, HUGE + 64, 3 * HUGE + 4096 + 128, 4 * HUGE] {
            // Several at once, so that a lucky address does not pass for an aligned one.
            let all = [(); 3].map(|()| Memory::new(bytes / 8, true, |i| i as u64).unwrap());
            for memory in &all {
                let values = memory.as_slice();
                assert_eq!(values.len(), bytes / 8);
                assert!((values.as_ptr() as usize).is_multiple_of(HUGE), "{bytes}");
                assert!(values.iter().enumerate().all(|(i, &value)| value == i as u64));
            }
        }
        assert!(Memory::new(usize::MAX / 8, true, |i| i as u64).is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn small_pages_are_small() {
        let memory = Memory::new(1 << 20, false, |_| 7u64).unwrap();
        assert_eq!(memory.huge_pages(), HugePages::No);
        assert!(memory.as_slice().iter().all(|&value| value == 7));
        assert_eq!(Memory::new(0, true, |_| 7u64).unwrap().as_slice(), [7]);
    }
}
