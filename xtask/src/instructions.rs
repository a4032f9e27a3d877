//! `cargo xtask instructions`: instructions per packet in each tier, of tunnels and of messages of
//! the key-value protocol, counted by valgrind.
//!
//! The count does not depend on the load of the machine, so commits can be compared. Valgrind lacks
//! AVX-512: the lookups of tier 1 are those for AVX2.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::packages::{self, Package};
use crate::root;
use crate::steps;
use crate::test::cargo;

const VALGRIND: &[Package] =
    &[Package { name: "valgrind", sign: &["valgrind", "--version"], needed_by: "the counts" }];

#[derive(Args)]
pub struct Options {
    /// Designs of tier 1 to measure
    #[arg(default_values = ["set-4", "set-16", "cuckoo-2-4", "blp-2-4", "blp-2-16",
                            "blp-2-16+pblru"])]
    designs: Vec<String>,
}

/// Counts and prints a table.
pub fn run(options: &Options) -> Result<()> {
    packages::ensure(VALGRIND, true)?;
    steps::run(&mut cargo("build --release -p overbank-products --example tiers"))?;
    steps::run(&mut cargo("build --release -p overbank-wire --example tunnel"))?;
    steps::run(&mut cargo("build --release -p overbank-netcache --example queries"))?;
    steps::run(&mut cargo("build --release -p overbank --example sketch --example lookaside"))?;
    println!("instructions per packet, 60-byte UDP frames, 20 megaflow masks\n");
    for design in &options.designs {
        let count = count("tiers", &["1", design])?;
        println!("tier 1, hit in {design:<18} {count:>8.1}");
    }
    println!("tier 2, hit, no tier 1            {:>8.1}", count("tiers", &["2"])?);
    println!("tier 3, caches emptied before     {:>8.1}", count("tiers", &["3"])?);
    tunnels()?;
    queries()?;
    lookaside()
}

/// Counts the ways of a packet of 46 bytes into a GTP-U tunnel and out of it.
fn tunnels() -> Result<()> {
    println!(
        "\ninstructions per packet, 46-byte UDP packets in GTP-U with a PDU Session Container\n"
    );
    for (what, text) in [("short-decap", "out of a tunnel"), ("short-encap", "into a tunnel")] {
        println!("short path, {text:<21} {:>8.1}", count("tunnel", &[what, "4"])?);
    }
    for version in ["4", "6"] {
        for (what, text) in
            [("read", "headers read"), ("decap", "out of a tunnel"), ("encap", "into a tunnel")]
        {
            println!(
                "IPv{version} outside, {text:<17} {:>8.1}",
                count("tunnel", &[what, version])?
            );
        }
    }
    Ok(())
}

/// Counts what a device does to a message, and its sketch to a key.
fn queries() -> Result<()> {
    println!("\ninstructions per message of the key-value protocol, 1,024 cached keys\n");
    for (what, text) in
        [("hit", "read, answered"), ("miss", "read, forwarded"), ("put", "write, marked")]
    {
        for bytes in ["16", "128", "1408"] {
            println!("{text:<18} {bytes:>4} bytes     {:>8.1}", count("queries", &[what, bytes])?);
        }
    }
    println!("\ninstructions per key in the sketch\n");
    for log2 in ["0", "10"] {
        println!("one in 2^{log2:<2} sampled          {:>8.1}", count("sketch", &["count", log2])?);
    }
    Ok(())
}

/// Operations of a look-aside table from `u64` to `u64`, and the most instructions that each takes.
const LOOKASIDE: [(&str, &str, f64); 5] = [
    ("hit", "hit", 82.0),
    ("burst", "hit in a burst", 98.0),
    ("miss", "miss", 70.0),
    ("fill", "miss of a full bucket, answer", 300.0),
    ("write", "write that updates an entry", 180.0),
];

/// Counts what a look-aside table does to a key; fails above the bounds.
fn lookaside() -> Result<()> {
    println!("\ninstructions per key of a look-aside table\n");
    let mut above = Vec::new();
    for (what, text, most) in LOOKASIDE {
        let count = count("lookaside", &[what])?;
        println!("{text:<30} {count:>8.1}");
        if count > most {
            above.push(format!("{text}: {count:.1}, at most {most}"));
        }
    }
    if !above.is_empty() {
        bail!("more instructions than expected: {}", above.join("; "));
    }
    Ok(())
}

/// Returns the instructions of the functions `measured` of an example, per packet.
fn count(example: &str, arguments: &[&str]) -> Result<f64> {
    let out = root().join("target/callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(root().join("target/release/examples").join(example))
        .args(arguments)
        .output()
        .context("valgrind did not start")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{example} {} failed:\n{said}", arguments.join(" "));
    }
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    let collected: f64 = collected.context("valgrind printed no count")?.trim().parse()?;
    let packets: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(collected / packets)
}
