//! Every experiment, one file each (or one per family), and the list of them.

pub mod grid;

use crate::experiment::Experiment;

/// All experiments, in the order in which a report shows them.
pub const ALL: &[Experiment] = &[
    grid::GRID,
];

/// The experiment that people call `name`.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
