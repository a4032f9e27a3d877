//! The switches as services.

use crate::live::document::Served;
use crate::live::{Appliance, RunError, until_stopped};
use crate::switch::document::SwitchExtra;
use crate::switch::settings::{Config, read_rules};
use overbank_bridge::BridgeControl;
use overbank_device::DeviceControl;
use overbank_device::hot::Hot;
use overbank_ofctl::RuleControl;
use overbank_ofctl::sessions;
use overbank_runtime::Handle;
use std::future::Future;
use std::path::Path;
use tokio::sync::watch;

fn announce(config: &Config, extra: &SwitchExtra, cores: &[Option<usize>]) {
    tracing::info!(
        mode = extra.mode,
        ports = config.ports.len(),
        rules = extra.rules,
        workers = config.run.workers,
        ?cores,
        datapath_id = format!("{:016x}", extra.datapath_id),
        "forwarding"
    );
}

/// Answers a line that begins with `fdb` with a list of addresses.
macro_rules! answer_fdb {
    ($listing:path) => {
        fn answer(handle: &Handle<Self>, line: &str) -> Option<serde_json::Result<Vec<u8>>> {
            line.starts_with("fdb").then(|| serde_json::to_vec(&$listing(handle, line)))
        }
    };
}

/// Reloads the file of rules; a file with errors changes nothing.
fn reload(handle: &Handle<RuleControl>, path: &Path) {
    let rules = match read_rules(path) {
        Ok(rules) => rules,
        Err(problems) => {
            for problem in &problems.0 {
                tracing::error!(%problem, "rules not reloaded");
            }
            tracing::error!(errors = problems.0.len(), "rules unchanged");
            return;
        }
    };
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
}

const NO_RULES: &str = "SIGHUP ignored: no file of rules is configured (--rules)";

impl Appliance for RuleControl {
    type Config = Config;
    type Extra = SwitchExtra;

    fn announce(config: &Config, extra: &SwitchExtra, cores: &[Option<usize>]) {
        announce(config, extra, cores);
    }

    answer_fdb!(overbank_ofctl::listing);

    fn reload(config: &Config, handle: &Handle<Self>) -> Option<impl FnOnce() + Send + 'static> {
        let Some(path) = config.rules.rules.clone() else {
            tracing::warn!(NO_RULES);
            return None;
        };
        let handle = handle.clone();
        Some(move || reload(&handle, &path))
    }

    fn serve(
        config: &Config,
        served: Served<Self>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + 'static {
        let served = {
            let Served { handle, extra, .. } = served;
            sessions::serve(config.targets.clone(), handle, extra.options, stop)
        };
        async move { Ok(served.await?) }
    }
}

/// A switch without rules has no file to reload and no sessions to serve.
macro_rules! without_rules {
    () => {
        fn reload(_: &Config, _: &Handle<Self>) -> Option<impl FnOnce() + Send + 'static> {
            tracing::warn!(NO_RULES);
            None::<fn()>
        }

        fn serve(
            _: &Config,
            _: Served<Self>,
            stop: watch::Receiver<bool>,
        ) -> impl Future<Output = Result<(), RunError>> + Send + 'static {
            until_stopped(stop)
        }
    };
}

impl Appliance for BridgeControl {
    type Config = Config;
    type Extra = SwitchExtra;

    fn announce(config: &Config, extra: &SwitchExtra, cores: &[Option<usize>]) {
        announce(config, extra, cores);
    }

    answer_fdb!(overbank_bridge::listing);

    without_rules!();
}

impl Appliance for DeviceControl {
    type Config = Config;
    type Extra = SwitchExtra;

    fn announce(config: &Config, extra: &SwitchExtra, cores: &[Option<usize>]) {
        announce(config, extra, cores);
    }

    fn answer(handle: &Handle<Self>, line: &str) -> Option<serde_json::Result<Vec<u8>>> {
        if line.starts_with("hot") {
            return Some(serde_json::to_vec(&Hot::answer(handle, line)));
        }
        line.starts_with("fdb").then(|| serde_json::to_vec(&overbank_device::listing(handle, line)))
    }

    without_rules!();
}
