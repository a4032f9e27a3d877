//! Draws the screen of `overbank top`.

use super::{Reading, Readings, heads, rows, summary};
use crate::switch::rates::{Column, NETCACHE, Rates, columns};
use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};
use ratatui::{DefaultTerminal, Frame};
use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Readings in the curve, at most.
const HISTORY: usize = 512;
/// Narrowest column of numbers: `987.65 M`.
const NUMBER_WIDTH: u16 = 8;
/// Width of the column of port numbers.
const PORT_WIDTH: u16 = 5;
/// Widest name: 15 letters, and a mark if it is down.
const NAME_MAX: u16 = 22;
/// Letters of a name that number columns may not take: `veth0` and a mark if it is down.
const NAME_SHOWN: u16 = 12;
/// Columns that a narrow screen drops, in this order.
const LESS_IMPORTANT: [&str; 6] =
    ["missed", "not_sent", "sent_bytes", "received_bytes", "dropped", "sent"];
/// Time between two looks at the keys.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// Shows readings until q, Escape or Ctrl-C.
pub(super) fn run(readings: &mut Readings) -> Result<()> {
    let end = || {
        // Fails if the terminal is gone: there is nothing to restore.
        let _ = ratatui::try_restore();
        std::process::exit(130);
    };
    // A read of keys does not end when its terminal is gone.
    ctrlc::set_handler(end).context("cannot handle signals")?;
    let mut terminal = ratatui::init();
    let outcome = show(readings, &mut terminal);
    let _ = ratatui::try_restore();
    outcome
}

fn show(readings: &mut Readings, terminal: &mut DefaultTerminal) -> Result<()> {
    let interval = std::mem::replace(&mut readings.interval, Duration::ZERO);
    let mut history = VecDeque::new();
    let mut next = Instant::now() + interval;
    terminal.draw(|frame| frame.render_widget(Paragraph::new("reading …"), frame.area()))?;
    let mut last: Option<Reading> = None;
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
            history.push_front(match &rates {
                Reading::Switch(rates) => rates.total.rates.get("packets") as u64,
                #[cfg(feature = "kv-proxy")]
                Reading::Proxy(rates) => rates.rates.get("commands") as u64,
            });
            last = Some(rates);
        }
        match &last {
            None => {}
            Some(Reading::Switch(rates)) => {
                terminal.draw(|frame| draw(frame, rates, &history))?;
            }
            #[cfg(feature = "kv-proxy")]
            Some(Reading::Proxy(rates)) => {
                terminal.draw(|frame| draw_proxy(frame, rates, &history))?;
            }
        }
    }
}

/// Waits for keys until `until`, or a little while.
fn wants_to_end(until: Instant) -> Result<bool> {
    if !std::io::stdout().is_terminal() {
        bail!("the terminal is gone");
    }
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
    let width = frame.area().width;
    let names = rows(rates, &[]).into_iter().map(|row| row[1].chars().count() as u16);
    let (columns, name) = fitting(columns(), names.max().unwrap_or(0), width);
    let (heads, rows) = (heads(&columns), rows(rates, &columns));
    let summary = flowed(&summary(rates), width);
    let [head, curve, ports, workers] = Layout::vertical([
        Constraint::Length(summary.len() as u16 + 1),
        Constraint::Length(7),
        Constraint::Length(rows.len() as u16 + 3),
        Constraint::Min(0),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary), head);
    draw_curve(frame, curve, "packets", history);
    let widths = [PORT_WIDTH, name].into_iter().chain(columns.iter().map(number_width));
    let widths = widths.map(Constraint::Length);
    let table = Table::new(rows.into_iter().map(Row::new), widths)
        .header(Row::new(heads).bold())
        .block(Block::bordered().title(" ports "));
    frame.render_widget(table, ports);
    let lines: Vec<Line<'_>> = rates
        .workers
        .iter()
        .enumerate()
        .map(|(i, w)| {
            let of = |name| super::short(w.rates.get(name));
            let how = match rates.mode.as_str() {
                NETCACHE => format!("{} hits, {} misses", of("kv_hits"), of("kv_misses")),
                "l2" => format!("{} flooded", of("flooded")),
                "gateway" => {
                    let of = |name| super::short(w.gateway.get(name));
                    format!("{} uplink, {} downlink", of("uplink"), of("downlink"))
                }
                _ => format!(
                    "{} in tier 1, {} in tier 2, {} in tier 3",
                    of("microflow"),
                    of("megaflow"),
                    of("classifier"),
                ),
            };
            let packets = of("packets");
            Line::from(format!("worker {i}: {packets} packets/s, {how}, {:.1} a burst", w.burst))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), workers);
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, what: &str, history: &VecDeque<u64>) {
    let history: Vec<u64> = history.iter().copied().collect();
    let most = history.iter().max().copied().unwrap_or(0);
    let most = super::short(most as f64);
    let title = match area.width {
        ..50 => format!(" {what}/s, up to {most} "),
        _ => format!(" {what} a second, newest left, up to {most} "),
    };
    let curve = Sparkline::default()
        .block(Block::bordered().title(title))
        .data(&history)
        .style(Style::new().cyan());
    frame.render_widget(curve, area);
}

#[cfg(feature = "kv-proxy")]
fn draw_proxy(frame: &mut Frame<'_>, rates: &super::proxy::Rates, history: &VecDeque<u64>) {
    let summary = flowed(&rates.summary(), frame.area().width);
    let [head, curve, missed] = Layout::vertical([
        Constraint::Length(summary.len() as u16 + 1),
        Constraint::Length(7),
        Constraint::Min(0),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary), head);
    draw_curve(frame, curve, "commands", history);
    // Without the meanings, which a narrow screen has no room for.
    let row = |[reason, _, rate, share]: [String; 4]| Row::new([reason, rate, share]);
    let [reason, _, rate, share] = super::proxy::Rates::HEADS;
    let table = Table::new(rates.rows().into_iter().map(row), [12, NUMBER_WIDTH + 1, 8])
        .header(Row::new([reason, rate, share]).bold())
        .block(Block::bordered().title(" reads that were no hits "));
    frame.render_widget(table, missed);
}

/// Returns the width of a column of numbers.
fn number_width(column: &Column) -> u16 {
    NUMBER_WIDTH.max(column.head.len() as u16)
}

/// Returns the most important columns that fit the screen, and the width of names; the longest has
/// `longest` letters.
fn fitting(mut columns: Vec<Column>, longest: u16, width: u16) -> (Vec<Column>, u16) {
    let names = longest.clamp(4, NAME_SHOWN);
    // Two borders, and a space between columns.
    let others = |columns: &[Column]| {
        2 + PORT_WIDTH + 1 + columns.iter().map(|column| number_width(column) + 1).sum::<u16>()
    };
    for rate in LESS_IMPORTANT {
        if others(&columns) + names > width {
            columns.retain(|column| column.rate != rate);
        }
    }
    let name = width.saturating_sub(others(&columns)).clamp(4, NAME_MAX);
    (columns, name)
}

/// Breaks a text into lines of at most `width`, at its runs of three spaces.
fn flowed(text: &str, width: u16) -> Vec<Line<'static>> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        lines.push(String::new());
        for item in line.split("   ") {
            let last = lines.last_mut().expect("one was put in");
            if last.is_empty() {
                last.push_str(item);
            } else if last.chars().count() + 3 + item.chars().count() <= usize::from(width) {
                last.push_str("   ");
                last.push_str(item);
            } else {
                lines.push(item.to_owned());
            }
        }
    }
    lines.into_iter().map(Line::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::status::{ClusterStatus, GATEWAY_SCHEMA, PortStatus, Status, WorkerStatus};
    use overbank_device::DeviceTotals;
    use overbank_gateway::GatewayTotals;
    use overbank_gateway::cluster::ClusterTotals;
    use overbank_ofctl::RuleTotals;
    use overbank_runtime::{PortTotals, WorkerTotals};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(mode: &str, width: u16, height: u16) -> String {
        let port = PortStatus {
            number: 65279,
            name: "veth0".to_owned(),
            link_up: true,
            totals: PortTotals {
                received: 123_456_789,
                received_bytes: 98_765_432_100,
                missed: 8,
                sent: 9,
                sent_bytes: 10,
                not_sent: [987_654_321, 0, 0, 0, 0],
                ..PortTotals::default()
            },
            dropped: [("no_rule".to_owned(), 7)].into(),
        };
        let worker = WorkerStatus {
            worker: WorkerTotals {
                packets: 123_456_789,
                bursts: 3_858_025,
                ..WorkerTotals::default()
            },
            engine: RuleTotals {
                microflow_hits: 123_456_789,
                flooded: 12_345,
                learn_limited: 1_000_000,
                megaflows: 65_536,
                ..RuleTotals::default()
            },
            device: DeviceTotals { kv_hits: 7_000_000, kv_misses: 3000, ..DeviceTotals::default() },
            gateway: GatewayTotals {
                uplink: 100_000_000,
                uplink_bytes: 12_500_000_000,
                downlink: 3,
                downlink_bytes: 4,
                echo_answered: 5,
                ..GatewayTotals::default()
            },
            datapath_share: Some(1.0),
        };
        let mut new = Status {
            uptime_ms: 86_400_000,
            mode: mode.to_owned(),
            ports: vec![port],
            workers: vec![worker.clone()],
            total: worker,
            closes: true,
            ..Status::default()
        };
        if mode == "gateway" {
            new.schema = GATEWAY_SCHEMA.to_owned();
            let reasons =
                [("unknown_teid", 900), ("gate_closed", 80), ("loop", 2), ("fragment", 1)];
            new.ports[0].dropped.extend(reasons.map(|(reason, n)| (reason.to_owned(), n)));
            new.control.sessions_max = 65_536;
            new.control.sessions.sessions = 50_000;
            let n4 = [("associations", 2), ("sessions", 7), ("requests", 30), ("refused", 4)];
            new.n4 = Some(n4.map(|(name, n)| (name.to_owned(), n)).into());
            new.control.cluster = Some(ClusterStatus {
                node: 3,
                state: Some("live".to_owned()),
                totals: ClusterTotals { live: 2, serving: 49_990, lag: 4, ..Default::default() },
                members: vec![Default::default(); 3],
                ..Default::default()
            });
        }
        new.control.totals.rules = 1_000_000;
        new.control.totals.controllers = 16;
        new.control.stations.totals.stations = 2_500_000_000;
        new.control.stations.macs.learned = 123_456;
        let old = Status {
            uptime_ms: new.uptime_ms - 1000,
            ports: vec![PortStatus::default()],
            workers: vec![WorkerStatus::default()],
            ..Status::default()
        };
        let rates = Rates::between(&old, &new).expect("a second");
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
            "datapath 100 % of the work on packets",
            "16 controllers",
            "up 86400 s",
            "in/s     bit/s    missed/s out/s    bit/s    unsent/s dropped/s",
            "65279 veth0",
            "123.46 M 790.12 G 8",
            "987.65 M",
            "worker 0: 123.46 M packets/s",
        ] {
            assert!(rules.contains(wanted), "{wanted}:\n{rules}");
        }
        let ethernet = screen("l2", 80, 24);
        for wanted in [
            "Ethernet   flooded 0.0 %",
            "2.50 G addresses   123.46 k learned/s   1.00 M not learned/s   up 86400 s",
            "worker 0: 123.46 M packets/s, 12.35 k flooded, 32.0 a burst",
        ] {
            assert!(ethernet.contains(wanted), "{wanted}:\n{ethernet}");
        }
    }

    #[test]
    fn a_cache_shows_hits_and_misses() {
        let cache = screen("netcache", 80, 24);
        for wanted in [
            "Ethernet   flooded 0.0 %   cache hits 7.00 M/s",
            "misses 3.00 k/s",
            "worker 0: 123.46 M packets/s, 7.00 M hits, 3.00 k misses, 32.0 a burst",
        ] {
            assert!(cache.contains(wanted), "{wanted}:\n{cache}");
        }
    }

    #[test]
    fn a_gateway_shows_verdicts_sessions_and_n4() {
        let gateway = screen("gateway", 80, 24);
        for wanted in [
            "123.46 M packets/s   uplink 100.00 M (100.00 Gbit/s)   downlink 3 (32 bit/s)",
            "dropped 990",
            "unknown_teid 900/s   gate_closed 80/s   no_rule 7/s   loop 2/s   1 more reasons",
            "50000 sessions of 65536   0 keys rest   5 answers/s",
            "node 3: live   2 of 3 members live   49990 sessions here   0 arrive   0 moved on",
            "4 batches behind",
            "N4: 2 associations   7 sessions   30 requests/s   4 refused/s   0 garbage/s",
            "up 86400 s",
            "worker 0: 123.46 M packets/s, 100.00 M uplink, 3 downlink, 32.0 a burst",
        ] {
            assert!(gateway.contains(wanted), "{wanted}:\n{gateway}");
        }
        assert!(!gateway.contains("tier") && !gateway.contains("rules"), "{gateway}");
    }

    /// A narrow screen has fewer columns, all whole, and always the port.
    #[test]
    fn narrow_screens_have_fewer_columns_and_whole_ones() {
        for width in 40..130 {
            let rules = screen("openflow", width, 24);
            let numbers: &[&str] = match width {
                ..50 => &["123.46 M"],
                50..80 => &["123.46 M", "9"],
                _ => &["123.46 M", "790.12 G", "8", "987.65 M"],
            };
            let row = rules.lines().find(|line| line.contains("65279")).expect("the port");
            assert!(row.contains("veth0"), "{width}:\n{rules}");
            for number in numbers {
                assert!(row.contains(&format!(" {number} ")), "{width}, {number}:\n{rules}");
            }
            for whole in ["123.46 M packets/s", "tier 3 0.0 %", "work on packets", "up 86400 s"] {
                assert!(rules.contains(whole), "{width}, {whole}:\n{rules}");
            }
        }
    }

    #[cfg(feature = "kv-proxy")]
    #[test]
    fn a_proxy_shows_hits_and_why_reads_were_none() {
        let rates = crate::top::proxy::tests::busy();
        let screen = |width, height| {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
            let history = VecDeque::from([100_000, 2, 3]);
            terminal.draw(|frame| draw_proxy(frame, &rates, &history)).expect("in memory");
            terminal.backend().to_string()
        };
        let text = screen(80, 24);
        for wanted in [
            "127.0.0.1:6380 before redis://127.0.0.1:6379   mode cache   50 clients",
            "100.00 k commands/s   80.00 k answered here (80.0 %)   20.00 k passed on",
            "commands a second, newest left, up to 100.00 k",
            "not_cached   9.00 k    10.0 %",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        [(1, 1), (3, 40), (200, 2), (20, 10)].into_iter().for_each(|(w, h)| drop(screen(w, h)));
    }

    #[test]
    fn no_size_panics() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 10), (300, 100)] {
            screen("openflow", width, height);
            screen("l2", width, height);
            screen("netcache", width, height);
        }
    }
}
