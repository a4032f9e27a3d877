//! What came of a soak: for people, and as JSON.
//!
//! ```text
//! {"schema": "overbank-soak/1", "soaks": [{"kind", "seconds", "seed", "ok", "failures": […],
//!   "failures_all", "counts": {name: number, …}}]}
//! ```

use crate::context::Plan;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Counts and failures.
#[derive(Clone)]
pub struct Report {
    plan: Plan,
    pub counts: BTreeMap<&'static str, u64>,
    pub failures: Vec<String>,
    pub failures_all: u64,
}

impl Report {
    pub fn new(plan: Plan) -> Report {
        Report { plan, counts: BTreeMap::new(), failures: Vec::new(), failures_all: 0 }
    }

    /// For people.
    pub fn table(&self) -> String {
        let Plan { kind, seconds, seed } = self.plan;
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        for (name, n) in &self.counts {
            table.add_row([(*name).to_owned(), n.to_string()]);
        }
        if let Some(numbers) = table.column_mut(1) {
            numbers.set_cell_alignment(CellAlignment::Right);
        }
        let verdict = match self.failures_all {
            0 => "nothing broke".to_owned(),
            n => format!("{n} FAILURES\n{}", self.failures.join("\n")),
        };
        format!("{table}\n{}, {seconds} s, seed {seed}: {verdict}", kind.name())
    }

    fn json(&self) -> Value {
        json!({
            "kind": self.plan.kind.name(),
            "seconds": self.plan.seconds,
            "seed": self.plan.seed,
            "ok": self.failures_all == 0,
            "failures": self.failures,
            "failures_all": self.failures_all,
            "counts": self.counts,
        })
    }
}

/// All of them as one document.
pub fn document(reports: &[Report]) -> String {
    let soaks: Vec<Value> = reports.iter().map(Report::json).collect();
    format!("{:#}\n", json!({ "schema": "overbank-soak/1", "soaks": soaks }))
}
