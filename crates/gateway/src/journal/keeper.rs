//! Writes requests to the journal: one frame, and one fsync, for all that wait.
//!
//! ```text
//!   requests ─ queue ─▶ plan: each is checked, and says what it will change ┐ lock of the
//!                       append: one frame, fsync                            │ control side held
//!                       apply                                               ┘ only for plan, apply
//!            ◀─ answers
//! ```
//!
//! Two requests about the same session are never in one frame: the second is checked against what
//! the first has done. What fails after it was written (a session of PFCP took its key meanwhile, a
//! worker is stuck) is written again as it is, and refused.
//!
//! One thread. It holds no lock while it writes: packets, PFCP and status go on.

#[cfg(test)]
mod tests;

use super::frame::{bytes_of, put_rest, put_session};
use super::{Edit, Journal, JournalError, Rest, unix_ms};
use crate::control::GatewayControl;
use crate::http::PAGE_MAX;
use crate::sessions::{Origin, Page};
use hashbrown::HashSet;
use overbank_runtime::Handle;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Requests that wait; more wait for these.
const WAITING_MAX: usize = 1024;
/// Resting keys of a frame.
const RESTS_A_FRAME: usize = 1 << 16;

/// Takes the edits of a plan.
pub type Edits<'a> = &'a mut dyn FnMut(Edit);

/// A request that waits for the journal.
trait Job: Send {
    /// Checks it, and returns what it changes; `None`: it is refused.
    fn plan(&mut self, control: &mut GatewayControl) -> Option<Vec<Edit>>;
    /// Does it; returns whether it was done.
    fn apply(&mut self, control: &mut GatewayControl) -> bool;
    fn fail(&mut self, error: &JournalError);
    fn answer(self: Box<Self>);
}

struct Request<P, A, T, E> {
    plan: P,
    apply: Option<A>,
    done: Option<Result<T, E>>,
    reply: SyncSender<Result<T, E>>,
}

impl<P, A, T, E> Job for Request<P, A, T, E>
where
    P: FnMut(&mut GatewayControl, Edits<'_>) -> Result<(), E> + Send,
    A: FnOnce(&mut GatewayControl) -> Result<T, E> + Send,
    T: Send,
    E: From<JournalError> + Send,
{
    fn plan(&mut self, control: &mut GatewayControl) -> Option<Vec<Edit>> {
        let mut edits = Vec::new();
        match (self.plan)(control, &mut |edit| edits.push(edit)) {
            Ok(()) => Some(edits),
            Err(error) => {
                self.done = Some(Err(error));
                None
            }
        }
    }

    fn apply(&mut self, control: &mut GatewayControl) -> bool {
        self.done = self.apply.take().map(|apply| apply(control));
        matches!(self.done, Some(Ok(_)))
    }

    fn fail(&mut self, error: &JournalError) {
        self.done = Some(Err(error.clone().into()));
    }

    fn answer(self: Box<Self>) {
        let done = self.done.unwrap_or_else(|| Err(JournalError::Ended.into()));
        // The client may be gone; the change stands.
        let _ = self.reply.send(done);
    }
}

/// Access to the journal's thread; cheap to clone. The thread ends with the last of them.
#[derive(Clone)]
pub struct Keeper(SyncSender<Box<dyn Job>>);

impl Keeper {
    /// Starts the thread that writes a journal.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(journal: Journal, handle: Handle<GatewayControl>) -> io::Result<Keeper> {
        let (send, receive) = sync_channel(WAITING_MAX);
        let writer = Writer { journal, handle, waiting: VecDeque::new(), failing: false };
        thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run(&receive))?;
        Ok(Keeper(send))
    }

    /// Plans a change, writes it to the disk, and applies it; waits until that is done. `plan` may
    /// be asked again before it is applied.
    ///
    /// # Errors
    /// It was refused, or could not be written. Nothing has changed then.
    pub fn commit<T: Send + 'static, E: From<JournalError> + Send + 'static>(
        &self,
        plan: impl FnMut(&mut GatewayControl, Edits<'_>) -> Result<(), E> + Send + 'static,
        apply: impl FnOnce(&mut GatewayControl) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let (reply, answer) = sync_channel(1);
        let request = Request { plan, apply: Some(apply), done: None, reply };
        let ended = |_| E::from(JournalError::Ended);
        self.0.send(Box::new(request)).map_err(|_| E::from(JournalError::Ended))?;
        answer.recv().map_err(ended)?
    }
}

struct Writer {
    journal: Journal,
    handle: Handle<GatewayControl>,
    waiting: VecDeque<Box<dyn Job>>,
    /// Whether the last change could not be written.
    failing: bool,
}

impl Writer {
    fn run(mut self, receive: &Receiver<Box<dyn Job>>) {
        while let Ok(job) = receive.recv() {
            self.waiting.push_back(job);
            self.waiting.extend(receive.try_iter().take(WAITING_MAX));
            while !self.waiting.is_empty() {
                self.serve();
            }
            if self.journal.is_suspect() || self.journal.is_large() {
                let rewritten = self.rewrite();
                self.note(&rewritten);
            }
        }
    }

    /// Logs the first of several errors, and their end.
    fn note(&mut self, done: &Result<(), JournalError>) {
        match done {
            Err(error) if !self.failing => tracing::error!(%error, "the journal is not written"),
            Ok(()) if self.failing => tracing::info!("the journal is written again"),
            _ => {}
        }
        self.failing = done.is_err();
    }

    /// Serves waiting requests, as many as one frame may have.
    fn serve(&mut self) {
        let (mut jobs, edits) = self.plan();
        if jobs.is_empty() {
            return;
        }
        let written = self.write(&edits);
        self.note(&written);
        if let Err(error) = written {
            for mut job in jobs {
                job.fail(&error);
                job.answer();
            }
            return;
        }
        let undone = self.apply(&mut jobs, &edits);
        if !undone.is_empty() && self.journal.append(&undone, unix_ms()).is_err() {
            // Written anew, the file has what is there.
            self.journal.distrust();
        }
        jobs.into_iter().for_each(Job::answer);
    }

    /// Checks waiting requests up to the first about a session of another; returns those to be
    /// done, and their edits.
    fn plan(&mut self) -> (Vec<Box<dyn Job>>, Vec<Edit>) {
        let (mut jobs, mut edits) = (Vec::new(), Vec::new());
        let mut ids = HashSet::new();
        let mut control = self.handle.lock();
        while let Some(mut job) = self.waiting.pop_front() {
            let Some(planned) = job.plan(&mut control) else {
                job.answer();
                continue;
            };
            if planned.iter().any(|edit| ids.contains(&edit.id)) {
                self.waiting.push_front(job);
                break;
            }
            ids.extend(planned.iter().map(|edit| edit.id));
            edits.extend(planned);
            jobs.push(job);
        }
        (jobs, edits)
    }

    fn write(&mut self, edits: &[Edit]) -> Result<(), JournalError> {
        if self.journal.is_suspect() {
            self.rewrite()?;
        }
        if edits.is_empty() { Ok(()) } else { self.journal.append(edits, unix_ms()) }
    }

    /// Does what was written; returns the edits that take back what could not be done.
    fn apply(&self, jobs: &mut [Box<dyn Job>], edits: &[Edit]) -> Vec<Edit> {
        let mut control = self.handle.lock();
        let failed = jobs.iter_mut().filter_map(|job| (!job.apply(&mut control)).then_some(()));
        if failed.count() == 0 {
            return Vec::new();
        }
        let differs = |edit: &Edit| {
            let listed = control.sessions().get(edit.id);
            let now = listed.filter(|listed| listed.origin == Origin::Request);
            let after = now.map(|listed| listed.session);
            let replaced = edit.after.as_ref().map_or(0, bytes_of);
            (after != edit.after).then_some(Edit { id: edit.id, after, replaced })
        };
        edits.iter().filter_map(differs).collect()
    }

    /// Writes the file anew, from the sessions that are there: this thread alone changes them.
    fn rewrite(&mut self) -> Result<(), JournalError> {
        let control = self.handle.lock();
        let (now, now_ms) = (unix_ms(), control.now_ms());
        let rests = control.sessions().resting();
        let rests: Vec<_> = rests
            .map(|(key, owner, until_ms)| {
                let until_unix_ms = now.saturating_add(until_ms.saturating_sub(now_ms));
                (key, Rest { owner, until_unix_ms })
            })
            .collect();
        drop(control);
        let (mut rests, mut from) = (rests.chunks(RESTS_A_FRAME), Some(0));
        let next = || {
            let mut lines = String::new();
            if let Some(some) = rests.next() {
                some.iter().for_each(|(key, rest)| put_rest(&mut lines, *key, *rest));
                return Some(lines);
            }
            let control = self.handle.lock();
            let page =
                control.sessions().page(from?, PAGE_MAX, |one| one.origin == Origin::Request);
            drop(control);
            let Page { sessions, next } = page;
            from = next;
            sessions.iter().for_each(|listed| put_session(&mut lines, &listed.session));
            Some(lines)
        };
        self.journal.rewrite(now, next)
    }
}
