//! Throughput of shards of a given rate, with a proxy before each and without.

use super::super::processes::Cores;
use super::*;
use overbank_kv::load::quantile;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

pub const KVSHARDS: Experiment = Experiment {
    name: "kvshards",
    title: "Shards of Redis at a given rate: throughput with a proxy before each and without",
    source: SOURCE,
    run,
};

/// Connections to each shard, and requests under way in all: enough that the fullest shard always
/// has some.
const CONNECTIONS: usize = 64;
const UNDER_WAY: usize = 512;

#[derive(Clone, Copy)]
struct Rack {
    shards: u16,
    /// Cached keys of all shards.
    cached: u64,
    /// Requests a second of a shard: an input.
    rate: f64,
}

struct Sizes {
    keys: u64,
    racks: &'static [Rack],
    rounds: usize,
    warm_up: Duration,
    lead: Duration,
    time: Duration,
}

/// What was measured of a number of shards.
struct Of {
    rack: Rack,
    /// Answers a second by round, without and with proxies; and the ideal.
    rates: [Vec<f64>; 2],
    ideal: [f64; 2],
    hits: f64,
    /// Median time of a reply in µs, without and with.
    times: [f64; 2],
    /// Largest share of the machine's cores that was in use.
    cores: f64,
}

impl Of {
    fn ratio(&self) -> Spread {
        let [without, with] = &self.rates;
        Spread::of_ratios(with.iter().copied(), without.iter().copied())
    }

    fn ideal_ratio(&self) -> f64 {
        self.ideal[1] / self.ideal[0]
    }

    fn of_ideal(&self, nth: usize) -> Spread {
        Spread::of(self.rates[nth].iter().map(|rate| rate / self.ideal[nth]))
    }
}

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("more with proxies", "a cache helps", |all: &[Of]| {
        let text = listed(all, |of| format!("{:.2} ×", of.ratio().median));
        Finding::new(all.iter().all(|of| of.ratio().median > 1.1), text)
    }),
    Claim::timed("without proxies, within 10 % of the ideal", "the instrument", |all: &[Of]| {
        let off = all.iter().map(|of| (of.of_ideal(0).median - 1.0, ()));
        let (off, ()) = farthest(off);
        Finding::new(off.abs() <= 0.1, format!("{:+.1} % at most", 100.0 * off))
    }),
    Claim::timed("8 shards, 100 cached keys: with proxies to without", "at least 1.8", |all| {
        at_least(all, 8, 1.8)
    }),
    Claim::timed("8 shards: of the ideal with proxies", "at least 0.9", |all: &[Of]| {
        let of = all.iter().find(|of| of.rack.shards == 8)?;
        Finding::at_least(0.9, of.of_ideal(1))
    }),
    Claim::timed("16 shards, 200 cached keys: with proxies to without", "at least 2.7", |all| {
        at_least(all, 16, 2.7)
    }),
];

fn at_least(all: &[Of], shards: u16, least: f64) -> Option<Finding> {
    let of = all.iter().find(|of| of.rack.shards == shards)?;
    Finding::at_least(least, of.ratio())
}

fn measure(
    context: &mut Context<'_>,
    place: &Place<'_>,
    sizes: &Sizes,
    rack: Rack,
) -> Result<Of, LabError> {
    let Rack { shards, cached, rate } = rack;
    let law = Law::new(sizes.keys, THETA)?;
    let placement = Placement { servers: shards, seed: context.seed };
    let ideal = [0, cached].map(|cached| rate / fullest(&placement.loads(&law, cached)));
    let servers = (0..shards).map(|_| Server::redis(place)).collect::<Result<Vec<_>, _>>()?;
    for (shard, server) in (0..shards).zip(&servers) {
        context
            .step(&format!("fills shard {shard}"), 0.1 * f64::from(shard) / f64::from(shards))?;
        let keys = (1..=sizes.keys).filter(|rank| placement.server(*rank) == shard);
        server.fill(context, keys, VALUE_LEN)?;
    }
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let relay = Relay::start(place, &addresses, Limit { rate, delay: Duration::ZERO })?;
    let proxy = |(shard, &relay): (u16, &SocketAddr)| {
        let entries = (1..=cached).filter(|rank| placement.server(*rank) == shard).count();
        let entries = entries.max(1).to_string();
        Server::proxy(place, relay, &[("entries", &entries), ("max-age", MAX_AGE)])
    };
    let proxies = (0..shards).zip(&relay.addresses).map(proxy).collect::<Result<Vec<_>, _>>()?;
    let targets = [
        relay.addresses.clone(),
        proxies.iter().map(|proxy| proxy.address).collect::<Vec<SocketAddr>>(),
    ];
    let load = |context: &Context<'_>, nth: usize, seed: u64, time: Duration| {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let plan = Plan {
            targets: &targets[nth],
            connections: CONNECTIONS,
            pace: Pace::Closed(UNDER_WAY),
            time,
            stop: context.stop,
        };
        let seen = place.load(&plan, |out| {
            let rank = law.draw(&mut random);
            load::get(rank, out);
            let target = usize::from(placement.server(rank));
            Some(Batch { target, requests: 1, kind: 0 })
        })?;
        whole(context, seen)
    };
    let seed = context.seed;
    context.step("proxies find hot keys", 0.1)?;
    load(context, 1, seed, sizes.warm_up)?;
    let hits = || {
        let counts = proxies.iter().map(|proxy| proxy.counts(["hits", "commands"]));
        let counts = counts.collect::<Result<Vec<_>, LabError>>()?;
        Ok::<_, LabError>([0, 1].map(|nth| counts.iter().map(|of| of[nth]).sum::<u64>()))
    };
    let before = hits()?;
    let (mut rates, mut times, mut cores) = ([Vec::new(), Vec::new()], [0.0; 2], 0.0f64);
    let turns = 2 * sizes.rounds;
    for turn in 0..turns {
        let round = turn / 2;
        // Each begins every other round.
        let nth = (turn + round) % 2;
        let what = if nth == 0 { "without proxies" } else { "with proxies" };
        context.step(what, 0.2 + 0.8 * turn as f64 / turns as f64)?;
        let begun = Cores::now()?;
        let seen = load(context, nth, seed + 1 + round as u64, sizes.lead + sizes.time)?;
        cores = cores.max(Cores::now()?.share_since(begun));
        rates[nth].push(seen.rate(sizes.lead));
        times[nth] = quantile(seen.after(sizes.lead), 0.5);
    }
    let after = hits()?;
    let hits = (after[0] - before[0]) as f64 / (after[1] - before[1]).max(1) as f64;
    Ok(Of { rack, rates, ideal, hits, times, cores })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let place = Place::of(context)?;
    let (s, ms) = (Duration::from_secs, Duration::from_millis);
    let sizes = match context.smoke() {
        true => Sizes {
            keys: 10_000,
            racks: &[Rack { shards: 4, cached: 100, rate: 1000.0 }],
            rounds: 1,
            warm_up: ms(2000),
            lead: ms(300),
            time: ms(700),
        },
        false => Sizes {
            keys: u64::from(KEYS),
            racks: &[
                Rack { shards: 8, cached: 100, rate: 1000.0 },
                Rack { shards: 16, cached: 200, rate: 500.0 },
            ],
            rounds: 3,
            warm_up: s(10),
            lead: s(3),
            time: s(10),
        },
    };
    let all = context.each(
        sizes.racks.to_vec(),
        |rack| format!("{} shards", rack.shards),
        |context, rack| measure(context, &place, &sizes, rack),
    )?;
    let mut record = KVSHARDS.record(context);
    place.describe(&mut record);
    record.setting("keys", sizes.keys);
    record.setting("law", format!("Zipf {THETA}"));
    record.setting("max-age of proxies", format!("{MAX_AGE} s"));
    record.setting("requests under way", UNDER_WAY);
    record.setting("rounds", sizes.rounds);
    record.judge("", CLAIMS, &all[..]);
    let rate =
        |of: &Of, nth: usize| Spread::of(of.rates[nth].iter().map(|rate| rate / 1e3)).cell(2);
    record.tables.push(Table::of(
        "Thousand GETs a second",
        &all,
        &[
            ("shards", &|of| of.rack.shards.to_string()),
            ("GETs/s of each (input)", &|of| of.rack.rate.to_string()),
            ("cached keys", &|of| of.rack.cached.to_string()),
            ("without", &|of| rate(of, 0)),
            ("ideal without", &|of| format!("{:.2}", of.ideal[0] / 1e3)),
            ("with proxies", &|of| rate(of, 1)),
            ("ideal with", &|of| format!("{:.2}", of.ideal[1] / 1e3)),
            ("of the ideal", &|of| of.of_ideal(1).cell(3)),
            ("ratio", &|of| of.ratio().cell(2)),
            ("ideal ratio", &|of| format!("{:.2}", of.ideal_ratio())),
            ("hits", &|of| percent(of.hits, 1)),
            ("cores in use", &|of| percent(of.cores, 0)),
            ("median time, ms", &|of| listed(of.times, |time| format!("{:.1}", time / 1e3))),
        ],
    ));
    record.note(
        "Each shard is a Redis behind a relay that passes on requests at a given rate, without \
         bursts: fills and heartbeats of a proxy take from it, too. Keys are placed \
         by a hash of their rank. One proxy is before each shard, as in a cluster; together they \
         have as many entries as there are cached keys, each as many as its shard has of the \
         hottest ones. The ideal is the rate at which the fullest shard has all that it \
         takes, added up key by key for this placement, with the hottest keys cached and free.",
    );
    record.note(
        "The load is closed: as many requests are under way at all times, and the fullest shard \
         always has some. It is what limits the rate, unless all cores of the machine are in use: then a run says \
         nothing.",
    );
    Ok(record)
}
