//! Files that are written whole or not at all, and errors that name them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file or folder that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {error}", path.display())]
pub struct FileError {
    /// What was tried: "read", "write".
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, error: io::Error) -> FileError {
        FileError { action, path: path.to_path_buf(), error }
    }
}

/// Writes a file under a temporary name beside it, makes sure that it is on the disk, and renames it: whatever
/// happens, the path holds the old content or the new.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    // Another process may write the same file: each has a temporary of its own.
    name.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // Best effort: the error that is reported is the one that matters.
        let _ = fs::remove_file(&temporary);
        FileError::new("write", path, error)
    })
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(|error| FileError::new("read", path, error))
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|error| FileError::new("read", path, error))
}

/// Makes a folder and those above it.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| FileError::new("make the folder", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(read_text(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("a.txt");
        assert!(write_whole(&path, b"one").unwrap_err().to_string().contains("a.txt"));
        assert!(read(&path).unwrap_err().to_string().starts_with("cannot read"));
    }
}
