//! The Ethernet switch allocates for no packet, learning included: counted by the allocator itself.

use overbank_bridge::{DropReason, Forwarder, Role, Sink};
use overbank_stations::{Learner, Limits, Reports, Sighting, Stations};
use overbank_testing::allocations::{Counting, allocations};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counts {
    learner: Learner,
    reports: Arc<Reports>,
    outputs: u64,
    drops: u64,
    now_ms: u32,
}

impl Sink for Counts {
    fn output(&mut self, _index: usize, _port: u16, _frame: &[u8]) {
        self.outputs += 1;
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {
        self.drops += 1;
    }

    fn saw(&mut self, sighting: Sighting) {
        self.learner.report(sighting, self.now_ms);
    }
}

#[test]
fn no_packet_allocates() {
    let limits = Limits { queue: 64, ..Limits::default() };
    let roles = [Role::default(); 4];
    let mut stations = Stations::new(limits, roles.len(), 0, 1).expect("memory");
    let forwarder = Forwarder::new(stations.reader(), &roles).learning(stations.epoch());
    let (learner, reports) = Learner::new(roles.len(), &limits);
    let mut counts = Counts { learner, reports, outputs: 0, drops: 0, now_ms: 0 };
    // Known, unknown, flooded and dropped ones; sources that are new, known and silent.
    let frames: Vec<[u8; 60]> = (0..32u8)
        .map(|n| {
            let mut frame = [0; 60];
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, n % 7, 2, 0, 0, 0, 0, n]);
            frame[0] |= u8::from(n % 9 == 0);
            frame
        })
        .collect();
    let burst: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
    let before = allocations();
    for round in 0..1000u32 {
        forwarder.forward((round % 4) as u16, &burst, &mut counts);
        counts.now_ms += 7;
    }
    assert_eq!(allocations() - before, 0);
    assert!(counts.outputs > 32_000 && counts.drops == 0, "{} {}", counts.outputs, counts.drops);
    assert!(counts.learner.queue_full() > 0 && counts.reports.news.is_full());
    // Each burst comes twice by a port, so that what it is for was learnt there. The writer's side,
    // once its slices have had their memory.
    stations.hear(&counts.reports);
    stations.tick(1);
    let before = allocations();
    for round in 0..1000u32 {
        forwarder.forward((round / 2 % 4) as u16, &burst, &mut counts);
        stations.hear(&counts.reports);
        stations.tick(u64::from(round) * 40);
        counts.now_ms += 40;
    }
    assert_eq!(allocations() - before, 0);
    assert!(counts.drops > 0 && stations.counters().moved > 0 && stations.len() == 32);
}
