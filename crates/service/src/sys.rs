//! Linux calls that a service needs and std lacks.

#![allow(unsafe_code)] // Calls of libc; see each block.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Forbids this thread and its children to gain privileges.
///
/// # Errors
/// Fails on kernels that lack the call.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lifts this process's limit of locked memory; returns whether it could.
pub fn unlimited_locked_memory() -> bool {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a pointer to an rlimit that lives until the call returns.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 }
}

/// Removes a socket that a killed process left behind; `refused` is the error of a connection to
/// it. A file that is not a socket refuses connections as well, and stays.
///
/// # Errors
/// Fails if the file cannot be removed.
pub fn remove_stale_socket(path: &Path, refused: &io::Error) -> io::Result<()> {
    let socket = || std::fs::metadata(path).is_ok_and(|is| is.file_type().is_socket());
    if refused.kind() == io::ErrorKind::ConnectionRefused && socket() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_sockets_without_a_listener_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, socket) = (folder.path().join("file"), folder.path().join("socket"));
        let met = |path: &Path| UnixStream::connect(path).expect_err("no listener");
        std::fs::write(&file, "precious").expect("written");
        remove_stale_socket(&file, &met(&file)).expect("nothing to do");
        assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
        drop(UnixListener::bind(&socket).expect("bound"));
        remove_stale_socket(&socket, &met(&socket)).expect("removed");
        assert!(!socket.exists());
        remove_stale_socket(&socket, &met(&socket)).expect("it is not there");
    }
}
