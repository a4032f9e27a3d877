//! Serves metrics and status over HTTP, and status over a local socket.
//!
//! ```text
//!   GET /metrics   Prometheus text (OpenMetrics)       ┐  Each document is made on request,
//!   GET /status    the status document                 ├─ from one reading of the counters;
//!   status socket  a line in, one line of JSON out     ┘  idle endpoints cost nothing
//! ```
//!
//! [`Endpoints::open`] binds them, so a service fails before it starts and drops privileges
//! afterwards. [`Endpoints::serve`] answers from then on.

use crate::connections::{ConnectionLimit, IDLE_MAX, Limited, RETRY};
use crate::options::ServiceSettings;
use crate::sys;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use overbank_declare::counters::{Exposition, OPEN_METRICS};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener as BoundSocket, UnixStream as BlockingUnixStream};
use std::path::{Path, PathBuf};
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
    status: Option<BoundSocket>,
    file: Option<SocketFile>,
}

/// The file of the status socket, removed on drop.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it before; either way it is no longer there.
        let _ = std::fs::remove_file(&self.0);
    }
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
        let status = path.map(listen_status).transpose()?;
        let file = settings.status_socket.0.clone().map(SocketFile);
        let metrics = match settings.metrics.0 {
            Some(address) => listen_metrics(address, metrics_required)?,
            None => None,
        };
        Ok(Endpoints { metrics, status, file })
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
    ) -> io::Result<Option<SocketFile>> {
        if let Some(listener) = self.metrics {
            let address = listener.local_addr()?;
            let listener = TcpListener::from_std(listener)?;
            let listener = Limited::new(listener, limits.metrics.clone(), IDLE_MAX);
            tokio::spawn(serve_metrics(listener, documents.clone(), stop));
            tracing::info!(%address, "metrics");
        }
        if let Some(listener) = self.status {
            let listener = UnixListener::from_std(listener)?;
            tokio::spawn(serve_status(listener, limits.status.clone(), documents));
        }
        Ok(self.file)
    }
}

/// Binds the status socket, replacing one that a killed process left behind.
fn listen_status(path: &Path) -> Result<BoundSocket, ServeError> {
    let failed =
        |source| ServeError { setting: "status-socket", at: path.display().to_string(), source };
    if let Err(error) = BlockingUnixStream::connect(path) {
        sys::remove_stale_socket(path, &error).map_err(failed)?;
    }
    let listener = BoundSocket::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
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
    listener: Limited,
    documents: Arc<D>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let of_status = documents.clone();
    let metrics =
        move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], documents.metrics().text()) };
    let status = move || async move { json(of_status.status()) };
    let router = Router::new().route("/metrics", get(metrics)).route("/status", get(status));
    let stopped = async move {
        // An error means that the sender is gone: stop then, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

fn json(document: serde_json::Result<Vec<u8>>) -> Response {
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
        let taken = listen_status(&path).expect_err("taken").to_string();
        assert!(taken.starts_with("status-socket /"), "{taken}");
        let file = endpoints.serve(Arc::new(Nothing), &limits, stopped).expect("served");
        let metrics = get(address, "/metrics").await;
        assert!(
            metrics.contains(OPEN_METRICS) && metrics.ends_with("ob_up 1.0\n# EOF\n"),
            "{metrics}"
        );
        assert!(get(address, "/status").await.ends_with("{\"up\":true}"));

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
