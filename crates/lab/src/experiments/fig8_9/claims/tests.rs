//! Every claim can fail, and says why.

use super::*;
use overbank_kit::micro::made_up;
use overbank_kit::micro::{Cell, DESIGNS, Plan, designs, measure};

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
        ("4-way and 8-way have the lowest", vec![set_4, set_8], vec![blp, cuckoo], Of::Cost, any),
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
        all.push(speed("designs at all other", &[blp], &[set_4, set_8, cuckoo], |a| !middle(a)));
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
                        let (best, worst) = if of == Of::Cost { (1.0, 99.0) } else { (99.0, 1.0) };
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
