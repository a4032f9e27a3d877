//! The program's text. That it works is shown on real interfaces (`tests/interfaces/afxdp.rs`).

use super::*;
use crate::afxdp::bpf::{self, SocketMap};
use crate::select::{RULES_MAX, Rule, Rules};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::AsFd;

#[test]
fn the_short_program_is_six_instructions() {
    let somewhere = std::fs::File::open("/dev/null").expect("it is always there");
    let fd = somewhere.as_fd();
    let code = redirect_program(fd, None, &Select::All, XDP_PASS);
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
    let code = redirect_program(somewhere.as_fd(), Some(1234), &Select::All, XDP_PASS);
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

/// Rules of both families, some of which differ in their last bits.
fn rules() -> impl Strategy<Value = Rules> {
    let address = prop_oneof![
        (0u8..3).prop_map(|last| IpAddr::from([192, 0, 2, last])),
        (0u16..3).prop_map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last])),
    ];
    let rule = (0..3, address, 0u8..=128, 2150u16..2154, 0u8..2).prop_map(
        |(kind, address, len, port, last)| match kind {
            0 => Rule::Udp { dst: address, port },
            1 => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                // Nearly whole addresses, and any length.
                let len = if len > 64 { bits - len % 3 } else { len.min(bits) };
                Rule::To { prefix: address, len }
            }
            _ => Rule::From { src: [2, 0x4f, 0x42 + last] },
        },
    );
    prop::collection::vec(rule, 0..6).prop_map(|rules| Rules::new(rules).expect("few"))
}

/// Frames near the rules: a UDP datagram, with an IPv6 fragment header or IPv4 options or without,
/// some bytes changed, and cut off.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let bytes = (any::<bool>(), 0u8..4, 0u16..3, 2150u16..2154, 0u8..2, any::<[u8; 3]>());
    let cut = (14usize..140, any::<[(prop::sample::Index, u8); 2]>(), 0..3usize);
    (bytes, cut).prop_map(|((ip4, words, last, port, mac, free), (len, changes, changed))| {
        let mut frame = vec![2, 0, 0, 0, 0, mac, 2, 0x4f, 0x42 + mac, 1, 2, 3];
        if ip4 {
            let flags = free[2] & 0x60;
            frame.extend([8, 0, 0x45 + words, 0, 0, 60, 0, 0, flags, free[0] % 2, 64, 17, 0, 0]);
            frame.extend([10, 0, 0, 1, 192, 0, 2, last as u8]);
            frame.extend(vec![1; usize::from(words) * 4]);
        } else {
            let next = if words == 0 { 17 } else { 44 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, next, 64]);
            frame.extend([9; 16]);
            frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last as u8]);
            if next == 44 {
                frame.extend([17, 0, 0, words * 8 - 8 + free[1] % 8, 0, 0, 0, 1]);
            }
        }
        frame.extend([0xc0, 0]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 20, 0, 0]);
        frame.extend([7; 12]);
        for (at, value) in &changes[..changed] {
            let len = frame.len().min(70);
            frame[at.index(len)] = *value;
        }
        frame.truncate(len);
        frame
    })
}

/// Loads the program with an empty map, so that a frame that is taken has the verdict XDP_DROP.
fn loaded(select: &Select) -> std::os::fd::OwnedFd {
    let sockets = SocketMap::new(1).expect("a map");
    let code = redirect_program(sockets.fd(), None, select, XDP_DROP);
    bpf::load(0, &code).expect("the verifier accepts it")
}

/// The program on the kernel's own test run, against the plain function.
#[test]
fn the_program_takes_what_the_plain_function_takes() {
    // SAFETY: no arguments.
    if !overbank_testing::needs("root", unsafe { libc::geteuid() } == 0) {
        return;
    }
    let (taken, kept) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: 300, ..Config::default() });
    let cases = (rules(), prop::collection::vec(frame(), 40));
    runner
        .run(&cases, |(rules, frames)| {
            let select = Select::Rules(rules);
            let program = loaded(&select);
            for frame in &frames {
                let verdict = bpf::test_run(&program, frame).expect("it runs");
                let expected = select.takes(frame);
                let counter = if expected { &taken } else { &kept };
                counter.set(counter.get() + 1);
                let expected = if expected { XDP_DROP } else { XDP_PASS };
                prop_assert_eq!(verdict, expected as u32, "{:x?}", frame);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (taken, kept) = (taken.get(), kept.get());
    assert!(taken > 1000 && kept > 1000, "{taken} taken, {kept} kept");
}

/// The longest programs are within what the verifier accepts.
#[test]
fn as_many_rules_as_allowed() {
    // SAFETY: no arguments.
    if !overbank_testing::needs("root", unsafe { libc::geteuid() } == 0) {
        return;
    }
    let address = |i: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, i]);
    type Make = fn(IpAddr, u8) -> Rule;
    let kinds: [Make; 3] = [
        |dst, _| Rule::Udp { dst, port: 2152 },
        |prefix, _| Rule::To { prefix, len: 127 },
        |_, i| Rule::From { src: [2, 0x4f, i] },
    ];
    for make in kinds {
        let rules = (0..RULES_MAX as u16).map(|i| make(address(2 * i), i as u8)).collect();
        let select = Select::Rules(Rules::new(rules).expect("as many as allowed"));
        let program = loaded(&select);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0x4f, RULES_MAX as u8 - 1, 0, 0, 0];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        frame.extend([9; 16]);
        let IpAddr::V6(last) = address(2 * (RULES_MAX as u16 - 1)) else { unreachable!() };
        frame.extend(last.octets());
        frame.extend([0xc0, 0, 8, 0x68, 0, 8, 0, 0]);
        assert!(select.takes(&frame));
        assert_eq!(bpf::test_run(&program, &frame).expect("it runs"), XDP_DROP as u32);
        frame[8] = 0xff;
        frame[52] = 0xff;
        assert!(!select.takes(&frame));
        assert_eq!(bpf::test_run(&program, &frame).expect("it runs"), XDP_PASS as u32);
    }
}
