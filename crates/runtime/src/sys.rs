//! Linux calls that the runtime needs and std lacks: a wake-up that `poll(2)` sees, waiting for
//! many descriptors, the time-stamp counter.

#![allow(unsafe_code)] // Calls of libc and one instruction; see each block.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wakes a thread that waits in [`wait_for`]; cheap to clone.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Returns a waker that has not been woken.
    ///
    /// # Errors
    /// Fails if the system has no descriptors left.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Waker(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd takes. It fails only when it is already set.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears the wake-up; returns whether there was one.
    pub fn clear(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: room for the eight bytes that an eventfd returns.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) == 8 }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Signals another thread that it has work, with one system call until that thread looks.
#[derive(Debug)]
pub struct Bell {
    rung: AtomicBool,
    waker: Waker,
}

impl Bell {
    /// Returns a bell that has not been rung.
    ///
    /// # Errors
    /// Fails if the system has no descriptors left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell { rung: AtomicBool::new(false), waker: Waker::new()? })
    }

    /// Signals the other thread; call it after the work is in place. Makes a system call only for
    /// the first ring since the last answer.
    pub fn ring(&self) {
        // AcqRel: the thread that answers this or a later ring sees the work put before it.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Returns whether the bell was rung; call it before looking for work.
    #[inline]
    pub fn answer(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// Returns the waker to wait for.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// Descriptors to wait for; reused, so a wait allocates nothing.
#[derive(Debug, Default)]
pub struct WaitSet(Vec<libc::pollfd>);

impl WaitSet {
    /// Removes all descriptors.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a descriptor, which must stay open until the wait is over.
    pub fn add(&mut self, fd: BorrowedFd<'_>) {
        self.0.push(pollfd(fd.as_raw_fd()));
    }

    /// Waits until a descriptor is readable or the time is over; a signal may end it early.
    pub fn wait(&mut self, at_most: Duration) {
        let ms = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the length is that of the array; poll reports closed descriptors and follows
        // none.
        unsafe { libc::poll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, ms) };
    }
}

fn pollfd(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits for one waker, and clears it.
pub fn wait_for(waker: &Waker, at_most: Duration) {
    let mut set = WaitSet::default();
    set.add(waker.as_fd());
    set.wait(at_most);
    waker.clear();
}

/// Returns the time-stamp counter, or nanoseconds on machines without one.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it touches no memory.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for one timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_one_wait() {
        let waker = Waker::new().expect("a descriptor");
        assert!(!waker.clear());
        waker.wake();
        waker.clone().wake();
        // Would otherwise last a minute.
        wait_for(&waker, Duration::from_secs(60));
        assert!(!waker.clear(), "both are gone");
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        wait_for(&waker, Duration::from_secs(60));
        thread.join().expect("woken");
    }
}
