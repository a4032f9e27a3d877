//! The licences of the crates inside a program: their list, and each text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::output_of;
use crate::test::cargo;

/// Beginnings of the names of files that crates want passed on.
const FILES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

const HEAD: &str = "\
The program contains the crates below under their licences, and Rust's standard library (MIT or
Apache-2.0). Where a crate has files of its licence, their texts follow, each once.

";

/// Returns the document for a package of the workspace, built with these arguments of cargo.
pub fn of(package: &str, arguments: &str) -> Result<String> {
    let mut tree = cargo("tree --locked -e normal,no-proc-macro --prefix none --format {p} -p");
    tree.arg(package).args(arguments.split_whitespace());
    let tree = output_of(&mut tree)?;
    // `NAME vVERSION`, and more where the crate is a path or was listed before.
    let linked: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some((name, rest.split(' ').next()?))
        })
        .collect();
    let metadata: Value =
        serde_json::from_str(&output_of(&mut cargo("metadata --format-version 1 --locked"))?)?;
    let mut list = String::from(HEAD);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        // Those of the workspace have no source: the package's copyright file is theirs.
        if package["source"].is_null() || !linked.contains(&(name, version)) {
            continue;
        }
        // Writing to a string does not fail.
        let _ = writeln!(list, "{:40} {}", format!("{name} {version}"), text("license"));
        let folder =
            Path::new(text("manifest_path")).parent().context("a manifest has a folder")?;
        for text in files(folder)? {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, a), (_, b)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    for (text, crates) in texts {
        let _ = write!(list, "\n{}\n{}:\n\n{text}\n", "-".repeat(79), crates.join(", "));
    }
    Ok(list)
}

/// Returns the texts in the folder of a crate.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && FILES.iter().any(|begin| name.starts_with(begin)) {
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            let text = String::from_utf8_lossy(&text).replace('\r', "");
            texts.push(text.trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_stands_once_and_each_crate_has_its_licence() {
        let document = of("xtask", "").expect("the tree can be read");
        let line = document.lines().find(|line| line.starts_with("clap ")).expect("it is linked");
        assert!(line.ends_with(" MIT OR Apache-2.0"), "{line}");
        assert!(!document.contains("\noverbank"), "ours are not among them");
        assert!(!document.contains("\nserde_derive "), "nor what runs at build time only");
        let apache = document.matches("TERMS AND CONDITIONS FOR USE, REPRODUCTION").count();
        let crates = document.lines().filter(|line| line.contains("Apache-2.0")).count();
        assert!(0 < apache && apache < crates, "{apache} texts for {crates} crates");
    }
}
