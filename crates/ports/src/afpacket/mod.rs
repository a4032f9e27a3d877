//! Network interfaces through `AF_PACKET` sockets: works on every Ethernet interface of Linux.
//!
//! ```text
//!            ┌ socket 0 ─ ring mapped from the kernel ─▶ queue 0 ─▶ sendmmsg ─ socket ┐
//! interface ─┤ fanout by flow                                                         ├─ interface
//!            └ socket 1 ─ ring ────────────────────────▶ queue 1 ─▶ sendmmsg ─ socket ┘
//! ```
//!
//! Frames are lent from where the kernel put them in the ring; only segments of super-frames are
//! copied. Checksums and VLAN tags are completed in place (`ring`, [`crate::offload`]).
//!
//! - Fanout: the kernel spreads frames by a hash of addresses and ports, equal for both directions,
//!   so a flow stays in one queue. Fragments are spread by their addresses alone. The kernel's
//!   defragmentation is off, because it would deliver packets longer than the MTU. Rollover is off,
//!   because it moves flows between queues.
//! - Ring: `TPACKET_V2` delivers a frame at once, `TPACKET_V3` when its block is full or after a
//!   millisecond. V3 passes more small frames, but adds a millisecond to each hop of a quiet flow.
//!   A switch delays every request and answer, so V2 is the default.
//! - Transmission uses `sendmmsg`, 64 frames a call, and bypasses the queueing discipline. A TX
//!   ring measured slower.
//! - The interface is promiscuous while the port is open. Frames that this machine sends through
//!   the interface by other means are not received.
//!
//! Needs CAP_NET_RAW, and CAP_NET_ADMIN for large buffers; Linux 4.20 or later.

mod receive;
mod ring;
mod slots;
mod transmit;

use std::io;
use std::sync::Arc;

use self::receive::Receiver;
use self::ring::Ring;
use self::transmit::Sender;
use crate::offload::TAG_LEN;
use crate::queue::{Port, PortError, PortInfo, Queue};
use crate::sys::link::Link;
use crate::sys::socket::PacketSocket;

/// How the kernel lays out received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingKind {
    /// `TPACKET_V2`: one slot for each frame, visible at once. For latency.
    #[default]
    V2,
    /// `TPACKET_V3`: blocks of densely packed frames; a frame is visible when its block is full or
    /// after a millisecond. For throughput.
    V3,
}

/// Options of [`open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketOptions {
    pub ring: RingKind,
    /// Size of each queue's ring.
    pub ring_mib: u32,
    /// Receive frames for other addresses than the interface's own.
    pub promiscuous: bool,
}

impl AfPacketOptions {
    pub const RING_MIB_MAX: u32 = 1024;
}

impl Default for AfPacketOptions {
    fn default() -> Self {
        AfPacketOptions { ring: RingKind::default(), ring_mib: 16, promiscuous: true }
    }
}

/// An open interface.
pub struct AfPacketPort {
    link: Arc<Link>,
    queues: Vec<Queue>,
    detail: String,
}

/// Opens an interface with `queues` queues.
///
/// # Errors
/// The interface is missing or no Ethernet interface, or the system refuses a call.
pub fn open(
    interface: &str,
    options: &AfPacketOptions,
    queues: usize,
) -> Result<AfPacketPort, PortError> {
    let name = format!("afpacket:{interface}");
    let link = Arc::new(Link::open(&name, interface)?);
    let system = |call| {
        let port = name.clone();
        move |source| PortError::System { port, call, source }
    };
    let mut group = 0;
    let mut receivers = Vec::with_capacity(queues);
    for queue in 0..queues {
        let socket = PacketSocket::new().map_err(|source| no_socket(&name, source))?;
        // Until all sockets are in the group, each of them would get every frame.
        socket.shut().map_err(system("SO_ATTACH_FILTER"))?;
        let ring = set_up(&socket, &link, options).map_err(system("PACKET_RX_RING"))?;
        socket.bind(link.index(), libc::ETH_P_ALL as u16).map_err(system("bind"))?;
        // A bound socket reports that the interface is down; the link reports it too.
        socket.take_error();
        if queues > 1 {
            let joined = join(&socket, group, queue == 0);
            group = joined.map_err(system("PACKET_FANOUT"))?;
        }
        receivers.push(Receiver::new(socket, ring, Arc::clone(&link)));
    }
    let mut both = Vec::with_capacity(queues);
    for receiver in receivers {
        let socket = sending(&link).map_err(system("socket for sending"))?;
        let transmit = Box::new(Sender::new(socket, Arc::clone(&link)));
        receiver.socket().unshut().map_err(system("SO_DETACH_FILTER"))?;
        both.push(Queue { receive: Box::new(receiver), transmit });
    }
    let ring = match options.ring {
        RingKind::V3 => "tpacket v3",
        RingKind::V2 => "tpacket v2",
    };
    let detail = format!("{ring}, {} MiB a queue, sendmmsg, {queues} queues", options.ring_mib);
    Ok(AfPacketPort { link, queues: both, detail })
}

fn no_socket(port: &str, source: io::Error) -> PortError {
    let port = port.to_owned();
    if source.raw_os_error() == Some(libc::EPERM) {
        let problem = "packet sockets need the capability CAP_NET_RAW: run as root".to_owned();
        return PortError::Unusable { port, problem };
    }
    PortError::System { port, call: "socket", source }
}

fn set_up(socket: &PacketSocket, link: &Link, options: &AfPacketOptions) -> io::Result<Ring> {
    socket.set_packet(libc::PACKET_VNET_HDR, 1)?;
    // Room before each frame for the tag that the kernel removed.
    socket.set_packet(libc::PACKET_RESERVE, 4 * TAG_LEN as i32)?;
    socket.set_packet(libc::PACKET_IGNORE_OUTGOING, 1)?;
    // For frames that are longer than a slot.
    socket.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 16 << 20);
    if options.promiscuous {
        let request = libc::packet_mreq {
            mr_ifindex: i32::try_from(link.index()).expect("an interface index is an int"),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
    }
    let bytes = (options.ring_mib.clamp(1, AfPacketOptions::RING_MIB_MAX) as usize) << 20;
    Ring::new(socket, options.ring, bytes, link.mtu())
}

/// Joins or creates the fanout group; returns its number.
fn join(socket: &PacketSocket, group: u16, found: bool) -> io::Result<u16> {
    let mut flags = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    if found {
        // The kernel picks a free number.
        flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
    }
    socket.set_packet(libc::PACKET_FANOUT, (flags << 16 | u32::from(group)) as i32)?;
    let answer: i32 = socket.get(libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    Ok(answer as u16)
}

fn sending(link: &Link) -> io::Result<PacketSocket> {
    let socket = PacketSocket::new()?;
    socket.set_packet(libc::PACKET_QDISC_BYPASS, 1)?;
    socket.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, 8 << 20);
    socket.bind(link.index(), 0)?;
    Ok(socket)
}

impl Port for AfPacketPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    fn info(&mut self) -> PortInfo {
        self.link.info(self.detail.clone())
    }
}
