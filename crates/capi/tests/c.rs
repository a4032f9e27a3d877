//! The interface as programs in C have it: `tests/c`, plain, under sanitizers and under valgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use overbank_testing::needs;
use tempfile::TempDir;

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
/// What a Rust archive needs of the system.
const SYSTEM: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];
const OPERATIONS: &str = "20000";
/// Under valgrind, which is 30 times slower.
const OPERATIONS_VALGRIND: &str = "2000";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns what a command printed; fails with it if the command does.
fn succeeds(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
    output
}

fn there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the files below a folder, by their ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|name| name == ending) {
            found.push(path);
        }
    }
    found
}

/// Links the library that these tests were built with into an archive for C: no second build.
fn archive(folder: &TempDir) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap();
    let time = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let ours = |path: &PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with("liboverbank_capi-")
    };
    let library = files(built, "rlib").into_iter().filter(ours).max_by_key(time).unwrap();
    // There may be several, with other features; each is right that has these sources.
    let sources = ["src", "../overbank/src"].map(|path| files(&root().join(path), "rs")).concat();
    let newest = sources.iter().map(time).max().unwrap();
    assert!(time(&library) >= newest, "{}: older than its sources", library.display());
    let (source, archive) = (folder.path().join("linked.rs"), folder.path().join("liboverbank.a"));
    fs::write(&source, "extern crate overbank_capi;").unwrap();
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc.args(["--edition=2024", "--crate-type=staticlib", "-L"]).arg(built);
    rustc.arg("--extern").arg(format!("overbank_capi={}", library.display()));
    succeeds(rustc.arg("-o").arg(&archive).arg(source));
    archive
}

/// Compiles the tests with gcc and returns the program.
fn compile(folder: &TempDir, flags: &[&str]) -> PathBuf {
    let program = folder.path().join("main");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c17", "-g", "-O1", "-pthread", "-D_POSIX_C_SOURCE=200809L"]);
    gcc.args(WARNINGS).args(flags).arg("-I").arg(root().join("include"));
    gcc.args(files(&root().join("tests/c"), "c")).arg(archive(folder)).args(SYSTEM);
    succeeds(gcc.arg("-o").arg(&program));
    program
}

/// Runs the tests; `isa` empty is the best that the CPU has.
fn run(mut program: Command, folder: &TempDir, isa: &str, operations: &str) {
    succeeds(program.arg(folder.path()).args([isa, operations]));
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Instruction sets that this machine has, and the choice of the library.
fn sets() -> impl Iterator<Item = &'static str> {
    overbank::isa::Isa::available().map(overbank::isa::Isa::name).chain([""])
}

#[test]
fn every_function_does_as_it_says_on_every_instruction_set() {
    if !needs("gcc", there("gcc")) {
        return;
    }
    let folder = folder();
    let program = compile(&folder, &[]);
    for isa in sets() {
        run(Command::new(&program), &folder, isa, OPERATIONS);
    }
}

/// Leaks too, at the end of the program.
#[test]
fn address_sanitizer_finds_nothing() {
    if !needs("gcc", there("gcc")) {
        return;
    }
    let folder = folder();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let mut program = Command::new(compile(&folder, &flags));
    program.env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1");
    run(program, &folder, "", OPERATIONS);
}

/// It knows no AVX-512 and no huge pages.
#[test]
fn valgrind_finds_nothing() {
    if !needs("gcc and valgrind", there("gcc") && there("valgrind")) {
        return;
    }
    let folder = folder();
    let program = compile(&folder, &[]);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes"]);
    run(
        {
            valgrind.arg(program);
            valgrind
        },
        &folder,
        "portable",
        OPERATIONS_VALGRIND,
    );
}

/// `gcc` and `g++` must be there; clang is asked if it is.
#[test]
fn the_header_is_strict_c17_and_cpp20() {
    if !needs("gcc and g++", there("gcc") && there("g++")) {
        return;
    }
    let folder = folder();
    let languages = [("c17", "c", &["gcc", "clang"]), ("c++20", "c++", &["g++", "clang++"])];
    for (standard, language, compilers) in languages {
        let source = folder.path().join("header.source");
        // Twice, and something of each kind: a constant, a struct, a call.
        let text = "#include <overbank.h>\n#include <overbank.h>\n\
            uint64_t hashes[OVERBANK_BURST];\n\
            enum overbank_status probe(struct overbank_burst *burst, struct overbank_cache *cache);\n\
            enum overbank_status probe(struct overbank_burst *burst, struct overbank_cache *cache) {\n\
            hashes[0] = overbank_mix(burst->hits);\n\
            return overbank_burst_probe(burst, cache, hashes, 1, NULL, 0); }\n";
        fs::write(&source, text).unwrap();
        for compiler in compilers.iter().filter(|name| there(name)) {
            let mut command = Command::new(compiler);
            command.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]);
            command.args(WARNINGS).arg("-I").arg(root().join("include"));
            // As with the flags of careful people.
            command.arg("-Wconversion");
            if language == "c" {
                command.args(["-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes"]);
            }
            succeeds(command.arg(&source));
        }
    }
}

/// By name, in `tests/c`.
#[test]
fn every_function_is_called_from_c() {
    let header = fs::read_to_string(root().join("include/overbank.h")).unwrap();
    let sources: String = files(&root().join("tests/c"), "c")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let code = header.split("/**").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let names = |text: &str| -> Vec<String> {
        let calls = text.match_indices('(').map(|(at, _)| &text[..at]);
        let word = |before: &str| {
            let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            before[start.map_or(0, |at| at + 1)..].to_owned()
        };
        calls.map(word).filter(|name| name.starts_with("overbank_")).collect()
    };
    let declared: Vec<String> = code.flat_map(names).collect();
    let called = names(&sources);
    assert!(declared.len() > 40, "{declared:?}");
    let missing: Vec<_> = declared.iter().filter(|name| !called.contains(name)).collect();
    assert!(missing.is_empty(), "no test in C calls {missing:?}");
}
