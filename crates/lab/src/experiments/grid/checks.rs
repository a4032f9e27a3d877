//! The targets of the grid.

use super::tables::percent;
use super::{Against, BASELINE, against, chosen, geometric_mean, in_grid, is_target, plain};
use overbank::cache::Design;
use overbank_kit::experiment::Check;
use overbank_kit::micro::{Cell, Measured, Way};

pub(super) fn checks(all: &[Measured], ours: Design, smoke: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    let name = ours.to_string();
    // Hit rates hold at any size; times of the smoke size say nothing.
    for m in all.iter().filter(|m| m.cell.theta == 0.0 && m.cell.alpha == 0.95) {
        // A trial of the smoke size says nothing.
        let Some(row) = (if smoke { m.row(&name) } else { chosen(m) }) else { continue };
        checks.push(Check {
            claim: format!("{}, uniform, α = 0.95: hit rate", m.cell.size()),
            stated: "at least 98 %".into(),
            measured: percent(row.hit_rate),
            // A smoke table has few buckets and little time to fill.
            holds: row.hit_rate >= if smoke { 0.97 } else { 0.98 },
            reason: String::new(),
        });
        let ratios = Way::ALL.map(|theirs| (theirs, against(m, theirs).filter(|_| !smoke)));
        for (theirs, ratio) in ratios.into_iter().filter_map(|(w, a)| Some((w, a?.baseline))) {
            let (size, how) = (m.cell.size(), suffix(theirs));
            checks.push(Check {
                claim: format!("{size}, uniform, α = 0.95: throughput to 2-4 BLP{how}"),
                stated: "at least 2".into(),
                measured: ratio.text(),
                holds: ratio.median >= 2.0,
                reason: String::new(),
            });
        }
    }
    let is_target = |m: &&Measured| is_target(&m.cell);
    for m in all.iter().filter(is_target) {
        let Some(row) = m.row(&name) else { continue };
        let share = row.hit_rate / m.cell.static_optimum();
        let Cell { alpha, theta, .. } = m.cell;
        if smoke {
            let base = m.row(BASELINE).map_or(0.0, |row| row.hit_rate);
            checks.push(Check {
                claim: format!("α = {alpha}, θ = {theta}: hit rate above 2-4 BLP's"),
                stated: percent(base),
                measured: percent(row.hit_rate),
                holds: row.hit_rate > base,
                reason: String::new(),
            });
            continue;
        }
        checks.push(Check {
            claim: format!(
                "{name}, {}, α = {alpha}, θ = {theta}: of the static optimum",
                m.cell.size()
            ),
            stated: "at least 0.975".into(),
            measured: format!("{share:.4}"),
            holds: share >= 0.975,
            reason: String::new(),
        });
    }
    if smoke {
        return checks;
    }

    checks.extend(Way::ALL.into_iter().flat_map(|theirs| over_the_grid(all, theirs)));
    checks.extend(all.iter().filter(is_target).filter_map(price));
    checks
}

/// What promotion adds to a lookup of the design that was chosen in a cell, against its own geometry
/// with random eviction, looked up the same way.
fn price(m: &Measured) -> Option<Check> {
    let ours = chosen(m)?;
    let bare = plain(ours.design).ok()?;
    let Cell { alpha, theta, .. } = m.cell;
    let name = ours.name();
    let (measured, holds) = match m.row_of(&bare.to_string(), ours.way) {
        _ if bare == ours.design => (format!("0 %: {name} has no promotion"), true),
        None => (format!("{bare} was not measured"), false),
        Some(bare) => {
            let cost = ours.to(bare, |round| round.lookup_ns);
            let [median, low, high] =
                [cost.median, cost.low, cost.high].map(|cost| 100.0 * (cost - 1.0));
            let text = format!("{name}: {median:+.1} % ({low:+.1} to {high:+.1})");
            (text, cost.median < 1.2)
        }
    };
    Some(Check {
        claim: format!(
            "{}, α = {alpha}, θ = {theta}: what promotion adds to a lookup of the design chosen there",
            m.cell.size()
        ),
        stated: "less than 20 %".into(),
        measured,
        holds,
        reason: String::new(),
    })
}

/// What a claim ends with.
fn suffix(theirs: Way) -> &'static str {
    if theirs == Way::Ahead { " (all ahead)" } else { "" }
}

/// The worst cell and the mean; nothing where that way was not measured.
fn over_the_grid(all: &[Measured], theirs: Way) -> Vec<Check> {
    let grid = all.iter().filter(|m| in_grid(&m.cell));
    let cells: Vec<(Against, &Measured)> =
        grid.filter_map(|m| Some((against(m, theirs)?, m))).collect();
    let worst = cells.iter().min_by(|a, b| a.0.best.median.total_cmp(&b.0.best.median));
    let Some((Against { best, .. }, m)) = worst else { return Vec::new() };
    let how = suffix(theirs);
    let Cell { alpha, theta, .. } = m.cell;
    let mean = geometric_mean(cells.iter().map(|(ratios, _)| ratios.baseline.median));
    vec![
        Check {
            claim: format!(
                "Never behind: throughput to the best of the paper's designs, worst cell{how}"
            ),
            stated: "at least 0.97".into(),
            measured: format!("{} in {}, α = {alpha}, θ = {theta}", best.text(), m.cell.size()),
            holds: best.median >= 0.97,
            reason: String::new(),
        },
        Check {
            claim: format!(
                "Throughput to 2-4 BLP with random eviction, geometric mean over the grid{how}"
            ),
            stated: "at least 1.5".into(),
            measured: format!("{mean:.3}"),
            holds: mean >= 1.5,
            reason: String::new(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::micro::Row;
    use overbank_kit::micro::made_up::{self, Figures};
    use overbank_kit::recommended::recommended;

    /// What each design did in a cell of the tests below: 2-4 BLP, 8-way, ours, and ours with random
    /// eviction.
    struct Did {
        baseline: Figures,
        paper: Figures,
        ours: Figures,
        bare: Figures,
    }

    /// Four cells of the grid and one that only a target needs. All checks hold; `edit` may change that.
    fn cells(edit: impl Fn(&Cell, &mut Did)) -> Vec<Measured> {
        let places = [(0.5, 0.0), (0.95, 0.0), (2.0, 0.8), (3.0, 0.99), (1.5, 0.8)];
        let (ours, bare) = (recommended().to_string(), plain(recommended()).unwrap().to_string());
        let measured = |(alpha, theta)| {
            let cell = Cell::mib(1.0, alpha, theta);
            let hits = 0.99 * cell.static_optimum();
            let mut did = Did {
                baseline: (0.5, 10.0, 100.0),
                paper: (0.5, 10.0, 200.0),
                ours: (hits, 10.0, 300.0),
                bare: (0.5, 10.0, 250.0),
            };
            edit(&cell, &mut did);
            let rows = [
                (BASELINE, did.baseline),
                ("set-8", did.paper),
                (&*ours, did.ours),
                (&*bare, did.bare),
            ];
            made_up::measured(cell, 1.0, &rows)
        };
        places.map(measured).into()
    }

    fn all(smoke: bool, edit: impl Fn(&Cell, &mut Did)) -> Vec<Check> {
        checks(&cells(edit), recommended(), smoke)
    }

    /// The claims that do not hold, by a part of them.
    fn failing(smoke: bool, edit: impl Fn(&Cell, &mut Did)) -> Vec<String> {
        all(smoke, edit).into_iter().filter(|c| !c.holds).map(|c| c.claim).collect()
    }

    fn only(failing: &[String], part: &str) {
        assert!(failing.len() == 1 && failing[0].contains(part), "{part}: {failing:?}");
    }

    #[test]
    fn they_hold_where_all_is_well() {
        // Two of α = 0.95, two targets with their prices, two over the grid; one and two at smoke size.
        assert_eq!((all(false, |_, _| {}).len(), failing(false, |_, _| {}).len()), (8, 0));
        assert_eq!((all(true, |_, _| {}).len(), failing(true, |_, _| {}).len()), (3, 0));
    }

    #[test]
    fn the_hit_rate_without_skew_has_a_threshold() {
        let at = |rate: f64| {
            move |c: &Cell, d: &mut Did| {
                if (c.alpha, c.theta) == (0.95, 0.0) {
                    d.ours.0 = rate;
                }
            }
        };
        assert!(failing(false, at(0.98)).is_empty());
        only(&failing(false, at(0.9799)), "uniform, α = 0.95: hit rate");
        assert!(failing(true, at(0.97)).is_empty());
        only(&failing(true, at(0.9699)), "uniform, α = 0.95: hit rate");
        // The same rate anywhere else is no matter of this check.
        assert!(
            failing(false, |c, d| if c.alpha == 0.5 {
                d.ours.0 = 0.5
            })
            .is_empty()
        );
    }

    #[test]
    fn the_throughput_without_skew_has_a_threshold() {
        let at = |rate: f64| {
            move |c: &Cell, d: &mut Did| {
                if (c.alpha, c.theta) == (0.95, 0.0) {
                    d.ours.2 = rate;
                }
            }
        };
        assert!(failing(false, at(200.0)).is_empty());
        only(&failing(false, at(199.9)), "throughput to 2-4 BLP");
        assert!(failing(true, at(199.9)).is_empty(), "times of the smoke size say nothing");
    }

    #[test]
    fn the_hit_rate_under_skew_has_a_threshold() {
        for (alpha, theta) in [(3.0, 0.99), (1.5, 0.8)] {
            let at = |share: f64| {
                move |c: &Cell, d: &mut Did| {
                    if (c.alpha, c.theta) == (alpha, theta) {
                        d.ours.0 = share * c.static_optimum();
                    }
                }
            };
            assert!(failing(false, at(0.97501)).is_empty());
            only(&failing(false, at(0.97499)), &format!("α = {alpha}, θ = {theta}: of the static"));
            // At smoke size it must be above 2-4 BLP's 0.5.
            let level = |rate: f64| {
                move |c: &Cell, d: &mut Did| {
                    if (c.alpha, c.theta) == (alpha, theta) {
                        d.ours.0 = rate;
                    }
                }
            };
            assert!(failing(true, level(0.501)).is_empty());
            only(&failing(true, level(0.5)), &format!("α = {alpha}, θ = {theta}: hit rate above"));
        }
        // Other cells have no target.
        assert!(
            failing(false, |c, d| if c.alpha == 2.0 {
                d.ours.0 = 0.1
            })
            .is_empty()
        );
    }

    #[test]
    fn never_behind_is_about_the_worst_cell_of_the_grid() {
        let at = |place: f64, rate: f64| {
            move |c: &Cell, d: &mut Did| {
                if c.alpha == place {
                    d.ours.2 = rate;
                }
            }
        };
        for alpha in [0.5, 2.0, 3.0] {
            assert!(failing(false, at(alpha, 194.0)).is_empty(), "α = {alpha}");
            only(&failing(false, at(alpha, 193.9)), "Never behind");
        }
        assert!(failing(false, at(1.5, 1.0)).is_empty(), "no cell of the grid");
        // Against the best of the paper, not against 2-4 BLP.
        let slower = |_: &Cell, d: &mut Did| d.paper.2 = 310.0;
        only(&failing(false, slower), "Never behind");
        let worst = all(false, at(2.0, 150.0)).into_iter().find(|c| c.claim.contains("Never"));
        assert!(worst.unwrap().measured.ends_with("0.750) in 1 MiB, α = 2, θ = 0.8"));
    }

    #[test]
    fn the_mean_over_the_grid_has_a_threshold() {
        // Below what else would fail, so the paper's best is made slow.
        let at = |rate: f64| {
            move |c: &Cell, d: &mut Did| {
                d.paper.2 = 50.0;
                if c.alpha != 0.95 && c.alpha != 1.5 {
                    d.ours.2 = rate;
                }
            }
        };
        // (3 · r³)^¼ is 1.5 for r³ = 1.6875.
        let edge = 100.0 * 1.6875f64.cbrt();
        assert!(failing(false, at(edge + 0.01)).is_empty());
        only(&failing(false, at(edge - 0.01)), "geometric mean over the grid");
    }

    #[test]
    fn promotion_has_a_price_limit_in_each_cell() {
        for (alpha, theta) in [(3.0, 0.99), (1.5, 0.8)] {
            // Cheap everywhere else; and where no target is, it may cost anything.
            let at = |ns: f64| {
                move |c: &Cell, d: &mut Did| {
                    d.ours.1 = match (c.alpha, c.theta) {
                        place if place == (alpha, theta) => ns,
                        _ if is_target(c) => 1.0,
                        _ => 100.0,
                    }
                }
            };
            assert!(failing(false, at(11.99)).is_empty());
            only(&failing(false, at(12.01)), &format!("α = {alpha}, θ = {theta}: what promotion"));
        }
    }

    /// The design chosen in the cell pays, in its way, by figures of the same round.
    #[test]
    fn the_price_is_that_of_the_design_chosen() {
        let way = |way, name: &str, ns: [f64; 3], rate: f64| {
            let rounds = ns.map(|ns| (0.9, ns, rate));
            Row { way, ..made_up::row(name, &rounds) }
        };
        let cell = Cell::mib(1.0, 3.0, 0.99);
        let mut m = made_up::measured(cell, 1.0, &[]);
        let price = |m: &Measured| price(m).map(|check| (check.measured, check.holds)).unwrap();
        m.rows = vec![
            way(Way::Alone, "cuckoo-2-16+half-bubble", [99.0; 3], 1.0),
            way(Way::Alone, "cuckoo-2-16", [10.0; 3], 1.0),
            // The first round is slow for both: the medians are 11 and 20.
            way(Way::Alone, "blp-2-16+half-bubble", [33.0, 11.0, 11.0], 2.0),
            way(Way::Alone, "blp-2-16", [30.0, 10.0, 20.0], 1.0),
        ];
        let cheap = ("blp-2-16+half-bubble: +10.0 % (-45.0 to +10.0)".to_owned(), true);
        assert_eq!(price(&m), cheap);
        // Ahead, where that was chosen.
        m.ahead = vec![
            way(Way::Ahead, "blp-2-16+half-bubble", [13.0; 3], 3.0),
            way(Way::Ahead, "blp-2-16", [10.0; 3], 1.0),
        ];
        let dear = ("blp-2-16+half-bubble, ahead: +30.0 % (+30.0 to +30.0)".to_owned(), false);
        assert_eq!(price(&m), dear);
        m.ahead.truncate(1);
        assert_eq!(price(&m), ("blp-2-16 was not measured".to_owned(), false));
        // Without promotion there is nothing to pay.
        m.rows = vec![way(Way::Alone, "set-16", [99.0; 3], 9.0)];
        assert_eq!(price(&m), ("0 %: set-16 has no promotion".to_owned(), true));
    }
}
