//! What is written here, read by Open vSwitch: `ovs-ofctl ofp-parse` prints every sample, and says
//! of it what was put in. Needs ovs-ofctl.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{encode, hex, samples};
use overbank_openflow::Version;

/// What ofp-parse prints of these messages, one after the other.
fn print(bytes: &[u8]) -> Option<String> {
    let mut child = Command::new("ovs-ofctl")
        .args(["-mmm", "ofp-parse", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(bytes).expect("ovs-ofctl reads its input");
    let output = child.wait_with_output().expect("ovs-ofctl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn open_vswitch_reads_every_message() {
    if !overbank_testing::needs("ovs-ofctl", print(&[]).is_some()) {
        return;
    }
    let mut faults = String::new();
    for version in Version::ALL {
        for sample in samples(version) {
            if sample.prints.is_empty() {
                continue;
            }
            let bytes = encode(&sample.message, version);
            let said = print(&bytes).expect("it was there a moment ago");
            let missing = sample.prints.iter().find(|&&text| !said.contains(text));
            let refused = ["***", "decode error", "WARN"].iter().any(|word| said.contains(word));
            if missing.is_some() || refused {
                faults += &format!(
                    "{version} {}: {}\nmissing {missing:?} in\n{said}\n",
                    sample.message.name(),
                    hex(&bytes)
                );
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
