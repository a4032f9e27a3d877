//! Memory shared with the kernel.

#![allow(unsafe_code)] // mmap and munmap.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

/// Pages mapped from a descriptor, readable and writable; unmapped on drop.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and a `Mapping` is its only owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of `fd`.
    pub(crate) fn new(fd: impl AsFd, offset: i64, len: usize) -> io::Result<Mapping> {
        // SAFETY: no address is asked for, so nothing that is there is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Mapping { start, len })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference is left: they borrow from the owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
