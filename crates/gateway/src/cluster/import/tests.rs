//! Imports to a cluster that is a few maps, and refuses now and then.

use super::*;
use crate::cluster::{Note, unpack};
use crate::session::tests::session;
use crate::sessions::{Import, Sessions, tests::addresses};
use overbank_cluster::NodeId;
use overbank_cluster::etcd::Info;
use overbank_cluster::message::Answered;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

const SEED: Seed = Seed(7);

/// What happens to a request instead of being done.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Refused(Cause),
    /// It is done, and its answer says that it may not be.
    DoneLate,
    /// Too many wait.
    NotTaken,
}

/// A cluster.
#[derive(Default)]
struct Naive {
    sessions: BTreeMap<u64, Session>,
    /// By the number of the request.
    faults: BTreeMap<usize, Fault>,
    requests: usize,
}

impl Naive {
    fn put(&mut self, session: Session) -> Result<(), Cause> {
        self.sessions.insert(session.id, session);
        Ok(())
    }

    fn request(&mut self, request: Request) -> Option<Answer> {
        let fault = self.faults.get(&self.requests).copied();
        self.requests += 1;
        match fault {
            Some(Fault::NotTaken) => return None,
            Some(Fault::Refused(cause)) => return Some(Err(cause)),
            Some(Fault::DoneLate) | None => {}
        }
        let of_name = |name| self.sessions.keys().copied().find(|id| SEED.session(*id) == name);
        let done = match request {
            Request::Establish { context, .. } => {
                let (session, _) = unpack(&context).expect("a session");
                let taken = |other: &Session| {
                    other.id != session.id
                        && other.keys().any(|key| session.keys().any(|k| k == key))
                };
                match self.sessions.values().any(taken) {
                    true => Err(Cause::KeyInUse),
                    false => self.put(session),
                }
            }
            Request::Update { session: name, context, .. } => match of_name(name) {
                None => Err(Cause::Unknown),
                Some(_) => self.put(unpack(&context).expect("one").0),
            },
            Request::Remove { session: name } => match of_name(name) {
                None => Err(Cause::Unknown),
                Some(id) => {
                    self.sessions.remove(&id);
                    Ok(())
                }
            },
            other => panic!("{other:?}"),
        };
        let late = matches!(fault, Some(Fault::DoneLate));
        Some(if late { Err(Cause::Timeout) } else { done.map(|()| Answered::Done) })
    }
}

struct Cluster(Mutex<Naive>);

impl Asks for Cluster {
    fn ask_with(&self, request: Request, answer: Box<dyn FnOnce(Answer) + Send>) -> bool {
        let answered = self.0.lock().expect("whole").request(request);
        answered.map(answer).is_some()
    }

    fn share(&self, _: Info) -> bool {
        false
    }

    fn note(&self, _: NodeId, _: Note) {}

    fn drain(&self, _: Option<u64>) -> bool {
        false
    }

    fn rebalance(&self) -> bool {
        false
    }
}

/// A session whose keys are those of `keys`.
fn with(id: u16, keys: u16, peer_teid: u32) -> Session {
    Session { id: id.into(), peer_teid, ..session(keys) }
}

fn before(sessions: &[Session]) -> Before {
    let mut before = Before::default();
    sessions.iter().for_each(|session| before.add(*session, Origin::Cluster));
    before
}

fn numbered(sessions: &[Session]) -> Vec<(usize, Session)> {
    sessions.iter().enumerate().map(|(nth, session)| (nth + 2, *session)).collect()
}

fn faults() -> impl Strategy<Value = BTreeMap<usize, Fault>> {
    let fault = prop_oneof![
        Just(Fault::Refused(Cause::KeyResting)),
        Just(Fault::Refused(Cause::TableFull)),
        Just(Fault::Refused(Cause::Moving)),
        Just(Fault::DoneLate),
        Just(Fault::NotTaken),
    ];
    prop::collection::btree_map(0..30usize, fault, 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// All or none, whatever is refused, late or not taken.
    #[test]
    fn an_import_is_done_or_undone(
        there in prop::collection::btree_map(1..12u16, 1..4u32, 0..8),
        wanted in prop::collection::btree_map(1..12u16, 1..4u32, 0..8),
        replace in any::<bool>(),
        faults in faults(),
    ) {
        let list = |of: &BTreeMap<u16, u32>| of.iter().map(|(n, p)| with(*n, *n, *p)).collect();
        let (there, wanted): (Vec<Session>, Vec<Session>) = (list(&there), list(&wanted));
        let sessions: BTreeMap<u64, Session> = there.iter().map(|s| (s.id, *s)).collect();
        let cluster = Cluster(Mutex::new(Naive { sessions: sessions.clone(), faults, requests: 0 }));
        let how = How { seed: SEED, addresses: &addresses(), replace, max: 100 };
        let wanted = numbered(&wanted);
        let plan = Plan::new(&wanted, &before(&there), &how).expect("nothing is wrong");
        let mut after = sessions.clone();
        if replace {
            after.retain(|id, _| wanted.iter().any(|(_, session)| session.id == *id));
        }
        after.extend(wanted.iter().map(|(_, session)| (session.id, *session)));
        let done = perform(&cluster, &wanted, &plan, &how);
        let Naive { sessions: now, .. } = cluster.0.into_inner().expect("whole");
        match done {
            Ok(imported) => {
                prop_assert_eq!(imported, plan.would());
                prop_assert_eq!(now, after);
            }
            Err(Failed::Refused { refusals, left, .. }) => {
                prop_assert!(!refusals.is_empty());
                let differ = now.iter().filter(|(id, s)| sessions.get(id) != Some(s)).count();
                let differ = differ + sessions.keys().filter(|id| !now.contains_key(id)).count();
                prop_assert!(differ <= left, "{differ} differ, {left} are left");
            }
            Err(Failed::NotRemoved(count)) => {
                let stay = now.keys().filter(|id| !after.contains_key(id)).count();
                prop_assert!(stay <= count && now.len() - stay == after.len());
            }
        }
    }

    /// A list is refused for what a single gateway refuses it for, by the same lines.
    #[test]
    fn it_refuses_what_a_gateway_refuses(
        there in prop::collection::btree_map(1..9u16, (1..9u16, 1..3u32), 0..5),
        wanted in prop::collection::vec((1..9u16, 1..9u16, 1..3u32), 0..6),
        replace in any::<bool>(),
    ) {
        let (mut sessions, _) = Sessions::new(6, addresses(), 1, 7).expect("memory");
        let mut known = Vec::new();
        for (id, (keys, peer)) in there {
            let session = with(id, keys, peer);
            if sessions.add(session, Origin::Request, 0).is_ok() {
                known.push(session);
            }
        }
        let wanted: Vec<Session> = wanted.iter().map(|(id, k, p)| with(*id, *k, *p)).collect();
        let wanted = numbered(&wanted);
        let import = Import { origin: Origin::Request, replace };
        let single = sessions.check_import(&wanted, import, 0);
        // Here all is added before anything is removed.
        let how = How { seed: SEED, addresses: &addresses(), replace, max: 100 };
        let plan = Plan::new(&wanted, &before(&known), &how).map(|plan| plan.would());
        let rekeys = |refusal: &Refusal| refusal.what.contains("another tunnel or address");
        match (single, plan) {
            (Ok(single), Ok(plan)) => prop_assert_eq!(single, plan),
            (Err(single), Err(plan)) => {
                let plan: Vec<Refusal> = plan.into_iter().filter(|r| !rekeys(r)).collect();
                prop_assert!(plan == single || single[0].what.contains("exceed"));
            }
            (Err(single), Ok(_)) => prop_assert!(single[0].what.contains("exceed")),
            (Ok(_), Err(plan)) => prop_assert!(plan.iter().all(rekeys), "{plan:?}"),
        }
    }
}

#[test]
fn what_is_wrong_has_its_line() {
    let addresses = addresses();
    let how = How { seed: SEED, addresses: &addresses, replace: false, max: 4 };
    let mut known = before(&[with(1, 1, 9), with(2, 2, 9)]);
    known.add(with(3, 3, 9), Origin::Pfcp);
    let lines = |list: &[Session]| {
        let refusals = Plan::new(&numbered(list), &known, &how).expect_err("refused");
        refusals.into_iter().map(|r| format!("{}: {}", r.line, r.what)).collect::<Vec<_>>()
    };
    let rekeyed = lines(&[with(1, 7, 9), with(2, 2, 8)]);
    assert!(rekeyed[0].starts_with("2: session 1 would get another tunnel or address"));
    assert_eq!(rekeyed.len(), 1);
    let foreign = lines(&[with(3, 3, 8)]);
    assert!(foreign[0].starts_with("2: session 3 "), "{foreign:?}");
    let outside = Session { ipv4: Some([10, 9, 0, 1].into()), ..with(5, 5, 9) };
    assert!(lines(&[outside])[0].contains("10.9.0.1 is in no UE pool"));
    let many = lines(&[with(5, 5, 9), with(6, 6, 9)]);
    assert_eq!(many, ["3: 5 sessions exceed the 4 of all live nodes"]);
}

/// The number of those that are left is said, and none of the others is.
#[test]
fn what_cannot_be_taken_back_is_counted() {
    let refused = |at| (at, Fault::Refused(Cause::KeyResting));
    // The third is refused, and so is taking the first back.
    let faults = [refused(2), refused(3)].into_iter().collect();
    let cluster = Cluster(Mutex::new(Naive { faults, ..Naive::default() }));
    let how = How { seed: SEED, addresses: &addresses(), replace: false, max: 100 };
    let list = numbered(&[with(1, 1, 9), with(2, 2, 9), with(3, 3, 9)]);
    let plan = Plan::new(&list, &Before::default(), &how).expect("nothing is wrong");
    let what = "session 3: a key was freed less than its rest ago".to_owned();
    let refusals = vec![Refusal { line: 4, what }];
    let failed = Failed::Refused { refusals, unavailable: false, left: 1 };
    assert_eq!(perform(&cluster, &list, &plan, &how), Err(failed));
    assert_eq!(cluster.0.into_inner().expect("whole").sessions.len(), 1);
}
