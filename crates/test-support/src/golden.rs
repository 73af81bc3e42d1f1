//! Golden files: shipped in `tests/golden` of each crate, or in the folder that `GATEWORK_GOLDEN` names.

use std::path::{Path, PathBuf};

/// Returns the path of a golden file of the calling crate: `golden!("torch", "ops.safetensors")` is
/// `$GATEWORK_GOLDEN/torch/ops.safetensors` if that folder exists, else `tests/golden/ops.safetensors`. With an empty name it is
/// the folder.
#[macro_export]
macro_rules! golden {
    ($kind:expr, $name:expr) => {
        $crate::golden::file(env!("CARGO_MANIFEST_DIR"), $kind, $name)
    };
}

/// Returns the path of a golden file; see [`golden!`](crate::golden!).
///
/// # Panics
/// If `GATEWORK_GOLDEN` names something that is not a folder.
pub fn file(manifest: &str, kind: &str, name: &str) -> PathBuf {
    let other = std::env::var_os("GATEWORK_GOLDEN").map(PathBuf::from);
    file_in(other.as_deref(), manifest, kind, name)
}

fn file_in(other: Option<&Path>, manifest: &str, kind: &str, name: &str) -> PathBuf {
    let shipped = Path::new(manifest).join("tests/golden").join(name);
    let Some(other) = other else { return shipped };
    assert!(other.is_dir(), "GATEWORK_GOLDEN is {}, which is not a folder", other.display());
    let folder = other.join(kind);
    if folder.is_dir() { folder.join(name) } else { shipped }
}

#[test]
fn another_folder_is_used_for_the_kinds_it_has() {
    let manifest = env!("CARGO_MANIFEST_DIR");
    let other = Path::new(manifest);
    assert_eq!(file_in(Some(other), manifest, "src", "golden.rs"), other.join("src/golden.rs"));
    assert_eq!(file_in(Some(other), manifest, "src", ""), other.join("src/"));
    let shipped = other.join("tests/golden/golden.rs");
    assert_eq!(file_in(Some(other), manifest, "absent", "golden.rs"), shipped);
    assert_eq!(file_in(None, manifest, "src", "golden.rs"), shipped);
}
