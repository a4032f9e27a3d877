//! Turns a checked configuration into the setup of an engine.

use crate::switch::settings::Config;
use overbank_ofctl::rules::ControlConfig;
use overbank_switch::datapath::CacheConfig;
use overbank_switch::rule::Rule;

/// Returns a seed that attackers cannot predict.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

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
