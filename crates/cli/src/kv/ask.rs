//! `overbank kv get`, `put` and `del`: one request each.

use super::Servers;
use anyhow::{Context, Result};
use clap::Args;
use overbank_kv::client::Error;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Bytes that are read of a value: one more than any may have.
const VALUE_READ_MAX: u64 = 1409;

/// Print the value of a key
#[derive(Args)]
#[command(after_help = "Examples:
  overbank kv get visits
  overbank kv get visits --server 192.0.2.1,192.0.2.2:9000
  overbank kv get picture --raw > picture.png

Exit status: 0 with a value, 1 without one, 2 if no answer came or it was refused.")]
pub struct Get {
    /// Up to 1,024 bytes
    #[arg(value_name = "KEY")]
    key: OsString,
    #[command(flatten)]
    servers: Servers,
    /// Print the value's bytes alone, without a line break after them
    #[arg(long)]
    raw: bool,
}

/// Set the value of a key
#[derive(Args)]
#[command(after_help = "Examples:
  overbank kv put visits 42
  overbank kv put picture - < picture.png              the value is standard input
  overbank kv put visits 43 --server 192.0.2.1,192.0.2.2")]
pub struct Put {
    /// Up to 1,024 bytes
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Up to 1,408 bytes; - for standard input
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: OsString,
    #[command(flatten)]
    servers: Servers,
}

/// Remove the value of a key, if it has one
#[derive(Args)]
#[command(after_help = "Example:
  overbank kv del visits --server 192.0.2.1")]
pub struct Del {
    /// Up to 1,024 bytes
    #[arg(value_name = "KEY")]
    key: OsString,
    #[command(flatten)]
    servers: Servers,
}

impl Get {
    /// Returns the key for people.
    pub fn name(&self) -> String {
        self.key.to_string_lossy().escape_debug().to_string()
    }
}

const ADVICE: &str = "is an agent running there? see --server and `overbank kv agent`";

/// Says of a read's failure what can be done.
fn not_read(error: Error) -> anyhow::Error {
    match error {
        Error::GaveUp { .. } | Error::NotSent { .. } => anyhow::anyhow!("{error}; {ADVICE}"),
        _ => error.into(),
    }
}

/// Likewise of a write's, and what became of it.
fn not_written(error: Error) -> anyhow::Error {
    match error {
        Error::GaveUp { .. } => {
            anyhow::anyhow!("{error}; the write may have been applied or not; {ADVICE}")
        }
        _ => not_read(error),
    }
}

/// Prints the value; returns whether there is one.
pub fn get(args: &Get) -> Result<bool> {
    let value = args.servers.connect()?.get(args.key.as_bytes()).map_err(not_read)?;
    let Some(mut value) = value else { return Ok(false) };
    if !args.raw {
        value.push(b'\n');
    }
    let mut out = std::io::stdout();
    out.write_all(&value)?;
    out.flush()?;
    Ok(true)
}

pub fn put(args: &Put) -> Result<()> {
    let mut read = Vec::new();
    let value = match args.value.as_bytes() {
        b"-" => {
            let input = std::io::stdin().lock();
            input.take(VALUE_READ_MAX).read_to_end(&mut read).context("standard input")?;
            &read
        }
        value => value,
    };
    args.servers.connect()?.put(args.key.as_bytes(), value).map_err(not_written)
}

pub fn del(args: &Del) -> Result<()> {
    args.servers.connect()?.delete(args.key.as_bytes()).map_err(not_written)
}
