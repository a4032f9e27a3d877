//! Open vSwitch as child processes: a database and a switch in a private folder and a network
//! namespace. No service of the machine is touched.
//!
//! ```text
//!  folder   conf.db  db.sock ◀── ovsdb-server       switch.ctl ◀── ovs-vswitchd       log
//!                        ▲ ovs-vsctl                    ▲ ovs-appctl     br0.mgmt ◀ ovs-ofctl
//! ```
//!
//! Both end with the thread that starts them, and are killed on drop. Each step is bounded in time.

// Ties the lives of the processes to ours.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::folder::Folder;
use crate::machine;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Programs needed besides the switch.
const TOOLS: [&str; 4] = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl"];
/// Longest duration of a command.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the processes run.
#[derive(Debug, Default)]
pub struct Home {
    /// Their network namespace; `None` creates one, so that the TAP devices of two switches
    /// (`ovs-netdev`, `br0`) do not collide, and the machine's interfaces are out of reach.
    pub namespace: Option<File>,
    /// Their cores; empty means those of the calling thread.
    pub cores: Vec<usize>,
}

/// A database and, once started, a switch.
#[derive(Debug)]
pub struct Vswitch {
    // Dropped in this order.
    switch: Option<Child>,
    database: Option<Child>,
    folder: Folder,
    home: Home,
}

impl Vswitch {
    /// Starts the database.
    ///
    /// # Errors
    /// A program is not installed, or does not start.
    pub fn start_database(name: &str, home: Home) -> Result<Vswitch> {
        let path = std::env::var_os("PATH");
        if let Some(missing) = not_found(&TOOLS, path.as_deref()) {
            bail!(
                "Open vSwitch is not installed, there is no {missing}: `apt-get install \
                 openvswitch-switch` on Debian and Ubuntu"
            );
        }
        let folder = Folder::new(name)?;
        let mut this = Vswitch { switch: None, database: None, folder, home };
        this.run(Command::new("ovsdb-tool").arg("create").arg(this.file("conf.db")).arg(SCHEMA))?;
        let mut server = Command::new("ovsdb-server");
        server.arg(this.file("conf.db")).arg(format!("--remote=p{}", this.socket()));
        this.database = Some(this.spawn(&mut server, "database.ctl")?);
        this.wait_for("db.sock")?;
        this.vsctl("--no-wait init")?;
        Ok(this)
    }

    /// Starts the switch.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_switch(&mut self, mut program: Command) -> Result<()> {
        program.arg(self.socket());
        self.switch = Some(self.spawn(&mut program, "switch.ctl")?);
        self.wait_for("switch.ctl").with_context(|| self.last_words())
    }

    /// Adds `br0`, a bridge of the userspace datapath without rules.
    pub fn add_bridge(&self) -> Result<()> {
        self.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure").map(drop)
    }

    /// Adds rules to `br0`.
    pub fn add_rules(&self, rules: &str) -> Result<()> {
        self.add_rules_to("br0", rules)
    }

    pub fn add_rules_to(&self, bridge: &str, rules: &str) -> Result<()> {
        let file = self.file("rules");
        fs::write(&file, rules)?;
        let management = format!("unix:{}", self.file(&format!("{bridge}.mgmt")).display());
        let mut ofctl = Command::new("ovs-ofctl");
        ofctl.args(["-O", "OpenFlow13", "add-flows"]).arg(management).arg(&file);
        self.run(&mut ofctl).map(drop)
    }

    /// Fails if a port does not work, for example because the switch was built without its kind.
    pub fn check_ports(&self) -> Result<()> {
        let wrong =
            self.vsctl("--format=csv --no-headings --columns=name,error find interface error!=[]")?;
        match wrong.lines().next() {
            Some(why) => bail!("ports that do not work: {why}"),
            None => Ok(()),
        }
    }

    /// Returns the id of the switch's process, once started.
    pub fn id(&self) -> Option<u32> {
        self.switch.as_ref().map(Child::id)
    }

    /// Returns the end of the processes' output.
    pub fn last_words(&self) -> String {
        let log = fs::read(self.file("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.file("db.sock").display())
    }

    /// Runs `ovs-vsctl`; words are separated by spaces.
    pub fn vsctl(&self, arguments: &str) -> Result<String> {
        self.vsctl_arguments(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `ovs-vsctl`; an argument may have spaces.
    pub fn vsctl_arguments(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db={}", self.socket())).arg("--timeout=20").args(arguments);
        self.run(&mut command)
    }

    /// Runs `ovs-appctl` on the switch.
    pub fn appctl(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let mut appctl = Command::new("ovs-appctl");
        appctl.arg("--timeout=10").arg("-t").arg(self.file("switch.ctl"));
        self.run(appctl.arg(command).args(arguments))
    }

    fn run(&self, command: &mut Command) -> Result<String> {
        run(self.surround(command))
    }

    fn spawn(&self, command: &mut Command, control: &str) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = File::options().append(true).create(true).open(self.file("log"))?;
        command.arg("--no-chdir").arg(format!("--unixctl={}", self.file(control).display()));
        self.surround(command).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let namespace = self.home.namespace.as_ref().map(File::try_clone).transpose()?;
        settle(command, namespace, self.home.cores.clone());
        command.spawn().with_context(|| name)
    }

    /// Confines a program to the folder.
    fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.folder.path());
        }
        command
    }

    /// Waits until one of the processes has created a file, or takes connections at a socket.
    pub fn wait_for(&mut self, name: &str) -> Result<()> {
        let (file, limit) = (self.file(name), Instant::now() + PATIENCE);
        while !answers(&file) {
            for child in [&mut self.database, &mut self.switch].into_iter().flatten() {
                if let Some(status) = child.try_wait()? {
                    bail!("a process of Open vSwitch ended: {status}");
                }
            }
            if Instant::now() > limit {
                bail!("Open vSwitch did not make {name}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Returns whether a file is there; a socket also takes connections, which it does a moment later.
fn answers(file: &Path) -> bool {
    fs::metadata(file)
        .is_ok_and(|data| !data.file_type().is_socket() || UnixStream::connect(file).is_ok())
}

impl Drop for Vswitch {
    fn drop(&mut self) {
        for child in [&mut self.switch, &mut self.database].into_iter().flatten() {
            // They hold nothing worth saving, and a stopped process could not exit in order.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a short command; returns its output, or the first line of its error.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}", error.trim().lines().next().unwrap_or("it failed"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the first of these programs that is in no directory of `path`.
fn not_found<'a>(programs: &[&'a str], path: Option<&OsStr>) -> Option<&'a str> {
    let found = |name: &str| {
        path.is_some_and(|path| std::env::split_paths(path).any(|dir| dir.join(name).is_file()))
    };
    programs.iter().copied().find(|name| !found(name))
}

/// Makes a child run in a network namespace (or a new one), on these cores (or ours), and at most
/// as long as the thread that starts it.
fn settle(command: &mut Command, namespace: Option<File>, cores: Vec<usize>) {
    // Ctrl-C is for us: we end it in order.
    command.process_group(0);
    let set_up = move || {
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        machine::enter(namespace.as_ref())?;
        if cores.is_empty() { Ok(()) } else { machine::keep_on(&cores) }
    };
    // SAFETY: between fork and exec only system calls are made, of prctl, setns, unshare and
    // sched_setaffinity; nothing is allocated.
    unsafe { command.pre_exec(set_up) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named() {
        let folder = Folder::new("not-found").expect("a folder for the test");
        let path = std::env::join_paths(["/nowhere".as_ref(), folder.path()]).expect("a path");
        assert_eq!(not_found(&TOOLS, Some(&path)), Some("ovsdb-tool"));
        for name in &TOOLS[..3] {
            File::create(folder.path().join(name)).expect("created");
        }
        assert_eq!(not_found(&TOOLS, Some(&path)), Some("ovs-ofctl"));
        File::create(folder.path().join("ovs-ofctl")).expect("created");
        assert_eq!(not_found(&TOOLS, Some(&path)), None);
        assert_eq!(not_found(&TOOLS, None), Some("ovsdb-tool"));
    }

    #[test]
    fn a_command_says_why_it_failed() {
        let error = run(Command::new("ls").arg("/nowhere/at/all")).expect_err("no such file");
        let error = format!("{error:#}");
        assert!(error.starts_with("ls: ") && error.contains("/nowhere/at/all"), "{error}");
        assert!(run(&mut Command::new("/nowhere/at/all")).is_err());
        assert_eq!(run(Command::new("echo").arg("yes")).expect("runs"), "yes\n");
    }
}
