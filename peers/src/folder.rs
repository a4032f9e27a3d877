//! A private folder, removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A folder, by default below the system's temporary one: names of sockets must be short.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the folder.
    pub fn new(name: &str) -> Result<Folder> {
        Folder::below(&std::env::temp_dir(), name)
    }

    /// Creates the folder below another one, for what is large.
    pub fn below(parent: &Path, name: &str) -> Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, nth) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("overbank-peers-{process}-{nth}-{name}"));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
