//! What `--version` says: commit, build, and the instruction sets of build and machine.

use overbank::isa::Isa;
use std::sync::LazyLock;

/// `0.1.0 (4674817b7bb1 2026-11-26)`, the commit and its day; without git, the number alone.
pub const VERSION: &str = env!("OVERBANK_VERSION");

/// Sets that the tables have kernels for, in this build.
const BUILT_IN: &[Isa] = if cfg!(target_arch = "x86_64") {
    &[Isa::Portable, Isa::Avx2, Isa::Avx512]
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    &[Isa::Portable, Isa::Neon]
} else {
    &[Isa::Portable]
};

/// Returns the answer to `--version`, after the name.
pub fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let chosen = match Isa::choose(None) {
            Ok(isa) => format!("tables take {isa}"),
            // Of the variable that names a set.
            Err(error) => error.to_string(),
        };
        format!(
            "{VERSION}\n\
             built for {}, instructions: {}\n\
             features: {}\n\
             instruction sets of the tables: {}; this CPU has: {}; {chosen}",
            env!("OVERBANK_TARGET"),
            env!("OVERBANK_TARGET_FEATURES"),
            env!("OVERBANK_FEATURES"),
            list(BUILT_IN.iter().copied()),
            list(Isa::available()),
        )
    });
    &LONG
}

fn list(sets: impl Iterator<Item = Isa>) -> String {
    sets.map(Isa::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_commit_and_instruction_sets() {
        assert!(Isa::available().all(|isa| BUILT_IN.contains(&isa)));
        let words: Vec<&str> = VERSION.split([' ', '(', ')']).filter(|w| !w.is_empty()).collect();
        assert_eq!(words[0], env!("CARGO_PKG_VERSION"));
        // From an archive without a repository: the number alone.
        if let [_, commit, day] = words[..] {
            assert!(
                commit.len() >= 12 && commit.chars().all(|c| c.is_ascii_hexdigit()),
                "{commit}"
            );
            assert_eq!(day.split('-').map(str::len).collect::<Vec<_>>(), [4, 2, 2]);
        } else {
            assert_eq!(words.len(), 1, "{VERSION}");
        }
        for part in [VERSION, "portable", env!("OVERBANK_TARGET"), "this CPU has: "] {
            assert!(long().contains(part), "{}", long());
        }
    }
}
