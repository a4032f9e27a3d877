//! Rates of a proxy before Redis: the difference of two of its status documents, and how they look.

use super::{count, short};
use overbank_declare::counters::Rates as Counted;
use overbank_kv::proxy::totals::{CoreTotals, Missed, ProxyTotals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Name and version of the status document.
pub const SCHEMA: &str = "overbank.kv-proxy.v1";
/// Name and version of the rates.
const RATES_SCHEMA: &str = "overbank.kv-proxy-rates.v1";

/// The status document of a proxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub uptime_ms: u64,
    pub address: String,
    pub upstream: String,
    pub mode: String,
    #[serde(flatten)]
    pub totals: ProxyTotals,
    #[serde(flatten)]
    pub core: CoreTotals,
}

/// The rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    pub schema: &'static str,
    /// Time between the two documents, and since the start.
    pub interval_ms: u64,
    pub uptime_ms: u64,
    pub address: String,
    pub upstream: String,
    pub mode: String,
    #[serde(flatten)]
    pub rates: Counted,
    /// Reads that the cache did not answer, a second, by reason.
    pub missed: BTreeMap<&'static str, f64>,
    /// Whether the accounts close.
    pub closes: bool,
}

impl Rates {
    /// Returns the rates from `old` to `new`; `None` if they are of different runs or the same
    /// moment.
    pub fn between(old: &Status, new: &Status) -> Option<Rates> {
        let interval_ms = new.uptime_ms.checked_sub(old.uptime_ms).filter(|ms| *ms > 0)?;
        if old.address != new.address {
            return None;
        }
        let mut rates = Counted::between(&old.totals, &new.totals, interval_ms);
        rates.extend(Counted::between(&old.core, &new.core, interval_ms));
        let per_s = 1e3 / interval_ms as f64;
        let missed = Missed::ALL.into_iter().map(|why| {
            let of = |status: &Status| status.totals.missed[why.index()];
            (why.name(), of(new).saturating_sub(of(old)) as f64 * per_s)
        });
        Some(Rates {
            schema: RATES_SCHEMA,
            interval_ms,
            uptime_ms: new.uptime_ms,
            address: new.address.clone(),
            upstream: new.upstream.clone(),
            mode: new.mode.clone(),
            rates,
            missed: missed.filter(|(_, rate)| *rate > 0.0).collect(),
            closes: new.totals.closes(),
        })
    }

    /// Returns the lines above the table. Writing to a string does not fail.
    pub fn summary(&self) -> String {
        let of = |name| self.rates.get(name);
        let share = |part: f64, all: f64| if all > 0.0 { part / all * 100.0 } else { 0.0 };
        let mut text = format!(
            "{} before {}   mode {}   {} clients\n",
            self.address,
            self.upstream,
            self.mode,
            of("clients"),
        );
        let _ = write!(
            text,
            "{} commands/s   {} answered here ({:.1} %)   {} passed on   {} keys written/s",
            short(of("commands")),
            short(of("hits")),
            share(of("hits"), of("commands")),
            short(of("forwarded")),
            short(of("writes")),
        );
        let _ = write!(
            text,
            "\n{} reads/s   {:.1} % of them hits   {} fills/s   {} invalidations/s",
            short(of("reads")),
            share(of("hits"), of("reads")),
            short(of("fills")),
            short(of("pushes")),
        );
        let _ = write!(
            text,
            "\n{} hot keys   {} with a value   {} bytes   {} promoted/s   {} evicted/s",
            count(of("cached") as u64),
            count(of("filled") as u64),
            count(of("cached_bytes") as u64),
            short(of("promoted")),
            short(of("evicted")),
        );
        let lease = match (of("open") > 0.0, &*self.mode) {
            (true, "observe") => "mode observe: nothing is cached".to_owned(),
            (true, _) => format!("hits are served, lease {} ms old", of("lease_ms")),
            (false, _) => "NO HITS: closed, or the server is not followed".to_owned(),
        };
        let _ = write!(
            text,
            "\n{lease}   up {:.0} s{}",
            self.uptime_ms as f64 / 1e3,
            if self.closes { "" } else { "   ACCOUNTS DO NOT CLOSE" },
        );
        text
    }

    /// Heads of [`Rates::rows`].
    pub const HEADS: [&'static str; 4] = ["missed", "meaning", "reads/s", "share"];

    /// Returns why reads were no hits, the most frequent reason first.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let reads = self.rates.get("reads");
        let mut missed: Vec<(Missed, f64)> = Missed::ALL
            .into_iter()
            .filter_map(|why| Some((why, *self.missed.get(why.name())?)))
            .collect();
        missed.sort_by(|a, b| b.1.total_cmp(&a.1));
        let row = |(why, rate): (Missed, f64)| {
            let share = format!("{:.1} %", rate / reads.max(rate) * 100.0);
            [why.name().to_owned(), why.help().to_owned(), short(rate), share]
        };
        missed.into_iter().map(row).collect()
    }

    pub fn render(&self) -> String {
        let mut table = crate::switch::table(&Rates::HEADS);
        table.add_rows(self.rows());
        match self.missed.is_empty() {
            true => self.summary(),
            false => format!("{}\n\n{table}", self.summary()),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the rates of a busy second.
    pub fn busy() -> Rates {
        let status = |uptime_ms, n: u64| {
            let mut totals = ProxyTotals {
                clients: 50,
                commands: 100_000 * n,
                hits: 80_000 * n,
                forwarded: 20_000 * n,
                reads: 90_000 * n,
                writes: 10_000 * n,
                ..ProxyTotals::default()
            };
            totals.missed[Missed::NotCached.index()] = 9000 * n;
            totals.missed[Missed::Writing.index()] = 1000 * n;
            let core = CoreTotals {
                cached: 10_000,
                filled: 9_990,
                open: 1,
                lease_ms: 43,
                ..CoreTotals::default()
            };
            let (address, upstream) =
                ("127.0.0.1:6380".to_owned(), "redis://127.0.0.1:6379".to_owned());
            Status { uptime_ms, address, upstream, mode: "cache".to_owned(), totals, core }
        };
        Rates::between(&status(1000, 1), &status(3000, 3)).expect("two seconds")
    }

    #[test]
    fn rates_have_hits_and_why_reads_were_none() {
        let rates = busy();
        assert!(rates.closes);
        let text = rates.render();
        for part in [
            "127.0.0.1:6380 before redis://127.0.0.1:6379   mode cache   50 clients",
            "100.00 k commands/s   80.00 k answered here (80.0 %)   20.00 k passed on",
            "90.00 k reads/s   88.9 % of them hits",
            "10000 hot keys   9990 with a value",
            "hits are served, lease 43 ms old   up 3 s",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let rows = rates.rows();
        assert_eq!((&*rows[0][0], &*rows[0][2], &*rows[0][3]), ("not_cached", "9.00 k", "10.0 %"));
        assert_eq!(rows[1][0], "writing");
        let document = serde_json::to_value(&rates).expect("a document");
        assert_eq!(document["missed"]["writing"], 1000.0);
        assert_eq!(document["cached"], 10_000);
    }

    #[test]
    fn another_run_has_no_rates() {
        let status = |uptime_ms| Status { uptime_ms, ..Status::default() };
        assert!(Rates::between(&status(5), &status(4)).is_none());
        assert!(Rates::between(&status(5), &status(5)).is_none());
        let other = Status { address: "other".to_owned(), ..status(6) };
        assert!(Rates::between(&status(5), &other).is_none());
        let closed = Rates::between(&status(5), &status(6)).expect("a millisecond");
        assert!(closed.render().contains("NO HITS"));
    }
}
