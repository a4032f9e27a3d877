//! Sockets of the file system that a killed process left behind.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Removes the socket that a killed process left behind, on which `refused` is what a connection met.
/// A file that is no socket refuses connections as well, and stays.
///
/// # Errors
/// It cannot be removed.
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

    #[test]
    fn only_sockets_that_nobody_answers_on_are_removed() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let folder = tempfile::tempdir().expect("a folder");
        let (file, socket) = (folder.path().join("file"), folder.path().join("socket"));
        let met = |path: &Path| UnixStream::connect(path).expect_err("nobody answers");
        std::fs::write(&file, "precious").expect("written");
        remove_stale_socket(&file, &met(&file)).expect("nothing to do");
        assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
        drop(UnixListener::bind(&socket).expect("bound"));
        remove_stale_socket(&socket, &met(&socket)).expect("removed");
        assert!(!socket.exists());
        remove_stale_socket(&socket, &met(&socket)).expect("it is not there");
    }
}
