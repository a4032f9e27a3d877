//! The same programs, built without hooks, under callgrind: a simulator of caches by others.
//!
//! ```text
//! build of the index      not collected        toggled by the loop that serves requests
//! warm-up                 collected, dropped   counters are zero at the start of each pass
//! measured requests       collected            the client has its list of requests in the cache
//! ```

use overbank_products::sdc::program::{Ended, to_its_end};
use overbank_sdc::Level;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The build without hooks, from the folder of the one with them.
const PLAIN: &str = "../plain/release/overbank-workloads";
/// The loop that serves requests, in two ways: callgrind takes one option a pattern.
pub const SERVE: [&str; 2] = ["*Pair*Store*serve*", "*Store*serve*"];
/// The loop of a walk.
pub const WALK: [&str; 2] = ["overbank_watched::walk::walk", "*::walk::walk"];
/// Functions of the client begin like this.
const CLIENT: [&str; 3] =
    ["overbank_client_", "overbank_workloads::", "overbank_watched::item::expected"];
/// Events before those of misses.
const REFERENCES: usize = 3;
const EVENTS: &str = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw";

/// What callgrind counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Without the client's.
    pub instructions: u64,
    /// Loads and stores, without the client's.
    pub references: u64,
    /// Loads and stores that L1 has not, the client's too.
    pub l1: u64,
    /// Those that the last level has not.
    pub llc: u64,
}

/// Callgrind and the program that it runs.
pub struct Callgrind {
    program: PathBuf,
}

impl Callgrind {
    /// Finds both; says in one line what is missing.
    pub fn find(watched: &Path) -> Result<Callgrind, String> {
        let program = watched.parent().map(|folder| folder.join(PLAIN));
        let program = program.filter(|path| path.is_file()).ok_or(
            "the program without hooks is not there: build it by `cargo xtask workloads --plain`",
        )?;
        for (tool, package) in [("valgrind", "valgrind"), ("setarch", "util-linux")] {
            let there = Command::new(tool).arg("--version").output();
            if !there.is_ok_and(|there| there.status.success()) {
                return Err(format!("{tool} is not there: install the Debian package {package}"));
            }
        }
        Ok(Callgrind { program })
    }

    /// Runs the program; counts what one of [`WALK`] and [`SERVE`] does, in its last call.
    pub fn run(
        &self,
        [l1, llc]: [Level; 2],
        [toggle, zero]: [&str; 2],
        arguments: &[String],
        stopped: &dyn Fn() -> bool,
    ) -> Result<Counts, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = folder.path().join("out");
        let cache =
            |name: &str, level: Level| format!("--{name}={},{},64", level.bytes, level.ways);
        let mut command = Command::new("setarch");
        command.args(["-R", "valgrind", "--tool=callgrind", "--cache-sim=yes"]);
        command.args([cache("I1", l1), cache("D1", l1), cache("LL", llc)]);
        command.args(["--compress-strings=no", "--compress-pos=no"]);
        command.arg(format!("--toggle-collect={toggle}")).arg(format!("--zero-before={zero}"));
        command.arg(format!("--callgrind-out-file={}", file.display()));
        let ran = output(command.arg(&self.program).args(arguments), stopped);
        // It has run to its end if all that it misses is the hooks.
        match ran {
            Err(why) if !why.contains("built without hooks") => return Err(why),
            _ => {}
        }
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        counts(&text).ok_or_else(|| "cannot read what callgrind wrote".to_owned())
    }
}

/// Runs a command to its end; ends it if all is stopped. Returns what it printed, or all that it
/// said of its failure.
pub fn output(command: &mut Command, stopped: &dyn Fn() -> bool) -> Result<String, String> {
    let ended = to_its_end(command, stopped).map_err(|error| error.to_string())?;
    let Ended { status, mut out, mut errors } = ended;
    let read = |file: &mut File| {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map(|_| text).map_err(|error| error.to_string())
    };
    if status.success() {
        return read(&mut out);
    }
    let text = read(&mut errors)?;
    let said = text.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>();
    Err(format!("{status}: {}", said.join("; ")))
}

/// Adds the own costs of all functions; instructions and references of all but the client's.
fn counts(text: &str) -> Option<Counts> {
    text.lines().find(|line| *line == EVENTS)?;
    let mut sum = [0u64; 9];
    let (mut client, mut call) = (false, false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            client = CLIENT.iter().any(|start| name.starts_with(start));
        } else if line.starts_with("calls=") {
            // The next line has the costs of what was called, which has lines too.
            call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) && !std::mem::take(&mut call) {
            let costs = line.split_whitespace().skip(1).map(str::parse);
            let skipped = if client { REFERENCES } else { 0 };
            for (sum, cost) in sum.iter_mut().zip(costs).skip(skipped) {
                *sum += cost.unwrap_or(0);
            }
        }
    }
    let [instructions, loads, stores, _, l1_loads, l1_stores, _, loads_llc, stores_llc] = sum;
    Some(Counts {
        instructions,
        references: loads + stores,
        l1: l1_loads + l1_stores,
        llc: loads_llc + stores_llc,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_costs_are_added_without_the_clients() {
        let text = format!(
            "version: 1\n{EVENTS}\nsummary: 99\n\nfl=a.rs\nfn=serve\n7 10 4 2 0 1\nfi=b.rs\n9 5 \
             1\ncfn=overbank_client_next\ncalls=3 0\n8 90 80\n\nfn=overbank_client_next\n3 90 \
             80 0 0 1\n\nfn=find\n12 3 1 1 0 1 1 0 1 1\n"
        );
        let expected = Counts { instructions: 18, references: 9, l1: 4, llc: 2 };
        assert_eq!(counts(&text), Some(expected));
        assert_eq!(counts("events: Ir\nfn=a\n1 1\n"), None);
    }
}
