//! What the text of section 7.3 says of figures 8 and 9, and whether it holds.

use crate::micro::{Measured, Round, Row, Spread};

/// The paper's designs with random eviction that 2-4 cuckoo-lite is compared with.
const OTHERS: &[&str] = &["set-4", "set-8", "blp-2-4"];

/// Fewest draws per flow for what is said of hit rates and throughputs of random eviction: after so
/// many they are within about a point of where they stay.
pub(super) const DRAWS_RANDOM: f64 = 3.0;
/// The same for designs that promote with skew, which take longer: after three draws they lack some
/// three points.
pub(super) const DRAWS_PROMOTION: f64 = 20.0;

/// Hit rates that differ by less, in points, are the same.
const SAME_POINTS: f64 = 0.5;

/// What designs are compared by.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Of {
    /// More is ahead, and the same within half a point is enough.
    Hits,
    /// Time of a lookup: less is ahead.
    Cost,
    /// More is ahead.
    Speed,
}

/// A sentence of section 7.3: at some α each of `lead` is ahead of each of `over`.
pub(super) struct Claim {
    pub(super) text: &'static str,
    pub(super) stated: &'static str,
    of: Of,
    lead: &'static [&'static str],
    over: &'static [&'static str],
    at: fn(f64) -> bool,
    /// What probably explains it, if it does not hold; follows the figures.
    guess: &'static str,
}

fn row<'a>(m: &'a Measured, name: &str) -> &'a Row {
    // Every design of DESIGNS was measured, and claims are about those.
    m.row(name).expect("a design of the list")
}

/// Two designs at one α.
struct Pair<'a> {
    m: &'a Measured,
    lead: &'static str,
    over: &'static str,
    /// How far the first is ahead: points of hit rate, or the median of the ratios of the same round
    /// (of the second to the first for times) less 1.
    ahead: f64,
    holds: bool,
    figures: String,
}

impl Claim {
    /// Whether it is about time, which the smoke size says nothing of.
    pub(super) fn timed(&self) -> bool {
        self.of != Of::Hits
    }

    /// Fewest draws per flow for it to be judged with skew θ: none for a lookup of designs that evict
    /// at random, for their tables are full from the first.
    fn draws(&self, theta: f64) -> f64 {
        let promotes = self.lead.iter().chain(self.over).any(|name| name.contains('+'));
        match (self.of, promotes) {
            (Of::Cost, false) => 0.0,
            // Without skew no order is better than another.
            (Of::Hits | Of::Speed, true) if theta > 0.0 => DRAWS_PROMOTION,
            _ => DRAWS_RANDOM,
        }
    }

    /// Whether it is about such a cell and the warm-up was long enough there.
    fn judges(&self, m: &Measured) -> bool {
        (self.at)(m.cell.alpha) && m.warmed >= self.draws(m.cell.theta)
    }

    /// The α of `size` that it is about and cannot be judged at.
    pub(super) fn left_out(&self, size: &[Measured]) -> Vec<String> {
        let out = size.iter().filter(|m| (self.at)(m.cell.alpha) && !self.judges(m));
        out.map(|m| m.cell.alpha.to_string()).collect()
    }

    /// At each α of `size` that it can be judged at, the pair that is hardest for it.
    fn hardest<'a>(&self, size: &'a [Measured]) -> Vec<Pair<'a>> {
        let cells = size.iter().filter(|m| self.judges(m));
        let hardest = cells.filter_map(|m| {
            let pairs = self.lead.iter().flat_map(|lead| self.over.iter().map(move |o| (lead, o)));
            let pairs = pairs.map(|(lead, over)| self.pair(m, lead, over));
            pairs.min_by(|a, b| a.ahead.total_cmp(&b.ahead))
        });
        hardest.collect()
    }

    fn pair<'a>(&self, m: &'a Measured, lead: &'static str, over: &'static str) -> Pair<'a> {
        let (a, b) = (row(m, lead), row(m, over));
        let (ahead, holds, figures) = match self.of {
            Of::Hits => {
                let (a, b) = (100.0 * a.hit_rate, 100.0 * b.hit_rate);
                (a - b, a >= b - SAME_POINTS, format!("{a:.2}, {b:.2}"))
            }
            Of::Cost => {
                let ratio = a.to(b, |round| round.lookup_ns);
                (1.0 / ratio.median - 1.0, ratio.median < 1.0, format!("×{}", ratio.text()))
            }
            Of::Speed => {
                let ratio = a.to(b, |round| round.throughput);
                (ratio.median - 1.0, ratio.median > 1.0, format!("×{}", ratio.text()))
            }
        };
        Pair { m, lead, over, ahead, holds, figures }
    }

    /// Whether it holds, and what was measured; `None` where the warm-up was too short everywhere.
    pub(super) fn test(&self, size: &[Measured]) -> Option<(bool, String)> {
        let hardest = self.hardest(size);
        let shown = hardest.iter().map(|pair| {
            let Pair { lead, over, figures, .. } = pair;
            format!("α {}: {figures} ({lead}, {over})", pair.m.cell.alpha)
        });
        let text = shown.collect::<Vec<_>>().join("; ");
        (!hardest.is_empty()).then(|| (hardest.iter().all(|pair| pair.holds), text))
    }

    /// Why it does not hold: who is ahead instead and by how much, and what makes the difference where
    /// that was measured.
    pub(super) fn why(&self, size: &[Measured]) -> String {
        let failing: Vec<Pair<'_>> =
            self.hardest(size).into_iter().filter(|pair| !pair.holds).collect();
        let mut parts: Vec<String> = Vec::new();
        for pair in &failing {
            let (alpha, lead, over) = (pair.m.cell.alpha, pair.lead, pair.over);
            parts.push(match self.of {
                Of::Hits => {
                    format!("At α {alpha} {over} hits {:.2} points more than {lead}.", -pair.ahead)
                }
                Of::Cost => format!(
                    "At α {alpha} a lookup of {lead} takes {:.2} times that of {over}.",
                    1.0 / (1.0 + pair.ahead)
                ),
                Of::Speed => balance(pair.m, lead, over),
            });
        }
        if !failing.is_empty() && !self.guess.is_empty() {
            parts.push(self.guess.to_owned());
        }
        parts.join(" ")
    }
}

/// Where the throughputs of `a` and `b` part: their lookups with insertions, and the penalties of
/// their misses, in nanoseconds a key; differences of the same round.
fn balance(m: &Measured, a: &str, b: &str) -> String {
    let less = |figure: fn(&Round) -> f64| {
        let pairs = row(m, a).rounds.iter().zip(&row(m, b).rounds);
        Spread::of(pairs.map(|(a, b)| figure(a) - figure(b)).collect()).median
    };
    format!(
        "At α {} a key costs {a} {:+.1} ns for lookup and insertion against {b}, and {:+.1} ns for the \
         penalty of its misses.",
        m.cell.alpha,
        less(|round| round.whole_ns),
        less(|round| 1000.0 / round.throughput - round.whole_ns),
    )
}

fn anywhere(_: f64) -> bool {
    true
}

fn middle(alpha: f64) -> bool {
    (0.75..=1.25).contains(&alpha)
}

pub(super) fn claims(skewed: bool, large: bool) -> Vec<Claim> {
    let hits = |text, stated, lead, over| Claim {
        text,
        stated,
        of: Of::Hits,
        lead,
        over,
        at: anywhere,
        guess: "",
    };
    let cost = |text, stated, lead, over| Claim {
        text,
        stated,
        of: Of::Cost,
        lead,
        over,
        at: anywhere,
        guess: "",
    };
    let speed = |text, stated, lead, over| Claim {
        text,
        stated,
        of: Of::Speed,
        lead,
        over,
        at: anywhere,
        guess: "",
    };
    let mut claims = vec![
        hits(
            "2-4 cuckoo-lite has the highest hit rate of the plain designs",
            "at least that of each other plain design less half a point, at every α",
            &["cuckoo-2-4"],
            OTHERS,
        ),
        hits(
            "2-4 BLP has a higher hit rate than 8-way",
            "at least that of 8-way less half a point, at every α",
            &["blp-2-4"],
            &["set-8"],
        ),
        hits(
            "8-way has a higher hit rate than 4-way",
            "at least that of 4-way less half a point, at every α",
            &["set-8"],
            &["set-4"],
        ),
        Claim {
            guess: "Probably because cuckoo-lite, while it has room, reads one line a key here, and with \
                    less room asks for its second line in the same pass as for the first.",
            ..cost(
                "2-4 cuckoo-lite has the highest lookup cost of the plain designs",
                "slower than each other plain design, at every α",
                OTHERS,
                &["cuckoo-2-4"],
            )
        },
        Claim {
            guess: "Probably because 2-4 BLP compares both its buckets in one load, and because misses, \
                    of which set-associative tables have more, cost mispredicted branches.",
            ..cost(
                "4-way and 8-way have the lowest lookup cost of the plain designs",
                "each faster than 2-4 BLP and 2-4 cuckoo-lite, at every α",
                &["set-4", "set-8"],
                &["blp-2-4", "cuckoo-2-4"],
            )
        },
    ];
    let (pblru, dc): (&'static [_], &'static [_]) = (&["blp-2-4+pblru"], &["set-8+dc-bubble"]);
    if skewed {
        claims.extend([
            speed(
                "8-way achieves the highest throughput of the plain designs",
                "8-way first, at every α (the paper: 2-4 BLP within 1 to 2 %, which is not judged)",
                &["set-8"],
                &["set-4", "blp-2-4", "cuckoo-2-4"],
            ),
            speed(
                "2-4 BLP has a higher throughput than 2-4 cuckoo-lite",
                "“much higher”, taken as higher, at every α",
                &["blp-2-4"],
                &["cuckoo-2-4"],
            ),
            hits(
                "2-4 BLP with PBLRU has a higher hit rate than 8-way with DC-Bubble",
                "at least that of DC-Bubble less half a point, at every α",
                pblru,
                dc,
            ),
            cost(
                "2-4 BLP with PBLRU has a lower lookup cost than 8-way with DC-Bubble",
                "lower at every α",
                pblru,
                dc,
            ),
            speed(
                "2-4 BLP with PBLRU has a higher throughput than 8-way with DC-Bubble",
                "higher at every α",
                pblru,
                dc,
            ),
            speed(
                "2-4 BLP with PBLRU has a lower throughput than with random eviction",
                "lower at every α",
                &["blp-2-4"],
                pblru,
            ),
        ]);
        return claims;
    }
    if large {
        claims.extend([
            speed(
                "2-4 cuckoo-lite has a lower throughput than 2-4 BLP",
                "lower at every α",
                &["blp-2-4"],
                &["cuckoo-2-4"],
            ),
            Claim {
                at: |alpha| alpha == 0.5,
                ..speed(
                    "at small α 8-way outperforms 2-4 BLP",
                    "at α = 0.5",
                    &["set-8"],
                    &["blp-2-4"],
                )
            },
        ]);
    } else {
        claims.extend([
            Claim {
                at: middle,
                ..speed(
                    "2-4 cuckoo-lite has the best throughput of the plain designs for α from 0.75 to 1.25",
                    "cuckoo-2-4 first",
                    &["cuckoo-2-4"],
                    OTHERS,
                )
            },
            Claim {
                at: |alpha| !middle(alpha),
                ..speed(
                    "2-4 BLP has the best throughput of the plain designs at all other α",
                    "blp-2-4 first",
                    &["blp-2-4"],
                    &["set-4", "set-8", "cuckoo-2-4"],
                )
            },
        ]);
    }
    claims.extend([
        speed(
            "2-4 BLP with PBLRU is slower than with random eviction",
            "lower throughput at every α",
            &["blp-2-4"],
            pblru,
        ),
        speed(
            "2-4 BLP with PBLRU is faster than 8-way with DC-Bubble",
            "“much faster”, taken as a higher throughput, at every α",
            pblru,
            dc,
        ),
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::grid::made_up;
    use crate::micro::{Cell, DESIGNS, Plan, designs, measure};

    const FIGURES: [(bool, bool); 3] = [(false, false), (false, true), (true, false)];

    /// Timed claims are not made at smoke size; here all are asked, whatever they answer.
    #[test]
    fn every_claim_can_be_tested() {
        let plan = Plan {
            warm_per_flow: DRAWS_RANDOM,
            warm_max: u64::MAX,
            keys: 1 << 10,
            trial: 0,
            rounds: 1,
            penalty_cycles: 1000.0,
            ahead: false,
        };
        let size: Vec<Measured> = [0.5, 0.95]
            .map(|alpha| {
                let cell = Cell { entries: 1 << 10, alpha, theta: 0.0 };
                let designs = designs(DESIGNS).unwrap();
                measure(cell, &designs, &plan, 2.5, 1, &mut |_| Ok(())).unwrap()
            })
            .into();
        for (skewed, large) in FIGURES {
            for claim in claims(skewed, large) {
                let (_, measured) = claim.test(&size).expect("judged");
                let why = claim.why(&size);
                assert!(!measured.contains("NaN") && !why.contains("NaN"), "{}", claim.text);
            }
        }
    }

    /// α of the tests below: ends and middle of every range that a claim has.
    const ALPHAS: [f64; 5] = [0.5, 0.75, 0.95, 1.25, 1.5];

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
                ("blp-2-4+pblru", [94.0, 12.0, 24.0]),
                ("set-8+dc-bubble", [90.0, 20.0, 15.0]),
            ];
            let rows = rows.map(|(name, mut numbers)| {
                edit(alpha, name, &mut numbers);
                (name, (numbers[0] / 100.0, numbers[1], numbers[2]))
            });
            let theta = if skewed { 0.99 } else { 0.0 };
            let m = made_up::measured(Cell { entries: 1000, alpha, theta }, 1.0, &rows);
            Measured { warmed: DRAWS_PROMOTION, ..m }
        };
        ALPHAS.map(measured).into()
    }

    /// A claim, designs that it says are ahead, those that are behind, of what, and at which α.
    type Says = (&'static str, Vec<&'static str>, Vec<&'static str>, Of, fn(f64) -> bool);

    fn says(skewed: bool, large: bool) -> Vec<Says> {
        let (set_4, set_8, blp, cuckoo) = ("set-4", "set-8", "blp-2-4", "cuckoo-2-4");
        let (pblru, dc) = ("blp-2-4+pblru", "set-8+dc-bubble");
        let any = anywhere as fn(f64) -> bool;
        let mut all: Vec<Says> = vec![
            (
                "cuckoo-lite has the highest hit rate",
                vec![cuckoo],
                vec![set_4, set_8, blp],
                Of::Hits,
                any,
            ),
            ("2-4 BLP has a higher hit rate than 8-way", vec![blp], vec![set_8], Of::Hits, any),
            ("8-way has a higher hit rate than 4-way", vec![set_8], vec![set_4], Of::Hits, any),
            (
                "cuckoo-lite has the highest lookup cost",
                vec![set_4, set_8, blp],
                vec![cuckoo],
                Of::Cost,
                any,
            ),
            (
                "4-way and 8-way have the lowest",
                vec![set_4, set_8],
                vec![blp, cuckoo],
                Of::Cost,
                any,
            ),
        ];
        let speed = |text, a: &[&'static str], b: &[&'static str], at| -> Says {
            (text, a.to_vec(), b.to_vec(), Of::Speed, at)
        };
        if skewed {
            all.extend([
                speed("8-way achieves the highest", &[set_8], &[set_4, blp, cuckoo], any),
                speed("2-4 BLP has a higher throughput than", &[blp], &[cuckoo], any),
                ("PBLRU has a higher hit rate", vec![pblru], vec![dc], Of::Hits, any),
                ("PBLRU has a lower lookup cost", vec![pblru], vec![dc], Of::Cost, any),
                speed("PBLRU has a higher throughput than 8", &[pblru], &[dc], any),
                speed("PBLRU has a lower throughput than with", &[blp], &[pblru], any),
            ]);
            return all;
        }
        if large {
            all.push(speed("cuckoo-lite has a lower throughput", &[blp], &[cuckoo], any));
            all.push(speed("at small α 8-way", &[set_8], &[blp], |alpha| alpha == 0.5));
        } else {
            let best = "best throughput of the plain designs";
            assert!(claims(false, false)[5].text.contains(best));
            all.push(speed("designs for α from", &[cuckoo], &[set_4, set_8, blp], middle));
            all.push(speed("designs at all other", &[blp], &[set_4, set_8, cuckoo], |a| {
                !middle(a)
            }));
        }
        all.push(speed("PBLRU is slower than with", &[blp], &[pblru], any));
        all.push(speed("PBLRU is faster than 8-way", &[pblru], &[dc], any));
        all
    }

    /// Each claim with each pair that it is about, at each α: it fails once what it says is ahead is not,
    /// and not before; then it names both in its explanation.
    #[test]
    fn every_claim_can_be_tested_and_explained() {
        for (skewed, large) in FIGURES {
            let (claims, says) = (claims(skewed, large), says(skewed, large));
            assert_eq!(claims.len(), says.len());
            for (text, ahead, behind, of, at) in says {
                let claim = claims.iter().find(|c| c.text.contains(text));
                let claim = claim.unwrap_or_else(|| panic!("no claim has {text:?}"));
                assert_eq!(claim.timed(), of != Of::Hits, "{text}");
                let as_stated = size(skewed, large, |_, _, _| {});
                assert!(claim.test(&as_stated).expect("judged").0, "{text}");
                assert_eq!(claim.why(&as_stated), "", "{text}");
                for (a, b) in ahead.iter().flat_map(|a| behind.iter().map(move |b| (a, b))) {
                    // With `a` so far before `b` at one α, and the others out of the way.
                    let moved = |place: f64, by: f64| {
                        size(skewed, large, |alpha, name, numbers| {
                            let number = &mut numbers[of as usize];
                            let (best, worst) =
                                if of == Of::Cost { (1.0, 99.0) } else { (99.0, 1.0) };
                            let sign = if of == Of::Cost { -1.0 } else { 1.0 };
                            match name {
                                _ if alpha != place => {}
                                name if name == *a => *number = 50.0 + sign * by,
                                name if name == *b => *number = 50.0,
                                name if ahead.contains(&name) => *number = best,
                                name if behind.contains(&name) => *number = worst,
                                _ => {}
                            }
                        })
                    };
                    for alpha in ALPHAS {
                        // Within half a point hit rates are the same.
                        let (enough, short) =
                            if of == Of::Hits { (-0.49, -0.51) } else { (0.01, -0.01) };
                        let holds = |by| claim.test(&moved(alpha, by)).expect("judged").0;
                        assert!(holds(enough), "{text}: {a}, {b} at α = {alpha}");
                        assert_eq!(holds(short), !at(alpha), "{text}: {a}, {b} at α = {alpha}");
                        // As fast is not faster.
                        assert_eq!(holds(0.0), of == Of::Hits || !at(alpha), "{text}");
                        let why = claim.why(&moved(alpha, short));
                        if at(alpha) {
                            assert!(why.contains(&format!("α {alpha} ")), "{text}: {why:?}");
                            assert!(why.contains(*a) && why.contains(*b), "{text}: {why:?}");
                        } else {
                            assert_eq!(why, "");
                        }
                    }
                }
            }
        }
    }

    /// What was warmed up for a short time is not judged; where nothing is left, there is no claim.
    #[test]
    fn short_warm_ups_are_left_out() {
        let kinds = |skewed, warmed: [f64; 5]| {
            let mut size = size(skewed, true, |_, _, _| {});
            size.iter_mut().zip(warmed).for_each(|(m, warmed)| m.warmed = warmed);
            let claims = claims(skewed, true);
            let judged = claims.iter().filter(|claim| claim.test(&size).is_some());
            judged.map(|claim| (claim.of, claim.lead[0], claim.left_out(&size).len())).collect()
        };
        let plain_costs = vec![(Of::Cost, "set-4", 0); 2];
        let found: Vec<(Of, &str, usize)> = kinds(true, [0.0; 5]);
        assert_eq!(found, plain_costs);
        // With skew promotion needs longer than random eviction.
        let found: Vec<(Of, &str, usize)> = kinds(true, [DRAWS_RANDOM; 5]);
        assert_eq!(found.iter().filter(|(of, ..)| *of == Of::Hits).count(), 3);
        assert!(!found.contains(&(Of::Speed, "blp-2-4+pblru", 0)));
        assert!(found.contains(&(Of::Cost, "blp-2-4+pblru", 0)));
        let found: Vec<(Of, &str, usize)> = kinds(false, [DRAWS_RANDOM; 5]);
        assert_eq!(found.len(), claims(false, true).len());
        // One α of five is too short: it decides nothing, and is counted.
        let found: Vec<(Of, &str, usize)> = kinds(false, [0.0, 3.0, 3.0, 3.0, 3.0]);
        assert_eq!(found.len(), claims(false, true).len() - 1, "one is about α = 0.5");
        assert_eq!(found.iter().filter(|(.., out)| *out == 1).count(), found.len() - 2);
    }
}
