//! The port of D goes down and comes up, is deleted and made again; the others go on meanwhile.

use crate::bench::PATIENCE;
use crate::context::{Soak, Threads};
use crate::process::signal;
use crate::scene::{A, D, address};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 7300;
/// Datagrams that the others must get through while a port is away.
const STEADY: u64 = 20;

/// Starts D's echo, A's probes, and who pulls the wire.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    let done = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let over = Arc::clone(&done);
    threads.inside(soak, D, "D's echo", move |_| echo(&over));
    let (over, heard) = (Arc::clone(&done), Arc::clone(&answered));
    threads.inside(soak, A, "A's probes", move |_| probe(D, &over, &heard));
    threads.here(soak, "port 4", move |soak| {
        flap(soak, &answered);
        done.store(true, Ordering::SeqCst);
    });
}

/// Sends back what comes.
pub fn echo(done: &AtomicBool) {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    let mut bytes = [0; 64];
    while !done.load(Ordering::SeqCst) {
        if let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..len], from);
        }
    }
}

/// Sends a number every ten milliseconds; the last one that came back is in `answered`.
pub fn probe(host: usize, done: &AtomicBool, answered: &AtomicU64) {
    let socket = UdpSocket::bind((address(A), 0)).expect("bound");
    socket.set_nonblocking(true).expect("a socket");
    let mut number = 0u64;
    let mut bytes = [0; 8];
    while !done.load(Ordering::SeqCst) {
        number += 1;
        let _ = socket.send_to(&number.to_be_bytes(), (address(host), PORT));
        std::thread::sleep(Duration::from_millis(10));
        loop {
            match socket.recv_from(&mut bytes) {
                Ok((8, _)) => {
                    answered.fetch_max(u64::from_be_bytes(bytes), Ordering::SeqCst);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What was sent before found nobody.
                Err(_) => {}
            }
        }
    }
}

/// Waits until `number` grows by `more`; how long it took.
fn grows(number: &AtomicU64, more: u64) -> Option<Duration> {
    let (start, from) = (Instant::now(), number.load(Ordering::SeqCst));
    while number.load(Ordering::SeqCst) < from + more {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(start.elapsed())
}

fn flap(soak: &Soak, answered: &AtomicU64) {
    let mut flaps = 0;
    let mut longest = Duration::ZERO;
    while !soak.is_stopped() || flaps < 2 {
        let deleted = flaps % 2 == 1;
        if deleted {
            soak.scene.pull(D);
        } else {
            soak.scene.set_link(D, false);
        }
        let how = if deleted { "deleted" } else { "down" };
        if grows(&soak.steady, STEADY).is_none() && !soak.is_stopped() {
            soak.fail("UDP A → B", format!("stands still while port 4 is {how}"));
        }
        if deleted {
            soak.scene.plug(D);
        } else {
            soak.scene.set_link(D, true);
        }
        // Answers that were on their way when it went do not count.
        let start = Instant::now();
        let back = loop {
            let attached = soak.scene.attach(D);
            if attached && grows(answered, 3).is_some() {
                break true;
            }
            if start.elapsed() > PATIENCE {
                break false;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if !back {
            soak.fail("port 4", format!("does not come back after it was {how}"));
            return;
        }
        longest = longest.max(start.elapsed());
        flaps += 1;
        soak.sleep(Duration::from_millis(50));
    }
    soak.count("flaps of port 4", flaps);
    soak.set("longest way back of port 4, ms", longest.as_millis() as u64);
}

/// Has the switch read its file of rules again.
pub fn reload(soak: &Soak, process: u32) {
    let mut edition = 0;
    while soak.sleep(Duration::from_millis(400)) {
        edition += 1;
        soak.scene.write_rules(edition);
        signal(process, "HUP");
    }
    soak.count("rules read again by SIGHUP", edition);
}
