//! Serves metrics and status over HTTP, and status over a local socket.
//!
//! ```text
//!   GET /metrics   Prometheus text (OpenMetrics)       ┐  Each document is made on request,
//!   GET /status    the status document                 ├─ from one reading of the counters;
//!   GET /ready     200, or 503 and why                 │
//!   status socket  a line in, one line of JSON out     ┘  idle endpoints cost nothing
//! ```
//!
//! [`Endpoints::open`] binds them, so a service fails before it starts and drops privileges
//! afterwards. [`Endpoints::serve`] answers from then on.

use crate::connections::{ConnectionLimit, IDLE_MAX, Limited, RETRY};
use crate::options::ServiceSettings;
use crate::sockets::LocalSocket;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use overbank_declare::counters::{Exposition, OPEN_METRICS};
use serde::Serialize;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;

/// Longest line that the status socket reads.
const LINE_MAX: u64 = 256;

/// An address or a path cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {at}: {source}")]
pub struct ServeError {
    /// Setting at fault.
    pub setting: &'static str,
    pub at: String,
    pub source: io::Error,
}

/// The documents that a service offers.
pub trait Documents: Send + Sync + 'static {
    fn metrics(&self) -> Exposition;

    /// Returns the status document as JSON, without a line break.
    ///
    /// # Errors
    /// Fails if the document cannot be written as JSON.
    fn status(&self) -> serde_json::Result<Vec<u8>>;

    /// Answers a line of the status socket. Unless overridden, any line gets the status document.
    ///
    /// # Errors
    /// Fails as [`Documents::status`] does.
    fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
        let _ = line;
        self.status()
    }

    /// Returns why traffic should not be sent here, if it should not.
    fn unready(&self) -> Option<String> {
        None
    }
}

overbank_declare::counters! {
    /// Counters of the endpoints.
    pub struct EndpointTotals: "overbank_" {
        metrics_waited: counter connections
            "Connections to the metrics endpoint that waited (`--metrics-connections`)"
            as "metrics_connections_waited";
        status_waited: counter connections
            "Connections to the status socket that waited (`--status-connections`)"
            as "status_connections_waited";
    }
}

/// The connection limits of both endpoints.
#[derive(Clone, Debug)]
pub struct Limits {
    metrics: ConnectionLimit,
    status: ConnectionLimit,
}

impl Limits {
    pub fn new(settings: &ServiceSettings) -> Limits {
        Limits {
            metrics: ConnectionLimit::new(settings.metrics_connections),
            status: ConnectionLimit::new(settings.status_connections),
        }
    }

    pub fn totals(&self) -> EndpointTotals {
        EndpointTotals {
            metrics_waited: self.metrics.waited(),
            status_waited: self.status.waited(),
        }
    }
}

/// The endpoints of a service, bound and not yet served. Dropping them removes the socket's file.
#[derive(Debug)]
pub struct Endpoints {
    metrics: Option<std::net::TcpListener>,
    status: Option<LocalSocket>,
}

impl Endpoints {
    /// Binds what is configured. With `metrics_required` a taken metrics address is an error;
    /// without it the service runs without metrics.
    ///
    /// # Errors
    /// Fails if an address or a path is taken or not permitted.
    pub fn open(
        settings: &ServiceSettings,
        metrics_required: bool,
    ) -> Result<Endpoints, ServeError> {
        let path = settings.status_socket.0.as_deref();
        let status = path.map(|path| LocalSocket::bind(path, "status-socket", None)).transpose()?;
        let metrics = match settings.metrics.0 {
            Some(address) => listen_metrics(address, metrics_required)?,
            None => None,
        };
        Ok(Endpoints { metrics, status })
    }

    /// Serves until `stop`, in tasks of the current runtime. The returned guard keeps the socket's
    /// file.
    ///
    /// # Errors
    /// Fails if the runtime cannot register a listener.
    pub fn serve<D: Documents>(
        self,
        documents: Arc<D>,
        limits: &Limits,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Option<LocalSocket>> {
        if let Some(listener) = self.metrics {
            let address = listener.local_addr()?;
            let listener = TcpListener::from_std(listener)?;
            let listener = Limited::new(listener, limits.metrics.clone(), IDLE_MAX);
            tokio::spawn(serve_metrics(listener, documents.clone(), stop));
            tracing::info!(%address, "metrics");
        }
        if let Some(socket) = &self.status {
            tokio::spawn(serve_status(socket.listener()?, limits.status.clone(), documents));
        }
        Ok(self.status)
    }
}

fn listen_metrics(
    address: SocketAddr,
    required: bool,
) -> Result<Option<std::net::TcpListener>, ServeError> {
    let listen = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    match listen() {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if required => {
            Err(ServeError { setting: "metrics", at: address.to_string(), source })
        }
        Err(error) => {
            tracing::warn!(%address, %error, "metrics are not served; set another --metrics");
            Ok(None)
        }
    }
}

async fn serve_metrics<D: Documents>(
    listener: Limited<TcpListener>,
    documents: Arc<D>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let router = router(documents, stop.clone());
    let stopped = async move {
        // An error means that the sender is gone: stop then, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

/// Returns the routes of every service: metrics, status, readiness.
pub fn router<S: Clone + Send + Sync + 'static>(
    documents: Arc<dyn Documents>,
    stop: watch::Receiver<bool>,
) -> Router<S> {
    let (of_status, of_ready) = (documents.clone(), documents.clone());
    let metrics =
        move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], documents.metrics().text()) };
    let status = move || async move { written(of_status.status()) };
    let ready = move || async move {
        // An error means that the sender is gone: the service ends.
        let stops = *stop.borrow() || stop.has_changed().is_err();
        match stops.then(|| "stopping".to_owned()).or_else(|| of_ready.unready()) {
            None => answer(StatusCode::OK, &json!({ "ready": true })),
            Some(why) => {
                let body = json!({ "ready": false, "error": why });
                answer(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        }
    };
    let routes = Router::new().route("/metrics", get(metrics)).route("/status", get(status));
    routes.route("/ready", get(ready))
}

/// Returns an answer with a JSON document.
pub fn answer(status: StatusCode, document: &impl Serialize) -> Response {
    let mut response = written(serde_json::to_vec(document));
    if response.status() == StatusCode::OK {
        *response.status_mut() = status;
    }
    response
}

fn written(document: serde_json::Result<Vec<u8>>) -> Response {
    match document {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn serve_status<D: Documents>(
    listener: UnixListener,
    limit: ConnectionLimit,
    documents: Arc<D>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let permit = limit.admit().await;
        let documents = documents.clone();
        tokio::spawn(async move {
            // An error ends this connection alone: the client hung up or sent garbage.
            let _ = answer_lines(stream, documents).await;
            drop(permit);
        });
    }
}

/// Answers each line with one document.
async fn answer_lines<D: Documents>(stream: UnixStream, documents: Arc<D>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = (&mut read).take(LINE_MAX).read_until(b'\n', &mut line).await?;
        if n == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        // A large answer takes a while and would block the runtime's thread.
        let (documents, line) = (documents.clone(), String::from_utf8_lossy(&line).into_owned());
        let text = tokio::task::spawn_blocking(move || documents.answer(line.trim_end())).await?;
        let mut text = text.map_err(io::Error::other)?;
        text.push(b'\n');
        write.write_all(&text).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_declare::counters::Gauge;
    use overbank_declare::settings::{Source, Table};
    use std::path::Path;
    use std::time::Duration;
    use tokio::net::TcpStream;

    struct Nothing;

    impl Documents for Nothing {
        fn metrics(&self) -> Exposition {
            let mut all = Exposition::new();
            let up = Gauge { name: "ob_up", help: "Whether it runs", labels: &[] };
            all.gauge(&up, &[], 1.0);
            all
        }

        fn status(&self) -> serde_json::Result<Vec<u8>> {
            serde_json::to_vec(&serde_json::json!({ "up": true }))
        }

        fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
            if line == "echo" { serde_json::to_vec(line) } else { self.status() }
        }
    }

    fn settings(path: &Path) -> ServiceSettings {
        let mut source = Source::new(&[ServiceSettings::SECTION]);
        source.flag("metrics", ["127.0.0.1:0"]);
        source.flag("status-socket", [path.display()]);
        source.flag("status-connections", [1]);
        let mut check = source.check();
        let settings = ServiceSettings::read(&mut check);
        check.finish(settings).expect("right")
    }

    async fn ask(stream: &mut UnixStream, question: &str) -> String {
        stream.write_all(question.as_bytes()).await.expect("it reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.expect("it answers");
        line
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        answer
    }

    #[tokio::test]
    async fn metrics_and_status_are_answered_at_both_endpoints() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        let settings = settings(&path);
        let (limits, (stop, stopped)) = (Limits::new(&settings), watch::channel(false));
        let endpoints = Endpoints::open(&settings, true).expect("free");
        let address = endpoints.metrics.as_ref().and_then(|bound| bound.local_addr().ok());
        let address = address.expect("bound");
        let taken = listen_metrics(address, true).expect_err("taken").to_string();
        assert!(taken.starts_with(&format!("metrics {address}: ")), "{taken}");
        assert!(listen_metrics(address, false).is_ok_and(|none| none.is_none()));
        let taken = LocalSocket::bind(&path, "status-socket", None);
        let taken = taken.expect_err("taken").to_string();
        assert!(taken.starts_with("status-socket /"), "{taken}");
        let file = endpoints.serve(Arc::new(Nothing), &limits, stopped).expect("served");
        let metrics = get(address, "/metrics").await;
        assert!(
            metrics.contains(OPEN_METRICS) && metrics.ends_with("ob_up 1.0\n# EOF\n"),
            "{metrics}"
        );
        assert!(get(address, "/status").await.ends_with("{\"up\":true}"));
        assert!(get(address, "/ready").await.ends_with("{\"ready\":true}"));

        let mut first = UnixStream::connect(&path).await.expect("it listens");
        assert_eq!(ask(&mut first, "\n").await, "{\"up\":true}\n");
        let mut second = UnixStream::connect(&path).await.expect("it listens");
        while limits.totals().status_waited == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&mut first, "echo\n").await, "\"echo\"\n", "it is still served");
        drop(first);
        assert_eq!(ask(&mut second, "\n").await, "{\"up\":true}\n");
        assert_eq!(limits.totals(), EndpointTotals { metrics_waited: 0, status_waited: 1 });
        let _ = stop.send(true);
        drop(file);
        assert!(!path.exists());
    }
}
