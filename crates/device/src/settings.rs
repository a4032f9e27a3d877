//! The settings of the key-value cache on the path alone.

use crate::address::{DeviceAddress, EXAMPLE, SYNTAX};
use overbank_declare::settings::{Check, Commas, Location, Range, SettingValue};
use overbank_netcache::Protocol;
use overbank_runtime::settings::{PortNumber, PortSetting};
use std::path::PathBuf;

overbank_declare::choices! {
    /// Which protocol servers speak.
    pub enum Spoken: "PROTOCOL" {
        Stamps = "stamps", "ours";
        Paper = "paper", "the paper's, which returns old values";
    }
}

overbank_declare::settings! {
    /// The key-value cache on the path.
    pub struct DeviceSettings: "Key-value cache" {
        kv_address: Option<DeviceAddress>,
            "MAC address of the device, and its IPv4 or IPv6 address or both: servers send \
            updates there (mode netcache; required)" example "02:00:00:00:00:fe,10.0.0.254";
        kv_port: u32 = 8779, in 1..=65535, "UDP port of the protocol";
        kv_servers: Commas<PortNumber>,
            "Ports behind which servers are: keys of servers behind others are not cached"
            or "all ports" example "2 3";
        kv_items: usize = 65536, in 1..=65536, "Limit of cached keys";
        kv_index_bits: u32 = 16, in 0..=16,
            "Logarithm of the lines of value memory, 128 bytes each";
        kv_passes: usize = 1, in 1..=11,
            "Passes of a cached value through the pipeline at most: one for each 128 bytes";
        kv_threshold: u32 = 128, in 1..=32767,
            "Reads in a second from which a key is reported as hot, at the start; then the \
            controller steers it";
        kv_sample_bits: u32 = 0, in 0..=20,
            "Logarithm of the reads for each that is counted, at the start; then the controller \
            steers it";
        kv_queue: usize = 1024, in 1..=1_048_576,
            "Limit of queued messages for the controller, and of queued reports of hot keys, for \
            each worker";
        kv_state: Option<PathBuf>,
            "File with the number of the device's last run, in a folder where it may be replaced"
            or "the number of a run is the time of its start" example "/var/lib/overbank/kv";
        kv_protocol: Spoken = "stamps",
            "Protocol of the servers: stamps, or paper, which is wrong on purpose: tests have to \
            find the old values that it returns";
    }
}

impl From<Spoken> for Protocol {
    fn from(spoken: Spoken) -> Protocol {
        match spoken {
            Spoken::Stamps => Protocol::Stamps,
            Spoken::Paper => Protocol::Paper,
        }
    }
}

impl SettingValue for DeviceAddress {
    const VALUE_NAME: &'static str = SYNTAX;

    fn accepts(_: &Range) -> String {
        SYNTAX.to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<DeviceAddress, String> {
        text.parse()
    }
}

impl DeviceSettings {
    /// Returns the device's address; reports a missing one.
    pub fn address(&self, check: &mut Check) -> Option<DeviceAddress> {
        // A wrong one has been reported before.
        if self.kv_address.is_none() && check.given("kv-address").is_none() {
            let what = format!("must be given in mode netcache, such as {EXAMPLE}");
            check.problem(Location::Missing("kv-address"), what);
        }
        self.kv_address
    }

    /// Returns the numbers of the ports of servers, of all if none is given; reports those that are
    /// not configured.
    pub fn servers(&self, check: &mut Check, ports: &[PortSetting]) -> Vec<u32> {
        match PortNumber::all(&self.kv_servers, check, ports) {
            none if none.is_empty() => ports.iter().map(|port| port.number).collect(),
            some => some,
        }
    }
}
