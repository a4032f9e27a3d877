//! Hit rates of flow caches by calculation.
//!
//! - [`uniform`]: any number of buckets and slots, keys that are all as popular; [`geometry`]: the
//!   same by name.
//! - [`predict`]: the designs' geometries, for any popularity of flows; [`law`]: how popular flows
//!   are.
//!
//! Nothing here measures, and nothing knows traffic: `kit`, `products` and `python` do.

pub mod geometry;
pub mod law;
pub mod predict;
pub mod uniform;
