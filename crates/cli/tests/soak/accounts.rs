//! Memory while it runs; accounts in every reading, and to the packet at the end.

use crate::bench::PATIENCE;
use crate::client::Client;
use crate::context::{Soak, Threads};
use crate::flaps::reload;
use crate::generations::Ending;
use crate::process::{Process, resident_kib, status};
use crate::scene::{E, NEVER_COOKIE};
use overbank_openflow::Version;
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How much the switch may grow once it is warm.
///
/// Rules, megaflows, stations and queues are bounded and at their bounds soon; what is left is what
/// the allocator keeps of snapshots that were freed.
const GROWTH_MAX_KIB: u64 = 32 << 10;
/// The part of the time after which it counts as warm.
const WARM: f64 = 0.4;

/// Starts what looks at the switch.
pub fn watch(soak: &Arc<Soak>, switch: &Process, threads: &mut Threads) {
    let process = switch.id();
    threads.here(soak, "SIGHUP", move |soak| reload(soak, process));
    threads.here(soak, "accounts", move |soak| {
        let (start, warm_after) =
            (Instant::now(), Duration::from_secs(soak.plan.seconds).mul_f64(WARM));
        let (mut warm, mut most, mut readings) = (None, 0, 0);
        loop {
            // The last reading is warm, however late it comes.
            let last = !soak.sleep(Duration::from_millis(100));
            match status(soak.scene.folder.path()) {
                Ok(status) => check(soak, &status, false),
                Err(error) => soak.fail("status", error),
            }
            readings += 1;
            let Some(now) = resident_kib(process) else { break };
            if start.elapsed() > warm_after || last {
                let warm: u64 = *warm.get_or_insert(now);
                most = most.max(now);
                if now > warm + GROWTH_MAX_KIB {
                    let text =
                        format!("grew from {warm} to {now} KiB, by more than {GROWTH_MAX_KIB}");
                    soak.fail("memory", text);
                    break;
                }
            }
            if last {
                break;
            }
        }
        soak.count("readings of the accounts", readings);
        soak.set("memory when warm, KiB", warm.unwrap_or(0));
        soak.set("memory at most, KiB", most);
        soak.check(warm.is_some(), "memory", || "it never got warm".to_owned());
    });
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name}: {of}"))
}

fn sum(of: &Value, name: &str) -> u64 {
    let reasons = of[name].as_object().unwrap_or_else(|| panic!("no {name}: {of}"));
    reasons.values().map(|n| n.as_u64().expect("a number")).sum()
}

/// Both accounts of each port, from the numbers and not from what the switch says of them.
fn check(soak: &Soak, status: &Value, at_the_end: bool) {
    for port in status["ports"].as_array().expect("ports") {
        let n = |name: &str| number(port, name);
        let ended = n("forwarded") + n("to_controller") + sum(port, "dropped");
        let left = n("sent") + n("queued") + sum(port, "not_sent");
        let closes = n("received") == ended && n("outputs") == left && port["closes"] == true;
        soak.check(closes, "accounts", || format!("do not close: {port}"));
        if at_the_end {
            soak.check(n("queued") == 0, "accounts", || format!("frames are left: {port}"));
        }
    }
}

/// What a host sent and one rule dropped is the same number, but for what the kernel lost before.
pub fn compare_with_outsider(soak: &Soak, ending: &Ending) {
    let start = Instant::now();
    // Workers tell their counts from time to time.
    loop {
        let Some(Counted { sent, dropped, lost }) = count(soak, ending) else { return };
        let fits = dropped <= sent && dropped + lost >= sent;
        if !fits && dropped <= sent && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        soak.check(fits, "accounts", || {
            format!("of {sent} packets the rule counted {dropped}, the kernel lost at most {lost}")
        });
        soak.count("packets dropped for good", dropped);
        soak.count("lost by the kernel at E's port, at most", lost);
        return;
    }
}

/// The packets of the rule that drops: sent by the host, counted by the rule, lost by the kernel.
struct Counted {
    sent: u64,
    dropped: u64,
    lost: u64,
}

fn count(soak: &Soak, ending: &Ending) -> Option<Counted> {
    let folder = soak.scene.folder.path();
    let Ok(status) = status(folder) else {
        soak.fail("accounts", "no status at the end");
        return None;
    };
    let port = &status["ports"][E];
    let statistics = |path: String| {
        let text = crate::netns::try_run(&format!("cat {path}")).1;
        text.lines().filter_map(|line| line.parse::<u64>().ok()).sum::<u64>()
    };
    let near = format!("/sys/class/net/{}/statistics", soak.scene.port(E));
    let far = soak.scene.net.exec(E, "cat /sys/class/net/eth0/statistics/tx_dropped");
    let lost = number(port, "missed")
        + number(port, "errors")
        + statistics(format!("{near}/rx_dropped {near}/tx_dropped"))
        + far.trim().parse::<u64>().unwrap_or(0);
    let sent = ending.never_sent.load(Ordering::SeqCst);
    let mut client = Client::connect(soak.scene.openflow, Version::V13);
    let flows = client.flows();
    let rule = flows.iter().find(|flow| flow.cookie == NEVER_COOKIE);
    let Some(dropped) = rule.and_then(|rule| rule.stats.packets) else {
        soak.fail("accounts", "the rule that drops is gone");
        return None;
    };
    Some(Counted { sent, dropped, lost })
}

/// SIGTERM: the totals close, nothing is left behind.
pub fn close(soak: &Soak, switch: Process) -> Option<Value> {
    let totals = match switch.terminate() {
        Ok(totals) => totals,
        Err(error) => {
            soak.fail("SIGTERM", error);
            return None;
        }
    };
    check(soak, &totals, true);
    soak.check(totals["closes"] == true, "accounts", || format!("do not close: {totals:#}"));
    soak.check(!soak.scene.has_xdp(), "SIGTERM", || "an XDP program is left".to_owned());
    let files = fs::read_dir(soak.scene.folder.path()).expect("a folder").flatten();
    for left in files.filter(|e| ["status", "openflow"].iter().any(|n| e.file_name() == *n)) {
        soak.fail("SIGTERM", format!("{:?} is left", left.file_name()));
    }
    Some(totals)
}

/// The end of the long run: the totals go into the report.
pub fn finish(soak: &Soak, switch: Process) {
    let Some(totals) = close(soak, switch) else { return };
    let ports = totals["ports"].as_array().expect("ports");
    for (name, what) in [
        ("frames received", "received"),
        ("frames forwarded", "forwarded"),
        ("frames to controllers", "to_controller"),
        ("frames sent", "sent"),
        ("frames missed", "missed"),
    ] {
        soak.count(name, ports.iter().map(|port| number(port, what)).sum());
    }
    soak.count("frames dropped", ports.iter().map(|port| sum(port, "dropped")).sum());
    soak.count("frames not sent", ports.iter().map(|port| sum(port, "not_sent")).sum());
    soak.count("snapshots taken over", number(&totals["total"], "snapshots"));
    soak.check(soak.counted("frames to controllers") > 0, "accounts", || {
        "no frame went to a controller".to_owned()
    });
}
