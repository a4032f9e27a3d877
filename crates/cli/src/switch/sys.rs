//! Promises to the kernel.

#![allow(unsafe_code)] // Calls of libc; see each block.

use std::io;

/// From now on neither this thread nor what it starts can gain rights.
///
/// # Errors
/// The kernel refuses; old kernels only.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this process lock as much memory as it needs, which AF_XDP asks for; tells whether it may.
pub fn unlimited_locked_memory() -> bool {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a pointer to an rlimit.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 }
}
