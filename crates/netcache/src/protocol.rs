//! Which protocol keeps the device right: ours, or the paper's.

use crate::agent::{Action, Agent, Answer, Settings, Totals};
use crate::{Micros, paper};
use overbank_wire::netcache::Message;

/// What decides whether the device takes a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Its stamp is that of the last write.
    #[default]
    Stamps,
    /// Its key is cached: what the paper has, and not right ([`paper`]).
    Paper,
}

/// A server's side of either protocol.
pub enum Server<P> {
    Stamps(Agent<P>),
    Paper(paper::Agent<P>),
}

impl<P: Clone> Server<P> {
    /// Returns a server's side in its run `epoch`, a number that strangers cannot guess.
    pub fn new(protocol: Protocol, settings: Settings, epoch: u64) -> Server<P> {
        match protocol {
            Protocol::Stamps => Server::Stamps(Agent::new(settings, epoch)),
            Protocol::Paper => Server::Paper(paper::Agent::new(settings)),
        }
    }

    /// Takes a message that has come in from there.
    pub fn message(&mut self, now: Micros, from: P, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        match self {
            Server::Stamps(agent) => agent.message(now, from, said, out),
            Server::Paper(agent) => agent.message(now, from, said, out),
        }
    }

    /// Takes what the store has answered.
    pub fn stored(&mut self, now: Micros, number: u64, answer: Answer, out: &mut Vec<Action<P>>) {
        match self {
            Server::Stamps(agent) => agent.stored(now, number, answer, out),
            Server::Paper(agent) => agent.stored(now, number, answer, out),
        }
    }

    /// Repeats what was not answered; returns when to call it again.
    pub fn tick(&mut self, now: Micros, out: &mut Vec<Action<P>>) -> Micros {
        match self {
            Server::Stamps(agent) => agent.tick(now, out),
            Server::Paper(agent) => agent.tick(now, out),
        }
    }

    /// Returns whether requests are served.
    pub fn serves(&self, now: Micros) -> bool {
        match self {
            Server::Stamps(agent) => agent.serves(now),
            Server::Paper(_) => true,
        }
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        match self {
            Server::Stamps(agent) => agent.totals(),
            Server::Paper(agent) => agent.totals(),
        }
    }
}
