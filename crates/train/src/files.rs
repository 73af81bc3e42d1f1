//! Atomic file writes, file format versions, and errors that name the file.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file or folder that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {}", path.display(), self.cause())]
pub struct FileError {
    /// The operation, such as "read" or "write".
    pub action: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The error of the operating system.
    pub error: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, error: io::Error) -> FileError {
        FileError { action, path: path.to_path_buf(), error }
    }

    /// Describes the error. What the system says about a missing folder sounds as if the file were missing.
    fn cause(&self) -> String {
        let folder = folder_of(&self.path);
        match self.error.kind() {
            io::ErrorKind::NotFound if self.action == "write" && !folder.exists() => {
                format!("the folder {} does not exist", folder.display())
            }
            io::ErrorKind::IsADirectory => "it is a folder".into(),
            _ => self.error.to_string(),
        }
    }
}

/// A file in a format that a later version of Gatework has introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was written by a newer version of Gatework (format {found}, this program reads up to {supported}); update Gatework"
)]
pub struct NewerVersion {
    /// The version in the file.
    pub found: u64,
    /// The newest version that this program reads.
    pub supported: u64,
}

/// Checks the format version in a file. Files that were written before formats had versions have none, and are accepted.
pub fn check_version(found: Option<u64>, supported: u64) -> Result<(), NewerVersion> {
    match found {
        Some(found) if found > supported => Err(NewerVersion { found, supported }),
        _ => Ok(()),
    }
}

/// Writes a file atomically: to a temporary file in the same folder, which is synchronised and renamed. Whatever happens, the
/// path has the old content or the new. Links and permissions are kept. A device or a pipe is written to in place.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let failed = |error| FileError::new("write", path, error);
    let Ok(there) = fs::metadata(path) else { return replace(path, content, None, None).map_err(failed) };
    if there.is_file() {
        let file = fs::canonicalize(path).map_err(failed)?;
        return replace(&file, content, Some(there.permissions()), None).map_err(failed);
    }
    let mut sink = fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
    sink.write_all(content).map_err(failed)
}

/// Writes a file atomically, after the file that was there has been renamed to `previous`. At any moment at least one of the
/// two is there, and whole.
pub fn write_keeping_previous(path: &Path, previous: &Path, content: &[u8]) -> Result<(), FileError> {
    replace(path, content, None, Some(previous)).map_err(|error| FileError::new("write", path, error))
}

/// Replaces a file.
fn replace(
    path: &Path,
    content: &[u8],
    permissions: Option<fs::Permissions>,
    previous: Option<&Path>,
) -> io::Result<()> {
    let folder = folder_of(path);
    let temporary = temporary_path(folder);
    // Exclusive creation does not follow a link that someone may have put there.
    let mut file = fs::File::create_new(&temporary)?;
    let write = || {
        permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
        // Shows that the writer is alive, where the file system has locks.
        let _ = file.try_lock();
        file.write_all(content)?;
        file.sync_all()?;
        if let Some(previous) = previous.filter(|_| path.exists()) {
            fs::rename(path, previous)?;
        }
        fs::rename(&temporary, path)
    };
    // Best effort: the first error is the one to report.
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    sync_folder(folder)
}

/// Renames a file, and makes that durable.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let renamed = fs::rename(from, to).and_then(|()| sync_folder(folder_of(to)));
    renamed.map_err(|error| FileError::new("rename", from, error))
}

/// Returns the folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes renames in a folder durable, where the file system supports it.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    // A folder may be writable without being readable.
    let Ok(folder) = fs::File::open(folder) else { return Ok(()) };
    match folder.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        result => result,
    }
}

/// The begin and the end of the names of temporary files and folders; between them is a random number.
const TEMPORARY: (&str, &str) = (".gatework-", ".part");

/// Returns a path in a folder that nothing has yet, in all likelihood: the standard library seeds its hash maps from the
/// random numbers of the operating system.
pub(crate) fn temporary_path(folder: &Path) -> PathBuf {
    use std::hash::{BuildHasher as _, RandomState};
    let (begin, end) = TEMPORARY;
    folder.join(format!("{begin}{:016x}{end}", RandomState::new().hash_one(std::process::id())))
}

/// Removes temporary files and folders that killed processes have left in a folder. Errors are ignored.
pub fn remove_abandoned(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| is_temporary(path)) {
        // Opening a pipe would wait for its other end.
        let is_ours = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_dir());
        if !is_ours {
            continue;
        }
        // A process that is still writing holds a lock.
        let Ok(lock) = fs::File::open(&path) else { continue };
        if lock.try_lock().is_ok() {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// True for the names of [`temporary_path`].
pub(crate) fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let (begin, end) = TEMPORARY;
    let number = name.strip_prefix(begin.as_bytes()).and_then(|rest| rest.strip_suffix(end.as_bytes()));
    number.is_some_and(|number| number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit))
}

/// The maximum number of bytes read from a device or a pipe, which may be endless.
const MAX_STREAM: u64 = 256 << 20;

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let read = || {
        let file = fs::File::open(path)?;
        let about = file.metadata()?;
        let most = if about.is_file() { u64::MAX } else { MAX_STREAM };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(about.len()).unwrap_or(usize::MAX))?;
        file.take(most).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == most {
            return Err(io::Error::other(format!("it is not a file, and longer than {} MB", most >> 20)));
        }
        Ok(bytes)
    };
    read().map_err(|error| FileError::new("read", path, error))
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    let text = String::from_utf8(read(path)?);
    text.map_err(|_| {
        FileError::new("read", path, io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    })
}

/// Creates a folder and its parents.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| FileError::new("make the folder", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_without_leaving_temporary_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(read_text(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_permissions_and_devices_are_kept() {
        use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        write_atomic(&file, b"one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        write_atomic(&link, b"two").unwrap();
        assert_eq!(read_text(&file).unwrap(), "two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // A link to a device, so that nothing is lost if this fails.
        let device = folder.path().join("null");
        symlink("/dev/null", &device).unwrap();
        write_atomic(&device, b"three").unwrap();
        assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_endless_device_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /dev/zero: it is not a file, and longer than 256 MB");
    }

    #[test]
    fn only_abandoned_temporary_files_and_folders_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = [
            ".gatework-0123456789abcdef.part",
            ".gatework-1123456789abcdef.part",
            ".gatework-x123456789abcdef.part",
            ".gatework-0123456789abcde.part",
            "gatework-0123456789abcdef.part",
            ".gatework-0123456789abcdef.parts",
        ];
        for name in names {
            fs::write(path(name), name).unwrap();
        }
        fs::create_dir_all(path(".gatework-2123456789abcdef.part/checkpoint")).unwrap();
        let living = fs::File::open(path(names[1])).unwrap();
        living.lock().unwrap();
        remove_abandoned(folder.path());
        assert!(!path(names[0]).exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
        drop(living);
        remove_abandoned(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        remove_abandoned(&path("nowhere"));
    }

    #[test]
    fn temporary_names_are_recognised_and_cannot_be_guessed() {
        let names: Vec<PathBuf> = (0..100).map(|_| temporary_path(Path::new("folder"))).collect();
        assert!(names.iter().all(|name| is_temporary(name) && name.starts_with("folder")));
        assert!((1..100).all(|i| !names[..i].contains(&names[i])));
    }

    #[test]
    fn the_previous_file_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (path, previous) = (folder.path().join("a"), folder.path().join("a.previous"));
        for content in [b"1", b"2", b"3"] {
            write_keeping_previous(&path, &previous, content).unwrap();
        }
        assert_eq!((read_text(&path).unwrap(), read_text(&previous).unwrap()), ("3".into(), "2".into()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_newer_format_is_refused_and_a_file_without_a_version_is_accepted() {
        for found in [None, Some(1), Some(2)] {
            assert_eq!(check_version(found, 2), Ok(()));
        }
        let error = check_version(Some(3), 2).unwrap_err();
        let expected = "it was written by a newer version of Gatework (format 3, this program reads up to 2); update Gatework";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("a.txt");
        assert!(write_atomic(&path, b"one").unwrap_err().to_string().contains("a.txt"));
        assert!(read(&path).unwrap_err().to_string().starts_with("cannot read"));
    }
}
