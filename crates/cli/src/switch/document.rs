//! What the documents of a switch have beside its engine.

use crate::live::document::Extra;
use crate::switch::status::SCHEMA;
use overbank_declare::counters::{Counters, Exposition};
use overbank_ofctl::sessions::{ControlCounts, ControlOptions};
use serde::Serialize;
use std::collections::BTreeMap;

/// Identity, rules and OpenFlow sessions of a switch.
#[derive(Clone)]
pub struct SwitchExtra {
    pub mode: &'static str,
    pub datapath_id: u64,
    /// Rules of the file.
    pub rules: Option<usize>,
    /// Options of the OpenFlow sessions, with their counters.
    pub options: ControlOptions,
    /// Whether OpenFlow is served.
    pub openflow: bool,
}

#[derive(Serialize)]
pub struct Head {
    schema: &'static str,
    mode: &'static str,
    datapath_id: String,
    openflow: BTreeMap<&'static str, u64>,
}

impl SwitchExtra {
    fn openflow(&self) -> Option<ControlCounts> {
        self.openflow.then(|| self.options.counters.snapshot())
    }
}

impl Extra for SwitchExtra {
    type Head = Head;

    fn head(&self) -> Head {
        let mut openflow = BTreeMap::new();
        if let Some(counted) = self.openflow() {
            counted.visit(|counter, _, number| {
                openflow.insert(counter.name, number);
            });
        }
        let datapath_id = format!("{:016x}", self.datapath_id);
        Head { schema: SCHEMA, mode: self.mode, datapath_id, openflow }
    }

    fn expose(&self, to: &mut Exposition) {
        if let Some(counted) = self.openflow() {
            to.add(&[], &counted);
        }
    }
}

#[cfg(test)]
mod tests;
