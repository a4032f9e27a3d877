//! Open vSwitch as a contestant: a database and a switch in a private folder.
//!
//! Ports: 1 receives (`net_null100`, fed by the plugin), 2 to 5 drop what they get (`net_null2` to
//! `net_null5`). One PMD thread runs on core 1, everything else on core 0. No network card, kernel
//! datapath or service of the machine is touched.

// A signal stops and continues the switch.
#![allow(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::traffic::{Ids, Map};
use super::{Table, Window};
use crate::machine;
use crate::vswitch::{Home, Vswitch};

/// Huge pages of one switch: 262 144 packet buffers.
pub const MEMORY_MIB: u64 = 1024;

/// The port that packets come from.
pub const SOURCE: &str = "net_null100";

/// A program to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Build {
    pub name: String,
    /// Path of its ovs-vswitchd.
    pub file: PathBuf,
    /// Further settings, KEY=VALUE of `other_config`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Further variables of its environment.
    #[serde(skip)]
    pub environment: &'static [(&'static str, &'static str)],
}

impl Build {
    /// Parses `NAME=FILE`.
    pub fn parse(text: &str) -> Result<Build, String> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && Path::new(file).is_file() => Ok(Build {
                name: name.into(),
                file: file.into(),
                settings: Vec::new(),
                environment: &[],
            }),
            _ => Err("expected NAME=FILE with an existing file".into()),
        }
    }
}

pub struct Switch {
    pub vswitch: Vswitch,
    stats: Option<Map>,
}

impl Switch {
    /// Starts the switch with the rules of the traffic; packets flow when this returns.
    pub fn start(build: &Build, flowgen: &Path, ids: &Ids) -> Result<Switch> {
        Switch::launch(build, flowgen, &[(ids.path(), "ids")], |vswitch| add_ports(vswitch, ids))
    }

    /// Starts a switch; `inputs` are the files of [`SOURCE`], by their suffix, and `set_up` adds
    /// its ports and rules.
    pub fn launch(
        build: &Build,
        flowgen: &Path,
        inputs: &[(&Path, &str)],
        set_up: impl FnOnce(&Vswitch) -> Result<()>,
    ) -> Result<Switch> {
        let mut this = Switch { vswitch: Switch::bare(build, Some(flowgen))?, stats: None };
        for (file, suffix) in inputs {
            fs::hard_link(file, this.vswitch.file(&format!("{SOURCE}.{suffix}")))?;
        }
        set_up(&this.vswitch).with_context(|| this.last_words())?;
        let stats = format!("{SOURCE}.stats");
        this.vswitch.wait_for(&stats).with_context(|| this.last_words())?;
        this.stats = Some(Map::open(&this.vswitch.file(&stats))?);
        Ok(this)
    }

    /// Starts a switch without ports.
    pub fn bare(build: &Build, flowgen: Option<&Path>) -> Result<Vswitch> {
        // A file's name in options of ports.
        let name = build.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut vswitch = Vswitch::start_database(&name, Home::default())?;
        vswitch.vsctl(&format!(
            "--no-wait set Open_vSwitch . other_config:dpdk-init=true \
             other_config:dpdk-lcore-mask=0x1 other_config:pmd-cpu-mask=0x2 \
             other_config:dpdk-socket-mem={MEMORY_MIB} \
             other_config:n-handler-threads=1 other_config:n-revalidator-threads=1 \
             other_config:max-idle=3600000"
        ))?;
        // No files of DPDK; one value with spaces.
        vswitch.vsctl_arguments(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-extra=--no-pci --in-memory --no-telemetry",
        ])?;
        for setting in &build.settings {
            let setting = format!("other_config:{setting}");
            vswitch.vsctl_arguments(&["--no-wait", "set", "Open_vSwitch", ".", &setting])?;
        }
        let mut program = Command::new(&build.file);
        program.envs(build.environment.iter().copied());
        if let Some(flowgen) = flowgen {
            program.env("LD_PRELOAD", fs::canonicalize(flowgen)?);
            program.env("OVERBANK_FLOWGEN", vswitch.folder());
        }
        vswitch.start_switch(program)?;
        Ok(vswitch)
    }

    /// Sets the caches.
    pub fn configure(&self, caches: &str) -> Result<()> {
        let (emc, smc) = match caches {
            "emc" => (100, false),
            "smc" => (0, true),
            "both" => (100, true),
            "none" => (0, false),
            _ => bail!("unknown cache configuration `{caches}`"),
        };
        self.vswitch
            .vsctl(&format!(
                "set Open_vSwitch . other_config:emc-insert-inv-prob={emc} \
             other_config:smc-enable={smc}"
            ))
            .map(drop)
    }

    /// Returns the packets that the plugin made since the start, and their cycles.
    pub fn generated(&self) -> (u64, u64) {
        self.stats.as_ref().map_or((0, 0), |stats| (stats.word(0), stats.word(1)))
    }

    /// Measures a configuration. Tries again twice: now and then the switch shows packets without
    /// cycles.
    pub fn window(&self, caches: &str, settle: Duration, window: Duration) -> Result<Window> {
        self.configure(caches)?;
        let mut measured = self.attempt(caches, settle, window);
        for _ in 0..2 {
            if measured.is_err() {
                measured = self.attempt(caches, settle, window);
            }
        }
        measured
    }

    fn attempt(&self, caches: &str, settle: Duration, window: Duration) -> Result<Window> {
        std::thread::sleep(settle);
        let task = self.pmd_task()?;
        self.vswitch.appctl("dpif-netdev/pmd-stats-clear", &[])?;
        let (start, before, on_core) =
            (Instant::now(), self.generated(), machine::on_core_ns(&task));
        std::thread::sleep(window);
        let (went_by, after) = (start.elapsed(), self.generated());
        let on_core = on_core.zip(machine::on_core_ns(&task));
        let text = self.vswitch.appctl("dpif-netdev/pmd-stats-show", &["-pmd", "1"])?;
        let on_core = on_core.map(|(a, b)| Duration::from_nanos(b.saturating_sub(a)));
        parse(&text, (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64)
            .map(|measured| measured.on_core(on_core, went_by))
            .with_context(|| format!("{caches}: {text}"))
    }

    /// Returns the kernel's folder of the thread on core 1.
    fn pmd_task(&self) -> Result<PathBuf> {
        let id = self.vswitch.id().context("no switch")?;
        for task in fs::read_dir(format!("/proc/{id}/task"))? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("pmd-c01")) {
                return Ok(task);
            }
        }
        bail!("no PMD thread on core 1: {}", self.last_words())
    }

    /// Stops the switch.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Continues the switch.
    pub fn resume(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        let Some(id) = self.vswitch.id() else { return Ok(()) };
        // SAFETY: the child is ours and not waited for yet, so its id is its own.
        if unsafe { libc::kill(id as libc::pid_t, signal) } != 0 {
            return Err(std::io::Error::last_os_error()).context("ovs-vswitchd");
        }
        Ok(())
    }

    /// Returns the end of the switch's output.
    pub fn last_words(&self) -> String {
        self.vswitch.last_words()
    }
}

/// Adds ports and rules of the traffic.
fn add_ports(vswitch: &Vswitch, ids: &Ids) -> Result<()> {
    vswitch.add_bridge()?;
    let port = |number: u32, device: &str| {
        vswitch.vsctl(&format!(
            "add-port br0 p{number} -- set interface p{number} type=dpdk \
             ofport_request={number} options:dpdk-devargs={device}"
        ))
    };
    for &number in ids.outputs() {
        port(number, &format!("net_null{number},no-rx=1"))?;
    }
    vswitch.add_rules(ids.rules())?;
    // Rules first: no packet meets an empty table. Empty buffers are 8 bytes; the switch would
    // drop one that the plugin has not written to.
    port(1, &format!("{SOURCE},size=8"))?;
    vswitch.check_ports()
}

/// Parses the output of `pmd-stats-show`.
pub fn parse(text: &str, generator_cycles: f64) -> Result<Window> {
    let value = |name: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.with_context(|| format!("no line `{name}`"))?.parse().context(name.to_string())
    };
    let packets = value("packets received")?;
    let share = |name: &str| Ok::<f64, anyhow::Error>(value(name)? / packets.max(1.0));
    Ok(Window {
        packets: packets as u64,
        cycles: value("avg cycles per packet")?,
        generator_cycles,
        on_core: 1.0,
        emc: share("emc hits")?,
        signature: share("smc hits")?,
        megaflow: share("megaflow hits")?,
        subtables: value("avg. subtable lookups per megaflow hit")?,
        upcalls: value("miss with success upcall")? as u64,
        table: table(text),
    })
}

/// Parses the line that a patched switch adds where it has a table of Overbank.
fn table(text: &str) -> Option<Table> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("smc design "))?;
    let (_, counts) = line.split_once(": ")?;
    let mut counts = counts.split(", ").map_while(|count| count.split_once(' ')?.0.parse().ok());
    let (_hits, false_positives, evictions) = (counts.next()?, counts.next()?, counts.next()?);
    Some(Table { false_positives, evictions })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pmd thread numa_id 0 core_id 1:
  packets received: 4000
  packet recirculations: 0
  emc hits: 1000
  smc hits: 2000
  megaflow hits: 990
  avg. subtable lookups per megaflow hit: 5.64
  miss with success upcall: 10
  miss with failed upcall: 0
  avg cycles per packet: 568.39 (2610315890/4592512)
  avg processing cycles per packet: 568.39 (2610315890/4592512)
";

    #[test]
    fn statistics_are_read_by_name() {
        let window = parse(TEXT, 48.0).unwrap();
        assert_eq!((window.packets, window.upcalls), (4000, 10));
        assert_eq!((window.emc, window.signature, window.megaflow), (0.25, 0.5, 0.2475));
        assert_eq!((window.cycles, window.generator_cycles), (568.39, 48.0));
        assert_eq!(window.subtables, 5.64);
        assert!(window.table.is_none());
        let line = "  smc design set-4@64: 2000 hits, 7 false positives, 9 evictions\n";
        let table = parse(&format!("{TEXT}{line}"), 48.0).unwrap().table.unwrap();
        assert_eq!((table.false_positives, table.evictions), (7, 9));
        let cut: String = TEXT.lines().take(5).collect::<Vec<_>>().join("\n");
        assert!(parse(&cut, 0.0).is_err_and(|e| e.to_string().contains("avg cycles")));
    }

    #[test]
    fn builds_are_named() {
        assert_eq!(Build::parse("debian=/bin/sh").unwrap().name, "debian");
        assert!(Build::parse("debian=/nowhere").is_err());
        assert!(Build::parse("/bin/sh").is_err());
    }
}
