//! Turns a checked configuration into the setup of an engine.

use crate::live::{Plan, RunError, Totals, run as run_live, seed};
use crate::switch::document::SwitchExtra;
use crate::switch::settings::{Config, DeviceConfig, Mode};
use overbank::sketch;
use overbank_device::boot::Boot;
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

/// Returns the setup of the key-value cache on the path.
///
/// # Errors
/// The run has no number.
fn device(
    config: &Config,
    of: &DeviceConfig,
) -> Result<overbank_device::Setup, overbank_device::StartError> {
    let DeviceConfig { address, servers, settings } = of;
    // The ranges of the settings.
    let small = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    Ok(overbank_device::Setup {
        run: config.run.clone(),
        mac: config.mac,
        statics: config.statics.clone(),
        isolated: config.isolated.clone(),
        seed: seed(),
        address: *address,
        udp_port: small(settings.kv_port),
        servers: servers.clone(),
        cache: overbank_device::pipeline::Config {
            items: settings.kv_items,
            indexes_log2: settings.kv_index_bits,
            passes: settings.kv_passes,
        },
        counting: sketch::Settings {
            threshold: small(settings.kv_threshold),
            sample_log2: settings.kv_sample_bits,
        },
        controller: overbank_device::controller::Settings::default(),
        queue: settings.kv_queue,
        boot: Boot::next(settings.kv_state.as_deref())?,
        protocol: settings.kv_protocol.into(),
    })
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
    match (config.switch.mode, &config.device) {
        (Mode::NetCache, Some(of)) => run_live(
            &plan,
            config,
            |ports| Ok(overbank_device::start(&device(config, of)?, ports)?),
            |handle| extra(config, handle, None),
        ),
        (Mode::OpenFlow, _) => run_live(
            &plan,
            config,
            |ports| Ok(overbank_ofctl::start(rules(config, of_file), ports)?),
            |handle| extra(config, handle, Some(count)),
        ),
        // A device has been checked to have its settings.
        (Mode::L2 | Mode::NetCache, _) => run_live(
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
