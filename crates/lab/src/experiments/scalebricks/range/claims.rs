//! Where ranges suffice, and where a partition table is smaller or faster.

use super::site::Event;
use super::{Measured, Sized};
use crate::prelude::*;

/// Whether ranges with exceptions are smaller than the GPT, with the bytes of both.
fn smaller(of: &Measured) -> (bool, String) {
    let [ranges, gpt] = of.bytes;
    (ranges < gpt, format!("{:.2} and {:.2} MB", ranges as f64 / 1e6, gpt as f64 / 1e6))
}

pub(super) const CLAIMS: &[Claim<Sized>] = &[
    Claim::new("every key leads to its session's node, both ways", "all", |of: &Sized| {
        let wrong: u64 = of.all.iter().map(|m| m.wrong).sum();
        Finding::new(wrong == 0, format!("{wrong} wrong"))
    }),
    Claim::new("sessions that stay need no table: no exception", "0", |of: &Sized| {
        let [teids, addresses] = of.of(Event::Established)?.exceptions;
        Finding::new(teids + addresses == 0, (teids + addresses).to_string())
    }),
    Claim::new("drained and upgraded by range: no exception", "0", |of: &Sized| {
        let both = [of.of(Event::DrainChunks)?, of.of(Event::UpgradeChunks)?];
        let count: u64 = both.iter().flat_map(|m| m.exceptions).sum();
        Finding::new(count == 0, count.to_string())
    }),
    Claim::new("with 1 % moved, ranges and exceptions are smaller than a GPT", "smaller", |of| {
        let (holds, text) = smaller(of.of(Event::Moved(0.01))?);
        Finding::new(holds, text)
    }),
    Claim::new("with 10 % moved, the GPT is smaller", "smaller", |of| {
        let (ranges, text) = smaller(of.of(Event::Moved(0.1))?);
        Finding::new(!ranges, text)
    }),
    Claim::new("all nodes upgraded by session: the GPT is smaller, the load even", "1 %", |of| {
        let m = of.of(Event::Upgrade)?;
        let (ranges, text) = smaller(m);
        Finding::new(!ranges && m.balance < 1.01, format!("{text}; {:.3} × the mean", m.balance))
    }),
    Claim::new("all nodes upgraded by range: the load is within 10 % of even", "10 %", |of| {
        let balance = of.of(Event::UpgradeChunks)?.balance;
        Finding::new(balance < 1.1, format!("{balance:.3} × the mean"))
    }),
    Claim::timed("as established, a range is looked up faster", "faster", |of: &Sized| {
        let ratio = of.of(Event::Established)?.rounds.ratio(0, 1);
        Finding::new(ratio.median < 1.0, format!("{} × the GPT's time", ratio.text()))
    }),
    Claim::timed("with 10 % moved, the GPT is looked up faster", "faster", |of: &Sized| {
        let ratio = of.of(Event::Moved(0.1))?.rounds.ratio(0, 1);
        Finding::new(ratio.median > 1.0, format!("{} × the GPT's time", ratio.text()))
    }),
];
