//! The XDP program that passes the frames of an interface to AF_XDP sockets, assembled by hand.
//!
//! ```text
//!   frame on queue q ──▶ tag left in the hardware's metadata? ── put it back into the frame
//!                            │ no                                       │
//!                            ▼                                          ▼
//!                  bpf_redirect_map(sockets, q, else XDP_PASS) ──▶ socket of queue q
//! ```
//!
//! The short form has six instructions. The long form asks for the VLAN tag that a driver removed
//! (`bpf_xdp_metadata_rx_vlan_tag`, Linux 6.8). Veth and several NICs deliver the tag only beside
//! the frame, where it would be lost. The long form is bound to one device and works in native
//! mode.
//!
//! A program is attached by a *link* (Linux 5.9). The kernel detaches it when the last descriptor
//! of the link is closed, even if the process is killed. So nothing stale stays behind, and another
//! process's program is never replaced.

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

/// Verdicts of an XDP program.
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// Numbers of the kernel's helpers.
const MAP_LOOKUP_ELEM: i32 = 1;
const XDP_ADJUST_HEAD: i32 = 44;
const REDIRECT_MAP: i32 = 51;

/// Offsets in `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_RX_QUEUE: i16 = 16;

/// One eBPF instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn op(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: dst | src << 4, offset, immediate }
}
const fn mov(dst: u8, src: u8) -> Instruction {
    op(0xbf, dst, src, 0, 0)
}
const fn set(dst: u8, value: i32) -> Instruction {
    op(0xb7, dst, 0, 0, value)
}
const fn add(dst: u8, value: i32) -> Instruction {
    op(0x07, dst, 0, 0, value)
}
const fn load32(dst: u8, src: u8, offset: i16) -> Instruction {
    op(0x61, dst, src, offset, 0)
}
const fn load16(dst: u8, src: u8, offset: i16) -> Instruction {
    op(0x69, dst, src, offset, 0)
}
const fn store16(dst: u8, offset: i16, src: u8) -> Instruction {
    op(0x6b, dst, src, offset, 0)
}
const fn store32(dst: u8, offset: i16, src: u8) -> Instruction {
    op(0x63, dst, src, offset, 0)
}
/// Stores eight bytes of zero.
const fn zero64(dst: u8, offset: i16) -> Instruction {
    op(0x7a, dst, 0, offset, 0)
}
const fn to_be16(dst: u8) -> Instruction {
    op(0xdc, dst, 0, 0, 16)
}
const fn call(helper: i32) -> Instruction {
    op(0x85, 0, 0, 0, helper)
}
/// Calls a kernel function by its BTF number.
const fn call_kernel(function: i32) -> Instruction {
    op(0x85, 0, 2, 0, function)
}
const fn exit() -> Instruction {
    op(0x95, 0, 0, 0, 0)
}
/// Loads the address of a map: two slots.
const fn map(dst: u8, fd: i32) -> [Instruction; 2] {
    [op(0x18, dst, 1, 0, fd), op(0, 0, 0, 0, 0)]
}
/// `if dst == 0 goto +offset`; [`Assembler::label`] fills in the offset.
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
/// `if dst > src`.
const JGT: u8 = 0x2d;

/// Registers: the context, kept through the program, and the end of the stack.
const CONTEXT: u8 = 6;
const STACK: u8 = 10;

/// Instructions with forward jumps.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
}

impl Assembler {
    fn put(&mut self, code: &[Instruction]) {
        self.code.extend_from_slice(code);
    }

    /// Appends a jump whose target is still unknown.
    fn jump(&mut self, code: u8, dst: u8, src: u8) -> usize {
        self.code.push(op(code, dst, src, 0, 0));
        self.code.len() - 1
    }

    /// Directs the jumps here. Programs have a few dozen instructions.
    fn label(&mut self, jumps: &[usize]) {
        for &jump in jumps {
            self.code[jump].offset = (self.code.len() - jump - 1) as i16;
        }
    }
}

/// Returns the program: to the socket of the frame's queue, or to the stack if there is none. Given
/// the kernel function's number, it first restores VLAN tags.
pub(super) fn redirect_program(sockets: BorrowedFd<'_>, vlan_tag: Option<u32>) -> Vec<Instruction> {
    let sockets = map(1, sockets.as_raw_fd());
    let mut asm = Assembler::default();
    asm.put(&[mov(CONTEXT, 1)]);
    if let Some(function) = vlan_tag {
        // r0 = vlan_tag(context, &protocol at -8, &tag at -16)
        asm.put(&[zero64(STACK, -8), zero64(STACK, -16)]);
        asm.put(&[mov(2, STACK), add(2, -8), mov(3, STACK), add(3, -16)]);
        asm.put(&[call_kernel(function as i32)]);
        let untagged = asm.jump(JNE, 0, 0);
        // Without a socket the frame stays unchanged: the stack knows the tag.
        asm.put(&[load32(2, CONTEXT, MD_RX_QUEUE), store32(STACK, -24, 2)]);
        asm.put(&[mov(2, STACK), add(2, -24)]);
        asm.put(&sockets);
        asm.put(&[call(MAP_LOOKUP_ELEM)]);
        let no_socket = asm.jump(JEQ, 0, 0);
        // Four more bytes in front; the addresses move there, and the tag follows them.
        asm.put(&[mov(1, CONTEXT), set(2, -4), call(XDP_ADJUST_HEAD)]);
        let no_room = asm.jump(JNE, 0, 0);
        asm.put(&[load32(2, CONTEXT, MD_DATA), load32(3, CONTEXT, MD_DATA_END)]);
        asm.put(&[mov(4, 2), add(4, 18)]);
        let short = asm.jump(JGT, 4, 3);
        for at in (0..12).step_by(2) {
            asm.put(&[load16(5, 2, at + 4), store16(2, at, 5)]);
        }
        asm.put(&[load16(5, STACK, -8), store16(2, 12, 5)]);
        asm.put(&[load16(5, STACK, -16), to_be16(5), store16(2, 14, 5)]);
        let tagged = asm.jump(0x05, 0, 0);
        asm.label(&[no_room, short]);
        asm.put(&[set(0, XDP_DROP), exit()]);
        asm.label(&[no_socket]);
        asm.put(&[set(0, XDP_PASS), exit()]);
        asm.label(&[untagged, tagged]);
    }
    asm.put(&[load32(2, CONTEXT, MD_RX_QUEUE)]);
    asm.put(&sockets);
    asm.put(&[set(3, XDP_PASS), call(REDIRECT_MAP), exit()]);
    asm.code
}

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

    /// Returns the descriptor for [`redirect_program`].
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

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
