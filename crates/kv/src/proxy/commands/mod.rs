//! What the proxy knows of Redis' commands: which arguments are keys, which keys a request writes,
//! and what else it does to connection, server or cache.
//!
//! ```text
//!   COMMAND reply ──▶ reply ─┐                    ┌─ names   look-up by name and subcommand
//!   redis-7.0.txt ──▶ table ─┴─▶ Commands ──find──┤
//!                                                 └─ Command ─┬─ keys    spec: positions
//!                                                             └─ class   Class, is_shareable
//! ```
//!
//! The server's own data win. The table of Redis 7.0 adds what they lack: key specifications, which
//! Redis has had since 7.0, subcommands, and commands that the server does not list.
//!
//! Guarantees: each key that a request names and that Redis may write because of it is reported as
//! written, or [`Keys::Unknown`] says that some may be missing. So it is for a command that neither
//! the server nor the table knows: the server may have renamed one (`rename-command`), and COMMAND
//! lists it under its old name. Nothing panics on any request.
//!
//! Cost: a GET is found and classified without allocation, in a few tens of nanoseconds.

mod class;
mod keys;
mod names;
mod reply;
mod spec;

use class::{KINDS, Kind};
use keys::{RULES, Rule, SPECS};
use names::Names;
use overbank_wire::resp::Request;
use spec::{Begin, Find, Spec};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub use class::{Class, GET, Hello, Null, ReplyMode, names_of_cacheable};
pub use keys::{Keys, is_word};
pub use reply::ReplyError;
pub use spec::Access;

/// Flags that commands are classified by.
mod flags {
    pub const WRITE: u32 = 1;
    pub const READONLY: u32 = 1 << 1;
    pub const BLOCKING: u32 = 1 << 2;
    pub const MOVABLE: u32 = 1 << 3;
    pub const NOSCRIPT: u32 = 1 << 4;
    pub const ADMIN: u32 = 1 << 5;
    pub const PUBSUB: u32 = 1 << 6;
    pub const ASKING: u32 = 1 << 7;

    /// Their names, from the lowest on.
    pub const NAMES: [&str; 8] =
        ["write", "readonly", "blocking", "movablekeys", "noscript", "admin", "pubsub", "asking"];

    /// Returns the flag of a name, or none.
    pub fn of(name: &str) -> u32 {
        let nth = NAMES.iter().position(|other| name.eq_ignore_ascii_case(other));
        nth.map_or(0, |nth| 1 << nth)
    }
}

/// Commands of Redis 7.0, a line each: name, arity, flags, key specifications.
const TABLE: &str = include_str!("redis-7.0.txt");

/// Commands whose flag says write, that only read with some arguments.
const READ_TOO: [&str; 4] = ["bitfield", "georadius", "georadiusbymember", "sort"];

/// One command or subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    name: String,
    /// Number of arguments with the name; at least that many if negative.
    arity: i64,
    flags: u32,
    /// As the server or the table has them.
    specs: Vec<Spec>,
    /// The server has listed it, so that it refuses a wrong number of arguments.
    is_of_server: bool,
    /// They are made of first key, last key and step.
    are_specs_legacy: bool,
    has_subcommands: bool,
    reads_too: bool,
    kind: Kind,
    number: Option<u8>,
    rule: Rule,
}

/// The commands of a server.
#[derive(Clone, Debug)]
pub struct Commands {
    names: Names,
    commands: Vec<Command>,
    unknown: Command,
}

impl Commands {
    /// Returns those of Redis 7.0.
    pub fn builtin() -> Arc<Commands> {
        static BUILTIN: LazyLock<Arc<Commands>> =
            LazyLock::new(|| Arc::new(Commands::new(table())));
        BUILTIN.clone()
    }

    /// Returns those of a server by its reply to COMMAND, in RESP2 or RESP3, with those of Redis
    /// 7.0 for what is missing.
    ///
    /// # Errors
    /// If the reply is not whole, is an error, or is no list of commands.
    pub fn of_reply(reply: &[u8]) -> Result<Commands, ReplyError> {
        let mut commands = table();
        for mut command in reply::commands(reply)? {
            if let Some(known) = commands.get(&command.name) {
                command.flags |= known.flags & (flags::WRITE | flags::BLOCKING);
                if (command.specs.is_empty() || command.are_specs_legacy) && !known.specs.is_empty()
                {
                    command.specs.clone_from(&known.specs);
                }
            }
            commands.insert(command.name.clone(), command);
        }
        Ok(Commands::new(commands))
    }

    fn new(mut by_name: BTreeMap<String, Command>) -> Commands {
        let numbers: BTreeMap<String, u32> = by_name.keys().cloned().zip(0..).collect();
        let mut names = Vec::new();
        for (name, number) in &numbers {
            let container = name.split_once('|').and_then(|(container, subcommand)| {
                Some((by_name.get_mut(container)?, *numbers.get(container)?, subcommand))
            });
            names.push(match container {
                Some((container, of, subcommand)) => {
                    container.has_subcommands = true;
                    (Some(of), subcommand.as_bytes(), *number)
                }
                None => (None, name.as_bytes(), *number),
            });
        }
        let names = Names::new(&names);
        let commands = by_name.into_values().map(Command::with_rules).collect();
        let mut unknown = Command::new(String::new(), 0, flags::WRITE, Vec::new());
        unknown.kind = Kind::Is(Class::Close);
        Commands { names, commands, unknown }
    }

    /// Returns the command of a request; one without a name if it is unknown.
    #[inline]
    pub fn find(&self, request: &Request<'_>) -> &Command {
        let name = request.arg(0).unwrap_or_default();
        match self.get(None, name) {
            Some((number, command)) if command.has_subcommands => {
                self.subcommand(number, request).unwrap_or(command)
            }
            Some((_, command)) => command,
            None => &self.unknown,
        }
    }

    fn subcommand(&self, container: u32, request: &Request<'_>) -> Option<&Command> {
        let name = request.arg(1)?;
        // Redis compares names up to a zero byte.
        let end = || name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let found = self.get(Some(container), name);
        Some(found.or_else(|| self.get(Some(container), &name[..end()]))?.1)
    }

    fn get(&self, container: Option<u32>, name: &[u8]) -> Option<(u32, &Command)> {
        let number = self.names.get(container, name)?;
        Some((number, self.commands.get(number as usize)?))
    }
}

impl Command {
    fn new(name: String, arity: i64, flags: u32, specs: Vec<Spec>) -> Command {
        Command {
            name,
            arity,
            flags,
            specs,
            is_of_server: false,
            are_specs_legacy: false,
            has_subcommands: false,
            reads_too: false,
            kind: Kind::Plain,
            number: None,
            rule: Rule::Specs,
        }
    }

    /// Adds what is known by its name.
    fn with_rules(mut self) -> Command {
        let name = self.name.as_str();
        let at = KINDS.iter().position(|(other, _)| *other == name);
        let kind = at.and_then(|at| Some(KINDS.get(at)?.1));
        let is_cacheable = matches!(kind, Some(Kind::Cacheable { .. }));
        self.number = at.filter(|_| is_cacheable).and_then(|at| u8::try_from(at).ok());
        let close = Kind::Is(Class::Close);
        self.kind = kind.unwrap_or(if self.has_subcommands { close } else { Kind::Plain });
        if let Some((_, rule)) = RULES.iter().find(|(other, _)| *other == name) {
            self.rule = *rule;
        }
        if let Some((_, specs)) = SPECS.iter().find(|(other, _)| *other == name) {
            self.specs = specs.iter().filter_map(|text| Spec::read(text)).collect();
        }
        self.reads_too = READ_TOO.contains(&name);
        self
    }

    /// Returns the command's number among those whose replies may be cached; the same for every
    /// server.
    pub fn number(&self) -> Option<u8> {
        self.number
    }

    /// Returns the name in lower case, of a subcommand as `config|set`; empty if it is unknown.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports each key of a request of this command, by the index of its argument, and what
    /// happens to it. A key may be reported several times. Of a command that always closes the
    /// cache ([`Class::Close`]), none is.
    #[inline]
    pub fn keys(&self, request: &Request<'_>, report: impl FnMut(usize, Access)) -> Keys {
        if matches!(self.kind, Kind::Is(Class::Close)) {
            return Keys::Unknown;
        }
        let is_read_only = self.is_read_only();
        let keys = self.rule.keys(&self.specs, is_read_only, request, report);
        match self.has(flags::MOVABLE) && self.are_movable_unspecified() {
            true => keys.max(if is_read_only { Keys::WritesKnown } else { Keys::Unknown }),
            false => keys,
        }
    }

    /// Returns whether no specification shows how keys can move: a module finds them by code.
    fn are_movable_unspecified(&self) -> bool {
        let is_fixed = |spec: &Spec| {
            matches!((&spec.begin, &spec.find), (Begin::Index(_), Find::Range { .. }))
        };
        self.rule == Rule::Specs && self.specs.iter().all(is_fixed)
    }

    /// Returns whether the server takes this number of arguments, the name among them. Assumes
    /// that it does if it has not listed the command.
    fn accepts(&self, len: usize) -> bool {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        !self.is_of_server || if self.arity < 0 { -len <= self.arity } else { len == self.arity }
    }

    fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    fn is_read_only(&self) -> bool {
        self.has(flags::READONLY) && !self.has(flags::WRITE)
    }
}

/// Returns the commands of the table by name.
fn table() -> BTreeMap<String, Command> {
    let commands = TABLE.lines().filter_map(read_line);
    commands.map(|command| (command.name.clone(), command)).collect()
}

/// Reads a line of the table.
fn read_line(line: &str) -> Option<Command> {
    let mut words = line.split(' ');
    let (name, arity, flags) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let flags = flags.split(',').map(flags::of).sum();
    let specs = words.map(Spec::read).collect::<Option<_>>()?;
    Some(Command::new(name.to_owned(), arity, flags, specs))
}

#[cfg(test)]
mod tests;
