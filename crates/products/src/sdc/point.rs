//! What `overbank-workloads` prints of a point. docs/sdc-json.md says what each field means.

pub use overbank_sdc::SLOTS;
use overbank_sdc::{Counters, Shape, WayView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cache without sets, families and sub-tags that served the same requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// As many as SDC held values, of any length.
    pub slots: u64,
    pub hits: u64,
}

/// A figure for each way of counting cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// Each miss waits.
    pub blocking: f64,
    /// Up to four misses wait together.
    pub overlap: f64,
    /// Each miss waits, and an SDC operation costs 40 cycles more.
    pub as_evaluated: f64,
}

/// Chooses one.
pub type Mode = fn(&Modes) -> f64;

/// The ways, by name.
pub const MODES: [(&str, Mode); 3] = [
    ("blocking", |of| of.blocking),
    ("overlap", |of| of.overlap),
    ("as evaluated", |of| of.as_evaluated),
];

impl Modes {
    /// Returns how many times as large each figure is.
    pub fn over(&self, other: &Modes) -> Modes {
        Modes {
            blocking: self.blocking / other.blocking,
            overlap: self.overlap / other.overlap,
            as_evaluated: self.as_evaluated / other.as_evaluated,
        }
    }

    fn all(&self) -> [f64; 3] {
        MODES.map(|(_, mode)| mode(self))
    }
}

/// A point: its settings, the machine, and what was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub index: String,
    pub system: String,
    pub items: u64,
    pub subset: u64,
    pub placement: String,
    pub lookups: u64,
    pub warmup: u64,
    pub keys: String,
    pub theta: f64,
    pub seed: u64,
    pub value_bytes: u64,
    pub table_bytes: Option<u64>,
    pub data_set_bytes: u64,
    /// Different items that were asked for, in the warm-up too.
    pub touched: u64,
    pub false_hit: String,
    pub shape: Shape,
    pub depth: Option<u64>,
    pub addresses_fixed: bool,
    pub counters: Counters,
    pub hits: u64,
    /// Lookups that ended without an answer.
    pub dropped: u64,
    /// A cache of the same keys by CLOCK alone; only with SDC and without writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Alone>,
    pub cycles_per_lookup: Modes,
    pub lookups_per_second: Modes,
    pub accesses_per_lookup: f64,
    pub dram_per_lookup: f64,
    pub sdc_lines: u64,
    /// Accesses by set, way and slot of the first level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heat: Vec<u64>,
    /// Lines of memory by what they hold; only with `heat`, and where the index knows its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelHeat>,
    /// What the last-level cache holds at the end, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<Held>,
    pub seconds: f64,
    pub hooks_per_second: f64,
}

/// Accesses to the lines of memory that one level of a tree, or the items, lie on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelHeat {
    /// `level 0` for leaves, `level 1` above them and so on; `items`; `other` for the rest.
    pub what: String,
    /// Those that were accessed.
    pub lines: u64,
    pub accesses: u64,
    /// Lines of which 3 slots or fewer have a tenth of the hottest one's accesses at least.
    pub few: u64,
    /// Accesses to the hottest slot of each line, summed.
    pub hottest: u64,
}

/// What the last-level cache holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub lines: Lines,
    pub slots: Slots,
    pub sets: Vec<SetView>,
}

/// Lines of the whole cache, by what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    pub empty: u64,
    pub ordinary: u64,
    pub sdc: u64,
}

/// Slots of all SDC lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    pub valid: u64,
    pub referenced: u64,
}

/// The ways of a set, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetView {
    pub set: u64,
    pub ways: Vec<WayView>,
}

/// Most of anything that is counted: sums of several do not overflow.
const COUNT_MAX: u64 = 1 << 56;
/// Most levels of a tree.
const LEVELS_MAX: usize = 64;
/// Most characters of a name.
const NAME_MAX: usize = 20;

impl Outcome {
    /// Reads what the program printed.
    ///
    /// # Errors
    /// Says what it printed if that is no outcome, or has what cannot be ([`Outcome::check`]).
    pub fn read(bytes: &[u8]) -> Result<Outcome, String> {
        if bytes.is_empty() {
            return Err("nothing".to_owned());
        }
        let outcome: Outcome = serde_json::from_slice(bytes)
            .map_err(|error| format!("no outcome of a point: {error}"))?;
        outcome.check().map_err(|what| format!("what cannot be: {what}"))?;
        Ok(outcome)
    }

    /// Returns the share of lookups that what stands in front answered rightly.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.lookups as f64
    }

    /// Returns SDC's false hits as a share of its lookups.
    pub fn false_hit_rate(&self) -> f64 {
        self.counters.sdc.false_hits as f64 / self.counters.sdc.lookups.max(1) as f64
    }

    /// Returns lines and ways of the level that `heat` counts.
    pub fn heat_ways(&self) -> u32 {
        self.shape.l1.unwrap_or(self.shape.llc).ways
    }

    /// Fails with the first thing that cannot be, so that figures are finite, sums do not overflow
    /// and pages have the size that the shape says.
    pub fn check(&self) -> Result<(), String> {
        let names = [&self.index, &self.system, &self.placement, &self.keys, &self.false_hit];
        let is_name = |name: &&String| {
            (1..=NAME_MAX).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
            return Err(format!("the name {name:?}"));
        }
        self.shape.check().map_err(|refused| refused.to_string())?;
        let Outcome { lookups, hits, dropped, .. } = *self;
        let table = self.table_bytes.unwrap_or(0);
        let counts = [
            ("items", self.items),
            ("lookups", lookups),
            ("warmup", self.warmup),
            ("value_bytes", self.value_bytes),
            ("table_bytes", table),
            ("data_set_bytes", self.data_set_bytes),
            ("depth", self.depth.unwrap_or(0)),
            ("touched", self.touched),
            ("clock", self.clock.map_or(0, |clock| clock.slots)),
        ];
        if let Some((name, n)) = counts.into_iter().find(|(_, n)| *n > COUNT_MAX) {
            return Err(format!("{name} {n}"));
        }
        if lookups == 0 || hits > lookups || dropped > lookups || self.subset > self.items {
            return Err(format!("{hits} hits, {dropped} dropped of {lookups} lookups"));
        }
        if let Some(clock) = self.clock.filter(|clock| clock.hits > lookups) {
            return Err(format!("{} hits of CLOCK of {lookups} lookups", clock.hits));
        }
        if self.touched > self.items.saturating_add(lookups).saturating_add(self.warmup) {
            return Err(format!("{} items touched of {}", self.touched, self.items));
        }
        let lines = self.shape.llc.bytes / 64;
        if self.sdc_lines > lines {
            return Err(format!("{} lines of SDC among {lines}", self.sdc_lines));
        }
        let rates = [self.accesses_per_lookup, self.dram_per_lookup, self.theta, self.seconds];
        let above_zero = self.lookups_per_second.all().into_iter();
        let above_zero = above_zero.chain(self.cycles_per_lookup.all());
        let finite =
            rates.into_iter().chain([self.hooks_per_second]).all(|x| (0.0..1e18).contains(&x));
        if !finite || !above_zero.into_iter().all(|x| x > 1e-9 && x < 1e18) {
            return Err("a rate that is no number above zero".to_owned());
        }
        let counters = serde_json::to_value(&self.counters).map_err(|error| error.to_string())?;
        if let Some(n) = too_large(&counters) {
            return Err(format!("a counter of {n}"));
        }
        self.check_views(lines)
    }

    fn check_views(&self, lines: u64) -> Result<(), String> {
        let first = self.shape.l1.unwrap_or(self.shape.llc);
        let slots = first.bytes as usize / SLOTS;
        if !self.heat.is_empty() && self.heat.len() != slots {
            return Err(format!("a map of {} slots; must be {slots}", self.heat.len()));
        }
        if self.heat.iter().any(|n| *n > COUNT_MAX / slots.max(1) as u64) {
            return Err("a map of accesses beyond all counts".to_owned());
        }
        let of_level = |of: &LevelHeat| {
            let name = (1..=NAME_MAX).contains(&of.what.len());
            let name = name && of.what.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ');
            let most = of.accesses.max(of.hottest).max(of.lines);
            name && most <= COUNT_MAX && of.few <= of.lines
        };
        if self.levels.len() > LEVELS_MAX || !self.levels.iter().all(of_level) {
            return Err(format!(
                "levels: more than {LEVELS_MAX}, a wrong name, or more lines of few used slots than lines"
            ));
        }
        let Some(held) = &self.llc else { return Ok(()) };
        let Lines { empty, ordinary, sdc } = held.lines;
        let sum = [empty, ordinary, sdc].into_iter().try_fold(0u64, u64::checked_add);
        if sum != Some(lines) || held.slots.valid > lines * SLOTS as u64 {
            return Err(format!("{empty}, {ordinary} and {sdc} lines; must be {lines} in all"));
        }
        let Slots { valid, referenced } = held.slots;
        if referenced > valid {
            return Err(format!("{referenced} referenced slots of {valid}"));
        }
        let (sets, ways) = (self.shape.llc.sets(), self.shape.llc.ways as usize);
        match held.sets.iter().find(|of| of.ways.len() != ways || of.set >= sets as u64) {
            Some(of) => Err(format!("set {} with {} ways", of.set, of.ways.len())),
            None => Ok(()),
        }
    }
}

/// Returns a number that is larger than any count.
fn too_large(json: &Value) -> Option<&Value> {
    match json {
        Value::Number(n) => n.as_u64().is_none_or(|n| n > COUNT_MAX).then_some(json),
        Value::Array(all) => all.iter().find_map(too_large),
        Value::Object(all) => all.values().find_map(too_large),
        _ => None,
    }
}
