//! AF_XDP: frames pass between the driver and our memory without the kernel's own packets.
//!
//! ```text
//!                  ┌ queue 0 ─ socket ─┬─▶ worker 0
//!   interface ─ XDP┤ queue 1 ─ socket ─┼─▶ worker 1          workers = queues
//!   (program)      └ queue 2 ─ socket ─┴─▶ worker 0          more queues: served in turn
//!                                          worker 3          more workers: send only
//! ```
//!
//! [`open`] attaches an XDP program (`program`) that directs the frames of each receive queue to
//! its socket: all, or those that [`AfXdpOptions::select`] takes (`filter`). [`Port::select`]
//! changes that while frames pass: a new program takes the place of the old one. Every queue of the
//! interface gets a socket, so that no queue stays unread. A worker without a queue receives
//! nothing, and sends through a packet socket (`packet`).
//!
//! **Modes.** The program runs in the driver if the driver supports it (native), else in the
//! kernel's generic hook. The hardware reads and writes frames itself if the driver supports that
//! (zero copy); else the kernel copies them once. [`Port::info`] says what was granted.
//!
//! **Nothing stays behind.** Program, sockets and promiscuous mode belong to descriptors of the
//! process, so the kernel undoes them however the process ends. That needs BPF links (Linux 5.9);
//! older kernels are refused. Another process's program is never replaced.
//!
//! **Offloads.** Checksums that the kernel left to the hardware (veth) are completed in place.
//! VLAN tags beside the frame are restored by the program if the driver reports them (veth; Linux
//! 6.8). Drivers that remove tags are set to keep them until the port is dropped; a killed process
//! leaves `rxvlan` off, which only costs speed. In generic mode a tag that the sender left to the
//! hardware (veth) is invisible, to rules as well: use native mode there. Frames longer than 3.8
//! kB cannot be received, so an interface with a longer MTU is refused. In generic mode, large
//! frames that a veth peer did not segment count as missed; native mode makes the peer segment
//! them.
//!
//! Limits: 64 receive queues. No action of the kernel or of a peer makes it panic. Needs the
//! capabilities `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`, and `CAP_PERFMON` to select frames:
//! without it, the kernel refuses the filter's arithmetic with addresses.

#![allow(unsafe_code)] // System calls, and memory that is shared with the kernel.

mod bpf;
mod btf;
mod filter;
mod interface;
pub(crate) mod netlink;
mod packet;
mod program;
mod receive;
mod ring;
mod socket;
mod sys;
mod transmit;

use crate::queue::{Port, PortError, PortInfo, Queue, Receive, Transmit};
use crate::select::Select;
use interface::Interface;
use packet::PacketTransmit;
use receive::XdpReceive;
pub use socket::MTU_MAX;
use socket::{Binding, Opened, Socket};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use transmit::XdpTransmit;

/// Most receive queues of an interface.
pub const RECEIVE_QUEUES_MAX: u32 = 64;
/// Bounds of [`AfXdpOptions::frames`].
pub const FRAMES_MIN: u32 = 256;
/// Bounds of [`AfXdpOptions::frames`].
pub const FRAMES_MAX: u32 = 65_536;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Zero copy if the driver supports it, else copies.
    #[default]
    Auto,
    /// The kernel copies each frame.
    Copy,
    /// The hardware reads and writes our memory; fails if it cannot.
    ZeroCopy,
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it supports that, else generic.
    #[default]
    Auto,
    /// In the driver; fails if it cannot.
    Native,
    /// In the kernel's hook for all interfaces.
    Generic,
}

impl FromStr for CopyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<CopyMode, String> {
        match text {
            "auto" => Ok(CopyMode::Auto),
            "copy" => Ok(CopyMode::Copy),
            "zero-copy" => Ok(CopyMode::ZeroCopy),
            _ => Err(format!("`{}`, expected one of auto, copy, zero-copy", text.escape_debug())),
        }
    }
}

impl fmt::Display for CopyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyMode::Auto => "auto",
            CopyMode::Copy => "copy",
            CopyMode::ZeroCopy => "zero-copy",
        })
    }
}

impl FromStr for XdpMode {
    type Err = String;

    fn from_str(text: &str) -> Result<XdpMode, String> {
        match text {
            "auto" => Ok(XdpMode::Auto),
            "native" | "drv" => Ok(XdpMode::Native),
            "generic" | "skb" => Ok(XdpMode::Generic),
            _ => Err(format!("`{}`, expected one of auto, native, generic", text.escape_debug())),
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Auto => "auto",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// Options of [`open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpOptions {
    pub mode: CopyMode,
    pub xdp: XdpMode,
    /// Frames that each receive queue can hold until a worker comes: a power of two from
    /// [`FRAMES_MIN`] to [`FRAMES_MAX`]. On a busy machine a worker may be away for milliseconds.
    /// A quarter of that, at most 2048, is added for sending.
    pub frames: u32,
    /// Receive frames for other Ethernet addresses.
    pub promiscuous: bool,
    /// Frames to take; the kernel keeps the others.
    pub select: Select,
}

impl Default for AfXdpOptions {
    fn default() -> AfXdpOptions {
        AfXdpOptions {
            mode: CopyMode::Auto,
            xdp: XdpMode::Auto,
            frames: 8192,
            promiscuous: true,
            select: Select::All,
        }
    }
}

/// An open AF_XDP interface.
struct AfXdpPort {
    // Dropped first, so that no frame is directed to sockets about to close.
    program: Attached,
    sockets: bpf::SocketMap,
    interface: Arc<Interface>,
    queues: Vec<Queue>,
    detail: String,
    select: Select,
    /// Whether the driver removed VLAN tags before.
    restore_vlan: bool,
}

/// Opens an interface with `queues` queues, one for each worker.
///
/// # Errors
/// [`PortError::Down`]: AF_XDP sockets bind only to interfaces that are up; try again.
/// [`PortError::Unusable`]: says what is wrong and what would be right, also for a missing
/// interface. [`PortError::System`]: anything else.
pub fn open(
    interface: &str,
    options: &AfXdpOptions,
    queues: usize,
) -> Result<Box<dyn Port>, PortError> {
    check_capabilities(interface, &options.select)?;
    raise_locked_memory();
    let interface = Arc::new(Interface::find(interface)?);
    check_options(&interface, options, queues)?;
    let (receiving, sending) = interface.channels().unwrap_or((1, 1));
    if receiving > RECEIVE_QUEUES_MAX {
        return Err(interface.unusable(format!(
            "{receiving} receive queues, at most {RECEIVE_QUEUES_MAX} can be served; reduce them \
             with `ethtool -L`"
        )));
    }

    let sockets = bpf::SocketMap::new(receiving)
        .map_err(|error| refused(&interface, "BPF_MAP_CREATE", error))?;
    let program = attach(&interface, options, &sockets)?;
    if options.promiscuous {
        interface.make_promiscuous()?;
    }
    let mut port = AfXdpPort {
        restore_vlan: program.vlan_tag.is_none() && interface.keep_vlan_tags(),
        program,
        sockets,
        interface: Arc::clone(&interface),
        queues: Vec::new(),
        detail: String::new(),
        select: options.select.clone(),
    };

    let mut opened = Vec::new();
    for queue in 0..receiving {
        let binding = Binding { queue, sends: queue < sending, generic: port.program.generic };
        let socket = Socket::open(&interface, options, &binding)?;
        port.sockets
            .set(queue, socket.socket.fd())
            .map_err(|error| interface.system("BPF_MAP_UPDATE_ELEM", error))?;
        opened.push(socket);
    }
    port.detail = detail(&port.program, &opened, options, queues);
    port.queues = share_out(&interface, opened, queues)?;
    Ok(Box::new(port))
}

/// Raises the process's limit of locked memory (`RLIMIT_MEMLOCK`) as far as allowed.
///
/// [`open`] does this too; a process that drops capabilities does it before. Frames lie in locked
/// memory: the usual limit of 8 MiB gives a queue fewer frames than the options ask for.
/// `CAP_IPC_LOCK` lifts the limit.
pub fn raise_locked_memory() {
    sys::raise_memlock();
}

/// Assigns the sockets: queue `q` goes to worker `q % workers`.
fn share_out(
    interface: &Arc<Interface>,
    sockets: Vec<Opened>,
    workers: usize,
) -> Result<Vec<Queue>, PortError> {
    let mut hands: Vec<Vec<Opened>> = (0..workers).map(|_| Vec::new()).collect();
    for (queue, socket) in sockets.into_iter().enumerate() {
        hands[queue % workers].push(socket);
    }
    let mut queues = Vec::with_capacity(workers);
    for hand in hands {
        let mut receive = Vec::new();
        let mut transmit: Option<Box<dyn Transmit>> = None;
        for Opened { socket, receive: rings, transmit: sending } in hand {
            if let (None, Some(rings)) = (&transmit, sending) {
                let (interface, socket) = (Arc::clone(interface), Arc::clone(&socket));
                transmit = Some(Box::new(XdpTransmit::new(interface, socket, rings)));
            }
            receive.push((socket, rings));
        }
        let transmit = match transmit {
            Some(transmit) => transmit,
            None => Box::new(PacketTransmit::open(Arc::clone(interface))?),
        };
        let receive: Box<dyn Receive> = Box::new(
            XdpReceive::new(Arc::clone(interface), receive)
                .map_err(|error| interface.system("epoll", error))?,
        );
        queues.push(Queue { receive, transmit });
    }
    Ok(queues)
}

/// Describes the granted options, for people.
fn detail(
    program: &Attached,
    sockets: &[Opened],
    options: &AfXdpOptions,
    workers: usize,
) -> String {
    let zero = sockets.iter().filter(|opened| opened.socket.zero_copy()).count();
    let huge = sockets.iter().all(|opened| opened.socket.huge());
    let bytes: usize = sockets.iter().map(|opened| opened.socket.umem_bytes()).sum();
    let receiving = sockets.len();
    let mut parts = vec![
        match (program.generic, &program.why_generic) {
            (false, _) => "native XDP".to_owned(),
            (true, None) => "generic XDP".to_owned(),
            (true, Some(why)) => format!("generic XDP (native: {why})"),
        },
        match zero {
            0 => "copy mode".to_owned(),
            _ if zero == sockets.len() => "zero copy".to_owned(),
            _ => format!("zero copy on {zero} of {} queues", sockets.len()),
        },
        "need-wakeup".to_owned(),
        format!("{receiving} receive queue{}", if receiving == 1 { "" } else { "s" }),
        format!("{} MiB of frames in {} pages", bytes >> 20, if huge { "2 MiB" } else { "4 KiB" }),
    ];
    let fewest = sockets.iter().map(|opened| opened.socket.receiving()).min();
    if let Some(fewest) = fewest.filter(|fewest| *fewest < options.frames) {
        parts.push(format!("only {fewest} frames a queue because of RLIMIT_MEMLOCK"));
    }
    if program.generic {
        parts.push("VLAN tags seen only if they are in the frame".to_owned());
    }
    let idle = workers.saturating_sub(receiving);
    if idle > 0 {
        parts.push(format!("{idle} of {workers} workers send only"));
    }
    parts.join(", ")
}

/// Reports every missing capability by name, before any call fails for lack of it.
fn check_capabilities(interface: &str, select: &Select) -> Result<(), PortError> {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_NET_RAW: u32 = 13;
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let port = format!("afxdp:{interface}");
    let have = sys::capabilities().map_err(|source| PortError::System {
        port: port.clone(),
        call: "capget",
        source,
    })?;
    let has = |capability: u32| have & 1 << capability != 0;
    let mut missing = Vec::new();
    if !has(CAP_NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if !has(CAP_NET_RAW) {
        missing.push("CAP_NET_RAW");
    }
    if !has(CAP_BPF) && !has(CAP_SYS_ADMIN) {
        missing.push("CAP_BPF");
    }
    if *select != Select::All && !has(CAP_PERFMON) && !has(CAP_SYS_ADMIN) {
        missing.push("CAP_PERFMON");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let noun = if missing.len() == 1 { "capability" } else { "capabilities" };
    let problem = format!("AF_XDP needs the {noun} {}: run as root", missing.join(", "));
    Err(PortError::Unusable { port, problem })
}

fn check_options(
    interface: &Interface,
    options: &AfXdpOptions,
    queues: usize,
) -> Result<(), PortError> {
    let frames = options.frames;
    if !frames.is_power_of_two() || !(FRAMES_MIN..=FRAMES_MAX).contains(&frames) {
        return Err(interface.unusable(format!(
            "frames={frames}: must be a power of two from {FRAMES_MIN} to {FRAMES_MAX}"
        )));
    }
    if queues == 0 {
        return Err(interface.unusable("no queues: must be one for each worker"));
    }
    if options.mode == CopyMode::ZeroCopy && options.xdp == XdpMode::Generic {
        return Err(interface.unusable("generic XDP always copies; choose native or copy mode"));
    }
    if socket::frame_bytes(interface.mtu()).is_none() {
        return Err(interface.unusable(format!(
            "an MTU of {} is too long for AF_XDP frames; set it to {} or less",
            interface.mtu(),
            MTU_MAX
        )));
    }
    Ok(())
}

/// Explains an error of bpf(2) if a capability or the kernel lacks something.
fn refused(interface: &Interface, call: &'static str, error: io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::EPERM) => interface.unusable(format!(
            "{call} was refused: CAP_BPF and CAP_NET_ADMIN are needed in the first user namespace"
        )),
        Some(libc::ENOSYS) => interface.unusable("this kernel has no bpf(2)"),
        _ => interface.system(call, error),
    }
}

struct Attached {
    /// Keeps the program attached.
    link: bpf::Link,
    generic: bool,
    /// Why native mode failed, if tried.
    why_generic: Option<String>,
    /// The kernel function by which it sees VLAN tags beside the frame.
    vlan_tag: Option<u32>,
}

/// Loads the program; one that sees tags is bound to the interface.
fn load(
    interface: &Interface,
    sockets: &bpf::SocketMap,
    vlan_tag: Option<u32>,
    select: &Select,
) -> io::Result<OwnedFd> {
    let code = program::redirect_program(sockets.fd(), vlan_tag, select, program::XDP_PASS);
    bpf::load(if vlan_tag.is_some() { interface.index() } else { 0 }, &code)
}

/// Loads and attaches the program in the best mode allowed.
fn attach(
    interface: &Interface,
    options: &AfXdpOptions,
    sockets: &bpf::SocketMap,
) -> Result<Attached, PortError> {
    let (index, mode) = (interface.index(), options.xdp);
    if let Ok(Some(there)) = netlink::attached(index) {
        return Err(occupied(interface, there));
    }
    if mode != XdpMode::Generic {
        // Restores tags if kernel and driver support that.
        let attached = btf::kernel_function("bpf_xdp_metadata_rx_vlan_tag").and_then(|function| {
            let program = load(interface, sockets, Some(function), &options.select).ok()?;
            let link = bpf::attach(&program, index, bpf::FLAG_NATIVE).ok()?;
            Some(Attached { link, generic: false, why_generic: None, vlan_tag: Some(function) })
        });
        if let Some(attached) = attached {
            return Ok(attached);
        }
    }
    let program = load(interface, sockets, None, &options.select)
        .map_err(|error| refused(interface, "BPF_PROG_LOAD", error))?;
    let mut refusals: Vec<io::Error> = Vec::new();
    for (wanted, flag) in
        [(XdpMode::Native, bpf::FLAG_NATIVE), (XdpMode::Generic, bpf::FLAG_GENERIC)]
    {
        if mode != XdpMode::Auto && mode != wanted {
            continue;
        }
        match bpf::attach(&program, index, flag) {
            Ok(link) => {
                let why_generic = refusals.pop().map(|error| native_refusal(&error));
                let generic = wanted == XdpMode::Generic;
                return Ok(Attached { link, generic, why_generic, vlan_tag: None });
            }
            Err(error) => refusals.push(error),
        }
    }
    // Another process may have attached a program meanwhile.
    if let Ok(Some(there)) = netlink::attached(index) {
        return Err(occupied(interface, there));
    }
    let refusal = refusals.pop().unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(match (mode, refusal.raw_os_error()) {
        (_, Some(libc::EINVAL)) => interface.unusable(
            "the kernel refused the XDP link as invalid; links for XDP need Linux 5.9 or newer",
        ),
        (_, Some(libc::EPERM)) | (XdpMode::Auto | XdpMode::Generic, _) => {
            refused(interface, "BPF_LINK_CREATE", refusal)
        }
        (XdpMode::Native, _) => interface
            .unusable(format!("native XDP: {}; choose generic or auto", native_refusal(&refusal))),
    })
}

/// Describes why a driver does not run a program.
fn native_refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "the driver does not support it".to_owned(),
        Some(libc::ENOSPC) => {
            "fewer receive queues here than the veth peer has transmit queues, or \
                               too few in the device"
                .to_owned()
        }
        Some(libc::ERANGE) => "the MTU of the interface or of its peer is too long".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the error for an interface that already has a program.
fn occupied(interface: &Interface, there: netlink::Attached) -> PortError {
    let name =
        bpf::program_name(there.program).map_or_else(String::new, |name| format!(" `{name}`"));
    interface.unusable(format!(
        "XDP program {}{name} is attached already ({}); it is left alone: remove it with \
         `ip link set dev NAME xdp off`, stop the process that holds it, or use afpacket",
        there.program, there.mode
    ))
}

impl Port for AfXdpPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    fn info(&mut self) -> PortInfo {
        let selected = match (&self.select, self.program.vlan_tag) {
            (Select::All, Some(_)) => ", VLAN tags restored".to_owned(),
            (Select::All, None) => String::new(),
            (Select::Rules(rules), _) => {
                format!(", {} rules select frames, the kernel keeps the others", rules.len())
            }
        };
        self.interface.info(format!("{}{selected}", self.detail))
    }

    fn select(&mut self, select: &Select) -> Result<(), PortError> {
        let program = load(&self.interface, &self.sockets, self.program.vlan_tag, select)
            .map_err(|error| refused(&self.interface, "BPF_PROG_LOAD", error))?;
        self.program
            .link
            .replace(&program)
            .map_err(|error| self.interface.system("BPF_LINK_UPDATE", error))?;
        self.select = select.clone();
        Ok(())
    }
}

impl Drop for AfXdpPort {
    fn drop(&mut self) {
        self.interface.end_promiscuous();
        if self.restore_vlan {
            self.interface.take_vlan_tags();
        }
    }
}
