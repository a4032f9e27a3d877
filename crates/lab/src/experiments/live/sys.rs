//! The few calls of Linux that the experiment needs: cores, network namespaces, children that end
//! with us.

#![allow(unsafe_code)] // Calls of libc; see each block.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Cores that sets of the C library can name.
const CORES_MAX: usize = libc::CPU_SETSIZE as usize;

/// Whether this process has root's number. What the kernel then allows shows when it is tried.
pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The cores that the calling thread may use.
pub fn allowed_cores() -> Vec<usize> {
    // SAFETY: a set of zeros is an empty one; the kernel writes as much as its size says, and cores
    // are asked for within that size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..CORES_MAX).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
    }
}

/// The cores that a thread of this process may be put on, also where the calling one is pinned.
pub fn usable_cores() -> Vec<usize> {
    let online = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let number =
        |line: &str| line.strip_prefix("processor")?.split(':').nth(1)?.trim().parse().ok();
    let online: Vec<usize> = online.lines().filter_map(number).collect();
    // On a thread of its own, which ends pinned to the last one.
    let try_all = move || online.into_iter().filter(|core| pin(&[*core]).is_ok()).collect();
    std::thread::spawn(try_all).join().unwrap_or_default()
}

/// Keeps the calling thread, and what it starts, on these cores.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let done = {
        // SAFETY: a set of zeros is an empty one, cores are below its size, and the kernel reads as
        // much as that size says.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for core in cores.iter().filter(|core| **core < CORES_MAX) {
                libc::CPU_SET(*core, &mut set);
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
        }
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves the calling thread into a network namespace.
pub fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: a descriptor and a number; only the calling thread moves.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a child run in a network namespace, on these cores, and no longer than the thread that
/// starts it.
pub fn settle(command: &mut Command, namespace: File, cores: Vec<usize>) {
    // Ctrl-C is for us; we end it in order.
    command.process_group(0);
    let set_up = move || {
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        enter(&namespace)?;
        pin(&cores)
    };
    // SAFETY: between fork and exec only system calls are made, of prctl, setns and
    // sched_setaffinity; nothing is allocated.
    unsafe { command.pre_exec(set_up) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_still_use_the_others() {
        let all = usable_cores();
        assert!(!all.is_empty());
        let (first, then) = std::thread::spawn(move || {
            pin(&[all[0]]).expect("it was possible a moment ago");
            (allowed_cores(), usable_cores() == all)
        })
        .join()
        .expect("no panic");
        assert_eq!(first.len(), 1);
        assert!(then);
        assert!(pin(&[]).is_err() && pin(&[CORES_MAX]).is_err());
    }
}
