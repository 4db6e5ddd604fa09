//! The data of a cell in the identity: they enter it by content, wherever they lie.

use super::refusal::{BindError, Refusal};
use crate::host::files;
use crate::host::sums::Stamp;
use crate::record::Digest;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub(super) const DIGEST: &str = "data.digest";
/// Kinds of data that are stored in files.
const FILES: [&str; 5] = ["idx", "cifar10", "folder", "coco", "text"];
const IDX_FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
const CIFAR_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// The data files as they were when the run id was computed.
#[derive(Debug)]
pub struct DataFiles {
    kind: String,
    path: PathBuf,
    /// The digest of all names, in their order.
    names: Digest,
    /// The digest of each file, in the same order.
    contents: Vec<Digest>,
    /// The stamp of each file when its content was last compared.
    stamps: Mutex<Vec<Stamp>>,
}

impl PartialEq for DataFiles {
    fn eq(&self, other: &Self) -> bool {
        let place = (&self.kind, &self.path) == (&other.kind, &other.path);
        place && (self.names, &self.contents) == (other.names, &other.contents)
    }
}

impl DataFiles {
    /// Reads the files of a kind of data. Also returns the digest of names and contents. Fails if `is_over` returns
    /// true.
    pub(super) fn read(
        kind: &str,
        path: &Path,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Self, Digest), BindError> {
        let files = list(kind, path, is_over)?;
        let paths = paths(&files);
        // Stamps come before contents: a file that is written meanwhile gets another stamp.
        let stamps = files::stamps(&paths, is_over)?;
        let contents = files::digest_contents(&paths, is_over)?;
        let pieces: Vec<&[u8]> = files
            .iter()
            .zip(&contents)
            .flat_map(|((name, _), digest)| [name.as_bytes(), digest.0.as_slice()])
            .collect();
        let digest = Digest::of_pieces("ledger data v1", &pieces);
        let (names, stamps) = (digest_of_names(&files), Mutex::new(stamps));
        Ok((Self { kind: kind.to_owned(), path: path.to_owned(), names, contents, stamps }, digest))
    }

    /// How the data differ from those that the run id was computed from, if they do.
    ///
    /// # Errors
    /// If the data cannot be read, or `is_over` ended the check.
    pub(super) fn changed(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<String>, BindError> {
        let text = |found| format!("the data changed after the run id was computed: {found}");
        Ok(self.difference(is_over)?.map(text))
    }

    fn difference(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<String>, BindError> {
        let files = list(&self.kind, &self.path, is_over)?;
        if files.len() != self.contents.len() {
            let (path, now, before) = (self.path.display(), files.len(), self.contents.len());
            return Ok(Some(format!("`{path}` has another number of data files: {now}, before {before}")));
        }
        if digest_of_names(&files) != self.names {
            return Ok(Some(format!("files of `{}` have other names", self.path.display())));
        }
        let paths = paths(&files);
        let now = files::stamps(&paths, is_over)?;
        // Locked meanwhile, so that only one of several attempts reads at a time.
        let mut before = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let written = |at: usize| Ok(Some(format!("`{}` was written to", paths[at].display())));
        if let Some(at) = (0..paths.len()).find(|at| now[*at].size() != before[*at].size()) {
            return written(at);
        }
        // The stamp changes if a file is touched, moved, linked or copied, or its owner changes, and on some file
        // systems by itself. Then the content decides.
        let unsure: Vec<(usize, bool)> =
            (0..paths.len()).filter(|at| now[*at] != before[*at]).map(|at| (at, now[at].is_settled_now())).collect();
        let contents = files::digest_contents(&unsure.iter().map(|(at, _)| paths[*at]).collect::<Vec<_>>(), is_over)?;
        for ((at, is_settled), content) in unsure.into_iter().zip(contents) {
            if content != self.contents[at] {
                return written(at);
            }
            if is_settled {
                before[at] = now[at];
            }
        }
        Ok(None)
    }
}

fn paths(files: &[(String, PathBuf)]) -> Vec<&Path> {
    files.iter().map(|(_, path)| path.as_path()).collect()
}

fn digest_of_names(files: &[(String, PathBuf)]) -> Digest {
    Digest::of_pieces("ledger data names v1", &files.iter().map(|(name, _)| name.as_bytes()).collect::<Vec<_>>())
}

/// Whether data with this name are stored in files.
pub(super) fn is_of_files(name: &str) -> bool {
    FILES.contains(&name)
}

/// The files of a kind of data, with their names in the identity.
fn list(kind: &str, path: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<(String, PathBuf)>, BindError> {
    match kind {
        "idx" => named(path, &IDX_FILES, |file| [file.to_owned(), format!("{file}.gz")], " (plain or .gz)"),
        "cifar10" => named(path, &CIFAR_FILES, |file| [file.to_owned(), file.to_owned()], ""),
        "folder" => Ok(files::pictures(path, is_over)?),
        "coco" => coco(path, is_over),
        _ if path.is_file() => Ok(vec![(String::new(), path.to_owned())]),
        _ => Ok(files::texts(path)?),
    }
}

/// Finds required files, each under one of two names.
fn named(
    directory: &Path,
    files: &[&str],
    names: impl Fn(&str) -> [String; 2],
    forms: &str,
) -> Result<Vec<(String, PathBuf)>, BindError> {
    let find = |file: &&str| -> Result<_, BindError> {
        let path = names(file).iter().map(|name| directory.join(name)).find(|path| path.is_file());
        let missing = || Refusal::NoData { path: directory.to_owned(), file: format!("{file}{forms}") };
        Ok(((*file).to_owned(), path.ok_or_else(missing)?))
    };
    files.iter().map(find).collect()
}

/// The files of a folder with COCO's layout, by relative path: annotations of training and evaluation, then their
/// pictures.
fn coco(directory: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<(String, PathBuf)>, BindError> {
    let only = |folder: &str, begin: &str, end: &str, directories: bool, file: &str| {
        let fits = |path: &Path| if directories { path.is_dir() } else { path.is_file() };
        let found = files::beginning(&directory.join(folder), begin, end)?;
        let mut fitting = found.into_iter().filter(|(_, path)| fits(path));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(BindError::from(Refusal::NoData { path: directory.to_owned(), file: file.to_owned() })),
            (Some((first, _)), Some((second, _))) => {
                let file = format!("single {file}, but `{first}` and `{second}`");
                Err(Refusal::NoData { path: directory.to_owned(), file }.into())
            }
        }
    };
    let mut all = Vec::new();
    for half in ["train", "val"] {
        let annotations = format!("annotations/instances_{half}*.json");
        let (name, path) = only("annotations", &format!("instances_{half}"), ".json", false, &annotations)?;
        all.push((format!("annotations/{name}"), path));
    }
    for half in ["train", "val"] {
        let (name, path) = only("", half, "", true, &format!("folder {half}* of pictures"))?;
        let pictures = files::pictures(&path, is_over)?;
        all.extend(pictures.into_iter().map(|(below, path)| (format!("{name}/{below}"), path)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_digest_of_data_hashes_names_and_contents() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("below")).unwrap();
        let names = ["b.txt", "a.txt", ".c.txt", "D.TXT", "below/e.txt"];
        names.iter().for_each(|name| fs::write(root.path().join(name), name).unwrap());
        let of = |names: &[&str], kind: &str, path: &Path| {
            let pieces: Vec<Vec<u8>> = names
                .iter()
                .flat_map(|name| {
                    let content = Digest::of(path.join(name).file_name().unwrap().as_encoded_bytes());
                    [name.as_bytes().to_vec(), content.0.to_vec()]
                })
                .collect();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            assert_eq!(
                DataFiles::read(kind, path, &|| false).unwrap().1,
                Digest::of_pieces("ledger data v1", &pieces),
                "{kind}"
            );
        };
        of(&["a.txt", "b.txt"], "text", root.path());
        let one = DataFiles::read("text", &root.path().join("a.txt"), &|| false).unwrap().1;
        assert_eq!(one, Digest::of_pieces("ledger data v1", &[b"", &Digest::of(b"a.txt").0]));
    }

    #[test]
    fn changed_data_are_noticed_but_moved_data_are_not() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("a.txt"), "one").unwrap();
        fs::write(path("b.txt"), "two").unwrap();
        let (files, digest) = DataFiles::read("text", root.path(), &|| false).unwrap();
        let said = |files: &DataFiles| {
            let said = files.changed(&|| false).map_err(|error| error.to_string());
            said.map(|said| said.map(|said| said.replace(&root.path().display().to_string(), "ROOT")))
        };
        let text = |found: &str| Ok(Some(format!("the data changed after the run id was computed: {found}")));
        assert_eq!(said(&files), Ok(None));
        let time = fs::metadata(path("a.txt")).unwrap().modified().unwrap();
        let with_time = |content: &str| {
            fs::write(path("new"), content).unwrap();
            fs::File::options().write(true).open(path("new")).unwrap().set_modified(time).unwrap();
            fs::rename(path("new"), path("a.txt")).unwrap();
        };
        with_time("one");
        fs::hard_link(path("b.txt"), path("kept")).unwrap();
        assert!(files.changed(&|| true).is_err(), "nobody has looked");
        assert_eq!(said(&files), Ok(None), "another inode with the same content");
        std::thread::sleep(std::time::Duration::from_millis(2200));
        assert_eq!(said(&files), Ok(None), "it is read once more when it has been left alone for a while");
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let is_over = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 2;
        assert_eq!(files.changed(&is_over).unwrap(), None, "its two files are looked at, and not read once more");
        with_time("ONE");
        assert_eq!(said(&files), text("`ROOT/a.txt` was written to"), "by its content alone");
        fs::write(path("a.txt"), "one more").unwrap();
        assert_eq!(said(&files), text("`ROOT/a.txt` was written to"));
        let (files, other) = DataFiles::read("text", root.path(), &|| false).unwrap();
        assert!(other != digest && said(&files) == Ok(None));
        fs::write(path(".c.txt"), "hidden").unwrap();
        assert_eq!(said(&files), Ok(None));
        fs::rename(path("b.txt"), path("c.txt")).unwrap();
        assert_eq!(said(&files), text("files of `ROOT` have other names"));
        fs::remove_file(path("c.txt")).unwrap();
        assert_eq!(said(&files), text("`ROOT` has another number of data files: 1, before 2"));
        fs::remove_file(path("a.txt")).unwrap();
        assert!(said(&files).is_err_and(|said| said.contains("cannot read `")), "{:?}", said(&files));
    }

    #[test]
    fn a_coco_folder_has_annotations_and_pictures() {
        let root = tempfile::tempdir().unwrap();
        let said = || {
            coco(root.path(), &|| false).unwrap_err().to_string().replace(&root.path().display().to_string(), "ROOT")
        };
        let write = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        assert!(said().starts_with("cannot read `ROOT/annotations`"), "{}", said());
        write("annotations/captions_train2017.json");
        assert_eq!(said(), "`data.path` is `ROOT`, which has no annotations/instances_train*.json");
        write("annotations/instances_train2017.json");
        write("annotations/instances_val2017.json");
        write("train2017.zip");
        write("val2017/2.jpg");
        assert_eq!(said(), "`data.path` is `ROOT`, which has no folder train* of pictures");
        write("train2017/b/1.PNG");
        write("train2017/a.jpg");
        write("train2017/notes.txt");
        write("test2017/9.jpg");
        let names: Vec<String> = coco(root.path(), &|| false).unwrap().into_iter().map(|(name, _)| name).collect();
        let annotations = ["annotations/instances_train2017.json", "annotations/instances_val2017.json"];
        assert_eq!(names[..2], annotations);
        assert_eq!(names[2..], ["train2017/a.jpg", "train2017/b/1.PNG", "val2017/2.jpg"]);
        fs::create_dir(root.path().join("val2014")).unwrap();
        assert_eq!(
            said(),
            "`data.path` is `ROOT`, which has no single folder val* of pictures, but `val2014` and `val2017`"
        );
    }
}
