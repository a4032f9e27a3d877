//! Numbered datagrams: from A to B, where each arrives once, in order and as it was sent, and from
//! A to C, whose port makes faults: there some are lost and some come twice, but none with other
//! bytes.
//!
//! Losses between A and B are counted, not judged: a kernel without time drops. Their order is
//! judged where the kernel keeps it: the sender stays on one core.

use crate::context::{Soak, Threads, differs, fill};
use crate::scene::{A, B, C, address};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PORT: u16 = 7200;
const LEN: usize = 1000;

/// Starts both.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    for (to, every) in [(B, Duration::from_millis(1)), (C, Duration::from_millis(4))] {
        let sent = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let (all, over) = (Arc::clone(&sent), Arc::clone(&done));
        threads.inside(soak, to, "numbered", move |soak| receive(soak, to, &all, &over));
        threads.inside(soak, A, "numbered", move |soak| {
            if let Some(core) =
                core_affinity::get_core_ids().and_then(|cores| cores.into_iter().next())
            {
                core_affinity::set_for_current(core);
            }
            let socket = UdpSocket::bind((address(A), 0)).expect("bound");
            let mut bytes = [0; LEN];
            while !soak.is_stopped() {
                let number = sent.load(Ordering::SeqCst);
                bytes[..8].copy_from_slice(&number.to_be_bytes());
                fill(number, 0, &mut bytes[8..]);
                if socket.send_to(&bytes, (address(to), PORT)).is_ok() {
                    sent.store(number + 1, Ordering::SeqCst);
                }
                std::thread::sleep(every);
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}

fn receive(soak: &Soak, host: usize, sent: &AtomicU64, done: &AtomicBool) {
    let socket = UdpSocket::bind((address(host), PORT)).expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let whom = if host == B { "UDP A → B" } else { "UDP A → C, faults" };
    let mut bytes = [0; 2 * LEN];
    let (mut seen, mut next) = (0, 0);
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((len, _)) => {
                let number = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
                let intact = len == LEN && differs(number, 0, &bytes[8..len]).is_none();
                soak.check(intact, whom, || format!("datagram {number} came with other bytes"));
                seen += 1;
                if host == B {
                    soak.steady.store(seen, Ordering::SeqCst);
                    soak.check(number >= next, whom, || {
                        format!("datagram {number} came after {}", next.saturating_sub(1))
                    });
                    next = next.max(number + 1);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    let sent = sent.load(Ordering::SeqCst);
    soak.check(seen > 0, whom, || format!("none of {sent} came"));
    if host == B {
        soak.count("datagrams A → B", seen);
        soak.count("datagrams A → B lost", sent.saturating_sub(seen));
    } else {
        soak.count("datagrams A → C, faults", seen);
    }
}
