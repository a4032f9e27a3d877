//! The control socket: HTTP with JSON, for operators and programs of this machine.
//!
//! ```text
//!   GET    /status /metrics /ready      as those of every service
//!   GET    /check                       whether each session is found by its keys
//!   GET    /peers?after=&most=           a page: whether the peers of sessions answer
//!   GET    /sessions?after=&most=&teid=&address=&origin=&local=      a page
//!   POST   /sessions                    adds one          ┐
//!   GET    /sessions/ID                                   │ sessions of requests are
//!   PATCH  /sessions/ID                 changes fields    ├ changed here, others
//!   DELETE /sessions/ID                                   │ listed alone
//!   POST   /import?dry-run=&replace=    CSV: all or none  ┘
//!   GET    /export?origin=              CSV, streamed by pages
//!   POST   /sessions/ID/move?to=        moves one to another node           ┐ in a cluster
//!   POST   /rebalance                   moves sessions until nodes have alike  │
//!   POST   /drain?node=&rate=           gives all sessions away, and leaves ┘
//! ```
//!
//! In a cluster, sessions are added, changed, shown, removed and listed for the cluster, wherever
//! they are; with `local=true`, those of this node are listed.
//!
//! With a [journal](crate::journal), a change is answered once it is on disk.
//!
//! An error is `{"error": "one line"}` with 400 (wrong by itself), 404, 405, 408, 409 (contradicts
//! what exists), 413 or 503 (not now). `docs/gateway.md` has the schema.
//!
//! Bounds: a body has [`BODY_MAX`] bytes, one of an import 256 for each session that the gateway
//! may have; one import at a time; a page has [`PAGE_MAX`] sessions. Only an import holds the
//! control side for longer than a page. Panics: none.

mod body;
mod cluster;
mod peers;
mod query;
mod sessions;

use crate::control::GatewayControl;
use crate::file::ERRORS_MAX;
use crate::journal::{Edits, JournalError, Keeper};
use crate::sessions::{Refusal, SessionError};
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use overbank_runtime::Handle;
use overbank_service::endpoints::{self, Documents};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// Most bytes of a body.
pub const BODY_MAX: usize = 16 << 10;
/// Most sessions of a page.
pub const PAGE_MAX: usize = 1000;
/// Bytes of an import's body for each session: longer than any line.
const LINE_MAX: usize = 256;

/// What requests are answered from.
struct Api {
    handle: Handle<GatewayControl>,
    /// Writes changes to the disk, if there is a journal.
    keeper: Option<Keeper>,
    /// Most bytes of an import.
    import_max: usize,
    /// One import at a time.
    importing: Arc<Semaphore>,
}

type Shared = Arc<Api>;

impl Api {
    /// Plans a change, writes it to the journal if there is one, and applies it.
    fn commit<T: Send + 'static>(
        &self,
        mut plan: impl FnMut(&mut GatewayControl, Edits<'_>) -> Result<(), Fault> + Send + 'static,
        apply: impl FnOnce(&mut GatewayControl) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        if let Some(keeper) = &self.keeper {
            return keeper.commit(plan, apply);
        }
        let mut control = self.handle.lock();
        plan(&mut control, &mut |_| {})?;
        apply(&mut control)
    }
}

/// Returns the routes of the control socket; changes are kept by `keeper`.
pub fn router(
    handle: Handle<GatewayControl>,
    keeper: Option<Keeper>,
    documents: Arc<dyn Documents>,
    stop: watch::Receiver<bool>,
) -> Router {
    let import_max = BODY_MAX + LINE_MAX * handle.lock().sessions().max();
    let api = Api { handle, keeper, import_max, importing: Arc::new(Semaphore::new(1)) };
    endpoints::router(documents, stop)
        .route("/speaker", get(cluster::speaker))
        .route("/check", get(sessions::check))
        .route("/peers", get(peers::list))
        .route("/sessions", get(sessions::list).post(sessions::add))
        .route(
            "/sessions/{id}",
            get(sessions::show).patch(sessions::change).delete(sessions::remove),
        )
        .route("/sessions/{id}/move", post(cluster::moves))
        .route("/drain", post(cluster::drain))
        .route("/rebalance", post(cluster::rebalance))
        .route("/import", post(sessions::import))
        .route("/export", get(sessions::export))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(Arc::new(api))
}

async fn unknown(uri: Uri) -> Fault {
    let known = "/status, /metrics, /ready, /speaker, /check, /peers, /sessions, \
                 /sessions/ID, /sessions/ID/move, /import, /export, /rebalance, /drain";
    Fault::new(StatusCode::NOT_FOUND, format!("no path {:?}; known: {known}", uri.path()))
}

async fn not_allowed(method: Method, uri: Uri) -> Fault {
    let what = format!("{:?} has no method {method}", uri.path());
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, what)
}

/// Why a request is refused.
#[derive(Debug)]
struct Fault {
    status: StatusCode,
    error: String,
    /// Errors by line.
    lines: Vec<Refusal>,
}

impl Fault {
    fn new(status: StatusCode, error: impl Into<String>) -> Fault {
        Fault { status, error: error.into(), lines: Vec::new() }
    }

    fn bad(error: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, error)
    }

    /// Errors of a list.
    fn lines(status: StatusCode, mut lines: Vec<Refusal>) -> Fault {
        lines.sort_by_key(|refusal| refusal.line);
        let first = lines
            .first()
            .map_or(String::new(), |Refusal { line, what }| format!("line {line}: {what}"));
        let error = match lines.len() {
            0 | 1 => first,
            n => format!("{n} errors, nothing is imported; {first}"),
        };
        Fault { status, error, lines }
    }
}

impl From<SessionError> for Fault {
    fn from(error: SessionError) -> Fault {
        use SessionError as E;
        let status = match error {
            E::Invalid(_) | E::Unchecked(_) | E::ForeignN3(..) | E::OutsidePools(..) => {
                StatusCode::BAD_REQUEST
            }
            E::Unknown(_) => StatusCode::NOT_FOUND,
            E::Taken { .. } | E::Resting { .. } | E::Exists(_) | E::Foreign(..) => {
                StatusCode::CONFLICT
            }
            E::Full(_) | E::NoRoom(_) | E::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        Fault::new(status, error.to_string())
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Fault {
        let what = format!("not kept, and not done: {error}");
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, what)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut document = json!({ "error": self.error });
        if !self.lines.is_empty() {
            let shown = &self.lines[..self.lines.len().min(ERRORS_MAX)];
            document["errors"] = json!(shown);
            document["more"] = json!(self.lines.len() - shown.len());
        }
        endpoints::answer(self.status, &document)
    }
}

/// Runs what may take a while, or wait for the control side, in another thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        let what = "internal error: the request panicked; please report it";
        Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, what))
    })
}
