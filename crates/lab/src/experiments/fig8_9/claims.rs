//! What the text of section 7.3 says of figures 8 and 9, and whether it holds.

use crate::prelude::*;
use overbank_kit::micro::{Measured, Row};

/// Fewest draws per flow for what is said of hit rates and throughputs of random eviction: after
/// that they are within about a point of where they stay.
pub(super) const DRAWS_RANDOM: f64 = 3.0;
/// The same for designs that promote with skew, which take longer: after three draws they lack some
/// three points.
pub(super) const DRAWS_PROMOTION: f64 = 20.0;

/// Hit rates that differ by less, in points, are the same.
const SAME_POINTS: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Of {
    /// More is ahead, and the same within half a point is enough.
    Hits,
    /// Time of a lookup: less is ahead.
    Cost,
    /// Throughput: more is ahead.
    Speed,
}

/// A sentence of section 7.3: at some α each of `lead` is ahead of each of `over`.
pub(super) struct Order {
    pub(super) text: &'static str,
    stated: &'static str,
    of: Of,
    lead: &'static [&'static str],
    over: &'static [&'static str],
    at: fn(f64) -> bool,
    reason: &'static str,
}

impl Order {
    /// Returns whether it is about time, which the smoke size says nothing of.
    pub(super) fn timed(&self) -> bool {
        self.of != Of::Hits
    }

    /// Returns whether the warm-up was long enough. A lookup of designs that evict at random needs
    /// none, for their tables are full from the first; without skew no order is better than
    /// another.
    fn is_warm(&self, m: &Measured) -> bool {
        let promotes = self.lead.iter().chain(self.over).any(|name| name.contains('+'));
        m.warmed
            >= match (self.of, promotes) {
                (Of::Cost, false) => 0.0,
                (Of::Hits | Of::Speed, true) if m.cell.theta > 0.0 => DRAWS_PROMOTION,
                _ => DRAWS_RANDOM,
            }
    }

    /// Returns the pair of a cell that is hardest for it: how far the first is ahead (points of hit
    /// rate, or the median of the ratios of the same round less 1), whether that is enough, and the
    /// figures.
    fn hardest(&self, m: &Measured) -> Option<(f64, bool, String)> {
        let pairs =
            self.lead.iter().flat_map(|lead| self.over.iter().map(move |over| (lead, over)));
        let pairs = pairs.filter_map(|(lead, over)| {
            let (ahead, holds, figures) = self.compare(m.row(lead)?, m.row(over)?);
            Some((ahead, holds, format!("α {}: {figures} ({lead}, {over})", m.cell.alpha)))
        });
        pairs.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn compare(&self, a: &Row, b: &Row) -> (f64, bool, String) {
        if self.of == Of::Hits {
            let (a, b) = (100.0 * a.hit_rate, 100.0 * b.hit_rate);
            return (a - b, a >= b - SAME_POINTS, format!("{a:.2}, {b:.2}"));
        }
        let cost = self.of == Of::Cost;
        let ratio = a.to(b, if cost { |round| round.lookup_ns } else { |round| round.throughput });
        let ahead = if cost { 1.0 / ratio.median } else { ratio.median };
        (ahead - 1.0, ahead > 1.0, format!("×{}", ratio.text()))
    }

    /// Returns the results in the cells of a size where the warm-up was long enough, if it was
    /// anywhere; and the α where it was too short.
    pub(super) fn judge(&self, size: &[Measured]) -> (Option<Check>, Vec<f64>) {
        let about = size.iter().filter(|m| (self.at)(m.cell.alpha));
        let (warm, cold): (Vec<_>, Vec<_>) = about.partition(|m| self.is_warm(m));
        let hardest: Vec<_> = warm.into_iter().filter_map(|m| self.hardest(m)).collect();
        let holds = hardest.iter().all(|hardest| hardest.1);
        let check = (!hardest.is_empty()).then(|| {
            let claim = format!("{}: {}", size[0].cell.size(), self.text);
            let measured = listed(&hardest, |hardest| hardest.2.clone());
            Check::new(claim, self.stated, measured, holds).because(self.reason)
        });
        (check, cold.iter().map(|m| m.cell.alpha).collect())
    }

    const fn at(self, stated: &'static str, at: fn(f64) -> bool) -> Order {
        Order { at, stated, ..self }
    }

    const fn stated(self, stated: &'static str) -> Order {
        Order { stated, ..self }
    }

    const fn because(self, reason: &'static str) -> Order {
        Order { reason, ..self }
    }
}

type Names = &'static [&'static str];

const fn order(
    text: &'static str,
    of: Of,
    [lead, over]: [Names; 2],
    stated: &'static str,
) -> Order {
    Order { text, stated, of, lead, over, at: |_| true, reason: "" }
}

const fn hits(text: &'static str, lead: Names, over: Names) -> Order {
    let stated = "at least that of each other less half a point, at every α";
    order(text, Of::Hits, [lead, over], stated)
}

const fn cost(text: &'static str, lead: Names, over: Names) -> Order {
    order(text, Of::Cost, [lead, over], "lower than that of each other, at every α")
}

const fn speed(text: &'static str, lead: Names, over: Names) -> Order {
    let stated = "higher than that of each other, at every α";
    order(text, Of::Speed, [lead, over], stated).because(BALANCE)
}

fn middle(alpha: f64) -> bool {
    (0.75..=1.25).contains(&alpha)
}

const SET4: Names = &["set-4"];
const SET8: Names = &["set-8"];
const BLP: Names = &["blp-2-4"];
const CUCKOO: Names = &["cuckoo-2-4"];
const PBLRU: Names = &["blp-2-4+pblru"];
const DC: Names = &["set-8+dc-bubble"];
const OTHERS: Names = &["set-4", "set-8", "blp-2-4"];

const BALANCE: &str = "A throughput is a lookup with its insertions and the penalty of its misses; \
    the table has hit rate and lookup cost of each design.";

/// Of every size and skew.
const ALWAYS: &[Order] = &[
    hits("2-4 cuckoo-lite has the highest hit rate of the plain designs",
        CUCKOO,
        OTHERS,
    ),
    hits("2-4 BLP has a higher hit rate than 8-way", BLP, SET8),
    hits("8-way has a higher hit rate than 4-way", SET8, SET4),
    cost("2-4 cuckoo-lite has the highest lookup cost of the plain designs",
        OTHERS,
        CUCKOO,
    )
    .because(
        "Probably because cuckoo-lite, while it has room, reads one line a key here, and with less \
         room asks for its second line in the same pass as for the first.",
    ),
    cost("4-way and 8-way have the lowest lookup cost of the plain designs",
        &["set-4", "set-8"],
        &["blp-2-4", "cuckoo-2-4"],
    )
    .because(
        "Probably because 2-4 BLP compares both its buckets in one load, and because misses, of \
         which set-associative tables have more, cost mispredicted branches.",
    ),
];

const SKEWED: &[Order] = &[
    speed(
        "8-way achieves the highest throughput of the plain designs",
        SET8,
        &["set-4", "blp-2-4", "cuckoo-2-4"],
    )
    .stated("8-way first, at every α (the paper: 2-4 BLP within 1 to 2 %, which is not judged)"),
    speed("2-4 BLP has a higher throughput than 2-4 cuckoo-lite", BLP, CUCKOO)
        .stated("“much higher”, taken as higher, at every α"),
    hits("2-4 BLP with PBLRU has a higher hit rate than 8-way with DC-Bubble", PBLRU, DC),
    cost("2-4 BLP with PBLRU has a lower lookup cost than 8-way with DC-Bubble", PBLRU, DC),
    speed("2-4 BLP with PBLRU has a higher throughput than 8-way with DC-Bubble", PBLRU, DC),
    speed("2-4 BLP with PBLRU has a lower throughput than with random eviction", BLP, PBLRU),
];

const LARGE: &[Order] = &[
    speed("2-4 cuckoo-lite has a lower throughput than 2-4 BLP", BLP, CUCKOO),
    speed("at small α 8-way outperforms 2-4 BLP", SET8, BLP)
        .at("at α = 0.5", |alpha| alpha == 0.5),
];

const SMALL: &[Order] = &[
    speed(
        "2-4 cuckoo-lite has the best throughput of the plain designs for α from 0.75 to 1.25",
        CUCKOO,
        OTHERS,
    )
    .at("cuckoo-2-4 first", middle),
    speed(
        "2-4 BLP has the best throughput of the plain designs at all other α",
        BLP,
        &["set-4", "set-8", "cuckoo-2-4"],
    )
    .at("blp-2-4 first", |alpha| !middle(alpha)),
];

const UNIFORM: &[Order] = &[
    speed("2-4 BLP with PBLRU is slower than with random eviction", BLP, PBLRU),
    speed("2-4 BLP with PBLRU is faster than 8-way with DC-Bubble", PBLRU, DC)
        .stated("“much faster”, taken as a higher throughput, at every α"),
];

/// Returns the sentence on a size under a skew.
pub(super) fn claims(skewed: bool, large: bool) -> impl Iterator<Item = &'static Order> {
    let of_size = if large { LARGE } else { SMALL };
    let more = if skewed { [SKEWED, &[]] } else { [of_size, UNIFORM] };
    [ALWAYS, more[0], more[1]].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::micro::{Cell, made_up};

    /// Ends and middle of every range of α that a claim has.
    const ALPHAS: [f64; 5] = [0.5, 0.75, 0.95, 1.25, 1.5];
    const FIGURES: [(bool, bool); 3] = [(false, false), (false, true), (true, false)];

    /// Returns cells in which the designs in front of a claim are far ahead of those behind; but at
    /// one α, where `a` is ahead of `b` by `by`, of 50.
    fn cells(claim: &Order, skewed: bool, place: f64, pair: [&str; 2], by: f64) -> Vec<Measured> {
        let sign = if claim.of == Of::Cost { -1.0 } else { 1.0 };
        let cell = |alpha: f64| {
            let rows = claim.lead.iter().chain(claim.over).map(|&name| {
                let number = match name {
                    name if alpha == place && name == pair[0] => 50.0 + sign * by,
                    name if alpha == place && name == pair[1] => 50.0,
                    name => 50.0 + sign * if claim.lead.contains(&name) { 40.0 } else { -40.0 },
                };
                let mut figures = [50.0; 3];
                figures[claim.of as usize] = number;
                (name, (figures[0] / 100.0, figures[1], figures[2]))
            });
            let theta = if skewed { 0.99 } else { 0.0 };
            let cell = Cell { entries: 1000, alpha, theta };
            let m = made_up::measured(cell, 1.0, &rows.collect::<Vec<_>>());
            Measured { warmed: DRAWS_PROMOTION, ..m }
        };
        ALPHAS.map(cell).into()
    }

    /// Each claim with each pair that it is about, at each α: it fails once what it says is ahead
    /// is not, and not before; then it has its reason.
    #[test]
    fn every_claim_can_fail() {
        let all = FIGURES
            .into_iter()
            .flat_map(|(skewed, large)| claims(skewed, large).map(move |claim| (skewed, claim)));
        for (skewed, claim) in all {
            let pairs = claim.lead.iter().flat_map(|a| claim.over.iter().map(move |b| (a, b)));
            for ((a, b), place) in pairs.flat_map(|pair| ALPHAS.map(|place| (pair, place))) {
                let judged =
                    |by| claim.judge(&cells(claim, skewed, place, [a, b], by)).0.expect("judged");
                let text = format!("{}: {a}, {b} at α = {place}", claim.text);
                let (about, is_hits) = ((claim.at)(place), claim.of == Of::Hits);
                // Within half a point hit rates are the same; as fast is not faster.
                let (enough, short) = if is_hits { (-0.49, -0.51) } else { (0.01, -0.01) };
                assert!(judged(enough).holds, "{text}");
                assert_eq!(judged(0.0).holds, is_hits || !about, "{text}");
                let short = judged(short);
                assert_eq!(short.holds, !about, "{text}");
                assert_eq!(short.reason, if about { claim.reason } else { "" }, "{text}");
                assert!(!about || short.measured.contains(&format!("({a}, {b})")), "{text}");
            }
        }
    }

    /// What was warmed up for a short time is not judged; where nothing is left, there is no claim.
    #[test]
    fn short_warm_ups_are_left_out() {
        let judged = |skewed, warmed: f64| -> Vec<(Of, &str)> {
            let judged = |claim: &&Order| {
                let mut size = cells(claim, skewed, 0.0, [""; 2], 0.0);
                size.iter_mut().for_each(|m| m.warmed = warmed);
                claim.judge(&size).0.is_some()
            };
            claims(skewed, true).filter(judged).map(|claim| (claim.of, claim.lead[0])).collect()
        };
        assert_eq!(judged(true, 0.0), [(Of::Cost, "set-4"); 2], "lookups that evict at random");
        // With skew promotion needs longer than random eviction.
        let found = judged(true, DRAWS_RANDOM);
        assert_eq!(found.iter().filter(|(of, _)| *of == Of::Hits).count(), 3);
        assert!(!found.contains(&(Of::Speed, PBLRU[0])) && found.contains(&(Of::Cost, PBLRU[0])));
        assert_eq!(judged(false, DRAWS_RANDOM).len(), claims(false, true).count());
        // One α that is too short decides nothing and is named.
        let mut size = cells(&ALWAYS[0], false, 0.5, ["cuckoo-2-4", "set-4"], -9.0);
        size[0].warmed = 0.0;
        let (check, left_out) = ALWAYS[0].judge(&size);
        assert!(check.unwrap().holds && left_out == [0.5]);
    }
}
