//! Nodes over the first of them, and connections that are not theirs.

use super::*;
use crate::{Driver, Handle as Asking, Host};
use overbank::hash::mix;
use overbank_cluster::etcd::State;
use overbank_cluster::message::{Answer, Counts, Request};
use overbank_cluster::node::{Change, Entry};
use overbank_cluster::{Key, Micros, Node, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener as StdListener};
use std::sync::Mutex;
use tokio::runtime::Runtime;

const LONG: Duration = Duration::from_secs(30);

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that was free.
fn port() -> u16 {
    let listener = StdListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

fn peers(port: u16) -> Peers {
    let text = format!("0 127.0.0.1:{port}\n1 127.0.0.1\n2 127.0.0.3");
    Peers::parse(&text).expect("peers")
}

fn options(node: u8, port: u16) -> Options {
    Options {
        cluster: "test".to_owned(),
        node: NodeId(node),
        peers: peers(port),
        settings: Settings {
            partitions: 8,
            node_bits: 3,
            lease_us: 1_000_000,
            margin_us: 100_000,
            // Snapshots and purges are made all the time.
            snapshot_every: 4,
            ..Settings::default()
        },
        equal: vec![("n3".to_owned(), "192.0.2.1".to_owned())],
        info: Arc::from([node]),
    }
}

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().expect("threads")
}

/// What a data path would know.
#[derive(Default)]
struct Seen {
    serving: BTreeMap<u32, SessionId>,
    is_live: bool,
    runs: u32,
    answers: BTreeMap<u64, Answer>,
    is_over: bool,
}

struct Notes(Instant, Arc<Mutex<Seen>>);

impl Host for Notes {
    fn now(&mut self) -> Micros {
        self.0.elapsed().as_micros() as Micros
    }

    fn change(&mut self, change: &Change) {
        let mut seen = self.1.lock().expect("whole");
        match change {
            Change::Install { slot, session, shown, .. } if shown.entry == Entry::Serving => {
                seen.serving.insert(*slot, *session);
            }
            Change::Free { slot } => drop(seen.serving.remove(slot)),
            _ => {}
        }
    }

    fn look(&mut self, node: &Node<Dense>) -> bool {
        self.1.lock().expect("whole").is_live = node.state() == Some(State::Live);
        false
    }

    fn settle(&mut self) {}

    fn counts(&mut self, _: SessionId) -> Counts {
        Counts::default()
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        self.1.lock().expect("whole").answers.insert(number, answer);
    }

    fn ended(&mut self) {
        let mut seen = self.1.lock().expect("whole");
        *seen = Seen { runs: seen.runs + 1, ..Seen::default() };
    }
}

struct Site {
    asking: Asking,
    seen: Arc<Mutex<Seen>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.see(|seen| seen.is_over) {
            self.asking.stop();
        }
        wait_for("the node has ended", || self.see(|seen| seen.is_over));
    }
}

impl Site {
    fn join(node: u8, port: u16) -> Site {
        let runtime = runtime();
        let joined = runtime.block_on(join(options(node, port))).expect("joined");
        let seen = Arc::<Mutex<Seen>>::default();
        let (driver, asking) = Driver::new(joined, runtime, Notes(Instant::now(), seen.clone()));
        let over = seen.clone();
        std::thread::spawn(move || {
            let ended = driver.run();
            over.lock().expect("whole").is_over = ended.is_ok();
        });
        Site { asking, seen }
    }

    fn see<T>(&self, of: impl FnOnce(&Seen) -> T) -> T {
        of(&self.seen.lock().expect("whole"))
    }

    /// Adds sessions.
    fn establish(&self, numbers: std::ops::Range<u64>) {
        let key = |nth: u64| Key { hash: mix(nth), full: nth.into() };
        let mut open: BTreeSet<u64> = numbers.collect();
        let end = Instant::now() + LONG;
        while !open.is_empty() {
            for &nth in &open {
                let keys: Arc<[Key]> = Arc::new([key(nth), key(nth | 1 << 40)]);
                let request = Request::Establish { keys, context: Arc::from([1, 2]), to: None };
                assert!(self.asking.request(nth, request));
            }
            wait_for("an answer to each", || {
                self.see(|seen| open.iter().all(|nth| seen.answers.contains_key(nth)))
            });
            // A partition may have no owner yet.
            let mut seen = self.seen.lock().expect("whole");
            open.retain(|nth| !matches!(seen.answers.remove(nth), Some(Ok(_))));
            assert!(Instant::now() < end, "{} sessions are refused", open.len());
        }
    }
}

/// How often sessions are served, by name.
fn served(sites: &[&Site]) -> (usize, usize) {
    let all: Vec<SessionId> = sites
        .iter()
        .flat_map(|site| site.see(|s| s.serving.values().copied().collect::<Vec<_>>()))
        .collect();
    (all.len(), all.iter().collect::<BTreeSet<_>>().len())
}

#[test]
fn nodes_share_sessions_and_outlive_any_but_the_first() {
    let port = port();
    // In any order.
    let second = std::thread::spawn(move || Site::join(1, port));
    let first = Site::join(0, port);
    let second = second.join().expect("joined");
    let third = Site::join(2, port);
    for site in [&first, &second, &third] {
        wait_for("a live node", || site.see(|seen| seen.is_live));
    }
    second.establish(0..200);
    wait_for("each is served once", || served(&[&first, &second, &third]) == (200, 200));
    assert!(third.see(|seen| !seen.serving.is_empty()));

    // One that dies is taken over.
    drop(third);
    wait_for("the sessions of the third", || served(&[&first, &second]) == (200, 200));

    // With the first one, all is gone; the second begins anew once it is back.
    drop(first);
    wait_for("the run of the second is over", || second.see(|seen| seen.runs > 0));
    assert!(second.see(|seen| seen.serving.is_empty()));
    let first = Site::join(0, port);
    for site in [&first, &second] {
        wait_for("a live node again", || site.see(|seen| seen.is_live));
    }
    first.establish(0..50);
    wait_for("each is served once", || served(&[&first, &second]) == (50, 50));
}

#[test]
fn others_are_refused_by_name() {
    let (port, server) = (port(), runtime());
    let _first = server.block_on(join(options(0, port))).expect("joined");
    let refused = |options: Options| {
        let runtime = runtime();
        let client = async {
            let (first, at) = options.peers.first();
            assert_eq!(first, NodeId(0));
            let mut equal = equal(&options.settings, &options.equal);
            equal.push(("peers".to_owned(), options.peers.to_string()));
            let from = [127, 0, 0, 1].into();
            let hello = ToFirst::Hello { cluster: options.cluster, node: options.node, equal };
            let client = Client { from, at, hello, partitions: 8, connected: None, _server: None };
            client.connect().await
        };
        let why = runtime.block_on(client).err().map(|error| error.to_string());
        why.unwrap_or_default()
            .trim_start_matches("the first of the peers refuses this node: ")
            .to_owned()
    };
    assert_eq!(refused(options(0, port)), "node 0 is connected already: does it run twice?");
    assert_eq!(
        refused(options(2, port)),
        "node 2 is at 127.0.0.3; the connection is from 127.0.0.1"
    );
    let mut other = options(1, port);
    other.settings.partitions *= 2;
    let differs = "partitions is 8 in the cluster and 16 here; all nodes need the same";
    assert_eq!(refused(other), differs);
    let other = Options { cluster: "east".to_owned(), ..options(1, port) };
    assert_eq!(refused(other), "the cluster is \"test\", not \"east\"");
    let text = format!("0 127.0.0.1:{port}\n1 127.0.0.1");
    let fewer = Options { peers: Peers::parse(&text).expect("peers"), ..options(1, port) };
    assert!(refused(fewer).starts_with("peers is 0 127.0.0.1:"));
    let text = format!("0 127.0.0.1:{port}\n9 127.0.0.1");
    let ninth = Options { peers: Peers::parse(&text).expect("peers"), ..options(9, port) };
    assert_eq!(refused(ninth), "node 9 is not one of the peers; the connection is from 127.0.0.1");
    assert_eq!(refused(options(1, port)), "");
}

/// No bytes and no stranger harm a first node.
#[test]
fn a_hostile_connection_ends_alone() {
    let (port, server) = (port(), runtime());
    let joined = server.block_on(join(options(0, port))).expect("joined");
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let hello = {
        let options = options(1, port);
        let mut equal = equal(&options.settings, &options.equal);
        equal.push(("peers".to_owned(), options.peers.to_string()));
        ToFirst::Hello { cluster: "test".to_owned(), node: NodeId(1), equal }
    };
    let frame = |value: &ToFirst| wire::frame(value).expect("short");
    let partition = Partition(u16::MAX);
    // From an unknown key on, what comes after it is not looked at.
    let harmless = [
        ToFirst::Append { partition, expected: 0, batch: Blob(vec![1]) },
        ToFirst::Append { partition: Partition(0), expected: u64::MAX, batch: Blob(vec![]) },
        ToFirst::Put { partition, sequence: u64::MAX, snapshot: Blob(vec![1]) },
        ToFirst::Put { partition: Partition(0), sequence: u64::MAX, snapshot: Blob(vec![1]) },
        ToFirst::Fetch { partition, from: 0 },
        ToFirst::Fetch { partition: Partition(0), from: u64::MAX },
        ToFirst::Get { partition },
        ToFirst::Send { to: Some(NodeId(200)), message: Blob(vec![1]) },
        ToFirst::Send { to: None, message: Blob(vec![0xff; 1000]) },
    ];
    let harmless: Vec<u8> = harmless.iter().flat_map(frame).collect();
    let info: Info = vec![0; SHORT_MAX].into();
    let lease = etcd::Lease { member: Member::default(), nth: 0 };
    let long = ToFirst::Etcd(etcd::Request::Txn {
        compare: Vec::new(),
        key: etcd::Key::Coordinator,
        value: etcd::Value::Alive(lease, info),
        lease: None,
    });
    let bad: [Vec<u8>; 8] = [
        vec![0; 100],
        vec![0xff; 100],
        frame(&ToFirst::Get { partition }),
        (SHORT_MAX as u32 + 1).to_be_bytes().to_vec(),
        [frame(&hello), vec![0xff; 8]].concat(),
        [frame(&hello), frame(&hello)].concat(),
        [frame(&hello), harmless.clone(), frame(&long)].concat(),
        [frame(&hello), harmless, vec![0, 0, 0, 1, 9]].concat(),
    ];
    for bytes in bad {
        let mut stream = connect();
        stream.set_read_timeout(Some(LONG)).expect("a time");
        // It may have ended before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    // More strangers than have room, all silent: they wait for nothing but their time.
    let strangers: Vec<_> = (0..100).map(|_| connect()).collect();
    drop(strangers);
    // Not an address of the peers: nothing is said to it.
    let stranger = TcpSocket::new_v4().expect("a socket");
    stranger.bind(([127, 0, 0, 9], 0).into()).expect("an address");
    let said = server.block_on(async {
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = stranger.connect(at).await.expect("connected");
        let _ = stream.write_all(&frame(&hello)).await;
        let said = wire::read::<ToNode>(&mut stream, SHORT_MAX);
        timeout(LONG, said).await.expect("in time")
    });
    assert!(said.is_err());
    // Nothing of it is in the way of a node.
    let (driver, first) = {
        let seen = Arc::<Mutex<Seen>>::default();
        let (driver, asking) = Driver::new(joined, server, Notes(Instant::now(), seen.clone()));
        (driver, Site { asking, seen })
    };
    let over = first.seen.clone();
    std::thread::spawn(move || over.lock().expect("whole").is_over = driver.run().is_ok());
    let second = Site::join(1, port);
    for site in [&first, &second] {
        wait_for("a live node", || site.see(|seen| seen.is_live));
    }
    first.establish(0..20);
}
