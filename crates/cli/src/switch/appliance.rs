//! What a control side has beside its engine, to be run as a service: its mode, its sessions, what it
//! answers, what SIGHUP does.

use crate::switch::settings::{Config, read_rules};
use overbank_bridge::BridgeControl;
use overbank_declare::settings::Problems;
use overbank_ofctl::RuleControl;
use overbank_ofctl::sessions::{self, ControlError, ControlOptions};
use overbank_runtime::{Control, Handle};
use overbank_stations::listing::Listing;
use std::future::Future;
use std::path::Path;
use tokio::sync::watch;

/// A control side that the command runs.
pub trait Appliance: Control {
    /// Name of its mode, as in the setting `mode`.
    const MODE: &'static str;

    /// Returns the answer to a line of the status socket that asks for stations.
    fn listing(handle: &Handle<Self>, line: &str) -> Listing;

    /// Takes what the file at `path` says now, all of it or nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn reload(handle: &Handle<Self>, path: &Path) -> Result<(), Problems>;

    /// Serves its sessions until `stop`.
    fn serve(
        config: &Config,
        handle: Handle<Self>,
        options: ControlOptions,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send + 'static;
}

impl Appliance for RuleControl {
    const MODE: &'static str = "openflow";

    fn listing(handle: &Handle<Self>, line: &str) -> Listing {
        overbank_ofctl::listing(handle, line)
    }

    fn reload(handle: &Handle<Self>, path: &Path) -> Result<(), Problems> {
        let rules = read_rules(path)?;
        match handle.lock().reload(rules) {
            Ok(done) => tracing::info!(
                added = done.added,
                changed = done.changed,
                removed = done.removed,
                kept = done.kept,
                "rules read again"
            ),
            Err(error) => tracing::error!(%error, "the rules stay as they were"),
        }
        Ok(())
    }

    fn serve(
        config: &Config,
        handle: Handle<Self>,
        options: ControlOptions,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send + 'static {
        sessions::serve(config.targets.clone(), handle, options, stop)
    }
}

impl Appliance for BridgeControl {
    const MODE: &'static str = "l2";

    fn listing(handle: &Handle<Self>, line: &str) -> Listing {
        overbank_bridge::listing(handle, line)
    }

    /// There are no rules, so there is no path.
    fn reload(_handle: &Handle<Self>, _path: &Path) -> Result<(), Problems> {
        Ok(())
    }

    /// There are no sessions.
    #[expect(clippy::manual_async_fn, reason = "an async fn would borrow the configuration")]
    fn serve(
        _config: &Config,
        _handle: Handle<Self>,
        _options: ControlOptions,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send + 'static {
        async move {
            let _ = stop.wait_for(|stop| *stop).await;
            Ok(())
        }
    }
}
