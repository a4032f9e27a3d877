//! The proxy beside nutcracker and Redis alone: throughput, and core time of a request.

use super::*;

pub const KVPROXY: Experiment = Experiment {
    name: "kvproxy",
    title: "A proxy before Redis: throughput and core time",
    source: SOURCE,
    run: run_proxy,
};

pub const KVLANES: Experiment = Experiment {
    name: "kvlanes",
    title: "A proxy before Redis whose clients share its connections, or have their own",
    source: SOURCE,
    run: run_lanes,
};

/// Which keys clients ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    One,
    Uniform,
    Zipf,
}

impl Keys {
    fn name(self) -> &'static str {
        match self {
            Keys::One => "one key",
            Keys::Uniform => "uniform",
            Keys::Zipf => "Zipf 0.99",
        }
    }

    fn draw(self, keys: u32, seed: u64) -> Result<impl FnMut() -> u64 + Send, LabError> {
        let (keys, theta) = match self {
            Keys::One => (1, 0.0),
            Keys::Uniform => (keys, 0.0),
            Keys::Zipf => (keys, THETA),
        };
        let mut stream = draws(keys, theta, seed)?;
        Ok(move || u64::from(stream.next_flow()))
    }
}

struct Sizes {
    keys: u32,
    entries: &'static str,
    workloads: &'static [Keys],
    pipelines: &'static [u32],
    rounds: usize,
    /// Time of a turn: of the proxy, which has to be longer than twice its longest age, and of
    /// others; a fourth of each is not measured.
    proxy: Duration,
    other: Duration,
    warm_up: Duration,
}

impl Sizes {
    fn of(context: &Context<'_>, workloads: &'static [Keys], pipelines: &'static [u32]) -> Sizes {
        match context.smoke() {
            true => Sizes {
                keys: 5_000,
                entries: "100",
                workloads,
                pipelines: &pipelines[..1],
                rounds: 1,
                proxy: Duration::from_millis(200),
                other: Duration::from_millis(100),
                warm_up: Duration::from_millis(400),
            },
            false => Sizes {
                keys: KEYS,
                entries: "10000",
                workloads,
                pipelines,
                rounds: 3,
                proxy: Duration::from_millis(8_500),
                other: Duration::from_secs(3),
                warm_up: Duration::from_secs(6),
            },
        }
    }
}

/// What a turn gave: requests a second, core time of a request in µs: of what is before Redis, and
/// of Redis; and the share of hits.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    rate: f64,
    front: f64,
    redis: f64,
    hits: f64,
    /// Share of the cores that other programs took.
    others: f64,
}

impl Turn {
    fn both(&self) -> f64 {
        self.front + self.redis
    }
}

/// A workload and pipeline: turns by contestant, one a round.
struct Of {
    keys: Keys,
    pipeline: u32,
    turns: Vec<Vec<Turn>>,
}

impl Of {
    fn spread(&self, contestant: usize, of: impl Fn(&Turn) -> f64) -> Spread {
        Spread::of(self.turns[contestant].iter().map(of))
    }

    fn ratio(&self, contestant: usize, to: usize, of: impl Fn(&Turn) -> f64) -> Spread {
        let all = |contestant: usize| self.turns[contestant].iter().map(&of);
        Spread::of_ratios(all(contestant), all(to))
    }

    fn place(&self) -> String {
        format!("{}, pipeline {}", self.keys.name(), self.pipeline)
    }
}

/// Places of contestants. What `kvproxy` has at the third, `kvlanes` has with shared lanes.
const REDIS: usize = 0;
const NUTCRACKER: usize = 1;
const PROXY: usize = 2;
const DEDICATED: usize = 3;

/// What is before Redis, and how to start it.
struct Contestant {
    name: &'static str,
    lanes: Option<&'static str>,
}

const ALL: [Contestant; 4] = [
    Contestant { name: "Redis", lanes: None },
    Contestant { name: "nutcracker", lanes: None },
    Contestant { name: "proxy", lanes: Some("shared") },
    Contestant { name: "proxy, dedicated", lanes: Some("dedicated") },
];

/// Runs a turn.
fn turn(
    context: &Context<'_>,
    place: &Place<'_>,
    (front, redis): (Option<&Server>, &Server),
    time: Duration,
    next: impl FnMut(&mut Vec<u8>) -> Option<Batch> + Send,
) -> Result<Turn, LabError> {
    let targets = [front.unwrap_or(redis).address];
    let plan = Plan {
        targets: &targets,
        connections: CLIENTS,
        pace: Pace::Closed(CLIENTS),
        time,
        stop: context.stop,
    };
    let core_time = |server: Option<&Server>| {
        server.map_or(Ok(Duration::ZERO), |server| server.process.core_time())
    };
    let before = [core_time(front)?, core_time(Some(redis))?];
    let (seen, taken) = place.watched(&plan, next)?;
    let seen = whole(context, seen)?;
    let requests: u64 = seen.done.iter().map(|done| u64::from(done.requests)).sum();
    let of = |after: Duration, before: Duration| {
        (after - before).as_secs_f64() * 1e6 / requests.max(1) as f64
    };
    let rate = seen.rate(time / 4);
    let (front, redis) = (core_time(front)?, core_time(Some(redis))?);
    let others = taken.by_others(front + redis - before[0] - before[1]);
    let (front, redis) = (of(front, before[0]), of(redis, before[1]));
    Ok(Turn { rate, front, redis, hits: 0.0, others })
}

/// Measures contestants.
fn measure(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    contestants: &[Contestant],
) -> Result<(Vec<Of>, u64), LabError> {
    let redis = Server::redis(place)?;
    redis.fill(context, 0..u64::from(sizes.keys), VALUE_LEN)?;
    let nutcracker = Server::nutcracker(place, redis.address)?;
    let seed = context.seed;
    let mut connections = 0;
    let all = context.each(
        sizes.workloads,
        |keys| keys.name().to_owned(),
        |context, keys| {
            let proxy = |of: &Contestant| {
                let Some(lanes) = of.lanes else { return Ok(None) };
                let flags = [("lanes", lanes), ("entries", sizes.entries), ("max-age", MAX_AGE)];
                Server::proxy(place, redis.address, &flags).map(Some)
            };
            let proxies = contestants.iter().map(proxy).collect::<Result<Vec<_>, _>>()?;
            for server in proxies.iter().flatten() {
                let next = gets(16, keys.draw(sizes.keys, seed)?);
                turn(context, place, (Some(server), &redis), sizes.warm_up, next)?;
            }
            let of = context.each(
                sizes.pipelines,
                |pipeline| format!("{}, pipeline {pipeline}", keys.name()),
                |context, &pipeline| {
                    let (mut turns, mut round) = (vec![Vec::new(); contestants.len()], 0);
                    let mut contestants: Vec<usize> = (0..contestants.len()).collect();
                    let what = format!("{}, pipeline {pipeline}", keys.name());
                    let rounds = |context: &mut Context<'_>, done| context.step(&what, done);
                    while round < sizes.rounds {
                        rounds(context, round as f64 / sizes.rounds as f64)?;
                        for &at in &contestants {
                            let seed = seed + 1 + round as u64;
                            let next = gets(pipeline, keys.draw(sizes.keys, seed)?);
                            let proxy = proxies[at].as_ref();
                            let front = proxy.or((at == NUTCRACKER).then_some(&nutcracker));
                            let time = proxy.map_or(sizes.other, |_| sizes.proxy);
                            let hits = |proxy: Option<&Server>| {
                                proxy.map_or(Ok([0; 2]), |proxy| proxy.counts(["hits", "commands"]))
                            };
                            let before = hits(proxy)?;
                            let mut of = turn(context, place, (front, &redis), time, next)?;
                            let after = hits(proxy)?;
                            let [hits, all] = [0, 1].map(|nth| (after[nth] - before[nth]) as f64);
                            of.hits = hits / all.max(1.0);
                            valid(context, of.others)?;
                            turns[at].push(of);
                        }
                        contestants.rotate_left(1);
                        round += 1;
                    }
                    Ok(Of { keys: *keys, pipeline, turns })
                },
            )?;
            if let Some(Some(proxy)) = proxies.get(PROXY) {
                connections = connections.max(proxy.counts(["left_lanes"])?[0]);
            }
            Ok(of)
        },
    )?;
    Ok((all.into_iter().flatten().collect(), connections))
}

fn describe(record: &mut Record, place: &Place<'_>, sizes: &Sizes, all: &[Of]) {
    place.describe(record);
    record.setting("connections", CLIENTS);
    record.setting("keys", sizes.keys);
    record.setting("entries of the proxy", sizes.entries);
    record.setting("max-age of the proxy", format!("{MAX_AGE} s"));
    record.setting("rounds", sizes.rounds);
    let (proxy, other) = (sizes.proxy.as_secs_f64(), sizes.other.as_secs_f64());
    record.setting("seconds of a turn", format!("proxy {proxy}, others {other}"));
    let others = all.iter().flat_map(|of| &of.turns).flatten().map(|turn| turn.others);
    record.setting("cores used by other programs, at most", percent(others.fold(0.0, f64::max), 0));
}

/// Adds the tables of all contestants.
fn tables(record: &mut Record, all: &[Of], contestants: &[Contestant]) {
    let thousands = |spread: Spread| spread.map(|rate| rate / 1e3).cell(0);
    let headings = ["keys, pipeline"].into_iter().chain(contestants.iter().map(|of| of.name));
    let mut table = Table::new("Thousand GETs a second", headings);
    for of in all {
        let rates = (0..contestants.len()).map(|at| thousands(of.spread(at, |turn| turn.rate)));
        table.row([of.place()].into_iter().chain(rates));
    }
    record.tables.push(table);
    let ratio = |at: usize, to: usize| move |of: &&Of| of.ratio(at, to, |turn| turn.rate).cell(2);
    let hits = |of: &&Of| percent(of.spread(PROXY, |turn| turn.hits).median, 0);
    record.tables.push(Table::of(
        "The proxy's rate as a multiple",
        all,
        &[
            ("keys, pipeline", &|of| of.place()),
            ("of Redis", &ratio(PROXY, REDIS)),
            ("of nutcracker", &ratio(PROXY, NUTCRACKER)),
            ("hits", &hits),
        ],
    ));
    let headings = ["keys, pipeline"].into_iter().chain(contestants.iter().map(|of| of.name));
    let mut table = Table::new("Core time of a request, µs: before Redis + Redis", headings);
    for of in all {
        let digits = if of.pipeline == 1 { 1 } else { 2 };
        let times = (0..contestants.len()).map(|at| {
            let [front, redis]: [fn(&Turn) -> f64; 2] = [|turn| turn.front, |turn| turn.redis];
            let [front, redis] = [front, redis].map(|part| of.spread(at, part).median);
            format!("{front:.digits$} + {redis:.digits$}")
        });
        table.row([of.place()].into_iter().chain(times));
    }
    record.tables.push(table);
    record.note(
        "Load, proxy and servers share the cores, and contestants take turns: compare ratios, and \
         only within a run. A ratio is of the same round; a fourth of each turn is not in its rate. \
         Turns of the proxy are longer than twice its max-age, so that it asks Redis for values \
         again within each. Core time is that of a process over the whole turn, by /proc. A \
         run in which other programs use more than a quarter of the cores has no record.",
    );
}

/// A goal of a workload and pipeline: at least this multiple of a contestant's rate.
type Goal = (Keys, u32, usize, f64, &'static str);

/// Judges goals of rates.
fn judge(record: &mut Record, all: &[Of], goals: &[Goal]) {
    for &(keys, pipeline, to, least, stated) in goals {
        let found = all.iter().find(|of| of.keys == keys && of.pipeline == pipeline);
        let Some(of) = found else { continue };
        let ratio = of.ratio(PROXY, to, |turn| turn.rate);
        let claim = format!("{}: GETs a second to {}", of.place(), ALL[to].name);
        let holds = ratio.median >= least;
        record.checks.push(Check::new(claim, stated, ratio.text(), holds));
    }
}

const GOALS: &[Goal] = &[
    (Keys::One, 1, NUTCRACKER, 1.0, "at least 1"),
    (Keys::One, 16, NUTCRACKER, 3.0, "at least 3"),
    (Keys::One, 64, NUTCRACKER, 5.0, "at least 5"),
    (Keys::One, 1, REDIS, 0.85, "at least 0.85"),
    (Keys::One, 16, REDIS, 1.25, "at least 1.25"),
    (Keys::One, 64, REDIS, 1.3, "at least 1.3"),
    (Keys::Uniform, 1, NUTCRACKER, 0.9, "at least 0.9"),
    (Keys::Uniform, 16, NUTCRACKER, 1.5, "at least 1.5"),
    (Keys::Zipf, 1, NUTCRACKER, 1.0, "at least 1"),
    (Keys::Zipf, 16, NUTCRACKER, 2.0, "at least 2"),
];

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("one key: answered from the cache", "at least 90 %", |all: &[Of]| {
        let of = all.iter().filter(|of| of.keys == Keys::One);
        let least = of.map(|of| of.spread(PROXY, |turn| turn.hits).median).fold(1.0, f64::min);
        Finding::new(least >= 0.9, percent(least, 2))
    }),
    Claim::timed(
        "one key, pipeline 1: core time of the proxy to nutcracker's and its Redis'",
        "at most 0.7",
        |all: &[Of]| {
            let of = all.iter().find(|of| of.keys == Keys::One && of.pipeline == 1)?;
            let both = of.turns[NUTCRACKER].iter().map(Turn::both);
            let ratio = Spread::of_ratios(of.turns[PROXY].iter().map(|turn| turn.front), both);
            Finding::at_most(0.7, ratio)
        },
    ),
];

fn run_proxy(context: &mut Context<'_>) -> Result<Record, LabError> {
    let place = Place::of(context)?;
    let sizes = Sizes::of(context, &[Keys::One, Keys::Uniform, Keys::Zipf], &[1, 16, 64]);
    let contestants = &ALL[..=PROXY];
    let (all, _) = measure(context, &place, &sizes, contestants)?;
    let mut record = KVPROXY.record(context);
    describe(&mut record, &place, &sizes, &all);
    record.judge("", CLAIMS, &all[..]);
    if !context.smoke() {
        judge(&mut record, &all, GOALS);
    }
    tables(&mut record, &all, contestants);
    Ok(record)
}

const LANE_GOALS: &[Goal] = &[
    (Keys::Uniform, 1, NUTCRACKER, 0.9, "at least 0.9"),
    (Keys::Uniform, 16, NUTCRACKER, 1.5, "at least 1.5"),
    (Keys::Uniform, 1, DEDICATED, 1.2, "at least 1.2"),
];

fn run_lanes(context: &mut Context<'_>) -> Result<Record, LabError> {
    let place = Place::of(context)?;
    let sizes = Sizes::of(context, &[Keys::Uniform], &[1, 16]);
    let (all, left) = measure(context, &place, &sizes, &ALL)?;
    let mut record = KVLANES.record(context);
    describe(&mut record, &place, &sizes, &all);
    let claim = "clients that got a separate connection, of those on shared ones";
    record.checks.push(Check::new(claim, "none", left.to_string(), left == 0));
    if !context.smoke() {
        judge(&mut record, &all, LANE_GOALS);
    }
    tables(&mut record, &all, &ALL);
    record.note(
        "`--lanes shared` sends what the cache does not answer over one connection of each worker, \
         so that a system call carries requests of several clients; `--lanes dedicated` opens one \
         for each client, as if there were no proxy.",
    );
    Ok(record)
}
