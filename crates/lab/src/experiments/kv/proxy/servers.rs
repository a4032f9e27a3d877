//! Redis, nutcracker and the proxy as processes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::processes::{Process, start};
use super::*;
use overbank_wire::resp::{self, Replies};
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for a process to start.
const START_MAX: Duration = Duration::from_secs(30);

/// A process that speaks RESP. It ends with this handle.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) process: Process,
    folder: TempDir,
}

/// A process that was started, and the file of its errors.
fn begin(mut command: Command, cores: &[usize], folder: &TempDir) -> Result<Process, LabError> {
    let program = Path::new(command.get_program()).to_owned();
    let errors = File::create(folder.path().join("errors")).map_err(LabError::failed)?;
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    start(command, cores).map_err(|error| {
        LabError::Failed(format!("needs `{}`, a Debian package: {error}", program.display()))
    })
}

/// Returns a port that was free just now.
fn free() -> Result<SocketAddr, LabError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(LabError::failed)?;
    listener.local_addr().map_err(LabError::failed)
}

impl Server {
    /// Waits until it is ready.
    fn until(
        mut self,
        name: &str,
        mut is_ready: impl FnMut(&mut Server) -> bool,
    ) -> Result<Server, LabError> {
        let end = Instant::now() + START_MAX;
        while !is_ready(&mut self) {
            let has_ended = self.process.0.try_wait().map_err(LabError::failed)?.is_some();
            if has_ended || Instant::now() > end {
                // Without a file, its name alone has to do.
                let text =
                    fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
                let last = text.lines().last().unwrap_or("no answer");
                return Err(LabError::Failed(format!("{name} does not start: {last}")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }

    /// Starts an empty Redis.
    pub(super) fn redis(place: &Place<'_>) -> Result<Server, LabError> {
        let (address, folder) = (free()?, tempfile::tempdir().map_err(LabError::failed)?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--maxclients", "20000"]);
        let process = begin(command, &place.cores, &folder)?;
        let server = Server { address, process, folder };
        server.until("redis-server", |server| TcpStream::connect(server.address).is_ok())
    }

    /// Starts nutcracker, with its defaults, before a Redis.
    pub(super) fn nutcracker(place: &Place<'_>, redis: SocketAddr) -> Result<Server, LabError> {
        let (address, stats) = (free()?, free()?);
        let folder = tempfile::tempdir().map_err(LabError::failed)?;
        let file = folder.path().join("nutcracker.yml");
        let pool = format!(
            "pool:\n  listen: {address}\n  redis: true\n  hash: fnv1a_64\n  servers:\n   - {redis}:1\n"
        );
        fs::write(&file, pool).map_err(LabError::failed)?;
        let mut command = Command::new("nutcracker");
        command.arg("-c").arg(file).args(["-s", &stats.port().to_string(), "-a", "127.0.0.1"]);
        let process = begin(command, &place.cores, &folder)?;
        let server = Server { address, process, folder };
        server.until("nutcracker", |server| TcpStream::connect(server.address).is_ok())
    }

    /// Starts a proxy that follows a server.
    pub(super) fn proxy(
        place: &Place<'_>,
        upstream: SocketAddr,
        flags: &[(&str, &str)],
    ) -> Result<Server, LabError> {
        let folder = tempfile::tempdir().map_err(LabError::failed)?;
        let mut command = Command::new(place.program);
        command.args(["kv", "proxy", "--listen", "127.0.0.1:0", "--status-socket", "status"]);
        command.args(["--upstream", &format!("redis://{upstream}"), "--metrics", "off"]);
        command.args(["--log", "error"]);
        for (name, value) in flags {
            command.args([&format!("--{name}"), *value]);
        }
        let process = begin(command, &place.cores, &folder)?;
        let server = Server { address: upstream, process, folder };
        server.until("overbank kv proxy", |server| {
            let address = server.status().ok().filter(|status| status["open"] == 1);
            let address = address.and_then(|status| status["address"].as_str()?.parse().ok());
            address.map(|address| server.address = address).is_some()
        })
    }

    /// Returns the proxy's status document.
    pub(super) fn status(&self) -> Result<Value, LabError> {
        let ask = || {
            let mut stream = UnixStream::connect(self.folder.path().join("status"))?;
            stream.write_all(b"status\n")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok::<Value, std::io::Error>(serde_json::from_str(&line)?)
        };
        ask().map_err(|error| LabError::Failed(format!("the proxy's status: {error}")))
    }

    /// Returns some counts of the proxy.
    pub(super) fn counts<const N: usize>(&self, names: [&str; N]) -> Result<[u64; N], LabError> {
        let status = self.status()?;
        let mut counts = [0; N];
        for (count, name) in counts.iter_mut().zip(names) {
            let found = status[name].as_u64();
            *count = found.ok_or_else(|| LabError::Failed(format!("the status has no {name}")))?;
        }
        Ok(counts)
    }

    /// Returns the reply to a command.
    pub(super) fn ask(&self, command: &[&str]) -> Result<String, LabError> {
        let ask = || {
            let mut stream = TcpStream::connect(self.address)?;
            let (mut request, mut bytes) = (Vec::new(), Vec::new());
            resp::command(command, &mut request);
            stream.write_all(&request)?;
            let (mut replies, mut piece) = (Replies::new(), vec![0; 1 << 16]);
            loop {
                let count = stream.read(&mut piece)?;
                bytes.extend_from_slice(&piece[..count]);
                let step = replies.scan(&piece[..count]).map_err(std::io::Error::other)?;
                if step.end || count == 0 {
                    return Ok::<Vec<u8>, std::io::Error>(bytes);
                }
            }
        };
        let bytes = ask().map_err(|error| LabError::Failed(format!("{command:?}: {error}")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns how often Redis has run a command since the last reset.
    pub(super) fn calls(&self, command: &str) -> Result<u64, LabError> {
        Ok(calls(&self.ask(&["INFO", "commandstats"])?, command))
    }

    /// Stores keys by number.
    pub(super) fn fill(
        &self,
        context: &Context<'_>,
        keys: impl Iterator<Item = u64> + Send,
        value_len: usize,
    ) -> Result<(), LabError> {
        let mut keys = keys.peekable();
        let value = vec![b'v'; value_len];
        let targets = [self.address];
        let plan = Plan {
            targets: &targets,
            connections: 4,
            pace: Pace::Closed(4),
            time: Duration::from_secs(120),
            stop: context.stop,
        };
        load::run(&plan, |out| {
            keys.peek()?;
            let mut requests = 0;
            for key in keys.by_ref().take(FILL) {
                load::set(key, &value, out);
                requests += 1;
            }
            Some(Batch { target: 0, requests, kind: 0 })
        })
        .map_err(LabError::failed)?;
        Ok(())
    }
}

/// Keys that are stored at a time.
const FILL: usize = 256;

fn calls(info: &str, command: &str) -> u64 {
    let start = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&*start));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read() {
        let info =
            "# Commandstats\r\ncmdstat_get:calls=21,usec=3\r\ncmdstat_getex:calls=4,usec=1\r\n";
        assert_eq!(["get", "getex", "set"].map(|name| calls(info, name)), [21, 4, 0]);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new("/nowhere/redis-server");
        let error = begin(command, &[0], &folder).err().unwrap().to_string();
        let expected = "needs `/nowhere/redis-server`, a Debian package: No such file";
        assert!(error.starts_with(expected), "{error}");
    }
}
