//! Prints advice about a proxy before Redis. `let _ = writeln!`: writing to a string does not fail.

use super::draw;
use overbank_kit::experiment::Table;
use overbank_kit::report::{ENDED_EARLY, count};
use overbank_products::kv_advise::Advice;
use overbank_products::kv_advise::record::{Hot, Input};
use std::fmt::Write;

/// Characters of a key that are shown.
const KEY_SHOWN: usize = 40;

/// Returns the advice, the recommendation first.
pub fn render(advice: &Advice) -> String {
    let mut out = format!(
        "{} commands of {} clients in {:.1} s: {} a second, at most {}\n",
        count(advice.commands),
        count(advice.clients),
        advice.seconds,
        rate(advice.per_second),
        count(advice.peak_per_second)
    );
    if advice.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    advice.inputs.iter().for_each(|input| notes(input, &mut out));
    if advice.script_calls > 0 {
        let _ = writeln!(out, "calls of scripts, not counted: {}", count(advice.script_calls));
    }
    let _ = writeln!(out, "\n{}\n", advice.recommendation.reason);
    for table in [sizes(advice), classes(advice)] {
        let _ = writeln!(out, "{}\n{}\n", table.title, draw(&table));
    }
    if !advice.hot.is_empty() {
        let table = hot(advice);
        let _ = writeln!(out, "{}\n{}\n", table.title, draw(&table));
    }
    match &advice.skew {
        Some(skew) => {
            let _ = writeln!(
                out,
                "Skew of the reads: like Zipf θ = {:.2} over {} keys (same collision probability, \
                 same keys seen);\nthe shares of the hottest keys differ from the law's by at most \
                 {:.1} points",
                skew.theta,
                count(skew.keys as u64),
                100.0 * skew.error
            );
        }
        None => out.push_str("Skew of the reads: unknown, as fewer than two keys are read\n"),
    }
    out
}

/// Says what of an input was not read.
fn notes(input: &Input, out: &mut String) {
    let mut note = |what: String| {
        let _ = writeln!(out, "{}: {what}", input.file);
    };
    if let Some(bad) = &input.first_bad {
        let (lines, bad_lines) = (count(input.lines), count(input.bad_lines));
        note(format!(
            "{bad_lines} bad of {lines} lines, the first is line {}: {}",
            bad.line, bad.text
        ));
    }
    if input.cut_lines > 0 {
        note(format!("{} lines longer than 1 MiB", count(input.cut_lines)));
    }
    if let Some(error) = &input.error {
        note(format!("read as far as it goes: {error}"));
    }
    let packets = input.packets.unwrap_or_default();
    let streams = input.streams.unwrap_or_default();
    for (what, number) in [
        ("packets of link types that are not read", packets.other_links),
        ("fragments of IP packets, not put together", packets.fragments),
        ("segments cut by a snap length", packets.cut_short),
        ("connections that began before the capture", streams.joined),
        ("connections not followed, as there were too many", streams.refused),
        ("gaps", streams.gaps),
        ("bytes missing in gaps", streams.missing_bytes),
        ("bytes skipped up to the next request", streams.skipped_bytes),
        ("times that a connection was no RESP", streams.not_resp),
        ("of them like TLS", streams.tls),
        ("requests too long to look at whole", streams.long_requests),
        ("connections given up, as all held too much", streams.overfull),
    ] {
        if number > 0 {
            note(format!("{} {what}", count(number)));
        }
    }
}

fn sizes(advice: &Advice) -> Table {
    Table::of(
        "What a proxy would have done (simulated)",
        &advice.sizes,
        &[
            ("entries", &|size| count(size.entries as u64)),
            ("reads answered", &|size| count(size.hits)),
            ("of cacheable", &|size| percent(size.read_share)),
            ("fills", &|size| count(size.fills)),
            ("saved", &|size| match u64::try_from(size.saved) {
                Ok(saved) => count(saved),
                Err(_) => format!("-{}", count(size.saved.unsigned_abs())),
            }),
            ("of all commands", &|size| percent(size.command_share)),
        ],
    )
}

fn classes(advice: &Advice) -> Table {
    let name = |class: &str| match class {
        "cacheable_reads" => "reads that a cache could answer".to_owned(),
        other => other.replace('_', " "),
    };
    Table::of(
        "Commands",
        &advice.classes,
        &[
            ("class", &|class| name(class.class)),
            ("commands", &|class| count(class.commands)),
            ("share", &|class| percent(class.share)),
            ("a second", &|class| rate(class.per_second)),
        ],
    )
}

fn hot(advice: &Advice) -> Table {
    let keys = &advice.keys;
    let distinct = count(keys.distinct);
    let title = match keys.exact {
        true => format!("Hot keys of {distinct}"),
        false => format!(
            "Hot keys of about {distinct}; a count may be too low by up to {}",
            count(keys.missed)
        ),
    };
    Table::of(
        title,
        &advice.hot,
        &[
            ("key", &|hot| shown(hot)),
            ("share", &|hot| percent(hot.share)),
            ("a second", &|hot| rate(hot.per_second)),
            ("reads", &|hot| count(hot.reads + hot.other_reads)),
            ("writes", &|hot| count(hot.writes)),
        ],
    )
}

/// Returns the start of a key.
fn shown(hot: &Hot) -> String {
    let is_long = hot.cut > 0 || hot.key.len() > KEY_SHOWN;
    let start = hot.key.get(..KEY_SHOWN).unwrap_or(&hot.key);
    if is_long { format!("{start}…") } else { start.to_owned() }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { count(per_second as u64) }
}
