//! The binary as a process, and the shell.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn overbank() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.env_remove("OVERBANK_SIMD").env_remove("NOTIFY_SOCKET");
    command
}

pub fn sh(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().expect("sh is there")
}

pub fn must(command: &str) -> String {
    let output = sh(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running switch; killed if the test fails.
pub struct Running {
    pub child: Child,
    pub log: mpsc::Receiver<String>,
    /// Its lines up to the last that was expected.
    pub seen: Vec<String>,
}

/// Lines as they come.
fn lines(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the switch starts");
        let log = lines(child.stderr.take().expect("piped"));
        let mut running = Running { child, log, seen: Vec::new() };
        running.expect("forwarding");
        running
    }

    /// Waits for a line of the log with this text.
    pub fn expect(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no {text:?} in the log ({error}): {:#?}", self.seen),
            }
        }
    }

    pub fn signal(&self, name: &str) {
        must(&format!("kill -{name} {}", self.child.id()));
    }

    /// Ends it by a signal; what it prints.
    pub fn end(mut self, signal: &str) -> String {
        self.signal(signal);
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut text).expect("text");
        let status = self.child.wait().expect("it ends");
        let rest: Vec<String> = self.log.try_iter().collect();
        assert!(status.success(), "{status}: {:#?} {rest:#?}", self.seen);
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The totals of a switch, whose accounts close.
pub fn totals(text: &str) -> Value {
    totals_of("overbank-switch/1", text)
}

pub fn totals_of(schema: &str, text: &str) -> Value {
    let totals: Value = serde_json::from_str(text).expect("one JSON document");
    assert_eq!(totals["schema"], schema);
    assert_eq!(totals["closes"], true, "{totals:#}");
    for port in totals["ports"].as_array().expect("ports") {
        let n = |name: &str| port[name].as_u64().unwrap_or_else(|| panic!("{name}: {port}"));
        let sum = |name: &str| {
            let of = port[name].as_object().expect("by reason");
            of.values().map(|n| n.as_u64().expect("a number")).sum::<u64>()
        };
        assert_eq!(n("received"), n("forwarded") + n("to_controller") + sum("dropped"), "{port}");
        assert_eq!(n("outputs"), n("sent") + sum("not_sent"), "{port}");
        assert_eq!(n("queued"), 0, "{port}");
    }
    totals
}
