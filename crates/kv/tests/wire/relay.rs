//! A relay between one client and a server that loses, repeats, reorders and damages datagrams.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How much goes wrong, in a hundred.
#[derive(Clone, Copy)]
pub struct Faults {
    pub lost: u32,
    pub again: u32,
    pub late: u32,
    pub damaged: u32,
}

pub struct Relay {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// One direction.
struct Way {
    faults: Faults,
    random: Pcg64Mcg,
    /// Datagrams that later ones overtake.
    held: VecDeque<Vec<u8>>,
}

impl Way {
    fn pass(&mut self, mut datagram: Vec<u8>, mut send: impl FnMut(&[u8])) {
        let Faults { lost, again, late, damaged } = self.faults;
        let mut percent = |percent| self.random.random_range(0..100) < percent;
        let fate = (percent(lost), percent(again), percent(late), percent(damaged));
        if fate.3 && !datagram.is_empty() {
            // No message any more: what changes one into another is caught by UDP's checksum.
            datagram[0] ^= 1 << self.random.random_range(0..8);
            datagram.truncate(self.random.random_range(1..=datagram.len()));
        }
        if fate.1 {
            self.held.push_back(datagram.clone());
        }
        match fate {
            (true, ..) => {}
            (_, _, true, _) => self.held.push_back(datagram),
            _ => send(&datagram),
        }
        if self.held.len() > 8 || self.random.random_range(0..4) == 0 {
            self.held.pop_front().iter().for_each(|datagram| send(datagram));
        }
    }
}

impl Relay {
    pub fn start(server: SocketAddr, faults: Faults, seed: u64) -> Relay {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a free address");
        let back = UdpSocket::bind("127.0.0.1:0").expect("a free address");
        back.connect(server).expect("an address");
        let address = front.local_addr().expect("bound");
        front.set_read_timeout(Some(Duration::from_micros(200))).expect("a setting");
        back.set_nonblocking(true).expect("a setting");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let way =
            |seed| Way { faults, random: Pcg64Mcg::seed_from_u64(seed), held: VecDeque::new() };
        let (mut there, mut back_again) = (way(2 * seed), way(2 * seed + 1));
        let thread = std::thread::spawn(move || {
            let (mut room, mut client) = ([0; 4096], None);
            while !stopped.load(Ordering::Relaxed) {
                match front.recv_from(&mut room) {
                    Ok((len, from)) => {
                        client = Some(from);
                        // A full buffer is one more loss.
                        there.pass(room[..len].to_vec(), |datagram| _ = back.send(datagram));
                    }
                    Err(error) => assert!(matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    )),
                }
                while let Ok(len) = back.recv(&mut room) {
                    let Some(client) = client else { break };
                    let send = |datagram: &[u8]| _ = front.send_to(datagram, client);
                    back_again.pass(room[..len].to_vec(), send);
                }
            }
        });
        Relay { address, stop, thread: Some(thread) }
    }
}
