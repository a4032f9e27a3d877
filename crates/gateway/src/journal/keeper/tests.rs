//! Many clients of a gateway with a journal, beside what each was answered.

use super::*;
use crate::session::Session;
use crate::session::tests::session;
use crate::sessions::{SessionError, tests::addresses};
use crate::{Setup, Tunable};
use overbank_runtime::{ConfiguredPort, Options, Running};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("{0}")]
    Journal(String),
    #[error("as asked")]
    Asked,
}

impl From<JournalError> for Refused {
    fn from(error: JournalError) -> Refused {
        Refused::Journal(error.to_string())
    }
}

/// A gateway without ports, with the sessions of a journal.
fn start(directory: &Path) -> (Running<GatewayControl>, Keeper) {
    let (journal, found) = Journal::open(directory).expect("whole");
    let of = addresses();
    let setup = Setup {
        tunable: Tunable { pools: of.pools, ..Tunable::default() },
        run: Options { workers: 1, ..Options::default() },
        n3: of.n3,
        teid_secret: None,
        max_sessions: 5_000,
        seed: 3,
        kept: found.kept,
        journal: Some(journal.counts()),
        sessions: Vec::new(),
        interfaces: [None, None],
        cluster: None,
    };
    let ports = [1, 2].map(|number| ConfiguredPort { number, spec: None, port: None });
    let running = crate::start(&setup, ports.into()).expect("it starts");
    let keeper = Keeper::start(journal, running.handle().clone()).expect("a thread");
    (running, keeper)
}

fn add(keeper: &Keeper, session: Session) -> Result<(), Refused> {
    keeper.commit(
        move |control, edits| Ok(control.plan_add(&session, edits)?),
        move |control| Ok(control.add(session)?),
    )
}

fn remove(keeper: &Keeper, id: u64) -> Result<(), Refused> {
    keeper.commit(
        move |control, edits| Ok(control.plan_remove(id, edits)?),
        move |control| Ok(control.remove(id).map(drop)?),
    )
}

fn change(keeper: &Keeper, id: u64, teid: u32) -> Result<Session, Refused> {
    let change = move |before: &Session| Ok::<_, Refused>(Session { teid, ..*before });
    keeper.commit(
        move |control, edits| control.plan_change(id, change, edits),
        move |control| control.change(id, change),
    )
}

fn listed(running: &Running<GatewayControl>) -> BTreeMap<u64, Session> {
    let control = running.handle().lock();
    control.sessions().iter().map(|listed| (listed.session.id, listed.session)).collect()
}

fn kept(directory: &Path) -> BTreeMap<u64, Session> {
    let kept = super::super::read(directory).expect("whole").expect("there");
    kept.sessions.into_iter().collect()
}

/// Clients add, change and remove at once, some the same sessions; the file is written anew
/// meanwhile. Gateway and file have the same at the end, and what each client was answered last.
#[test]
fn answers_of_many_clients_are_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let (running, keeper) = start(folder.path());
    std::thread::scope(|scope| {
        for client in 0..8_u16 {
            let keeper = &keeper;
            scope.spawn(move || {
                for turn in 0..100_u16 {
                    let own = 100 + client * 100 + turn;
                    assert_eq!(add(keeper, session(own)), Ok(()));
                    // All clients want these; one gets each. Then it rests, or is there.
                    let _ = add(keeper, session(1 + turn % 20));
                    let _ = change(keeper, 1 + u64::from(turn % 20), 3000 + u32::from(own));
                    if turn % 10 != 0 {
                        assert_eq!(remove(keeper, u64::from(own)), Ok(()));
                        let gone = SessionError::Unknown(u64::from(own));
                        assert_eq!(remove(keeper, u64::from(own)), Err(gone.into()));
                    }
                }
            });
        }
    });
    let there = listed(&running);
    assert_eq!(there, kept(folder.path()));
    for own in 0..800 {
        assert_eq!(there.contains_key(&(100 + own)), own % 10 == 0);
    }
    let totals = running.handle().lock().sessions().totals();
    let journal = running.handle().lock().journal().expect("there is one");
    assert_eq!(journal.changes, totals.added + totals.changed + totals.removed);
    assert!(journal.rewritten > 0 && journal.frames < journal.changes, "{journal:?}");
    drop(keeper);
    running.stop();
    // The thread may hold the lock for a moment longer.
    let again = loop {
        match Journal::open(folder.path()) {
            Err(JournalError::Locked(_)) => std::thread::yield_now(),
            opened => break opened.map(drop),
        }
    };
    again.expect("whole");
    let (running, _keeper) = start(folder.path());
    assert_eq!(listed(&running), there);
    // Freed TEIDs and addresses rest on.
    let refused = running.handle().lock().add(Session { id: 9_999, ..session(101) });
    assert!(matches!(refused, Err(SessionError::Resting { owner: 101, .. })), "{refused:?}");
    running.stop();
}

/// What fails after it was written is written back, and refused.
#[test]
fn what_cannot_be_applied_is_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (running, keeper) = start(folder.path());
    assert_eq!(add(&keeper, session(1)), Ok(()));
    let failed: Result<(), Refused> = keeper.commit(
        |control, edits| Ok(control.plan_add(&session(2), edits)?),
        |_| Err(Refused::Asked),
    );
    assert_eq!(failed, Err(Refused::Asked));
    let failed: Result<(), Refused> =
        keeper.commit(|control, edits| Ok(control.plan_remove(1, edits)?), |_| Err(Refused::Asked));
    assert_eq!(failed, Err(Refused::Asked));
    assert_eq!(kept(folder.path()), BTreeMap::from([(1, session(1))]));
    assert_eq!(listed(&running), kept(folder.path()));
    running.stop();
}
