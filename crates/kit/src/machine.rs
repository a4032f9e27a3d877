//! What a measurement runs on: the processor, its caches and memory as the kernel names them, and the
//! core that it is pinned to.

use serde::{Deserialize, Serialize};

/// What it ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, with its family and model number where there are such: a virtual
    /// machine's name may not tell generations apart ("AMD EPYC (family 25, model 17)").
    pub cpu: String,
    /// Logical processors.
    pub cores: usize,
    /// The one that the measurement was pinned to.
    pub pinned_core: Option<usize>,
}

impl Machine {
    /// This one.
    pub fn here(pinned_core: Option<usize>) -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // The usual question counts those that this thread may run on, and it may be pinned.
        let cores = info.lines().filter(|line| line.starts_with("processor")).count();
        Machine {
            cpu: cpu_name(&info),
            cores: cores.max(std::thread::available_parallelism().map_or(1, usize::from)),
            pinned_core,
        }
    }
}

/// The first processor of `/proc/cpuinfo`.
fn cpu_name(info: &str) -> String {
    let field = |name| {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        fields
            .map(|(key, value)| (key.trim(), value.trim()))
            .find_map(|(k, v)| (k == name).then_some(v))
    };
    let name = field("model name").unwrap_or("unknown");
    match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    }
}

/// Bytes of the last-level cache of core 0; `None` where the kernel does not say.
pub fn last_level_cache_bytes() -> Option<usize> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
    };
    (0..8).filter_map(size).max()
}

/// Bytes that the kernel can give without swapping; `None` where it does not say.
pub fn memory_available_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Keeps the calling thread on `wanted`, or on the last core that this process may use; returns the
/// core, or none where the system refuses the last one: the measurement is still worth making.
pub fn pin(wanted: Option<usize>) -> Result<Option<usize>, PinError> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let Some(id) = wanted else {
        return Ok(cores.last().filter(|c| core_affinity::set_for_current(**c)).map(|c| c.id));
    };
    match cores.iter().find(|c| c.id == id) {
        Some(core) if core_affinity::set_for_current(*core) => Ok(Some(id)),
        Some(_) => Err(PinError::Refused(id)),
        None => {
            let names: Vec<_> = cores.iter().map(|c| c.id.to_string()).collect();
            Err(PinError::Unavailable(id, names.join(", ")))
        }
    }
}

/// Why a thread is not pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The system says no.
    #[error("core {0}: the system refuses to pin a thread to it")]
    Refused(usize),
    /// Not among the cores of this process.
    #[error("core {0} is unavailable: this process may use {1}")]
    Unavailable(usize, String),
}

#[cfg(test)]
mod tests {
    use super::cpu_name;

    #[test]
    fn the_processor_has_its_generation() {
        let info = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n\
                    processor\t: 1\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Other\n";
        assert_eq!(cpu_name(info), "AMD EPYC (family 25, model 17)");
        assert_eq!(cpu_name("model name : A: B\n"), "A: B");
        assert_eq!(cpu_name(""), "unknown");
    }
}
