//! Controllers that die and return, and peers that mean harm. None of them changes a rule, and
//! forwarding does not notice.

use crate::bench::PATIENCE;
use crate::client::Client;
use crate::context::{Soak, Threads};
use crate::generations::{POISON, one_stamp};
use crate::process::openflow_socket;
use overbank_openflow::{BadRequest, ErrorCode, Message, Role, RoleState, Version};
use rand::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts them.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    threads.here(soak, "peers", visitors);
    threads.here(soak, "ovs-ofctl monitor", monitor);
    threads.here(soak, "the controller that the switch looks for", called);
}

/// Connections that end within a message, are slaves, or send malformed messages.
fn visitors(soak: &Soak) {
    let mut random = soak.random("peers");
    let mut visits = 0;
    while !soak.is_stopped() {
        visits += 1;
        match random.random_range(0..3) {
            0 => {
                let client = Client::connect(soak.scene.openflow, Version::V13);
                let mut bytes = Vec::new();
                let rule = Message::FlowMod(one_stamp(65_000, POISON));
                rule.encode(Version::V13, 1, &mut bytes).expect("it fits");
                let end = random.random_range(1..bytes.len());
                let _ = (&client.stream).write_all(&bytes[..end]);
            }
            1 => {
                let mut client = Client::connect(soak.scene.openflow, Version::V13);
                let slave = RoleState { role: Role::Slave, generation_id: 1 };
                let reply = client.ask(&Message::RoleRequest(slave));
                soak.check(matches!(reply, Message::RoleReply(_)), "a slave", || {
                    format!("{reply:?}")
                });
                let reply = client.ask(&Message::FlowMod(one_stamp(65_000, POISON)));
                let refused = matches!(&reply, Message::Error(error)
                    if error.code == ErrorCode::from(BadRequest::IsSlave));
                soak.check(refused, "a slave", || format!("may add a rule: {reply:?}"));
            }
            _ => {
                let mut stream = TcpStream::connect(soak.scene.openflow).expect("it listens");
                let mut bytes = vec![0; random.random_range(1..2000)];
                random.fill(&mut bytes[..]);
                if random.random() {
                    // Looks like a message at first.
                    bytes[0] = 4;
                }
                let _ = stream.write_all(&bytes);
                let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                let _ = stream.read(&mut [0; 256]);
            }
        }
        soak.sleep(Duration::from_millis(random.random_range(5..60)));
    }
    soak.count("peers that broke off or lied", visits);
}

/// A tool that gets packets, killed again and again.
fn monitor(soak: &Soak) {
    let mut random = soak.random("monitor");
    let at = format!("unix:{}", openflow_socket(soak.scene.folder.path()).display());
    let mut kills = 0;
    while !soak.is_stopped() {
        let mut child = Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow13", "monitor", &at, "200"])
            // Where it creates its socket.
            .env("OVS_RUNDIR", soak.scene.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ovs-ofctl is there");
        soak.sleep(Duration::from_millis(random.random_range(50..600)));
        let ended = child.try_wait().expect("our child");
        soak.check(ended.is_none(), "ovs-ofctl monitor", || format!("ended by itself: {ended:?}"));
        child.kill().expect("our child");
        child.wait().expect("our child");
        kills += 1;
    }
    soak.count("monitors killed", kills);
}

/// The controller to which the switch connects by itself; it takes a few packets and dies.
fn called(soak: &Soak) {
    let mut random = soak.random("called");
    let (mut calls, mut packets) = (0, 0);
    // It waits a second before it calls again, then longer.
    let least = if soak.plan.seconds >= 5 { 2 } else { 1 };
    let end = Instant::now() + Duration::from_secs(soak.plan.seconds) + PATIENCE;
    while !soak.is_stopped() || calls < least && Instant::now() < end {
        let stream = match soak.scene.controller.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        stream.set_nonblocking(false).expect("a socket");
        calls += 1;
        let mut client = Client::greet(stream, Version::V14);
        let reply = client.ask(&Message::BarrierRequest);
        let whom = "the controller that the switch called";
        soak.check(reply == Message::BarrierReply, whom, || format!("{reply:?}"));
        let wanted = random.random_range(1..200);
        for _ in 0..wanted {
            if soak.is_stopped() {
                break;
            }
            let next = client.try_next(Duration::from_millis(200));
            packets += u64::from(matches!(next, Some((_, Message::PacketIn(_)))));
        }
    }
    soak.count("calls of the switch", calls);
    soak.count("packets for the controller called", packets);
    soak.check(calls >= least, "the controller that the switch looks for", || {
        format!("was called {calls} times")
    });
}
