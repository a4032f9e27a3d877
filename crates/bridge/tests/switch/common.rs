//! What the tests over ports in memory share.

use overbank_declare::counters::Counters;
use overbank_ports::looped::{MemoryHandle, MemoryOptions, MemoryPort};
use overbank_reasons::Reasons;
use overbank_runtime::{ConfiguredPort, Status};
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ports in memory by these options, from number 1 on.
pub fn ports(
    options: &[MemoryOptions],
    workers: usize,
) -> (Vec<ConfiguredPort>, Vec<MemoryHandle>) {
    let each = (1..).zip(options).map(|(number, options)| {
        let port = MemoryPort::open(options, &format!("memory{number}"), workers).expect("memory");
        let handle = port.handle();
        (ConfiguredPort { number, spec: None, port: Some(Box::new(port)) }, handle)
    });
    each.unzip()
}

/// Ports to put frames in by hand.
pub fn quiet(n: usize, workers: usize) -> (Vec<ConfiguredPort>, Vec<MemoryHandle>) {
    ports(&vec![MemoryOptions { keep: 1 << 16, ..MemoryOptions::default() }; n], workers)
}

pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// UDP over IPv4 from one station to another, with a number in it.
pub fn frame(src: [u8; 6], dst: [u8; 6], source_port: u16, number: u64) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2(src, dst)
        .ipv4([10, 0, 0, src[5]], [10, 0, 0, dst[5]], 64)
        .udp(source_port, 7);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &number.to_be_bytes()).expect("into memory");
    bytes
}

pub fn number_of(frame: &[u8]) -> u64 {
    let tail: [u8; 8] = frame[frame.len() - 8..].try_into().expect("eight bytes");
    u64::from_be_bytes(tail)
}

pub fn closed<T: Counters, R: Reasons, S>(status: &Status<T, R, S>) {
    assert!(
        status.closes,
        "{:#?}",
        status.ports.iter().map(|port| port.totals).collect::<Vec<_>>()
    );
    for port in &status.ports {
        let dropped = port.dropped.total();
        assert_eq!(port.received, port.forwarded + port.to_controller + dropped, "{}", port.name);
        assert_eq!(port.outputs, port.sent + port.not_sent_total(), "{}", port.name);
        assert_eq!(port.queued, 0, "{}", port.name);
    }
}
