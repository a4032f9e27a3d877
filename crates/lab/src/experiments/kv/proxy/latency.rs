//! Times of hot and cold keys, of a new key's first hit, and memory with many clients.

use super::*;
use overbank_kit::awake::Awake;
use overbank_kv::load::{Done, quantile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Read, Write};
use std::net::TcpStream;

pub const KVLATENCY: Experiment = Experiment {
    name: "kvlatency",
    title: "A proxy before Redis: times of replies, time to the first hit, and memory",
    source: SOURCE,
    run,
};

/// Requests a second of the slow server, an input, and what it is offered.
const RATE: f64 = 2000.0;
const OFFERED: f64 = 1.5;
/// Connections of an open loop: a request has to wait for one only if all wait for replies.
const POOL: usize = 256;
/// Time that the far server's requests are held. A reply within half of it is a hit.
const DELAY: Duration = Duration::from_millis(5);
/// Requests a second while new keys become hot; one of this number is the hot key's.
const FAR_RATE: f64 = 2000.0;
const HOT_ONE_OF: u64 = 10;
/// Bytes of the values of the proxy with many clients.
const LONG_LEN: usize = 4096;
/// Descriptors of this process beside those of idle clients.
const OTHER_FILES: u64 = 200;

struct Sizes {
    keys: u32,
    lead: Duration,
    time: Duration,
    rounds: usize,
    round: Duration,
    new_keys: u64,
    each: Duration,
    clients: usize,
    long_keys: u64,
}

/// Times of a slow server's replies through the proxy, in µs: medians and 99th percentiles.
struct Times {
    hot: [f64; 2],
    cold: [f64; 2],
    /// The share of the cores that other programs, and the host, have taken.
    others: f64,
}

/// What a slow server does.
struct Flood {
    /// While cores halt that have no work, and while they are kept awake.
    halting: Times,
    awake: Times,
    /// Medians of the server alone, in the first and the last fourth of the time.
    alone: [f64; 2],
    unanswered: usize,
}

struct Memory {
    clients: usize,
    cached_bytes: u64,
    /// Resident bytes without clients, and with them.
    resident: [u64; 2],
}

impl Memory {
    fn limit(&self) -> f64 {
        64.0 * MIB + 1.2 * self.cached_bytes as f64
    }
}

const MIB: f64 = 1024.0 * 1024.0;

struct All {
    flood: Flood,
    /// Median times of a cold key's reply in µs, by round: from Redis, and through the proxy.
    cold: [Vec<f64>; 2],
    /// Time from a new key's first request to its first hit, in ms; none: there was none.
    first_hits: Vec<Option<f64>>,
    memory: Memory,
}

const CLAIMS: &[Claim<All>] = &[
    Claim::timed(
        "the hot key's 99th percentile at 1.5 × the server's rate",
        "2 ms",
        |of: &All| {
            let [_, p99] = of.flood.awake.hot;
            Finding::new(p99 <= 2000.0, format!("{:.2} ms", p99 / 1e3))
        },
    ),
    Claim::new("the server alone: requests wait longer and longer", "diverges", |of: &All| {
        let [first, last] = of.flood.alone;
        let text = format!("{:.0} ms, then {:.0} ms", first / 1e3, last / 1e3);
        Finding::new(last >= 2.0 * first && of.flood.unanswered > 0, text)
    }),
    Claim::timed("what the proxy adds to a cold key's median", "at most 60 µs", |of: &All| {
        let [alone, proxy] = &of.cold;
        let more = Spread::of_differences(proxy.iter().copied(), alone.iter().copied());
        let Spread { median, low, high } = more;
        Finding::new(median <= 60.0, format!("{median:.0} µs ({low:.0} to {high:.0})"))
    }),
    Claim::new("every new hot key is hit", "all", |of: &All| {
        let found = of.first_hits.iter().flatten().count();
        Finding::new(found == of.first_hits.len(), format!("{found} of {}", of.first_hits.len()))
    }),
    Claim::timed("from a new hot key's first request to its first hit", "150 ms", |of: &All| {
        let times = Spread::of(of.first_hits.iter().flatten().copied());
        let text = format!("{:.0} ms ({:.0} to {:.0})", times.median, times.low, times.high);
        Finding::new(times.median <= 150.0, text)
    }),
    Claim::new("memory with idle clients", "64 MiB + 1.2 × cached bytes", |of: &All| {
        let Memory { resident: [_, with], clients, .. } = of.memory;
        let (with, limit) = (with as f64 / MIB, of.memory.limit() / MIB);
        let text = format!("{with:.1} of {limit:.1} MiB, {clients} clients");
        Finding::new(with <= limit, text)
    }),
];

/// Half of the requests are for one key, half for all others, more than the server can take: with
/// a proxy before it, or alone. Returns what others took of the cores, too.
fn slow(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    redis: &Server,
    is_alone: bool,
) -> Result<(Seen, f64), LabError> {
    context.step(if is_alone { "the slow server alone" } else { "the slow server" }, 0.0)?;
    let limit = Limit { rate: RATE, delay: Duration::ZERO };
    let relay = Relay::start(place, &[redis.address], limit)?;
    let proxy = match is_alone {
        true => None,
        false => Some(Server::proxy(place, relay.addresses[0], &[("max-age", MAX_AGE)])?),
    };
    let targets = [proxy.as_ref().map_or(relay.addresses[0], |proxy| proxy.address)];
    let plan = Plan {
        targets: &targets,
        connections: POOL,
        pace: Pace::Open(OFFERED * RATE),
        time: sizes.lead + sizes.time,
        stop: context.stop,
    };
    let mut others = draws(sizes.keys - 1, 0.0, context.seed)?;
    let mut is_hot = false;
    let servers: Vec<&Server> = proxy.iter().chain([redis]).collect();
    place.shared(context, &plan, &servers, |out| {
        is_hot = !is_hot;
        load::get(if is_hot { 0 } else { u64::from(others.next_flow()) + 1 }, out);
        Some(Batch { target: 0, requests: 1, kind: u32::from(is_hot) })
    })
}

/// Measures a slow server; returns what keeps the cores awake from then on, or why nothing does.
/// Nothing does at smoke size, where other programs may compute.
fn flood(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    redis: &Server,
) -> Result<(Flood, Option<io::Result<Awake>>), LabError> {
    let times = |(seen, others): (Seen, f64)| {
        let [cold, hot] = [0, 1].map(|kind: u32| {
            let of = || seen.after(sizes.lead).filter(move |done| done.kind == kind);
            [quantile(of(), 0.5), quantile(of(), 0.99)]
        });
        Times { hot, cold, others }
    };
    let halting = times(slow(context, place, sizes, redis, false)?);
    let kept = (!context.smoke()).then(|| Awake::keep(&place.cores));
    let awake = times(slow(context, place, sizes, redis, false)?);
    let (alone, others) = slow(context, place, sizes, redis, true)?;
    valid(context, awake.others.max(others))?;
    let fourth = alone.time.as_nanos() as u64 / 4;
    let median = |nth: u64| {
        let in_it = move |done: &&Done| done.end() / fourth.max(1) == nth;
        quantile(alone.done.iter().filter(in_it), 0.5)
    };
    let (unanswered, alone) = (alone.unanswered, [median(0), median(3)]);
    Ok((Flood { halting, awake, alone, unanswered }, kept))
}

/// One client asks for keys of which almost none is cached.
fn cold(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    redis: &Server,
) -> Result<[Vec<f64>; 2], LabError> {
    let proxy = Server::proxy(place, redis.address, &[("entries", "100")])?;
    let addresses = [redis.address, proxy.address];
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..2 * sizes.rounds {
        let round = turn / 2;
        let nth = (turn + round) % 2;
        context.step("cold keys", turn as f64 / (2 * sizes.rounds) as f64)?;
        let plan = Plan {
            targets: &addresses[nth..=nth],
            connections: 1,
            pace: Pace::Closed(1),
            time: sizes.round,
            stop: context.stop,
        };
        let mut keys = draws(sizes.keys, 0.0, context.seed + round as u64)?;
        let next = gets(1, || u64::from(keys.next_flow()));
        let seen = place.timed(context, &plan, &[redis, &proxy], next)?;
        times[nth].push(quantile(seen.after(sizes.round / 4), 0.5));
    }
    Ok(times)
}

/// One of ten requests is for a key that no one has asked for before; after a while, another one.
fn first_hits(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    redis: &Server,
) -> Result<Vec<Option<f64>>, LabError> {
    context.step("new hot keys", 0.0)?;
    let limit = Limit { rate: 1e6, delay: DELAY };
    let relay = Relay::start(place, &[redis.address], limit)?;
    // Full, so that a new key has to displace one.
    let proxy = Server::proxy(place, relay.addresses[0], &[("entries", "100")])?;
    let each = (sizes.each.as_secs_f64() * FAR_RATE) as u64;
    let lead = (sizes.lead.as_secs_f64() * FAR_RATE) as u64;
    let targets = [proxy.address];
    let plan = Plan {
        targets: &targets,
        connections: POOL,
        pace: Pace::Open(FAR_RATE),
        time: sizes.lead + sizes.each * sizes.new_keys as u32,
        stop: context.stop,
    };
    let mut others = draws(sizes.keys, THETA, context.seed)?;
    let mut nth = 0;
    let seen = place.load(&plan, |out| {
        nth += 1;
        let new = (nth > lead && nth % HOT_ONE_OF == 0).then(|| (nth - lead) / each + 1);
        // Absent keys: nothing is asked for them but here, and nil is cached as all else.
        let hot = new.map(|new| u64::from(sizes.keys) + new);
        load::get(hot.unwrap_or_else(|| u64::from(others.next_flow())), out);
        Some(Batch { target: 0, requests: 1, kind: new.unwrap_or(0) as u32 })
    })?;
    let seen = whole(context, seen)?;
    let is_hit = |done: &Done| Duration::from_nanos(done.took) < DELAY / 2;
    let of = |new: u32| {
        let all = || seen.done.iter().filter(move |done| done.kind == new);
        let first = all().map(|done| done.due).min()?;
        let hit = all().filter(|done| is_hit(done)).map(Done::end).min()?;
        Some((hit - first) as f64 / 1e6)
    };
    Ok((1..=sizes.new_keys as u32).map(of).collect())
}

/// Raises this process' limit of descriptors, which its children inherit.
fn allow_files(clients: usize) -> Result<(), LabError> {
    let needed = clients as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let most = maximum.unwrap_or(needed);
    let raised = Rlimit { current: Some(most.max(needed)), maximum: Some(most.max(needed)) };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        LabError::Failed(format!(
            "{clients} clients need {needed} descriptors, this process may have {most}: raise \
             `ulimit -Hn` ({error})"
        ))
    })
}

fn memory(context: &mut Context<'_>, place: &Place<'_>, sizes: &Sizes) -> Result<Memory, LabError> {
    context.step("idle clients", 0.0)?;
    allow_files(sizes.clients)?;
    let redis = Server::redis(place)?;
    redis.fill(context, 0..sizes.long_keys, LONG_LEN)?;
    let proxy = Server::proxy(place, redis.address, &[("clients", "20000")])?;
    let targets = [proxy.address];
    let plan = Plan {
        targets: &targets,
        connections: CLIENTS,
        pace: Pace::Closed(CLIENTS),
        time: sizes.lead + Duration::from_secs(1),
        stop: context.stop,
    };
    let mut keys = draws(sizes.long_keys as u32, 0.0, context.seed)?;
    let seen = place.load(&plan, gets(1, || u64::from(keys.next_flow())))?;
    whole(context, seen)?;
    let before = proxy.process.resident_bytes()?;
    let client = |number: usize| {
        let mut stream = TcpStream::connect(proxy.address)?;
        let mut request = Vec::new();
        load::get(number as u64 % sizes.long_keys, &mut request);
        stream.write_all(&request)?;
        stream.read_exact(&mut vec![0; LONG_LEN])?;
        Ok::<TcpStream, io::Error>(stream)
    };
    let clients = (0..sizes.clients).map(client).collect::<Result<Vec<_>, _>>();
    let clients = clients.map_err(|error| LabError::Failed(format!("idle clients: {error}")))?;
    // What was read of them is counted, and released, a moment later.
    thread::sleep(Duration::from_millis(500));
    let [cached_bytes, connected] = proxy.counts(["cached_bytes", "clients"])?;
    let resident = [before, proxy.process.resident_bytes()?];
    if connected != clients.len() as u64 {
        return Err(LabError::Failed(format!("{connected} of {} clients", clients.len())));
    }
    Ok(Memory { clients: clients.len(), cached_bytes, resident })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let place = Place::of(context)?;
    let (s, ms) = (Duration::from_secs, Duration::from_millis);
    let sizes = match context.smoke() {
        true => Sizes {
            keys: 5_000,
            lead: ms(500),
            time: ms(700),
            rounds: 1,
            round: ms(100),
            new_keys: 2,
            each: ms(500),
            clients: 100,
            long_keys: 50,
        },
        false => Sizes {
            keys: KEYS,
            lead: s(5),
            time: s(20),
            rounds: 7,
            round: s(2),
            new_keys: 40,
            each: s(1),
            clients: 10_000,
            long_keys: 4_000,
        },
    };
    let redis = Server::redis(&place)?;
    redis.fill(context, 0..u64::from(sizes.keys), VALUE_LEN)?;
    let (flood, awake) =
        context.part((0.0, 0.45), |context| flood(context, &place, &sizes, &redis))?;
    let cold = context.part((0.45, 0.6), |context| cold(context, &place, &sizes, &redis))?;
    let first_hits =
        context.part((0.6, 0.9), |context| first_hits(context, &place, &sizes, &redis))?;
    let memory = context.part((0.9, 1.0), |context| memory(context, &place, &sizes))?;
    let all = All { flood, cold, first_hits, memory };
    let mut record = KVLATENCY.record(context);
    place.describe(&mut record);
    let cores = match &awake {
        Some(Ok(_)) => "kept awake".to_owned(),
        Some(Err(error)) => format!("could not be kept awake: {error}"),
        None => "as they are".to_owned(),
    };
    record.setting("cores", cores);
    record.setting("keys", sizes.keys);
    record.setting("requests/s of the slow server (input)", RATE);
    record.setting("offered", format!("{:.0} requests/s", OFFERED * RATE));
    record.setting("delay of the far server (input)", format!("{} ms", DELAY.as_millis()));
    record.setting("requests/s to the far server", FAR_RATE);
    record.judge("", CLAIMS, &all);
    report(&mut record, &all);
    Ok(record)
}

fn report(record: &mut Record, all: &All) {
    let ms = |us: f64| format!("{:.2}", us / 1e3);
    let Flood { halting, awake, alone, .. } = &all.flood;
    let mut table = Table::new(
        "A slow server at 1.5 × its rate, open loop: ms",
        ["cores without work", "keys", "median", "99th percentile", "of the cores, others took"],
    );
    for (cores, of) in [("awake", awake), ("halt", halting)] {
        for (keys, [median, p99]) in [("hot", of.hot), ("cold", of.cold)] {
            let others = percent(of.others, 1);
            table.row([cores.to_owned(), keys.to_owned(), ms(median), ms(p99), others]);
        }
    }
    record.tables.push(table);
    let mut table = Table::new(
        "The slow server alone: median in ms",
        ["first fourth of the time", "last fourth"],
    );
    table.row(alone.map(ms));
    record.tables.push(table);
    let mut table =
        Table::new("A cold key, one client: median in µs", ["Redis", "proxy", "difference"]);
    let spread = |nth: usize| Spread::of(all.cold[nth].iter().copied()).cell(1);
    let more = Spread::of_differences(all.cold[1].iter().copied(), all.cold[0].iter().copied());
    table.row([spread(0), spread(1), more.cell(1)]);
    record.tables.push(table);
    let times = Spread::of(all.first_hits.iter().flatten().copied());
    let mut table = Table::new(
        "From a new hot key's first request to its first hit",
        ["new keys", "hit", "ms"],
    );
    let hit = all.first_hits.iter().flatten().count();
    table.row([all.first_hits.len().to_string(), hit.to_string(), times.cell(0)]);
    record.tables.push(table);
    let Memory { clients, cached_bytes, resident } = &all.memory;
    let mib = |bytes: f64| format!("{:.1}", bytes / MIB);
    let mut table = Table::new(
        "Memory of the proxy, MiB",
        ["idle clients", "cached bytes", "resident without clients", "resident", "limit"],
    );
    table.row([
        clients.to_string(),
        mib(*cached_bytes as f64),
        mib(resident[0] as f64),
        mib(resident[1] as f64),
        mib(all.memory.limit()),
    ]);
    record.tables.push(table);
    record.note(
        "Slow server: half of the requests are for one key, half for all others, evenly; a relay \
         passes on 2,000 requests a second. Alone, the server is offered 1.5 times what it takes; \
         through the proxy, three quarters. Times count from when a request was due.",
    );
    record.note(
        "Cores are kept awake by threads that run where nothing else does, but in the rows that say \
         so: a core that has halted is woken by the host of a virtual machine. What others took is \
         the time of the cores that neither this experiment nor its servers used, as the kernel \
         counts it: some kernels count what the host has taken as a thread's own.",
    );
    record.note(
        "New hot keys: one of ten requests is for a key that was never asked for, a new one each \
         second; the others follow Zipf's law. The cache is full, so a new key displaces another. \
         A relay holds each request for 5 ms: a reply within half of that is a hit.",
    );
    record.note(
        "Idle clients have each sent a request and read its reply. Memory is what the kernel shows \
         as resident.",
    );
}
