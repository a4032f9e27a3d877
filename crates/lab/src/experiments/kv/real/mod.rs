//! The rack as processes: a client, the device and agents, over veth pairs between namespaces.
//!
//! ```text
//!   client                 device                              servers
//!   this process ─ eth0 ══ c0 ─ switch --mode netcache ─ s0 ══ eth0 ─ lab servers
//!   frames, AF_PACKET          AF_PACKET, one worker              an address, a UDP socket and an
//!                                                                 agent a partition
//! ```
//!
//! Real is all that the product runs: the device, its controller and its ports, the agents and
//! their sockets, the kernel between. Each agent drops what exceeds its rate (`--rate` of
//! `overbank kv agent`): that is how slow a server is. The values of keys that were not written
//! follow from the keys, so no store has to be filled.
//!
//! *Inputs, which no result may claim*: the rate of a server, far below the paper's, so that the
//! servers are what limits a rack whose parts share a few cores. A run is void if it may not have
//! been: [`Watched::valid`].

mod client;
mod dynamics;
mod scene;
mod servers;
mod skew;

pub(in crate::experiments) use dynamics::{KV11A_REAL, KV11B_REAL, KV11C_REAL};
pub use servers::Servers;
pub(in crate::experiments) use skew::KV10A_REAL;

use super::*;
use client::{Client, Seen};
use scene::{Plan, Scene};

/// Requests a second of a server. 300 were within the limit, too, without room for other programs.
const RATE: u32 = 200;
/// Most of all cores that may be in use, and most requests that may be lost but by servers.
const CORES_MAX: f64 = 0.7;
const ELSEWHERE_MAX: f64 = 0.005;

/// What limited a run.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Share of the time of all cores that was used, by whatever runs here.
    cores: f64,
    /// Share of the requests that were lost, but not dropped by an agent above its rate.
    elsewhere: f64,
}

impl Watched {
    /// Returns the larger ones of two runs.
    fn worst(self, other: Watched) -> Watched {
        let cores = self.cores.max(other.cores);
        Watched { cores, elsewhere: self.elsewhere.max(other.elsewhere) }
    }

    /// Refuses a full run that the machine has limited.
    fn valid(self, context: &Context<'_>) -> Result<(), LabError> {
        if context.smoke() || (self.cores < CORES_MAX && self.elsewhere < ELSEWHERE_MAX) {
            return Ok(());
        }
        Err(LabError::Failed(format!(
            "void, the machine was the bottleneck: {} of its cores in use (limit {}), {} of the \
             requests lost outside of servers (limit {}); run it where nothing else runs",
            percent(self.cores, 0),
            percent(CORES_MAX, 0),
            percent(self.elsewhere, 2),
            percent(ELSEWHERE_MAX, 1),
        )))
    }
}

/// Of the full size: where one does not hold, there is no record.
const VALID: &[Claim<Watched>] = &[
    Claim::new("less than 70 % of the cores are in use", "or the run is void", |of: &Watched| {
        Finding::new(of.cores < CORES_MAX, percent(of.cores, 0))
    }),
    Claim::new("servers alone lose requests", "or the run is void", |of: &Watched| {
        let text = format!("{} lost elsewhere", percent(of.elsewhere, 3));
        Finding::new(of.elsewhere < ELSEWHERE_MAX, text)
    }),
];

/// Says what of a record is put in, and whether it counts.
fn describe(record: &mut Record, plan: &Plan, watched: Watched, is_smoke: bool) {
    record.setting("instrument", "a rack of processes over veth pairs");
    record.setting("servers", plan.placement.servers);
    record.setting("requests/s of a server (input)", plan.rate);
    record.setting("cores", overbank_kit::machine::usable_cores().len());
    record.setting("cores in use, at most", percent(watched.cores, 0));
    record.setting("lost outside of servers, at most", percent(watched.elsewhere, 3));
    if !is_smoke {
        record.judge("", VALID, &watched);
    }
    record.note(format!(
        "Device, controller, agents and sockets are the product's; one process serves all \
         partitions, each with an address, a socket and a thread. The client sends frames and \
         reads answers by a packet socket. The rate of a server is put in: agents drop what \
         exceeds {} requests/s, in bursts of a tenth of a second. So requests a second say nothing \
         of the product's speed; ratios to the ideal, and times of recovery, do.",
        plan.rate,
    ));
    record.note(
        "Cores in use are those of the whole machine, from /proc/stat: other programs count, too. \
         A run above 70 %, or with more than 0.5 % of its requests lost elsewhere than in servers, \
         has no record.",
    );
}
