//! `overbank kv` as a person or a script sees it. No privileges; Redis is the program of Debian.

use overbank_kv::client::Client;
use overbank_testing::needs;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn overbank(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.env_remove("NOTIFY_SOCKET").arg("kv").args(arguments);
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

/// The status and the one line of a command that fails.
fn failed(arguments: &[&str]) -> (i32, String) {
    let output = output(arguments);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.stdout.is_empty() && errors.lines().count() == 1, "{arguments:?}: {errors}");
    let line = errors.trim_end().trim_start_matches("overbank: ").to_owned();
    (output.status.code().expect("it ended"), line)
}

/// A running agent, killed with the test.
struct Agent {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Agent {
    fn start(arguments: &[&str]) -> Agent {
        let always = ["agent", "--metrics", "off", "--log-format", "json", "--format", "json"];
        let mut child = overbank(&[&always[..], arguments].concat()).spawn().expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let mut agent = Agent { child, log, address: String::new() };
        agent.address = agent.logged("listening")["address"].as_str().expect("one").to_owned();
        agent
    }

    /// Waits for a line of the log and returns its fields.
    fn logged(&mut self, message: &str) -> Value {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).expect("text");
            assert!(read > 0, "it has ended without {message:?}: {all}");
            all.push_str(&line);
            let line: Value = serde_json::from_str(&line).expect("JSON");
            if line["fields"]["message"] == message {
                return line["fields"].clone();
            }
        }
    }

    fn client(&self) -> Client {
        let server: SocketAddr = self.address.parse().expect("an address");
        Client::new(&[server]).expect("a socket")
    }

    /// Ends it as a service manager does; returns its totals.
    fn end(mut self) -> Value {
        signal(&self.child, "TERM");
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("it ran").success());
        let totals: Value = serde_json::from_str(&text).expect("a document");
        let sum = |name: &str| -> u64 {
            let reasons = totals[name].as_object().expect("by reason").values();
            reasons.map(|count| count.as_u64().expect("a count")).sum()
        };
        let of = |name: &str| totals[name].as_u64().expect("a count");
        assert_eq!(of("received"), of("handled") + sum("malformed") + sum("dropped"));
        totals
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

#[test]
fn values_are_set_read_and_removed() {
    let agent = Agent::start(&["--listen", "127.0.0.1:0"]);
    let at = ["--server", &agent.address];
    let ask = |arguments: &[&str]| printed(&[arguments, &at].concat());
    assert_eq!(ask(&["put", "visits", "42"]), "");
    assert_eq!(ask(&["get", "visits"]), "42\n");
    assert_eq!(ask(&["get", "visits", "--raw"]), "42");
    assert_eq!(ask(&["put", "visits", "-1"]), "", "a value and no option");
    assert_eq!(ask(&["get", "visits"]), "-1\n");
    assert_eq!(ask(&["del", "visits"]), "");
    assert_eq!(ask(&["del", "visits"]), "", "it had none");
    let (status, line) = failed(&[&["get", "visits"][..], &at].concat());
    assert_eq!((status, &*line), (1, "visits: no such key"));

    // A value from standard input, under a key that is hashed.
    let long = "a key of more than 16 bytes";
    let mut put = overbank(&[&["put", long, "-"][..], &at].concat());
    let mut put = put.stdin(Stdio::piped()).spawn().expect("it starts");
    let bytes: Vec<u8> = (0..=255).collect();
    put.stdin.take().expect("piped").write_all(&bytes).expect("read");
    assert!(put.wait().expect("it ran").success());
    let got = output(&[&["get", long, "--raw"][..], &at].concat());
    assert_eq!(got.stdout, bytes);
    let totals = agent.end();
    assert_eq!(
        (&totals["schema"], &totals["store"]),
        (&"overbank.kv-agent.v1".into(), &"memory".into())
    );
    assert_eq!((&totals["asked"], &totals["values"]), (&10.into(), &1.into()));
}

#[test]
fn what_is_wrong_is_named_and_fails() {
    let long_key = "k".repeat(1025);
    let long = "v".repeat(1409);
    for (arguments, status, what) in [
        (&["get", &long_key][..], 2, "a key of 1025 bytes: must have at most 1024"),
        (&["put", "key", &long], 1, "a value of 1409 bytes: must have at most 1408 under this key"),
        (
            &["get", "key", "--server", "192.0.2.1:0"],
            2,
            "192.0.2.1:0: must be the address and port",
        ),
        (
            &["get", "key", "--server", "::1:x"],
            2,
            "--server ::1:x: must be ADDRESS or ADDRESS:PORT",
        ),
        (&["put", "key", "v", "--server", "127.0.0.1,127.0.0.1"], 1, "127.0.0.1:8779: must be the"),
        (
            &["hot", "--socket", "/nonexistent"],
            1,
            "/nonexistent: no switch, gateway or proxy answers",
        ),
        (&["agent", "--listen", "192.0.2.1:0", "--metrics", "off"], 1, "listen 192.0.2.1:0: "),
        (&["agent", "--device", "host"], 1, "--device: \"host\": must be ADDRESS or ADDRESS:PORT"),
        (
            &["agent", "--store", "memcached://host", "--metrics", "off"],
            1,
            "store host: must be memcached://HOST:PORT",
        ),
    ] {
        let (code, line) = failed(arguments);
        assert!(code == status && line.starts_with(what), "{arguments:?}: {code}: {line}");
    }
    for arguments in [&["load", "--theta", "3"][..], &["load", "--keys", "0"], &["put", "key"]] {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let valid = printed(&["agent", "--listen", "192.0.2.1", "--check"]);
    assert_eq!(valid, "configuration is valid: 192.0.2.1:8779, memory\n");
}

#[test]
fn without_an_agent_requests_fail_in_a_bounded_time() {
    // Bound and silent.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free address");
    let address = silent.local_addr().expect("bound").to_string();
    let commands = [
        &["get", "key"][..],
        &["put", "key", "value"],
        &["load", "--seconds", "0.1"],
        &["load", "--fill", "--keys", "1"],
    ];
    let failures: Vec<_> = commands
        .map(|arguments| {
            let all = [arguments, &["--server", &address]].concat();
            overbank(&all).spawn().expect("it starts")
        })
        .into_iter()
        .map(|child| child.wait_with_output().expect("it ends"))
        .map(|output| (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
        .collect();
    let is = |nth: usize, status, what: &str| {
        let (code, line) = &failures[nth];
        assert!(*code == Some(status) && line.contains(what), "{nth}: {code:?}: {line}");
    };
    is(0, 2, "no answer; is an agent running there?");
    is(1, 1, "no answer; the write may have been applied or not; is an agent running there?");
    is(2, 1, "no answer to 64 requests: gave_up");
    is(3, 1, "cannot set the keys: gave_up");
}

#[test]
fn load_is_counted_and_closes() {
    let agents: Vec<Agent> = (0..2).map(|_| Agent::start(&["--listen", "127.0.0.1:0"])).collect();
    let servers = agents.iter().map(|agent| &*agent.address).collect::<Vec<_>>().join(",");
    let load = |more: &[&str]| -> Value {
        let common = ["load", "--server", &servers, "--keys", "500", "--writes", "20", "--fill"];
        let text =
            printed(&[&common[..], &["--seconds", "0.3", "--format", "json"], more].concat());
        serde_json::from_str(&text).expect("a document")
    };
    for more in [&[][..], &["--rate", "2000"], &["--window", "1"], &["--theta", "0"]] {
        let report = load(more);
        let of = |name: &str| report[name].as_u64().expect("a count");
        assert_eq!(
            (&report["schema"], &report["failed"]),
            (&"overbank.kv-load.v1".into(), &serde_json::json!({}))
        );
        assert_eq!(of("begun"), of("answered"));
        assert_eq!(of("answered"), of("reads") + of("written"));
        assert_eq!((of("hits"), of("missing"), of("reads")), (0, 0, of("misses")));
        assert!(of("answered") > 100 && of("written") > 0, "{report}");
        assert_eq!(report["miss_latency"]["count"], report["misses"]);
        if more == ["--rate", "2000"] {
            assert!((300..=601).contains(&of("begun")), "{report}");
        }
    }
    let text = printed(&["load", "--server", &servers, "--seconds", "0.1"]);
    assert!(text.contains("answers, ") && text.contains("read, server"), "{text}");
    for agent in agents {
        assert!(agent.end()["handled"].as_u64() > Some(500), "keys are spread");
    }
}

#[test]
fn documents_are_served_and_a_port_is_one_agents() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("status").display().to_string();
    let mut agent = Agent::start(&["--listen", "127.0.0.1:0", "--status-socket", &socket]);
    agent.client().put(b"key", b"value").expect("written");
    let status = || -> Value {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        stream.write_all(b"status\n").expect("read");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("a document")
    };
    // A request is answered before it is counted.
    let end = Instant::now() + Duration::from_secs(10);
    while status()["handled"] == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = status();
    assert_eq!((&status["handled"], &status["serving"]), (&1.into(), &1.into()));
    signal(&agent.child, "HUP");
    agent.logged("SIGHUP: there is nothing to reload");
    let (code, line) = failed(&["agent", "--listen", &agent.address, "--metrics", "off"]);
    assert!(code == 1 && line.starts_with(&format!("listen {}: ", agent.address)), "{line}");
    agent.end();
    assert!(!std::path::Path::new(&socket).exists());
}

#[test]
fn hot_keys_are_listed_as_a_device_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("status");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("free");
    let list = r#"{"schema":"overbank-kv-hot/1","cached":9,"sample_log2":0,"error":"","keys":[{"key":"6b657900000000000000000000000000","hits":7,"valid":true,"install":3,"server":{"port":2,"vlan":0,"mac":"02:00:00:00:00:01","address":"192.0.2.1","udp_port":8779}}]}"#;
    let device = std::thread::spawn(move || {
        for answer in [list, list, "{}", r#"{"error":"no"}"#, "nonsense"] {
            let (stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a line");
            assert!(line == "hot 20\n" || line == "hot 3\n", "{line}");
            writeln!(&stream, "{answer}").expect("it reads");
        }
    });
    let socket = path.display().to_string();
    let at = ["hot", "--socket", &socket];
    let text = printed(&at);
    assert!(
        text.contains("key") && text.contains("192.0.2.1") && text.contains("1 of 9 cached keys"),
        "{text}"
    );
    let json = printed(&[&at[..], &["--most", "3", "--format", "json"]].concat());
    assert_eq!(json.trim_end(), list);
    let (code, line) = failed(&at);
    assert!(code == 1 && line.contains("is it a proxy, or a switch in --mode netcache?"), "{line}");
    assert_eq!(failed(&at), (1, "no".to_owned()));
    assert!(failed(&at).1.starts_with("the answer is not a list of keys"));
    device.join().expect("no assertion failed");
}

#[test]
fn values_of_memcached_are_served_after_the_quiet_time() {
    let version = Command::new("memcached").arg("--version").output();
    if !needs("memcached", version.is_ok_and(|output| output.status.success())) {
        return;
    }
    let bound = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = bound.local_addr().expect("bound").port().to_string();
    drop(bound);
    let command = ["-u", "daemon", "-l", "127.0.0.1", "-U", "0", "-p", &port];
    let mut memcached = Command::new("memcached").args(command).spawn().expect("it starts");
    let url = format!("memcached://127.0.0.1:{port}");
    // It asks again until memcached listens; what is asked for in the quiet time has no answer.
    let agent = Agent::start(&["--listen", "127.0.0.1:0", "--store", &url, "--quiet", "0.3"]);
    let mut client = agent.client();
    while client.put(b"key", b"value").is_err() {}
    assert!(client.totals().repeated > 0);
    let mut other = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    other.write_all(b"get key\r\n").expect("read");
    let mut line = String::new();
    BufReader::new(&other).read_line(&mut line).expect("an answer");
    assert_eq!(line, "VALUE key 0 5\r\n");
    let totals = agent.end();
    assert!(totals["early"].as_u64() > Some(0) && totals["store"] == *url, "{totals}");
    memcached.kill().expect("it runs");
    memcached.wait().expect("it ran");
}

#[cfg(feature = "kv-stores")]
mod redis {
    use super::*;
    use overbank_kv::client::Error;

    struct Redis {
        child: Child,
        port: u16,
        folder: tempfile::TempDir,
    }

    impl Redis {
        fn start() -> Option<Redis> {
            let version = Command::new("redis-server").arg("--version").output();
            if !needs("redis-server", version.is_ok_and(|output| output.status.success())) {
                return None;
            }
            let bound = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = bound.local_addr().expect("bound").port();
            drop(bound);
            let folder = tempfile::tempdir().expect("a folder");
            let child = Redis::spawn(port, &folder);
            Some(Redis { child, port, folder })
        }

        /// With a file of what was written, flushed before each answer.
        fn spawn(port: u16, folder: &tempfile::TempDir) -> Child {
            let mut command = Command::new("redis-server");
            command.args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
            ]);
            command.arg(folder.path()).args(["--appendonly", "yes", "--appendfsync", "always"]);
            let child = command.stdout(Stdio::null()).spawn().expect("it starts");
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            child
        }

        fn again(&mut self) {
            self.child.kill().expect("it runs");
            self.child.wait().expect("it ran");
            self.child = Redis::spawn(self.port, &self.folder);
        }
    }

    impl Drop for Redis {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// kill -9 of Redis and of the agent under writes: what is read at last is the last write that
    /// was acknowledged, or a later one of unknown outcome.
    #[test]
    fn acknowledged_writes_survive_the_end_of_redis_and_of_the_agent() {
        let Some(mut redis) = Redis::start() else { return };
        let url = format!("redis://127.0.0.1:{}/1", redis.port);
        let mut agent = Agent::start(&["--listen", "127.0.0.1:0", "--store", &url]);
        let listen = agent.address.clone();
        let mut client = agent.client();
        let (mut may_be, mut acknowledged) = (Vec::new(), 0);
        let mut write = |client: &mut Client, nth: u32, may_be: &mut Vec<u32>| match client
            .put(b"a key of more than 16 bytes", &nth.to_be_bytes())
        {
            Ok(()) => {
                acknowledged += 1;
                *may_be = vec![nth];
            }
            Err(Error::GaveUp { .. } | Error::Refused { .. }) => {
                may_be.push(nth);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        };
        for nth in 0..400 {
            match nth {
                // It does not serve in the quiet time after its start.
                100 => assert!(matches!(may_be[..], [99])),
                150 => redis.again(),
                250 => {
                    agent.child.kill().expect("it runs");
                    agent.child.wait().expect("it ran");
                    agent = Agent::start(&["--listen", &listen, "--store", &url]);
                }
                _ => {}
            }
            write(&mut client, nth, &mut may_be);
        }
        let read = client.get(b"a key of more than 16 bytes").expect("an answer").expect("a value");
        let read = u32::from_be_bytes(read.try_into().expect("four bytes"));
        assert!(may_be.contains(&read) && may_be.last() == Some(&399), "{read} of {may_be:?}");
        assert!(acknowledged > 300, "{acknowledged}");
        let totals = agent.end();
        assert!(totals["early"].as_u64() > Some(0), "{totals}");
    }
}
