//! A clean Debian below `target/package`, made once and unpacked for each use.
//!
//! Commands run in namespaces of their process: mounts and interfaces end with it. There are a pair
//! of interfaces, eth1 and eth2, and no way out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{empty, folder, output_of};
use crate::steps::run;

/// The release that packages are for: that of the machines that build them.
const RELEASE: &str = "bookworm";

/// Goes from the machine into the root: `$1` is the folder, `$2` a script.
const ENTER: &str = r#"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
mount --rbind /dev "$1/dev"
ip link set lo up
ip link add eth1 type veth peer name eth2
ip link set eth1 up
ip link set eth2 up
exec chroot "$1" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive sh -ec "$2"
"#;

/// Changed by package managers and mounts, whatever is installed.
const NOT_COMPARED: &[&str] = &[
    "dev/",
    "proc/",
    "run/",
    "sys/",
    "tmp/",
    "var/cache/",
    "var/lib/apt/",
    "var/lib/dpkg/",
    "var/log/",
];

/// An unpacked Debian; removed when dropped.
pub struct Root {
    folder: PathBuf,
}

impl Root {
    /// Unpacks a Debian with apt, what is essential, and these packages.
    pub fn new(name: &str, packages: &str) -> Result<Root> {
        let archive = folder().join(format!("{RELEASE}-{name}.tar"));
        if !archive.exists() {
            let part = archive.with_extension("part.tar");
            let mut make = Command::new("mmdebstrap");
            make.args(["--quiet", "--variant=apt"]);
            if !packages.is_empty() {
                make.arg(format!("--include={packages}"));
            }
            run(make.arg(RELEASE).arg(&part))?;
            fs::rename(&part, &archive).with_context(|| archive.display().to_string())?;
        }
        let root = Root { folder: folder().join(format!("root-{name}")) };
        empty(&root.folder)?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&root.folder))?;
        Ok(root)
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Copies a file into the root's top folder.
    pub fn take(&self, file: &Path) -> Result<()> {
        let to = self.folder.join(file.file_name().context("a file has a name")?);
        fs::copy(file, to).with_context(|| file.display().to_string())?;
        Ok(())
    }

    /// Runs a script in it and returns what it printed; fails if any line of it does.
    pub fn run(&self, script: &str) -> Result<String> {
        let output = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, "sh"])
            .arg(&self.folder)
            .arg(format!("exec 2>&1\n{script}"))
            .stdin(Stdio::null())
            .output()
            .context("cannot run unshare")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{} in a clean Debian: {}\n{text}{errors}", output.status, script.trim());
        }
        Ok(text)
    }

    /// Returns its files and links, and the folders with `name` in their path.
    pub fn files(&self, name: &str) -> Result<Vec<String>> {
        let mut find = Command::new("find");
        find.arg(&self.folder).args(["-xdev", "-mindepth", "1"]);
        find.args(["(", "!", "-type", "d", "-o", "-path", &format!("*{name}*"), ")"]);
        let found = output_of(find.args(["-printf", "%P\\n"]))?;
        let compared = |file: &&str| !NOT_COMPARED.iter().any(|folder| file.starts_with(folder));
        let mut files: Vec<String> = found.lines().filter(compared).map(str::to_owned).collect();
        files.sort();
        Ok(files)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // The next use removes what is left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
