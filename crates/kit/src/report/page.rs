//! What every page has: the head, the style, nothing from a network.

use crate::experiment::Table;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Renders a whole document. `class` is that of its body.
pub fn document(title: &str, class: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body class=(class) { (body) }
        }
    }
    .into_string()
}

/// Renders a table, with its title if it has one. It scrolls sideways where it is too wide.
pub fn table(table: &Table) -> Markup {
    html! {
        @if !table.title.is_empty() { h3 { (table.title) } }
        div class="scroll" { table {
            thead { tr { @for heading in &table.headings { th { (heading) } } } }
            tbody { @for row in &table.rows { tr { @for cell in row { td { (cell) } } } } }
        } }
    }
}

pub fn ended_early(interrupted: bool) -> Markup {
    html! { @if interrupted { p class="warning" { (super::ENDED_EARLY) } } }
}

pub fn made(version: &str, command: &str) -> Markup {
    html! { p { "Made by Overbank " (version) " with " code { (command) } "." } }
}
