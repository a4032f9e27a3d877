//! The kernel's tables change, and the hops follow. Each test has two namespaces and a veth pair.

use overbank_neighbours::{Mac, Watcher};
use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Succeeds for root on a machine with namespaces.
const ROOT: &str = "test $(id -u) = 0 && ip netns list";
const PATIENCE: Duration = Duration::from_secs(20);
const NEAR: Mac = [2, 0, 0, 0, 0, 0xa];
const FAR: Mac = [2, 0, 0, 0, 0, 0xb];

fn try_run(command: &str) -> Result<String, String> {
    let done = Command::new("sh").args(["-c", command]).output().expect("sh is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

fn run(command: &str) {
    try_run(command).unwrap_or_else(|error| panic!("{command}: {error}"));
}

/// Two namespaces, `near` with eth0 at 192.0.2.1 and 2001:db8::1, `far` with .2 and ::2.
struct Net(String);

impl Net {
    fn new() -> Option<Net> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !overbank_testing::needs("root", try_run(ROOT).is_ok()) {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Net(format!("obn{}x{number}", std::process::id()));
        let (near, far) = (net.near(), net.far());
        run(&format!(
            "ip netns add {near} && ip netns add {far} && \
             ip -n {near} link add eth0 address 02:00:00:00:00:0a type veth \
                peer name eth0 address 02:00:00:00:00:0b netns {far} && \
             ip -n {near} link set lo up && ip -n {far} link set lo up && \
             ip -n {near} address add 192.0.2.1/24 dev eth0 && \
             ip -n {far} address add 192.0.2.2/24 dev eth0 && \
             ip -n {far} address add 192.0.2.3/24 dev eth0 && \
             ip -n {near} address add 2001:db8::1/64 dev eth0 nodad && \
             ip -n {far} address add 2001:db8::2/64 dev eth0 nodad && \
             ip -n {near} link set eth0 up && ip -n {far} link set eth0 up"
        ));
        Some(net)
    }

    fn near(&self) -> String {
        format!("{}a", self.0)
    }

    fn far(&self) -> String {
        format!("{}b", self.0)
    }

    /// Runs `ip` in the near namespace.
    fn ip(&self, arguments: &str) {
        run(&format!("ip -n {} {arguments}", self.near()));
    }

    /// Runs `test` in a thread of the near namespace, with a watcher of eth0.
    fn watched(&self, test: impl FnOnce(&Net, Watcher) + Send) {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = std::fs::File::open(format!("/run/netns/{}", self.near()));
                let file = file.expect("the namespace");
                let kind = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&file),
                    Some(kind),
                )
                .expect("root moves");
                test(self, Watcher::new(["eth0".to_owned()]).expect("a watcher"));
            });
            inside.join().expect("no panic");
        });
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = try_run(&format!("ip netns del {}", self.near()));
        let _ = try_run(&format!("ip netns del {}", self.far()));
    }
}

/// Where a destination leads: the longest prefix.
fn lookup(watcher: &Watcher, to: &str) -> Option<Mac> {
    let to: IpAddr = to.parse().expect("an address");
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let routes = watcher.hops(0).routes.iter().filter(|(at, len, _)| {
        let differ = bits(*at) ^ bits(to);
        at.is_ipv4() == to.is_ipv4() && differ.leading_zeros() >= u32::from(*len)
    });
    routes.max_by_key(|(_, len, _)| *len).and_then(|(_, _, mac)| *mac)
}

/// Waits until a destination leads where it should.
fn expect(watcher: &mut Watcher, to: &str, mac: Option<Mac>) {
    let start = Instant::now();
    while lookup(watcher, to) != mac {
        assert!(
            start.elapsed() < PATIENCE,
            "{to}: {:?}\n{:?}",
            lookup(watcher, to),
            watcher.hops(0)
        );
        watcher.refresh(Instant::now()).expect("the kernel answers");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn routes_and_neighbours_are_followed() {
    let Some(net) = Net::new() else { return };
    net.watched(|net, mut watcher| {
        assert_eq!((watcher.hops(0).mac, watcher.hops(0).mtu, watcher.unread()), (NEAR, 1500, 0));
        assert_eq!(lookup(&watcher, "8.8.8.8"), None);
        // A router that is not known yet: the watcher has it resolved.
        net.ip("route add default via 192.0.2.2");
        expect(&mut watcher, "8.8.8.8", Some(FAR));
        // Its own addresses and those of groups lead nowhere.
        for to in ["192.0.2.1", "192.0.2.255", "127.0.0.1"] {
            assert_eq!(lookup(&watcher, to), None, "{to}");
        }
        // A host on the link.
        assert_eq!(lookup(&watcher, "192.0.2.3"), None);
        let far_away = "8.8.4.4".parse().expect("an address");
        assert!(!watcher.resolve(0, far_away, Instant::now()).expect("no question"));
        let host = "192.0.2.3".parse().expect("an address");
        assert!(watcher.resolve(0, host, Instant::now()).expect("asked"));
        expect(&mut watcher, "192.0.2.3", Some(FAR));
        // A longer prefix to nowhere, and its end.
        net.ip("route add blackhole 10.0.0.0/8");
        expect(&mut watcher, "10.1.1.1", None);
        net.ip("route replace 10.0.0.0/8 via 192.0.2.3");
        expect(&mut watcher, "10.1.1.1", Some(FAR));
        net.ip("route del 10.0.0.0/8");
        // A neighbour by hand, and its end.
        net.ip("neighbour replace 192.0.2.9 lladdr 02:00:00:00:00:09 dev eth0");
        net.ip("route add 10.9.0.0/16 via 192.0.2.9");
        expect(&mut watcher, "10.9.0.1", Some([2, 0, 0, 0, 0, 9]));
        net.ip("neighbour del 192.0.2.9 dev eth0");
        expect(&mut watcher, "10.9.0.1", None);
        // Several ways: the first that can be reached.
        net.ip("route add 10.8.0.0/16 nexthop via 192.0.2.99 nexthop via 192.0.2.2");
        expect(&mut watcher, "10.8.0.1", Some(FAR));
    });
}

#[test]
fn ipv6_routers_have_link_local_addresses() {
    let Some(net) = Net::new() else { return };
    net.watched(|net, mut watcher| {
        net.ip("route add default via fe80::ff:fe00:b dev eth0");
        expect(&mut watcher, "2001:db8:9::1", Some(FAR));
        net.ip("route add 2001:db8:7::/48 via 2001:db8::2");
        expect(&mut watcher, "2001:db8:7::1", Some(FAR));
        // IPv4 by a router of IPv6.
        net.ip("route add 10.7.0.0/16 via inet6 2001:db8::2 dev eth0");
        expect(&mut watcher, "10.7.0.1", Some(FAR));
    });
}

#[test]
fn interfaces_go_down_and_come_back() {
    let Some(net) = Net::new() else { return };
    net.watched(|net, mut watcher| {
        let add = "route add 10.0.0.0/8 via 192.0.2.2 dev eth0";
        net.ip(add);
        expect(&mut watcher, "10.0.0.1", Some(FAR));
        net.ip("link set eth0 down");
        expect(&mut watcher, "10.0.0.1", None);
        assert!(watcher.hops(0).routes.is_empty());
        net.ip("link set eth0 up");
        net.ip(add);
        expect(&mut watcher, "10.0.0.1", Some(FAR));
        // The other end loses its carrier.
        run(&format!("ip -n {} link set eth0 down", net.far()));
        expect(&mut watcher, "10.0.0.1", None);
        run(&format!("ip -n {} link set eth0 up", net.far()));
        expect(&mut watcher, "10.0.0.1", Some(FAR));
        // It is gone, and another one of its name comes.
        net.ip("link del eth0");
        let start = Instant::now();
        while watcher.hops(0).index != 0 {
            assert!(start.elapsed() < PATIENCE);
            watcher.refresh(Instant::now()).expect("the kernel answers");
        }
        net.ip("link add eth0 address 02:00:00:00:00:0a type veth peer name eth1");
        net.ip("link set eth1 up");
        net.ip("link set eth0 up");
        net.ip("address add 198.51.100.1/24 dev eth0");
        net.ip("neighbour replace 198.51.100.9 lladdr 02:00:00:00:00:09 dev eth0");
        expect(&mut watcher, "198.51.100.9", Some([2, 0, 0, 0, 0, 9]));
    });
}

#[test]
fn floods_of_events_and_of_routes_are_bounded() {
    let Some(net) = Net::new() else { return };
    net.watched(|net, mut watcher| {
        net.ip("route add default via 192.0.2.2");
        expect(&mut watcher, "10.0.0.1", Some(FAR));
        // More events than the socket holds, then more routes than are followed.
        let batch = |count: u32, verb: &str| {
            let lines: String = (0..count)
                .map(|n| {
                    format!(
                        "route {verb} 172.{}.{}.{}/32 via 192.0.2.2\n",
                        16 + (n >> 16),
                        n >> 8 & 255,
                        n & 255
                    )
                })
                .collect();
            let file = std::env::temp_dir().join(format!("{}-{verb}{count}", net.0));
            std::fs::write(&file, lines).expect("written");
            run(&format!("ip -n {} -batch {}", net.near(), file.display()));
            let _ = std::fs::remove_file(file);
        };
        batch(20_000, "add");
        let start = Instant::now();
        while watcher.hops(0).routes.len() <= 20_000 {
            assert!(start.elapsed() < PATIENCE, "{}", watcher.hops(0).routes.len());
            watcher.refresh(Instant::now()).expect("the kernel answers");
        }
        batch(70_000, "replace");
        let start = Instant::now();
        let error = loop {
            assert!(start.elapsed() < PATIENCE, "no error");
            match watcher.refresh(Instant::now()) {
                Err(error) => break error,
                Ok(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(error.to_string().contains("more than 65536 routes"), "{error}");
        assert_eq!(lookup(&watcher, "172.16.78.31"), Some(FAR), "the hops stay");
        net.ip("route flush root 172.16.0.0/12");
        expect(&mut watcher, "172.16.78.31", Some(FAR));
        let start = Instant::now();
        while watcher.hops(0).routes.len() > 100 {
            assert!(start.elapsed() < PATIENCE, "{}", watcher.hops(0).routes.len());
            let _ = watcher.refresh(Instant::now());
        }
        // Requests for addresses are bounded.
        let now = Instant::now();
        let asked = (0..250u8)
            .filter(|last| watcher.resolve(0, [192, 0, 2, *last].into(), now).expect("asked"))
            .count();
        assert!(asked <= 100, "{asked}");
    });
}
