//! From a checked configuration to what the engines are made of.

use crate::switch::config::Config;
use overbank_ofctl::rules::ControlConfig;
use overbank_runtime::Options;
use overbank_switch::datapath::CacheConfig;
use overbank_switch::rule::Rule;

/// Returns bits that a stranger cannot know.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn options(config: &Config) -> Options {
    Options {
        workers: config.workers,
        cores: config.cores.clone(),
        busy_poll: config.busy_poll,
        orders: config.packet_outs,
    }
}

/// Returns what the configuration says of the rule switch.
pub fn rules(config: &Config, rules: Vec<Rule>) -> overbank_ofctl::Setup {
    let cache = |design| CacheConfig { design, entries: config.entries, isa: None };
    overbank_ofctl::Setup {
        run: options(config),
        cache: config.cache.map(cache),
        megaflows: config.megaflows,
        megaflow_idle_ms: u32::try_from(config.megaflow_idle.as_millis()).unwrap_or(u32::MAX),
        rules,
        controller_queue: config.controller_queue,
        control: ControlConfig {
            rules_max: config.rules_max,
            mac: config.mac,
            statics: config.statics.clone(),
            fail_mode: config.fail_mode,
            has_controllers: config.openflow.iter().any(|target| !target.is_passive()),
            datapath_id: config.datapath_id.unwrap_or(0),
            seed: seed(),
        },
    }
}

/// Returns what the configuration says of the Ethernet switch.
pub fn bridge(config: &Config) -> overbank_bridge::Setup {
    overbank_bridge::Setup {
        run: options(config),
        mac: config.mac,
        statics: config.statics.clone(),
        isolated: config.isolated.clone(),
        seed: seed(),
    }
}
