//! Drops the privileges that the process no longer needs.
//!
//! Capabilities belong to threads, and a new thread inherits those of its parent. So call this
//! after ports and sockets are open and before the first thread starts. Without `CAP_DAC_OVERRIDE`,
//! the service's user, root included, must have read permission on files that SIGHUP reloads.

use crate::sys;
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};

/// Capabilities for reopening packet ports.
pub const NETWORK: [Capability; 3] =
    [Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN, Capability::CAP_BPF];

/// Capability beside, for AF_XDP ports that leave frames to the kernel.
pub const SELECTING: Capability = Capability::CAP_PERFMON;

/// Privileges could not be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The kernel refused to change capabilities.
    #[error("capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The kernel refused to forbid new privileges.
    #[error("no_new_privs: {0}")]
    NoNewPrivileges(#[from] std::io::Error),
}

/// Raises the limit of locked memory for AF_XDP. [`drop_all_but`] makes this impossible later.
pub fn prepare() {
    // Without the privilege the limit stays; opening the port reports a limit that is too low.
    sys::unlimited_locked_memory();
}

/// Drops every capability but `kept`, for good. Returns the names of those that remain.
///
/// # Errors
/// Fails if the kernel refuses; some privileges may be gone by then.
pub fn drop_all_but(kept: &[Capability]) -> Result<Vec<String>, PrivilegeError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = kept.iter().copied().filter(|cap| permitted.contains(cap)).collect();
    // The bounding set goes first: changing it needs a capability that is dropped later.
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

    /// Runs in a separate thread, which has its own capabilities.
    #[test]
    fn only_those_for_the_network_stay() {
        let names = std::thread::spawn(|| {
            let names = drop_all_but(&NETWORK).expect("dropping is always allowed");
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
