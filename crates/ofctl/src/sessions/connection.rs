//! One connection: hello, then messages in and out until either side has enough.
//!
//! A single task reads, carries out and writes, so messages are answered in their order. It takes a
//! request only while little waits to be sent: a peer that asks and does not read is held up by
//! TCP, in its own memory. What it costs us is bounded by
//! [`ControlOptions`](super::ControlOptions).
//!
//! Time: an echo is asked for after `probe` of silence, and the session ends after twice that,
//! which also finds connections whose other end is gone.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use overbank_openflow::{
    BadRequest, ErrorMessage, FrameError, Frames, Hello, HelloFailed, Message, Version, VersionSet,
    negotiate,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::admission::Permit;
use super::counters::count;
use super::linger::Linger;
use super::outbox::Outbox;
use super::serve::{Hub, stopped};
use super::session::Session;
use crate::rules::{ControllerHandle as _, Subscription, SubscriptionLimits};

/// Bytes read at once.
const READ: usize = 16 * 1024;
/// How long a session that ends tries to send what waits.
const GOODBYE: Duration = Duration::from_millis(500);
/// Packet-ins taken from the queue at once.
const PACKETS_AT_ONCE: usize = 32;
/// The message type of a hello.
const HELLO: u8 = 0;
/// The message type of an error.
const ERROR: u8 = 1;

/// Why a connection that kept silent is closed.
const DISPLACED: &str = "it sent no hello and was closed to admit a new connection";

/// How a connection ended.
pub(super) struct Ended {
    /// Whether the two sides agreed on a version.
    pub greeted: bool,
    /// Why we ended it, if we did and not because we stop.
    pub broken: Option<&'static str>,
}

/// Serves a connection until it ends. `permit`: its permit, if others made it; one that we made has
/// a controller as its peer and no tool: while one of these stands, the switch is not on its own
/// (fail mode).
pub(super) async fn run<S>(
    stream: S,
    control: &Arc<Hub>,
    mut stop: watch::Receiver<bool>,
    mut permit: Option<Permit>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (reader, writer) = tokio::io::split(stream);
    let out = Outbox::new(Arc::clone(&control.options.counters));
    let mut link = Link { reader, writer, frames: Frames::new(), out };
    let counters = &control.options.counters;
    let handshake = time::timeout(control.options.handshake, link.greet(control));
    let greeted = tokio::select! {
        () = stopped(&mut stop) => Ok(None),
        () = displaced(&mut permit) => return Ended { greeted: false, broken: Some(DISPLACED) },
        greeted = handshake => greeted.unwrap_or_else(|_| {
            count(&counters.hellos_missed, 1);
            Err("no hello in time")
        }),
    };
    let version = match greeted {
        Ok(Some(version)) => {
            if permit.as_mut().is_some_and(|permit| !permit.keep()) {
                return Ended { greeted: false, broken: Some(DISPLACED) };
            }
            version
        }
        other => {
            let broken = other.err();
            let pending = link.out.pending();
            // It still has its permit, and is still the first to give way.
            tokio::select! {
                () = displaced(&mut permit) => {}
                () = goodbye(&mut link.reader, &mut link.writer, pending, broken.is_some()) => {}
            }
            return Ended { greeted: false, broken };
        }
    };
    count(&counters.sessions_opened, 1);
    let limits =
        SubscriptionLimits { events: control.options.events, packets: control.options.packet_ins };
    let mut news = News { from: control.switch.subscribe(limits), events: 0, packets: 0 };
    let _connected = permit.is_none().then(|| control.switch.connected());
    let Link { reader, writer, frames, out } = link;
    let session = Session::new(control.join(), version, out);
    let mut turns = Turns { reader, writer, frames, session };
    let broken = turns.run(&mut news, &mut stop).await.err();
    news.count_lost(&turns.session);
    turns.session.leave();
    goodbye(&mut turns.reader, &mut turns.writer, turns.session.out.pending(), broken.is_some())
        .await;
    Ended { greeted: true, broken }
}

/// Returns when the connection has lost its permit, if it has one to lose.
async fn displaced(permit: &mut Option<Permit>) {
    match permit {
        Some(permit) => permit.lost().await,
        None => future::pending().await,
    }
}

/// A connection before its version is known.
struct Link<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    frames: Frames,
    out: Outbox,
}

impl<S: AsyncRead + AsyncWrite> Link<S> {
    /// Exchanges hellos. `None`: the peer closed the connection.
    async fn greet(&mut self, control: &Hub) -> Result<Option<Version>, &'static str> {
        let ours = VersionSet::ours();
        let newest = Version::ALL.iter().copied().max().unwrap_or(Version::V13);
        let hello = Message::Hello(Hello { versions: ours });
        self.out.push(&hello, newest, 0).map_err(|_| "hello does not fit")?;
        let mut bytes = [0; 1024];
        loop {
            while self.out.len() > 0 {
                match self.writer.write(self.out.pending()).await {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(sent) => self.out.advance(sent),
                }
            }
            match self.reader.read(&mut bytes).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(read) => self.frames.extend(&bytes[..read]),
            }
            let frame = match self.frames.next_frame() {
                Ok(None) => continue,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    let quote = error.header.to_bytes();
                    self.refuse(ErrorMessage::new(FrameError::CODE, &quote), error.header.xid);
                    return Err("its first message has an invalid length");
                }
            };
            count(&control.options.counters.messages_in, 1);
            let header = frame.header;
            if header.kind == ERROR {
                count(&control.options.counters.errors_received, 1);
                return Err("it answered our hello with an error");
            }
            if header.kind != HELLO {
                let error = ErrorMessage {
                    code: HelloFailed::Incompatible.into(),
                    data: b"the first message has to be a hello".to_vec(),
                };
                self.refuse(error, header.xid);
                count(&control.options.counters.errors_sent, 1);
                return Err("its first message is not a hello");
            }
            let theirs = Hello::decode(&header, frame.body());
            return match negotiate(ours, &theirs) {
                Ok(version) => Ok(Some(version)),
                Err(error) => {
                    self.refuse(error, header.xid);
                    count(&control.options.counters.errors_sent, 1);
                    Err("no version in common")
                }
            };
        }
    }

    fn refuse(&mut self, error: ErrorMessage, xid: u32) {
        // The oldest: an error looks the same in all versions.
        let pushed = self.out.push(&Message::Error(error), Version::V13, xid);
        assert!(pushed.is_ok(), "an error is a line at most: it fits into a message");
    }
}

/// Sends what waits, and ends the connection. `linger`: what the peer still sends is read first and
/// thrown away; if it were left lying, closing would destroy the error that explains it.
async fn goodbye<S: AsyncRead + AsyncWrite>(
    reader: &mut ReadHalf<S>,
    writer: &mut WriteHalf<S>,
    pending: &[u8],
    linger: bool,
) {
    // A peer that does not read in time misses the end of what was sent.
    let _ = time::timeout(GOODBYE, async {
        if writer.write_all(pending).await.is_err() || writer.shutdown().await.is_err() || !linger {
            return;
        }
        let mut bytes = [0; 4096];
        while reader.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    })
    .await;
}

/// What the switch has to say.
struct News {
    from: Subscription,
    /// Already counted as lost.
    events: u64,
    packets: u64,
}

impl News {
    fn count_lost(&mut self, session: &Session) {
        let (events, packets) = (self.from.lost_events(), self.from.lost_packets());
        let counters = &session.control().options.counters;
        count(&counters.events_dropped, events - self.events);
        count(&counters.packet_ins_dropped, packets - self.packets);
        if events > self.events {
            tracing::warn!(lost = events - self.events, "a controller missed events");
        }
        (self.events, self.packets) = (events, packets);
    }
}

struct Turns<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    frames: Frames,
    session: Session,
}

impl<S: AsyncRead + AsyncWrite> Turns<S> {
    /// Runs until the peer closes (`Ok`), the switch stops (`Ok`), or the session has to end (the
    /// reason).
    async fn run(
        &mut self,
        news: &mut News,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), &'static str> {
        let control = Arc::clone(self.session.control());
        let options = &control.options;
        let mut bytes = vec![0; READ];
        let mut ticks = time::interval(tick(options.probe, options.stall));
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let (mut heard, mut moved, mut asked) = (Instant::now(), Instant::now(), false);
        let (mut more, mut held) = (true, false);
        let mut linger = Linger::new(heard);
        loop {
            if more {
                more = self.messages(options.messages_per_turn).await?;
            }
            self.session.go_on();
            let session = &mut self.session;
            let waiting = session.out.len();
            if waiting > 0 && moved.elapsed() > options.stall {
                count(&options.counters.sessions_stalled, 1);
                return Err("it does not read its messages");
            }
            let (room, ready) = (waiting < options.reply_bytes, session.is_ready());
            if !room && !held {
                count(&options.counters.sessions_held, 1);
            }
            held = !room;
            tokio::select! {
                () = stopped(stop) => return Ok(()),
                read = self.reader.read(&mut bytes), if ready && !more => match read {
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(read) => {
                        self.frames.extend(&bytes[..read]);
                        (heard, asked, more) = (Instant::now(), false, true);
                        linger.heard(heard);
                    }
                },
                wrote = self.writer.write(session.out.pending()), if waiting > 0 => match wrote {
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(wrote) => {
                        session.out.advance(wrote);
                        moved = Instant::now();
                    }
                },
                Some(packet) = news.from.packets.recv() => {
                    session.packet_in(&packet);
                    for _ in 1..PACKETS_AT_ONCE {
                        let Ok(packet) = news.from.packets.try_recv() else { break };
                        session.packet_in(&packet);
                    }
                }
                Some(event) = news.from.events.recv(), if room => session.event(&event),
                Some(state) = session.member.notices.recv(), if room => session.demoted(state),
                () = yielded(), if ready && (more || linger.looks(Instant::now())) => {}
                now = ticks.tick() => {
                    news.count_lost(session);
                    if waiting == 0 {
                        moved = now;
                    }
                    let silent = now.saturating_duration_since(heard);
                    // While we take nothing from it, its silence says nothing.
                    if !ready {
                        heard = now;
                    } else if options.probe.is_zero() || silent < options.probe {
                    } else if !asked {
                        (asked, heard) = (true, now);
                        session.send(&Message::EchoRequest(Vec::new()), 0);
                    } else {
                        count(&options.counters.echoes_missed, 1);
                        return Err("it does not answer an echo request");
                    }
                }
            }
        }
    }

    /// Carries out messages that have been read. Says whether there may be more.
    async fn messages(&mut self, at_most: usize) -> Result<bool, &'static str> {
        for _ in 0..at_most {
            if !self.session.is_ready() {
                return Ok(true);
            }
            match self.frames.next_frame() {
                Ok(None) => return Ok(false),
                Ok(Some(frame)) => self.session.message(&frame).await?,
                Err(FrameError { header }) => {
                    let error = ErrorMessage::new(BadRequest::BadLen, &header.to_bytes());
                    self.session.error(error, header.xid);
                    return Err("it sent a message with an invalid length");
                }
            }
        }
        Ok(true)
    }
}

/// Lets other tasks have their turn, once.
async fn yielded() {
    tokio::task::yield_now().await;
    future::ready(()).await;
}

/// Returns how often to look at the times.
fn tick(probe: Duration, stall: Duration) -> Duration {
    let shortest = if probe.is_zero() { stall } else { probe.min(stall) };
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
