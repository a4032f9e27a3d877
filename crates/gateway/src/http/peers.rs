//! Requests about peers.

use super::query::{Query, page_size};
use super::sessions::{Answer, ok};
use super::{Shared, blocking};
use crate::peers::Path;
use axum::extract::State;
use axum::http::Uri;
use serde_json::json;

/// Name and version of a page.
const SCHEMA: &str = "overbank-gateway-peers/1";
/// Peers of a page if none is asked for.
const PAGE: usize = 100;

/// Reads where a page begins.
fn path(text: &str) -> Result<Path, String> {
    let wrong = || format!("{text:?}: must be an N3 address and a peer's, as N3,PEER");
    let (n3, peer) = text.split_once(',').ok_or_else(wrong)?;
    match (n3.parse(), peer.parse()) {
        (Ok(n3), Ok(peer)) => Ok(Path { n3, peer }),
        _ => Err(wrong()),
    }
}

pub(super) async fn list(State(api): State<Shared>, uri: Uri) -> Answer {
    let query = Query::of(&uri, &["after", "most"])?;
    let after = query.get("after", path)?;
    let most = query.get("most", page_size)?.unwrap_or(PAGE);
    blocking(move || {
        let control = api.handle.lock();
        let (peers, now_ms) = (control.sessions().peers(), control.now_ms());
        let total = peers.totals().paths;
        let page = peers.page(after, most, now_ms);
        drop(control);
        let last = page.last().filter(|_| page.len() == most).map(|shown| shown.path);
        let next = last.map(|Path { n3, peer }| format!("{n3},{peer}"));
        ok(&json!({ "schema": SCHEMA, "peers": page, "next": next, "total": total }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_after_a_path() {
        let read = path("192.0.2.1,2001:db8::7").expect("a path");
        assert_eq!((read.n3.is_ipv4(), read.peer.is_ipv6()), (true, true));
        for wrong in ["", "192.0.2.1", "192.0.2.1,", ",", "192.0.2.1,x", "a,192.0.2.1"] {
            let error = path(wrong).expect_err(wrong);
            assert!(error.contains("must be an N3 address and a peer's"), "{error}");
        }
    }
}
