//! Self-contained HTML pages and what they are made of: no script, no font, nothing from a network.
//! [`outcomes::page`] is the page of experiments; products make theirs of the same parts.

mod axis;
pub mod bars;
pub mod cells;
pub mod heat;
pub mod lines;
pub mod markdown;
pub mod outcomes;
pub mod page;

/// What is said where a record was ended early.
pub const ENDED_EARLY: &str = "Ended early: the figures cover what was done until then.";

/// Shows a count with thin spaces between thousands.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let head = digits.len() % 3;
    let mut out = digits[..head].to_owned();
    for (i, digit) in digits[head..].chars().enumerate() {
        if i % 3 == 0 && !out.is_empty() {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

pub fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.decimals$}"))
}

pub fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}
