//! Two ways of a batch to a node.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use async_nats::jetstream::{self, stream};
use async_nats::{Client, HeaderMap, Subscriber};
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::time::{Duration, Instant, sleep};

use super::PARTITIONS;
use super::servers::Servers;
use crate::prelude::LabError;

const STREAM: &str = "batches";
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// Longest wait for servers to find each other.
const AGREE_MAX: Duration = Duration::from_secs(30);

/// Sends a batch for each of some partitions, and waits until all are heard.
pub(super) trait Transport {
    fn round(&mut self, partitions: usize, batch: &[u8]) -> Result<(), LabError>;

    /// Seconds of CPU of servers between.
    fn cpu(&self) -> f64 {
        0.0
    }
}

/// A stream that one or three servers keep.
pub(super) struct JetStream {
    servers: Servers,
    runtime: Runtime,
    context: jetstream::Context,
    _node: Client,
    heard: Subscriber,
    /// The last sequence of each partition.
    last: [u64; PARTITIONS],
}

impl JetStream {
    pub(super) fn new(replicas: usize) -> Result<JetStream, LabError> {
        let servers = Servers::start(replicas)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().map_err(LabError::failed)?;
        let (context, node, heard) = runtime.block_on(async {
            let owner = async_nats::connect(&servers.urls).await.map_err(LabError::failed)?;
            let node = async_nats::connect(&servers.urls).await.map_err(LabError::failed)?;
            let context = jetstream::new(owner);
            let end = Instant::now() + AGREE_MAX;
            while let Err(error) = context.create_stream(config(replicas)).await {
                if Instant::now() > end {
                    return Err(LabError::failed(error));
                }
                sleep(Duration::from_millis(200)).await;
            }
            let heard = node.subscribe("heard.*").await.map_err(LabError::failed)?;
            node.flush().await.map_err(LabError::failed)?;
            Ok((context, node, heard))
        })?;
        Ok(JetStream { servers, runtime, context, _node: node, heard, last: [0; PARTITIONS] })
    }

    /// Whether a batch is refused that does not follow the last one.
    pub(super) fn refuses_a_stale_owner(&mut self) -> Result<bool, LabError> {
        self.round(1, &[1])?;
        let before = self.last[0] - 1;
        let sent = self.runtime.block_on(publish(&self.context, 0, before, &[2]));
        Ok(sent.is_err())
    }
}

fn config(replicas: usize) -> stream::Config {
    let republish = stream::Republish {
        source: format!("{STREAM}.*"),
        destination: "heard.{{wildcard(1)}}".to_owned(),
        headers_only: false,
    };
    stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![format!("{STREAM}.*")],
        num_replicas: replicas,
        republish: Some(republish),
        ..stream::Config::default()
    }
}

/// Publishes a batch behind the partition's last one; returns its sequence.
async fn publish(
    context: &jetstream::Context,
    partition: usize,
    last: u64,
    batch: &[u8],
) -> Result<u64, LabError> {
    let sent = begin(context, partition, last, batch).await?;
    Ok(sent.await.map_err(LabError::failed)?.sequence)
}

async fn begin(
    context: &jetstream::Context,
    partition: usize,
    last: u64,
    batch: &[u8],
) -> Result<jetstream::context::PublishAckFuture, LabError> {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED, last.to_string().as_str());
    let subject = format!("{STREAM}.{partition}");
    let sent = context.publish_with_headers(subject, headers, batch.to_vec().into()).await;
    sent.map_err(LabError::failed)
}

impl Transport for JetStream {
    fn round(&mut self, partitions: usize, batch: &[u8]) -> Result<(), LabError> {
        let JetStream { runtime, context, heard, last, .. } = self;
        runtime.block_on(async {
            let mut sent = Vec::with_capacity(partitions);
            for (partition, last) in last.iter().enumerate().take(partitions) {
                sent.push(begin(context, partition, *last, batch).await?);
            }
            for (last, sent) in last.iter_mut().zip(sent) {
                *last = sent.await.map_err(LabError::failed)?.sequence;
            }
            for _ in 0..partitions {
                let heard = heard.next().await;
                let heard = heard.ok_or_else(|| LabError::failed("the subscription ended"))?;
                if heard.payload != batch {
                    return Err(LabError::failed("another batch was heard than was sent"));
                }
            }
            Ok(())
        })
    }

    fn cpu(&self) -> f64 {
        self.servers.cpu()
    }
}

/// A connection whose other end answers each batch with a byte.
pub(super) struct Tcp(TcpStream);

impl Tcp {
    pub(super) fn new() -> io::Result<Tcp> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        // It ends with the connection.
        thread::spawn(move || answer(far));
        Ok(Tcp(near))
    }
}

fn answer(mut far: TcpStream) {
    let (mut length, mut content) = ([0; 4], Vec::new());
    while far.read_exact(&mut length).is_ok() {
        content.resize(u32::from_le_bytes(length) as usize, 0);
        if far.read_exact(&mut content).and_then(|()| far.write_all(&[1])).is_err() {
            break;
        }
    }
}

impl Transport for Tcp {
    fn round(&mut self, partitions: usize, batch: &[u8]) -> Result<(), LabError> {
        let mut round = || {
            for _ in 0..partitions {
                self.0.write_all(&(batch.len() as u32).to_le_bytes())?;
                self.0.write_all(batch)?;
            }
            self.0.read_exact(&mut [0; PARTITIONS][..partitions])
        };
        round().map_err(LabError::failed)
    }
}
