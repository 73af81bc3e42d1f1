//! Images: IDX files (the MNIST family), CIFAR binary batches, and folders of PNG files with one folder per class.

use std::path::{Path, PathBuf};

use gatework_train::files::{self, FileError};

use super::table::decompress;
use super::{DataError, Dataset, Feature, ImageShape, MAX_CLASSES, MAX_VALUES, Values};

/// Longest side of an image.
const MAX_SIDE: usize = 1 << 12;

/// Bytes of a record of a CIFAR batch: the label and three channels of 32 x 32 pixels.
const CIFAR_RECORD: usize = 1 + 3 * 32 * 32;

/// Reads the images of an IDX file, plain or gzip, and the labels of the file whose name has `labels-idx1` in place of
/// `images-idx3`.
pub fn read_idx(path: &Path) -> Result<Dataset, DataError> {
    let Some(labels_path) = labels_path(path) else {
        let message =
            "the name of a file of IDX images has images-idx3 in it, and that of its labels labels-idx1";
        return Err(DataError::content(path, message));
    };
    let read = |path: &Path| decompress(&files::read(path)?, path, MAX_VALUES as u64);
    parse_idx(&read(path)?, path, &read(&labels_path)?, &labels_path)
}

/// The path of the labels of IDX images; `None` for other files.
fn labels_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let labels = name.replace("images-idx3", "labels-idx1").replace("images.idx3", "labels.idx1");
    (labels != name).then(|| path.with_file_name(labels))
}

/// Returns all files that the data at a path are read from: IDX images with their labels, the folders of classes with their
/// files, or the file itself. They need not exist.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return std::iter::once(path.to_path_buf()).chain(labels_path(path)).collect();
    }
    let mut files = entries(path).unwrap_or_default();
    for index in 0..files.len() {
        files.extend(entries(&files[index]).unwrap_or_default());
    }
    files
}

/// Parses IDX files of images and labels; the paths name them in errors.
pub fn parse_idx(
    images: &[u8],
    path: &Path,
    labels: &[u8],
    labels_path: &Path,
) -> Result<Dataset, DataError> {
    let ([count, height, width], pixels) = idx(images, path)?;
    let ([labelled], labels) = idx(labels, labels_path)?;
    if labelled != count {
        let message = format!("{labelled} labels, but {} has {count} images", path.display());
        return Err(DataError::content(labels_path, message));
    }
    let image = ImageShape { channels: 1, height, width };
    check_size(image, path)?;
    let classes = labels.iter().max().map_or(0, |&most| usize::from(most) + 1);
    let classes = (0..classes).map(|class| class.to_string()).collect();
    of_bytes(image, pixels.to_vec(), labels.iter().map(|&label| label.into()).collect(), classes, path)
}

/// Returns the dimensions and the content of an IDX file of bytes.
fn idx<'a, const N: usize>(content: &'a [u8], path: &Path) -> Result<([usize; N], &'a [u8]), DataError> {
    let fail = |message: String| Err(DataError::content(path, message));
    let begin = 4 + 4 * N;
    if content.len() < begin || content[..3] != [0, 0, 8] || usize::from(content[3]) != N {
        return fail(format!("not an IDX file of bytes with {N} dimensions"));
    }
    let mut sizes = [0; N];
    for (size, bytes) in sizes.iter_mut().zip(content[4..begin].as_chunks::<4>().0) {
        *size = u32::from_be_bytes(*bytes) as usize;
    }
    let expected = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    let found = content.len() - begin;
    if expected != Some(found) {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let sizes = sizes.join(" x ");
        return fail(format!(
            "the header says {sizes} bytes, but {found} follow: the file is truncated or damaged"
        ));
    }
    Ok((sizes, &content[begin..]))
}

/// Reads a CIFAR-10 binary batch.
pub fn read_cifar(path: &Path) -> Result<Dataset, DataError> {
    parse_cifar(&decompress(&files::read(path)?, path, MAX_VALUES as u64)?, path)
}

/// Classes of CIFAR-10, by label.
const CIFAR_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Parses a CIFAR-10 binary batch; the path names it in errors.
pub fn parse_cifar(content: &[u8], path: &Path) -> Result<Dataset, DataError> {
    if content.is_empty() || !content.len().is_multiple_of(CIFAR_RECORD) {
        let message = format!("{} bytes are not whole CIFAR records of {CIFAR_RECORD}", content.len());
        return Err(DataError::content(path, message));
    }
    let records = content.chunks_exact(CIFAR_RECORD);
    if let Some(record) = records.clone().position(|record| usize::from(record[0]) >= CIFAR_CLASSES.len()) {
        let message =
            format!("record {record} has the label {}; there are 0 to 9", content[record * CIFAR_RECORD]);
        return Err(DataError::content(path, message));
    }
    let image = ImageShape { channels: 3, height: 32, width: 32 };
    let labels = records.clone().map(|record| record[0].into()).collect();
    let pixels = records.flat_map(|record| &record[1..]).copied().collect();
    of_bytes(image, pixels, labels, CIFAR_CLASSES.map(str::to_string).to_vec(), path)
}

/// Reads a folder with one folder of PNG files per class. Classes and files are in the order of their names. With
/// `classes`, the folders must be among them.
pub fn read_png_folder(path: &Path, classes: Option<&[String]>) -> Result<Dataset, DataError> {
    let folders: Vec<PathBuf> = entries(path)?.into_iter().filter(|entry| entry.is_dir()).collect();
    let name = |folder: &PathBuf| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = folders.iter().map(name).collect();
    if names.is_empty() || names.len() > MAX_CLASSES {
        let message = format!("{} folders of classes; there are 1 to {MAX_CLASSES}", names.len());
        return Err(DataError::content(path, message));
    }
    let classes = classes.map_or_else(|| names.clone(), <[String]>::to_vec);
    let (mut pixels, mut labels, mut shape) = (Vec::new(), Vec::new(), None::<ImageShape>);
    for (folder, name) in folders.iter().zip(&names) {
        let Some(class) = classes.iter().position(|class| class == name) else {
            return Err(DataError::content(
                folder,
                format!("the class {name:?} is not in the training data"),
            ));
        };
        let is_png =
            |file: &PathBuf| file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
        for file in entries(folder)?.into_iter().filter(is_png) {
            let found = parse_png(&files::read(&file)?, &file, &mut pixels)?;
            let first = *shape.get_or_insert(found);
            if found != first {
                let size = |image: ImageShape| format!("{}x{}x{}", image.channels, image.height, image.width);
                let message = format!("the image is {}, but the others are {}", size(found), size(first));
                return Err(DataError::content(file, message));
            }
            labels.push(class as u32);
        }
    }
    let Some(shape) = shape else {
        return Err(DataError::content(path, "no PNG file in any of its folders"));
    };
    of_bytes(shape, pixels, labels, classes, path)
}

/// The entries of a folder, sorted.
fn entries(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |error| DataError::File(FileError { action: "read", path: path.to_path_buf(), error });
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut entries: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    entries.sort();
    Ok(entries)
}

/// Decodes an 8-bit grey or RGB image and appends its channels. Transparency is ignored.
pub fn parse_png(content: &[u8], path: &Path, pixels: &mut Vec<u8>) -> Result<ImageShape, DataError> {
    let fail = |error: &dyn std::fmt::Display| {
        DataError::content(path, format!("not a PNG image that can be read: {error}"))
    };
    let mut decoder = png::Decoder::new(std::io::Cursor::new(content));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| fail(&error))?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    check_size(ImageShape { channels: 3, height, width }, path)?;
    let size = reader.output_buffer_size().ok_or_else(|| fail(&"it is too large"))?;
    let mut buffer = vec![0; size];
    let info = reader.next_frame(&mut buffer).map_err(|error| fail(&error))?;
    let (samples, channels) = (info.color_type.samples(), if info.color_type.samples() < 3 { 1 } else { 3 });
    for channel in 0..channels {
        pixels.extend(buffer[..width * height * samples].iter().skip(channel).step_by(samples));
    }
    Ok(ImageShape { channels, height, width })
}

fn check_size(image: ImageShape, path: &Path) -> Result<(), DataError> {
    let ImageShape { height, width, .. } = image;
    if height == 0 || width == 0 || height > MAX_SIDE || width > MAX_SIDE {
        let message = format!("images of {height}x{width} pixels; a side has 1 to {MAX_SIDE}");
        return Err(DataError::content(path, message));
    }
    Ok(())
}

/// Makes a data set of images.
pub(super) fn of_bytes(
    image: ImageShape,
    pixels: Vec<u8>,
    labels: Vec<u32>,
    classes: Vec<String>,
    path: &Path,
) -> Result<Dataset, DataError> {
    let pixel = |at: usize| {
        let (y, x) = (at / image.width % image.height, at % image.width);
        match image.channels {
            1 => format!("pixel_{y}_{x}"),
            _ => format!("pixel_{}_{y}_{x}", at / image.width / image.height),
        }
    };
    let features = (0..image.values()).map(|at| Feature::numeric(pixel(at))).collect();
    Dataset::from_parts(features, Values::Bytes(pixels), labels, classes, Some(image)).map_err(|error| {
        match error {
            DataError::Unusable(message) => DataError::content(path, message),
            error => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idx_images(count: u8, content: usize) -> Vec<u8> {
        let mut file = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 3];
        file.extend((0..content).map(|at| at as u8));
        file
    }

    fn idx_labels(labels: &[u8]) -> Vec<u8> {
        [&[0, 0, 8, 1, 0, 0, 0, labels.len() as u8], labels].concat()
    }

    fn parsed(images: &[u8], labels: &[u8]) -> Result<Dataset, String> {
        parse_idx(images, Path::new("images"), labels, Path::new("labels")).map_err(|error| error.to_string())
    }

    #[test]
    fn idx_files_are_read() {
        let data = parsed(&idx_images(2, 12), &idx_labels(&[1, 0])).unwrap();
        assert_eq!(data.image(), Some(ImageShape { channels: 1, height: 2, width: 3 }));
        assert_eq!((data.labels(), data.value(1, 5)), (&[1u32, 0][..], 11.0));
        assert_eq!(data.features()[5].name, "pixel_1_2");
    }

    #[test]
    fn idx_files_with_wrong_counts_are_refused() {
        for (images, labels, right) in [
            (
                idx_images(2, 11),
                idx_labels(&[1, 0]),
                "images: the header says 2 x 2 x 3 bytes, but 11 follow",
            ),
            (
                idx_images(2, 13),
                idx_labels(&[1, 0]),
                "images: the header says 2 x 2 x 3 bytes, but 13 follow",
            ),
            (idx_images(2, 12), idx_labels(&[1, 0, 0]), "labels: 3 labels, but images has 2 images"),
            (idx_labels(&[1]), idx_labels(&[1]), "images: not an IDX file of bytes with 3 dimensions"),
            (vec![], idx_labels(&[1]), "images: not an IDX file"),
            (idx_images(0, 0), idx_labels(&[]), "images: there are no rows"),
        ] {
            let message = parsed(&images, &labels).unwrap_err();
            assert!(message.starts_with(right), "{message}");
        }
    }

    #[test]
    fn cifar_records_are_read_and_checked() {
        let mut batch = vec![7u8; 2 * CIFAR_RECORD];
        batch[CIFAR_RECORD] = 9;
        let data = parse_cifar(&batch, Path::new("b.bin")).unwrap();
        assert_eq!((data.labels(), data.classes().len()), (&[7u32, 9][..], 10));
        batch[0] = 10;
        assert!(
            parse_cifar(&batch, Path::new("b.bin"))
                .unwrap_err()
                .to_string()
                .contains("record 0 has the label 10")
        );
        assert!(
            parse_cifar(&batch[1..], Path::new("b.bin")).unwrap_err().to_string().contains("not whole CIFAR")
        );
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let pixels: Vec<u8> = (0..width * height * 3).map(|at| at as u8).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        file
    }

    #[test]
    fn a_folder_of_png_files_has_a_class_for_each_folder() {
        let folder = tempfile::tempdir().unwrap();
        for (class, file, content) in
            [("cat", "1.png", png(2, 1)), ("dog", "1.png", png(2, 1)), ("dog", "2.PNG", png(2, 1))]
        {
            std::fs::create_dir_all(folder.path().join(class)).unwrap();
            std::fs::write(folder.path().join(class).join(file), content).unwrap();
        }
        let data = read_png_folder(folder.path(), None).unwrap();
        assert_eq!(
            (data.classes(), data.labels()),
            (&["cat".to_string(), "dog".into()][..], &[0u32, 1, 1][..])
        );
        assert_eq!(data.gather(&[0]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let unknown = read_png_folder(folder.path(), Some(&["cat".into()])).unwrap_err().to_string();
        assert!(unknown.contains("the class \"dog\" is not in the training data"), "{unknown}");
        std::fs::write(folder.path().join("dog/3.png"), png(1, 1)).unwrap();
        let message = read_png_folder(folder.path(), None).unwrap_err().to_string();
        assert!(message.ends_with("3.png: the image is 3x1x1, but the others are 3x1x2"), "{message}");
    }
}
