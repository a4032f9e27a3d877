//! Options that several commands share.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Cap of built-in flows: their tables must fit into memory.
pub const FLOWS_MAX: u32 = 100_000_000;

/// Built-in traffic, instead of a capture.
#[derive(Args)]
pub struct BuiltIn {
    /// Flows of the built-in traffic
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "capture",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(FLOWS_MAX)))]
    pub flows: u32,
    /// Zipf skew θ of the built-in traffic; 0 is uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.0, conflicts_with = "capture",
          value_parser = parse_theta)]
    pub zipf: f64,
}

/// Inputs and outputs.
#[derive(Args)]
pub struct Common {
    /// Seed of traffic, hash functions and evictions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Limit of memory for a capture, a live sample or a file of keys, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub memory: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write a page with tables and plots, readable offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Reader of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    Text,
    /// A document for machines (schemas in docs/)
    Json,
}

pub fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..=2.0).contains(&theta) => Ok(theta),
        _ => Err("must be between 0 (uniform) and 2".to_owned()),
    }
}
