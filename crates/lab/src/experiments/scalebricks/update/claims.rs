//! What the text and the goals say of updates.

use super::All;
use super::rib::VALUE_BITS;
use crate::prelude::*;

pub(super) const CLAIMS: &[Claim<All>] = &[
    Claim::new("all copies have the last value of every key", "all", |of: &All| {
        let wrong = of.dense.wrong + of.paper.wrong;
        Finding::new(wrong == 0, format!("{wrong} wrong of {} keys", of.keys))
    }),
    Claim::new(
        "SetSep: a delta is tens of bits, 24 for each bit of a value",
        "tens",
        |of: &All| {
            let [content, sent] = of.paper.delta_bits;
            let text = format!("{content} bits for 32 nodes, {sent} with the group's number");
            Finding::new(content == 24 * VALUE_BITS, text)
        },
    ),
    Claim::new("the partition table: a move is 24 bytes at most", "goal: 24 bytes", |of: &All| {
        let bytes = of.dense.delta_bits[1] / 8;
        Finding::new((1..=24).contains(&bytes), format!("{bytes} bytes"))
    }),
    Claim::timed("8 owners of the partition table: at least 0.9 × 8", "scales", |of: &All| {
        Finding::at_least(7.2, of.dense.ratio(8))
    }),
    Claim::timed("8 owners of SetSep: at least 0.9 × 8", "scales", |of: &All| {
        Finding::at_least(7.2, of.paper.ratio(8))
    }),
    Claim::timed(
        "8 nodes that also apply every delta on the same core: at least 0.9 × 8",
        "scales",
        |of: &All| {
            let ratio = of.whole(&of.dense, 8) / of.whole(&of.dense, 1);
            Finding::new(ratio >= 7.2, format!("{ratio:.2} ×"))
        },
    ),
    Claim::timed("full duplication: 8 nodes at the rate of one", "one server's", |of: &All| {
        let ratio = of.fib.rates.ratio(3, 0);
        Finding::new((0.8..=1.1).contains(&ratio.median), ratio.text())
    }),
    Claim::timed("an owner computes a move in 3 µs (p50)", "goal: 3 µs", |of: &All| {
        let ns = of.dense.quantile(0.5);
        Finding::new(ns <= 3000.0, format!("{:.2} µs", ns / 1e3))
    })
    .because("the owner of all 16 M keys waits for memory; one of an eighth of them takes less"),
    Claim::timed("and in 10 µs (p99)", "goal: 10 µs", |of: &All| {
        let ns = of.dense.quantile(0.99);
        Finding::new(ns <= 10_000.0, format!("{:.2} µs", ns / 1e3))
    }),
    Claim::timed("a node applies a delta in 30 ns", "a memory copy; goal: 30 ns", |of: &All| {
        Finding::at_most(30.0, of.dense.apply())
    })
    .because("prefetches begin anew with each batch: here 64 deltas for each of 32 parts"),
];
