//! PFCP in a cluster: an SMF speaks to one address; the node that answers dies, another goes on.

use crate::cluster::{Cluster, NODES, SMF, speaker, within};
use crate::lab::python;
use crate::process::must;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const N4: &str = "10.79.3.9";

#[test]
fn an_smf_goes_on_when_the_node_that_answers_it_dies() {
    let Some(python) = python() else { return };
    let options = &["--pfcp", "10.79.3.9:8805", "--pfcp-interface", "mgmt"];
    let Some(mut cluster) = Cluster::start("n4", options) else { return };
    within(20, "a speaker", || speaker(&cluster).is_some());
    let first = speaker(&cluster).expect("a speaker");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/smf.py");
    let mut smf = Command::new("ip")
        .args(["netns", "exec", &cluster.space])
        .arg(python)
        .arg(script)
        .args([SMF, N4, "198.51.100.7", "0x1001", "10.45.0.2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an SMF");
    let mut said = BufReader::new(smf.stdout.take().expect("piped")).lines();
    let line = said.next().expect("a line").expect("text");
    let teid = line.strip_prefix("TEID ").unwrap_or_else(|| panic!("{line}")).to_owned();

    // Any node takes its packets; by request it cannot be changed.
    let handled = cluster.packets_by(&teid, &[0, 1, 2]);
    let home = *handled.first().expect("one handles them");
    assert_eq!(handled, [home; 3]);
    let listed = cluster.command(home, &["sessions", "list", "--format", "json"]).1;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let id = &listed["sessions"][0]["id"];
    let id = id.as_u64().unwrap_or_else(|| panic!("{listed}")).to_string();
    assert_eq!(listed["sessions"][0]["origin"], "pfcp");
    let (done, text) = cluster.command(1, &["sessions", "remove", &id]);
    assert!(!done && text.contains("is of PFCP"), "{text}");
    // The session is elsewhere than the node that dies.
    let target = (first + 1) % NODES;
    if home == first {
        cluster.must(0, &["sessions", "move", &id, "--to", &target.to_string()]);
    }

    cluster.nodes[first] = None;
    within(20, "another speaker", || speaker(&cluster).is_some());
    let others: Vec<usize> = (0..NODES).filter(|node| *node != first).collect();
    let handled = cluster.packets_by(&teid, &others);
    assert_eq!(handled.len(), 2, "the session is there");
    let space = &cluster.space;
    assert!(must(&format!("ip -n {space} -4 -o address show dev mgmt")).contains(N4));
    // The SMF has noticed nothing: it deletes its session, and gets all that was counted.
    drop(smf.stdin.take());
    let line = said.next().expect("a line").expect("text");
    // IPv4, UDP and eight bytes of each of five packets.
    assert_eq!(line, format!("deleted; bytes up {} down 0", 5 * 36));
    assert!(smf.wait().expect("it ends").success());
    assert!(cluster.packets_by(&teid, &others).is_empty());
}
