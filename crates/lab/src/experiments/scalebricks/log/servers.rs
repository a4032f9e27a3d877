//! nats-servers of an experiment, in a folder that goes with them.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use crate::prelude::LabError;

/// Longest wait for a server to listen.
const START_MAX: Duration = Duration::from_secs(20);

pub(super) struct Servers {
    all: Vec<Child>,
    pub(super) urls: Vec<String>,
    _folder: TempDir,
}

impl Servers {
    /// Starts `count` servers, which keep each message together.
    pub(super) fn start(count: usize) -> Result<Servers, LabError> {
        let folder = tempfile::tempdir().map_err(LabError::failed)?;
        let ports = free_ports(2 * count).map_err(LabError::failed)?;
        let (clients, routes) = ports.split_at(count);
        let address = |port: &u16| format!("nats://127.0.0.1:{port}");
        let all_routes: Vec<String> = routes.iter().map(address).collect();
        let urls = clients.iter().map(address).collect();
        let mut servers = Servers { all: Vec::new(), urls, _folder: folder };
        for (nth, (client, route)) in clients.iter().zip(&all_routes).enumerate() {
            let mut command = Command::new("nats-server");
            command.args(["--jetstream", "--addr=127.0.0.1"]).args([
                format!("--name=n{nth}"),
                format!("--port={client}"),
                format!("--store_dir={}", servers._folder.path().join(nth.to_string()).display()),
            ]);
            if count > 1 {
                command.args([
                    "--cluster_name=measured".to_owned(),
                    format!("--cluster={route}"),
                    format!("--routes={}", all_routes.join(",")),
                ]);
            }
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let need = |error| format!("nats-server does not start: {error} (Debian: nats-server)");
            servers.all.push(command.spawn().map_err(need).map_err(LabError::failed)?);
        }
        let end = Instant::now() + START_MAX;
        for port in clients {
            while TcpStream::connect(("127.0.0.1", *port)).is_err() {
                if Instant::now() > end {
                    return Err(LabError::failed("nats-server does not listen"));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(servers)
    }

    /// Returns the seconds of CPU that they have used.
    pub(super) fn cpu(&self) -> f64 {
        self.all.iter().map(|server| cpu(server.id())).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.all {
            // One that has ended by itself is no loss.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Returns ports that are free now.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let held = (0..count).map(bind).collect::<std::io::Result<Vec<TcpListener>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Returns the seconds of CPU that the threads of a process have used.
pub(super) fn cpu(process: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return 0.0 };
    let of = |thread: fs::DirEntry| -> Option<f64> {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.flatten().filter_map(of).sum::<f64>() / 1e9
}
