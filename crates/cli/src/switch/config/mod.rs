//! The configuration: from a TOML file and from flags, by the same names, checked as a whole.
//!
//! ```text
//!   file  ─ source ─▶ ┐                                   ┌▶ Config, every part of it checked
//!                     ├─ Settings: name → texts, places ──┤
//!   flags ───────────▶ ┘   a flag replaces what the file  └▶ all that is wrong, each with its place
//!                          says of the same name             and what would be right
//! ```
//!
//! Nothing of the system is touched but the file itself, and the system is asked which cores there
//! are: interfaces are not opened here. Panics: none, whatever the file.

mod check;
mod rules;
mod source;
mod stations;

pub use rules::{prepare, read_rules};

pub use source::{Place, Settings};

use overbank::cache::Design;
use overbank::fib::MacVlan;
use overbank_ofctl::rules::FailMode;
use overbank_ofctl::sessions::ControlOptions;
use overbank_ofctl::target::Target;
use overbank_ports::PortSpec;
use overbank_stations::Limits;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Name, value and explanation of each setting; those of flags and of the file.
pub const SETTINGS: [(&str, &str); 41] = [
    ("port", "a list of N=KIND:…"),
    ("mode", "openflow or l2"),
    ("rules", "a file of rules"),
    ("openflow", "a list of connection targets"),
    ("workers", "a number of threads"),
    ("cores", "a list of core numbers"),
    ("cache", "a cache design, or none"),
    ("entries", "a number of cache entries"),
    ("megaflows", "a number of megaflows"),
    ("megaflow-idle", "seconds"),
    ("max-rules", "a number of rules"),
    ("mac-entries", "a number of stations"),
    ("mac-pages", "huge, 1g or small"),
    ("mac-age", "seconds"),
    ("mac-rate", "a number of reports"),
    ("mac-queue", "a number of reports"),
    ("mac-static", "a list of MAC[@VLAN]=PORT"),
    ("isolated", "a list of port numbers"),
    ("controller-queue", "a number of packets"),
    ("controller-connections", "a number of connections"),
    ("controller-hello", "seconds"),
    ("controller-probe", "seconds, or off"),
    ("controller-stall", "seconds"),
    ("controller-bytes", "a number of bytes"),
    ("controller-packets", "a number of packets"),
    ("controller-packet-outs", "a number of packets"),
    ("controller-buffers", "a number of frames"),
    ("controller-events", "a number of events"),
    ("controller-bundles", "a number of bundles"),
    ("controller-bundle-messages", "a number of messages"),
    ("fail-mode", "secure or standalone"),
    ("metrics", "ADDRESS:PORT, or off"),
    ("metrics-connections", "a number of connections"),
    ("status-socket", "a path, or off"),
    ("status-connections", "a number of connections"),
    ("log", "a level"),
    ("log-format", "text or json"),
    ("datapath-id", "up to 16 hexadecimal digits"),
    ("duration", "seconds"),
    ("poll", "busy or idle"),
    ("keep-privileges", "true or false"),
];

/// Most workers.
pub const WORKERS_MAX: usize = 64;
/// Most ports.
pub const PORTS_MAX: usize = 256;
/// Most connections that can be allowed to controllers and to metrics, each: together with those of
/// the status socket they leave nearly half of the usual 1024 descriptors of a process to ports and
/// files.
pub const CONNECTIONS_MAX: usize = 256;
/// Most connections that can be allowed to the status socket.
pub const STATUS_CONNECTIONS_MAX: usize = 64;
/// Connections to the status socket unless told otherwise.
pub const STATUS_CONNECTIONS: usize = 16;
/// Bytes for each frame that a session may keep.
const BUFFER_BYTES: usize = 4096;
/// Bytes for them all at least: one frame of any length fits.
const BUFFER_BYTES_MIN: usize = 1 << 16;
/// Where the metrics are unless told otherwise.
pub const METRICS_DEFAULT: &str = "127.0.0.1:9273";
/// The cache unless told otherwise: the design that the lab recommends.
pub const CACHE_DEFAULT: &str = "cuckoo-2-16+half-bubble";

/// What decides where frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Rules, and controllers that change them.
    #[default]
    OpenFlow,
    /// Where stations are: an Ethernet switch.
    L2,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// One port as configured.
#[derive(Clone, Debug)]
pub struct PortSetting {
    /// OpenFlow number.
    pub number: u32,
    /// What it is.
    pub spec: PortSpec,
}

/// Bounds of OpenFlow connections and sessions; as in [`ControlOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerLimits {
    /// Connections made to us, at one time.
    pub connections: usize,
    /// A connection that has not said hello after so long ends.
    pub hello: Duration,
    /// After so long a silence a session is asked for an echo, and after as long again it ends;
    /// zero: never.
    pub probe: Duration,
    /// A session whose peer takes no byte of what waits for it for so long ends.
    pub stall: Duration,
    /// Bytes waiting to be sent with which a session takes no more requests.
    pub bytes: usize,
    /// Packet-ins that wait for each session.
    pub packets: usize,
    /// Frames kept for each session.
    pub buffers: usize,
    /// Port-status and flow-removed messages that wait for each session.
    pub events: usize,
    /// Open bundles of each session.
    pub bundles: usize,
    /// Messages in all bundles of a session.
    pub bundle_messages: usize,
}

impl Default for ControllerLimits {
    fn default() -> ControllerLimits {
        let of = ControlOptions::default();
        ControllerLimits {
            connections: of.connections,
            hello: of.handshake,
            probe: of.probe,
            stall: of.stall,
            bytes: of.reply_bytes,
            packets: of.packet_ins,
            buffers: of.buffers,
            events: of.events,
            bundles: of.bundles,
            bundle_messages: of.bundle_messages,
        }
    }
}

impl ControllerLimits {
    /// The options with these bounds. The bytes of all frames grow and shrink with their number.
    pub fn options(self) -> ControlOptions {
        ControlOptions {
            connections: self.connections,
            handshake: self.hello,
            probe: self.probe,
            stall: self.stall,
            reply_bytes: self.bytes,
            packet_ins: self.packets,
            buffers: self.buffers,
            buffer_bytes: (self.buffers * BUFFER_BYTES).max(BUFFER_BYTES_MIN),
            events: self.events,
            bundles: self.bundles,
            bundle_messages: self.bundle_messages,
            ..ControlOptions::default()
        }
    }
}

/// Everything, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// What decides where frames go.
    pub mode: Mode,
    /// The ports, by number.
    pub ports: Vec<PortSetting>,
    /// Numbers of those that are isolated.
    pub isolated: Vec<u32>,
    /// Static addresses, and the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// Rules to begin with, and to read again on SIGHUP.
    pub rules: Option<PathBuf>,
    /// Where controllers are.
    pub openflow: Vec<Target>,
    /// How many workers.
    pub workers: usize,
    /// Their cores, one after another; empty: those that the process may use.
    pub cores: Vec<usize>,
    /// Design of the signature cache of each worker.
    pub cache: Option<Design>,
    /// Its slots.
    pub entries: usize,
    /// Most megaflows of each worker.
    pub megaflows: usize,
    /// After how long an unused megaflow goes.
    pub megaflow_idle: Duration,
    /// Most rules.
    pub rules_max: usize,
    /// Bounds of MAC learning.
    pub mac: Limits,
    /// Most packets for controllers that wait, for each worker.
    pub controller_queue: usize,
    /// Most packets of controllers that wait to be sent.
    pub packet_outs: usize,
    /// Bounds of OpenFlow connections and sessions.
    pub controllers: ControllerLimits,
    /// What happens while no controller is connected.
    pub fail_mode: FailMode,
    /// Where the metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Whether that was asked for; otherwise the switch does without if the address is taken.
    pub metrics_named: bool,
    /// Most connections for metrics at one time; others wait.
    pub metrics_connections: usize,
    /// Where `overbank top` asks.
    pub status_socket: Option<PathBuf>,
    /// Most connections to it at one time; others wait.
    pub status_connections: usize,
    /// Which logs.
    pub log: String,
    /// How they are written.
    pub log_format: LogFormat,
    /// Identity towards controllers; `None`: from the address of the first port.
    pub datapath_id: Option<u64>,
    /// How long to run; `None`: until a signal.
    pub duration: Option<Duration>,
    /// Whether idle workers go on asking instead of waiting.
    pub busy_poll: bool,
    /// Whether rights that are no longer needed are kept.
    pub keep_privileges: bool,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What, and what would be right; one line.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            // The text has its place in it.
            Place::Rules => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// Everything that is wrong, by place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
