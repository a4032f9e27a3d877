//! The settings of every service.

use overbank_declare::settings::Off;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Cap of connections to each endpoint. With a similar bound on controllers, nearly half of the
/// usual 1024 descriptors remain for ports and files.
pub const CONNECTIONS_MAX: usize = 256;

overbank_declare::choices! {
    pub enum LogLevel: "LEVEL" {
        Off = "off", "nothing";
        Error = "error", "failures";
        Warn = "warn", "possible problems";
        Info = "info", "events";
        Debug = "debug", "details";
        Trace = "trace", "every step";
    }
}

overbank_declare::choices! {
    pub enum LogFormat: "FORMAT" {
        Text = "text", "for people";
        Json = "json", "one object a line";
    }
}

overbank_declare::settings! {
    pub struct ServiceSettings: "Metrics, status and logs" {
        metrics: Off<SocketAddr> = "127.0.0.1:9273",
            "Address of the HTTP endpoint for metrics and status";
        metrics_connections: usize = 64, in 1..=CONNECTIONS_MAX,
            "Limit of concurrent connections to the HTTP endpoint; more wait";
        status_socket: Off<PathBuf> = "off",
            "Path of the status socket, which `overbank top` reads"
            example "/run/overbank/switch.sock";
        status_connections: usize = 16, in 1..=64,
            "Limit of concurrent connections to the status socket; more wait";
        log: LogLevel = "info", "Log level: off, error, warn, info, debug or trace";
        log_format: LogFormat = "text", "Log format: text or json";
        duration: Option<Duration>, "Seconds to run" or "runs until a signal"
            example "60";
        keep_privileges: bool = false, "Keep privileges that open ports no longer need";
    }
}

pub const METRICS_DEFAULT: &str = "127.0.0.1:9273";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_equals_the_tables() {
        let metrics = ServiceSettings::SECTION.settings.iter().find(|s| s.name == "metrics");
        assert_eq!(metrics.and_then(|setting| setting.default), Some(METRICS_DEFAULT));
    }
}
