//! How a node of the memory driver is connected: whole, lagging or cut off.

use std::collections::VecDeque;

use super::Memory;
use crate::table::Gpt;
use crate::{Action, Event, Member, NodeId};

/// What comes in for a node, and what goes out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// All of it.
    #[default]
    Whole,
    /// The log comes late: once the links are whole again.
    Lagging,
    /// Nothing: it has only its clock, and what is asked of it directly.
    Cut,
}

/// A node's links, and what of the log waits for it.
pub(super) struct Connected<T: Gpt> {
    links: Links,
    late: VecDeque<Event<T>>,
}

impl<T: Gpt> Default for Connected<T> {
    fn default() -> Self {
        Self { links: Links::Whole, late: VecDeque::new() }
    }
}

impl<T: Gpt> Connected<T> {
    pub(super) fn is_cut(&self) -> bool {
        self.links == Links::Cut
    }

    /// Forgets what waits for an earlier run.
    pub(super) fn restart(&mut self) {
        self.late.clear();
    }

    /// Takes an event of the log; `None`: it waits, or is lost.
    pub(super) fn log(&mut self, event: Event<T>) -> Option<Event<T>> {
        match self.links {
            Links::Whole => return Some(event),
            Links::Lagging => self.late.push_back(event),
            Links::Cut => {}
        }
        None
    }

    /// Returns an action that has an effect outside of the node's machine.
    pub(super) fn out(&self, action: Action<T>) -> Option<Action<T>> {
        let inside = matches!(
            action,
            Action::Session(_) | Action::Answer(..) | Action::Note(..) | Action::End { .. }
        );
        (inside || !self.is_cut()).then_some(action)
    }
}

impl<T: Gpt> Memory<T> {
    /// Sets how a node is connected; it outlives a run of the node. What waited for it comes in.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn connect(&mut self, id: NodeId, links: Links) {
        let at = usize::from(id.0);
        let connected = &mut self.connected[at];
        connected.links = links;
        if links != Links::Lagging {
            let late = std::mem::take(&mut connected.late);
            if links == Links::Whole && self.nodes[at].is_some() {
                self.inboxes[at].extend(late);
            }
        }
    }

    /// Delivers a message unless a link is cut.
    pub(super) fn message(&mut self, from: Member, to: NodeId, message: crate::message::Message) {
        let cut = |id: NodeId| self.connected.get(usize::from(id.0)).is_none_or(Connected::is_cut);
        if !cut(from.node) && !cut(to) {
            self.deliver(to, Event::Message(from, message));
        }
    }
}
