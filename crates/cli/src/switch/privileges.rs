//! The rights of the process: what it needs to open ports again, and nothing else.
//!
//! Capabilities belong to threads, and a new thread inherits those of its maker. So this runs when
//! the ports are open and no thread was started yet. Without the right to look into files of others
//! (`CAP_DAC_OVERRIDE`), a rule file that is read again on SIGHUP must be readable for the user that
//! the switch runs as, root included.

use crate::switch::sys;
use caps::{CapSet, Capability, CapsHashSet};

/// What is kept, of what is there.
const KEPT: [Capability; 3] =
    [Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN, Capability::CAP_BPF];

/// The rights could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The kernel refused.
    #[error("capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The kernel refused.
    #[error("no_new_privs: {0}")]
    NoNewPrivileges(#[from] std::io::Error),
}

/// Raises what AF_XDP needs and a later [`drop_all_but_network`] makes impossible to raise.
pub fn prepare() {
    // Without the right to do so the limit stays; opening the port says so if it is too low.
    sys::unlimited_locked_memory();
}

/// Gives up every capability but those that opening ports again needs, for good. Returns the names
/// of those kept.
///
/// # Errors
/// The kernel refused; rights may have been given up in part.
pub fn drop_all_but_network() -> Result<Vec<String>, PrivilegeError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = KEPT.into_iter().filter(|cap| permitted.contains(cap)).collect();
    // From the bounding set first, which takes a right that goes afterwards.
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

    /// In a thread of its own, whose rights are its own.
    #[test]
    fn only_those_for_the_network_stay() {
        let names = std::thread::spawn(|| {
            let names = drop_all_but_network().expect("giving up is always allowed");
            let left = caps::read(None, CapSet::Permitted).expect("readable");
            assert!(left.iter().all(|cap| KEPT.contains(cap)), "{left:?}");
            assert_eq!(left.len(), names.len());
            assert_eq!(caps::read(None, CapSet::Effective).expect("readable"), left);
            assert!(caps::read(None, CapSet::Inheritable).expect("readable").is_empty());
            names
        });
        let names = names.join().expect("no assertion failed");
        assert!(names.len() <= KEPT.len());
    }
}
