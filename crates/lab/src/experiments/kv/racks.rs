//! Throughput by the number of racks, with caches in leaf switches or in spine switches as well
//! (figure 10f): by calculation, as in the paper.
//!
//! The paper does not say what a switch can do here. Without a limit, leaf switches alone would
//! scale as well. We give a pipe 1 G/s and a switch of four pipes 4 G/s; a leaf has a key in the
//! pipe of its server, a spine in any. Each rack has a spine switch; all spines have the same keys
//! and share their requests evenly.

use super::*;

pub const KV10F: Experiment = Experiment {
    name: "kv10f",
    title: "Throughput by racks, with caches in leaf and spine switches",
    source: "NetCache, figure 10f",
    run,
};

const RACKS: [u16; 6] = [1, 2, 4, 8, 16, 32];
const SERVERS: u16 = 128;
const PIPES: u16 = 4;
const PIPE_RATE: f64 = 1e9;
const THETA: f64 = 0.99;
/// Ranks among which switches find the keys that they cache.
const HEAD: u64 = 1 << 20;

/// Requests a second of a number of racks.
struct Of {
    racks: u16,
    none: f64,
    leaf: f64,
    /// Were the switches without limit.
    leaf_unlimited: f64,
    both: f64,
}

const CLAIMS: &[Claim<[Of]>] = &[
    Claim::new("without caches, more racks give no more, within 15 %", "flat", |all: &[Of]| {
        let rates = || all.iter().map(|of| of.none / all[0].none);
        let (low, high) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
        let middle = (low + high) / 2.0;
        Finding::new(high / middle <= 1.15, format!("{low:.2} to {high:.2} × one rack"))
    }),
    Claim::new("with leaf and spine caches, it is linear", "linear", |all: &[Of]| {
        let fit = r_squared(all.iter().map(|of| (f64::from(of.racks), of.both)));
        Finding::new(fit >= 0.99, format!("R² = {fit:.4}"))
    }),
    Claim::new("leaf caches alone are between, and flatten", "limited", |all: &[Of]| {
        let between = all.iter().all(|of| of.none <= of.leaf && of.leaf <= of.both * 1.0001);
        let gain = |of: fn(&Of) -> f64| all.last().map_or(0.0, of) / of(&all[0]);
        let (leaf, both) = (gain(|of| of.leaf), gain(|of| of.both));
        let text = format!("{leaf:.1} × and {both:.1} × one rack");
        Finding::new(between && leaf < both / 2.0, text)
    }),
];

/// Returns how well a line fits.
pub(super) fn r_squared(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>();
    let both = sum(&|point| (point.0 - x) * (point.1 - y));
    let squares = sum(&|point| (point.0 - x).powi(2)) * sum(&|point| (point.1 - y).powi(2));
    both * both / squares
}

/// What servers and pipes have of all requests.
struct Loads {
    servers: Vec<f64>,
    pipes: Vec<f64>,
}

impl Loads {
    /// Returns the loads when spines have the hottest keys, and each leaf `leaf` of the next ones.
    fn of(law: &Law, placement: Placement, spine: u64, leaf: usize) -> Loads {
        let racks = usize::from(placement.servers / SERVERS);
        let head = law.keys.min(HEAD);
        let mut servers = placement.loads(law, head);
        let mut pipes = vec![0.0; racks * usize::from(PIPES)];
        let mut cached = vec![0; racks];
        for rank in spine + 1..=head {
            let (load, server) = (law.probability(rank), placement.server(rank));
            let cached = &mut cached[usize::from(server / SERVERS)];
            if *cached < leaf {
                *cached += 1;
                pipes[usize::from(server / (SERVERS / PIPES))] += load;
            } else {
                servers[usize::from(server)] += load;
            }
        }
        Loads { servers, pipes }
    }

    /// Returns the largest rate that servers take, and that pipes take.
    fn limits(&self) -> [f64; 2] {
        [RATE / fullest(&self.servers), PIPE_RATE / fullest(&self.pipes).max(f64::MIN_POSITIVE)]
    }
}

fn measure(law: &Law, racks: u16, items: usize, seed: u64) -> Of {
    let placement = Placement { servers: racks * SERVERS, seed };
    let [leaf_unlimited, pipes] = Loads::of(law, placement, 0, items).limits();
    let [servers, leaf_pipes] = Loads::of(law, placement, items as u64, items).limits();
    let spines = f64::from(racks);
    // A key is in one pipe of each spine.
    let all = spines * f64::from(PIPES) * PIPE_RATE / law.head(items as u64);
    let hottest = spines * PIPE_RATE / law.head(1);
    Of {
        racks,
        none: RATE / fullest(&placement.loads(law, 0)),
        leaf: leaf_unlimited.min(pipes),
        leaf_unlimited,
        both: servers.min(leaf_pipes).min(all).min(hottest),
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (keys, items) = match context.smoke() {
        true => (2_000_000, 1_000),
        false => (800_000_000, 10_000),
    };
    let (law, seed) = (Law::new(keys, THETA)?, context.seed);
    let racks = RACKS.into_iter().filter(|&racks| !context.smoke() || racks <= 4);
    let all = context.each(
        racks.collect::<Vec<u16>>(),
        |racks| format!("{racks} racks"),
        |_, racks| Ok(measure(&law, racks, items, seed)),
    )?;
    let mut record = KV10F.record(context);
    record.setting("instrument", "calculation");
    record.setting("keys", keys);
    record.setting("θ", THETA);
    record.setting("cached keys of a switch", items);
    record.setting("requests/s of a server, a pipe (inputs)", "10 M, 1 G");
    if !context.smoke() {
        record.judge("", CLAIMS, &all[..]);
    }
    let curve = |name: &str, of: fn(&Of) -> f64| {
        Series::model(name, all.iter().map(|by| (f64::from(by.racks), of(by) / 1e9)).collect())
    };
    let plot = Plot::new("throughput by racks", "racks of 128 servers", "billion requests/s");
    record.plots.push(plot.log_x().log_y().with([
        curve("leaf and spine", |of| of.both),
        curve("leaf", |of| of.leaf),
        curve("leaf, without a limit", |of| of.leaf_unlimited),
        curve("no cache", |of| of.none),
    ]));
    let giga = |rate: f64| format!("{:.2}", rate / 1e9);
    record.tables.push(Table::of(
        "Throughput, billion requests/s",
        &all,
        &[
            ("racks", &|of| of.racks.to_string()),
            ("no cache", &|of| giga(of.none)),
            ("leaf", &|of| giga(of.leaf)),
            ("leaf, without a limit", &|of| giga(of.leaf_unlimited)),
            ("leaf and spine", &|of| giga(of.both)),
        ],
    ));
    record.note(
        "Nothing runs here: loads are added up key by key. The limits of switches are our inputs; \
         the paper has none.",
    );
    Ok(record)
}
