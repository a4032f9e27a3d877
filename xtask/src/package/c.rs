//! The packages `liboverbank1` and `liboverbank-dev`: the tables for programs in C.
//!
//! ```text
//!  cargo cinstall ─▶ target/package/c/stage ─▶ a tree for each package ─▶ dpkg-deb ─▶ *.deb
//!                                                 dpkg-shlibdeps, -gensymbols, -gencontrol
//! ```
//!
//! What they are: `packaging/debian/c/control`. Names of the library: `crates/capi/Cargo.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::root::Root;
use super::{changelog, empty, folder, git, left, licences, lintian, output_of, says, tool, write};
use crate::root as workspace;
use crate::steps::{Counts, Steps};

const LIBRARY: &str = "liboverbank1";
const DEVELOPMENT: &str = "liboverbank-dev";
/// The name that programs ask the dynamic linker for.
const SONAME: &str = "liboverbank.so.1";
const CARGO_C: &str = "0.10.24+cargo-0.98.0";
const EXAMPLES: &str = "crates/capi/examples/c";

/// Makes both packages; returns their files, the library's first.
pub fn build(may_install: bool) -> Result<[PathBuf; 2]> {
    let work = folder().join("c");
    empty(&work)?;
    let triplet = output_of(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let libraries = Path::new("usr/lib").join(triplet.trim());
    let stage = stage(&work, &libraries, may_install)?;

    fs::create_dir(work.join("debian"))?;
    let control = workspace().join("packaging/debian/c/control");
    fs::copy(&control, work.join("debian/control")).context("packaging/debian/c/control")?;
    let (version, changes) = changelog("overbank-c")?;
    write(&work.join("debian/changelog"), &changes)?;
    let copyright = fs::read_to_string(workspace().join("packaging/debian/copyright"))?;
    let copyright = copyright.replace("the program contains", "the library contains");
    let inside = licences::of("overbank-capi", "")?.replace("The program", "The library");

    // What goes where.
    let library = work.join("debian").join(LIBRARY);
    let development = work.join("debian").join(DEVELOPMENT);
    for entry in fs::read_dir(stage.join(&libraries))? {
        let from = entry?.path();
        let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = if name.contains(".so.") { &library } else { &development };
        moved(&from, &to.join(&libraries).join(name))?;
    }
    moved(&stage.join("usr/include"), &development.join("usr/include"))?;
    let strip = |arguments: &[&str], file: &Path| {
        super::run_command(Command::new("strip").args(arguments).arg(file))
    };
    let shared = real(&library.join(&libraries).join(SONAME))?;
    strip(&["--strip-unneeded", "--remove-section=.comment"], &shared)?;
    // As Debian has them: libraries are no programs.
    super::run_command(Command::new("chmod").arg("644").arg(&shared))?;
    let archive = development.join(&libraries).join("liboverbank.a");
    strip(&["--strip-debug", "--enable-deterministic-archives"], &archive)?;
    let examples = development.join("usr/share/doc").join(DEVELOPMENT).join("examples");
    fs::create_dir_all(&examples)?;
    for entry in fs::read_dir(workspace().join(EXAMPLES))? {
        let from = entry?.path();
        fs::copy(&from, examples.join(from.file_name().context("a file has a name")?))?;
    }
    fs::copy(workspace().join("crates/capi/README.md"), examples.with_file_name("README.md"))
        .context("crates/capi/README.md")?;

    // What programs linked to it depend on, and what it depends on.
    let debian = library.join("DEBIAN");
    fs::create_dir_all(&debian)?;
    write(&debian.join("shlibs"), format!("liboverbank 1 {LIBRARY} (>= {version})\n"))?;
    write(&debian.join("triggers"), "activate-noawait ldconfig\n")?;
    let here = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&work);
        command
    };
    let since = format!("-v{}", version.trim_end_matches("-1"));
    let symbols = format!("-Odebian/{LIBRARY}/DEBIAN/symbols");
    let tree = format!("-Pdebian/{LIBRARY}");
    let lib = format!("-edebian/{LIBRARY}/{}/{SONAME}", libraries.display());
    super::run_command(here("dpkg-gensymbols").args([
        &format!("-p{LIBRARY}"),
        &tree,
        &symbols,
        &lib,
        &since,
        "-q",
    ]))?;
    let substitutions = |name: &str| format!("-Tdebian/{name}.substvars");
    let depends = format!("-e{}", shared.display());
    super::run_command(here("dpkg-shlibdeps").args([
        &format!("-S{}", &tree[2..]),
        &substitutions(LIBRARY),
        &depends,
    ]))?;
    write(&work.join(format!("debian/{DEVELOPMENT}.substvars")), "")?;
    let mut made = Vec::new();
    for name in [LIBRARY, DEVELOPMENT] {
        let tree = work.join("debian").join(name);
        let documents = tree.join("usr/share/doc").join(name);
        fs::create_dir_all(&documents)?;
        fs::create_dir_all(tree.join("DEBIAN"))?;
        write(&documents.join("copyright"), &copyright)?;
        write(&documents.join("licences"), &inside)?;
        write(&documents.join("changelog.Debian"), &changes)?;
        fs::copy(workspace().join("CHANGELOG.md"), documents.join("changelog"))?;
        // Not an upload to Debian: there is no request to close.
        let overrides = tree.join("usr/share/lintian/overrides");
        fs::create_dir_all(&overrides)?;
        let lintian = format!("{name}: initial-upload-closes-no-bugs\n");
        write(&overrides.join(name), lintian)?;
        let texts = ["licences", "changelog.Debian", "changelog"];
        super::run_command(here("gzip").arg("-9n").args(texts.map(|text| documents.join(text))))?;
        let sums = output_of(
            here("sh")
                .current_dir(&tree)
                .args(["-ec", "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum"]),
        )?;
        write(&tree.join("DEBIAN/md5sums"), sums)?;
        let package = format!("-p{name}");
        let tree_argument = format!("-Pdebian/{name}");
        let arguments = [&package, &tree_argument, &substitutions(name)];
        super::run_command(here("dpkg-gencontrol").args(arguments))?;
        let mut deb = here("dpkg-deb");
        deb.env("SOURCE_DATE_EPOCH", git(&["log", "-1", "--format=%ct"])?);
        deb.args(["--root-owner-group", "--build"]).arg(&tree).arg(folder());
        let said = output_of(&mut deb)?;
        let file = said.split('\'').nth(3).context("dpkg-deb names the package")?;
        let bytes = fs::metadata(file).with_context(|| file.to_owned())?.len();
        println!("{file}: {bytes} bytes");
        made.push(PathBuf::from(file));
    }
    <[PathBuf; 2]>::try_from(made).map_err(|_| anyhow::anyhow!("two packages"))
}

/// Builds the library and installs it below `work`.
fn stage(work: &Path, libraries: &Path, may_install: bool) -> Result<PathBuf> {
    let program = tool("cargo-c", "cargo-capi", CARGO_C, may_install)?;
    let stage = work.join("stage");
    let mut command = Command::new(program);
    command.current_dir(workspace()).args(["capi", "install", "--locked", "-p", "overbank-capi"]);
    command.args(["--profile", super::PROFILE]);
    command.args(["--prefix", "/usr", "--libdir"]).arg(Path::new("/").join(libraries));
    super::run_command(command.arg("--destdir").arg(&stage))?;
    Ok(stage)
}

/// Moves a file or folder; makes the folder that it is in.
fn moved(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a place has a folder")?)?;
    fs::rename(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))
}

/// Follows links.
fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Installs the packages in clean Debians, uses them as people do, and purges them.
pub fn check(packages: &[PathBuf; 2]) -> Result<()> {
    let [library, development] = packages;
    let mut steps = Steps::default();
    steps.step("lintian", "no errors and no warnings", || lintian(packages));
    steps.step("symbols", "only those of the header, and its name", || symbols(library));

    let with_gcc = Root::new("c", "gcc,libc6-dev,make,pkg-config,libdpdk-dev")?;
    let before = with_gcc.files("overbank")?;
    with_gcc.take(library)?;
    with_gcc.take(development)?;
    for (name, what, script, parts) in [
        (
            "install",
            "depends on nothing that is missing",
            "apt-get install --yes --no-install-recommends ./liboverbank*.deb
pkg-config --modversion overbank; pkg-config --libs overbank; pkg-config --static --libs overbank",
            &["Setting up liboverbank-dev", env!("CARGO_PKG_VERSION"), "-loverbank", "-lgcc_s"][..],
        ),
        (
            "examples",
            "are built through pkg-config and run",
            "cp -r /usr/share/doc/liboverbank-dev/examples /tmp/c; cd /tmp/c; make all l2fwd
./burst; ./fib; ./aside; ./hints; ldd burst",
            &["packets found", "readers are right", "answers are right", SONAME],
        ),
        (
            "static",
            "the archive is enough",
            "cd /tmp/c; gcc -O2 $(pkg-config --cflags overbank) burst.c -o alone -Wl,-Bstatic \
             -loverbank -Wl,-Bdynamic $(pkg-config --static --libs-only-l overbank | sed s/-loverbank//g)
./alone; if ldd alone | grep overbank; then false; fi",
            &["packets found"],
        ),
        (
            "DPDK",
            "forwards beside rte_hash",
            "cd /tmp/c; ./l2fwd 100000 3",
            &["the tables agree", "rte_hash"],
        ),
    ] {
        steps.step(name, what, || says(&with_gcc.run(script)?, parts));
    }
    steps.step("alone", "the library runs where no compiler is", || {
        let alone = Root::new("alone", "")?;
        let before = alone.files("overbank")?;
        alone.take(library)?;
        for program in ["burst", "fib", "aside", "hints"] {
            alone.take(&with_gcc.path().join("tmp/c").join(program))?;
        }
        let said = alone.run(
            "apt-get install --yes --no-install-recommends ./liboverbank1_*.deb
/burst; /fib; /aside; /hints
apt-get purge --yes liboverbank1; rm /liboverbank1_*.deb /burst /fib /aside /hints",
        )?;
        says(&said, &["packets found", "readers are right", "answers are right"])?;
        left(&before, &alone.files("overbank")?)
    });
    steps.step("purge", "leaves nothing", || {
        with_gcc.run("apt-get purge --yes liboverbank1 liboverbank-dev; rm liboverbank*.deb")?;
        left(&before, &with_gcc.files("overbank")?)
    });
    steps.finish()
}

/// Fails unless the library exports the header's functions and nothing else.
fn symbols(library: &Path) -> Result<Counts> {
    let unpacked = folder().join("c/unpacked");
    empty(&unpacked)?;
    super::run_command(Command::new("dpkg-deb").arg("-x").arg(library).arg(&unpacked))?;
    let found = output_of(Command::new("find").arg(&unpacked).args(["-name", SONAME]))?;
    let shared = real(Path::new(found.trim()))?;
    let names = output_of(Command::new("nm").args(["-D", "--defined-only"]).arg(&shared))?;
    let mut exported: Vec<&str> =
        names.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    let header = workspace().join("crates/capi/include/overbank.h");
    let header = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
    let code = header.split("/**").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let declared = code.filter(|code| !code.contains("static inline")).filter_map(|code| {
        let before = code.split_once('(')?.0;
        before.rsplit(|c: char| c.is_whitespace() || c == '*').next()
    });
    let mut declared: Vec<&str> = declared.filter(|name| name.starts_with("overbank_")).collect();
    declared.sort_unstable();
    if exported != declared {
        bail!("exported: {exported:?}\ndeclared: {declared:?}");
    }
    let dynamic = output_of(Command::new("readelf").arg("-d").arg(&shared))?;
    says(&dynamic, &[&format!("[{SONAME}]")])?;
    println!("{} symbols", exported.len());
    Ok(Counts::default())
}
