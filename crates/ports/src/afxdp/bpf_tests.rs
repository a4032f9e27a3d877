//! The program's text. That it works is shown on real interfaces (`tests/interfaces/afxdp.rs`).

use super::*;
use std::os::fd::AsFd;

#[test]
fn the_short_program_is_six_instructions() {
    let somewhere = std::fs::File::open("/dev/null").expect("it is always there");
    let fd = somewhere.as_fd();
    let code = redirect_program(fd, None);
    let address = map(1, fd.as_raw_fd());
    assert_eq!(
        code,
        [
            mov(CONTEXT, 1),
            op(0x61, 2, CONTEXT, 16, 0),
            address[0],
            address[1],
            set(3, 2),
            call(51),
            exit(),
        ]
    );
}

#[test]
fn jumps_of_the_long_program_lead_to_instructions() {
    let somewhere = std::fs::File::open("/dev/null").expect("it is always there");
    let code = redirect_program(somewhere.as_fd(), Some(1234));
    let mut jumps = 0;
    for (at, instruction) in code.iter().enumerate() {
        if matches!(instruction.code, JEQ | JNE | JGT | 0x05) {
            jumps += 1;
            assert!(instruction.offset > 0 && at + 1 + (instruction.offset as usize) < code.len());
        }
    }
    assert_eq!(jumps, 5);
    assert_eq!(code.iter().filter(|i| i.code == 0x85 && i.registers == 0x20).count(), 1);
}
