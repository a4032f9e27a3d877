//! What the tables can do: the answer to a request for table features, the same for every table.

use overbank_openflow::{
    Name, OxmField, Version,
    multipart::{TableFeatures, TableProperty},
};

use super::convert::fields;
use super::session::TABLES;

/// Goto, write-actions, apply-actions, clear-actions.
const INSTRUCTIONS: [u16; 4] = [1, 3, 4, 5];
/// Output, push VLAN, pop VLAN, set TTL, decrement TTL, set field.
const ACTIONS: [u16; 6] = [0, 17, 18, 23, 24, 25];

/// Returns the features of all tables; each may have up to `entries_max` rules.
pub(super) fn features(version: Version, entries_max: usize) -> Vec<TableFeatures> {
    let ids = |fields: &mut dyn Iterator<Item = OxmField>| -> Vec<u32> {
        fields.filter_map(|field| field.id(version)).collect()
    };
    let matched = ids(&mut fields::matchable());
    let set = ids(&mut fields::settable());
    (0..TABLES)
        .map(|table| TableFeatures {
            table,
            command: 0,
            features: 0,
            name: Name::new(&format!("table{table}")),
            metadata_match: 0,
            metadata_write: 0,
            config: 0,
            entries_max: u32::try_from(entries_max).unwrap_or(u32::MAX),
            properties: vec![
                TableProperty::Instructions { miss: false, types: instructions(table) },
                TableProperty::NextTables { miss: false, tables: (table + 1..TABLES).collect() },
                TableProperty::WriteActions { miss: false, types: ACTIONS.to_vec() },
                TableProperty::ApplyActions { miss: false, types: ACTIONS.to_vec() },
                TableProperty::Match(matched.clone()),
                TableProperty::Wildcards(matched.clone()),
                TableProperty::WriteSetField { miss: false, fields: set.clone() },
                TableProperty::ApplySetField { miss: false, fields: set.clone() },
            ],
        })
        .collect()
}

/// Returns the instructions of a table; the last one has no `goto_table`.
fn instructions(table: u8) -> Vec<u16> {
    INSTRUCTIONS.into_iter().filter(|&kind| kind != 1 || table + 1 < TABLES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_reports_its_features() {
        for version in Version::ALL {
            let tables = features(version, 1000);
            assert_eq!(tables.len(), 255);
            assert!(tables.iter().all(|table| table.properties.len() == 8));
            let next = |table: usize| match &tables[table].properties[1] {
                TableProperty::NextTables { tables, .. } => tables.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!((next(0), next(253), next(254)), (254, 1, 0));
        }
    }
}
