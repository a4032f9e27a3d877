//! Hit rates of any geometry: by the models, and by a naive table to compare with. What `overbank
//! lab model` prints; docs/model-json.md says what each field means.

use overbank_kit::geometry::{AnyGeometry, Family};
use overbank_kit::models::{self, ModelError};
use overbank_kit::naive::NaiveTable;
use overbank_kit::workload::FlowStream;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};

pub const SCHEMA: &str = "overbank-model/1";
/// Most slots of a simulated table.
pub const ENTRIES_MAX: usize = 1 << 26;

/// Returns the share of the keys that a table holds in the end, which is the hit rate of the next
/// uniform lookup; `None` if `stop` was set before.
///
/// # Panics
/// Unless the model's limits hold and `entries` is from 1 to [`ENTRIES_MAX`].
pub fn simulate(
    geometry: AnyGeometry,
    alpha: f64,
    Simulation { entries, lookups_per_key, seed }: Simulation,
    stop: &AtomicBool,
) -> Option<f64> {
    assert!(
        models::check(geometry.h, geometry.m, alpha).is_ok()
            && (1..=ENTRIES_MAX).contains(&entries)
    );
    let mut table = NaiveTable::new(geometry, entries, 0, seed);
    let keys = ((table.entries() as f64 * alpha).round() as u32).max(1);
    let mut stream = FlowStream::uniform(keys, seed).expect("at least one key");
    for lookup in 0..u64::from(keys) * u64::from(lookups_per_key) {
        if lookup % (1 << 16) == 0 && stop.load(Ordering::Relaxed) {
            return None;
        }
        table.look_up(stream.next_flow());
    }
    Some(table.counts.held as f64 / f64::from(keys))
}

/// What is calculated, and simulated if that was asked for: the JSON of `overbank lab model`.
#[derive(Clone, Debug, Serialize)]
pub struct Calculation {
    pub schema: &'static str,
    pub version: &'static str,
    pub simulation: Option<Simulation>,
    pub rows: Vec<Row>,
    pub interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulation {
    pub entries: usize,
    pub lookups_per_key: u32,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub geometry: String,
    pub buckets: u32,
    pub slots: u32,
    pub alpha: f64,
    pub hit_rate: f64,
    pub bound: bool,
    pub occupied: f64,
    pub simulated: Option<f64>,
}

/// Calculates every geometry under every load. What is done when `stop` is set is kept.
pub fn calculate(
    geometries: &[AnyGeometry],
    alphas: &[f64],
    simulation: Option<Simulation>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Calculation, ModelError> {
    let mut rows = Vec::new();
    let mut interrupted = false;
    let all = geometries.len() * alphas.len();
    if let Some(simulation) = simulation {
        // A simulated table has the next whole number of buckets.
        let most =
            f64::from(u32::MAX) / (simulation.entries + 2 * models::REACH_MAX as usize) as f64;
        if let Some(&alpha) = alphas.iter().find(|&&alpha| alpha > most) {
            return Err(ModelError::Keys { alpha, entries: simulation.entries });
        }
    }
    let cells =
        geometries.iter().flat_map(|&geometry| alphas.iter().map(move |&alpha| (geometry, alpha)));
    for (done, (geometry, alpha)) in cells.enumerate() {
        progress(&format!("{geometry} at α = {alpha}"), done as f64 / all as f64);
        let hit_rate = geometry.hit_rate(alpha)?;
        let simulated = simulation.and_then(|of| simulate(geometry, alpha, of, stop));
        rows.push(Row {
            geometry: geometry.to_string(),
            buckets: geometry.h,
            slots: geometry.m,
            alpha,
            hit_rate,
            bound: geometry.family == Family::Cuckoo,
            occupied: hit_rate * alpha,
            simulated,
        });
        if stop.load(Ordering::Relaxed) {
            interrupted = rows.len() < all || simulation.is_some() && simulated.is_none();
            break;
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    Ok(Calculation { schema: SCHEMA, version, simulation, rows, interrupted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::cache::GeometryKind;
    use overbank_kit::keyed::KeyedTable;

    fn geometry(name: &str) -> AnyGeometry {
        name.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The naive table against the fast ones.
    #[test]
    fn agrees_with_the_kernels() {
        for kind in [GeometryKind::Set8, GeometryKind::Blp2x4, GeometryKind::Cuckoo2x4] {
            for alpha in [0.5, 0.95, 2.0] {
                let (entries, keys) = (1 << 13, ((1 << 13) as f64 * alpha) as u32);
                let mut bench = KeyedTable::new(kind, entries, 1).unwrap();
                let mut stream = FlowStream::uniform(keys, 1).unwrap();
                bench.warm(&mut stream, 100 * u64::from(keys));
                let fast = bench.held() as f64 / f64::from(keys);
                let simulation = Simulation { entries, lookups_per_key: 100, seed: 5 };
                let go = AtomicBool::new(false);
                let naive = simulate(kind.into(), alpha, simulation, &go).expect("not stopped");
                assert!((fast - naive).abs() < 0.01, "{} α {alpha}: {fast} {naive}", kind.name());
            }
        }
    }

    #[test]
    fn a_calculation_has_a_row_for_each() {
        let go = AtomicBool::new(false);
        let simulation = Simulation { entries: 1000, lookups_per_key: 20, seed: 1 };
        let geometries = [geometry("blp-3-5"), geometry("cuckoo-2-7")];
        let mut steps = 0;
        let mut count = |_: &str, _: f64| steps += 1;
        let all = calculate(&geometries, &[0.5, 1.5], Some(simulation), &go, &mut count).unwrap();
        assert_eq!((all.rows.len(), steps, all.interrupted), (4, 4, false));
        let [a, b, c, _] = &all.rows[..] else { panic!("{all:?}") };
        assert_eq!(
            (&*a.geometry, a.buckets, a.slots, a.alpha, a.bound),
            ("blp-3-5", 3, 5, 0.5, false)
        );
        assert_eq!((b.alpha, &*c.geometry, c.bound), (1.5, "cuckoo-2-7", true));
        assert!(b.hit_rate < a.hit_rate && b.occupied > a.occupied);
        assert!(all.rows.iter().all(|r| (r.simulated.unwrap() - r.hit_rate).abs() < 0.05));

        let rows =
            |s| calculate(&geometries, &[0.5], s, &AtomicBool::new(true), &mut |_, _| {}).unwrap();
        let stopped = rows(Some(simulation));
        assert!(
            stopped.interrupted && stopped.rows.len() == 1 && stopped.rows[0].simulated.is_none()
        );
        let over = calculate(&geometries, &[0.5, 101.0], None, &go, &mut |_, _| {});
        assert_eq!(over.unwrap_err(), ModelError::Load { alpha: 101.0 });
    }
}
