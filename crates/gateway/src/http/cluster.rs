//! Requests to the cluster that the gateway is a node of.

use super::query::Query;
use super::sessions::{Answer, id, ok};
use super::{Api, Fault, Shared, blocking};
use crate::cluster::import::{self, Before, Failed, How, Plan};
use crate::cluster::{Asks, DRAINING, Note, Seat, from_travelled, origin_of, pack, unpack};
use crate::file;
use crate::session::Session;
use crate::sessions::{Imported, Listed, Origin, SessionError};
use crate::settings::NODE_MAX;
use crate::slab::Counts;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use overbank_cluster::message::{Answered, Refusal, Request};
use overbank_cluster::{NodeId, SessionId};
use serde_json::json;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for an answer: longer than the cluster keeps a request.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Longest wait for an owner, as after a start or the loss of a node, or for a change under way;
/// and the pause between looks.
const OWNER_MAX: Duration = Duration::from_secs(10);
const OWNER_PAUSE: Duration = Duration::from_millis(20);
/// Tries of a change that other changes of the session come before.
const CHANGES_MAX: u32 = 16;

/// Returns the gateway's place in a cluster, if it has one.
pub(super) fn seat(api: &Api) -> Option<Seat> {
    api.handle.lock().cluster().map(|cluster| cluster.seat())
}

fn no_cluster() -> Fault {
    Fault::new(StatusCode::CONFLICT, "the gateway is by itself: there is no other node")
}

fn unavailable(what: &str) -> Fault {
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, what)
}

/// Returns what takes requests to the cluster.
fn asks(api: &Api) -> Result<Arc<dyn Asks>, Fault> {
    let asks = api.handle.lock().cluster().ok_or_else(no_cluster)?.asks();
    asks.ok_or_else(|| unavailable("the node has not started yet; try again"))
}

/// Asks the cluster, and waits for its answer; for an owner too, while a partition changes hands,
/// and for the end of another change of the session.
pub(super) fn ask(api: &Api, request: Request) -> Result<Answered, Fault> {
    answer(api, request)?.map_err(refused)
}

fn answer(api: &Api, request: Request) -> Result<Result<Answered, Refusal>, Fault> {
    let asks = asks(api)?;
    let started = Instant::now();
    loop {
        let answer = asks.ask(request.clone());
        let answer = answer.ok_or_else(|| unavailable("too many requests wait; try again"))?;
        return match answer.recv_timeout(ANSWER_MAX) {
            // Nothing was begun.
            Ok(Err(Refusal::NoOwner | Refusal::Moving)) if started.elapsed() < OWNER_MAX => {
                sleep(OWNER_PAUSE);
                continue;
            }
            Ok(answer) => Ok(answer),
            Err(_) => Err(unavailable("no answer of the cluster: it may have been done; look")),
        };
    }
}

/// Sessions with their origins, and where the next page begins.
type Page = (Vec<(Session, Origin)>, Option<u64>);

/// Returns a page of all sessions of the cluster, and where the next one begins.
pub(super) fn page(api: &Api, from: u64) -> Result<Page, Fault> {
    match ask(api, Request::Page { from: SessionId(from) })? {
        Answered::Page(page, next) => {
            let sessions = page.iter().filter_map(|(_, context)| {
                let (session, kept) = unpack(context)?;
                Some((session, origin_of(kept)))
            });
            Ok((sessions.collect(), next.map(|next| next.0)))
        }
        _ => Err(unavailable("no page of the cluster; try again")),
    }
}

/// Imports a list of sessions to the cluster, or checks it.
pub(super) fn import(
    api: &Api,
    seat: Seat,
    list: &[(usize, Session)],
    dry_run: bool,
    replace: bool,
) -> Result<Imported, Fault> {
    let asks = asks(api)?;
    let (mut before, mut next) = (Before::default(), Some(0));
    while let Some(from) = next {
        let page = page(api, from)?;
        page.0.into_iter().for_each(|(session, origin)| before.add(session, origin));
        next = page.1;
    }
    let (addresses, max) = {
        let control = api.handle.lock();
        let (sessions, cluster) = (control.sessions(), control.cluster());
        let max = cluster.map_or(sessions.max(), |cluster| cluster.capacity(sessions.max()));
        (sessions.addresses().clone(), max)
    };
    let how = How { seed: seat.seed, addresses: &addresses, replace, max };
    let plan = Plan::new(list, &before, &how);
    let plan = plan.map_err(|lines| Fault::lines(StatusCode::CONFLICT, lines))?;
    drop(before);
    if dry_run {
        return Ok(plan.would());
    }
    import::perform(&*asks, list, &plan, &how).map_err(|failed| match failed {
        Failed::Refused { refusals, unavailable, left: 0 } => {
            let now = StatusCode::SERVICE_UNAVAILABLE;
            Fault::lines(if unavailable { now } else { StatusCode::CONFLICT }, refusals)
        }
        Failed::Refused { refusals, left, .. } => {
            let first = refusals.first().map_or("", |refusal| &refusal.what);
            unavailable(&format!(
                "the import was refused ({first}), and {left} of its sessions could not be taken \
                 back: import the list again, or remove them"
            ))
        }
        Failed::NotRemoved(count) => unavailable(&format!(
            "the list is imported, but {count} sessions that it does not have could not be \
             removed: import it again"
        )),
    })
}

/// Most pages of the cluster that are looked through for one of a listing.
const PAGES_MAX: usize = 256;

/// Lists sessions of the cluster from a name on, wherever they are, without their counts; returns
/// where the next page begins.
pub(super) fn list(
    api: &Api,
    wants: impl Fn(&Listed) -> bool,
    after: u64,
    most: usize,
) -> Result<(Vec<Listed>, Option<u64>), Fault> {
    let (mut found, mut next) = (Vec::new(), Some(after));
    for _ in 0..PAGES_MAX {
        let Some(from) = next.filter(|_| found.len() < most) else { break };
        let Answered::Page(page, then) = ask(api, Request::Page { from: SessionId(from) })? else {
            return Err(unavailable("no page of the cluster; try again"));
        };
        next = then.map(|name| name.0);
        for (name, context) in &page {
            let Some((session, kept)) = unpack(context) else { continue };
            let listed = Listed { session, origin: origin_of(kept), counts: Counts::default() };
            if !wants(&listed) {
                continue;
            }
            if found.len() == most {
                next = Some(name.0);
                break;
            }
            found.push(listed);
        }
    }
    Ok((found, next))
}

/// Finds a session of the cluster, wherever it is.
pub(super) fn find(api: &Api, seat: Seat, id: u64) -> Result<Listed, Fault> {
    let unknown = || Fault::from(SessionError::Unknown(id));
    match ask(api, Request::Read { session: seat.seed.session(id) })? {
        Answered::Found(found) => {
            let (session, kept) = unpack(&found.context).ok_or_else(unknown)?;
            Ok(Listed { session, origin: origin_of(kept), counts: from_travelled(found.counts) })
        }
        _ => Err(unknown()),
    }
}

/// Removes a session of the cluster; returns it with its counts of just before.
pub(super) fn remove(api: &Api, seat: Seat, id: u64) -> Result<Listed, Fault> {
    let listed = requested(api, seat, id)?;
    ask(api, Request::Remove { session: seat.seed.session(id) })?;
    Ok(listed)
}

/// Finds a session of the cluster that requests may change.
fn requested(api: &Api, seat: Seat, id: u64) -> Result<Listed, Fault> {
    let listed = find(api, seat, id)?;
    match listed.origin {
        Origin::Cluster => Ok(listed),
        other => Err(SessionError::Foreign(id, other).into()),
    }
}

/// Changes a session of the cluster to what `change` makes of it.
pub(super) fn change(
    api: &Api,
    seat: Seat,
    id: u64,
    change: impl Fn(&Session) -> Result<Session, Fault>,
) -> Result<Session, Fault> {
    let addresses = api.handle.lock().sessions().addresses().clone();
    let mut tries = 0;
    loop {
        let found = requested(api, seat, id)?.session;
        let session = change(&found)?;
        let mut request = seat.seed.update(&addresses, &session, &[])?;
        if let Request::Update { before, .. } = &mut request {
            *before = Some(pack(&found, &[]));
        }
        tries += 1;
        match answer(api, request)? {
            // Another request came first: what it has changed stays.
            Err(Refusal::Changed) if tries < CHANGES_MAX => {}
            done => return done.map(|_| session).map_err(refused),
        }
    }
}

fn refused(refusal: Refusal) -> Fault {
    let status = match refusal {
        Refusal::Keys | Refusal::TooLong => StatusCode::BAD_REQUEST,
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::KeyInUse
        | Refusal::KeyResting
        | Refusal::Moving
        | Refusal::NoMember
        | Refusal::Exists
        | Refusal::Changed => StatusCode::CONFLICT,
        Refusal::NoOwner
        | Refusal::NoRoom
        | Refusal::TableFull
        | Refusal::Overload
        | Refusal::Timeout => StatusCode::SERVICE_UNAVAILABLE,
    };
    Fault::new(status, refusal.help())
}

pub(super) async fn moves(State(api): State<Shared>, uri: Uri) -> Answer {
    let query = Query::of(&uri, &["to"])?;
    let to = query.get("to", node)?.map(NodeId);
    let id = id(&uri)?;
    let seat = seat(&api).ok_or_else(no_cluster)?;
    let request = Request::Move { session: seat.seed.session(id), to };
    blocking(move || ask(&api, request)).await?;
    ok(&json!({ "id": id }))
}

/// Whether this node answers the control plane: for a daemon that announces the address of N4.
pub(super) async fn speaker(State(api): State<Shared>, uri: Uri) -> Answer {
    Query::of(&uri, &[])?;
    let control = api.handle.lock();
    let cluster = control.cluster().ok_or_else(no_cluster)?;
    match (cluster.speaks(control.now_ms()), cluster.speaker()) {
        (true, _) => ok(&json!({ "speaker": true })),
        (false, Some(NodeId(node))) => {
            Err(unavailable(&format!("node {node} speaks, not this one")))
        }
        (false, None) => Err(unavailable("no node speaks yet")),
    }
}

pub(super) async fn rebalance(State(api): State<Shared>, uri: Uri) -> Answer {
    Query::of(&uri, &[])?;
    let asks = asks(&api)?;
    match asks.rebalance() {
        true => ok(&json!({ "rebalancing": true })),
        false => Err(unavailable("too many requests wait; try again")),
    }
}

/// Longest wait for a node that is asked to leave, and the pause between two times.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const DRAIN_AGAIN: Duration = Duration::from_millis(500);

/// Reads the number of a node.
fn node(text: &str) -> Result<u8, String> {
    let node = file::number(text).ok().and_then(|node: u64| u8::try_from(node).ok());
    node.ok_or_else(|| format!("{text:?}: must be a node, 0 to {NODE_MAX}"))
}

pub(super) async fn drain(State(api): State<Shared>, uri: Uri) -> Answer {
    let query = Query::of(&uri, &["node", "rate"])?;
    let rate = |text: &str| {
        let rate = file::number(text).ok().filter(|rate: &u64| *rate > 0);
        rate.ok_or_else(|| format!("{text:?}: must be sessions a second, at least 1"))
    };
    let (node, rate) = (query.get("node", node)?, query.get("rate", rate)?);
    let (asks, me) = {
        let control = api.handle.lock();
        let cluster = control.cluster().ok_or_else(no_cluster)?;
        (cluster.asks(), cluster.seat().me.0)
    };
    let asks = asks.ok_or_else(|| unavailable("the node has not started yet; try again"))?;
    let node = node.unwrap_or(me);
    if node == me {
        return match asks.drain(rate) {
            true => ok(&json!({ "draining": true, "node": node })),
            false => Err(unavailable("too many requests wait; try again")),
        };
    }
    blocking(move || {
        let state = || api.handle.lock().cluster()?.member(NodeId(node)).map(|one| one.state);
        let started = Instant::now();
        while let Some(state) = state() {
            if state == DRAINING {
                return ok(&json!({ "draining": true, "node": node }));
            }
            if started.elapsed() >= DRAIN_MAX {
                let what = format!("node {node} does not begin: it is {state}; try again");
                return Err(unavailable(&what));
            }
            asks.note(NodeId(node), Note::Drain(rate));
            sleep(DRAIN_AGAIN);
        }
        match started.elapsed() < DRAIN_AGAIN {
            true => Err(Fault::new(StatusCode::CONFLICT, format!("node {node} is no member"))),
            // It had nothing to give away.
            false => ok(&json!({ "draining": true, "node": node })),
        }
    })
    .await
}
