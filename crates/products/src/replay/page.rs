//! A replay as one self-contained HTML page.

use super::record::Replay;
use super::tables;
use maud::{Markup, html};
use overbank_kit::experiment::Table;
use overbank_kit::report::bars::{Bar, Chart};
use overbank_kit::report::count;
use overbank_kit::report::page::{document, ended_early, made, table};

const COLD: &str = "First pass, from cold caches on";

/// Renders the page. `command` is what the reader would type to make it again.
pub fn page(replay: &Replay, command: &str) -> String {
    let title = format!("Overbank replay: {}", replay.traffic);
    let body = html! {
        header {
            h1 { "What each flow cache does to this traffic" }
            p { (replay.traffic.to_string()) ", " (replay.rules) " rules, on one core of "
                (replay.machine.cpu) "." }
            (ended_early(replay.interrupted))
        }
        (table(&tables::rates(&replay.designs)))
        figure {
            h2 { "Packet rate" }
            (rates(replay))
            figcaption { "Million packets a second, median of " (replay.settings.rounds)
                " rounds in which all designs took turns; whiskers: slowest and fastest round." }
        }
        figure {
            h2 { "Hit rate of tier 1" }
            (hit_rates(replay))
            figcaption { "Packets that the signature cache knew, after verification, in percent." }
        }
        @if replay.designs.iter().any(|d| d.ns_hit.is_some()) {
            figure {
                h2 { "Cost of a hit and of a miss" }
                (costs(replay))
                figcaption { span class="key a" {} " hit  " span class="key b" {} " miss. "
                    "Nanoseconds of a whole packet, from bursts of 32 by their number of misses. "
                    "A dash: the traffic had no misses, or every burst had as many." }
            }
        }
        section {
            h2 { "The three tiers" }
            (table(&tables::tiers("Measured rounds", &replay.designs, |d| &d.totals)))
            (table(&tables::tiers(COLD, &replay.designs, |d| &d.first_pass)))
        }
        (fates(replay))
        footer {
            p { "All designs forwarded " (count(replay.digest_packets))
                " packets alike, byte for byte: digest " code { (replay.digest) } "." }
            (made(replay.version, command))
        }
    };
    document(&title, "", &body)
}

fn rates(replay: &Replay) -> Markup {
    let bars = replay
        .designs
        .iter()
        .map(|d| Bar { range: d.mpps_min.zip(d.mpps_max), ..Bar::new(&d.design, d.mpps) });
    Chart { axis: "million packets a second", bars: bars.collect(), decimals: 2, max: None }.svg()
}

fn hit_rates(replay: &Replay) -> Markup {
    let designs = replay.designs.iter().filter(|d| d.slots > 0);
    let bars = designs.map(|d| Bar::new(&d.design, Some(d.hit_rate * 100.0))).collect();
    Chart { axis: "hits per 100 lookups", bars, decimals: 2, max: Some(100.0) }.svg()
}

fn costs(replay: &Replay) -> Markup {
    let designs = replay.designs.iter().filter(|d| d.ns_hit.is_some());
    let bars = designs.flat_map(|d| {
        [Bar::new(&d.design, d.ns_hit), Bar { class: "b", ..Bar::new("", d.ns_miss) }]
    });
    Chart { axis: "nanoseconds a packet", bars: bars.collect(), decimals: 0, max: None }.svg()
}

fn fates(replay: &Replay) -> Markup {
    // Every design did the same to every packet, so one table serves for all.
    let Some(first) = replay.designs.first().map(|d| &d.first_pass) else { return html! {} };
    let ports = Table::of(
        "Where the packets of the first pass went",
        &first.ports,
        &[
            ("port", &|p| p.port.to_string()),
            ("packets", &|p| count(p.packets)),
            ("bytes", &|p| count(p.bytes)),
        ],
    );
    let drops = Table::of(
        "Dropped in the first pass",
        &first.drops,
        &[("reason", &|(reason, _)| reason.to_string()), ("packets", &|(_, n)| count(**n))],
    );
    html! {
        section class="pair" {
            div { (table(&ports)) }
            @if !drops.rows.is_empty() { div { (table(&drops)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Length, tests::replay};
    use super::*;

    #[test]
    fn the_page_agrees_with_the_record() {
        let mut replay = replay(Length::Loops(1));
        replay.digest_packets = 1_234_567;
        for (n, design) in replay.designs.iter_mut().enumerate() {
            design.totals.packets = 100 + n as u64;
            design.first_pass.packets = 200 + n as u64;
        }
        let text = page(&replay, "");
        let sentence = "All designs forwarded 1\u{202f}234\u{202f}567 packets alike";
        assert!(text.contains(sentence) && !text.contains("Ended early"));
        assert!(text.contains(&format!("<code>{}</code>", replay.digest)));
        let tiers = text.split_once("The three tiers").expect("a section").1;
        let (rounds, first_pass) = tiers.split_once(COLD).expect("two tables");
        for (n, design) in replay.designs.iter().enumerate() {
            let row = |packets| format!("<tr><td>{}</td><td>{packets}</td>", design.design);
            assert!(rounds.contains(&row(100 + n)) && !rounds.contains(&row(200 + n)), "{rounds}");
            assert!(first_pass.contains(&row(200 + n)), "{first_pass}");
            assert!(!first_pass.contains(&row(100 + n)), "{first_pass}");
            // Without a cache there is a rate and no hit rate.
            let label = format!(">{}</text>", design.design);
            assert!(rates(&replay).into_string().contains(&label));
            let has_hits = hit_rates(&replay).into_string().contains(&label);
            assert_eq!(has_hits, design.design != "none");
        }
        replay.interrupted = true;
        assert!(page(&replay, "").contains("Ended early"));
    }
}
