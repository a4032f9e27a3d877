//! `cargo xtask peers`: measures products of others beside Overbank on the same machine.
//!
//! ```text
//!  packages, ─▶ format, clippy, ─▶ build ─▶ overbank-peers tables | aside | mdbx | fib |
//!  sources      tests of peers/             partition | live | ovs | smc | explosion | control
//!                                          (peers/README.md)
//! ```
//!
//! The crate `peers` lies outside the workspace: it links DPDK, compiles libcuckoo and runs Open
//! vSwitch, and nothing that people build by default should need any of them. Everything is made
//! and written below `target/peers`. Needs root to install packages, to reserve huge pages and to
//! run Open vSwitch.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::packages::{self, Package};
use crate::root;
use crate::steps::{self, shown};
use crate::test::cargo;

/// Packages for building the crate.
pub const BUILD: &[Package] = &[
    Package { name: "gcc", sign: &["gcc"], needed_by: "peers: the C shims" },
    Package { name: "g++", sign: &["g++"], needed_by: "peers: the C++ shim" },
    Package {
        name: "libcuckoo-dev",
        sign: &["test", "-f", "/usr/include/libcuckoo/cuckoohash_map.hh"],
        needed_by: "peers: libcuckoo",
    },
    Package { name: "pkg-config", sign: &["pkg-config"], needed_by: "peers: finds DPDK" },
    Package {
        name: "libdpdk-dev",
        sign: &["pkg-config", "--exists", "libdpdk"],
        needed_by: "peers: rte_member, rte_hash, rte_efd",
    },
    Package { name: "xz-utils", sign: &["xz", "--version"], needed_by: "peers: DPDK's source" },
];

/// Further packages for building it with libmdbx.
const MDBX: &[Package] = &[Package {
    name: "libclang-dev",
    sign: &["sh", "-c", "ls /usr/lib/llvm-*/lib/libclang.so.* /usr/lib/llvm-*/lib/clang/*/include"],
    needed_by: "peers mdbx: bindings of libmdbx",
}];

const LIVE: &[Package] = &[
    Package { name: "openvswitch-switch", sign: &["ovs-vswitchd"], needed_by: "peers live" },
    Package { name: "iproute2", sign: &["ip"], needed_by: "peers live: interfaces" },
];

const OVS: &[Package] = &[
    Package { name: "openvswitch-switch", sign: &["ovs-vsctl"], needed_by: "peers ovs: its tools" },
    Package {
        name: "openvswitch-switch-dpdk",
        sign: &[DEBIAN],
        needed_by: "peers ovs: Debian's build",
    },
    Package {
        name: "librte-net-null23",
        sign: &["sh", "-c", "ls /usr/lib/*/dpdk/pmds-*/librte_net_null.so*"],
        needed_by: "peers ovs: ports without a card",
    },
    Package {
        name: "librte-mempool-ring23",
        sign: &["sh", "-c", "ls /usr/lib/*/dpdk/pmds-*/librte_mempool_ring.so*"],
        needed_by: "peers ovs: packet buffers",
    },
];

const NATIVE: &[Package] = &[
    Package { name: "make", sign: &["make"], needed_by: "peers ovs --native" },
    Package { name: "python3", sign: &["python3"], needed_by: "peers ovs --native" },
    Package {
        name: "openvswitch-source",
        sign: &["test", "-f", SOURCE],
        needed_by: "peers ovs --native: what is built",
    },
];

const PATCHED: &[Package] = &[
    Package { name: "patch", sign: &["patch", "--version"], needed_by: "peers ovs --patched" },
    Package {
        name: "librte-net-pcap23",
        sign: &["sh", "-c", "ls /usr/lib/*/dpdk/pmds-*/librte_net_pcap.so*"],
        needed_by: "peers ovs --patched: a capture through the switch",
    },
];

/// The source of Debian's DPDK, and its SHA-256.
const DPDK: [&str; 2] = [
    "http://deb.debian.org/debian/pool/main/d/dpdk/dpdk_22.11.11.orig.tar.xz",
    "27a3bb1f57e02eb68c7c0a6f8bbf9fb74ec198c5aab74ed602da5b71c492a476",
];
/// Downloads by the settings of apt (mirrors, proxies) and checks the sum.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

const DEBIAN: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SOURCE: &str = "/usr/src/openvswitch/openvswitch.tar.gz";
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    /// List the contestants, and measure nothing
    #[arg(long)]
    list: bool,
    /// Run everything at a small size, with Debian's Open vSwitch: figures mean little. Results go
    /// to target/peers/smoke
    #[arg(long, conflicts_with = "list")]
    smoke: bool,
    /// What to measure [default: tables, aside, fib, partition, live, ovs --native, explosion,
    /// gateway, control]
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Measure caches: DPDK's rte_member and rte_hash, hashbrown, quick_cache, moka, Overbank
    Tables {
        /// Arguments of `overbank-peers tables`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure look-aside tables in front of an index: fixed-cache, quick_cache, moka, lru, ours
    Aside {
        /// Arguments of `overbank-peers aside`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure lookups that libmdbx caches beside our table in front of LMDB (only when named:
    /// needs libclang)
    Mdbx {
        /// Arguments of `overbank-peers mdbx`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure forwarding tables: DPDK's rte_hash, libcuckoo, hashbrown, papaya, scc, Overbank
    Fib {
        /// Arguments of `overbank-peers fib`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure partition tables: DPDK's rte_efd, SetSep, binary fuse, Overbank
    Partition {
        /// Arguments of `overbank-peers partition`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure the live switch beside Open vSwitch and the Linux bridge (as root)
    Live {
        /// Arguments of `overbank-peers live`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure Open vSwitch 3.1 with DPDK beside Overbank's datapath (as root)
    Ovs {
        /// Also build Open vSwitch for this processor (3 minutes, once) and measure it
        #[arg(long)]
        native: bool,
        /// Instead measure Open vSwitch with tables of Overbank inside, beside the native build:
        /// `overbank-peers smc`
        #[arg(long, conflicts_with = "native")]
        patched: bool,
        /// Measure nothing: run Open vSwitch's tests of the datapath on both builds (20 minutes)
        #[arg(long, requires = "patched")]
        check: bool,
        /// Arguments of `overbank-peers ovs` (or `smc`); `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure Open vSwitch 3.1 with DPDK and gtpu ports beside Overbank's gateway (as root)
    Gateway {
        /// Arguments of `overbank-peers gateway`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Packets made to have a mask each: what Open vSwitch with DPDK and Overbank's datapath leave
    /// to packets of others (as root)
    Explosion {
        /// Arguments of `overbank-peers explosion`; `-- --help` names them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure how long rules take into Open vSwitch and Overbank over OpenFlow, and out (as root)
    Control {
        /// Arguments of `overbank-peers control`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// Measurements beside Open vSwitch with DPDK.
const WITH_DPDK: [&str; 4] = ["ovs", "smc", "explosion", "gateway"];

/// Installs, checks, builds and measures.
pub fn run(options: &Options) -> Result<()> {
    let alone = |command: &'static str, arguments: &[String]| vec![(command, arguments.to_vec())];
    let all =
        ["tables", "aside", "fib", "partition", "live", "ovs", "explosion", "gateway", "control"];
    let (measurements, native) = match &options.what {
        _ if options.list => (Vec::new(), false),
        _ if options.smoke => (all.map(|command| (command, smoke())).to_vec(), false),
        None => (all.map(|command| (command, Vec::new())).to_vec(), true),
        Some(What::Tables { arguments }) => (alone("tables", arguments), false),
        Some(What::Aside { arguments }) => (alone("aside", arguments), false),
        Some(What::Mdbx { arguments }) => (alone("mdbx", arguments), false),
        Some(What::Fib { arguments }) => (alone("fib", arguments), false),
        Some(What::Partition { arguments }) => (alone("partition", arguments), false),
        Some(What::Live { arguments }) => (alone("live", arguments), false),
        Some(What::Ovs { patched: true, check: true, .. }) => return own_tests(),
        Some(What::Ovs { patched: true, arguments, .. }) => (alone("smc", arguments), true),
        Some(What::Ovs { native, arguments, .. }) => (alone("ovs", arguments), *native),
        Some(What::Explosion { arguments }) => (alone("explosion", arguments), false),
        Some(What::Gateway { arguments }) => (alone("gateway", arguments), false),
        Some(What::Control { arguments }) => (alone("control", arguments), false),
    };
    let measures = |commands: &[&str]| measurements.iter().any(|(name, _)| commands.contains(name));
    let (live, dpdk) = (measures(&["live", "control"]), measures(&WITH_DPDK));
    if (dpdk || live) && !packages::is_root() {
        bail!("Open vSwitch needs root: network namespaces, huge pages for DPDK");
    }
    packages::ensure(BUILD, true)?;
    source(true)?;
    if live {
        packages::ensure(LIVE, true)?;
    }
    if dpdk {
        packages::ensure(OVS, true)?;
    }
    let patched = measures(&["smc"]);
    if native {
        packages::ensure(NATIVE, true)?;
    }
    if patched {
        packages::ensure(PATCHED, true)?;
    }
    let mdbx = measures(&["mdbx"]);
    if mdbx {
        packages::ensure(MDBX, true)?;
    }
    let program = build(!options.list, if mdbx { " --features mdbx" } else { "" })?;
    if options.list {
        return steps::run(Command::new(&program).arg("list"));
    }
    let plugin = if dpdk { Some(flowgen()?) } else { None };
    let mut runs = Vec::new();
    for (command, arguments) in measurements {
        let mut run = Command::new(&program);
        run.arg(command);
        if ["aside", "mdbx"].contains(&command) {
            // Overbank's tables lie on huge pages: memory of malloc may do so too.
            run.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        if let Some(plugin) = plugin.as_ref().filter(|_| WITH_DPDK.contains(&command)) {
            run.arg("--flowgen").arg(plugin).arg("--vswitchd").arg(format!("debian={DEBIAN}"));
        }
        if native && ["ovs", "smc"].contains(&command) {
            run.arg("--vswitchd").arg(format!("native={}", vswitchd(false)?.display()));
        }
        if command == "smc" {
            run.arg("--vswitchd").arg(format!("patched={}", vswitchd(true)?.display()));
        }
        let task = match command {
            "smc" => "ovs --patched",
            "ovs" if native => "ovs --native",
            _ => command,
        };
        let separator = if arguments.is_empty() { "" } else { " -- " };
        let task = format!("cargo xtask peers {task}{separator}{}", arguments.join(" "));
        run.args(arguments).env("OVERBANK_PEERS_COMMAND", task);
        runs.push((command, run));
    }
    // Each is measured, even if an earlier one failed.
    let mut failed = Vec::new();
    for (name, mut run) in runs {
        if let Err(error) = measure(&mut run) {
            println!("{name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Arguments of a measurement at a small size.
fn smoke() -> Vec<String> {
    let out = folder().join("smoke").to_string_lossy().into_owned();
    vec!["--smoke".to_owned(), "--out".to_owned(), out]
}

fn folder() -> PathBuf {
    root().join("target/peers")
}

/// Ensures that `target/peers/efd` is `lib/efd` of DPDK's source; downloads it if `may_download`.
pub fn source(may_download: bool) -> Result<()> {
    let (folder, [url, sum]) = (folder().join("efd"), DPDK);
    if folder.join("rte_efd.c").is_file() {
        println!("all there: {}", folder.display());
        return Ok(());
    }
    let archive = folder.with_extension("tar.xz");
    let mut download = Command::new(APT_HELPER);
    download.args(["download-file", url]).arg(&archive).arg(format!("SHA256:{sum}"));
    if !may_download {
        bail!("DPDK's source is missing: {}", shown(&download));
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    steps::run(&mut download)?;
    let mut tar = Command::new("tar");
    tar.args(["--wildcards", "--strip-components=3", "-xJf"]).arg(&archive).arg("-C").arg(&folder);
    steps::run(tar.arg("*/lib/efd/*"))?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// Checks and builds the crate; returns its program. Not `--locked`: peers/Cargo.lock also holds
/// the dependencies of the workspace's crates and changes with them.
fn build(check: bool, features: &str) -> Result<PathBuf> {
    let build = folder().join("build");
    let crate_ = "--manifest-path peers/Cargo.toml";
    let run = |arguments: &str| {
        let mut command = cargo(arguments);
        command.env("CARGO_TARGET_DIR", &build);
        println!("\n=== {}", shown(&command));
        steps::run(&mut command)
    };
    if check {
        run(&format!("fmt {crate_} --check"))?;
        run(&format!("clippy {crate_} --release --all-targets{features} -- -D warnings"))?;
        run(&format!("test {crate_} --release{features}"))?;
    }
    run(&format!("build {crate_} --release{features}"))?;
    Ok(build.join("release/overbank-peers"))
}

/// Runs a measurement, then restores the number of huge pages, even if the program failed.
fn measure(command: &mut Command) -> Result<()> {
    // Without the file there are no huge pages to restore: both readings are empty.
    let pages = fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    println!("\n=== {}", shown(command));
    let outcome = steps::run(command.current_dir(root()));
    if fs::read_to_string(HUGE_PAGES).context(HUGE_PAGES)? != pages {
        fs::write(HUGE_PAGES, &pages).with_context(|| format!("{HUGE_PAGES}: {pages}"))?;
    }
    outcome
}

/// Builds the plugin that makes Open vSwitch's packets.
fn flowgen() -> Result<PathBuf> {
    let plugin = folder().join("flowgen.so");
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output()?;
    let flags = String::from_utf8(flags.stdout).context("pkg-config")?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O3", "-march=native", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"])
        .args(flags.split_whitespace())
        .arg(root().join("peers/ovs/flowgen.c"))
        .arg("-o")
        .arg(&plugin)
        .args(["-lrte_ethdev", "-lrte_mbuf", "-lrte_mempool", "-lrte_eal"]);
    println!("\n=== {}", shown(&gcc));
    steps::run(&mut gcc)?;
    Ok(plugin)
}

/// Builds ovs-vswitchd from Debian's source for this processor, as it is or with
/// `peers/ovs/patches` and liboverbank.
fn vswitchd(patched: bool) -> Result<PathBuf> {
    let folder = folder().join(if patched { "ovs-patched" } else { "ovs-native" });
    let source = folder.join("openvswitch");
    let program = source.join("vswitchd/ovs-vswitchd");
    let patches = if patched { patches()? } else { Vec::new() };
    let library = if patched { Some(library()?) } else { None };
    // What the sources were patched with.
    let stamp = folder.join("patched");
    let wanted = patches.iter().map(fs::read_to_string).collect::<std::io::Result<String>>()?;
    if source.exists() && fs::read_to_string(&stamp).unwrap_or_default() != wanted {
        fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    }
    if program.is_file() && library.is_none() {
        return Ok(program);
    }
    let log = folder.join("log");
    println!("\n=== building Open vSwitch for this processor; output in {}", log.display());
    let quietly = |script: &str| shell(&source, &log, script);
    if !source.join("config.status").is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        steps::run(Command::new("tar").args(["-xzf", SOURCE, "-C"]).arg(&folder))?;
        for patch in &patches {
            quietly(&format!("patch -p1 <'{}'", patch.display()))?;
        }
        fs::write(&stamp, wanted)?;
        // Some headers are generated; only the Makefile lists them.
        fs::write(folder.join("sources.mk"), "include Makefile\nmade: $(BUILT_SOURCES)\n")?;
        let flags = library.as_ref().map(|library| {
            let header = root().join("crates/capi/include");
            let library = library.with_file_name("");
            let (header, library) = (header.display(), library.display());
            format!("CPPFLAGS='-I{header}' LIBS='-L{library} -loverbank -lgcc_s -lm'")
        });
        quietly(&format!(
            "./configure --with-dpdk=shared --disable-ssl --disable-libcapng \
             CFLAGS='-O3 -march=native -g0' {}",
            flags.unwrap_or_default()
        ))?;
    }
    // No rule of theirs says that the program depends on the library.
    let modified = |file: &Path| fs::metadata(file).and_then(|data| data.modified()).ok();
    if library.is_some_and(|library| modified(&library) > modified(&program)) {
        quietly("rm -f vswitchd/ovs-vswitchd")?;
    }
    quietly("make -j2 -f ../sources.mk made && make -j2 vswitchd/ovs-vswitchd")?;
    Ok(program)
}

/// Returns the patches, in order.
fn patches() -> Result<Vec<PathBuf>> {
    let folder = root().join("peers/ovs/patches");
    let series = folder.join("series");
    let series = fs::read_to_string(&series).with_context(|| series.display().to_string())?;
    Ok(series.lines().map(|name| folder.join(name)).collect())
}

/// Builds liboverbank; returns the archive, in a folder without the shared library, which would be
/// linked instead.
fn library() -> Result<PathBuf> {
    let target = folder().join("build");
    let mut build =
        cargo("rustc --release --package overbank-capi --crate-type staticlib --locked");
    build.env("CARGO_TARGET_DIR", &target);
    println!("\n=== {}", shown(&build));
    steps::run(&mut build)?;
    let library = folder().join("lib/liboverbank.a");
    fs::create_dir_all(library.with_file_name(""))?;
    let _ = fs::remove_file(&library);
    let built = target.join("release/liboverbank_capi.a");
    fs::hard_link(&built, &library).with_context(|| built.display().to_string())?;
    Ok(library)
}

/// Groups of Open vSwitch's own tests that meet the datapath.
const TESTS: [&str; 9] = [
    "dpif-netdev",
    "pmd",
    "ofproto-dpif",
    "classifier",
    "dpif",
    "flow",
    "dpctl",
    "megaflow",
    "cmap",
];

/// Runs Open vSwitch's own tests on both builds; fails unless the same ones pass.
fn own_tests() -> Result<()> {
    packages::ensure(BUILD, true)?;
    packages::ensure(NATIVE, true)?;
    packages::ensure(PATCHED, true)?;
    let mut outcomes = Vec::new();
    for patched in [false, true] {
        let program = vswitchd(patched)?;
        let source = program.ancestors().nth(2).context("the program lies in a folder")?;
        let (log, groups) =
            (source.join("../check"), TESTS.map(|name| format!("-k {name}")).join(" "));
        println!("\n=== tests of Open vSwitch, patched: {patched}; output in {}", log.display());
        fs::write(&log, "")?;
        // Its failure is that of a test, which the comparison reports.
        let failed = shell(source, &log, &format!("make -j2 check TESTSUITEFLAGS='-j2 {groups}'"));
        let outcome = own_outcomes(&fs::read_to_string(&log)?);
        let count = |what: &str| outcome.values().filter(|found| found.starts_with(what)).count();
        println!(
            "{} passed, {} skipped, {} failed",
            count("ok"),
            count("skipped"),
            count("FAILED")
        );
        if outcome.is_empty() {
            failed?;
            bail!("no tests ran; see {}", log.display());
        }
        outcomes.push(outcome);
    }
    let [unpatched, patched] = &outcomes[..] else { bail!("two builds") };
    let differ = |(name, outcome): (&String, &String)| {
        let other = patched.get(name).map_or("did not run", String::as_str);
        (other != outcome).then(|| format!("{name}: unpatched {outcome}, patched {other}"))
    };
    match unpatched.iter().find_map(differ) {
        Some(test) => bail!("{test}"),
        None => Ok(()),
    }
}

/// Returns the outcome of each test, by its number and name, from the output of an Autotest suite.
fn own_outcomes(text: &str) -> BTreeMap<String, String> {
    let outcome = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().rposition(|word| ["ok", "skipped", "FAILED"].contains(word))?;
        let number = words.first()?.strip_suffix(':')?;
        number.parse::<u32>().ok()?;
        Some((words[..at].join(" "), words[at].to_owned()))
    };
    text.lines().filter_map(outcome).collect()
}

fn shell(folder: &Path, log: &Path, script: &str) -> Result<()> {
    let file = fs::File::options().append(true).create(true).open(log)?;
    let mut command = Command::new("nice");
    command.args(["sh", "-c", script]).current_dir(folder);
    let status = command.stdout(file.try_clone()?).stderr(file).status()?;
    if !status.success() {
        bail!("{script}\nfailed ({status}); see {}", log.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn arguments_after_the_dashes_are_handed_on() {
        let line = Line::parse_from(["x", "ovs", "--native", "--", "--rounds", "3"]);
        let Some(What::Ovs { native, arguments, .. }) = line.options.what else { panic!("ovs") };
        assert!(native);
        assert_eq!(arguments, ["--rounds", "3"]);
        assert!(Line::try_parse_from(["x", "ovs", "--patched", "--check"]).is_ok());
        assert!(Line::try_parse_from(["x", "ovs", "--check"]).is_err());
        assert!(Line::try_parse_from(["x", "ovs", "--patched", "--native"]).is_err());
        let line = Line::parse_from(["x", "fib", "--", "--sizes", "1"]);
        let Some(What::Fib { arguments }) = line.options.what else { panic!("fib") };
        assert_eq!(arguments, ["--sizes", "1"]);
        let line = Line::parse_from(["x", "mdbx", "--", "--smoke"]);
        let Some(What::Mdbx { arguments }) = line.options.what else { panic!("mdbx") };
        assert_eq!(arguments, ["--smoke"]);
        let line = Line::parse_from(["x", "partition", "--", "--sizes", "1"]);
        let Some(What::Partition { arguments }) = line.options.what else { panic!("partition") };
        assert_eq!(arguments, ["--sizes", "1"]);
        let line = Line::parse_from(["x", "live", "--", "--smoke"]);
        let Some(What::Live { arguments }) = line.options.what else { panic!("live") };
        assert_eq!(arguments, ["--smoke"]);
        let line = Line::parse_from(["x", "explosion", "--", "--smoke"]);
        assert!(
            matches!(line.options.what, Some(What::Explosion { arguments }) if arguments == ["--smoke"])
        );
        assert!(Line::parse_from(["x", "--list"]).options.list);
        assert!(Line::parse_from(["x", "--smoke"]).options.smoke);
        assert!(Line::try_parse_from(["x", "--smoke", "--list"]).is_err());
        assert!(Line::parse_from(["x"]).options.what.is_none());
    }

    #[test]
    fn outcomes_of_autotest_are_read_by_test() {
        let text = "##\n1024: PMD - stats                      ok\n\
                    1025: PMD - ok in its name   FAILED (pmd.at:3)\n7: x skipped (x.at:1)\n3 tests ok\n";
        let found = own_outcomes(text);
        let of = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(found.len(), 3);
        assert_eq!(of("1024: PMD - stats"), Some("ok"));
        assert_eq!(of("1025: PMD - ok in its name"), Some("FAILED"));
        assert_eq!(of("7: x"), Some("skipped"));
    }
}
