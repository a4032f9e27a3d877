//! The settings of the gateway.

use crate::control::{Setup, Tunable};
use crate::engine::{AnswerLimits, From};
use crate::journal::Kept;
use crate::next_hops::Mac;
use crate::prefix::{Prefix, Prefixes};
use crate::session::is_host;
use crate::sessions::{N3_MAX, SESSIONS_MAX};
use overbank_declare::settings::{Check, Located, Location, Off, Range, SettingValue};
use overbank_ports::PortSpec;
use overbank_runtime::Options;
use overbank_runtime::settings::PortSetting;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Smallest MTU: that of IPv6.
const MTU_MIN: usize = 1280;

overbank_declare::choices! {
    /// Role of a port.
    pub enum Role: "ROLE" {
        N3 = "n3", "tunnels to the access network";
        N6 = "n6", "packets to the data network";
        Fabric = "fabric", "packets to other nodes of the cluster";
    }
}

overbank_declare::choices! {
    /// When a change of a cluster's sessions is answered.
    pub enum Ack: "WHEN" {
        Applied = "applied", "when all nodes that take packets know it";
        Replicated = "replicated", "once it is in the cluster's log, which is sooner";
    }
}

impl Role {
    /// Returns the number of its port.
    pub const fn number(self) -> u32 {
        match self {
            Role::N3 => 1,
            Role::N6 => 2,
            Role::Fabric => 3,
        }
    }
}

overbank_declare::settings! {
    /// The gateway.
    pub struct GatewaySettings: "Gateway" {
        port: Vec<Located<RolePort>>, "A port as ROLE=KIND:…; one n3 and one n6"
            example "n3=afpacket:eth1 n6=afpacket:eth2";
        n3_address: Vec<Located<Address>>, "Address where tunnels end; repeat for each"
            example "192.0.2.1";
        ue_pool: Vec<Located<Prefix>>, "Prefix of terminals' addresses; repeat for each"
            example "10.45.0.0/16";
        n6_address: Vec<Located<Address>>, "Source of ICMP errors, one of each family"
            or "the first N3 address of the family" example "203.0.113.2";
        next_hop: Vec<Located<Hop>>,
            "Route as ROLE=PREFIX@MAC or ROLE=default@MAC, in place of all routes of the kernel \
            for the port; repeat for each" or "the kernel's routes and neighbours"
            example "n3=default@02:00:00:00:00:13 n6=default@02:00:00:00:00:16";
        n3_peer: Vec<Located<Prefix>>, "Prefix of peers that may send to N3; repeat for each"
            or "all" example "198.51.100.0/24";
        protect: Vec<Located<Prefix>>,
            "Prefix that terminals may not send to, beside the addresses of N3, N4, metrics and \
            services of the cluster; \
            repeat for each"
            example "10.99.0.0/16";
        n3_mtu: Option<usize>, in MTU_MIN..=65_535, "Longest IP packet to N3"
            or "the port's MTU" example "1500";
        n6_mtu: Option<usize>, in MTU_MIN..=65_535, "Longest IP packet to N6"
            or "the port's MTU" example "1500";
        sessions: Option<PathBuf>, "CSV file of sessions, read again on SIGHUP"
            or "no sessions at the start" example "/etc/overbank/sessions.csv";
        pfcp: Option<SocketAddr>, "Address of N4: sessions by PFCP (feature `pfcp`)"
            or "no PFCP" example "10.0.0.5:8805";
        pfcp_peer: Vec<Located<Prefix>>, "Prefix of SMFs that may use N4; repeat for each"
            or "all" example "10.0.0.0/24";
        pfcp_interface: Option<Interface>,
            "Interface that has the address of N4 on the one node of a cluster that answers SMFs"
            or "the address is on all nodes, and SMFs reach the one whose /speaker says 200"
            example "eth0";
        control: Off<PathBuf> = "off",
            "Path of the control socket, which `overbank gateway sessions` and `status` use"
            example "/run/overbank/gateway.sock";
        control_connections: usize = 16, in 1..=64,
            "Limit of concurrent connections to the control socket; more wait";
        journal: Option<PathBuf>,
            "Directory that keeps the sessions of the control socket over restarts"
            or "a restart forgets them" example "/var/lib/overbank/gateway";
        teid_secret: Option<PathBuf>,
            "File of 32 hexadecimal digits: TEIDs that the gateway chooses carry a keyed check, and \
            all others are dropped and refused" or "no check"
            example "/etc/overbank/teid-secret";
        max_sessions: usize = 65_536, in 1..=SESSIONS_MAX, "Limit of sessions";
        node: Option<usize>, in 0..=NODE_MAX,
            "Number of this node in a cluster" or "a gateway by itself"
            example "3";
        cluster: Option<Name>, "Name of the cluster" or "gateway" example "west";
        etcd: Vec<Located<Url>>, "URL of a member of etcd (feature `cluster`); repeat for each"
            example "http://10.0.0.1:2379";
        etcd_user: Option<PathBuf>, "File of one line, NAME:PASSWORD: the user of etcd" or "none"
            example "/etc/overbank/etcd-user";
        etcd_ca: Option<PathBuf>, "File of certificates (PEM) that sign those of etcd (https)"
            or "those that the system trusts" example "/etc/overbank/etcd-ca.pem";
        etcd_cert: Option<PathBuf>, "File of the certificate (PEM) that the node shows etcd"
            or "none" example "/etc/overbank/etcd.pem";
        etcd_key: Option<PathBuf>, "File of the key (PEM) of etcd-cert" or "none"
            example "/etc/overbank/etcd.key";
        nats: Vec<Located<Url>>, "URL of a NATS server; repeat for each"
            example "nats://10.0.0.1:4222";
        peers: Option<PathBuf>,
            "File of all nodes of a cluster without etcd and NATS, for labs: a line \
            `NODE ADDRESS:PORT` for each" or "etcd and NATS" example "/etc/overbank/peers";
        nats_user: Option<PathBuf>, "File of one line, NAME:PASSWORD: the user of NATS" or "none"
            example "/etc/overbank/nats-user";
        nats_credentials: Option<PathBuf>, "File with NATS credentials" or "none"
            example "/etc/overbank/nats.creds";
        nats_ca: Option<PathBuf>, "File of certificates (PEM) that sign those of NATS (tls)"
            or "those that the system trusts" example "/etc/overbank/nats-ca.pem";
        replicas: usize = 3, in 1..=5, "Copies of the cluster's log, on as many NATS servers";
        echo_interval: usize = 60, in 0..=86_400,
            "Seconds between two Echo Requests to a peer that sessions have, 60 or more; 0: none";
        unknown_share: usize = 10, in 1..=100,
            "Percentage of the packets to other nodes that may be of no session; 100: no limit";
        drain_timeout: usize = 30, in 0..=86_400,
            "Seconds in which a node gives its sessions to others before SIGTERM ends it; 0: none";
        lease_seconds: usize = 3, in 2..=60,
            "Seconds after which others take over from a node that is gone; equal on all nodes";
        ack: Ack = "applied", "When a change of a cluster's sessions is answered: applied (all nodes \
            that take packets know it) or replicated (it is in the log, which is sooner)";
        max_nodes: usize = 32, in 2..=256, "Limit of nodes in the cluster; equal on all nodes";
        echo_limit: usize = 100, in 1..=1_000_000, "Echo Requests of a peer answered a second";
        error_indication_limit: usize = 100, in 1..=1_000_000,
            "Error Indications sent a second, 1 of them to a peer; likewise Supported Extension \
            Headers Notifications";
        icmp_limit: usize = 1000, in 1..=1_000_000,
            "ICMP errors sent a second, 100 of them to a host";
    }
}

/// Shortest time between two Echo Requests to a peer.
const ECHO_INTERVAL_MIN: usize = 60;

/// Default of `unknown-share`.
pub const UNKNOWN_SHARE: u32 = 10;

/// Largest number of a node.
pub const NODE_MAX: usize = 255;

/// Name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl Default for Name {
    fn default() -> Name {
        Name("gateway".to_owned())
    }
}

impl SettingValue for Name {
    const VALUE_NAME: &'static str = "NAME";

    fn accepts(_: &Range) -> String {
        "1 to 32 letters, digits, - and _".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Name, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = (1..=32).contains(&text.len()) && text.chars().all(fits);
        let wrong = || format!("{text:?}: must be {}", Name::accepts(range));
        is_name.then(|| Name(text.to_owned())).ok_or_else(wrong)
    }
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interface(pub String);

impl SettingValue for Interface {
    const VALUE_NAME: &'static str = "INTERFACE";

    fn accepts(_: &Range) -> String {
        "the name of an interface".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Interface, String> {
        let fits = |c: char| c.is_ascii_graphic() && c != '/';
        let is_name = (1..=15).contains(&text.len()) && text.chars().all(fits);
        let wrong = || format!("{text:?}: must be the name of an interface, such as eth0");
        is_name.then(|| Interface(text.to_owned())).ok_or_else(wrong)
    }
}

/// Where a service of the cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url(pub String);

impl Url {
    /// Returns what stands before `://`.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").unwrap_or_default().0
    }

    /// Returns its address; `None`: it has a name.
    pub fn address(&self) -> Option<IpAddr> {
        let host = self.0.split_once("://")?.1.split('/').next()?;
        let alone = host.trim_start_matches('[').trim_end_matches(']');
        let with_port = host.parse::<SocketAddr>().map(|address| address.ip());
        with_port.ok().or_else(|| alone.parse().ok())
    }
}

impl SettingValue for Url {
    const VALUE_NAME: &'static str = "URL";

    fn accepts(_: &Range) -> String {
        "a URL, such as http://10.0.0.1:2379".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Url, String> {
        let wrong = || format!("{text:?}: must be a URL, such as http://10.0.0.1:2379");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let known = ["http", "https", "nats", "tls"].contains(&scheme);
        if rest.contains('@') {
            return Err(
                "a URL has no password here: put it into a file, see etcd-user, nats-user".into()
            );
        }
        (known && !rest.is_empty()).then(|| Url(text.to_owned())).ok_or_else(wrong)
    }
}

/// A port by its role.
#[derive(Clone, Debug)]
pub struct RolePort {
    pub role: Role,
    pub spec: PortSpec,
}

/// Splits `ROLE=REST`.
fn of_role<'a>(text: &'a str, such_as: &str) -> Result<(Role, &'a str), String> {
    let (role, rest) =
        text.split_once('=').ok_or_else(|| format!("{text:?}: must be {such_as}"))?;
    Ok((Role::read(role.trim(), &None)?, rest.trim()))
}

impl SettingValue for RolePort {
    const VALUE_NAME: &'static str = "ROLE=KIND:…";

    fn accepts(_: &Range) -> String {
        "n3=KIND:… or n6=KIND:…".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<RolePort, String> {
        let (role, spec) = of_role(text, "ROLE=KIND:…, such as n3=afpacket:eth1")?;
        let spec = PortSpec::from_str(spec).map_err(|error| error.to_string())?;
        Ok(RolePort { role, spec })
    }
}

/// An address of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr);

impl SettingValue for Address {
    const VALUE_NAME: &'static str = "ADDRESS";

    fn accepts(_: &Range) -> String {
        "an IP address".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Address, String> {
        let wrong = || format!("{text:?}: must be the IP address of a host, such as 192.0.2.1");
        text.parse().ok().filter(|address| is_host(*address)).map(Address).ok_or_else(wrong)
    }
}

/// A route to a next hop; `default` is both families' shortest prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub role: Role,
    pub prefixes: Vec<Prefix>,
    pub mac: Mac,
}

impl SettingValue for Hop {
    const VALUE_NAME: &'static str = "ROLE=PREFIX@MAC";

    fn accepts(_: &Range) -> String {
        "ROLE=PREFIX@MAC or ROLE=default@MAC".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Hop, String> {
        const SUCH_AS: &str = "ROLE=PREFIX@MAC, such as n6=default@02:00:00:00:00:16";
        let (role, route) = of_role(text, SUCH_AS)?;
        if role == Role::Fabric {
            return Err(format!("{text:?}: the fabric has no routes; must be {SUCH_AS}"));
        }
        let wrong = || format!("{text:?}: must be {SUCH_AS}");
        let (prefix, mac) = route.split_once('@').ok_or_else(wrong)?;
        let mac = overbank_stations::mac_of(mac.trim()).filter(|mac| *mac != [0; 6]);
        let mac = mac.filter(|mac| mac[0] & 1 == 0).ok_or_else(wrong)?;
        let prefixes = match prefix.trim() {
            "default" => ["0.0.0.0/0", "::/0"].map(Prefix::parse).into_iter().collect(),
            prefix => Prefix::parse(prefix).map(|prefix| vec![prefix]),
        };
        Ok(Hop { role, prefixes: prefixes?, mac })
    }
}

/// Returns the values of a list.
fn values<T: Clone>(list: &[Located<T>]) -> impl Iterator<Item = T> {
    list.iter().map(|item| item.value.clone())
}

impl GatewaySettings {
    /// Returns the ports by number; reports missing and repeated roles and interfaces.
    pub fn ports(&self, check: &mut Check) -> Vec<PortSetting> {
        let clean = check.is_clean();
        let taken = |port: &RolePort| format!("a port {} exists already", port.role.name());
        let ports = check.distinct(self.port.clone(), |port| port.role.number(), taken);
        let interface = |port: &RolePort| match port.spec.interface() {
            Some(interface) => Ok(interface.to_owned()),
            None => Err(port.role.number()),
        };
        let taken = |port: &RolePort| {
            let interface = port.spec.interface().unwrap_or_default();
            format!("interface {interface} is already a port; N3 and N6 need one each")
        };
        let ports = check.distinct(ports, interface, taken);
        for role in [Role::N3, Role::N6] {
            if clean && !self.port.iter().any(|port| port.value.role == role) {
                let name = role.name();
                let what = format!("no port {name}; configure one, such as {name}=afpacket:eth1");
                check.problem(Location::Missing("port"), what);
            }
        }
        let fabric = self.port.iter().find(|port| port.value.role == Role::Fabric);
        match (fabric, self.node) {
            (Some(port), None) => {
                let what = "port fabric: a gateway by itself has no other nodes; give its node, or \
                            leave the port out";
                check.problem(port.location.clone(), what.to_owned());
            }
            (None, Some(_)) if clean => {
                let what = "no port fabric; a node of a cluster has one, such as \
                            fabric=afxdp:eth3";
                check.problem(Location::Missing("port"), what.to_owned());
            }
            _ => {}
        }
        let setting = |RolePort { role, spec }| PortSetting { number: role.number(), spec };
        let mut ports: Vec<PortSetting> = values(&ports).map(setting).collect();
        ports.sort_by_key(|port| port.number);
        ports
    }

    /// Returns the interface of a port, if it has one.
    fn interface(&self, role: Role) -> Option<String> {
        let mut ports = self.port.iter().map(|port| &port.value);
        ports.find(|port| port.role == role)?.spec.interface().map(str::to_owned)
    }

    /// Returns how to set up a gateway that is run with `run`; reports what does not fit together.
    pub fn setup(&self, check: &mut Check, run: Options) -> Setup {
        if self.n3_address.is_empty() && check.given("n3-address").is_none() {
            let what = "no N3 address; configure at least one, such as 192.0.2.1";
            check.problem(Location::Missing("n3-address"), what);
        }
        let taken = |address: &Address| format!("{} is an N3 address already", address.0);
        let n3 = check.distinct(self.n3_address.clone(), |address| address.0, taken);
        if let Some(one_too_many) = n3.get(N3_MAX) {
            let what = format!("{} N3 addresses: at most {N3_MAX} are allowed", n3.len());
            check.problem(one_too_many.location.clone(), what);
        }
        if self.ue_pool.is_empty() && check.given("ue-pool").is_none() {
            let what = "no UE pool; configure at least one, such as 10.45.0.0/16";
            check.problem(Location::Missing("ue-pool"), what);
        }
        if (1..ECHO_INTERVAL_MIN).contains(&self.echo_interval) {
            let what = format!(
                "{}: must be 0 (off) or at least {ECHO_INTERVAL_MIN} (TS 29.281, 7.2.1)",
                self.echo_interval
            );
            let location =
                check.given("echo-interval").unwrap_or(Location::Missing("echo-interval"));
            check.problem(location, what);
        }
        for Located { value: pool, location } in &self.ue_pool {
            if let Some(Address(n3)) = values(&n3).find(|address| pool.contains(address.0)) {
                let what = format!("{pool} contains the N3 address {n3}");
                check.problem(location.clone(), what);
            }
            if pool.address().is_ipv6() && pool.len() > 64 {
                let what = format!("{pool}: must be a /64 or shorter: a terminal has a whole /64");
                check.problem(location.clone(), what);
            }
        }
        let n3: Vec<IpAddr> = values(&n3).map(|address| address.0).collect();
        let family = |address: &Address| address.0.is_ipv4();
        let taken = |address: &Address| format!("{}: the family has an address", address.0);
        let n6 = check.distinct(self.n6_address.clone(), family, taken);
        let n6: Vec<IpAddr> = values(&n6).map(|address| address.0).collect();
        let from = |is_ipv4| n6.iter().chain(&n3).copied().find(|a| a.is_ipv4() == is_ipv4);
        let routes = |role| {
            let of_role = values(&self.next_hop).filter(move |hop| hop.role == role);
            of_role
                .flat_map(|hop| hop.prefixes.into_iter().map(move |p| (p, Some(hop.mac))))
                .collect()
        };
        Setup {
            tunable: Tunable {
                pools: values(&self.ue_pool).collect(),
                peers: values(&self.n3_peer).collect(),
                protected: values(&self.protect).collect::<Prefixes>(),
                mtu: [self.n3_mtu, self.n6_mtu],
                from: From { v4: from(true), v6: from(false) },
                routes: [routes(Role::N3), routes(Role::N6)],
                unknown_percent: self.unknown_share as u32,
                echo_interval_s: self.echo_interval as u32,
                limits: AnswerLimits::new(
                    self.echo_limit,
                    self.error_indication_limit,
                    self.icmp_limit,
                ),
            },
            run,
            n3: n3.into(),
            teid_secret: None,
            max_sessions: self.max_sessions,
            seed: 0,
            kept: Kept::default(),
            journal: None,
            sessions: Vec::new(),
            cluster: None,
            interfaces: [Role::N3, Role::N6].map(|role| self.interface(role)),
        }
    }
}
