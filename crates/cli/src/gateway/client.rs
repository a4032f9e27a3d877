//! Asks a running gateway by its control socket.

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// Most bytes of an answer that is not streamed.
const ANSWER_MAX: usize = 16 << 20;
/// Longest wait for an answer, and between two parts of one.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The same for an import: a cluster takes some thousand sessions a second.
pub const IMPORT_MAX: Duration = Duration::from_secs(1800);

pub struct Client {
    path: PathBuf,
    wait_max: Duration,
    runtime: Runtime,
}

impl Client {
    pub fn new(path: &Path) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { path: path.to_owned(), wait_max: WAIT_MAX, runtime })
    }

    /// Has the client wait for as long as an import may take.
    pub fn for_import(self) -> Client {
        Client { wait_max: IMPORT_MAX, ..self }
    }

    /// Sends a request and returns the JSON document of the answer.
    pub fn ask(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Result<Value> {
        let text = self.runtime.block_on(async {
            let response = self.send(method, path, body.into()).await?;
            self.whole(response).await
        })?;
        serde_json::from_slice(&text).with_context(|| self.not_a_gateway())
    }

    /// Sends a request and writes the body of the answer as it comes.
    pub fn stream(&self, path: &str, to: &mut impl Write) -> Result<()> {
        self.runtime.block_on(async {
            let mut body = self.send("GET", path, Bytes::new()).await?.into_body();
            while let Some(frame) = self.in_time(body.frame()).await? {
                let frame = frame.context("the gateway ended in the middle of its answer")?;
                to.write_all(frame.data_ref().map_or(&[][..], |data| data))?;
            }
            Ok(())
        })
    }

    fn not_a_gateway(&self) -> String {
        format!("{}: the answer is not from `overbank gateway`", self.path.display())
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Result<T> {
        let (name, seconds) = (self.path.display(), self.wait_max.as_secs());
        let late = |_| anyhow!("{name}: no answer in {seconds} s");
        tokio::time::timeout(self.wait_max, step).await.map_err(late)
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes> {
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_MAX).collect();
        let whole = self.in_time(body).await?.map_err(|error| anyhow!(error));
        Ok(whole.with_context(|| self.not_a_gateway())?.to_bytes())
    }

    /// Sends a request; an answer of an error is one here.
    async fn send(&self, method: &str, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let name = self.path.display();
        let stream = UnixStream::connect(&self.path).await;
        let stream = stream.with_context(|| {
            format!("{name}: no gateway answers; start one with --control {name}, or see --control")
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(|| self.not_a_gateway())?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Full::new(body))?;
        let sent = self.in_time(sender.send_request(request)).await?;
        let response =
            sent.with_context(|| format!("{name}: the gateway closed the connection"))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let document: Value = serde_json::from_slice(&self.whole(response).await?)
            .with_context(|| self.not_a_gateway())?;
        let of_line = |error: &Value| {
            Some(format!("line {}: {}", error["line"].as_u64()?, error["what"].as_str()?))
        };
        let lines = document["errors"].as_array().into_iter().flatten().filter_map(of_line);
        let lines: Vec<String> = lines.collect();
        let more = document["more"].as_u64().filter(|more| *more > 0);
        let more = more.map_or(String::new(), |more| format!("\n{more} more errors"));
        match (lines.len(), document["error"].as_str()) {
            (0 | 1, Some(error)) => bail!("{error}"),
            (n, Some(_)) => bail!("{n} errors, nothing is imported\n{}{more}", lines.join("\n")),
            (_, None) => bail!("{name}: the gateway answers with {status}"),
        }
    }
}
