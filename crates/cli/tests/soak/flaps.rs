//! The ports of D and F go down and come up, are deleted and made again; the others go on
//! meanwhile. What is stamped for F is lost then; what comes all the same, or later, is still
//! judged.

use crate::bench::PATIENCE;
use crate::context::{Soak, Threads};
use crate::process::signal;
use crate::scene::{A, D, ECHO, F, address};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Datagrams that the others must get through while a port is away.
const STEADY: u64 = 20;

/// Starts the echoes of D and F, A's probes, and the thread that takes ports down.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    let done = Arc::new(AtomicBool::new(false));
    let answered = [D, F].map(|host| {
        let heard = Arc::new(AtomicU64::new(0));
        let over = Arc::clone(&done);
        threads.inside(soak, host, "echo", move |_| echo(&over));
        let (over, numbers) = (Arc::clone(&done), Arc::clone(&heard));
        threads.inside(soak, A, "A's probes", move |_| probe(host, &over, &numbers));
        (host, heard)
    });
    threads.here(soak, "flaps", move |soak| {
        flap(soak, &answered);
        done.store(true, Ordering::SeqCst);
    });
}

/// Sends back what comes.
pub fn echo(done: &AtomicBool) {
    let socket = UdpSocket::bind(("0.0.0.0", ECHO)).expect("bound");
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
        let _ = socket.send_to(&number.to_be_bytes(), (address(host), ECHO));
        std::thread::sleep(Duration::from_millis(10));
        loop {
            match socket.recv_from(&mut bytes) {
                Ok((8, _)) => {
                    answered.fetch_max(u64::from_be_bytes(bytes), Ordering::SeqCst);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Datagrams sent before that found no receiver.
                Err(_) => {}
            }
        }
    }
}

/// Waits until `number` grows by `more`; how long it took. `None`: it does not, or `enough`.
fn grows(number: &AtomicU64, more: u64, enough: impl Fn() -> bool) -> Option<Duration> {
    let (start, from) = (Instant::now(), number.load(Ordering::SeqCst));
    while number.load(Ordering::SeqCst) < from + more {
        if start.elapsed() > PATIENCE || enough() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(start.elapsed())
}

fn flap(soak: &Soak, answered: &[(usize, Arc<AtomicU64>)]) {
    let mut flaps = 0;
    let mut longest = Duration::ZERO;
    while !soak.is_stopped() || flaps < 4 {
        let (host, heard) = &answered[flaps / 2 % 2];
        let (host, port) = (*host, *host + 1);
        let deleted = flaps % 2 == 1;
        if deleted {
            soak.scene.pull(host);
        } else {
            soak.scene.set_link(host, false);
        }
        let how = if deleted { "deleted" } else { "down" };
        // The traffic that is looked for ends with the soak.
        if grows(&soak.steady, STEADY, || soak.is_stopped()).is_none() && !soak.is_stopped() {
            soak.fail("UDP A → B", format!("stands still while port {port} is {how}"));
        }
        if deleted {
            soak.scene.plug(host);
        } else {
            soak.scene.set_link(host, true);
        }
        let start = Instant::now();
        while !soak.scene.attach(host) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Some answers may have been on their way when it went.
        if grows(heard, 3, || false).is_none() {
            soak.fail(&format!("port {port}"), format!("does not come back after it was {how}"));
            return;
        }
        longest = longest.max(start.elapsed());
        flaps += 1;
        soak.sleep(Duration::from_millis(50));
    }
    soak.count("flaps of ports 4 and 6", flaps as u64);
    soak.set("longest way back of a port, ms", longest.as_millis() as u64);
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
