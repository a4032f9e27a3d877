//! Messages between nodes: plain NATS subjects, one for each node and one for all.
//!
//! They may be lost: a full queue drops, and so does a connection that is away. Lists that exceed
//! a message of the server go in parts: their entries do not depend on each other.

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

/// Longest message. The server's limit is 1 MiB by default.
const BYTES_MAX: usize = 1 << 19;

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
        for payload in payloads(me, message) {
            let _ = timeout(SEND_MAX, client.publish(subject(&cluster, to), payload.into())).await;
        }
    }
}

/// Returns the bytes of a message, in as many parts as it needs.
fn payloads(me: Member, message: Message) -> Vec<Vec<u8>> {
    let (mut whole, mut payloads) = (vec![message], Vec::new());
    while let Some(mut message) = whole.pop() {
        match bytes::of_message(me, &message) {
            Ok(payload) if payload.len() <= BYTES_MAX => payloads.push(payload),
            Ok(payload) => match second_half(&mut message) {
                Some(second) => whole.extend([second, message]),
                None => tracing::error!(bytes = payload.len(), "a message is too long to be sent"),
            },
            Err(error) => tracing::error!(%error, "a message has no bytes"),
        }
    }
    payloads
}

/// Takes the second half of a message's list; `None` if it has no two entries.
fn second_half(message: &mut Message) -> Option<Message> {
    fn half<T>(list: &mut Vec<T>) -> Option<Vec<T>> {
        (list.len() > 1).then(|| list.split_off(list.len() / 2))
    }
    match message {
        Message::Handover(list, counts) => {
            half(list).map(|list| Message::Handover(list, half(counts).unwrap_or_default()))
        }
        Message::Checkpoint(list, counts) => {
            half(list).map(|list| Message::Checkpoint(list, half(counts).unwrap_or_default()))
        }
        Message::Arrived(list) => half(list).map(Message::Arrived),
        Message::Stubs(list) => half(list).map(Message::Stubs),
        Message::Forget(list) => half(list).map(Message::Forget),
        Message::Route(list) => half(list).map(Message::Route),
        Message::Routed { keys, sequence } => {
            let sequence = *sequence;
            half(keys).map(|keys| Message::Routed { keys, sequence })
        }
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_cluster::SessionId;

    #[test]
    fn long_lists_go_in_parts_and_lose_nothing() {
        let me = Member { node: NodeId(1), incarnation: 2 };
        let list: Vec<_> = (0..200_000).map(|nth| (SessionId(!nth), nth)).collect();
        let payloads = payloads(me, Message::Stubs(list.clone()));
        assert!(payloads.len() > 1 && payloads.iter().all(|bytes| bytes.len() <= BYTES_MAX));
        let mut heard = Vec::new();
        for payload in payloads {
            match bytes::to_message(&payload).expect("whole") {
                (from, Message::Stubs(part)) if from == me => heard.extend(part),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(heard, list);
    }
}
