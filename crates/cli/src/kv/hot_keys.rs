//! The hot keys of a proxy as a document: what `overbank kv hot` asks for over the status socket.

use overbank_device::hot::query;
use overbank_kv::proxy::{Handle, Hottest};
use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "overbank.kv-proxy-hot.v1";

/// A hot key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKey {
    /// Its bytes, those that are no printable ASCII as `\xNN`.
    pub key: String,
    /// Reads in a second, about, and those of them that were answered by the proxy.
    pub reads: u64,
    pub hits: u64,
    /// Times that it was written, in that second, while it was cached.
    pub writes: u64,
    pub cached: bool,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hot {
    /// [`SCHEMA`].
    pub schema: String,
    /// Reads that could be hits, of all keys, since the start, and those that were.
    pub reads: u64,
    pub hits: u64,
    /// The hottest ones first.
    pub keys: Vec<HotKey>,
    /// What is wrong with the query; otherwise empty.
    pub error: String,
}

impl Hot {
    /// Answers a line of the status socket.
    pub fn answer(handle: &Handle, line: &str) -> Hot {
        let schema = SCHEMA.to_owned();
        match query(line) {
            Err(error) => Hot { schema, error, ..Hot::default() },
            Ok(most) => {
                let (totals, _) = handle.totals();
                let keys = handle.hottest().iter().take(most).map(HotKey::new).collect();
                let (reads, hits) = (totals.reads, totals.hits);
                Hot { schema, reads, hits, keys, error: String::new() }
            }
        }
    }
}

impl HotKey {
    fn new(hottest: &Hottest) -> HotKey {
        let Hottest { key, reads, hits, writes, is_cached } = hottest;
        HotKey {
            key: key.escape_ascii().to_string(),
            reads: *reads,
            hits: *hits,
            writes: *writes,
            cached: *is_cached,
        }
    }
}
