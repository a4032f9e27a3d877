//! Packets through clusters of each architecture, and the sessions behind them.

use super::super::handling;
use super::*;
use crate::prelude::smoke;
use overbank::random::Pcg32;

fn checks<K: FlowKey>(nodes: u64) {
    let size = (20_000, nodes);
    let tables = smoke(|context| Tables::<K>::build(context, size, true)).unwrap();
    let mut pcg = Pcg32::new(1, 1);
    for architecture in ARCHITECTURES {
        let mut cluster = Cluster::new(&tables, architecture);
        let keys = draw::<K>(size, 5000, true, &mut pcg);
        let mut visits = [0u64; 4];
        let pass = cluster.pass(&keys, &mut pcg, |role, _, frames| {
            visits[role as usize] += frames.len() as u64;
        });
        let name = architecture.name();
        assert_eq!((pass.handled, pass.wrong), (pass.known, 0), "{name}");
        assert_eq!(pass.refused, 5000 - pass.known, "{name}");
        // Unknown keys are refused by the first forwarding table.
        let (known, all) = (pass.known, pass.packets);
        let due = match architecture {
            Architecture::RouteBricks => [all, known, 0, known],
            Architecture::Duplication => [all, 0, 0, known],
            Architecture::HashPartition => [all, 0, all, known],
            _ => [all, 0, 0, all],
        };
        assert_eq!(visits, due, "{name}");
    }
}

#[test]
fn every_architecture_leads_packets_to_their_node() {
    checks::<u64>(4);
    checks::<u128>(2);
}

/// The counts of a session are those of its packets, and the tunnel is the session's.
#[test]
fn sessions_count_and_get_their_tunnel() {
    use std::sync::atomic::Ordering::Relaxed;
    let tables = smoke(|context| Tables::<u64>::build(context, (1000, 2), true)).unwrap();
    let mut cluster = Cluster::new(&tables, Architecture::ScaleBricks);
    let keys: Vec<_> = (0..3).map(|_| (u64::of(7), Some(handling(7, 2)))).collect();
    let mut pcg = Pcg32::new(1, 1);
    assert_eq!(cluster.pass(&keys, &mut pcg, |_, _, _| ()).handled, 3);
    let lines = tables.sessions[usize::from(handling(7, 2))].get();
    let line = lines.chunks(LINE).find(|line| line[0].load(Relaxed) == u64::of(7));
    let line: Vec<u64> = line.unwrap().iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!((line[2] as u32, line[3], line[4]), (8, 3, 150));
}
