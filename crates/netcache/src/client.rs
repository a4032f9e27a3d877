//! A client's side of the protocol towards one server: requests that are repeated until they are
//! answered or given up.
//!
//! ```text
//!   begin ─▶ sent ─ 3 × smoothed round trip ─▶ sent ─ twice that ─▶ … ─▶ given up
//!              └──────────────── answer ────────┴──────────────▶ ended
//! ```
//!
//! # How long a request lives
//! A request is sent [`TRIES_MAX`] times at most, and never later than [`GIVE_UP_US`] after it has
//! begun. A datagram that is under way longer than [`MARGIN_US`] counts as lost. So what a server
//! receives began at most [`QUIET_US`] ago, the sum of both. Two bounds rest on that:
//!
//! - **An agent that starts over a store that has outlived another run.** The run before may have
//!   applied a write and not answered it. Its client repeats it, and the new run does not remember
//!   it: it would be applied again, perhaps after a later write of another client. So the new run
//!   serves nothing for [`QUIET_US`]. What it receives then has begun after its start, and the run
//!   before cannot have applied it.
//! - **An agent that forgets a client** which has been silent for longer than [`QUIET_US`] takes no
//!   request of it a second time.
//!
//! # Guarantees
//! - A number names one request, and at most [`WINDOW`] follow one another from the oldest open one
//!   on: a server remembers them all. [`Requests::begin`] refuses more.
//! - A request ends once. An answer to what is not open, of another key or of another kind changes
//!   nothing, and its reason is returned.
//! - An answer that the server is busy does not end a request: it is repeated as if none had come.
//! - A request that was given up has an unknown outcome: a write may have been applied.
//!
//! No I/O and no clock. Panics: none.

use crate::Micros;
use crate::agent::{Letter, WINDOW};
use overbank_wire::netcache::{Key, Message, Op, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// How often a request is sent at most.
pub const TRIES_MAX: u32 = 8;
/// The time after which a request is given up, whatever was answered.
pub const GIVE_UP_US: Micros = 3_000_000;
/// The longest time that a datagram is under way.
pub const MARGIN_US: Micros = 1_000_000;
/// The age that a request has at most when a server receives it.
pub const QUIET_US: Micros = GIVE_UP_US + MARGIN_US;

/// Bounds of the time between the first two tries: 3 × the smoothed round trip between them. The
/// lower one is above what a busy machine takes to schedule a server; the upper one leaves time for
/// five tries.
const FIRST_MIN_US: Micros = 5_000;
const FIRST_MAX_US: Micros = GIVE_UP_US / 31;
/// Round trip before any was measured.
const ROUND_TRIP_US: Micros = 5_000;

overbank_reasons::reasons! {
    /// Why an answer ends no request.
    pub enum Unmatched {
        Closed = "closed", "Answer to a request that is not open: repeated, or late";
        Client = "client", "Answer for another client";
        Key = "key", "Answer with another key than its request";
        Kind = "kind", "Message that does not answer such a request";
    }
}

/// How a request has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This is its answer: GET_OK, NOT_FOUND, WRITE_OK, or ERROR with its status.
    Answer(Letter),
    /// None came in time. The status is [`Status::Busy`] if the server was, and else
    /// [`Status::Ok`].
    GaveUp(Status),
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub request: u64,
    /// Time since it began.
    pub took_us: Micros,
    pub ended: Ended,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that began.
    pub begun: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// Answers that the server is busy.
    pub busy: u64,
    /// Requests that were given up.
    pub gave_up: u64,
}

#[derive(Clone, Debug)]
struct Open {
    letter: Letter,
    begun: Micros,
    /// When it is repeated or given up.
    due: Micros,
    /// When it was sent last, and the time until it is repeated after the next try.
    sent: Micros,
    wait_us: Micros,
    tries: u32,
    busy: bool,
}

/// The open requests of a client to one server.
#[derive(Clone, Debug)]
pub struct Requests {
    client: u64,
    last: u64,
    open: BTreeMap<u64, Open>,
    due: BTreeSet<(Micros, u64)>,
    /// 8 × the smoothed round trip.
    round_trip_8: Option<Micros>,
    totals: Totals,
}

/// Returns which of `servers` a key belongs to; the same for every client.
pub fn server_of(key: Key, servers: usize) -> usize {
    let hash = xxh3_64(&key.to_be_bytes());
    ((u128::from(hash) * servers as u128) >> 64) as usize
}

impl Requests {
    /// Returns the requests of a client that no other has the number of, and that strangers cannot
    /// guess.
    pub fn new(client: u64) -> Requests {
        Requests {
            client,
            last: 0,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            round_trip_8: None,
            totals: Totals::default(),
        }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the number of open requests.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the smoothed round trip, once one was measured.
    pub fn round_trip_us(&self) -> Option<Micros> {
        self.round_trip_8.map(|sum| sum / 8)
    }

    /// Returns whether another request may begin.
    pub fn has_room(&self) -> bool {
        self.open.first_key_value().is_none_or(|(first, _)| self.last - first < WINDOW - 1)
    }

    /// Begins a request; its [`Requests::message`] is to be sent. Returns its number, or `None`
    /// without room for another.
    pub fn begin(
        &mut self,
        now: Micros,
        (op, flags): (Op, u8),
        key: Key,
        value: Arc<[u8]>,
    ) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        self.last += 1;
        self.totals.begun += 1;
        let head = Message { flags, ..Message::new(op, self.client, self.last, key) };
        let round_trip = self.round_trip_us().unwrap_or(ROUND_TRIP_US);
        let wait_us = (3 * round_trip).clamp(FIRST_MIN_US, FIRST_MAX_US);
        let due = now + wait_us;
        let letter = Letter { head, value };
        let wait_us = 2 * wait_us;
        let open = Open { letter, begun: now, due, sent: now, wait_us, tries: 1, busy: false };
        self.open.insert(self.last, open);
        self.due.insert((due, self.last));
        Some(self.last)
    }

    /// Returns the message of an open request.
    pub fn message(&self, request: u64) -> Option<Message<'_>> {
        Some(self.open.get(&request)?.letter.message())
    }

    /// Takes a message that has come from the server. Returns the request that it ends; `None`: the
    /// server is busy, and the request is repeated.
    ///
    /// # Errors
    /// Fails if it answers no open request.
    pub fn answer(&mut self, now: Micros, said: &Message<'_>) -> Result<Option<End>, Unmatched> {
        if said.client != self.client {
            return Err(Unmatched::Client);
        }
        let open = self.open.get_mut(&said.request).ok_or(Unmatched::Closed)?;
        let asked = &open.letter.head;
        if said.key != asked.key {
            return Err(Unmatched::Key);
        }
        let fits = match said.op {
            Op::GetOk | Op::NotFound => asked.op == Op::Get,
            Op::WriteOk => asked.op.is_write(),
            Op::Error => said.status != Status::Ok,
            _ => false,
        };
        if !fits {
            return Err(Unmatched::Kind);
        }
        if (said.op, said.status) == (Op::Error, Status::Busy) {
            open.busy = true;
            self.totals.busy += 1;
            return Ok(None);
        }
        // Of a repeated request, it is unknown which try was answered. The time since the last one
        // is a lower bound, by which a round trip that has grown is learnt.
        let (sample, tries) = (now.saturating_sub(open.sent).min(GIVE_UP_US), open.tries);
        let known = self.round_trip_us();
        if tries == 1 || known.is_some_and(|known| sample > known) {
            let sum = self.round_trip_8.map(|sum| sum - sum / 8 + sample);
            self.round_trip_8 = Some(sum.unwrap_or(8 * sample));
        }
        let head = Message { value: &[], ..*said };
        let letter = Letter { head, value: said.value.into() };
        Ok(self.end(now, said.request, Ended::Answer(letter)))
    }

    /// Repeats what was not answered in time: `again` gets the requests whose messages are to be
    /// sent, `ended` those that are given up. Returns when to call it next; `None`: none is open.
    pub fn tick(
        &mut self,
        now: Micros,
        again: &mut Vec<u64>,
        ended: &mut Vec<End>,
    ) -> Option<Micros> {
        while let Some(&(due, request)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            let Some(open) = self.open.get_mut(&request) else { continue };
            let last = open.begun + GIVE_UP_US;
            if open.tries >= TRIES_MAX || now >= last {
                let status = if open.busy { Status::Busy } else { Status::Ok };
                self.totals.gave_up += 1;
                ended.extend(self.end(now, request, Ended::GaveUp(status)));
                continue;
            }
            (open.tries, open.sent) = (open.tries + 1, now);
            open.due = (now + open.wait_us).min(last);
            open.wait_us *= 2;
            self.due.insert((open.due, request));
            self.totals.repeated += 1;
            again.push(request);
        }
        self.due.first().map(|due| due.0)
    }

    fn end(&mut self, now: Micros, request: u64, ended: Ended) -> Option<End> {
        let open = self.open.remove(&request)?;
        self.due.remove(&(open.due, request));
        Some(End { request, took_us: now.saturating_sub(open.begun), ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: u64 = 7;

    fn answer(op: Op, status: Status, request: u64, key: Key) -> Message<'static> {
        Message { status, ..Message::new(op, CLIENT, request, key) }
    }

    fn begin(requests: &mut Requests, now: Micros, op: Op) -> u64 {
        requests.begin(now, (op, 0), 5, Arc::default()).expect("room")
    }

    /// Sends each request again as the clock says; returns when, and when it was given up.
    fn alone(requests: &mut Requests, mut now: Micros) -> (Vec<Micros>, Micros) {
        let mut sent = vec![now];
        loop {
            let (mut again, mut ended) = (Vec::new(), Vec::new());
            let due = requests.tick(now, &mut again, &mut ended);
            sent.extend(again.iter().map(|_| now));
            match due {
                Some(due) => now = due,
                None => return (sent, now),
            }
        }
    }

    #[test]
    fn what_is_not_answered_is_repeated_ever_more_rarely_and_given_up() {
        let mut requests = Requests::new(CLIENT);
        begin(&mut requests, 100, Op::Get);
        let (sent, end) = alone(&mut requests, 100);
        let waits: Vec<Micros> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits, [15_000, 30_000, 60_000, 120_000, 240_000, 480_000, 960_000]);
        assert_eq!(end, sent[7] + 1_920_000 - (1_905_000 + 1_920_000 - GIVE_UP_US));
        assert_eq!((requests.open(), requests.totals().gave_up), (0, 1));
        // A short round trip has been measured.
        for _ in 0..100 {
            let request = begin(&mut requests, 0, Op::Get);
            let end = requests.answer(100, &answer(Op::NotFound, Status::Ok, request, 5));
            assert!(matches!(end, Ok(Some(End { took_us: 100, .. }))));
        }
        let measured = requests.round_trip_us().expect("measured");
        assert!((95..110).contains(&measured), "{measured}");
        begin(&mut requests, 0, Op::Put);
        let (sent, end) = alone(&mut requests, 0);
        assert_eq!((sent.len(), sent[1], end), (8, FIRST_MIN_US, 255 * FIRST_MIN_US));
    }

    #[test]
    fn the_round_trip_is_learnt_under_loss_and_when_it_grows() {
        let mut requests = Requests::new(CLIENT);
        let mut now = 0;
        // A server that answers the first try, or the third: never a longer time than it takes.
        let mut ask = |requests: &mut Requests, answered: u32, takes: Micros| {
            let request = begin(requests, now, Op::Get);
            let (mut tries, mut due) = (1, now);
            let mut last = now;
            while tries < answered {
                let mut again = Vec::new();
                now = due;
                due = requests.tick(now, &mut again, &mut Vec::new()).expect("open");
                tries += again.len() as u32;
                last = if again.is_empty() { last } else { now };
            }
            now = last + takes;
            requests.answer(now, &answer(Op::NotFound, Status::Ok, request, 5)).expect("open");
        };
        for nth in 0..1000 {
            ask(&mut requests, if nth % 2 == 0 { 1 } else { 3 }, 400);
        }
        assert_eq!(requests.round_trip_us(), Some(400));
        (0..100).for_each(|_| ask(&mut requests, 3, 4000));
        assert!(requests.round_trip_us().is_some_and(|us| us > 3900));
        (0..100).for_each(|_| ask(&mut requests, 1, 400));
        assert!(requests.round_trip_us().is_some_and(|us| us < 410));
    }

    #[test]
    fn nothing_is_sent_after_the_last_moment_however_late_the_caller_is() {
        let mut requests = Requests::new(CLIENT);
        begin(&mut requests, 0, Op::Put);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        assert_eq!(requests.tick(GIVE_UP_US, &mut again, &mut ended), None);
        assert_eq!((again.len(), ended.len()), (0, 1));
        assert_eq!(ended[0].ended, Ended::GaveUp(Status::Ok));
    }

    #[test]
    fn answers_end_their_request_once_and_others_are_named() {
        let mut requests = Requests::new(CLIENT);
        let get = begin(&mut requests, 0, Op::Get);
        let put = begin(&mut requests, 0, Op::Put);
        for (said, why) in [
            (Message { client: 8, ..answer(Op::GetOk, Status::Ok, get, 5) }, Unmatched::Client),
            (answer(Op::GetOk, Status::Ok, 77, 5), Unmatched::Closed),
            (answer(Op::GetOk, Status::Ok, get, 6), Unmatched::Key),
            (answer(Op::WriteOk, Status::Ok, get, 5), Unmatched::Kind),
            (answer(Op::NotFound, Status::Ok, put, 5), Unmatched::Kind),
            (answer(Op::Error, Status::Ok, put, 5), Unmatched::Kind),
            (answer(Op::Update, Status::Ok, put, 5), Unmatched::Kind),
        ] {
            assert_eq!(requests.answer(9, &said), Err(why));
        }
        assert_eq!(requests.answer(9, &answer(Op::Error, Status::Busy, put, 5)), Ok(None));
        let said = Message { value: b"v", ..answer(Op::GetOk, Status::Ok, get, 5) };
        let end = requests.answer(9, &said).expect("open").expect("not busy");
        assert!(matches!(end.ended, Ended::Answer(letter) if letter.message() == said));
        assert_eq!(requests.answer(9, &said), Err(Unmatched::Closed));
        let (sent, _) = alone(&mut requests, 9);
        assert_eq!(sent.len(), 8, "the busy server is asked again");
        assert_eq!((requests.totals().busy, requests.open()), (1, 0));
    }

    #[test]
    fn open_requests_are_within_what_a_server_remembers() {
        let mut requests = Requests::new(CLIENT);
        let first = begin(&mut requests, 0, Op::Put);
        // All but the first end at once.
        let last = loop {
            let Some(request) = requests.begin(0, (Op::Put, 0), 5, Arc::default()) else {
                break requests.last;
            };
            let said = answer(Op::WriteOk, Status::Ok, request, 5);
            requests.answer(0, &said).expect("open");
        };
        assert_eq!(last - first, WINDOW - 1, "the last one that it remembers beside the first");
        requests.answer(0, &answer(Op::WriteOk, Status::Ok, first, 5)).expect("open");
        assert!(requests.has_room());
    }

    proptest! {
        /// A naive list of what is open, and what ticks and answers must do to it.
        #[test]
        fn requests_end_as_a_naive_list_says(
            steps in prop::collection::vec((0..4u8, 0..40u64, 0..400_000u64), 1..200),
        ) {
            let mut requests = Requests::new(CLIENT);
            let (mut open, mut now) = (Vec::<(u64, Micros, u32)>::new(), 0);
            for (kind, which, pause) in steps {
                now += pause;
                let (mut again, mut ended) = (Vec::new(), Vec::new());
                requests.tick(now, &mut again, &mut ended);
                for request in again {
                    let of = open.iter_mut().find(|of| of.0 == request).expect("open");
                    of.2 += 1;
                    prop_assert!(of.2 <= TRIES_MAX && now < of.1 + GIVE_UP_US);
                }
                for end in ended {
                    let at = open.iter().position(|of| of.0 == end.request).expect("open");
                    let (_, begun, tries) = open.swap_remove(at);
                    prop_assert!(tries == TRIES_MAX || now >= begun + GIVE_UP_US);
                    prop_assert_eq!(end.took_us, now - begun);
                }
                if kind == 0 {
                    open.push((begin(&mut requests, now, Op::Put), now, 1));
                } else {
                    let said = answer(Op::WriteOk, Status::Ok, which, 5);
                    let at = open.iter().position(|of| of.0 == which);
                    at.map(|at| open.swap_remove(at));
                    let end = requests.answer(now, &said);
                    prop_assert_eq!(end.is_ok(), at.is_some());
                }
                prop_assert_eq!(requests.open(), open.len());
            }
        }
    }

    /// A write that was applied and not answered, the agent's next run over the same store, and a
    /// later write of another client. Returns what the store was asked to write, in its order.
    fn restarted(quiet_us: Micros, crash: Micros, later: Micros) -> Vec<u8> {
        use crate::agent::{Action, Agent, Answer, Ask, Settings};
        let settings = Settings { quiet_us, ..Settings::DEFAULT };
        let mut agent = Agent::<u64>::alone(settings, 1);
        let (mut clients, mut written) = ([1, 2].map(Requests::new), Vec::new());
        // The first run, which has no quiet time; then its clock starts anew.
        let mut started = None;
        for now in (0..2 * QUIET_US).step_by(1000) {
            if now == crash {
                (agent, started) = (Agent::alone(settings, 2), Some(now));
            }
            let mut send = Vec::new();
            for (client, begins) in [(0, 0), (1, later)] {
                let requests = &mut clients[client];
                if now == begins {
                    let value = Arc::new([client as u8 + 1]);
                    send.push((client, requests.begin(now, (Op::Put, 0), 5, value).expect("room")));
                }
                let mut again = Vec::new();
                requests.tick(now, &mut again, &mut Vec::new());
                send.extend(again.into_iter().map(|request| (client, request)));
            }
            for (client, request) in send {
                let Some(message) = clients[client].message(request) else { continue };
                let clock = started.map_or(QUIET_US, |started| now - started);
                let mut out = Vec::new();
                agent.message(clock, 1, &message, &mut out);
                let mut answers = Vec::new();
                for action in out {
                    match action {
                        Action::Store { number, ask: Ask::Write(value), .. } => {
                            written.push(value.expect("a value")[0]);
                            agent.stored(clock, number, Answer::Written, &mut answers);
                        }
                        other => answers.push(other),
                    }
                }
                for action in answers {
                    // The first run's answers are lost.
                    if let (Action::Reply(_, letter), Some(_)) = (action, started) {
                        clients[client].answer(now, &letter.message()).expect("open");
                    }
                }
            }
        }
        written
    }

    #[test]
    fn a_quiet_time_keeps_a_write_from_being_applied_by_two_runs() {
        let mut twice = 0;
        for crash in (0..GIVE_UP_US).step_by(333_000).map(|at| at + 1000) {
            for later in (0..2 * GIVE_UP_US).step_by(333_000).map(|at| at + 2000) {
                let written = restarted(QUIET_US, crash, later);
                let first = written.iter().filter(|value| **value == 1).count();
                assert_eq!((first, written.last() == Some(&1)), (1, !written.contains(&2)));
                twice += u32::from(restarted(0, crash, later).ends_with(&[2, 1]));
            }
        }
        assert!(twice > 0, "without it, an older write replaces a later one");
    }

    #[test]
    fn keys_are_spread_over_servers() {
        let mut counts = [0u32; 7];
        (0..70_000u128).for_each(|key| counts[server_of(key, 7)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(server_of(u128::MAX, 1), 0);
    }
}
