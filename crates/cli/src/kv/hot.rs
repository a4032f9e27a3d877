//! `overbank kv hot`: lists the hottest keys of a device or a proxy.

use super::hot_keys;
use crate::options::Format;
use crate::top::{ask_line, connect};
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_device::hot::{Hot, HotKey, HotServer, SCHEMA};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufReader, Write};
use std::path::PathBuf;

/// List the hottest keys of a cache: of a device, or of a proxy before Redis
///
/// A device is a switch in `--mode netcache`. Figures of a proxy (`overbank kv proxy`) are of the
/// last second; with `--mode observe` they say what a cache would save.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank kv hot --socket /run/overbank.sock              a switch with --status-socket
  overbank kv hot --socket /run/kv.sock                    a proxy with --status-socket
  overbank kv hot --socket /run/kv.sock --hash-names       a list that may be shown to others
  overbank kv hot --socket /run/overbank.sock --most 100 --format json")]
pub struct Args {
    /// Status socket of the device or the proxy (`--status-socket`)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Limit of listed keys
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    most: u32,
    /// Print keyed hashes in place of names, of a proxy's keys; a key's hash stays the same until
    /// the proxy ends
    #[arg(long)]
    hash_names: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: &Args) -> Result<()> {
    let mut stream = BufReader::new(connect(&args.socket)?);
    let hashed = if args.hash_names { format!(" {}", hot_keys::HASHED) } else { String::new() };
    let answer = ask_line(&mut stream, &format!("hot {}{hashed}\n", args.most))?;
    let Head { schema, error } = read(&answer)?;
    if args.hash_names && schema == SCHEMA {
        bail!("--hash-names: a device does not hash names; a proxy does (overbank kv proxy)");
    }
    if !error.is_empty() {
        bail!("{error}");
    }
    let text = match &*schema {
        SCHEMA => render(&read(&answer)?),
        hot_keys::SCHEMA => render_proxy(&read(&answer)?),
        _ => bail!(
            "no list of keys: is it a proxy, or a switch in --mode netcache? It answers {schema:?}"
        ),
    };
    let printed = match args.format {
        Format::Text => text,
        Format::Json => answer.trim_end().to_owned(),
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

/// What all lists have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    schema: String,
    error: String,
}

fn read<T: DeserializeOwned>(answer: &str) -> Result<T> {
    serde_json::from_str(answer).context("the answer is not a list of keys")
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

fn render_proxy(hot: &hot_keys::Hot) -> String {
    let percent = |part: u64, all: u64| match all {
        0 => "-".to_owned(),
        // Reads of a key are estimated, and may exceed those of all.
        _ => format!("{:.1} %", (100.0 * part as f64 / all as f64).min(100.0)),
    };
    let heads = ["key", "cached", "reads/s", "share", "hits/s", "hit %", "writes/s"];
    let mut table = crate::switch::table(&heads);
    for hot_keys::HotKey { key, reads, hits, writes, cached } in &hot.keys {
        let (yes, writes) = match cached {
            true => ("yes", writes.to_string()),
            false => ("no", "-".to_owned()),
        };
        table.add_row([
            key.clone(),
            yes.to_owned(),
            reads.to_string(),
            percent(*reads, hot.keys_read),
            hits.to_string(),
            percent(*hits, *reads),
            writes,
        ]);
    }
    let listed: u64 = hot.keys.iter().map(|key| key.reads).sum();
    let (shown, all) = (hot.keys.len(), hot.keys_read);
    let share = percent(listed, all);
    let last = match (hot.mode == "observe", all) {
        (true, 0) => "no reads in the last second; mode observe: nothing is cached".to_owned(),
        (true, _) => format!(
            "{all} keys read/s, {share} of them these {shown}: a cache of these would answer up to \
             that\nshare, less a read of each key after each of its writes \
             (mode observe: nothing is cached)"
        ),
        (false, _) => format!(
            "{all} keys read/s, {share} of them these {shown}; {} keys are cached; {} of all reads \
             since\nthe start answered here",
            hot.cached,
            percent(hot.hits, hot.reads),
        ),
    };
    format!("{table}\n{last}")
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
    fn a_proxys_list_says_what_is_saved_or_would_be() {
        let key = |key: &str, reads, hits, cached| hot_keys::HotKey {
            key: key.to_owned(),
            reads,
            hits,
            writes: 2,
            cached,
        };
        let mut hot = hot_keys::Hot {
            mode: "cache".to_owned(),
            reads: 2000,
            hits: 500,
            keys_read: 1000,
            cached: 7,
            keys: vec![key("a\\x00", 600, 450, true), key("b", 150, 0, false)],
            ..hot_keys::Hot::default()
        };
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let table = words(&render_proxy(&hot));
        for part in [
            "a\\x00 yes 600 60.0 % 450 75.0 % 2",
            "b no 150 15.0 % 0 0.0 % -",
            "1000 keys read/s, 75.0 % of them these 2; 7 keys are cached; 25.0 % of all reads",
        ] {
            assert!(table.contains(part), "{table}");
        }
        hot.mode = "observe".to_owned();
        let table = words(&render_proxy(&hot));
        assert!(table.contains("75.0 % of them these 2: a cache of these would answer"), "{table}");
        hot.keys_read = 0;
        hot.keys.clear();
        assert!(render_proxy(&hot).contains("no reads in the last second"));
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
