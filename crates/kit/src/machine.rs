//! What a measurement runs on: the processor, its caches and memory as the kernel names them, and
//! the core that it is pinned to.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, with its family and model number where there are such: a
    /// virtual machine's name may not tell generations apart ("AMD EPYC (family 25, model 17)").
    pub cpu: String,
    pub cores: usize,
    /// The one that the measurement was pinned to.
    pub pinned_core: Option<usize>,
}

impl Machine {
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

/// Returns the first processor of `/proc/cpuinfo`.
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

/// Returns the bytes of the last-level cache of core 0; `None` where the kernel does not say.
pub fn last_level_cache_bytes() -> Option<usize> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
    };
    (0..8).filter_map(size).max()
}

/// Returns the bytes that the kernel can give without swapping; `None` where it does not say.
pub fn memory_available_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes that the C library's allocator has handed out; 0 of another library.
#[allow(unsafe_code)] // A call of the C library.
pub fn heap_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing, returns numbers.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns the time that the calling thread has been on a core.
pub fn thread_time() -> Duration {
    core_time(ClockId::ThreadCPUTime)
}

/// Returns the time that all threads of this process have been on a core.
pub fn process_time() -> Duration {
    core_time(ClockId::ProcessCPUTime)
}

fn core_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the cores that the calling thread may use.
pub fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Returns the cores that a thread of this process may be put on, also where the calling one is
/// pinned.
pub fn usable_cores() -> Vec<usize> {
    let online = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let number =
        |line: &str| line.strip_prefix("processor")?.split(':').nth(1)?.trim().parse().ok();
    let online: Vec<usize> = online.lines().filter_map(number).collect();
    // On a separate thread, which ends pinned to the last one.
    let try_all = move || online.into_iter().filter(|core| keep_on(&[*core]).is_ok()).collect();
    std::thread::spawn(try_all).join().expect("no panic")
}

/// Keeps the calling thread, and what it starts, on these cores. No memory is allocated.
pub fn keep_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps the calling thread on `wanted`, or on the last core that it may use; returns the core, or
/// none where the system refuses the last one: the measurement is still worth making.
pub fn pin(wanted: Option<usize>) -> Result<Option<usize>, PinError> {
    let cores = allowed_cores();
    let Some(id) = wanted else {
        return Ok(cores.last().copied().filter(|core| keep_on(&[*core]).is_ok()));
    };
    if !cores.contains(&id) {
        let names: Vec<_> = cores.iter().map(usize::to_string).collect();
        return Err(PinError::Unavailable(id, names.join(", ")));
    }
    keep_on(&[id]).map_err(|_| PinError::Refused(id)).map(|()| Some(id))
}

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("core {0}: the system refuses to pin a thread to it")]
    Refused(usize),
    #[error("core {0} is unavailable: this process may use {1}")]
    Unavailable(usize, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_its_generation() {
        let info = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n\
                    processor\t: 1\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Other\n";
        assert_eq!(cpu_name(info), "AMD EPYC (family 25, model 17)");
        assert_eq!(cpu_name("model name : A: B\n"), "A: B");
        assert_eq!(cpu_name(""), "unknown");
    }

    #[test]
    fn a_pinned_thread_may_still_use_the_others() {
        let all = usable_cores();
        assert!(!all.is_empty());
        let (first, then) = std::thread::spawn(move || {
            keep_on(&[all[0]]).expect("it was possible a moment ago");
            (allowed_cores(), usable_cores() == all)
        })
        .join()
        .expect("no panic");
        assert_eq!(first.len(), 1);
        assert!(then);
        assert!(keep_on(&[]).is_err() && keep_on(&[CpuSet::MAX_CPU]).is_err());
        assert!(matches!(pin(Some(CpuSet::MAX_CPU)), Err(PinError::Unavailable(..))));
    }
}
