//! The public face of the tables as a list in the tree: a change of the face changes the list.
//!
//! `cargo public-api` prints the same. It reads what rustdoc says in JSON, which is not stable yet:
//! rustdoc has to be let, and other versions of it write other formats.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;
use crate::test::cargo;

/// Of rustdoc's JSON, as the library reads it.
const FORMAT: u64 = 57;

const LIST: &str = "crates/overbank/public-api.txt";

/// Compares the crate with its list, or writes the list anew (`OVERBANK_UPDATE=1`); returns why
/// this toolchain cannot.
pub fn run() -> Result<Option<String>> {
    let mut command = cargo("rustdoc -p overbank --lib --locked --target-dir target/api --");
    command.args("-Z unstable-options --output-format json --cap-lints allow".split(' '));
    let output = command.env("RUSTC_BOOTSTRAP", "1").output().context("cargo rustdoc")?;
    if !output.status.success() {
        bail!("cargo rustdoc: {}", String::from_utf8_lossy(&output.stderr));
    }
    let path = root().join("target/api/doc/overbank.json");
    let json = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let format = serde_json::from_str::<Value>(&json)?["format_version"].as_u64();
    if format != Some(FORMAT) {
        return Ok(Some(format!("rustdoc writes format {format:?}, not {FORMAT}")));
    }
    let face = public_api::Builder::from_rustdoc_json(&path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    let face: String = face.items().map(|item| format!("{item}\n")).collect();
    let list = root().join(LIST);
    if std::env::var_os("OVERBANK_UPDATE").is_some() {
        fs::write(&list, face)?;
        return Ok(None);
    }
    let listed = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let missing = |from: &str, of: &str| -> String {
        let lines = from.lines().filter(|line| !of.lines().any(|other| other == *line));
        lines.map(|line| format!("\n  {line}")).collect()
    };
    if listed != face {
        let (gone, new) = (missing(&listed, &face), missing(&face, &listed));
        bail!(
            "the public face of overbank is not that of {LIST}; if it has to change, write the \
             list anew with `OVERBANK_UPDATE=1 cargo xtask test api`\nonly in the list:{gone}\n\
             only in the crate:{new}"
        );
    }
    Ok(None)
}
