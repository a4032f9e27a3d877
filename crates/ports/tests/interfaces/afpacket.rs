//! Real interfaces: veth pairs into network namespaces, through AF_PACKET.
#![allow(unsafe_code)] // Rights of a thread.

use std::collections::{HashMap, HashSet};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::netns::traffic::{judge, tcp, udp};
use crate::netns::{Net, PATIENCE, Wire, receive_until, run, until, wait};
use overbank_ports::afpacket::{self, AfPacketOptions, AfPacketPort, RingKind};
use overbank_ports::flow::flow_hash;
use overbank_ports::queue::{Port, PortError, Queue, SendError};
use overbank_ports::sniff::Sniffer;

const RINGS: [RingKind; 2] = [RingKind::V2, RingKind::V3];

fn open(interface: &str, ring: RingKind, queues: usize) -> AfPacketPort {
    let options = AfPacketOptions { ring, ring_mib: 4, ..AfPacketOptions::default() };
    let mut port = afpacket::open(interface, &options, queues).expect("opened");
    // A veth pair has a carrier a moment after both of its ends are up.
    until(|| port.info().link_up);
    port
}

/// A port on the far end of a veth pair, to send and receive whatever we like.
fn far(net: &Net, i: usize) -> Queue {
    let opened = net.inside(i, || open("eth0", RingKind::V2, 1).take_queues().remove(0));
    opened.join().expect("opened")
}

/// A UDP frame of a flow; its number is the payload.
fn frame(flow: u16, number: u32) -> Vec<u8> {
    let mut out = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 1, (flow >> 8) as u8, flow as u8], [10, 2, 0, 1], 64)
        .udp(1000 + flow, 53)
        .write(&mut out, &[&b"overbank"[..], &number.to_be_bytes()].concat())
        .expect("written");
    out.resize(60.max(out.len()), 0);
    out
}

/// Frames of ours among others (router solicitations and the like).
fn ours(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().filter(|f| f.windows(8).any(|w| w == b"overbank")).cloned().collect()
}

fn send(queue: &mut Queue, frames: &[Vec<u8>]) {
    for frame in frames {
        queue.transmit.send(frame).expect("taken");
    }
    queue.transmit.flush().expect("sent");
}

#[test]
fn tcp_and_udp_arrive_intact_and_right_on_the_wire() {
    for (ring, queues) in [(RingKind::V2, 1), (RingKind::V3, 1), (RingKind::V2, 2)] {
        let Some(net) = Net::new(2) else { return };
        let dir = tempfile::tempdir().expect("a directory");
        let paths = [0, 1].map(|i| dir.path().join(format!("{i}.pcap")));
        let taps = [0, 1].map(|i| net.capture(i, "eth0", &paths[i], 0));
        let mut a = open(&net.near(0), ring, queues);
        let mut b = open(&net.near(1), ring, queues);
        let wire = Wire::between(&mut a, &mut b);
        tcp(&net, "10.77.0.2", 8 << 20);
        tcp(&net, "fd77::2", 2 << 20);
        udp(&net, "10.77.0.1", "10.77.0.2");
        udp(&net, "fd77::1", "fd77::2");
        let mut sent = 0;
        for (mut a, mut b) in wire.stop() {
            sent += a.transmit.counters().sent + b.transmit.counters().sent;
            assert_eq!(a.receive.counters().errors + b.receive.counters().errors, 0);
        }
        // 20 MB in frames of 1500 bytes: what came as super-frames was cut.
        assert!(sent > 14_000, "{sent}");
        for tap in taps {
            // All of the two transfers, which come to either host.
            tap.stop_at(10 << 20);
        }
        for path in &paths {
            judge(path, 1514, 4000);
        }
    }
}

#[test]
fn tags_stay_on_frames() {
    for ring in RINGS {
        let Some(net) = Net::new(2) else { return };
        let (mut a, mut b) = (open(&net.near(0), ring, 1), open(&net.near(1), ring, 1));
        let mut sniffer = Sniffer::open(&net.near(0)).expect("listening");
        let (mut from, mut to) = (far(&net, 0), far(&net, 1));
        let tagged = |tags: &[u8], number| {
            let plain = frame(1, number);
            [&plain[..12], tags, &plain[12..]].concat()
        };
        let frames = [
            tagged(&[], 0),
            tagged(&[0x81, 0, 0x60, 5], 1),
            tagged(&[0x88, 0xa8, 0, 7], 2),
            tagged(&[0x88, 0xa8, 0xf0, 7, 0x81, 0, 0, 9], 3),
            tagged(&[0x81, 0, 0, 0], 4),
        ];
        let wire = Wire::between(&mut a, &mut b);
        send(&mut from, &frames);
        let got = receive_until(&mut to, |got| ours(got).len() >= frames.len());
        assert_eq!(ours(&got), frames, "{ring:?}: through two ports");
        let mut heard = Vec::new();
        let start = Instant::now();
        while ours(&heard).len() < frames.len() && start.elapsed() < PATIENCE {
            let frame = sniffer.next_frame(Duration::from_millis(20)).expect("listening");
            heard.extend(frame.map(|frame| frame.data.to_vec()));
        }
        assert_eq!(ours(&heard), frames, "by listening");
        wire.stop();
    }
}

#[test]
fn a_flow_stays_in_one_queue_and_in_order() {
    for ring in RINGS {
        let Some(net) = Net::new(1) else { return };
        let mut port = open(&net.near(0), ring, 2);
        let mut far = far(&net, 0);
        let (flows, rounds) = (64, 40);
        // A fragmented datagram: the parts that follow have no ports.
        let mut parts = vec![frame(9, 1), frame(9, 2), frame(9, 3)];
        for (part, offset) in parts.iter_mut().zip([0x2000, 0x2001, 0x0002u16]) {
            part[14..16].copy_from_slice(&[0x45, 0xaa]);
            part[20..22].copy_from_slice(&offset.to_be_bytes());
        }
        let mut sent = 0;
        let mut seen: HashMap<u64, (usize, Vec<Vec<u8>>)> = HashMap::new();
        let mut fragments = HashSet::new();
        let mut counts = [0; 2];
        let mut queues = port.take_queues();
        for number in 0..=rounds {
            // The last ones are the parts. A few rounds at a time: the kernel has room for them.
            let frames: Vec<_> = (0..flows).map(|flow| frame(flow, number)).collect();
            let frames = if number == rounds { &parts } else { &frames };
            send(&mut far, frames);
            sent += frames.len();
            if number % 4 != 0 {
                continue;
            }
            let start = Instant::now();
            while counts[0] + counts[1] < sent && start.elapsed() < PATIENCE {
                for (q, queue) in queues.iter_mut().enumerate() {
                    let frames = queue.receive.receive().expect("up");
                    let frames: Vec<_> = frames.iter().map(|frame| frame.to_vec()).collect();
                    for frame in ours(&frames) {
                        counts[q] += 1;
                        if frame[15] == 0xaa {
                            fragments.insert(q);
                            continue;
                        }
                        let entry = seen.entry(flow_hash(&frame)).or_insert((q, Vec::new()));
                        assert_eq!(entry.0, q, "a flow has one queue");
                        entry.1.push(frame);
                    }
                }
                wait(&queues.iter().collect::<Vec<_>>(), 5);
            }
            assert_eq!(counts[0] + counts[1], sent, "{ring:?}: each frame once");
        }
        assert!(counts[0] > sent / 5 && counts[1] > sent / 5, "spread: {counts:?}");
        assert_eq!((seen.len(), fragments.len()), (flows.into(), 1));
        assert!(seen.values().all(|(_, frames)| frames.len() == rounds as usize));
        assert!(seen.values().all(|(_, frames)| frames.is_sorted_by_key(|f| f[50..54].to_vec())));
    }
}

#[test]
fn an_interface_goes_down_comes_back_and_is_made_anew() {
    for (ring, queues) in [(RingKind::V2, 1), (RingKind::V3, 2)] {
        let Some(net) = Net::new(1) else { return };
        let near = net.near(0);
        let mut port = open(&near, ring, queues);
        assert!(port.info().link_up);
        let mut taken = port.take_queues();
        let mut other = far(&net, 0);
        let arrives = |taken: &mut Vec<Queue>, other: &mut Queue| {
            send(other, &(0..20).map(|flow| frame(flow, 0)).collect::<Vec<_>>());
            let mut count = 0;
            until(|| {
                for queue in taken.iter_mut() {
                    if let Ok(frames) = queue.receive.receive() {
                        count += ours(&frames.iter().map(|f| f.to_vec()).collect::<Vec<_>>()).len();
                    }
                }
                count >= 20
            });
            assert_eq!(count, 20);
        };
        arrives(&mut taken, &mut other);

        for _ in 0..3 {
            run(&format!("ip link set {near} down"));
            for queue in &mut taken {
                until(|| matches!(queue.receive.receive(), Err(PortError::Down { .. })));
                assert!(matches!(queue.receive.receive(), Err(PortError::Down { .. })), "again");
                assert!(matches!(queue.transmit.flush(), Err(PortError::Down { .. })));
                assert_eq!(queue.transmit.send(&frame(1, 1)), Err(SendError::Down));
                // Waiting does wait: no error is left on the socket.
                for _ in 0..200 {
                    let _ = queue.receive.receive();
                }
                let start = Instant::now();
                wait(&[queue], 20);
                assert!(start.elapsed() >= Duration::from_millis(15));
            }
            assert!(!port.info().link_up);
            run(&format!("ip link set {near} up"));
            // The other end may see it a little later.
            until(|| taken[0].transmit.flush().is_ok() && other.transmit.flush().is_ok());
            arrives(&mut taken, &mut other);
            send(&mut taken[0], &[frame(3, 3)]);
            let back = receive_until(&mut other, |got| !ours(got).is_empty());
            assert_eq!(ours(&back), [frame(3, 3)]);
        }

        run(&format!("ip link del {near}"));
        for queue in &mut taken {
            until(|| matches!(queue.receive.receive(), Err(PortError::Gone { .. })));
            assert!(matches!(queue.transmit.flush(), Err(PortError::Gone { .. })));
            assert_eq!(queue.transmit.send(&frame(1, 1)), Err(SendError::Down));
        }
        assert!(!port.info().link_up);
        let missing = afpacket::open(&near, &AfPacketOptions::default(), queues).err();
        assert!(matches!(missing, Some(PortError::Unusable { .. })));
        net.add_pair(0);
        assert!(matches!(taken[0].receive.receive(), Err(PortError::Gone { .. })), "another one");
        drop((taken, port));
        let mut port = open(&near, ring, queues);
        let mut other = self::far(&net, 0);
        arrives(&mut port.take_queues(), &mut other);
    }
}

#[test]
fn the_mtu_bounds_what_is_sent_and_may_change() {
    let Some(net) = Net::new(1) else { return };
    let mut port = open(&net.near(0), RingKind::V2, 1);
    assert_eq!(port.info().mtu, 1500);
    let mut queue = port.take_queues().remove(0);
    let mut other = far(&net, 0);
    let long = |len: usize, tag: &[u8]| {
        let plain = frame(1, len as u32);
        let mut frame = [&plain[..12], tag, &plain[12..]].concat();
        frame.resize(len, 0);
        frame
    };
    let fits = [long(1514, &[]), long(1518, &[0x81, 0, 0, 5])];
    send(&mut queue, &fits);
    assert_eq!(queue.transmit.send(&long(1515, &[])), Err(SendError::TooLong));
    assert_eq!(queue.transmit.send(&long(1519, &[0x81, 0, 0, 5])), Err(SendError::TooLong));
    let got = receive_until(&mut other, |got| ours(got).len() >= 2);
    assert_eq!(ours(&got), fits);
    run(&format!("ip link set {} mtu 9000", net.near(0)));
    net.exec(0, "ip link set eth0 mtu 9000");
    until(|| {
        let _ = queue.transmit.flush();
        queue.transmit.send(&long(9014, &[])).is_ok()
    });
    queue.transmit.flush().expect("sent");
    // Longer than the slots that were made for an MTU of 1500.
    let got = receive_until(&mut other, |got| !ours(got).is_empty());
    assert_eq!(ours(&got), [long(9014, &[])]);
    let counters = queue.transmit.counters();
    assert_eq!((counters.sent, counters.lost), (3, 0));
    assert_eq!(counters.sent_bytes, 1514 + 1518 + 9014);
}

#[test]
fn frames_beyond_the_ring_are_counted() {
    for ring in RINGS {
        let Some(net) = Net::new(1) else { return };
        let options = AfPacketOptions { ring, ring_mib: 1, ..AfPacketOptions::default() };
        let mut port = afpacket::open(&net.near(0), &options, 1).expect("opened");
        until(|| port.info().link_up);
        let mut queue = port.take_queues().remove(0);
        let mut other = far(&net, 0);
        let total = 20_000u32;
        for number in 0..total {
            other.transmit.send(&frame(1, number)).expect("taken");
        }
        other.transmit.flush().expect("sent");
        assert_eq!(other.transmit.counters().sent, u64::from(total));
        let mut got = Vec::new();
        // What the kernel, without time, threw away before the ring.
        let lost = || net.exec(0, "cat /sys/class/net/eth0/statistics/tx_dropped");
        let lost = || lost().trim().parse::<usize>().expect("a number");
        let (start, mut others, mut quiet) = (Instant::now(), 0, 0);
        // Until each is somewhere, and a moment longer: none may be in two places.
        while quiet < 5 {
            let frames: Vec<_> =
                queue.receive.receive().expect("up").iter().map(|f| f.to_vec()).collect();
            others += frames.len() - ours(&frames).len();
            got.extend(ours(&frames));
            if !frames.is_empty() {
                quiet = 0;
                continue;
            }
            wait(&[&queue], 10);
            let sum = got.len() + queue.receive.counters().missed as usize + lost();
            quiet += usize::from(sum >= total as usize);
            assert!(start.elapsed() < PATIENCE, "{ring:?}: {sum} of {total}");
        }
        let missed = queue.receive.counters().missed as usize + lost();
        assert!(got.len() > 100 && missed > 100, "{ring:?}: {} {missed}", got.len());
        // A frame of the system's own may have been missed as well.
        let sum = got.len() + missed;
        assert!((total as usize..total as usize + 20).contains(&sum), "{sum} {others}");
        assert!(got.is_sorted_by_key(|f| f[50..54].to_vec()), "{ring:?}: in order");
    }
}

#[test]
fn sent_frames_do_not_come_back_and_all_addresses_arrive() {
    for queues in [1, 2] {
        let Some(net) = Net::new(1) else { return };
        let mut port = open(&net.near(0), RingKind::V2, queues);
        let mut taken = port.take_queues();
        let mut other = far(&net, 0);
        send(&mut taken[0], &[frame(1, 1), frame(2, 2)]);
        let got = receive_until(&mut other, |got| ours(got).len() >= 2);
        assert_eq!(ours(&got), [frame(1, 1), frame(2, 2)], "to no address of the host");
        nothing_of_ours(&mut taken);

        // What the host's own stack sends is its own as well.
        let inner = net.inside(0, move || open("eth0", RingKind::V2, queues));
        let mut inner = inner.join().expect("opened").take_queues();
        net.exec(0, "ip neighbour add 10.77.0.9 lladdr 02:00:00:00:00:09 dev eth0");
        let sender = net.inside(0, || {
            let socket = UdpSocket::bind("10.77.0.1:0").expect("bound");
            socket.send_to(b"overbank", "10.77.0.9:53").expect("sent");
        });
        sender.join().expect("sent");
        until(|| {
            taken.iter_mut().any(|queue| {
                let frames = queue.receive.receive().expect("up");
                frames.iter().any(|f| f.windows(8).any(|w| w == b"overbank"))
            })
        });
        nothing_of_ours(&mut inner);
    }
}

/// Each queue stays without a frame of ours for a while.
fn nothing_of_ours(queues: &mut [Queue]) {
    for queue in queues {
        for _ in 0..5 {
            let frames: Vec<_> =
                queue.receive.receive().expect("up").iter().map(|f| f.to_vec()).collect();
            assert!(ours(&frames).is_empty());
            wait(&[queue], 5);
        }
    }
}

#[test]
fn a_missing_right_is_named() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    // Rights belong to a thread: this one gives all of them away.
    let refused = std::thread::spawn(move || {
        let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
        // SAFETY: version 3 of this call has a header of two words and data of six.
        let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
        assert_eq!(done, 0);
        afpacket::open(&near, &AfPacketOptions::default(), 1).map(drop).expect_err("not allowed")
    });
    let error = refused.join().expect("it ends well").to_string();
    assert!(error.contains("the capability CAP_NET_RAW") && !error.contains('\n'), "{error}");
}
