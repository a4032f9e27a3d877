//! The lines above the table for the gateway.

use super::{count, short};
use crate::switch::rates::Rates;
use crate::switch::rates::gateway::GatewayRates;
use std::fmt::Write as _;

/// Reasons of drops that are shown: the most frequent ones.
const REASONS: usize = 4;

/// Returns what became of the packets.
pub(super) fn verdicts(gateway: &GatewayRates) -> String {
    let of = |name| short(gateway.rates.get(name));
    let bits = |name| {
        let bits = short(gateway.rates.get(name) * 8.0);
        let gap = if bits.contains(' ') { "" } else { " " };
        format!("{bits}{gap}bit/s")
    };
    // An empty sum is -0.
    let dropped = gateway.dropped.values().sum::<f64>() + 0.0;
    let (up, down) = (bits("uplink_bytes"), bits("downlink_bytes"));
    format!(
        "uplink {} ({up})   downlink {} ({down})   dropped {}",
        of("uplink"),
        of("downlink"),
        short(dropped)
    )
}

/// Returns the lines below: drops by reason, sessions, N4.
pub(super) fn rest(rates: &Rates, gateway: &GatewayRates) -> String {
    let mut text = String::new();
    let mut reasons: Vec<(&String, &f64)> = gateway.dropped.iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(a.1));
    for (reason, rate) in reasons.iter().take(REASONS) {
        let _ = write!(text, "{}{reason} {}/s", gap(&text), short(**rate));
    }
    if let Some(more) = reasons.len().checked_sub(REASONS).filter(|more| *more > 0) {
        let _ = write!(text, "   {more} more reasons");
    }
    if !text.is_empty() {
        text.insert(0, '\n');
    }
    let answers = ["echo_answered", "error_indications", "extensions_notified", "icmp_errors"];
    let answered: f64 = answers.iter().map(|name| gateway.rates.get(name)).sum();
    let _ = write!(
        text,
        "\n{} sessions of {}   {} keys rest   {} answers/s",
        count(gateway.sessions),
        count(gateway.sessions_max),
        count(gateway.resting),
        short(answered),
    );
    let across = gateway.rates.get("fabric_sent") + gateway.rates.get("fabric_received");
    if across > 0.0 {
        let sent = short(gateway.rates.get("fabric_sent"));
        let received = short(gateway.rates.get("fabric_received"));
        let _ = write!(text, "   fabric {sent} out, {received} in");
    }
    if let Some(cluster) = &gateway.cluster {
        let t = &cluster.totals;
        let _ = write!(
            text,
            "\nnode {}: {}   {} of {} members live   {} sessions here   {} arrive   {} moved on   \
             {} batches behind",
            cluster.node,
            cluster.state,
            t.live,
            cluster.members,
            count(t.serving),
            count(t.arriving),
            count(t.moved),
            count(t.lag),
        );
    }
    if !gateway.n4.is_empty() {
        let of = |name: &str| gateway.n4.get(name).copied().unwrap_or(0.0);
        let _ = write!(
            text,
            "\nN4: {} associations   {} sessions   {} requests/s   {} refused/s   {} garbage/s",
            count(of("associations") as u64),
            count(of("sessions") as u64),
            short(of("requests_s")),
            short(of("refused_s")),
            short(of("garbage_s")),
        );
    }
    let _ = write!(text, "   up {:.0} s", rates.uptime_ms as f64 / 1e3);
    text
}

/// Returns the gap to the next item of a line.
fn gap(line: &str) -> &'static str {
    if line.is_empty() { "" } else { "   " }
}
