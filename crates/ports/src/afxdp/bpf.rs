//! Loads and attaches XDP programs (`program`) by `bpf(2)`.
//!
//! A program is attached by a *link* (Linux 5.9). The kernel detaches it when the last descriptor
//! of the link is closed, even if the process is killed. So nothing stale stays behind, and another
//! process's program is never replaced.

use super::program::Instruction;
use super::sys::{check, owned};
use std::ffi::CStr;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program may use features of one device.
const F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// Generic mode: works on every interface, after the kernel has built its own packet.
pub(super) const FLAG_GENERIC: u32 = 1 << 1;
/// Native mode: inside the driver.
pub(super) const FLAG_NATIVE: u32 = 1 << 2;

/// Calls `bpf(2)` with one of the structures below.
///
/// # Safety
/// `attr` is the structure of `command`, and the addresses in it are valid for the call.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and the length describe `attr`; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>() as u32)
    };
    check(result as libc::c_int)
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().take(15).zip(text.bytes()) {
        *to = from;
    }
    name
}

pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates an empty map for queues `0..queues`.
    pub(super) fn new(queues: u32) -> io::Result<SocketMap> {
        #[repr(C)]
        struct Attr {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            name: [u8; 16],
        }
        let mut attr = Attr {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues,
            flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            name: name("overbank_xsks"),
        };
        // SAFETY: the structure of this command, without addresses.
        owned(unsafe { bpf(BPF_MAP_CREATE, &mut attr) }?).map(SocketMap)
    }

    /// Sends the frames of `queue` to `socket` from now on.
    pub(super) fn set(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        #[repr(C)]
        struct Attr {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd() as u32;
        let mut attr = Attr {
            map_fd: self.0.as_raw_fd() as u32,
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        // SAFETY: key and value are four bytes each, as the map was made, and live through the
        // call.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Returns the descriptor for a program.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

/// Loads an XDP program, bound to `device` unless that is 0. If the verifier refuses it, the error
/// carries its last words.
pub(super) fn load(device: u32, code: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        program_type: u32,
        instructions: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        device: u32,
        attach_type: u32,
    }
    // Kernel functions may only be called by programs under a licence that the kernel accepts.
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let mut log = vec![0u8; 64 << 10];
    let mut attr = Attr {
        program_type: PROG_TYPE_XDP,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: if device == 0 { 0 } else { F_XDP_DEV_BOUND_ONLY },
        name: name("overbank_xsk"),
        device,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: the structure of this command; code and licence live through the call.
    let error = match unsafe { bpf(BPF_PROG_LOAD, &mut attr) } {
        Ok(fd) => return owned(fd),
        Err(error) => error,
    };
    // Load again for the reason: the verifier explains only on request.
    attr.log_level = 1;
    attr.log_size = log.len() as u32;
    attr.log = log.as_mut_ptr() as u64;
    // SAFETY: as before, and the log is `log_size` bytes that the kernel may write.
    match unsafe { bpf(BPF_PROG_LOAD, &mut attr) } {
        Ok(fd) => owned(fd),
        Err(_) => {
            let text = String::from_utf8_lossy(&log);
            let last = text
                .trim_end_matches('\0')
                .lines()
                .rev()
                .find(|line| !line.is_empty() && !line.starts_with("processed "));
            Err(match last {
                Some(last) => io::Error::new(error.kind(), format!("{error} ({last})")),
                None => error,
            })
        }
    }
}

/// A program that stays attached until this is dropped.
pub(super) struct Link(OwnedFd);

impl Link {
    /// Attaches `program` in place of the one before. Each frame meets one of both.
    pub(super) fn replace(&self, program: &OwnedFd) -> io::Result<()> {
        #[repr(C)]
        struct Attr {
            link: u32,
            program: u32,
            flags: u32,
            old_program: u32,
        }
        let (link, program) = (self.0.as_raw_fd() as u32, program.as_raw_fd() as u32);
        let mut attr = Attr { link, program, flags: 0, old_program: 0 };
        // SAFETY: the structure of this command, without addresses.
        unsafe { bpf(BPF_LINK_UPDATE, &mut attr) }.map(drop)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closing is not enough: a child that was just forked still holds the descriptor until it
        // executes its own program.
        let mut link = self.0.as_raw_fd() as u32;
        // SAFETY: the structure of this command is that one number.
        // Nothing to do on failure: the descriptor is closed next.
        let _ = unsafe { bpf(BPF_LINK_DETACH, &mut link) };
    }
}

/// Attaches a program to an interface.
pub(super) fn attach(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<Link> {
    #[repr(C)]
    struct Attr {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
        // Room for later members of the structure; zero is neutral.
        more: [u64; 4],
    }
    let mut attr = Attr {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: ATTACH_XDP,
        flags,
        more: [0; 4],
    };
    // SAFETY: the structure of this command, without addresses.
    owned(unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?).map(Link)
}

/// Returns the name of a loaded program, if the process may read it.
pub(super) fn program_name(id: u32) -> Option<String> {
    #[repr(C)]
    struct ById {
        id: u32,
        next: u32,
        flags: u32,
    }
    #[repr(C)]
    struct Info {
        fd: u32,
        len: u32,
        info: u64,
    }
    /// Offset of the name in `struct bpf_prog_info`.
    const NAME: usize = 64;
    let mut by_id = ById { id, next: 0, flags: 0 };
    // SAFETY: the structure of this command, without addresses.
    let program = owned(unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut by_id) }.ok()?).ok()?;
    let mut bytes = [0u64; 10];
    let mut info = Info {
        fd: program.as_raw_fd() as u32,
        len: size_of_val(&bytes) as u32,
        info: bytes.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes at most `len` bytes, all of which are in `bytes`.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut info) }.ok()?;
    let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = CStr::from_bytes_until_nul(bytes.get(NAME..)?).ok()?;
    Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

/// Runs a program on a frame of at least 14 bytes, without an interface, and returns its verdict.
#[cfg(test)]
pub(super) fn test_run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    const BPF_PROG_TEST_RUN: libc::c_int = 10;
    #[repr(C)]
    struct Attr {
        program: u32,
        verdict: u32,
        len_in: u32,
        len_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        // Context, flags, processor and batch: zero is neutral.
        more: [u64; 5],
    }
    let mut attr = Attr {
        program: program.as_raw_fd() as u32,
        verdict: 0,
        len_in: frame.len() as u32,
        len_out: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
        more: [0; 5],
    };
    // SAFETY: the structure of this command; the frame lives through the call and is only read.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.verdict)
}
