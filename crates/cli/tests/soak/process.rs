//! The switch as a process: start, queries, signals, end.

use crate::bench::PATIENCE;
use crate::context::Soak;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Lines of the log that are shown when something went wrong.
const LOG_LINES: usize = 40;

/// A running switch; killed when dropped.
pub struct Process {
    child: Child,
    log: Receiver<String>,
    seen: VecDeque<String>,
    /// When it was started.
    pub started: Instant,
}

/// Where the switch answers with its status.
pub fn status_socket(folder: &Path) -> PathBuf {
    folder.join("status")
}

/// Where `ovs-ofctl` finds it.
pub fn openflow_socket(folder: &Path) -> PathBuf {
    folder.join("openflow")
}

impl Process {
    /// Starts it without waiting.
    pub fn spawn(soak: &Soak) -> Process {
        let scene = &soak.scene;
        let folder = scene.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
        command.env_remove("OVERBANK_SIMD").env_remove("NOTIFY_SOCKET");
        command.args(["switch", "--metrics", "off", "--format", "json", "--workers", "2"]);
        // Bounds that are reached soon, so that memory has to stay where it is.
        command.args(["--megaflows", "4096", "--megaflow-idle", "2", "--entries", "16384"]);
        command.args(["--max-rules", "20000"]);
        command.args(["--mac-entries", "256"]);
        // Controllers that the machine keeps waiting are not gone.
        command.args(["--controller-probe", "30"]);
        command.arg("--rules").arg(scene.rules());
        command.arg("--status-socket").arg(status_socket(folder));
        for port in scene.ports() {
            command.args(["--port", &port]);
        }
        let controller = scene.controller.local_addr().expect("bound");
        for target in [
            format!("ptcp:{}:{}", scene.openflow.port(), scene.openflow.ip()),
            format!("punix:{}", openflow_socket(folder).display()),
            format!("tcp:127.0.0.1:{}", controller.port()),
        ] {
            command.args(["--openflow", &target]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().expect("the switch can be started");
        let stderr = child.stderr.take().expect("piped");
        let (send, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Process { child, log, seen: VecDeque::new(), started }
    }

    /// Starts it and waits until it forwards.
    pub fn start(soak: &Soak) -> Process {
        let mut process = Process::spawn(soak);
        loop {
            match process.log.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let ready = line.contains("forwarding");
                    process.seen.push_back(line);
                    if ready {
                        return process;
                    }
                }
                Err(error) => panic!("it does not start ({error}): {:#?}", process.seen),
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ended, and how; what it said last is printed then.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.listen();
        let status = self.child.try_wait().expect("our child")?;
        println!("the switch said: {:#?}", self.seen);
        Some(status)
    }

    fn listen(&mut self) {
        self.seen.extend(self.log.try_iter());
        let too_many = self.seen.len().saturating_sub(LOG_LINES);
        self.seen.drain(..too_many);
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }

    /// SIGTERM: what it printed in the end, or what was wrong with that.
    pub fn terminate(mut self) -> Result<Value, String> {
        signal(self.id(), "TERM");
        let end = Instant::now() + PATIENCE;
        let mut stdout = self.child.stdout.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        loop {
            self.listen();
            if let Some(status) = self.child.try_wait().expect("our child") {
                if !status.success() {
                    return Err(format!("it ended with {status}: {:#?}", self.seen));
                }
                let text = reader.join().expect("a reader").map_err(|e| e.to_string())?;
                return serde_json::from_str(&text).map_err(|e| format!("{e}: {text:?}"));
            }
            if Instant::now() > end {
                return Err(format!("SIGTERM does not end it: {:#?}", self.seen));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process of ours.
pub fn signal(process: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill -{name} {process}");
}

/// Resident memory of a process in KiB; `None` once it is gone.
pub fn resident_kib(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The status of the switch that runs.
pub fn status(folder: &Path) -> Result<Value, String> {
    let ask = || {
        let mut stream = UnixStream::connect(status_socket(folder))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok::<_, std::io::Error>(line)
    };
    let line = ask().map_err(|error| format!("no status: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))
}
