//! TAP interfaces: the host's own network stack on one side, our frames on the other.
//!
//! ```text
//! stack ─ tap0 ─┬─ descriptor 0 ─▶ queue 0       each frame: │ virtio_net_hdr │ Ethernet … │
//!               └─ descriptor 1 ─▶ queue 1
//! ```
//!
//! Opening creates the interface if it is missing and sets it up. It is removed with the port
//! unless it was persistent before. With `offload` the stack may deliver super-frames, each in one
//! read, and partial checksums; the port segments and completes them. Without it, the kernel does.
//! Received frames are complete either way.
//!
//! With several queues, a small BPF program steers by addresses and ports, so a flow stays in one
//! queue. The kernel's own steering follows the queue of the last answer; it remains if the program
//! is refused (`CAP_BPF`).
//!
//! Cost: one system call for each frame in either direction, one for each super-frame. Needs
//! `CAP_NET_ADMIN`, unless a persistent interface belongs to the user.

mod device;
mod queue;
mod steer;

use std::sync::Arc;

use self::device::Device;
use self::queue::{TapReceive, TapTransmit};
use crate::queue::{Port, PortError, PortInfo, Queue};
use crate::sys::link::Link;

/// Options of [`open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    pub offload: bool,
    /// MTU to set; unchanged if `None`.
    pub mtu: Option<u32>,
}

impl TapOptions {
    /// Smallest MTU that IPv4 allows.
    pub const MTU_MIN: u32 = 68;
    /// Largest MTU of a TAP interface.
    pub const MTU_MAX: u32 = 65_521;
}

impl Default for TapOptions {
    fn default() -> Self {
        TapOptions { offload: true, mtu: None }
    }
}

pub struct TapPort {
    link: Arc<Link>,
    queues: Vec<Queue>,
    detail: String,
}

/// Opens a TAP interface, or creates it.
///
/// # Errors
/// The name belongs to another kind of interface, another process has it open, or the system
/// refuses a call.
pub fn open(interface: &str, options: &TapOptions, queues: usize) -> Result<TapPort, PortError> {
    let port = format!("tap:{interface}");
    let mut devices = Vec::with_capacity(queues);
    for _ in 0..queues {
        let device = Device::open(interface, queues > 1);
        devices
            .push(device.map_err(|problem| PortError::Unusable { port: port.clone(), problem })?);
    }
    let link = Arc::new(Link::open(&port, interface)?);
    let mut steering = "";
    if queues > 1 {
        let steered = steer::program().and_then(|program| devices[0].steer(&program));
        steering = if steered.is_ok() { ", steered by flow" } else { ", steered by the kernel" };
    }
    let mut both = Vec::with_capacity(queues);
    for device in devices {
        let prepared = device.prepare(options.offload);
        prepared.map_err(|e| link.system("TUNSETOFFLOAD", e))?;
        let device = Arc::new(device);
        let receive = Box::new(TapReceive::new(Arc::clone(&device), Arc::clone(&link)));
        let transmit = Box::new(TapTransmit::new(device, Arc::clone(&link)));
        both.push(Queue { receive, transmit });
    }
    if let Some(mtu) = options.mtu {
        let set = link.control().set_mtu(link.index(), mtu);
        set.map_err(|e| link.system("SIOCSIFMTU", e))?;
    }
    link.control().set_up(link.index()).map_err(|e| link.system("SIOCSIFFLAGS", e))?;
    link.ask();
    let offload = if options.offload { "offloads taken" } else { "no offloads" };
    let detail = format!("{offload}, {queues} queues{steering}");
    Ok(TapPort { link, queues: both, detail })
}

impl Port for TapPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    fn info(&mut self) -> PortInfo {
        self.link.info(self.detail.clone())
    }
}
