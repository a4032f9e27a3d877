//! Commands of the demo: parsed once, from `--script` or from keys.

use overbank_gateway::local::{Links, NODES_MAX};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// Most commands of a script.
const COMMANDS_MAX: usize = 1000;
/// Most seconds of a `wait`.
const WAIT_MAX_S: f64 = 3600.0;
/// Longest time of a `settle`.
const SETTLE_MAX_MS: u64 = 60_000;
const FORMS: &str = "kill N, start N, drain N, cut N, slow N, heal N, move N COUNT, wait S, settle";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    Kill(u8),
    Start(u8),
    Drain(u8),
    Link(u8, Links),
    Move(u8, usize),
    WaitMs(u64),
    Settle,
}

impl Command {
    /// Returns the longest time that it takes.
    pub const fn wait_ms(self) -> u64 {
        match self {
            Command::WaitMs(ms) => ms,
            Command::Settle => SETTLE_MAX_MS,
            _ => 0,
        }
    }

    pub const fn settles(self) -> bool {
        matches!(self, Command::Settle)
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> Result<Command, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = || format!("\"{}\": must be one of {FORMS}", text.trim());
        let node = |word: &str| match word.parse::<u8>() {
            Ok(node) if node < NODES_MAX => Ok(node),
            _ => Err(format!("\"{}\": N must be 0 to {}", text.trim(), NODES_MAX - 1)),
        };
        Ok(match words[..] {
            ["kill", n] => Command::Kill(node(n)?),
            ["start", n] => Command::Start(node(n)?),
            ["drain", n] => Command::Drain(node(n)?),
            ["cut", n] => Command::Link(node(n)?, Links::Cut),
            ["slow", n] => Command::Link(node(n)?, Links::Lagging),
            ["heal", n] => Command::Link(node(n)?, Links::Whole),
            ["move", n, count] => match count.parse() {
                Ok(count @ 1..=1_000_000) => Command::Move(node(n)?, count),
                _ => return Err(format!("\"{}\": COUNT must be 1 to 1000000", text.trim())),
            },
            ["wait", s] => match s.parse::<f64>() {
                Ok(s) if (0.01..=WAIT_MAX_S).contains(&s) => Command::WaitMs((s * 1e3) as u64),
                _ => return Err(format!("\"{}\": S must be 0.01 to 3600", text.trim())),
            },
            ["settle"] => Command::Settle,
            _ => return Err(wrong()),
        })
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Kill(node) => write!(f, "kill {node}"),
            Command::Start(node) => write!(f, "start {node}"),
            Command::Drain(node) => write!(f, "drain {node}"),
            Command::Link(node, Links::Cut) => write!(f, "cut {node}"),
            Command::Link(node, Links::Lagging) => write!(f, "slow {node}"),
            Command::Link(node, Links::Whole) => write!(f, "heal {node}"),
            Command::Move(node, count) => write!(f, "move {node} {count}"),
            Command::WaitMs(ms) => write!(f, "wait {}", *ms as f64 / 1e3),
            Command::Settle => f.write_str("settle"),
        }
    }
}

/// Commands in their order.
#[derive(Clone, Debug, Default)]
pub struct Script(Vec<Command>);

impl Script {
    pub fn commands(&self) -> impl Iterator<Item = Command> {
        self.0.iter().copied()
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Script, String> {
        let parts = text.split([';', '\n']).filter(|part| !part.trim().is_empty());
        let commands =
            parts.take(COMMANDS_MAX + 1).map(str::parse).collect::<Result<Vec<_>, _>>()?;
        match commands.len() {
            0 => Err(format!("no command; must be some of {FORMS}")),
            1..=COMMANDS_MAX => Ok(Script(commands)),
            _ => Err(format!("more than {COMMANDS_MAX} commands")),
        }
    }
}
