//! N4 of the gateway: datagrams of PFCP to its sessions, or to those of its cluster.
//!
//! In a cluster, one node speaks: the others wait, and tell it of tunnels that their peers have
//! lost. A node that begins to speak takes the address, loads what is kept with the sessions, and
//! goes on where the one before it stopped.

use super::N4;
use crate::live::{RunError, seed, until_stopped};
use overbank_cluster::SessionId;
use overbank_cluster::message::{Answer, Answered, Refusal, Request};
use overbank_declare::counters::Counters;
use overbank_gateway::GatewayControl;
use overbank_gateway::cluster::{Asks, Clustered as Node, Note, Seat, unpack};
use overbank_gateway::engine::Order;
use overbank_handover::publication::Publication;
use overbank_n4::{Alone, Ask, Clustered, N4Totals, Out, Settings, Speaker, Store};
use overbank_neighbours::Held;
use overbank_ports::announce::{announce, interface_number};
use overbank_runtime::Handle;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Time between two looks at reports, and at whether this node speaks.
const TICK: Duration = Duration::from_millis(50);
/// Lifetime of the address on the speaker: shorter than a lease. It is renewed every half second.
const ADDRESS_LIFETIME: Duration = Duration::from_secs(2);
const RENEW_EVERY: u32 = 10;
/// Longest wait for a page of sessions, and the pause after one that failed.
const PAGE_MAX: Duration = Duration::from_secs(12);
/// Longest time for which the speaker tries to serve its address; then another node is to speak.
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE_PAUSE: Duration = Duration::from_millis(100);
/// Answers that are taken in a row.
const ANSWERS_MAX: usize = 256;
/// Seconds from 1900, when NTP begins, to 1970.
const NTP_SHIFT: u64 = 2_208_988_800;

/// Counts of a speaker, for readers of other threads.
#[derive(Clone)]
pub struct Counts(Arc<Publication>);

impl Counts {
    pub fn new() -> Counts {
        Counts(Arc::new(Publication::new(N4Totals::WORDS)))
    }

    pub fn read(&self) -> N4Totals {
        N4Totals::from_words(&self.0.read())
    }
}

/// What it serves for.
pub struct Service {
    pub n4: N4,
    pub handle: Handle<GatewayControl>,
    pub counts: Option<Counts>,
}

/// The socket of N4, and what is to be done.
struct Face {
    socket: UdpSocket,
    buffer: Vec<u8>,
    out: Vec<Out>,
}

impl Face {
    async fn bind(address: SocketAddr) -> Result<Face, RunError> {
        let bound = UdpSocket::bind(address).await;
        let socket = bound.map_err(|error| RunError::Pfcp { address, error })?;
        Ok(Face { socket, buffer: vec![0; 65_536], out: Vec::new() })
    }

    /// Returns the length and the sender of the next datagram.
    async fn receive(&mut self) -> (usize, SocketAddr) {
        loop {
            // An error is about an earlier datagram.
            if let Ok(received) = self.socket.recv_from(&mut self.buffer).await {
                return received;
            }
        }
    }

    async fn carry_out(&mut self, handle: &Handle<GatewayControl>) {
        for out in self.out.drain(..) {
            match out {
                Out::Send { to, bytes } => {
                    if let Err(error) = self.socket.send_to(&bytes, to).await {
                        tracing::warn!(%to, %error, "PFCP: a datagram was not sent");
                    }
                }
                Out::EndMarker { n3, peer, teid } => {
                    if handle.order(Order::EndMarker { n3, peer, teid }).is_err() {
                        tracing::warn!(%peer, teid, "an End Marker was not sent: too many orders");
                    }
                }
            }
        }
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Service {
    /// Serves until it is stopped, and publishes counts. Blocks its thread for moments.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn run(self, stop: watch::Receiver<bool>) -> Result<(), RunError> {
        let stopped = until_stopped(stop);
        let seat = self.handle.lock().cluster().map(Node::seat);
        tokio::select! {
            _ = stopped => Ok(()),
            ended = async {
                match seat {
                    None => self.alone().await,
                    Some(seat) => self.in_cluster(seat).await,
                }
            } => ended,
        }
    }

    fn settings(&self, seed: u64) -> Settings {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_s = (since_1970.as_secs() + NTP_SHIFT) as u32;
        let N4 { address, peers, .. } = &self.n4;
        Settings { node: address.ip(), started_s, peers: peers.clone(), seed }
    }

    fn publish(&self, totals: N4Totals) {
        if let Some(counts) = &self.counts {
            counts.0.publish(totals.words());
        }
    }

    async fn alone(&self) -> Result<(), RunError> {
        let handle = &self.handle;
        let mut face = Face::bind(self.n4.address).await?;
        let mut speaker = Speaker::new(self.settings(seed()), None);
        tracing::info!(address = %self.n4.address, "PFCP: waiting for associations");
        let mut ticks = ticks();
        loop {
            tokio::select! {
                (len, from) = face.receive() => {
                    let mut control = handle.lock();
                    let (sessions, now_ms) = control.sessions_mut();
                    let bytes = &face.buffer[..len];
                    let mut store = Alone { sessions, now_ms };
                    speaker.receive(bytes, from, now_ms, &mut store, &mut face.out);
                }
                _ = ticks.tick() => {
                    let mut control = handle.lock();
                    let now_ms = control.now_ms();
                    while let Some((peer, teid)) = control.lost_tunnel() {
                        speaker.error_indication(peer, teid, now_ms, &mut face.out);
                    }
                    let (sessions, now_ms) = control.sessions_mut();
                    speaker.tick(now_ms, &mut Alone { sessions, now_ms }, &mut face.out);
                    drop(control);
                    self.publish(speaker.totals());
                }
            }
            face.carry_out(handle).await;
        }
    }

    async fn in_cluster(&self, seat: Seat) -> Result<(), RunError> {
        let mut ticks = ticks();
        // Since when the address cannot be served.
        let mut refused = None;
        loop {
            ticks.tick().await;
            let Some(asks) = self.asks() else { continue };
            if !self.speaks() {
                refused = None;
                self.tell_speaker(&*asks);
                continue;
            }
            match Reign::begin(self, seat, asks).await {
                Ok(mut reign) => {
                    refused = None;
                    reign.run().await;
                    self.publish(N4Totals::default());
                }
                // The node that spoke before may still be giving the address up.
                Err(error) => {
                    if refused.is_none() {
                        tracing::warn!(%error, "PFCP: trying again");
                    }
                    if refused.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn asks(&self) -> Option<Arc<dyn Asks>> {
        self.handle.lock().cluster()?.asks()
    }

    /// Whether this node speaks.
    fn speaks(&self) -> bool {
        let control = self.handle.lock();
        control.cluster().is_some_and(|cluster| cluster.speaks(control.now_ms()))
    }

    /// Tells the speaker of tunnels that their peers have lost.
    fn tell_speaker(&self, asks: &dyn Asks) {
        let mut control = self.handle.lock();
        let speaker = control.cluster().and_then(Node::speaker);
        while let Some((peer, teid)) = control.lost_tunnel() {
            speaker.inspect(|&to| asks.note(to, Note::LostTunnel(peer, teid)));
        }
    }
}

/// The time for which this node speaks.
struct Reign<'a> {
    service: &'a Service,
    asks: Arc<dyn Asks>,
    /// The address, if this node is to take it.
    held: Option<Held>,
    face: Face,
    speaker: Speaker,
    store: Clustered,
    answers: UnboundedReceiver<(u64, Answer)>,
    answers_to: UnboundedSender<(u64, Answer)>,
}

impl<'a> Reign<'a> {
    async fn begin(
        service: &'a Service,
        seat: Seat,
        asks: Arc<dyn Asks>,
    ) -> Result<Reign<'a>, RunError> {
        let address = service.n4.address;
        let held = service.n4.interface.as_deref().map(|name| hold(name, address.ip()));
        let held = held.transpose().map_err(|error| RunError::Pfcp { address, error })?;
        let face = Face::bind(address).await?;
        let control = service.handle.lock();
        let shared = control.cluster().and_then(|cluster| cluster.shared().cloned());
        let addresses = control.sessions().addresses().clone();
        drop(control);
        let mut store = Clustered::new(seat.seed, addresses);
        // The same at all nodes: a request that comes to another one has the same numbers there.
        let settings = service.settings(seat.seed.session(0).0);
        let speaker = Speaker::new(settings, shared.as_deref());
        if shared.is_none() {
            store.begin(0, Ask::Share(&speaker.shared()));
        }
        let (answers_to, answers) = unbounded_channel();
        Ok(Reign { service, asks, held, face, speaker, store, answers, answers_to })
    }

    /// Speaks until another node does.
    async fn run(&mut self) {
        let Some(sessions) = self.load().await else { return };
        let address = self.service.n4.address;
        tracing::info!(%address, sessions, "PFCP: this node speaks for the cluster");
        let mut ticks = ticks();
        let mut until_renewal = 0;
        while self.service.speaks() {
            tokio::select! {
                (len, from) = self.face.receive() => {
                    let now_ms = self.now_ms();
                    let Reign { face, speaker, store, .. } = &mut *self;
                    speaker.receive(&face.buffer[..len], from, now_ms, store, &mut face.out);
                }
                Some(answer) = self.answers.recv() => {
                    self.answered(answer);
                    for _ in 0..ANSWERS_MAX {
                        let Ok(answer) = self.answers.try_recv() else { break };
                        self.answered(answer);
                    }
                }
                _ = ticks.tick() => {
                    self.tick();
                    until_renewal = (until_renewal + 1) % RENEW_EVERY;
                    if until_renewal == 0 {
                        self.renew();
                    }
                }
            }
            self.ask();
            self.face.carry_out(&self.service.handle).await;
        }
        tracing::info!(%address, "PFCP: another node speaks for the cluster");
    }

    /// Sets the time; returns it.
    fn now_ms(&mut self) -> u64 {
        let now_ms = self.service.handle.now_ms();
        self.store.at(now_ms);
        now_ms
    }

    /// Loads what is kept with the sessions; returns how many are of PFCP. `None`: another node
    /// speaks.
    async fn load(&mut self) -> Option<usize> {
        let (mut from, mut count) = (SessionId(0), 0);
        loop {
            if !self.service.speaks() {
                return None;
            }
            self.renew();
            let (to, page) = tokio::sync::oneshot::channel();
            let answer = Box::new(move |answer| drop(to.send(answer)));
            let asked = self.asks.ask_with(Request::Page { from }, answer);
            let answer = if asked { timeout(PAGE_MAX, page).await.ok() } else { None };
            let Some(Ok(Ok(Answered::Page(sessions, next)))) = answer else {
                sleep(PAGE_PAUSE).await;
                continue;
            };
            let now_ms = self.now_ms();
            for (_, context) in &sessions {
                let Some((session, kept)) = unpack(context) else { continue };
                self.store.learn(session);
                count += usize::from(self.speaker.restore(session, kept, now_ms));
            }
            match next {
                Some(next) => from = next,
                None => return Some(count),
            }
        }
    }

    fn answered(&mut self, (number, answer): (u64, Answer)) {
        let now_ms = self.now_ms();
        if let Some((ticket, done)) = self.store.answered(number, answer) {
            let Reign { face, speaker, store, .. } = &mut *self;
            speaker.done(ticket, done, now_ms, store, &mut face.out);
        }
    }

    fn tick(&mut self) {
        let now_ms = self.now_ms();
        let Reign { service, face, speaker, store, .. } = &mut *self;
        let mut control = service.handle.lock();
        while let Some((peer, teid)) = control.lost_tunnel() {
            speaker.error_indication(peer, teid, now_ms, &mut face.out);
        }
        let shared = control.cluster().and_then(|cluster| cluster.shared().cloned());
        drop(control);
        for ticket in store.shared(shared.as_ref()) {
            speaker.done(ticket, Ok(Default::default()), now_ms, store, &mut face.out);
        }
        speaker.tick(now_ms, store, &mut face.out);
        service.publish(speaker.totals());
    }

    /// Takes what the store has to ask to the cluster.
    fn ask(&mut self) {
        while let Some((number, request)) = self.store.send() {
            let to = self.answers_to.clone();
            // This node may speak no more.
            let answer = Box::new(move |answer| drop(to.send((number, answer))));
            if !self.asks.ask_with(request, answer) {
                self.answered((number, Err(Refusal::Overload)));
            }
        }
        if let Some(shared) = self.store.to_share()
            && !self.asks.share(shared)
        {
            self.store.share_again();
        }
    }

    fn renew(&self) {
        if let Some(Err(error)) = self.held.as_ref().map(Held::renew) {
            tracing::warn!(%error, "PFCP: the address of N4 was not renewed");
        }
    }
}

/// Takes an address for this node, and shows the link that it is here.
fn hold(interface: &str, address: IpAddr) -> io::Result<Held> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{interface}: {error}"));
    let index = interface_number(interface).map_err(named)?;
    let held = Held::new(index, address, ADDRESS_LIFETIME).map_err(named)?;
    announce(interface, address).map_err(named)?;
    Ok(held)
}
