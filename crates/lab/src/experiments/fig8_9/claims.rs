//! What the text of section 7.3 says of figures 8 and 9, and whether it holds.

use crate::micro::{Measured, Round, Row, Spread};

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

/// The ratio of `a` to `b` in the same round at each α, as text, and whether its median `holds`
/// against 1 at all of them.
fn compare_timed(
    size: &[Measured],
    names: (&str, &str),
    figure: fn(&Round) -> f64,
    holds: fn(f64, f64) -> bool,
) -> (bool, String) {
    let ratios: Vec<_> =
        size.iter().map(|m| (m.cell.alpha, row(m, names.0).to(row(m, names.1), figure))).collect();
    let text = ratios.iter().map(|(alpha, ratio)| format!("α {alpha}: ×{}", ratio.text()));
    let text = text.collect::<Vec<_>>().join("; ");
    let all = ratios.iter().all(|(_, ratio)| holds(ratio.median, 1.0));
    (all, format!("{} to {}: {text}", names.0, names.1))
}

fn hit(row: &Row) -> f64 {
    100.0 * row.hit_rate
}

fn cost(round: &Round) -> f64 {
    round.lookup_ns
}

fn speed(round: &Round) -> f64 {
    round.throughput
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

/// Whether `name` is faster than every other plain design, where it is asked; its throughput to that
/// of the hardest of them in the same round.
fn won(size: &[Measured], name: &str, where_: fn(f64) -> bool) -> (bool, String) {
    let hardest = |m: &Measured| {
        let others = PLAIN.into_iter().filter(|other| *other != name);
        let ratios = others.map(|other| (other, row(m, name).to(row(m, other), speed)));
        let (other, ratio) = ratios.min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
        Some((m.cell.alpha, other, ratio))
    };
    let all: Vec<_> = size.iter().filter(|m| where_(m.cell.alpha)).filter_map(hardest).collect();
    let text =
        all.iter().map(|(alpha, other, ratio)| format!("α {alpha}: ×{} to {other}", ratio.text()));
    let text = text.collect::<Vec<_>>().join("; ");
    (all.iter().all(|(.., ratio)| more(ratio.median, 1.0)), format!("{name}: {text}"))
}

/// Where the throughputs of `a` and `b` part: their lookups with insertions, and the penalties of
/// their misses, in nanoseconds a key; differences of the same round.
fn balance(size: &[Measured], a: &str, b: &str) -> String {
    let whole = |round: &Round| round.whole_ns;
    let misses = |round: &Round| 1000.0 / round.throughput - round.whole_ns;
    let parts = size.iter().map(|m| {
        let less = |figure: fn(&Round) -> f64| {
            let pairs = row(m, a).rounds.iter().zip(&row(m, b).rounds);
            Spread::of(pairs.map(|(a, b)| figure(a) - figure(b)).collect()).median
        };
        format!("α {}: {:+.1} and {:+.1}", m.cell.alpha, less(whole), less(misses))
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
            test: |size| compare_timed(size, ("cuckoo-2-4", "blp-2-4"), cost, more),
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
            test: |size| compare_timed(size, ("set-8", "blp-2-4"), cost, less),
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
                test: |size| compare_timed(size, ("blp-2-4", "cuckoo-2-4"), speed, more),
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
                test: |size| compare_timed(size, ("blp-2-4+pblru", "set-8+dc-bubble"), cost, less),
            },
            Claim {
                text: "PBLRU has a higher throughput than DC-Bubble",
                stated: "higher",
                timed: true,
                why: nothing,
                test: |size| compare_timed(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
            },
            Claim {
                text: "PBLRU has a lower throughput than 2-4 BLP with random eviction",
                stated: "lower",
                timed: true,
                why: |size| balance(size, "blp-2-4+pblru", "blp-2-4"),
                test: |size| compare_timed(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
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
                test: |size| compare_timed(size, ("cuckoo-2-4", "blp-2-4"), speed, less),
            },
            Claim {
                text: "at small α 8-way outperforms 2-4 BLP",
                stated: "α = 0.5",
                timed: true,
                why: |size| balance(size, "set-8", "blp-2-4"),
                test: |size| compare_timed(&size[..1], ("set-8", "blp-2-4"), speed, more),
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
            test: |size| compare_timed(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
        },
        Claim {
            text: "PBLRU is much faster than DC-Bubble",
            stated: "higher throughput than 8-way with DC-Bubble",
            timed: true,
            why: |size| balance(size, "blp-2-4+pblru", "set-8+dc-bubble"),
            test: |size| compare_timed(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
        },
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::grid::made_up;
    use crate::micro::{Cell, DESIGNS, Plan, designs, measure};

    /// Timed claims are not made at smoke size; here all are asked, whatever they answer.
    #[test]
    fn every_claim_can_be_tested_and_explained() {
        let plan = Plan {
            warm_per_flow: 5.0,
            warm_max: u64::MAX,
            keys: 1 << 10,
            trial: 0,
            rounds: 1,
            penalty_cycles: 1000.0,
            ahead: false,
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

    /// α of the tests below: ends and middle of every range that a claim has.
    const ALPHAS: [f64; 5] = [0.5, 0.75, 0.95, 1.25, 1.5];

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Of {
        Hits,
        Cost,
        Speed,
    }

    /// Hits in points, lookup in ns, million keys a second.
    type Numbers = [f64; 3];

    /// As the paper has it: every claim holds. `edit` may change that.
    fn size(skewed: bool, large: bool, edit: impl Fn(f64, &str, &mut Numbers)) -> Vec<Measured> {
        let measured = |alpha: f64| {
            let speeds = match (skewed, large) {
                (true, _) => [20.0, 30.0, 29.0, 25.0],
                (_, true) if alpha == 0.5 => [20.0, 30.0, 29.0, 25.0],
                (_, false) if (0.75..=1.25).contains(&alpha) => [18.0, 20.0, 29.0, 30.0],
                _ => [18.0, 20.0, 29.0, 25.0],
            };
            let rows = [
                ("set-4", [80.0, 8.0, speeds[0]]),
                ("set-8", [86.0, 9.0, speeds[1]]),
                ("blp-2-4", [92.0, 10.0, speeds[2]]),
                ("cuckoo-2-4", [96.0, 14.0, speeds[3]]),
                ("blp-2-4+pblru", [94.0, 12.0, 27.0]),
                ("set-8+dc-bubble", [90.0, 20.0, 15.0]),
            ];
            let rows = rows.map(|(name, mut numbers)| {
                edit(alpha, name, &mut numbers);
                (name, (numbers[0] / 100.0, numbers[1], numbers[2]))
            });
            made_up::measured(Cell { entries: 1000, alpha, theta: 0.0 }, 1.0, &rows)
        };
        ALPHAS.map(measured).into()
    }

    /// A claim, the design that it says is ahead, the one that is behind, of what, and at which α.
    type Says = (&'static str, &'static str, &'static str, Of, fn(f64) -> bool);

    fn anywhere(_: f64) -> bool {
        true
    }

    fn middle(alpha: f64) -> bool {
        (0.75..=1.25).contains(&alpha)
    }

    fn says(skewed: bool, large: bool) -> Vec<Says> {
        let mut all: Vec<Says> = vec![
            ("cuckoo-lite has the highest hit rate", "cuckoo-2-4", "blp-2-4", Of::Hits, anywhere),
            ("2-4 BLP has a higher hit rate than 8-way", "blp-2-4", "set-8", Of::Hits, anywhere),
            ("8-way has a higher hit rate than 4-way", "set-8", "set-4", Of::Hits, anywhere),
            (
                "cuckoo-lite has the highest lookup cost",
                "cuckoo-2-4",
                "blp-2-4",
                Of::Cost,
                anywhere,
            ),
            // A cost that is lower: the one that is ahead of it in nanoseconds is 2-4 BLP.
            ("4-way and 8-way have the lowest", "blp-2-4", "set-8", Of::Cost, anywhere),
        ];
        let (pblru, dc) = ("blp-2-4+pblru", "set-8+dc-bubble");
        if skewed {
            all.extend([
                (
                    "8-way achieves the highest throughput",
                    "set-8",
                    "blp-2-4",
                    Of::Speed,
                    anywhere as fn(f64) -> bool,
                ),
                (
                    "2-4 BLP has a higher throughput than",
                    "blp-2-4",
                    "cuckoo-2-4",
                    Of::Speed,
                    anywhere,
                ),
                ("PBLRU has a higher hit rate", pblru, dc, Of::Hits, anywhere),
                ("PBLRU has a lower lookup cost", dc, pblru, Of::Cost, anywhere),
                ("PBLRU has a higher throughput than DC", pblru, dc, Of::Speed, anywhere),
                ("PBLRU has a lower throughput than 2-4", "blp-2-4", pblru, Of::Speed, anywhere),
            ]);
            return all;
        }
        if large {
            all.push((
                "cuckoo-lite has a lower throughput",
                "blp-2-4",
                "cuckoo-2-4",
                Of::Speed,
                anywhere,
            ));
            all.push(("at small α 8-way", "set-8", "blp-2-4", Of::Speed, |alpha| alpha == 0.5));
        } else {
            all.push(("best throughput for α from", "cuckoo-2-4", "blp-2-4", Of::Speed, middle));
            all.push(("best throughput at all other", "blp-2-4", "cuckoo-2-4", Of::Speed, |a| {
                !middle(a)
            }));
        }
        all.push(("PBLRU is slower than", "blp-2-4", pblru, Of::Speed, anywhere));
        all.push(("PBLRU is much faster than", pblru, dc, Of::Speed, anywhere));
        all
    }

    /// Each claim at each α: it fails once what it says is ahead is not, and not before.
    #[test]
    fn every_comparison_is_the_way_that_the_claim_says() {
        for (skewed, large) in [(false, false), (false, true), (true, false)] {
            let (claims, says) = (claims(skewed, large), says(skewed, large));
            assert_eq!(claims.len(), says.len());
            for (text, ahead, behind, of, at) in says {
                let claim = claims.iter().find(|c| c.text.contains(text));
                let claim = claim.unwrap_or_else(|| panic!("no claim has {text:?}"));
                assert_eq!(claim.timed, of != Of::Hits, "{text}");
                // Whether it holds with the first `lead` before the second at one α.
                let holds = |place: f64, lead: f64| {
                    let whole = size(skewed, large, |_, _, _| {});
                    let there = whole.iter().find(|m| m.cell.alpha == place);
                    let row = there.and_then(|m| m.row(behind)).expect("measured");
                    let base = [100.0 * row.hit_rate, row.lookup_ns.median, row.throughput.median];
                    let edit = |alpha: f64, name: &str, numbers: &mut Numbers| {
                        if alpha == place && name == ahead {
                            numbers[of as usize] = base[of as usize] + lead;
                        }
                    };
                    (claim.test)(&size(skewed, large, edit)).0
                };
                assert!((claim.test)(&size(skewed, large, |_, _, _| {})).0, "{text}");
                for alpha in ALPHAS {
                    // Within half a point hit rates are the same.
                    let (enough, short) =
                        if of == Of::Hits { (-0.49, -0.51) } else { (0.01, -0.01) };
                    assert!(holds(alpha, enough), "{text} at α = {alpha}");
                    assert_eq!(holds(alpha, short), !at(alpha), "{text} at α = {alpha}");
                }
                // As fast is not faster.
                if of != Of::Hits {
                    let place = ALPHAS.into_iter().find(|a| at(*a)).expect("a place");
                    assert!(!holds(place, 0.0), "{text}");
                }
            }
        }
    }
}
