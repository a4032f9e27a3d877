//! Turns a checked configuration into the setup of an engine.

use crate::live::{Plan, RunError, Totals, run as run_live, seed};
use crate::switch::document::SwitchExtra;
use crate::switch::settings::{Config, Mode};
use overbank_ofctl::rules::ControlConfig;
use overbank_runtime::{Control, Handle};
use overbank_switch::datapath::CacheConfig;
use overbank_switch::rule::Rule;

/// Returns the setup of the rule switch.
pub fn rules(config: &Config, rules: Vec<Rule>) -> overbank_ofctl::Setup {
    let of = &config.rules;
    let cache = |design| CacheConfig { design, entries: of.entries, isa: None };
    overbank_ofctl::Setup {
        run: config.run.clone(),
        cache: of.cache.0.map(cache),
        megaflows: of.megaflows,
        megaflow_idle_ms: u32::try_from(of.megaflow_idle.as_millis()).unwrap_or(u32::MAX),
        rules,
        controller_queue: config.controllers.controller_queue,
        control: ControlConfig {
            rules_max: of.max_rules,
            view: of.view(),
            mac: config.mac,
            statics: config.statics.clone(),
            fail_mode: config.controllers.fail_mode,
            has_controllers: config.targets.iter().any(|target| !target.is_passive()),
            datapath_id: config.switch.datapath_id.map_or(0, |id| id.0),
            seed: seed(),
        },
    }
}

/// Returns the setup of the Ethernet switch.
pub fn bridge(config: &Config) -> overbank_bridge::Setup {
    overbank_bridge::Setup {
        run: config.run.clone(),
        mac: config.mac,
        statics: config.statics.clone(),
        isolated: config.isolated.clone(),
        seed: seed(),
    }
}

/// Runs a switch until it is asked to stop, and returns its totals.
///
/// # Errors
/// Fails if it does not start or a thread panicked. Either way it leaves nothing behind.
pub fn run(config: &Config, of_file: Vec<Rule>) -> Result<Totals, RunError> {
    let plan = Plan {
        ports: &config.ports,
        workers: config.run.workers,
        service: &config.service,
        metrics_required: config.metrics_required,
    };
    let count = of_file.len();
    match config.switch.mode {
        Mode::OpenFlow => run_live(
            &plan,
            config,
            |ports| Ok(overbank_ofctl::start(rules(config, of_file), ports)?),
            |handle| extra(config, handle, Some(count)),
        ),
        Mode::L2 => run_live(
            &plan,
            config,
            |ports| Ok(overbank_bridge::start(&bridge(config), ports)?),
            |handle| extra(config, handle, None),
        ),
    }
}

fn extra<C: Control>(config: &Config, handle: &Handle<C>, rules: Option<usize>) -> SwitchExtra {
    let configured = config.switch.datapath_id.map(|id| id.0);
    SwitchExtra {
        mode: config.switch.mode.name(),
        datapath_id: configured
            .unwrap_or_else(|| overbank_ofctl::datapath_id(handle.lock().publisher().ports())),
        rules,
        options: config.controllers.options(),
        openflow: !config.targets.is_empty(),
    }
}
