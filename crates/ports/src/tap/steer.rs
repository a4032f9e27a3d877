//! Chooses the queue of a TAP interface for a frame: a BPF program that adds up addresses and
//! ports, so that both directions and all frames of a flow give the same number.
//!
//! ```text
//! IPv4   sum of source and destination, and of both ports of TCP and UDP unless it is a fragment
//! IPv6   the same; ports only right behind the IPv6 header
//! other  0
//! ```
//!
//! The kernel takes the number modulo the queues. A truncated frame gives 0: a load outside the
//! frame ends the program. VLAN tags travel beside the frame here.

#![allow(unsafe_code)] // bpf(2).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;

/// `struct bpf_insn`: operation, registers (destination low, source high), jump, number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    jump: i16,
    number: i32,
}

const fn op(code: u8, dst: u8, src: u8, jump: i16, number: i32) -> Instruction {
    Instruction { code, registers: dst | src << 4, jump, number }
}

/// Target register of `load_*`.
const R0: u8 = 0;
const SUM: u8 = 7;
const PROTO: u8 = 8;
const L4: u8 = 9;

const fn mov(dst: u8, src: u8) -> Instruction {
    op(0xbf, dst, src, 0, 0)
}
const fn set(dst: u8, number: i32) -> Instruction {
    op(0xb7, dst, 0, 0, number)
}
const fn add(dst: u8, src: u8) -> Instruction {
    op(0x0f, dst, src, 0, 0)
}
const fn load8(at: i32) -> Instruction {
    op(0x30, 0, 0, 0, at)
}
const fn load16(at: i32) -> Instruction {
    op(0x28, 0, 0, 0, at)
}
const fn load32(at: i32) -> Instruction {
    op(0x20, 0, 0, 0, at)
}
/// Loads 16 bits at `at` after the offset in `src`.
const fn load16_behind(src: u8, at: i32) -> Instruction {
    op(0x48, 0, src, 0, at)
}
const fn jump_if(dst: u8, number: i32, jump: i16) -> Instruction {
    op(0x15, dst, 0, jump, number)
}
const fn jump_if_not(dst: u8, number: i32, jump: i16) -> Instruction {
    op(0x55, dst, 0, jump, number)
}
const fn jump(jump: i16) -> Instruction {
    op(0x05, 0, 0, jump, 0)
}

fn instructions() -> Vec<Instruction> {
    // Jumps count the instructions after them.
    let ports = [
        jump_if(PROTO, 6, 1),
        jump_if_not(PROTO, 17, 4),
        load16_behind(L4, 0),
        add(SUM, R0),
        load16_behind(L4, 2),
        add(SUM, R0),
    ];
    let end = [
        // Multiply, and take the upper half of 32 bits.
        op(0x24, SUM, 0, 0, 0x9e37_79b1_u32 as i32),
        op(0x74, SUM, 0, 0, 16),
        mov(R0, SUM),
        op(0x95, 0, 0, 0, 0),
    ];
    let v4 = [
        load32(26),
        add(SUM, R0),
        load32(30),
        add(SUM, R0),
        load16(20),
        op(0x57, R0, 0, 0, 0x3fff),
        // A fragment: skip the rest of this part and the ports.
        jump_if_not(R0, 0, 7 + ports.len() as i16),
        load8(23),
        mov(PROTO, R0),
        load8(14),
        op(0x57, R0, 0, 0, 0x0f),
        op(0x67, R0, 0, 0, 2),
        mov(L4, R0),
        op(0x07, L4, 0, 0, 14),
    ];
    let mut v6 = Vec::new();
    for at in (22..54).step_by(4) {
        v6.extend([load32(at), add(SUM, R0)]);
    }
    v6.extend([load8(20), mov(PROTO, R0), set(L4, 54)]);
    // Skip the part of IPv4.
    v6.push(jump(v4.len() as i16));
    let start = [
        // Loads from the frame need the context in register 6.
        mov(6, 1),
        set(SUM, 0),
        load16(12),
        jump_if(R0, 0x0800, 3 + v6.len() as i16),
        jump_if(R0, 0x86dd, 2),
        set(R0, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    [&start[..], &v6, &v4, &ports, &end].concat()
}

/// Loads the program.
///
/// # Errors
/// The system refuses it, for example for lack of capabilities.
pub(super) fn program() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel: u32,
        flags: u32,
    }
    let code = instructions();
    let load = Load {
        kind: PROG_TYPE_SOCKET_FILTER,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
    };
    // SAFETY: the structure of this command, no longer than we say; what it points to outlives the
    // call.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>() as u32)
    };
    match i32::try_from(fd) {
        // SAFETY: the descriptor was just opened and has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
