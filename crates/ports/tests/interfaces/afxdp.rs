//! Real interfaces: veth pairs into network namespaces, through AF_XDP.
#![allow(unsafe_code)] // bpf(2), capabilities of a thread, kill.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::netns::{Net, PATIENCE, Wire, receive_until, run, wait};
use overbank_ports::afxdp::{self, AfXdpOptions, CopyMode, FRAMES_MIN, MTU_MAX, XdpMode};
use overbank_ports::queue::{BURST, Port, PortError, Queue, SendError, TransmitCounters};
use overbank_ports::select::{Rule, Rules, Select};

/// Bytes that look the same nowhere.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Sends `len` bytes from host 0 to host 1 and back; whether they arrived as they were sent.
fn transfer(net: &Net, address: &'static str, len: usize) -> bool {
    let listener = net.inside(1, move || TcpListener::bind((address, 7700)).expect("bound"));
    let listener = listener.join().expect("a listener");
    let server = net.inside(1, move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut got = vec![0; len];
        stream.read_exact(&mut got).expect("all bytes");
        stream.write_all(&got).expect("sent back");
        got
    });
    let client = net.inside(0, move || {
        let to = SocketAddr::new(address.parse().expect("an address"), 7700);
        let limit = PATIENCE;
        let mut stream = TcpStream::connect_timeout(&to, limit).expect("connected");
        stream.set_read_timeout(Some(limit)).expect("a limit");
        stream.set_write_timeout(Some(limit)).expect("a limit");
        let sent = noise(len);
        stream.write_all(&sent).expect("sent");
        let mut back = vec![0; len];
        stream.read_exact(&mut back).expect("all bytes back");
        (sent, back)
    });
    let (sent, back) = client.join().expect("the client ends well");
    let got = server.join().expect("the server ends well");
    sent == got && sent == back
}

fn options() -> AfXdpOptions {
    AfXdpOptions::default()
}

/// Opens our end of pair `i`.
fn open(net: &Net, i: usize, options: &AfXdpOptions, queues: usize) -> Box<dyn Port> {
    afxdp::open(&net.near(i), options, queues).expect("opened")
}

/// As [`open`], with one queue and the fewest frames, so that rings are gone round often.
fn open_one(net: &Net, i: usize) -> (Box<dyn Port>, Queue) {
    let options = AfXdpOptions { frames: FRAMES_MIN, ..options() };
    let mut port = open(net, i, &options, 1);
    let mut queue = port.take_queues().pop().expect("one queue");
    // The kernel reports the carrier a moment late.
    until("a carrier", || queue.transmit.flush().is_ok());
    (port, queue)
}

/// The XDP part of what `ip` says of an interface, empty if there is no program.
fn xdp_of(interface: &str) -> String {
    let text = run(&format!("ip -d link show dev {interface}"));
    text.split_whitespace().skip_while(|word| *word != "prog/xdp").collect::<Vec<_>>().join(" ")
}

/// A frame to everybody of an experimental type, with a number and a length.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| (at as u8).wrapping_mul(number as u8 | 1)));
    frame
}

/// A packet socket on the far end of pair `i`: what is written is sent as it is.
fn raw_socket(net: &Net, i: usize) -> OwnedFd {
    far_is_up(net, i);
    net.inside(i, || {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers but to an address that lives through the call; the descriptor is new.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol));
            assert!(fd >= 0);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
            let len = size_of_val(&address) as u32;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
            OwnedFd::from_raw_fd(fd)
        }
    })
    .join()
    .expect("a socket")
}

fn write_frame(socket: &OwnedFd, frame: &[u8]) {
    // SAFETY: the pointer and the length are those of `frame`.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
}

/// Frames of the experimental type that arrive at a packet socket until `count` are there, or
/// [`PATIENCE`] is over.
fn read_frames(socket: &OwnedFd, count: usize) -> Vec<Vec<u8>> {
    let (start, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < count && start.elapsed() < PATIENCE {
        let mut bytes = vec![0; 10_000];
        // SAFETY: the kernel writes no more than the length of `bytes`.
        let got = unsafe {
            let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
            libc::recv(socket.as_raw_fd(), to, len, libc::MSG_DONTWAIT)
        };
        let Ok(len) = usize::try_from(got) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        bytes.truncate(len);
        if bytes[12..14] == [0x88, 0xb5] {
            frames.push(bytes);
        }
    }
    frames
}

/// Throws away what has arrived at a packet socket.
fn forget_frames(socket: &OwnedFd) {
    let mut byte = 0u8;
    // SAFETY: the kernel writes one byte at most.
    while unsafe {
        libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) >= 0
    } {}
}

/// Waits for something, for [`PATIENCE`] at most.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} was not seen");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until what the far end of pair `i` sends arrives: before, the kernel throws it away.
fn far_is_up(net: &Net, i: usize) {
    until("the far end", || net.exec(i, "ip link show dev eth0").contains("state UP"));
}

/// Frames of the experimental type.
fn ours(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().filter(|f| f[12..14] == [0x88, 0xb5]).cloned().collect()
}

#[test]
fn tcp_arrives_intact_and_every_checksum_is_right() {
    for xdp in [XdpMode::Native, XdpMode::Generic] {
        let Some(net) = Net::new(2) else { return };
        let options = AfXdpOptions { xdp, mode: CopyMode::Copy, ..options() };
        if xdp == XdpMode::Generic {
            // Native mode has the kernel do this by itself.
            for i in 0..2 {
                net.exec(i, "ethtool -K eth0 tso off gso off");
            }
        }
        let (mut a, mut b) = (open(&net, 0, &options, 1), open(&net, 1, &options, 1));
        let detail = a.info().detail;
        assert!(detail.starts_with(&format!("{xdp} XDP, copy mode")), "{detail}");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("1.pcap");
        // What arrives at host 1; what it sends itself has no checksums yet.
        let dump = net.capture(1, "eth0", &path, 200);
        let path = path.display();
        let wire = Wire::between(&mut *a, &mut *b);
        assert!(transfer(&net, "10.77.0.2", 8 << 20), "{xdp}");
        assert!(transfer(&net, "fd77::2", 4 << 20), "{xdp}");
        net.exec(0, "ping -q -c 3 -i 0.01 10.77.0.2");
        for (mut a, mut b) in wire.stop() {
            assert_eq!((a.receive.counters().errors, b.receive.counters().errors), (0, 0));
            assert!(a.transmit.counters().sent > 1000 && b.transmit.counters().sent > 1000);
        }
        // 12 MiB in frames of 1448 bytes and less, and some of what acknowledges 12 MiB.
        dump.stop_at(1_900_000);
        // Frames are cut in the capture, so the short ones are judged: acknowledgements, ping.
        let count = |filter: &str| {
            let checks = "-o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE";
            let text = run(&format!("tshark -r {path} {checks} -Y '{filter}' 2>/dev/null | wc -l"));
            text.trim().parse::<u32>().expect("a number")
        };
        assert!(count("tcp") > 1000, "{xdp}");
        assert!(count("tcp.checksum.status == \"Good\"") > 500, "{xdp}");
        // 0xffff for 0 is what Linux writes, and equal in ones' complement; tshark warns of it.
        let bad = "(tcp.checksum.status == \"Bad\" && tcp.checksum != 0xffff) || \
                   ip.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\"";
        assert_eq!(count(bad), 0, "{xdp}");
    }
}

#[test]
fn bursts_are_whole_in_order_and_undisturbed_while_on_loan() {
    let Some(net) = Net::new(1) else { return };
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    let mut expected = 0;
    // Many times around all rings.
    for round in 0..300u32 {
        let sent: Vec<_> =
            (0..100).map(|i| frame(round * 100 + i, 60 + (i as usize * 37) % 1400)).collect();
        for frame in &sent {
            write_frame(&raw, frame);
        }
        let (start, mut got) = (Instant::now(), 0);
        while got < sent.len() {
            assert!(start.elapsed() < PATIENCE, "round {round}: {got} frames");
            let burst = queue.receive.receive().expect("works");
            assert!(burst.len() <= BURST);
            // What is sent meanwhile does not touch what is on loan.
            for _ in 0..3 {
                queue.transmit.send(&frame(7, 1000)).expect("room");
            }
            for frame in burst.iter().filter(|f| f[12..14] == [0x88, 0xb5]) {
                assert_eq!(*frame, &sent[got][..], "round {round}");
                got += 1;
                expected += 1;
            }
            drop(burst);
            queue.transmit.flush().expect("works");
        }
    }
    assert_eq!(expected, 30_000);
    assert_eq!(queue.receive.counters().missed, 0);
}

#[test]
fn sent_frames_arrive_and_the_counters_close() {
    let Some(net) = Net::new(1) else { return };
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    let (mut taken, mut bytes, mut full) = (0u64, 0u64, 0u64);
    for round in 0..200u32 {
        let lens: Vec<_> = (0..50).map(|i| 60 + (i * 29 + round as usize) % 1454).collect();
        for (i, len) in lens.iter().enumerate() {
            match queue.transmit.send(&frame(round * 50 + i as u32, *len)) {
                Ok(()) => (taken, bytes) = (taken + 1, bytes + *len as u64),
                Err(SendError::Full) => full += 1,
                Err(error) => panic!("{error}"),
            }
        }
        queue.transmit.flush().expect("works");
        let got = read_frames(&raw, 50);
        assert_eq!(got.len(), 50);
        for (i, got) in got.iter().enumerate() {
            assert_eq!(*got, frame(round * 50 + i as u32, lens[i]));
        }
    }
    let all = queue.transmit.counters();
    assert_eq!(all, TransmitCounters { sent: taken, sent_bytes: bytes, lost: 0 });
    assert_eq!(full, 0);

    // Without a flush in between the ring fills, is handed over early, and loses nothing silently.
    for number in 0..10_000 {
        match queue.transmit.send(&frame(number, 60)) {
            Ok(()) => taken += 1,
            // Refused, and known to be.
            Err(SendError::Full) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let start = Instant::now();
    loop {
        queue.transmit.flush().expect("works");
        let all = queue.transmit.counters();
        if all.sent + all.lost == taken {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{all:?}, {taken} taken");
    }
}

#[test]
fn frames_that_the_kernel_drops_are_lost_and_not_sent() {
    let Some(net) = Net::new(1) else { return };
    let (mut port, mut queue) = open_one(&net, 0);
    for number in 0..7 {
        queue.transmit.send(&frame(number, 100 + number as usize)).expect("room");
    }
    queue.transmit.flush().expect("works");
    let before = TransmitCounters { sent: 7, sent_bytes: 721, lost: 0 };
    assert_eq!(queue.transmit.counters(), before);
    // The other end goes down, and we have not yet looked.
    net.exec(0, "ip link set eth0 down");
    for number in 0..40 {
        queue.transmit.send(&frame(number, 200 + number as usize)).expect("room");
    }
    let _ = queue.transmit.flush();
    let after = TransmitCounters { lost: 40, ..before };
    assert_eq!(queue.transmit.counters(), after);
    net.exec(0, "ip link set eth0 up");
    until("a carrier", || queue.transmit.flush().is_ok());
    queue.transmit.send(&frame(1, 300)).expect("room");
    queue.transmit.flush().expect("works");
    let then = TransmitCounters { sent: 8, sent_bytes: 1021, lost: 40 };
    assert_eq!(queue.transmit.counters(), then);

    // Behind frames that were withdrawn.
    for number in 0..10 {
        queue.transmit.send(&frame(number, 400)).expect("room");
    }
    run(&format!("ip link set {} down", net.near(0)));
    until("down", || queue.transmit.flush().is_err());
    run(&format!("ip link set {} up", net.near(0)));
    until("up", || port.info().link_up);
    net.exec(0, "ip link set eth0 down");
    for number in 0..5 {
        queue.transmit.send(&frame(number, 500 + number as usize)).expect("room");
    }
    let _ = queue.transmit.flush();
    assert_eq!(queue.transmit.counters(), TransmitCounters { lost: 55, ..then });
}

#[test]
fn frames_longer_than_the_mtu_are_refused_and_tags_do_not_count() {
    let Some(net) = Net::new(1) else { return };
    let (mut port, mut queue) = open_one(&net, 0);
    assert_eq!(queue.transmit.send(&frame(1, 1514)), Ok(()));
    assert_eq!(queue.transmit.send(&frame(1, 1515)), Err(SendError::TooLong));
    let mut tagged = frame(1, 1518);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
    assert_eq!(queue.transmit.send(&tagged), Ok(()));
    assert_eq!(queue.transmit.send(&[&tagged[..], &[0]].concat()), Err(SendError::TooLong));
    assert_eq!(queue.transmit.send(&[0; 13]), Ok(()), "taken and lost");
    queue.transmit.flush().expect("works");
    assert_eq!((queue.transmit.counters().sent, queue.transmit.counters().lost), (2, 1));
    assert_eq!(port.info().mtu, 1500);

    // A change while the port is open.
    run(&format!("ip link set {} mtu 1000", net.near(0)));
    assert_eq!(port.info().mtu, 1000);
    assert_eq!(queue.transmit.send(&frame(1, 1015)), Err(SendError::TooLong));
}

#[test]
fn long_mtus_get_long_frames_and_longer_ones_an_error() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    // Longest that native XDP on veth lets the peer have.
    let mtu = 3400;
    run(&format!("ip link set {near} mtu {mtu} && ip -n {} link set eth0 mtu {mtu}", net.space(0)));
    let (port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    let long = frame(3, mtu + 14);
    write_frame(&raw, &long);
    let got = receive_until(&mut queue, |all| !ours(all).is_empty());
    assert_eq!(ours(&got), std::slice::from_ref(&long));
    queue.transmit.send(&long).expect("fits");
    queue.transmit.flush().expect("works");
    assert_eq!(read_frames(&raw, 1), [long]);
    drop((port, queue));

    run(&format!("ip link set {near} mtu {}", MTU_MAX + 1));
    let error = afxdp::open(&near, &options(), 1).map(drop).expect_err("too long");
    assert!(error.to_string().contains(&format!("set it to {MTU_MAX} or less")), "{error}");
    assert_eq!(xdp_of(&near), "");
}

#[test]
fn refused_native_mode_falls_back_to_generic_and_says_why() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    // More than fits into a page is too long for native XDP.
    net.exec(0, "ip link set eth0 mtu 9000");
    let native = AfXdpOptions { xdp: XdpMode::Native, ..options() };
    let error = afxdp::open(&near, &native, 1).map(drop).expect_err("refused").to_string();
    assert!(error.contains("MTU") && error.contains("choose generic"), "{error}");
    let (mut port, mut queue) = open_one(&net, 0);
    let detail = port.info().detail;
    assert!(detail.starts_with("generic XDP (native: the MTU"), "{detail}");
    let raw = raw_socket(&net, 0);
    write_frame(&raw, &frame(1, 60));
    assert_eq!(ours(&receive_until(&mut queue, |all| !ours(all).is_empty())), [frame(1, 60)]);
}

#[test]
fn more_workers_than_queues_receive_once_and_all_send() {
    let Some(net) = Net::new(1) else { return };
    let mut port = open(&net, 0, &options(), 3);
    assert!(port.info().detail.contains("2 of 3 workers send only"), "{}", port.info().detail);
    let mut queues = port.take_queues();
    assert_eq!(queues.len(), 3);
    assert!(port.take_queues().is_empty(), "given out once");
    let raw = raw_socket(&net, 0);
    for number in 0..50 {
        write_frame(&raw, &frame(number, 200));
    }
    let got = receive_until(&mut queues[0], |all| ours(all).len() == 50);
    assert_eq!(ours(&got), (0..50).map(|i| frame(i, 200)).collect::<Vec<_>>());
    for (i, queue) in queues.iter_mut().enumerate() {
        if i > 0 {
            assert_eq!(queue.receive.receive().expect("works").len(), 0);
            assert!(queue.receive.wait_fd().is_none());
        }
        forget_frames(&raw);
        for number in 0..150 {
            queue.transmit.send(&frame(1000 + number, 300)).expect("room");
        }
        if i > 0 {
            assert_eq!(queue.transmit.counters().sent, 128, "what is collected is bounded");
        }
        queue.transmit.flush().expect("works");
        let got = read_frames(&raw, 150);
        assert_eq!(got, (0..150).map(|n| frame(1000 + n, 300)).collect::<Vec<_>>(), "worker {i}");
        let all = queue.transmit.counters();
        assert_eq!(all, TransmitCounters { sent: 150, sent_bytes: 45_000, lost: 0 });
        assert_eq!(queue.transmit.send(&frame(1, 1515)), Err(SendError::TooLong));
    }
    // One in the middle is refused by the kernel: the MTU is lower than we know.
    for len in [60, 1500, 61] {
        queues[1].transmit.send(&frame(1, len)).expect("room");
    }
    run(&format!("ip link set {} mtu 1000", net.near(0)));
    queues[1].transmit.flush().expect("works");
    let all = queues[1].transmit.counters();
    assert_eq!(all, TransmitCounters { sent: 152, sent_bytes: 45_121, lost: 1 });
    run(&format!("ip link set {} down", net.near(0)));
    for queue in &mut queues {
        until("down", || matches!(queue.receive.receive(), Err(PortError::Down { .. })));
        assert_eq!(queue.transmit.send(&frame(1, 60)), Err(SendError::Down));
        assert!(matches!(queue.transmit.flush(), Err(PortError::Down { .. })));
    }
}

#[test]
fn no_queue_of_the_interface_is_left_unread() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    run(&format!(
        "ip link del {near} && \
         ip link add {near} numrxqueues 4 numtxqueues 2 type veth \
         peer name eth0 netns {space} numrxqueues 2 numtxqueues 4 && \
         sysctl -qw net.ipv6.conf.{near}.disable_ipv6=1 && \
         ip -n {space} address add 10.77.0.1/24 dev eth0 && \
         ip -n {space} link set eth0 up && ip link set {near} up",
        space = net.space(0)
    ));
    for workers in [1, 2, 3, 4, 6] {
        let mut port = open(&net, 0, &options(), workers);
        far_is_up(&net, 0);
        assert!(port.info().detail.contains("4 receive queues"), "{}", port.info().detail);
        let mut queues = port.take_queues();
        // Flows are spread over the peer's transmit queues, and so over our receive queues.
        net.inside(0, move || {
            let broadcast: SocketAddr = "10.77.0.255:9".parse().expect("an address");
            // All at once, so that no two have the same port.
            let mut sockets = Vec::new();
            for _ in 0..64 {
                let socket = UdpSocket::bind("10.77.0.1:0").expect("bound");
                socket.set_broadcast(true).expect("allowed");
                for _ in 0..8 {
                    socket.send_to(b"x", broadcast).expect("sent");
                }
                sockets.push(socket);
            }
        })
        .join()
        .expect("sent");
        let (mut count, mut flows, mut workers_hit) = (0, HashSet::new(), HashSet::new());
        let start = Instant::now();
        while count < 64 * 8 && start.elapsed() < PATIENCE {
            let before = count;
            for (worker, queue) in queues.iter_mut().enumerate() {
                let frames = queue.receive.receive().expect("works");
                for frame in frames.iter().filter(|f| f[12..14] == [8, 0] && f[23] == 17) {
                    count += 1;
                    workers_hit.insert(worker);
                    flows.insert((frame[34..36].to_vec(), worker));
                }
            }
            if before == count {
                let some: Vec<_> = queues.iter().collect();
                wait(&some, 100);
            }
        }
        assert_eq!(count, 64 * 8, "{workers} workers");
        assert_eq!(flows.len(), 64, "{workers} workers: a flow stays with one");
        assert_eq!(workers_hit.len(), workers.min(4));
        let raw = raw_socket(&net, 0);
        for (i, queue) in queues.iter_mut().enumerate() {
            queue.transmit.send(&frame(i as u32, 100)).expect("room");
            queue.transmit.flush().expect("works");
            assert_eq!(read_frames(&raw, 1), [frame(i as u32, 100)], "worker {i} of {workers}");
        }
    }
}

#[test]
fn waiting_ends_when_a_frame_comes() {
    let Some(net) = Net::new(1) else { return };
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    while !queue.receive.receive().expect("works").is_empty() {}
    let sender = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        write_frame(&raw, &frame(1, 60));
    });
    let start = Instant::now();
    let mut got = 0;
    while got == 0 && start.elapsed() < PATIENCE {
        wait(&[&queue], 2 * PATIENCE.as_millis() as i32);
        got = queue.receive.receive().expect("works").len();
    }
    assert!(got > 0 && start.elapsed() < PATIENCE, "the frame ends the wait, and not its limit");
    sender.join().expect("sent");
}

#[test]
fn down_and_up_and_away() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    let (mut port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    for _ in 0..3 {
        // Frames that wait in the ring when it goes down do not leave later.
        for number in 0..100 {
            queue.transmit.send(&frame(6666 + number, 60)).expect("room");
        }
        run(&format!("ip link set {near} down"));
        let before = queue.transmit.counters();
        until("down", || queue.receive.receive().is_err());
        for _ in 0..1000 {
            assert!(matches!(queue.receive.receive(), Err(PortError::Down { .. })));
            assert!(matches!(queue.transmit.flush(), Err(PortError::Down { .. })));
            assert_eq!(queue.transmit.send(&frame(1, 60)), Err(SendError::Down));
        }
        let after = queue.transmit.counters();
        assert_eq!((after.sent, after.lost), (before.sent, before.lost + 100));
        assert!(!port.info().link_up);
        run(&format!("ip link set {near} up"));
        until("up", || queue.receive.receive().is_ok() && queue.transmit.flush().is_ok());
        assert!(port.info().link_up);
        far_is_up(&net, 0);
        // Far more than there are frames: none was leaked, and the first is not a stale one.
        for number in 0..3000u32 {
            queue.transmit.send(&frame(number, 60)).expect("room");
            queue.transmit.flush().expect("works");
            assert_eq!(read_frames(&raw, 1), [frame(number, 60)]);
            write_frame(&raw, &frame(number, 60));
            let got = receive_until(&mut queue, |all| !ours(all).is_empty());
            assert_eq!(ours(&got), [frame(number, 60)]);
        }
        // What was withdrawn is not counted a second time.
        let (all, count) = (queue.transmit.counters(), 3000);
        assert_eq!((all.sent, all.lost), (after.sent + count, after.lost));
        assert_eq!(all.sent_bytes, after.sent_bytes + 60 * count);
    }

    // The other end down: no carrier.
    net.exec(0, "ip link set eth0 down");
    until("no carrier", || queue.receive.receive().is_err());
    net.exec(0, "ip link set eth0 up");

    run(&format!("ip link del {near}"));
    until("gone", || matches!(queue.receive.receive(), Err(PortError::Gone { .. })));
    for _ in 0..1000 {
        assert!(matches!(queue.receive.receive(), Err(PortError::Gone { .. })));
        assert!(matches!(queue.transmit.flush(), Err(PortError::Gone { .. })));
    }
    assert_eq!(queue.transmit.send(&frame(1, 60)), Err(SendError::Down));
    assert!(!port.info().link_up);
    let error = afxdp::open(&near, &options(), 1).map(drop).expect_err("it is not there");
    assert!(error.to_string().contains("no such network interface"), "{error}");

    net.add_pair(0);
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    write_frame(&raw, &frame(1, 60));
    assert_eq!(ours(&receive_until(&mut queue, |all| !ours(all).is_empty())), [frame(1, 60)]);
}

#[test]
fn an_interface_that_is_down_works_as_soon_as_it_is_up() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    run(&format!("ip link set {near} down"));
    let opened = match afxdp::open(&near, &options(), 1) {
        // Some kernels bind AF_XDP sockets only to interfaces that are up.
        Err(error) => {
            assert!(matches!(error, PortError::Down { .. }), "{error}");
            assert_eq!(xdp_of(&near), "");
            None
        }
        Ok(port) => Some(port),
    };
    run(&format!("ip link set {near} up"));
    let mut port = opened.unwrap_or_else(|| open(&net, 0, &options(), 1));
    let mut queue = port.take_queues().pop().expect("one queue");
    until("up", || queue.transmit.flush().is_ok());
    let raw = raw_socket(&net, 0);
    write_frame(&raw, &frame(1, 60));
    assert_eq!(ours(&receive_until(&mut queue, |all| !ours(all).is_empty())), [frame(1, 60)]);
    queue.transmit.send(&frame(2, 60)).expect("room");
    queue.transmit.flush().expect("works");
    assert_eq!(read_frames(&raw, 1), [frame(2, 60)]);
}

#[test]
fn dropping_the_port_undoes_everything_and_it_opens_at_once_again() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    let promiscuity = || {
        let text = run(&format!("ip -d link show dev {near}"));
        let mut words = text.split_whitespace().skip_while(|word| *word != "promiscuity");
        words.nth(1).map(str::to_owned).expect("ip says")
    };
    for _ in 0..10 {
        let (port, _queue) = open_one(&net, 0);
        assert_ne!(xdp_of(&near), "");
        assert_eq!(promiscuity(), "1");
        drop(port);
        // Even while the worker still has its queue.
        assert_eq!(xdp_of(&near), "");
        assert_eq!(promiscuity(), "0");
    }
    let options = AfXdpOptions { promiscuous: false, ..options() };
    let _port = open(&net, 0, &options, 1);
    assert_eq!(promiscuity(), "0");
}

/// Not a test: holds the port of the interface that the environment names until it is killed.
#[test]
fn child_that_holds_a_port() {
    let Ok(interface) = std::env::var("OVERBANK_TEST_AFXDP") else { return };
    let mut port = afxdp::open(&interface, &options(), 1).expect("opened");
    let mut queue = port.take_queues().pop().expect("one queue");
    println!("holds the port");
    loop {
        let _ = queue.receive.receive();
        wait(&[&queue], 100);
    }
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "afxdp::child_that_holds_a_port", "--nocapture"])
        .env("OVERBANK_TEST_AFXDP", &near)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let held = output.lines().map_while(Result::ok).any(|line| line.contains("holds the port"));
    assert!(held);
    assert_ne!(xdp_of(&near), "");
    let error = afxdp::open(&near, &options(), 1).map(drop).expect_err("held by the child");
    assert!(error.to_string().contains("`overbank_xsk` is attached already"), "{error}");
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    assert_eq!(xdp_of(&near), "");
    assert!(run(&format!("ip -d link show dev {near}")).contains("promiscuity 0"));

    // And forwarding starts again at once.
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    write_frame(&raw, &frame(1, 60));
    assert_eq!(ours(&receive_until(&mut queue, |all| !ours(all).is_empty())), [frame(1, 60)]);
}

/// `bpf(2)` with plain words; the new descriptor.
fn bpf(command: i32, words: &mut [u64]) -> OwnedFd {
    // SAFETY: the callers pass the structure of the command, and what it points to lives.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words));
        assert!(fd >= 0, "bpf({command}): {}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd as i32)
    }
}

/// Loads a program of the given type and attaches it by a link, which is returned.
fn attach(kind: u32, attach_type: u32, code: &[u64], index: u32, flags: u32) -> OwnedFd {
    let words = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let mut attr = [0u64; 12];
    attr[0] = words(kind, code.len() as u32);
    attr[1] = code.as_ptr() as u64;
    attr[2] = c"GPL".as_ptr() as u64;
    let program = bpf(5, &mut attr);
    let mut attr = [0u64; 8];
    attr[0] = words(program.as_raw_fd() as u32, index);
    attr[1] = words(attach_type, flags);
    bpf(28, &mut attr)
}

fn index_of(interface: &str) -> u32 {
    run(&format!("cat /sys/class/net/{interface}/ifindex")).trim().parse().expect("a number")
}

#[test]
fn a_foreign_program_is_left_alone() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    // r0 = XDP_PASS; exit
    let pass = [0x0000_0002_0000_00b7, 0x95];
    for (flags, mode) in [(1 << 2, "native"), (1 << 1, "generic")] {
        let link = attach(6, 37, &pass, index_of(&near), flags);
        for xdp in [XdpMode::Auto, XdpMode::Native, XdpMode::Generic] {
            let options = AfXdpOptions { xdp, ..options() };
            let error = afxdp::open(&near, &options, 1).map(drop).expect_err("occupied");
            let text = error.to_string();
            assert!(text.contains("is attached already"), "{text}");
            assert!(text.contains(mode) && !text.contains('\n'), "{text}");
        }
        assert_ne!(xdp_of(&near), "", "still there");
        drop(link);
        // Children that other tests start have the descriptor for a moment.
        until("its end", || xdp_of(&near).is_empty());
        drop(open_one(&net, 0));
    }
}

#[test]
fn vlan_tags_stay_where_they_are_or_are_put_back() {
    let Some(net) = Net::new(1) else { return };
    let (_port, mut queue) = open_one(&net, 0);
    let raw = raw_socket(&net, 0);
    let tagged = |number| {
        let mut bytes = frame(number, 300);
        bytes.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
        bytes
    };
    let is_tagged = |all: &[Vec<u8>]| {
        all.iter().filter(|f| f[12..14] == [0x81, 0]).cloned().collect::<Vec<_>>()
    };
    // In the frame, both ways.
    write_frame(&raw, &tagged(1));
    let got = receive_until(&mut queue, |all| !is_tagged(all).is_empty());
    assert_eq!(is_tagged(&got), [tagged(1)]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.pcap");
    let dump = net.capture(0, "eth0", &path, 0);
    queue.transmit.send(&tagged(2)).expect("room");
    queue.transmit.flush().expect("works");
    // The heads of the file and of the frame, and the frame.
    dump.stop_at(24 + 16 + tagged(2).len() as u64);
    let path = path.display();
    let seen =
        run(&format!("tshark -r {path} -Y 'vlan.id == 42 && vlan.priority == 3' 2>/dev/null"));
    assert_eq!(seen.lines().count(), 1);

    // Beside the frame: the peer's own classifier puts it there when the frame leaves.
    // r2 = protocol (network order); r3 = tag; call skb_vlan_push; r0 = next; exit
    let push = |protocol: u16, tag: u16| {
        let protocol = u64::from(protocol.to_be());
        let tag = u64::from(tag);
        [
            0x02b7 | protocol << 32,
            0x03b7 | tag << 32,
            0x0000_0012_0000_0085,
            0xffff_ffff_0000_00b7,
            0x95,
        ]
    };
    for (protocol, tag) in [(0x8100, 0x602a), (0x88a8, 0x0005), (0x8100, 0x0000)] {
        let code = push(protocol, tag);
        let link = net
            .inside(0, move || {
                // SAFETY: a string that ends with a zero byte.
                let index = unsafe { libc::if_nametoindex(c"eth0".as_ptr()) };
                attach(3, 47, &code, index, 0)
            })
            .join()
            .expect("attached");
        write_frame(&raw, &frame(3, 300));
        // Behind a tag that is in the frame already, it is the outer one.
        write_frame(&raw, &tagged(4));
        let header = [protocol.to_be_bytes(), tag.to_be_bytes()].concat();
        let with = |mut bytes: Vec<u8>| {
            bytes.splice(12..12, header.clone());
            bytes
        };
        let wanted = [with(frame(3, 300)), with(tagged(4))];
        let is_ours = |all: &[Vec<u8>]| {
            all.iter().filter(|f| f[6..12] == [2, 0, 0, 0, 0, 1]).cloned().collect::<Vec<_>>()
        };
        let got = receive_until(&mut queue, |all| is_ours(all).len() == 2);
        assert_eq!(is_ours(&got), wanted, "{header:x?}");
        drop(link);
    }
}

#[test]
fn a_missing_right_is_named() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    // Rights belong to a thread: this one gives some away.
    let without = move |near: &str, capabilities: &[u32]| {
        let (near, gone) =
            (near.to_owned(), capabilities.iter().fold(0u64, |all, bit| all | 1 << bit));
        thread::spawn(move || {
            let header = [0x2008_0522u32, 0];
            let mut data = [0u32; 6];
            // SAFETY: version 3 of these calls has a header of two words and data of six.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()), 0);
                data[0] &= !(gone as u32);
                data[3] &= !((gone >> 32) as u32);
                assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()), 0);
            }
            afxdp::open(&near, &options(), 1).map(drop).expect_err("not allowed").to_string()
        })
        .join()
        .expect("it ends well")
    };
    let (admin, raw, system, bpf) = (12, 13, 21, 39);
    for (capabilities, names) in [
        (&[admin][..], "the capability CAP_NET_ADMIN:"),
        (&[raw], "the capability CAP_NET_RAW:"),
        (&[bpf, system], "the capability CAP_BPF:"),
        (&[admin, raw, bpf, system], "the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF:"),
    ] {
        let error = without(&near, capabilities);
        assert!(error.contains(names) && !error.contains('\n'), "{error}");
    }
    assert_eq!(xdp_of(&near), "");
    // No other than those three is needed, though there may be fewer frames without CAP_IPC_LOCK.
    afxdp::raise_locked_memory();
    // SAFETY: the structure is valid for the call.
    let bound = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit);
        limit.rlim_cur
    };
    let keep = [admin, raw, bpf].iter().fold(0u64, |all, bit| all | 1 << bit);
    thread::spawn(move || {
        let header = [0x2008_0522u32, 0];
        let (low, high) = (keep as u32, (keep >> 32) as u32);
        let data = [low, low, 0, high, high, 0];
        // SAFETY: as above.
        let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
        assert_eq!(done, 0);
        let mut port = afxdp::open(&near, &options(), 2).expect("three capabilities are enough");
        let fewer = port.info().detail.contains("frames a queue because of RLIMIT_MEMLOCK");
        assert_eq!(fewer, bound < 20 << 20, "{}", port.info().detail);
        let mut queue = port.take_queues().swap_remove(0);
        until("up", || queue.receive.receive().is_ok());
    })
    .join()
    .expect("it ends well");
}

#[test]
fn options_that_cannot_work_are_named() {
    let Some(net) = Net::new(1) else { return };
    let near = net.near(0);
    let refused = |options: &AfXdpOptions, queues| {
        let error = afxdp::open(&near, options, queues).map(drop).expect_err("refused");
        assert_eq!(xdp_of(&near), "");
        assert!(matches!(error, PortError::Unusable { .. }), "{error}");
        error.to_string()
    };
    for frames in [0, 100, 255, 131_072] {
        let text = refused(&AfXdpOptions { frames, ..options() }, 1);
        assert!(text.contains("a power of two from 256 to 65536"), "{text}");
    }
    let zero = AfXdpOptions { mode: CopyMode::ZeroCopy, ..options() };
    assert!(refused(&zero, 1).contains("cannot do zero copy"), "{}", refused(&zero, 1));
    let generic = AfXdpOptions { xdp: XdpMode::Generic, ..zero };
    assert!(refused(&generic, 1).contains("always copies"));
    assert!(refused(&options(), 0).contains("no queues"));
    for (name, wanted) in
        [("", "no such"), ("a\0b", "no such"), ("a-name-that-is-too-long", "no such")]
    {
        let error = afxdp::open(name, &options(), 1).map(drop).expect_err("refused");
        assert!(error.to_string().contains(wanted), "{error}");
    }
    for text in ["auto", "copy", "zero-copy"] {
        assert_eq!(text.parse::<CopyMode>().expect("known").to_string(), text);
    }
    for text in ["auto", "native", "generic"] {
        assert_eq!(text.parse::<XdpMode>().expect("known").to_string(), text);
    }
    assert_eq!("skb".parse(), Ok(XdpMode::Generic));
    assert!("fast".parse::<CopyMode>().is_err() && "fast".parse::<XdpMode>().is_err());
}

/// Not a test: forwards frames of 60 bytes that host 0 sends as fast as it can.
/// `cargo test --release -p overbank-ports --test interfaces -- --ignored --nocapture rate`
#[test]
#[ignore = "a measurement"]
fn rate() {
    use overbank_ports::afpacket;
    for round in 0..6 {
        let Some(net) = Net::new(2) else { return };
        let kind = ["afxdp", "afpacket", "afxdp generic"][round % 3];
        let open = |i| match kind {
            "afpacket" => {
                let options = afpacket::AfPacketOptions::default();
                Box::new(afpacket::open(&net.near(i), &options, 1).expect("opened"))
            }
            "afxdp" => open(&net, i, &options(), 1),
            _ => open(&net, i, &AfXdpOptions { xdp: XdpMode::Generic, ..options() }, 1),
        };
        let (mut a, mut b) = (open(0), open(1));
        let raw = raw_socket(&net, 0);
        let running = Arc::new(AtomicBool::new(true));
        let go_on = Arc::clone(&running);
        let sender = thread::spawn(move || {
            let yes = 1i32;
            // SAFETY: an option of four bytes.
            let done = unsafe {
                let (level, option) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
                libc::setsockopt(raw.as_raw_fd(), level, option, (&raw const yes).cast(), 4)
            };
            assert_eq!(done, 0);
            let mut frame = frame(1, 60);
            let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: 60 };
            // SAFETY: zero is a value of every member.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = &raw mut part;
            message.msg_hdr.msg_iovlen = 1;
            let mut messages = [message; 64];
            let mut sent = 0;
            while go_on.load(Ordering::Relaxed) {
                // SAFETY: 64 messages, each with one part that lives through the call.
                let done = unsafe { libc::sendmmsg(raw.as_raw_fd(), messages.as_mut_ptr(), 64, 0) };
                sent += u64::try_from(done).unwrap_or(0);
            }
            sent
        });
        let mut a = a.take_queues().pop().expect("one queue");
        let mut b = b.take_queues().pop().expect("one queue");
        let (start, before) = (Instant::now(), cpu_time());
        while start.elapsed() < Duration::from_secs(3) {
            if crate::netns::pass(&mut a, &mut b) + crate::netns::pass(&mut b, &mut a) == 0 {
                wait(&[&a, &b], 2);
            }
        }
        running.store(false, Ordering::Relaxed);
        let cpu = cpu_time() - before;
        let sent = sender.join().expect("it ends well");
        let seconds = start.elapsed().as_secs_f64();
        let forwarded = b.transmit.counters();
        println!(
            "{kind}: offered {:.0} k/s, forwarded {:.0} k/s, {:.0} ns of CPU time a frame, \
             missed {}, lost {}",
            sent as f64 / seconds / 1e3,
            forwarded.sent as f64 / seconds / 1e3,
            cpu.as_nanos() as f64 / forwarded.sent as f64,
            a.receive.counters().missed,
            forwarded.lost,
        );
    }
}

/// Time that this thread had on a CPU.
fn cpu_time() -> Duration {
    // SAFETY: the structure is valid for the call.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Datagrams of `payload` to port 2152 of the near end.
fn tunnel_payloads(frames: &[Vec<u8>], payload: &[u8]) -> usize {
    frames.iter().filter(|frame| frame.ends_with(payload)).count()
}

/// With rules, the kernel's own traffic goes on beside the port: ARP and neighbour discovery, ping,
/// TCP. UDP to port 2152 and a prefix come to the port, before and after a change of the rules.
#[test]
fn the_kernel_keeps_what_no_rule_takes() {
    for xdp in [XdpMode::Native, XdpMode::Generic] {
        let Some(net) = Net::new(1) else { return };
        let near = net.near(0);
        run(&format!(
            "sysctl -qw net.ipv6.conf.{near}.disable_ipv6=0 net.ipv6.conf.{near}.accept_dad=0 && \
             ip address add 10.77.0.99/24 dev {near} && \
             ip address add fd77::99/64 dev {near} nodad"
        ));
        let near4 = IpAddr::from([10, 77, 0, 99]);
        let near6 = IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 0x99]);
        let rules = |rules| Select::Rules(Rules::new(rules).expect("few"));
        let tunnels = [near4, near6].map(|dst| Rule::Udp { dst, port: 2152 });
        let options = AfXdpOptions {
            xdp,
            promiscuous: false,
            frames: FRAMES_MIN,
            select: rules(tunnels.to_vec()),
            ..options()
        };
        let mut port = open(&net, 0, &options, 1);
        let mut queue = port.take_queues().pop().expect("one queue");
        let detail = port.info().detail;
        assert!(detail.ends_with("2 rules select frames, the kernel keeps the others"), "{detail}");
        far_is_up(&net, 0);

        // The kernel answers, and so resolves addresses.
        net.exec(0, "ping -q -c 2 -i 0.01 -W 30 10.77.0.99");
        net.exec(0, "ping -q -c 2 -i 0.01 -W 30 fd77::99");
        for address in ["10.77.0.99", "fd77::99"] {
            let listener = TcpListener::bind((address, 0)).expect("bound");
            let to = listener.local_addr().expect("an address");
            let client = net.inside(0, move || {
                let mut stream = TcpStream::connect_timeout(&to, PATIENCE).expect("connected");
                stream.write_all(b"SSH-2.0-test").expect("sent");
            });
            let (mut stream, _) = listener.accept().expect("a client");
            stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
            let mut got = [0; 12];
            stream.read_exact(&mut got).expect("all bytes");
            client.join().expect("the client ends well");
            assert_eq!(&got, b"SSH-2.0-test");
        }

        let send = |to: SocketAddr, payload: &'static [u8]| {
            let sent = net.inside(0, move || {
                let from: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
                let socket = UdpSocket::bind((from, 0)).expect("bound");
                socket.send_to(payload, to).expect("sent");
            });
            sent.join().expect("sent");
        };
        // Another port is the kernel's.
        let other = UdpSocket::bind((near4, 0)).expect("bound");
        other.set_read_timeout(Some(PATIENCE)).expect("a limit");
        send(other.local_addr().expect("an address"), b"another port");
        let mut got = [0; 100];
        let (len, _) = other.recv_from(&mut got).expect("a datagram");
        assert_eq!(&got[..len], b"another port");
        for near in [near4, near6] {
            send(SocketAddr::new(near, 2152), b"a tunnel");
        }
        let all = receive_until(&mut queue, |all| tunnel_payloads(all, b"a tunnel") == 2);
        assert_eq!(all.len(), 2, "{xdp}: nothing else comes: {all:x?}");

        // Now a prefix, and no tunnels.
        net.exec(0, "ip route add 10.45.0.0/16 via 10.77.0.99");
        let prefix = Rule::To { prefix: [10, 45, 0, 0].into(), len: 16 };
        port.select(&rules(vec![prefix])).expect("replaced");
        let tunnel = UdpSocket::bind((near4, 2152)).expect("bound");
        tunnel.set_read_timeout(Some(PATIENCE)).expect("a limit");
        send(SocketAddr::new(near4, 2152), b"to the kernel");
        let (len, _) = tunnel.recv_from(&mut got).expect("a datagram");
        assert_eq!(&got[..len], b"to the kernel");
        send(([10, 45, 7, 7], 9).into(), b"a terminal");
        let all = receive_until(&mut queue, |all| tunnel_payloads(all, b"a terminal") == 1);
        assert_eq!(all.len(), 1, "{xdp}: nothing else comes: {all:x?}");
        port.select(&Select::All).expect("replaced");
        send(SocketAddr::new(near4, 2152), b"all");
        let all = receive_until(&mut queue, |all| tunnel_payloads(all, b"all") == 1);
        assert_eq!(tunnel_payloads(&all, b"all"), 1);
    }
}
