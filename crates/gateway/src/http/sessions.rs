//! Requests about sessions.

use super::body::{self, Fields};
use super::query::{Query, page_size};
use super::{Api, BODY_MAX, Fault, PAGE_MAX, Shared, blocking, cluster};
use crate::cluster::{Clustered, Seat};
use crate::file;
use crate::session::{Key, Prefix64, Session};
use crate::sessions::{Listed, Origin, Page, SessionError};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use overbank_service::endpoints::answer;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// Name and version of a page.
const SCHEMA: &str = "overbank-gateway-sessions/1";
/// Sessions of a page if none is asked for.
const PAGE: usize = 100;

/// Looks at a page whose sessions do not all lead here by the cluster's table, and the pause before
/// another one: five seconds, as long as a node may lag.
const ASTRAY_LOOKS: u32 = 50;
const ASTRAY_PAUSE: Duration = Duration::from_millis(100);

pub(super) type Answer = Result<Response, Fault>;

/// Answers with a document.
pub(super) fn ok(document: &impl Serialize) -> Answer {
    Ok(answer(StatusCode::OK, document))
}

/// Which sessions are wanted.
#[derive(Clone, Copy, Default)]
struct Filter {
    teid: Option<u32>,
    address: Option<Key>,
    origin: Option<Origin>,
}

impl Filter {
    fn of(query: &Query) -> Result<Filter, Fault> {
        Ok(Filter {
            teid: query.get("teid", file::number)?,
            address: query.get("address", terminal)?,
            origin: query.get("origin", origin)?,
        })
    }

    fn wants(&self, listed: &Listed) -> bool {
        let Listed { session, origin, .. } = listed;
        self.teid.is_none_or(|teid| session.teid == teid)
            && self.address.is_none_or(|key| session.keys().any(|one| one == key))
            && self.origin.is_none_or(|wanted| wanted == *origin)
    }

    /// Finds a page of sessions: by their keys, if it can.
    fn page(&self, api: &Api, after: u32, most: usize) -> Page {
        let control = api.handle.lock();
        let sessions = control.sessions();
        let by_keys = |keys: Vec<Key>| {
            let found = keys.into_iter().filter_map(|key| sessions.get(sessions.owner_of(key)?));
            let found = found.filter(|listed| self.wants(listed));
            Page { sessions: found.collect(), next: None }
        };
        match (self.address, self.teid) {
            (Some(key), _) => by_keys(vec![key]),
            (None, Some(teid)) => {
                let n3 = sessions.addresses().n3.iter();
                by_keys(n3.map(|n3| Key::Tunnel(*n3, teid)).collect())
            }
            (None, None) => sessions.page(after, most, |listed| self.wants(listed)),
        }
    }
}

/// Reads an address of a terminal, or its prefix.
fn terminal(text: &str) -> Result<Key, String> {
    if text.contains('/') {
        return file::prefix(text).map(Key::Ipv6);
    }
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(Key::Ipv4(address)),
        Ok(IpAddr::V6(address)) => Ok(Key::Ipv6(Prefix64::of(address))),
        Err(_) => Err(format!("{text:?}: must be an address of a terminal, such as 10.45.0.2")),
    }
}

fn origin(text: &str) -> Result<Origin, String> {
    let found = Origin::ALL.into_iter().find(|origin| origin.name() == text);
    let names = Origin::ALL.map(Origin::name).join(", ");
    found.ok_or_else(|| format!("{text:?}: must be one of {names}"))
}

/// Reads the id of a path.
pub(super) fn id(uri: &Uri) -> Result<u64, Fault> {
    let text = uri.path().split('/').nth(2).unwrap_or_default();
    file::number(text).map_err(|what| Fault::bad(format!("id: {what}")))
}

/// Lists sessions of a cluster, wherever they are: those of a TEID or an address with their counts.
fn list_all(api: &Api, seat: Seat, filter: Filter, after: u64, most: usize) -> Answer {
    let (found, next) = cluster::list(api, |listed| filter.wants(listed), after, most)?;
    let by_key = filter.teid.is_some() || filter.address.is_some();
    let sessions = found.into_iter().map(|listed| {
        // One that has just been removed is left out.
        if by_key {
            return cluster::find(api, seat, listed.session.id).ok().map(|found| json!(found));
        }
        let mut document = json!(listed.session);
        document["origin"] = json!(listed.origin);
        Some(document)
    });
    let sessions: Vec<_> = sessions.flatten().collect();
    let total = api.handle.lock().cluster().map_or(0, Clustered::total);
    // A number of 64 bits is more than most readers of JSON take.
    let next = next.map(|next| next.to_string());
    ok(&json!({ "schema": SCHEMA, "sessions": sessions, "next": next, "total": total }))
}

pub(super) async fn list(State(api): State<Shared>, uri: Uri) -> Answer {
    let query = Query::of(&uri, &["after", "most", "teid", "address", "origin", "local"])?;
    let (filter, local) = (Filter::of(&query)?, query.flag("local")?);
    let after = query.get("after", file::number::<u64>)?.unwrap_or(0);
    let most = query.get("most", page_size)?.unwrap_or(PAGE);
    blocking(move || {
        if let Some(seat) = cluster::seat(&api).filter(|_| !local) {
            return list_all(&api, seat, filter, after, most);
        }
        // Places of a gateway's sessions are below that.
        let Ok(after) = u32::try_from(after) else {
            return Err(Fault::bad("after: must be the last page's next"));
        };
        let Page { sessions, next } = filter.page(&api, after, most);
        let total = api.handle.lock().sessions().len();
        ok(&json!({ "schema": SCHEMA, "sessions": sessions, "next": next, "total": total }))
    })
    .await
}

pub(super) async fn show(State(api): State<Shared>, uri: Uri) -> Answer {
    Query::of(&uri, &[])?;
    let id = id(&uri)?;
    blocking(move || {
        if let Some(seat) = cluster::seat(&api) {
            return ok(&cluster::find(&api, seat, id)?);
        }
        let listed = api.handle.lock().sessions().get(id);
        ok(&listed.ok_or(SessionError::Unknown(id))?)
    })
    .await
}

pub(super) async fn add(State(api): State<Shared>, uri: Uri, body: Body) -> Answer {
    Query::of(&uri, &[])?;
    let session = Fields::parse(&body::text(body, BODY_MAX).await?)?.session()?;
    if let Some(seat) = cluster::seat(&api) {
        let addresses = api.handle.lock().sessions().addresses().clone();
        let request = seat.seed.establish(&addresses, &session, &[], None)?;
        blocking(move || cluster::ask(&api, request)).await?;
        return Ok(answer(StatusCode::CREATED, &session));
    }
    let added = move || {
        api.commit(
            move |control, edits| Ok(control.plan_add(&session, edits)?),
            move |control| Ok(control.add(session)?),
        )
    };
    blocking(added).await?;
    Ok(answer(StatusCode::CREATED, &session))
}

pub(super) async fn change(State(api): State<Shared>, uri: Uri, body: Body) -> Answer {
    Query::of(&uri, &[])?;
    let id = id(&uri)?;
    let fields = Fields::parse(&body::text(body, BODY_MAX).await?)?;
    if let Some(seat) = cluster::seat(&api) {
        let applied = move |before: &_| fields.applied_to(before);
        let changed = blocking(move || cluster::change(&api, seat, id, applied)).await?;
        return ok(&changed);
    }
    let fields = Arc::new(fields);
    let planned = fields.clone();
    let changed = move || {
        api.commit(
            move |control, edits| control.plan_change(id, |b| planned.applied_to(b), edits),
            move |control| control.change(id, |before| fields.applied_to(before)),
        )
    };
    ok(&blocking(changed).await?)
}

pub(super) async fn remove(State(api): State<Shared>, uri: Uri) -> Answer {
    Query::of(&uri, &[])?;
    let id = id(&uri)?;
    if let Some(seat) = cluster::seat(&api) {
        return ok(&blocking(move || cluster::remove(&api, seat, id)).await?);
    }
    let removed = move || {
        api.commit(
            move |control, edits| Ok(control.plan_remove(id, edits)?),
            move |control| Ok(control.remove(id)?),
        )
    };
    ok(&blocking(removed).await?)
}

pub(super) async fn import(State(api): State<Shared>, uri: Uri, body: Body) -> Answer {
    let query = Query::of(&uri, &["dry-run", "replace"])?;
    let (dry_run, replace) = (query.flag("dry-run")?, query.flag("replace")?);
    let Ok(_alone) = api.importing.clone().try_acquire_owned() else {
        let what = "another import is in progress; try again";
        return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let text = body::text(body, api.import_max).await?;
    let done = blocking(move || {
        let list = file::parse(&text);
        let list = list.map_err(|lines| Fault::lines(StatusCode::BAD_REQUEST, lines))?;
        drop(text);
        if let Some(seat) = cluster::seat(&api) {
            return cluster::import(&api, seat, &list, dry_run, replace);
        }
        let refused = |lines| Fault::lines(StatusCode::CONFLICT, lines);
        if dry_run {
            return api.handle.lock().check_import(&list, replace).map_err(refused);
        }
        let list = Arc::new(list);
        let planned = list.clone();
        let left_out = |lines| Fault::lines(StatusCode::SERVICE_UNAVAILABLE, lines);
        api.commit(
            move |control, edits| control.plan_import(&planned, replace, edits).map_err(refused),
            move |control| control.import(&list, replace).map_err(left_out),
        )
    })
    .await?;
    let mut document = json!(done);
    document["dry_run"] = json!(dry_run);
    ok(&document)
}

/// Streams all sessions, page by page: those of the cluster, if there is one.
pub(super) async fn export(State(api): State<Shared>, uri: Uri) -> Answer {
    let query = Query::of(&uri, &["origin"])?;
    let filter = Filter { origin: query.get("origin", origin)?, ..Filter::default() };
    let in_cluster = cluster::seat(&api).is_some();
    let pages = stream::unfold(Some(0), move |from| {
        let api = api.clone();
        let page = move |from: u64| {
            if in_cluster {
                let (sessions, next) = cluster::page(&api, from)?;
                let wanted =
                    |(_, of): &(_, Origin)| filter.origin.is_none_or(|origin| origin == *of);
                let sessions = sessions.into_iter().filter(wanted).map(|(session, _)| session);
                return Ok((sessions.collect(), next));
            }
            let Page { sessions, next } = filter.page(&api, from as u32, PAGE_MAX);
            let sessions: Vec<Session> =
                sessions.into_iter().map(|listed| listed.session).collect();
            Ok((sessions, next.map(u64::from)))
        };
        async move {
            let from = from?;
            Some(match blocking(move || page(from)).await {
                Ok((sessions, next)) => {
                    let mut text = match from {
                        0 => file::header() + "\n",
                        _ => String::new(),
                    };
                    sessions.iter().for_each(|session| text += &(file::line(session) + "\n"));
                    (Ok(text), next)
                }
                // The answer then ends without its last chunk.
                Err(fault) => (Err(io::Error::other(fault.error)), None),
            })
        }
    });
    let csv = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
    Ok((csv, Body::from_stream(pages)).into_response())
}

/// Looks all sessions up by their keys, page by page; in a cluster, in its table too.
pub(super) async fn check(State(api): State<Shared>, uri: Uri) -> Answer {
    Query::of(&uri, &[])?;
    blocking(move || {
        let (mut next, mut checked, mut wrong) = (Some(0), 0, None);
        // Sessions that have been astray in each look at the page so far.
        let (mut looks, mut suspects) = (0, Vec::new());
        while let (Some(from), None) = (next, &wrong) {
            let control = api.handle.lock();
            let sessions = control.sessions();
            let page = sessions.page(from, PAGE_MAX, |_| true);
            let misled = sessions.misled(&page.sessions);
            let astray = control.cluster().map(|c| c.astray(sessions, &page.sessions));
            drop(control);
            let mut astray = astray.unwrap_or_default();
            astray.retain(|suspect| looks == 0 || suspects.contains(suspect));
            // The table follows a change within a few beats.
            if misled.is_none() && !astray.is_empty() && looks < ASTRAY_LOOKS {
                (looks, suspects) = (looks + 1, astray);
                sleep(ASTRAY_PAUSE);
                continue;
            }
            let found = misled.map(|(id, key)| {
                format!("internal error: {key} does not lead to session {id}; please report it")
            });
            wrong = found.or_else(|| {
                let (id, key) = astray.first()?;
                Some(format!(
                    "{key} of session {id} does not lead here by this node's copy of the cluster's \
                     table, which lags by 5 s or more; check again, and report it if it stays so"
                ))
            });
            (checked, next, looks) = (checked + page.sessions.len(), page.next, 0);
        }
        ok(&json!({ "ok": wrong.is_none(), "sessions": checked, "error": wrong }))
    })
    .await
}
