//! The few calls of Linux that the runtime needs and std does not have: a wake-up that `poll(2)`
//! sees, waiting for many descriptors, the time-stamp counter.

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
    /// A waker that nobody has woken yet.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        Ok(Waker(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Ends the wait, or the next one.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd wants. It only fails when it is set already.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes the wake-up back; returns whether there was one.
    pub fn clear(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: room for the eight bytes that an eventfd gives.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) == 8 }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells another thread that there is something for it, once until it looked.
#[derive(Debug)]
pub struct Bell {
    rung: AtomicBool,
    waker: Waker,
}

impl Bell {
    /// A bell that nobody has rung yet.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell { rung: AtomicBool::new(false), waker: Waker::new()? })
    }

    /// To be called after something was put where the other thread will look. A system call only
    /// if the other thread has not been rung for yet.
    pub fn ring(&self) {
        // AcqRel: what was put before is seen by whoever answers this or a later ring.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether somebody rang; to be called before looking.
    #[inline]
    pub fn answer(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// What to wait for.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// Descriptors to wait for, kept so that a wait allocates nothing.
#[derive(Debug, Default)]
pub struct WaitSet(Vec<libc::pollfd>);

impl WaitSet {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds one. It must stay open until the wait is over.
    pub fn add(&mut self, fd: BorrowedFd<'_>) {
        self.0.push(pollfd(fd.as_raw_fd()));
    }

    /// Waits until one is readable, or until the time is over; a signal may end it early.
    pub fn wait(&mut self, at_most: Duration) {
        let ms = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: an array of so many pollfd; closed descriptors in it are answered, not followed.
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

/// The time-stamp counter; where there is none, nanoseconds.
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
        // Would last for a minute.
        wait_for(&waker, Duration::from_secs(60));
        assert!(!waker.clear(), "both are gone");
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        wait_for(&waker, Duration::from_secs(60));
        thread.join().expect("woken");
    }
}
