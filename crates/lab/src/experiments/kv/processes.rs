//! Processes of an experiment, each of which ends with its handle, and what they use.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crate::prelude::LabError;
use overbank_kit::machine::keep_on;
use rustix::param::clock_ticks_per_second;

/// A child, killed on drop.
pub(super) struct Process(pub(super) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended by itself is no loss.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that may use these cores, and that Ctrl-C does not reach.
pub(super) fn start(mut command: Command, cores: &[usize]) -> Result<Process, LabError> {
    command.process_group(0).env_remove("NOTIFY_SOCKET");
    let cores = cores.to_vec();
    let spawn = move || {
        // Where no core can be set, it runs where this one does.
        let _ = keep_on(&cores);
        command.spawn()
    };
    let spawned = thread::spawn(spawn).join();
    let child = spawned.map_err(|_| LabError::failed("a thread panicked"))?;
    child.map(Process).map_err(LabError::failed)
}

impl Process {
    /// Returns the time that all its threads have been on a core, to the kernel's ticks.
    pub(super) fn core_time(&self) -> Result<Duration, LabError> {
        let ticks = ticks(&self.read("stat")?);
        let ticks = ticks.ok_or_else(|| LabError::failed("/proc: no times of a process"))?;
        Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
    }

    /// Returns the bytes of memory that it has.
    pub(super) fn resident_bytes(&self) -> Result<u64, LabError> {
        let bytes = resident(&self.read("status")?);
        bytes.ok_or_else(|| LabError::failed("/proc: no memory of a process"))
    }

    fn read(&self, file: &str) -> Result<String, LabError> {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).map_err(LabError::failed)
    }
}

/// Reads the fields `utime` and `stime`; the name before them may have spaces.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(field(11)? + field(12)?)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Time of cores: used, and passed, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    used: u64,
    passed: u64,
}

impl Cores {
    /// Returns the time of all cores.
    pub(super) fn now() -> Result<Cores, LabError> {
        Cores::read(|name| name == "cpu")
    }

    /// Returns the time of some cores.
    pub(super) fn of(cores: &[usize]) -> Result<Cores, LabError> {
        let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
        Cores::read(|name| number(name).is_some_and(|number| cores.contains(&number)))
    }

    fn read(is_of: impl Fn(&str) -> bool) -> Result<Cores, LabError> {
        let text = fs::read_to_string("/proc/stat").map_err(LabError::failed)?;
        Cores::parse(&text, is_of).ok_or_else(|| LabError::failed("/proc/stat: no line of a core"))
    }

    /// Returns the share of the time since then that was used, by whatever runs here.
    pub(super) fn share_since(self, then: Cores) -> f64 {
        (self.used - then.used) as f64 / (self.passed - then.passed).max(1) as f64
    }

    /// Returns the time that was used since then.
    pub(super) fn used_since(self, then: Cores) -> Duration {
        let ticks = (self.used - then.used) as f64;
        Duration::from_secs_f64(ticks / clock_ticks_per_second() as f64)
    }

    /// Adds up the lines with these names. Fields: user, nice, system, idle, waiting for a disk,
    /// interrupts, soft ones, stolen; then guests, which are in the first two.
    fn parse(text: &str, is_of: impl Fn(&str) -> bool) -> Option<Cores> {
        let mut sum = None;
        for line in text.lines() {
            let mut fields = line.split_whitespace();
            if !is_of(fields.next()?) {
                continue;
            }
            let fields: Vec<u64> = fields.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
            let passed: u64 = fields.iter().sum();
            let Cores { used, passed: before } = sum.unwrap_or(Cores { used: 0, passed: 0 });
            let used = used + passed - fields.get(3)? - fields.get(4)?;
            sum = Some(Cores { used, passed: before + passed });
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_of_a_process_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(resident("VmPeak: 9 kB\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert!(ticks("7 a").is_none() && resident("VmRSS: 1 MB").is_none());
        let mut command = Command::new("sleep");
        command.arg("60");
        let process = start(command, &overbank_kit::machine::usable_cores()).unwrap();
        assert!(process.core_time().unwrap() < Duration::from_secs(60));
        // Before the program is in place, too.
        assert!(process.resident_bytes().is_ok());
    }

    #[test]
    fn the_time_of_cores_is_read() {
        let text = "cpu  10 1 20 100 5 2 3 4 9 9\ncpu0 1 1 1 7 0\ncpu1 2 2 2 9 1\nintr 5\n";
        let of = |names: &[&str]| Cores::parse(text, |name| names.contains(&name));
        let found = |names| of(names).map(|Cores { used, passed }| (used, passed));
        assert_eq!(found(&["cpu"]), Some((40, 145)));
        assert_eq!(found(&["cpu0", "cpu1"]), Some((9, 26)));
        assert!(of(&["cpu2"]).is_none());
        let wrong = ["", "cpu 1 2 3", "cpu x"];
        assert!(wrong.iter().all(|text| Cores::parse(text, |name| name == "cpu").is_none()));
        assert!(Cores::now().is_ok() && Cores::of(&overbank_kit::machine::usable_cores()).is_ok());
    }
}
