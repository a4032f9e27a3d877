//! Steps: what a speaker has asked its store for, and how it goes on with the answer.

use super::sessions::{Counting, Draft, Plan};
use super::{Asked, Association, Kept, Out, Speaker};
use crate::message::Refusal;
use crate::store::{Ask, Done, Failure, Store};
use crate::usage::Trigger;
use overbank_cluster::message::Refusal as ClusterRefusal;
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::report_type::ReportType;
use rs_pfcp::ie::{Ie, IeType};

/// Tries of numbers that turn out to be in use: at once, and with answers that take time.
const TRIES: [u32; 2] = [256, 16];

const UNKNOWN: Failure = Failure::Cluster(ClusterRefusal::Unknown);

/// A step.
pub(super) enum Step {
    /// A new session.
    Add(Box<Draft>),
    /// Counts that a change needs.
    Count(Box<Counting>),
    /// A change.
    Change(Box<Draft>),
    /// A deletion that was asked for.
    Delete { id: u64, counts: bool },
    /// A session that its control plane does not know; of a [`Removal`].
    Forget { id: u64, removal: Option<u64> },
    /// A look at thresholds.
    Look(u64),
    /// A report, once what it counts from is kept.
    Report { id: u64, kept: Box<Kept>, ies: Vec<Ie> },
    /// Associations, with the elements of the answer.
    Share(Vec<u8>, Vec<Ie>),
}

impl Step {
    /// Returns the session that it is about.
    fn session(&self) -> Option<u64> {
        match self {
            Step::Add(draft) | Step::Change(draft) => Some(draft.session.id),
            Step::Count(counting) => Some(counting.id),
            Step::Delete { id, .. }
            | Step::Forget { id, .. }
            | Step::Look(id)
            | Step::Report { id, .. } => Some(*id),
            Step::Share(..) => None,
        }
    }
}

/// The removal of all sessions of a node.
pub(super) struct Removal {
    asked: Option<Asked>,
    node: Vec<u8>,
    /// The association that the node has when it begins.
    association: Option<Association>,
    then: Then,
    left: usize,
    failed: Option<Refusal>,
}

/// What follows when a node's sessions are gone.
pub(super) enum Then {
    /// Its association is over.
    Release,
    /// It has an association; its sessions go if it has forgotten them.
    SetUp { association: Association, forgets: bool },
}

impl Speaker {
    /// Asks the store, and goes on with what it answers at once.
    pub(super) fn go(
        &mut self,
        asked: Option<Asked>,
        step: Step,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        self.ticket += 1;
        let ticket = self.ticket;
        let ending;
        let ask = match &step {
            Step::Add(draft) => Ask::Add(&draft.session, &draft.kept),
            Step::Change(draft) => Ask::Change(&draft.session, &draft.kept),
            Step::Count(counting) => Ask::Count(counting.id),
            Step::Look(id) => Ask::Count(*id),
            Step::Delete { id, .. } | Step::Forget { id, .. } | Step::Report { id, .. } => {
                // It may have gone while another step for it was under way.
                let Some(record) = self.sessions.get(id) else {
                    return self.proceed(asked, step, Err(UNKNOWN), now_ms, store, out);
                };
                let (session, kept) = (&record.session, &record.kept);
                match &step {
                    Step::Report { kept, .. } => Ask::Change(session, kept),
                    Step::Delete { counts, .. } => {
                        ending = Kept { ending: true, ..kept.clone() };
                        Ask::Remove { session, kept: &ending, counts: *counts }
                    }
                    _ => Ask::Remove { session, kept, counts: false },
                }
            }
            Step::Share(shared, _) => Ask::Share(shared),
        };
        if let Some(done) = store.begin(ticket, ask) {
            return self.proceed(asked, step, done, now_ms, store, out);
        }
        self.busy.extend(step.session());
        self.in_hand.extend(asked.as_ref().map(|asked| asked.key));
        self.steps.insert(ticket, (asked, step));
    }

    /// Takes an answer of the store that was not there at once.
    pub fn done(
        &mut self,
        ticket: u64,
        done: Done,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let Some((asked, step)) = self.steps.remove(&ticket) else { return };
        let session = step.session();
        if let Some(id) = session {
            self.busy.remove(&id);
        }
        self.proceed(asked, step, done, now_ms, store, out);
        // What has waited for it.
        while let Some(id) = session.filter(|id| !self.busy.contains(id))
            && let Some(at) = self.waiting.iter().position(|waiting| waiting.session == id)
            && let Some(waiting) = self.waiting.remove(at)
        {
            self.receive(&waiting.bytes, waiting.from, now_ms, store, out);
        }
    }

    fn proceed(
        &mut self,
        asked: Option<Asked>,
        step: Step,
        done: Done,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let next = match (step, done) {
            (Step::Add(draft), Ok(_)) => Some((asked, self.added(*draft, now_ms, store, out))),
            (Step::Change(draft), Ok(_)) => Some((asked, Ok(self.changed(*draft, out)))),
            (Step::Add(draft), Err(failure)) if self.may_retry(&draft, &failure, store) => {
                return self.again(draft.plan, asked, Step::Add, now_ms, store, out);
            }
            (Step::Change(draft), Err(failure)) if self.may_retry(&draft, &failure, store) => {
                return self.again(draft.plan, asked, Step::Change, now_ms, store, out);
            }
            (Step::Add(draft) | Step::Change(draft), Err(failure)) => {
                Some((asked, Err(failure.because(draft.plan.wanted.uplink().ok()))))
            }
            (Step::Count(counting), Ok(counts)) => {
                return self.counted(*counting, counts, asked, now_ms, store, out);
            }
            (Step::Count(_), Err(failure)) => Some((asked, Err(failure.because(None)))),
            (Step::Delete { id, .. }, Ok(counts)) => {
                let reports = self.ended(id, Some(counts), asked.is_some());
                Some((asked, Ok(reports)))
            }
            (Step::Delete { id, .. }, Err(failure)) if failure.is_unknown() => {
                let reports = self.ended(id, None, asked.is_some());
                Some((asked, Ok(reports)))
            }
            (Step::Delete { id, .. }, Err(failure)) => {
                Some((asked, Err(self.not_deleted(id, &failure, now_ms))))
            }
            (Step::Forget { id, removal }, done) => {
                let failed = done.err().filter(|failure| !failure.is_unknown());
                if failed.is_none() {
                    self.forgotten(id);
                }
                let failed = failed.map(|failure| failure.because(None));
                return self.removed(removal, failed, now_ms, store, out);
            }
            (Step::Look(id), Ok(counts)) => return self.looked(id, counts, now_ms, store, out),
            (Step::Report { id, kept, ies }, Ok(_)) => {
                if let Some(record) = self.sessions.get_mut(&id) {
                    record.kept = *kept;
                    self.send_report(id, &ies, now_ms, out);
                }
                None
            }
            (Step::Look(_) | Step::Report { .. }, Err(_)) => None,
            (Step::Share(_, ies), Ok(_)) => Some((asked, Ok(ies))),
            (Step::Share(..), Err(failure)) => Some((asked, Err(failure.because(None)))),
        };
        if let Some((Some(asked), answer)) = next {
            self.reply(asked, answer, now_ms, out);
        }
    }

    /// Whether other numbers may do: some were ours to choose, and turned out to be in use.
    fn may_retry(&self, draft: &Draft, failure: &Failure, store: &dyn Store) -> bool {
        let tries = TRIES[usize::from(store.outlives())];
        failure.is_taken() && draft.plan.wanted.leaves_to_choose() && draft.plan.tries < tries
    }

    /// Chooses other numbers.
    pub(super) fn again(
        &mut self,
        plan: Plan,
        asked: Option<Asked>,
        step: fn(Box<Draft>) -> Step,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let drafted = self.draft(plan, asked.as_ref(), store);
        match (drafted, asked) {
            (Ok(draft), asked) => self.go(asked, step(Box::new(draft)), now_ms, store, out),
            (Err(refusal), Some(asked)) => self.reply(asked, Err(refusal), now_ms, out),
            (Err(_), None) => {}
        }
    }

    /// Removes the sessions of a node, and does what follows.
    pub(super) fn forget(
        &mut self,
        asked: Option<Asked>,
        node: &[u8],
        then: Then,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let forgets = !matches!(then, Then::SetUp { forgets: false, .. });
        let of_node = self.sessions.iter().filter(|(_, record)| record.kept.node == node);
        let ids: Vec<u64> = of_node.map(|(id, _)| *id).filter(|_| forgets).collect();
        self.in_hand.extend(asked.as_ref().map(|asked| asked.key));
        // One more than there are: the last one is counted below.
        let (node, left) = (node.to_vec(), ids.len() + 1);
        let association = self.associations.get(&node).cloned();
        self.ticket += 1;
        let number = self.ticket;
        self.removals
            .insert(number, Removal { asked, node, association, then, left, failed: None });
        for id in ids {
            self.go(None, Step::Forget { id, removal: Some(number) }, now_ms, store, out);
        }
        self.removed(Some(number), None, now_ms, store, out);
    }

    /// A session of a removal is gone, or is not.
    fn removed(
        &mut self,
        removal: Option<u64>,
        failed: Option<Refusal>,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let Some(number) = removal else { return };
        let Some(removal) = self.removals.get_mut(&number) else { return };
        removal.left -= 1;
        removal.failed = removal.failed.take().or(failed);
        if removal.left > 0 {
            return;
        }
        let Some(Removal { asked, node, association: before, then, failed, .. }) =
            self.removals.remove(&number)
        else {
            return;
        };
        if let Some(refusal) = failed {
            // It asks again.
            if let Some(asked) = asked {
                self.reply(asked, Err(refusal), now_ms, out);
            }
            return;
        }
        let ies = match then {
            Then::Release => {
                // It may have been set up anew meanwhile.
                if self.associations.get(&node) == before.as_ref() {
                    self.associations.remove(&node);
                }
                Vec::new()
            }
            Then::SetUp { association, .. } => {
                self.associations.insert(node, association);
                self.capabilities()
            }
        };
        self.go(asked, Step::Share(self.shared(), ies), now_ms, store, out);
    }

    /// Reports of a session whose thresholds are reached.
    fn looked(
        &mut self,
        id: u64,
        counts: Counts,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let Some(record) = self.sessions.get(&id) else { return };
        if !record.kept.rules.urrs.values().any(|urr| urr.is_due(counts)) {
            return;
        }
        let mut kept = record.kept.clone();
        let kind = IeType::UsageReportWithinSessionReportRequest;
        let due = kept.rules.urrs.iter_mut().filter(|(_, urr)| urr.is_due(counts));
        let reports = due.map(|(id, urr)| urr.report(*id, kind, Trigger::Volume, counts));
        let mut ies = vec![ReportType::usage_report().to_ie()];
        ies.extend(reports);
        self.go(None, Step::Report { id, kept: Box::new(kept), ies }, now_ms, store, out);
    }
}
