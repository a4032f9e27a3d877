//! Network namespaces of an experiment, and ports in them.
//!
//! A namespace has a name only as long as [`Spaces`] lives, and exists as long as processes or open
//! ports are in it. So nothing stays behind, however the process ends.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::prelude::LabError;
use overbank_ports::queue::{Port, Queue};
use overbank_ports::{PortSpec, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An open port of one queue.
pub(in crate::experiments) struct Open {
    pub(in crate::experiments) queue: Queue,
    /// Modes that were granted.
    pub(in crate::experiments) detail: String,
    _port: Box<dyn Port>,
}

impl Open {
    /// Opens the port of a text such as `afpacket:eth0`.
    ///
    /// # Errors
    /// There is no such port in this namespace.
    pub(in crate::experiments) fn new(text: &str) -> Result<Open, LabError> {
        let spec: PortSpec = text.parse().map_err(LabError::failed)?;
        let mut port = open(&spec, 1).map_err(LabError::failed)?;
        let queue = port.take_queues().pop();
        let queue = queue.ok_or_else(|| LabError::Failed(format!("{text}: no queue")))?;
        let detail = port.info().detail;
        Ok(Open { queue, detail, _port: port })
    }
}

/// Waits until one of the ports has a frame.
pub(in crate::experiments) fn wait<'a>(ports: impl Iterator<Item = &'a Open>, most: Duration) {
    let fds: Vec<BorrowedFd> = ports.filter_map(|port| port.queue.receive.wait_fd()).collect();
    let mut fds: Vec<PollFd> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    // A signal or a refusal only wakes the caller early.
    let _ = poll(&mut fds, Some(&most));
}

/// Makes interfaces without IPv6, which send nothing by themselves, and a bridge without netfilter,
/// which drops packets whose checksum is left out.
const QUIET: &str = "cd /proc/sys/net; for f in all default; do echo 1 >ipv6/conf/$f/disable_ipv6; \
     done 2>/dev/null; echo 0 2>/dev/null >bridge/bridge-nf-call-iptables || true";

/// Namespaces by number. The names are removed on drop.
pub(in crate::experiments) struct Spaces {
    tag: String,
    count: usize,
}

impl Spaces {
    /// Makes namespaces that send nothing by themselves.
    ///
    /// # Errors
    /// There are no namespaces for this process.
    pub(in crate::experiments) fn new(count: usize) -> Result<Spaces, LabError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let spaces = Spaces { tag: format!("obl{}x{number}", std::process::id()), count };
        let add = |name: String| {
            sh(&format!("ip netns add {name} && ip netns exec {name} sh -c '{QUIET}'"))
        };
        (0..count).map(|nth| spaces.name(nth)).try_for_each(add).map_err(|why| {
            let need = "needs network namespaces: run as root on Linux with iproute2";
            LabError::Failed(format!("{need} ({why})"))
        })?;
        Ok(spaces)
    }

    pub(in crate::experiments) fn name(&self, nth: usize) -> String {
        format!("{}n{nth}", self.tag)
    }

    /// Runs `work` in a namespace, on a thread of it.
    pub(in crate::experiments) fn inside<T: Send>(
        &self,
        nth: usize,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let path = format!("/run/netns/{}", self.name(nth));
        let enter = || {
            let file = File::open(&path).map_err(|e| LabError::Failed(format!("{path}: {e}")))?;
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), network)
                .map_err(|e| LabError::Failed(format!("{path}: setns: {e}")))
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| enter().and_then(|()| work()));
            thread.join().map_err(|_| LabError::Failed(format!("{path}: a thread panicked")))?
        })
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for nth in 0..self.count {
            // It may not have been made.
            let _ = sh(&format!("ip netns del {}", self.name(nth)));
        }
    }
}

/// Runs a command; its error is what it said last.
pub(in crate::experiments) fn sh(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", command]).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = || said.lines().last().unwrap_or("no reason given").to_owned();
    if output.status.success() { Ok(()) } else { Err(last()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_last_line_of_the_command() {
        assert_eq!(sh("echo one >&2; echo two >&2; false"), Err("two".to_owned()));
        assert_eq!((sh("false"), sh("true")), (Err("no reason given".to_owned()), Ok(())));
    }
}
