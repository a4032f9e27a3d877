//! Local sockets by path: bound before a service starts, their files removed at its end.
//!
//! A socket that a killed process left behind is replaced; one with a listener is an error, and so
//! is any other file. A file with a mode has it from its first moment: the socket is bound under a
//! temporary name beside it and linked. Panics: none.

use crate::connections::{ConnectionLimit, Limited};
use crate::endpoints::ServeError;
use crate::sys;
use axum::Router;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as BoundSocket, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// A bound socket; dropping it removes the file.
#[derive(Debug)]
pub struct LocalSocket {
    bound: BoundSocket,
    path: PathBuf,
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // Another process may have removed it before; either way it is no longer there.
        let _ = fs::remove_file(&self.path);
    }
}

impl LocalSocket {
    /// Binds a socket at a path, with this mode (`None`: as the umask says). `setting` is named in
    /// errors.
    ///
    /// # Errors
    /// Fails if the path is taken or not permitted.
    pub fn bind(
        path: &Path,
        setting: &'static str,
        mode: Option<u32>,
    ) -> Result<LocalSocket, ServeError> {
        let failed = |source| ServeError { setting, at: path.display().to_string(), source };
        if let Err(error) = UnixStream::connect(path) {
            sys::remove_stale_socket(path, &error).map_err(failed)?;
        }
        let bound = match mode {
            None => BoundSocket::bind(path),
            Some(mode) => bind_with_mode(path, mode),
        };
        let bound = bound.map_err(failed)?;
        let socket = LocalSocket { bound, path: path.to_owned() };
        socket.bound.set_nonblocking(true).map_err(failed)?;
        Ok(socket)
    }

    /// Returns the listener of the current runtime.
    ///
    /// # Errors
    /// Fails if the runtime cannot register it.
    pub fn listener(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.bound.try_clone()?)
    }

    /// Serves HTTP until `stop`, in a task of the current runtime. A connection that is idle for
    /// `idle` is closed, also while its answer is awaited.
    ///
    /// # Errors
    /// Fails if the runtime cannot register the listener.
    pub fn serve(
        &self,
        router: Router,
        limit: ConnectionLimit,
        idle: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let listener = Limited::new(self.listener()?, limit, idle);
        let stopped = async move {
            // An error means that the sender is gone: stop then, too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::spawn(
            async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await },
        );
        Ok(())
    }
}

fn bind_with_mode(path: &Path, mode: u32) -> io::Result<BoundSocket> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(partial);
    // Left by an earlier process with our number.
    let _ = fs::remove_file(&partial);
    let bound = BoundSocket::bind(&partial)?;
    let linked = fs::set_permissions(&partial, Permissions::from_mode(mode))
        .and_then(|()| fs::hard_link(&partial, path));
    fs::remove_file(&partial)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        linked => linked.map(|()| bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_its_mode_and_replaces_only_a_stale_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = (folder.path().join("control"), folder.path().join("file"));
        drop(BoundSocket::bind(&path).expect("left behind"));
        let socket = LocalSocket::bind(&path, "control", Some(0o600)).expect("replaced");
        let mode = fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).expect("it listens");
        fs::write(&file, "precious").expect("written");
        for (taken, mode) in [(&path, Some(0o600)), (&file, Some(0o600)), (&file, None)] {
            let error = LocalSocket::bind(taken, "control", mode).expect_err("taken");
            assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().starts_with("control /"), "{error}");
        }
        assert_eq!(fs::read(&file).expect("still there"), b"precious");
        drop(socket);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1, "no other file");
    }
}
