//! Draws the screen of `overbank gateway demo`, in real time.

use super::reading::Reading;
use super::script::Command;
use super::world::{STEP_MS, World};
use crate::top::short;
use anyhow::Result;
use overbank_gateway::local::Links;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState, Wrap};
use ratatui::{DefaultTerminal, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// Time between the two readings of a rate.
const RATE_MS: u64 = 1000;
/// Lag that is given up: the machine is too slow for the traffic.
const LAG_MAX: Duration = Duration::from_millis(200);
/// Sessions that the key m moves.
const MOVE: usize = 1000;
/// Messages that are kept.
const MESSAGES: usize = 64;
/// Least lines of verdicts and messages, with the border.
const LOWER: u16 = 9;
const KEYS: [(&str, &str); 9] = [
    ("↑↓", "node"),
    ("k", "kill"),
    ("s", "start"),
    ("d", "drain"),
    ("c", "cut"),
    ("l", "slow"),
    ("h", "heal"),
    ("m", "move"),
    ("a", "add"),
];

/// What the screen shows beside the reading.
#[derive(Default)]
struct Shown {
    selected: usize,
    messages: VecDeque<String>,
    rates: BTreeMap<&'static str, f64>,
    /// By node: received, handled, forwarded, dropped.
    node_rates: Vec<[f64; 4]>,
    /// Virtual seconds a real one.
    speed: f64,
}

/// Shows the cluster until q, Ctrl-C or SIGTERM, or for some seconds.
pub fn run(world: &mut World, seconds: Option<u32>, stop: &AtomicBool) -> Result<()> {
    let mut terminal = ratatui::init();
    let outcome = show(world, seconds, stop, &mut terminal);
    // Fails if the terminal is gone: there is nothing to restore.
    let _ = ratatui::try_restore();
    outcome
}

fn show(
    world: &mut World,
    seconds: Option<u32>,
    stop: &AtomicBool,
    terminal: &mut DefaultTerminal,
) -> Result<()> {
    let mut shown = Shown { speed: 1.0, ..Shown::default() };
    let mut before = (world.read(), Instant::now());
    let (step, mut next) = (Duration::from_millis(STEP_MS), Instant::now());
    let mut frame_at = Instant::now();
    let over = |world: &World| seconds.is_some_and(|s| world.time_ms() >= u64::from(s) * 1000);
    while !stop.load(Ordering::Relaxed) && !over(world) {
        if Instant::now() >= next {
            world.tick();
            next += step;
            next = next.max(Instant::now().checked_sub(LAG_MAX).unwrap_or(next));
        }
        let until = next.min(frame_at);
        if event::poll(until.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && press(key, world, &mut shown)
        {
            return Ok(());
        }
        if Instant::now() < frame_at {
            continue;
        }
        frame_at = Instant::now() + FRAME;
        let now = world.read();
        if now.time_s - before.0.time_s >= RATE_MS as f64 / 1e3 {
            shown.take_rates(&before.0, &now);
            shown.speed = (now.time_s - before.0.time_s) / before.1.elapsed().as_secs_f64();
            before = (now.clone(), Instant::now());
        }
        terminal.draw(|frame| draw(frame, &now, &shown))?;
    }
    Ok(())
}

impl Shown {
    fn take_rates(&mut self, before: &Reading, now: &Reading) {
        let seconds = now.time_s - before.time_s;
        self.rates = now.rates(before);
        let counts = |reading: &Reading, at: usize| {
            let node = reading.nodes.get(at);
            node.map_or([0; 4], |n| [n.received, n.handled, n.forwarded, n.dropped])
        };
        let rates = (0..now.nodes.len()).map(|at| {
            let (new, old) = (counts(now, at), counts(before, at));
            std::array::from_fn(|nth| (new[nth] - old[nth]) as f64 / seconds)
        });
        self.node_rates = rates.collect();
    }
}

/// Does what a key says; returns whether it ends the demo.
fn press(key: KeyEvent, world: &mut World, shown: &mut Shown) -> bool {
    let rows = world.read().nodes.len();
    let node = shown.selected as u8;
    let command = match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Up => {
            shown.selected = shown.selected.saturating_sub(1);
            return false;
        }
        KeyCode::Down => {
            shown.selected = (shown.selected + 1).min(rows - 1);
            return false;
        }
        KeyCode::Char('k') => Command::Kill(node),
        KeyCode::Char('s') => Command::Start(node),
        KeyCode::Char('d') => Command::Drain(node),
        KeyCode::Char('c') => Command::Link(node, Links::Cut),
        KeyCode::Char('l') => Command::Link(node, Links::Lagging),
        KeyCode::Char('h') => Command::Link(node, Links::Whole),
        KeyCode::Char('m') => Command::Move(node, MOVE),
        KeyCode::Char('a') => match world.free_node() {
            Some(node) => Command::Start(node),
            None => {
                shown.messages.push_front("all 32 nodes run".to_owned());
                return false;
            }
        },
        _ => return false,
    };
    let seconds = world.time_ms() as f64 / 1e3;
    let text = match world.perform(command) {
        Ok(done) => done.unwrap_or_default(),
        Err(error) => format!("{command}: {error}"),
    };
    shown.messages.push_front(format!("{seconds:>6.1} s  {text}"));
    shown.messages.truncate(MESSAGES);
    false
}

fn draw(frame: &mut Frame<'_>, now: &Reading, shown: &Shown) {
    let [head, nodes, lower, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Max(now.nodes.len() as u16 + 3),
        Constraint::Min(LOWER),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(now, shown)), head);
    let columns = [
        ("node", 4),
        ("state", 14),
        ("sessions", 8),
        ("moving", 6),
        ("parts", 5),
        ("table", 6),
        ("in/s", 6),
        ("out/s", 6),
        ("fabric", 6),
        ("drop/s", 6),
    ];
    let rows = now.nodes.iter().enumerate().map(|(at, node)| {
        let rates = shown.node_rates.get(at).copied().unwrap_or_default();
        let coordinates = if now.coordinator == Some(node.node) { "*" } else { "" };
        let links = if node.links == "whole" { "" } else { node.links };
        let first = [
            format!("{}{coordinates}", node.node).into(),
            format!("{} {links}", node.state).into(),
        ];
        let sizes = [
            node.serving.to_string(),
            node.moving.to_string(),
            node.partitions.to_string(),
            memory(node.table_bytes),
        ];
        let numbers = sizes.into_iter().chain(rates.into_iter().map(compact));
        let numbers = numbers.map(|number| Line::from(number).right_aligned());
        Row::new(first.into_iter().chain(numbers)).style(colour(node.state))
    });
    let title = format!(
        " {} members, coordinator * {}, epochs {} ",
        now.members,
        now.coordinator.map_or("none".to_owned(), |node| node.to_string()),
        now.epochs,
    );
    let header = columns.iter().enumerate().map(|(at, (head, _))| match at {
        ..2 => Line::from(*head),
        _ => Line::from(*head).right_aligned(),
    });
    let widths = columns.map(|(_, width)| Constraint::Length(width));
    let table = Table::new(rows, widths)
        .header(Row::new(header).bold())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(title));
    let mut state = TableState::default().with_selected(Some(shown.selected));
    frame.render_stateful_widget(table, nodes, &mut state);
    let [left, right] =
        Layout::horizontal([Constraint::Length(38), Constraint::Min(0)]).areas(lower);
    let block = Block::bordered().title(" packets: verdict, a second, total ");
    frame.render_widget(Paragraph::new(verdicts(now, shown, left.height)).block(block), left);
    let messages: Vec<Line<'_>> = shown.messages.iter().map(|text| Line::from(&**text)).collect();
    let block = Block::bordered().title(" events, newest first ");
    frame.render_widget(Paragraph::new(messages).block(block).wrap(Wrap { trim: false }), right);
    frame.render_widget(Paragraph::new(keys_line()), keys);
}

fn keys_line() -> Line<'static> {
    let keys = KEYS.into_iter().chain([("q", "quit")]);
    let spans = keys.flat_map(|(key, does)| [key.bold().cyan(), Span::raw(format!(" {does}  "))]);
    Line::from(spans.collect::<Vec<_>>())
}

fn summary(now: &Reading, shown: &Shown) -> Vec<Line<'static>> {
    let of = |name| shown.rates.get(name).copied().unwrap_or(0.0);
    let handled = short(of("uplink") + of("downlink"));
    let slow =
        if shown.speed < 0.95 { format!(" (time × {:.2})", shown.speed) } else { String::new() };
    let wrong = match (now.misrouted, now.closes) {
        (0, true) => "0 misrouted".green(),
        (0, false) => "ACCOUNTS DO NOT CLOSE".red().bold(),
        (count, _) => format!("{count} PACKETS MISROUTED").red().bold(),
    };
    vec![
        Line::from(vec![
            "overbank gateway demo".bold(),
            Span::raw(format!("   {handled} packets/s   ")),
            wrong,
            Span::raw(format!("   {:.1} s{slow}", now.time_s)),
        ]),
        Line::from(format!(
            "{} of {} sessions handled, {} on their way   moves: {} done, {} refused",
            now.serving,
            now.sessions,
            now.nodes.iter().map(|node| node.moving).sum::<usize>(),
            now.moves_done,
            now.moves_refused,
        )),
    ]
}

/// Returns the verdicts that fit: the fixed ones, then the reasons with most packets.
fn verdicts(now: &Reading, shown: &Shown, height: u16) -> Vec<Line<'static>> {
    let mut all: Vec<_> = now.verdicts().collect();
    let reasons = all.len().min(6);
    all[reasons..].sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.retain(|(name, count)| *count > 0 || *name != "turned_away");
    let lines = all.into_iter().take(usize::from(height.saturating_sub(2)));
    let line = |(name, count): (&'static str, u64)| {
        let rate = shown.rates.get(name).copied().unwrap_or(0.0);
        let text = format!("{name:<16}{:>9} {count:>10}", compact(rate));
        let is_loss = !["uplink", "downlink", "forwarded"].contains(&name);
        if is_loss && rate > 0.0 { Line::from(text).red() } else { Line::from(text) }
    };
    lines.map(line).collect()
}

/// Formats a rate in at most six letters.
fn compact(rate: f64) -> String {
    match rate {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e5 => format!("{:.0}k", n / 1e3),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Formats bytes in at most six letters.
fn memory(bytes: usize) -> String {
    match bytes {
        n if n >= 1 << 20 => format!("{:.1}M", n as f64 / f64::from(1 << 20)),
        n => format!("{:.0}K", n as f64 / 1024.0),
    }
}

fn colour(state: &str) -> Style {
    Style::new().fg(match state {
        "live" => Color::Green,
        "down" => Color::Red,
        "left" => Color::DarkGray,
        _ => Color::Yellow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::demo::world::tests::world;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(now: &Reading, shown: &Shown, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
        terminal.draw(|frame| draw(frame, now, shown)).expect("in memory");
        terminal.backend().to_string()
    }

    #[test]
    fn all_is_there_at_80_columns_and_no_size_panics() {
        let mut world = world(4);
        let mut shown = Shown { speed: 0.5, ..Shown::default() };
        let before = world.read();
        for key in [KeyCode::Down, KeyCode::Char('k'), KeyCode::Down, KeyCode::Char('c')] {
            assert!(!press(KeyEvent::from(key), &mut world, &mut shown));
        }
        (0..100).for_each(|_| world.tick());
        let now = world.read();
        shown.take_rates(&before, &now);
        let text = screen(&now, &shown, 80, 24);
        for wanted in [
            "1.0 s (time × 0.50)",
            "0 misrouted",
            "4 members, coordinator * 0, epochs",
            "node state          sessions moving parts  table   in/s  out/s fabric drop/s",
            "1    down",
            "2    live cut",
            "verdict, a second, total",
            "node 2 is cut off",
            "m move  a add  q quit",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 10), (300, 100)] {
            screen(&now, &shown, width, height);
        }
        assert!(press(KeyEvent::from(KeyCode::Char('q')), &mut world, &mut shown));
    }
}
