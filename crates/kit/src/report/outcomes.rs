//! One self-contained page of experiments: curves beside what the papers state, and where they
//! differ.

use super::lines;
use super::page::{document, table};
use crate::experiment::{Check, Record, Size};
use crate::machine::Machine;
use crate::results::Outcome;
use maud::{Markup, html};

pub fn page(outcomes: &[Outcome]) -> String {
    let (held, of) = outcomes.iter().map(Outcome::held).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let body = html! {
        header {
            h1 { "The papers’ figures, measured here" }
            p { (held) " of " (of) " claims and targets hold. " (circumstances(outcomes)) }
            @if outcomes.iter().any(|o| o.record.size == Size::Smoke) {
                p class="warning" {
                    "Some experiments ran at smoke size: orderings hold, figures mean little."
                }
            }
        }
        (contents(outcomes))
        @for outcome in outcomes { (section(outcome)) }
        footer {
            p { "ATC 2020: Zhou, Yu, Kaminsky, Andersen, "
                em { "Fast Software Cache Design for Network Appliances" }
                ", USENIX ATC 2020. Dissertation: Zhou, "
                em { "Data Structure Engineering for High Performance Software Packet Processing" }
                ", Carnegie Mellon University, 2019. Solid lines are measured, dashed calculated; "
                "bars reach from the lowest to the highest measurement; diamonds are "
                "values that the papers state." }
        }
    };
    document("Overbank lab: the papers' figures, measured", "lab", &body)
}

pub fn machine_line(machine: &Machine) -> String {
    let pinned = machine.pinned_core.map_or("not pinned".to_owned(), |c| format!("core {c}"));
    format!("{} ({} logical processors; {pinned})", machine.cpu, machine.cores)
}

pub fn settings_line(record: &Record) -> String {
    let settings = record.settings.iter().map(|(name, value)| format!("{name}: {value}"));
    settings.collect::<Vec<_>>().join("; ")
}

/// Says when and where records were made, if all agree.
fn circumstances(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let mut dates: Vec<&str> = outcomes.iter().map(|o| o.date.as_str()).collect();
    dates.sort_unstable();
    let days = match (dates.first(), dates.last()) {
        (Some(a), Some(b)) if a != b => format!("{a} to {b}"),
        _ => first.date.clone(),
    };
    if outcomes.iter().all(|o| o.machine == first.machine) {
        format!("Made {days} on {}, with Overbank {}.", machine_line(&first.machine), first.version)
    } else {
        format!("Made {days} on several machines, see each experiment.")
    }
}

fn contents(outcomes: &[Outcome]) -> Markup {
    html! {
        div class="scroll" { table class="text wrap" {
            thead { tr { th { "experiment" } th { "what" } th { "source" } th { "holds" } } }
            tbody {
                @for o in outcomes {
                    @let (held, of) = o.held();
                    tr {
                        td { a href={ "#" (o.record.name) } { (o.record.name) } }
                        td { (o.record.title) }
                        td { (o.record.source) }
                        td class=(if held == of { "good one" } else { "warning one" }) {
                            @if of > 0 { (held) " of " (of) } @else { "–" }
                        }
                    }
                }
            }
        } }
    }
}

fn section(outcome: &Outcome) -> Markup {
    let record = &outcome.record;
    html! {
        section id=(record.name) {
            h2 { (record.title) }
            p class="soft" { (record.source) ". " (settings_line(record)) }
            @for plot in &record.plots {
                figure {
                    h3 { (plot.title) }
                    (lines::svg(plot))
                    figcaption {
                        (machine_line(&outcome.machine)) ". " (settings_line(record))
                    }
                }
            }
            (checks(&record.checks))
            @for t in &record.tables { (table(t)) }
            @if !record.notes.is_empty() {
                h3 { "Notes" }
                @for note in &record.notes { p { (note) } }
            }
            p class="soft" {
                "Made with " code { (outcome.command) } " on " (outcome.date) ", seed "
                (record.seed) ", in " (format!("{:.1}", record.seconds)) " s"
                @if record.size == Size::Smoke { ", smoke size" } "."
            }
        }
    }
}

fn checks(checks: &[Check]) -> Markup {
    if checks.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Claims and targets" }
        div class="scroll" { table class="text wrap" {
            thead { tr { th { "" } th { "claim" } th { "stated" } th { "measured" } } }
            tbody { @for check in checks {
                tr {
                    @if check.holds { td class="good" { "✓ holds" } }
                    @else { td class="warning" { "✗ differs" } }
                    td { (check.claim) }
                    td { (check.stated) }
                    td {
                        (check.measured)
                        @if !check.reason.is_empty() { p class="soft" { (check.reason) } }
                    }
                }
            } }
        } }
    }
}
