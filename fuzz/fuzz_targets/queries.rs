//! Parses any text as a query of the MAC table: an answer within its limit, or an error of one
//! line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank::fib::MacVlan;
use overbank_stations::listing::{Listing, Query};
use overbank_stations::{Limits, Stations, set_up};

/// Port numbers by index.
const PORTS: [u32; 2] = [1, 7];

thread_local! {
    static STATIONS: Stations = stations();
}

fuzz_target!(|data: &[u8]| {
    let line = String::from_utf8_lossy(data);
    let query = line.parse::<Query>();
    STATIONS.with(|stations| {
        let answer = Listing::answer(&line, &PORTS, &|read| read(stations));
        match query {
            Ok(query) => {
                assert!(answer.error.is_empty() && answer.known == stations.len());
                assert!(answer.stations.len() <= query.most);
                for station in &answer.stations {
                    assert!(query.port.is_none_or(|port| port == station.port));
                    assert!(query.vlan.is_none_or(|vlan| vlan == station.vlan));
                }
            }
            Err(error) => {
                assert!(!error.is_empty() && !error.contains(char::is_control), "{error:?}");
                assert_eq!((answer.error, answer.stations.len()), (error, 0));
            }
        }
    });
});

/// Puts two addresses behind each port, tagged and untagged.
fn stations() -> Stations {
    let station =
        |n: u8| (MacVlan::new([2, 0, 0, 0, 0, n], u16::from(n % 2) * 10), PORTS[n as usize / 2]);
    let statics: Vec<(MacVlan, u32)> = (0..4).map(station).collect();
    let limits = Limits { entries_max: 64, ..Limits::default() };
    set_up(limits, &statics, &PORTS.map(|port| (port, true)), 1).expect("small")
}
