//! Compiles the shim, and links it to the DPDK that pkg-config finds.

fn main() {
    #[cfg(feature = "dpdk")]
    link();
}

#[cfg(feature = "dpdk")]
fn link() {
    println!("cargo:rerun-if-changed=src/shim.c");
    let found = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk");
    let dpdk = found.unwrap_or_else(|error| {
        panic!("the feature dpdk needs DPDK 22.11 or later (Debian: libdpdk-dev): {error}")
    });
    let mut shim = cc::Build::new();
    shim.file("src/shim.c").includes(dpdk.include_paths);
    // The headers of DPDK need this minimum processor, and this header before all others.
    shim.flag("-march=corei7").flag("-include").flag("rte_config.h");
    shim.define("ALLOW_EXPERIMENTAL_API", None).define("_GNU_SOURCE", None);
    shim.warnings(true).compile("flowgauge_dpdk");
}
