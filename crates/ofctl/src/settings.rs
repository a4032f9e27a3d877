//! The settings of rules, flow caches and OpenFlow control.

use crate::rules::FailMode;
use crate::sessions::{BUFFERS_MAX, ControlOptions};
use crate::target::Target;
use overbank::cache::Design;
use overbank_declare::settings::{Check, Located, Off, Range, SettingValue};
use overbank_service::options::CONNECTIONS_MAX;
use overbank_switch::view::{Fragments, View};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes for each frame that a session may keep.
const BUFFER_BYTES: usize = 4096;
/// Bytes for them all at least: one frame of any length fits.
const BUFFER_BYTES_MIN: usize = 1 << 16;

overbank_declare::settings! {
    /// Rules and flow caches.
    pub struct RuleSettings: "Rules and flow caches" {
        rules: Option<PathBuf>,
            "File of rules at startup, in the syntax of ovs-ofctl; read again on SIGHUP"
            example "/etc/overbank/rules.txt";
        cache: FlowCache = "cuckoo-2-16+half-bubble",
            "Design of the flow cache of each worker, or none";
        entries: usize = 262144, in 64..=4_294_967_296, "Entries of the flow cache";
        megaflows: usize = 65536, in 1..=16_777_216, "Limit of megaflows of each worker";
        megaflow_idle: Duration = 10, "Seconds after which an unused megaflow is removed";
        max_rules: usize = 1000000, in 1..=1_000_000, "Limit of rules";
        fragments: FragmentMode = "normal", "How rules see IP fragments, until a controller \
            changes it: normal (without ports), drop (not at all) or nx-match (only the first \
            fragment has its ports)";
        vlan_limit: usize = 2, in 1..=2, "VLAN tags that rules look behind to find a \
            packet's Ethernet type";
    }
}

overbank_declare::settings! {
    /// OpenFlow control.
    pub struct ControllerSettings: "OpenFlow" {
        openflow: Vec<Located<Target>>, "Control connections: ptcp:PORT[:ADDRESS] or punix:PATH \
            to listen, tcp:HOST[:PORT] or unix:PATH to connect; repeat for each" example "ptcp:6653";
        fail_mode: FailMode = "secure", "Forwarding while no controller is connected: secure (by \
            the rules) or standalone (as a learning switch)";
        controller_connections: usize = 16, in 1..=CONNECTIONS_MAX,
            "Limit of concurrent incoming OpenFlow connections";
        controller_hello: Duration = 10,
            "Seconds within which an OpenFlow connection must send hello";
        controller_probe: Off<Duration> = 5,
            "Seconds of silence until a controller gets an echo request, and again until its session ends";
        controller_stall: Duration = 30,
            "Seconds after which the session of a controller that reads nothing ends";
        controller_bytes: usize = 262144, in 65_536..=67_108_864,
            "Limit of bytes queued for a controller; beyond it, its session takes no requests";
        controller_queue: usize = 256, in 1..=65_536,
            "Limit of packets for controllers queued at each worker";
        controller_packets: usize = 256, in 1..=65_536,
            "Limit of packets queued for each OpenFlow session";
        controller_packet_outs: usize = 256, in 1..=65_536,
            "Limit of queued packets from controllers (packet-outs)";
        controller_buffers: usize = 256, in 0..=BUFFERS_MAX,
            "Limit of buffered frames of each OpenFlow session; 0: packet-ins carry whole frames";
        controller_events: usize = 4096, in 1..=65_536,
            "Limit of port and rule events queued for each OpenFlow session";
        controller_bundles: usize = 8, in 1..=1024,
            "Limit of open bundles of each OpenFlow session";
        controller_bundle_messages: usize = 262144, in 1..=1_000_000,
            "Limit of messages in all bundles of each OpenFlow session";
    }
}

overbank_declare::choices! {
    /// What rules see of IP fragments.
    pub enum FragmentMode: "MODE" {
        Normal = "normal", "fragments match without ports";
        Drop = "drop", "fragments are dropped";
        NxMatch = "nx-match", "only the first fragment has its ports";
    }
}

impl RuleSettings {
    /// Returns the view that rules have of fragments and tags.
    pub fn view(&self) -> View {
        let fragments = match self.fragments {
            FragmentMode::Normal => Fragments::Normal,
            FragmentMode::Drop => Fragments::Drop,
            FragmentMode::NxMatch => Fragments::NxMatch,
        };
        // 1 or 2: the range of the setting.
        View { fragments, vlan_limit: self.vlan_limit as u8 }
    }
}

/// Design of a flow cache, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowCache(pub Option<Design>);

impl SettingValue for FlowCache {
    const VALUE_NAME: &'static str = "DESIGN";

    fn accepts(_: &Range) -> String {
        "a cache design (`overbank help replay`), or `none`".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<FlowCache, String> {
        if text == "none" {
            return Ok(FlowCache(None));
        }
        let design = Design::from_str(text).map_err(|error| format!("{error}; or none"))?;
        Ok(FlowCache(Some(design)))
    }
}

impl SettingValue for Target {
    const VALUE_NAME: &'static str = "TARGET";

    fn accepts(_: &Range) -> String {
        "ptcp:PORT[:ADDRESS], punix:PATH, tcp:HOST[:PORT] or unix:PATH".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Target, String> {
        Target::from_str(text).map_err(|error| error.to_string())
    }
}

impl ControllerSettings {
    /// Returns where control connections come from and go to. Reports those that are named twice.
    pub fn targets(&self, check: &mut Check) -> Vec<Target> {
        let taken = |target: &Target| format!("{target} is given already");
        let targets = check.distinct(self.openflow.clone(), Target::clone, taken);
        targets.into_iter().map(|target| target.value).collect()
    }

    /// Returns the options of control connections. The bytes of all kept frames grow with their
    /// number.
    pub fn options(&self) -> ControlOptions {
        ControlOptions {
            connections: self.controller_connections,
            handshake: self.controller_hello,
            // Off: zero, which sends no echo requests.
            probe: self.controller_probe.0.unwrap_or_default(),
            stall: self.controller_stall,
            reply_bytes: self.controller_bytes,
            packet_ins: self.controller_packets,
            buffers: self.controller_buffers,
            buffer_bytes: (self.controller_buffers * BUFFER_BYTES).max(BUFFER_BYTES_MIN),
            events: self.controller_events,
            bundles: self.controller_bundles,
            bundle_messages: self.controller_bundle_messages,
            backoff: (Duration::from_secs(1), Duration::from_secs(8)),
            messages_per_turn: 64,
            description: "Overbank switch".to_owned(),
            counters: Arc::default(),
        }
    }
}
