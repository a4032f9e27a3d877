use super::*;
use overbank_kit::workload::shuffled;

fn question(designs: &str) -> Question {
    let designs = designs.split(',').map(|d| d.parse().unwrap()).collect();
    Question { designs, costs: Costs::default(), seed: 1 }
}

fn advise(question: &Question, input: Input<'_>) -> Advice {
    let traffic = TrafficSource::drawn(0, 0.0);
    run(question, input, traffic, &AtomicBool::new(false), &mut |_, _| {}, &mut || {}).unwrap()
}

fn drawn(flows: u32, theta: f64) -> Advice {
    let stream = FlowStream::zipf(flows, theta, 1).unwrap();
    advise(&question("set-4,cuckoo-2-4,blp-2-16"), Input::Drawn { stream: &stream, theta })
}

fn trace(ids: impl Iterator<Item = u32>) -> Trace {
    let mut trace = Trace::default();
    ids.enumerate().for_each(|(i, id)| {
        trace.push_hash(overbank::hash::mix(u64::from(id)), i as u64 * 1000);
    });
    trace
}

/// The promise: predicted and measured within one point on stationary traffic, in every cell.
#[test]
fn the_model_holds_on_stationary_traffic() {
    for (flows, theta) in [(15_565, 0.0), (15_565, 0.99), (4096, 0.8)] {
        let advice = drawn(flows, theta);
        assert_eq!(advice.model.within_a_point, advice.model.cells, "{:?}", advice.model);
        assert_eq!(advice.model.cells, advice.cells.len());
        assert!((advice.profile.skew.theta - theta).abs() < 0.05, "{:?}", advice.profile.skew);
    }
}

/// The designs that `overbank advise` has to choose from.
const DESIGNS: &str = "set-4,set-8,set-16,cuckoo-2-4,cuckoo-2-8,cuckoo-2-16,\
                       cuckoo-2-16+half-bubble,blp-2-4,blp-2-4+pblru,blp-2-8,blp-2-16,blp-2-16+pblru,blp-2-16+half-bubble,\
                       set-16+pblru";

/// Also in the smallest tables, where buffer buckets and the luck of one set of keys count.
#[test]
fn the_model_holds_in_small_tables() {
    for flows in [1200, 2000] {
        for seed in [1, 2] {
            let stream = FlowStream::zipf(flows, 0.0, seed).unwrap();
            let question = Question { seed, ..question(DESIGNS) };
            let advice = advise(&question, Input::Drawn { stream: &stream, theta: 0.0 });
            let off = |c: &Cell| c.predicted.map(|p| (c.measured - p, c.tolerance));
            for cell in &advice.cells {
                if let Some((off, tolerance)) = off(cell) {
                    println!(
                        "{flows} {seed} {} {} {off:+.4} {tolerance:.4}",
                        cell.design, cell.entries
                    );
                    assert!((0.01..0.025).contains(&tolerance), "{cell:?}");
                }
            }
            assert_eq!(advice.model.within_tolerance, advice.model.cells, "{:?}", advice.model);
            assert!(advice.model.cells > 40);
        }
    }
}

/// Draws are no order, however little of them a window shows.
#[test]
fn independent_draws_neither_drift_nor_cluster() {
    let stream = FlowStream::uniform(20_000, 1).unwrap();
    let ids: Vec<u32> = stream.take(200_000).collect();
    let of = |ids: &[u32]| profile(ids, 20_000, &[]);
    let (drawn, random) = (of(&ids), of(&shuffled(ids.clone(), 2)));
    assert!(drawn.overlap < Some(0.5), "{:?}", drawn.overlap);
    assert!(!review::drift(&drawn, &random));
    // The same flows, of which each window has others.
    let moving: Vec<u32> = (0..200_000).map(|i| i / 4000 * 400 + i % 400).collect();
    let random = of(&shuffled(moving.clone(), 2));
    assert!(review::drift(&of(&moving), &random));

    let advice = advise(&question("set-4,blp-2-16"), Input::Trace(&trace(ids.into_iter())));
    assert!(!advice.model.notes.iter().any(|note| note == review::DRIFT));
}

#[test]
fn the_rule_takes_the_smallest_that_is_good_enough() {
    let advice = drawn(10_000, 0.0);
    let r = &advice.recommendation;
    let best = advice.cells.iter().map(|c| c.ns_per_packet).fold(f64::MAX, f64::min);
    assert!(r.ns_per_packet <= best * 1.02);
    for cell in advice.cells.iter().filter(|c| c.entries < r.entries) {
        assert!(cell.ns_per_packet > best * 1.02, "{cell:?} would have done");
    }
    // 10 000 flows and 16 384 slots: cuckoo-lite and wide buckets hold all of them, set-4 does not.
    assert!(r.design != "set-4" && r.entries == 16_384, "{r:?}");
    assert!((r.table_bytes as i64 - 65_536).abs() < 256, "{}", r.table_bytes);
    assert!(r.reason.contains("With half the entries"), "{}", r.reason);
}

/// A trace that is anything but independent draws: the report says that its order matters.
#[test]
fn locality_and_drift_are_distinguished_from_the_model() {
    // 2000 flows, of which each sends its 20 packets in a separate stretch of time.
    let local = trace((0..40_000u32).map(|i| i / 400 * 20 + i % 20));
    let question = question("set-4,blp-2-16");
    let advice = advise(&question, Input::Trace(&local));
    assert!(advice.model.within_a_point < advice.model.cells);
    let worst = advice.model.worst.as_ref().unwrap();
    assert!(
        worst.measured > worst.predicted + 0.05 && worst.shuffled < Some(worst.measured - 0.05)
    );
    let notes = &advice.model.notes;
    assert!(notes.len() > 2 && notes[1..3] == [review::LOCALITY, review::DRIFT], "{notes:?}");

    // The same packets in random order: what is left is first packets, which the model knows.
    let ids = shuffled(local.ids().to_vec(), 3);
    let advice = advise(&question, Input::Trace(&trace(ids.into_iter())));
    let worst = advice.model.worst.as_ref().unwrap();
    assert!((worst.measured - worst.predicted).abs() < 0.04, "{worst:?}");
}

#[test]
fn a_scan_costs_more_than_the_model_says() {
    // Round and round 3000 flows: a table of 1024 forgets each before it comes again.
    let scan = trace((0..60_000u32).map(|i| i % 3000));
    let advice = advise(&question("set-16"), Input::Trace(&scan));
    let cell = &advice.cells[0];
    assert!(cell.entries == 1024 && cell.measured < cell.predicted.unwrap() - 0.01, "{cell:?}");
    assert!(advice.model.notes.iter().any(|note| note == review::SCAN), "{:?}", advice.model);
}

#[test]
fn small_traffic_small_table() {
    assert!(sizes(1).eq([1024]) && sizes(300).eq([1024, 2048]) && sizes(1 << 30).count() == 17);
    let advice = advise(&question("set-4,blp-4-4,blp-2-4+pblru"), Input::Trace(&trace(0..3)));
    assert_eq!(advice.recommendation.entries, 1024);
    let predicted: Vec<bool> = advice.cells.iter().map(|c| c.predicted.is_some()).collect();
    // Three packets of three flows: no skew, so the model knows the policy too.
    assert_eq!(predicted, [true, true, true]);
    assert_eq!(advice.cells[0].measured, 0.0);
    let page = page::page(&advice, "overbank advise <x>");
    assert!(page.contains("set-4") && page.contains("&lt;x&gt;") && !page.contains("http"));
}

/// With skew only random eviction is predicted, without all policies that end where it does.
#[test]
fn policies_are_predicted_where_they_coincide() {
    let designs = "blp-4-4,set-8+bubble,cuckoo-2-16+half-bubble,blp-2-4+pblru";
    let of = |theta: f64| {
        let stream = FlowStream::zipf(8192, theta, 1).unwrap();
        advise(&question(designs), Input::Drawn { stream: &stream, theta })
    };
    let skewed = of(0.9);
    assert!(skewed.cells.iter().all(|c| c.predicted.is_some() == (c.design == "blp-4-4")));
    assert_eq!(skewed.model.notes[0], review::SIMULATED);
    // The page has a model's curve all the same: that of a design which has one.
    let mut advised = skewed;
    advised.recommendation.design = "cuckoo-2-16+half-bubble".to_owned();
    let page = page::page(&advised, "");
    assert!(page.contains("class=\"model\"") && page.contains("blp-4-4, model"));
    let even = of(0.0);
    assert_eq!(even.model.within_a_point, even.model.cells, "{:?}", even.model);
    let simulated = |c: &&Cell| c.predicted.is_none();
    let simulated: Vec<_> =
        even.cells.iter().filter(simulated).map(|c| (&*c.design, c.alpha)).collect();
    assert_eq!(simulated, [("blp-2-4+pblru", 1.0)]);
}

#[test]
fn the_costs_of_a_policy_count_only_where_it_acts() {
    let costs = Costs::default();
    let of = |design: &str, hit_rate, full, even| {
        costs.estimate(design.parse().unwrap(), State { hit_rate, full, even })
            - costs.estimate("blp-2-16".parse().unwrap(), State { hit_rate, full, even })
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(of("blp-2-16+half-bubble", 0.9, 1.0, false), 0.9 * costs.half_bubble_ns);
    near(of("blp-2-16+half-bubble", 0.9, 1.0, true), 0.0);
    near(of("blp-2-16+half-bubble", 0.9, 0.9, false), 0.0);
    near(of("blp-2-16+half-bubble", 0.995, 1.0, false), 0.0);
    near(of("blp-2-16+pblru", 0.9, 0.1, true), 0.9 * costs.promote_ns);
    near(of("cuckoo-2-16", 0.9, 0.5, true), 0.0);
    near(of("cuckoo-2-16", 0.9, 0.9, true), costs.second_line_ns);
}

/// What was done when Ctrl-C came is compared and recommended.
#[test]
fn ctrl_c_gives_the_result_so_far() {
    let stream = FlowStream::zipf(50_000, 0.5, 1).unwrap();
    let input = Input::Drawn { stream: &stream, theta: 0.5 };
    let stop = AtomicBool::new(false);
    let traffic = TrafficSource::drawn(0, 0.0);
    let mut progress = |what: &str, _: f64| stop.store(what.contains('×'), Ordering::Relaxed);
    let question = question("set-4,blp-2-16");
    let advice = run(&question, input, traffic, &stop, &mut progress, &mut || {}).unwrap();
    assert!(advice.interrupted && advice.cells.len() < 2 * sizes(50_000).count());
    assert!(advice.cells.iter().any(|c| c.design == advice.recommendation.design));
    assert!(page::page(&advice, "").contains("Ended early"));
}

#[test]
fn errors() {
    let stopped = AtomicBool::new(true);
    let traffic = || TrafficSource::drawn(0, 0.0);
    let one = trace(0..1);
    let run = |q: &Question, t: &Trace, stop: &AtomicBool| {
        super::run(q, Input::Trace(t), traffic(), stop, &mut |_, _| {}, &mut || {}).err()
    };
    let go = AtomicBool::new(false);
    assert!(matches!(run(&question("set-4"), &one, &stopped), Some(AdviseError::Stopped)));
    assert!(matches!(
        run(&question("set-4"), &Trace::default(), &go),
        Some(AdviseError::NoPackets)
    ));
    let none = Question { designs: Vec::new(), ..question("set-4") };
    assert!(matches!(run(&none, &one, &go), Some(AdviseError::NoDesign)));
}

/// Up to four times the flows, but of drawn traffic only what the packets warm up.
#[test]
fn sizes_end_with_the_flows_or_the_packets() {
    let work = |flows: usize, packets: usize| {
        let law = Law::zipf(1024, 0.0);
        let ids = vec![0; packets].into();
        Work { ids, hashes: None, law, even: true, flows, times_ns: &[] }
    };
    let ends = |flows, packets| {
        let work = work(flows, packets);
        (work.sizes().last().unwrap(), work.cut_at())
    };
    assert_eq!(ends(3000, 18_000), (16_384, None));
    assert_eq!(ends(3000, 17_999), (2048, Some(2048)));
    let trace = trace(0..5000);
    let work = Work::of(Input::Trace(&trace));
    assert_eq!((work.sizes().last(), work.cut_at()), (Some(32_768), None));
}
