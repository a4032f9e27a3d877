//! A site: sessions with their TEIDs and addresses, the chunks that these are of, and what happens.

use super::super::handling;
use crate::prelude::*;
use overbank::random::Pcg32;

/// Ranges of a node at first.
pub(super) const CHUNKS: u32 = 16;
/// Bits of a number within a chunk.
pub(super) const WITHIN: u32 = 20;
/// What happens to the site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Established,
    /// This share has a static address.
    Static(f64),
    /// This share moved to another node.
    Moved(f64),
    /// One node drained, session by session.
    Drain,
    /// One node drained, chunk by chunk.
    DrainChunks,
    /// Every node in turn drained and filled again, session by session.
    Upgrade,
    /// The same, chunk by chunk.
    UpgradeChunks,
}

pub(super) const EVENTS: [Event; 9] = [
    Event::Established,
    Event::Static(0.1),
    Event::Moved(0.01),
    Event::Moved(0.1),
    Event::Moved(0.5),
    Event::Drain,
    Event::DrainChunks,
    Event::Upgrade,
    Event::UpgradeChunks,
];

impl Event {
    pub(super) fn name(self) -> String {
        match self {
            Event::Established => "as established".into(),
            Event::Static(share) => format!("{} static addresses", percent(share, 0)),
            Event::Moved(share) => format!("{} moved", percent(share, 0)),
            Event::Drain => "a node drained by session".into(),
            Event::DrainChunks => "a node drained by range".into(),
            Event::Upgrade => "all nodes upgraded in turn, by session".into(),
            Event::UpgradeChunks => "all nodes upgraded in turn, by range".into(),
        }
    }
}

pub(super) struct Site {
    pub(super) nodes: u32,
    /// By session: TEID and address as keys, and the node.
    pub(super) keys: [Vec<u32>; 2],
    pub(super) node: Vec<u8>,
    /// By chunk.
    pub(super) owner: Vec<u8>,
    pub(super) moved: u64,
}

pub(super) const fn chunk(key: u32) -> usize {
    (key >> WITHIN) as usize
}

impl Site {
    pub(super) fn new(sessions: u64, nodes: u32, fixed: f64, pcg: &mut Pcg32) -> Site {
        let chunks = nodes * CHUNKS;
        let mut used = [vec![0u32; chunks as usize], vec![0u32; chunks as usize]];
        let mut keys = [Vec::new(), Vec::new()];
        // The lower its number, the longer a chunk is in use, and the fewer its sessions.
        let weights = CHUNKS * (CHUNKS + 1) / 2;
        for session in 0..sessions {
            let node = u32::from(handling(session, nodes.into()));
            let is_static = f64::from(pcg.below(1 << 20)) < fixed * f64::from(1 << 20);
            let mut place = pcg.below(weights);
            let mut nth = 0;
            while place > nth {
                place -= nth + 1;
                nth += 1;
            }
            for (which, keys) in keys.iter_mut().enumerate() {
                let node = if which == 1 && is_static { pcg.below(nodes) } else { node };
                let chunk = node * CHUNKS + nth.min(CHUNKS - 1);
                let number = &mut used[which][chunk as usize];
                keys.push(chunk << WITHIN | *number);
                *number += 1;
            }
        }
        let node = (0..sessions).map(|session| handling(session, nodes.into())).collect();
        let owner = (0..chunks).map(|chunk| (chunk / CHUNKS) as u8).collect();
        Site { nodes, keys, node, owner, moved: 0 }
    }

    pub(super) fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.nodes as usize];
        self.node.iter().for_each(|&node| loads[usize::from(node)] += 1);
        loads
    }

    /// The largest load as a multiple of the mean of those nodes that have any.
    pub(super) fn balance(&self) -> f64 {
        let loads = self.loads();
        let busy = loads.iter().filter(|&&load| load > 0).count().max(1) as f64;
        let most = loads.iter().copied().max().unwrap_or(0) as f64;
        most * busy / self.node.len().max(1) as f64
    }

    pub(super) fn move_to(&mut self, session: usize, node: u8) {
        self.moved += u64::from(self.node[session] != node);
        self.node[session] = node;
    }

    pub(super) fn moves(&mut self, share: f64, pcg: &mut Pcg32) {
        for session in 0..self.node.len() {
            if f64::from(pcg.below(1 << 20)) < share * f64::from(1 << 20) {
                let by = 1 + pcg.below(self.nodes - 1);
                self.move_to(session, ((u32::from(self.node[session]) + by) % self.nodes) as u8);
            }
        }
    }

    /// Gives each session of a node to the emptiest other.
    pub(super) fn drain(&mut self, victim: u8) {
        let mut loads = self.loads();
        loads[usize::from(victim)] = u64::MAX;
        for session in 0..self.node.len() {
            if self.node[session] == victim {
                let to = emptiest(&loads);
                loads[usize::from(to)] += 1;
                self.move_to(session, to);
            }
        }
    }

    /// Sessions of each chunk.
    pub(super) fn chunk_loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.owner.len()];
        self.keys[0].iter().for_each(|&key| loads[chunk(key)] += 1);
        loads
    }

    /// Has sessions follow the owner of their TEID's chunk.
    pub(super) fn follow(&mut self) {
        for session in 0..self.node.len() {
            let owner = self.owner[chunk(self.keys[0][session])];
            self.move_to(session, owner);
        }
    }

    /// Gives each chunk of a node, the largest first, to the emptiest other.
    pub(super) fn drain_chunks(&mut self, victim: u8) {
        let (mut loads, of_chunks) = (self.loads(), self.chunk_loads());
        loads[usize::from(victim)] = u64::MAX;
        let mut chunks: Vec<usize> = self.chunks_of(victim).collect();
        chunks.sort_by_key(|&chunk| std::cmp::Reverse(of_chunks[chunk]));
        for chunk in chunks {
            let to = emptiest(&loads);
            loads[usize::from(to)] += of_chunks[chunk];
            self.owner[chunk] = to;
        }
        self.follow();
    }

    pub(super) fn chunks_of(&self, node: u8) -> impl Iterator<Item = usize> {
        (0..self.owner.len()).filter(move |&chunk| self.owner[chunk] == node)
    }

    /// Fills an empty node from the others, down to the mean.
    pub(super) fn fill(&mut self, node: u8) {
        let mut loads = self.loads();
        let mean = self.node.len() as u64 / u64::from(self.nodes);
        for session in 0..self.node.len() {
            let from = usize::from(self.node[session]);
            if loads[usize::from(node)] < mean && loads[from] > mean {
                loads[from] -= 1;
                loads[usize::from(node)] += 1;
                self.move_to(session, node);
            }
        }
    }

    /// The same by chunks: of the fullest node the largest that does not overfill the empty one.
    pub(super) fn fill_chunks(&mut self, node: u8) {
        let (mut loads, of_chunks) = (self.loads(), self.chunk_loads());
        let mean = self.node.len() as u64 / u64::from(self.nodes);
        loop {
            let room = mean.saturating_sub(loads[usize::from(node)]);
            let fits = |&chunk: &usize| {
                let from = usize::from(self.owner[chunk]);
                from != usize::from(node) && of_chunks[chunk] <= room && loads[from] > mean
            };
            let all = (0..self.owner.len()).filter(fits);
            let Some(best) = all.max_by_key(|&chunk| (of_chunks[chunk], chunk)) else { break };
            if of_chunks[best] == 0 {
                break;
            }
            loads[usize::from(self.owner[best])] -= of_chunks[best];
            loads[usize::from(node)] += of_chunks[best];
            self.owner[best] = node;
        }
        self.follow();
    }

    pub(super) fn after(event: Event, sessions: u64, nodes: u32, seed: u64) -> Site {
        let mut pcg = Pcg32::new(seed, 13);
        let fixed = if let Event::Static(share) = event { share } else { 0.0 };
        let mut site = Site::new(sessions, nodes, fixed, &mut pcg);
        match event {
            Event::Established | Event::Static(_) => {}
            Event::Moved(share) => site.moves(share, &mut pcg),
            Event::Drain => site.drain(0),
            Event::DrainChunks => site.drain_chunks(0),
            Event::Upgrade => (0..nodes as u8).for_each(|node| {
                site.drain(node);
                site.fill(node);
            }),
            Event::UpgradeChunks => (0..nodes as u8).for_each(|node| {
                site.drain_chunks(node);
                site.fill_chunks(node);
            }),
        }
        site
    }

    /// Keys of TEIDs or addresses that are not where their chunk is, with their nodes.
    pub(super) fn exceptions(&self, which: usize) -> impl Iterator<Item = (u32, u8)> {
        let all = self.keys[which].iter().copied().zip(self.node.iter().copied());
        all.filter(|&(key, node)| self.owner[chunk(key)] != node)
    }
}

pub(super) fn emptiest(loads: &[u64]) -> u8 {
    (0..loads.len()).min_by_key(|&node| loads[node]).unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_every_session_on_a_node_that_lives() {
        let after = |event| Site::after(event, 20_000, 4, 1);
        let loads = |event| after(event).loads();
        assert_eq!(after(Event::Established).moved, 0);
        assert_eq!(loads(Event::Drain)[0], 0);
        assert_eq!(loads(Event::DrainChunks)[0], 0);
        for event in [Event::Upgrade, Event::UpgradeChunks] {
            let loads = loads(event);
            assert!(loads.iter().all(|&load| load > 4_000), "{event:?}: {loads:?}");
            assert_eq!(loads.iter().sum::<u64>(), 20_000);
        }
        let moved = after(Event::Moved(0.1));
        let off = moved.exceptions(0).count() as u64;
        assert!(off == moved.moved && (1_800..2_200).contains(&off), "{off}");
        // A static address is right by chance once in four.
        let off = after(Event::Static(0.1)).exceptions(1).count();
        assert!((1_300..1_700).contains(&off), "{off}");
    }
}
