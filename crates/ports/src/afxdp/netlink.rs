//! Asks over route netlink which XDP programs are attached to an interface.
//!
//! One request (`RTM_GETLINK` for one interface number) and one answer, whose attributes a total
//! function of bytes reads. Source: linux/if_link.h, `IFLA_XDP`.

use super::sys;
use std::io;
use std::os::fd::AsRawFd;

/// Attribute numbers.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

/// Headers in front of the attributes: `nlmsghdr` and `ifinfomsg`.
const HEADER_BYTES: usize = 16;
const INFO_BYTES: usize = 16;

/// An attached program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    /// `native`, `generic` or `in hardware`.
    pub(crate) mode: &'static str,
    /// The kernel's number of the program.
    pub(crate) program: u32,
}

/// Returns the program attached to an interface, if any.
pub(crate) fn attached(interface: u32) -> io::Result<Option<Attached>> {
    const NETLINK_ROUTE: libc::c_int = 0;
    // SAFETY: no memory is passed.
    let socket = sys::owned(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_ROUTE)
    })?;
    let mut question = Vec::with_capacity(HEADER_BYTES + INFO_BYTES);
    question.extend(((HEADER_BYTES + INFO_BYTES) as u32).to_ne_bytes());
    question.extend(libc::RTM_GETLINK.to_ne_bytes());
    question.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    question.extend([0; 8]);
    // ifinfomsg: family, padding, type, index, flags, change.
    question.extend([0; 4]);
    question.extend(interface.to_ne_bytes());
    question.extend([0; 8]);
    // SAFETY: the pointer and the length are those of `question`.
    let sent =
        unsafe { libc::send(socket.as_raw_fd(), question.as_ptr().cast(), question.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0u8; 64 << 10];
    // SAFETY: the kernel writes at most the length of `answer`.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let answer = &answer[..got.min(answer.len())];
    if number(answer, 4, 2) == Some(u32::from(libc::RTM_NEWLINK)) {
        Ok(programs(answer.get(HEADER_BYTES + INFO_BYTES..).unwrap_or_default()))
    } else {
        // Else the answer is an error: a negative number after the header.
        let code = number(answer, HEADER_BYTES, 4).map_or(libc::EIO, |code| -(code as i32));
        Err(io::Error::from_raw_os_error(code))
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    match len {
        1 => Some(u32::from(bytes[0])),
        2 => Some(u32::from(u16::from_ne_bytes([bytes[0], bytes[1]]))),
        _ => Some(u32::from_ne_bytes(bytes.try_into().ok()?)),
    }
}

/// Iterates over the attributes of a list, up to the first broken one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = number(bytes, 0, 2)? as usize;
        // The two highest bits encode the kind of value.
        let kind = number(bytes, 2, 2)? as u16 & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the XDP program named in the attributes of an interface.
fn programs(bytes: &[u8]) -> Option<Attached> {
    let (_, xdp) = attributes(bytes).find(|(kind, _)| *kind == IFLA_XDP)?;
    let find = |wanted| attributes(xdp).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    // 0: none, 1: native, 2: generic, 3: hardware, 4: several, each with its own number.
    let mode = find(IFLA_XDP_ATTACHED).and_then(|value| number(value, 0, 1))?;
    let several = [
        ("native", IFLA_XDP_DRV_PROG_ID),
        ("generic", IFLA_XDP_SKB_PROG_ID),
        ("in hardware", IFLA_XDP_HW_PROG_ID),
    ];
    let id = |kind| find(kind).and_then(|value| number(value, 0, 4));
    match mode {
        0 => None,
        1..=3 => {
            let (mode, kind) = several[mode as usize - 1];
            let program = id(kind).or_else(|| id(IFLA_XDP_PROG_ID)).unwrap_or(0);
            Some(Attached { mode, program })
        }
        _ => several
            .into_iter()
            .find_map(|(mode, kind)| id(kind).map(|program| Attached { mode, program })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::from(((value.len() + 4) as u16).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn mode_and_program_are_read() {
        let id = |kind, id: u32| attribute(kind, &id.to_ne_bytes());
        let xdp = |parts: &[Vec<u8>]| {
            // Another attribute of odd length comes first.
            [attribute(3, b"veth0\0\0"), attribute(IFLA_XDP | 0x8000, &parts.concat())].concat()
        };
        let mode = |mode| attribute(IFLA_XDP_ATTACHED, &[mode]);
        let is = |mode, program| Some(Attached { mode, program });
        assert_eq!(programs(&xdp(&[mode(0)])), None);
        assert_eq!(programs(&xdp(&[mode(1), id(IFLA_XDP_PROG_ID, 7)])), is("native", 7));
        assert_eq!(
            programs(&xdp(&[mode(2), id(IFLA_XDP_PROG_ID, 9), id(IFLA_XDP_SKB_PROG_ID, 8)])),
            is("generic", 8)
        );
        assert_eq!(programs(&xdp(&[mode(4), id(IFLA_XDP_SKB_PROG_ID, 5)])), is("generic", 5));
        assert_eq!(programs(&attribute(3, b"veth0\0")), None);
    }

    #[test]
    fn a_missing_interface_is_an_error() {
        let error = attached(0x7fff_fff0).expect_err("no such interface");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(attached(1).expect("the loopback interface is always there"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = programs(&bytes);
            let _ = programs(&attribute(IFLA_XDP, &bytes));
        }
    }
}
