//! A control side as a service: its mode, its sessions, its answers, its reload on SIGHUP.

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

pub trait Appliance: Control {
    /// Name of its mode in the setting `mode`.
    const MODE: &'static str;

    /// Answers a query for addresses on the status socket.
    fn listing(handle: &Handle<Self>, line: &str) -> Listing;

    /// Reloads the file at `path`, all of it or nothing.
    ///
    /// # Errors
    /// Returns all problems of the file.
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
            Err(error) => tracing::error!(%error, "rules unchanged"),
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

    /// Without rules there is no path.
    fn reload(_handle: &Handle<Self>, _path: &Path) -> Result<(), Problems> {
        Ok(())
    }

    /// Serves no sessions.
    #[expect(clippy::manual_async_fn, reason = "an async fn would borrow the configuration")]
    fn serve(
        _config: &Config,
        _handle: Handle<Self>,
        _options: ControlOptions,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send + 'static {
        async move {
            // An error means that the sender is gone: stop then, too.
            let _ = stop.wait_for(|stop| *stop).await;
            Ok(())
        }
    }
}
