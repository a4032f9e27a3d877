//! TAP interfaces in network namespaces: the host's stack on one side, our ports on the other.

use std::collections::{HashMap, HashSet};
use std::net::UdpSocket;
use std::time::Instant;

use crate::netns::traffic::{judge, judge_of_host, tcp, udp};
use crate::netns::{Net, PATIENCE, Wire, try_run, until, wait};
use overbank_ports::flow::flow_hash;
use overbank_ports::queue::{Port, PortError, SendError};
use overbank_ports::tap::{self, TapOptions, TapPort};

/// Opens `tap0` in namespace `i` and gives it an address.
fn open(net: &Net, i: usize, options: &TapOptions, queues: usize) -> TapPort {
    let options = options.clone();
    let opened = net.inside(i, move || tap::open("tap0", &options, queues));
    let mut port = opened.join().expect("no panic").expect("opened");
    until(|| port.info().link_up);
    net.exec(i, &format!("ip address add 10.78.0.{}/24 dev tap0", i + 1));
    net.exec(i, &format!("ip address add fd78::{}/64 dev tap0 nodad", i + 1));
    port
}

#[test]
fn hosts_ping_and_transfers_arrive_intact() {
    for (offload, queues) in [(true, 1), (false, 1), (true, 2)] {
        let Some(net) = Net::new(2) else { return };
        let options = TapOptions { offload, mtu: Some(1400) };
        let (mut a, mut b) = (open(&net, 0, &options, queues), open(&net, 1, &options, queues));
        assert!(a.info().link_up && a.info().mtu == 1400 && a.info().mac != [0; 6]);
        assert!(queues == 1 || a.info().detail.contains("steered by flow"), "{:?}", a.info());
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tap.pcap");
        let capture = net.capture(1, "tap0", &path, 0);
        let wire = Wire::between(&mut a, &mut b);
        net.exec(0, "ping -q -c 3 -i 0.01 -W 20 10.78.0.2");
        net.exec(1, "ping -q -c 3 -i 0.01 -W 20 fd78::1");
        tcp(&net, "10.78.0.2", 4 << 20);
        tcp(&net, "fd78::2", 1 << 20);
        udp(&net, "10.78.0.1", "10.78.0.2");
        udp(&net, "fd78::1", "fd78::2");
        for (mut a, mut b) in wire.stop() {
            let (c, d) = (a.receive.counters(), b.receive.counters());
            assert_eq!(c.errors + d.errors, 0, "{c:?} {d:?}");
            assert_eq!(a.transmit.counters().lost + b.transmit.counters().lost, 0);
        }
        // All of the two transfers to this host.
        capture.stop_at(5 << 20);
        // Without offloads the hosts' kernels compute what we only pass on.
        let judge = if offload { judge } else { judge_of_host };
        judge(&path, 1414, 3000);
    }
}

#[test]
fn a_flow_stays_in_one_queue_whatever_is_answered() {
    let Some(net) = Net::new(1) else { return };
    let mut port = open(&net, 0, &TapOptions::default(), 2);
    net.exec(0, "ip neighbour add 10.78.0.9 lladdr 02:00:00:00:00:09 dev tap0");
    let mut queues = port.take_queues();
    let senders: Vec<_> = net
        .inside(0, || {
            let bind = |_| UdpSocket::bind("10.78.0.1:0").expect("bound");
            (0..40).map(bind).collect()
        })
        .join()
        .expect("senders");
    let mut seen: HashMap<u64, HashSet<usize>> = HashMap::new();
    let mut count = 0;
    for round in 0..20 {
        for sender in &senders {
            sender.send_to(b"overbank", "10.78.0.9:53").expect("sent");
        }
        let start = Instant::now();
        while count < (round + 1) * senders.len() && start.elapsed() < PATIENCE {
            let mut answers = Vec::new();
            for (q, queue) in queues.iter_mut().enumerate() {
                for frame in &queue.receive.receive().expect("up") {
                    if frame.windows(8).any(|w| w == b"overbank") {
                        count += 1;
                        seen.entry(flow_hash(frame)).or_default().insert(q);
                        let mut answer = frame.to_vec();
                        answer[..12].rotate_left(6);
                        answer[26..34].rotate_left(4);
                        answer[34..38].rotate_left(2);
                        answers.push((1 - q, answer));
                    }
                }
            }
            // Through the other queue: the kernel's own steering would follow.
            for (q, answer) in answers {
                queues[q].transmit.send(&answer).expect("sent");
            }
        }
    }
    assert_eq!(count, 20 * senders.len());
    assert_eq!(seen.len(), senders.len());
    assert!(seen.values().all(|queues| queues.len() == 1), "one queue each");
    let used: HashSet<_> = seen.values().flatten().collect();
    assert_eq!(used.len(), 2, "both queues");
}

#[test]
fn a_tap_goes_down_comes_back_and_is_made_anew() {
    let Some(net) = Net::new(1) else { return };
    let mut port = open(&net, 0, &TapOptions::default(), 1);
    let mut queue = port.take_queues().remove(0);
    let mut frame = vec![0xff; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    queue.transmit.send(&frame).expect("up");
    assert_eq!(queue.transmit.send(&[0; 1515]), Err(SendError::TooLong));
    for _ in 0..2 {
        net.exec(0, "ip link set tap0 down");
        until(|| matches!(queue.receive.receive(), Err(PortError::Down { .. })));
        assert_eq!(queue.transmit.send(&frame), Err(SendError::Down));
        assert!(!port.info().link_up);
        net.exec(0, "ip link set tap0 up");
        until(|| queue.transmit.flush().is_ok());
        queue.transmit.send(&frame).expect("up again");
    }
    net.exec(0, "ip link del tap0");
    until(|| matches!(queue.receive.receive(), Err(PortError::Gone { .. })));
    assert!(matches!(queue.transmit.flush(), Err(PortError::Gone { .. })));
    assert_eq!(queue.transmit.send(&frame), Err(SendError::Down));
    wait(&[&queue], 1);
    assert_eq!(queue.transmit.counters().sent, 3);
    // It is there again, and goes away with the port.
    let again = open(&net, 0, &TapOptions::default(), 1);
    drop(again);
    let gone = format!("ip -n {} link show tap0", net.space(0));
    assert!(!try_run(&gone).0);
}

#[test]
fn other_devices_and_taps_in_use_are_refused() {
    let Some(net) = Net::new(1) else { return };
    let refused = |name: &'static str, queues| {
        let tried = net.inside(0, move || tap::open(name, &TapOptions::default(), queues).err());
        tried.join().expect("no panic").expect("refused").to_string()
    };
    assert!(refused("eth0", 1).contains("of another kind"), "{}", refused("eth0", 1));
    let first = open(&net, 0, &TapOptions::default(), 1);
    assert!(refused("tap0", 1).contains("another process"), "{}", refused("tap0", 1));
    assert!(refused("tap0", 2).contains("a single queue"), "{}", refused("tap0", 2));
    drop(first);
    // One that exists already, of either kind, is used and stays.
    for kind in ["", "multi_queue"] {
        net.exec(0, &format!("ip tuntap add dev tap0 mode tap {kind}"));
        drop(open(&net, 0, &TapOptions::default(), 1));
        net.exec(0, "ip link show tap0");
        net.exec(0, "ip link del tap0");
    }
}
