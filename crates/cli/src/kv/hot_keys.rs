//! The hot keys of a proxy as a document: what `overbank kv hot` asks for over the status socket.
//!
//! A client sends `hot [N] [hashed]`; with `hashed`, keys have pseudonyms in place of their names.
//! Names appear in no other document: not in metrics, not in the status, not in the log.

use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "overbank.kv-proxy-hot.v1";
/// Last word of a query that asks for pseudonyms.
pub const HASHED: &str = "hashed";

/// A hot key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    /// Its bytes, those that are no printable ASCII as `\xNN`, or its pseudonym.
    pub key: String,
    /// Reads in the last second, about, and those of them that the proxy answered.
    pub reads: u64,
    pub hits: u64,
    /// Times that it was written in that second; 0 for a key that is not cached.
    pub writes: u64,
    pub cached: bool,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hot {
    /// [`SCHEMA`].
    pub schema: String,
    /// `cache` or `observe`.
    pub mode: String,
    /// Reads that could be hits, of all keys, since the start, and those that were.
    pub reads: u64,
    pub hits: u64,
    /// Keys read in the last second.
    pub keys_read: u64,
    /// Keys that are cached.
    pub cached: u64,
    /// Whether `keys` have pseudonyms.
    pub hashed: bool,
    /// The hottest ones first.
    pub keys: Vec<HotKey>,
    /// What is wrong with the query; otherwise empty.
    pub error: String,
}

#[cfg(feature = "kv-proxy")]
mod answer {
    use super::{HASHED, Hot, HotKey, SCHEMA};
    use overbank_device::hot::query;
    use overbank_kv::proxy::settings::Mode;
    use overbank_kv::proxy::{Handle, Hottest};

    impl Hot {
        /// Answers a line of the status socket.
        pub fn answer(handle: &Handle, mode: Mode, line: &str) -> Hot {
            let (schema, mode) = (SCHEMA.to_owned(), mode.name().to_owned());
            let stripped = line.trim_end().strip_suffix(HASHED);
            let hashed = stripped.is_some();
            let most = match query(stripped.unwrap_or(line)) {
                Ok(most) => most,
                Err(error) => return Hot { schema, error, ..Hot::default() },
            };
            let (totals, core) = handle.totals();
            let hottest = handle.hottest();
            let name = |key: &[u8]| match hashed {
                true => handle.pseudonym(key),
                false => key.escape_ascii().to_string(),
            };
            let keys = hottest.keys.iter().take(most).map(|key| HotKey::new(key, name(&key.key)));
            Hot {
                schema,
                mode,
                reads: totals.reads,
                hits: totals.hits,
                keys_read: hottest.reads,
                cached: core.cached,
                hashed,
                keys: keys.collect(),
                error: String::new(),
            }
        }
    }

    impl HotKey {
        fn new(hottest: &Hottest, key: String) -> HotKey {
            let Hottest { reads, hits, writes, is_cached, .. } = *hottest;
            HotKey { key, reads, hits, writes, cached: is_cached }
        }
    }
}
