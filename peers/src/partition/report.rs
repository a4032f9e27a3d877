//! The record and the tables of `partition`.

use overbank_kit::experiment::Check;
use overbank_kit::spread::Spread;
use serde_json::{Value, json};

use super::peer::{EFD, EFD_4, FLOOR, NARROW, OVERBANK, PACKED, PLAIN, VECTOR};
use super::{Cell, Entrant, Options};
use crate::output::{Block, limit, target};

/// Share of the rounds left out at each end of a spread.
const TENTH: f64 = 0.1;

impl Cell {
    fn entrant(&self, name: &str) -> Option<&Entrant> {
        self.entrants.iter().find(|entrant| entrant.peer.name == name)
    }

    /// Time to build of a peer as a multiple of another's, in the same round.
    fn build_ratio(&self, peer: &str, to: &str) -> Option<Spread> {
        let seconds = |name| Some(self.entrant(name)?.built.iter().map(|built| built.seconds));
        ratio(seconds(peer)?, seconds(to)?)
    }

    /// The same of a lookup.
    fn lookup_ratio(&self, peer: &str, to: &str) -> Option<Spread> {
        let ns = |name| Some(self.entrant(name)?.lookup_ns.iter().copied());
        ratio(ns(peer)?, ns(to)?)
    }
}

fn ratio(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> Option<Spread> {
    let ratios: Vec<f64> = a.zip(b).map(|(a, b)| a / b).filter(|ratio| ratio.is_finite()).collect();
    (!ratios.is_empty()).then(|| Spread::without(TENTH, ratios))
}

impl Entrant {
    fn bits(&self, keys: u64) -> f64 {
        self.built.last().map_or(0.0, |built| built.bytes as f64 * 8.0 / keys as f64)
    }

    fn mkeys(&self, keys: u64) -> Spread {
        let rate = self.built.iter().map(|built| keys as f64 / built.seconds / 1e6);
        Spread::without(TENTH, rate)
    }

    fn lookup_ns(&self) -> Option<Spread> {
        (!self.lookup_ns.is_empty()).then(|| Spread::without(TENTH, self.lookup_ns.iter().copied()))
    }

    fn is_floor(&self) -> bool {
        self.peer.name == FLOOR
    }
}

/// Returns the targets at a size: those of 1 and of 16 million keys.
pub fn claims(cell: &Cell) -> Vec<Check> {
    let (keys, bits) = (cell.keys, cell.value_bits);
    let size = format!("{} M keys, {bits} bits", keys as f64 / 1e6);
    let at_least = |what: String, least: f64, ratio: Option<Spread>| {
        Some(target(format!("{size}: {what}"), least, ratio?))
    };
    let mut claims = Vec::new();
    for own in [OVERBANK, NARROW] {
        if keys == 1_000_000 {
            let build = |peer: &str, least| {
                let what = format!("time to build of {peer} to {own}");
                at_least(what, least, cell.build_ratio(peer, own))
            };
            claims.push(build(PLAIN, 30.0));
            let of_vector = [(1, 3.0), (4, 7.0)].into_iter().find(|of| of.0 == bits);
            claims.extend(of_vector.map(|(_, least)| build(VECTOR, least)));
        }
        let lookup = |peer: &str, least| {
            let what = format!("time of a lookup of {peer} to {own}");
            at_least(what, least, cell.lookup_ratio(peer, own))
        };
        match (keys, bits) {
            (1_000_000, 4) => {
                let least = if own == NARROW { 1.4 } else { 1.2 };
                claims.extend([EFD, EFD_4].map(|peer| lookup(peer, least)));
            }
            (16_000_000, 4) => {
                claims.extend([EFD, EFD_4].map(|peer| lookup(peer, 1.8)));
                claims.push(lookup(VECTOR, 1.0));
            }
            (16_000_000, 2) => claims.push(cell.lookup_ratio(own, FLOOR).map(|ratio| {
                limit(format!("{size}: time of a lookup of {own} to one random line"), 1.8, ratio)
            })),
            _ => {}
        }
    }
    if keys == 16_000_000 {
        let most = [1.23, 2.29, 3.36, 4.40][bits as usize - 1];
        claims.push(cell.entrant(PACKED).map(|packed| Check {
            claim: format!("{size}: bits a key of {PACKED}"),
            stated: format!("at most {most:.2}"),
            measured: format!("{:.3}", packed.bits(keys)),
            holds: packed.bits(keys) <= most,
            reason: String::new(),
        }));
    }
    claims.into_iter().flatten().collect()
}

/// Returns a size for the JSON record.
pub fn record(cell: &Cell) -> Value {
    let rows = cell.entrants.iter().map(|entrant| {
        let name = entrant.peer.name;
        let built = (!entrant.is_floor()).then(|| entrant.mkeys(cell.keys));
        json!({
            "peer": name,
            "bits_per_key": entrant.bits(cell.keys),
            "built_mkeys": built,
            "build_ratio": built.and(cell.build_ratio(name, OVERBANK)),
            "lookup_ns": entrant.lookup_ns(),
            "lookup_ratio": cell.lookup_ratio(name, OVERBANK),
            "note": entrant.built.last().map(|built| &built.note),
        })
    });
    json!({
        "keys": cell.keys,
        "value_bits": cell.value_bits,
        "peers": rows.collect::<Vec<_>>(),
    })
}

/// Returns the sentences above the tables.
pub fn intro(options: &Options, record: &Value) -> String {
    format!(
        "Keys of 64 bits; bursts of {}; median [p10–p90] of {} rounds of lookups and {} of building (1 \
         above 2 million keys), in which the peers took turns, one process each, on core {}. × is the time in \
         that of {OVERBANK} in the same round. Every key's value was compared before lookups were \
         timed, and every timed value after. Hashing is part of building and of lookups, of the floor \
         too. built: million keys a second, one thread; {PLAIN} and {VECTOR} are one table, built in \
         two ways.\n\
         {}, {:.2} GHz TSC, {}.\n`{}`",
        options.burst,
        options.rounds,
        options.builds,
        options.core(),
        record["cpu"].as_str().unwrap_or_default(),
        record["tsc_ghz"].as_f64().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    )
}

/// Returns a size as a table.
pub fn block(cell: &Cell) -> Block {
    let header = ["peer", "bits/key", "built M/s", "build ×", "lookup ns", "lookup ×", "note"];
    let rows = cell.entrants.iter().map(|entrant| {
        let name = entrant.peer.name;
        let spread = |spread: Option<Spread>, digits| {
            spread.map_or(String::new(), |spread| spread.cell(digits))
        };
        let if_table = |text: String| if entrant.is_floor() { String::new() } else { text };
        vec![
            name.to_string(),
            format!("{:.3}", entrant.bits(cell.keys)),
            if_table(entrant.mkeys(cell.keys).cell(2)),
            if_table(spread(cell.build_ratio(name, OVERBANK), 1)),
            spread(entrant.lookup_ns(), 1),
            spread(cell.lookup_ratio(name, OVERBANK), 2),
            entrant.built.last().map_or(String::new(), |built| built.note.clone()),
        ]
    });
    let (millions, bits) = (cell.keys as f64 / 1e6, cell.value_bits);
    let title = format!("{millions} million keys, values of {bits} bits");
    Block { title, header: header.map(String::from).to_vec(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Built;
    use super::super::peer::find;
    use super::*;

    fn entrant(name: &str, seconds: &[f64], lookup_ns: &[f64]) -> Entrant {
        let built = |&seconds: &f64| Built { seconds, bytes: 9_000_000, note: String::new() };
        let (peer, built) = (find(name).unwrap(), seconds.iter().map(built).collect());
        Entrant { peer, built, lookup_ns: lookup_ns.to_vec() }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let entrants = vec![
            entrant(OVERBANK, &[1.0, 2.0], &[10.0, 20.0]),
            entrant(PACKED, &[1.0, 2.0], &[10.0, 20.0]),
            entrant(VECTOR, &[7.0, 14.4], &[20.0, 20.0]),
            entrant(EFD, &[9.0, 9.0], &[12.0, 26.0]),
            entrant(FLOOR, &[0.0, 0.0], &[5.0, 10.0]),
        ];
        let mut cell = Cell { keys: 1_000_000, value_bits: 4, entrants };
        let found = claims(&cell);
        let measured: Vec<_> = found.iter().map(|of| (of.measured.as_str(), of.holds)).collect();
        assert_eq!(measured, [("7.10 (7.00 to 7.20)", true), ("1.25 (1.20 to 1.30)", true)]);
        let Block { title, header, rows } = block(&cell);
        assert_eq!(title, "1 million keys, values of 4 bits");
        assert!(rows.iter().all(|row| row.len() == header.len()));
        assert_eq!(rows[2][3..6], ["7.1 [7.0–7.2]", "20.0 [20.0–20.0]", "1.50 [1.00–2.00]"]);
        assert_eq!((rows[4][2].as_str(), rows[4][5].as_str()), ("", "0.50 [0.50–0.50]"));
        let json = record(&cell);
        assert_eq!(json["peers"][0]["bits_per_key"], 72.0);
        assert!(json["peers"][4]["built_mkeys"].is_null());

        (cell.keys, cell.value_bits) = (16_000_000, 2);
        let found = claims(&cell);
        assert_eq!(found[0].measured, "2.00 (2.00 to 2.00)");
        assert!(!found[0].holds && found[0].stated == "at most 1.8");
        assert!(!found[1].holds && found[1].measured == "4.500", "{found:?}");
        cell.value_bits = 4;
        let held: Vec<bool> = claims(&cell).iter().map(|of| of.holds).collect();
        assert_eq!(held, [false, true, false]);
    }
}
