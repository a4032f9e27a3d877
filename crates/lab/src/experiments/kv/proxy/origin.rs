//! What Redis is asked for less: its own counts of GETs, beside the clients'.

use super::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

pub const KVORIGIN: Experiment = Experiment {
    name: "kvorigin",
    title: "GETs that a proxy keeps from Redis, with writes and without",
    source: SOURCE,
    run,
};

/// Keys, and the hot ones of them, which have this share of all requests.
const ALL_KEYS: u64 = 1000;
const HOT_KEYS: u64 = 10;
const HOT_SHARE: f64 = 0.99;
/// Time after which the proxy's counts are those of a load.
const SETTLE: Duration = Duration::from_millis(300);

/// What clients do: a share of writes, as fast as they can or at a rate, and how often.
#[derive(Clone, Copy, Debug)]
struct Case {
    writes: f64,
    pace: Pace,
    requests: u64,
}

impl Case {
    fn name(&self) -> String {
        let writes = format!("{} writes", percent(self.writes, 1));
        match self.pace {
            Pace::Closed(_) => format!("{writes}, {CLIENTS} clients"),
            Pace::Open(rate) => format!("{writes}, {:.0} k/s", rate / 1e3),
        }
    }
}

const CLOSED: Pace = Pace::Closed(CLIENTS);
const SMOKE: &[Case] = &[
    Case { writes: 0.0, pace: CLOSED, requests: 40_000 },
    Case { writes: 0.01, pace: Pace::Open(10_000.0), requests: 10_000 },
];
const FULL: &[Case] = &[
    Case { writes: 0.0, pace: CLOSED, requests: 2_000_000 },
    Case { writes: 0.001, pace: Pace::Open(5_000.0), requests: 200_000 },
    Case { writes: 0.01, pace: Pace::Open(5_000.0), requests: 200_000 },
    Case { writes: 0.01, pace: Pace::Open(20_000.0), requests: 600_000 },
    Case { writes: 0.1, pace: Pace::Open(5_000.0), requests: 200_000 },
];

/// What clients, Redis and the proxy have counted.
struct Of {
    case: Case,
    gets: u64,
    writes: u64,
    /// GETs that reached Redis, and of them those of the proxy's own connection.
    origin: u64,
    fills: u64,
    promoted: u64,
    /// Times that the proxy has dropped all values: its heartbeat was late.
    drops: u64,
    closes: bool,
}

impl Of {
    fn removed(&self) -> f64 {
        1.0 - self.origin as f64 / self.gets.max(1) as f64
    }

    /// Returns the share of GETs that could be removed: each write and each promotion asks for a
    /// value once.
    fn bound(&self) -> f64 {
        1.0 - (self.writes + self.promoted) as f64 / self.gets.max(1) as f64
    }
}

const CLAIMS: &[Claim<Of>] = &[
    Claim::new("every command is a hit, answered, forwarded or refused", "all", |of: &Of| {
        Finding::new(of.closes, if of.closes { "all" } else { "not all" })
    }),
    Claim::timed("fills", "at most writes and promotions", |of: &Of| {
        let most = of.writes + of.promoted;
        let found = Finding::new(of.fills <= most, format!("{} of {most}", of.fills));
        // What was dropped is asked for again.
        found.filter(|_| of.drops == 0)
    }),
];

const READS: &[Claim<Of>] = &[Claim::new("GETs that Redis is spared", "at least 99.2 %", |of| {
    Finding::new(of.removed() >= 0.992, percent(of.removed(), 2))
})];

const WRITES: &[Claim<Of>] =
    &[Claim::new("GETs spared, of those that could be", "at least 98 %", |of: &Of| {
        let share = of.removed() / of.bound();
        Finding::new(share >= 0.98, percent(share, 2))
    })];

fn measure(context: &mut Context<'_>, place: &Place<'_>, case: Case) -> Result<Of, LabError> {
    let redis = Server::redis(place)?;
    redis.fill(context, 0..ALL_KEYS, VALUE_LEN)?;
    let proxy = Server::proxy(place, redis.address, &[])?;
    let dropped = || {
        let status = proxy.status()?;
        let by_reason = status["dropped"].as_object();
        let by_reason = by_reason.ok_or_else(|| LabError::failed("the status has no drops"))?;
        Ok::<u64, LabError>(by_reason.values().filter_map(serde_json::Value::as_u64).sum())
    };
    // The first look at its user counts as a change.
    thread::sleep(SETTLE);
    let drops = dropped()?;
    redis.ask(&["CONFIG", "RESETSTAT"])?;
    let mut random = Pcg64Mcg::seed_from_u64(context.seed);
    let mut share = move || random.next_u64() as f64 / u64::MAX as f64;
    let (mut gets, mut writes) = (0, 0);
    let value = [b'w'; VALUE_LEN];
    let targets = [proxy.address];
    let plan = Plan {
        targets: &targets,
        connections: CLIENTS,
        pace: case.pace,
        time: Duration::from_secs(300),
        stop: context.stop,
    };
    let seen = place.load(&plan, |out| {
        if gets + writes == case.requests {
            return None;
        }
        let at = share();
        let key = match share() < HOT_SHARE {
            true => (at * HOT_KEYS as f64) as u64,
            false => HOT_KEYS + (at * (ALL_KEYS - HOT_KEYS) as f64) as u64,
        };
        let is_write = share() < case.writes;
        match is_write {
            true => load::set(key, &value, out),
            false => load::get(key, out),
        }
        *(if is_write { &mut writes } else { &mut gets }) += 1;
        Some(Batch { target: 0, requests: 1, kind: 0 })
    })?;
    whole(context, seen)?;
    // It shows what it has counted a moment later.
    thread::sleep(SETTLE);
    let names = ["commands", "hits", "answered", "forwarded", "refused"];
    let [commands, hits, answered, forwarded, refused] = proxy.counts(names)?;
    let [fills, promoted] = proxy.counts(["fills", "promoted"])?;
    let closes = commands == hits + answered + forwarded + refused && commands == gets + writes;
    let origin = redis.calls("get")?;
    let drops = dropped()? - drops;
    Ok(Of { case, gets, writes, origin, fills, promoted, drops, closes })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let place = Place::of(context)?;
    let cases = if context.smoke() { SMOKE } else { FULL };
    let all =
        context.each(cases, |case| case.name(), |context, case| measure(context, &place, *case))?;
    let mut record = KVORIGIN.record(context);
    place.describe(&mut record);
    record.setting("keys", ALL_KEYS);
    record.setting("hot keys", format!("{HOT_KEYS}, with {} of all", percent(HOT_SHARE, 0)));
    record.setting("connections", CLIENTS);
    for of in &all {
        let name = of.case.name();
        record.judge(&name, CLAIMS, of);
        if !context.smoke() && of.case.writes <= 0.01 {
            record.judge(&name, if of.writes == 0 { READS } else { WRITES }, of);
        }
    }
    record.tables.push(Table::of(
        "GETs",
        &all,
        &[
            ("case", &|of| of.case.name()),
            ("of clients", &|of| of.gets.to_string()),
            ("of Redis", &|of| of.origin.to_string()),
            ("spared", &|of| percent(of.removed(), 2)),
            ("could be", &|of| percent(of.bound(), 2)),
            ("writes done", &|of| of.writes.to_string()),
            ("promotions", &|of| of.promoted.to_string()),
            ("fills", &|of| of.fills.to_string()),
            ("drops", &|of| of.drops.to_string()),
        ],
    ));
    record.note(
        "Redis' GETs are its own count, `INFO commandstats`: those that the proxy passed on and \
         those by which it fills its cache, from its start with an empty cache. 99 % of requests, \
         reads and writes, are for 1 % of the keys, evenly, and 1 % for the others: our reading of \
         a 99/1 skew. The default max-age of 60 s is longer than the run. What could be spared are \
         all GETs but one for each write and each promotion.",
    );
    record.note(
        "A write takes its key out of the cache; its reply starts the fill if the key was read since \
         the last one. Reads pass to Redis until the value is there, so what a write costs beyond \
         its fill grows with the rate of the key's reads. If a busy machine delays the proxy's \
         heartbeat, the proxy drops all that it has: drops counts that, and nothing is claimed of \
         the fills then.",
    );
    Ok(record)
}
