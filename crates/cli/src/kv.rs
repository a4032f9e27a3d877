//! `overbank kv`: a server's agent, a client's requests, load, the hot keys of a device, a proxy
//! before Redis or memcached, and whether that is worth it.

#[cfg(feature = "kv-proxy")]
mod advise;
mod agent;
mod ask;
mod hot;
mod hot_keys;
mod load;
#[cfg(feature = "kv-proxy")]
mod proxy;
mod service;

#[cfg(feature = "kv-proxy")]
macro_rules! proxy_example {
    () => {
        "
  overbank kv proxy --listen 127.0.0.1:6380 --upstream redis://127.0.0.1:6379"
    };
}
#[cfg(not(feature = "kv-proxy"))]
macro_rules! proxy_example {
    () => {
        ""
    };
}

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use overbank_kv::PORT;
use overbank_kv::client::Client;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

/// Exit status of a `get` that finds no value, and of one that fails: those of grep.
const MISSING: u8 = 1;
const FAILED: u8 = 2;

/// Examples after the help; the proxy is a feature.
pub const EXAMPLES: &str = concat!(
    "Examples:
  overbank kv agent                                       a server on this machine
  overbank kv put visits 42; overbank kv get visits
  overbank kv load --keys 100000 --theta 0.99 --writes 5 --seconds 10 --fill
  overbank kv hot --socket /run/overbank.sock             of a device (switch --mode netcache)",
    proxy_example!()
);

#[derive(Subcommand)]
pub enum Command {
    Agent(Box<agent::Args>),
    Get(ask::Get),
    Put(ask::Put),
    Del(ask::Del),
    Load(load::Args),
    Hot(hot::Args),
    #[cfg(feature = "kv-proxy")]
    Proxy(Box<proxy::Args>),
    #[cfg(feature = "kv-proxy")]
    Advise(advise::Args),
}

/// The servers that requests go to.
#[derive(Args)]
pub struct Servers {
    /// Servers, as addresses or names, each with a port unless it is 8779; the same list in the
    /// same order for all clients
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', default_value = "127.0.0.1")]
    server: Vec<String>,
}

impl Servers {
    fn connect(&self) -> Result<Client> {
        let servers: Vec<SocketAddr> =
            self.server.iter().map(|text| resolve(text)).collect::<Result<_>>()?;
        Ok(Client::new(&servers)?)
    }
}

/// Returns the first address of a server.
fn resolve(text: &str) -> Result<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    let mut found = match text.contains(':') {
        true => text.to_socket_addrs(),
        false => (text, PORT).to_socket_addrs(),
    }
    .with_context(|| format!("--server {text}: must be ADDRESS or ADDRESS:PORT"))?;
    match found.next() {
        Some(address) => Ok(address),
        None => bail!("--server {text}: has no address"),
    }
}

/// Runs the command; reports its own failures where their status tells them apart.
pub fn run(command: &Command) -> Result<ExitCode> {
    let done = |result: Result<()>| result.map(|()| ExitCode::SUCCESS);
    match command {
        Command::Agent(args) => done(agent::run(args)),
        Command::Get(args) => match ask::get(args) {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => {
                // Standard error may be a terminal that is gone.
                let _ = writeln!(std::io::stderr(), "overbank: {}: no such key", args.name());
                Ok(MISSING.into())
            }
            Err(error) if crate::is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "overbank: {error:#}");
                Ok(FAILED.into())
            }
        },
        Command::Put(args) => done(ask::put(args)),
        Command::Del(args) => done(ask::del(args)),
        Command::Load(args) => done(load::run(args)),
        Command::Hot(args) => done(hot::run(args)),
        #[cfg(feature = "kv-proxy")]
        Command::Proxy(args) => done(proxy::run(args)),
        #[cfg(feature = "kv-proxy")]
        Command::Advise(args) => done(advise::run(args)),
    }
}
