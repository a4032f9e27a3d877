//! What the text and the goals say of the architectures.

use super::super::nodes::{Architecture, Pass};
use super::measure::{Measured, Sized};
use crate::prelude::*;
use overbank_kit::machine::last_level_cache_bytes;

pub(super) const CLAIMS: &[Claim<Sized>] = &[
    Claim::new("every packet is handled by its session's node", "all", |of: &Sized| {
        let right = |m: &&Measured| {
            let Pass { packets, known, handled, refused, wrong, .. } = m.pass;
            handled == known && refused == packets - known && wrong == 0
        };
        let (count, packets) = (of.all.iter().filter(right).count(), of.all[0].pass.packets);
        let text = format!("{count} of {} architectures, {packets} packets each", of.all.len());
        Finding::new(count == of.all.len(), text)
    }),
    Claim::new("links crossed: two with (a) and (c), one with (b) and (d)", "2, 1, 2, 1", |of| {
        let exact = |m: &Measured| {
            m.pass.hops_max == m.architecture.hops()
                && m.pass.unknown_hops_max <= m.architecture.hops()
        };
        let text = listed(&of.all, |m| format!("{}: {}", m.architecture.name(), m.pass.hops_max));
        Finding::new(of.all.iter().all(exact), text)
    }),
    Claim::new(
        "internal bytes for each external one: links × (1 − 1/N), within 2 %",
        "2 R, R",
        |of: &Sized| {
            let other = 1.0 - 1.0 / of.nodes as f64;
            let off = of.all.iter().map(|m| {
                let due = f64::from(m.architecture.hops()) * other;
                (m.internal() / due - 1.0, m.architecture.name())
            });
            let (worst, name) = farthest(off);
            let bytes = listed(&of.all, |m| format!("{:.2}", m.internal()));
            let text = format!("{bytes}; {:+.1} % ({name})", 100.0 * worst);
            // The smoke size has few packets.
            let few = of.all[0].pass.packets < 100_000;
            Finding::new(worst.abs() < if few { 0.06 } else { 0.02 }, text)
        },
    ),
    Claim::new("bytes of a node's tables: those of the model, within 4 %", "n e/N + n g", |of| {
        let off = of
            .all
            .iter()
            .map(|m| (m.bytes as f64 / of.model(m.architecture) - 1.0, m.architecture.name()));
        let (worst, name) = farthest(off);
        Finding::new(worst.abs() < 0.04, format!("{:+.1} % ({name})", 100.0 * worst))
    }),
    Claim::timed("(d) takes less time than (c)", "less", |of: &Sized| {
        let ratio = of.ratio(Architecture::ScaleBricks, Architecture::HashPartition)?;
        Finding::new(ratio.median < 1.0, ratio.text())
    }),
    Claim::timed("(d) takes at most 0.8 of the time of (c)", "goal: 0.8", |of: &Sized| {
        Finding::at_most(0.8, of.ratio(Architecture::ScaleBricks, Architecture::HashPartition)?)
    })
    .because("a hop in memory costs hardly more than a lookup; the table has the port's time that decides"),
    Claim::timed(
        "(d) is as fast as (b), whose table leaves the L3",
        "goal: at most 1",
        |of: &Sized| {
            let bytes = of.of(Architecture::Duplication)?.bytes;
            (bytes > last_level_cache_bytes()? as u64).then_some(())?;
            Finding::at_most(1.0, of.ratio(Architecture::ScaleBricks, Architecture::Duplication)?)
        },
    ),
];
