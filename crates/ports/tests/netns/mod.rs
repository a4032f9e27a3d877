//! Network namespaces joined to this process by veth pairs, for tests of real ports.
//!
//! ```text
//! this process            namespace 0              namespace 1
//! port 0 = near(0) ══veth══ eth0 10.77.0.1
//! port 1 = near(1) ═════════════════════════veth══ eth0 10.77.0.2
//! ```

#![allow(unsafe_code)] // setns.
#![allow(dead_code)] // Each test uses a part.

pub mod traffic;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use overbank_ports::queue::{Port, Queue, SendError};

/// Nothing here takes as long, however busy the machine is; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command; its standard output. Panics with its standard error if it fails.
pub fn run(command: &str) -> String {
    let (ok, out, err) = try_run(command);
    assert!(ok, "{command}: {err}");
    out
}

/// Runs a command: whether it succeeded, its standard output, its standard error.
pub fn try_run(command: &str) -> (bool, String, String) {
    let done = Command::new("sh").args(["-c", command]).output().expect("sh is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.success(), text(&done.stdout), text(&done.stderr))
}

/// Namespaces and veth pairs, removed on drop.
pub struct Net {
    tag: String,
    hosts: usize,
}

impl Net {
    /// As many namespaces as asked for; `None` where the test is skipped because it needs root.
    pub fn new(hosts: usize) -> Option<Net> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no arguments.
        let root = unsafe { libc::geteuid() } == 0;
        if !overbank_testing::needs("root", root && try_run("ip netns list").0) {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Net { tag: format!("ob{}x{number}", std::process::id()), hosts };
        for i in 0..hosts {
            let (space, near) = (net.space(i), net.near(i));
            run(&format!(
                "ip netns add {space} && ip -n {space} link set lo up && \
                 ip netns exec {space} sysctl -qw net.ipv6.conf.default.accept_dad=0"
            ));
            net.add_pair(i);
            assert!(near.len() < 16, "{near} is too long for an interface");
        }
        Some(net)
    }

    /// Makes the veth pair of host `i`.
    pub fn add_pair(&self, i: usize) {
        let (space, near) = (self.space(i), self.near(i));
        run(&format!(
            "ip link add {near} type veth peer name eth0 netns {space} && \
             sysctl -qw net.ipv6.conf.{near}.disable_ipv6=1 && \
             ip -n {space} address add 10.77.0.{n}/24 dev eth0 && \
             ip -n {space} address add fd77::{n}/64 dev eth0 nodad && \
             ip -n {space} link set eth0 up && ip link set {near} up",
            n = i + 1
        ));
    }

    /// Name of namespace `i`.
    pub fn space(&self, i: usize) -> String {
        format!("{}{}", self.tag, (b'a' + i as u8) as char)
    }

    /// Name of our end of the veth pair to namespace `i`.
    pub fn near(&self, i: usize) -> String {
        format!("{}{i}", self.tag)
    }

    /// Runs `work` on a thread inside of namespace `i`.
    pub fn inside<T: Send + 'static>(
        &self,
        i: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let path = format!("/var/run/netns/{}", self.space(i));
        thread::spawn(move || {
            enter(&path);
            work()
        })
    }

    /// Starts a command in namespace `i`; killed on drop.
    pub fn start(&self, i: usize, command: &str) -> Running {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.space(i), "sh", "-c", &format!("exec {command}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Running(child.expect("ip is there"))
    }

    /// Writes what arrives at `interface` of namespace `i` to a capture, until stopped; keeps
    /// `cut` bytes of each frame.
    pub fn capture(&self, i: usize, interface: &str, path: &Path, cut: usize) -> Capturing {
        let _ = std::fs::remove_file(path);
        let shown = path.display();
        let running = self.start(
            i,
            &format!("tcpdump -U -Z root -B 16384 -Q in -s {cut} -i {interface} -w {shown}"),
        );
        let capturing = Capturing { running, path: path.to_owned() };
        // Its header is written once it listens.
        until(|| capturing.bytes() >= 24);
        capturing
    }

    /// Runs a command in namespace `i` to its end.
    pub fn exec(&self, i: usize, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.space(i)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for i in 0..self.hosts {
            let _ = try_run(&format!("ip link del {}", self.near(i)));
            let _ = try_run(&format!("ip netns del {}", self.space(i)));
        }
    }
}

/// Moves this thread into the namespace at `path`.
pub fn enter(path: &str) {
    let file = File::open(path).expect("the namespace is there");
    // SAFETY: a descriptor and a number; the thread alone changes its namespace.
    let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(done, 0, "setns");
}

/// A capture that is being written.
pub struct Capturing {
    running: Running,
    path: PathBuf,
}

impl Capturing {
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |meta| meta.len())
    }

    /// Ends it once the file has `bytes` bytes; frames still in the kernel are lost.
    pub fn stop_at(self, bytes: u64) {
        until(|| self.bytes() >= bytes);
        self.running.stop();
    }
}

/// A process that ends with us.
pub struct Running(Child);

impl Running {
    /// Lets it write what it has, and waits for its end.
    pub fn stop(mut self) {
        // SAFETY: the process is our child, not yet waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Moves frames between two ports, queue by queue, a thread for each queue number.
pub struct Wire {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Queue, Queue)>>,
}

impl Wire {
    /// Starts to move frames.
    pub fn between(a: &mut dyn Port, b: &mut dyn Port) -> Wire {
        let stop = Arc::new(AtomicBool::new(false));
        let pairs = a.take_queues().into_iter().zip(b.take_queues());
        let threads = pairs
            .map(|(mut a, mut b)| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if pass(&mut a, &mut b) + pass(&mut b, &mut a) == 0 {
                            wait(&[&a, &b], 2);
                        }
                    }
                    (a, b)
                })
            })
            .collect();
        Wire { stop, threads }
    }

    /// Stops and gives the queues back.
    pub fn stop(mut self) -> Vec<(Queue, Queue)> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).map(|t| t.join().expect("the wire ends well")).collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Moves one burst; how many frames it had. A port that is down has none.
pub fn pass(from: &mut Queue, to: &mut Queue) -> usize {
    let Ok(frames) = from.receive.receive() else { return 0 };
    for frame in &frames {
        match to.transmit.send(frame) {
            Ok(()) | Err(SendError::Down | SendError::Full | SendError::TooLong) => {}
        }
    }
    let count = frames.len();
    let _ = to.transmit.flush();
    count
}

/// Waits until one of the queues has frames, at most `limit_ms` milliseconds.
pub fn wait(queues: &[&Queue], limit_ms: i32) {
    let mut polls: Vec<libc::pollfd> = queues
        .iter()
        .filter_map(|q| q.receive.wait_fd())
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: as many entries as we say.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit_ms) };
}

/// Receives until `enough` says so or [`PATIENCE`] is over; the frames, in order.
pub fn receive_until(
    queue: &mut Queue,
    mut enough: impl FnMut(&[Vec<u8>]) -> bool,
) -> Vec<Vec<u8>> {
    let start = Instant::now();
    let mut all = Vec::new();
    while !enough(&all) && start.elapsed() < PATIENCE {
        let got = queue.receive.receive().map(|f| f.iter().map(|f| f.to_vec()).collect::<Vec<_>>());
        match got {
            Ok(frames) if !frames.is_empty() => all.extend(frames),
            _ => wait(&[queue], 5),
        }
    }
    all
}

/// Waits until something holds, for [`PATIENCE`] at most.
pub fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it does not come to hold");
        thread::sleep(Duration::from_millis(2));
    }
}
