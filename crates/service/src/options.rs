//! The settings of every service.

use overbank_declare::settings::Off;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Most connections for metrics; `connections` of an engine should have a similar bound. Together
/// they leave nearly half of the usual 1024 descriptors of a process to ports and files.
pub const CONNECTIONS_MAX: usize = 256;

overbank_declare::choices! {
    /// How much is logged.
    pub enum LogLevel: "LEVEL" {
        Off = "off", "nothing";
        Error = "error", "what failed";
        Warn = "warn", "what may need attention";
        Info = "info", "what happens";
        Debug = "debug", "details";
        Trace = "trace", "every step";
    }
}

overbank_declare::choices! {
    /// How logs are written.
    pub enum LogFormat: "FORMAT" {
        Text = "text", "for people";
        Json = "json", "one object a line";
    }
}

overbank_declare::settings! {
    /// Metrics, status, logs, privileges.
    pub struct ServiceSettings: "Metrics, status and logs" {
        metrics: Off<SocketAddr> = "127.0.0.1:9273",
            "Address where metrics and status are served over HTTP";
        metrics_connections: usize = 64, in 1..=CONNECTIONS_MAX,
            "Limit of connections for metrics and status at one time; others wait";
        status_socket: Off<PathBuf> = "off",
            "Socket that answers each line with the status, for `overbank top`"
            example "/run/overbank/switch.sock";
        status_connections: usize = 16, in 1..=64,
            "Limit of connections to that socket at one time; others wait";
        log: LogLevel = "info", "What is logged: off, error, warn, info, debug or trace";
        log_format: LogFormat = "text", "How it is logged: text or json";
        duration: Option<Duration>, "End after this many seconds" or "runs until a signal"
            example "60";
        keep_privileges: bool = false, "Keep privileges that are not needed once ports are open";
    }
}

/// Where metrics are served by default.
pub const METRICS_DEFAULT: &str = "127.0.0.1:9273";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_is_that_of_the_table() {
        let metrics = ServiceSettings::SECTION.settings.iter().find(|s| s.name == "metrics");
        assert_eq!(metrics.and_then(|setting| setting.default), Some(METRICS_DEFAULT));
    }
}
