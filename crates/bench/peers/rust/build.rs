//! Passes the locked versions of the libraries to the programs.

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    for (variable, package) in [("CANDLE_VERSION", "candle-core"), ("NDARRAY_VERSION", "ndarray")] {
        let after =
            lock.split_once(&format!("name = \"{package}\"\nversion = \"")).map_or("", |(_, after)| after);
        println!("cargo:rustc-env={variable}={}", after.split('"').next().unwrap_or("unknown"));
    }
}
