//! Metrics and status over HTTP, on loopback unless told otherwise.
//!
//! `GET /metrics` is the text format of Prometheus (OpenMetrics); `GET /status` is the document of
//! [`super::document`]. Both are made of one reading of the counters when they are asked for; between
//! requests nothing is spent. The metrics are described in `docs/metrics.md`.

use crate::switch::document::Source;
use crate::switch::guests::{IDLE_MAX, Seated};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use overbank_service::counters::Exposition;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Content type of the text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves both documents until `stop`, to so many `connections` at one time; `waited` counts those
/// that had to wait.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    connections: usize,
    waited: Arc<AtomicU64>,
    source: Arc<dyn Source>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let status = source.clone();
    let metrics = move || async move {
        let mut exposition = Exposition::new();
        source.expose(&mut exposition);
        ([(header::CONTENT_TYPE, OPEN_METRICS)], exposition.text())
    };
    let status = move || async move { json(status.json()) };
    let router = Router::new().route("/metrics", get(metrics)).route("/status", get(status));
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let listener = Seated::new(listener, connections, IDLE_MAX, waited);
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

fn json(text: serde_json::Result<String>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
