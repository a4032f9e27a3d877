//! `/dev/net/tun`: one descriptor for each queue of a TAP interface.

#![allow(unsafe_code)] // ioctl, read into memory that is not initialised yet, writev.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use zerocopy::IntoBytes;

use crate::offload::VnetHeader;

pub(super) struct Device(File);

impl Device {
    /// Attaches to the interface of this name, or creates it. An error is one line.
    pub fn open(name: &str, many: bool) -> Result<Device, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|e| format!("/dev/net/tun: {e}"))?;
        let device = Device(file);
        let wanted = if many { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut result = device.attach(name, wanted);
        let invalid =
            |r: &io::Result<()>| r.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL));
        // An interface created with many queues must be opened as such.
        if !many && invalid(&result) {
            result = device.attach(name, libc::IFF_MULTI_QUEUE);
        }
        match result {
            Ok(()) => Ok(device),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                Err("another process has the interface open".to_owned())
            }
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                Err("creating or opening it needs the capability CAP_NET_ADMIN: run as root"
                    .to_owned())
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Err(if many {
                "not a TAP interface, or one created for a single queue".to_owned()
            } else {
                "the name belongs to an interface of another kind".to_owned()
            }),
            Err(e) => Err(format!("TUNSETIFF: {e}")),
        }
    }

    fn attach(&self, name: &str, flags: libc::c_int) -> io::Result<()> {
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = flags | libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        checked(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::TUNSETIFF, std::ptr::from_mut(&mut request))
        })
    }

    /// Sets the work that the stack may leave to us.
    pub fn prepare(&self, offload: bool) -> io::Result<()> {
        let length = VnetHeader::LEN as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one integer.
        checked(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length)
        })?;
        let checksum = libc::TUN_F_CSUM;
        let tcp = checksum | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6;
        // Kernels before 6.2 cannot deliver UDP super-frames.
        let mut result = Ok(());
        for wanted in if offload { [udp, tcp] } else { [0, 0] } {
            // SAFETY: TUNSETOFFLOAD takes a number.
            result = checked(unsafe {
                libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(wanted))
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Attaches a BPF program that chooses the queue of a frame.
    pub fn steer(&self, program: &OwnedFd) -> io::Result<()> {
        let fd = program.as_raw_fd();
        // SAFETY: TUNSETSTEERINGEBPF reads one descriptor and keeps the program, not our pointer.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETSTEERINGEBPF, &raw const fd) })
    }

    /// Appends a header and its frame to `bytes`, at most `most` bytes; returns their number.
    pub fn read(&self, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let room = bytes.spare_capacity_mut();
        let most = most.min(room.len());
        // SAFETY: the kernel writes at most `most` bytes, the room reserved.
        let got = unsafe { libc::read(self.0.as_raw_fd(), room.as_mut_ptr().cast(), most) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?.min(most);
        // SAFETY: the kernel wrote the first `got` bytes of the spare capacity.
        unsafe { bytes.set_len(bytes.len() + got) };
        Ok(got)
    }

    /// Sends a complete frame.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        let header = VnetHeader::default();
        let header = header.as_bytes();
        let parts = [header, frame].map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: two parts, only read from, which live until the call returns.
        let written = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr(), 2) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
