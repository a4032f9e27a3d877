//! Limits the connections open at one time, and closes idle ones.
//!
//! Without a limit, idle connections could take all descriptors of the process. Then no port could
//! be reopened and no controller accepted. A connection beyond the limit waits. The first one to
//! wait holds a descriptor and is counted; the rest stay in the system's queue.
//!
//! Panics: none.

use axum::serve::Listener;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// A connection without traffic for this long is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(30);
/// Wait after a failed accept: descriptors may be free by then.
pub const RETRY: Duration = Duration::from_millis(100);

/// Caps the connections open at one time; clones share the cap.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    permits: Arc<Semaphore>,
    waited: Arc<AtomicU64>,
}

impl ConnectionLimit {
    pub fn new(connections: usize) -> ConnectionLimit {
        ConnectionLimit { permits: Arc::new(Semaphore::new(connections)), waited: Arc::default() }
    }

    /// Waits until a connection is allowed; dropping the permit frees its place.
    pub async fn admit(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        self.waited.fetch_add(1, Relaxed);
        self.permits.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Returns how many connections have waited.
    pub fn waited(&self) -> u64 {
        self.waited.load(Relaxed)
    }
}

/// A listener with a connection limit.
pub struct Limited<L> {
    listener: L,
    limit: ConnectionLimit,
    idle: Duration,
}

impl<L> Limited<L> {
    /// Puts `limit` in front of `listener`; closes a connection that is idle for `idle`.
    pub fn new(listener: L, limit: ConnectionLimit, idle: Duration) -> Limited<L> {
        Limited { listener, limit, idle }
    }
}

impl<L: Listener<Io: Unpin>> Listener for Limited<L> {
    type Io = Connection<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Connection<L::Io>, L::Addr) {
        let (stream, peer) = self.listener.accept().await;
        let permit = self.limit.admit().await;
        let deadline = Box::pin(sleep(self.idle));
        (Connection { stream, deadline, idle: self.idle, _permit: permit }, peer)
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }
}

/// An admitted connection.
pub struct Connection<S> {
    stream: S,
    deadline: Pin<Box<Sleep>>,
    idle: Duration,
    _permit: OwnedSemaphorePermit,
}

impl<S> Connection<S> {
    /// Returns `step`, or an error if the connection was idle for too long.
    fn moved<T>(&mut self, cx: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.idle);
            return step;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.moved(cx, step)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.moved(cx, step)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_and_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let limit = ConnectionLimit::new(1);
        let mut limited = Limited::new(listener, limit.clone(), PATIENCE * 60);
        let _first = TcpStream::connect(address).await.expect("connected");
        let (connection, _) = limited.accept().await;
        assert_eq!(limit.waited(), 0);
        let _second = TcpStream::connect(address).await.expect("connected");
        let waiting = tokio::spawn(async move {
            let (connection, _) = limited.accept().await;
            (limited, connection)
        });
        timeout(PATIENCE, async {
            while limit.waited() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the second waits");
        assert!(!waiting.is_finished());
        drop(connection);
        let (mut limited, connection) =
            timeout(PATIENCE, waiting).await.expect("in time").expect("ends");
        drop(connection);
        let _third = TcpStream::connect(address).await.expect("connected");
        timeout(PATIENCE, limited.accept()).await.expect("there is room");
        assert_eq!(limit.waited(), 1);
    }

    #[tokio::test]
    async fn idle_connections_make_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let limit = ConnectionLimit::new(2);
        let limited = Limited::new(listener, limit.clone(), Duration::from_millis(100));
        let router = Router::new().route("/", get(|| async { "here" }));
        let server = tokio::spawn(async move { axum::serve(limited, router).await });
        let mut idle = Vec::new();
        for half in ["", "GET / HTTP/1.1\r\nHo"] {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(half.as_bytes()).await.expect("sent");
            idle.push(stream);
        }
        let mut last = TcpStream::connect(address).await.expect("connected");
        last.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        let read = timeout(PATIENCE, last.read_to_string(&mut answer)).await;
        assert!(read.is_ok() && answer.ends_with("here"), "{answer}");
        for stream in &mut idle {
            let mut rest = Vec::new();
            let end = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
            assert!(end.is_ok(), "an idle connection is closed");
        }
        timeout(PATIENCE, async {
            while limit.permits.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("there is room again");
        server.abort();
    }
}
