//! What happens to the cluster.

use crate::flood::Flood;
use crate::scene::{Link, SERVERS, Scene};
use std::time::Duration;

/// Ends a fault.
pub type Undo = Box<dyn FnOnce(&mut Scene)>;

pub struct Fault {
    pub name: &'static str,
    pub lasts: Duration,
    /// Whether the node takes no packets meanwhile: its neighbours see that it is gone.
    pub takes_node: bool,
    /// Whether the node begins anew.
    pub renews_node: bool,
    /// Whether packets between nodes are lost.
    pub cuts_fabric: bool,
    /// Whether any packet may be lost.
    pub may_lose: bool,
    /// Whether packets may be lost if the cores have no time left.
    pub takes_cores: bool,
    /// Begins it; for a node, at this one.
    pub cause: fn(&mut Scene, usize) -> Undo,
}

const fn service(name: &'static str, seconds: u64, cause: fn(&mut Scene, usize) -> Undo) -> Fault {
    let lasts = Duration::from_secs(seconds);
    let (takes_node, renews_node, cuts_fabric, may_lose) = (false, false, false, false);
    let takes_cores = false;
    Fault { name, lasts, takes_node, renews_node, cuts_fabric, may_lose, takes_cores, cause }
}

/// All of them.
pub const FAULTS: [Fault; 14] = [
    service("etcd-leader-killed", 10, |scene, _| {
        let leader = scene.etcd_leader();
        scene.etcd[leader] = None;
        Box::new(move |scene| scene.start_etcd(leader))
    }),
    service("stream-leader-killed", 10, |scene, _| {
        let leader = scene.stream_leader();
        scene.nats[leader] = None;
        Box::new(move |scene| scene.start_nats(leader))
    }),
    service("nats-disk-emptied", 10, |scene, _| {
        let leader = scene.stream_leader();
        scene.nats[leader] = None;
        scene.empty_nats(leader);
        scene.start_nats(leader);
        Box::new(|_| {})
    }),
    service("nats-stopped", 30, |scene, _| {
        scene.nats = [const { None }; SERVERS];
        Box::new(|scene| (0..SERVERS).for_each(|nth| scene.start_nats(nth)))
    }),
    service("etcd-stopped", 30, |scene, _| {
        scene.etcd = [const { None }; SERVERS];
        Box::new(|scene| (0..SERVERS).for_each(|nth| scene.start_etcd(nth)))
    }),
    Fault {
        takes_node: true,
        may_lose: true,
        ..service("node-killed", 10, |scene, node| {
            scene.nodes[node] = None;
            Box::new(|_| {})
        })
    },
    Fault {
        takes_node: true,
        may_lose: true,
        ..service("node-stopped", 10, |scene, node| {
            scene.signal(node, "STOP");
            Box::new(move |scene| scene.signal(node, "CONT"))
        })
    },
    Fault {
        takes_node: true,
        renews_node: true,
        may_lose: true,
        ..service("node-restarted", 10, |scene, node| {
            scene.nodes[node] = None;
            scene.start_node(node);
            Box::new(|_| {})
        })
    },
    Fault {
        cuts_fabric: true,
        may_lose: true,
        ..service("fabric-cut", 10, |scene, node| {
            scene.set_link(node, Link::Fabric, false);
            Box::new(move |scene| scene.set_link(node, Link::Fabric, true))
        })
    },
    Fault {
        may_lose: true,
        ..service("etcd-cut", 10, |scene, node| {
            scene.set_etcd(node, false);
            Box::new(move |scene| scene.set_etcd(node, true))
        })
    },
    Fault {
        cuts_fabric: true,
        may_lose: true,
        ..service("fabric-and-etcd-cut", 10, |scene, node| {
            scene.set_link(node, Link::Fabric, false);
            scene.set_etcd(node, false);
            Box::new(move |scene| {
                scene.set_link(node, Link::Fabric, true);
                scene.set_etcd(node, true);
            })
        })
    },
    Fault {
        takes_node: true,
        may_lose: true,
        cuts_fabric: true,
        ..service("all-cut", 10, |scene, node| {
            scene.set_link(node, Link::Fabric, false);
            scene.set_link(node, Link::Control, false);
            Box::new(move |scene| {
                scene.set_link(node, Link::Fabric, true);
                scene.set_link(node, Link::Control, true);
            })
        })
    },
    Fault {
        may_lose: true,
        ..service("link-slow", 10, |scene, node| {
            scene.set_slow(node, true);
            Box::new(move |scene| scene.set_slow(node, false))
        })
    },
    // Valid packets lose nothing to it, while the cores have time.
    Fault {
        takes_cores: true,
        ..service("flood", 10, |_, _| {
            let flood = Flood::start();
            Box::new(|_| flood.end())
        })
    },
];
