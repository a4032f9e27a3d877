//! The capture of `tests/fixtures` through the unpatched and the patched switch: the same bytes
//! must leave by the same ports in the same order.
//!
//! ```text
//!  interface k ──▶ net_pcap port k ──▶ rules of the capture ──▶ files of ports 1 to 3
//! ```
//!
//! A capture is read as soon as its port is polled. So the other ports are pinned to the only
//! thread, which then polls no port that is not, until all is ready. Each interface has a switch,
//! because the order in which ports are polled could differ. The frames come several times: later
//! ones hit the signature cache.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use overbank_ports::capture::{Capture, CaptureSet};
use serde::Serialize;

use super::{BUILT_IN, STOCK};
use crate::folder::Folder;
use crate::ovs::Machine;
use crate::ovs::switch::{Build, Switch, parse};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
const PORTS: [u32; 3] = [1, 2, 3];
/// A port's setting: core 1 polls it.
const PINNED: &str = "pmd-rxq-affinity=\"0:1\"";
/// How often the frames come.
const TIMES: u32 = 8;

/// What was compared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Compared {
    /// Patched switches whose output was that of the unpatched one.
    pub designs: Vec<String>,
    /// Frames that went in, of all interfaces.
    pub frames_in: usize,
    /// Frames that left, of all ports.
    pub frames_out: usize,
}

/// Frames that left, by port.
type Output = Vec<Vec<Vec<u8>>>;

/// Compares what each build sends with what the first one does.
pub fn compare(builds: &[Build], machine: &Machine) -> Result<Compared> {
    let frames = read(&Path::new(FIXTURES).join("lan.pcapng"))?;
    let rules = std::fs::read_to_string(Path::new(FIXTURES).join("lan.rules"))?;
    let (stock, others) = builds.split_first().context("no builds")?;
    let mut compared = Compared::default();
    for (port, frames) in PORTS.into_iter().zip(&frames) {
        eprintln!("capture, port {port}");
        let folder = Folder::new("capture")?;
        let mut input = CaptureSet::create(folder.path(), &[port])?;
        for _ in 0..TIMES {
            frames.iter().try_for_each(|frame| input.write(port, 0, frame))?;
        }
        let [(_, input, count)] = &input.finish()?[..] else { bail!("one file") };
        let expected = forward(stock, port, input, *count, &rules)?;
        compared.frames_in += *count as usize;
        compared.frames_out += expected.iter().map(Vec::len).sum::<usize>();
        for build in others {
            machine.check()?;
            let found = forward(build, port, input, *count, &rules)?;
            if let Some(why) = differs(&expected, &found) {
                bail!("{}: frames of port {port}: {why}", build.name);
            }
        }
    }
    if compared.frames_out == 0 {
        bail!("no frames of the capture left the switch");
    }
    compared.designs = others.iter().map(|build| build.name.clone()).collect();
    Ok(compared)
}

/// Returns where two outputs first differ.
fn differs(expected: &Output, found: &Output) -> Option<String> {
    let ports = PORTS.iter().zip(expected.iter().zip(found));
    ports
        .filter(|(_, (a, b))| a != b)
        .map(|(port, (a, b))| {
            let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
            let (a, b) = (a.len(), b.len());
            format!(
                "{b} frames left port {port}, expected {a}; frame {at} is the first that differs"
            )
        })
        .next()
}

/// Returns the frames of a capture by interface.
fn read(path: &Path) -> Result<Output> {
    let mut frames = vec![Vec::new(); PORTS.len()];
    let mut capture = Capture::open(path)?;
    while let Some(packet) = capture.next_packet()? {
        let of = frames.get_mut(packet.interface as usize).context("an interface too many")?;
        of.push(packet.data.to_vec());
    }
    Ok(frames)
}

/// Sends the `count` frames of `input` in by `port`; returns what leaves.
fn forward(build: &Build, port: u32, input: &Path, count: u64, rules: &str) -> Result<Output> {
    let vswitch = Switch::bare(build, None)?;
    vswitch.vsctl(
        "set Open_vSwitch . other_config:emc-insert-inv-prob=0 other_config:smc-enable=true",
    )?;
    let sent = |port: u32| -> PathBuf { vswitch.file(&format!("{port}.pcap")) };
    let add = |number: u32, input: &str| {
        let device = format!("net_pcap{number}{input},tx_pcap={}", sent(number).display());
        let pinned =
            if input.is_empty() { format!("other_config:{PINNED}") } else { String::new() };
        let interface = format!(
            "add-port br0 p{number} -- set interface p{number} type=dpdk ofport_request={number} \
             options:dpdk-devargs=\"{device}\" {pinned}"
        );
        vswitch.vsctl(&interface)
    };
    let run = || -> Result<()> {
        vswitch.add_bridge()?;
        for other in PORTS.into_iter().filter(|&other| other != port) {
            add(other, "")?;
        }
        add(port, &format!(",rx_pcap={}", input.display()))?;
        vswitch.add_rules(rules)?;
        vswitch.check_ports()?;
        vswitch.vsctl(&format!("set interface p{port} other_config:{PINNED}"))?;
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let text = vswitch.appctl("dpif-netdev/pmd-stats-show", &["-pmd", "1"])?;
            let seen = parse(&text, 0.0).unwrap_or_default();
            if seen.packets >= count {
                let own = build.name != STOCK && build.name != BUILT_IN;
                if seen.signature == 0.0 || seen.table.is_some() != own {
                    bail!("not the cache that was asked for: {text}");
                }
                return Ok(());
            }
            if Instant::now() > limit {
                bail!("received {} of {count} frames", seen.packets);
            }
        }
    };
    run().with_context(|| format!("{}: {}", build.name, vswitch.last_words()))?;
    // Batches leave at once, and each is flushed to its file.
    std::thread::sleep(Duration::from_millis(100));
    let frames = |port| {
        let file = sent(port);
        // A port that sent nothing wrote no header.
        let empty =
            std::fs::metadata(&file).with_context(|| file.display().to_string())?.len() == 0;
        Ok(if empty { Vec::new() } else { read(&file)?.swap_remove(0) })
    };
    PORTS.into_iter().map(frames).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capture_has_frames_on_every_port_and_differences_are_found() {
        let frames = read(&Path::new(FIXTURES).join("lan.pcapng")).unwrap();
        assert!(frames.iter().all(|frames| frames.len() > 10));
        assert!(differs(&frames, &frames).is_none());
        let mut other = frames.clone();
        other[1][3][0] ^= 1;
        assert!(differs(&frames, &other).unwrap().contains("port 2, expected"));
        other.clone_from(&frames);
        other[2].pop();
        let why = differs(&frames, &other).unwrap();
        assert!(why.contains(&format!("frame {} is the first", frames[2].len() - 1)), "{why}");
    }
}
