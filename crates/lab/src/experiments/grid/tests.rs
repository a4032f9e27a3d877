//! That every target can fail, and what is chosen and compared.

use super::*;
use overbank::memory::HugePages;
use overbank_kit::micro::made_up::{self, Figures};
use overbank_kit::recommended::recommended;

fn name(row: Option<&Row>) -> Option<String> {
    row.map(Row::name)
}

/// The trial decides, not what is found afterwards; and designs of the paper are not asked.
#[test]
fn ours_is_the_fastest_of_the_trial() {
    let rows = ["set-8", RECOMMENDED, "set-16", "set-16+pblru"].map(|n| (n, (0.5, 1.0, 10.0)));
    let mut m = made_up::measured(Cell::mib(1.0, 1.0, 0.0), 1.0, &rows);
    m.rows[3].throughput.median = 99.0;
    for (trials, expected) in [
        ([9.0, 5.0, 5.09, 4.0], RECOMMENDED), // Two per cent are chance.
        ([9.0, 3.0, 5.0, 4.0], "set-16"),
        ([0.0; 4], RECOMMENDED),
    ] {
        m.rows.iter_mut().zip(trials).for_each(|(row, trial)| row.trial = trial);
        assert_eq!(name(chosen(&m)).as_deref(), Some(expected));
    }
    m.rows.truncate(1);
    assert!(chosen(&m).is_none());
}

/// Ours may look up ahead, the paper's designs do not; unless all do.
#[test]
fn ahead_is_ours_alone_or_of_all() {
    let rows = |rates: [f64; 4]| {
        let names = ["set-8", BASELINE, RECOMMENDED, "set-16"];
        names.into_iter().zip(rates).map(|(name, rate)| made_up::row(name, &[(0.5, 1.0, rate)]))
    };
    let mut m = made_up::measured(Cell::mib(1.0, 0.5, 0.0), 1.0, &[]);
    // set-16 is no design of the paper's.
    m.rows = rows([20.0, 10.0, 24.0, 99.0]).map(|row| Row { trial: 0.0, ..row }).collect();
    assert_eq!(name(best_of_paper(&m)).as_deref(), Some("set-8"));
    assert!(against(&m, Way::Ahead).is_none(), "not measured");
    let ahead = rows([40.0, 20.0, 30.0, 1.0]);
    m.ahead = ahead.map(|row| Row { way: Way::Ahead, ..row }).collect();
    assert_eq!(name(chosen(&m)), Some(format!("{RECOMMENDED}, ahead")));
    let of = |way| against(&m, way).map(|a| (a.best.median, a.baseline.median));
    assert_eq!((of(Way::Alone), of(Way::Ahead)), (Some((1.5, 3.0)), Some((0.75, 1.5))));
    let row = &tables::ratios(std::slice::from_ref(&m)).rows[0];
    assert!(row[7].starts_with("1.500") && row[9].starts_with("0.750"), "{row:?}");
    let mut record = full_record(&GRID);
    checks::judge(&mut record, std::slice::from_ref(&m), &[]);
    let holds =
        |claim: &str| record.checks.iter().find(|c| c.claim.ends_with(claim)).unwrap().holds;
    assert!(holds("worst cell") && !holds("worst cell (all ahead)"));
    assert!(holds("over the grid (all ahead)"));
    // Alone where that was clearly faster in the trial.
    for (trial, way) in [(31.0, Way::Alone), (30.5, Way::Ahead)] {
        m.rows[2].trial = trial;
        assert_eq!(chosen(&m).unwrap().way, way);
    }
}

/// Each design that may be chosen where promotion has a price has its plain geometry beside it, and
/// both sizes have such a cell for each target.
#[test]
fn target_cells_have_their_criteria() {
    for (mib, (alpha, theta)) in MIB.into_iter().flat_map(|mib| SKEW_TARGETS.map(|at| (mib, at))) {
        let cell = Cell::mib(mib, alpha, theta);
        assert_eq!(cells(false).iter().filter(|other| **other == cell).count(), 1, "{cell:?}");
        let designs = designs_of(&cell).unwrap();
        let bare = |name| plain(design(name).unwrap()).unwrap();
        assert!(SHORTLIST.iter().all(|name| designs.contains(&bare(name))));
        assert_eq!((designs_of(&Cell::mib(mib, 3.0, 0.8)).unwrap().len(), designs.len()), (15, 16));
    }
}

/// What each design did in a cell of the tests below: 2-4 BLP, 8-way, ours, and ours with random
/// eviction.
struct Did {
    baseline: Figures,
    paper: Figures,
    ours: Figures,
    bare: Figures,
}

/// Judges four cells of the grid and one that only a target needs. All hold; `edit` may change
/// that.
fn judged(smoke: bool, edit: impl Fn(&Cell, &mut Did)) -> Record {
    let places = [(0.5, 0.0), (0.95, 0.0), (2.0, 0.8), (3.0, 0.99), (1.5, 0.8)];
    let bare_name = plain(recommended()).unwrap().to_string();
    let measured = |(alpha, theta)| {
        let cell = Cell::mib(if smoke { 0.5 } else { 1.0 }, alpha, theta);
        let mut did = Did {
            baseline: (0.5, 10.0, 100.0),
            paper: (0.5, 10.0, 200.0),
            ours: (0.99 * cell.static_optimum(), 10.0, 300.0),
            bare: (0.5, 10.0, 250.0),
        };
        edit(&cell, &mut did);
        let Did { baseline, paper, ours, bare } = did;
        let rows =
            [(BASELINE, baseline), ("set-8", paper), (RECOMMENDED, ours), (&*bare_name, bare)];
        made_up::measured(cell, 1.0, &rows)
    };
    let size = if smoke { Size::Smoke } else { Size::Full };
    let mut record = Record { size, ..full_record(&GRID) };
    checks::judge(&mut record, &places.map(measured), &[]);
    record.checks.retain(|check| !check.claim.starts_with("Of what an ideal"));
    record
}

/// Each target has a threshold, in its own cell: smoke, α (0: all of the grid's, with a slow best
/// of the paper), what holds, what does not, claim.
#[test]
fn each_target_can_fail() {
    // Two of α = 0.95, two targets with their prices, two over the grid; one and two at smoke size.
    assert_eq!([false, true].map(|smoke| judged(smoke, |_, _| {}).checks.len()), [8, 3]);
    type Edit = fn(&Cell, &mut Did, f64);
    let hits: Edit = |_, d, rate| d.ours.0 = rate;
    let speed: Edit = |_, d, rate| d.ours.2 = rate;
    let share: Edit = |c, d, share| d.ours.0 = share * c.static_optimum();
    let lookup: Edit = |_, d, ns| d.ours.1 = ns;
    let all: Edit = |c, d, rate| {
        d.paper.2 = 50.0;
        if c.alpha != 0.95 && c.alpha != 1.5 {
            d.ours.2 = rate;
        }
    };
    // (3 · r³)^¼ is 1.5 for r³ = 1.6875.
    let edge = 100.0 * 1.6875f64.cbrt();
    for (smoke, alpha, edit, enough, short, claim) in [
        (false, 0.95, hits, 0.98, 0.9799, "uniform, α = 0.95: hit rate"),
        (true, 0.95, hits, 0.97, 0.9699, "uniform, α = 0.95: hit rate"),
        (false, 0.95, speed, 200.0, 199.9, "throughput to 2-4 BLP"),
        (false, 3.0, share, 0.97501, 0.97499, "α = 3, θ = 0.99: of the static"),
        (false, 1.5, share, 0.97501, 0.97499, "α = 1.5, θ = 0.8: of the static"),
        (true, 3.0, hits, 0.501, 0.5, "α = 3, θ = 0.99: hit rate above"),
        (true, 1.5, hits, 0.501, 0.5, "α = 1.5, θ = 0.8: hit rate above"),
        (false, 0.5, speed, 194.0, 193.9, "Never behind"),
        (false, 2.0, speed, 194.0, 193.9, "Never behind"),
        (false, 3.0, speed, 194.0, 193.9, "Never behind"),
        (false, 3.0, lookup, 11.99, 12.01, "θ = 0.99: what promotion"),
        (false, 0.0, all, edge + 0.01, edge - 0.01, "geometric mean over the grid"),
    ] {
        let failing = |value: f64| -> Vec<String> {
            let record = judged(smoke, |c, d| {
                if alpha == 0.0 || c.alpha == alpha {
                    edit(c, d, value);
                }
            });
            record.checks.into_iter().filter(|c| !c.holds).map(|c| c.claim).collect()
        };
        assert!(failing(enough).is_empty(), "{claim}: {:?}", failing(enough));
        let failing = failing(short);
        assert!(failing.iter().any(|failing| failing.contains(claim)), "{claim}: {failing:?}");
        assert!(failing.len() == 1 || alpha == 0.0, "{claim}: {failing:?}");
    }
    // What is no matter of a claim: hits without a target, times at smoke size, cells off the grid.
    let elsewhere = |c: &Cell, d: &mut Did| match c.alpha {
        0.5 | 2.0 => d.ours.0 = 0.1,
        1.5 => d.ours.2 = 1.0,
        _ => {}
    };
    assert!(judged(false, elsewhere).checks.iter().all(|check| check.holds));
    assert!(judged(true, |_, d| d.ours.2 = 1.0).checks.iter().all(|check| check.holds));
}

/// The design chosen in the cell pays, in its way, by figures of the same round.
#[test]
fn the_price_is_that_of_the_design_chosen() {
    let way = |way, name: &str, ns: [f64; 3], rate: f64| {
        let rounds = ns.map(|ns| (0.9, ns, rate));
        Row { way, ..made_up::row(name, &rounds) }
    };
    let mut m = made_up::measured(Cell::mib(1.0, 3.0, 0.99), 1.0, &[]);
    let price = |m: &Measured| {
        let mut record = full_record(&GRID);
        checks::judge(&mut record, std::slice::from_ref(m), &[]);
        let price = record.checks.into_iter().find(|c| c.claim.contains("what promotion")).unwrap();
        (price.measured, price.holds)
    };
    m.rows = vec![
        way(Way::Alone, RECOMMENDED, [99.0; 3], 1.0),
        way(Way::Alone, "cuckoo-2-16", [10.0; 3], 1.0),
        // The first round is slow for both: the medians are 11 and 20.
        way(Way::Alone, "blp-2-16+half-bubble", [33.0, 11.0, 11.0], 2.0),
        way(Way::Alone, "blp-2-16", [30.0, 10.0, 20.0], 1.0),
    ];
    assert_eq!(price(&m), ("blp-2-16+half-bubble: +10.0 % (-45.0 to +10.0)".to_owned(), true));
    // Ahead, where that was chosen.
    m.ahead = vec![
        way(Way::Ahead, "blp-2-16+half-bubble", [13.0; 3], 3.0),
        way(Way::Ahead, "blp-2-16", [10.0; 3], 1.0),
    ];
    let dear = ("blp-2-16+half-bubble, ahead: +30.0 % (+30.0 to +30.0)".to_owned(), false);
    assert_eq!(price(&m), dear);
    m.ahead.truncate(1);
    assert_eq!(price(&m), ("blp-2-16 was not measured".to_owned(), false));
    // Without promotion nothing is paid.
    m.rows = vec![way(Way::Alone, "set-16", [99.0; 3], 9.0)];
    assert_eq!(price(&m), ("0 %: set-16 has no promotion".to_owned(), true));
}

/// Half of the keys miss: 100 ns of 200. The ideal is not known where the kernel lay on other pages
/// than one of the two tables.
#[test]
fn an_ideal_cache_pays_for_its_misses_and_the_floor() {
    let cell = Cell { entries: 1000, alpha: 2.0, theta: 0.0 };
    let rows =
        [(BASELINE, (0.5, 10.0, 5.0)), ("set-4", (0.5, 9.0, 5.0)), (RECOMMENDED, (0.5, 6.0, 8.0))];
    let alike = made_up::measured(cell, 4.0, &rows);
    for (small, known) in [(9, true), (0, false), (1, true), (2, false)] {
        let mut m = alike.clone();
        m.rows.iter_mut().skip(small).take(1).for_each(|row| row.huge_pages = HugePages::No);
        let all = [alike.clone(), m];
        let bounds = bound::bounds(&all, 200.0);
        // 1000 / 104 / 5 and 8 / (1000 / 104) for the ideal, 106 for the cheapest lookup.
        let row = &bound::table(&bounds).rows[1][3..];
        let [ideal, reached] = if known { ["1.923", "0.832"] } else { ["other pages"; 2] };
        assert_eq!(row, [ideal, "1.887", "1.600", reached, "0.848"]);
        let mut record = full_record(&GRID);
        checks::judge(&mut record, &all, &bounds);
        let check = record.checks.iter().find(|check| check.claim.starts_with("Of what an ideal"));
        let found = check.map(|check| (check.holds, check.measured.starts_with("1.923")));
        assert_eq!(found, known.then_some((true, true)));
    }
    assert!(bound::bounds(&[made_up::measured(cell, 4.0, &rows[..1])], 200.0).is_empty());
}
