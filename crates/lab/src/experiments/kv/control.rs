//! How soon and how well the controller finds the hottest keys, by the cached keys that it draws to
//! find a cold one (section 4.3 leaves their number open), beside an oracle that knows the law.

use super::*;
use overbank::sketch;

pub const KVCONTROL: Experiment = Experiment {
    name: "kvcontrol",
    title: "The controller beside an oracle, by the keys that it compares with",
    source: "NetCache, section 4.3",
    run,
};

const THETA: f64 = 0.99;
const SCALED: f64 = RATE / 1000.0;
const CANDIDATES: [usize; 6] = [1, 2, 4, 8, 16, 64];
const SECOND_NS: u64 = 1_000_000_000;

/// What a number of candidates gave.
struct Of {
    candidates: usize,
    /// Share of the requests that the switch answered, by second.
    hits: Vec<f64>,
    /// Keys installed and evicted in the last half.
    churn: [u64; 2],
}

impl Of {
    fn last(&self) -> f64 {
        let half = &self.hits[self.hits.len() / 2..];
        median(half.iter().copied())
    }

    /// Seconds until nine tenths of the oracle's share.
    fn soon(&self, oracle: f64) -> Option<usize> {
        self.hits.iter().position(|hits| *hits >= 0.9 * oracle).map(|second| second + 1)
    }
}

struct All {
    by: Vec<Of>,
    oracle: f64,
}

const FULL: &[Claim<All>] = &[
    Claim::new("8 candidates: 0.95 of the oracle's hits", "goal", |of: &All| {
        let of8 = of.by.iter().find(|of| of.candidates == 8)?;
        let share = of8.last() / of.oracle;
        Finding::new(share >= 0.95, format!("{share:.3}"))
    })
    .because("the 10,000th key is asked for less than once a second at this rate"),
    Claim::new("0.9 of them within 5 s from an empty cache", "goal", |of: &All| {
        let of8 = of.by.iter().find(|of| of.candidates == 8)?;
        let soon = of8.soon(of.oracle);
        let text = soon.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
        Finding::new(soon.is_some_and(|seconds| seconds <= 5), text)
    }),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (servers, keys, items, seconds): (u16, u64, usize, u64) = match context.smoke() {
        true => (8, 50_000, 200, 2),
        false => (128, 100_000_000, 10_000, 20),
    };
    let candidates: &[usize] = if context.smoke() { &[1, 8] } else { &CANDIDATES };
    let (law, seed) = (Law::new(keys, THETA)?, context.seed);
    let placement = Placement { servers, seed };
    // What a rack without a cache takes: no request is lost while the cache fills.
    let rate = 0.9 * SCALED / fullest(&placement.loads(&law, 0));
    let load = reads(&law, rate);
    let by = context.each(
        candidates.to_vec(),
        |candidates| format!("{candidates} candidates"),
        |_, candidates| {
            let counting = sketch::Settings {
                threshold: (rate / 8192.0).clamp(2.0, f64::from(u16::MAX)) as u16,
                sample_log2: 0,
            };
            let settings = controller::Settings::default();
            let controller = controller::Settings { candidates, ..settings };
            let plan = Plan::of(placement, SCALED, items);
            let mut rack = Rack::new(Plan { counting, controller, ..plan })?;
            let (mut hits, mut before) = (Vec::new(), rack.control());
            for second in 0..seconds {
                if second == seconds / 2 {
                    before = rack.control();
                }
                rack.run(Some(&load), SECOND_NS);
                let [of_switch, of_servers] = rack.take(SECOND_NS).rates();
                hits.push(of_switch / (of_switch + of_servers).max(1.0));
            }
            let after = rack.control();
            let churn = [after.installed - before.installed, after.evicted - before.evicted];
            Ok(Of { candidates, hits, churn })
        },
    )?;
    let all = All { by, oracle: law.head(items as u64) };
    let mut record = KVCONTROL.record(context);
    record.setting("instrument", "a rack in virtual time");
    record.setting("servers", servers);
    record.setting("requests/s (input)", format!("{rate:.0}"));
    record.setting("keys", keys);
    record.setting("θ", THETA);
    record.setting("cached keys", items);
    if !context.smoke() {
        record.judge("", FULL, &all);
    }
    let curve = |of: &Of| {
        let points = of.hits.iter().enumerate().map(|(nth, hits)| (nth as f64 + 1.0, *hits));
        Series::measured(format!("{} candidates", of.candidates), points.collect())
    };
    let oracle = vec![(1.0, all.oracle), (seconds as f64, all.oracle)];
    let plot =
        Plot::new("requests that the switch answers", "seconds from an empty cache", "share");
    let curves = all.by.iter().map(curve);
    record.plots.push(plot.with(curves.chain([Series::model("oracle", oracle)])));
    let per_second = |count: u64| format!("{:.0}", count as f64 / (seconds - seconds / 2) as f64);
    record.tables.push(Table::of(
        "By candidates",
        &all.by,
        &[
            ("candidates", &|of| of.candidates.to_string()),
            ("answered by the switch", &|of| percent(of.last(), 1)),
            ("of the oracle's", &|of| format!("{:.3}", of.last() / all.oracle)),
            ("0.9 of it after, s", &|of| {
                of.soon(all.oracle).map_or("never".to_owned(), |seconds| seconds.to_string())
            }),
            ("installed/s at the end", &|of| per_second(of.churn[0])),
            ("evicted/s at the end", &|of| per_second(of.churn[1])),
        ],
    ));
    Ok(record)
}
