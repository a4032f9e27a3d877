//! The answers to questions 2 to 5 in words: from the figures of the run, whichever way they fell.

use crate::experiments::displacement::Figures;
use overbank_kit::micro::{Measured, Row};
use overbank_kit::recommended::RECOMMENDED;

/// Of each structure the figures with nearly all flows fitting and with too many.
pub(super) type Displaced = [(&'static str, Vec<Figures>)];

pub(super) fn figures_of<'a>(all: &'a Displaced, name: &str, load: usize) -> Option<&'a Figures> {
    all.iter().find(|(n, _)| *n == name)?.1.get(load)
}

/// The answer to question 2, from the figures at α = 0.95 and 1.5.
pub(super) fn displacement(all: &Displaced) -> String {
    let gain = |from: &str, to: &str, load| {
        let [from, to] = [from, to].map(|name| figures_of(all, name, load));
        100.0 * (to.map_or(0.0, |f| f.hit_rate) - from.map_or(0.0, |f| f.hit_rate))
    };
    // Three standard errors of the difference of two such rates, in points.
    let noise = |name: &str, load| {
        figures_of(all, name, load).map_or(0.0, |f| {
            let variance = f.hit_rate * (1.0 - f.hit_rate) / f.lookups.max(1) as f64;
            300.0 * (2.0 * variance).sqrt()
        })
    };
    let read = |name: &str, load| figures_of(all, name, load).map_or(0.0, |f| f.read);
    let shapes = [("2-4 cuckoo-lite", "cuckoo-2-4"), ("2-4 BLP", "blp-2-4")];
    let gains = |load| {
        shapes.map(|(title, short)| {
            let plain = format!("{short}, plain");
            let noise = noise(&plain, load);
            let [one, two] = [1, 2].map(|depth| {
                let name = format!("{short}, depth {depth}");
                (gain(&plain, &name, load), read(&name, load))
            });
            let text = format!(
                "in {title} one displacement changes the hit rate by {:+.2} points, two by {:+.2} \
                 (noise ±{noise:.2}; {:.1} and {:.1} buckets read per insertion)",
                one.0, two.0, one.1, two.1
            );
            (text, one.0.max(two.0) > noise)
        })
    };
    let [fit, full] = [gains(0), gains(1)];
    let wins = |gains: &[(String, bool); 2]| gains.iter().any(|gain| gain.1);
    let verdict = match (wins(&fit), wins(&full)) {
        (true, false) => "Evict where more flows come than fit; displacement wins hits only before",
        (false, false) => "Evict; displacement wins no more hits than the noise of this run",
        (_, true) => "Displacement wins hits even where more flows come than fit",
    };
    let text = |gains: [(String, bool); 2]| gains.map(|(text, _)| text).join("; ");
    let wide = gain("blp-2-4, plain", "blp-2-16, plain", 0);
    format!(
        "2. How should displacement and eviction be balanced? {verdict}. At α = 0.95 {}. At α = 1.5 \
         {}. A bucket as wide as a cache line, which moves nothing, changes the hit rate of BLP at \
         α = 0.95 by {wide:+.2} points.",
        text(fit),
        text(full),
    )
}

/// Points of hit rate below which two policies are as good: rates come from some 10⁵ lookups.
const ALIKE: f64 = 0.5;

fn points(m: &Measured, name: &str) -> f64 {
    m.row(name).map_or(0.0, |row| 100.0 * row.hit_rate)
}

fn lookup_ns(m: &Measured, name: &str) -> f64 {
    m.row(name).map_or(0.0, |row| row.lookup_ns.median)
}

/// What a change wins in points of hit rate and costs in nanoseconds of a lookup.
fn change(m: &Measured, from: &str, to: &str) -> (f64, f64) {
    (points(m, to) - points(m, from), lookup_ns(m, to) - lookup_ns(m, from))
}

fn place(m: &Measured) -> String {
    format!("α = {}, θ = {}", m.cell.alpha, m.cell.theta)
}

/// The answer to question 3: promotion in 2-16 BLP, without and with skew.
pub(super) fn policies(all: &[Measured], penalty_cycles: f64) -> String {
    let named = [("PBLRU", "blp-2-16+pblru"), ("bubbling on each hit", "blp-2-16+bubble")];
    let each = |m: &Measured| {
        let texts = named.map(|(title, name)| {
            let (won, ns) = change(m, "blp-2-16", name);
            format!("{title} {won:+.2} points for {ns:+.1} ns a lookup")
        });
        format!("at {} {}", place(m), texts.join(", "))
    };
    let (even, skewed): (Vec<_>, Vec<_>) = all.iter().partition(|m| m.cell.theta == 0.0);
    let most = |cells: &[&Measured]| {
        let won = |m: &&Measured| named.map(|(_, name)| change(m, "blp-2-16", name).0);
        cells.iter().flat_map(won).fold(f64::MIN, f64::max)
    };
    let verdict = match (most(&even) >= ALIKE, most(&skewed) >= ALIKE) {
        (false, true) => {
            "Random where popularity is even, for there promotion wins nothing; with skew promotion keeps \
             the popular flows"
        }
        (false, false) => "Random: no promotion wins hits in this run, not even with skew",
        (true, true) => "Promotion: it wins hits in this run, and not only with skew",
        (true, false) => {
            "Random with skew; that promotion wins hits only without it is not as expected"
        }
    };
    // By emulated throughput, since hits and their price are weighed by the penalty.
    let fastest = skewed.iter().map(|m| {
        let names = ["blp-2-16", named[0].1, named[1].1];
        let rows = names.iter().filter_map(|name| m.row(name));
        let best = rows.max_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median));
        let best = best.map_or("none".to_owned(), |row| row.design.to_string());
        format!("{best} at {}", place(m))
    });
    format!(
        "3. What kind of eviction policy? {verdict}. Against random eviction in 2-16 BLP, without skew: \
         {}. With skew: {}. With a miss of {penalty_cycles} cycles the fastest of the three is {}; for \
         other penalties see 5.",
        even.iter().map(|m| each(m)).collect::<Vec<_>>().join("; "),
        skewed.iter().map(|m| each(m)).collect::<Vec<_>>().join("; "),
        fastest.collect::<Vec<_>>().join(", "),
    )
}

/// Wrong answers of a table that verifies nothing.
pub(super) struct Tolerated {
    pub(super) name: &'static str,
    /// Per lookup of the working set.
    pub(super) wrong: f64,
    /// Per lookup of flows that are new.
    pub(super) foreign: f64,
    /// The same by calculation: one in 2¹⁶ per occupied candidate slot.
    pub(super) expected: f64,
    /// Lookups of new flows.
    pub(super) probed: u64,
}

/// The answer to question 4: do wrong answers grow with the candidate slots?
pub(super) fn tolerance(all: &[Tolerated]) -> String {
    let shown = all.iter().map(|t| {
        format!(
            "{} {:.4} % for new flows ({:.4} % by calculation) and {:.4} % within the working set",
            t.name,
            100.0 * t.foreign,
            100.0 * t.expected,
            100.0 * t.wrong
        )
    });
    // Four standard deviations of a count, and one for a run that saw none.
    let as_calculated = |t: &Tolerated| {
        let (seen, due) = (t.foreign * t.probed as f64, t.expected * t.probed as f64);
        (seen - due).abs() <= 4.0 * due.max(1.0).sqrt()
    };
    let verdict = if all.iter().all(as_calculated) {
        "Wrong answers for new flows are one in 2¹⁶ per occupied candidate slot, within the error of the \
         count: so approximate use wants few candidates, or wider fingerprints, where exact use wants \
         many candidates"
    } else {
        "Wrong answers for new flows are not one in 2¹⁶ per occupied candidate slot here, by more than \
         the error of the count: the number of candidates alone does not tell them"
    };
    let growth = match (all.first(), all.last()) {
        (Some(first), Some(last)) if first.foreign > 0.0 => {
            let times = last.foreign / first.foreign;
            format!(" {} has {times:.2} times those of {}.", last.name, first.name)
        }
        _ => String::new(),
    };
    let inside: Vec<&str> = all.iter().filter(|t| t.wrong > t.foreign).map(|t| t.name).collect();
    let inside = if inside.is_empty() {
        "Within the working set they are fewer in every design, since a flow that is in the table is \
         mostly found itself"
            .to_owned()
    } else {
        format!("Within the working set they are more often wrong in {}", inside.join(", "))
    };
    format!(
        "4. What if wrong answers are tolerable? Then the table never fetches an entry to verify it. \
         {verdict}. Measured: {}.{growth} {inside}. A flow that is mistaken stays so until the other \
         entry leaves, because it is never inserted.",
        shown.collect::<Vec<_>>().join("; "),
    )
}

/// Hit rates of question 2 at α = 0.95, 0 to 1.
#[derive(Clone, Copy)]
pub(super) struct Wider {
    /// 2-4 BLP.
    pub(super) plain: f64,
    /// 2-16 BLP.
    pub(super) wide: f64,
    /// 2-4 BLP with two displacements.
    pub(super) displaced: f64,
}

/// The answer to question 5: rules, as far as this run bears them out.
pub(super) fn rules(all: &[Measured], wide: Wider) -> String {
    let Some(even) = all.first() else { return "5. Nothing was measured.".to_owned() };
    let (won, ns) = change(even, "blp-2-4", "blp-2-16");
    let a = if won > 0.0 && ns <= 1.0 {
        "Make the bucket as wide as the line, one vector compares all of it"
    } else if won > 0.0 {
        "A bucket as wide as the line wins hits, but not for nothing"
    } else {
        "A bucket as wide as the line wins no hits"
    };
    let a = format!(
        "{a}: from 4 slots to 16, BLP changes by {won:+.2} points and {ns:+.1} ns a lookup at {}",
        place(even)
    );
    let second = lookup_ns(even, "cuckoo-2-4") - lookup_ns(even, "set-8");
    let beside = lookup_ns(even, "blp-2-4") - lookup_ns(even, "set-8");
    let b = if beside < second {
        "A second line costs least beside the first"
    } else {
        "A second line beside the first costs no less than one anywhere"
    };
    let b = format!(
        "{b}: against 8-way, which reads one, 2-4 BLP takes {beside:+.1} ns and 2-4 cuckoo-lite \
         {second:+.1} ns a lookup"
    );
    let wins = |a: &Row, b: &Row| b.throughput.median / a.throughput.median;
    let ours = all.iter().filter_map(|m| Some(wins(m.row("blp-2-4")?, m.row(RECOMMENDED)?)));
    let (low, high) = ours.fold((f64::MAX, 0.0f64), |r, x| (r.0.min(x), r.1.max(x)));
    let c = if low >= 1.0 {
        "which is why the recommended design is nowhere slower"
    } else {
        "the recommended design does not win everywhere"
    };
    let c = format!(
        "Spend a nanosecond on a lookup if (change of hit rate) × (miss penalty) is more: the table has \
         the penalty from which each change pays; {c}, {low:.2} to {high:.2} of the throughput of 2-4 BLP"
    );
    let both = |m: &&Measured| m.cell.theta > 0.0 && m.cell.alpha > 1.0;
    let gain = |m: &Measured| change(m, "blp-2-16", "blp-2-16+bubble").0;
    let least = all.iter().filter(both).map(gain).fold(f64::MAX, f64::min);
    let rest = all.iter().filter(|m| !both(m)).map(gain).fold(f64::MIN, f64::max);
    let d = if least >= ALIKE && rest < ALIKE {
        "Evict at random until skew and oversubscription come together"
    } else if least >= ALIKE {
        "Promotion pays even where skew and oversubscription do not come together"
    } else {
        "Evict at random: promotion does not pay in this run where skew and oversubscription come \
         together"
    };
    let d = format!(
        "{d}: bubbling wins at least {least:+.2} points in 2-16 BLP there, and at most {rest:+.2} elsewhere"
    );
    let [wider, displaced] = [wide.wide, wide.displaced].map(|x| 100.0 * (x - wide.plain));
    let e = if wider > displaced {
        "Widen the bucket before you displace"
    } else {
        "Displace before you widen the bucket"
    };
    let e =
        format!("{e}: {wider:+.2} points against {displaced:+.2} with two displacements, α = 0.95");
    format!("5. Are there general rules? (a) {a}. (b) {b}. (c) {c}. (d) {d}. (e) {e}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::displacement::VARIANTS;
    use overbank_kit::micro::Cell;
    use overbank_kit::micro::made_up;

    #[test]
    fn the_answer_on_displacement_is_that_of_the_figures() {
        let all = |rates: [[f64; 2]; 7]| -> Vec<(&'static str, Vec<Figures>)> {
            let figures = |hit_rate, read| Figures {
                fill: Vec::new(),
                hit_rate,
                lookups: 180_000,
                insert_ns: 0.0,
                read,
                moved: 0.0,
            };
            let both = |rates: [f64; 2], read| rates.map(|rate| figures(rate, read)).into();
            VARIANTS
                .iter()
                .zip(rates)
                .enumerate()
                .map(|(i, (v, r))| (v.0, both(r, i as f64)))
                .collect()
        };
        // Plain, one, two in cuckoo; the same in BLP; the wide bucket.
        let fit = [0.90, 0.95, 0.9675, 0.80, 0.83, 0.85, 0.95];
        let answer = displacement(&all(fit.map(|rate| [rate, 0.6])));
        for part in [
            "? Evict where more flows come than fit",
            "At α = 0.95 in 2-4 cuckoo-lite one displacement changes the hit rate by +5.00 points, \
             two by +6.75 (noise ±0.30; 1.0 and 2.0 buckets",
            "in 2-4 BLP one displacement changes the hit rate by +3.00 points, two by +5.00 (noise ±0.40; 4.0 and \
             5.0 buckets",
            "At α = 1.5 in 2-4 cuckoo-lite one displacement changes the hit rate by +0.00",
            "at α = 0.95 by +15.00 points",
        ] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        let answer = displacement(&all(fit.map(|rate| [rate, rate])));
        assert!(answer.contains("? Displacement wins hits even"), "{answer}");
        assert!(displacement(&all([[0.7; 2]; 7])).contains("? Evict; displacement wins no"));
        // Less than the noise is no gain.
        let little = [0.7, 0.703, 0.702, 0.7, 0.703, 0.702, 0.7].map(|rate| [rate; 2]);
        assert!(displacement(&all(little)).contains("? Evict; displacement wins no"));
    }

    fn has(text: &str, parts: &[&str]) {
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    }

    /// Two cells: without skew and with it. In each, points and nanoseconds that promotion (both kinds)
    /// and a wider bucket add, and throughput of the promoting and of the recommended designs.
    fn cells(even: [f64; 4], skewed: [f64; 4], cuckoo_ns: f64) -> Vec<Measured> {
        let cell = |(alpha, theta), [promoted, wider, wider_ns, ours]: [f64; 4]| {
            let rows = [
                ("set-8", (0.80, 3.0, 20.0)),
                ("blp-2-4", (0.85, 4.0, 20.0)),
                ("cuckoo-2-4", (0.86, cuckoo_ns, 20.0)),
                ("blp-2-16", (0.85 + wider / 100.0, 4.0 + wider_ns, 20.0)),
                ("blp-2-16+pblru", (0.85 + (wider + promoted / 2.0) / 100.0, 5.0, 20.0 + promoted)),
                ("blp-2-16+bubble", (0.85 + (wider + promoted) / 100.0, 6.0, 20.0 - promoted)),
                (RECOMMENDED, (0.9, 4.0, ours)),
            ];
            made_up::measured(Cell { entries: 1000, alpha, theta }, 1.0, &rows)
        };
        vec![cell((0.95, 0.0), even), cell((3.0, 0.99), skewed)]
    }

    #[test]
    fn the_answer_on_policies_is_that_of_the_figures() {
        let answer = policies(&cells([0.0, 5.0, 0.5, 30.0], [4.0, 5.0, 0.5, 30.0], 6.0), 300.0);
        has(
            &answer,
            &[
                "? Random where popularity is even",
                "without skew: at α = 0.95, θ = 0 PBLRU +0.00 points for +0.5 ns a lookup",
                "With skew: at α = 3, θ = 0.99 PBLRU +2.00 points for +0.5 ns a lookup, bubbling on each \
                 hit +4.00 points for +1.5 ns",
                "a miss of 300 cycles the fastest of the three is blp-2-16+pblru at α = 3",
            ],
        );
        let of = |even, skewed| {
            policies(&cells([even, 5.0, 0.5, 30.0], [skewed, 5.0, 0.5, 30.0], 6.0), 1000.0)
        };
        has(
            &of(-1.0, -2.0),
            &["? Random: no promotion", "-1.00 points", "blp-2-16+bubble at α = 3"],
        );
        has(&of(2.0, 2.0), &["? Promotion: it wins hits in this run"]);
        has(&of(2.0, 0.0), &["? Random with skew; that promotion"]);
        // At the edge.
        has(&of(0.49, 0.51), &["? Random where"]);
        has(&of(0.51, 0.51), &["? Promotion: it"]);
        has(&of(0.0, 0.49), &["? Random: no"]);
    }

    #[test]
    fn the_answer_on_wrong_answers_is_that_of_the_figures() {
        let of = |foreign: [f64; 2], wrong: f64| {
            let one = |name, foreign, expected| Tolerated {
                name,
                wrong,
                foreign,
                expected,
                probed: 1_000_000,
            };
            tolerance(&[one("set-8", foreign[0], 1e-4), one("blp-2-16", foreign[1], 4e-4)])
        };
        has(
            &of([1.1e-4, 4.4e-4], 0.5e-4),
            &[
                "Wrong answers for new flows are one in 2¹⁶",
                "set-8 0.0110 % for new flows (0.0100 % by calculation) and 0.0050 % within",
                "blp-2-16 has 4.00 times those of set-8",
                "they are fewer in every design",
            ],
        );
        // 100 due of set-8: 140 are within four standard deviations, 141 are not.
        has(&of([1.4e-4, 4e-4], 0.0), &["flows are one in"]);
        has(&of([1.41e-4, 4e-4], 0.0), &["flows are not one in"]);
        has(&of([0.59e-4, 4e-4], 0.0), &["flows are not one in", "has 6.78 times"]);
        has(&of([1e-4, 4e-4], 2e-4), &["more often wrong in set-8."]);
        let none = of([0.0, 4e-4], 0.0);
        assert!(none.contains("are not one in") && !none.contains("times those"), "{none}");
    }

    #[test]
    fn the_rules_are_those_of_the_figures() {
        let wide = Wider { plain: 0.93, wide: 0.98, displaced: 0.94 };
        let of = |even, skewed, cuckoo| rules(&cells(even, skewed, cuckoo), wide);
        let expected = of([0.0, 5.0, 0.5, 30.0], [4.0, 5.0, 0.5, 50.0], 6.0);
        has(
            &expected,
            &[
                "(a) Make the bucket as wide as the line, one vector compares all of it: from 4 slots to \
                 16, BLP changes by +5.00 points and +0.5 ns a lookup at α = 0.95, θ = 0",
                "(b) A second line costs least beside the first: against 8-way, which reads one, 2-4 BLP \
                 takes +1.0 ns and 2-4 cuckoo-lite +3.0 ns",
                "is nowhere slower, 1.50 to 2.50 of",
                "(d) Evict at random until skew and oversubscription come together: bubbling wins at \
                 least +4.00 points in 2-16 BLP there, and at most +0.00 elsewhere",
                "(e) Widen the bucket before you displace: +5.00 points against +1.00 with",
            ],
        );
        let other = of([2.0, 5.0, 1.5, 19.0], [4.0, 5.0, 0.5, 50.0], 3.5);
        has(
            &other,
            &[
                "wins hits, but not for nothing: from 4 slots to 16, BLP changes by +5.00 points and +1.5",
                "beside the first costs no less than one anywhere",
                "does not win everywhere, 0.95 to 2.50",
                "(d) Promotion pays even where",
            ],
        );
        let worse = of([0.0, -1.0, 0.5, 30.0], [-2.0, 5.0, 0.5, 50.0], 6.0);
        has(
            &worse,
            &["wins no hits: from", "BLP changes by -1.00", "promotion does not pay", "-2.00"],
        );
        let displaced = Wider { displaced: 0.99, ..wide };
        let answer = rules(&cells([0.0; 4], [0.0; 4], 6.0), displaced);
        has(&answer, &["(e) Displace before you widen the bucket: +5.00 points against +6.00"]);
    }
}
