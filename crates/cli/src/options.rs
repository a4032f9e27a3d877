//! Options that several commands have.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Most built-in flows: their tables must fit into memory.
pub const FLOWS_MAX: u32 = 100_000_000;

/// The built-in traffic, instead of a capture.
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

/// What is read and written, and how.
#[derive(Args)]
pub struct Common {
    /// Seed of traffic, hash functions and evictions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Most memory for the frames of a capture, or for a live sample, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub memory: usize,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write a page with tables and plots, readable offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// For whom to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    Text,
    /// A document for machines (schemas in docs/)
    Json,
}

fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..=2.0).contains(&theta) => Ok(theta),
        _ => Err("a number from 0 (uniform) to 2 is needed".to_owned()),
    }
}
