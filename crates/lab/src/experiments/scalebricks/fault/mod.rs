//! What packets see of failures: timelines of a cluster of four gateways in one process.
//!
//! ```text
//!  kill       a node ends at once        its sessions are lost until others have them
//!  join       a node starts              it gets its share of the sessions by moves
//!  drain      a node leaves              its sessions move to the others first
//!  partition  a node is cut off          its lease ends by its clock before others take over
//!  slow       a node gets the log late   stubs wait for it, then it is no ingress any more
//! ```
//!
//! Engines, cluster engine and partition tables are the product's (`gateway::local`). The time is
//! virtual: what nodes do takes none of it. What their control took on one core stands beside it.

mod claims;
mod rig;

use crate::prelude::*;
use claims::{COMMON, CUT, DRAIN, JOIN, KILL, SLOW};
use overbank_gateway::local::{Links, NodeState};
use rig::{Come, Ingress, Rig, Slice};

pub const SB_FAULT: Experiment = Experiment {
    name: "sb-fault",
    title: "Packets by verdict while nodes of a cluster fail, leave and join",
    source: "ScaleBricks, section 4.1; goals of this project",
    run,
};

const NODES: u8 = 4;
/// The node that fails, leaves or joins.
const NODE: u8 = 2;
/// When it does, and for how long the timeline goes on.
const EVENT_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Join,
    Drain,
    Partition,
    Slow,
}

const FAULTS: [Fault; 5] = [Fault::Kill, Fault::Join, Fault::Drain, Fault::Partition, Fault::Slow];

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Join => "join",
            Fault::Drain => "drain",
            Fault::Partition => "partition",
            Fault::Slow => "slow node",
        }
    }

    /// Time at which a partition or a lag ends.
    const fn until_ms(self) -> u64 {
        match self {
            Fault::Slow => EVENT_MS + 7500,
            _ => EVENT_MS + 6000,
        }
    }

    /// A move that a lagging owner does not answer is refused 10 s after it was asked for.
    const fn end_ms(self) -> u64 {
        match self {
            Fault::Slow => EVENT_MS + 11_500,
            _ => self.until_ms() + 2000,
        }
    }

    /// Routers send nothing to nodes that are not ready. Of a node that is cut off, they may not
    /// hear it.
    const fn ingress(self) -> Ingress {
        match self {
            Fault::Partition => Ingress::All,
            _ => Ingress::Ready,
        }
    }
}

/// Sizes of a run.
#[derive(Clone, Copy)]
struct Plan {
    sessions: u32,
    /// Packets of a step.
    packets: u32,
    /// Sessions that move in a tenth of a second.
    moves: usize,
}

/// A timeline, and when what happened; times are those of the timeline.
struct Measured {
    fault: Fault,
    plan: Plan,
    slices: Vec<Slice>,
    /// Sessions of the node before.
    home: usize,
    /// The node's first step in each state that it came to.
    states: Vec<(NodeState, u64)>,
    /// The first step at which others did not see its lease.
    lease_ms: Option<u64>,
    /// The first step at which others had its sessions.
    taken_ms: Option<u64>,
    /// The first step at which it dropped packets because its lease was over by its clock.
    fenced_ms: Option<u64>,
    /// The last step at which a packet was not handled.
    last_missing_ms: Option<u64>,
    /// The first step from which on every session was handled by a node.
    whole_ms: Option<u64>,
    /// Packets that the node handled after it had been fenced, until it was connected again.
    after_fence: u64,
    /// Seconds of control in the step that took longest, and in all from the event on.
    control: [f64; 2],
    /// Partitions of the RIB that the node owns at the end.
    partitions: usize,
    /// Steps at which an account did not close, and steps at which a session had two nodes.
    open: u64,
    twice: u64,
    /// Sessions of which a packet was not handled at the end.
    unreached: u64,
    /// Moves: asked for, done, refused.
    moves: [u64; 3],
}

impl Measured {
    fn missing(&self) -> u64 {
        self.slices.last().map_or(0, |slice| slice.fates.missing())
    }

    fn state_ms(&self, state: NodeState) -> Option<u64> {
        self.states.iter().find(|of| of.0 == state).map(|of| of.1)
    }
}

fn measure(context: &mut Context<'_>, fault: Fault, plan: Plan) -> Result<Measured, LabError> {
    context.step(&format!("{}: {} sessions", fault.name(), plan.sessions), 0.0)?;
    // The time that control takes is judged after a death alone.
    let come = if fault == Fault::Kill { Come::After } else { Come::Between };
    let (of, under_test) = ((NODES, plan.sessions), (NODE, fault.ingress(), come));
    let mut rig = Rig::new(of, under_test, plan.packets, context.seed)?;
    if fault == Fault::Join {
        rig.local.drain(NODE);
        rig.settle(|local| local.status(NODE).state == NodeState::Left)?;
    }
    let home = rig.local.status(NODE).serving;
    let moved = rig.local.moves();
    rig.begin();
    let mut measured = Measured {
        fault,
        plan,
        slices: Vec::new(),
        home,
        states: Vec::new(),
        lease_ms: None,
        taken_ms: None,
        fenced_ms: None,
        last_missing_ms: None,
        whole_ms: None,
        after_fence: 0,
        control: [0.0; 2],
        partitions: 0,
        open: 0,
        twice: 0,
        unreached: 0,
        moves: [0; 3],
    };
    let (mut missing, mut handled, mut state) = (0, 0, None);
    while rig.now_ms() < fault.end_ms() {
        let now = rig.now_ms();
        if now.is_multiple_of(500) {
            context.step(fault.name(), 0.2 + 0.8 * now as f64 / fault.end_ms() as f64)?;
        }
        happen(&mut rig, fault, &plan, now)?;
        rig.step();
        let now = rig.now_ms();
        let fates = rig.fates();
        if fates.missing() > missing {
            (missing, measured.last_missing_ms) = (fates.missing(), Some(now));
        }
        if fates.named("fenced") > 0 && measured.fenced_ms.is_none() {
            measured.fenced_ms = Some(now);
        }
        if now > EVENT_MS && !rig.local.has_lease(NODE) {
            measured.lease_ms = measured.lease_ms.or(Some(now));
        }
        let by_node = rig.local.account(NODE).handled();
        if measured.fenced_ms.is_some_and(|at| at < now) && now <= fault.until_ms() {
            measured.after_fence += by_node - handled;
        }
        handled = by_node;
        let status = rig.local.status(NODE);
        if state != Some(status.state) {
            state = Some(status.state);
            measured.states.push((status.state, now));
        }
        let others = rig.local.serving() - status.serving;
        let due = plan.sessions as usize - if fault == Fault::Join { 0 } else { home };
        if others > due {
            measured.taken_ms = measured.taken_ms.or(Some(now));
        }
        // A node that is cut off does not hear that others have its sessions.
        let served = if fault == Fault::Partition { others } else { rig.local.serving() };
        let whole = served >= plan.sessions as usize;
        measured.whole_ms = whole.then(|| measured.whole_ms.unwrap_or(now));
    }
    measured.unreached = rig.sweep();
    let control = rig.control.iter().skip((EVENT_MS / rig::STEP_MS) as usize);
    measured.control = control.fold([0.0, 0.0], |[most, sum], &s| [f64::max(most, s), sum + s]);
    measured.partitions = rig.local.status(NODE).partitions;
    (measured.open, measured.twice) = (rig.open, rig.twice);
    let moves = rig.local.moves();
    let (asked, done) = (moves.asked - moved.asked, moves.done - moved.done);
    measured.moves = [asked, done, moves.refused - moved.refused];
    measured.slices = rig.slices;
    Ok(measured)
}

/// Does what is due at a time.
fn happen(rig: &mut Rig, fault: Fault, plan: &Plan, now: u64) -> Result<(), LabError> {
    let event = now == EVENT_MS;
    let ends = now == fault.until_ms();
    match fault {
        Fault::Kill if event => drop(rig.local.kill(NODE)),
        Fault::Join if event => drop(rig.local.start(NODE).map_err(LabError::failed)?),
        // Its share comes by moves, once it is live.
        Fault::Join if now.is_multiple_of(100) => {
            let status = rig.local.status(NODE);
            if status.state == NodeState::Live && status.serving < plan.share() {
                rig.local.move_to(NODE, plan.moves.min(plan.share() - status.serving));
            }
        }
        Fault::Drain if event => drop(rig.local.drain(NODE)),
        Fault::Partition if event => rig.local.connect(NODE, Links::Cut),
        Fault::Slow if event => rig.local.connect(NODE, Links::Lagging),
        Fault::Partition | Fault::Slow if ends => rig.local.connect(NODE, Links::Whole),
        // What it does not hear of.
        Fault::Slow if now == EVENT_MS + 500 => drop(rig.local.move_to(0, plan.moves)),
        _ => {}
    }
    Ok(())
}

impl Plan {
    /// A node's share of the sessions.
    const fn share(&self) -> usize {
        self.sessions as usize / NODES as usize
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = match context.smoke() {
        true => Plan { sessions: 2000, packets: 64, moves: 50 },
        false => Plan { sessions: 1_000_000, packets: 2048, moves: 10_000 },
    };
    let all = context.each(
        FAULTS,
        |fault| fault.name().to_owned(),
        |context, fault| measure(context, fault, plan),
    )?;
    let mut record = SB_FAULT.record(context);
    record.setting("nodes", NODES);
    record.setting("sessions", plan.sessions);
    record.setting("packets a second", u64::from(plan.packets) * 1000 / rig::STEP_MS);
    for of in &all {
        report(&mut record, of);
    }
    record.tables.push(summary(&all));
    record.note(
        "The time is virtual, and the leases are 3 s. “Control” is what all nodes' cluster engines, tables \
         and sessions took on one core in the step of 10 ms that took longest, and in all from the event on: \
         in a cluster, each node does its part of it on a core. After the kill nodes take all that has come in \
         for them at once, as the product's drivers have them do; in the other timelines one event at a \
         time, with packets in between, which takes longer. Packets come in at random ready nodes; in the \
         partition at all nodes, as if routers heard nothing of readiness.",
    );
    Ok(record)
}

fn report(record: &mut Record, of: &Measured) {
    let place = of.fault.name();
    record.judge(place, COMMON, of);
    let claims = match of.fault {
        Fault::Kill => KILL,
        Fault::Join => JOIN,
        Fault::Drain => DRAIN,
        Fault::Partition => CUT,
        Fault::Slow => SLOW,
    };
    record.judge(place, claims, of);
    // A point for each slice: what came to pass in it.
    let curve = |name: &str, count: &dyn Fn(&Slice) -> u64| {
        let starts = std::iter::once(0).chain(of.slices.iter().map(count));
        let points = of.slices.iter().zip(starts).map(|(slice, before)| {
            (slice.at_ms as f64 / 1e3, (count(slice) - before) as f64 * 10.0 / 1e3)
        });
        Series::measured(name, points.collect())
    };
    let last = of.slices.last().map(|slice| slice.fates);
    let seen = last.iter().flat_map(|fates| fates.by_name()).filter(|of| of.1 > 0);
    let mut series: Vec<Series> =
        seen.map(|(name, _)| curve(name, &|slice| slice.fates.named(name))).collect();
    series.push(curve("sent to another node", &|slice| slice.fates.forwarded));
    let plot = Plot::new(place, "s", "packets a second, thousands");
    record.plots.push(plot.with(series));
}

fn summary(all: &[Measured]) -> Table {
    let ms = |at: Option<u64>| {
        let after = at.and_then(|at| at.checked_sub(EVENT_MS)).filter(|&after| after > 0);
        after.map_or(String::new(), |after| format!("{:.2}", after as f64 / 1e3))
    };
    Table::of(
        "seconds after the event",
        all,
        &[
            ("fault", &|m| m.fault.name().to_owned()),
            ("sessions of the node", &|m| m.home.to_string()),
            ("packets", &|m| {
                let last = m.slices.last();
                last.map_or(String::new(), |slice| slice.fates.received.to_string())
            }),
            ("not handled", &|m| m.missing().to_string()),
            ("of them by reason", &|m| {
                let last = m.slices.last();
                let by = last.iter().flat_map(|slice| slice.fates.by_name()).skip(1);
                listed(by.filter(|of| of.1 > 0), |(name, count)| format!("{name} {count}"))
            }),
            ("it stops", &|m| ms(m.fenced_ms)),
            ("its lease is over", &|m| ms(m.lease_ms)),
            ("others have its sessions", &|m| ms(m.taken_ms)),
            ("all sessions served", &|m| ms(m.whole_ms)),
            ("last packet not handled", &|m| ms(m.last_missing_ms)),
            ("states of the node", &|m| {
                let after = m.states.iter().filter(|of| of.1 > EVENT_MS);
                listed(after, |(state, at)| format!("{} {}", state.name(), ms(Some(*at))))
            }),
            ("moves done", &|m| m.moves[1].to_string()),
            ("control, longest step, s", &|m| format!("{:.3}", m.control[0])),
            ("control, s", &|m| format!("{:.2}", m.control[1])),
        ],
    )
}
