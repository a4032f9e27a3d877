//! How many of the hottest keys are to be cached so that no server has much more than its share,
//! whatever is asked for (figure 1; Fan et al., SoCC 2011).
//!
//! A law that is hard for a cache: as many keys as it holds and some more are asked for equally
//! often. The laws here are those, and Zipf's.

use super::law::{Law, Placement, fullest};
use crate::prelude::*;
use overbank_kit::zipf::power_sum;

pub const KVTHEORY: Experiment = Experiment {
    name: "kvtheory",
    title: "Keys that are enough to balance servers, by their number",
    source: "NetCache, figure 1 and section 2",
    run,
};

/// What the fullest server may have, as a multiple of its share of all requests.
const FULL: f64 = 1.1;
/// Keys that are asked for equally often, as multiples of those cached.
const FLAT: [f64; 7] = [1.5, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0];
const THETAS: [f64; 4] = [0.9, 0.95, 0.99, 1.2];
/// What the cache's rate is to a server's: rates of figure 1 are far apart.
const RATES: [f64; 4] = [10.0, 100.0, 200.0, 1000.0];

/// Keys for a number of servers, by placement, and for each of Zipf's laws.
struct Of {
    servers: u16,
    flat: Vec<f64>,
    zipf: Vec<f64>,
}

impl Of {
    /// N ln N.
    fn scale(&self) -> f64 {
        let servers = f64::from(self.servers);
        servers * servers.ln()
    }

    /// Keys of the worst law, over N ln N.
    fn constant(&self) -> f64 {
        let flat = median(self.flat.iter().copied());
        self.zipf.iter().copied().fold(flat, f64::max) / self.scale()
    }
}

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("O(N log N) keys are enough", "O(N log N)", |all: &[Of]| {
        let constants = || all.iter().map(Of::constant);
        let (low, high) = (constants().fold(f64::MAX, f64::min), constants().fold(0.0, f64::max));
        let text = format!("{low:.0} to {high:.0} × N ln N");
        Finding::new(high <= 2.0 * low, text)
    }),
    Claim::new(
        "Zipf's laws need fewer than equal popularity",
        "whatever is asked for",
        |all: &[Of]| {
            let worst = all.iter().filter(|of| {
                let flat = median(of.flat.iter().copied());
                of.zipf.iter().any(|&keys| keys > flat)
            });
            let count = worst.count();
            Finding::new(count == 0, format!("{count} of {} numbers of servers differ", all.len()))
        },
    ),
];

/// Whether the fullest server has no more than it may when `cached` of `keys` keys are cached that
/// are asked for equally often.
fn is_flat_enough(placement: Placement, cached: u64, keys: u64) -> bool {
    let mut counts = vec![0u32; usize::from(placement.servers)];
    for rank in cached + 1..=keys {
        counts[usize::from(placement.server(rank))] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    f64::from(most) <= FULL * keys as f64 / f64::from(placement.servers)
}

/// Returns the fewest keys that are enough, to 3 %: more of them are always enough, too, up to
/// chance.
fn fewest(high: u64, is_enough: impl Fn(u64) -> bool) -> f64 {
    let (mut low, mut high) = (1.0, high as f64);
    while high / low > 1.03 {
        let middle = (low * high).sqrt();
        match is_enough(middle as u64) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

fn measure(servers: u16, placements: u64, keys: u64) -> Result<Of, LabError> {
    let scale = f64::from(servers) * f64::from(servers).ln();
    let most = (400.0 * scale) as u64;
    let flat = (1..=placements).map(|seed| {
        let placement = Placement { servers, seed };
        fewest(most, |cached| {
            FLAT.iter().all(|of| is_flat_enough(placement, cached, (of * cached as f64) as u64))
        })
    });
    let flat = flat.collect();
    let zipf = THETAS.into_iter().map(|theta| {
        let law = Law::new(keys, theta)?;
        let placement = Placement { servers, seed: 1 };
        let may = FULL / f64::from(servers);
        Ok(fewest(most.min(keys / 2), |cached| fullest(&placement.loads(&law, cached)) <= may))
    });
    let zipf = zipf.collect::<Result<Vec<f64>, LabError>>()?;
    Ok(Of { servers, flat, zipf })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (servers, placements, keys): (Vec<u16>, u64, u64) = match context.smoke() {
        true => (vec![8, 16, 32], 3, 100_000),
        false => ((3..=12).map(|log| 1 << log).collect(), 5, 100_000_000),
    };
    let all = context.each(
        servers,
        |servers| format!("{servers} servers"),
        |_, servers| measure(servers, placements, keys),
    )?;
    let mut record = KVTHEORY.record(context);
    record.setting("fullest server, of the mean", FULL);
    record.setting("placements", placements);
    record.setting("keys of Zipf's laws", keys);
    record.judge("", CLAIMS, &all);
    let spread = |of: &Of| Spread::of(of.flat.iter().copied());
    let plot = Plot::new("keys that are enough", "servers", "cached keys").log_x().log_y();
    let constant = median(all.iter().map(Of::constant));
    let model = |of: &Of| (f64::from(of.servers), constant * of.scale());
    let mut curves = vec![
        Series::rounds(
            "equal popularity",
            all.iter().map(|of| (f64::from(of.servers), spread(of))),
        ),
        Series::model(format!("{constant:.0} × N ln N"), all.iter().map(model).collect()),
    ];
    for (nth, theta) in THETAS.iter().enumerate() {
        let points = all.iter().map(|of| (f64::from(of.servers), of.zipf[nth])).collect();
        curves.push(Series::measured(format!("Zipf {theta}"), points));
    }
    record.plots.push(plot.with(curves));
    let zipf = |nth: usize| move |of: &&Of| format!("{:.0}", of.zipf[nth]);
    record.tables.push(Table::of(
        "Cached keys that are enough",
        &all,
        &[
            ("servers", &|of| of.servers.to_string()),
            ("equal popularity", &|of| spread(of).cell(0)),
            ("over N ln N", &|of| format!("{:.0}", of.constant())),
            ("Zipf 0.9", &zipf(0)),
            ("Zipf 0.95", &zipf(1)),
            ("Zipf 0.99", &zipf(2)),
            ("Zipf 1.2", &zipf(3)),
        ],
    ));
    // A cache of rate T′ serves what its keys have of the load of N servers at rate T.
    let nodes = |rate: f64, head: f64| format!("{:.0}", rate / head.max(1e-9));
    let law = |theta: f64| {
        let cached = 10_000u64.min(keys / 10);
        power_sum(1.0, cached as f64, theta) / power_sum(1.0, keys as f64, theta)
    };
    record.tables.push(Table::of(
        "Servers of rate T that a cache of rate T′ balances, with 10,000 keys",
        RATES,
        &[
            ("T′/T", &|rate| format!("{rate:.0}")),
            ("Zipf 0.9", &|rate| nodes(*rate, law(0.9))),
            ("Zipf 0.95", &|rate| nodes(*rate, law(0.95))),
            ("Zipf 0.99", &|rate| nodes(*rate, law(0.99))),
        ],
    ));
    record.note(
        "Of x keys that are asked for equally often, c of them cached, the fullest server has \
         (1 − c/x) (1 + √(2 N ln N / (x − c))) times its share, by chance. That is most for x of ten \
         to fifteen times c, and 1.1 for 4.5 N ln N cached keys. Zipf's laws need less: what is not \
         cached is spread over many more keys.",
    );
    Ok(record)
}
