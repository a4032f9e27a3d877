//! Thin, safe wrappers of the system calls that AF_XDP sockets need.
//!
//! Each is one call; errors are the system's. Structures that the C library lacks are declared here
//! as in the kernel's headers.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

/// A structure of plain integers that the kernel may read and fill.
///
/// # Safety
/// Every bit pattern is a value, and there are no references or pointers in it.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_umem_reg_v1 {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_options {}

/// Converts the result of a call that returns a negative number on error.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls that return a new descriptor.
pub(super) fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd: RawFd = check(result)?;
    // SAFETY: the system just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a socket: closed on exec, never blocking.
pub(super) fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })
}

pub(super) fn set_option<T: Plain>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads an option of a socket; parts unknown to an old kernel stay zero.
pub(super) fn get_option<T: Plain>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut len)
    })?;
    // SAFETY: zeroed before, perhaps overwritten since; `Plain` types take any bits.
    Ok(unsafe { value.assume_init() })
}

/// Binds a socket to an address of any family.
///
/// # Safety
/// `T` is the address structure of the socket's family, without padding that matters.
pub(super) unsafe fn bind<T>(socket: &OwnedFd, address: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Makes the kernel look at the transmit ring of an AF_XDP socket.
pub(super) fn kick(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: an empty message without an address; no memory is passed.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null(),
            0,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel look at the fill ring of an AF_XDP socket.
pub(super) fn wake(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: an empty buffer without an address; no memory is passed.
    let got = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            null_mut(),
            0,
            libc::MSG_DONTWAIT,
            null_mut(),
            null_mut(),
        )
    };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns one descriptor that is readable when any of `fds` is.
pub(super) fn epoll(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let all = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` is valid for the call, which only reads it.
        check(unsafe {
            libc::epoll_ctl(all.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        })?;
    }
    Ok(all)
}

/// Mapped memory; unmapped on drop.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory without ties to a thread; the rings and halves
// that hold addresses in it order their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access gives out nothing but the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(
        bytes: usize,
        flags: libc::c_int,
        fd: RawFd,
        offset: libc::off_t,
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address that the kernel chooses; nothing is replaced.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_POPULATE,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, bytes })
    }

    /// Maps a ring of an AF_XDP socket, at one of the `XDP_PGOFF_*` offsets.
    pub(super) fn ring(socket: &OwnedFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::new(bytes, libc::MAP_SHARED, socket.as_raw_fd(), offset as libc::off_t)
    }

    /// Maps private memory in huge pages; `bytes` is a multiple of their size.
    pub(super) fn huge(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        Mapping::new(bytes, flags | libc::MAP_HUGE_2MB, -1, 0)
    }

    /// Maps private memory in pages of the usual size.
    pub(super) fn normal(bytes: usize) -> io::Result<Mapping> {
        Mapping::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of our own mapping; every holder of addresses in
        // it keeps it alive.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}

/// Raises the limit of locked memory as far as allowed; old kernels count rings and maps in it.
pub(super) fn raise_memlock() {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structures are valid for the calls.
    unsafe {
        if libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) == 0 {
            return;
        }
        let mut now = all;
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut now) == 0 {
            now.rlim_cur = now.rlim_max;
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const now);
        }
    }
}

/// Returns the effective capabilities of the calling thread, one bit each.
pub(super) fn capabilities() -> io::Result<u64> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 of this call fills two structures, and that is what `data` has.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}
