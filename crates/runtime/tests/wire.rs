//! Runs an engine that the runtime does not know, with two workers over ports in memory. Its
//! counters, reasons, metrics, status and account need no line of the runtime.

#![allow(dead_code)] // The example's main is not called.

#[path = "../examples/wire.rs"]
mod wire;

use overbank_declare::counters::Exposition;
use overbank_ports::looped::{MemoryHandle, MemoryOptions, MemoryPort};
use overbank_runtime::status::CONTROLLERS;
use overbank_runtime::{ConfiguredPort, Options};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames injected into each of the first two ports.
const FRAMES: u64 = 4000;

fn ports(n: u32, workers: usize) -> (Vec<ConfiguredPort>, Vec<MemoryHandle>) {
    let options = MemoryOptions { keep: 1 << 16, ..MemoryOptions::default() };
    let each = (1..=n).map(|number| {
        let name = format!("memory{number}");
        let port = MemoryPort::open(&options, &name, workers).expect("memory");
        let handle = port.handle();
        (ConfiguredPort { number, spec: None, port: Some(Box::new(port)) }, handle)
    });
    each.unzip()
}

/// Returns a frame of this EtherType; flows differ, so that both workers get some.
fn frame(ethertype: u16, flow: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, flow];
    frame.extend(ethertype.to_be_bytes());
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 0, 9]);
    frame.extend([flow, flow, 0, 7, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_new_engine_has_counters_metrics_status_and_an_account_that_closes() {
    let options = Options { workers: 2, ..Options::default() };
    let (ports, handles) = ports(3, 2);
    let running = wire::wire(&options, ports).expect("started");
    let mut sent = [0u64; 2];
    for n in 0..FRAMES {
        let (flow, ethertype) = ((n % 97) as u8, [0x0800, 0x86dd, 0x0806, 0x88cc][n as usize % 4]);
        for (port, sent) in sent.iter_mut().enumerate() {
            wait("room", || handles[port].inject(&frame(ethertype, flow)));
            *sent += 1;
        }
    }
    handles[0].inject(&[1; 13]);
    handles[2].inject(&frame(0x0800, 1));
    wait("all frames", || {
        let status = running.status();
        status.closes && status.total.packets == 2 * FRAMES + 2
    });

    let mut exposition = Exposition::new();
    running.status().expose(&mut exposition);
    let text = exposition.text();
    for line in [
        "# TYPE overbank_wire_frames counter",
        r#"overbank_port_dropped_packets_total{port="1",name="memory1",reason="runt"} 1"#,
        r#"overbank_port_dropped_packets_total{port="3",name="memory3",reason="no_partner"} 1"#,
        "overbank_wire_pairs 1.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
    }
    assert!(text.contains(r#"overbank_wire_frames_total{worker="1",ethertype="ip4"}"#), "{text}");

    let status = running.stop();
    assert!(status.closes);
    assert!(status.workers.iter().all(|worker| worker.packets > 0), "both workers had some");
    let of_each = 2 * FRAMES / 4;
    let counted = status.total.engine;
    assert_eq!((counted.ip4, counted.ip6), (of_each + 1, of_each));
    assert_eq!((counted.arp, counted.other, counted.vlan), (of_each, of_each, 0));
    let [one, two, three, control] = &status.ports[..] else { panic!("three ports and one") };
    assert_eq!((one.received, one.forwarded, one.dropped.of("runt")), (FRAMES + 1, FRAMES, 1));
    assert_eq!((two.received, two.forwarded, two.sent), (FRAMES, FRAMES, FRAMES));
    assert_eq!((three.received, three.dropped.of("no_partner")), (1, 1));
    assert_eq!((control.number, control.received), (CONTROLLERS, 0));

    let json = serde_json::to_value(&status).expect("a document");
    assert_eq!(json["total"]["ip6"], of_each);
    assert_eq!(json["total"]["packets"], 2 * FRAMES + 2);
    assert_eq!(json["ports"][0]["dropped"], serde_json::json!({"runt": 1}));
    assert_eq!(json["control"]["pairs"], 1);
    assert_eq!(json["control"]["snapshots_published"], json["control"]["version"]);
}
