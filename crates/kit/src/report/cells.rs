//! Rows of labelled cells as inline SVG: what lies where, coloured by state.
//!
//! ```text
//!                     slot 0   slot 1   …
//!  way 0, family 1  ▌[  1f  ][  03  ] …       ▌ the colour of a group of rows
//!  way 1             [ a cell over all columns ]
//! ```
//!
//! A cell's class gives its colour; the style sheet has those for caches (`hot`, `valid`,
//! `invalid`, `ordinary`, `none`).

use maud::{Markup, html};

/// A cell over `span` columns.
#[derive(Clone, Debug)]
pub struct Cell {
    pub class: &'static str,
    pub span: usize,
    pub text: String,
}

/// A row; `mark` is the number of its group, which chooses a colour.
#[derive(Clone, Debug)]
pub struct Row {
    pub label: String,
    pub mark: Option<usize>,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
pub struct Cells {
    /// What is drawn, for readers that do not see it.
    pub what: String,
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 190.0;
const MARK: f64 = 6.0;
const HEAD: f64 = 20.0;
const ROW: f64 = 22.0;
const GAP: f64 = 2.0;
/// Colours of the style sheet, `s0` and on.
const COLOURS: usize = 10;

impl Cells {
    pub fn svg(&self) -> Markup {
        let column = (WIDTH - LABEL_WIDTH) / self.columns.len().max(1) as f64;
        let height = HEAD + self.rows.len() as f64 * ROW;
        html! {
            svg class="cells" viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
                aria-label=(self.what) {
                @for (at, heading) in self.columns.iter().enumerate() {
                    text class="tick" x=(round(LABEL_WIDTH + (at as f64 + 0.5) * column)) y="14"
                        text-anchor="middle" { (heading) }
                }
                @for (at, row) in self.rows.iter().enumerate() {
                    @let top = HEAD + at as f64 * ROW;
                    text class="label" x=(LABEL_WIDTH - 2.0 * MARK - 4.0) y=(top + 15.0)
                        text-anchor="end" { (row.label) }
                    @if let Some(mark) = row.mark {
                        rect class={ "mark s" (mark % COLOURS) } x=(LABEL_WIDTH - MARK - 4.0)
                            y=(top) width=(MARK) height=(ROW) {}
                    }
                    (cells(row, column, top))
                }
            }
        }
    }
}

fn cells(row: &Row, column: f64, top: f64) -> Markup {
    let starts = row.cells.iter().scan(0, |next, cell| {
        let at = *next;
        *next += cell.span;
        Some(at)
    });
    html! {
        @for (cell, start) in row.cells.iter().zip(starts) {
            @let left = LABEL_WIDTH + start as f64 * column;
            @let width = cell.span as f64 * column;
            rect class=(cell.class) x=(round(left + GAP / 2.0)) y=(top + GAP / 2.0) rx="2"
                width=(round(width - GAP)) height=(ROW - GAP) {}
            @if !cell.text.is_empty() {
                text class={ "in " (cell.class) } x=(round(left + width / 2.0)) y=(top + 15.0)
                    text-anchor="middle" { (cell.text) }
            }
        }
    }
}

fn round(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_labels_marks_and_cells() {
        let cell = |class, span, text: &str| Cell { class, span, text: text.to_owned() };
        let rows = vec![
            Row {
                label: "way 0".to_owned(),
                mark: Some(12),
                cells: vec![cell("hot", 1, "<1f>"), cell("invalid", 1, "")],
            },
            Row { label: "way 1".to_owned(), mark: None, cells: vec![cell("none", 2, "empty")] },
        ];
        let columns = ["slot 0", "slot 1"].map(str::to_owned).into();
        let svg = Cells { what: "a set".to_owned(), columns, rows }.svg().into_string();
        assert_eq!(svg.matches("<rect").count(), 4, "three cells and a mark");
        assert!(svg.contains("mark s2") && svg.contains("&lt;1f&gt;") && svg.contains("slot 1"));
        assert!(!Cells { what: String::new(), columns: vec![], rows: vec![] }.svg().0.is_empty());
    }
}
