//! Where the golden files are: in `tests/golden`, or in the folder that `GATEWORK_GOLDEN` names, as far as it has them.

use std::path::{Path, PathBuf};

/// The folder of golden files of one kind: `automata` or `torch`.
pub fn folder(kind: &str) -> PathBuf {
    let other = std::env::var_os("GATEWORK_GOLDEN").map(PathBuf::from);
    folder_in(other.as_deref(), kind)
}

fn folder_in(other: Option<&Path>, kind: &str) -> PathBuf {
    let shipped = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(kind);
    let Some(other) = other else { return shipped() };
    assert!(other.is_dir(), "GATEWORK_GOLDEN names {}, which is no folder", other.display());
    Some(other.join(kind)).filter(|folder| folder.is_dir()).unwrap_or_else(shipped)
}

#[test]
fn another_folder_is_used_for_what_it_has() {
    let with_one_kind = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    assert_eq!(folder_in(Some(&with_one_kind), "golden"), with_one_kind.join("golden"));
    for other in [None, Some(&*with_one_kind)] {
        assert!(folder_in(other, "torch").join("optim.safetensors").is_file());
    }
}
