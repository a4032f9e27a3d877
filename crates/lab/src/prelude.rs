//! What nearly every figure uses.

pub(crate) use overbank_kit::experiment::{
    Check, Claim, Column, Context, Experiment, Finding, LabError, Plot, Record, Series, Size, Table,
};
pub(crate) use overbank_kit::micro::design;
pub(crate) use overbank_kit::recommended::RECOMMENDED;
pub(crate) use overbank_kit::rounds::Rounds;
pub(crate) use overbank_kit::spread::{Spread, geometric_mean, median};
pub(crate) use overbank_kit::workload::FlowStream;

/// Shows a share as 81.25 %.
pub(crate) fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

/// Lists each as text, separated by semicolons.
pub(crate) fn listed<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    items.into_iter().map(text).collect::<Vec<_>>().join("; ")
}

/// Lists each as text; "none" without items.
pub(crate) fn listed_or_none<T>(
    items: impl IntoIterator<Item = T>,
    text: impl Fn(T) -> String,
) -> String {
    let list = listed(items, text);
    if list.is_empty() { "none".to_owned() } else { list }
}

/// Pairs each of `first` with each of `second`.
pub(crate) fn pairs<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|&a| second.iter().map(move |&b| (a, b))).collect()
}

/// Returns the value farthest from zero, with what it is of.
pub(crate) fn farthest<T>(values: impl IntoIterator<Item = (f64, T)>) -> (f64, T) {
    let most = values.into_iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    most.expect("at least one value")
}

/// Draws among `flows` flows by Zipf's law, evenly for θ = 0.
pub(crate) fn draws(flows: u32, theta: f64, seed: u64) -> Result<FlowStream, LabError> {
    FlowStream::zipf(flows, theta, seed).map_err(LabError::failed)
}

/// Returns the instruction set as a setting of a record.
pub(crate) fn isa() -> (String, String) {
    ("instruction set".to_owned(), overbank::isa::Isa::best().to_string())
}

/// Runs `work` with a context of the smoke size.
#[cfg(test)]
pub(crate) fn smoke<T>(work: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let (stop, mut silent) = (Default::default(), |_: &str, _: f64| {});
    work(&mut Context::smoke_run(&stop, &mut silent))
}

/// Returns the record of a full run that has measured nothing yet.
#[cfg(test)]
pub(crate) fn full_record(experiment: &Experiment) -> Record {
    smoke(|context| Record { size: Size::Full, ..experiment.record(context) })
}
