//! Throughput while popularity changes (figures 11a to 11c), with processes.

use overbank::random::Pcg32;

use super::super::dynamics::{DOWN, HOT_IN, HOT_OUT, Kind, LOSSES, RANDOM, THETA, UP};
use super::super::dynamics::{Sizes, Timeline, report};
use super::client::Rule;
use super::*;

pub const KV11A_REAL: Experiment = Experiment {
    name: "kv11a-real",
    title: "Throughput while the coldest keys become the hottest, over real links",
    source: "NetCache, figure 11a",
    run: |context| run(context, &KV11A_REAL, &HOT_IN),
};
pub const KV11B_REAL: Experiment = Experiment {
    name: "kv11b-real",
    title: "Throughput while random hot keys are replaced, over real links",
    source: "NetCache, figure 11b",
    run: |context| run(context, &KV11B_REAL, &RANDOM),
};
pub const KV11C_REAL: Experiment = Experiment {
    name: "kv11c-real",
    title: "Throughput while the hottest keys become the coldest, over real links",
    source: "NetCache, figure 11c",
    run: |context| run(context, &KV11C_REAL, &HOT_OUT),
};

/// Section 7.4.
const RULE: Rule = Rule { losses: LOSSES, up: UP, down: DOWN };
/// Seconds before the changes whose median is the steady rate.
const STEADY_S: u64 = 5;

fn measure(
    context: &mut Context<'_>,
    kind: &Kind,
    sizes: &Sizes,
    plan: &Plan,
) -> Result<(Timeline, Watched), LabError> {
    let law = Law::new(sizes.keys, THETA)?;
    let loads = plan.placement.loads(&law, sizes.items as u64);
    let mut load = reads(&law, 0.8 * f64::from(plan.rate) / fullest(&loads));
    let mut random = Pcg32::new(context.seed, 11);
    let mut scene = Scene::start(context, plan)?;
    context.part((0.0, 0.2), |context| scene.client.fill(context, sizes.items))?;
    let mut of = Timeline { every: kind.every, ..Timeline::default() };
    let begun = scene.begin()?;
    let mut at_change = scene.control()?;
    let all = sizes.lead_s + sizes.seconds;
    for second in 0..all {
        context.step(&format!("second {second}"), 0.2 + 0.8 * second as f64 / all as f64)?;
        let since = second.checked_sub(sizes.lead_s);
        if since == Some(0) {
            at_change = scene.control()?;
        }
        if since.is_some_and(|since| since.is_multiple_of(kind.every)) {
            (kind.change)(&mut load.ranks, sizes.count, &mut random, sizes.items);
        }
        let seen = scene.client.second(&mut load, &RULE)?;
        if since.is_some() {
            of.answered.push(seen.answered() as f64);
            of.hit_share.push(seen.hits as f64 / seen.answered().max(1) as f64);
        } else if second + STEADY_S >= sizes.lead_s {
            of.before.push(seen.answered() as f64);
        }
    }
    let watched = scene.end(&begun)?;
    let control = scene.control()?;
    of.installed = control.installed - at_change.installed;
    of.evicted = control.evicted - at_change.evicted;
    of.reports = control.reports - at_change.reports;
    Ok((of, watched))
}

fn run(
    context: &mut Context<'_>,
    experiment: &Experiment,
    kind: &Kind,
) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let (sizes, rate) = match context.smoke() {
        true => {
            let (servers, items, keys) = (8, 100, 50_000);
            (Sizes { servers, items, keys, count: 4, lead_s: 2, seconds: 3 }, 100)
        }
        false => {
            let (servers, items, keys) = (128, 10_000, 100_000_000);
            (Sizes { servers, items, keys, count: 200, lead_s: 15, seconds: 60 }, RATE)
        }
    };
    let seed = context.seed;
    let placement = Placement { servers: sizes.servers, seed };
    let plan = Plan { placement, rate, items: sizes.items, seed };
    let (of, watched) = measure(context, kind, &sizes, &plan)?;
    watched.valid(context)?;
    let mut record = experiment.record(context);
    describe(&mut record, &plan, watched, context.smoke());
    report(&mut record, kind, &sizes, &of);
    let law = Law::new(sizes.keys, THETA)?;
    let loads = plan.placement.loads(&law, sizes.items as u64);
    let ideal = f64::from(rate) / fullest(&loads);
    record.setting("ideal with the hottest keys cached, requests/s", format!("{ideal:.0}"));
    record.note(
        "The client's rule is the paper's, of 100 ms each: 3 % more below 1 % of losses, 7 % less \
         above 5 %. It judges a step 20 ms after its end.",
    );
    Ok(record)
}
