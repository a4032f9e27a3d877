//! Where a speaker keeps sessions: the gateway itself, or the cluster that it is a node of.
//!
//! A store answers at once, or later: then the speaker goes on with other requests, and
//! [`Speaker::done`](crate::Speaker::done) takes the answer.

use crate::message::Refusal;
use crate::speaker::Kept;
use overbank_cluster::message::Refusal as ClusterRefusal;
use overbank_gateway::session::{Key, Session};
use overbank_gateway::sessions::{Addresses, Origin, SessionError, Sessions};
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::failed_rule_id::FailedRuleId;

/// Sessions that one look at thresholds counts.
const LOOKS_MAX: usize = 16 * 1024;

/// What a speaker asks of its store.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Adds a session.
    Add(&'a Session, &'a Kept),
    /// Changes a session, or what is kept with it.
    Change(&'a Session, &'a Kept),
    /// Asks for the counts of a session.
    Count(u64),
    /// Removes a session; its last counts are asked for if `counts`.
    Remove { session: &'a Session, kept: &'a Kept, counts: bool },
    /// Leaves associations to later speakers.
    Share(&'a [u8]),
}

/// Why a store has not done something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the cluster: {}", .0.help())]
    Cluster(ClusterRefusal),
    #[error("too many changes of the cluster wait")]
    Full,
    /// A deletion has begun: the gates may be closed, or the session may be gone. Its last counts,
    /// if they were read.
    #[error("the deletion goes on: {}", .0.help())]
    Unfinished(ClusterRefusal, Option<Counts>),
}

impl Failure {
    /// Whether another number may do.
    pub(crate) const fn is_taken(&self) -> bool {
        matches!(
            self,
            Failure::Session(SessionError::Resting { .. })
                | Failure::Cluster(ClusterRefusal::KeyInUse | ClusterRefusal::KeyResting)
        )
    }

    /// Whether there is no such session.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(
            self,
            Failure::Session(SessionError::Unknown(_)) | Failure::Cluster(ClusterRefusal::Unknown)
        )
    }

    /// Returns the refusal of a request, whose uplink PDR this is.
    pub(crate) fn because(&self, uplink: Option<u16>) -> Refusal {
        use ClusterRefusal as C;
        use SessionError as S;
        let cause = match self {
            Failure::Session(S::Full(_) | S::NoRoom(_))
            | Failure::Cluster(C::TableFull | C::NoRoom) => CauseValue::NoResourcesAvailable,
            Failure::Session(S::Busy) | Failure::Full => CauseValue::PfcpEntityInCongestion,
            Failure::Cluster(C::Overload | C::Moving) => CauseValue::PfcpEntityInCongestion,
            Failure::Session(S::Unknown(_)) | Failure::Cluster(C::Unknown) => {
                CauseValue::SessionContextNotFound
            }
            Failure::Cluster(C::NoOwner | C::NoMember | C::Timeout) | Failure::Unfinished(..) => {
                CauseValue::SystemFailure
            }
            _ => CauseValue::RuleCreationModificationFailure,
        };
        let refusal = Refusal::new(cause, self.to_string());
        match uplink {
            Some(uplink) if cause == CauseValue::RuleCreationModificationFailure => {
                refusal.of(FailedRuleId::pdr(uplink))
            }
            _ => refusal,
        }
    }
}

/// What became of something that was asked: counts, if it was for them.
pub type Done = Result<Counts, Failure>;

/// See the module.
pub trait Store {
    /// Returns the addresses that sessions may have.
    fn addresses(&self) -> &Addresses;

    /// Returns the session that has a key, as far as is known here.
    fn owner_of(&self, key: Key) -> Option<u64>;

    /// Whether a session has this number, as far as is known here.
    fn has(&self, id: u64) -> bool;

    /// Whether later speakers take over: then what they need is kept with sessions.
    fn outlives(&self) -> bool;

    /// Returns how many sessions may be counted now to look at thresholds.
    fn looks(&self) -> usize;

    /// Begins something. `None`: it goes on under this number.
    fn begin(&mut self, ticket: u64, ask: Ask<'_>) -> Option<Done>;
}

/// The sessions of a gateway alone: done at once.
pub struct Alone<'a> {
    /// The sessions.
    pub sessions: &'a mut Sessions,
    /// The gateway's time.
    pub now_ms: u64,
}

impl Store for Alone<'_> {
    fn addresses(&self) -> &Addresses {
        self.sessions.addresses()
    }

    fn owner_of(&self, key: Key) -> Option<u64> {
        self.sessions.owner_of(key)
    }

    fn has(&self, id: u64) -> bool {
        self.sessions.get(id).is_some()
    }

    fn outlives(&self) -> bool {
        false
    }

    fn looks(&self) -> usize {
        LOOKS_MAX
    }

    fn begin(&mut self, _: u64, ask: Ask<'_>) -> Option<Done> {
        let now_ms = self.now_ms;
        let counts = |listed: Option<Counts>| Ok(listed.unwrap_or_default());
        let done = match ask {
            Ask::Add(session, _) => self.sessions.add(*session, Origin::Pfcp, now_ms),
            Ask::Change(session, _) => match self.sessions.get(session.id) {
                Some(listed) if listed.session == *session => Ok(()),
                _ => self.sessions.change(*session, Origin::Pfcp, now_ms),
            },
            Ask::Count(id) => return Some(counts(self.sessions.get(id).map(|of| of.counts))),
            Ask::Remove { session, .. } => {
                // It may be gone by hand.
                return Some(counts(
                    self.sessions.remove(session.id, now_ms).ok().map(|of| of.counts),
                ));
            }
            Ask::Share(_) => Ok(()),
        };
        Some(done.map(|()| Counts::default()).map_err(Failure::from))
    }
}
