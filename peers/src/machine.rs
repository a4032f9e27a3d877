//! The machine's description in a record, pinning, and reserved huge pages.

// The clock of the process, and namespaces, are calls into the C library.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
pub use overbank_kit::machine::{heap_bytes, keep_on, thread_time};
use serde_json::{Value, json};

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Returns the command to repeat this run: the task that ran it says so, or it is the program's.
pub fn command() -> String {
    std::env::var("OVERBANK_PEERS_COMMAND").unwrap_or_else(|_| {
        std::env::args().skip(1).fold("overbank-peers".to_owned(), |a, b| a + " " + &b)
    })
}

/// Describes the machine, the date and the command of a record.
pub fn describe(hertz: f64) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    json!({
        "date": date.unwrap_or_default(),
        "command": command(),
        "cpu": model.map_or("", |(_, name)| name),
        "cpus": cpus(),
        "tsc_ghz": hertz / 1e9,
        "kernel": read("/proc/sys/kernel/osrelease"),
        "load_before": read("/proc/loadavg"),
    })
}

/// Returns a flag that Ctrl-C and SIGTERM set.
pub fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("Ctrl-C")?;
    Ok(stop)
}

/// Returns whether this process runs as root; a call shows what the kernel allows.
pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Moves the calling thread into a network namespace, or into a new one.
pub fn enter(namespace: Option<&File>) -> io::Result<()> {
    // SAFETY: descriptors and numbers; only the calling thread moves.
    let done = unsafe {
        match namespace {
            Some(file) => libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET),
            None => libc::unshare(libc::CLONE_NEWNET),
        }
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of cores.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Bytes, reserved huge pages included.
    pub bytes: u64,
    /// Bytes on huge pages, transparent or reserved.
    pub huge: u64,
}

/// Returns this process's memory by the kernel's account.
pub fn resident() -> Result<Resident> {
    const FILE: &str = "/proc/self/smaps_rollup";
    let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
    Ok(resident_of(&text))
}

fn resident_of(text: &str) -> Resident {
    let mut resident = Resident::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(kib)) = (words.next(), words.next()) else { continue };
        let bytes = kib.parse::<u64>().map_or(0, |kib| kib << 10);
        match name {
            "Rss:" => resident.bytes += bytes,
            "AnonHugePages:" | "ShmemPmdMapped:" => resident.huge += bytes,
            "Private_Hugetlb:" | "Shared_Hugetlb:" => {
                resident.bytes += bytes;
                resident.huge += bytes;
            }
            _ => {}
        }
    }
    resident
}

/// Returns the bytes available to programs without swapping, by the kernel's estimate.
pub fn available_bytes() -> Result<u64> {
    const FILE: &str = "/proc/meminfo";
    let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{FILE} has no MemAvailable"))? << 10)
}

/// Returns the time that all threads of this process have been on a core, added up.
pub fn process_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. Every Linux has the clock: the result is not looked at.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the nanoseconds that a thread has been on a core, by `/proc/PID/task/TID`; `None` if the
/// kernel does not count them.
pub fn on_core_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Additional huge pages, until dropped.
pub struct HugePages {
    before: u64,
}

impl HugePages {
    /// Reserves `mib` more on 2 MiB pages; an error changes nothing.
    pub fn reserve(mib: u64) -> Result<HugePages> {
        let read = || -> Result<u64> { Ok(fs::read_to_string(HUGE_PAGES)?.trim().parse()?) };
        let before = read().context("huge pages")?;
        let want = before + mib / 2;
        fs::write(HUGE_PAGES, want.to_string())
            .context("cannot reserve huge pages: this needs root")?;
        let reserved = HugePages { before };
        let got = read()?;
        if got < want {
            bail!("the kernel has {} of {mib} MiB of huge pages to give", (got - before) * 2);
        }
        Ok(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(HUGE_PAGES, self.before.to_string()) {
            eprintln!("cannot give huge pages back: echo {} > {HUGE_PAGES}: {error}", self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_count_in_both() {
        let text = "7f00-7f01 ---p 0 00:00 0 [rollup]\nRss:    100 kB\nAnonHugePages:  64 kB\n\
                    ShmemPmdMapped: 0 kB\nShared_Hugetlb: 8 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(resident_of(text), Resident { bytes: 2156 << 10, huge: 2120 << 10 });
        let own = resident().unwrap();
        assert!(own.bytes > 1 << 16 && own.huge <= own.bytes, "{own:?}");
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
