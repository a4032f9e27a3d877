//! The sessions of a cluster as a speaker's store: what it asks becomes requests of the cluster.
//!
//! ```text
//!   Speaker ─ Ask ─▶ Clustered ─ send ─▶ (number, Request) ─▶ cluster
//!      ▲                 ▲                                       │
//!      └─ Done ── answered ◀──────── (number, Answer) ◀──────────┘
//! ```
//!
//! Pure, as the speaker. A request that the cluster could not begin (a partition changes hands, a
//! session is on the move) is asked again for a while. A deletion that reports usage closes the
//! session's gates first, then reads its counts, then removes it: no packet is missing in them. One
//! that may have begun and is not done is [`Failure::Unfinished`]: the speaker goes on with it. A
//! new session whose fate is not known is removed again.
//!
//! Bounds: [`UNDER_WAY_MAX`] requests at a time; as many more wait as there are sessions, and
//! [`WAITING_MAX`].

use crate::store::{Ask, Done, Failure, Store};
use hashbrown::HashMap;
use overbank_cluster::SessionId;
use overbank_cluster::etcd::Info;
use overbank_cluster::message::{Answer, Answered, Refusal, Request};
use overbank_gateway::cluster::from_travelled;
use overbank_gateway::fabric::Seed;
use overbank_gateway::session::{Gate, Key, Session};
use overbank_gateway::sessions::{Addresses, REST_MS};
use overbank_gateway::slab::Counts;
use std::collections::VecDeque;

/// Requests under way.
const UNDER_WAY_MAX: usize = 1024;
/// New sessions and changes that wait.
const WAITING_MAX: usize = 8192;
/// Counts that are asked for at a time, to look at thresholds.
const LOOKS_MAX: usize = 256;
/// Time for which something is asked again, and the pause between.
const PATIENCE_MS: u64 = 8_000;
const AGAIN_MS: u64 = 50;
/// Pause between tries to remove what may be there.
const UNDO_MS: u64 = 1_000;

/// How far something has got.
#[derive(Clone, Copy, Debug)]
enum Op {
    Add(Session),
    Change(Session),
    Count,
    /// The gates of a session close before its last counts are read.
    Close(SessionId),
    Last(SessionId),
    /// With the counts that were read, if they were.
    Remove(Option<Counts>),
    /// A session that may have been added must go.
    Undo,
}

#[derive(Debug)]
struct Doing {
    ticket: u64,
    /// Of the session.
    id: u64,
    op: Op,
    request: Request,
    until_ms: u64,
    /// Not before.
    at_ms: u64,
}

/// See the module.
pub struct Clustered {
    seed: Seed,
    addresses: Addresses,
    now_ms: u64,
    number: u64,
    under_way: HashMap<u64, Doing, foldhash::fast::RandomState>,
    ready: VecDeque<Doing>,
    later: Vec<Doing>,
    counting: usize,
    /// Sessions, and the keys of these and of those that rest.
    sessions: HashMap<u64, Session, foldhash::fast::RandomState>,
    keys: HashMap<Key, u64, foldhash::fast::RandomState>,
    resting: VecDeque<(u64, Key)>,
    /// What is to be left to later speakers, whether it was sent, and the tickets that wait for it.
    share: Option<Info>,
    is_sent: bool,
    sharing: Vec<u64>,
}

impl Clustered {
    /// Returns a store that knows no sessions yet.
    pub fn new(seed: Seed, addresses: Addresses) -> Clustered {
        Clustered {
            seed,
            addresses,
            now_ms: 0,
            number: 0,
            under_way: HashMap::default(),
            ready: VecDeque::new(),
            later: Vec::new(),
            counting: 0,
            sessions: HashMap::default(),
            keys: HashMap::default(),
            resting: VecDeque::new(),
            share: None,
            is_sent: false,
            sharing: Vec::new(),
        }
    }

    /// Sets the time. It never goes back.
    pub fn at(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        while let Some(&(until_ms, key)) = self.resting.front()
            && until_ms <= now_ms
        {
            self.resting.pop_front();
            let owner = self.keys.get(&key).and_then(|id| self.sessions.get(id));
            if !owner.is_some_and(|session| session.keys().any(|its| its == key)) {
                self.keys.remove(&key);
            }
        }
        let due = self.later.extract_if(.., |doing| doing.at_ms <= now_ms);
        self.ready.extend(due);
    }

    /// Takes note of a session of the cluster.
    pub fn learn(&mut self, session: Session) {
        self.keys.extend(session.keys().map(|key| (key, session.id)));
        let before = self.sessions.insert(session.id, session);
        let given_up = before.into_iter().flat_map(|before| before.keys());
        let given_up = given_up.filter(|key| !session.keys().any(|its| its == *key));
        self.resting.extend(given_up.map(|key| (self.now_ms + REST_MS, key)));
    }

    fn unlearn(&mut self, id: u64) {
        let session = self.sessions.remove(&id);
        let keys = session.into_iter().flat_map(|session| session.keys());
        self.resting.extend(keys.map(|key| (self.now_ms + REST_MS, key)));
    }

    /// Returns a request that is to be asked of the cluster now, with its number.
    pub fn send(&mut self) -> Option<(u64, Request)> {
        if self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        let doing = self.ready.pop_front()?;
        self.number += 1;
        let request = doing.request.clone();
        self.under_way.insert(self.number, doing);
        Some((self.number, request))
    }

    /// Takes the answer of the cluster. Returns what that means for the speaker, if it is the end.
    pub fn answered(&mut self, number: u64, answer: Answer) -> Option<(u64, Done)> {
        let mut doing = self.under_way.remove(&number)?;
        let ticket = doing.ticket;
        let waits = matches!(
            answer,
            Err(Refusal::NoOwner | Refusal::NoMember | Refusal::Moving | Refusal::Overload)
        );
        if waits && self.now_ms < doing.until_ms {
            doing.at_ms = self.now_ms + AGAIN_MS;
            self.later.push(doing);
            return None;
        }
        if matches!(doing.op, Op::Count) {
            self.counting -= 1;
        }
        let done = match (doing.op, answer) {
            (Op::Add(session) | Op::Change(session), Ok(_)) => {
                self.learn(session);
                Ok(Counts::default())
            }
            (Op::Add(_), Err(Refusal::Timeout)) => {
                self.undo(doing.id);
                Err(Failure::Cluster(Refusal::Timeout))
            }
            (Op::Count, Ok(Answered::Found(found))) => Ok(from_travelled(found.counts)),
            (Op::Close(session), Ok(_)) => {
                doing.op = Op::Last(session);
                doing.request = Request::Read { session };
                self.ready.push_front(doing);
                return None;
            }
            (Op::Last(session), Ok(Answered::Found(found))) => {
                doing.op = Op::Remove(Some(from_travelled(found.counts)));
                doing.request = Request::Remove { session };
                self.ready.push_front(doing);
                return None;
            }
            (Op::Remove(counts), Ok(_) | Err(Refusal::Unknown)) => {
                self.unlearn(doing.id);
                Ok(counts.unwrap_or_default())
            }
            (Op::Undo, Ok(_) | Err(Refusal::Unknown)) => return None,
            (Op::Undo, Err(_)) => {
                self.undo(doing.id);
                return None;
            }
            (_, Err(Refusal::Unknown)) => {
                self.unlearn(doing.id);
                Err(Failure::Cluster(Refusal::Unknown))
            }
            // Only a timeout leaves open whether something has begun.
            (Op::Close(_) | Op::Remove(None), Err(refusal @ Refusal::Timeout))
            | (Op::Last(_), Err(refusal)) => Err(Failure::Unfinished(refusal, None)),
            (Op::Remove(counts @ Some(_)), Err(refusal)) => {
                Err(Failure::Unfinished(refusal, counts))
            }
            (_, Err(refusal)) => Err(Failure::Cluster(refusal)),
            // An answer to something else.
            (Op::Count, Ok(_)) => Err(Failure::Cluster(Refusal::Timeout)),
            (Op::Last(_), Ok(_)) => Err(Failure::Unfinished(Refusal::Timeout, None)),
        };
        Some((ticket, done))
    }

    /// Has a session removed, if it is there.
    fn undo(&mut self, id: u64) {
        let request = Request::Remove { session: self.seed.session(id) };
        let at_ms = self.now_ms + UNDO_MS;
        self.later.push(Doing { ticket: 0, id, op: Op::Undo, request, until_ms: 0, at_ms });
    }

    /// Returns what is to be left to later speakers, once for each time that it changes.
    pub fn to_share(&mut self) -> Option<Info> {
        let share = self.share.as_ref().filter(|_| !self.is_sent)?;
        self.is_sent = true;
        Some(share.clone())
    }

    /// It could not be sent.
    pub fn share_again(&mut self) {
        self.is_sent = false;
    }

    /// Takes what is there for later speakers; returns what waited for it.
    pub fn shared(&mut self, there: Option<&Info>) -> Vec<u64> {
        if self.share.is_none() || self.share.as_ref() != there {
            return Vec::new();
        }
        self.share = None;
        std::mem::take(&mut self.sharing)
    }

    fn begin_op(&mut self, ticket: u64, id: u64, op: Op, request: Request) -> Option<Done> {
        let (until_ms, at_ms) = (self.now_ms + PATIENCE_MS, self.now_ms);
        self.ready.push_back(Doing { ticket, id, op, request, until_ms, at_ms });
        None
    }

    fn is_full(&self) -> bool {
        self.ready.len() + self.later.len() >= WAITING_MAX
    }
}

impl Store for Clustered {
    fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    fn owner_of(&self, key: Key) -> Option<u64> {
        self.keys.get(&key).copied()
    }

    fn has(&self, id: u64) -> bool {
        self.sessions.contains_key(&id)
    }

    fn outlives(&self) -> bool {
        true
    }

    fn looks(&self) -> usize {
        LOOKS_MAX.saturating_sub(self.counting)
    }

    fn begin(&mut self, ticket: u64, ask: Ask<'_>) -> Option<Done> {
        let (id, op, request) = match ask {
            Ask::Add(..) | Ask::Change(..) if self.is_full() => return Some(Err(Failure::Full)),
            Ask::Add(session, kept) => {
                let made = self.seed.establish(&self.addresses, session, &kept.bytes(), None);
                (session.id, Op::Add(*session), made)
            }
            Ask::Change(session, kept) => {
                let made = self.seed.update(&self.addresses, session, &kept.bytes());
                (session.id, Op::Change(*session), made)
            }
            Ask::Count(id) => {
                self.counting += 1;
                (id, Op::Count, Ok(Request::Read { session: self.seed.session(id) }))
            }
            Ask::Remove { session, kept, counts } => {
                let name = self.seed.session(session.id);
                if counts {
                    let closed = Session { gate: Gate::Closed, ..*session };
                    let made = self.seed.update(&self.addresses, &closed, &kept.bytes());
                    (session.id, Op::Close(name), made)
                } else {
                    let made = Ok(Request::Remove { session: name });
                    (session.id, Op::Remove(None), made)
                }
            }
            Ask::Share(shared) => {
                (self.share, self.is_sent) = (Some(shared.into()), false);
                self.sharing.push(ticket);
                return None;
            }
        };
        match request {
            Ok(request) => self.begin_op(ticket, id, op, request),
            Err(error) => Some(Err(error.into())),
        }
    }
}
