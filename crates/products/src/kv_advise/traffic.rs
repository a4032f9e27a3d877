//! Commands from either kind of input: classified, counted, and given to the simulation.

use super::Question;
use super::record::{Advice, Class as Row, Hot, Input, Keys, SCHEMA, Size};
use super::rule::recommend;
use super::simulate::Simulation;
use super::skew::skew;
use super::tally::{Done, Tally};
use overbank_kv::proxy::commands::{Access, Class, Command, Commands, GET, ReplyMode};
use overbank_kv::proxy::form::{KEY_MAX, normalise};
use overbank_kv::proxy::heat::EPOCH;
use overbank_wire::resp::Request;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Connections whose state is known, and clients that are counted.
const CLIENTS_MAX: usize = 1 << 16;
/// Seed of evictions in the simulation.
const SEED: u64 = 1;

/// Classes of commands, in their order.
const CLASSES: [&str; 4] = ["cacheable_reads", "other_reads", "writes", "rest"];

/// Where a command comes from.
#[derive(Clone, Copy, Debug)]
pub struct From {
    pub client: u64,
    /// The database, if the input says it; otherwise SELECT is followed.
    pub db: Option<u32>,
    pub is_script: bool,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    db: u32,
    in_multi: bool,
    watches: bool,
    tracks: bool,
    /// Its replies cannot be counted.
    is_loose: bool,
}

impl State {
    /// Returns whether a proxy may answer its reads.
    fn is_plain(self) -> bool {
        State { db: 0, ..self } == State::default()
    }

    fn after(mut self, class: Class<'_>) -> State {
        match class {
            Class::Multi => self.in_multi = true,
            Class::Exec | Class::Discard => (self.in_multi, self.watches) = (false, false),
            Class::Watch => self.watches = true,
            Class::Unwatch => self.watches = false,
            Class::Reset => self = State::default(),
            // A number that Redis refuses changes nothing.
            Class::Select(db) => self.db = db.unwrap_or(self.db),
            Class::ClientTracking(on) => self.tracks = on,
            Class::ClientReply(mode) => self.is_loose = mode == ReplyMode::Off,
            Class::Monitor | Class::Sync => self.is_loose = true,
            _ => {}
        }
        self
    }
}

/// All that was seen.
pub struct Traffic {
    table: Arc<Commands>,
    tally: Tally,
    simulation: Simulation,
    states: HashMap<u64, State>,
    clients: HashSet<u64>,
    pub commands: u64,
    pub script_calls: u64,
    closing: u64,
    classes: [u64; 4],
    /// Nanoseconds of all inputs before this one.
    time_before: u64,
    /// Times of the first and last command of this one.
    span: Option<(u64, u64)>,
    /// The second of the last command, its commands, and the most of any second.
    second: (u64, u64),
    peak: u64,
    /// Lent to each command.
    keys: Vec<(u64, usize, Access)>,
    hashes: Vec<u64>,
    form: Vec<u8>,
}

impl Traffic {
    pub fn new(question: &Question) -> Traffic {
        Traffic {
            table: Commands::builtin(),
            tally: Tally::new(question.keys_max, question.secret),
            simulation: Simulation::new(&question.entries, SEED),
            states: HashMap::new(),
            clients: HashSet::new(),
            commands: 0,
            script_calls: 0,
            closing: 0,
            classes: [0; 4],
            time_before: 0,
            span: None,
            second: (0, 0),
            peak: 0,
            keys: Vec::new(),
            hashes: Vec::new(),
            form: Vec::new(),
        }
    }

    /// An input begins; it follows the last one, whatever its times.
    pub fn begin(&mut self) {
        if let Some((first, last)) = self.span.take() {
            self.time_before = self.time_before.saturating_add(last - first);
        }
    }

    /// Returns the time between the first and the last command of this input.
    pub fn input_seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// A connection begins anew.
    pub fn connected(&mut self, client: u64) {
        self.states.remove(&client);
    }

    /// Returns the time since the first command of all; it never goes back.
    fn time(&mut self, at: u64) -> u64 {
        let (first, last) = self.span.get_or_insert((at, at));
        *last = at.max(*last);
        self.time_before.saturating_add(*last - *first)
    }

    /// Takes a command of a time in nanoseconds.
    pub fn command(&mut self, at: u64, from: From, request: &Request<'_>) {
        if request.is_empty() {
            return;
        }
        let now = self.time(at);
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let table = self.table.clone();
        let command = table.find(request);
        let class = command.class(request);
        command.keys(request, |index, access| {
            keys.push((xxh3_64(request.arg(index).unwrap_or_default()), index, access));
        });
        // A key that is written and read is written.
        keys.sort_unstable_by_key(|(hash, _, access)| (*hash, !access.writes()));
        keys.dedup_by_key(|(hash, ..)| *hash);
        if from.is_script {
            self.of_script(now, class, &keys);
        } else {
            self.of_client(now, from, (command, class), request, &keys);
        }
        self.keys = keys;
    }

    /// A script's call: the proxy does not see it, but learns of its writes.
    fn of_script(&mut self, now: u64, class: Class<'_>, keys: &[(u64, usize, Access)]) {
        self.script_calls += 1;
        for (hash, ..) in keys.iter().filter(|(.., access)| access.writes()) {
            self.simulation.write(now, *hash);
        }
        if matches!(class, Class::Close) {
            self.simulation.close(now);
        }
    }

    fn of_client(
        &mut self,
        now: u64,
        from: From,
        (command, class): (&Command, Class<'_>),
        request: &Request<'_>,
        keys: &[(u64, usize, Access)],
    ) {
        self.count(now, from.client);
        let state = self.states.get(&from.client).copied().unwrap_or_default();
        let writes = keys.iter().any(|(.., access)| access.writes());
        let nth = match class {
            Class::Cacheable(_) => {
                let db = from.db.unwrap_or(state.db);
                let is_read = state.is_plain() && self.read(now, db, command, request);
                usize::from(!is_read)
            }
            Class::Read | Class::Script { is_read_only: true } => 1,
            Class::Write | Class::Script { .. } => 2,
            Class::Blocking if writes => 2,
            Class::Blocking if !keys.is_empty() => 1,
            _ => 3,
        };
        if let Some(count) = self.classes.get_mut(nth) {
            *count += 1;
        }
        if matches!(class, Class::Close | Class::Acl) {
            self.closing += 1;
            self.simulation.close(now);
        }
        for &(hash, index, access) in keys {
            let done = match (access.writes(), nth) {
                (true, _) => Done::Write,
                (_, 0) => Done::Read,
                _ => Done::OtherRead,
            };
            if done == Done::Write {
                self.simulation.write(now, hash);
            }
            self.tally.add(hash, request.arg(index).unwrap_or_default(), done);
        }
        let after = state.after(class);
        if after == State::default() {
            self.states.remove(&from.client);
        } else if after != state && self.states.len() < CLIENTS_MAX {
            self.states.insert(from.client, after);
        }
    }

    /// Gives a read to the simulation; returns whether a proxy may cache it.
    fn read(&mut self, now: u64, db: u32, command: &Command, request: &Request<'_>) -> bool {
        let is_mget = command.name() == "mget";
        let form = match is_mget {
            true => Some(std::slice::from_ref(&GET)),
            false => normalise(command, request, &mut self.form),
        };
        let Some(form) = form else { return false };
        let form = xxh3_64_with_seed(form, db.into());
        self.hashes.clear();
        let count = if is_mget { usize::MAX } else { 1 };
        for key in request.args().skip(1).take(count) {
            if key.len() > KEY_MAX {
                return false;
            }
            self.hashes.push(xxh3_64(key));
        }
        self.simulation.read(now, &self.hashes, form);
        true
    }

    fn count(&mut self, now: u64, client: u64) {
        self.commands += 1;
        if self.clients.len() < CLIENTS_MAX {
            self.clients.insert(client);
        }
        let second = now / EPOCH;
        self.second = match self.second {
            (last, count) if last == second => (last, count + 1),
            _ => (second, 1),
        };
        self.peak = self.peak.max(self.second.1);
    }

    /// Returns the advice.
    pub fn advice(mut self, inputs: Vec<Input>, interrupted: bool, question: &Question) -> Advice {
        self.begin();
        let seconds = self.time_before as f64 / 1e9;
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let commands = self.commands;
        let classes = CLASSES.into_iter().zip(self.classes).map(|(class, count)| Row {
            class,
            commands: count,
            share: share(count, commands),
            per_second: per_second(count),
        });
        let cacheable = self.classes[0];
        let sizes: Vec<Size> = self
            .simulation
            .answered()
            .map(|(entries, done)| {
                let moved = (done.promoted, done.evicted);
                Size::of(entries, done.hits, done.fills, moved, (cacheable, commands))
            })
            .collect();
        let accesses = self.tally.accesses();
        let hot = self.tally.hottest(question.top).into_iter().map(|key| Hot {
            key: key.name.escape_ascii().to_string(),
            cut: key.cut,
            accesses: key.accesses(),
            share: share(key.accesses(), accesses),
            per_second: per_second(key.accesses()),
            reads: key.reads,
            other_reads: key.other_reads,
            writes: key.writes,
            missed: key.missed,
        });
        Advice {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            inputs,
            interrupted,
            commands,
            seconds,
            per_second: per_second(commands),
            peak_per_second: self.peak,
            clients: self.clients.len() as u64,
            classes: classes.collect(),
            closing: self.closing,
            script_calls: self.script_calls,
            keys: Keys {
                distinct: self.tally.distinct(),
                accesses,
                exact: self.tally.is_exact(),
                missed: self.tally.missed(),
                names_hashed: question.secret.is_some(),
            },
            hot: hot.collect(),
            skew: skew(&self.tally),
            recommendation: recommend(commands, cacheable, seconds, &sizes),
            sizes,
        }
    }
}
