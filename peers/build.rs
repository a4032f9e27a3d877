//! Compiles the shims, C against the machine's DPDK and C++ against libcuckoo, and `lib/efd` of
//! DPDK's source with this machine's vectors, and links the few libraries of DPDK that are used.

/// It has no pkg-config file; the compiler finds it there.
const CUCKOO: &str = "/usr/include/libcuckoo/cuckoohash_map.hh";

/// `lib/efd` of DPDK's source.
const EFD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/efd");

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed={EFD}");
    println!("cargo::rerun-if-changed=ovs/frame.h");
    cc::Build::new().file("shim/frame.c").opt_level(3).compile("peers_frame");
    if !std::path::Path::new(CUCKOO).is_file() {
        println!("cargo::error={CUCKOO} is missing; `cargo xtask peers` installs libcuckoo");
        return;
    }
    if !std::path::Path::new(EFD).join("rte_efd.c").is_file() {
        println!("cargo::error={EFD} is missing; `cargo xtask peers` downloads it");
        return;
    }
    let mut cuckoo = cc::Build::new();
    cuckoo.cpp(true).std("c++17").file("shim/cuckoo.cc").opt_level(3).flag("-march=native");
    cuckoo.compile("peers_cuckoo");
    // Flags only: `libdpdk` links more than a hundred libraries, of which four are needed.
    let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = match dpdk {
        Ok(dpdk) => dpdk,
        Err(error) => {
            println!("cargo::error=DPDK is missing; `cargo xtask peers` installs it: {error}");
            return;
        }
    };
    let mut shim = cc::Build::new();
    shim.files(["shim/dpdk.c", "shim/fib.c"])
        .includes(&dpdk.include_paths)
        .opt_level(3)
        .flag("-march=native");
    // As in pkg-config: every file sees DPDK's configuration first.
    shim.flag("-include").flag("rte_config.h");
    shim.compile("peers_dpdk");
    // Debian's library, and the source for values of 8 and of 4 bits.
    for (name, bits) in
        [("peers_efd", None), ("peers_efd_8", Some("8")), ("peers_efd_4", Some("4"))]
    {
        let mut efd = cc::Build::new();
        efd.file("shim/efd.c").opt_level(3).flag("-march=native").warnings(false);
        efd.flag("-include").flag("rte_config.h").define("PEERS_EFD", name);
        if let Some(bits) = bits {
            efd.include(EFD).define("RTE_EFD_VALUE_NUM_BITS", bits);
        }
        efd.includes(&dpdk.include_paths).compile(&format!("{name}_calls"));
    }
    for folder in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    for library in ["rte_efd", "rte_member", "rte_hash", "rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
