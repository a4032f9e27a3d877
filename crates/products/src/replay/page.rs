//! A replay as one self-contained HTML page.

use super::record::{DesignRecord, Replay, TrafficRecord};
use super::tables;
use maud::{Markup, html};
use overbank_kit::report::bars::{Bar, Chart};
use overbank_kit::report::page::{document, ended_early, made, table};
use overbank_kit::report::{TextTable, count};

/// The page. `command` is what the reader would type to make it again.
pub fn page(replay: &Replay, command: &str) -> String {
    let title = format!("Overbank replay: {}", traffic_line(&replay.traffic));
    let body = html! {
        header {
            h1 { "What each flow cache does to this traffic" }
            p { (traffic_line(&replay.traffic)) ", " (replay.rules) " rules, on one core of "
                (replay.machine.cpu) "." }
            (ended_early(replay.interrupted))
        }
        (text_table(&tables::rates(&replay.designs)))
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
        (tiers(replay))
        (fates(replay))
        footer {
            p { "All designs forwarded " (count(replay.digest_packets))
                " packets alike, byte for byte: digest " code { (replay.digest) } "." }
            (made(replay.version, command))
        }
    };
    document(&title, "", &body)
}

/// The traffic in one line.
pub fn traffic_line(traffic: &TrafficRecord) -> String {
    match traffic {
        TrafficRecord::Capture { file, frames, .. } => format!("{file}, {} frames", count(*frames)),
        TrafficRecord::BuiltIn { flows, theta, alpha, .. } => {
            let spread = match *theta {
                0.0 => "uniform".to_owned(),
                theta => format!("Zipf θ = {theta}"),
            };
            format!("{} flows, {spread}, α = {alpha:.2}", count(u64::from(*flows)))
        }
    }
}

fn text_table(text: &TextTable) -> Markup {
    table(text.headings, &text.rows)
}

fn rates(replay: &Replay) -> Markup {
    let bar = |d: &DesignRecord| Bar {
        label: d.design.clone(),
        value: d.mpps,
        range: d.mpps_min.zip(d.mpps_max),
        class: "a",
    };
    let bars = replay.designs.iter().map(bar).collect();
    Chart { axis: "million packets a second".to_owned(), bars, decimals: 2, max: None }.svg()
}

fn hit_rates(replay: &Replay) -> Markup {
    let designs = replay.designs.iter().filter(|d| d.slots > 0);
    let bars = designs.map(|d| Bar {
        label: d.design.clone(),
        value: Some(d.hit_rate * 100.0),
        range: None,
        class: "a",
    });
    let axis = "hits per 100 lookups".to_owned();
    Chart { axis, bars: bars.collect(), decimals: 2, max: Some(100.0) }.svg()
}

fn costs(replay: &Replay) -> Markup {
    let designs = replay.designs.iter().filter(|d| d.ns_hit.is_some());
    let bars = designs.flat_map(|d| {
        let hit = Bar { label: d.design.clone(), value: d.ns_hit, range: None, class: "a" };
        let miss = Bar { label: String::new(), value: d.ns_miss, range: None, class: "b" };
        [hit, miss]
    });
    let axis = "nanoseconds a packet".to_owned();
    Chart { axis, bars: bars.collect(), decimals: 0, max: None }.svg()
}

fn tiers(replay: &Replay) -> Markup {
    html! {
        section {
            h2 { "The three tiers" }
            h3 { "Measured rounds" }
            (text_table(&tables::tiers(&replay.designs, |d| &d.totals)))
            h3 { "First pass, from cold caches on" }
            (text_table(&tables::tiers(&replay.designs, |d| &d.first_pass)))
        }
    }
}

fn fates(replay: &Replay) -> Markup {
    let Some(first) = replay.designs.first() else { return html! {} };
    // Every design did the same to every packet, so one table serves for all.
    let ports = first.first_pass.ports.iter();
    let ports = ports.map(|p| vec![p.port.to_string(), count(p.packets), count(p.bytes)]);
    let drops = first.first_pass.drops.iter().map(|(r, n)| vec![(*r).to_owned(), count(*n)]);
    html! {
        section class="pair" {
            div {
                h2 { "Where the packets of the first pass went" }
                (table(&["port", "packets", "bytes"], &ports.collect::<Vec<_>>()))
            }
            @if !first.first_pass.drops.is_empty() {
                div {
                    h2 { "Dropped in the first pass" }
                    (table(&["reason", "packets"], &drops.collect::<Vec<_>>()))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Source;
    use super::super::{Length, Plan, run};
    use super::*;
    use overbank_kit::traffic::Traffic;
    use overbank_kit::workload::FlowStream;
    use overbank_switch::parse::parse_rules;
    use overbank_switch::translate::Tables;
    use std::sync::atomic::AtomicBool;

    fn replay() -> Replay {
        let traffic = Traffic::default();
        let stream = FlowStream::uniform(100, 1).expect("flows");
        let source = Source::BuiltIn { stream: &stream, traffic };
        let rules = parse_rules(&traffic.rules()).expect("rules");
        let plan = Plan {
            contestants: ["none", "set-4"].map(|name| name.parse().expect("known")).into(),
            entries: 64,
            megaflows: 64,
            ports: (1..8).collect(),
            seed: 1,
            isa: None,
            warmup_loops: 1,
            length: Length::Loops(1),
            rounds: 1,
            pinned_core: None,
        };
        let record = TrafficRecord::BuiltIn { flows: 100, theta: 0.0, classes: 20, alpha: 1.5 };
        let tables = Tables::new(rules).expect("tables");
        let stop = AtomicBool::new(false);
        run(&plan, &source, &tables, record, None, &stop, &mut |_| {}).expect("alike")
    }

    #[test]
    fn the_foot_tells_the_digest_and_how_much_it_covers() {
        let mut replay = replay();
        replay.digest_packets = 1_234_567;
        let page = page(&replay, "overbank replay");
        let sentence = "All designs forwarded 1\u{202f}234\u{202f}567 packets alike";
        assert!(page.contains(sentence));
        assert!(page.contains(&format!("<code>{}</code>", replay.digest)));
    }

    #[test]
    fn a_design_without_a_cache_has_a_rate_and_no_hit_rate() {
        let replay = replay();
        let (rates, hits) = (rates(&replay).into_string(), hit_rates(&replay).into_string());
        for (name, has_hits) in [("none", false), ("set-4", true)] {
            let label = format!(">{name}</text>");
            assert!(rates.contains(&label), "{name}");
            assert_eq!(hits.contains(&label), has_hits, "{name}");
        }
    }

    #[test]
    fn the_tables_of_tiers_tell_the_rounds_and_the_first_pass() {
        let mut replay = replay();
        for (n, design) in replay.designs.iter_mut().enumerate() {
            design.totals.packets = 100 + n as u64;
            design.first_pass.packets = 200 + n as u64;
        }
        let tiers = tiers(&replay).into_string();
        let (rounds, first_pass) = tiers.split_once("First pass").expect("two tables");
        for (n, design) in replay.designs.iter().enumerate() {
            let row = |packets| format!("<tr><td>{}</td><td>{packets}</td>", design.design);
            assert!(rounds.contains(&row(100 + n)) && !rounds.contains(&row(200 + n)), "{rounds}");
            assert!(first_pass.contains(&row(200 + n)), "{first_pass}");
            assert!(!first_pass.contains(&row(100 + n)), "{first_pass}");
        }
    }

    #[test]
    fn an_early_end_is_told() {
        let mut replay = replay();
        assert!(!page(&replay, "").contains("Ended early"));
        replay.interrupted = true;
        assert!(page(&replay, "").contains("Ended early"));
    }
}
