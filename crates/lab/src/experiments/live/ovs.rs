//! Open vSwitch with its userspace datapath (`datapath_type=netdev`): a database and a switch in a
//! folder of their own and in the switch's network namespace. No service of the machine is touched.
//!
//! Both processes live as long as this one at most and are killed on drop. Ports are added for a
//! turn and removed after it, so that switches can take turns on the same interfaces.

use super::net::{NEAR, Net, Space, run};
use super::sys;
use overbank_kit::experiment::LabError;
use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// What is started.
const PROGRAMS: [&str; 5] =
    ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"];
/// Longest time that one of the processes may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kind of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// `AF_PACKET` sockets, polled by the main thread.
    System,
    /// `AF_XDP` sockets, polled without pause by a PMD thread on each core of the switch.
    AfXdp,
}

/// A running Open vSwitch with one bridge and rules.
pub struct Ovs {
    // Dropped in this order.
    switch: Option<Child>,
    database: Option<Child>,
    folder: TempDir,
    /// Of the PMD threads.
    cores: Vec<usize>,
}

/// The first of these programs that no directory of `path` has.
fn not_found<'a>(programs: &[&'a str], path: Option<&OsStr>) -> Option<&'a str> {
    let found = |name: &str| {
        path.is_some_and(|path| std::env::split_paths(path).any(|dir| dir.join(name).is_file()))
    };
    programs.iter().copied().find(|name| !found(name))
}

impl Ovs {
    /// Starts it in the switch's namespace and on these cores.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(net: &Net, cores: &[usize], rules: &str) -> Result<Ovs, LabError> {
        if let Some(missing) = not_found(&PROGRAMS, std::env::var_os("PATH").as_deref()) {
            return Err(LabError::Failed(format!(
                "Open vSwitch is not installed, there is no {missing}: `apt-get install \
                 openvswitch-switch` on Debian and Ubuntu"
            )));
        }
        let folder = tempfile::Builder::new().prefix("overbank-ovs").tempdir();
        let folder = folder.map_err(LabError::failed)?;
        let mut ovs = Ovs { switch: None, database: None, folder, cores: cores.to_vec() };
        let database = ovs.file("conf.db");
        run(ovs.surround(Command::new("ovsdb-tool").arg("create").arg(&database).arg(SCHEMA)))?;
        let mut server = Command::new("ovsdb-server");
        server.arg(&database).arg(format!("--remote=p{}", ovs.socket()));
        ovs.database = Some(ovs.spawn(&mut server, "database.ctl", net)?);
        ovs.wait_for("db.sock")?;
        ovs.vsctl("--no-wait init")?;
        let mut switch = Command::new("ovs-vswitchd");
        switch.arg(ovs.socket());
        ovs.switch = Some(ovs.spawn(&mut switch, "switch.ctl", net)?);
        ovs.wait_for("switch.ctl")?;
        ovs.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure")?;
        let file = ovs.file("rules");
        std::fs::write(&file, rules).map_err(LabError::failed)?;
        let management = format!("unix:{}", ovs.file("br0.mgmt").display());
        let mut ofctl = Command::new("ovs-ofctl");
        ofctl.args(["-O", "OpenFlow13", "add-flows"]).arg(management).arg(&file);
        run(ovs.surround(&mut ofctl))?;
        Ok(ovs)
    }

    /// Takes the switch's interfaces, as ports 1 and 2 of that kind.
    ///
    /// # Errors
    /// It cannot, perhaps because it was built without that kind.
    pub fn attach(&self, kind: PortType, queues: usize) -> Result<(), LabError> {
        let (name, options) = match kind {
            PortType::System => ("system", String::new()),
            PortType::AfXdp => ("afxdp", format!("options:n_rxq={queues}")),
        };
        let mask = self.cores.iter().fold(0u128, |mask, core| mask | 1 << (core % 128));
        let mut text = format!("set Open_vSwitch . other_config:pmd-cpu-mask={mask:#x}");
        for (number, near) in (1..).zip(NEAR) {
            text += &format!(
                " -- add-port br0 {near} -- set interface {near} type={name} \
                 ofport_request={number} {options}"
            );
        }
        self.vsctl(&text)?;
        let wrong =
            self.vsctl("--format=csv --no-headings --columns=error find interface error!=[]")?;
        match wrong.lines().next() {
            Some(why) => Err(LabError::Failed(format!("Open vSwitch, {name} ports: {why}"))),
            None => Ok(()),
        }
    }

    /// Lets go of the interfaces.
    pub fn detach(&self) -> Result<(), LabError> {
        let [a, b] = NEAR;
        self.vsctl(&format!("--if-exists del-port {a} -- --if-exists del-port {b}")).map(drop)
    }

    /// What it calls itself.
    pub fn version() -> Result<String, LabError> {
        let text = run(Command::new("ovs-vswitchd").arg("--version"))?;
        let first = text.lines().next().unwrap_or_default();
        Ok(first.rsplit(' ').next().unwrap_or_default().to_owned())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.file("db.sock").display())
    }

    fn vsctl(&self, arguments: &str) -> Result<String, LabError> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db={}", self.socket())).arg("--timeout=20");
        run(self.surround(command.args(arguments.split_whitespace())))
    }

    /// Keeps it to its folder.
    fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.folder.path());
        }
        command
    }

    fn spawn(&self, command: &mut Command, control: &str, net: &Net) -> Result<Child, LabError> {
        let log = File::options().append(true).create(true).open(self.file("log"));
        let log = log.map_err(LabError::failed)?;
        command.arg("--no-chdir").arg(format!("--unixctl={}", self.file(control).display()));
        let again = log.try_clone().map_err(LabError::failed)?;
        self.surround(command).stdin(Stdio::null()).stdout(again).stderr(log);
        sys::settle(command, net.file(Space::Switch)?, self.cores.clone());
        let name = command.get_program().to_string_lossy().into_owned();
        command.spawn().map_err(|error| LabError::Failed(format!("{name}: {error}")))
    }

    fn wait_for(&mut self, name: &str) -> Result<(), LabError> {
        let (file, limit) = (self.file(name), Instant::now() + PATIENCE);
        while !file.exists() {
            for child in [&mut self.database, &mut self.switch].into_iter().flatten() {
                if let Some(status) = child.try_wait().map_err(LabError::failed)? {
                    return Err(LabError::Failed(format!("Open vSwitch ended: {status}")));
                }
            }
            if Instant::now() > limit {
                return Err(LabError::Failed(format!("Open vSwitch did not make {name}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in [&mut self.switch, &mut self.database].into_iter().flatten() {
            // Nothing of theirs is worth a farewell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = std::env::join_paths(["/nowhere".as_ref(), folder.path()]).expect("a path");
        assert_eq!(not_found(&PROGRAMS, Some(&path)), Some("ovsdb-tool"));
        for name in &PROGRAMS[..4] {
            File::create(folder.path().join(name)).expect("created");
        }
        assert_eq!(not_found(&PROGRAMS, Some(&path)), Some("ovs-ofctl"));
        File::create(folder.path().join("ovs-ofctl")).expect("created");
        assert_eq!(not_found(&PROGRAMS, Some(&path)), None);
        assert_eq!(not_found(&PROGRAMS, None), Some("ovsdb-tool"));
    }
}
