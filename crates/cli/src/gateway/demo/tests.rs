//! The script's words, and the screen at several sizes.

use super::script::{Command, Script};

#[test]
fn a_script_is_read_whole_or_refused() {
    let script: Script = " kill 2; wait 1.5;;\nmove 0 500; settle; slow 1 ".parse().expect("valid");
    let words: Vec<String> = script.commands().map(|command| command.to_string()).collect();
    assert_eq!(words, ["kill 2", "wait 1.5", "move 0 500", "settle", "slow 1"]);
    for (text, wanted) in [
        ("", "no command; must be some of kill N"),
        (";;", "no command"),
        ("kil 2", "\"kil 2\": must be one of kill N, start N"),
        ("kill 2; kill", "\"kill\": must be one of"),
        ("kill 32", "\"kill 32\": N must be 0 to 31"),
        ("drain -1", "\"drain -1\": N must be 0 to 31"),
        ("wait 0", "\"wait 0\": S must be 0.01 to 3600"),
        ("wait NaN", "\"wait NaN\": S must be 0.01 to 3600"),
        ("move 1 0", "\"move 1 0\": COUNT must be 1 to 1000000"),
        (&"settle;".repeat(1001), "more than 1000 commands"),
    ] {
        let refused = text.parse::<Script>().map(|_| ()).expect_err(text);
        assert!(refused.starts_with(wanted), "{text}: {refused}");
    }
    assert!("wait 0.01".parse::<Command>().is_ok());
}
