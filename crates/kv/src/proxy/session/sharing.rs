//! What may go on a connection that clients share, and how a client leaves it.
//!
//! On a shared lane a client is the default user, in database 0, in RESP2 or RESP3, perhaps with a
//! name: what its library says at the start. The proxy answers that itself, and says it to the
//! server when the client gets a separate connection.

use super::{Change, Effect, OUT_MAX, Session, Turn, Version};
use crate::proxy::commands::{Class, Command};
use overbank_wire::resp::{self, Request};

/// Replies of a client that may be outstanding on a shared lane: more would delay others.
const SHARED_MAX: u64 = 1024;
/// Longest name of a client that a shared lane knows.
const NAME_MAX: usize = 256;

/// Where a client's commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a connection that clients share.
    Shared,
    /// The next command cannot go there: it waits for a separate connection.
    Leaving,
    /// On a separate connection.
    Own,
}

/// What becomes of a command on a shared lane.
pub(super) enum Share {
    Passes,
    Answered,
    Leaves,
}

impl Session {
    /// Returns where the client's commands go.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns which lane they go on, if it is a shared one.
    pub fn is_three(&self) -> bool {
        self.state.version == Version::Three
    }

    /// Returns the replies that the server owes.
    pub fn owed(&self) -> u64 {
        self.owed.replies()
    }

    /// The client has a separate connection from here on. Its state is said to the server first;
    /// the client does not get the replies to that.
    pub fn own(&mut self) {
        self.place = Place::Own;
        if self.state.version == Version::Three {
            self.say(&[b"HELLO", b"3"]);
        }
        if let Some(name) = self.name.take() {
            self.say(&[b"CLIENT", b"SETNAME", &name]);
        }
        for (field, text) in
            [&b"LIB-NAME"[..], b"LIB-VER"].into_iter().zip(std::mem::take(&mut self.library))
        {
            if let Some(text) = text {
                self.say(&[b"CLIENT", b"SETINFO", field, &text]);
            }
        }
        if self.awaits_replicas {
            // WAIT is for writes up to the connection's last command: this one comes after those
            // on the lane.
            self.say(&[b"PING"]);
        }
        // What has waited for it.
        self.blocked = true;
    }

    /// Says something to the server whose reply the client does not get. Until that comes, the
    /// state of the connection is not known.
    fn say(&mut self, words: &[&[u8]]) {
        resp::command(words, self.to_server.end());
        self.state.changing = self.state.changing.saturating_add(1);
        self.owed.effect(Effect::Change(Box::new(Change::Swallow)));
    }

    /// Decides about a command of a client on a shared lane.
    pub(super) fn share(
        &mut self,
        (command, class): (&Command, Class<'_>),
        request: Request<'_>,
        turn: &mut Turn<'_>,
    ) -> Share {
        // A separate connection makes a client that does not read wait, and no other.
        if self.owed.replies() >= SHARED_MAX || self.to_client.len() >= OUT_MAX {
            return Share::Leaves;
        }
        let is_unknown = command.name() == "client";
        let is_setinfo = request.arg(1).is_some_and(|arg| arg.eq_ignore_ascii_case(b"setinfo"));
        match class {
            Class::Ping => Share::Passes,
            // A server that does not know it says so, and nothing has changed.
            Class::Other if is_unknown && is_setinfo => Share::Passes,
            Class::ClientSet if command.name() == "client|setname" && request.len() == 3 => {
                let name = request.arg(2).unwrap_or_default();
                if name.len() > NAME_MAX || !name.iter().all(u8::is_ascii_graphic) {
                    return Share::Leaves;
                }
                self.name = (!name.is_empty()).then(|| name.into());
                self.answer(b"+OK\r\n", turn)
            }
            Class::ClientSet if command.name() == "client|setinfo" && request.len() == 4 => {
                let text = request.arg(3).unwrap_or_default();
                let is_field = |name: &[u8]| {
                    request.arg(2).is_some_and(|field| field.eq_ignore_ascii_case(name))
                };
                let [name, version] = &mut self.library;
                let field = if is_field(b"lib-name") {
                    name
                } else if is_field(b"lib-ver") {
                    version
                } else {
                    return Share::Leaves;
                };
                if text.len() > NAME_MAX || !text.iter().all(u8::is_ascii_graphic) {
                    return Share::Leaves;
                }
                *field = (!text.is_empty()).then(|| text.into());
                self.answer(b"+OK\r\n", turn)
            }
            Class::Select(Some(0)) => self.answer(b"+OK\r\n", turn),
            Class::Hello(hello)
                if hello.version == Some(3)
                    && hello.auth.is_none()
                    && hello.name.is_none()
                    && !hello.is_malformed
                    && self.owed.replies() == 0 =>
            {
                let greeting = turn.shared.greeting.load();
                let Some(greeting) = greeting.as_deref() else { return Share::Leaves };
                let greeting = greeting.with_id(turn.shared.next_id());
                self.state.version = Version::Three;
                self.answer(&greeting, turn)
            }
            _ if command.is_shareable(&request) => Share::Passes,
            _ => {
                self.awaits_replicas = matches!(command.name(), "wait" | "waitaof");
                Share::Leaves
            }
        }
    }

    fn answer(&mut self, reply: &[u8], turn: &mut Turn<'_>) -> Share {
        turn.totals.commands += 1;
        turn.totals.answered += 1;
        self.owed.local(reply, self.to_client.end());
        Share::Answered
    }
}

/// The reply to HELLO 3, with a place for the number of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    before: Box<[u8]>,
    after: Box<[u8]>,
}

impl Greeting {
    /// Returns the server's own, if it has the number where Redis has it.
    pub fn new(reply: &[u8]) -> Option<Greeting> {
        const ID: &[u8] = b"$2\r\nid\r\n:";
        let at = reply.windows(ID.len()).position(|window| window == ID)? + ID.len();
        let (before, rest) = reply.split_at_checked(at)?;
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        (reply.first() == Some(&b'%'))
            .then(|| Greeting { before: before.into(), after: rest[end..].into() })
    }

    /// Returns the reply for a client.
    fn with_id(&self, id: u64) -> Vec<u8> {
        [&self.before, id.to_string().as_bytes(), &self.after].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_has_the_clients_number() {
        let reply = b"%2\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:12\r\n";
        let greeting = Greeting::new(reply).expect("a greeting");
        let expected = b"%2\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:4611686018427387904\r\n";
        assert_eq!(greeting.with_id(1 << 62), expected);
        assert_eq!(Greeting::new(b"%0\r\n"), None);
        assert_eq!(Greeting::new(b"-ERR $2\r\nid\r\n:1"), None);
    }
}
