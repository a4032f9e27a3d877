//! Captures for tests: written as pcap, and judged by tshark.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// What tshark must not find: every expert item above a chat, wrong checksums among them.
pub const FAULTS: &str = "_ws.malformed || _ws.expert.severity >= 0x400000";

/// Writes frames of Ethernet as a pcap file.
///
/// # Errors
/// The file cannot be written.
pub fn write<'a>(path: &Path, frames: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend([0u32, 0, 65_535, 1].iter().flat_map(|word| word.to_le_bytes()));
    for frame in frames {
        let len = frame.len() as u32;
        bytes.extend([1u32, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    fs::write(path, bytes)
}

/// Returns what tshark prints of the frames that `filter` finds: one line each, these fields or a
/// summary.
///
/// # Panics
/// If tshark cannot be run or fails.
#[must_use]
pub fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    for checks in ["ip", "tcp", "udp"] {
        command.arg("-o").arg(format!("{checks}.check_checksum:TRUE"));
    }
    command.args(["-n", "-o", "gtp.dissect_tpdu_as:TPDU heuristic", "-Y", filter]);
    if !fields.is_empty() {
        command.args(["-T", "fields", "-E", "occurrence=f"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
    }
    let output = command.arg("-r").arg(capture).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
