//! Compares generated parts of documents with their tables, in tests.
//!
//! In Markdown such a part stands between the lines `<!-- NAME -->` and `<!-- end -->`. A test
//! calls [`part`] or [`whole`]; with `OVERBANK_UPDATE=1` in the environment they write the document
//! instead. Panics: none; a difference is an error that says how to update.

use std::path::Path;

const UPDATE: &str = "OVERBANK_UPDATE";

/// Compares the part called `name` of the document at `path` with `text`.
///
/// # Errors
/// Fails if the document cannot be read or has no such part, or if the part differs.
pub fn part(path: impl AsRef<Path>, name: &str, text: &str) -> Result<(), String> {
    part_of(path.as_ref(), name, text, update())
}

fn part_of(path: &Path, name: &str, text: &str, update: bool) -> Result<(), String> {
    let document = read(path)?;
    let begin = format!("<!-- {name} -->\n");
    let missing = || format!("{}: no part between `{}` and `<!-- end -->`", path.display(), begin);
    let (head, rest) = document.split_once(&begin).ok_or_else(missing)?;
    let (_, tail) = rest.split_once("<!-- end -->").ok_or_else(missing)?;
    let wanted = format!("{head}{begin}{text}<!-- end -->{tail}");
    compare(path, name, &document, &wanted, update)
}

/// Compares the whole document at `path` with `text`.
///
/// # Errors
/// Fails if the document differs.
pub fn whole(path: impl AsRef<Path>, text: &str) -> Result<(), String> {
    let path = path.as_ref();
    // An unreadable document differs from any text; an update creates it.
    compare(path, "the document", &read(path).unwrap_or_default(), text, update())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns whether documents are written instead of compared.
fn update() -> bool {
    std::env::var_os(UPDATE).is_some_and(|value| value == "1")
}

fn compare(path: &Path, name: &str, is: &str, wanted: &str, update: bool) -> Result<(), String> {
    if is == wanted {
        return Ok(());
    }
    let path = path.display();
    if update {
        return std::fs::write(path.to_string(), wanted)
            .map_err(|error| format!("{path}: {error}"));
    }
    let line = 1 + is.lines().zip(wanted.lines()).take_while(|(is, wanted)| is == wanted).count();
    Err(format!(
        "{path}:{line}: {name} differs from its table; write it again with {UPDATE}=1 set:\n\
         is:     {}\nwanted: {}",
        is.lines().nth(line - 1).unwrap_or(""),
        wanted.lines().nth(line - 1).unwrap_or(""),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_differs_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.md");
        std::fs::write(&path, "head\n<!-- table -->\none\ntwo\n<!-- end -->\n").expect("written");
        assert_eq!(part_of(&path, "table", "one\ntwo\n", false), Ok(()));
        let error = part_of(&path, "table", "one\nthree\n", false).expect_err("it differs");
        assert!(error.contains("page.md:4: table differs"), "{error}");
        assert!(error.contains("is:     two\nwanted: three"), "{error}");
        let error = part_of(&path, "other", "", false).expect_err("no such part");
        assert!(error.contains("no part between `<!-- other -->"), "{error}");
        assert_eq!(part_of(&path, "table", "one\nthree\n", true), Ok(()));
        assert_eq!(part_of(&path, "table", "one\nthree\n", false), Ok(()));
    }
}
