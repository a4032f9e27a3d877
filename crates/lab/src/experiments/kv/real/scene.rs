//! The processes of a rack, and the links between them. All end with the [`Scene`].

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use overbank_kit::machine::usable_cores;
use overbank_wire::netcache::PORT;
use overbank_wire::netcache::frame::End;
use serde_json::Value;
use tempfile::TempDir;

use super::super::processes::{Cores, Process, start};
use super::servers::Count;
use super::*;
use crate::experiments::namespaces::{Open, Spaces, sh};

/// Namespaces by number.
const CLIENT: usize = 0;
const DEVICE: usize = 1;
const SERVERS: usize = 2;

const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVERS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const CLIENT_PORT: u16 = 40_000;
const DEVICE_MAC: &str = "02:00:00:00:00:fe";
const DEVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
/// Address of the first server.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 1);
/// The device's log has this once it forwards.
const FORWARDS: &str = "forwarding";
/// Reads of an epoch from which a key is reported at first.
pub(super) const THRESHOLD: u64 = 2;
/// Longest wait for a process to start.
const START_MAX: Duration = Duration::from_secs(30);
/// Most seconds that the device runs, should this process be killed.
const LIFE_S: u64 = 600;

/// What a rack is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) placement: Placement,
    /// Requests that a server takes in a second.
    pub(super) rate: u32,
    /// Keys that the device caches; 0: it is an Ethernet switch.
    pub(super) items: usize,
    pub(super) seed: u64,
}

/// Returns an address as text.
fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// What the controller has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Control {
    pub(super) installed: u64,
    pub(super) evicted: u64,
    pub(super) reports: u64,
}

/// The beginning of what is watched.
pub(super) struct Begun {
    cores: Cores,
    seen: Seen,
    dropped: u64,
}

/// See the module.
pub(super) struct Scene {
    // Ends before the processes: nothing is asked of what is gone.
    pub(super) client: Client,
    control: (ChildStdin, BufReader<ChildStdout>),
    _servers: Process,
    _device: Process,
    folder: TempDir,
}

impl Scene {
    /// Starts a rack whose agents serve.
    ///
    /// # Errors
    /// There is no program to start, there are no namespaces for this process, or Ctrl-C was
    /// pressed.
    pub(super) fn start(context: &Context<'_>, plan: &Plan) -> Result<Scene, LabError> {
        let program = context.program.ok_or_else(|| {
            LabError::failed("needs the program `overbank`: run it by `overbank lab run`")
        })?;
        let spaces = Spaces::new(3)?;
        wire(&spaces, plan)?;
        let folder = tempfile::tempdir().map_err(LabError::failed)?;
        let inside = |space: usize| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &spaces.name(space)]).arg(program);
            command
        };
        let device = device(inside(DEVICE), plan, &folder)?;
        let mut servers = inside(SERVERS);
        servers.args(["lab", "servers", "--first", &FIRST.to_string()]);
        servers.args(["--count", &plan.placement.servers.to_string()]);
        servers.args(["--rate", &plan.rate.to_string(), "--value", &VALUE_LEN.to_string()]);
        if plan.items > 0 {
            servers.args(["--device", &DEVICE_IP.to_string()]);
        }
        servers.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut servers = start(servers, &usable_cores())?;
        let (Some(stdin), Some(stdout)) = (servers.0.stdin.take(), servers.0.stdout.take()) else {
            return Err(LabError::failed("the servers have no streams"));
        };
        let port = spaces.inside(CLIENT, || Open::new("afpacket:eth0,ring-mib=16"))?;
        let own = End { mac: CLIENT_MAC, ip: CLIENT_IP.into(), port: CLIENT_PORT };
        let server = |nth: u16| {
            let ip = Ipv4Addr::from_bits(FIRST.to_bits() + u32::from(nth));
            End { mac: SERVERS_MAC, ip: ip.into(), port: PORT }
        };
        let ends = (0..plan.placement.servers).map(server).collect();
        let client = Client::new(port, own, ends, plan);
        let control = (stdin, BufReader::new(stdout));
        let mut scene = Scene { client, control, _servers: servers, _device: device, folder };
        let end = Instant::now() + START_MAX;
        let all = u64::from(plan.placement.servers);
        while scene.count()?.serving < all || !scene.client.is_up() {
            if context.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(LabError::Stopped);
            }
            if Instant::now() > end {
                return Err(LabError::failed("the device does not answer the servers"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The namespaces last as long as what is in them.
        Ok(scene)
    }

    /// Asks the servers for their counts.
    fn count(&mut self) -> Result<Count, LabError> {
        let (stdin, stdout) = &mut self.control;
        let mut line = String::new();
        let asked = stdin.write_all(b"\n").and_then(|()| stdout.read_line(&mut line));
        let count = asked.ok().and_then(|_| Count::parse(&line));
        count.ok_or_else(|| LabError::failed("the servers have ended"))
    }

    /// Asks the device for its controller's counts.
    pub(super) fn control(&self) -> Result<Control, LabError> {
        let ask = || {
            let mut stream = UnixStream::connect(self.folder.path().join("status"))?;
            stream.write_all(b"status\n")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok::<Value, std::io::Error>(serde_json::from_str(&line)?)
        };
        let status = ask().map_err(|e| LabError::Failed(format!("the device's status: {e}")))?;
        let of = |name: &str| {
            let count = status["control"]["kv"][name].as_u64();
            count.ok_or_else(|| LabError::Failed(format!("the device's status has no {name}")))
        };
        let (installed, evicted) = (of("installed")?, of("evicted")?);
        Ok(Control { installed, evicted, reports: of("reports_heard")? })
    }

    /// Begins to watch what limits a run.
    pub(super) fn begin(&mut self) -> Result<Begun, LabError> {
        self.client.rest();
        let dropped = self.count()?.dropped;
        Ok(Begun { cores: Cores::now()?, seen: self.client.seen(), dropped })
    }

    /// Returns what has limited it since.
    pub(super) fn end(&mut self, begun: &Begun) -> Result<Watched, LabError> {
        let now = Cores::now()?;
        self.client.rest();
        let seen = self.client.seen().since(begun.seen);
        let dropped = self.count()?.dropped - begun.dropped;
        let lost = seen.sent.saturating_sub(seen.answered() + dropped);
        Ok(Watched {
            cores: now.share_since(begun.cores),
            elsewhere: lost as f64 / seen.sent.max(1) as f64,
        })
    }
}

/// Makes the links and gives the servers their addresses.
fn wire(spaces: &Spaces, plan: &Plan) -> Result<(), LabError> {
    let [client, device, servers] = [CLIENT, DEVICE, SERVERS].map(|space| spaces.name(space));
    let ([a, b, c, _], count) = (FIRST.octets(), plan.placement.servers);
    let (client_mac, servers_mac) = (mac(CLIENT_MAC), mac(SERVERS_MAC));
    let script = format!(
        "set -e
         ip -n {device} link add c0 type veth peer name eth0 netns {client}
         ip -n {device} link add s0 type veth peer name eth0 netns {servers}
         ip -n {device} link set c0 up; ip -n {device} link set s0 up
         ip -n {client} link set eth0 address {client_mac} up
         ip -n {servers} link set lo up
         ip -n {servers} link set eth0 address {servers_mac} up
         seq -f 'address add {a}.{b}.{c}.%g/16 dev eth0' 1 {count} | ip -n {servers} -batch -
         ip -n {servers} neighbour add {CLIENT_IP} lladdr {client_mac} dev eth0 nud permanent"
    );
    sh(&script).map_err(|why| LabError::Failed(format!("veth pairs and addresses: {why}")))
}

/// Starts the device and waits until it forwards.
fn device(mut command: Command, plan: &Plan, folder: &TempDir) -> Result<Process, LabError> {
    command.args(["switch", "--port", "1=afpacket:c0", "--port", "2=afpacket:s0"]);
    command.args(["--metrics", "off", "--duration", &LIFE_S.to_string(), "--status-socket"]);
    command.arg(folder.path().join("status")).arg("--mode");
    if plan.items > 0 {
        command.args(["netcache", "--kv-servers", "2", "--kv-address"]);
        command.arg(format!("{DEVICE_MAC},{DEVICE_IP}"));
        command.args(["--kv-items", &plan.items.to_string()]);
        command.args(["--kv-threshold", &THRESHOLD.to_string()]);
    } else {
        command.arg("l2");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut device = start(command, &usable_cores())?;
    let stderr = device.0.stderr.take();
    let mut log = BufReader::new(stderr.ok_or_else(|| LabError::failed("no log"))?);
    let mut last = String::new();
    loop {
        let mut line = String::new();
        if log.read_line(&mut line).map_err(LabError::failed)? == 0 {
            return Err(LabError::Failed(format!("the device does not start: {}", last.trim())));
        }
        if line.contains(FORWARDS) {
            break;
        }
        last = line;
    }
    // So that a full pipe never holds it up; ends with it.
    thread::spawn(move || log.read_to_end(&mut Vec::new()));
    Ok(device)
}
