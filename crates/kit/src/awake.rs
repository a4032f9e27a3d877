//! Cores that do not sleep while times of single replies are measured.
//!
//! A core without work halts. Waking it costs a virtual machine tens of microseconds of its host,
//! which the kernel books as stolen; processes that wait for each other pay that at each hop. Here,
//! threads of the idle class run where nothing else does. Any other thread that wakes displaces
//! them at once; beside threads that compute, they have three thousandths of a core, in pieces of
//! milliseconds: for machines where nothing else runs.

use crate::machine::keep_on;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that keep cores awake; dropping it ends them.
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Keeps these cores awake.
    ///
    /// # Errors
    /// The system puts no thread in the idle class, or none on one of the cores.
    pub fn keep(cores: &[usize]) -> io::Result<Awake> {
        let mut awake = Awake { stop: Arc::default(), threads: Vec::new() };
        for &core in cores {
            let stop = awake.stop.clone();
            let (told, begun) = std::sync::mpsc::channel();
            awake.threads.push(thread::spawn(move || {
                let ready = keep_on(&[core]).and_then(|()| run_when_idle());
                let spins = ready.is_ok();
                // It is waited for.
                let _ = told.send(ready);
                while spins && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
            begun.recv().map_err(io::Error::other)??;
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // They do not panic.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Puts the calling thread in the idle class.
#[allow(unsafe_code)] // A call of the C library.
fn run_when_idle() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the parameter lives until the call returns.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::usable_cores;
    use std::time::{Duration, Instant};

    /// Returns the kernel's numbers of these threads, and the ticks that they have been on a core.
    fn idle_threads() -> Vec<(String, u64)> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("there").flatten();
        let of = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
            // man 5 proc: policy is field 41, user time field 14, the name's end field 2.
            let is_idle = fields.get(41 - 3)?.parse() == Ok(libc::SCHED_IDLE);
            let ticks = fields.get(14 - 3)?.parse().ok()?;
            is_idle.then(|| (task.file_name().to_string_lossy().into_owned(), ticks))
        };
        tasks.filter_map(of).collect()
    }

    #[test]
    fn cores_are_awake_until_it_is_dropped() {
        let cores = usable_cores();
        let awake = Awake::keep(&cores[..1]).expect("the idle class asks for no privilege");
        let begun = Instant::now();
        // Where another process has the core, the thread waits.
        while !matches!(&idle_threads()[..], [(_, ticks)] if *ticks > 0) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no core was idle");
            thread::sleep(Duration::from_millis(1));
        }
        drop(awake);
        // The kernel names one that has been joined for a moment longer.
        while !idle_threads().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "still there");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(Awake::keep(&[usize::MAX]).is_err());
    }
}
