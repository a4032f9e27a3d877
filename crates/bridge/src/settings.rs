//! The settings of the Ethernet switch alone.

use overbank_declare::settings::Commas;
use overbank_runtime::settings::PortNumber;

overbank_declare::settings! {
    /// The Ethernet switch.
    pub struct BridgeSettings: "Ethernet switch" {
        isolated: Commas<PortNumber>,
            "Ports that exchange frames with other ports but not with each other (modes l2 and \
            netcache)" example "2 3";
    }
}
