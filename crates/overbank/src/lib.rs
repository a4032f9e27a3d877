//! Overbank: lookup and cache tables for software data planes.
//!
//! - [`cache`]: flow caches, tables of fingerprints that answer most packets in one or two cache
//!   lines and evict what they cannot hold.
//! - [`fib`]: forwarding tables, exact maps of up to billions of entries, read by many threads
//!   while one writes.
//! - [`partition`]: the part of a small number that a key belongs to, without the keys: 1.2 to 4.4
//!   bits each.
//! - [`lookaside`]: what an index answered, kept beside it, so that most searches need no walk.
//! - [`sketch`]: which of all keys are hot, in fixed memory: count-min, Bloom filter, sampling.
//!
//! The tables are independent. They share modules: [`isa`] (the choice of vectors), [`memory`]
//! (huge pages), [`hash`], [`prefetch`], [`random`], `file` (checksummed blocks), and the words and
//! atomics that threads share.
//!
//! The crate has no threads and no clock, and no lookup allocates. It is `no_std` with `alloc`.
//! Default features add what needs more:
//!
//! | feature | |
//! |---|---|
//! | `detect` | detection of the CPU's instruction sets, and [`isa::Isa::from_env`] |
//! | `huge-pages` | tables on pages of 2 MiB and 1 GiB |
//! | `snapshot` | images of `fib` and `partition` in files, the only input and output |
//!
//! No table reads the environment: pass [`isa::Isa::from_env`] to a configuration to have the user
//! choose. With the feature `internals`, for experiments, each table asks it.

#![no_std]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod cache;
pub mod fib;
#[cfg(feature = "snapshot")]
pub mod file;
pub mod hash;
pub mod isa;
pub mod lookaside;
pub mod memory;
pub mod partition;
pub mod prefetch;
#[cfg(feature = "internals")]
pub mod random;
#[cfg(not(feature = "internals"))]
mod random;
pub mod sketch;
mod sync;
mod words;

/// The examples of the READMEs, under test.
#[cfg(doctest)]
mod readmes {
    #[doc = include_str!("../../../README.md")]
    struct Project;
    #[doc = include_str!("../README.md")]
    struct Crate;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::string::ToString;
    use std::vec::Vec;

    /// The tables. Everything else at the top of the crate is a room that they share.
    const TABLES: [&str; 5] = ["cache", "fib", "lookaside", "partition", "sketch"];
    /// A file of a table may use another one: hints are a flow cache.
    const EXCEPTIONS: [(&str, &str); 1] = [("lookaside/hints.rs", "cache")];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// Lines of code that name a table: in another table, or in a shared room.
    fn uses_of(table: &str, source: &str) -> usize {
        let paths = [std::format!("crate::{table}"), std::format!("super::{table}")];
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let names = |line: &str| {
            let after = |path: &str| line.split(path).skip(1).any(ends);
            paths.iter().any(|path| after(path))
        };
        code.filter(|line| names(line)).count()
    }

    #[test]
    fn tables_and_rooms_do_not_import_from_other_tables() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let mut seen = [0; TABLES.len()];
        for path in &files {
            let inside = path.strip_prefix(&root).unwrap();
            let owner = inside.iter().next().unwrap().to_string_lossy().to_string();
            let source = fs::read_to_string(path).unwrap();
            for (table, seen) in TABLES.iter().zip(&mut seen) {
                let uses = uses_of(table, &source);
                *seen += uses;
                let allowed = EXCEPTIONS.contains(&(&*inside.to_string_lossy(), table));
                let fine = uses == 0 || owner == *table || allowed;
                assert!(fine, "{} uses {table}", path.display());
            }
        }
        assert!(seen.iter().all(|&uses| uses > 0), "a table names itself: {seen:?}");
        let code = "use crate::toy::Key;\nuse super::super::toy;\nuse crate::toys;\n// crate::toy";
        assert_eq!((uses_of("toy", code), uses_of("other", code)), (2, 0));
    }
}
