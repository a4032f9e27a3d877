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
use crate::select::Select;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Verdicts of an XDP program.
pub(super) const XDP_DROP: i32 = 1;
pub(super) const XDP_PASS: i32 = 2;

/// Numbers of the kernel's helpers.
const MAP_LOOKUP_ELEM: i32 = 1;
const XDP_ADJUST_HEAD: i32 = 44;
const REDIRECT_MAP: i32 = 51;

/// Offsets in `struct xdp_md`.
pub(super) const MD_DATA: i16 = 0;
pub(super) const MD_DATA_END: i16 = 4;
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
pub(super) const fn mov(dst: u8, src: u8) -> Instruction {
    op(0xbf, dst, src, 0, 0)
}
pub(super) const fn set(dst: u8, value: i32) -> Instruction {
    op(0xb7, dst, 0, 0, value)
}
pub(super) const fn add(dst: u8, value: i32) -> Instruction {
    op(0x07, dst, 0, 0, value)
}
pub(super) const fn load32(dst: u8, src: u8, offset: i16) -> Instruction {
    op(0x61, dst, src, offset, 0)
}
pub(super) const fn load16(dst: u8, src: u8, offset: i16) -> Instruction {
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
pub(super) const fn load8(dst: u8, src: u8, offset: i16) -> Instruction {
    op(0x71, dst, src, offset, 0)
}
pub(super) const fn add_register(dst: u8, src: u8) -> Instruction {
    op(0x0f, dst, src, 0, 0)
}
pub(super) const fn shift_left(dst: u8, bits: i32) -> Instruction {
    op(0x67, dst, 0, 0, bits)
}
/// `dst & bits`, of 32 bits.
pub(super) const fn and32(dst: u8, bits: u32) -> Instruction {
    op(0x54, dst, 0, 0, bits as i32)
}
pub(super) const fn exit() -> Instruction {
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
pub(super) const JGT: u8 = 0x2d;

/// `if dst == immediate`, of 32 bits.
pub(super) const JEQ32: u8 = 0x16;
pub(super) const JNE32: u8 = 0x56;
pub(super) const JLT32: u8 = 0xa6;
pub(super) const JUMP: u8 = 0x05;

/// Registers: the context, kept through the program; the frame and its end; the UDP header; and the
/// end of the stack.
pub(super) const CONTEXT: u8 = 6;
pub(super) const DATA: u8 = 7;
pub(super) const END: u8 = 8;
pub(super) const UDP_AT: u8 = 9;
const STACK: u8 = 10;

/// Instructions with forward jumps.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
}

impl Assembler {
    pub(super) fn put(&mut self, code: &[Instruction]) {
        self.code.extend_from_slice(code);
    }

    /// Appends a jump whose target is still unknown.
    pub(super) fn jump(&mut self, code: u8, dst: u8, src: u8) -> usize {
        self.code.push(op(code, dst, src, 0, 0));
        self.code.len() - 1
    }

    /// Appends a jump by a comparison with a number.
    pub(super) fn jump_if(&mut self, code: u8, dst: u8, value: u32) -> usize {
        self.code.push(op(code, dst, 0, 0, value as i32));
        self.code.len() - 1
    }

    /// Directs the jumps here. Programs have a few dozen instructions.
    pub(super) fn label(&mut self, jumps: &[usize]) {
        for &jump in jumps {
            self.code[jump].offset = (self.code.len() - jump - 1) as i16;
        }
    }
}

/// Returns the program: to the socket of the frame's queue, or with the verdict `otherwise` if
/// there is none. What `select` does not take goes to the stack. Given the number of the kernel's
/// function, it restores VLAN tags, or leaves a tagged frame to the stack if there are rules.
pub(super) fn redirect_program(
    sockets: BorrowedFd<'_>,
    vlan_tag: Option<u32>,
    select: &Select,
    otherwise: i32,
) -> Vec<Instruction> {
    let sockets = map(1, sockets.as_raw_fd());
    let mut asm = Assembler::default();
    asm.put(&[mov(CONTEXT, 1)]);
    let rules = match select {
        Select::All => None,
        Select::Rules(rules) => Some(rules),
    };
    if let Some(function) = vlan_tag {
        // r0 = vlan_tag(context, &protocol at -8, &tag at -16)
        asm.put(&[zero64(STACK, -8), zero64(STACK, -16)]);
        asm.put(&[mov(2, STACK), add(2, -8), mov(3, STACK), add(3, -16)]);
        asm.put(&[call_kernel(function as i32)]);
        let untagged = asm.jump(JNE, 0, 0);
        if rules.is_some() {
            asm.put(&[set(0, XDP_PASS), exit()]);
            asm.label(&[untagged]);
        } else {
            restore_tag(&mut asm, &sockets, untagged);
        }
    }
    if let Some(rules) = rules
        && !asm.filter(rules)
    {
        return asm.code;
    }
    asm.put(&[load32(2, CONTEXT, MD_RX_QUEUE)]);
    asm.put(&sockets);
    asm.put(&[set(3, otherwise), call(REDIRECT_MAP), exit()]);
    asm.code
}

/// Puts the tag on the stack back into the frame.
fn restore_tag(asm: &mut Assembler, sockets: &[Instruction], untagged: usize) {
    // Without a socket the frame stays unchanged: the stack knows the tag.
    asm.put(&[load32(2, CONTEXT, MD_RX_QUEUE), store32(STACK, -24, 2)]);
    asm.put(&[mov(2, STACK), add(2, -24)]);
    asm.put(sockets);
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
    let tagged = asm.jump(JUMP, 0, 0);
    asm.label(&[no_room, short]);
    asm.put(&[set(0, XDP_DROP), exit()]);
    asm.label(&[no_socket]);
    asm.put(&[set(0, XDP_PASS), exit()]);
    asm.label(&[untagged, tagged]);
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
