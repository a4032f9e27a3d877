//! `overbank kv hot`: lists the keys that a device caches, the hottest first.

use crate::options::Format;
use crate::top::{ask_line, connect};
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_device::hot::{Hot, HotKey, HotServer, SCHEMA};
use std::io::{BufReader, Write};
use std::path::PathBuf;

/// List the keys that a device caches, the hottest first
///
/// A device is a switch in `--mode netcache`.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank kv hot --socket /run/overbank.sock              a switch with --status-socket
  overbank kv hot --socket /run/overbank.sock --most 100 --format json")]
pub struct Args {
    /// Status socket of the device (`overbank switch --status-socket`)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Limit of listed keys
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    most: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: &Args) -> Result<()> {
    let mut stream = BufReader::new(connect(&args.socket)?);
    let answer = ask_line(&mut stream, &format!("hot {}\n", args.most))?;
    let hot: Hot = serde_json::from_str(&answer).context("the answer is not a list of keys")?;
    if !hot.error.is_empty() {
        bail!("{}", hot.error);
    }
    if hot.schema != SCHEMA {
        bail!("no list of keys: is it a switch in --mode netcache? It answers {:?}", hot.schema);
    }
    let printed = match args.format {
        Format::Text => render(&hot),
        Format::Json => answer.trim_end().to_owned(),
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

/// Returns the text of a key, if it has one of 32 hexadecimal digits.
fn shown(key: &str) -> String {
    let is_hex = key.len() == 32 && !key.starts_with('+');
    let bytes = u128::from_str_radix(key, 16).ok().filter(|_| is_hex).map(u128::to_be_bytes);
    match bytes.as_ref().and_then(overbank_kv::key::own) {
        Some(own) => own.escape_ascii().to_string(),
        None => key.escape_debug().to_string(),
    }
}

fn render(hot: &Hot) -> String {
    let mut table = crate::switch::table(&["key", "server", "port", "hits", "valid", "install"]);
    for HotKey { key, hits, valid, server, install } in &hot.keys {
        let HotServer { port, address, udp_port, .. } = server;
        let server = match address.contains(':') {
            true => format!("[{address}]:{udp_port}"),
            false => format!("{address}:{udp_port}"),
        };
        let valid = if *valid { "yes" } else { "no" };
        let numbers = [port.to_string(), (u64::from(*hits) << hot.sample_log2.min(32)).to_string()];
        let head = [shown(key), server].into_iter().chain(numbers);
        table.add_row(head.chain([valid.to_owned(), install.to_string()]));
    }
    format!("{table}\n{} of {} cached keys; hits of this epoch", hot.keys.len(), hot.cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_text_and_hashed_ones_their_digits() {
        assert_eq!(shown("6b657900000000000000000000000000"), "key");
        assert_eq!(shown("6b0a7900000000000000000000000000"), "k\\ny");
        let hashed = "ff657900000000000000000000000001";
        assert_eq!(
            (shown(hashed), shown("plain\u{7}")),
            (hashed.to_owned(), "plain\\u{7}".to_owned())
        );
    }

    #[test]
    fn a_list_becomes_a_table() {
        let text = r#"{"schema":"overbank-kv-hot/1","cached":9,"sample_log2":3,"error":"","keys":[
            {"key":"6b657900000000000000000000000000","hits":7,"valid":true,"install":3,
             "server":{"port":2,"vlan":0,"mac":"02:00:00:00:00:01","address":"192.0.2.1",
                       "udp_port":8779}},
            {"key":"00000000000000000000000000000000","hits":1,"valid":false,"install":9,
             "server":{"port":4,"vlan":7,"mac":"02:00:00:00:00:02","address":"2001:db8::1",
                       "udp_port":9}}]}"#;
        let table = render(&serde_json::from_str::<Hot>(text).expect("a list"));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in
            ["key 192.0.2.1:8779 2 56 yes 3", "[2001:db8::1]:9 4 8 no 9", "2 of 9 cached keys"]
        {
            assert!(words(&table).contains(line), "{table}");
        }
    }
}
