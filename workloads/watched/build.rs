//! Compiles the indexes in C by clang, with a call of a hook at every load and store. Without the
//! wrapper of rustc, which does the same to Rust, compiles them as they are: for valgrind and QEMU.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Carries LMDB's source: its branch of version 1.0, which lets a program choose the page size.
const LMDB: &str = "lmdb-master3-sys";

/// Names workloads/rustc.sh to cargo.
const WRAPPER: &str = "RUSTC_WRAPPER";

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rerun-if-env-changed={WRAPPER}");
    let source = match lmdb() {
        Ok(source) => source,
        Err(why) => {
            println!("cargo::error={LMDB}: no source: {why}");
            return;
        }
    };
    // LMDB, the others, and the trees: one archive each.
    watched()
        .warnings(false)
        .define("NDEBUG", None)
        .define("MDB_IDL_LOGN", "16")
        .define("mmap", "watched_map")
        .files([source.join("mdb.c"), source.join("midl.c")])
        .include(&source)
        .compile("watched_mdb");
    watched().files(["c/memory.c", "c/hash.c", "c/lmdb.c"]).include(&source).compile("watched_c");
    for (name, width, versioned) in [("bplus", "19", false), ("masstree", "15", true)] {
        let mut tree = watched();
        tree.file("c/tree.c").define("TREE", name).define("WIDTH", width);
        if versioned {
            tree.define("VERSIONED", None);
        }
        tree.compile(&format!("watched_{name}"));
    }
    // cc puts callers after what they call; the linker wants memory.c once more.
    println!("cargo::rustc-link-lib=static=watched_c");
}

fn watched() -> cc::Build {
    let mut build = cc::Build::new();
    build.compiler("clang").opt_level(2).debug(false).std("gnu11");
    build.include("c").define("_GNU_SOURCE", None);
    // Memory at fixed addresses (workloads/src/arena.rs).
    for name in ["malloc", "calloc", "realloc", "free"] {
        build.define(name, format!("overbank_{name}").as_str());
    }
    let wrapper = std::env::var(WRAPPER).unwrap_or_default();
    if wrapper.ends_with("workloads/rustc.sh") {
        build.flag("-fno-builtin").flag("-fsanitize-coverage=func,trace-loads,trace-stores");
        build.flag("-include").flag("c/memory.h");
    }
    build
}

/// Returns the folder of LMDB's source, which cargo has downloaded.
fn lmdb() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").ok_or("CARGO is not set: build by cargo")?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .output()
        .map_err(|error| error.to_string())?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let manifest = packages
        .iter()
        .find(|package| package["name"] == LMDB)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or("not in Cargo.lock")?;
    let folder = Path::new(manifest).with_file_name("lmdb").join("libraries/liblmdb");
    if folder.join("mdb.c").is_file() {
        Ok(folder)
    } else {
        Err(format!("{folder:?} has no mdb.c"))
    }
}
