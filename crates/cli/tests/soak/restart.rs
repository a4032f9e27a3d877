//! SIGKILL in the midst of traffic, and a new start: how long no frame arrives, and what is
//! left on the interfaces in between.
//!
//! The time is recorded; only [`PATIENCE`] decides. A transfer by TCP that was under way arrives.

use crate::accounts;
use crate::bench::PATIENCE;
use crate::context::{Soak, Threads};
use crate::flaps::{echo, probe};
use crate::process::Process;
use crate::scene::{A, B};
use crate::tcp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Bytes of the transfer that lives through it.
const LEN: usize = 16 << 20;
/// Most kills of one soak.
const KILLS_MAX: u64 = 5;

/// Kills it as often as there is time for, and ends it well.
pub fn run(soak: &Arc<Soak>) {
    let mut switch = Process::start(soak);
    soak.scene.attach_all();
    soak.scene.wait_for_forwarding();
    let mut threads = Threads::default();
    let (done, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let over = Arc::clone(&done);
    threads.inside(soak, B, "B's echo", move |_| echo(&over));
    let (over, numbers) = (Arc::clone(&done), Arc::clone(&heard));
    threads.inside(soak, A, "A's probes", move |_| probe(B, &over, &numbers));
    let served = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&served);
    let (listening, listens) = channel();
    threads.inside(soak, B, "TCP through SIGKILL", move |soak| {
        tcp::serve(soak, 0, &listening, &over);
    });
    threads.inside(soak, A, "TCP through SIGKILL", move |soak| {
        let _ = listens.recv();
        if let Err(error) = tcp::transfer(soak, 0, u64::MAX, LEN) {
            soak.fail("TCP through SIGKILL", error.to_string());
        }
        served.store(true, Ordering::SeqCst);
    });
    let mut longest = Duration::ZERO;
    for _ in 0..(1 + soak.plan.seconds / 30).min(KILLS_MAX) {
        hears(soak, &heard);
        switch.kill();
        let start = Instant::now();
        while soak.scene.has_xdp() {
            if start.elapsed() > PATIENCE {
                soak.fail("SIGKILL", "the XDP program stays on the interface");
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Frames in flight have arrived by then.
        std::thread::sleep(Duration::from_millis(100));
        let before = heard.load(Ordering::SeqCst);
        switch = Process::spawn(soak);
        let started = switch.started;
        soak.scene.attach_all();
        while heard.load(Ordering::SeqCst) == before {
            if let Some(status) = switch.ended() {
                soak.fail("start after SIGKILL", format!("ended by itself: {status}"));
                break;
            }
            if started.elapsed() > PATIENCE {
                soak.fail("start after SIGKILL", "it does not forward");
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        longest = longest.max(started.elapsed());
    }
    soak.set("from start to forwarding, ms", longest.as_millis() as u64);
    hears(soak, &heard);
    done.store(true, Ordering::SeqCst);
    threads.join(soak);
    let _ = accounts::close(soak, switch);
}

/// Waits until A hears B.
fn hears(soak: &Soak, heard: &AtomicU64) {
    let (start, before) = (Instant::now(), heard.load(Ordering::SeqCst));
    while heard.load(Ordering::SeqCst) <= before + 5 {
        if start.elapsed() > PATIENCE {
            soak.fail("start after SIGKILL", "A and B do not hear each other");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
