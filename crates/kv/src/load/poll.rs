//! Waits for sockets and moments: epoll, to the nanosecond.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Events taken at a time.
const EVENTS: usize = 256;
/// Longest wait at a time, so that a caller looks whether it has to stop.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Sockets that are waited for, by a number of the caller.
pub struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a socket, which is waited for until it is closed.
    pub fn add(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        Ok(epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN)?)
    }

    /// Waits for room to write as well, or no longer.
    pub fn room(&self, socket: impl AsFd, number: u64, is_wanted: bool) -> io::Result<()> {
        let room = if is_wanted { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(number);
        Ok(epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | room)?)
    }

    /// Waits for sockets until a moment; appends the numbers of those that are ready. It returns
    /// earlier after a while.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Vec<u64>) -> io::Result<()> {
        let left = until.map_or(WAIT_MAX, |at| at.saturating_duration_since(Instant::now()));
        let left = Timespec::try_from(left.min(WAIT_MAX)).map_err(io::Error::other)?;
        // epoll itself counts milliseconds.
        if until.is_some() {
            poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&left))?;
        }
        let left = if until.is_some() { Timespec::default() } else { left };
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let (events, _) = epoll::wait(&self.epoll, &mut events, Some(&left))?;
        ready.extend(events.iter().map(|event| event.data.u64()));
        Ok(())
    }
}
