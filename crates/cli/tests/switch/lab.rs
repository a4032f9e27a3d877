//! The lab of docs/gateway.md: an SMF, a base station and a host around the gateway.

use crate::gateway::Site;
use crate::net::Serving;
use crate::process::{Running, sh, totals_of, wait};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn python() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scapy");
    let python =
        std::env::var_os("OVERBANK_SCAPY").map_or(folder, PathBuf::from).join("bin/python");
    overbank_testing::needs("scapy (cargo xtask test packages)", python.exists()).then_some(python)
}

#[test]
fn the_lab_of_the_manual_works() {
    let (Some(site), Some(python)) = (Site::new("gl"), python()) else { return };
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
    let running = Running::start(site.gateway("afxdp").args(["--pfcp", "10.79.3.9:8805"]));
    let start = |host: u8, script: &str, arguments: &str| {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &site.net.space(host)])
            .arg(&python)
            .arg(lab.join(script))
            .args(arguments.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python is there");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        (child, lines.map(|line| line.expect("text")))
    };
    let (mut smf, mut said) = start(3, "smf.py", "10.79.3.1 10.79.3.9 10.79.1.1 0x2001 10.45.0.2");
    let line = said.next().expect("a TEID");
    let teid = line.strip_prefix("TEID ").unwrap_or_else(|| panic!("{line}"));
    let arguments = format!("10.79.1.1 10.79.1.9 {teid} 0x2001 10.45.0.2");
    let (gnb, mut up) = start(1, "gnb.py", &arguments);
    let _gnb = Serving(gnb);
    assert_eq!(up.next().as_deref(), Some("ue0 is up"));
    let inside = |command: &str| sh(&format!("ip netns exec {} {command}", site.net.space(1)));
    assert!(inside("ip route add default dev ue0").status.success());
    wait("an answer", || inside("ping -c 1 -W 1 10.79.2.1").status.success());
    // N4 is out of the terminal's reach.
    assert!(!inside("ping -c 1 -W 1 10.79.3.9").status.success());
    drop(smf.stdin.take());
    let usage = said.next().expect("the usage");
    assert!(usage.starts_with("deleted; bytes up "), "{usage}");
    assert!(smf.wait().expect("it ends").success());
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    let bytes = |name: &str| totals["total"][name].as_u64().expect("a number");
    let (uplink, downlink) = (bytes("uplink_bytes"), bytes("downlink_bytes"));
    assert_eq!(usage, format!("deleted; bytes up {uplink} down {downlink}"));
    assert_eq!(totals["ports"][0]["dropped"]["to_control"], 1);
}
