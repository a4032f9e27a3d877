//! Writes counters in the text format of Prometheus (OpenMetrics).
//!
//! Families keep the order in which they were first added. Several tables may add to one family
//! (`tier` of lookups, reasons of two crates); its numbers stand together. A reason appears once it
//! has occurred.

use super::{Counter, Counters, Kind, Shown};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::Error;

pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// A counter or gauge: name, meaning, one number for each set of labels.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    gauge: bool,
    values: Vec<(Labels, f64)>,
}

/// A metric computed on request and counted nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

/// All families of one response.
#[derive(Debug, Default)]
pub struct Exposition(Vec<Family>);

impl Exposition {
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// Adds the families of `C` without numbers, so that they are announced before the first count.
    pub fn announce<C: Counters>(&mut self) {
        for counter in C::TABLE.iter().filter(|counter| counter.shown == Shown::Everywhere) {
            for metric in counter.metrics {
                self.family(metric.name, counter.help, counter.kind != Kind::Counter);
            }
        }
    }

    /// Adds every number of `counters`, each with `labels`.
    pub fn add<C: Counters>(&mut self, labels: &[(&'static str, &str)], counters: &C) {
        self.announce::<C>();
        counters.visit(|counter, reason, word| {
            if counter.shown == Shown::Everywhere && (reason.is_none() || word != 0) {
                self.put(labels, counter, reason, word);
            }
        });
    }

    fn put(
        &mut self,
        labels: &[(&'static str, &str)],
        counter: &Counter,
        reason: Option<&'static str>,
        word: u64,
    ) {
        for metric in counter.metrics {
            let more = metric.label.into_iter().chain(reason.map(|reason| ("reason", reason)));
            let labels = labels.iter().copied().chain(more);
            let labels = labels.map(|(name, value)| (name, escaped(value))).collect();
            let gauge = counter.kind != Kind::Counter;
            self.family(metric.name, counter.help, gauge).values.push((labels, word as f64));
        }
    }

    /// Adds a gauge, with a value for each of its labels.
    pub fn gauge(&mut self, gauge: &Gauge, labels: &[&str], value: f64) {
        assert_eq!(labels.len(), gauge.labels.len(), "{}: one value for each label", gauge.name);
        let labels = gauge.labels.iter().zip(labels).map(|(name, text)| (*name, escaped(text)));
        let labels = labels.collect();
        self.family(gauge.name, gauge.help, true).values.push((labels, value));
    }

    fn family(&mut self, name: &'static str, help: &'static str, gauge: bool) -> &mut Family {
        let known = self.0.iter().position(|family| family.name == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(Family { name, help, gauge, values: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Returns the exposition as text.
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a string does not fail");
        text
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for family in &self.0 {
            let kind = if family.gauge { MetricType::Gauge } else { MetricType::Counter };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.values {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let labels = labels.as_slice();
                if labels.is_empty() {
                    // A family without labels has one number.
                    put(family.gauge, *value, metric)?;
                    break;
                }
                put(family.gauge, *value, metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn put(gauge: bool, value: f64, encoder: MetricEncoder<'_>) -> Result<(), Error> {
    if gauge {
        return ConstGauge::new(value).encode(encoder);
    }
    // Exact up to 2^53.
    ConstCounter::new(value as u64).encode(encoder)
}

/// Escapes a label's value, which the encoder does not.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
