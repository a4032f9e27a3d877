//! etcd: the engine's requests, and a watch whose events have no gap.
//!
//! Keys are `/overbank/NAME/members`, `alive/NODE`, `coordinator`, `owner/PARTITION`, `speaker` and
//! `shared`, values JSON. A revision of the engine is a key's `mod_revision`; that of an absent key
//! is 0.
//!
//! **The watch** begins with all keys as of a revision and goes on after it. A broken one is
//! continued after the last revision that it showed. If etcd has compacted that, changes are lost:
//! the run ends, and the next one begins anew under another incarnation, as after a crash. The
//! engine could not know otherwise whether it was removed and added again meanwhile.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, KeyValue, LeaseGrantOptions, PutOptions,
    Txn, TxnOp, WatchOptions,
};
use overbank::hash::mix;
use overbank_cluster::etcd::{Key, Lease, Reply, Request, Value};
use overbank_cluster::{NodeId, Partition, Revision};
use tokio::time::timeout;

/// Time after which a request is given up: the engine repeats it.
const REQUEST_MAX: Duration = Duration::from_millis(900);
/// Time before a broken watch is begun again.
const AGAIN: Duration = Duration::from_millis(100);

/// The names of a cluster's keys.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(cluster: &str) -> Names {
        Names { prefix: format!("/overbank/{cluster}/") }
    }

    pub(crate) fn of(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn of_key(&self, key: Key) -> String {
        match key {
            Key::Members => self.of("members"),
            Key::Alive(NodeId(node)) => self.of(&format!("alive/{node}")),
            Key::Coordinator => self.of("coordinator"),
            Key::Speaker => self.of("speaker"),
            Key::Shared => self.of("shared"),
            Key::Owner(Partition(partition)) => self.of(&format!("owner/{partition}")),
        }
    }

    /// Returns the key of a name; `None`: it is not the engine's.
    fn key_of(&self, name: &[u8]) -> Option<Key> {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(&self.prefix)?;
        Some(match name.split_once('/') {
            None if name == "members" => Key::Members,
            None if name == "coordinator" => Key::Coordinator,
            None if name == "speaker" => Key::Speaker,
            None if name == "shared" => Key::Shared,
            Some(("alive", node)) => Key::Alive(NodeId(node.parse().ok()?)),
            Some(("owner", partition)) => Key::Owner(Partition(partition.parse().ok()?)),
            _ => return None,
        })
    }
}

/// etcd's number of a lease.
fn lease_id(names: &Names, lease: Lease) -> i64 {
    let cluster = names.prefix.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    let member = mix(u64::from(lease.member.node.0) << 56 ^ lease.member.incarnation);
    // Positive, and never 0.
    (mix(cluster ^ mix(member ^ u64::from(lease.nth))) >> 1 | 1) as i64
}

/// Performs a request; returns its reply, if there is one.
pub(crate) async fn request(
    client: &Client,
    names: &Names,
    lease_s: i64,
    request: Request,
) -> Option<Reply> {
    let done = timeout(REQUEST_MAX, perform(client.clone(), names, lease_s, request)).await;
    match done {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            tracing::debug!(%error, "etcd refuses a request");
            None
        }
        Err(_) => {
            tracing::debug!("etcd does not answer");
            None
        }
    }
}

async fn perform(
    mut client: Client,
    names: &Names,
    lease_s: i64,
    request: Request,
) -> Result<Option<Reply>, etcd_client::Error> {
    Ok(match request {
        Request::Grant { lease, sent } => {
            let options = LeaseGrantOptions::new().with_id(lease_id(names, lease));
            client.lease_grant(lease_s, Some(options)).await?;
            Some(Reply::Alive { lease, sent })
        }
        Request::KeepAlive { lease, sent } => {
            let renewed = client.lease_keep_alive(lease_id(names, lease)).await;
            let ttl = match renewed {
                Ok((mut keeper, mut stream)) => {
                    keeper.keep_alive().await?;
                    stream.message().await?.map(|reply| reply.ttl())
                }
                // The first answer already says that the lease is gone.
                Err(etcd_client::Error::LeaseKeepAliveError(_)) => Some(0),
                Err(error) => return Err(error),
            };
            ttl.map(|ttl| match ttl {
                0 => Reply::Expired { lease },
                _ => Reply::Alive { lease, sent },
            })
        }
        Request::Revoke { lease } => {
            client.lease_revoke(lease_id(names, lease)).await?;
            None
        }
        Request::Txn { compare, key, value, lease } => {
            let is = |(key, revision): (Key, Revision)| {
                Compare::mod_revision(names.of_key(key), CompareOp::Equal, revision as i64)
            };
            let compare: Vec<Compare> = compare.into_iter().map(is).collect();
            let options = lease.map(|l| PutOptions::new().with_lease(lease_id(names, l)));
            // Plain data has JSON.
            let value = serde_json::to_vec(&value).unwrap_or_default();
            let put = TxnOp::put(names.of_key(key), value, options);
            client.txn(Txn::new().when(compare).and_then([put])).await?;
            None
        }
    })
}

/// etcd has forgotten what the watch has not shown yet.
#[derive(Debug)]
pub(crate) struct Lost;

/// Shows all keys, then their changes, until `show` returns false.
///
/// # Errors
/// Changes are lost.
pub(crate) async fn watch<F: Future<Output = bool>>(
    mut client: Client,
    names: Names,
    mut show: impl FnMut(Reply) -> F,
) -> Result<(), Lost> {
    let mut next = None;
    loop {
        let done = follow(&mut client, &names, &mut next, &mut show).await;
        match done {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(Broken::Lost) => return Err(Lost),
            Err(Broken::Etcd(error)) => tracing::debug!(%error, "etcd's watch breaks"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

enum Broken {
    Etcd(etcd_client::Error),
    Lost,
}

impl From<etcd_client::Error> for Broken {
    fn from(error: etcd_client::Error) -> Broken {
        Broken::Etcd(error)
    }
}

async fn follow<F: Future<Output = bool>>(
    client: &mut Client,
    names: &Names,
    next: &mut Option<i64>,
    show: &mut impl FnMut(Reply) -> F,
) -> Result<bool, Broken> {
    let from = match *next {
        Some(from) => from,
        None => {
            let all = client.get(names.of(""), Some(GetOptions::new().with_prefix())).await?;
            let mut keys: Vec<&KeyValue> = all.kvs().iter().collect();
            keys.sort_by_key(|pair| pair.mod_revision());
            for pair in keys {
                if !shown(names, pair, true, show).await {
                    return Ok(false);
                }
            }
            all.header().map_or(1, |header| header.revision() + 1)
        }
    };
    *next = Some(from);
    let options = WatchOptions::new().with_prefix().with_start_revision(from);
    let mut stream = client.watch(names.of(""), Some(options)).await?;
    while let Some(response) = stream.message().await? {
        if response.compact_revision() > 0 {
            return Err(Broken::Lost);
        }
        if response.canceled() {
            // It may be for a token that etcd has forgotten: an idle node has no other request
            // that would notice.
            client.refresh_token().await?;
            break;
        }
        for event in response.events() {
            let Some(pair) = event.kv() else { continue };
            if !shown(names, pair, event.event_type() == EventType::Put, show).await {
                return Ok(false);
            }
            *next = (*next).max(Some(pair.mod_revision() + 1));
        }
    }
    Ok(true)
}

async fn shown<F: Future<Output = bool>>(
    names: &Names,
    pair: &KeyValue,
    is_put: bool,
    show: &mut impl FnMut(Reply) -> F,
) -> bool {
    let Some(key) = names.key_of(pair.key()) else { return true };
    let value = is_put.then(|| serde_json::from_slice::<Value>(pair.value()));
    let value = match value.transpose() {
        Ok(value) => value,
        Err(error) => {
            tracing::error!(%error, ?key, "a value in etcd cannot be read: is it another version's?");
            return true;
        }
    };
    show(Reply::Watch { revision: pair.mod_revision() as Revision, key, value }).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_cluster::Member;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let names = Names::new("one");
        let keys = [
            Key::Members,
            Key::Coordinator,
            Key::Speaker,
            Key::Shared,
            Key::Alive(NodeId(0)),
            Key::Alive(NodeId(255)),
            Key::Owner(Partition(0)),
            Key::Owner(Partition(255)),
        ];
        for key in keys {
            assert_eq!(names.key_of(names.of_key(key).as_bytes()), Some(key));
            assert_eq!(names.key_of(Names::new("two").of_key(key).as_bytes()), None);
        }
        for other in ["settings", "incarnation/1", "alive/x", "alive/256", "owner/-1", "members/"] {
            assert_eq!(names.key_of(names.of(other).as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn leases_have_separate_numbers() {
        let mut all = std::collections::HashSet::new();
        for node in 0..8 {
            for incarnation in 0..8 {
                for nth in 0..8 {
                    let member = Member { node: NodeId(node), incarnation };
                    let id = lease_id(&Names::new("one"), Lease { member, nth });
                    assert!(id > 0 && all.insert(id));
                }
            }
        }
    }
}
