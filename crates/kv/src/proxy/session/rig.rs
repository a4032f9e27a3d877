//! A session with all that it stands on, but without sockets, for tests and the fuzz target.

use super::{OUT_MAX, OWED_MAX, Place, Rules, Turn};
use crate::proxy::buffer::Out;
use crate::proxy::commands::{Commands, GET};
use crate::proxy::core::{COUNTING, Note};
use crate::proxy::memcached::Item;
use crate::proxy::protocol::Session;
use crate::proxy::settings::{Lanes, Order};
use crate::proxy::slots::{self, Filled, Variant};
use crate::proxy::totals::{CoreTotals, ProxyTotals};
use crate::proxy::upstream::Protocol;
use crate::proxy::users::Users;
use crate::proxy::ways::Ways;
use crate::proxy::{Shared, hash_of};
use arc_swap::{ArcSwap, ArcSwapOption};
use mio::{Poll, Token, Waker};
use overbank::sketch::{Config, Counter, Keeper};
use overbank_wire::resp;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Keys that have slots. Others are looked up, too.
pub const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];
/// Databases that hits are served from.
pub const DBS: u32 = 2;
/// What the user default with all privileges looks like.
const ALL: &[u8] =
    b"%3\r\n$5\r\nflags\r\n~2\r\n+on\r\n+nopass\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n\
    $4\r\nkeys\r\n$2\r\n~*\r\n";

/// See the module.
pub struct Rig {
    pub session: Session,
    pub totals: ProxyTotals,
    ways: Ways,
    shared: Shared,
    counter: Counter,
    core: slots::Core,
    notes: Receiver<Note>,
    now: u64,
    _keeper: Keeper,
    _poll: Poll,
}

impl Rig {
    /// Returns a session of a client that may read everything, before an empty cache.
    pub fn new(protocol: Protocol, order: Order) -> Rig {
        let poll = Poll::new().expect("a poll");
        let wake = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
        let (mut core, mut workers) =
            slots::build(slots::Config { entries: 16, ..slots::Config::default() }).expect("slots");
        core.set_lease(u64::MAX);
        let seed = 7;
        for key in KEYS {
            core.promote(hash_of(seed, key), key).expect("a slot");
        }
        let (counter, keeper) = Config::default().build(seed, COUNTING).expect("a sketch");
        let mut users = Users::new(true);
        users.said(b"default", &resp::tree(ALL).expect("a reply").0, 0);
        let shared = Shared {
            start: 0,
            stop: AtomicBool::new(false),
            rules: ArcSwap::from_pointee(Rules { order, ..Rules::default() }),
            clients_max: 1,
            lanes: Lanes::Dedicated,
            greeting: ArcSwapOption::empty(),
            clients_next: AtomicU64::new(0),
            seed,
            tls: ArcSwap::default(),
            address: ArcSwapOption::empty(),
            names: Mutex::default(),
            commands: ArcSwap::new(Commands::builtin()),
            users: ArcSwap::from_pointee(users),
            is_cluster: AtomicBool::new(false),
            protocol,
            flushes: Arc::default(),
            version: AtomicU64::new(0),
            totals: Vec::new(),
            core_totals: Mutex::new(CoreTotals::default()),
            hottest: Mutex::default(),
        };
        let (to_core, notes) = sync_channel(64);
        let slots = workers.remove(0);
        let mut ways = Ways::new(slots, to_core, wake, Duration::from_millis(1));
        ways.refresh(&shared);
        let (session, totals) = (Session::new(protocol, Place::Own), ProxyTotals::default());
        let (_keeper, _poll) = (keeper, poll);
        Rig { session, totals, ways, shared, counter, core, notes, now: 0, _keeper, _poll }
    }

    fn turn(&mut self) -> (&mut Session, Turn<'_>) {
        self.now += 1;
        let Rig { session, totals, ways, shared, counter, now, .. } = self;
        (session, Turn { ways, shared, counter, totals, now: *now })
    }

    /// Gives the session bytes of the client, if it takes them; returns whether it did.
    pub fn client(&mut self, bytes: &[u8]) -> bool {
        let takes = self.session.takes_client();
        let (session, mut turn) = self.turn();
        session.resume(&mut turn);
        if takes {
            session.client(bytes, &mut turn);
        }
        self.check(bytes.len());
        takes
    }

    /// Gives it bytes of the server; returns whether they were replies.
    pub fn server(&mut self, bytes: &[u8]) -> bool {
        let (session, mut turn) = self.turn();
        let is_reply = session.server(bytes, &mut turn).is_ok();
        session.resume(&mut turn);
        self.check(bytes.len());
        self.reopen();
        is_reply
    }

    /// Does what the core does once the server has answered its PING.
    fn reopen(&mut self) {
        for note in self.notes.try_iter() {
            if let Note::Replied(closing) = note {
                self.core.push_all();
                self.core.reopen(closing);
            }
        }
    }

    /// Fills a key from what the server holds now.
    pub fn fill(&mut self, key: &[u8], value: impl Fn(u32) -> Option<Vec<u8>>) {
        let variants = (0..DBS).map(|db| {
            let (mut resp2, mut resp3) = (b"$-1\r\n".to_vec(), b"_\r\n".to_vec());
            if let Some(value) = value(db) {
                (resp2, resp3) = (Vec::new(), Vec::new());
                resp::bulk(&value, &mut resp2);
                resp::bulk(&value, &mut resp3);
            }
            Variant { db, request: [GET].into(), resp3: resp3.into(), resp2: resp2.into() }
        });
        self.accept(key, variants.collect());
    }

    /// Fills a key with an item of memcached, or with the absence of one.
    pub fn fill_item(&mut self, key: &[u8], item: Option<Item<'_>>) {
        self.accept(key, vec![Item::variant(item)]);
    }

    fn accept(&mut self, key: &[u8], variants: Vec<Variant>) {
        let slot = self.core.slot(hash_of(self.shared.seed, key));
        let Some(ticket) = slot.and_then(|slot| self.core.begin_fill(slot)) else { return };
        let filled = Filled::new(key, u64::MAX, variants).expect("few replies");
        self.core.accept(ticket, filled).expect("nothing has changed since");
    }

    /// Returns whether another connection would get a hit for an item.
    #[cfg(test)]
    pub fn would_hit(&mut self, key: &[u8]) -> bool {
        let hash = hash_of(self.shared.seed, key);
        let query = slots::Query { hash, key, db: 0, request: &[] };
        self.ways.slots.hit(&query, self.now, |_| ()).is_ok()
    }

    fn check(&self, len: usize) {
        let (to_client, to_server, owed, held) = match &self.session {
            Session::Redis(it) => (&it.to_client, &it.to_server, it.owed.len(), it.owed.held()),
            Session::Memcached(it) => (&it.to_client, &it.to_server, it.owed.len(), it.owed.held()),
        };
        let most = 2 * OUT_MAX + (1 << 20) + 4 * len;
        assert!(to_client.len() <= most && to_server.len() <= most);
        assert!(owed <= OWED_MAX + len && held <= most);
        let missed = self.totals.missed.iter().sum::<u64>();
        assert_eq!(self.totals.reads, self.totals.hits + missed);
        let ProxyTotals { commands, hits, forwarded, refused, .. } = self.totals;
        assert_eq!(commands, hits + forwarded + refused);
    }

    /// Ends the session and checks that each mark and each closing has ended.
    pub fn end(mut self) {
        let (session, mut turn) = self.turn();
        session.lost(&mut turn);
        let later = Instant::now() + Duration::from_secs(3600);
        for _ in 0..1 << 16 {
            self.ways.release_late(later);
            self.reopen();
            if self.ways.late_until().is_none() {
                break;
            }
        }
        assert!(self.core.is_open(), "a closing was lost");
        for key in 0..=u8::MAX {
            let key = [key];
            let hash = hash_of(self.shared.seed, &key);
            let slot = self.core.slot(hash);
            let evicted = slot.is_none().then(|| self.core.promote(hash, &key)).flatten();
            let slot = slot.or(evicted).expect("a slot");
            assert!(
                self.core.begin_fill(slot).is_some(),
                "{key:?}: a mark was lost or ended twice"
            );
            if evicted.is_some() {
                self.core.evict(slot);
            }
        }
    }
}

/// Takes all bytes of one side.
pub fn drain(out: &mut Out) -> Vec<u8> {
    let mut bytes = Vec::new();
    out.write(&mut bytes).expect("memory takes all");
    bytes
}

/// Returns whether all bytes of one are in the other, in this order.
fn is_within(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}

/// Runs sessions of both protocols under any bytes of both sides. Input: steps of a byte that says
/// the side and how many bytes, then these bytes.
///
/// # Panics
/// A bound or a promise of a session does not hold.
pub fn torture(data: &[u8]) {
    torture_one(Protocol::Redis, data);
    torture_one(Protocol::Memcached, data);
}

fn torture_one(protocol: Protocol, data: &[u8]) {
    let mut rig = Rig::new(protocol, Order::Key);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut rest = data;
    while let [step, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(step / 4)));
        rest = behind;
        match step % 4 {
            0 | 1 => {
                if rig.client(bytes) {
                    clients.extend_from_slice(bytes);
                }
            }
            2 => {
                if !rig.server(bytes) {
                    break;
                }
                servers.extend_from_slice(bytes);
            }
            _ if protocol == Protocol::Memcached => {
                let item = Item { words: b"0 1 2", is_base64: false, value: b"v\r\n" };
                KEYS.iter().for_each(|key| rig.fill_item(key, Some(item)));
            }
            _ => KEYS.iter().for_each(|key| rig.fill(key, |db| (db == 0).then(|| b"v".to_vec()))),
        }
        to_client.extend(drain(rig.session.for_client()));
        to_server.extend(drain(rig.session.for_server()));
        let own = rig.totals.hits + rig.totals.refused;
        if protocol == Protocol::Memcached {
            // No-ops from here, and their replies, are of no side.
            assert!(own > 0 || is_within(&to_client, &servers), "bytes that no side sent");
            continue;
        }
        assert!(is_within(&to_server, &clients), "bytes that the client did not send");
        assert!(is_within(&servers, &to_client), "bytes of the server were lost");
        assert!(own > 0 || to_client == servers, "bytes that the server did not send");
    }
    rig.end();
}
