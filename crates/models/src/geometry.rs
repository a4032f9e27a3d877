//! Geometries of any number of buckets H and slots m, by name: `set-6`, `blp-3-5`, `cuckoo-2-12`.
//!
//! The tables of `overbank::cache` exist for the geometries that are fast;
//! [`uniform`] speaks of any.
//!
//! ```text
//!  set-m        [ m slots ]                        one bucket a key
//!  blp-H-m      [ ][▪][▪][▪][ ]                    H side by side; H − 1 buffer buckets at the end
//!  cuckoo-H-m   [▪][ ][ ][▪][ ][▪]                 H anywhere, not all different
//! ```

use crate::uniform::{self, ModelError};
use overbank::cache::GeometryKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Set,
    Blp,
    Cuckoo,
}

/// A geometry: H buckets of m slots a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyGeometry {
    pub family: Family,
    pub h: u32,
    pub m: u32,
}

impl From<GeometryKind> for AnyGeometry {
    fn from(kind: GeometryKind) -> AnyGeometry {
        kind.name().parse().expect("kinds are named as geometries are")
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    #[error("{0:?}: expected set-M, blp-H-M or cuckoo-H-M, with H buckets of M slots")]
    Name(String),
    #[error("{0}: {1}")]
    Model(String, ModelError),
}

impl std::str::FromStr for AnyGeometry {
    type Err = GeometryError;

    fn from_str(text: &str) -> Result<AnyGeometry, GeometryError> {
        let parts: Vec<&str> = text.split('-').collect();
        let number = |text: &str| {
            // "+5" is a number to the standard library.
            text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
        };
        let numbers: Option<Vec<u32>> = parts[1..].iter().map(|part| number(part)).collect();
        let (family, h, m) = match (parts[0], numbers.as_deref()) {
            ("set", Some(&[m])) => (Family::Set, 1, m),
            ("blp", Some(&[h, m])) => (Family::Blp, h, m),
            ("cuckoo", Some(&[h, m])) => (Family::Cuckoo, h, m),
            _ => return Err(GeometryError::Name(text.to_owned())),
        };
        let checked = uniform::check(h, m, 1.0);
        checked.map_err(|error| GeometryError::Model(text.to_owned(), error))?;
        Ok(AnyGeometry { family, h, m })
    }
}

impl std::fmt::Display for AnyGeometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AnyGeometry { family, h, m } = self;
        match family {
            Family::Set => write!(f, "set-{m}"),
            Family::Blp => write!(f, "blp-{h}-{m}"),
            Family::Cuckoo => write!(f, "cuckoo-{h}-{m}"),
        }
    }
}

impl AnyGeometry {
    /// Returns the final hit rate with uniform keys by model, 0 to 1; of cuckoo-lite an upper
    /// bound.
    pub fn hit_rate(self, alpha: f64) -> Result<f64, ModelError> {
        let AnyGeometry { family, h, m } = self;
        uniform::check(h, m, alpha)?;
        Ok(match family {
            Family::Set => uniform::set_assoc(m, alpha),
            Family::Blp => uniform::blp(h, m, alpha),
            Family::Cuckoo => uniform::cuckoo_bound(h, m, alpha),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(name: &str) -> AnyGeometry {
        name.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn names() {
        for name in ["set-1", "set-1024", "blp-3-5", "cuckoo-8-128", "blp-1024-1"] {
            assert_eq!(geometry(name).to_string(), name);
        }
        // What there are kernels for has the same name.
        for &kind in GeometryKind::ALL {
            assert_eq!(AnyGeometry::from(kind).to_string(), kind.name());
        }
        for name in ["", "set", "set-", "set-x", "set-+4", "blp-4", "set-2-4", "lru-4", "blp-2-4-8"]
        {
            assert_eq!(
                name.parse::<AnyGeometry>(),
                Err(GeometryError::Name(name.to_owned())),
                "{name}"
            );
        }
        for name in ["set-0", "blp-0-4", "set-1025", "cuckoo-4294967295-4294967295"] {
            let error = name.parse::<AnyGeometry>().unwrap_err();
            assert!(
                matches!(error, GeometryError::Model(..)) && error.to_string().contains("1024")
            );
        }
    }
}
