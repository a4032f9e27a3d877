//! What a cluster runs over, as settings say it: etcd and NATS, or the first of some peers.

use overbank_cluster::NodeId;
use overbank_declare::settings::{Check, Located, Location, read_at_most};
use overbank_gateway::file::ERRORS_MAX;
use overbank_gateway::settings::{GatewaySettings, Url};
use overbank_stores::peers::{self, Peers};
use std::net::IpAddr;
use std::path::Path;

pub enum Place {
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "refused when it is given"))]
    Services {
        etcd: Vec<Url>,
        nats: Vec<Url>,
        replicas: usize,
    },
    Peers(Peers),
}

/// Settings of etcd and NATS.
pub const SERVICES: [&str; 9] = [
    "etcd",
    "etcd-user",
    "etcd-ca",
    "etcd-cert",
    "etcd-key",
    "nats",
    "nats-user",
    "nats-credentials",
    "nats-ca",
];

impl Place {
    /// Returns the addresses of services and nodes that terminals may not reach.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Place::Services { etcd, nats, .. } => {
                etcd.iter().chain(nats).filter_map(Url::address).collect()
            }
            Place::Peers(peers) => peers.addresses().collect(),
        }
    }

    /// Returns where the cluster of a node is; reports what does not fit together.
    pub fn check(check: &mut Check, gateway: &GatewaySettings, node: u8) -> Option<Place> {
        let Some(path) = &gateway.peers else { return services(check, gateway) };
        for given in SERVICES.into_iter().chain(["replicas"]) {
            if let Some(location) = check.given(given) {
                let what = "it is of etcd and NATS, which a cluster of peers has not: give either";
                check.problem(location, what);
            }
        }
        let location = check.given("peers").unwrap_or(Location::InText);
        match read(path, node) {
            Ok(peers) => Some(Place::Peers(peers)),
            Err(whats) => {
                whats.into_iter().for_each(|what| check.problem(location.clone(), what));
                None
            }
        }
    }
}

/// Reads a file of peers, which must have this node.
fn read(path: &Path, node: u8) -> Result<Peers, Vec<String>> {
    let name = path.display();
    let bytes = read_at_most(path, peers::BYTES_MAX as u64, "64 KiB");
    let bytes = bytes.map_err(|error| vec![format!("{name}: cannot read the peers: {error}")])?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| vec![format!("{name}: not UTF-8 text; must be peers by line")])?;
    let peers = Peers::parse(&text).map_err(|errors| {
        let shown = errors.iter().take(ERRORS_MAX).map(|error| format!("{name}: {error}"));
        let more = errors.len().saturating_sub(ERRORS_MAX);
        let more = (more > 0).then(|| format!("{name}: {more} further errors"));
        shown.chain(more).collect::<Vec<_>>()
    })?;
    let missing = || vec![format!("{name}: no line for node {node}; must have one for each node")];
    peers.address(NodeId(node)).is_some().then_some(peers).ok_or_else(missing)
}

/// Returns where etcd and NATS are; reports what is missing.
fn services(check: &mut Check, gateway: &GatewaySettings) -> Option<Place> {
    if !cfg!(feature = "cluster") {
        let location = check.given("node").unwrap_or(Location::InText);
        let what = "this program was built without etcd and NATS; give peers, or build it with \
                    --features cluster";
        check.problem(location, what);
        return None;
    }
    let lists = [
        ("etcd", &gateway.etcd, "http://10.0.0.1:2379"),
        ("nats", &gateway.nats, "nats://10.0.0.1:4222"),
    ];
    for (name, list, such_as) in lists {
        if list.is_empty() && check.given(name).is_none() {
            let what = format!("no {name}; a node of a cluster needs one, such as {such_as}");
            check.problem(Location::Missing(name), what);
        }
    }
    let urls = |list: &[Located<Url>]| list.iter().map(|url| url.value.clone()).collect();
    Some(Place::Services {
        etcd: urls(&gateway.etcd),
        nats: urls(&gateway.nats),
        replicas: gateway.replicas,
    })
}
