//! Stores beside a map: the same questions, the same answers. Redis and memcached are the programs
//! of Debian.

use super::*;
use overbank_netcache::agent::Value;
use overbank_testing::needs;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A program that holds values, ended with the test.
struct Program {
    command: Vec<String>,
    port: u16,
    child: Child,
}

fn free_port() -> u16 {
    let bound = TcpListener::bind("127.0.0.1:0").expect("a free port");
    bound.local_addr().expect("bound").port()
}

fn spawn(command: &[String], port: u16) -> Child {
    let child = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).spawn();
    let child = child.expect("it starts");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

impl Program {
    /// Returns the state of each of its threads.
    fn states(&self) -> Vec<char> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let of = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            stat.rsplit_once(')')?.1.trim_start().chars().next()
        };
        threads.into_iter().flatten().flatten().filter_map(of).collect()
    }

    fn start(command: &[&str], port: u16) -> Program {
        let command: Vec<String> = command.iter().map(ToString::to_string).collect();
        let child = spawn(&command, port);
        Program { command, port, child }
    }

    fn memcached() -> Option<Program> {
        let port = free_port();
        let text = port.to_string();
        let command = ["memcached", "-u", "daemon", "-l", "127.0.0.1", "-U", "0", "-p", &text];
        has("memcached").then(|| Program::start(&command, port))
    }

    /// kill -9.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    fn again(&mut self) {
        self.child = spawn(&self.command, self.port);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    needs(program, version.is_ok_and(|status| status.success()))
}

/// Waits for the answers to as many questions.
fn wait(store: &mut dyn Store, answers: &mut Answers, count: usize) {
    while answers.len() < count {
        store.answers(answers);
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn ask(store: &mut dyn Store, key: Key, ask: Ask) -> Answer {
    let mut answers = Answers::new();
    store.ask(1, key, ask, &mut answers);
    wait(store, &mut answers, 1);
    answers.pop().expect("one").1
}

/// Asks again until the store has done it.
fn at_last(store: &mut dyn Store, key: Key, what: &Ask) -> Answer {
    loop {
        match ask(store, key, what.clone()) {
            Answer::Failed => std::thread::sleep(Duration::from_millis(5)),
            answer => return answer,
        }
    }
}

/// Random questions, many in flight, and a map.
fn beside_a_map(store: &mut dyn Store) {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let keys: Vec<Key> =
        (0..40).map(|_| random.random::<Key>() << (8 * random.random_range(0..15))).collect();
    let mut map: HashMap<Key, Value> = HashMap::new();
    let (mut number, mut wanted) = (0, HashMap::new());
    let mut answers = Answers::new();
    assert_eq!(at_last(store, keys[0], &Ask::Write(None)), Answer::Written);
    for _ in 0..40 {
        let count = random.random_range(1..1200);
        for _ in 0..count {
            let key = keys[random.random_range(0..keys.len())];
            number += 1;
            let (what, answer) = match random.random_range(0..4) {
                0 => (Ask::Write(None), Answer::Written),
                1 => {
                    let value: Vec<u8> = match random.random_range(0..5) {
                        0 => vec![7; 1408],
                        1 => b"\r\nEND\r\n".to_vec(),
                        _ => (0..random.random_range(0..30)).map(|_| random.random()).collect(),
                    };
                    (Ask::Write(Some(value.into())), Answer::Written)
                }
                _ => (Ask::Read, Answer::Read(map.get(&key).cloned().flatten())),
            };
            if let Ask::Write(value) = &what {
                map.insert(key, value.clone());
            }
            wanted.insert(number, answer);
            store.ask(number, key, what, &mut answers);
        }
        wait(store, &mut answers, count);
        for (number, answer) in answers.drain(..) {
            assert_eq!(Some(answer), wanted.remove(&number), "question {number}");
        }
    }
    assert!(wanted.is_empty());
}

fn open(place: &Place, timeout: Duration) -> (Box<dyn Store>, UnixStream) {
    let (wake, woken) = UnixStream::pair().expect("a pair");
    wake.set_nonblocking(true).expect("a setting");
    (place.open("test", 1 << 20, timeout, wake).expect("right"), woken)
}

#[test]
fn memory_is_a_map_with_a_bound() {
    beside_a_map(&mut *open(&Place::Memory, TIMEOUT).0);
    let mut store = Memory::new(10_000);
    let value = |len: usize| Ask::Write(Some(vec![0; len].into()));
    let mut written = 0;
    while ask(&mut store, written, value(100)) == Answer::Written {
        written += 1;
    }
    assert_eq!((written, store.held()), (51, (51, 51 * 196)));
    assert_eq!(ask(&mut store, 0, value(400)), Answer::Failed, "the value before stays");
    assert_eq!(ask(&mut store, 0, Ask::Read), Answer::Read(Some(vec![0; 100].into())));
    assert_eq!(ask(&mut store, 0, value(10)), Answer::Written, "a shorter one has room");
    assert_eq!(ask(&mut store, 1, Ask::Write(None)), Answer::Written);
    assert_eq!(ask(&mut store, 99, value(100)), Answer::Written);
    (0..100).for_each(|key| _ = ask(&mut store, key, Ask::Write(None)));
    assert_eq!(store.held(), (0, 0));
}

#[test]
fn memcached_is_a_map_and_may_be_gone_for_a_while() {
    let Some(mut program) = Program::memcached() else { return };
    let place = Place::Memcached(format!("127.0.0.1:{}", program.port));
    let (mut store, _woken) = open(&place, TIMEOUT);
    beside_a_map(&mut *store);
    program.kill();
    assert_eq!(ask(&mut *store, 7, Ask::Read), Answer::Failed);
    program.again();
    assert_eq!(at_last(&mut *store, 7, &Ask::Read), Answer::Read(None));
    // Stopped: an answer comes in time all the same.
    let (mut store, _woken) = open(&place, Duration::from_millis(50));
    assert_eq!(at_last(&mut *store, 7, &Ask::Write(None)), Answer::Written);
    signal(&program, "STOP");
    let stopped = || program.states().iter().all(|state| *state == 'T');
    while !stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(&mut *store, 7, Ask::Read), Answer::Failed);
    signal(&program, "CONT");
    assert_eq!(at_last(&mut *store, 7, &Ask::Read), Answer::Read(None));
}

fn signal(program: &Program, name: &str) {
    let pid = program.child.id().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

#[test]
fn a_program_that_is_not_there_fails_each_question() {
    let (mut store, _woken) =
        open(&Place::Memcached(format!("127.0.0.1:{}", free_port())), TIMEOUT);
    for _ in 0..3 {
        assert_eq!(ask(&mut *store, 7, Ask::Read), Answer::Failed);
    }
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use ::redis::{Client, cmd};
    use std::io::Read;
    use std::net::Shutdown;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Redis {
        program: Program,
        _folder: tempfile::TempDir,
    }

    impl Redis {
        /// With a file of what was written, flushed before each answer.
        fn start() -> Option<Redis> {
            let folder = tempfile::tempdir().expect("a folder");
            let (port, dir) = (free_port(), folder.path().display().to_string());
            let command = [
                "redis-server",
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--dir",
                &dir,
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ];
            has("redis-server")
                .then(|| Redis { program: Program::start(&command, port), _folder: folder })
        }

        fn url(&self, db: u8) -> String {
            format!("redis://127.0.0.1:{}/{db}", self.program.port)
        }
    }

    #[test]
    fn redis_is_a_map_whose_keys_have_their_names() {
        let Some(mut redis) = Redis::start() else { return };
        let (mut store, _woken) = open(&Place::Redis(redis.url(3)), TIMEOUT);
        beside_a_map(&mut *store);
        let key = u128::from_be_bytes(*b"some key\0\0\0\0\0\0\0\0");
        let value = Ask::Write(Some((*b"a value").into()));
        assert_eq!(ask(&mut *store, key, value), Answer::Written);
        let mut other =
            Client::open(redis.url(3)).and_then(|c| c.get_connection()).expect("it runs");
        let read: String = cmd("GET").arg("some key").query(&mut other).expect("its name");
        assert_eq!(read, "a value");
        // What other programs have written.
        let _: () =
            cmd("SET").arg("some key").arg("x".repeat(1409)).query(&mut other).expect("set");
        assert_eq!(ask(&mut *store, key, Ask::Read), Answer::Failed, "too long for a message");
        let _: u64 = cmd("DEL").arg("some key").query(&mut other).expect("removed");
        let _: u64 = cmd("LPUSH").arg("some key").arg(1).query(&mut other).expect("a list");
        assert_eq!(ask(&mut *store, key, Ask::Read), Answer::Failed, "of another type");
        assert_eq!(ask(&mut *store, 5, Ask::Read), Answer::Read(None), "others are served");
        assert_eq!(ask(&mut *store, key, Ask::Write(None)), Answer::Written);

        // kill -9: what was acknowledged is there afterwards.
        let value = Ask::Write(Some((*b"kept").into()));
        assert_eq!(ask(&mut *store, key, value), Answer::Written);
        redis.program.kill();
        assert_eq!(ask(&mut *store, key, Ask::Read), Answer::Failed);
        redis.program.again();
        assert_eq!(at_last(&mut *store, key, &Ask::Read), Answer::Read(Some((*b"kept").into())));
    }

    /// A way to Redis on which the bytes of the first connection are held while `hold` is set. What
    /// is held comes when it is free again, also if the connection has been closed meanwhile, as
    /// from a kernel that repeats lost segments. The end of the first connection is sent.
    fn way(redis: u16, hold: Arc<AtomicBool>) -> (u16, Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (ended, end) = channel();
        std::thread::spawn(move || {
            for (nth, client) in listener.incoming().enumerate() {
                let mut client = client.expect("a connection");
                let mut server = TcpStream::connect(("127.0.0.1", redis)).expect("it runs");
                let (mut answers, mut back) =
                    (server.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
                let reader = std::thread::spawn(move || {
                    let mut room = [0; 4096];
                    while let Ok(len @ 1..) = answers.read(&mut room) {
                        // The client may have gone.
                        let _ = back.write_all(&room[..len]);
                    }
                });
                let (hold, ended) = (hold.clone(), ended.clone());
                std::thread::spawn(move || {
                    let mut room = [0; 4096];
                    while let Ok(len @ 1..) = client.read(&mut room) {
                        while nth == 0 && hold.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        // Redis may have ended the connection.
                        let _ = server.write_all(&room[..len]);
                    }
                    let _ = server.shutdown(Shutdown::Write);
                    reader.join().expect("no panic");
                    // The test may be over.
                    let _ = ended.send(());
                });
            }
        });
        (port, end)
    }

    #[test]
    fn a_write_of_unknown_outcome_never_comes_late() {
        let Some(redis) = Redis::start() else { return };
        let hold = Arc::new(AtomicBool::new(false));
        let (port, end) = way(redis.program.port, hold.clone());
        let place = Place::Redis(format!("redis://127.0.0.1:{port}/0"));
        let (mut store, _woken) = open(&place, Duration::from_millis(200));
        let write = |text: &str| Ask::Write(Some(text.as_bytes().into()));
        let early = Answer::Read(Some((*b"early").into()));
        assert_eq!(ask(&mut *store, 7, write("early")), Answer::Written);
        hold.store(true, Ordering::Relaxed);
        assert_eq!(ask(&mut *store, 7, write("late")), Answer::Failed);
        assert_eq!(at_last(&mut *store, 7, &Ask::Read), early);
        hold.store(false, Ordering::Relaxed);
        end.recv().expect("Redis has read what was held, or has ended the connection");
        assert_eq!(ask(&mut *store, 7, Ask::Read), early);
    }
}
