//! Connections of strangers to the metrics: so many at one time, each closed when nothing moves on it.
//!
//! Without either bound, idle connections could take all descriptors of the process, and then no port
//! could be opened again and no controller let in. Who comes while all seats are taken waits in the
//! system's queue until one is free; the first of them with a descriptor, and counted.
//!
//! Panics: none.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at one time, unless told otherwise.
pub const CONNECTIONS: usize = 64;
/// A connection on which nothing moves for so long is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(30);
/// No descriptors left, perhaps; there may be after so long.
const RETRY: Duration = Duration::from_millis(100);

/// A listener with so many seats.
pub struct Seated {
    listener: TcpListener,
    seats: Arc<Semaphore>,
    idle: Duration,
    waited: Arc<AtomicU64>,
}

impl Seated {
    /// Seats in front of `listener`. `waited` counts connections that found none free when their
    /// turn came.
    pub fn new(
        listener: TcpListener,
        seats: usize,
        idle: Duration,
        waited: Arc<AtomicU64>,
    ) -> Seated {
        Seated { listener, seats: Arc::new(Semaphore::new(seats)), idle, waited }
    }
}

/// A seat, now or later; `None` never comes, as the seats are not taken away. Who has to wait is
/// counted.
pub async fn seat(seats: &Arc<Semaphore>, waited: &AtomicU64) -> Option<OwnedSemaphorePermit> {
    if let Ok(seat) = seats.clone().try_acquire_owned() {
        return Some(seat);
    }
    waited.fetch_add(1, Relaxed);
    seats.clone().acquire_owned().await.ok()
}

impl Listener for Seated {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            if let Ok((stream, peer)) = self.listener.accept().await
                && let Some(seat) = seat(&self.seats, &self.waited).await
            {
                let deadline = Box::pin(sleep(self.idle));
                return (Guest { stream, deadline, idle: self.idle, _seat: seat }, peer);
            }
            sleep(RETRY).await;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection on its seat.
pub struct Guest {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    idle: Duration,
    _seat: OwnedSemaphorePermit,
}

impl Guest {
    /// What a step came to, or an error if the connection has waited for too long.
    fn moved<T>(&mut self, cx: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.idle);
            return step;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.moved(cx, step)
    }
}

impl AsyncWrite for Guest {
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
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_finds_no_seat_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let waited = Arc::new(AtomicU64::new(0));
        let mut seated = Seated::new(listener, 1, PATIENCE * 60, waited.clone());
        let _first = TcpStream::connect(address).await.expect("connected");
        let (guest, _) = seated.accept().await;
        assert_eq!(waited.load(Relaxed), 0);
        let _second = TcpStream::connect(address).await.expect("connected");
        let waiting = tokio::spawn(async move {
            let (guest, _) = seated.accept().await;
            (seated, guest)
        });
        timeout(PATIENCE, async {
            while waited.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the second waits");
        assert!(!waiting.is_finished());
        drop(guest);
        let (mut seated, guest) = timeout(PATIENCE, waiting).await.expect("in time").expect("ends");
        drop(guest);
        let _third = TcpStream::connect(address).await.expect("connected");
        timeout(PATIENCE, seated.accept()).await.expect("there is a seat");
        assert_eq!(waited.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn who_only_sits_there_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let seated = Seated::new(listener, 2, Duration::from_millis(100), Arc::default());
        let seats = seated.seats.clone();
        let router = Router::new().route("/", get(|| async { "here" }));
        let server = tokio::spawn(async move { axum::serve(seated, router).await });
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
            while seats.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the seats are free again");
        server.abort();
    }
}
