//! A list of sessions for a whole cluster: all of them, or none.
//!
//! ```text
//!   list ─▶ Plan::new: every error ─▶ perform ─┬─▶ all is answered ─▶ what `replace` removes
//!           by line, beside all sessions        └─▶ one is refused ─▶ it is undone
//!           of the cluster
//! ```
//!
//! A cluster takes sessions one by one, each at its own owner: others see them appear so. A node
//! that dies in the middle leaves a part of the list; the same import again adds the rest. What an
//! import may have begun is undone when it fails: a session that was added is removed, one that was
//! changed gets back what it had. So an import changes no keys of a session: keys that are given up
//! rest, and could not be given back. Removals come last, when nothing can fail that matters.
//!
//! Bounds: `WINDOW` requests under way; `PATIENCE` without an answer that helps ends it. Each
//! request may be repeated: the owners take a repetition for what it is. Panics: none.

use super::{Asks, Seed};
use crate::session::{Key, Session};
use crate::sessions::{Addresses, Imported, Origin, Refusal, SessionError, refusals_within};
use hashbrown::{HashMap, HashSet};
use overbank_cluster::message::{Answer, Refusal as Cause, Request};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Requests under way: their answers wait for all nodes, some beats.
const WINDOW: usize = 4096;
/// Longest time in which no request is done.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// Longest wait for an answer: longer than the cluster keeps a request.
const ANSWER_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// The sessions of a cluster.
#[derive(Default)]
pub struct Before {
    sessions: HashMap<u64, (Session, Origin)>,
    owners: HashMap<Key, u64>,
}

impl Before {
    /// Adds one.
    pub fn add(&mut self, session: Session, origin: Origin) {
        self.owners.extend(session.keys().map(|key| (key, session.id)));
        self.sessions.insert(session.id, (session, origin));
    }
}

/// How a list is taken.
pub struct How<'a> {
    pub seed: Seed,
    pub addresses: &'a Addresses,
    /// Whether sessions of requests that the list does not have are removed.
    pub replace: bool,
    /// Sessions that the live nodes may have.
    pub max: usize,
}

/// What an import does.
#[derive(Debug, Default)]
pub struct Plan {
    /// Places in the list.
    added: Vec<usize>,
    /// The same, with what the sessions are now.
    changed: Vec<(usize, Session)>,
    removed: Vec<u64>,
    kept: usize,
}

impl Plan {
    /// Compares a list, which has the line of each session, with the cluster.
    ///
    /// # Errors
    /// Returns every error, by line.
    pub fn new(
        list: &[(usize, Session)],
        before: &Before,
        how: &How,
    ) -> Result<Plan, Vec<Refusal>> {
        let mut refusals = refusals_within(list, |session| {
            match before.sessions.get(&session.id) {
                Some((_, Origin::Cluster)) | None => {}
                Some((_, other)) => return Err(SessionError::Foreign(session.id, *other)),
            }
            how.seed.establish(how.addresses, session, &[], None)?;
            let taken = session.keys().find_map(|key| {
                let owner = *before.owners.get(&key).filter(|owner| **owner != session.id)?;
                Some(SessionError::Taken { key, owner, id: session.id })
            });
            taken.map_or(Ok(()), Err)
        });
        let mut plan = Plan::default();
        for (at, (line, session)) in list.iter().enumerate() {
            match before.sessions.get(&session.id) {
                None => plan.added.push(at),
                Some((known, _)) if known == session => plan.kept += 1,
                Some((known, _)) if known.keys().eq(session.keys()) => {
                    plan.changed.push((at, *known));
                }
                Some((known, Origin::Cluster)) => {
                    let what = format!(
                        "session {} would get another tunnel or address: an import to a cluster \
                         cannot take that back; change it by itself, or remove it first",
                        known.id
                    );
                    refusals.push(Refusal { line: *line, what });
                }
                Some(_) => {}
            }
        }
        // A session that is removed at the end is there until then.
        let sum = before.sessions.len() + plan.added.len();
        if refusals.is_empty() && sum > how.max {
            let line = list.last().map_or(0, |(line, _)| *line);
            let what = format!("{sum} sessions exceed the {} of all live nodes", how.max);
            refusals.push(Refusal { line, what });
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if how.replace {
            let wanted: HashSet<u64> = list.iter().map(|(_, session)| session.id).collect();
            let ours = before.sessions.iter().filter(|(_, (_, o))| *o == Origin::Cluster);
            plan.removed = ours.map(|(id, _)| *id).filter(|id| !wanted.contains(id)).collect();
        }
        Ok(plan)
    }

    /// Returns what the import would do.
    pub fn would(&self) -> Imported {
        Imported {
            added: self.added.len(),
            changed: self.changed.len(),
            removed: self.removed.len(),
            kept: self.kept,
        }
    }
}

/// Why an import was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    /// Sessions were refused, by line: nothing has changed.
    Refused {
        refusals: Vec<Refusal>,
        /// Whether the cluster could not do it now, whatever the list.
        unavailable: bool,
        /// Sessions of the list that could not be taken back.
        left: usize,
    },
    /// The list is there; this number of sessions that it does not have could not be removed.
    NotRemoved(usize),
}

/// Performs a plan.
///
/// # Errors
/// See [`Failed`].
pub fn perform(
    asks: &dyn Asks,
    list: &[(usize, Session)],
    plan: &Plan,
    how: &How,
) -> Result<Imported, Failed> {
    let adds = plan.added.len();
    let at = |nth: usize| match nth.checked_sub(adds) {
        None => plan.added[nth],
        Some(nth) => plan.changed[nth].0,
    };
    let remove = |id| Some(Request::Remove { session: how.seed.session(id) });
    // The plan has been made of valid sessions.
    let request = |nth: usize| match nth < adds {
        true => how.seed.establish(how.addresses, &list[at(nth)].1, &[], None).ok(),
        false => how.seed.update(how.addresses, &list[at(nth)].1, &[]).ok(),
    };
    let outcomes = all(asks, adds + plan.changed.len(), request, true);
    let refused = outcomes.iter().enumerate().filter_map(|(nth, outcome)| match outcome {
        Outcome::Refused(cause) => Some((nth, *cause)),
        Outcome::NotAsked | Outcome::Done => None,
    });
    let mut refused: Vec<(usize, Cause)> = refused.collect();
    if refused.is_empty() {
        let unasked = outcomes.iter().position(|outcome| *outcome == Outcome::NotAsked);
        refused.extend(unasked.map(|nth| (nth, Cause::Overload)));
    }
    if refused.is_empty() {
        let removed = all(asks, plan.removed.len(), |nth| remove(plan.removed[nth]), false);
        return match removed.iter().filter(|outcome| !outcome.is_gone()).count() {
            0 => Ok(plan.would()),
            stay => Err(Failed::NotRemoved(stay)),
        };
    }
    // What was refused for good is not of this import: another one may have the session.
    let begun = |nth: &usize| match outcomes[*nth] {
        Outcome::Done => true,
        Outcome::Refused(cause) => may_repeat(cause),
        Outcome::NotAsked => false,
    };
    let begun: Vec<usize> = (0..outcomes.len()).filter(begun).collect();
    let undo = |nth: usize| match begun[nth].checked_sub(adds) {
        None => remove(list[plan.added[begun[nth]]].1.id),
        Some(nth) => how.seed.update(how.addresses, &plan.changed[nth].1, &[]).ok(),
    };
    let undone = all(asks, begun.len(), undo, false);
    let left = undone.iter().filter(|outcome| !outcome.is_gone()).count();
    let unavailable = refused.iter().all(|(_, cause)| is_passing(*cause));
    let refusals = refused.into_iter().map(|(nth, cause)| {
        let (line, session) = list[at(nth)];
        Refusal { line, what: format!("session {}: {}", session.id, cause.help()) }
    });
    Err(Failed::Refused { refusals: refusals.collect(), unavailable, left })
}

/// Whether a refusal says nothing about the session.
fn is_passing(cause: Cause) -> bool {
    use Cause::{Moving, NoMember, NoOwner, NoRoom, Overload, TableFull, Timeout};
    matches!(cause, NoOwner | NoMember | NoRoom | Moving | Overload | TableFull | Timeout)
}

/// Whether a request that was refused so may be done a little later.
fn may_repeat(cause: Cause) -> bool {
    use Cause::{Moving, NoMember, NoOwner, Overload, Timeout};
    matches!(cause, NoOwner | NoMember | Moving | Overload | Timeout)
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    NotAsked,
    Done,
    /// With `Timeout` it may have been done.
    Refused(Cause),
}

impl Outcome {
    /// Whether what was to be undone or removed is.
    fn is_gone(self) -> bool {
        matches!(self, Outcome::Done | Outcome::Refused(Cause::Unknown))
    }
}

/// Performs many requests, many at a time; `stops` at the first refusal that repeating does not
/// mend. A request that is `None` is done.
fn all(
    asks: &dyn Asks,
    count: usize,
    request: impl Fn(usize) -> Option<Request>,
    stops: bool,
) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::NotAsked; count];
    let (tell, answers) = channel::<(usize, Answer)>();
    let (mut next, mut again, mut under_way) = (0, Vec::<usize>::new(), 0);
    let mut stopped = false;
    let mut last_done = Instant::now();
    loop {
        let patient = last_done.elapsed() < PATIENCE;
        while !stopped && patient && under_way < WINDOW && (next < count || !again.is_empty()) {
            let nth = again.pop().unwrap_or(next);
            let Some(asked) = request(nth) else {
                outcomes[nth] = Outcome::Done;
                next = next.max(nth + 1);
                continue;
            };
            let tell = tell.clone();
            // It is received for as long as one is awaited.
            if !asks.ask_with(asked, Box::new(move |answer| drop(tell.send((nth, answer))))) {
                again.extend((nth < next).then_some(nth));
                break;
            }
            next = next.max(nth + 1);
            under_way += 1;
            // Until there is an answer, it may have been done.
            outcomes[nth] = Outcome::Refused(Cause::Timeout);
        }
        if under_way == 0 {
            let is_over = next >= count && again.is_empty();
            if is_over || stopped || !patient {
                break;
            }
            sleep(PAUSE);
            continue;
        }
        match answers.recv_timeout(ANSWER_MAX) {
            Ok((nth, answer)) => {
                under_way -= 1;
                let Some(outcome) = outcomes.get_mut(nth) else { continue };
                match answer {
                    Ok(_) => {
                        *outcome = Outcome::Done;
                        last_done = Instant::now();
                    }
                    Err(cause) if may_repeat(cause) => {
                        *outcome = Outcome::Refused(cause);
                        again.push(nth);
                        if again.len() == 1 {
                            sleep(PAUSE);
                        }
                    }
                    Err(cause) => {
                        *outcome = Outcome::Refused(cause);
                        stopped |= stops;
                    }
                }
            }
            // No answers at all: the node has ended.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    outcomes
}

#[cfg(test)]
mod tests;
