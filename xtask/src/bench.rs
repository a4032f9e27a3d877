//! `cargo xtask bench`: measures at full size what is too slow for each change, and records it.
//!
//! Runs the programs below one after another and writes `target/bench/DATE-COMMIT.json`: the
//! machine, the commit, and for each program its command, its time and its output (as JSON where it
//! is JSON, else as lines). Numbers from a busy machine say little: the record holds the load
//! before the first program.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::root;
use crate::steps::shown;
use crate::test::cargo;

struct Program {
    name: &'static str,
    /// For cargo.
    arguments: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program { name: "probe", arguments: "run --release --locked -p overbank --example probe" },
    Program {
        name: "uniform-1e5",
        arguments: "run --release --locked -p overbank-cli -- replay --flows 100000 --format json",
    },
    Program {
        name: "uniform-1e6",
        arguments: "run --release --locked -p overbank-cli -- replay --flows 1000000 --format json",
    },
    Program {
        name: "zipf-1e6",
        arguments: "run --release --locked -p overbank-cli -- replay --flows 1000000 \
                    --zipf 0.99 --format json",
    },
    Program {
        name: "capture",
        arguments: "run --release --locked -p overbank-cli -- replay tests/fixtures/lan.pcapng \
                    --rules tests/fixtures/lan.rules --seconds 2 --format json",
    },
    // A tenth of the billion entries that `lab run` goes up to.
    Program {
        name: "fib-1e8",
        arguments: "run --release --locked -p overbank-cli -- lab run fib5 fib6 fib7 fibwriter \
                    --entries 100M --out target/bench/fib-1e8 --format json --quiet",
    },
];

#[derive(Args)]
pub struct Options {
    /// Programs: probe, uniform-1e5, uniform-1e6, zipf-1e6, capture, fib-1e8 [default: all]
    programs: Vec<String>,
}

/// Runs the programs and writes the record, even if some fail.
pub fn run(options: &Options) -> Result<()> {
    for name in &options.programs {
        if !PROGRAMS.iter().any(|program| program.name == name) {
            let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
            bail!("unknown program {name}; known: {}", known.join(", "));
        }
    }
    let chosen =
        |name: &str| options.programs.is_empty() || options.programs.iter().any(|n| n == name);
    let folder = root().join("target/bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let date = output_of(Command::new("date").args(["-u", "+%Y-%m-%dT%H-%M-%SZ"]));
    let commit = output_of(git().args(["rev-parse", "--short=12", "HEAD"]));
    let mut record = json!({
        "date": date,
        "commit": commit,
        "changed_since_commit": !output_of(git().args(["status", "--porcelain"])).is_empty(),
        "machine": machine(),
        "runs": [],
    });
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    for program in PROGRAMS.iter().filter(|program| chosen(program.name)) {
        let mut command = cargo(program.arguments);
        println!("=== {}: {}", program.name, shown(&command));
        let start = Instant::now();
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", shown(&command)))?;
        let seconds = start.elapsed().as_secs_f64();
        if !output.status.success() {
            failed.push(program.name);
        }
        println!("--- {}: {}, {seconds:.1} s", program.name, output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        let result = serde_json::from_str::<Value>(&text).unwrap_or_else(|_| {
            println!("{text}");
            text.lines().map(Value::from).collect()
        });
        runs.push(json!({
            "name": program.name,
            "command": format!("cargo {}", program.arguments),
            "succeeded": output.status.success(),
            // Including building, where necessary.
            "seconds": seconds,
            "output": result,
        }));
    }
    record["runs"] = Value::Array(runs);
    let file = folder.join(format!("{date}-{commit}.json"));
    let text = serde_json::to_string_pretty(&record).context("a record is JSON")?;
    fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    println!("recorded in {}", file.display());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(root());
    command
}

/// Returns a command's output, or nothing if it failed: better a record without a line than no
/// record.
fn output_of(command: &mut Command) -> String {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_string()
        }
        _ => String::new(),
    }
}

fn machine() -> Value {
    // A file that a machine lacks leaves its line of the record empty.
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_kib = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0u64);
    json!({
        "cpu": model.map_or("", |(_, name)| name),
        "cpus": cpus,
        "memory_kib": memory_kib,
        "kernel": read("/proc/sys/kernel/osrelease"),
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_before": read("/proc/loadavg"),
        "rustc": output_of(Command::new("rustc").arg("--version")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_its_machine() {
        let machine = machine();
        assert!(machine["cpus"].as_u64().is_some_and(|n| n > 0), "{machine}");
        assert!(machine["memory_kib"].as_u64().is_some_and(|n| n > 0), "{machine}");
    }

    #[test]
    fn an_unknown_program_is_refused() {
        let error = run(&Options { programs: vec!["nothing".into()] }).expect_err("unknown");
        assert!(error.to_string().contains("zipf-1e6"));
    }
}
