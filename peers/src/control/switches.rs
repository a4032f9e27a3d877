//! The two switches, each on a UNIX socket.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use overbank_declare::settings::Table as _;
use overbank_ofctl::sessions;
use overbank_ofctl::settings::ControllerSettings;
use overbank_ofctl::target::Target;
use overbank_ofctl::{Setup, Switch};
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_runtime::ConfiguredPort;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::folder::Folder;
use crate::vswitch::{Home, Vswitch, run};

pub const OVERBANK: &str = "overbank";
pub const OVS: &str = "Open vSwitch";

/// Both, running.
pub struct Switches {
    _overbank: Overbank,
    overbank_socket: PathBuf,
    _ovs: Vswitch,
    ovs_socket: PathBuf,
}

impl Switches {
    /// Starts both. Overbank's socket is in `folder`.
    pub fn start(folder: &Folder) -> Result<Switches> {
        let overbank_socket = folder.path().join("switch.sock");
        let _overbank = Overbank::start(&overbank_socket)?;
        let mut ovs = Vswitch::start_database("control", Home::default())?;
        ovs.start_switch(Command::new("ovs-vswitchd"))?;
        ovs.add_bridge()?;
        ovs.vsctl("set bridge br0 protocols=OpenFlow13,OpenFlow14")?;
        let ovs_socket = ovs.file("br0.mgmt");
        Ok(Switches { _overbank, overbank_socket, _ovs: ovs, ovs_socket })
    }

    /// Returns name and socket of each.
    pub fn sockets(&self) -> [(&'static str, &Path); 2] {
        [(OVERBANK, &self.overbank_socket), (OVS, &self.ovs_socket)]
    }
}

/// Our switch with the command's defaults, over two ports in memory.
pub struct Overbank {
    switch: Option<Switch>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<Result<(), sessions::ControlError>>>,
    runtime: Runtime,
}

impl Overbank {
    /// Starts it, and waits until it listens.
    pub fn start(socket: &Path) -> Result<Overbank> {
        let port = |number| -> Result<ConfiguredPort> {
            let port = MemoryPort::open(&MemoryOptions::default(), &format!("memory{number}"), 1)?;
            Ok(ConfiguredPort { number, spec: None, port: Some(Box::new(port)) })
        };
        let ports = (1..=2).map(port).collect::<Result<_>>()?;
        let switch = overbank_ofctl::start(Setup::default(), ports)?;
        let settings = ControllerSettings::defaults().context("every setting has a default")?;
        let options = settings.options();
        // As the command does.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let targets = vec![Target::UnixListen(socket.to_owned())];
        let task =
            runtime.spawn(sessions::serve(targets, switch.handle().clone(), options, stopped));
        let this = Overbank { switch: Some(switch), stop, task: Some(task), runtime };
        let limit = Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if Instant::now() > limit {
                bail!("Overbank does not listen on {}", socket.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(this)
    }
}

impl Drop for Overbank {
    fn drop(&mut self) {
        // Fails only if the task has ended.
        let _ = self.stop.send(true);
        if let Some(task) = self.task.take() {
            // A session that panicked was reported by its thread.
            let _ = self.runtime.block_on(task);
        }
        if let Some(switch) = self.switch.take() {
            switch.stop();
        }
    }
}

/// Runs `ovs-ofctl`, without keeping its output.
pub fn ofctl(arguments: &[&str], socket: &Path, file: Option<&Path>) -> Result<()> {
    let mut command = Command::new("ovs-ofctl");
    command.args(arguments).arg(format!("unix:{}", socket.display())).args(file);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("ovs-ofctl")?;
    let status = child.wait().context("ovs-ofctl")?;
    if !status.success() {
        bail!("ovs-ofctl failed ({status})");
    }
    Ok(())
}

/// Returns the first line that Open vSwitch says of its version.
pub fn version() -> Result<String> {
    let text = run(Command::new("ovs-vswitchd").arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
