//! Messages between nodes: plain NATS subjects, one for each node and one for all.
//!
//! They may be lost: a full queue drops, and so does a connection that is away.

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt;
use overbank_cluster::message::Message;
use overbank_cluster::{Member, NodeId};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bytes;

/// Time after which a message is dropped.
const SEND_MAX: Duration = Duration::from_millis(50);

/// To one node, or to all.
pub(crate) type Outgoing = (Option<NodeId>, Message);

fn subject(cluster: &str, to: Option<NodeId>) -> String {
    match to {
        Some(NodeId(node)) => format!("overbank.{cluster}.node.{node}"),
        None => format!("overbank.{cluster}.nodes"),
    }
}

/// Sends what comes until there is no sender left.
pub(crate) async fn send(
    client: Client,
    cluster: String,
    me: Member,
    mut outgoing: mpsc::Receiver<Outgoing>,
) {
    while let Some((to, message)) = outgoing.recv().await {
        let Ok(payload) = bytes::of_message(me, &message) else { continue };
        let _ = timeout(SEND_MAX, client.publish(subject(&cluster, to), payload.into())).await;
    }
}

/// Hands over what comes for a node, until `take` returns false.
///
/// # Errors
/// The subscription cannot be made.
pub(crate) async fn receive(
    client: Client,
    cluster: String,
    me: Member,
    mut take: impl FnMut(Member, Message) -> bool,
) -> Result<(), async_nats::SubscribeError> {
    let own = client.subscribe(subject(&cluster, Some(me.node))).await?;
    let all = client.subscribe(subject(&cluster, None)).await?;
    let mut both = futures_util::stream::select(own, all);
    while let Some(message) = both.next().await {
        match bytes::to_message(&message.payload) {
            Ok((from, _)) if from == me => {}
            Ok((from, message)) => {
                if !take(from, message) {
                    break;
                }
            }
            Err(error) => tracing::debug!(%error, "a message of the cluster cannot be read"),
        }
    }
    Ok(())
}
