//! Hit rates of any geometry: by the models, and by a naive table to compare with. What `overbank
//! lab model` prints.
//!
//! The tables of `overbank::cache` exist for the geometries that are fast; this one has any: whole
//! keys in slots, random eviction, a lookup that looks at each slot.
//!
//! Cost of a simulation: a bucket read is a cache miss in large tables, so some 100 ns a lookup.

use overbank::hash::mix;
use overbank::random::Pcg32;
use overbank_kit::geometry::{AnyGeometry, Family};
use overbank_kit::models::{self, ModelError};
use overbank_kit::workload::FlowStream;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};

pub const SCHEMA: &str = "overbank-model/1";
/// Most slots of a simulated table.
pub const ENTRIES_MAX: usize = 1 << 26;

/// Share of the keys that a table of at least `entries` slots holds after a number of uniform
/// lookups per key: the hit rate of the next. `None` if `stop` was set before the end.
///
/// # Panics
/// Unless the model's limits hold and `entries` is from 1 to [`ENTRIES_MAX`].
pub fn simulate(geometry: AnyGeometry, load: Load, seed: u64, stop: &AtomicBool) -> Option<f64> {
    let Load { alpha, entries, lookups_per_key } = load;
    assert!(
        models::check(geometry.h, geometry.m, alpha).is_ok()
            && (1..=ENTRIES_MAX).contains(&entries)
    );
    let mut table = Table::new(geometry, entries, seed);
    let entries = table.buckets as f64 * f64::from(geometry.m);
    let keys = ((entries * alpha).round() as u32).max(1);
    let mut stream = FlowStream::uniform(keys, seed).expect("at least one key");
    for lookup in 0..u64::from(keys) * u64::from(lookups_per_key) {
        if lookup % (1 << 16) == 0 && stop.load(Ordering::Relaxed) {
            return None;
        }
        table.look_up(stream.next_flow());
    }
    Some(table.held as f64 / f64::from(keys))
}

/// How large and how full a simulated table is, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub alpha: f64,
    /// Slots; rounded up to whole buckets.
    pub entries: usize,
    pub lookups_per_key: u32,
}

struct Table {
    geometry: AnyGeometry,
    buckets: usize,
    /// Key plus one; 0 is empty.
    slots: Vec<u32>,
    held: usize,
    seed: u64,
    pcg: Pcg32,
}

impl Table {
    fn new(geometry: AnyGeometry, entries: usize, seed: u64) -> Table {
        let m = geometry.m as usize;
        let buckets = entries.div_ceil(m);
        let buffer = if geometry.family == Family::Blp { geometry.h as usize - 1 } else { 0 };
        let slots = vec![0; (buckets + buffer) * m];
        Table { geometry, buckets, slots, held: 0, seed, pcg: Pcg32::new(seed, 11) }
    }

    /// The first slot of a key's nth bucket.
    fn bucket(&self, key: u32, nth: u32) -> usize {
        let apart = if self.geometry.family == Family::Cuckoo { nth } else { 0 };
        let hash = mix(mix(self.seed ^ u64::from(apart) << 32) ^ u64::from(key));
        let bucket = ((u128::from(hash) * self.buckets as u128) >> 64) as usize;
        (bucket + (nth - apart) as usize) * self.geometry.m as usize
    }

    /// Puts the key in if it is not there: into the first empty slot, else into any.
    fn look_up(&mut self, key: u32) {
        let m = self.geometry.m as usize;
        let mut empty = None;
        for nth in 0..self.geometry.h {
            let start = self.bucket(key, nth);
            let slots = &self.slots[start..start + m];
            if slots.contains(&(key + 1)) {
                return;
            }
            empty = empty.or_else(|| slots.iter().position(|&slot| slot == 0).map(|at| start + at));
        }
        let at = empty.unwrap_or_else(|| {
            let victim = self.pcg.below(self.geometry.h * self.geometry.m);
            self.bucket(key, victim / self.geometry.m) + (victim % self.geometry.m) as usize
        });
        self.held += usize::from(empty.is_some());
        self.slots[at] = key + 1;
    }
}

/// What is calculated, and simulated if that was asked for: the JSON of `overbank lab model`.
#[derive(Clone, Debug, Serialize)]
pub struct Calculation {
    pub schema: &'static str,
    pub version: &'static str,
    /// Of the simulation; `null` without one.
    pub simulation: Option<Simulation>,
    pub rows: Vec<Row>,
    /// Ended early: rows or simulations are missing.
    pub interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Slots, before they are rounded up to whole buckets.
    pub entries: usize,
    pub lookups_per_key: u32,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub geometry: String,
    /// Buckets of a key, H.
    pub buckets: u32,
    /// Slots of a bucket, m.
    pub slots: u32,
    pub alpha: f64,
    pub hit_rate: f64,
    /// Whether that is an upper bound (cuckoo-lite) and not what is reached.
    pub bound: bool,
    /// Share of the slots that are occupied in the end, by model.
    pub occupied: f64,
    pub simulated: Option<f64>,
}

/// Every geometry under every load. What is done when `stop` is set is kept.
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
        let simulated = simulation.and_then(|s| {
            let load = Load { alpha, entries: s.entries, lookups_per_key: s.lookups_per_key };
            simulate(geometry, load, s.seed, stop)
        });
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

    fn simulate(name: &str, alpha: f64, entries: usize) -> f64 {
        let load = Load { alpha, entries, lookups_per_key: 100 };
        super::simulate(geometry(name), load, 5, &AtomicBool::new(false)).expect("not stopped")
    }

    /// The model of geometries that no kernel exists for against the naive table.
    #[test]
    fn models_hold_for_any_geometry() {
        for (name, tolerance) in [
            ("set-6", 1.0),
            ("set-100", 1.0),
            ("blp-1-5", 1.0),
            ("blp-3-5", 1.0),
            ("blp-5-1", 1.0),
            ("blp-2-12", 1.0),
            ("blp-6-6", 1.0),
            // An upper bound: nowhere far above what is reached but around α = 1.
            ("cuckoo-3-2", 2.0),
            ("cuckoo-2-12", 1.0),
        ] {
            for alpha in [0.25, 0.7, 1.5, 4.0] {
                let model = 100.0 * geometry(name).hit_rate(alpha).unwrap();
                let measured = 100.0 * simulate(name, alpha, 1 << 13);
                let off = measured - model;
                assert!(off.abs() < tolerance, "{name} α {alpha}: {measured:.2}, model {model:.2}");
            }
        }
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
                let naive = simulate(kind.name(), alpha, entries);
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
