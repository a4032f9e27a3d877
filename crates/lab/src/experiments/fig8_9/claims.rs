//! What the text of section 7.3 says of figures 8 and 9, and whether it holds.

use overbank_kit::micro::{Measured, Round, Row};
use overbank_kit::spread::Spread;

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
        Spread::of(pairs.map(|(a, b)| figure(a) - figure(b))).median
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
mod tests;
