//! Open vSwitch as a contestant: a database and a switch in a folder of their own.
//!
//! Ports: 1 receives (`net_null100`, fed by the plugin), 2 to 5 drop what they get (`net_null2` to
//! `net_null5`). One PMD thread on core 1, everything else on core 0. No card, no kernel datapath, no
//! service of the machine is touched.

// Ties the lives of the processes to ours; a signal stops and continues them.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::Window;
use super::traffic::{Folder, Ids, Map};
use crate::machine;

/// Huge pages of one switch: 262 144 packet buffers.
pub const MEMORY_MIB: u64 = 1024;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SOURCE: &str = "net_null100";
/// Longest time that any command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Build {
    /// What to call it.
    pub name: String,
    /// Its ovs-vswitchd.
    pub file: PathBuf,
}

impl Build {
    /// `NAME=FILE`.
    pub fn parse(text: &str) -> Result<Build, String> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && Path::new(file).is_file() => {
                Ok(Build { name: name.into(), file: file.into() })
            }
            _ => Err("NAME=FILE is needed, of a file that exists".into()),
        }
    }
}

/// A running switch.
pub struct Switch {
    // Dropped in this order.
    switch: Option<Child>,
    database: Option<Child>,
    stats: Option<Map>,
    folder: Folder,
}

impl Switch {
    /// Starts it with the rules of the traffic; packets flow when this returns.
    pub fn start(build: &Build, flowgen: &Path, ids: &Ids) -> Result<Switch> {
        let folder = Folder::new(&build.name)?;
        let mut this = Switch { switch: None, database: None, stats: None, folder };
        fs::hard_link(ids.path(), this.file(&format!("{SOURCE}.ids")))?;
        this.run(Command::new("ovsdb-tool").arg("create").arg(this.file("conf.db")).arg(SCHEMA))?;
        let mut database = Command::new("ovsdb-server");
        database.arg(this.file("conf.db")).arg(format!("--remote=punix:{}", this.socket()));
        this.database = Some(this.spawn(&mut database)?);
        this.wait_for("db.sock")?;
        this.vsctl("--no-wait init")?;
        this.vsctl(&format!(
            "--no-wait set Open_vSwitch . other_config:dpdk-init=true \
             other_config:dpdk-lcore-mask=0x1 other_config:pmd-cpu-mask=0x2 \
             other_config:dpdk-socket-mem={MEMORY_MIB} \
             other_config:n-handler-threads=1 other_config:n-revalidator-threads=1 \
             other_config:max-idle=3600000"
        ))?;
        // No files of DPDK's own; one value with spaces.
        this.vsctl_arguments(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-extra=--no-pci --in-memory --no-telemetry",
        ])?;
        let mut switch = Command::new(&build.file);
        switch.arg(format!("unix:{}", this.socket()));
        switch.env("LD_PRELOAD", fs::canonicalize(flowgen)?);
        switch.env("OVERBANK_FLOWGEN", this.folder.path());
        this.switch = Some(this.spawn(&mut switch)?);
        this.wait_for("switch.ctl").with_context(|| this.last_words())?;
        this.add_ports(ids).with_context(|| this.last_words())?;
        this.wait_for(&format!("{SOURCE}.stats")).with_context(|| this.last_words())?;
        this.stats = Some(Map::open(&this.file(&format!("{SOURCE}.stats")))?);
        Ok(this)
    }

    fn add_ports(&self, ids: &Ids) -> Result<()> {
        self.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure")?;
        let port = |number: u32, device: &str| {
            self.vsctl(&format!(
                "add-port br0 p{number} -- set interface p{number} type=dpdk \
                 ofport_request={number} options:dpdk-devargs={device}"
            ))
        };
        for &number in ids.outputs() {
            port(number, &format!("net_null{number},no-rx=1"))?;
        }
        let rules = self.file("rules");
        fs::write(&rules, ids.rules())?;
        self.run(
            Command::new("ovs-ofctl")
                .args(["-O", "OpenFlow13", "add-flows"])
                .arg(format!("unix:{}/br0.mgmt", self.folder.path().display()))
                .arg(&rules),
        )?;
        // Rules first: no packet meets an empty table. Empty buffers are 8 bytes; the switch would
        // drop one that the plugin has not written to.
        port(1, &format!("{SOURCE},size=8"))?;
        let wrong = self.vsctl("--columns=name,error find interface error!=[]")?;
        if !wrong.trim().is_empty() {
            bail!("ports that do not work: {}", wrong.trim());
        }
        Ok(())
    }

    /// Chooses the caches.
    pub fn configure(&self, caches: &str) -> Result<()> {
        let (emc, smc) = match caches {
            "emc" => (100, false),
            "smc" => (0, true),
            "both" => (100, true),
            "none" => (0, false),
            _ => bail!("no such configuration: {caches}"),
        };
        self.vsctl(&format!(
            "set Open_vSwitch . other_config:emc-insert-inv-prob={emc} \
             other_config:smc-enable={smc}"
        ))
        .map(drop)
    }

    /// Packets that the plugin made since the start, and the cycles that took.
    pub fn generated(&self) -> (u64, u64) {
        self.stats.as_ref().map_or((0, 0), |stats| (stats.word(0), stats.word(1)))
    }

    /// Measures a configuration.
    pub fn window(&self, caches: &str, settle: Duration, window: Duration) -> Result<Window> {
        self.configure(caches)?;
        std::thread::sleep(settle);
        let task = self.pmd_task()?;
        self.appctl("dpif-netdev/pmd-stats-clear", &[])?;
        let (start, before, on_core) =
            (Instant::now(), self.generated(), machine::on_core_ns(&task));
        std::thread::sleep(window);
        let (went_by, after) = (start.elapsed(), self.generated());
        let on_core = on_core.zip(machine::on_core_ns(&task));
        let text = self.appctl("dpif-netdev/pmd-stats-show", &["-pmd", "1"])?;
        let on_core = on_core.map(|(a, b)| Duration::from_nanos(b.saturating_sub(a)));
        parse(&text, (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64)
            .map(|measured| measured.on_core(on_core, went_by))
            .with_context(|| format!("{caches}: {text}"))
    }

    /// Where the kernel tells about the thread on core 1.
    fn pmd_task(&self) -> Result<PathBuf> {
        let id = self.switch.as_ref().context("no switch")?.id();
        for task in fs::read_dir(format!("/proc/{id}/task"))? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("pmd-c01")) {
                return Ok(task);
            }
        }
        bail!("no PMD thread on core 1: {}", self.last_words())
    }

    /// Takes the processor away from it.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        let Some(child) = &self.switch else { return Ok(()) };
        // SAFETY: the child is ours and not waited for yet, so its id is its own.
        if unsafe { libc::kill(child.id() as libc::pid_t, signal) } != 0 {
            return Err(std::io::Error::last_os_error()).context("ovs-vswitchd");
        }
        Ok(())
    }

    /// The end of what the switch wrote.
    pub fn last_words(&self) -> String {
        let log = fs::read(self.file("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> String {
        self.file("db.sock").display().to_string()
    }

    fn vsctl(&self, arguments: &str) -> Result<String> {
        self.vsctl_arguments(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    fn vsctl_arguments(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.socket())).arg("--timeout=20").args(arguments);
        self.run(&mut command)
    }

    fn appctl(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let mut appctl = Command::new("ovs-appctl");
        appctl.arg("--timeout=10").arg("-t").arg(self.file("switch.ctl"));
        self.run(appctl.arg(command).args(arguments))
    }

    /// Runs a short command; its output, or what it complained about.
    fn run(&self, command: &mut Command) -> Result<String> {
        let name = command.get_program().to_string_lossy().into_owned();
        self.surround(command);
        let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
        if !output.status.success() {
            bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a process that lives as long as this one at most.
    fn spawn(&self, command: &mut Command) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = File::options().append(true).create(true).open(self.file("log"))?;
        self.surround(command);
        command.arg("--no-chdir").arg(format!(
            "--unixctl={}",
            self.file(if name == "ovsdb-server" { "database.ctl" } else { "switch.ctl" }).display()
        ));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for us; we end them in order.
        command.process_group(0);
        // Its TAP devices (`ovs-netdev`, `br0`) get a network namespace of their own, so that two
        // switches do not meet, and the machine's interfaces are out of reach.
        // SAFETY: prctl and unshare may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match libc::unshare(libc::CLONE_NEWNET) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        command.spawn().with_context(|| name)
    }

    fn surround(&self, command: &mut Command) {
        let folder = self.folder.path();
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, folder);
        }
    }

    fn wait_for(&mut self, name: &str) -> Result<()> {
        let (file, limit) = (self.file(name), Instant::now() + PATIENCE);
        while !file.exists() {
            for child in [&mut self.database, &mut self.switch].into_iter().flatten() {
                if let Some(status) = child.try_wait()? {
                    bail!("a process of Open vSwitch ended: {status}");
                }
            }
            if Instant::now() > limit {
                bail!("Open vSwitch did not make {name}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for child in [&mut self.switch, &mut self.database].into_iter().flatten() {
            // Nothing of theirs is worth a farewell, and a stopped process could not say it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What `pmd-stats-show` says.
fn parse(text: &str, generator_cycles: f64) -> Result<Window> {
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
    })
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
