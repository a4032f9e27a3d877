//! `overbank kv proxy` as an operator sees it: its configuration, what it shows, its end. Redis and
//! redis-cli are the programs of Debian; no privileges.
#![cfg(feature = "kv-proxy")]

use overbank_testing::needs;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for what happens within a second.
const SOON: Duration = Duration::from_secs(20);
/// A name that must not show where keys have no business.
const KEY: &str = "secret:4711";

fn overbank(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.env_remove("NOTIFY_SOCKET").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str]) -> Output {
    overbank(arguments).output().expect("it starts")
}

/// What a command prints that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = output(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The status and the errors of a command that fails.
fn failed(arguments: &[&str]) -> (Option<i32>, String) {
    let output = output(arguments);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (output.status.code(), errors)
}

fn free_port() -> u16 {
    let bound = TcpListener::bind("127.0.0.1:0").expect("a free port");
    bound.local_addr().expect("bound").port()
}

/// Waits until something holds.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "not soon: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A clock of the day that steps, for programs that are started under it; their other clocks go on
/// evenly.
struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    /// `None`, listed as skipped: the machine has no compiler of C.
    fn new() -> Option<Clock> {
        let version = Command::new("gcc").arg("--version").output();
        if !needs("gcc", version.is_ok_and(|output| output.status.success())) {
            return None;
        }
        let clock = Clock { folder: tempfile::tempdir().expect("a folder") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kv_proxy_clock.c");
        let flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"];
        let mut compiler = Command::new("gcc");
        let built = compiler.args(flags).arg(clock.at("clock.so")).arg(source).status();
        assert!(built.expect("it starts").success());
        std::fs::write(clock.at("step"), 0i64.to_ne_bytes()).expect("written");
        Some(clock)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Steps to this many seconds beside the right time.
    fn step(&self, seconds: i64) {
        // In place: programs have mapped it.
        let mut file = std::fs::OpenOptions::new().write(true).open(self.at("step"));
        let file = file.as_mut().expect("it is there");
        file.write_all(&seconds.to_ne_bytes()).expect("written");
    }

    fn rule(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.at("clock.so")).env("CLOCK_STEP", self.at("step"));
    }
}

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// `None`, listed as skipped: the machine has none.
    fn start() -> Option<Redis> {
        Redis::start_by(|_| ())
    }

    fn start_by(change: impl FnOnce(&mut Command)) -> Option<Redis> {
        for program in ["redis-server", "redis-cli"] {
            let version = Command::new(program).arg("--version").output();
            if !needs(program, version.is_ok_and(|output| output.status.success())) {
                return None;
            }
        }
        let port = free_port();
        let at = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
        let mut command = Command::new("redis-server");
        change(&mut command);
        let child = command.args(at).stdout(Stdio::null()).spawn().expect("it starts");
        soon("redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Redis { child, port })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What redis-cli prints.
fn redis_cli(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let output = command.args(["-p", &port.to_string()]).args(arguments).output();
    String::from_utf8(output.expect("it starts").stdout).expect("text").trim_end().to_owned()
}

/// A running proxy, killed with the test.
struct Proxy {
    child: Child,
    log: Arc<Mutex<String>>,
    port: u16,
    metrics: u16,
    folder: tempfile::TempDir,
    client: BufReader<TcpStream>,
}

impl Proxy {
    /// Starts one by a file of these lines.
    fn start(lines: &str) -> Proxy {
        Proxy::start_by(lines, |_| ())
    }

    fn start_by(lines: &str, change: impl FnOnce(&mut Command)) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = free_port();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("proxy.toml"), lines).expect("written");
        let mut command = overbank(&[
            "kv",
            "proxy",
            "--config",
            &at("proxy.toml"),
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            &format!("127.0.0.1:{metrics}"),
            "--status-socket",
            &at("status"),
            "--log-format",
            "json",
            "--format",
            "json",
        ]);
        change(&mut command);
        let mut child = command.spawn().expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().expect("piped")), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut log = kept.lock().expect("no panic");
                *log = format!("{log}{line}\n");
            }
        });
        let address = || -> Option<String> {
            let log = log.lock().expect("no panic");
            let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let fields = lines.map(|line| line["fields"].clone());
            let listening = fields.into_iter().find(|of| of["message"] == "listening")?;
            Some(listening["address"].as_str()?.to_owned())
        };
        soon("it listens", || address().is_some());
        let address = address().expect("it listens");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let client = BufReader::new(TcpStream::connect(address).expect("it listens"));
        Proxy { child, log, port, metrics, folder, client }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn logged(&self, text: &str) -> bool {
        self.log.lock().expect("no panic").contains(text)
    }

    /// Reads a key on the one connection of this client.
    fn get(&mut self, key: &str) -> String {
        self.client.get_mut().write_all(format!("GET {key}\r\n").as_bytes()).expect("it reads");
        let (mut head, mut value) = (String::new(), String::new());
        self.client.read_line(&mut head).expect("a reply");
        if head != "$-1\r\n" {
            assert!(head.starts_with('$'), "{head}");
            self.client.read_line(&mut value).expect("a reply");
        }
        value.trim_end().to_owned()
    }

    fn status(&self) -> Value {
        let mut stream = UnixStream::connect(self.at("status")).expect("it listens");
        stream.write_all(b"status\n").expect("read");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("a document")
    }

    fn http(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).expect("it listens");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}");
        answer
    }

    /// Reads a key until it is answered from the cache.
    fn heat(&mut self, key: &str) {
        let before = self.status()["hits"].as_u64();
        soon("a hit", || {
            self.get(key);
            self.status()["hits"].as_u64() > before
        });
    }

    fn hot(&self, more: &[&str]) -> String {
        printed(&[&["kv", "hot", "--socket", &self.at("status")], more].concat())
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Ends it as a service manager does; returns its totals, whose accounts close.
    fn end(mut self) -> Value {
        self.signal("TERM");
        let mut text = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("it ran").success());
        let totals: Value = serde_json::from_str(&text).expect("a document");
        let of = |name: &str| totals[name].as_u64().expect("a count");
        let missed = totals["missed"].as_object().expect("by reason").values();
        let missed: u64 = missed.map(|count| count.as_u64().expect("a count")).sum();
        let commands = of("hits") + of("answered") + of("forwarded") + of("refused");
        assert_eq!((of("commands"), of("reads")), (commands, of("hits") + missed), "{totals}");
        assert!(!PathBuf::from(self.at("status")).exists());
        assert!(!text.contains(KEY) && !self.logged(KEY), "a key in the log or the totals");
        totals
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn settings_are_checked_and_problems_are_named() {
    let check = |more: &[&str]| printed(&[&["kv", "proxy", "--check"], more].concat());
    assert_eq!(check(&[]), "configuration is valid: 127.0.0.1:6380, redis://127.0.0.1:6379\n");
    let with_password = check(&["--upstream", "redis://me:secret@cache.example:7000"]);
    assert_eq!(
        with_password,
        "configuration is valid: 127.0.0.1:6380, redis://cache.example:7000\n"
    );
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/proxy.toml");
    assert!(check(&["--config", packaged]).starts_with("configuration is valid: 127.0.0.1:6380"));
    for (arguments, status, what) in [
        (&["--upstream", "http://host"][..], 1, "--upstream: must be redis://"),
        (&["--staleness-max", "0.1"], 1, "--staleness-max: 100ms: must be at least 0.3 seconds"),
        (&["--entries", "0"], 1, "--entries: \"0\": must be a number from 1 to 1000000"),
        (&["--mode", "fast"], 1, "--mode: \"fast\": must be "),
        (&["--prefix", "a,,b"], 1, "--prefix: \"a,,b\": must be beginnings of keys"),
        (&["--config", "/nonexistent"], 1, "/nonexistent: "),
        (&["--no-such-flag"], 2, "unexpected argument '--no-such-flag'"),
        (&["--listen", "192.0.2.1:1", "--metrics", "off"], 1, "listen 192.0.2.1:1: "),
        (
            &["--listen", "127.0.0.1:0", "--upstream", "redis://no.such.host.invalid"],
            1,
            "upstream redis://no.such.host.invalid:6379: ",
        ),
    ] {
        let (code, errors) = failed(&[&["kv", "proxy"][..], arguments].concat());
        assert!(code == Some(status) && errors.contains(what), "{arguments:?}: {code:?}: {errors}");
    }
    assert_eq!(failed(&["kv", "hot"]).0, Some(2));
    assert_eq!(failed(&["kv", "hot", "--socket", "/nonexistent", "--hash-names"]).0, Some(1));
}

#[test]
fn without_a_server_clients_are_closed_and_it_ends_in_order() {
    let mut proxy = Proxy::start(&format!("upstream = \"redis://127.0.0.1:{}\"", free_port()));
    // The command has no answer, and the connection ends.
    proxy.client.get_mut().write_all(b"GET key\r\n").expect("it reads");
    let mut answer = String::new();
    let read = proxy.client.read_line(&mut answer);
    assert!(matches!(read, Ok(0) | Err(_)), "{answer}");
    soon("it is counted", || proxy.status()["closed"]["by_server"] == 1);
    assert_eq!(proxy.status()["open"], 0);
    soon("it is logged", || proxy.logged("the server is not followed"));
    proxy.end();
}

#[test]
fn hot_keys_are_answered_and_shown_and_no_key_leaves_by_metrics_or_log() {
    let Some(redis) = Redis::start() else { return };
    let lines = |more: &str| format!("upstream = {:?}\n{more}", redis.url());
    let mut proxy = Proxy::start(&lines(""));
    assert_eq!(redis_cli(proxy.port, &["SET", KEY, "1"]), "OK");
    proxy.heat(KEY);
    // A write that passes is seen at once, another one soon.
    assert_eq!(redis_cli(proxy.port, &["SET", KEY, "2"]), "OK");
    assert_eq!(proxy.get(KEY), "2");
    proxy.heat(KEY);
    redis_cli(redis.port, &["SET", KEY, "3"]);
    soon("a write past the proxy", || proxy.get(KEY) == "3");

    soon("it is listed", || {
        (0..50).for_each(|_| drop(proxy.get(KEY)));
        proxy.hot(&[]).lines().any(|line| line.contains(KEY) && line.contains(" yes "))
    });
    let text = proxy.hot(&[]);
    assert!(
        text.contains(" keys are cached; ") && text.contains("since\nthe start answered here"),
        "{text}"
    );
    let hot: Value = serde_json::from_str(&proxy.hot(&["--format", "json"])).expect("a document");
    assert_eq!(
        (&hot["schema"], &hot["mode"]),
        (&"overbank.kv-proxy-hot.v1".into(), &"cache".into())
    );
    let hashed = proxy.hot(&["--hash-names", "--format", "json"]);
    assert!(!hashed.contains(KEY) && hashed.contains("\"hashed\":true"), "{hashed}");
    let hashed: Value = serde_json::from_str(&hashed).expect("a document");
    assert_eq!(hashed["keys"][0]["key"].as_str().map(str::len), Some(32));

    let (metrics, status) = (proxy.http("/metrics"), proxy.http("/status"));
    assert!(metrics.contains("overbank_kv_proxy_hits_total") && metrics.contains("_open 1"));
    assert!(status.contains("\"schema\":\"overbank.kv-proxy.v1\""), "{status}");
    assert!(!metrics.contains(KEY) && !status.contains(KEY), "a key in the documents");

    let once = ["top", "--once", "--interval", "0.2", "--socket", &proxy.at("status")];
    let top = printed(&once);
    assert!(top.contains("mode cache") && top.contains("hits are served, lease "), "{top}");
    let rates = printed(&[&once[..], &["--format", "json"]].concat());
    let rates: Value = serde_json::from_str(&rates).expect("a document");
    assert_eq!(rates["schema"], "overbank.kv-proxy-rates.v1");
    assert_eq!((&rates["closes"], &rates["open"]), (&true.into(), &1.into()));
    assert!(!top.contains(KEY));

    let totals = proxy.end();
    assert!(totals["hits"].as_u64() > Some(1) && totals["pushes"].as_u64() > Some(0), "{totals}");
}

#[test]
fn clocks_that_step_change_nothing() {
    let Some(clock) = Clock::new() else { return };
    let Some(redis) = Redis::start_by(|command| clock.rule(command)) else { return };
    let lines = format!("upstream = \"{}\"\n", redis.url());
    let mut proxy = Proxy::start_by(&lines, |command| clock.rule(command));
    let time = |redis: &Redis| -> i64 {
        let time = redis_cli(redis.port, &["TIME"]);
        time.lines().next().expect("seconds").parse().expect("a number")
    };
    let mut before = time(&redis);
    for (round, seconds) in [7200, -7200, 0, 4_000_000, 0].into_iter().enumerate() {
        redis_cli(redis.port, &["SET", "k", "old"]);
        redis_cli(redis.port, &["SET", "short", "one", "PX", "600000"]);
        for key in ["k", "short"] {
            proxy.heat(key);
        }
        clock.step(seconds);
        let now = time(&redis);
        assert!((now - before).abs() > 3000, "round {round}: it did not step: {before}, {now}");
        before = now;
        // Hits go on, and a write past the proxy is seen in time.
        proxy.heat("k");
        redis_cli(redis.port, &["SET", "k", &round.to_string()]);
        let written = Instant::now();
        loop {
            let asked = written.elapsed();
            if proxy.get("k") == round.to_string() {
                break;
            }
            assert!(asked <= Duration::from_secs(1), "round {round}: old after {asked:?}");
        }
        // What Redis has expired by its clock is gone here.
        if redis_cli(redis.port, &["EXISTS", "short"]) == "0" {
            let gone = Instant::now();
            loop {
                let asked = gone.elapsed();
                if proxy.get("short").is_empty() {
                    break;
                }
                assert!(asked <= Duration::from_secs(1), "round {round}: it stays {asked:?}");
            }
        } else {
            assert_eq!(proxy.get("short"), "one");
        }
    }
    let (hits, status) = (proxy.status()["hits"].as_u64(), proxy.status());
    assert!(hits > Some(20), "{status}");
}

#[test]
fn sighup_reads_the_rules_again_and_no_other_setting() {
    let Some(redis) = Redis::start() else { return };
    let lines = |more: &str| format!("upstream = {:?}\n{more}\n", redis.url());
    let mut proxy = Proxy::start(&lines(""));
    redis_cli(redis.port, &["SET", KEY, "1"]);
    proxy.heat(KEY);
    // The core's numbers are published ten times a second.
    soon("it is shown", || proxy.status()["cached"] == 1);
    let file = proxy.at("proxy.toml");
    let write = |more: &str| {
        std::fs::write(&file, lines(more)).expect("written");
    };
    write("deny = \"secret:\"");
    proxy.signal("HUP");
    soon("it is read", || proxy.logged("scripts and files of TLS read again"));
    soon("the key is dropped", || proxy.status()["cached"] == 0);
    write("deny = \"secret:\"\nentries = 7");
    proxy.signal("HUP");
    soon("it is refused", || {
        proxy.logged(
            "settings unchanged: only prefix, deny, cacheable, order, scripts and files of TLS",
        )
    });
    write("deny = 7.5.1");
    proxy.signal("HUP");
    soon("it is named", || proxy.logged("proxy.toml"));
    let hits = proxy.status()["hits"].as_u64();
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        assert_eq!(proxy.get(KEY), "1");
    }
    assert_eq!(proxy.status()["hits"].as_u64(), hits, "a denied key is not cached");
    write("");
    proxy.signal("HUP");
    proxy.heat(KEY);
    proxy.end();
}

/// Makes an authority and a certificate of it for this machine, in files of PEM.
fn certificates(at: &dyn Fn(&str) -> String) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    std::fs::write(at("ca.crt"), params.self_signed(&key).expect("signed").pem()).expect("a file");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    // Another name than its authority's: else it would be taken for that.
    params.distinguished_name.push(rcgen::DnType::CommonName, "proxy");
    let signed = params.signed_by(&key, &issuer).expect("signed");
    std::fs::write(at("own.crt"), signed.pem()).expect("a file");
    std::fs::write(at("own.key"), key.serialize_pem()).expect("a file");
}

#[test]
fn tls_is_checked_spoken_and_its_files_are_read_again() {
    let Some(redis) = Redis::start() else { return };
    let (one, two) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let of_one = |name: &str| one.path().join(name).display().to_string();
    let of_two = |name: &str| two.path().join(name).display().to_string();
    certificates(&of_one);
    certificates(&of_two);
    let secure = free_port();
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {} tls-auth-clients no \
         tls-port {secure}",
        of_one("own.crt"),
        of_one("own.key"),
        of_one("ca.crt")
    );
    assert_eq!(redis_cli(redis.port, &set.split(' ').collect::<Vec<_>>()), "OK");
    // What is wrong is named before the start.
    let url = format!("rediss://127.0.0.1:{secure}");
    let (none, key) = (of_one("none.crt"), of_two("own.key"));
    for (arguments, what) in [
        (&["--upstream", &url, "--upstream-ca", &none][..], "--upstream-ca: "),
        (&["--upstream-ca", &none], "--upstream-ca: is for TLS: upstream must be rediss://"),
        (&["--tls-cert", &of_one("own.crt")], "--tls-cert: must come with tls-key"),
        (
            &["--tls-cert", &of_one("own.crt"), "--tls-key", &key],
            "own.key: must be the key of the first certificate",
        ),
    ] {
        let (code, errors) = failed(&[&["kv", "proxy", "--check"][..], arguments].concat());
        assert!(code == Some(1) && errors.contains(what), "{arguments:?}: {code:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    let has_none = overbank(&["kv", "proxy", "--check", "--upstream", &url])
        .env("SSL_CERT_FILE", &none)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&has_none.stderr).into_owned();
    assert!(errors.contains("--upstream: rediss:// needs authorities"), "{errors}");
    // Another authority than the server's: nothing is cached, and the log says what helps.
    let (ca, cert, key) = (of_two("trusted.crt"), of_two("own.crt"), of_two("own.key"));
    std::fs::copy(of_two("ca.crt"), &ca).expect("a file");
    let proxy = Proxy::start(&format!(
        "upstream = {url:?}\nupstream-ca = {ca:?}\ntls-cert = {cert:?}\ntls-key = {key:?}\n"
    ));
    soon("it is logged", || proxy.logged("upstream-ca must have the authority of its certificate"));
    let asked = |folder: &dyn Fn(&str) -> String, words: &[&str]| {
        let ca = folder("ca.crt");
        redis_cli(proxy.port, &[&["--tls", "--cacert", &ca][..], words].concat())
    };
    assert!(!asked(&of_two, &["PING"]).contains("PONG"));
    assert_eq!(proxy.status()["open"], 0);
    assert_eq!(proxy.log.lock().expect("no panic").matches("is not followed").count(), 1);
    std::fs::copy(of_one("ca.crt"), &ca).expect("a file");
    proxy.signal("HUP");
    soon("it is followed", || proxy.status()["open"] == 1);
    assert_eq!(asked(&of_two, &["SET", KEY, "1"]), "OK");
    soon("a hit", || {
        assert_eq!(asked(&of_two, &["-r", "100", "GET", KEY]).lines().next(), Some("1"));
        proxy.status()["hits"].as_u64() > Some(0)
    });
    // A new certificate for clients; a file that is wrong changes nothing.
    std::fs::write(&cert, "nothing").expect("a file");
    proxy.signal("HUP");
    soon("it is named", || proxy.logged("must be a PEM file of certificates"));
    assert_eq!(asked(&of_two, &["PING"]), "PONG");
    for (from, to) in [(of_one("own.crt"), &cert), (of_one("own.key"), &key)] {
        std::fs::copy(from, to).expect("a file");
    }
    proxy.signal("HUP");
    soon("it is shown", || asked(&of_one, &["PING"]) == "PONG");
    assert!(!asked(&of_two, &["PING"]).contains("PONG"));
    proxy.end();
}

#[test]
fn observing_caches_nothing_and_says_what_a_cache_would_save() {
    let Some(redis) = Redis::start() else { return };
    let mut proxy = Proxy::start(&format!("upstream = {:?}\nmode = \"observe\"\n", redis.url()));
    redis_cli(redis.port, &["SET", KEY, "1"]);
    soon("it is listed", || {
        (0..50).for_each(|_| assert_eq!(proxy.get(KEY), "1"));
        let text = proxy.hot(&[]);
        text.contains(KEY) && text.contains("a cache of these would answer up to")
    });
    let totals = proxy.end();
    assert_eq!((&totals["hits"], &totals["cached"]), (&0.into(), &0.into()));
    assert_eq!(totals["mode"], "observe");
}
