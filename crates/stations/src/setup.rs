//! The table that a configuration asks for, or why there is none.

use super::{Limits, StaticError, Stations};
use overbank::fib::{self, MacVlan};
use overbank::memory::{MemoryError, Pages};

/// There is no table of stations.
#[derive(Debug, thiserror::Error)]
pub enum StationsError {
    /// There is no memory for it.
    #[error("{setting}: {0}", setting = setting_of(.0))]
    Table(#[from] fib::FibError),
    /// It exceeds the available memory; the system would kill a process to get more.
    #[error(
        "mac-entries: {entries} stations take {needs_mib} MiB, and {available_mib} MiB of memory \
         are available; ask for fewer"
    )]
    Memory {
        /// Stations asked for.
        entries: usize,
        /// Memory for them.
        needs_mib: usize,
        /// Available memory.
        available_mib: usize,
    },
    /// A static entry cannot be.
    #[error("mac-static: {0}")]
    Static(#[from] StaticError),
}

/// Returns the setting that asked for what is not available.
fn setting_of(error: &fib::FibError) -> &'static str {
    match error {
        fib::FibError::Memory(MemoryError::NoGigabytePages { .. }) => "mac-pages",
        _ => "mac-entries",
    }
}

/// Returns the table for these ports, given by number and by whether frames can pass, with these
/// static addresses and the numbers of their ports.
///
/// # Errors
/// There is no memory for it, or a static address cannot be.
pub fn set_up(
    limits: Limits,
    statics: &[(MacVlan, u32)],
    ports: &[(u32, bool)],
    seed: u64,
) -> Result<Stations, StationsError> {
    let needs = Stations::bytes_of(limits, statics.len());
    // Pages of 1 GiB are set aside already, and need no free memory.
    if !matches!(limits.pages, Pages::Gigabyte { .. })
        && let Some(available) = memory_available()
        && needs > available
    {
        return Err(StationsError::Memory {
            entries: limits.entries_max,
            needs_mib: needs >> 20,
            available_mib: available >> 20,
        });
    }
    let mut stations = Stations::new(limits, ports.len(), statics.len(), seed)?;
    for &(key, number) in statics {
        let index = ports.iter().position(|port| port.0 == number);
        let index = index.and_then(|index| u16::try_from(index).ok());
        stations.add_static(key, index.ok_or(StaticError::Port(key))?)?;
    }
    for (index, port) in ports.iter().enumerate() {
        stations.set_up(index, port.1);
    }
    Ok(stations)
}

/// Returns the bytes of available memory, if the system reports them.
fn memory_available() -> Option<usize> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_memory() {
        let available = memory_available().expect("Linux says so");
        assert!((1 << 20..1 << 46).contains(&available), "{available}");
    }
}
