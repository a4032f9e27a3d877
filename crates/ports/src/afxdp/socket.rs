//! One AF_XDP socket: its frame memory (UMEM), its four rings, its binding to one queue.
//!
//! ```text
//!   UMEM   │ frame 0 │ frame 1 │ …        │ frame r │ …             │ frame r+s-1 │
//!          └── for receiving: rx, fill ───┴── for sending: tx, completion ──────┘
//! ```
//!
//! The two halves of a queue share the mapping through an [`Arc`], but no frames: the receiving
//! half uses only the first frames, the sending half only those after them. A frame is always in
//! exactly one place: a ring, the kernel, or its half.
//!
//! Cost: 2 KiB for each frame up to an MTU of about 1750, else 4 KiB. By default a queue has 8192
//! frames for receiving and 2048 for sending, 20 MiB in all. Huge pages of 2 MiB are used if the
//! system has free ones. Frames are locked in memory; a lower limit gives fewer of them.

use super::interface::Interface;
use super::ring::{Consumer, Descriptor, Parts, Producer};
use super::sys::{self, Mapping};
use super::{AfXdpOptions, CopyMode, FRAMES_MIN};
use crate::queue::PortError;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes that the kernel keeps free before each received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Ethernet header and two VLAN tags.
const HEADER_BYTES: u32 = 14 + 8;
/// Bounds of the frames for sending, powers of two.
const SENDING_MIN: u32 = 256;
const SENDING_MAX: u32 = 2048;
/// Size of huge pages.
const HUGE_PAGE: usize = 2 << 20;
/// Longest wait for a queue that was just closed: the kernel's clean-up runs later, and waits for
/// concurrent changes of interfaces.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A bound socket and its frames.
pub(super) struct Socket {
    fd: OwnedFd,
    umem: Mapping,
    receiving: u32,
    /// Frames for sending, after those for receiving.
    sending: u32,
    frame_bytes: u32,
    huge: bool,
    zero_copy: bool,
    // The rings point into these.
    _rings: Vec<Mapping>,
}

pub(super) struct ReceiveRings {
    pub(super) fill: Producer<u64>,
    pub(super) rx: Consumer<Descriptor>,
}

pub(super) struct TransmitRings {
    pub(super) tx: Producer<Descriptor>,
    pub(super) completion: Consumer<u64>,
}

/// A socket and its rings; those for sending only if the queue sends.
pub(super) struct Opened {
    pub(super) socket: Arc<Socket>,
    pub(super) receive: ReceiveRings,
    pub(super) transmit: Option<TransmitRings>,
}

/// How to bind.
pub(super) struct Binding {
    pub(super) queue: u32,
    /// Whether the socket is to send as well.
    pub(super) sends: bool,
    /// Whether the program runs in generic mode, which always copies.
    pub(super) generic: bool,
}

/// Returns the bytes of a UMEM frame for an MTU; `None` if it is too long.
pub(super) fn frame_bytes(mtu: usize) -> Option<u32> {
    let bytes = mtu.saturating_add((HEADER_BYTES + HEADROOM) as usize);
    [2048, 4096].into_iter().find(|most| bytes <= *most as usize)
}

/// Longest MTU of an interface for AF_XDP: a frame lies in one piece of memory.
pub const MTU_MAX: u32 = 4096 - HEADROOM - HEADER_BYTES;

impl Socket {
    /// Opens a socket for one queue of an interface and gives the kernel all frames for receiving.
    pub(super) fn open(
        interface: &Interface,
        options: &AfXdpOptions,
        binding: &Binding,
    ) -> Result<Opened, PortError> {
        let system = |call| move |error| interface.system(call, error);
        let frame_bytes = frame_bytes(interface.mtu()).ok_or_else(|| {
            interface.unusable(format!(
                "an MTU of {} is too long for AF_XDP frames; set it to {MTU_MAX} or less",
                interface.mtu()
            ))
        })?;
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW).map_err(system("socket(AF_XDP)"))?;
        let (memory, receiving) = memory(interface, &fd, options.frames, frame_bytes)?;
        let Memory { umem, huge, sending } = memory;

        // The rings have as many entries as there are frames, so fill and completion are never
        // full.
        let size = |option, entries: u32| {
            sys::set_option(&fd, libc::SOL_XDP, option, &entries)
                .map_err(|error| interface.system("setsockopt(XDP ring size)", error))
        };
        size(libc::XDP_UMEM_FILL_RING, receiving)?;
        size(libc::XDP_RX_RING, receiving)?;
        size(libc::XDP_UMEM_COMPLETION_RING, sending)?;
        if binding.sends {
            size(libc::XDP_TX_RING, sending)?;
        }
        let offsets: libc::xdp_mmap_offsets =
            sys::get_option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(system("XDP_MMAP_OFFSETS"))?;
        if offsets.cr.flags == 0 {
            return Err(interface.unusable("needs Linux 5.9 or newer"));
        }
        let mut maps = Vec::new();
        let fill =
            parts::<u64>(&fd, &offsets.fr, receiving, libc::XDP_UMEM_PGOFF_FILL_RING, &mut maps);
        let completion = parts::<u64>(
            &fd,
            &offsets.cr,
            sending,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            &mut maps,
        );
        let rx = parts(&fd, &offsets.rx, receiving, libc::XDP_PGOFF_RX_RING as u64, &mut maps);
        let tx = match binding.sends {
            true => {
                Some(parts(&fd, &offsets.tx, sending, libc::XDP_PGOFF_TX_RING as u64, &mut maps))
            }
            false => None,
        };
        let mapped = system("mmap of a ring");
        // SAFETY: the mappings go into the socket, which the halves keep alive; each ring is mapped
        // with as many entries as it was made for, a power of two, and its side made here and
        // nowhere else.
        let (mut receive, transmit) = unsafe {
            let receive = ReceiveRings {
                fill: Producer::new(fill.map_err(&mapped)?),
                rx: Consumer::new(rx.map_err(&mapped)?),
            };
            let completion = completion.map_err(&mapped)?;
            let transmit = match tx {
                Some(tx) => Some(TransmitRings {
                    tx: Producer::new(tx.map_err(&mapped)?),
                    completion: Consumer::new(completion),
                }),
                None => None,
            };
            (receive, transmit)
        };
        // Frames must be available before the first packet.
        for frame in 0..receiving {
            receive.fill.push(u64::from(frame) * u64::from(frame_bytes));
        }
        receive.fill.publish();
        if binding.sends {
            // In copy mode, packets count against this until they are received. A smaller buffer is
            // no reason to fail: the kernel then refuses frames, which are counted.
            let bytes: libc::c_int = (sending * frame_bytes * 2) as libc::c_int;
            let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
        }
        bind(interface, &fd, options.mode, binding)?;
        let options: io::Result<libc::xdp_options> =
            sys::get_option(&fd, libc::SOL_XDP, libc::XDP_OPTIONS);
        let zero_copy = options.is_ok_and(|is| is.flags & libc::XDP_OPTIONS_ZEROCOPY != 0);
        let socket =
            Socket { fd, umem, receiving, sending, frame_bytes, huge, zero_copy, _rings: maps };
        Ok(Opened { socket: Arc::new(socket), receive, transmit })
    }

    /// Returns the descriptor, for the map and for system calls.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns the descriptor for `poll(2)`.
    pub(super) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether the hardware reads and writes the frames itself.
    pub(super) fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns whether the frames lie in huge pages.
    pub(super) fn huge(&self) -> bool {
        self.huge
    }

    /// Returns the number of frames for receiving.
    pub(super) fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Returns the bytes of all frames.
    pub(super) fn umem_bytes(&self) -> usize {
        self.umem.bytes()
    }

    /// Returns the length of the longest frame that can be sent.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Iterates over the addresses of the frames for sending.
    pub(super) fn transmit_frames(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = u64::from(self.frame_bytes);
        (self.receiving..self.receiving + self.sending).map(move |frame| u64::from(frame) * bytes)
    }

    /// Returns the start of the frame that contains an address.
    pub(super) fn frame_of(&self, address: u64) -> u64 {
        address & !(u64::from(self.frame_bytes) - 1)
    }

    /// Returns whether an address is that of a frame for sending.
    pub(super) fn is_transmit_frame(&self, address: u64) -> bool {
        let bytes = u64::from(self.frame_bytes);
        let (first, count) = (u64::from(self.receiving), u64::from(self.sending));
        address.is_multiple_of(bytes) && (first..first + count).contains(&(address / bytes))
    }

    /// Returns the bytes of a received descriptor; `None` if they do not lie within one frame for
    /// receiving.
    ///
    /// # Safety
    /// The kernel does not hold the frame. The caller is the receiving half, holds no other
    /// reference to the frame, and ends this one before the frame goes back.
    #[allow(clippy::mut_from_ref)] // The frame is the caller's alone, as said above.
    pub(super) unsafe fn received<'a>(&self, frame: &Descriptor) -> Option<&'a mut [u8]> {
        let end = frame.address.checked_add(u64::from(frame.len))?;
        let next = self.frame_of(frame.address).checked_add(u64::from(self.frame_bytes))?;
        if end > next || next > u64::from(self.receiving) * u64::from(self.frame_bytes) {
            return None;
        }
        // SAFETY: the bytes lie in the mapping, among the frames for receiving; the caller
        // promises that it is their only user.
        Some(unsafe {
            let start = self.umem.start().add(frame.address as usize);
            slice::from_raw_parts_mut(start.as_ptr(), frame.len as usize)
        })
    }

    /// Copies a frame in parts, together at most [`Socket::frame_bytes`] bytes, to the frame at
    /// `address`.
    ///
    /// # Safety
    /// [`Socket::is_transmit_frame`] holds for the address, and the caller is the sending half,
    /// which holds the frame.
    pub(super) unsafe fn write(&self, address: u64, parts: [&[u8]; 2]) {
        let mut at = 0;
        for part in parts {
            let len = part.len().min(self.frame_bytes as usize - at);
            // SAFETY: the frame lies in the mapping and has `frame_bytes` bytes, of which `at` are
            // written; the source is a Rust reference and so does not lie in frames for sending, to
            // which there are none.
            unsafe {
                let to = self.umem.start().add(address as usize + at);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr(), len);
            }
            at += len;
        }
    }

    /// Returns the number of frames that the kernel could not deliver since the socket was opened.
    pub(super) fn missed(&self) -> u64 {
        // Packets without a frame (or longer than one), and packets without room in the ring. The
        // other statistics count descriptors or attempts, not packets.
        sys::get_option::<libc::xdp_statistics>(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS)
            .map_or(0, |is| is.rx_dropped + is.rx_ring_full)
    }
}

struct Memory {
    umem: Mapping,
    huge: bool,
    sending: u32,
}

/// Allocates memory for frames and registers it with the kernel. Returns the number of frames for
/// receiving: as many as wanted, or fewer if the limit of locked memory is low.
fn memory(
    interface: &Interface,
    fd: &OwnedFd,
    wanted: u32,
    frame_bytes: u32,
) -> Result<(Memory, u32), PortError> {
    let mut receiving = wanted;
    loop {
        // Frames to send are under way already, while received bursts wait for a worker.
        let sending = (receiving / 4).clamp(SENDING_MIN, SENDING_MAX);
        let bytes = (receiving + sending) as usize * frame_bytes as usize;
        let (umem, huge) = match Mapping::huge(bytes.next_multiple_of(HUGE_PAGE)) {
            Ok(umem) => (umem, true),
            Err(_) => {
                let umem = Mapping::normal(bytes);
                (umem.map_err(|error| interface.system("mmap of frames", error))?, false)
            }
        };
        match register(fd, &umem, frame_bytes) {
            Ok(()) => return Ok((Memory { umem, huge, sending }, receiving)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS) if receiving > FRAMES_MIN => receiving /= 2,
                Some(libc::ENOBUFS) => {
                    return Err(interface.unusable(
                        "no more memory may be locked: raise RLIMIT_MEMLOCK (systemd: \
                         LimitMEMLOCK=infinity) or give CAP_IPC_LOCK",
                    ));
                }
                _ => return Err(interface.system("XDP_UMEM_REG", error)),
            },
        }
    }
}

/// Registers the frames with the kernel.
fn register(fd: &OwnedFd, umem: &Mapping, frame_bytes: u32) -> io::Result<()> {
    // The first form of the structure: all kernels accept it, older ones refuse longer forms.
    let umem = libc::xdp_umem_reg_v1 {
        addr: umem.start().as_ptr() as u64,
        len: umem.bytes() as u64,
        chunk_size: frame_bytes,
        headroom: 0,
    };
    sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
}

/// Maps a ring of `size` entries.
fn parts<T>(
    fd: &OwnedFd,
    offsets: &libc::xdp_ring_offset,
    size: u32,
    page_offset: u64,
    maps: &mut Vec<Mapping>,
) -> io::Result<Parts<T>> {
    let bytes = offsets.desc as usize + size as usize * size_of::<T>();
    let map = Mapping::ring(fd, bytes, page_offset)?;
    let at = |offset: u64, len: usize| -> io::Result<NonNull<u8>> {
        let offset = offset as usize;
        if offset.saturating_add(len) > bytes || !offset.is_multiple_of(4) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        // SAFETY: within the mapping, as just checked.
        Ok(unsafe { map.start().add(offset) })
    };
    let parts = Parts {
        producer: at(offsets.producer, 4)?.cast(),
        consumer: at(offsets.consumer, 4)?.cast(),
        flags: at(offsets.flags, 4)?.cast(),
        entries: at(offsets.desc, size as usize * size_of::<T>())?.cast(),
        size,
    };
    if !parts.entries.is_aligned() {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    maps.push(map);
    Ok(parts)
}

/// Binds to a queue; waits for one that was just closed.
fn bind(
    interface: &Interface,
    fd: &OwnedFd,
    mode: CopyMode,
    binding: &Binding,
) -> Result<(), PortError> {
    let copy = match mode {
        CopyMode::Auto if binding.generic => libc::XDP_COPY,
        CopyMode::Auto => 0,
        CopyMode::Copy => libc::XDP_COPY,
        CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface.index(),
        sxdp_queue_id: binding.queue,
        sxdp_shared_umem_fd: 0,
    };
    let started = Instant::now();
    loop {
        // SAFETY: the address structure of this family.
        let error = match unsafe { sys::bind(fd, &address) } {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        return Err(match error.raw_os_error() {
            Some(libc::EBUSY) if started.elapsed() < BUSY_MAX => {
                sleep(Duration::from_millis(5));
                continue;
            }
            Some(libc::EBUSY) => interface
                .unusable(format!("queue {} is in use by another AF_XDP socket", binding.queue)),
            Some(libc::ENETDOWN | libc::ENODEV) => {
                interface.ask();
                match interface.known() {
                    Err(state) => state,
                    Ok(()) => interface.system("bind(AF_XDP)", error),
                }
            }
            Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EINVAL)
                if mode == CopyMode::ZeroCopy =>
            {
                interface.unusable(format!(
                    "the driver cannot do zero copy ({error}); choose copy mode or auto"
                ))
            }
            _ => interface.system("bind(AF_XDP)", error),
        });
    }
}
