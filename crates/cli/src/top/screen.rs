//! The screen of `overbank top`.

use super::{HEADS, Readings, rows, summary};
use anyhow::Result;
use overbank_live::rates::Rates;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Readings that the curve shows, at most.
const HISTORY: usize = 512;
/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// Shows readings until somebody presses q, Escape or Ctrl-C.
pub(super) fn run(readings: &mut Readings) -> Result<()> {
    let mut terminal = ratatui::init();
    let outcome = show(readings, &mut terminal);
    ratatui::restore();
    outcome
}

fn show(readings: &mut Readings, terminal: &mut DefaultTerminal) -> Result<()> {
    let interval = std::mem::replace(&mut readings.interval, Duration::ZERO);
    let mut history = VecDeque::new();
    let mut next = Instant::now() + interval;
    terminal.draw(|frame| frame.render_widget(Paragraph::new("reading …"), frame.area()))?;
    let mut last: Option<Rates> = None;
    loop {
        if wants_to_end(next)? {
            return Ok(());
        }
        if Instant::now() >= next {
            next += interval;
            let rates = readings.next()?;
            if history.len() == HISTORY {
                history.pop_back();
            }
            history.push_front(rates.total.packets as u64);
            last = Some(rates);
        }
        if let Some(rates) = &last {
            terminal.draw(|frame| draw(frame, rates, &history))?;
        }
    }
}

/// Waits for keys until `until`, or a little while.
fn wants_to_end(until: Instant) -> Result<bool> {
    let wait = until.saturating_duration_since(Instant::now()).min(KEYS_EVERY);
    if !event::poll(wait)? {
        return Ok(false);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            let ctrl_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
        }
        _ => false,
    })
}

fn draw(frame: &mut Frame<'_>, rates: &Rates, history: &VecDeque<u64>) {
    let rows = rows(rates);
    let [head, curve, ports, workers] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(7),
        Constraint::Length(rows.len() as u16 + 3),
        Constraint::Min(0),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(rates)), head);
    let history: Vec<u64> = history.iter().copied().collect();
    let most = history.iter().max().copied().unwrap_or(0);
    let title = format!(" packets a second, newest left, up to {} ", super::short(most as f64));
    let curve_widget = Sparkline::default()
        .block(Block::bordered().title(title))
        .data(&history)
        .style(Style::new().cyan());
    frame.render_widget(curve_widget, curve);
    let widths = [6, 18, 12, 12, 12, 12, 12, 12, 12].map(Constraint::Length);
    let table = Table::new(rows.into_iter().map(|row| Row::new(row.to_vec())), widths)
        .header(Row::new(HEADS.to_vec()).bold())
        .block(Block::bordered().title(" ports "));
    frame.render_widget(table, ports);
    let lines: Vec<Line<'_>> = rates
        .workers
        .iter()
        .enumerate()
        .map(|(i, w)| {
            Line::from(format!(
                "worker {i}: {} packets/s, {} in tier 1, {} in tier 2, {} in tier 3, {:.1} a burst",
                super::short(w.packets),
                super::short(w.microflow),
                super::short(w.megaflow),
                super::short(w.classifier),
                w.burst,
            ))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), workers);
}
