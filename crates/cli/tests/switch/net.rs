//! Hosts in network namespaces.

use crate::process::{must, sh, wait};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Serves one connection with eight million bytes and ends.
const SERVER: &str = "import hashlib,socket;s=socket.create_server(('',7000));\
    print('up',flush=True);c,_=s.accept();d=bytes(range(251))*32000;c.sendall(d);c.close();\
    print(hashlib.sha256(d).hexdigest())";
/// Reads it.
const CLIENT: &str = "import hashlib,socket;c=socket.create_connection(('HOST',7000),60);\
    h=hashlib.sha256();[h.update(b) for b in iter(lambda:c.recv(65536),b'')];print(h.hexdigest())";

/// Namespaces, each with its end of a veth pair; the other ends are here.
pub struct Net {
    name: String,
    hosts: u8,
}

impl Net {
    /// Hosts, numbered from 1; `None` where the test is skipped because it needs root.
    pub fn new(tag: &str, hosts: u8) -> Option<Net> {
        let net = Net { name: format!("obs{tag}{}", std::process::id()), hosts };
        let root = sh("ip netns list").status.success() && must("id -u").trim() == "0";
        if !overbank_testing::needs("root", root) {
            return None;
        }
        for host in 1..=hosts {
            must(&format!("ip netns add {0} && ip -n {0} link set lo up", net.space(host)));
            net.plug(host);
        }
        Some(net)
    }

    pub fn space(&self, host: u8) -> String {
        format!("{}-{host}", self.name)
    }

    /// The interface of a host that the switch has.
    pub fn near(&self, host: u8) -> String {
        format!("{}p{host}", self.name)
    }

    pub fn plug(&self, host: u8) {
        let (space, near) = (self.space(host), self.near(host));
        must(&format!(
            "ip link add {near} type veth peer name eth0 netns {space} && \
             ip -n {space} address add 10.78.0.{host}/24 dev eth0 && \
             ip -n {space} link set eth0 up && ip link set {near} up"
        ));
    }

    pub fn unplug(&self, host: u8) {
        must(&format!("ip link delete {}", self.near(host)));
    }

    /// Whether one host answers another.
    pub fn pings(&self, from: u8, to: u8) -> bool {
        let space = self.space(from);
        sh(&format!("ip netns exec {space} ping -c 1 -W 1 10.78.0.{to}")).status.success()
    }

    /// Starts a program in a host; it ends when the guard is dropped, and its output goes to `log`.
    pub fn start(&self, host: u8, program: &str, log: &Path) -> Serving {
        let log = File::options().append(true).create(true).open(log).expect("a file");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host)]).args(program.split_whitespace());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        Serving(command.spawn().expect("it starts"))
    }

    /// Captures what a host sends and receives of UDP, with its checksums written.
    pub fn capture(&self, host: u8, path: &Path) -> Serving {
        self.must(host, "ethtool -K eth0 tx off");
        let tcpdump = "tcpdump --immediate-mode -U -s 2048 -B 65536 -i eth0 -w";
        let log = path.with_extension("log");
        let serving = self.start(host, &format!("{tcpdump} {} udp", path.display()), &log);
        wait("a capture", || fs::metadata(path).is_ok_and(|meta| meta.len() >= 24));
        serving
    }

    /// Runs a command in a host.
    pub fn must(&self, host: u8, command: &str) -> String {
        must(&format!("ip netns exec {} {command}", self.space(host)))
    }

    /// Runs a program of Python in a host until it says a line; it ends when the guard is dropped.
    pub fn serve(&self, host: u8, program: &str) -> Serving {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.space(host), "python3", "-c", program])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        said.read_line(&mut String::new()).expect("it says so");
        Serving(child)
    }

    /// Eight million bytes by TCP from host 2 to host 1, compared by their hash.
    pub fn transfers(&self) {
        self.transfers_from("10.78.0.2");
    }

    /// The same, from an address of host 2.
    pub fn transfers_from(&self, address: &str) {
        let mut server = Command::new("ip")
            .args(["netns", "exec", &self.space(2), "python3", "-c", SERVER])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut said = BufReader::new(server.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says so");
        let client = CLIENT.replace("HOST", address);
        let got = must(&format!("ip netns exec {} python3 -c \"{client}\"", self.space(1)));
        line.clear();
        said.read_line(&mut line).expect("the hash");
        server.wait().expect("it ends");
        assert_eq!(got.trim(), line.trim(), "TCP arrived as it was sent");
        assert_eq!(got.trim().len(), 64);
    }
}

/// A program in a host, killed on drop.
pub struct Serving(pub Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in 1..=self.hosts {
            let _ = sh(&format!("ip link delete {}", self.near(host)));
            let _ = sh(&format!("ip netns delete {}", self.space(host)));
        }
    }
}
