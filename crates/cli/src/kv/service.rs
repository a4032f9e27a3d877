//! What agent and proxy share: a program of threads that serves its documents until its end.
//!
//! ```text
//!   settings ─▶ sockets ─▶ drop privileges ─▶ the program's threads ─▶ metrics, status
//!                                                  │
//!                 SIGTERM, SIGINT, --duration ─────┴─▶ stop, totals
//! ```

use anyhow::{Result, bail};
use overbank_service::endpoints::{Documents, Endpoints, Limits};
use overbank_service::options::ServiceSettings;
use overbank_service::privileges::{Capability, drop_all_but};
use overbank_service::process::{Asked, Signals, notify};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two checks of the program's threads for an end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time for connections to close.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// The first port that needs no privilege.
const PRIVILEGED: u16 = 1024;

/// A running program.
pub struct Program<'a> {
    pub service: &'a ServiceSettings,
    pub limits: &'a Limits,
    pub started: Instant,
    /// Its log line, once signals are handled.
    pub announce: &'a dyn Fn(),
    /// Reads its settings again.
    pub reload: &'a dyn Fn(),
    /// Returns whether a thread has ended by itself.
    pub is_broken: &'a dyn Fn() -> bool,
}

/// Drops the privileges that a listener on `port` does not need.
pub fn drop_privileges(service: &ServiceSettings, port: u16) -> Result<()> {
    if !service.keep_privileges {
        let is_privileged = (1..PRIVILEGED).contains(&port);
        let keep: &[_] = if is_privileged { &[Capability::CAP_NET_BIND_SERVICE] } else { &[] };
        drop_all_but(keep)?;
    }
    Ok(())
}

impl Program<'_> {
    /// Serves the documents until a signal, or the end of `--duration`.
    ///
    /// # Errors
    /// Fails if the system lacks something, or a thread of the program has ended.
    pub fn serve<D: Documents>(&self, documents: Arc<D>, endpoints: Endpoints) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Before anything reports that it runs: an unhandled signal would kill it.
        let signals = {
            let _inside = runtime.enter();
            Signals::new()?
        };
        (self.announce)();
        let ended = runtime.block_on(self.until_end(documents, signals, endpoints));
        runtime.shutdown_timeout(CLOSE_MAX);
        ended
    }

    async fn until_end<D: Documents>(
        &self,
        documents: Arc<D>,
        mut signals: Signals,
        endpoints: Endpoints,
    ) -> Result<()> {
        let (stop, stopped) = watch::channel(false);
        let _socket_file = endpoints.serve(documents, self.limits, stopped)?;
        notify("READY=1");
        let end = self.service.duration.map(|duration| self.started + duration);
        let mut look = tokio::time::interval(LOOK_EVERY);
        let reason = loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Reload => {
                        notify("RELOADING=1");
                        (self.reload)();
                        notify("READY=1");
                    }
                    Asked::End(reason) => break reason,
                },
                _ = look.tick() => {
                    if (self.is_broken)() {
                        bail!("internal error: a thread has ended by itself; please report it");
                    }
                    if end.is_some_and(|end| Instant::now() >= end) {
                        break "the duration is over";
                    }
                }
            }
        };
        tracing::info!(reason, "stopping");
        notify("STOPPING=1");
        // Without receivers, all have stopped.
        let _ = stop.send(true);
        Ok(())
    }
}
