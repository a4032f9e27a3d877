//! Which users may be given what another one has read: those that may read all keys.

use overbank_wire::resp::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The user of connections that have not said another one.
const DEFAULT: &[u8] = b"default";

/// What is known of users.
#[derive(Clone, Debug)]
pub struct Users {
    may: HashMap<Arc<[u8]>, bool>,
    /// The user of the proxy's own connection.
    own: Option<Arc<[u8]>>,
    /// Whether the server lets a connection that has said nothing be the default user.
    is_open: bool,
    /// When the server was last asked and said so, in monotonic nanoseconds.
    open_at: u64,
    is_new: bool,
}

impl Users {
    /// Returns that nothing is known. `is_open`: the proxy's own connection says nothing either, so
    /// it has the rights of clients that say nothing.
    pub fn new(is_open: bool) -> Users {
        let may = HashMap::from([(Arc::from(DEFAULT), false)]);
        Users { may, own: None, is_open, open_at: 0, is_new: true }
    }

    /// Returns whether a user, or a connection that has named none, may be served hits. `None`: the
    /// user is not known.
    pub fn may(&self, user: Option<&[u8]>) -> Option<bool> {
        match user {
            None => Some(self.is_open && self.may(Some(DEFAULT)).unwrap_or(false)),
            Some(user) if self.own.as_deref() == Some(user) => Some(true),
            Some(user) => self.may.get(user).copied(),
        }
    }

    /// Returns whether a connection that has said nothing is the default user's.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns when the server was last asked and said so, in monotonic nanoseconds.
    pub fn open_at(&self) -> u64 {
        self.open_at
    }

    /// Returns whether the proxy's own connection is this user's.
    pub fn is_own(&self, name: &[u8]) -> bool {
        self.own.as_deref() == Some(name)
    }

    /// Returns the number of known users.
    pub fn len(&self) -> usize {
        self.may.len()
    }

    /// Returns their names.
    pub fn names(&self) -> Vec<Arc<[u8]>> {
        self.may.keys().cloned().collect()
    }

    /// Returns whether something has changed since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Adds a user without privileges so far; returns whether it is new.
    pub fn add(&mut self, name: &[u8]) -> bool {
        let is_new = !self.may.contains_key(name);
        if is_new {
            self.may.insert(name.into(), false);
            self.is_new = true;
        }
        is_new
    }

    /// The proxy is this user.
    pub fn own(&mut self, name: &[u8]) {
        self.is_new |= self.own.as_deref() != Some(name);
        self.own = Some(name.into());
        // Asked about like all others.
        self.add(name);
    }

    /// The server has answered ACL GETUSER, which was sent at `sent`.
    pub fn said(&mut self, name: &[u8], said: &Value<'_>, sent: u64) {
        let has = |field: &[u8], word: &[u8]| {
            let list = said.get(field).and_then(Value::elements).unwrap_or_default();
            list.iter().any(|flag| flag.text() == Some(word))
        };
        let is_text =
            |field: &[u8], text: &[u8]| said.get(field).and_then(Value::text) == Some(text);
        // Redis 6 lists keys, 7 has patterns as one text.
        let all_keys = is_text(b"keys", b"~*") || has(b"keys", b"*");
        let all_commands = is_text(b"commands", b"+@all");
        let may = has(b"flags", b"on") && all_keys && all_commands;
        // An error: this connection may not ask. Then the own user alone is served.
        let is_error = matches!(said, Value::Error(_));
        if name == DEFAULT && !is_error {
            let is_open = has(b"flags", b"on") && has(b"flags", b"nopass");
            self.is_new |= is_open != self.is_open;
            self.is_open = is_open;
        }
        if name == DEFAULT && self.is_open {
            self.open_at = sent;
        }
        if let Some(before) = self.may.get_mut(name) {
            self.is_new |= *before != may;
            *before = may;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_wire::resp::tree;

    const ALL: &[u8] =
        b"%3\r\n$5\r\nflags\r\n~2\r\n+on\r\n+nopass\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n\
        $4\r\nkeys\r\n$2\r\n~*\r\n";
    const SOME: &[u8] = b"%3\r\n$5\r\nflags\r\n~1\r\n+on\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n\
        $4\r\nkeys\r\n$4\r\n~a:*\r\n";

    fn said(users: &mut Users, name: &[u8], reply: &[u8]) {
        users.said(name, &tree(reply).expect("a reply").0, 1);
    }

    #[test]
    fn users_with_all_keys_are_served_and_others_are_not() {
        let mut users = Users::new(true);
        assert!(users.take_news() && !users.take_news());
        assert_eq!((users.may(None), users.may(Some(b"x"))), (Some(false), None));
        said(&mut users, b"default", ALL);
        assert_eq!((users.may(None), users.may(Some(b"default"))), (Some(true), Some(true)));
        assert!(users.take_news());
        assert!(users.add(b"x") && !users.add(b"x"));
        said(&mut users, b"x", SOME);
        assert_eq!(users.may(Some(b"x")), Some(false));
        said(&mut users, b"x", ALL);
        assert_eq!(users.may(Some(b"x")), Some(true));
        said(&mut users, b"x", b"_\r\n");
        assert_eq!(users.may(Some(b"x")), Some(false));
        said(&mut users, b"default", SOME);
        assert_eq!(users.may(None), Some(false));
    }

    #[test]
    fn without_the_right_to_ask_the_own_user_alone_is_served() {
        let mut users = Users::new(true);
        users.own(b"me");
        said(&mut users, b"default", b"-NOPERM no\r\n");
        assert_eq!((users.may(Some(b"me")), users.may(None)), (Some(true), Some(false)));
        assert!(users.is_own(b"me") && users.is_open() && users.open_at() == 1);
    }
}
