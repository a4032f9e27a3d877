//! What is shown of the table: its size, and what happened to it.

use super::Stations;
use overbank::memory::HugePages;
use overbank_declare::counters::Exposition;
use serde::{Deserialize, Serialize};

overbank_declare::counters! {
    /// The table's size.
    pub struct StationTotals: "overbank_" {
        stations: gauge addresses "Known addresses, static ones included";
        stations_static: gauge addresses "Static addresses";
        stations_max: gauge addresses "Limit of learnt addresses" as "stations_limit";
        stations_bytes: gauge bytes "Size of the address table";
    }
}

overbank_declare::counters! {
    /// What happened to the table.
    pub struct MacTotals: "overbank_stations_" {
        learned: counter addresses "Addresses learnt" rate;
        moved: counter addresses "Addresses that moved to another port";
        refreshed: counter addresses
            "Addresses seen again after an eighth of the ageing time";
        aged: counter addresses "Addresses aged out";
        flushed: counter addresses "Addresses removed because their port went down";
        evicted: counter addresses "Addresses evicted for new ones";
        refused: counter addresses "New addresses refused for lack of room; one for each report";
    }
}

/// The table of stations in a status document; zeros where an engine has none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StationsStatus {
    /// Its size.
    #[serde(flatten)]
    pub totals: StationTotals,
    /// Pages that it lies on, by the names of the setting `mac-pages`.
    pub stations_pages: String,
    /// What happened to it.
    pub macs: MacTotals,
}

impl StationsStatus {
    /// Returns the current state.
    pub fn new(stations: &Stations) -> StationsStatus {
        StationsStatus {
            totals: StationTotals {
                stations: stations.len() as u64,
                stations_static: stations.fixed() as u64,
                stations_max: stations.limits().entries_max as u64,
                stations_bytes: stations.bytes() as u64,
            },
            stations_pages: pages_name(stations.pages()).to_owned(),
            macs: stations.counters(),
        }
    }

    /// Adds its numbers to the metrics.
    pub fn expose(&self, to: &mut Exposition) {
        to.add(&[], &self.totals);
        to.add(&[], &self.macs);
    }
}

/// Pages by the names of the setting `mac-pages`.
fn pages_name(pages: HugePages) -> &'static str {
    match pages {
        HugePages::No => "small",
        HugePages::Partly { .. } => "partly",
        HugePages::Yes => "huge",
        HugePages::Gigabyte => "1g",
        _ => "unknown",
    }
}
