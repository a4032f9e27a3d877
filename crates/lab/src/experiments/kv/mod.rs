//! NetCache measured (`003`, sections 2 and 7).
//!
//! | experiment | file | content |
//! |---|---|---|
//! | `kvtheory` | `theory.rs` | how many keys are enough, by the number of servers |
//! | `kv9a`, `kv9b` | `pipeline.rs` | what the device answers on one core |
//! | `kv10a` | `skew.rs` | throughput by skew, with a cache and without |
//! | `kv10b` | `balance.rs` | what each server serves |
//! | `kv10c` | `latency.rs` | latency by throughput |
//! | `kv10d` | `writes.rs` | throughput by the share of writes, and the paper's protocol |
//! | `kv10e` | `items.rs` | throughput by the number of cached keys |
//! | `kv10f` | `racks.rs` | throughput by the number of racks |
//! | `kv11a`, `kv11b`, `kv11c` | `dynamics.rs` | throughput while popularity changes |
//! | `kv10a-real`, `kv11a-real` … | `real/` | some of these with processes and sockets |
//! | `kvsketch` | `sketch.rs` | what the sketch reports, beside exact counts |
//! | `kvcontrol` | `control.rs` | the controller beside an oracle |
//! | `kvcoherence` | `coherence.rs` | stale reads and the time of writes |
//! | `kvproxy`, `kvshards` … | `proxy/` | the proxy before Redis |
//!
//! The paper has 128 servers and a switch; here they are a [`rack`] in virtual time. Every record
//! says so, and has the *ideal* beside what was measured: the load of each server, added up key by
//! key ([`law`]). Ideal and rack must agree: that checks the rack. What the rack tests is the
//! pipeline, the controller and the protocol. [`real`] is the same rack, far slower, as processes.

mod balance;
mod coherence;
mod control;
mod dynamics;
mod items;
mod latency;
mod law;
mod pipeline;
mod popularity;
mod processes;
mod proxy;
mod rack;
mod racks;
mod real;
mod sketch;
mod skew;
mod theory;
mod writes;

pub(super) use balance::KV10B;
pub(super) use coherence::KVCOHERENCE;
pub(super) use control::KVCONTROL;
pub(super) use dynamics::{KV11A, KV11B, KV11C};
pub(super) use items::KV10E;
pub(super) use latency::KV10C;
pub(super) use pipeline::{KV9A, KV9B};
pub(super) use proxy::{KVLANES, KVLATENCY, KVORIGIN, KVPROXY, KVSHARDS};
pub(super) use racks::KV10F;
pub use real::Servers;
pub(super) use real::{KV10A_REAL, KV11A_REAL, KV11B_REAL, KV11C_REAL};
pub(super) use sketch::KVSKETCH;
pub(super) use skew::KV10A;
pub(super) use theory::KVTHEORY;
pub(super) use writes::KV10D;

use crate::prelude::*;
use law::{Law, Placement, fullest};
use overbank_netcache::{Protocol, controller};
use popularity::Popularity;
use rack::{Faults, Load, Plan, Rack, Run};

/// Requests a second of a server, an input (section 7.1).
const RATE: f64 = 1e7;
const VALUE_LEN: usize = 128;

/// Sizes that experiments on a rack share.
#[derive(Clone, Copy)]
struct Size {
    servers: u16,
    items: usize,
    /// Nanoseconds of virtual time before a measurement, and of it.
    lead_ns: u64,
    ns: u64,
}

impl Size {
    fn of(context: &Context<'_>) -> Size {
        match context.smoke() {
            true => Size { servers: 16, items: 300, lead_ns: 500_000, ns: 1_000_000 },
            false => Size { servers: 128, items: 10_000, lead_ns: 1_000_000, ns: 2_000_000 },
        }
    }

    fn plan(self, items: usize, seed: u64) -> Plan {
        Plan::of(Placement { servers: self.servers, seed }, RATE, items)
    }

    /// Returns what the servers take in all if their loads are equal.
    fn uniform(self) -> f64 {
        f64::from(self.servers) * RATE
    }

    /// Returns the largest load of a rack, with the run at it.
    fn saturate(self, rack: &mut Rack, law: &Law, ideal: f64) -> (f64, Run) {
        let load = reads(law, ideal);
        rack.saturate(
            &load,
            (0.9 * ideal, 1.12 * ideal),
            (self.lead_ns, self.ns),
            (LOSS_MAX, 1.005),
        )
    }
}

/// A rack is saturated when one of its servers drops more than this share of its requests.
const LOSS_MAX: f64 = 0.01;

fn reads(law: &Law, rate: f64) -> Load {
    let ranks = Popularity::new(law.keys);
    Load { law: law.clone(), ranks, rate, writes: 0.0, write_law: None, value_len: VALUE_LEN }
}

/// Returns the largest load at which no server has more than it takes, of a placement whose hottest
/// keys are served without limit.
fn ideal(placement: Placement, law: &Law, cached: u64) -> f64 {
    RATE / fullest(&placement.loads(law, cached))
}

/// Says what of a record is put in.
fn settings(record: &mut Record, size: Size, seeds: u64) {
    record.setting("instrument", "a rack in virtual time");
    record.setting("servers", size.servers);
    record.setting("requests/s of a server (input)", format!("{:.0} M", RATE / 1e6));
    record.setting("a hit and a miss of an idle rack (input)", "7 and 15 µs");
    record.setting("placements", seeds);
    record.note(
        "The switch has no limit. A rack is saturated when a server drops more than 1 % of its \
         requests; 128 wait at most. The paper's clients lower their rate by the loss of all.",
    );
}
