//! Nodes that are full.

use super::*;

const MAX: u32 = 100;

impl Cluster {
    fn with_room(nodes: u8, sessions_max: u32) -> Self {
        let settings =
            Settings { partitions: 8, node_bits: 3, sessions_max, ..Settings::default() };
        let memory = Memory::new(settings, nodes);
        let mut cluster = Self { memory, now: 0, heard: Vec::new(), keys: Vec::new() };
        cluster.beats(20);
        cluster
    }

    /// Asks for sessions, and returns how many there are and how many found no room.
    fn establish(&mut self, numbers: std::ops::Range<u64>) -> (usize, usize) {
        self.heard.retain(|heard| !matches!(heard, Heard::Answer(..)));
        for nth in numbers {
            let key = Key { hash: mix(nth), full: nth.into() };
            let (keys, context) = (Arc::new([key]), Arc::new([]));
            let request = Request::Establish { keys, context, to: None };
            self.memory.request(NodeId(nth as u8 % 2), nth, request);
        }
        self.beats(40);
        let answers = self.heard.iter().filter_map(|heard| match heard {
            Heard::Answer(_, answer) => Some(answer),
            _ => None,
        });
        let of = |is: fn(&&Answer) -> bool| answers.clone().filter(is).count();
        (of(|answer| answer.is_ok()), of(|answer| **answer == Err(Refusal::NoRoom)))
    }

    fn sessions(&self) -> Vec<usize> {
        let nodes = (0..8).filter_map(|id| self.memory.node(NodeId(id)));
        nodes.map(|node| node.sessions().len()).collect()
    }
}

#[test]
fn no_node_gets_more_sessions_than_it_has_room_for() {
    let mut cluster = Cluster::with_room(4, MAX);
    // All of them at once, from owners that do not know of each other.
    let (done, refused) = cluster.establish(0..500);
    assert_eq!(done + refused, 500);
    // Shares are rounded up: each owner may give one too many.
    let most = MAX as usize + 3;
    let sessions = cluster.sessions();
    assert!(sessions.iter().all(|&held| (MAX as usize..=most).contains(&held)), "{sessions:?}");
    assert_eq!(sessions.iter().sum::<usize>(), done);
    // What does not fit is refused at once.
    assert_eq!(cluster.establish(1000..1010), (0, 10));
    // Nor is one moved to where there is no room.
    let session = cluster.memory.node(NodeId(0)).expect("it runs").sessions().sorted()[0];
    cluster.memory.request(NodeId(0), 9999, Request::Move { session, to: None });
    cluster.beats(4);
    assert!(cluster.heard.contains(&Heard::Answer(9999, Err(Refusal::NoRoom))));
}

#[test]
fn sessions_of_a_node_that_is_gone_wait_for_room() {
    let mut cluster = Cluster::with_room(4, MAX);
    assert_eq!(cluster.establish(0..360), (360, 0));
    cluster.memory.kill(NodeId(3));
    cluster.beats(120);
    let homeless = |cluster: &Cluster| -> usize {
        let nodes = (0..3).filter_map(|id| cluster.memory.node(NodeId(id)));
        nodes.map(Node::homeless).sum()
    };
    let held: usize = cluster.sessions().iter().sum();
    assert!(held >= 300 && homeless(&cluster) == 360 - held, "{held}");
    // Each that goes makes room for one.
    let request = |nth| Request::Remove { session: SessionId(mix(nth)) };
    (0..120).for_each(|nth| cluster.memory.request(NodeId(0), 5000 + nth, request(nth)));
    cluster.beats(120);
    assert_eq!((cluster.sessions().iter().sum::<usize>(), homeless(&cluster)), (240, 0));
    cluster.keys = (120..360).map(|nth| Key { hash: mix(nth), full: nth.into() }).collect();
    cluster.all_handled(&[0, 1, 2]);
}

#[test]
fn a_drain_waits_for_room() {
    let mut cluster = Cluster::with_room(2, MAX);
    assert_eq!(cluster.establish(0..150), (150, 0));
    cluster.memory.drain(NodeId(1));
    cluster.beats(100);
    // Nothing is lost, and the node stays.
    let held: usize = cluster.sessions().iter().sum();
    assert_eq!(held, 150);
    cluster.keys = (0..150).map(|nth| Key { hash: mix(nth), full: nth.into() }).collect();
    cluster.all_handled(&[0, 1]);
    let request = |nth| Request::Remove { session: SessionId(mix(nth)) };
    (0..60).for_each(|nth| cluster.memory.request(NodeId(0), 5000 + nth, request(nth)));
    cluster.beats(100);
    assert!(cluster.memory.node(NodeId(1)).is_none());
    cluster.keys.drain(..60);
    cluster.all_handled(&[0]);
}
