//! Owners at work: moves, new keys, and the entries of full duplication.

use std::hint::black_box;
use std::time::Instant;

use super::super::{hash, table};
use super::rib::{Dense, Part};
use super::sessions::{Change, PARTS, Sessions, moves, part_of};
use super::{OWNERS, Plan};
use crate::prelude::*;
use overbank::fib::Writer;
use overbank::random::Pcg32;

/// Deltas of a part that a node applies at a time.
pub(super) const BATCH: usize = 64;

/// What was measured of a kind of table.
pub(super) struct Measured {
    pub(super) name: &'static str,
    /// By owners: updates a second, all owners together.
    pub(super) rates: Rounds,
    /// Nanoseconds a delta takes to apply, by round.
    pub(super) apply: Vec<f64>,
    /// Nanoseconds of each change by the owner of everything, ascending.
    pub(super) changes: Vec<f64>,
    pub(super) delta_bits: [usize; 2],
    /// Keys whose copies have a wrong value at the end.
    pub(super) wrong: u64,
    /// Nanoseconds of a new key in place of another, and the mean bits of its delta.
    pub(super) replaces: Option<(f64, f64)>,
}

impl Measured {
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let at = (share * self.changes.len() as f64) as usize;
        self.changes.get(at).copied().unwrap_or(0.0)
    }

    pub(super) fn apply(&self) -> Spread {
        Spread::of(self.apply.iter().copied())
    }

    /// By the places of two numbers of owners: the ratio of their rates.
    pub(super) fn ratio(&self, owners: usize) -> Spread {
        self.rates.ratio(OWNERS.iter().position(|&n| n == owners).unwrap_or(0), 0)
    }
}

/// Work after the moves: nanoseconds of the owner, and the mean bits of a delta.
pub(super) type Finish<P> =
    fn(&mut [P], &mut [Sessions], u64) -> Result<Option<(f64, f64)>, LabError>;

pub(super) fn measure<P: Part>(
    context: &mut Context<'_>,
    plan: &Plan,
    sessions: &mut [Sessions],
    finish: Finish<P>,
) -> Result<Measured, LabError> {
    let mut parts: Vec<P> = Vec::new();
    for (nth, of) in sessions.iter().enumerate() {
        context.step(&format!("{}: part {nth}", P::NAME), 0.6 * nth as f64 / PARTS as f64)?;
        let hashes = of.numbers.iter().map(|&session| hash(session));
        let entries: Vec<_> = hashes.zip(of.nodes.iter().copied()).collect();
        parts.push(P::build(&entries)?);
    }
    let mut pcg = Pcg32::new(context.seed, 7);
    let (mut apply, mut changes) = (Vec::new(), Vec::new());
    let rates = Rounds::run(
        &mut OWNERS.clone(),
        plan.rounds,
        |done| context.step(&format!("{}: moves", P::NAME), 0.6 + 0.4 * done),
        |&mut owners, _| {
            let mut rate = 0.0;
            for owner in 0..owners {
                let own = owner * PARTS / owners..(owner + 1) * PARTS / owners;
                for (part, _, hash, node) in moves(sessions, own.clone(), plan.lead, &mut pcg) {
                    parts[part].change(hash, node)?;
                }
                let moves = moves(sessions, own, plan.timed, &mut pcg);
                let start = Instant::now();
                let mut before = start;
                for &(part, _, hash, node) in &moves {
                    parts[part].change(hash, node)?;
                    if owners == 1 {
                        let now = Instant::now();
                        changes.push((now - before).as_nanos() as f64);
                        before = now;
                    }
                }
                rate += moves.len() as f64 / start.elapsed().as_secs_f64();
            }
            let (start, mut count) = (Instant::now(), 0);
            loop {
                let before = count;
                for part in &mut parts {
                    count += part.apply(BATCH)?;
                }
                if count == before {
                    break;
                }
            }
            // The deltas of a few milliseconds of all parts, as a node gets them.
            if owners == 1 {
                apply.push(start.elapsed().as_nanos() as f64 / count.max(1) as f64);
            }
            Ok(rate)
        },
    )?;
    let delta_bits = parts[0].delta_bits();
    let replaces = finish(&mut parts, sessions, context.seed)?;
    let right = |(part, of): (&P, &Sessions)| {
        let all = of.numbers.iter().zip(&of.nodes);
        all.filter(|&(&session, &node)| part.value(hash(session)) != node).count() as u64
    };
    let wrong = parts.iter().zip(&*sessions).map(right).sum();
    changes.sort_by(f64::total_cmp);
    Ok(Measured { name: P::NAME, rates, apply, changes, delta_bits, wrong, replaces })
}

/// Replaces sessions by new ones: nanoseconds of the owner, mean bits of a delta.
pub(super) fn replace(
    parts: &mut [Dense],
    sessions: &mut [Sessions],
    seed: u64,
) -> Result<Option<(f64, f64)>, LabError> {
    let mut pcg = Pcg32::new(seed, 8);
    let mut fresh = 1u64 << 40;
    let count = (sessions[0].numbers.len() / 4).min(8192);
    let drawn: Vec<(Change, u64)> = moves(sessions, 0..PARTS, count, &mut pcg)
        .into_iter()
        .map(|change| {
            while part_of(fresh) != change.0 {
                fresh += 1;
            }
            // The session may have been drawn before: its key is the one that it has by then.
            let old = std::mem::replace(&mut sessions[change.0].numbers[change.1], fresh);
            fresh += 1;
            let node = sessions[change.0].nodes[change.1];
            ((change.0, change.1, hash(old), node), fresh - 1)
        })
        .collect();
    let (start, mut bits) = (Instant::now(), 0);
    for &((part, _, old, node), new) in &drawn {
        parts[part].replace(old, (hash(new), node))?;
        bits += parts[part].delta_bits()[1];
    }
    let ns = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
    for part in parts {
        while part.apply(BATCH)? > 0 {}
    }
    Ok(Some((ns, bits as f64 / count.max(1) as f64)))
}

/// Full duplication, and the entries of a handling node: nanoseconds by round.
pub(super) struct Fib {
    /// By nodes: updates a second of the slowest node.
    pub(super) rates: Rounds,
    /// An entry taken in and another dropped.
    pub(super) entries: Vec<f64>,
}

pub(super) fn fib(context: &mut Context<'_>, plan: &Plan) -> Result<Fib, LabError> {
    context.step("full duplication: table", 0.0)?;
    let mut whole = table(plan.keys, context.seed, |session| session as u32)?;
    let count = 8 * (plan.lead + plan.timed);
    let mut pcg = Pcg32::new(context.seed, 9);
    let mut draw = |count: usize| -> Vec<u64> {
        (0..count).map(|_| hash(u64::from(pcg.below(plan.keys as u32)))).collect()
    };
    let mut entries = Vec::new();
    let mut timed = |work: &mut dyn FnMut(&mut Writer<u64, u32>, u64)| {
        let (lead, keys) = (draw(count / 8), draw(count));
        lead.iter().for_each(|&key| work(&mut whole, key));
        let start = Instant::now();
        keys.iter().for_each(|&key| work(&mut whole, key));
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    };
    let rates = Rounds::run(
        &mut OWNERS.clone(),
        plan.rounds,
        |done| context.step("full duplication: updates", 0.3 + 0.7 * done),
        |&mut nodes, _| {
            let each = (0..nodes)
                .map(|node| timed(&mut |fib, key| _ = black_box(fib.update(key, node as u32))));
            let slowest = each.fold(0.0, f64::max);
            if nodes == 1 {
                entries.push(timed(&mut |fib, key| {
                    let value = fib.remove(key).unwrap_or(0);
                    // Its slot is free.
                    _ = black_box(fib.insert(key, value));
                }));
            }
            Ok(1e9 / slowest)
        },
    )?;
    Ok(Fib { rates, entries })
}

#[cfg(test)]
mod tests {
    use super::super::rib::Paper;
    use super::super::sessions::sessions;
    use super::*;

    fn follows<P: Part>() {
        let mut all = sessions(20_000);
        let of = &mut all[..1];
        let entries: Vec<_> =
            of[0].numbers.iter().map(|&s| hash(s)).zip(of[0].nodes.iter().copied()).collect();
        let mut part = P::build(&entries).unwrap();
        let mut pcg = Pcg32::new(1, 1);
        for (_, _, hash, node) in moves(of, 0..1, 300, &mut pcg) {
            part.change(hash, node).unwrap();
        }
        let wrong = |part: &P| {
            let all = of[0].numbers.iter().zip(&of[0].nodes);
            all.filter(|&(&session, &node)| part.value(hash(session)) != node).count()
        };
        assert!(wrong(&part) > 100, "nothing is applied yet");
        assert_eq!((part.apply(100).unwrap(), part.apply(1000).unwrap()), (100, 200));
        assert_eq!((part.apply(1).unwrap(), wrong(&part)), (0, 0), "{}", P::NAME);
    }

    #[test]
    fn copies_follow_their_owner() {
        follows::<Dense>();
        follows::<Paper>();
    }

    #[test]
    fn replaced_sessions_are_in_their_part() {
        let mut all = sessions(20_000);
        let entries = |of: &Sessions| -> Vec<_> {
            of.numbers.iter().map(|&s| hash(s)).zip(of.nodes.iter().copied()).collect()
        };
        let mut parts: Vec<Dense> =
            all.iter().map(|of| Dense::build(&entries(of)).unwrap()).collect();
        assert!(replace(&mut parts, &mut all, 1).unwrap().is_some());
        for (nth, (part, of)) in parts.iter().zip(&all).enumerate() {
            assert!(of.numbers.iter().all(|&session| part_of(session) == nth));
            assert!(entries(of).iter().all(|&(hash, node)| part.value(hash) == node));
        }
    }
}
