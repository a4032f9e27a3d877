//! `overbank kv advise` before the output of a real `redis-cli MONITOR`, and on bad input.
#![cfg(feature = "kv-proxy")]

use overbank_testing::needs;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time that anything may take.
const LONG: Duration = Duration::from_secs(20);

fn advise(arguments: &[&str], input: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.args(["kv", "advise"]).args(arguments).stdin(input);
    command.output().expect("it starts")
}

fn printed(arguments: &[&str], input: Stdio) -> String {
    let output = advise(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(file: &str, more: &[&str]) -> Value {
    let text = printed(&[&[file, "--format", "json"], more].concat(), Stdio::null());
    serde_json::from_str(&text).expect("one JSON document")
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis, and its MONITOR written to a file.
struct Scene {
    port: u16,
    directory: TempDir,
    _monitor: Running,
    _redis: Running,
}

impl Scene {
    fn start() -> Option<Scene> {
        let there = ["redis-server", "redis-cli", "redis-benchmark"].into_iter().all(has);
        if !needs("redis-server, redis-cli and redis-benchmark", there) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.expect("a port").port();
        let redis = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let redis = Running(redis.expect("it starts"));
        until("Redis answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let file = File::create(directory.path().join("monitor.log")).expect("a file");
        let monitor = Command::new("redis-cli")
            .args(["-p", &port.to_string(), "MONITOR"])
            .stdin(Stdio::null())
            .stdout(file)
            .spawn();
        let monitor = Running(monitor.expect("it starts"));
        let scene = Scene { port, directory, _monitor: monitor, _redis: redis };
        until("it monitors", || scene.text().starts_with(b"OK"));
        Some(scene)
    }

    fn log(&self) -> String {
        self.directory.path().join("monitor.log").display().to_string()
    }

    fn text(&self) -> Vec<u8> {
        fs::read(self.log()).expect("the file of MONITOR")
    }

    fn benchmark(&self, arguments: &[&str]) {
        let done = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-q"])
            .args(arguments)
            .stdout(Stdio::null())
            .status();
        assert!(done.expect("it starts").success());
    }

    /// Sends inline commands on one connection, and reads a line for each.
    fn ask(&self, lines: &[&str]) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("an option");
        let mut reader = BufReader::new(stream);
        for line in lines {
            reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it is read");
            let mut reply = String::new();
            reader.read_line(&mut reply).expect("a reply in time");
            assert!(!reply.starts_with("-ERR unknown"), "{line}: {reply}");
        }
    }
}

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn monitor_of_a_real_redis_is_advised_on() {
    let Some(scene) = Scene::start() else { return };
    scene.benchmark(&["-n", "20000", "-r", "1000", "-c", "8", "GET", "key:__rand_int__"]);
    scene.benchmark(&["-n", "2000", "-c", "4", "SET", "hot", "value"]);
    // redis-cli prints what printf would: quotes, a backslash, and bytes.
    scene.ask(&[
        r#"SET "odd \"key\"\\\x00\xff" "v\r\n""#,
        "MULTI",
        "STRLEN hot",
        "EXEC",
        "EVAL \"return redis.call('set', KEYS[1], 'v')\" 1 hot",
        "SELECT 1",
        "STRLEN hot",
        "INCR last",
    ]);
    let is_whole = || scene.text().windows(6).any(|window| window == b"\"last\"");
    until("MONITOR prints the last command", is_whole);
    let advice = json(&scene.log(), &["--top", "2000"]);
    assert_eq!(advice["schema"], "overbank-kv-advise/1");
    let input = &advice["inputs"][0];
    assert_eq!((&input["kind"], &input["bad_lines"]), (&"monitor".into(), &0.into()), "{input}");
    let class = |nth: usize| advice["classes"][nth]["commands"].as_u64().expect("a number");
    // The last STRLEN is plain, that within MULTI is not.
    assert_eq!((class(0), class(1)), (20_001, 1));
    // SET of the benchmark, of the odd key, EVAL and INCR.
    assert_eq!(class(2), 2003);
    assert_eq!(advice["script_calls"], 1);
    let keys = advice["hot"].as_array().expect("a list");
    let find = |name: &str| keys.iter().find(|key| key["key"] == name);
    assert_eq!(find("hot").expect("it is listed")["writes"], 2001);
    assert!(find(r#"odd \"key\"\\\x00\xff"#).is_some());
    let cold = keys.iter().filter(|key| key["key"].as_str().is_some_and(|k| k.starts_with("key:")));
    assert_eq!(cold.map(|key| key["reads"].as_u64().expect("a number")).sum::<u64>(), 20_000);
    assert!(advice["skew"]["theta"].as_f64().expect("a number") < 0.2, "{}", advice["skew"]);
    // A thousand keys, each read several times in a second.
    let hits = |nth: usize| advice["sizes"][nth]["hits"].as_u64().expect("a number");
    assert!((0..4).all(|nth| hits(nth) <= hits(nth + 1)) && hits(2) > 10_000, "{}", hits(2));

    let text = printed(&["-"], File::open(scene.log()).expect("the file").into());
    for part in ["reads that a cache could answer", "Hot keys of 1", "entries", "θ = "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    let hashed = json(&scene.log(), &["--hash-names"]);
    assert!(!hashed.to_string().contains("key:0") && hashed["keys"]["names_hashed"] == true);
}

#[test]
fn bad_input_is_an_error_of_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("text"), "OK\nhello\n").expect("it is written");
    fs::write(path("empty"), "").expect("it is written");
    let missing = path("missing");
    for (arguments, what) in [
        (&[path("text").as_str()][..], "line 2: hello"),
        (&[path("empty").as_str()], "no command in 0 lines"),
        (&[missing.as_str()], "cannot open it"),
        (&["-", "-"], "standard input can be read once"),
    ] {
        let output = advise(arguments, Stdio::null());
        let errors = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{errors}");
        assert!(errors.lines().count() == 1 && errors.contains(what), "{errors}");
        assert!(!Path::new(&missing).exists());
    }
}
