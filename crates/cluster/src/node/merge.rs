//! Messages of one step to one node become one message.
//!
//! They go where the last of them was: after what the data path must have done before them. A
//! message may be late, so this changes nothing else.

use std::collections::BTreeMap;

use super::Action;
use crate::message::Message;
use crate::table::Gpt;
use crate::{NodeId, SessionId, Version};

/// Merges the messages from `first` on.
pub(super) fn merge<T: Gpt>(actions: &mut Vec<Action<T>>, first: usize) {
    let sends = |action: &&Action<T>| matches!(action, Action::Send(..));
    if actions[first..].iter().filter(sends).nth(1).is_none() {
        return;
    }
    // Where the last message of a kind to a node is.
    let mut last = BTreeMap::<(NodeId, u8), usize>::new();
    let mut emptied = false;
    for at in first..actions.len() {
        let (before, rest) = actions.split_at_mut(at);
        let Action::Send(to, message) = &mut rest[0] else { continue };
        let Some((kind, list)) = parts(message) else { continue };
        if let Some(earlier) = last.insert((*to, kind), at)
            && let Action::Send(_, earlier) = &mut before[earlier]
            && let Some((_, earlier)) = parts(earlier)
        {
            let mut all = std::mem::take(earlier);
            all.append(list);
            *list = all;
            emptied = true;
        }
    }
    if emptied {
        let mut at = 0;
        actions.retain_mut(|action| {
            at += 1;
            let Action::Send(_, message) = action else { return true };
            at <= first || parts(message).is_none_or(|(_, list)| !list.is_empty())
        });
    }
}

fn parts(message: &mut Message) -> Option<(u8, &mut Vec<(SessionId, Version)>)> {
    match message {
        // Counts come after.
        Message::Handover(list, _) => Some((0, list)),
        Message::Arrived(list) => Some((1, list)),
        Message::Stubs(list) => Some((2, list)),
        Message::Forget(list) => Some((3, list)),
        Message::Checkpoint(list, _) => Some((4, list)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Change;
    use crate::table::Map;

    #[test]
    fn a_merged_message_comes_after_all_that_went_before_its_parts() {
        let (a, b) = (NodeId(1), NodeId(2));
        let of = |nth| vec![(SessionId(nth), nth)];
        let handover = |list| Message::Handover(list, Vec::new());
        let free = |slot| Action::<Map>::Session(Change::Free { slot });
        let mut actions = vec![
            Action::Send(a, handover(of(0))),
            Action::Send(a, handover(of(1))),
            free(1),
            Action::Send(b, handover(of(2))),
            Action::Send(a, Message::Arrived(of(3))),
            free(2),
            Action::Send(a, handover(of(4))),
        ];
        merge(&mut actions, 1);
        let expected = vec![
            Action::Send(a, handover(of(0))),
            free(1),
            Action::Send(b, handover(of(2))),
            Action::Send(a, Message::Arrived(of(3))),
            free(2),
            Action::Send(a, handover([of(1), of(4)].concat())),
        ];
        assert_eq!(actions, expected);
    }
}
