//! The time of a packet through a cluster, by architecture: four nodes with their own network
//! namespaces, joined by veth pairs.
//!
//! ```text
//!  outside ─▶ ingress ─┬───────────────────────▶ handling ─▶ outside     (b), (d): by the switch
//!                      ├─ switch ─▶ lookup ─────▶ handling ─▶ outside     (c)
//!                      └─ mesh ───▶ indirect ───▶ handling ─▶ outside     (a)
//! ```
//!
//! The nodes are those of `sb-arch`, one thread each, which sleeps until a frame comes. One packet
//! is under way at a time, so a time is that of the way: interfaces, the kernel, waking a thread,
//! and the node's work. A packet that enters at its next node crosses a link less: times are
//! compared among packets that crossed as many links as their architecture may take.

mod net;
mod seat;

use std::sync::atomic::Ordering;
use std::thread;

use super::nodes::{ARCHITECTURES, Architecture, LEN, Node, Tables};
use crate::prelude::*;
use net::{Kind, Names, Net};
use overbank::random::Pcg32;
use seat::{Outside, Seat, Shared, Trip};

pub const SB_LATENCY: Experiment = Experiment {
    name: "sb-latency",
    title: "Time of a packet through a cluster, by architecture",
    source: "ScaleBricks, section 4.1",
    run,
};

const NODES: u64 = 4;
/// Most links that a packet crosses, and none.
const LINKS: usize = 3;

struct Plan {
    sessions: u64,
    /// Packets of a turn that are not timed, and that are.
    lead: usize,
    timed: usize,
    rounds: usize,
}

/// Microseconds of an architecture by round.
struct Measured {
    architecture: Architecture,
    /// Medians of a round, by links crossed.
    by_links: Vec<[f64; LINKS]>,
    /// Packets, by links crossed.
    count: [u64; LINKS],
    /// 99th percentile of all packets of a round.
    p99: Vec<f64>,
    /// The most links of a packet.
    links_max: usize,
}

impl Measured {
    fn new(architecture: Architecture) -> Measured {
        let (by_links, p99) = (Vec::new(), Vec::new());
        Measured { architecture, by_links, count: [0; LINKS], p99, links_max: 0 }
    }

    fn take(&mut self, trips: &[Trip]) {
        let mut sorted: [Vec<f64>; LINKS] = Default::default();
        for trip in trips {
            let links = trip.links as usize;
            self.links_max = self.links_max.max(links);
            if let Some(of) = sorted.get_mut(links) {
                of.push(trip.ns / 1e3);
                self.count[links] += 1;
            }
        }
        let mut all: Vec<f64> = sorted.concat();
        all.sort_by(f64::total_cmp);
        self.p99.push(all.get(all.len() * 99 / 100).copied().unwrap_or(0.0));
        self.by_links.push(sorted.map(median));
    }

    /// Times of the packets that crossed as many links.
    fn of_links(&self, links: usize) -> impl Iterator<Item = f64> {
        self.by_links.iter().map(move |by| by[links])
    }

    /// Times of the longest way.
    fn longest(&self) -> impl Iterator<Item = f64> {
        self.of_links(self.architecture.hops().into())
    }

    /// Times of all ways as often as they were taken.
    fn any_way(&self) -> impl Iterator<Item = f64> {
        let all: u64 = self.count.iter().sum();
        let share = self.count.map(|count| count as f64 / all.max(1) as f64);
        self.by_links.iter().map(move |by| by.iter().zip(share).map(|(us, share)| us * share).sum())
    }
}

/// What was measured over ports of a kind.
struct Of {
    kind: Kind,
    /// Modes that were granted.
    detail: String,
    all: Vec<Measured>,
}

impl Of {
    fn of(&self, architecture: Architecture) -> Option<&Measured> {
        self.all.iter().find(|of| of.architecture == architecture)
    }

    fn ratio(&self, a: Architecture, b: Architecture) -> Option<Spread> {
        Some(Spread::of_ratios(self.of(a)?.longest(), self.of(b)?.longest()))
    }

    fn ratio_of_any_way(&self, a: Architecture, b: Architecture) -> Option<Spread> {
        Some(Spread::of_ratios(self.of(a)?.any_way(), self.of(b)?.any_way()))
    }
}

fn measure(
    context: &mut Context<'_>,
    kind: Kind,
    net: Net,
    plan: &Plan,
    tables: &Tables<u64>,
) -> Result<Of, LabError> {
    let detail = net.outside.first().map_or(String::new(), |port| port.detail.clone());
    let shared = Shared::default();
    let mut outside = Outside { ports: net.outside, shared: &shared };
    let mut all: Vec<Measured> = ARCHITECTURES.into_iter().map(Measured::new).collect();
    thread::scope(|scope| {
        for (number, ports) in (0..).zip(net.nodes) {
            let nodes = ARCHITECTURES.map(|of| (of, Node::new(tables, of, number))).into();
            let seat = Seat { number, nodes, ports, shared: &shared };
            scope.spawn(|| seat.run());
        }
        let rounds = Rounds::run(
            &mut all,
            plan.rounds,
            |done| context.step(&format!("{}: packets", kind.name()), done),
            |of, round| turn(of, round, plan, &mut outside),
        );
        shared.stop.store(true, Ordering::Relaxed);
        rounds
    })?;
    Ok(Of { kind, detail, all })
}

/// Sends the packets of a round, which are the same for all architectures.
fn turn(
    of: &mut Measured,
    round: usize,
    plan: &Plan,
    outside: &mut Outside<'_>,
) -> Result<f64, LabError> {
    let place = ARCHITECTURES.iter().position(|&other| other == of.architecture);
    outside.shared.architecture.store(place.unwrap_or(0), Ordering::Release);
    let mut pcg = Pcg32::new(round as u64, 21);
    let mut one = || {
        let (session, ingress) = (pcg.below(plan.sessions as u32), pcg.below(NODES as u32));
        outside.trip(session.into(), ingress as usize)
    };
    (0..plan.lead).try_for_each(|_| one().map(|_| ()))?;
    let trips = (0..plan.timed).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
    of.take(&trips);
    Ok(median(trips.iter().map(|trip| trip.ns)))
}

const CLAIMS: &[Claim<Of>] = &[
    Claim::new("every packet leaves at its session's node, in its tunnel", "all", |of: &Of| {
        let packets: u64 = of.all.iter().flat_map(|m| m.count).sum();
        Finding::new(true, format!("{packets} packets"))
    }),
    Claim::new("links crossed: two with (a) and (c), one with (b) and (d)", "2, 1, 2, 1", |of| {
        let exact = |m: &Measured| m.links_max == usize::from(m.architecture.hops());
        let text = listed(&of.all, |m| format!("{}: {}", m.architecture.name(), m.links_max));
        Finding::new(of.all.iter().all(exact), text)
    }),
    Claim::timed("(d) takes at most 1.05 of the time of (b)", "one hop as well", |of: &Of| {
        Finding::at_most(1.05, of.ratio(Architecture::ScaleBricks, Architecture::Duplication)?)
    }),
    Claim::timed("(c) takes longer than (b)", "a second hop", |of: &Of| {
        let ratio = of.ratio(Architecture::HashPartition, Architecture::Duplication)?;
        Finding::new(ratio.median > 1.0, ratio.text())
    }),
    Claim::timed("(a) takes 33 % longer than (b), ± 10 points", "VLB: 33 % more", |of: &Of| {
        let ratio = of.ratio(Architecture::RouteBricks, Architecture::Duplication)?;
        Finding::new((ratio.median - 1.33).abs() <= 0.1, ratio.text())
    }),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = match context.smoke() {
        true => Plan { sessions: 20_000, lead: 2, timed: 100, rounds: 2 },
        false => Plan { sessions: 1_000_000, lead: 100, timed: 2000, rounds: 21 },
    };
    context.step("tables", 0.0)?;
    let tables =
        context.part((0.0, 0.2), |context| Tables::build(context, (plan.sessions, NODES), true))?;
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for (kind, part) in [(Kind::AfXdp, (0.2, 0.6)), (Kind::AfPacket, (0.6, 1.0))] {
        match Names::joined(NODES as usize)?.open(kind) {
            Ok(net) => all.push(context.part(part, |c| measure(c, kind, net, &plan, &tables))?),
            Err(why) => missing.push(format!("{}: {why}", kind.name())),
        }
    }
    if all.is_empty() {
        return Err(LabError::Failed(missing.swap_remove(0)));
    }
    let mut record = SB_LATENCY.record(context);
    record.setting("nodes", NODES);
    record.setting("sessions", plan.sessions);
    record.setting("bytes of a packet", LEN);
    record.setting("packets of a turn", plan.timed);
    record.setting("rounds", plan.rounds);
    for of in &all {
        report(&mut record, of);
    }
    missing.into_iter().for_each(|why| record.note(format!("Not measured: {why}")));
    record.note(
        "A time is that of one packet from outside to outside, with nothing else under way. One core runs all \
         threads, which sleep until it comes. A way with one link wakes three threads (two nodes and the \
         place outside), one with two links four: a third more, far more than a lookup costs. The switch of \
         (b) to (d) is a Linux bridge; the mesh of (a) has none, which is in favour of (a).",
    );
    Ok(record)
}

fn report(record: &mut Record, of: &Of) {
    let place = of.kind.name();
    record.setting(place, &of.detail);
    record.judge(place, CLAIMS, of);
    let plot =
        Plot::new(format!("over veth and {place}"), "links crossed", "µs, outside to outside");
    record.plots.push(plot.with(of.all.iter().map(|m| {
        let taken = (0..LINKS).filter(|&links| m.count[links] > 0);
        let spread = |links| (links as f64, Spread::of(m.of_links(links)));
        Series::rounds(m.architecture.name(), taken.map(spread))
    })));
    let ratio = |ratio: Option<Spread>| ratio.map_or(String::new(), |ratio| ratio.cell(3));
    record.tables.push(Table::of(
        format!("over veth and {place}"),
        &of.all,
        &[
            ("architecture", &|m| m.architecture.name().to_owned()),
            ("links, at most", &|m| m.links_max.to_string()),
            ("µs by that way", &|m| Spread::of(m.longest()).cell(1)),
            ("× (b)", &|m| ratio(of.ratio(m.architecture, Architecture::Duplication))),
            ("µs by any way", &|m| Spread::of(m.any_way()).cell(1)),
            ("any way, × (b)", &|m| {
                ratio(of.ratio_of_any_way(m.architecture, Architecture::Duplication))
            }),
            ("p99, µs", &|m| Spread::of(m.p99.iter().copied()).cell(1)),
        ],
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A median for each number of links, and their mean by how often they were crossed.
    #[test]
    fn trips_are_taken_by_their_links() {
        let mut of = Measured::new(Architecture::HashPartition);
        let trip = |(us, links)| Trip { ns: 1e3 * f64::from(us), links };
        of.take(&[(9, 0), (20, 1), (30, 2), (32, 2), (90, 2), (22, 1), (40, 2), (36, 2)].map(trip));
        assert_eq!((of.by_links[0], of.count, of.links_max), ([9.0, 21.0, 36.0], [1, 2, 5], 2));
        assert_eq!((of.longest().next(), of.any_way().next()), (Some(36.0), Some(231.0 / 8.0)));
        of.take(&[trip((50, 3))]);
        assert_eq!((of.links_max, of.count.iter().sum::<u64>()), (3, 8), "it is not among them");
    }
}
