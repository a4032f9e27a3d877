//! `overbank gateway demo` as a script sees it. No network, no privileges.

use serde_json::Value;
use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.args(["gateway", "demo"]).args(arguments).output().expect("the command starts")
}

/// The text that it prints.
fn printed(arguments: &[&str]) -> String {
    let output = demo(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Each document that it prints; packets are never misrouted, and accounts close.
fn documents(arguments: &[&str]) -> Vec<Value> {
    let text = printed(&[arguments, &["--format", "json"]].concat());
    let documents: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect();
    for document in &documents {
        assert_eq!(document["schema"], "overbank.gateway-demo.v1");
        assert_eq!((&document["misrouted"], &document["closes"]), (&0.into(), &true.into()));
        let of = |name: &str| document[name].as_u64().expect("a count");
        let dropped = document["dropped"].as_object().expect("by reason").values();
        let dropped: u64 = dropped.map(|count| count.as_u64().expect("a count")).sum();
        assert_eq!(of("received"), of("uplink") + of("downlink") + of("lost") + dropped);
        assert_eq!(of("right"), of("uplink") + of("downlink"));
    }
    documents
}

fn missing(document: &Value) -> u64 {
    let of = |name: &str| document[name].as_u64().expect("a count");
    of("received") + of("turned_away") - of("right")
}

#[test]
fn drains_joins_and_moves_lose_no_packet() {
    let script = "wait 1; drain 1; settle; start 1; start 6; settle; move 6 500; settle; wait 1";
    let documents = documents(&["--sessions", "3000", "--script", script]);
    let last = documents.last().expect("some");
    assert_eq!((missing(last), &last["serving"]), (0, &3000.into()));
    let (done, refused) = (last["moves_done"].as_u64(), last["moves_refused"].as_u64());
    assert_eq!(done.zip(refused).map(|(done, refused)| done + refused), Some(500));
    assert_eq!(
        (&last["nodes"][6]["serving"], last["members"].as_u64()),
        (&last["moves_done"], Some(5))
    );
    let drained = documents.iter().any(|d| d["nodes"][1]["serving"] == 0);
    assert!(drained, "node 1 gave all away");
}

#[test]
fn a_dead_nodes_sessions_are_handled_again_and_nothing_is_lost_after() {
    let script = "wait 1; kill 2; wait 9; start 2; settle; wait 1";
    let documents = documents(&["--sessions", "3000", "--script", script]);
    let lost = |second: usize| missing(&documents[second - 1]);
    assert_eq!(lost(1), 0);
    assert!(lost(3) > 5000, "{}", lost(3));
    assert_eq!(lost(9), missing(documents.last().expect("some")), "nothing more is lost");
    let state = |second: usize| &documents[second - 1]["nodes"][2]["state"];
    assert_eq!(
        (state(1), state(5), &documents.last().expect("some")["serving"]),
        (&"live".into(), &"down".into(), &3000.into())
    );
}

#[test]
fn a_node_that_is_cut_off_is_fenced() {
    let documents = documents(&["--sessions", "2000", "--script", "cut 1; wait 9; heal 1; settle"]);
    let fenced = documents.iter().find(|d| d["nodes"][1]["state"] == "fenced").expect("fenced");
    assert_eq!(fenced["nodes"][1]["serving"], 0);
    let last = documents.last().expect("some");
    assert_eq!((&last["nodes"][1]["state"], &last["serving"]), (&"live".into(), &2000.into()));
}

#[test]
fn unknown_sessions_are_dropped_by_name() {
    let documents = documents(&["--sessions", "2000", "--unknown", "50", "--seconds", "2"]);
    let last = documents.last().expect("some");
    let share = missing(last) as f64 / last["received"].as_f64().expect("a count");
    assert!((0.45..0.55).contains(&share), "{share}");
    assert!(last["dropped"]["unknown_teid"].as_u64() > Some(1000));
    assert_eq!(last["lost"], 0);
}

#[test]
fn the_same_command_prints_the_same_lines() {
    let arguments = ["--nodes", "3", "--sessions", "500", "--script", "wait 1; kill 0; wait 5"];
    let text = printed(&arguments);
    assert_eq!(text, printed(&arguments));
    for wanted in ["node 0 was killed", "0 down; 1 live; 2 live", "0 misrouted; 500 sessions"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let other = printed(&[&arguments[..], &["--seed", "2"]].concat());
    assert_ne!(text, other);
}

#[test]
fn bad_arguments_have_one_clear_line() {
    for (arguments, code, wanted) in [
        (&["--nodes", "0"][..], 2, "0 is not in 1..=32"),
        (&["--nodes", "33"], 2, "33 is not in 1..=32"),
        (&["--sessions", "0"], 2, "0 is not in 1..=1000000"),
        (&["--rate", "1000001"], 2, "1000001 is not in 0..=1000000"),
        (&["--seconds", "0"], 2, "0 is not in 1..=86400"),
        (&["--script", "kil 2"], 2, "\"kil 2\": must be one of kill N, start N"),
        (&["--script", ""], 2, "no command; must be some of kill N"),
        (
            &["--nodes", "32", "--sessions", "1000000"],
            1,
            "--sessions 1000000: must be at most 250000 with 32 nodes",
        ),
        (&["--script", "kill 9"], 1, "--script: kill 9: node 9 does not run"),
        (&["--script", "start 1"], 1, "--script: start 1: node 1 runs already"),
        (&["--script", "kill 1; drain 1"], 1, "--script: drain 1: node 1 is no member"),
        (&["--script", "move 8 5"], 1, "--script: move 8 5: node 8 is not live"),
        (&["--nodes", "1", "--script", "kill 0; settle"], 1, "settle: the cluster has not settled"),
    ] {
        let output = demo(arguments);
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        let line = errors.lines().next().unwrap_or_default();
        assert!(line.contains(wanted), "{wanted}: {errors}");
        assert!(code == 2 || errors.lines().count() == 1, "{errors}");
    }
}
