//! The reply to COMMAND as commands.

use super::spec::{Access, Begin, Find, Spec};
use super::{Command, flags};
use redis::Value;
use thiserror::Error;

/// Commands that a reply may list, with subcommands. Redis 8 with its modules has about 1,000.
const COMMANDS_MAX: usize = 65_536;
/// Characters of a name that an error shows.
const SHOWN_MAX: usize = 64;

/// The reply to COMMAND cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// It is cut short, or no RESP.
    #[error("COMMAND: the reply must be one whole value of RESP2 or RESP3")]
    Resp,
    /// The server has answered with an error.
    #[error("COMMAND: the server replied with an error: {0}")]
    Refused(String),
    /// It is another value.
    #[error("COMMAND: the reply must be an array of commands")]
    NoArray,
    /// There are too many.
    #[error("COMMAND: the reply lists more than 65536 commands")]
    Many,
    /// One of them cannot be read.
    #[error("COMMAND: command {nth} of the reply, {name}: {what}")]
    Command {
        /// Counted from 0.
        nth: usize,
        /// Its name, escaped and shortened.
        name: String,
        /// What must be different.
        what: &'static str,
    },
}

/// Parses a reply of RESP.
fn parse(reply: &[u8]) -> Option<Value> {
    redis::parse_redis_value(reply).ok()
}

/// Returns the commands of a reply, subcommands as `config|set`.
pub fn commands(reply: &[u8]) -> Result<Vec<Command>, ReplyError> {
    let list = match parse(reply).ok_or(ReplyError::Resp)? {
        Value::Array(list) => list,
        Value::ServerError(error) => {
            return Err(ReplyError::Refused(shown(error.details().unwrap_or(error.code()))));
        }
        _ => return Err(ReplyError::NoArray),
    };
    let mut commands = Vec::new();
    for (nth, value) in list.iter().enumerate() {
        add(value, None, &mut commands).map_err(|what| {
            let name = items(value).and_then(|items| text(items.first()?)).unwrap_or_default();
            ReplyError::Command { nth, name: shown(&name), what }
        })?;
        if commands.len() > COMMANDS_MAX {
            return Err(ReplyError::Many);
        }
    }
    Ok(commands)
}

fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(SHOWN_MAX).collect::<String>())
}

/// Adds a command and its subcommands.
fn add(value: &Value, of: Option<&str>, commands: &mut Vec<Command>) -> Result<(), &'static str> {
    let Some([name, arity, flags, first, last, step, more @ ..]) = items(value) else {
        return Err("must be an array of at least 6 values");
    };
    let name = text(name).filter(|name| !name.is_empty()).ok_or("the name must be a text")?;
    let mut name = name.to_ascii_lowercase();
    if let Some(of) = of {
        let is_full = name.split_once('|').is_some_and(|(container, _)| container == of);
        name = if is_full { name } else { format!("{of}|{name}") };
    }
    let (Value::Int(arity), Some(flags)) = (arity, items(flags)) else {
        return Err("arity and flags must be a number and a list");
    };
    let bits = flags.iter().filter_map(text).fold(0, |bits, flag| bits | flags::of(&flag));
    let (Some(first), Some(last), Some(step)) = (int(first), int(last), int(step)) else {
        return Err("first key, last key and step must be numbers");
    };
    let specs = more.get(2).and_then(items).unwrap_or_default();
    let mut specs =
        specs.iter().map(spec).collect::<Option<Vec<_>>>().ok_or("wrong key specification")?;
    let is_read_only = bits & flags::READONLY != 0 && bits & flags::WRITE == 0;
    let is_legacy = specs.is_empty() && first > 0;
    if is_legacy {
        let access = if is_read_only { Access::Read } else { Access::Both };
        specs.push(Spec::legacy(first, last, step, access));
    }
    let mut command = Command::new(name.clone(), *arity, bits, specs);
    command.is_of_server = true;
    command.are_specs_legacy = is_legacy;
    commands.push(command);
    if commands.len() > COMMANDS_MAX {
        return Ok(());
    }
    match of {
        None => {
            let subcommands = more.get(3).and_then(items).unwrap_or_default();
            subcommands.iter().try_for_each(|value| add(value, Some(&name), commands))
        }
        Some(_) => Ok(()),
    }
}

/// Reads a key specification.
fn spec(value: &Value) -> Option<Spec> {
    let flags: Vec<String> = items(field(value, "flags")?)?.iter().filter_map(text).collect();
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let access = match (has("RO"), has("OW") || has("RM")) {
        (true, false) => Access::Read,
        (false, true) => Access::Write,
        _ => Access::Both,
    };
    let (begin, find) = (field(value, "begin_search")?, field(value, "find_keys")?);
    let part = |part, name: &str| int(field(field(part, "spec")?, name)?);
    let begin = match &*text(field(begin, "type")?)? {
        "index" => Begin::Index(part(begin, "index")?),
        "keyword" => {
            let word = text(field(field(begin, "spec")?, "keyword")?)?;
            Begin::Keyword(word, part(begin, "startfrom")?)
        }
        _ => Begin::Unknown,
    };
    let find = match &*text(field(find, "type")?)? {
        "range" => Find::Range {
            last: part(find, "lastkey")?,
            step: part(find, "keystep")?,
            limit: part(find, "limit")?,
        },
        "keynum" => Find::Number {
            number: part(find, "keynumidx")?,
            first: part(find, "firstkey")?,
            step: part(find, "keystep")?,
        },
        _ => Find::Unknown,
    };
    Some(Spec {
        access,
        is_no_key: has("not_key"),
        is_variable: has("variable_flags"),
        is_incomplete: has("incomplete"),
        begin,
        find,
    })
}

/// Returns the values of a list; RESP3 has sets beside arrays.
fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

/// Returns the field of a map, which in RESP2 is an array of names and values.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |value: &Value| text(value).as_deref() == Some(name);
    match value {
        Value::Map(pairs) => pairs.iter().find(|(field, _)| is_it(field)).map(|(_, value)| value),
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

fn int(value: &Value) -> Option<i32> {
    match value {
        Value::Int(number) => i32::try_from(*number).ok(),
        _ => None,
    }
}
