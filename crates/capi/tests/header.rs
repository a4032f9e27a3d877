//! The header that people read is that of the code.

use std::fs;
use std::path::Path;

/// `OVERBANK_UPDATE=1` writes it.
#[test]
fn the_header_is_that_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/overbank.h");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let files = [
        "border",
        "hash",
        "cache",
        "burst",
        "fib",
        "partition",
        "sketch",
        "aside",
        "meter",
        "copies",
        "versioned",
        "view",
        "commit",
        "tree",
    ];
    let builder =
        files.iter().fold(cbindgen::Builder::new().with_config(config), |builder, file| {
            builder.with_src(root.join(format!("src/{file}.rs")))
        });
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap().replace("# Safety", "Requires:");
    if std::env::var_os("OVERBANK_UPDATE").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap();
    assert!(there == header, "overbank.h: OVERBANK_UPDATE=1 cargo test -p overbank-capi");
}
