//! A cache of hot keys in front of Redis or memcached, for clients and servers as they are.
//!
//! ```text
//!   clients ─▶ worker ─▶ session ─── read of a hot key ──▶ slots ─▶ reply
//!                │          └─ everything else ─▶ a lane, or the client's own connection ─▶ Redis
//!                └─ hot, written, closed ─▶ core ─▶ follower ─▶ tracking connection ─▶ Redis
//!                                            └─ slots ◀── fills, invalidations ──┘
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `worker` | a thread and its clients: sockets; `lanes` are connections that clients share |
//! | `session` | one client's connection to Redis as a pure machine |
//! | `core` | the proxy's own connection: `follow` speaks to Redis, `hot` decides, `fills` takes |
//! | `memcached` | sessions and the follower of memcached |
//! | `protocol` | sessions and followers of either |
//! | `slots` | what threads share: cached replies, and which may be served |
//! | `commands` | what Redis' commands do, and to which keys |
//! | `form`, `users` | which replies belong to a request, and which users may be given them |
//! | `stream`, `tls` | a connection, plain or with TLS; certificates and keys |
//! | `ways` | what a worker has to the other threads; `buffer`: bytes on their way out |
//! | `settings`, `upstream`, `totals` | what is configured, and what is counted |
//! | `pseudonym` | names of keys that do not show them |
//!
//! # Guarantees
//! - G1: for commands through one proxy with known keys, each key behaves as in Redis itself
//!   (linearizable). A connection keeps its order for each key; with `--order connection` for all.
//! - G2: a hit is never older than `staleness-max` for what did not pass this proxy; with
//!   memcached, than `max-age`.
//! - G3: a value is never served past its expiry.
//! - G4: a lost connection, a flush, another role or server, other commands: all is dropped at
//!   once, and requests pass through.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017, as a proxy.

mod buffer;
pub mod commands;
mod core;
pub mod form;
mod lanes;
mod memcached;
mod protocol;
mod pseudonym;
mod session;
pub mod settings;
pub mod slots;
mod stream;
pub mod tls;
pub mod totals;
pub mod upstream;
mod users;
mod ways;
mod worker;

use self::core::Core;
pub use self::core::{Heat, Hottest, heat};
use self::memcached::Flushes;
use self::pseudonym::Pseudonyms;
#[cfg(feature = "fuzz")]
pub use self::session::rig::torture;
use self::session::{Greeting, Rules};
use self::settings::{Cacheable, Lanes, ProxySettings};
use self::slots::SlotsError;
use self::tls::Tls;
use self::totals::{CoreTotals, ProxyTotals};
use self::upstream::{Protocol, Upstream};
use self::users::Users;
use self::ways::Ways;
use self::worker::Worker;
use crate::client::unguessable;
use arc_swap::{ArcSwap, ArcSwapOption};
use commands::Commands;
use mio::Waker;
use overbank::sketch::{Config as Sketch, SketchError};
use overbank_declare::counters::Counters;
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Time between two looks at the server's name.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Notes from workers to the core that wait.
const NOTES: usize = 4096;

/// Returns the hash of a key. The seed is secret: strangers cannot choose keys that collide.
fn hash_of(seed: u64, key: &[u8]) -> u128 {
    xxh3_128_with_seed(key, seed)
}

/// A proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("listen {address}: {source}; must be a free address of this machine")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("upstream {upstream}: {source}; must be the name or address of a server")]
    Resolve { upstream: String, source: io::Error },
    #[error(transparent)]
    Slots(#[from] SlotsError),
    #[error(transparent)]
    Sketch(#[from] SketchError),
    #[error("cannot start a thread or wake it: {0}")]
    System(#[from] io::Error),
}

/// What the threads of a proxy share, beside its slots.
struct Shared {
    /// See [`boot_time`].
    start: u64,
    stop: AtomicBool,
    rules: ArcSwap<Rules>,
    clients_max: usize,
    lanes: Lanes,
    /// What the server says to a new connection of RESP3, and the number of the next client that
    /// gets it from here: far from the server's own.
    greeting: ArcSwapOption<Greeting>,
    clients_next: AtomicU64,
    /// Of keys' hashes.
    seed: u64,
    /// What new connections begin with.
    tls: ArcSwap<Tls>,
    /// Where the server is, and what else its name stands for.
    address: ArcSwapOption<SocketAddr>,
    names: Mutex<Vec<SocketAddr>>,
    commands: ArcSwap<Commands>,
    users: ArcSwap<Users>,
    /// The server is a node of a cluster.
    is_cluster: AtomicBool,
    protocol: Protocol,
    /// Delayed `flush_all` of memcached.
    flushes: Arc<Flushes>,
    /// Advanced with each change of the two, or of the rules.
    version: AtomicU64,
    /// By worker.
    totals: Vec<Mutex<ProxyTotals>>,
    core_totals: Mutex<CoreTotals>,
    hottest: Mutex<Heat>,
}

impl Shared {
    /// Returns monotonic nanoseconds, which go on while the machine sleeps: values expire then.
    fn now(&self) -> u64 {
        boot_time().saturating_sub(self.start)
    }

    fn next_id(&self) -> u64 {
        self.clients_next.fetch_add(1, Ordering::Relaxed)
    }

    fn upstream(&self) -> Option<SocketAddr> {
        self.address.load().as_deref().copied()
    }
}

/// Returns nanoseconds since the machine was started.
fn boot_time() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Access to a running proxy.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    pseudonyms: Arc<Pseudonyms>,
    address: SocketAddr,
}

impl Handle {
    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what workers and the core have counted until their last turns.
    pub fn totals(&self) -> (ProxyTotals, CoreTotals) {
        let mut sum = ProxyTotals::default();
        self.shared.totals.iter().for_each(|totals| sum.add(&*locked(totals)));
        (sum, *locked(&self.shared.core_totals))
    }

    /// Returns the hottest keys of the last second, the hottest first.
    pub fn hottest(&self) -> Heat {
        locked(&self.shared.hottest).clone()
    }

    /// Returns a name for a key that does not show it: 32 hexadecimal digits, the same until the
    /// proxy ends.
    pub fn pseudonym(&self, key: &[u8]) -> String {
        self.pseudonyms.of(key)
    }

    /// Takes `prefix`, `deny`, `order` and `scripts` of these settings; the other settings change
    /// with a restart alone. Keys that may not be cached any more are dropped soon.
    pub fn reload(&self, settings: &ProxySettings) {
        self.shared.rules.store(Arc::new(Rules::new(settings)));
        // Pairs with `Ways::refresh`.
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Takes certificates, keys and authorities for new connections.
    pub fn reload_tls(&self, tls: Tls) {
        self.shared.tls.store(Arc::new(tls));
    }
}

/// A running proxy; dropping it stops it.
pub struct Running {
    handle: Handle,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Running {
    /// Starts a proxy. The server need not answer yet.
    ///
    /// # Errors
    /// Fails if the address is taken, the server's name is unknown, or memory is short.
    pub fn start(settings: &ProxySettings, tls: Tls) -> Result<Running, StartError> {
        let seed = unguessable()?;
        let (listeners, address) = listen(settings.listen, settings.workers)?;
        let resolved = resolve(&settings.upstream).map_err(|source| StartError::Resolve {
            upstream: settings.upstream.to_string(),
            source,
        })?;
        let (slots, of_workers) = slots::build(slots::Config {
            workers: settings.workers,
            entries: settings.entries,
            bytes: settings.memory << 20,
        })?;
        let shared = Arc::new(Shared {
            start: boot_time(),
            stop: AtomicBool::new(false),
            rules: ArcSwap::from_pointee(Rules::new(settings)),
            clients_max: settings.clients,
            lanes: settings.lanes,
            greeting: ArcSwapOption::empty(),
            clients_next: AtomicU64::new(1 << 62),
            seed,
            tls: ArcSwap::from_pointee(tls),
            address: ArcSwapOption::new(resolved.first().copied().map(Arc::new)),
            names: Mutex::new(resolved),
            commands: ArcSwap::new(Commands::builtin()),
            users: ArcSwap::from_pointee(Users::new(false)),
            is_cluster: AtomicBool::new(false),
            protocol: settings.upstream.protocol,
            flushes: Arc::default(),
            version: AtomicU64::new(0),
            totals: (0..settings.workers).map(|_| Mutex::default()).collect(),
            core_totals: Mutex::default(),
            hottest: Mutex::default(),
        });
        let (to_core, notes) = sync_channel(NOTES);
        let mut keepers = Vec::new();
        let mut counters = Vec::new();
        for _ in 0..settings.workers {
            let (counter, keeper) = Sketch::default().build(seed, self::core::COUNTING)?;
            keepers.push(keeper);
            counters.push(counter);
        }
        let (core, wake_core) = Core::new(shared.clone(), settings, (slots, keepers), notes)?;
        let pseudonyms = Arc::new(Pseudonyms::new()?);
        let handle = Handle { shared: shared.clone(), pseudonyms, address };
        let mut running = Running { handle, wakers: vec![wake_core.clone()], threads: Vec::new() };
        let parts = listeners.into_iter().zip(of_workers).zip(counters);
        for (at, ((listener, slots), counter)) in parts.enumerate() {
            let ways = Ways::new(slots, to_core.clone(), wake_core.clone(), settings.staleness_max);
            let (worker, waker) = Worker::new((shared.clone(), at), ways, counter, listener)?;
            running.wakers.push(Arc::new(waker));
            running.spawn(format!("proxy-{at}"), move || worker.run())?;
        }
        running.spawn("proxy-core".to_owned(), move || core.run())?;
        follow_name(&shared, &settings.upstream)?;
        Ok(running)
    }

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns whether a thread has ended by itself: it has panicked, or its poll has failed.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops it and returns what was counted.
    pub fn stop(mut self) -> (ProxyTotals, CoreTotals) {
        self.end();
        self.handle.totals()
    }

    fn end(&mut self) {
        self.handle.shared.stop.store(true, Ordering::Release);
        for waker in &self.wakers {
            // Without a waker, it looks by itself ten times a second.
            let _ = waker.wake();
        }
        for thread in self.threads.drain(..) {
            // A panic has been printed by the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Binds one listener for each worker to the same address: the kernel spreads clients.
fn listen(
    address: SocketAddr,
    workers: usize,
) -> Result<(Vec<TcpListener>, SocketAddr), StartError> {
    let wrong = |source| StartError::Bind { address, source };
    let bind = |address: SocketAddr| {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    // Another process with the same option would get a share of the clients.
    drop(TcpListener::bind(address).map_err(wrong)?);
    let first = bind(address).map_err(wrong)?;
    let bound = first.local_addr()?;
    let mut all = vec![first];
    for _ in 1..workers {
        all.push(bind(bound).map_err(wrong)?);
    }
    Ok((all, bound))
}

/// Returns the addresses of the server: at least one.
fn resolve(upstream: &Upstream) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> =
        (upstream.host.as_str(), upstream.port).to_socket_addrs()?.collect();
    match found.is_empty() {
        true => Err(io::Error::other("the name has no address")),
        false => Ok(found),
    }
}

/// Looks for other addresses of the server's name once a second, in a thread: a name server may
/// take long to answer, and the proxy's end does not wait for it.
fn follow_name(shared: &Arc<Shared>, upstream: &Upstream) -> io::Result<()> {
    if upstream.host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let (shared, upstream) = (Arc::downgrade(shared), upstream.clone());
    let look = move || {
        loop {
            std::thread::sleep(LOOK_EVERY);
            // What it has no answer for stays as it was.
            let found = resolve(&upstream);
            let Some(shared) = shared.upgrade() else { return };
            if shared.stop.load(Ordering::Acquire) {
                return;
            }
            if let Ok(found) = found {
                *locked(&shared.names) = found;
            }
        }
    };
    std::thread::Builder::new().name("proxy-names".to_owned()).spawn(look)?;
    Ok(())
}

impl Rules {
    fn new(settings: &ProxySettings) -> Rules {
        Rules {
            order: settings.order,
            scripts: settings.scripts,
            prefix: settings.prefix.clone(),
            deny: settings.deny.clone(),
            cacheable: settings.cacheable.unwrap_or(Cacheable::ALL),
        }
    }

    /// Returns whether a key may be cached.
    fn may_cache(&self, key: &[u8]) -> bool {
        key.len() <= form::KEY_MAX
            && self.prefix.as_ref().is_none_or(|prefixes| prefixes.begin(key))
            && !self.deny.as_ref().is_some_and(|prefixes| prefixes.begin(key))
    }
}
