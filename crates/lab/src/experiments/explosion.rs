//! Tuple space explosion: packets made to have a mask each, and what is left for the others.
//!
//! Every datapath gets the same packets of the others ([`overbank_kit::explosion`]); those under
//! attack get attack packets between them, whose masks come again and again. The attack repeats
//! one packet for each mask, or sends each packet once. The figure is the others' packets a second
//! as a share of what they are without an attack, round by round.

use crate::prelude::*;
use overbank::random::Pcg32;
use overbank_kit::explosion::{
    CHOICES, FIELDS_MAX, Frame, PERCENTS, attack, between, others, rules,
};
use overbank_ports::queue::BURST;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::MASKS_BOUND;
use overbank_switch::parse::parse_rules;
use overbank_switch::tables::Tables;
use std::time::Instant;

pub const EXPLOSION: Experiment = Experiment {
    name: "explosion",
    title: "packets made to have a mask each, and what is left for the others",
    source: "beyond the paper",
    run,
};

/// Different packets of an attack that repeats none.
const CRAFTED: usize = 1 << 18;

#[derive(Default)]
struct Sent(u64);

impl Sink for Sent {
    #[inline]
    fn output(&mut self, _index: usize, _port: u32, _frame: &[u8], _edited: bool) {
        self.0 += 1;
    }

    #[inline]
    fn drop(&mut self, _index: usize, _reason: DropReason) {}
}

/// A datapath under attack, or not.
struct Contestant<'a> {
    datapath: Datapath,
    others: &'a [Frame],
    crafted: &'a [Frame],
    /// Packets of others between two of the attack; `None`: no attack.
    between: Option<usize>,
    next: usize,
    rng: Pcg32,
    clock: Instant,
}

impl Contestant<'_> {
    /// Processes `packets` packets of the others and the attack between them; nanoseconds per
    /// packet of the others.
    fn turn(&mut self, packets: usize) -> Result<f64, LabError> {
        let mut frames: Vec<&[u8]> = Vec::with_capacity(packets + packets / 8);
        for n in 1..=packets {
            frames.push(&self.others[self.rng.below(self.others.len() as u32) as usize]);
            if self.between.is_some_and(|between| n % between == 0) {
                frames.push(&self.crafted[self.next % self.crafted.len()]);
                self.next += 1;
            }
        }
        let mut sent = Sent::default();
        let start = Instant::now();
        for received in frames.chunks(BURST) {
            let now_ms = self.clock.elapsed().as_millis() as u64;
            self.datapath.process(received, 1, now_ms, &mut sent);
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / packets as f64;
        if sent.0 != packets as u64 {
            return Err(LabError::Failed(format!("{} of {packets} packets left", sent.0)));
        }
        Ok(ns)
    }
}

/// One set of rules with one size of tier 1, under attacks of one kind.
struct Case {
    fields: usize,
    entries: usize,
    /// The attack sends the same packets again.
    repeats: bool,
    /// By percentage: packets of the others as a share of those without attack, and masks.
    left: Vec<(f64, Spread, usize)>,
    mpps: Spread,
}

impl Case {
    fn name(&self) -> String {
        let packets = if self.repeats { "the same" } else { "new" };
        format!("{} fields, {} entries in tier 1, {packets} packets", self.fields, self.entries)
    }

    fn of(&self, percent: f64) -> Option<&(f64, Spread, usize)> {
        self.left.iter().find(|left| left.0 == percent)
    }
}

const CLAIMS: &[Claim<Case>] = &[
    Claim::new("masks stay bounded, whatever strangers send", "at most 193", |case: &Case| {
        let most = case.left.iter().map(|left| left.2).max()?;
        Finding::new(most <= MASKS_BOUND, most.to_string())
    }),
    Claim::timed(
        "others keep their packets a second at 1 % attack traffic",
        "at least 80 %",
        |case: &Case| Finding::at_least(0.8, case.of(1.0)?.1),
    ),
];

fn measure(
    context: &mut Context<'_>,
    fields: usize,
    (entries, repeats): (usize, bool),
) -> Result<Case, LabError> {
    let (flows, packets, rounds) =
        if context.smoke() { (1 << 10, 1 << 12, 2) } else { (1 << 16, 1 << 18, 9) };
    let crafted = if repeats { CHOICES } else { CRAFTED };
    let (others, crafted) = (others(flows, context.seed), attack(fields, crafted, context.seed));
    let parsed = parse_rules(&rules(fields)).map_err(LabError::failed)?;
    let tables = Tables::new(parsed).map_err(LabError::failed)?;
    let cache = CacheConfig { design: design(RECOMMENDED)?, entries, isa: None };
    let ports = (1..=5).map(|port: u32| port.into()).collect();
    let config = Config { cache: Some(cache), megaflows: 1 << 16, ports, seed: context.seed };
    let contestant = |percent: f64| {
        let datapath = Datapath::new(&config, tables.clone()).map_err(LabError::failed)?;
        Ok(Contestant {
            datapath,
            others: &others,
            crafted: &crafted,
            between: between(percent),
            next: 0,
            rng: Pcg32::new(context.seed, 7),
            clock: Instant::now(),
        })
    };
    let mut all = PERCENTS.into_iter().map(contestant).collect::<Result<Vec<_>, LabError>>()?;
    // An attack packet of each choice has been there once, and every flow of the others.
    for contestant in &mut all {
        let attack: Vec<&[u8]> = crafted[..CHOICES].iter().map(|frame| &frame[..]).collect();
        if contestant.between.is_some() {
            contestant.datapath.process(&attack, 1, 0, &mut Sent::default());
        }
        contestant.turn(4 * flows)?;
    }
    let what = format!("{fields} fields, {entries} entries");
    let ns =
        Rounds::run(&mut all, rounds, |done| context.step(&what, done), |c, _| c.turn(packets))?;
    let left = PERCENTS.into_iter().zip(&all).enumerate().map(|(i, (percent, contestant))| {
        // Packets a second: the other way round than nanoseconds.
        (percent, ns.ratio(0, i), contestant.datapath.megaflows().masks())
    });
    let mpps = Spread::of(ns.figures[0].iter().map(|ns| 1e3 / ns));
    Ok(Case { fields, entries, repeats, left: left.collect(), mpps })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let mut record = EXPLOSION.record(context);
    record.setting("attack packets before one repeats", CRAFTED);
    record.setting("masks that they ask for", CHOICES);
    record.settings([isa()]);
    let attacks = pairs(&[1 << 13, 1 << 20], &[true, false]);
    let name = |(fields, (entries, _)): &(usize, (usize, bool))| {
        format!("{fields} fields, {entries} entries")
    };
    let cases = context.each(pairs(&[2, 3, FIELDS_MAX], &attacks), name, |context, of| {
        measure(context, of.0, of.1)
    })?;
    for case in &cases {
        record.judge(&case.name(), CLAIMS, case);
    }
    record.tables.push(Table::pivot(
        "Packets a second of the others, as a share of those without attack",
        "rules",
        (&cases, |case: &&Case| format!("{} ({} Mpps)", case.name(), case.mpps.text())),
        (&PERCENTS[1..], |percent: &&f64| format!("{percent} % attack")),
        |case, percent| case.of(**percent).map_or_else(String::new, |left| left.1.text()),
    ));
    record.tables.push(Table::pivot(
        "Masks in the megaflow cache",
        "rules",
        (&cases, |case: &&Case| case.name()),
        (&PERCENTS, |percent: &&f64| format!("{percent} % attack")),
        |case, percent| case.of(**percent).map_or_else(String::new, |left| left.2.to_string()),
    ));
    record.note(
        "Packets made to have a mask each are known to slow Open vSwitch to a few per cent. Here a \
         mask beyond 128 is widened to whole words of the key, one beyond 192 to all its bits, and \
         only for flows that come again. A lookup ends where further masks cost more than the \
         classifier that they save.",
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_packets_are_dropped_and_others_leave() {
        for fields in 2..=FIELDS_MAX {
            let tables = Tables::new(parse_rules(&rules(fields)).unwrap()).unwrap();
            let ports = (1..=5).map(|port: u32| port.into()).collect();
            let config = Config { cache: None, megaflows: 1 << 14, ports, seed: 1 };
            let mut datapath = Datapath::new(&config, tables).unwrap();
            for (frames, expected) in [(attack(fields, CHOICES, 1), 0), (others(999, 1), 999)] {
                let mut sent = Sent::default();
                let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
                datapath.process(&frames, 1, 0, &mut sent);
                assert_eq!(sent.0, expected, "{fields} fields");
            }
        }
    }
}
