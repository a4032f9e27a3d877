//! What the guarantees and goals say of each fault.

use super::{EVENT_MS, Fault, Measured, NODES, Slice};
use crate::prelude::*;
use overbank_gateway::local::NodeState;

fn seconds(ms: u64) -> String {
    format!("{:.2} s", ms as f64 / 1e3)
}

fn none_lost(of: &Measured) -> Option<Finding> {
    let received = of.slices.last()?.fates.received;
    let missing = of.missing();
    Finding::new(missing == 0, format!("{missing} of {received} packets"))
}

impl Measured {
    /// Returns how long after its lease a packet was not handled, or a session had no node.
    fn reached_ms(&self) -> Option<u64> {
        self.last_missing_ms?.max(self.whole_ms?).checked_sub(self.lease_ms?)
    }
}

/// Of every fault.
pub(super) const COMMON: &[Claim<Measured>] = &[
    Claim::new(
        "the accounts of all nodes and of the cluster close at each step",
        "goal",
        |of: &Measured| {
            Finding::new(of.open == 0, format!("{} steps at which one does not", of.open))
        },
    ),
    Claim::new("no session has two nodes at a step", "goal", |of: &Measured| {
        let sum = |slice: &Slice| slice.serving[0] > of.plan.sessions as usize;
        let slices = of.slices.iter().filter(|slice| sum(slice)).count();
        match of.fault {
            // A node that is cut off does not hear that others have them: the fence counts.
            Fault::Partition => None,
            _ => Finding::new(of.twice == 0 && slices == 0, format!("{} steps", of.twice)),
        }
    }),
    Claim::new("no Error Indication is due: every session exists", "goal", |of: &Measured| {
        let count = of.slices.last()?.fates.indications;
        Finding::new(count == 0, count.to_string())
    })
    .expected()
    .because(
        "a node that hears of the new place of a session first sends its packets there before that \
         node has heard of it",
    ),
    Claim::new("at the end, a packet of every session is handled", "goal", |of: &Measured| {
        Finding::new(of.unreached == 0, format!("{} not, of {}", of.unreached, of.plan.sessions))
    }),
];

pub(super) const KILL: &[Claim<Measured>] = &[
    Claim::new(
        "its sessions are reached 2 s after its lease, at the latest",
        "goal: 2 s",
        |of: &Measured| {
            let after = of.reached_ms()?;
            let dead = of.lease_ms? - EVENT_MS + after;
            let text =
                format!("{} after its lease, {} after it died", seconds(after), seconds(dead));
            Finding::new(after <= 2000, text)
        },
    )
    .expected(),
    Claim::timed(
        "also with the time that the other nodes' control takes",
        "goal: 2 s",
        |of: &Measured| {
            let after = of.reached_ms()? as f64 / 1e3;
            let control = of.control[0] / f64::from(NODES - 1);
            let text = format!("{:.2} s, {control:.2} s of it on a core of each", after + control);
            Finding::new(after + control <= 2.0, text)
        },
    )
    .expected(),
    Claim::new("no more than its share of the packets is lost", "a quarter", |of: &Measured| {
        let (fates, until) = (of.slices.last()?.fates, of.last_missing_ms? - EVENT_MS);
        let while_dead = fates.received as f64 * until as f64 / of.fault.end_ms() as f64;
        let share = fates.missing() as f64 / while_dead;
        let due = of.home as f64 / f64::from(of.plan.sessions);
        Finding::new(share < 1.1 * due, format!("{} of {}", percent(share, 1), percent(due, 1)))
    })
    .expected(),
];

pub(super) const JOIN: &[Claim<Measured>] = &[
    Claim::new("no packet is lost", "goal", none_lost),
    Claim::new(
        "the node is live, owns partitions and has its share of sessions",
        "goal",
        |of: &Measured| {
            let (live, serving) = (of.state_ms(NodeState::Live)?, of.slices.last()?.serving[1]);
            let text = format!(
                "live after {}, {} partitions, {serving} sessions",
                seconds(live - EVENT_MS),
                of.partitions
            );
            Finding::new(of.partitions > 0 && serving >= of.plan.share(), text)
        },
    )
    .expected(),
];

pub(super) const DRAIN: &[Claim<Measured>] = &[
    Claim::new("no packet is lost", "goal", none_lost),
    Claim::new("the node gives all its sessions away and leaves", "goal", |of: &Measured| {
        let (left, serving) = (of.state_ms(NodeState::Left)?, of.slices.last()?.serving[1]);
        let text = format!("{} sessions in {}", of.home, seconds(left - EVENT_MS));
        Finding::new(serving == 0, text)
    })
    .expected(),
];

pub(super) const CUT: &[Claim<Measured>] = &[
    Claim::new("the node stops before others take its sessions", "goal", |of: &Measured| {
        let (fenced, taken) = (of.fenced_ms?, of.taken_ms?);
        let text = format!(
            "{} and {} after the cut",
            seconds(fenced - EVENT_MS),
            seconds(taken - EVENT_MS)
        );
        Finding::new(fenced < taken, text)
    })
    .expected(),
    Claim::new("it handles nothing after that", "goal", |of: &Measured| {
        Finding::new(of.fenced_ms.is_some() && of.after_fence == 0, of.after_fence.to_string())
    }),
    Claim::new(
        "others have its sessions 2 s after its lease, at the latest",
        "goal: 2 s",
        |of: &Measured| {
            let after = of.whole_ms?.checked_sub(of.lease_ms?)?;
            Finding::new(after <= 2000, format!("{} after its lease", seconds(after)))
        },
    )
    .expected(),
    Claim::new("connected again, it joins", "goal", |of: &Measured| {
        let live = of.states.iter().rev().find(|state| state.0 == NodeState::Live)?.1;
        let text = format!("live {} after that", seconds(live.saturating_sub(of.fault.until_ms())));
        Finding::new(live > of.fault.until_ms(), text)
    })
    .expected(),
];

pub(super) const SLOW: &[Claim<Measured>] = &[
    Claim::new("no packet is lost", "goal", none_lost),
    Claim::new("every move is answered", "goal", |of: &Measured| {
        let [asked, done, refused] = of.moves;
        let text = format!("{done} of {asked} done, {refused} refused");
        Finding::new(asked > 0 && done > 0 && done + refused == asked, text)
    }),
    Claim::new("after 5 s it is suspended as ingress", "goal: 5 s", |of: &Measured| {
        let after = of.state_ms(NodeState::Suspended)? - EVENT_MS;
        Finding::new((5000..6500).contains(&after), seconds(after))
    })
    .expected(),
    Claim::new("it comes back when it has what it lacked", "goal", |of: &Measured| {
        let live = of.states.iter().rev().find(|state| state.0 == NodeState::Live)?.1;
        let text = format!("{} after that", seconds(live.saturating_sub(of.fault.until_ms())));
        Finding::new(live > of.fault.until_ms(), text)
    })
    .expected(),
];
