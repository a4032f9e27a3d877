//! Sessions and followers of either protocol, with the same few methods.

use super::buffer::Out;
use super::core::{Fills, Lost, Nanos};
use super::form::Form;
use super::session::{End, NoReply, Place, Turn};
use super::slots::{Closing, SlotId};
use super::upstream::Protocol;
use super::{memcached, session};

/// Calls the same of either.
macro_rules! either {
    ($kind:ident, $it:expr, $inner:ident => $call:expr) => {
        match $it {
            $kind::Redis($inner) => $call,
            $kind::Memcached($inner) => $call,
        }
    };
}

/// A client's connection.
pub enum Session {
    Redis(session::Session),
    Memcached(memcached::Session),
}

impl Session {
    /// Returns the session of a new client.
    pub fn new(protocol: Protocol, place: Place) -> Session {
        match protocol {
            Protocol::Redis => Session::Redis(session::Session::new(place)),
            Protocol::Memcached => Session::Memcached(memcached::Session::new()),
        }
    }

    pub fn for_client(&mut self) -> &mut Out {
        either!(Session, self, it => &mut it.to_client)
    }

    pub fn for_server(&mut self) -> &mut Out {
        either!(Session, self, it => &mut it.to_server)
    }

    pub fn end(&self) -> Option<End> {
        either!(Session, self, it => it.end)
    }

    pub fn takes_client(&self) -> bool {
        either!(Session, self, it => it.takes_client())
    }

    pub fn takes_server(&self) -> bool {
        either!(Session, self, it => it.takes_server())
    }

    pub fn owes_nothing(&self) -> bool {
        either!(Session, self, it => it.owes_nothing())
    }

    pub fn blocks(&self) -> bool {
        either!(Session, self, it => it.blocks())
    }

    pub fn client(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        either!(Session, self, it => it.client(bytes, turn));
    }

    pub fn server(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), NoReply> {
        either!(Session, self, it => it.server(bytes, turn))
    }

    pub fn resume(&mut self, turn: &mut Turn<'_>) -> bool {
        either!(Session, self, it => it.resume(turn))
    }

    pub fn lost(&mut self, turn: &mut Turn<'_>) {
        either!(Session, self, it => it.lost(turn));
    }

    /// Returns where the client's commands go: those of memcached on a separate connection.
    pub fn place(&self) -> Place {
        match self {
            Session::Redis(redis) => redis.place(),
            Session::Memcached(_) => Place::Own,
        }
    }

    /// The client has a separate connection from here on.
    pub fn own(&mut self) {
        if let Session::Redis(redis) = self {
            redis.own();
        }
    }

    pub fn is_three(&self) -> bool {
        matches!(self, Session::Redis(redis) if redis.is_three())
    }

    /// Returns the replies that the server owes.
    pub fn owed(&self) -> u64 {
        either!(Session, self, it => it.owed())
    }
}

/// What follows the server.
pub enum Follower {
    Redis(super::core::Follower),
    Memcached(memcached::Follower),
}

impl Follower {
    pub fn fills(&mut self) -> &mut Fills {
        either!(Follower, self, it => &mut it.fills)
    }

    pub fn out(&mut self) -> &mut Out {
        either!(Follower, self, it => &mut it.out)
    }

    pub fn connected(&mut self, now: Nanos) {
        either!(Follower, self, it => it.connected(now));
    }

    pub fn bytes(&mut self, now: Nanos, bytes: &[u8]) -> Result<(), Lost> {
        either!(Follower, self, it => it.bytes(now, bytes))
    }

    pub fn tick(&mut self, now: Nanos) -> Result<(), Lost> {
        either!(Follower, self, it => it.tick(now))
    }

    pub fn lost(&mut self) {
        either!(Follower, self, it => it.lost());
    }

    pub fn want(&mut self, now: Nanos, key: (u128, &[u8]), form: &Form, is_hot: bool) {
        either!(Follower, self, it => it.want(now, key, form, is_hot));
    }

    pub fn changed(&mut self, now: Nanos, slot: SlotId) {
        either!(Follower, self, it => it.changed(now, slot));
    }

    pub fn replied(&mut self, closing: Closing) {
        either!(Follower, self, it => it.replied(closing));
    }
}
