//! The state of an interface: up, down or gone, known to all queues of a port at almost no cost.
//!
//! The queues share one [`Link`]. The first queue after [`ASK_EVERY`] asks the system, with three
//! calls. In between, a check is one load and one read of the clock.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::interface::{Control, index_of};
use crate::queue::{PortError, PortInfo};

/// Longest age of the answer.
const ASK_EVERY: Duration = Duration::from_millis(5);

const UP: u8 = 0;
const DOWN: u8 = 1;
const GONE: u8 = 2;

/// An interface as the queues of a port see it. The numbers are independent of one another, so
/// relaxed atomics suffice.
pub(crate) struct Link {
    port: String,
    index: u32,
    control: Control,
    start: Instant,
    asked_ns: AtomicU64,
    state: AtomicU8,
    mtu: AtomicU32,
}

impl Link {
    /// Opens the Ethernet or loopback interface of this name.
    pub(crate) fn open(port: &str, interface: &str) -> Result<Link, PortError> {
        let unusable = |problem: String| PortError::Unusable { port: port.to_owned(), problem };
        let system = |call, source| PortError::System { port: port.to_owned(), call, source };
        let index =
            index_of(interface).map_err(|_| unusable("no such network interface".to_owned()))?;
        let control = Control::new().map_err(|e| system("socket", e))?;
        let (kind, _) = control.hardware(index).map_err(|e| system("SIOCGIFHWADDR", e))?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&kind) {
            return Err(unusable(format!(
                "hardware type {kind}, expected Ethernet (1) or loopback (772)"
            )));
        }
        let link = Link {
            port: port.to_owned(),
            index,
            control,
            start: Instant::now(),
            asked_ns: AtomicU64::new(0),
            state: AtomicU8::new(DOWN),
            mtu: AtomicU32::new(0),
        };
        link.ask();
        Ok(link)
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the socket to change the interface with.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Returns `Down` or `Gone`, at most [`ASK_EVERY`] late.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), PortError> {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let asked = self.asked_ns.load(Relaxed);
        if now.saturating_sub(asked) >= ASK_EVERY.as_nanos() as u64
            && self.asked_ns.compare_exchange(asked, now, Relaxed, Relaxed).is_ok()
        {
            self.ask();
        }
        self.known()
    }

    /// Returns the last known state without asking.
    #[inline]
    pub(crate) fn known(&self) -> Result<(), PortError> {
        match self.state.load(Relaxed) {
            UP => Ok(()),
            DOWN => Err(PortError::Down { port: self.port.clone() }),
            _ => Err(PortError::Gone { port: self.port.clone() }),
        }
    }

    /// Returns whether frames can leave, as last known.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.state.load(Relaxed) == UP
    }

    /// Returns the longest payload of a frame, as last known.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        self.mtu.load(Relaxed) as usize
    }

    /// Asks the system now.
    pub(crate) fn ask(&self) {
        let state = match self.control.state(self.index) {
            Ok(state) => {
                self.mtu.store(state.mtu, Relaxed);
                if state.up { UP } else { DOWN }
            }
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => GONE,
            // An unknown failure: it can pass no frames.
            Err(_) => DOWN,
        };
        // An index is not reused while we remember it as gone.
        if self.state.load(Relaxed) != GONE {
            self.state.store(state, Relaxed);
        }
    }

    /// Asks again and returns the port's properties.
    pub(crate) fn info(&self, detail: String) -> PortInfo {
        self.ask();
        let mac = self.control.hardware(self.index).map_or([0; 6], |(_, mac)| mac);
        PortInfo {
            name: self.port.clone(),
            mac,
            mtu: self.mtu.load(Relaxed),
            link_up: self.is_up(),
            detail,
        }
    }

    /// Returns a [`PortError::System`] of this port.
    pub(crate) fn system(&self, call: &'static str, source: io::Error) -> PortError {
        PortError::System { port: self.port.clone(), call, source }
    }
}
