//! What the server answers: passed on, and what it ends.

use super::session::{Effect, Session, State};
use crate::proxy::session::{End, Front, Marks, NoReply, Turn};

/// The reply to `mn`, and the begin of that to a binary no-op.
const MN: &[u8] = b"MN";
const BINARY_MN: &[u8] = b"\x81\x0a";

impl Session {
    /// Takes bytes of the server.
    ///
    /// # Errors
    /// They are no reply.
    pub fn server(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), NoReply> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state == State::Watches || self.end == Some(End::Unasked) {
                self.to_client.end().extend_from_slice(rest);
                return Ok(());
            }
            let step = self.replies.scan(rest).map_err(|_| NoReply)?;
            let (of_reply, behind) = rest.split_at_checked(step.len).ok_or(NoReply)?;
            rest = behind;
            let head = self.replies.head();
            let is_noop = step.end && (head == MN || head.starts_with(BINARY_MN));
            match self.owed.front() {
                // It may be the reply to a no-op from here: its first line says so.
                Some(Effect::Quiet { is_own: true, .. }) if !self.passes => {
                    self.held.extend_from_slice(of_reply);
                    if !is_noop && (step.end || !head.is_empty()) {
                        self.to_client.end().append(&mut self.held);
                        self.passes = true;
                    }
                }
                _ => self.to_client.end().extend_from_slice(of_reply),
            }
            if step.end {
                self.held = Vec::new();
                self.passes = false;
                self.reply(is_noop, turn);
            }
        }
        Ok(())
    }

    /// A reply has come to its end.
    fn reply(&mut self, is_noop: bool, turn: &mut Turn<'_>) {
        if !is_noop && matches!(self.owed.front(), Some(Effect::Quiet { .. })) {
            return;
        }
        match self.owed.take() {
            Front::Plain => {}
            Front::Effect(Effect::Written(mark)) => turn.ways.end(Marks::One(mark)),
            Front::Effect(Effect::Ends(ends) | Effect::Quiet { ends, .. }) => ends.done(turn),
            Front::Effect(Effect::Watch) if self.replies.head() == b"OK" => {
                self.state = State::Watches;
                // It answers nothing that came behind.
                self.abandon(turn);
            }
            Front::Effect(Effect::Watch) => {
                self.state = match self.state {
                    State::Watching(count @ 2..) => State::Watching(count - 1),
                    State::Watching(_) => State::Counted,
                    state => state,
                };
            }
            Front::Nothing => self.end = Some(End::Unasked),
        }
        self.owed.release(self.to_client.end());
        if self.owed.replies() == 0 {
            self.under_way = 0;
            self.write_refusal();
        }
    }

    /// The connection is over. What has not been answered may still be done by the server: its keys
    /// stay out for a while.
    pub fn lost(&mut self, turn: &mut Turn<'_>) {
        self.large.take().into_iter().for_each(|ends| ends.lost(turn));
        self.abandon(turn);
    }

    fn abandon(&mut self, turn: &mut Turn<'_>) {
        let effects: Vec<Effect> = self.owed.abandon().collect();
        for effect in effects {
            match effect {
                Effect::Written(mark) => turn.ways.end_late(Some(Marks::One(mark)), turn.totals),
                Effect::Ends(ends) | Effect::Quiet { ends, .. } => ends.lost(turn),
                Effect::Watch => {}
            }
        }
    }
}
