//! The privileges of the process: those that it still needs, and nothing else.
//!
//! Capabilities belong to threads, and a new thread inherits those of its maker. So call this once
//! ports and sockets are open and before the first thread starts. Without `CAP_DAC_OVERRIDE`, a file
//! that is read again on SIGHUP must be readable for the user that the service runs as, root
//! included.

use crate::sys;
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};

/// What opening packet ports again needs.
pub const NETWORK: [Capability; 3] =
    [Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN, Capability::CAP_BPF];

/// Privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The kernel refused to change capabilities.
    #[error("capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The kernel refused to forbid new privileges.
    #[error("no_new_privs: {0}")]
    NoNewPrivileges(#[from] std::io::Error),
}

/// Raises the limit of locked memory, which AF_XDP needs and which cannot be raised after
/// [`drop_all_but`].
pub fn prepare() {
    // Without the privilege to do so the limit stays; opening the port says so if it is too low.
    sys::unlimited_locked_memory();
}

/// Gives up every capability but `kept`, for good. Returns the names of those that remain.
///
/// # Errors
/// The kernel refused; privileges may have been given up in part.
pub fn drop_all_but(kept: &[Capability]) -> Result<Vec<String>, PrivilegeError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = kept.iter().copied().filter(|cap| permitted.contains(cap)).collect();
    // From the bounding set first: that needs a capability which goes afterwards.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        for cap in caps::read(None, CapSet::Bounding)? {
            if !keep.contains(&cap) {
                caps::drop(None, CapSet::Bounding, cap)?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    sys::no_new_privileges()?;
    let mut names: Vec<String> = keep.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a separate thread, which has its own capabilities.
    #[test]
    fn only_those_for_the_network_stay() {
        let names = std::thread::spawn(|| {
            let names = drop_all_but(&NETWORK).expect("giving up is always allowed");
            let left = caps::read(None, CapSet::Permitted).expect("readable");
            assert!(left.iter().all(|cap| NETWORK.contains(cap)), "{left:?}");
            assert_eq!(left.len(), names.len());
            assert_eq!(caps::read(None, CapSet::Effective).expect("readable"), left);
            assert!(caps::read(None, CapSet::Inheritable).expect("readable").is_empty());
            names
        });
        let names = names.join().expect("no assertion failed");
        assert!(names.len() <= NETWORK.len());
    }
}
