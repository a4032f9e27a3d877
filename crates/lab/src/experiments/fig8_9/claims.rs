//! What the text of section 7.3 says of figures 8 and 9, and whether it holds.

use crate::micro::{Measured, Row};

/// The paper's designs with random eviction, by its order of hit rates.
const PLAIN: [&str; 4] = ["set-4", "set-8", "blp-2-4", "cuckoo-2-4"];

/// A sentence of section 7.3.
pub(super) struct Claim {
    pub(super) text: &'static str,
    pub(super) stated: &'static str,
    /// Whether it is about time, which the smoke size says nothing of.
    pub(super) timed: bool,
    /// Why it differs, if it does: figures of this run, or said to be a guess.
    pub(super) why: fn(&[Measured]) -> String,
    pub(super) test: fn(&[Measured]) -> (bool, String),
}

fn row<'a>(m: &'a Measured, name: &str) -> &'a Row {
    // Every design of DESIGNS was measured, and claims are about those.
    m.row(name).expect("a design of the list")
}

/// `a` and `b` at each α, as text, and whether `holds` at all of them.
fn compare(
    size: &[Measured],
    names: (&str, &str),
    value: fn(&Row) -> f64,
    holds: fn(f64, f64) -> bool,
) -> (bool, String) {
    let pairs = size.iter().map(|m| (m, value(row(m, names.0)), value(row(m, names.1))));
    let text = pairs.clone().map(|(m, a, b)| format!("α {}: {a:.2}, {b:.2}", m.cell.alpha));
    let text = text.collect::<Vec<_>>().join("; ");
    (pairs.clone().all(|(_, a, b)| holds(a, b)), format!("{}, {}: {text}", names.0, names.1))
}

fn hit(row: &Row) -> f64 {
    100.0 * row.hit_rate
}

fn cost(row: &Row) -> f64 {
    row.lookup_ns.median
}

fn speed(row: &Row) -> f64 {
    row.throughput.median
}

/// More, or the same within half a point.
fn not_below(a: f64, b: f64) -> bool {
    a >= b - 0.5
}

fn more(a: f64, b: f64) -> bool {
    a > b
}

fn less(a: f64, b: f64) -> bool {
    a < b
}

/// The fastest of the plain designs at each α.
fn winners(size: &[Measured]) -> Vec<(f64, &'static str)> {
    let best = |m: &Measured| {
        let by = |a: &&str, b: &&str| speed(row(m, a)).total_cmp(&speed(row(m, b)));
        (m.cell.alpha, PLAIN.into_iter().max_by(by).unwrap_or(PLAIN[0]))
    };
    size.iter().map(best).collect()
}

fn won(size: &[Measured], name: &str, where_: fn(f64) -> bool) -> (bool, String) {
    let winners: Vec<_> = winners(size).into_iter().filter(|w| where_(w.0)).collect();
    let text = winners.iter().map(|(alpha, name)| format!("α {alpha}: {name}"));
    (winners.iter().all(|w| w.1 == name), text.collect::<Vec<_>>().join("; "))
}

/// Where the throughputs of `a` and `b` part: their lookups with insertions, and the penalties of
/// their misses, in nanoseconds a key.
fn balance(size: &[Measured], a: &str, b: &str) -> String {
    let misses = |row: &Row| 1000.0 / row.throughput.median - row.whole_ns.median;
    let parts = size.iter().map(|m| {
        let (a, b) = (row(m, a), row(m, b));
        let whole = a.whole_ns.median - b.whole_ns.median;
        format!("α {}: {whole:+.1} and {:+.1}", m.cell.alpha, misses(a) - misses(b))
    });
    format!(
        "{a} against {b}, measured: nanoseconds a key for lookup and insertion, and for the penalty of \
         its misses: {}.",
        parts.collect::<Vec<_>>().join("; ")
    )
}

fn nothing(_: &[Measured]) -> String {
    String::new()
}

fn full_tables(_: &[Measured]) -> String {
    "At high α all tables are full, and the rates are the same within the noise.".into()
}

pub(super) fn claims(skewed: bool, large: bool) -> Vec<Claim> {
    let mut claims = vec![
        Claim {
            text: "2-4 cuckoo-lite has the highest hit rate of the plain designs at every α",
            stated: "cuckoo-lite ≥ 2-4 BLP",
            timed: false,
            why: full_tables,
            test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), hit, not_below),
        },
        Claim {
            text: "2-4 BLP has a higher hit rate than 8-way",
            stated: "2-4 BLP ≥ 8-way at every α",
            timed: false,
            why: full_tables,
            test: |size| compare(size, ("blp-2-4", "set-8"), hit, not_below),
        },
        Claim {
            text: "8-way has a higher hit rate than 4-way",
            stated: "8-way ≥ 4-way at every α",
            timed: false,
            why: full_tables,
            test: |size| compare(size, ("set-8", "set-4"), hit, not_below),
        },
        Claim {
            text: "2-4 cuckoo-lite has the highest lookup cost of the plain designs",
            stated: "slower than 2-4 BLP at every α",
            timed: true,
            why: |_| {
                "While it has room, cuckoo-lite reads one line a key here; with less room its second \
                 line is asked for in the same pass as the first, so that the waits probably overlap."
                    .into()
            },
            test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), cost, more),
        },
        Claim {
            text: "4-way and 8-way have the lowest lookup cost",
            stated: "8-way faster than 2-4 BLP at every α",
            timed: true,
            why: |_| {
                "2-4 BLP reads 1.25 lines on average and compares both buckets in one load. Misses, of \
                 which set-associative tables have more, probably cost mispredicted branches."
                    .into()
            },
            test: |size| compare(size, ("set-8", "blp-2-4"), cost, less),
        },
    ];
    if skewed {
        claims.extend([
            Claim {
                text: "8-way achieves the highest throughput of the plain designs",
                stated: "8-way first, 2-4 BLP within 1 to 2 %",
                timed: true,
                why: |size| balance(size, "set-8", "cuckoo-2-4"),
                test: |size| won(size, "set-8", |_| true),
            },
            Claim {
                text: "2-4 BLP has a higher throughput than 2-4 cuckoo-lite",
                stated: "much higher",
                timed: true,
                why: |size| balance(size, "blp-2-4", "cuckoo-2-4"),
                test: |size| compare(size, ("blp-2-4", "cuckoo-2-4"), speed, more),
            },
            Claim {
                text: "PBLRU has a higher hit rate than DC-Bubble",
                stated: "2-4 BLP with PBLRU above 8-way with DC-Bubble",
                timed: false,
                why: |size| {
                    format!(
                        "After {:.1} to {:.1} draws per flow; PBLRU promotes one hit in many and is \
                         probably not at its final order.",
                        size.iter().map(|m| m.warmed).fold(f64::MAX, f64::min),
                        size.iter().map(|m| m.warmed).fold(0.0, f64::max)
                    )
                },
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), hit, not_below),
            },
            Claim {
                text: "PBLRU has a lower lookup cost than DC-Bubble",
                stated: "lower",
                timed: true,
                why: nothing,
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), cost, less),
            },
            Claim {
                text: "PBLRU has a higher throughput than DC-Bubble",
                stated: "higher",
                timed: true,
                why: nothing,
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
            },
            Claim {
                text: "PBLRU has a lower throughput than 2-4 BLP with random eviction",
                stated: "lower",
                timed: true,
                why: |size| balance(size, "blp-2-4+pblru", "blp-2-4"),
                test: |size| compare(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
            },
        ]);
        return claims;
    }
    if large {
        claims.extend([
            Claim {
                text: "2-4 cuckoo-lite has a lower throughput than 2-4 BLP",
                stated: "lower at every α",
                timed: true,
                why: |size| balance(size, "cuckoo-2-4", "blp-2-4"),
                test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), speed, less),
            },
            Claim {
                text: "at small α 8-way outperforms 2-4 BLP",
                stated: "α = 0.5",
                timed: true,
                why: |size| balance(size, "set-8", "blp-2-4"),
                test: |size| compare(&size[..1], ("set-8", "blp-2-4"), speed, more),
            },
        ]);
    } else {
        claims.extend([
            Claim {
                text: "2-4 cuckoo-lite has the best throughput for α from 0.75 to 1.25",
                stated: "cuckoo-2-4",
                timed: true,
                why: |size| balance(size, "cuckoo-2-4", "blp-2-4"),
                test: |size| won(size, "cuckoo-2-4", |alpha| (0.75..=1.25).contains(&alpha)),
            },
            Claim {
                text: "2-4 BLP has the best throughput at all other α",
                stated: "blp-2-4",
                timed: true,
                why: |size| balance(size, "blp-2-4", "cuckoo-2-4"),
                test: |size| won(size, "blp-2-4", |alpha| !(0.75..=1.25).contains(&alpha)),
            },
        ]);
    }
    claims.extend([
        Claim {
            text: "PBLRU is slower than 2-4 BLP with random eviction",
            stated: "lower throughput",
            timed: true,
            why: nothing,
            test: |size| compare(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
        },
        Claim {
            text: "PBLRU is much faster than DC-Bubble",
            stated: "higher throughput than 8-way with DC-Bubble",
            timed: true,
            why: |size| balance(size, "blp-2-4+pblru", "set-8+dc-bubble"),
            test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
        },
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::{Cell, DESIGNS, Plan, designs, measure};

    /// Timed claims are not made at smoke size; here all are asked, whatever they answer.
    #[test]
    fn every_claim_can_be_tested_and_explained() {
        let plan = Plan {
            warm_per_flow: 5.0,
            warm_max: u64::MAX,
            keys: 1 << 10,
            rounds: 1,
            penalty_cycles: 1000.0,
        };
        let size: Vec<Measured> = [0.5, 1.5]
            .map(|alpha| {
                let cell = Cell { entries: 1 << 10, alpha, theta: 0.0 };
                let designs = designs(DESIGNS).unwrap();
                measure(cell, &designs, &plan, 2.5, 1, &mut |_| Ok(())).unwrap()
            })
            .into();
        for (skewed, large) in [(false, false), (false, true), (true, false)] {
            for claim in claims(skewed, large) {
                let (_, measured) = (claim.test)(&size);
                let why = (claim.why)(&size);
                assert!(!measured.contains("NaN") && !why.contains("NaN"), "{}", claim.text);
            }
        }
        let text = balance(&size, "set-8", "blp-2-4");
        assert!(text.contains("α 0.5: ") && text.contains("; α 1.5: "), "{text}");
    }
}
