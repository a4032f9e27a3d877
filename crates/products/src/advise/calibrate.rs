//! What promotion and a second line cost on this machine: two short measurements, at the start.
//!
//! Promotion: 256 KiB, α = 1.5, θ = 0.9, where every policy orders; the verified lookup with a
//! policy beside that with random eviction, per hit. The second line: 4 MiB at α = 0.9, 2-16
//! cuckoo-lite beside 2-16 BLP. Designs take turns and medians count ([`overbank_kit::micro`]), but
//! nothing here is repeated, and pinning is for the caller: good to some tenths of a nanosecond.
//! Cost: bounded by the number of keys, some 0.2 s.

use super::Costs;
use overbank_kit::experiment::LabError;
use overbank_kit::micro::{self, Cell, Measured, Plan, Row, measure, tsc};

/// Returns `costs` with those of policies and of the second line measured here; as they are where
/// there is no memory for it.
pub fn calibrated(costs: Costs) -> Costs {
    measured(costs).unwrap_or(costs)
}

fn measured(costs: Costs) -> Result<Costs, LabError> {
    let cycles_per_ns = tsc::cycles_per_ns();
    let plan = |keys| Plan {
        warm_per_flow: 4.0,
        warm_max: 2_000_000,
        keys,
        trial: 0,
        rounds: 7,
        penalty_cycles: 0.0,
        ahead: false,
    };
    fn row<'m>(m: &'m Measured, name: &str) -> &'m Row {
        m.row(name).expect("a design that was asked for")
    }
    let lookup = |m: &Measured, name: &str| row(m, name).lookup_ns.median;
    let run = |cell, names: &[&str], keys| {
        measure(cell, &micro::designs(names)?, &plan(keys), cycles_per_ns, 1, &mut |_| Ok(()))
    };

    let names = ["blp-2-16", "blp-2-16+pblru", "blp-2-16+bubble", "blp-2-16+half-bubble"];
    let m = run(Cell { entries: 1 << 16, alpha: 1.5, theta: 0.9 }, &names, 1 << 14)?;
    let promotion = |name: &str| {
        let hits = row(&m, name).hit_rate.max(0.1);
        ((lookup(&m, name) - lookup(&m, names[0])) / hits).max(0.0)
    };
    let [promote_ns, bubble_ns, half_bubble_ns] = [1, 2, 3].map(|i| promotion(names[i]));

    let names = ["blp-2-16", "cuckoo-2-16"];
    let m = run(Cell { entries: 1 << 20, alpha: 0.9, theta: 0.0 }, &names, 1 << 16)?;
    let second_line_ns = (lookup(&m, names[1]) - lookup(&m, names[0])).max(0.0);
    Ok(Costs { promote_ns, bubble_ns, half_bubble_ns, second_line_ns, calibrated: true, ..costs })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timings are not asserted, only that they are numbers and that nothing else changes.
    #[test]
    fn costs_are_measured() {
        let before = Costs { hit_ns: 3.0, miss_ns: 70.0, ..Costs::default() };
        let costs = calibrated(before);
        assert!(costs.calibrated && (costs.hit_ns, costs.miss_ns) == (3.0, 70.0));
        let all = [costs.promote_ns, costs.bubble_ns, costs.half_bubble_ns, costs.second_line_ns];
        assert!(all.iter().all(|ns| *ns >= 0.0 && ns.is_finite()), "{costs:?}");
    }
}
