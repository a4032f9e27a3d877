//! The screen of `overbank top`.

use super::{Readings, rows, summary};
use crate::switch::rates::Rates;
use anyhow::Result;
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
/// Heads of the table of ports, short enough for 80 columns.
const HEADS: [&str; 9] =
    ["port", "name", "in/s", "bit/s", "dropped/s", "missed/s", "out/s", "bit/s", "unsent/s"];
/// Width of each column; the name gets what is left.
const WIDTHS: [u16; 9] = [5, 0, 8, 8, 9, 8, 8, 8, 8];
/// Widest name: 15 letters, and that it is down.
const NAME_MAX: u16 = 22;
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
        Constraint::Length(4),
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
    // Two borders, and a space between columns.
    let others = WIDTHS.iter().sum::<u16>() + 2 + WIDTHS.len() as u16 - 1;
    let mut widths = WIDTHS;
    widths[1] = frame.area().width.saturating_sub(others).clamp(4, NAME_MAX);
    let widths = widths.map(Constraint::Length);
    let table = Table::new(rows.into_iter().map(|row| Row::new(row.to_vec())), widths)
        .header(Row::new(HEADS.to_vec()).bold())
        .block(Block::bordered().title(" ports "));
    frame.render_widget(table, ports);
    let lines: Vec<Line<'_>> = rates
        .workers
        .iter()
        .enumerate()
        .map(|(i, w)| {
            let how = match rates.mode.as_str() {
                "l2" => format!("{} flooded", super::short(w.flooded)),
                _ => format!(
                    "{} in tier 1, {} in tier 2, {} in tier 3",
                    super::short(w.microflow),
                    super::short(w.megaflow),
                    super::short(w.classifier),
                ),
            };
            let packets = super::short(w.packets);
            Line::from(format!("worker {i}: {packets} packets/s, {how}, {:.1} a burst", w.burst))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), workers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::rates::{PortRates, SCHEMA, WorkerRates};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(mode: &str, width: u16, height: u16) -> String {
        let port = PortRates {
            number: 65279,
            name: "veth0".to_owned(),
            link_up: true,
            received: 123_456_789.0,
            received_bytes: 98_765_432_100.0,
            forwarded: 0.0,
            to_controller: 0.0,
            dropped: 7.0,
            missed: 8.0,
            sent: 9.0,
            sent_bytes: 10.0,
            not_sent: 987_654_321.0,
        };
        let total = WorkerRates {
            packets: 123_456_789.0,
            microflow: 123_456_789.0,
            megaflow: 0.0,
            classifier: 0.0,
            flooded: 12_345.0,
            not_learned: 1e6,
            burst: 32.0,
            megaflows: 65_536,
            datapath_share: Some(1.0),
        };
        let rates = Rates {
            schema: SCHEMA,
            interval_ms: 1000,
            uptime_ms: 86_400_000,
            mode: mode.to_owned(),
            ports: vec![port],
            workers: vec![total.clone()],
            total,
            rules: 1_000_000,
            controllers: 16,
            stations: 2_500_000_000,
            learned: 123_456.0,
            closes: true,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
        let history = VecDeque::from([1, 2, 3]);
        terminal.draw(|frame| draw(frame, &rates, &history)).expect("in memory");
        terminal.backend().to_string()
    }

    #[test]
    fn nothing_is_cut_off_at_80_columns() {
        let rules = screen("openflow", 80, 24);
        for wanted in [
            "tier 3 0.0 %",
            "32.0 a burst",
            "datapath 100 % of the time",
            "16 controllers",
            "up 86400 s",
            "in/s     bit/s    dropped/s missed/s out/s    bit/s    unsent/s",
            "65279 veth0",
            "123.46 M 790.12 G 7",
            "987.65 M",
            "worker 0: 123.46 M packets/s",
        ] {
            assert!(rules.contains(wanted), "{wanted}:\n{rules}");
        }
        let ethernet = screen("l2", 80, 24);
        for wanted in [
            "Ethernet   flooded 0.0 %",
            "2.50 G stations   123.46 k learned/s   1.00 M not learned/s   up 86400 s",
            "worker 0: 123.46 M packets/s, 12.35 k flooded, 32.0 a burst",
        ] {
            assert!(ethernet.contains(wanted), "{wanted}:\n{ethernet}");
        }
    }

    #[test]
    fn no_size_panics() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 10), (300, 100)] {
            screen("openflow", width, height);
            screen("l2", width, height);
        }
    }
}
