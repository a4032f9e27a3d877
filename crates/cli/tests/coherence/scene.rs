//! The processes, and the wires between them.

use crate::netns::{Net, run, until};
use overbank_kv::client::Client;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub const AGENTS: usize = 2;
/// Hosts: of the clients, and of the first agent.
pub const CLIENTS: usize = 0;
const FIRST: usize = 1;
const DEVICE: &str = "10.77.0.254";
/// What happens on each wire.
const FAULTS: &str = "loss=0.05,duplicate=0.05,reorder=0.1,fault-on=both";
/// Lines of a log that are shown.
const SHOWN: usize = 20;

/// Which protocol device and agents speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Stamps,
    Paper,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Stamps => "stamps",
            Protocol::Paper => "paper",
        }
    }
}

/// What is killed and started again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// Its controller is part of it.
    Device,
    Agent(usize),
}

fn ip(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, host as u8 + 1)
}

/// Returns the address of an agent.
pub fn server(agent: usize) -> SocketAddr {
    (ip(FIRST + agent), overbank_kv::PORT).into()
}

/// A process, killed on drop.
struct Process(Child);

impl Process {
    fn start(mut command: Command, stdout: impl Into<Stdio>, log: &PathBuf) -> Process {
        let log = File::options().append(true).create(true).open(log).expect("a file");
        command.stdin(Stdio::null()).stdout(stdout).stderr(log);
        Process(command.spawn().expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// See the module.
pub struct Scene {
    pub net: Net,
    protocol: Protocol,
    seed: u64,
    folder: tempfile::TempDir,
    _stores: Vec<Process>,
    agents: Vec<Process>,
    device: Option<Process>,
    /// How often the device was started.
    runs: u64,
}

impl Scene {
    /// Starts everything; `None` where the test is skipped because the machine lacks something.
    pub fn start(protocol: Protocol, seed: u64) -> Option<Scene> {
        let redis = Command::new("redis-server").arg("--version").output().is_ok();
        if !overbank_testing::needs("redis-server", redis) {
            return None;
        }
        let net = Net::new(FIRST + AGENTS)?;
        let folder = tempfile::tempdir().expect("a folder");
        let mut scene = Scene {
            net,
            protocol,
            seed,
            folder,
            _stores: Vec::new(),
            agents: Vec::new(),
            device: None,
            runs: 0,
        };
        for agent in 0..AGENTS {
            let mut redis = scene.inside(FIRST + agent, "redis-server");
            redis.args(["--port", "6379", "--bind", "127.0.0.1", "--save", "", "--dir"]);
            redis.arg(scene.folder.path());
            scene._stores.push(Process::start(redis, Stdio::null(), &scene.file("redis.log")));
        }
        scene.start_device();
        scene.agents = (0..AGENTS).map(|agent| scene.agent(agent)).collect();
        for agent in 0..AGENTS {
            let served = scene.net.inside(CLIENTS, move || {
                let mut client = Client::new(&[server(agent)]).expect("a socket");
                until(|| client.get(&[]).is_ok());
            });
            served.join().unwrap_or_else(|_| panic!("it does not serve\n{}", scene.logs()));
        }
        Some(scene)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program in the namespace of a host; the command becomes the program.
    fn inside(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.net.space(host), program]);
        command.env_remove("NOTIFY_SOCKET");
        command
    }

    fn agent(&self, agent: usize) -> Process {
        let mut command = self.inside(FIRST + agent, env!("CARGO_BIN_EXE_overbank"));
        command.args(["kv", "agent", "--metrics", "off", "--store", "redis://127.0.0.1:6379/0"]);
        command.args(["--listen", &ip(FIRST + agent).to_string(), "--device", DEVICE]);
        command.args(["--protocol", self.protocol.name()]);
        Process::start(command, Stdio::null(), &self.file("agents.log"))
    }

    fn start_device(&mut self) {
        self.runs += 1;
        let (log, stdout) = (self.file("device.log"), self.file("totals.json"));
        let _ = fs::remove_file(&log);
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
        command.env_remove("NOTIFY_SOCKET");
        command.args(["switch", "--mode", "netcache", "--metrics", "off", "--workers"]);
        // With two, the paper's protocol would be wrong in ways that a switch is not.
        command.arg(if self.protocol == Protocol::Stamps { "2" } else { "1" });
        command.args(["--format", "json", "--kv-threshold", "4", "--kv-servers", "2,3"]);
        command.arg("--kv-address").arg(format!("02:00:00:00:00:fe,{DEVICE}"));
        command.args(["--kv-protocol", self.protocol.name(), "--status-socket"]);
        command.arg(self.file("status")).arg("--kv-state").arg(self.file("state"));
        for host in 0..FIRST + AGENTS {
            let (near, seed) = (self.net.near(host), self.seed % 1_000_000 * 1000 + self.runs);
            let port = host + 1;
            command.arg("--port");
            let kind = if self.runs.is_multiple_of(2) { "afxdp" } else { "afpacket" };
            command.arg(format!("{port}={kind}:{near},{FAULTS},fault-seed={seed}{port}"));
        }
        let stdout = File::create(stdout).expect("a file");
        self.device = Some(Process::start(command, stdout, &log));
        let forwards = || fs::read_to_string(&log).is_ok_and(|text| text.contains("forwarding"));
        until(forwards);
    }

    /// Kills a process by SIGKILL and starts it again.
    pub fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Device => {
                self.read_accounts();
                drop(self.device.take());
                self.start_device();
            }
            Victim::Agent(agent) => {
                let process = &mut self.agents[agent].0;
                process.kill().and_then(|()| process.wait()).expect("it ran");
                self.agents[agent] = self.agent(agent);
            }
        }
    }

    /// Reads the device's accounts, which close in each reading.
    pub fn read_accounts(&self) {
        let mut stream = UnixStream::connect(self.file("status")).expect("it listens");
        stream.write_all(b"status\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it answers");
        let status: Value = serde_json::from_str(&line).expect("one JSON document");
        assert_eq!(status["closes"], true, "{status:#}");
    }

    /// Ends the device by SIGTERM: its accounts close to the packet.
    pub fn end(&mut self) {
        let Some(mut device) = self.device.take() else { return };
        run(&format!("kill -TERM {}", device.0.id()));
        let status = device.0.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.logs());
        let text = fs::read_to_string(self.file("totals.json")).expect("a file");
        let totals: Value = serde_json::from_str(&text).expect("one JSON document");
        assert_eq!(totals["closes"], true, "{totals:#}");
        println!("the last run of the device: {:#}", totals["control"]["kv"]);
    }

    /// Returns the last lines of the logs.
    pub fn logs(&self) -> String {
        let last = |name: &str| {
            let text = fs::read_to_string(self.file(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(SHOWN)..].join("\n")
        };
        ["device.log", "agents.log"].map(last).join("\n")
    }
}
