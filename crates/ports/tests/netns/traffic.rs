//! What hosts send to each other, and how it is judged.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

use super::{Net, PATIENCE, run};

/// Bytes that look the same nowhere.
pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends `len` bytes by TCP from host 0 to host 1 and back. Panics if they do not arrive as sent.
pub fn tcp(net: &Net, address: &'static str, len: usize) {
    let wait = Some(PATIENCE);
    let listener = net.inside(1, move || TcpListener::bind((address, 7700)).expect("bound"));
    let listener = listener.join().expect("a listener");
    let server = net.inside(1, move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(wait).expect("a time to wait");
        let mut got = vec![0; len];
        stream.read_exact(&mut got).expect("all bytes");
        stream.write_all(&got).expect("sent back");
        stream.shutdown(Shutdown::Write).expect("closed");
        got
    });
    let client = net.inside(0, move || {
        let to = SocketAddr::new(address.parse().expect("an address"), 7700);
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).expect("connected");
        stream.set_read_timeout(wait).expect("a time to wait");
        let sent = noise(len);
        stream.write_all(&sent).expect("sent");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("all bytes back");
        (sent, back)
    });
    let (sent, back) = client.join().expect("the client ends well");
    let got = server.join().expect("the server ends well");
    assert!(sent == got, "what arrives is what was sent");
    assert!(sent == back, "and what comes back");
}

/// Sends datagrams from host 0 to host 1: single ones, and super-frames that are to be cut into
/// datagrams of 1000 bytes. Panics if they do not arrive as sent.
pub fn udp(net: &Net, from: &'static str, to: &'static str) {
    let receiver = net.inside(1, move || {
        let socket = UdpSocket::bind((to, 7701)).expect("bound");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time to wait");
        socket
    });
    let receiver = receiver.join().expect("a receiver");
    let sender = net.inside(0, move || {
        let socket = UdpSocket::bind((from, 7702)).expect("bound");
        let data = noise(10_500);
        for chunk in data.chunks(1000) {
            socket.send_to(chunk, (to, 7701)).expect("sent");
        }
        let size: libc::c_int = 1000;
        // SAFETY: a pointer to an integer and its size.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0, "UDP_SEGMENT");
        socket.send_to(&data, (to, 7701)).expect("sent at once");
        data
    });
    let data = sender.join().expect("the sender ends well");
    let mut buffer = [0; 2000];
    for _ in 0..2 {
        for chunk in data.chunks(1000) {
            let (len, _) = receiver.recv_from(&mut buffer).expect("a datagram");
            assert!(buffer[..len] == *chunk, "each datagram as it was");
        }
    }
}

/// Tshark's opinion of a capture: every checksum is right, no frame is longer than `longest`, and
/// there are at least `least` frames of TCP or UDP.
pub fn judge(capture: &Path, longest: usize, least: usize) {
    judge_with(capture, longest, least, "tcp.checksum.status == 0");
}

/// As [`judge`], where the sending host computed the checksums itself: one in 65,536 segments sums
/// up to zero, and Linux writes that as 0xffff in TCP too, which tshark calls a bug. What we
/// complete ourselves has no such excuse.
pub fn judge_of_host(capture: &Path, longest: usize, least: usize) {
    let bad = "(tcp.checksum.status == 0 && tcp.checksum != 0xffff)";
    judge_with(capture, longest, least, bad);
}

fn judge_with(capture: &Path, longest: usize, least: usize, bad_tcp: &str) {
    let checks = "-o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE";
    let read = format!("tshark -n -r {} {checks}", capture.display());
    let bad = run(&format!(
        "{read} -Y 'ip.checksum.status == 0 || {bad_tcp} || \
         udp.checksum.status == 0 || icmpv6.checksum.status == 0 || frame.len > {longest}' \
         2>/dev/null | head -5"
    ));
    assert!(bad.is_empty(), "{}: {bad}", capture.display());
    let good = run(&format!(
        "{read} -Y 'tcp.checksum.status == 1 || udp.checksum.status == 1' 2>/dev/null | wc -l"
    ));
    let good: usize = good.trim().parse().expect("a number");
    assert!(good >= least, "{}: {good} frames with right checksums", capture.display());
}
